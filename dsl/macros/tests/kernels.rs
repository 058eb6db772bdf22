//! Correct kernels: each builds for a specialization and a config, and has the expected operations.
#![forbid(unsafe_code)]

use atlas_dsl::op::{BinaryOp, LoopKind, Op, ReduceOp, Slice};
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, DType, Kernel, KernelDef, Schedule, Specialization, TileType, registry};
use atlas_macros::atlas_kernel;
use std::f32::consts::FRAC_1_SQRT_2;

/// Coefficients of five Newton-Schulz steps.
const STEPS: [[f32; 3]; 5] = [
    [4.0848, -6.8946, 2.9270],
    [3.9505, -6.3029, 2.6377],
    [3.7418, -5.5913, 2.3037],
    [2.8769, -3.1427, 1.2046],
    [2.8366, -3.0525, 1.2012],
];
const TAPS: [f64; 3] = [0.25, 0.5, 0.25];
const WINDOW: u32 = 16;

atlas_kernel! {
    /// GELU as a function of the user's own.
    tile fn own_gelu(z) { 0.5 * z * (1.0 + erf(z * FRAC_1_SQRT_2)) }

    /// y = r + W1 · gelu(W2 · x)
    pub kernel memory_read<T: Float>(
        x:  &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, D, H]>,
        r:  &Tensor<T, [G, N, D]>,
        y:  &mut Tensor<T, [G, N, D]>,
    )
    tune { BN: [64, 128], BH: [64, 128], stages: 2..=4, warps: [4, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]);
            let mut acc = load(r[g, n, ..]).cast::<f32>();
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w2[g, h, ..]).t());
                acc += dot(own_gelu(z).cast::<T>(), load(w1[g, .., h]).t());
            }
            store(y[g, n, ..], acc.cast::<T>());
        }
    }

    tile fn mean_square(z) {
        let squares = z * z;
        sum(squares, axis = 1)
    }

    /// Root-mean-square norm of rows.
    ///
    /// Two paragraphs.
    kernel rms_norm<T: Float>(x: &Tensor<T, [N, D]>, gain: &Tensor<T, [D]>, eps: f32, y: &mut Tensor<T, [N, D]>)
    tune { BN: [8, 16] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]).cast::<f32>();
            let scale = rsqrt(mean_square(rows) / size(D).cast::<f32>() + eps);
            store(y[n, ..], (rows * scale * load(gain[..]).cast::<f32>()).cast::<T>());
        }
    }

    kernel softmax(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [8] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            let e = exp(rows - max(rows, axis = 1));
            store(y[n, ..], e / sum(e, axis = 1));
        }
    }

    /// Newton-Schulz iteration.
    kernel newton_schulz(x: &Tensor<f32, [G, D, E]>, y: &mut Tensor<f32, [G, D, E]>) {
        for g in grid(G) {
            let start = load(x[g, .., ..]);
            let mut m = start / sqrt(sum(start * start) + 1e-7);
            for step in 0..5 {
                let a = dot(m, m.t());
                let b = STEPS[step][1] * a + STEPS[step][2] * dot(a, a).precision(tf32);
                m = STEPS[step][0] * m + dot(b, m);
            }
            store(y[g, .., ..], m);
        }
    }

    kernel polynomial<T: Float>(x: &Tensor<T, [N]>, a: f32, b: T, shift: i32, y: &mut Tensor<T, [N]>)
    tune { BN: [256, 512] }
    {
        for n in grid(tiles(N, BN)) {
            let z = load(x[n]);
            let at = iota([BN], 0) + n * BN + shift;
            let kept = select(at >= 0 && at < size(N), z, 0.0);
            let square = (a * z.cast::<f32>() * z.cast::<f32>()).cast::<T>();
            store(y[n], max(square + b * kept - 1, -2.5).abs());
        }
    }

    kernel min_max(x: &Tensor<f32, [N, D]>, lo: &mut Tensor<f32, [N]>, hi: &mut Tensor<f32, [N]>, all: &mut Tensor<f32, [N]>)
    tune { BN: [16], BD: [32] }
    {
        for n in grid(tiles(N, BN)) {
            let mut least = full::<f32>([BN, 1], 3.0e38);
            let mut most = full::<f32>([BN, 1], -3.0e38);
            let mut count = 0.0;
            for d in tiles(D, BD) {
                let part = load(x[n, d]);
                least = min(least, min(part, axis = 1));
                most = max(most, max(part, axis = 1));
                for _ in 0..2 {
                    count += 1.0;
                }
            }
            store(lo[n], least);
            store(hi[n], most);
            store(all[n], broadcast(count, [BN]));
        }
    }

    /// A row, a column and a scalar meet a tile.
    kernel broadcasts(row: &Tensor<f32, [D]>, column: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let first = load(column[0]);
            let rows = zeros::<f32>([BN, D]) + load(row[..]) * first;
            let lines = zeros::<f32>([D, BN]) + load(column[n]);
            store(y[n, ..], rows + lines.t());
        }
    }

    /// Two arguments of `max` are element-wise, whatever the second one is; a store takes what was broadcast.
    kernel rectified(x: &Tensor<f32, [N, D]>, most: &mut Tensor<f32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = max(load(x[n, ..]), 0);
            store(most[n], max(rows, axis = 1));
            store(y[n, ..], broadcast(min(rows, axis = 0), [BN, D]));
        }
    }

    /// Sums of columns: what stands past the edge is said, or the reduction is inside the loop.
    kernel columns(x: &Tensor<f32, [N, D]>, c: &Tensor<i32, [N, D]>, y: &mut Tensor<f32, [N]>, most: &mut Tensor<i32, [N]>)
    tune { BN: [16], BD: [32] }
    {
        for n in grid(tiles(N, BN)) {
            let mut all = zeros::<f32>([BN, BD]);
            let mut folded = zeros::<f32>([BN, 1]);
            let mut largest = full::<i32>([BN, BD], -7);
            for d in pipeline(tiles(D, BD)) {
                let part = load(x[n, d]);
                all += part.or(1.0 / 3.0);
                folded += sum(part, axis = 1);
                largest = max(largest, load(c[n, d]).or(-(3 + 4)));
            }
            store(y[n], sum(all, axis = 1) + folded);
            store(most[n], max(largest, axis = 1));
        }
    }

    /// Two loops over one state, which is read elsewhere than it is written.
    kernel normalize(x: &Tensor<f32, [G, H]>, w: &mut Tensor<f32, [G, S, H]>)
    tune { BH: [32] }
    {
        for g in grid(G) {
            let mut total = 0.0;
            for h in tiles(H, BH) {
                store(w[g, 0, h], load(x[g, h]));
                total += sum(load(w[g, 0, h]));
            }
            for k in tiles(H, BH) {
                store(w[g, 0, k], load(w[g, 0, k]) / total);
                store(w[g, 1, k], load(w[g, 0, k]) + load(w[g, 1, span(0, BH)]));
            }
        }
    }

    /// A window of taps at an offset.
    kernel window(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [32] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN + WINDOW]);
            for i in 0..3 {
                total += TAPS[i] * load(x[span(n * BN + i - 1, BN + WINDOW)]).or(0.0);
            }
            let folded = max(n, 1);
            store(y[n], broadcast(sum(select(folded > 2, total, -total)), [BN]));
        }
    }

    /// Sums over twice as many rows.
    kernel doubled(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [8], BM: [8] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[span(n * BN, 2 * BN * BM + 1), ..]).or(0.0) + zeros::<f32>([2 * BN * BM + 1, D]);
            store(y[n, ..], broadcast(sum(rows, axis = 0), [BN, D]));
        }
    }
}

