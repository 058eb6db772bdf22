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
//! where `norm(x, w) = x / sqrt(mean(x^2) + eps) * w` along each row, with the domain of [`rms_norm`](crate::rms_norm). Source: ATLAS
//! (arXiv 2505.23735) Eq. 42 for the memory; Titans (arXiv 2501.00663) Eq. 28 for memory as a gate, whose norms have weights of
//! their own.
//!
//! Epsilon: `eps` is added to the mean square, before its root, as by `torch.nn.RMSNorm`.
//!
//! Each is a fusion of kernels that are ops of their own: features are rounded as the product takes them, and nothing else
//! between the kernels is. FLOPs: `4 G N D H`. Bytes: `s G (3 N D + 2 D H)`, with an attention's output `s G N D` more.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

use crate::memory_read::memory_read;
use crate::poly_features::poly3;
use atlas_macros::{atlas_kernel, fuse};

atlas_kernel! {
    use crate::functions::{gated, silu};

    /// y = x * rsqrt(mean(x^2) + eps) * w, row by row, with the weights of each group.
    ///
    /// Epsilon: `eps` is added to the mean square, before its root, as by `torch.nn.RMSNorm`.
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
            store(y[g, n, ..], (load(x[g, n, ..]).cast::<f32>() * silu(z)).cast::<T>());
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
            store(y[g, n, ..], gated(xs, ms).cast::<T>());
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

crate::records::shipped! {
    "nvidia-h100-80gb-hbm3":
    "fused_forward" "group_norm" "lerp_forward" "lerp_gate" "mag_forward" "sigmoid_gate" "silu_gate"
}
crate::records::shipped! { "nvidia-h200":
    "fused_forward" "group_norm" "lerp_forward" "lerp_gate" "mag_forward" "sigmoid_gate" "silu_gate"
}
