//! What `windowed_attention_grad` computes, in f64.

use crate::problem::{Inputs, Problem};
use crate::windowed_attention::{self, WindowedAttentionSizes};
use rayon::prelude::*;

/// Where documents begin, the window, and the usual scale.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// The first key of each query's document, `[B, M]`.
    pub first: &'a [f64],
    /// Keys of a window, the query's own among them.
    pub window: i64,
    /// The factor of the products of queries and keys.
    pub scale: f64,
}

/// The gradients by q, k, v, pk and pv: those of the definition, softmax and its derivative.
pub fn reference(qkv: [&[f64]; 5], dout: &[f64], sight: Sight<'_>, s: WindowedAttentionSizes) -> [Vec<f64>; 5] {
    let [o, lse] = windowed_attention::reference(qkv, sight.first, sight.window, sight.scale, s);
    let delta = deltas(&o, dout, s);
    within(qkv, [&lse, &delta, dout], sight, s)
}

/// The sums of `dout * o` of each query, `[B, H, M]`.
fn deltas(o: &[f64], dout: &[f64], s: WindowedAttentionSizes) -> Vec<f64> {
    let of = |at: usize| {
        let (i, h, b) = (at % s.m, at / s.m % s.h, at / s.m / s.h);
        let row = ((b * s.m + i) * s.h + h) * s.d;
        (0..s.d).map(|e| o[row + e] * dout[row + e]).sum()
    };
    (0..s.b * s.h * s.m).map(of).collect()
}

/// What one query gives: its `dq`, and of each key that it sees where that stands, its `dk` and its `dv`.
type OfQuery = (Vec<f64>, Vec<(Key, Vec<f64>, Vec<f64>)>);

/// Where a key stands.
enum Key {
    Prefix(usize),
    Window(usize),
}

/// The same from the log-sum-exp and the sums of `dout * o` of each query, both `[B, H, M]`, whatever these are.
fn within(
    [q, k, v, pk, pv]: [&[f64]; 5],
    [lse, delta, dout]: [&[f64]; 3],
    sight: Sight<'_>,
    s: WindowedAttentionSizes,
) -> [Vec<f64>; 5] {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let row_of = |at: usize| ((at / s.m / s.h * s.m + at % s.m) * s.h + at / s.m % s.h) * s.d;
    let query = |at: usize| -> OfQuery {
        let (i, h, b) = (at % s.m, at / s.m % s.h, at / s.m / s.h);
        let j = h / (s.h / s.j);
        let (q, dout) = (&q[row_of(at)..][..s.d], &dout[row_of(at)..][..s.d]);
        let here = (i + s.n) as i64 - s.m as i64;
        let oldest = (here - sight.window.max(0) + 1).max(sight.first[b * s.m + i] as i64).max(0);
        let prefix = (0..s.s).map(|p| Key::Prefix((j * s.s + p) * s.d));
        let keys = prefix.chain((oldest..=here).map(|n| Key::Window(((b * s.n + n as usize) * s.j + j) * s.d)));
        let mut dq = vec![0.0; s.d];
        let of_key = |key: Key| {
            let (k, v) = match key {
                Key::Prefix(at) => (&pk[at..][..s.d], &pv[at..][..s.d]),
                Key::Window(at) => (&k[at..][..s.d], &v[at..][..s.d]),
            };
            let p = if lse[at] == f64::NEG_INFINITY { 0.0 } else { (sight.scale * dot(q, k) - lse[at]).exp() };
            let ds = sight.scale * p * (dot(dout, v) - delta[at]);
            dq.iter_mut().zip(k).for_each(|(dq, k)| *dq += ds * k);
            (key, q.iter().map(|q| ds * q).collect(), dout.iter().map(|d| p * d).collect())
        };
        let by_keys = keys.map(of_key).collect();
        (dq, by_keys)
    };
    let [mut dq, mut dk, mut dv, mut dpk, mut dpv] = [q, k, v, pk, pv].map(|x| vec![0.0; x.len()]);
    let add = |to: &mut [f64], x: &[f64]| to.iter_mut().zip(x).for_each(|(to, x)| *to += x);
    // One head of one sequence at a time: what its queries give to the keys is as much as all of their logits, times D.
    for first in (0..s.b * s.h * s.m).step_by(s.m.max(1)) {
        let of_head: Vec<OfQuery> = (first..first + s.m).into_par_iter().map(query).collect();
        for (at, (of_query, by_keys)) in of_head.into_iter().enumerate() {
            dq[row_of(first + at)..][..s.d].copy_from_slice(&of_query);
            for (key, by_k, by_v) in by_keys {
                match key {
                    Key::Prefix(at) => (add(&mut dpk[at..], &by_k), add(&mut dpv[at..], &by_v)),
                    Key::Window(at) => (add(&mut dk[at..], &by_k), add(&mut dv[at..], &by_v)),
                };
            }
        }
    }
    [dq, dk, dv, dpk, dpv]
}

/// The reference of a problem of one of the kernels.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [b, m, n, h, j, d, s] = ["B", "M", "N", "H", "J", "D", "S"].map(|dim| p.dim(dim));
    let mut sizes = WindowedAttentionSizes { b, m, n, h, j, d, s };
    let mut tensors = ["q", "k", "v", "pk", "pv"].map(|name| inputs.get(name));
    let [mut first, lse, o, delta, dout] = ["first", "lse", "o", "delta", "dout"].map(|name| inputs.get(name));
    let mut window = p.scalar("window") as i64;
    match p.kernel.name {
        // The kernel of the keys has no prefix, and that of the prefix no keys.
        "attention_key_grad" => sizes.s = 0,
        "attention_prefix_grad" => {
            (sizes.n, window) = (0, 0);
            first = vec![0.0; b * m];
            tensors[1].clear();
            tensors[2].clear();
        }
        _ => {}
    }
    let delta = if p.kernel.name == "attention_query_grad" { deltas(&o, &dout, sizes) } else { delta };
    let sight = Sight { first: &first, window, scale: f64::from(p.scalar("scale")) };
    let [dq, dk, dv, dpk, dpv] = within(tensors.each_ref().map(Vec::as_slice), [&lse, &delta, &dout], sight, sizes);
    match p.kernel.name {
        "attention_query_grad" => vec![dq, delta],
        "attention_key_grad" => vec![dk, dv],
        _ => vec![dpk, dpv],
    }
}