fn spec(def: &KernelDef, dtype: DType) -> Specialization {
    let mut spec = Specialization::default();
    for t in def.types {
        spec = spec.with_type(t.name, dtype);
    }
    for d in def.dims {
        spec = spec.with_dim(d.name, if d.whole { DimFact::Const(64) } else { DimFact::Dynamic(1) });
    }
    spec
}

fn build(def: &KernelDef) -> Kernel {
    let build = |dtype, config: &Config| match (def.build)(&spec(def, dtype), config) {
        Ok(kernel) => kernel,
        Err(e) => panic!("{} {dtype} {config}: {e}", def.name),
    };
    for config in def.configs() {
        for dtype in [DType::F32, DType::F16] {
            let kernel = build(dtype, &config);
            if let Err(e) = atlas_dsl::verify(kernel.clone()) {
                panic!("{} {dtype} {config}: {e}\n{kernel}", def.name);
            }
        }
    }
    build(DType::Bf16, &def.default_config())
}

fn count(kernel: &Kernel, f: impl Fn(&Op) -> bool) -> usize {
    kernel.insts.values().filter(|op| f(op)).count()
}

fn loops(kernel: &Kernel, wanted: LoopKind) -> usize {
    count(kernel, |op| matches!(op, Op::Loop { kind, .. } if *kind == wanted))
}

