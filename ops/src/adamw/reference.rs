//! What `adamw` computes, in f64.

/// The numbers of a step.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// The learning rate.
    pub rate: f64,
    /// How much of the means of the gradient and of its square is kept.
    pub betas: [f64; 2],
    /// Added to the root.
    pub eps: f64,
    /// How much of an element decays at a rate of 1.
    pub decay: f64,
    /// `1 - beta^t` of both.
    pub biases: [f64; 2],
}

/// `p`, `m` and `v` after a step with the gradient `g`.
pub fn reference([p, m, v, g]: [&[f64]; 4], s: Numbers) -> [Vec<f64>; 3] {
    let [beta1, beta2] = s.betas;
    let ms: Vec<f64> = m.iter().zip(g).map(|(m, g)| beta1 * m + (1.0 - beta1) * g).collect();
    let vs: Vec<f64> = v.iter().zip(g).map(|(v, g)| beta2 * v + (1.0 - beta2) * g * g).collect();
    let step = |i: usize| s.rate * (ms[i] / s.biases[0]) / ((vs[i] / s.biases[1]).sqrt() + s.eps);
    let ps = p.iter().enumerate().map(|(i, p)| p - s.rate * s.decay * p - step(i)).collect();
    [ps, ms, vs]
}
