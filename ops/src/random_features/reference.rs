//! What `random_features` computes, in f64.

use rayon::prelude::*;

/// Which feature of `x` and `w` a reference computes; all are divided by `sqrt(M)`.
pub enum Feature<'b> {
    /// With `scale` and `shift`.
    Favor(f64, f64),
    /// With `b`.
    Cosine(&'b [f64]),
    /// Cosines, then sines.
    Pair,
}

/// As the head says, row by row.
pub fn reference(x: &[f64], w: &[f64], feature: &Feature<'_>, [d, m]: [usize; 2]) -> Vec<f64> {
    let row = |x: &[f64]| {
        let dots = || w.chunks(d.max(1)).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>());
        let raw: Vec<f64> = match feature {
            Feature::Favor(scale, shift) => {
                let half = scale * scale * x.iter().map(|x| x * x).sum::<f64>() / 2.0;
                dots().map(|z| (scale * z - half - shift).exp()).collect()
            }
            Feature::Cosine(b) => dots().zip(*b).map(|(z, b)| 2_f64.sqrt() * (z + b).cos()).collect(),
            Feature::Pair => dots().map(f64::cos).chain(dots().map(f64::sin)).collect(),
        };
        raw.into_iter().map(|y| y / (m as f64).sqrt()).collect::<Vec<f64>>()
    };
    x.par_chunks(d.max(1)).flat_map_iter(row).collect()
}
