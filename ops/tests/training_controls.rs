//! Negative controls of what training needs: kernels with one mistake each, which the comparison must catch.

use crate::controls::caught;
use atlas_macros::atlas_kernel;
use atlas_ops::{Fill, Problem, cases};

atlas_kernel! {
    kernel norm_grad_along_the_row<T: Float>(
        x: &Tensor<T, [N, D]>, w: &Tensor<T, [D]>, dy: &Tensor<T, [N, D]>, eps: f32,
        dx: &mut Tensor<T, [N, D]>, rstd: &mut Tensor<f32, [N]>,
    )
    tune { BN: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            let scale = rsqrt(sum(xs * xs, axis = 1) / size(D).cast::<f32>() + eps);
            // The root depends on x too.
            let g = load(dy[n, ..]).cast::<f32>() * load(w[..]).cast::<f32>();
            store(dx[n, ..], (scale * g).cast::<T>());
            store(rstd[n], scale);
        }
    }

    kernel norm_weight_grad_without_root<T: Float>(
        x: &Tensor<T, [N, D]>, rstd: &Tensor<f32, [N]>, dy: &Tensor<T, [N, D]>, dw: &mut Tensor<f32, [D]>,
    )
    tune { BD: [64], BN: [32] }
    {
        for d in grid(tiles(D, BD)) {
            let mut acc = zeros::<f32>([BN, BD]);
            for n in tiles(N, BN) {
                let unit = load(x[n, d]).cast::<f32>() + 0.0 * load(rstd[n]).t();
                acc += (load(dy[n, d]).cast::<f32>() * unit).or(0.0);
            }
            store(dw[d], sum(acc, axis = 0));
        }
    }

    tile fn slope_of_open_gate(x, m) { x * sigmoid(m) }

    kernel gate_grad_of_open_gate<T: Float>(
        x: &Tensor<T, [B, N, H, D]>, m: &Tensor<T, [B, N, H, D]>, dy: &Tensor<T, [B, N, H, D]>,
        dx: &mut Tensor<T, [B, N, H, D]>, dm: &mut Tensor<T, [B, N, H, D]>,
    )
    tune { BN: [16] }
    {
        for (b, n, h) in grid(B, tiles(N, BN), H) {
            let dys = load(dy[b, n, h, ..]).cast::<f32>();
            let ms = load(m[b, n, h, ..]).cast::<f32>();
            store(dx[b, n, h, ..], (dys * sigmoid(ms)).cast::<T>());
            // 1 - sigmoid(m) is missing.
            store(dm[b, n, h, ..], (dys * slope_of_open_gate(load(x[b, n, h, ..]).cast::<f32>(), ms)).cast::<T>());
        }
    }

    kernel silu_grad_of_gate_alone<T: Float>(
        z: &Tensor<T, [M, N]>, dy: &Tensor<T, [M, N]>, dz: &mut Tensor<T, [M, N]>,
    )
    tune { BM: [4], BN: [256] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let slope = sigmoid(load(z[m, n]).cast::<f32>());
            store(dz[m, n], (load(dy[m, n]).cast::<f32>() * slope).cast::<T>());
        }
    }

    kernel gate_without_its_bias<T: Float>(
        z: &Tensor<T, [N, D]>, bias: &Tensor<f32, [D]>, scale: f32, y: &mut Tensor<f32, [N, D]>,
    )
    tune { BN: [16], BD: [64] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store(y[n, d], scale * sigmoid(load(z[n, d]).cast::<f32>() + 0.0 * load(bias[d])));
        }
    }

    kernel gate_grad_without_its_scale<T: Float>(
        z: &Tensor<T, [N, D]>, bias: &Tensor<f32, [D]>, scale: f32, dy: &Tensor<f32, [N, D]>,
        dz: &mut Tensor<T, [N, D]>,
    )
    tune { BN: [16], BD: [64] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let slope = grad(sigmoid)(load(z[n, d]).cast::<f32>() + load(bias[d]));
            store(dz[n, d], (load(dy[n, d]) * slope + 0.0 * scale).cast::<T>());
        }
    }

    kernel copy_of_the_next_row<T: Float>(x: &Tensor<T, [A, B, C, D]>, y: &mut Tensor<T, [A, B, C, D]>)
    tune { BC: [16] }
    {
        for (a, b, c) in grid(A, B, tiles(C, BC)) {
            store(y[a, b, c, ..], load(x[a, b, span(c * BC + 1, BC), ..]).or(0.0));
        }
    }

    kernel short_conv_grad_of_missing_tokens<T: Float>(
        x: &Tensor<T, [B, P, C]>, dy: &Tensor<T, [B, N, C]>, dw: &mut Tensor<f32, [C, W]>,
    )
    tune { BC: [64], BN: [16] }
    {
        for (c, j) in grid(tiles(C, BC), W) {
            let count = (size(N) + BN - 1) / BN;
            let mut acc = zeros::<f32>([BN, BC]);
            for i in 0..size(B) * count {
                let to = i % count * BN;
                let from = to + size(P) - size(N) - (size(W) - 1 - j);
                // A token that is missing is 0, and meets one that may be infinite.
                let before = load(x[i / count, span(from, BN), c]).or(0.0).cast::<f32>();
                acc += before * load(dy[i / count, span(to, BN), c]).or(0.0).cast::<f32>();
            }
            store(dw[c, j], sum(acc, axis = 0));
        }
    }

    kernel embedding_grad_of_the_next_row<T: Float>(
        index: &Tensor<i32, [N]>, dy: &Tensor<T, [N, D]>, dtable: &mut Tensor<f32, [V, D]>,
    )
    tune { BV: [64], BD: [64], BN: [64] }
    {
        for (v, d) in grid(tiles(V, BV), tiles(D, BD)) {
            let row = v * BV + iota([BV, 1], 0);
            let mut acc = zeros::<f32>([BV, BD]);
            for n in tiles(N, BN) {
                let hot = select(row == load(index[n]) + 1, 1.0, 0.0);
                acc += dot(hot.cast::<T>(), load(dy[n, d]));
            }
            store(dtable[v, d], acc);
        }
    }
}

