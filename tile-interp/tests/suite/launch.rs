//! What `run` refuses, and grids of every size.

use crate::support::{Buffer, kernel};
use atlas_dsl::DType;
use atlas_tile_interp::{Arg, InterpError, Mode, Noise, Scalar, run, run_within};

const F32: DType = DType::F32;

const SCALE: &str = "kernel @scale(%x: f32[G, N], %a: f32, %y: out f32[G, N])
    dims G: ?1, N: ?4
    grid (%g, %n) = (G, tiles(N, 4)) {
      %t = load %x[%g, %n : 4]
      %s = scalar %a
      %b = broadcast %s : f32[4]
      %r = mul %t, %b
      store %y[%g, %n : 4], %r
    }";

#[test]
fn grids_of_every_size() {
    let kernel = kernel(SCALE);
    for dims in [[0, 4], [3, 0], [0, 0], [1, 4], [1, 400], [300, 4], [777, 40]] {
        let count = (dims[0] * dims[1]) as usize;
        let x = Buffer::new(F32, &(0..count).map(|i| i as f64).collect::<Vec<_>>());
        let mut y = Buffer::poison(F32, count);
        let args = vec![Arg::In(x.view(&dims)), Arg::Scalar(Scalar::F64(2.0)), Arg::Out(y.view_mut(&dims))];
        run(&kernel, &dims, args, Mode::Native).unwrap();
        assert_eq!(y.values(), (0..count).map(|i| 2.0 * i as f64).collect::<Vec<_>>());
    }
}

#[test]
fn refused_arguments() {
    let kernel = kernel(SCALE);
    let x = Buffer::new(F32, &[1.0; 8]);
    let halves = Buffer::new(DType::F16, &[1.0; 8]);
    let dims = [2, 4];
    let mut y = x.clone();
    let mut message = |sizes: &[u64], first: Arg<'_>, scalar: Arg<'_>| {
        let args = vec![first, scalar, Arg::Out(y.view_mut(&dims))];
        run(&kernel, sizes, args, Mode::Native).unwrap_err().to_string()
    };
    let scalar = || Arg::Scalar(Scalar::F32(1.0));
    assert_eq!(
        message(&[2], Arg::In(x.view(&dims)), scalar()),
        "`scale`: has 2 dims, but the number of sizes given is 1"
    );
    assert_eq!(
        message(&[2, 6], Arg::In(x.view(&dims)), scalar()),
        "`N`: the size is 6, but the kernel is built for multiples of 4"
    );
    assert_eq!(
        message(&[2, 4], Arg::In(x.view(&[4, 2])), scalar()),
        "`x`: dims [2, 4] are wanted, but [4, 2] are given"
    );
    assert_eq!(
        message(&[2, 4], Arg::In(halves.view(&dims)), scalar()),
        "`x`: a tensor of f32 is wanted, but one of f16 is given"
    );
    assert_eq!(message(&[2, 4], scalar(), scalar()), "`x`: a tensor is wanted, but a scalar is given");
    assert_eq!(
        message(&[2, 4], Arg::In(x.view(&dims)), Arg::In(x.view(&dims))),
        "`a`: a scalar is wanted, but a tensor is given"
    );
    assert_eq!(
        message(&[2, 4], Arg::In(x.view(&dims)), Arg::Scalar(Scalar::I32(1))),
        "`a`: a scalar f32 is wanted, but I32(1) is given"
    );
    let e = run(&kernel, &[2, 4], vec![], Mode::Native).unwrap_err();
    assert_eq!(e.to_string(), "`scale`: has 3 parameters, but the number of arguments given is 0");
    assert!(matches!(e, InterpError::Argument { .. }));
    let args = vec![Arg::In(x.view(&dims)), scalar(), Arg::In(x.view(&dims))];
    let e = run(&kernel, &[2, 4], args, Mode::Native).unwrap_err();
    assert_eq!(e.to_string(), "`y`: a tensor that is written must be given as such");
}

const SUMS: &str = "kernel @sums(%x: f32[N, D], %y: out f32[N, D])
    dims N: ?1, D = 8
    grid (%i) = (tiles(N, 4)) {
      %t = load %x[%i : 4, ..]
      %s = reduce sum %t axes [1]
      %b = broadcast %s : f32[4, 8]
      %r = div %t, %b
      store %y[%i : 4, ..], %r
    }";

/// The signs of errors are turned, and errors are as small as those of f32.
#[test]
fn noise_moves_inexact_results_a_little_to_either_side() {
    let kernel = kernel(SUMS);
    let dims = [8, 8];
    let x = Buffer::new(F32, &(0..64).map(|i| f64::from(i % 7 + 1)).collect::<Vec<_>>());
    let of = |mode: Mode| {
        let mut y = Buffer::poison(F32, 64);
        let args = vec![Arg::In(x.view(&dims)), Arg::Out(y.view_mut(&dims))];
        run(&kernel, &dims, args, mode).unwrap();
        y.values()
    };
    let noise = |negative| Mode::Noisy(Noise { seed: 1, negative, approximate: false });
    let (exact, up, down) = (of(Mode::Native), of(noise(false)), of(noise(true)));
    assert_eq!(up, of(noise(false)));
    for ((x, a), b) in exact.iter().zip(&up).zip(&down) {
        let (a, b) = ((a - x) / x, (b - x) / x);
        assert!(a.abs() < 1e-6 && b.abs() < 1e-6 && a * b <= 0.0, "{a} {b}");
    }
    assert!(up.iter().zip(&down).filter(|(a, b)| a != b).count() > 32, "{up:?} {down:?}");
}

/// Whether a kernel is given up depends on what it does alone.
#[test]
fn what_takes_too_many_operations_is_given_up() {
    let kernel = kernel(SUMS);
    let dims = [8, 8];
    let x = Buffer::new(F32, &[1.0; 64]);
    let within = |most: u64| {
        let mut y = Buffer::poison(F32, 64);
        let args = vec![Arg::In(x.view(&dims)), Arg::Out(y.view_mut(&dims))];
        run_within(&kernel, &dims, args, Mode::Native, most)
    };
    let least = (0..100_000).find(|&most| within(most).is_ok()).unwrap();
    // Two programs of five instructions each, of up to 32 elements.
    assert!((2 * 5 * 32..2 * 5 * 64 + 2).contains(&least), "{least}");
    assert_eq!(within(least - 1), Err(InterpError::Work { most: least - 1 }));
}
