//! The mixing weights of a chunk's gradients, by sums over their paths.

use super::{Gates, SequenceSizes};

/// The mixing weights of one head.
#[derive(Clone, Debug, Default)]
pub struct Mixed {
    /// `[C, L, K]`.
    pub psi: Vec<f64>,
    /// `[C, L]`.
    pub lam: Vec<f64>,
    /// `[C, L]`.
    pub old: Vec<f64>,
    /// `[C, K]`: the last row of each chunk.
    pub psi_end: Vec<f64>,
    /// `[C, K]`.
    pub phi_end: Vec<f64>,
    /// `[C, K]`: above 0 for a token that something weighs, and 1 if a weight is no number.
    pub live: Vec<f64>,
    /// `[C]`.
    pub lam_end: Vec<f64>,
    /// `[C]`.
    pub old_end: Vec<f64>,
    /// `[C]`.
    pub beta_end: Vec<f64>,
    /// `[C, L]`: the latest step size.
    pub steps: Vec<f64>,
}

/// The mixing weights, by sums over the paths of a gradient and not by a recurrence over rows.
pub fn mix(s: &SequenceSizes, g: &Gates, before: bool, commit: usize) -> Mixed {
    let mut m = Mixed::default();
    for c in 0..s.chunks() {
        let tokens: Vec<usize> = (0..s.l).map(|n| c * s.l + n).collect();
        let gate = |of: &[f64], t: usize, past: f64| if t < s.n { of[t] } else { past };
        // The part of S_j that is in S_n, and of M_j in M_n.
        let parts = |of: &[f64]| -> Vec<Vec<f64>> {
            let product = |j: usize, n: usize| (j + 1..=n).map(|i| gate(of, tokens[i], 1.0)).product();
            (0..s.l).map(|j| (0..s.l).map(|n| product(j, n)).collect()).collect()
        };
        let (of_s, of_m) = (parts(&g.theta), parts(&g.alpha));
        let weight = |n: usize, i: usize| {
            let back = (n + s.k - s.l).checked_sub(i).filter(|&o| o < s.w && tokens[n] < s.n);
            back.map_or(0.0, |o| g.gamma[tokens[n] * s.w + s.w - 1 - o])
        };
        let phi: Vec<Vec<f64>> =
            (0..s.l).map(|n| (0..s.k).map(|i| (0..=n).map(|j| of_s[j][n] * weight(j, i)).sum()).collect()).collect();
        let of_start = |of: &[f64], parts: &[Vec<f64>], n: usize| gate(of, tokens[0], 1.0) * parts[0][n];
        let mut rows = Vec::new();
        for n in 0..s.l {
            let through = |f: &dyn Fn(usize) -> f64| -> f64 {
                (0..=n).map(|j| of_m[j][n] * gate(&g.eta, tokens[j], 0.0) * f(j)).sum()
            };
            let psi: Vec<f64> = (0..s.k).map(|i| through(&|j| phi[j][i])).collect();
            let old = through(&|j| of_start(&g.theta, &of_s, j));
            rows.push((psi, of_start(&g.alpha, &of_m, n), old));
        }
        let shifted = usize::from(before);
        let nothing = (vec![0.0; s.k], 1.0, 0.0);
        for (psi, lam, old) in std::iter::repeat_n(&nothing, shifted).chain(&rows).take(s.l) {
            m.psi.extend(psi);
            m.lam.push(*lam);
            m.old.push(*old);
        }
        let last = s.l - 1;
        let (psi, lam, old) = if c < commit { &rows[last] } else { &nothing };
        m.psi_end.extend(psi);
        m.phi_end.extend((0..s.k).map(|i| if c < commit { phi[last][i] } else { 0.0 }));
        let live = |i: usize| {
            let mut of = (0..s.l).flat_map(|n| [phi[n][i], rows[n].0[i]]);
            if of.clone().any(f64::is_nan) { 1.0 } else { of.by_ref().map(f64::abs).fold(0.0, f64::max) }
        };
        m.live.extend((0..s.k).map(live));
        m.lam_end.push(*lam);
        m.old_end.push(*old);
        let step = |n: usize| {
            let t = tokens[n].min(s.n - 1);
            if c < commit && t >= tokens[0] { g.eta[t] } else { 0.0 }
        };
        m.steps.extend((0..s.l).map(step));
        m.beta_end.push(if c < commit { of_start(&g.theta, &of_s, last) } else { 1.0 });
    }
    m
}
