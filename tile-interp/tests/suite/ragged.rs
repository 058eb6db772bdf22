//! Tiles past the edge: reductions and `dot` never see what lies there.

use crate::support::{Buffer, assert_close, kernel, noise, run_text};
use atlas_dsl::DType;
use atlas_tile_interp::{Arg, Mode, TensorView, run};

const F32: DType = DType::F32;

/// An element-wise operation and its reference.
type Map = (&'static str, fn(f64) -> f64);

/// A reduction, its reference and its neutral element.
type Fold = (&'static str, fn(f64, f64) -> f64, f64);

/// y[m] = fold over N of f(x[m, n]), tile by tile of 64.
fn fold_text(f: &str, op: &str) -> String {
    let (start, join) = match op {
        "sum" => ("0.0", "add"),
        "max" => ("-inf", "max"),
        _ => ("inf", "min"),
    };
    format!(
        "kernel @fold(%x: f32[M, N], %y: out f32[M])
         dims M: ?1, N: ?1
         grid (%m) = (tiles(M, 8)) {{
           %lo = splat 0 : i32
           %hi = tiles(N, 64)
           %s = splat {start} : f32[8, 1]
           %t = pipeline %n in %lo..%hi carry (%c = %s) {{
             %a = load %x[%m : 8, %n : 64]
             %b = {f} %a
             %d = reduce {op} %b axes [1]
             %e = {join} %c, %d
             yield %e
           }}
           %r = reshape %t : f32[8]
           store %y[%m : 8], %r
         }}"
    )
}

#[test]
fn folds_of_ragged_tiles() {
    let (m, n) = (11, 100);
    let buffer = Buffer::new(F32, &noise(3, m * n).iter().map(|x| x - 1.5).collect::<Vec<_>>());
    let x = buffer.values();
    let dims = [m as u64, n as u64];
    let maps: [Map; 4] =
        [("exp", f64::exp), ("cos", f64::cos), ("sigmoid", |x| 1.0 / (1.0 + (-x).exp())), ("neg", |x| -x)];
    for (f, map) in maps {
        let folds: [Fold; 3] =
            [("sum", |a, b| a + b, 0.0), ("max", f64::max, f64::NEG_INFINITY), ("min", f64::min, f64::INFINITY)];
        for (op, fold, neutral) in folds {
            let want: Vec<f64> = x.chunks(n).map(|row| row.iter().map(|&x| map(x)).fold(neutral, fold)).collect();
            let text = fold_text(f, op);
            let run =
                |out, mode| run_text(&text, &dims, &[(&buffer, &dims)], (out, &dims[..1]), mode).unwrap().values();
            assert_close(&run(F32, Mode::Native), &want, 1e-6, 1e-6);
            assert_close(&run(DType::F64, Mode::F64), &want, 1e-13, 1e-13);
        }
    }
}

#[test]
fn max_of_negatives_and_of_everything() {
    let text = "kernel @most(%x: f32[N, D], %y: out f32[N])
        dims N: ?1, D = 5
        grid (%n) = (N) {
          %a = load %x[%n, ..]
          %m = reduce max %a axes [0]
          %s = reshape %m : f32
          store %y[%n], %s
        }";
    let x = Buffer::new(F32, &[-5.0, -3.0, -4.0, -9.0, -7.0, -1.0, -2.0, f64::NAN, -3.0, -4.0]);
    let out = run_text(text, &[2, 5], &[(&x, &[2, 5])], (F32, &[2]), Mode::Native).unwrap().values();
    assert_close(&out, &[-3.0, f64::NAN], 0.0, 0.0);
    // One program, both axes ragged, reduced together.
    let text = "kernel @most(%x: f32[N, D], %y: out f32[G])
        dims N: ?1, D: ?1, G: ?1
        grid (%g) = (G) {
          %z = splat 0 : i32
          %a = load %x[%z : 8, %z : 16]
          %m = reduce max %a axes [0, 1]
          %s = reshape %m : f32
          store %y[%g], %s
        }";
    let x = Buffer::new(F32, &[-5.0, -3.0, -4.0, -9.0, -7.0, -8.0]);
    let out = run_text(text, &[2, 3, 1], &[(&x, &[2, 3])], (F32, &[1]), Mode::Native).unwrap();
    assert_eq!(out.values(), [-3.0]);
}

#[test]
fn dot_contracts_valid_elements_alone() {
    // exp(0) = 1 past the edge of K in both operands would add to every element.
    let text = "kernel @gram(%x: f32[M, K], %w: f32[K, N], %y: out f32[M, N])
        dims M: ?1, K: ?1, N: ?1
        grid (%m, %n) = (tiles(M, 16), tiles(N, 32)) {
          %lo = splat 0 : i32
          %hi = tiles(K, 16)
          %s = splat 0.0 : f32[16, 32]
          %t = pipeline %k in %lo..%hi carry (%c = %s) {
            %a = load %x[%m : 16, %k : 16]
            %b = load %w[%k : 16, %n : 32]
            %e = exp %a
            %f = cos %b
            %d = dot %e, %f acc %c
            yield %d
          }
          store %y[%m : 16, %n : 32], %t
        }";
    let (m, k, n) = (19, 23, 37);
    let (x, w) = (noise(4, m * k), noise(5, k * n));
    let (bx, bw) = (Buffer::new(F32, &x), Buffer::new(F32, &w));
    let (x, w) = (bx.values(), bw.values());
    let want: Vec<f64> =
        (0..m * n).map(|i| (0..k).map(|j| x[i / n * k + j].exp() * w[j * n + i % n].cos()).sum()).collect();
    let dims = [m as u64, k as u64, n as u64];
    for (mode, out, tolerance) in [(Mode::Native, F32, 1e-5), (Mode::F64, DType::F64, 1e-13)] {
        let inputs: [(&Buffer, &[u64]); 2] = [(&bx, &[dims[0], dims[1]]), (&bw, &[dims[1], dims[2]])];
        let got = run_text(text, &dims, &inputs, (out, &[dims[0], dims[2]]), mode).unwrap();
        assert_close(&got.values(), &want, tolerance, tolerance);
    }
}

#[test]
fn a_neighbour_past_the_edge_is_not_read() {
    // Rows of 5 in a buffer of rows of 8; what lies between is NaN.
    let mut all = vec![f64::NAN; 3 * 8];
    for (i, row) in all.chunks_mut(8).enumerate() {
        row[..5].copy_from_slice(&[1.0, 2.0, 3.0, 4.0, i as f64]);
    }
    let x = Buffer::new(F32, &all);
    let mut out = Buffer::poison(F32, 3);
    let view = TensorView::new(F32, &x.bytes, 0, &[3, 5], &[8, 1]).unwrap();
    let args = vec![Arg::In(view), Arg::Out(out.view_mut(&[3]))];
    run(&kernel(&fold_text("abs", "sum")), &[3, 5], args, Mode::Native).unwrap();
    assert_eq!(out.values(), [10.0, 11.0, 12.0]);
}

#[test]
fn a_fold_after_a_loop_sees_what_stands_past_the_edge() {
    // `a += load(x[n, k]).or(v)`, reduced after the loop: every column once, and v for each that is missing.
    let text = |dtype: DType, other: f64| {
        format!(
            "kernel @columns(%x: {dtype}[N, K], %y: out {dtype}[N])
            dims N: ?1, K: ?1
            grid (%n) = (tiles(N, 2)) {{
              %lo = splat 0 : i32
              %hi = tiles(K, 8)
              %z = splat 0 : {dtype}[2, 8]
              %t = pipeline %k in %lo..%hi carry (%c = %z) {{
                %a = load %x[%n : 2, %k : 8]
                %e = other %a, {other}
                %d = add %c, %e
                yield %d
              }}
              %s = reduce sum %t axes [1]
              %r = reshape %s : {dtype}[2]
              store %y[%n : 2], %r
            }}"
        )
    };
    for k in [0, 3, 8, 13, 16] {
        for (dtype, other, tolerance) in
            [(F32, 0.0, 1e-6), (F32, 2.0, 1e-6), (DType::F16, 0.5, 2e-2), (DType::I32, 3.0, 0.0)]
        {
            let x = Buffer::new(dtype, &noise(8, 2 * k).iter().map(|x| x * 9.0).collect::<Vec<_>>());
            let sizes = [2, k as u64];
            let got = run_text(&text(dtype, other), &sizes, &[(&x, &sizes)], (dtype, &[2]), Mode::Native).unwrap();
            let values = x.values();
            let missing = (k.next_multiple_of(8) - k) as f64;
            let want: Vec<f64> =
                (0..2).map(|r| values[r * k..(r + 1) * k].iter().sum::<f64>() + other * missing).collect();
            assert_close(&got.values(), &want, tolerance, 10.0 * tolerance);
        }
    }
}

#[test]
fn what_stands_past_the_edge_is_inside_on_every_axis_and_in_every_mode() {
    // Rows and columns before the start and past the end, all counted.
    let text = "kernel @frame(%x: f32[N, K], %y: out f32[G])
        dims N: ?1, K: ?1, G: ?1
        grid (%g) = (G) {
          %one = splat -1 : i32
          %a = load %x[%one ..+ 4, %one ..+ 8]
          %b = other %a, 0
          %s = reduce sum %b axes [0, 1]
          %r = reshape %s : f32
          store %y[%g], %r
        }";
    let x = Buffer::new(F32, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for (other, want) in [("0", 21.0), ("0.5", 21.0 + 13.0), ("-inf", f64::NEG_INFINITY)] {
        for mode in [Mode::Native, Mode::F64] {
            let text = text.replace("other %a, 0", &format!("other %a, {other}"));
            let out = if mode == Mode::F64 { DType::F64 } else { F32 };
            let got = run_text(&text, &[2, 3, 1], &[(&x, &[2, 3])], (out, &[1]), mode).unwrap();
            assert_eq!(got.values(), [want]);
        }
    }
    let ring = run_text(text, &[2, 3, 1], &[(&x, &[2, 3])], (F32, &[1]), Mode::Ring);
    assert!(ring.is_ok(), "{ring:?}");
    let one = text.replace("other %a, 0", "other %a, 1");
    assert!(run_text(&one, &[2, 3, 1], &[(&x, &[2, 3])], (F32, &[1]), Mode::Ring).is_err());
}

#[test]
fn what_a_loop_carries_is_valid_where_its_start_and_its_body_are() {
    // The start has the edge of x; the body leaves a tile of ones. Before, in and after the loop the edge is there.
    let text = "kernel @carried(%x: f32[N, K], %y: out f32[N])
        dims N: ?1, K: ?1
        grid (%n) = (N) {
          %lo = splat 0 : i32
          %hi = size K
          %a = load %x[%n, %lo ..+ 8]
          %e = exp %a
          %one = splat 1 : f32[8]
          %t = loop %k in %lo..%hi carry (%c = %e) {
            yield %one
          }
          %s = reduce sum %t axes [0]
          %r = reshape %s : f32
          store %y[%n], %r
        }";
    for k in [0, 5, 8, 9] {
        let x = Buffer::new(F32, &vec![0.0; k]);
        let sizes = [1, k as u64];
        let got = run_text(text, &sizes, &[(&x, &sizes)], (F32, &[1]), Mode::Native).unwrap();
        assert_eq!(got.values(), [k.min(8) as f64]);
    }
}

#[test]
fn an_element_that_a_scalar_picks_outside_its_tensor_is_a_zero_like_any_other() {
    let text = "kernel @outside(%x: f32[N, D], %y: out f32[N])
        dims N: ?1, D = 4
        grid (%n) = (N) {
          %one = splat 1 : i32
          %m = add %n, %one
          %a = load %x[%m, ..]
          %e = exp %a
          %s = reduce sum %e axes [0]
          %r = reshape %s : f32
          store %y[%n], %r
        }";
    let x = Buffer::new(F32, &[0.0; 8]);
    let out = run_text(text, &[2, 4], &[(&x, &[2, 4])], (F32, &[2]), Mode::Native).unwrap();
    assert_eq!(out.values(), [4.0, 4.0]);
}

#[test]
fn spans_may_start_before_the_tensor() {
    // A window of 4 that ends at n: rows before the first do not count, not even to exp.
    let text = "kernel @window(%x: f32[N, D], %y: out f32[N, D], %z: out f32[N, D])
        dims N: ?1, D = 3
        grid (%n) = (N) {
          %three = splat 3 : i32
          %s = sub %n, %three
          %a = load %x[%s ..+ 4, ..]
          %e = exp %a
          %t = reduce sum %e axes [0]
          %m = reduce max %a axes [0]
          %r = reshape %t : f32[3]
          %q = reshape %m : f32[3]
          store %y[%n, ..], %r
          store %z[%n, ..], %q
        }";
    let n = 7;
    let bx = Buffer::new(F32, &noise(6, n * 3).iter().map(|x| x - 2.0).collect::<Vec<_>>());
    let x = bx.values();
    let (mut sum, mut max) = (Buffer::poison(F32, n * 3), Buffer::poison(F32, n * 3));
    let dims = [n as u64, 3];
    let args = vec![Arg::In(bx.view(&dims)), Arg::Out(sum.view_mut(&dims)), Arg::Out(max.view_mut(&dims))];
    run(&kernel(text), &dims, args, Mode::Native).unwrap();
    let window = |i: usize, f: fn(f64, f64) -> f64, map: fn(f64) -> f64, neutral: f64| {
        let (row, d) = (i / 3, i % 3);
        (row.saturating_sub(3)..=row).map(|j| map(x[j * 3 + d])).fold(neutral, f)
    };
    let want: Vec<f64> = (0..n * 3).map(|i| window(i, |a, b| a + b, f64::exp, 0.0)).collect();
    assert_close(&sum.values(), &want, 1e-6, 0.0);
    let want: Vec<f64> = (0..n * 3).map(|i| window(i, f64::max, |x| x, f64::NEG_INFINITY)).collect();
    assert_eq!(max.values(), want);
}

#[test]
fn validity_follows_transposes_broadcasts_and_selects() {
    // Row and column sums of sigmoid(x^T) + bias, where bias is a full tile.
    let text = "kernel @sums(%x: f32[M, N], %y: out f32[N])
        dims M: ?1, N: ?1
        grid (%n) = (tiles(N, 8)) {
          %z = splat 0 : i32
          %a = load %x[%z : 16, %n : 8]
          %t = transpose %a
          %s = sigmoid %t
          %one = splat 1.0 : f32
          %b = broadcast %one : f32[8, 16]
          %c = add %s, %b
          %g = gt %t, %b
          %d = select %g, %b, %c
          %f = reduce sum %d axes [1]
          %r = reshape %f : f32[8]
          store %y[%n : 8], %r
        }";
    let (m, n) = (10, 13);
    let bx = Buffer::new(F32, &noise(7, m * n).iter().map(|x| 2.0 * x).collect::<Vec<_>>());
    let x = bx.values();
    let dims = [m as u64, n as u64];
    let got = run_text(text, &dims, &[(&bx, &dims)], (F32, &dims[1..]), Mode::Native).unwrap().values();
    let term = |x: f64| if x > 1.0 { 1.0 } else { 1.0 + 1.0 / (1.0 + (-x).exp()) };
    let want: Vec<f64> = (0..n).map(|j| (0..m).map(|i| term(x[i * n + j])).sum()).collect();
    assert_close(&got, &want, 1e-6, 0.0);
}

#[test]
fn stores_past_the_edge_are_dropped() {
    let text = "kernel @fill(%y: out i32[N, D])
        dims N: ?1, D: ?1
        grid (%n, %d) = (tiles(N, 4), tiles(D, 48)) {
          %i = iota axis 1 : i32[4, 48]
          store %y[%n : 4, %d : 48], %i
        }";
    let mut out = Buffer::poison(DType::I32, 5 * 64);
    let view = atlas_tile_interp::TensorViewMut::new(DType::I32, &mut out.bytes, 0, &[5, 50], &[64, 1]).unwrap();
    run(&kernel(text), &[5, 50], vec![Arg::Out(view)], Mode::Native).unwrap();
    for row in out.values().chunks(64) {
        for (i, &x) in row.iter().enumerate() {
            assert_eq!(x, if i < 50 { (i % 48) as f64 } else { -1.0 });
        }
    }
}

#[test]
fn contracting_nothing_gives_zeros() {
    let text = "kernel @gram(%x: f32[M, K], %y: out f32[M, M])
        dims M = 3, K: ?1
        grid (%m) = (tiles(M, 4)) {
          %lo = splat 0 : i32
          %a = load %x[%m : 4, %lo : 16]
          %e = exp %a
          %t = transpose %e
          %d = dot %e, %t
          store %y[%m : 4, %m : 4], %d
        }";
    let x = Buffer::new(F32, &[]);
    let out = run_text(text, &[3, 0], &[(&x, &[3, 0])], (F32, &[3, 3]), Mode::Native).unwrap();
    assert_eq!(out.values(), [0.0; 9]);
}

#[test]
fn either_operand_may_be_the_ragged_one() {
    let bodies = [
        ("%r = sub %one, %a", 1.0),
        ("%r = sub %a, %one", -1.0),
        ("%c = gt %one, %a\n%r = cast %c : f32[16]", 1.0),
        ("%c = gt %one, %one\n%r = select %c, %a, %one", 1.0),
        ("%c = gt %one, %one\n%d = not %c\n%r = select %d, %one, %a", 1.0),
        ("%c = gt %one, %a\n%r = select %c, %one, %one", 1.0),
    ];
    for (body, each) in bodies {
        let text = format!(
            "kernel @count(%x: f32[N], %y: out f32[G])
             dims N: ?1, G: ?1
             grid (%g) = (G) {{
               %z = splat 0 : i32
               %a = load %x[%z : 16]
               %one = splat 1.0 : f32[16]
               {body}
               %s = reduce sum %r axes [0]
               %t = reshape %s : f32
               store %y[%g], %t
             }}"
        );
        let x = Buffer::new(F32, &[0.0; 10]);
        let out = run_text(&text, &[10, 1], &[(&x, &[10])], (F32, &[1]), Mode::Native).unwrap();
        assert_eq!(out.values(), [10.0 * each], "{body}");
    }
}
