//! Read-outs of a deep memory with all that a layer does around them, in one launch each.
//!
//! With the queries `q` and the memory of each group (a batch element x head):
//!
//! ```text
//! m = q + W1 gelu(W2 phi(q))         phi(q) = a1 q + a2 q^2 + a3 q^3
//! fused_forward   y = silu(gate) * norm(m, w)
//! mag_forward     y = norm(attention, wa) * sigmoid(norm(m, w))
//! lerp_forward    y = s norm(attention, wa) + (1 - s) norm(m, w),  s = sigmoid(gate)
//! ```
//!
//! where `norm(x, w) = x / sqrt(mean(x^2) + eps) * w` along each row, with the domain of [`rms_norm`](crate::rms_norm). Source: ATLAS (arXiv 2505.23735) Eq. 42 for the
//! memory; Titans (arXiv 2501.00663) Eq. 28 for memory as a gate, whose norms have weights of their own.
//!
//! Each is a fusion of kernels that are ops of their own: features are rounded as the product takes them, and nothing else
//! between the kernels is. FLOPs: `4 G N D H`. Bytes: `s G (3 N D + 2 D H)`, with an attention's output `s G N D` more.

use crate::memory_read::memory_read;
use crate::poly_features::poly3;
use atlas_macros::{atlas_kernel, fuse};

atlas_kernel! {
    /// y = x * rsqrt(mean(x^2) + eps) * w, row by row, with the weights of each group.
    pub kernel group_norm<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        w: &Tensor<T, [G, D]>,
        y: &mut Tensor<T, [G, N, D]>,
        eps: f32,
    )
    tune { BN: [32, 16, 64, 128], warps: [4, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]).cast::<f32>();
            let mean = sum(xs * xs, axis = 1) / size(D).cast::<f32>();
            store(y[g, n, ..], (xs * rsqrt(mean + eps) * load(w[g, ..]).cast::<f32>()).cast::<T>());
        }
    }

    /// y = x * silu(gate)
    pub kernel silu_gate<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        gate: &Tensor<T, [G, N, D]>,
        y: &mut Tensor<T, [G, N, D]>,
    )
    tune { BN: [32, 16, 64, 128], warps: [4, 2, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let z = load(gate[g, n, ..]).cast::<f32>();
            // The gate first: it is no larger than z, where x z may be beyond all numbers.
            store(y[g, n, ..], (load(x[g, n, ..]).cast::<f32>() * (z * sigmoid(z))).cast::<T>());
        }
    }

    /// y = x * sigmoid(m)
    pub kernel sigmoid_gate<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        m: &Tensor<T, [G, N, D]>,
        y: &mut Tensor<T, [G, N, D]>,
    )
    tune { BN: [32, 16, 64, 128], warps: [4, 2, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]).cast::<f32>();
            let ms = load(m[g, n, ..]).cast::<f32>();
            store(y[g, n, ..], (xs * sigmoid(ms)).cast::<T>());
        }
    }

    /// y = s x + (1 - s) m with s = sigmoid(gate)
    pub kernel lerp_gate<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        m: &Tensor<T, [G, N, D]>,
        gate: &Tensor<T, [G, N, D]>,
        y: &mut Tensor<T, [G, N, D]>,
    )
    tune { BN: [32, 16, 64, 128], warps: [4, 2, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]).cast::<f32>();
            let ms = load(m[g, n, ..]).cast::<f32>();
            let z = load(gate[g, n, ..]).cast::<f32>();
            // The lesser of the two shares, rounded as a gate of this type is, so that a quick sigmoid serves: the greater is what it
            // lacks to one. Two products and no difference: x - m may exceed the largest number, and x may be lost in it.
            let lesser = sigmoid(-abs(z)).cast::<T>().cast::<f32>();
            let greater = 1.0 - lesser;
            let of_x = select(z < 0.0, lesser, greater) * xs;
            store(y[g, n, ..], (of_x + select(z < 0.0, greater, lesser) * ms).cast::<T>());
        }
    }
}

