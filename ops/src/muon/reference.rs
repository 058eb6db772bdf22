//! Muon in f64.

use super::{Momentum, Muon, NewtonSchulz, NormEps, StepScale};
use crate::problem::{Inputs, Problem};

/// The iteration of one matrix of `rows x cols`, row-major.
pub fn iterate(of: &NewtonSchulz, g: &[f64], [rows, cols]: [usize; 2]) -> Vec<f64> {
    if rows > cols {
        let y = iterate(of, &turned(g, cols), [cols, rows]);
        return turned(&y, rows);
    }
    let top = g.iter().fold(0.0_f64, |a, b| a.max(b.abs()));
    let norm = g.iter().map(|v| v * v).sum::<f64>().sqrt();
    let unit = if of.scale_safe { top } else { 1.0 };
    let norm = f64::from(of.stretch) * norm;
    let by = match of.eps {
        NormEps::Added(eps) => norm + f64::from(eps) * unit,
        NormEps::AtLeast(eps) => norm.max(f64::from(eps) * unit),
    };
    let mut x: Vec<f64> = g.iter().map(|v| if *v == 0.0 { 0.0 } else { v / by }).collect();
    for [a, b, c] in &of.steps {
        let gram = product(&x, &turned(&x, cols), [rows, cols, rows]);
        let square = product(&gram, &gram, [rows, rows, rows]);
        let poly: Vec<f64> = gram.iter().zip(&square).map(|(g, s)| b * g + c * s).collect();
        let px = product(&poly, &x, [rows, rows, cols]);
        x.iter_mut().zip(&px).for_each(|(x, p)| *x = a * *x + p);
    }
    x
}

/// One step: weights and momentum afterwards.
pub fn step(of: &Muon, [w, buf, g]: [&[f64]; 3], shape: [usize; 2]) -> [Vec<f64>; 2] {
    let mu = f64::from(of.momentum);
    let fresh = if of.buffer == Momentum::Mean { 1.0 - mu } else { 1.0 };
    let buf: Vec<f64> = buf.iter().zip(g).map(|(b, g)| mu * b + fresh * g).collect();
    let ahead = |(b, g): (&f64, &f64)| if of.nesterov { fresh * g + mu * b } else { *b };
    let u: Vec<f64> = buf.iter().zip(g).map(ahead).collect();
    let along = iterate(&of.iteration, &u, shape);
    let [rows, cols] = shape.map(|n| n as f64);
    let scale = match of.scale {
        StepScale::One => 1.0,
        StepScale::Tall => (rows / cols).max(1.0).sqrt(),
        StepScale::Aspect => (rows / cols).sqrt(),
        StepScale::Size => 0.2 * rows.max(cols).sqrt(),
    };
    let rate = f64::from(of.rate);
    let keep = 1.0 - rate * f64::from(of.decay);
    [w.iter().zip(&along).map(|(w, o)| keep * w - rate * scale * o).collect(), buf]
}

/// The transpose of rows of `cols`.
fn turned(x: &[f64], cols: usize) -> Vec<f64> {
    let rows = x.len() / cols.max(1);
    (0..x.len()).map(|i| x[i % rows * cols + i / rows]).collect()
}

fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for l in 0..k {
            let by = a[i * k + l];
            c[i * n..][..n].iter_mut().zip(&b[l * n..][..n]).for_each(|(c, b)| *c += by * b);
        }
    }
    c
}

/// The references of the launches one by one.
pub(crate) fn checked(p: &Problem, i: &Inputs) -> Vec<Vec<f64>> {
    let (m, n) = (p.dim("M"), p.dim("N"));
    let scalar = |name: &str| f64::from(p.scalar(name));
    let each = |x: &[f64], len: usize, f: &dyn Fn(&[f64]) -> Vec<f64>| x.chunks(len.max(1)).flat_map(f).collect();
    let diagonal = |x: &mut [f64], by: f64| (0..m).for_each(|d| x[d * m + d] += by);
    match p.kernel.name {
        "ns_squares" => {
            let g = i.get("g");
            let top = |row: &[f64]| row.iter().fold(0.0_f64, |a, b| a.max(b.abs()));
            let tops: Vec<f64> = g.chunks(n.max(1)).map(top).collect();
            let square = |(row, top): (&[f64], &f64)| row.iter().map(|v| (v / top).powi(2)).sum::<f64>();
            let squares =
                g.chunks(n.max(1)).zip(&tops).map(|(r, t)| if *t == 0.0 { 0.0 } else { square((r, t)) }).collect();
            vec![tops, squares]
        }
        "ns_normalise" => {
            let (g, tops, squares) = (i.get("g"), i.get("largest"), i.get("squares"));
            let of = |(b, g): (usize, &[f64])| {
                let part = b * m..(b + 1) * m;
                let top = tops[part.clone()].iter().fold(0.0_f64, |a, &b| a.max(b));
                let unit = if top == 0.0 { 1.0 } else { top };
                let pairs = tops[part.clone()].iter().zip(&squares[part]);
                let root = pairs.map(|(t, s)| (t / unit).powi(2) * s).sum::<f64>().sqrt();
                let eps = |name: &str| if scalar("safe") > 0.0 { scalar(name) } else { scalar(name) / unit };
                let by = (scalar("stretch") * root + eps("eps")).max(eps("least"));
                g.iter().map(|v| v / unit / by).collect::<Vec<f64>>()
            };
            vec![g.chunks((m * n).max(1)).enumerate().flat_map(of).collect()]
        }
        "ns_gram" => vec![each(&i.get("x"), m * n, &|x| {
            let mut e = product(x, &turned(x, n), [m, n, m]);
            diagonal(&mut e, -scalar("centre"));
            e
        })],
        "ns_product" => {
            let (ps, qs) = (i.get("p"), i.get("q"));
            let of = |(p, q): (&[f64], &[f64])| {
                let linear = |(q, pq): (&f64, f64)| scalar("second") * q + scalar("third") * pq;
                let mut r: Vec<f64> = q.iter().zip(product(p, q, [m, m, m])).map(linear).collect();
                diagonal(&mut r, scalar("first"));
                r
            };
            let len = (m * m).max(1);
            vec![ps.chunks(len).zip(qs.chunks(len)).flat_map(of).collect()]
        }
        "ns_apply" => {
            let (ps, xs) = (i.get("p"), i.get("x"));
            let pairs = ps.chunks((m * m).max(1)).zip(xs.chunks((m * n).max(1)));
            vec![pairs.flat_map(|(p, x)| product(p, x, [m, m, n])).collect()]
        }
        "muon_momentum" => {
            let (g, buf) = (i.get("g"), i.get("buf"));
            let now: Vec<f64> = buf.iter().zip(&g).map(|(b, g)| scalar("mu") * b + scalar("fresh") * g).collect();
            let u = now.iter().zip(&g).map(|(b, g)| scalar("ahead") * g + scalar("momentum") * b).collect();
            vec![now, u]
        }
        _ => {
            let (w, o) = (i.get("w"), i.get("o"));
            vec![w.iter().zip(&o).map(|(w, o)| scalar("keep") * w - scalar("step") * o).collect()]
        }
    }
}
