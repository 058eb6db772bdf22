//! TTT-Linear against its definition, token by token, at every edge; and mistakes that must show.

use atlas_dsl::DType;
use atlas_macros::atlas_kernel;
use atlas_ops::ttt_linear::check::{TttCase, TttInputs};
use atlas_ops::ttt_linear::{TTT_LINEAR, ttt_mix};
use atlas_runtime::{Chain, Device};

const BOUNDS: [(DType, f64); 3] = [(DType::F32, 1e-5), (DType::F16, 2e-3), (DType::Bf16, 1e-2)];

#[track_caller]
fn holds(case: &TttCase) {
    for (dtype, bound) in BOUNDS {
        let case = TttCase { dtype, ..case.clone() };
        let found = case.check(&Device::cpu()).unwrap_or_else(|e| panic!("{case:?}: {e}"));
        assert!(found.passes(bound), "{case:?}: {found:?}");
    }
}

#[test]
fn sequences_and_mini_batches_of_any_length() {
    for (tokens, mini_batch) in
        [(23, 8), (24, 8), (9, 1), (7, 16), (1, 64), (70, 64), (128, 32), (40, 16), (0, 16), (11, 5)]
    {
        holds(&TttCase::new([2, tokens, 2], 32, mini_batch));
    }
}

#[test]
fn heads_of_any_size() {
    for (heads, head) in [(1, 48), (2, 64), (3, 96), (1, 128), (2, 24)] {
        holds(&TttCase::new([1, 40, heads], head, 16));
    }
}

fn edited(edit: fn(&mut TttInputs)) -> TttCase {
    TttCase { edit, ..TttCase::new([1, 50, 2], 64, 16) }
}

#[test]
fn steps_from_none_to_long() {
    holds(&edited(|x| x.eta.fill(0.0)));
    holds(&edited(|x| x.eta.fill(0.3)));
    holds(&edited(|x| x.eta.iter_mut().enumerate().for_each(|(i, eta)| *eta = if i % 3 == 0 { 0.2 } else { 0.0 })));
}

#[test]
fn a_memory_may_be_empty() {
    // The first step is 1000 times as long as others, because an empty memory makes rows of the deviation 0.
    holds(&edited(|x| {
        x.s.fill(0.0);
        x.bias.fill(0.0);
        x.eta.iter_mut().for_each(|eta| *eta *= 1e-2);
    }));
}

#[test]
fn a_norm_may_be_plain() {
    holds(&edited(|x| {
        x.weight.fill(1.0);
        x.shift.fill(0.0);
    }));
}

#[test]
fn a_sequence_may_be_given_in_parts() {
    let whole = TttCase::new([2, 75, 2], 24, 16);
    let inputs = whole.inputs();
    let found = whole.run(&TTT_LINEAR, &Device::cpu(), &inputs).unwrap();
    for parts in [vec![16, 59], vec![32, 16, 27], vec![64, 11], vec![16, 16, 16, 16, 11]] {
        let case = TttCase { parts, ..whole.clone() };
        assert!(case.run(&TTT_LINEAR, &Device::cpu(), &inputs).unwrap() == found, "{:?}", case.parts);
    }
    // Cut within a mini-batch, it has other mini-batches, which is another model.
    let case = TttCase { parts: vec![8, 67], ..whole };
    assert!(!case.check(&Device::cpu()).unwrap().passes(1e-2));
}