/// The types of what is stored, in order.
fn stored(kernel: &Kernel) -> Vec<TileType> {
    let value = |op: &Op| if let Op::Store { value, .. } = op { Some(kernel.ty(*value).clone()) } else { None };
    kernel.insts.values().filter_map(value).collect()
}

#[test]
fn memory_read_is_a_pipelined_chain_of_two_dots() {
    let k = build(&memory_read);
    assert_eq!(count(&k, |op| matches!(op, Op::Load { .. })), 4);
    assert_eq!(loops(&k, LoopKind::Pipeline), 1);
    assert_eq!(count(&k, |op| matches!(op, Op::Dot { acc: Some(_), .. })), 1);
    assert_eq!(stored(&k), [TileType::new(DType::Bf16, [64, 64])]);
}

#[test]
fn a_definition_says_what_was_declared() {
    assert_eq!(memory_read.doc, "y = r + W1 · gelu(W2 · x)");
    assert_eq!(rms_norm.doc, "Root-mean-square norm of rows.\n\nTwo paragraphs.");
    assert!(memory_read.file.ends_with("kernels.rs"));
    let dims: Vec<_> = memory_read.dims.iter().map(|d| (d.name, d.whole)).collect();
    assert_eq!(dims, [("G", false), ("N", false), ("D", true), ("H", false)]);
    assert_eq!(memory_read.configs().len(), 2 * 2 * 3 * 2);
    let names: Vec<_> = registry().iter().map(|k| k.name).collect();
    let all = [
        "broadcasts",
        "columns",
        "doubled",
        "memory_read",
        "min_max",
        "newton_schulz",
        "normalize",
        "polynomial",
        "rectified",
        "rms_norm",
        "softmax",
        "window",
    ];
    assert_eq!(names, all);
}

#[test]
fn operations_know_their_token() {
    let k = build(&memory_read);
    let dot = k.insts.iter().find(|(_, op)| matches!(op, Op::Dot { acc: None, .. })).unwrap().0;
    let (at, line) = include_str!("kernels.rs").lines().enumerate().find(|(_, l)| l.contains("let z = dot(")).unwrap();
    assert_eq!(k.locs[dot].line as usize, at + 1);
    assert_eq!(k.locs[dot].column as usize, line.find("dot(").unwrap() + 1);
}

#[test]
fn rms_norm_inlines_its_tile_fn_and_reads_its_scalar() {
    let k = build(&rms_norm);
    assert_eq!(count(&k, |op| matches!(op, Op::Reduce { op: ReduceOp::Sum, .. })), 1);
    assert_eq!(count(&k, |op| matches!(op, Op::ScalarParam(_))), 1);
    assert_eq!(stored(&k), [TileType::new(DType::Bf16, [8, 64])]);
}

#[test]
fn softmax_folds_rows() {
    let k = build(&softmax);
    assert_eq!(count(&k, |op| matches!(op, Op::Reduce { op: ReduceOp::Max, axes, .. } if axes[..] == [1])), 1);
    assert_eq!(count(&k, |op| matches!(op, Op::Binary(BinaryOp::Max, ..))), 0);
}