fuse! {
    /// y = silu(gate) * norm(q + W1 gelu(W2 phi(q)))
    pub kernel fused_forward(keep_f32) = poly3(x = q) >> memory_read(r = q) >> group_norm >> silu_gate;

    /// y = norm(attention) * sigmoid(norm(q + W1 gelu(W2 phi(q))))
    pub kernel mag_forward(keep_f32) =
        poly3(x = q) >> memory_read(r = q) >> group_norm(y = memory)
        >> group_norm(x = attention, w = wa) >> sigmoid_gate(m = memory);

    /// y = s norm(attention) + (1 - s) norm(q + W1 gelu(W2 phi(q))) with s = sigmoid(gate)
    pub kernel lerp_forward(keep_f32) =
        poly3(x = q) >> memory_read(r = q) >> group_norm(y = memory)
        >> group_norm(x = attention, w = wa) >> lerp_gate(m = memory);
}

#[cfg(feature = "verify")]
pub(crate) use checked::reference;

#[cfg(feature = "verify")]
mod checked {
    use crate::problem::{Inputs, Problem};

    /// Rows of `width` divided by their root mean square, times the weights of their group of `rows` rows.
    fn norm(x: &[f64], w: &[f64], [rows, width]: [usize; 2], eps: f64) -> Vec<f64> {
        let group = (rows * width).max(1);
        let of = |(at, x): (usize, &[f64])| crate::rms_norm::reference(x, &w[at * width..][..width], eps);
        x.chunks(group).enumerate().flat_map(of).collect()
    }

    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    /// The formulas at the head of the file, in f64; group by group, so that some groups may be asked for alone.
    pub(crate) fn reference(p: &Problem, i: &Inputs) -> Vec<Vec<f64>> {
        let shape = [p.dim("N"), p.dim("D")];
        let eps = f64::from(p.scalar("eps"));
        if matches!(p.kernel.name, "group_norm" | "silu_gate" | "sigmoid_gate" | "lerp_gate") {
            return vec![alone(p, i, shape, eps)];
        }
        let (q, w) = (i.get("q"), i.get("w"));
        let a = ["a1", "a2", "a3"].map(|name| f64::from(p.scalar(name)));
        let phi = crate::poly_features::reference(&q, &a);
        let sizes = [p.dim("N"), p.dim("D"), p.dim("H")];
        let m = crate::memory_read::reference(&phi, &i.get("w2"), &i.get("w1"), &q, sizes);
        let m = norm(&m, &w, shape, eps);
        let gate = i.get("gate");
        if p.kernel.name == "fused_forward" {
            return vec![m.iter().zip(&gate).map(|(m, z)| m * (z * sigmoid(*z))).collect()];
        }
        let attention = norm(&i.get("attention"), &i.get("wa"), shape, eps);
        let both = attention.iter().zip(&m).enumerate();
        let combined = both.map(|(at, (x, m))| match p.kernel.name {
            "mag_forward" => x * sigmoid(*m),
            _ => sigmoid(gate[at]) * x + sigmoid(-gate[at]) * m,
        });
        vec![combined.collect()]
    }

    fn alone(p: &Problem, i: &Inputs, shape: [usize; 2], eps: f64) -> Vec<f64> {
        let (x, m, gate) = (i.get("x"), i.get("m"), i.get("gate"));
        match p.kernel.name {
            "group_norm" => norm(&x, &i.get("w"), shape, eps),
            "silu_gate" => x.iter().zip(&gate).map(|(x, z)| x * (z * sigmoid(*z))).collect(),
            "sigmoid_gate" => x.iter().zip(&m).map(|(x, m)| x * sigmoid(*m)).collect(),
            _ => x.iter().zip(&m).zip(&gate).map(|((x, m), z)| sigmoid(*z) * x + sigmoid(-*z) * m).collect(),
        }
    }
}