atlas_kernel! {
    /// Rows less their mean and divided by their deviation, and one over that deviation.
    tile fn rows_normed(x, count, eps) {
        let centred = x - sum(x, axis = 1) / count;
        let by = rsqrt(sum(centred * centred, axis = 1) / count + eps);
        (centred * by, by)
    }

    /// Right, with the memory by its inputs: the mistakes below are this kernel but for one expression.
    kernel as_it_is<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, N, H, D]>,
        v: &Tensor<T, [B, N, H, D]>,
        eta: &Tensor<f32, [B, N, H]>,
        p: &Tensor<T, [B, H, C, L, L]>,
        weight: &Tensor<f32, [H, D]>,
        shift: &Tensor<f32, [H, D]>,
        s: &mut Tensor<f32, [B, H, D, D]>,
        bias: &mut Tensor<f32, [B, H, D]>,
        o: &mut Tensor<T, [B, N, H, D]>,
        scale: f32,
        eps: f32,
    )
    {
        for (b, h) in grid(B, H) {
            let mut held = load(s[b, h, .., ..]);
            let mut offset = broadcast(load(bias[b, h, ..]), [1, D]);
            for c in 0..size(C) {
                let first = c * size(L);
                let kc = load(k[b, span(first, L), h, ..]);
                let weights = load(weight[h, ..]);
                let (x, by) = rows_normed(dot(kc, held.cast::<T>()) + offset, size(D).cast::<f32>(), eps);
                let wanted = load(v[b, span(first, L), h, ..]).cast::<f32>() - kc.cast::<f32>();
                let g = weights * (weights * x + load(shift[h, ..]) - wanted);
                let along = x * (sum(g * x, axis = 1) / size(D).cast::<f32>());
                let dz = by * (g - sum(g, axis = 1) / size(D).cast::<f32>() - along);
                let qc = load(q[b, span(first, L), h, ..]);
                let mut read = scale * dot(qc, held.cast::<T>()) + offset;
                read -= dot(load(p[b, h, c, .., ..]), dz.cast::<T>());
                let centred = read - sum(read, axis = 1) / size(D).cast::<f32>();
                let deviation = sqrt(sum(centred * centred, axis = 1) / size(D).cast::<f32>() + eps);
                let unit = centred / deviation;
                let out = read + weights * unit + load(shift[h, ..]);
                store(o[b, span(first, L), h, ..], out.cast::<T>());
                let step = dz * load(eta[b, min(first + size(L), size(N)) - 1, h]);
                held -= dot(kc.t(), step.cast::<T>());
                offset -= sum(step, axis = 0);
            }
            store(s[b, h, .., ..], held);
            store(bias[b, h, ..], offset);
        }
    }

    /// The target is the value, and not the value less the key.
    kernel learns_values<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, N, H, D]>,
        v: &Tensor<T, [B, N, H, D]>,
        eta: &Tensor<f32, [B, N, H]>,
        p: &Tensor<T, [B, H, C, L, L]>,
        weight: &Tensor<f32, [H, D]>,
        shift: &Tensor<f32, [H, D]>,
        s: &mut Tensor<f32, [B, H, D, D]>,
        bias: &mut Tensor<f32, [B, H, D]>,
        o: &mut Tensor<T, [B, N, H, D]>,
        scale: f32,
        eps: f32,
    )
    {
        for (b, h) in grid(B, H) {
            let mut held = load(s[b, h, .., ..]);
            let mut offset = broadcast(load(bias[b, h, ..]), [1, D]);
            for c in 0..size(C) {
                let first = c * size(L);
                let kc = load(k[b, span(first, L), h, ..]);
                let weights = load(weight[h, ..]);
                let (x, by) = rows_normed(dot(kc, held.cast::<T>()) + offset, size(D).cast::<f32>(), eps);
                let wanted = load(v[b, span(first, L), h, ..]).cast::<f32>() - 0.0 * kc.cast::<f32>();
                let g = weights * (weights * x + load(shift[h, ..]) - wanted);
                let along = x * (sum(g * x, axis = 1) / size(D).cast::<f32>());
                let dz = by * (g - sum(g, axis = 1) / size(D).cast::<f32>() - along);
                let qc = load(q[b, span(first, L), h, ..]);
                let mut read = scale * dot(qc, held.cast::<T>()) + offset;
                read -= dot(load(p[b, h, c, .., ..]), dz.cast::<T>());
                let centred = read - sum(read, axis = 1) / size(D).cast::<f32>();
                let deviation = sqrt(sum(centred * centred, axis = 1) / size(D).cast::<f32>() + eps);
                let unit = centred / deviation;
                let out = read + weights * unit + load(shift[h, ..]);
                store(o[b, span(first, L), h, ..], out.cast::<T>());
                let step = dz * load(eta[b, min(first + size(L), size(N)) - 1, h]);
                held -= dot(kc.t(), step.cast::<T>());
                offset -= sum(step, axis = 0);
            }
            store(s[b, h, .., ..], held);
            store(bias[b, h, ..], offset);
        }
    }

    /// The gradient does not go through the deviation.
    kernel skips_the_norm<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, N, H, D]>,
        v: &Tensor<T, [B, N, H, D]>,
        eta: &Tensor<f32, [B, N, H]>,
        p: &Tensor<T, [B, H, C, L, L]>,
        weight: &Tensor<f32, [H, D]>,
        shift: &Tensor<f32, [H, D]>,
        s: &mut Tensor<f32, [B, H, D, D]>,
        bias: &mut Tensor<f32, [B, H, D]>,
        o: &mut Tensor<T, [B, N, H, D]>,
        scale: f32,
        eps: f32,
    )
    {
        for (b, h) in grid(B, H) {
            let mut held = load(s[b, h, .., ..]);
            let mut offset = broadcast(load(bias[b, h, ..]), [1, D]);
            for c in 0..size(C) {
                let first = c * size(L);
                let kc = load(k[b, span(first, L), h, ..]);
                let weights = load(weight[h, ..]);
                let (x, by) = rows_normed(dot(kc, held.cast::<T>()) + offset, size(D).cast::<f32>(), eps);
                let wanted = load(v[b, span(first, L), h, ..]).cast::<f32>() - kc.cast::<f32>();
                let g = weights * (weights * x + load(shift[h, ..]) - wanted);
                let along = 0.0 * x * sum(g * x, axis = 1);
                let dz = by * (g - sum(g, axis = 1) / size(D).cast::<f32>() - along);
                let qc = load(q[b, span(first, L), h, ..]);
                let mut read = scale * dot(qc, held.cast::<T>()) + offset;
                read -= dot(load(p[b, h, c, .., ..]), dz.cast::<T>());
                let centred = read - sum(read, axis = 1) / size(D).cast::<f32>();
                let deviation = sqrt(sum(centred * centred, axis = 1) / size(D).cast::<f32>() + eps);
                let unit = centred / deviation;
                let out = read + weights * unit + load(shift[h, ..]);
                store(o[b, span(first, L), h, ..], out.cast::<T>());
                let step = dz * load(eta[b, min(first + size(L), size(N)) - 1, h]);
                held -= dot(kc.t(), step.cast::<T>());
                offset -= sum(step, axis = 0);
            }
            store(s[b, h, .., ..], held);
            store(bias[b, h, ..], offset);
        }
    }

    /// The residual is the query, as in the authors' code.
    kernel adds_queries<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, N, H, D]>,
        v: &Tensor<T, [B, N, H, D]>,
        eta: &Tensor<f32, [B, N, H]>,
        p: &Tensor<T, [B, H, C, L, L]>,
        weight: &Tensor<f32, [H, D]>,
        shift: &Tensor<f32, [H, D]>,
        s: &mut Tensor<f32, [B, H, D, D]>,
        bias: &mut Tensor<f32, [B, H, D]>,
        o: &mut Tensor<T, [B, N, H, D]>,
        scale: f32,
        eps: f32,
    )
    {
        for (b, h) in grid(B, H) {
            let mut held = load(s[b, h, .., ..]);
            let mut offset = broadcast(load(bias[b, h, ..]), [1, D]);
            for c in 0..size(C) {
                let first = c * size(L);
                let kc = load(k[b, span(first, L), h, ..]);
                let weights = load(weight[h, ..]);
                let (x, by) = rows_normed(dot(kc, held.cast::<T>()) + offset, size(D).cast::<f32>(), eps);
                let wanted = load(v[b, span(first, L), h, ..]).cast::<f32>() - kc.cast::<f32>();
                let g = weights * (weights * x + load(shift[h, ..]) - wanted);
                let along = x * (sum(g * x, axis = 1) / size(D).cast::<f32>());
                let dz = by * (g - sum(g, axis = 1) / size(D).cast::<f32>() - along);
                let qc = load(q[b, span(first, L), h, ..]);
                let mut read = scale * dot(qc, held.cast::<T>()) + offset;
                read -= dot(load(p[b, h, c, .., ..]), dz.cast::<T>());
                let centred = read - sum(read, axis = 1) / size(D).cast::<f32>();
                let deviation = sqrt(sum(centred * centred, axis = 1) / size(D).cast::<f32>() + eps);
                let unit = centred / deviation;
                let out = 0.0 * read + qc.cast::<f32>() + weights * unit + load(shift[h, ..]);
                store(o[b, span(first, L), h, ..], out.cast::<T>());
                let step = dz * load(eta[b, min(first + size(L), size(N)) - 1, h]);
                held -= dot(kc.t(), step.cast::<T>());
                offset -= sum(step, axis = 0);
            }
            store(s[b, h, .., ..], held);
            store(bias[b, h, ..], offset);
        }
    }

    /// The step size of the memory is that of the first token of a mini-batch.
    kernel steps_by_the_first<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, N, H, D]>,
        v: &Tensor<T, [B, N, H, D]>,
        eta: &Tensor<f32, [B, N, H]>,
        p: &Tensor<T, [B, H, C, L, L]>,
        weight: &Tensor<f32, [H, D]>,
        shift: &Tensor<f32, [H, D]>,
        s: &mut Tensor<f32, [B, H, D, D]>,
        bias: &mut Tensor<f32, [B, H, D]>,
        o: &mut Tensor<T, [B, N, H, D]>,
        scale: f32,
        eps: f32,
    )
    {
        for (b, h) in grid(B, H) {
            let mut held = load(s[b, h, .., ..]);
            let mut offset = broadcast(load(bias[b, h, ..]), [1, D]);
            for c in 0..size(C) {
                let first = c * size(L);
                let kc = load(k[b, span(first, L), h, ..]);
                let weights = load(weight[h, ..]);
                let (x, by) = rows_normed(dot(kc, held.cast::<T>()) + offset, size(D).cast::<f32>(), eps);
                let wanted = load(v[b, span(first, L), h, ..]).cast::<f32>() - kc.cast::<f32>();
                let g = weights * (weights * x + load(shift[h, ..]) - wanted);
                let along = x * (sum(g * x, axis = 1) / size(D).cast::<f32>());
                let dz = by * (g - sum(g, axis = 1) / size(D).cast::<f32>() - along);
                let qc = load(q[b, span(first, L), h, ..]);
                let mut read = scale * dot(qc, held.cast::<T>()) + offset;
                read -= dot(load(p[b, h, c, .., ..]), dz.cast::<T>());
                let centred = read - sum(read, axis = 1) / size(D).cast::<f32>();
                let deviation = sqrt(sum(centred * centred, axis = 1) / size(D).cast::<f32>() + eps);
                let unit = centred / deviation;
                let out = read + weights * unit + load(shift[h, ..]);
                store(o[b, span(first, L), h, ..], out.cast::<T>());
                let step = dz * load(eta[b, first, h]);
                held -= dot(kc.t(), step.cast::<T>());
                offset -= sum(step, axis = 0);
            }
            store(s[b, h, .., ..], held);
            store(bias[b, h, ..], offset);
        }
    }

    /// The bias does not learn.
    kernel keeps_its_bias<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, N, H, D]>,
        v: &Tensor<T, [B, N, H, D]>,
        eta: &Tensor<f32, [B, N, H]>,
        p: &Tensor<T, [B, H, C, L, L]>,
        weight: &Tensor<f32, [H, D]>,
        shift: &Tensor<f32, [H, D]>,
        s: &mut Tensor<f32, [B, H, D, D]>,
        bias: &mut Tensor<f32, [B, H, D]>,
        o: &mut Tensor<T, [B, N, H, D]>,
        scale: f32,
        eps: f32,
    )
    {
        for (b, h) in grid(B, H) {
            let mut held = load(s[b, h, .., ..]);
            let mut offset = broadcast(load(bias[b, h, ..]), [1, D]);
            for c in 0..size(C) {
                let first = c * size(L);
                let kc = load(k[b, span(first, L), h, ..]);
                let weights = load(weight[h, ..]);
                let (x, by) = rows_normed(dot(kc, held.cast::<T>()) + offset, size(D).cast::<f32>(), eps);
                let wanted = load(v[b, span(first, L), h, ..]).cast::<f32>() - kc.cast::<f32>();
                let g = weights * (weights * x + load(shift[h, ..]) - wanted);
                let along = x * (sum(g * x, axis = 1) / size(D).cast::<f32>());
                let dz = by * (g - sum(g, axis = 1) / size(D).cast::<f32>() - along);
                let qc = load(q[b, span(first, L), h, ..]);
                let mut read = scale * dot(qc, held.cast::<T>()) + offset;
                read -= dot(load(p[b, h, c, .., ..]), dz.cast::<T>());
                let centred = read - sum(read, axis = 1) / size(D).cast::<f32>();
                let deviation = sqrt(sum(centred * centred, axis = 1) / size(D).cast::<f32>() + eps);
                let unit = centred / deviation;
                let out = read + weights * unit + load(shift[h, ..]);
                store(o[b, span(first, L), h, ..], out.cast::<T>());
                let step = dz * load(eta[b, min(first + size(L), size(N)) - 1, h]);
                held -= dot(kc.t(), step.cast::<T>());
                offset -= 0.0 * sum(step, axis = 0);
            }
            store(s[b, h, .., ..], held);
            store(bias[b, h, ..], offset);
        }
    }
}

