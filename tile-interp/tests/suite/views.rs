//! Strided views, and tensors that are read where they are written.

use crate::support::{Buffer, assert_close, kernel, noise};
use atlas_dsl::DType;
use atlas_tile_interp::{Arg, InterpError, Mode, TensorView, TensorViewMut, run};

const F32: DType = DType::F32;

const COPY: &str = "kernel @copy(%x: f32[N, D], %y: out f32[N, D])
    dims N: ?1, D: ?1
    grid (%n, %d) = (tiles(N, 8), tiles(D, 48)) {
      %a = load %x[%n : 8, %d : 48]
      store %y[%n : 8, %d : 48], %a
    }";

/// What COPY makes of a view of 0, 1, 2, ...
fn copied(len: usize, offset: i64, dims: [u64; 2], strides: [i64; 2]) -> Vec<f64> {
    let x = Buffer::new(F32, &(0..len).map(|i| i as f64).collect::<Vec<_>>());
    let mut y = Buffer::poison(F32, (dims[0] * dims[1]) as usize);
    let view = TensorView::new(F32, &x.bytes, offset, &dims, &strides).unwrap();
    run(&kernel(COPY), &dims, vec![Arg::In(view), Arg::Out(y.view_mut(&dims))], Mode::Native).unwrap();
    y.values()
}

#[test]
fn strides_of_every_kind() {
    let kinds = [
        (64 * 11, 0, [11, 50], [64, 1]),      // rows with gaps
        (50 * 11, 0, [11, 50], [1, 11]),      // transposed
        (50, 0, [11, 50], [0, 1]),            // one row for all
        (11, 0, [11, 50], [1, 0]),            // one column for all
        (1, 0, [11, 50], [0, 0]),             // one element for all
        (550, 549, [11, 50], [-50, -1]),      // backward
        (550, 500, [11, 50], [-50, 1]),       // rows backward
        (2 * 550 + 3, 3, [11, 50], [100, 2]), // every other element
        (20, 7, [1, 1], [5, 5]),              // one element
        (9, 0, [9, 1], [1, 1]),               // one column
    ];
    for (len, offset, dims, strides) in kinds {
        let got = copied(len, offset, dims, strides);
        let want: Vec<f64> = (0..dims[0] as i64)
            .flat_map(|i| (0..dims[1] as i64).map(move |j| (offset + i * strides[0] + j * strides[1]) as f64))
            .collect();
        assert_eq!(got, want, "{dims:?} {strides:?}");
    }
}

#[test]
fn strided_outputs_leave_the_rest_alone() {
    let x = Buffer::new(F32, &noise(8, 3 * 5));
    let mut y = Buffer::new(F32, &[9.0; 40]);
    let view = TensorViewMut::new(F32, &mut y.bytes, 1, &[3, 5], &[2, 7]).unwrap();
    run(&kernel(COPY), &[3, 5], vec![Arg::In(x.view(&[3, 5])), Arg::Out(view)], Mode::Native).unwrap();
    let mut want = vec![9.0; 40];
    for (i, v) in x.values().into_iter().enumerate() {
        want[1 + i / 5 * 2 + i % 5 * 7] = v;
    }
    assert_eq!(y.values(), want);
}

#[test]
fn refused_views() {
    let mut bytes = vec![0; 4 * 10];
    let outside = TensorView::new(F32, &bytes, 0, &[3, 4], &[4, 1]).unwrap_err();
    assert_eq!(
        outside.to_string(),
        "a view with dims [3, 4], strides [4, 1] and offset 0 reaches elements 0..=11, but its buffer holds 10"
    );
    assert!(TensorView::new(F32, &bytes, 1, &[3], &[-1]).is_err());
    assert!(TensorView::new(F32, &bytes, 0, &[3], &[1, 1]).is_err());
    assert!(TensorView::new(F32, &bytes, 0, &[u64::MAX, u64::MAX], &[i64::MAX, i64::MAX]).is_err());
    assert!(TensorView::new(DType::Bool, &bytes, 0, &[3], &[1]).is_err());
    // No element, nothing to reach.
    assert!(TensorView::new(F32, &bytes, 100, &[0, 4], &[4, 1]).is_ok());
    for (dims, strides) in [([2, 5], [0, 1]), ([2, 5], [1, 1]), ([3, 3], [2, 1])] {
        let e = TensorViewMut::new(F32, &mut bytes, 0, &dims, &strides).unwrap_err();
        assert!(matches!(e, InterpError::View(_)));
    }
    assert!(TensorViewMut::new(F32, &mut bytes, 0, &[1, 5], &[0, 1]).is_ok());
}

#[test]
fn in_place_tile_by_tile() {
    let text = "kernel @again(%y: out bf16[N])
        dims N: ?1
        grid (%n) = (tiles(N, 16)) {
          %a = load %y[%n : 16]
          %b = exp %a
          store %y[%n : 16], %b
          %c = load %y[%n : 16]
          %d = add %c, %c
          store %y[%n : 16], %d
        }";
    let x = noise(9, 1000);
    let mut y = Buffer::new(DType::Bf16, &x);
    let before = y.values();
    run(&kernel(text), &[1000], vec![Arg::Out(y.view_mut(&[1000]))], Mode::Native).unwrap();
    let want: Vec<f64> = before.iter().map(|&x| 2.0 * half::bf16::from_f32((x as f32).exp()).to_f64()).collect();
    assert_eq!(y.values(), want);
}

#[test]
fn a_loop_sees_its_own_stores() {
    // y[n, t] = y[n, t - 1] + x[n, t]: a running sum through memory, one span at a time. Before the first stands 0.
    let text = "kernel @running(%x: f32[N, T], %y: out f32[N, T])
        dims N: ?1, T: ?1
        grid (%n) = (tiles(N, 4)) {
          %lo = splat 0 : i32
          %hi = size T
          %one = splat 1 : i32
          loop %t in %lo..%hi {
            %p = sub %t, %one
            %before = load %y[%n : 4, %p ..+ 1]
            %a = other %before, 0.0
            %b = load %x[%n : 4, %t ..+ 1]
            %c = add %a, %b
            store %y[%n : 4, %t ..+ 1], %c
            yield
          }
        }";
    let (n, t) = (6, 9);
    let x = Buffer::new(F32, &noise(10, n * t));
    let mut y = Buffer::new(F32, &vec![0.0; n * t]);
    let dims = [n as u64, t as u64];
    let kernel = atlas_dsl::parse_kernel(text).unwrap();
    run(&kernel, &dims, vec![Arg::In(x.view(&dims)), Arg::Out(y.view_mut(&dims))], Mode::Native).unwrap();
    let want: Vec<f64> = x
        .values()
        .chunks(t)
        .flat_map(|row| {
            row.iter().scan(0.0f32, |s, &x| {
                *s += x as f32;
                Some(f64::from(*s))
            })
        })
        .collect();
    assert_close(&y.values(), &want, 0.0, 0.0);
}
