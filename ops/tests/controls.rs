//! Negative controls: kernels with one mistake each, which the comparison must catch.

use atlas_dsl::{DType, KernelDef};
use atlas_macros::atlas_kernel;
use atlas_ops::{Comparison, Fill, Problem, cases};
use atlas_runtime::Device;

const CLASSIC: [[f32; 3]; 5] = [[3.4445, -4.7750, 2.0315]; 5];

atlas_kernel! {
    tile fn gelu_tanh(z) { 0.5 * z * (1.0 + tanh(0.7978845608 * (z + 0.044715 * z * z * z))) }

    kernel memory_with_tanh<T: Float>(
        x: &Tensor<T, [G, N, D]>, w2: &Tensor<T, [G, H, D]>, w1: &Tensor<T, [G, D, H]>,
        r: &Tensor<T, [G, N, D]>, y: &mut Tensor<T, [G, N, D]>,
    )
    tune { BN: [64], BH: [64] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]);
            let mut acc = load(r[g, n, ..]).cast::<f32>();
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w2[g, h, ..]).t());
                acc += dot(gelu_tanh(z).cast::<T>(), load(w1[g, .., h]).t());
            }
            store(y[g, n, ..], acc.cast::<T>());
        }
    }

    kernel memory_without_residual<T: Float>(
        x: &Tensor<T, [G, N, D]>, w2: &Tensor<T, [G, H, D]>, w1: &Tensor<T, [G, D, H]>,
        r: &Tensor<T, [G, N, D]>, y: &mut Tensor<T, [G, N, D]>,
    )
    tune { BN: [64], BH: [64] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]);
            let mut acc = 0.0 * load(r[g, n, ..]).cast::<f32>();
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w2[g, h, ..]).t());
                acc += dot(gelu(z).cast::<T>(), load(w1[g, .., h]).t());
            }
            store(y[g, n, ..], acc.cast::<T>());
        }
    }

    kernel newton_schulz_unnormalised<T: Float>(g: &Tensor<T, [B, M, N]>, y: &mut Tensor<T, [B, M, N]>)
    {
        for b in grid(B) {
            let mut x = load(g[b, .., ..]);
            for s in 0..5 {
                let a = dot(x, x.t());
                let ab = a.cast::<T>();
                let p = CLASSIC[s][1] * a + CLASSIC[s][2] * dot(ab, ab);
                x = (CLASSIC[s][0] * x.cast::<f32>() + dot(p.cast::<T>(), x)).cast::<T>();
            }
            store(y[b, .., ..], x);
        }
    }

    kernel newton_schulz_untransposed<T: Float>(g: &Tensor<T, [B, M, M]>, y: &mut Tensor<T, [B, M, M]>)
    {
        for b in grid(B) {
            let g0 = load(g[b, .., ..]).cast::<f32>();
            let mut x = (g0 / (sqrt(sum(g0 * g0)) + 1e-7)).cast::<T>();
            for s in 0..5 {
                let a = dot(x, x);
                let ab = a.cast::<T>();
                let p = CLASSIC[s][1] * a + CLASSIC[s][2] * dot(ab, ab);
                x = (CLASSIC[s][0] * x.cast::<f32>() + dot(p.cast::<T>(), x)).cast::<T>();
            }
            store(y[b, .., ..], x);
        }
    }

    kernel softmax_without_max<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let e = exp(load(x[n, ..]).cast::<f32>());
            store(y[n, ..], (e / sum(e, axis = 1)).cast::<T>());
        }
    }

    kernel rms_norm_without_eps<T: Float>(
        x: &Tensor<T, [N, D]>, w: &Tensor<T, [D]>, y: &mut Tensor<T, [N, D]>, eps: f32,
    )
    tune { BN: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            let mean = sum(xs * xs, axis = 1) / size(D).cast::<f32>();
            store(y[n, ..], (xs * rsqrt(mean + 0.0 * eps) * load(w[..]).cast::<f32>()).cast::<T>());
        }
    }
}

fn problem(kernel: &str, dtype: DType, dims: &[u64]) -> Problem {
    cases::problem(kernel, dtype, dims).unwrap_or_else(|| panic!("no kernel `{kernel}`"))
}

/// What a kernel makes of the inputs of `right`, compared with the reference of `right`.
fn compare(right: &Problem, kernel: &'static KernelDef, dims: &[u64]) -> Comparison {
    let inputs = right.inputs();
    let wrong = Problem::new(right.op, kernel, right.dtype, dims);
    let result = wrong.prepare(&Device::cpu(), &inputs).and_then(|mut prepared| {
        prepared.launch(None)?;
        prepared.compare(&right.expected(&inputs))
    });
    result.unwrap_or_else(|e| panic!("{e}"))
}

/// The kernel's mistake must be caught; the shipped kernel must pass the same problem.
#[track_caller]
fn caught(right: &Problem, wrong: &'static KernelDef, dims: &[u64]) {
    let good = compare(right, right.kernel, &right.dims);
    assert!(good.passes(right.bound()), "{right}: {good:?}");
    let bad = compare(right, wrong, dims);
    assert!(!bad.passes(right.bound()), "{} went unnoticed on {right}: {bad:?}", wrong.name);
}

#[test]
fn gelu_tanh_for_erf() {
    let p = problem("memory_read", DType::F32, &[2, 64, 48, 192]);
    caught(&p, &memory_with_tanh, &p.dims);
}

#[test]
fn residual_dropped() {
    for dtype in cases::DTYPES {
        let p = problem("memory_read", dtype, &[2, 64, 48, 192]);
        caught(&p, &memory_without_residual, &p.dims);
    }
}

#[test]
fn normalisation_dropped() {
    for dtype in cases::DTYPES {
        let p = problem("newton_schulz_small", dtype, &[2, 48, 192]);
        caught(&p, &newton_schulz_unnormalised, &p.dims);
    }
}

#[test]
fn transpose_dropped() {
    for dtype in cases::DTYPES {
        let p = problem("newton_schulz_small", dtype, &[2, 32, 32]);
        caught(&p, &newton_schulz_untransposed, &[2, 32]);
    }
}

#[test]
fn maximum_not_taken_off() {
    for dtype in cases::DTYPES {
        let p = problem("softmax", dtype, &[5, 64]).fill("x", Fill::Around(500.0, 20.0));
        caught(&p, &softmax_without_max, &p.dims);
    }
}

#[test]
fn eps_dropped() {
    for dtype in cases::DTYPES {
        let p = problem("rms_norm", dtype, &[5, 64]).fill("x", Fill::Normal(1e-3));
        caught(&p, &rms_norm_without_eps, &p.dims);
    }
}

#[test]
fn tail_tokens_skipped() {
    for dtype in cases::DTYPES {
        let p = problem("memory_read", dtype, &[1, 70, 48, 192]);
        let reference = &(p.op.reference)(&p, &p.inputs())[0];
        let tail = 64 * 48;
        for unwritten in [0.0, f64::NAN] {
            let mut result = reference.clone();
            result[tail..].fill(unwritten);
            assert!(!Comparison::new(&result, reference).passes(p.bound()));
        }
    }
}