/// Cross entropy in plain form, with what a mistake is about: which rows count, and the slope from the weight of softmax and
/// whether a column is the target.
macro_rules! cross_entropy {
    ($name:ident, |$at:ident| $counts:expr, |$p:ident, $hot:ident, $scale:ident| $slope:expr) => {
        atlas_kernel! {
            kernel $name<T: Float>(
                logits: &Tensor<T, [N, V]>, target: &Tensor<i32, [N]>, scale: f32,
                loss: &mut Tensor<f32, [N]>, dlogits: &mut Tensor<T, [N, V]>,
            )
            tune { BN: [4] }
            {
                for n in grid(tiles(N, BN)) {
                    let z = load(logits[n, ..]).cast::<f32>();
                    let $at = load(target[n]).t();
                    let counts = $counts && ($at < size(V));
                    let e = exp(z - max(z, axis = 1));
                    let total = sum(e, axis = 1);
                    let column = iota([1, V], 1);
                    let aim = sum(select(column == $at, z, 0.0), axis = 1);
                    store(loss[n], select(counts, log(total) + max(z, axis = 1) - aim, 0.0));
                    let $p = e / total;
                    let $hot = select(column == $at, 1.0, 0.0);
                    let $scale = scale;
                    store(dlogits[n, ..], select(counts, $slope, 0.0).cast::<T>());
                }
            }
        }
    };
}

cross_entropy!(entropy_without_a_mistake, |at| (at >= 0), |p, hot, scale| (p - hot) * scale);
cross_entropy!(entropy_without_target, |at| (at >= 0), |p, hot, scale| (p - 0.0 * hot) * scale);
cross_entropy!(entropy_without_scale, |at| (at >= 0), |p, hot, scale| (p - hot) * (scale / scale));
cross_entropy!(entropy_of_rows_that_do_not_count, |at| (at >= -1000), |p, hot, scale| (p - hot) * scale);

/// A step in plain form, with what a mistake is about: the gradient that is averaged, the step, and how the decay is applied.
macro_rules! step {
    ($name:ident, |$p:ident, $g:ident, $decay:ident| $taken:expr, |$m:ident, $v:ident, $bias1:ident, $bias2:ident| $step:expr,
     |$kept:ident, $rate:ident| $keeps:expr) => {
        atlas_kernel! {
            kernel $name<G: Float>(
                p: &mut Tensor<f32, [N]>, m: &mut Tensor<f32, [N]>, v: &mut Tensor<f32, [N]>,
                g: &Tensor<G, [N]>, factor: &Tensor<f32, [K]>, rate: f32, beta1: f32, beta2: f32, eps: f32,
                decay: f32, bias1: f32, bias2: f32,
            )
            tune { BN: [1024] }
            {
                for n in grid(tiles(N, BN)) {
                    let $p = load(p[n]);
                    let $g = load(factor[0]) * load(g[n]).cast::<f32>();
                    let $decay = decay;
                    let gs = $taken;
                    let $m = beta1 * load(m[n]) + (1.0 - beta1) * gs;
                    let $v = beta2 * load(v[n]) + (1.0 - beta2) * gs * gs;
                    let $bias1 = bias1;
                    let $bias2 = bias2;
                    let $kept = decay;
                    let $rate = rate;
                    let next = $p * $keeps - rate * ($step) - 0.0 * eps;
                    store(m[n], $m);
                    store(v[n], $v);
                    store(p[n], next);
                }
            }
        }
    };
}