#[test]
fn newton_schulz_is_one_carried_loop_over_a_table() {
    let k = build(&newton_schulz);
    assert_eq!(loops(&k, LoopKind::Carried), 1);
    assert_eq!(count(&k, |op| matches!(op, Op::TableGet { .. })), 3);
    let table = k.tables.values().next().unwrap();
    assert_eq!((k.tables.len(), &table.shape[..], table.values[4]), (1, &[5, 3][..], -6.3029));
    assert_eq!(stored(&k), [TileType::new(DType::F32, [64, 64])]);
}

#[test]
fn polynomial_takes_scalars_of_three_types() {
    let k = build(&polynomial);
    assert_eq!(count(&k, |op| matches!(op, Op::ScalarParam(_))), 3);
    assert_eq!(count(&k, |op| matches!(op, Op::Binary(BinaryOp::Max, ..))), 1);
    assert_eq!(stored(&k), [TileType::new(DType::Bf16, [256])]);
}

#[test]
fn loops_carry_what_they_assign() {
    let k = build(&min_max);
    let carried = |op: &Op| if let Op::Loop { inits, .. } = op { Some(inits.len()) } else { None };
    let mut counts: Vec<_> = k.insts.values().filter_map(carried).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 3]);
    assert_eq!(stored(&k), vec![TileType::new(DType::F32, [16]); 3]);
}

#[test]
fn rows_columns_and_scalars_broadcast() {
    let k = build(&broadcasts);
    assert_eq!(stored(&k), [TileType::new(DType::F32, [16, 64])]);
}

#[test]
fn what_stands_past_an_edge_is_a_constant() {
    let k = build(&columns);
    let other = |op: &Op| if let Op::Other { other, .. } = op { Some(*other) } else { None };
    assert_eq!(k.insts.values().filter_map(other).collect::<Vec<_>>(), [1.0 / 3.0, -7.0]);
}

#[test]
fn a_literal_makes_no_fold() {
    let k = build(&rectified);
    assert_eq!(count(&k, |op| matches!(op, Op::Binary(BinaryOp::Max, ..))), 1);
    assert_eq!(count(&k, |op| matches!(op, Op::Reduce { axes, .. } if axes[..] == [1])), 1);
    assert_eq!(count(&k, |op| matches!(op, Op::Reduce { axes, .. } if axes[..] == [0])), 1);
    assert_eq!(stored(&k), [TileType::new(DType::F32, [16]), TileType::new(DType::F32, [16, 64])]);
}

#[test]
fn a_span_is_an_offset_and_a_length() {
    let k = build(&window);
    let spans = |op: &Op| match op {
        Op::Load { slices, .. } => matches!(slices[..], [Slice::Span { len: 48, .. }]),
        _ => false,
    };
    assert_eq!(count(&k, spans), 1);
    assert_eq!(count(&k, |op| matches!(op, Op::Binary(BinaryOp::Max, ..))), 1);
}

/// A record, a bundle or a caller may give any number for a knob.
#[test]
fn a_tile_size_beyond_all_bounds_is_refused() {
    for def in registry() {
        for knob in def.tune.iter().filter(|knob| !Schedule::KEYS.contains(&knob.name)) {
            for size in [u32::MAX, 1 << 31] {
                let config = def.default_config().with(knob.name, size);
                let built = (def.build)(&spec(def, DType::F32), &config).and_then(atlas_dsl::verify);
                assert!(built.is_err(), "{} with {config}", def.name);
            }
        }
    }
}

#[test]
fn a_config_that_lacks_a_tile_size_is_an_error_with_its_place() {
    let e = (softmax.build)(&spec(&softmax, DType::F32), &Config::default()).unwrap_err();
    assert_eq!(e.0[0].code.to_string(), "ATL301");
    assert!(e.0[0].loc.line > 0);
}

#[test]
fn a_whole_dim_must_be_constant() {
    let spec = Specialization::default();
    let e = (broadcasts.build)(&spec, &broadcasts.default_config()).unwrap_err();
    assert_eq!(e.0[0].code.to_string(), "ATL114");
}
