//! What `embedding` computes, in f64.

use crate::problem::{Inputs, Problem};

/// The reference of a problem of one of the kernels.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [v, d] = ["V", "D"].map(|dim| p.dim(dim));
    let index = inputs.get("index");
    let row = |at: f64| (at >= 0.0 && at < v as f64).then_some(at as usize * d);
    if p.kernel.name == "embedding" {
        let table = inputs.get("table");
        let of = |&at: &f64| row(at).map_or(vec![0.0; d], |at| table[at..][..d].to_vec());
        return vec![index.iter().flat_map(of).collect()];
    }
    let dy = inputs.get("dy");
    let mut sums = vec![0.0; v * d];
    for (n, &at) in index.iter().enumerate() {
        if let Some(at) = row(at) {
            (0..d).for_each(|i| sums[at + i] += dy[n * d + i]);
        }
    }
    vec![sums]
}
