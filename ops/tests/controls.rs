//! Negative controls: kernels with one mistake each, which the comparison must catch.

use atlas_dsl::{DType, KernelDef};
use atlas_macros::atlas_kernel;
use atlas_ops::{Comparison, Fill, Problem, cases};

const CLASSIC: [[f32; 3]; 5] = [[3.4445, -4.7750, 2.0315]; 5];

atlas_kernel! {
    use atlas_ops::online_softmax::{attend, attended};

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

    kernel recall_gated_inside<T: Float>(
        x: &Tensor<T, [B, N, H, D]>, w1: &Tensor<f32, [B, H, E, M]>, w2: &Tensor<f32, [B, H, M, D]>,
        w3: &Tensor<f32, [B, H, M, D]>, r: &Tensor<T, [B, N, H, E]>, y: &mut Tensor<T, [B, N, H, E]>,
    )
    tune { BN: [32], BM: [32] }
    {
        for (b, h, n) in grid(B, H, tiles(N, BN)) {
            let xs = load(x[b, n, h, ..]);
            let mut acc = load(r[b, n, h, ..]).cast::<f32>();
            for m in tiles(M, BM) {
                let z = dot(xs, load(w2[b, h, m, ..]).cast::<T>().t());
                let u = dot(xs, load(w3[b, h, m, ..]).cast::<T>().t());
                acc += dot(gelu(z * u).cast::<T>(), load(w1[b, h, .., m]).cast::<T>().t());
            }
            store(y[b, n, h, ..], acc.cast::<T>());
        }
    }

    kernel newton_schulz_unnormalised<T: Float>(g: &Tensor<T, [B, M, N]>, y: &mut Tensor<T, [B, M, N]>)
    tune { warps: [8] }
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

    kernel attention_in_powers_of_two<T: Float>(
        q: &Tensor<T, [H, M, D]>, k: &Tensor<T, [H, N, D]>, v: &Tensor<T, [H, N, D]>, scale: f32,
        o: &mut Tensor<T, [H, M, D]>,
    )
    tune { BM: [32], BN: [32] }
    {
        for (h, m) in grid(H, tiles(M, BM)) {
            let qs = load(q[h, m, ..]);
            let mut top = full::<f32>([BM, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BM, 1]);
            let mut acc = zeros::<f32>([BM, D]);
            for n in pipeline(tiles(N, BN)) {
                let z = dot(qs, load(k[h, n, ..]).t()) * scale;
                (top, total, acc) = attend(z, load(v[h, n, ..]), top, total, acc);
            }
            store(o[h, m, ..], attended(top, total, acc).cast::<T>());
        }
    }

    kernel losses_of_the_whole_scale<T: Float>(
        p: &Tensor<T, [B, N, D]>, v: &Tensor<T, [B, N, D]>, l: &mut Tensor<f32, [B, N]>, scale: f32,
    )
    tune { BN: [4] }
    {
        for (b, n) in grid(B, tiles(N, BN)) {
            let e = load(p[b, n, ..]).cast::<f32>() - load(v[b, n, ..]).cast::<f32>();
            store(l[b, n], scale * sum(e * e, axis = 1));
        }
    }

    kernel rotary_backwards<T: Float>(
        x: &Tensor<T, [N, H, D, P]>, c: &Tensor<T, [N, D]>, s: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, H, D, P]>,
    )
    tune { BH: [8] }
    {
        for (n, h) in grid(N, tiles(H, BH)) {
            let cos = load(c[n, ..]).cast::<f32>();
            let sin = load(s[n, ..]).cast::<f32>();
            let a = load(x[n, h, .., 0]).cast::<f32>();
            let b = load(x[n, h, .., 1]).cast::<f32>();
            store(y[n, h, .., 0], (a * cos + b * sin).cast::<T>());
            store(y[n, h, .., 1], (b * cos - a * sin).cast::<T>());
        }
    }
}

fn problem(kernel: &str, dtype: DType, dims: &[u64]) -> Problem {
    cases::problem(kernel, dtype, dims).unwrap_or_else(|| panic!("no kernel `{kernel}`"))
}

/// What a kernel makes of the inputs of `right`, compared with the reference of `right`.
pub(crate) fn compare(right: &Problem, kernel: &'static KernelDef, dims: &[u64]) -> Comparison {
    let inputs = right.inputs();
    let wrong = Problem { kernel, dims: dims.to_vec(), ..right.clone() };
    let result = wrong.prepare(&crate::device(), &inputs).and_then(|mut prepared| {
        prepared.launch(None)?;
        prepared.compare(&right.expected(&inputs))
    });
    result.unwrap_or_else(|e| panic!("{e}"))
}

/// The kernel's mistake must be caught; the shipped kernel must pass the same problem.
#[track_caller]
pub(crate) fn caught(right: &Problem, wrong: &'static KernelDef, dims: &[u64]) {
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
fn gate_inside_the_activation() {
    for dtype in cases::DTYPES {
        let p = problem("memory_recall_gated", dtype, &[1, 37, 2, 32, 24, 72]);
        caught(&p, &recall_gated_inside, &p.dims);
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
fn logits_taken_for_those_of_base_two() {
    for dtype in cases::DTYPES {
        let p = problem("attention", dtype, &[2, 40, 64, 70]);
        caught(&p, &attention_in_powers_of_two, &p.dims);
    }
}

#[test]
fn half_of_the_losses_forgotten() {
    for dtype in cases::DTYPES {
        let p = problem("token_losses", dtype, &[2, 9, 64]);
        caught(&p, &losses_of_the_whole_scale, &p.dims);
    }
}

#[test]
fn turned_the_other_way() {
    for dtype in cases::DTYPES {
        let p = problem("rotary_interleaved", dtype, &[3, 9, 32, 2]);
        caught(&p, &rotary_backwards, &p.dims);
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
