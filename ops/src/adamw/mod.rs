//! A step of AdamW on all elements of a flat tensor.
//!
//! ```text
//! g = factor * gradient
//! p = p (1 - rate decay)
//! m = m + (1 - beta1) (g - m)
//! v = beta2 v + (1 - beta2) g^2
//! p = p - rate / bias1 * m / (sqrt(v) / sqrt(bias2) + eps)
//! ```
//!
//! Source: Loshchilov and Hutter, arXiv 1711.05101, Algorithm 2, in the order of `torch.optim.AdamW`: the decay comes first and
//! is not scaled by the root. `bias1` and `bias2` are `1 - beta^t` at step `t`, from 1 on: [`bias_correction`]. `factor`, of one
//! element, is 1 or what [`clip_factor`](crate::clip_factor) leaves on the device. Everything but the gradient is f32.
//!
//! Bytes: `28 N` with a gradient in f32; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::{Numbers, reference};

use atlas_macros::atlas_kernel;

atlas_kernel! {
    tile fn moments(m, v, g, beta1, beta2) { (m + (1.0 - beta1) * (g - m), beta2 * v + (1.0 - beta2) * (g * g)) }

    tile fn stepped(p, m, v, rate, eps, decay, bias1, bias2) {
        p * (1.0 - rate * decay) - rate / bias1 * (m / (sqrt(v) / sqrt(bias2) + eps))
    }

    /// p, m and v after a step: p = p (1 - rate decay) - rate / bias1 * m / (sqrt(v) / sqrt(bias2) + eps), as `torch.optim.AdamW`.
    ///
    /// m and v are the means of `factor g` and of its square. `factor`, of one element, is 1 or what `clip_factor` wrote. `bias1` and
    /// `bias2` are `bias_correction(beta1, step)` and `bias_correction(beta2, step)`.
    pub kernel adamw<G: Float>(
        p: &mut Tensor<f32, [N]>,
        m: &mut Tensor<f32, [N]>,
        v: &mut Tensor<f32, [N]>,
        g: &Tensor<G, [N]>,
        factor: &Tensor<f32, [K]>,
        rate: f32,
        beta1: f32,
        beta2: f32,
        eps: f32,
        decay: f32,
        bias1: f32,
        bias2: f32,
    )
    tune { BN: [1024, 512], warps: [4, 2] }
    require { K == 1 }
    {
        for n in grid(tiles(N, BN)) {
            let gs = load(factor[0]) * load(g[n]).cast::<f32>();
            let (ms, vs) = moments(load(m[n]), load(v[n]), gs, beta1, beta2);
            store(m[n], ms);
            store(v[n], vs);
            store(p[n], stepped(load(p[n]), ms, vs, rate, eps, decay, bias1, bias2));
        }
    }

    /// The same, and p rounded to the element type of `w`, in which the model computes.
    pub kernel adamw_rounded<T: Float, G: Float>(
        p: &mut Tensor<f32, [N]>,
        m: &mut Tensor<f32, [N]>,
        v: &mut Tensor<f32, [N]>,
        g: &Tensor<G, [N]>,
        factor: &Tensor<f32, [K]>,
        w: &mut Tensor<T, [N]>,
        rate: f32,
        beta1: f32,
        beta2: f32,
        eps: f32,
        decay: f32,
        bias1: f32,
        bias2: f32,
    )
    tune { BN: [1024, 512], warps: [4, 2] }
    require { K == 1 }
    {
        for n in grid(tiles(N, BN)) {
            let gs = load(factor[0]) * load(g[n]).cast::<f32>();
            let (ms, vs) = moments(load(m[n]), load(v[n]), gs, beta1, beta2);
            store(m[n], ms);
            store(v[n], vs);
            let ps = stepped(load(p[n]), ms, vs, rate, eps, decay, bias1, bias2);
            store(p[n], ps);
            store(w[n], ps.cast::<T>());
        }
    }
}

/// `1 - beta^step`, by which a mean that began at 0 is divided. The first step is 1.
pub fn bias_correction(beta: f32, step: u32) -> f32 {
    (1.0 - f64::from(beta).powf(f64::from(step))) as f32
}
