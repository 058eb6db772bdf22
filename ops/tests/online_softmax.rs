//! Softmax, its logarithm and attention where logits are infinite or no number, wherever they stand and in tiles of every size.

use atlas_dsl::{Config, DType};
use atlas_ops::problem::Inputs;
use atlas_ops::{Problem, cases};
use std::collections::BTreeSet;

const INF: f32 = f32::INFINITY;

/// Columns of a row that are given a value.
type Columns = fn(usize, usize) -> bool;

/// What rows may hold, the columns `at < count` that hold it, and what the logarithm of their sum of exponentials is then, if
/// that is no usual number.
const ROWS: [(&str, f32, Columns, Option<f64>); 12] = [
    ("usual numbers", 0.0, |_, _| false, None),
    ("-infinity first", -INF, |at, count| at + 1 < count, None),
    ("-infinity last", -INF, |at, _| at > 0, None),
    ("-infinity alone", -INF, |_, _| true, Some(f64::NEG_INFINITY)),
    ("+infinity first", INF, |at, _| at == 0, Some(f64::INFINITY)),
    ("+infinity last", INF, |at, count| at + 1 == count, Some(f64::INFINITY)),
    ("+infinity alone", INF, |_, _| true, Some(f64::INFINITY)),
    ("NaN first", f32::NAN, |at, _| at == 0, Some(f64::NAN)),
    ("NaN last", f32::NAN, |at, count| at + 1 == count, Some(f64::NAN)),
    ("-infinity in the middle", -INF, |at, count| at > count / 3 && at < count / 2, None),
    ("numbers between -infinity", -INF, |at, count| at < count / 3 || at > count / 2, None),
    ("usual numbers again", 0.0, |_, _| false, None),
];

fn problem(kernel: &str, dtype: DType, dims: &[u64]) -> Problem {
    cases::problem(kernel, dtype, dims).unwrap_or_else(|| panic!("no kernel `{kernel}`"))
}

/// Configs that differ in tile sizes, which alone matter on a CPU.
fn configs(p: &Problem) -> Vec<Config> {
    let mut seen = BTreeSet::new();
    p.kernel.configs().into_iter().filter(|c| seen.insert(format!("{:?}", c.tile))).collect()
}

/// The results with every config are those of the reference.
#[track_caller]
fn holds(p: &Problem, inputs: &Inputs, what: &str) {
    let expected = p.expected(inputs);
    for config in configs(p) {
        let found = p.prepare(&crate::device(), inputs).and_then(|mut prepared| {
            prepared.launch(Some(&config))?;
            prepared.compare(&expected)
        });
        let Some(found) = crate::unless_too_large(found, format_args!("{p} with {config}")) else { continue };
        assert!(found.passes(p.bound()), "{p}, {what}, with {config}: {found:?}");
    }
}

fn values<'i>(inputs: &'i mut Inputs, name: &str) -> &'i mut Vec<f32> {
    &mut inputs.0.get_mut(name).unwrap_or_else(|| panic!("no input `{name}`")).values
}

/// Writes what each of [`ROWS`] holds to the rows of `x`.
fn edit_rows(x: &mut [f32], count: usize) {
    for (row, (_, value, at, _)) in x.chunks_mut(count).zip(ROWS) {
        row.iter_mut().enumerate().filter(|(i, _)| at(*i, count)).for_each(|(_, v)| *v = value);
    }
}

#[test]
fn rows_of_logits() {
    for dtype in cases::DTYPES {
        for (kernel, counts) in [("log_sum_exp", [1, 33, 1024, 2500, 20000]), ("softmax", [1, 33, 1024, 40, 1500])] {
            for count in counts {
                let p = problem(kernel, dtype, &[ROWS.len() as u64, count]);
                let mut inputs = p.inputs();
                edit_rows(values(&mut inputs, "x"), count as usize);
                holds(&p, &inputs, "rows");
                let expected = (p.op.reference)(&p, &inputs);
                for ((name, _, _, sum), found) in ROWS.iter().zip(&expected[0]).filter(|_| kernel == "log_sum_exp") {
                    let as_said =
                        sum.map_or(count == 1 || found.is_finite(), |s| s == *found || s.is_nan() && found.is_nan());
                    assert!(as_said, "{name}, {count} columns: {found}");
                }
            }
        }
    }
}

/// Queries and `keys` keys, of `d` elements, for which each logit is the key's first element times `scale`: one of [`ROWS`].
fn keys_of(inputs: &mut Inputs, row: usize, keys: usize, d: usize) {
    values(inputs, "q").chunks_mut(d).for_each(|q| {
        q.fill(0.0);
        q[0] = 1.0;
    });
    let (_, value, at, _) = ROWS[row];
    let k = values(inputs, "k");
    for (i, key) in k.chunks_mut(d).enumerate() {
        if at(i % keys, keys) {
            key[0] = value;
        }
        // Zeros of the query times these are zeros.
        key[1..].fill(0.5);
    }
}