static AS_IT_IS: Chain = Chain { name: "as_it_is", kernels: &[&ttt_mix, &as_it_is], workspace: &["p"] };
static LEARNS_VALUES: Chain = Chain { name: "learns_values", kernels: &[&ttt_mix, &learns_values], workspace: &["p"] };
static SKIPS_THE_NORM: Chain =
    Chain { name: "skips_the_norm", kernels: &[&ttt_mix, &skips_the_norm], workspace: &["p"] };
static ADDS_QUERIES: Chain = Chain { name: "adds_queries", kernels: &[&ttt_mix, &adds_queries], workspace: &["p"] };
static STEPS_BY_THE_FIRST: Chain =
    Chain { name: "steps_by_the_first", kernels: &[&ttt_mix, &steps_by_the_first], workspace: &["p"] };
static KEEPS_ITS_BIAS: Chain =
    Chain { name: "keeps_its_bias", kernels: &[&ttt_mix, &keeps_its_bias], workspace: &["p"] };

#[test]
fn mistakes_are_found() {
    for (dtype, bound) in BOUNDS {
        let case = TttCase { dtype, ..TttCase::new([1, 40, 2], 32, 16) };
        for right in [&TTT_LINEAR, &AS_IT_IS] {
            let found = case.check_of(right, &Device::cpu()).unwrap();
            assert!(found.passes(bound), "{} in {dtype}: {found:?}", right.name);
        }
        for wrong in [&LEARNS_VALUES, &SKIPS_THE_NORM, &ADDS_QUERIES, &STEPS_BY_THE_FIRST, &KEEPS_ITS_BIAS] {
            let found = case.check_of(wrong, &Device::cpu()).unwrap();
            assert!(!found.passes(bound), "{} went unnoticed in {dtype}: {found:?}", wrong.name);
        }
    }
}
