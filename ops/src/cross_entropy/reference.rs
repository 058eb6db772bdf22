//! What `cross_entropy` computes, in f64.

use crate::online_softmax::in_f64;

/// The loss of each row of `v` logits, and the gradient by them times `scale`.
pub fn reference(logits: &[f64], target: &[f64], v: usize, scale: f64) -> [Vec<f64>; 2] {
    let (mut loss, mut slopes) = (vec![], vec![]);
    for (n, &target) in target.iter().enumerate() {
        let z = &logits[n * v..][..v];
        if target < 0.0 || target >= v as f64 {
            loss.push(0.0);
            slopes.extend(vec![0.0; v]);
            continue;
        }
        let sum = in_f64::log_sum_exp(z);
        // The softmax of a row with an infinite sum is no number.
        let sum = if sum.is_finite() { sum } else { f64::NAN };
        let target = target as usize;
        loss.push(sum - z[target]);
        slopes.extend((0..v).map(|i| scale * ((z[i] - sum).exp() - f64::from(u8::from(i == target)))));
    }
    [loss, slopes]
}