#[test]
fn attention_with_logits_of_every_kind() {
    for dtype in cases::DTYPES {
        for scale in [0.18, -0.18, 2.0] {
            for (row, (name, ..)) in ROWS.iter().enumerate() {
                let what = format!("{name} times {scale}");
                let with = |kernel: &str, dims: &[u64]| problem(kernel, dtype, dims).with_scalar("scale", scale);
                // H M D N
                let p = with("attention", &[1, 5, 16, 150]);
                let mut inputs = p.inputs();
                keys_of(&mut inputs, row, 150, 16);
                holds(&p, &inputs, &what);
                // B M H D N J K P, all blocks
                let p = with("block_attention", &[1, 40, 1, 16, 150, 1, 1, 3]).with_scalar("causal", 0.0);
                let mut inputs = p.inputs();
                keys_of(&mut inputs, row, 150, 16);
                values(&mut inputs, "counts").fill(3.0);
                holds(&p, &inputs, &what);
                // B M H D N J S, a window of all keys
                let p = with("windowed_attention", &[1, 150, 1, 16, 150, 1, 0]).with_scalar("window", 150.0);
                let mut inputs = p.inputs();
                keys_of(&mut inputs, row, 150, 16);
                holds(&p, &inputs, &what);
                // S J R D W X
                let p = with("decode_parts", &[2, 1, 3, 16, 150, 2]);
                let mut inputs = p.inputs();
                keys_of(&mut inputs, row, 150, 16);
                values(&mut inputs, "tokens").copy_from_slice(&[150.0, 40.0]);
                holds(&p, &inputs, &what);
            }
        }
    }
}

#[test]
fn a_row_without_weight_is_zero() {
    // What the references say, in numbers.
    let p = problem("attention", DType::F32, &[1, 2, 16, 70]);
    let mut inputs = p.inputs();
    keys_of(&mut inputs, 3, 70, 16);
    assert_eq!((p.op.reference)(&p, &inputs), [vec![0.0; 32]]);
    let p = problem("block_attention", DType::F32, &[1, 2, 1, 16, 70, 1, 1, 2]).with_scalar("causal", 0.0);
    let mut inputs = p.inputs();
    keys_of(&mut inputs, 3, 70, 16);
    assert_eq!((p.op.reference)(&p, &inputs), [vec![0.0; 32], vec![f64::NEG_INFINITY; 2]]);
}

#[test]
fn parts_of_every_kind_are_joined() {
    for dtype in cases::DTYPES {
        let (rows, x) = (ROWS.len(), 6);
        // S J X R D
        let p = problem("decode_join", dtype, &[1, 1, x as u64, rows as u64, 16]);
        let mut inputs = p.inputs();
        // `[S, J, X, R]`: the parts of a row lie `R` apart.
        for (i, top) in values(&mut inputs, "tops").iter_mut().enumerate() {
            let (_, value, at, _) = ROWS[i % rows];
            if at(i / rows, x) {
                *top = value;
            }
        }
        let tops = values(&mut inputs, "tops").clone();
        // A part that has seen nothing has summed nothing.
        for (total, _) in values(&mut inputs, "totals").iter_mut().zip(&tops).filter(|(_, top)| **top == -INF) {
            *total = 0.0;
        }
        for (part, _) in values(&mut inputs, "part").chunks_mut(16).zip(&tops).filter(|(_, top)| **top == -INF) {
            part.fill(0.0);
        }
        holds(&p, &inputs, "parts");
        let sums = &(p.op.reference)(&p, &inputs)[1];
        for ((name, _, _, sum), found) in ROWS.iter().zip(sums) {
            let as_said = sum.map_or(found.is_finite(), |s| s == *found || s.is_nan() && found.is_nan());
            assert!(as_said, "{name}: {found}");
        }
    }
}

#[test]
fn places_and_lengths_of_any_number() {
    const ENDS: [f32; 9] = [i32::MIN as f32, -65.0, -1.0, 0.0, 1.0, 64.0, 69.0, (1 << 26) as f32, 2_147_483_520.0];
    for end in ENDS {
        // B M H D N J S
        for window in [end, 20.0] {
            let p = problem("windowed_attention", DType::F32, &[1, 90, 1, 16, 70, 1, 2]).with_scalar("window", window);
            let mut inputs = p.inputs();
            let first = values(&mut inputs, "first");
            first.iter_mut().skip(usize::from(window == end)).step_by(3).for_each(|f| *f = end);
            holds(&p, &inputs, "documents that begin anywhere");
        }
        // B M H D N J P K
        let p = problem("block_attention", DType::F32, &[1, 70, 1, 16, 100, 1, 2, 3]);
        let mut inputs = p.inputs();
        values(&mut inputs, "blocks").copy_from_slice(&[end, 0.0, end, 1.0, end, 0.0]);
        values(&mut inputs, "counts").copy_from_slice(&[3.0, end.max(1.0)]);
        holds(&p, &inputs, "blocks of any number");
        // S J R D W X
        let p = problem("decode_parts", DType::F32, &[1, 1, 2, 16, 70, 3]);
        let mut inputs = p.inputs();
        values(&mut inputs, "tokens").fill(end);
        holds(&p, &inputs, "rings of any number of tokens");
    }
}
