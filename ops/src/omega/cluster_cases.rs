//! What the kernel that trains on a segment by a cluster is checked with: a walk over its chunks in f64.

use super::chunk_inputs::{Given, column, dot};
use crate::memory::{gelu, gelu_slope};

/// The memory and its momenta, in the order of the kernel's parameters.
struct Memory {
    w1: Vec<Vec<f64>>,
    w2: Vec<Vec<f64>>,
    s1: Vec<Vec<f64>>,
    s2: Vec<Vec<f64>>,
}

/// The outputs of a launch for a sequence and a head, in the order of the kernel's parameters. Places that belong to no chunk are not
/// written.
pub(super) fn train(x: &Given<'_>, [b, h, at]: [usize; 3]) -> Vec<Vec<f64>> {
    let [k, d, e, m, slots] = ["K", "D", "E", "M", "R"].map(|dim| x.dim(dim));
    let place = [b, h, at];
    let mut now = Memory {
        w1: x.matrix("w1", place, [e, m]),
        w2: x.matrix("w2", place, [m, d]),
        s1: x.matrix("s1", place, [e, m]),
        s2: x.matrix("s2", place, [m, d]),
    };
    let mut kept: [Vec<f64>; 7] = Default::default();
    for slot in 0..slots {
        let place = [b, h, at + slot];
        if place[2] >= x.dim("C") {
            let sizes = [k * e, k * m, k * m, e * m, m * d, e * m, m * d];
            kept.iter_mut().zip(sizes).for_each(|(all, size)| all.extend(vec![f64::NAN; size]));
            continue;
        }
        let before = [&now.w1, &now.w2, &now.s1, &now.s2].map(|matrix| matrix.concat());
        let [errors, act, change] = step(x, place, &mut now);
        let made = [errors.concat(), act.concat(), change.concat()];
        kept.iter_mut().zip(made.into_iter().chain(before)).for_each(|(all, more)| all.extend(more));
    }
    let state = [now.w1, now.w2, now.s1, now.s2].map(|matrix| matrix.concat());
    state.into_iter().chain(kept).collect()
}

/// Trains the memory on a chunk. Returns its errors, hidden rows and gradients before the gelu.
fn step(x: &Given<'_>, place: [usize; 3], now: &mut Memory) -> [Vec<Vec<f64>>; 3] {
    let k = x.dim("K");
    let first = x.oldest(place);
    let [keys, values, residuals] = ["k", "v", "rk"].map(|name| x.alive(name, place, first));
    let (scale, predicts) = (f64::from(x.problem.scalar("scale")), x.problem.scalar("predicts") > 0.0);
    let [lam, old, beta] = ["lam_end", "old_end", "beta_end"].map(|name| x.row(name, place, 1)[0]);
    let [psi, phi] = ["psi_end", "phi_end"].map(|name| x.row(name, place, k));
    let by_key = |of: &dyn Fn(usize) -> Vec<f64>| (0..k).map(of).collect::<Vec<_>>();
    let inner = by_key(&|j| now.w2.iter().map(|row| dot(&keys[j], row)).collect());
    let act = by_key(&|j| inner[j].iter().map(|&z| gelu(z)).collect());
    let errors = by_key(&|j| {
        let found = |i: usize| if predicts { residuals[j][i] + dot(&act[j], &now.w1[i]) } else { 0.0 };
        (0..values[j].len()).map(|i| scale * (found(i) - values[j][i])).collect()
    });
    let change = by_key(&|j| {
        (0..inner[j].len()).map(|i| gelu_slope(inner[j][i]) * dot(&errors[j], &column(&now.w1, i))).collect()
    });
    let follow = |w: &mut Vec<Vec<f64>>, s: &mut Vec<Vec<f64>>, rows: &[Vec<f64>], cols: &[Vec<f64>]| {
        for (i, (w, s)) in w.iter_mut().zip(s).enumerate() {
            for (l, (w, s)) in w.iter_mut().zip(s).enumerate() {
                let added = |by: &[f64]| (0..k).map(|j| by[j] * rows[j][i] * cols[j][l]).sum::<f64>();
                *w = lam * *w - old * *s - added(&psi);
                *s = beta * *s + added(&phi);
            }
        }
    };
    follow(&mut now.w1, &mut now.s1, &errors, &act);
    follow(&mut now.w2, &mut now.s2, &change, &keys);
    [errors, act, change]
}
