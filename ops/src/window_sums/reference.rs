//! What `window_sums` computes, in f64.

use crate::problem::{Inputs, Problem};
use rayon::prelude::*;

/// The reference of a problem of one of the kernels.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let in_eights = p.kernel.name == "window_sum_eights";
    let (n, d) = (if in_eights { p.dim("M") * 8 } else { p.dim("N") }, p.dim("D"));
    if p.kernel.name == "token_losses" {
        let (x, v, scale) = (inputs.get("p"), inputs.get("v"), f64::from(p.scalar("scale")));
        let of = |(p, v): (&[f64], &[f64])| scale / 2.0 * p.iter().zip(v).map(|(p, v)| (p - v) * (p - v)).sum::<f64>();
        return vec![x.chunks(d).zip(v.chunks(d)).map(of).collect()];
    }
    let (x, window) =
        (inputs.get(if p.kernel.name == "window_totals" { "l" } else { "x" }), p.scalar("window") as usize);
    let sum = |at: usize| (0..window.min(at / d % n + 1)).map(|back| x[at - back * d]).sum::<f64>();
    vec![(0..x.len()).into_par_iter().map(sum).collect()]
}
