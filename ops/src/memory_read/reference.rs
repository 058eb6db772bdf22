//! What `memory_read` computes, in f64.

use rayon::prelude::*;

/// `y[g,n,i] = r[g,n,i] + sum_h w1[g,i,h] gelu(sum_j w2[g,h,j] x[g,n,j])`, row-major.
pub fn reference(x: &[f64], w2: &[f64], w1: &[f64], r: &[f64], [n, d, h]: [usize; 3]) -> Vec<f64> {
    let mut y = r.to_vec();
    if d == 0 {
        return y;
    }
    y.par_chunks_mut(d).enumerate().for_each(|(row, y)| {
        let group = row / n;
        let x = &x[row * d..][..d];
        let w2 = &w2[group * h * d..][..h * d];
        let w1 = &w1[group * d * h..][..d * h];
        let hidden: Vec<f64> = (0..h)
            .map(|k| {
                let z: f64 = (0..d).map(|j| w2[k * d + j] * x[j]).sum();
                0.5 * z * (1.0 + libm::erf(z / std::f64::consts::SQRT_2))
            })
            .collect();
        for (i, y) in y.iter_mut().enumerate() {
            *y += (0..h).map(|k| w1[i * h + k] * hidden[k]).sum::<f64>();
        }
    });
    y
}