step!(
    step_without_a_mistake,
    |p, g, decay| g + 0.0 * p * decay,
    |m, v, b1, b2| (m / b1) / sqrt(v / b2),
    |kept, rate| (1.0 - rate * kept)
);
step!(
    step_with_decay_in_the_gradient,
    |p, g, decay| g + decay * p,
    |m, v, b1, b2| (m / b1) / sqrt(v / b2),
    |kept, rate| (1.0 - 0.0 * rate * kept)
);
step!(
    step_without_corrections,
    |p, g, decay| g + 0.0 * p * decay,
    |m, v, b1, b2| m / sqrt(v) + 0.0 * b1 * b2,
    |kept, rate| (1.0 - rate * kept)
);
step!(
    step_with_decay_without_rate,
    |p, g, decay| g + 0.0 * p * decay,
    |m, v, b1, b2| (m / b1) / sqrt(v / b2),
    |kept, rate| (1.0 - kept + 0.0 * rate)
);

fn problems(kernel: &str, dims: &[u64]) -> impl Iterator<Item = Problem> {
    let of = |dtype| cases::problem(kernel, dtype, dims).unwrap_or_else(|| panic!("no kernel `{kernel}`"));
    cases::DTYPES.map(of).into_iter()
}

#[test]
fn mistakes_in_gradients_of_norms() {
    for p in problems("rms_norm_grad", &[5, 64]) {
        caught(&p, &norm_grad_along_the_row, &p.dims);
    }
    for p in problems("rms_norm_weight_grad", &[50, 64]) {
        caught(&p, &norm_weight_grad_without_root, &p.dims);
    }
}

#[test]
fn mistakes_in_gradients_of_gates_and_activations() {
    for p in problems("layer_gate_grad", &[2, 20, 2, 16]) {
        caught(&p, &gate_grad_of_open_gate, &p.dims);
    }
    for p in problems("silu_grad", &[5, 64]) {
        caught(&p, &silu_grad_of_gate_alone, &p.dims);
    }
    for p in problems("scaled_gate", &[20, 24]) {
        caught(&p, &gate_without_its_bias, &p.dims);
    }
    for p in problems("scaled_gate_grad", &[20, 24]) {
        caught(&p, &gate_grad_without_its_scale, &p.dims);
    }
}

#[test]
fn a_mistake_in_a_copy() {
    for p in problems("copy", &[2, 2, 20, 24]) {
        caught(&p, &copy_of_the_next_row, &p.dims);
    }
}

/// An infinity is no part of weights that never meet it.
#[test]
fn a_mistake_in_the_gradient_of_a_convolution() {
    for p in problems("short_conv_weight_grad", &[1, 37, 40, 37, 4]) {
        for (of, at) in [("x", 36), ("dy", 0)] {
            caught(&p.clone().fill(of, Fill::TokenIs(at, f32::INFINITY)), &short_conv_grad_of_missing_tokens, &p.dims);
        }
    }
}

#[test]
fn mistakes_in_cross_entropy() {
    for p in problems("cross_entropy", &[37, 64]) {
        let right = crate::controls::compare(&p, &entropy_without_a_mistake, &p.dims);
        assert!(right.passes(p.bound()), "{right:?}");
        for wrong in [&entropy_without_target, &entropy_without_scale, &entropy_of_rows_that_do_not_count] {
            caught(&p, wrong, &p.dims);
        }
    }
}

#[test]
fn a_mistake_in_the_gradient_of_an_embedding() {
    for p in problems("embedding_grad", &[130, 40, 70]) {
        caught(&p, &embedding_grad_of_the_next_row, &p.dims);
    }
}

#[test]
fn mistakes_in_a_step() {
    for p in problems("adamw", &[2000, 1]) {
        let right = crate::controls::compare(&p, &step_without_a_mistake, &p.dims);
        assert!(right.passes(p.bound()), "{right:?}");
        for wrong in [&step_with_decay_in_the_gradient, &step_without_corrections, &step_with_decay_without_rate] {
            caught(&p, wrong, &p.dims);
        }
    }
}
