//! Loops, constants, tables, shapes and scalars.

use crate::support::{Buffer, kernel, noise, run_text};
use atlas_dsl::builder::Index;
use atlas_dsl::config::Setting::Number;
use atlas_dsl::def::{DTypeRef, DimDef, KernelDef, ParamDef, TuneDef};
use atlas_dsl::ir::{Access, Loc};
use atlas_dsl::op::{BinaryOp, LoopKind};
use atlas_dsl::{Builder, Config, DType, Diagnostics, Kernel, Specialization};
use atlas_tile_interp::{Arg, Mode, Scalar, run};

const F32: DType = DType::F32;

#[test]
fn carried_values_and_empty_loops() {
    let text = "kernel @fib(%x: i32[N], %y: out i32[N])
        dims N: ?1
        grid (%n) = (N) {
          %lo = splat 0 : i32
          %hi = load %x[%n]
          %one = splat 1 : i32
          %a, %b = loop %i in %lo..%hi carry (%p = %lo, %q = %one) {
            %s = add %p, %q
            yield %q, %s
          }
          store %y[%n], %a
        }";
    let x = Buffer::new(DType::I32, &[0.0, 1.0, 2.0, 10.0, -3.0]);
    let out = run_text(text, &[5], &[(&x, &[5])], (DType::I32, &[5]), Mode::Native).unwrap();
    assert_eq!(out.values(), [0.0, 1.0, 1.0, 55.0, 0.0]);
}

#[test]
fn nested_loops_and_tables() {
    let text = "kernel @poly(%x: f32[N], %y: out f32[N])
        dims N: ?1
        table @C: f32[2, 3] = [1.0, 2.0, 3.0, 0.5, 0.25, 0.125]
        grid (%n) = (tiles(N, 8)) {
          %lo = splat 0 : i32
          %two = splat 2 : i32
          %three = splat 3 : i32
          %a = load %x[%n : 8]
          %z = splat 0.0 : f32[8]
          %r = loop %i in %lo..%two carry (%s = %z) {
            %t = loop %j in %lo..%three carry (%u = %s) {
              %c = get @C[%i, %j]
              %d = broadcast %c : f32[8]
              %e = mul %u, %a
              %f = add %e, %d
              yield %f
            }
            yield %t
          }
          store %y[%n : 8], %r
        }";
    let x = Buffer::new(F32, &noise(11, 13));
    let out = run_text(text, &[13], &[(&x, &[13])], (DType::F64, &[13]), Mode::F64).unwrap();
    let c = [1.0, 2.0, 3.0, 0.5, 0.25, 0.125];
    let want: Vec<f64> = x.values().iter().map(|x| c.iter().fold(0.0, |s, c| s * x + c)).collect();
    assert_eq!(out.values(), want);
    let outside = text.replace("%three = splat 3", "%three = splat 4");
    let out = run_text(&outside, &[13], &[(&x, &[13])], (DType::F64, &[13]), Mode::F64).unwrap();
    let c = [1.0, 2.0, 3.0, 0.0, 0.5, 0.25, 0.125, 0.0];
    let want: Vec<f64> = x.values().iter().map(|x| c.iter().fold(0.0, |s, c| s * x + c)).collect();
    assert_eq!(out.values(), want, "outside a table stands 0");
}

#[test]
fn broadcasts_reshapes_and_counters() {
    // y[i, j, k] = 100 i + 10 j + k, out of three counters.
    let text = "kernel @count(%y: out i32[A, B, C])
        dims A = 2, B = 3, C = 5
        grid (%a) = (tiles(A, 2)) {
          %i = iota axis 0 : i32[2, 1]
          %i3 = reshape %i : i32[2, 1, 1]
          %h = splat 100 : i32[2, 1, 1]
          %ih = mul %i3, %h
          %if = broadcast %ih : i32[2, 3, 5]
          %j = iota axis 1 : i32[2, 3, 5]
          %t = splat 10 : i32
          %tf = broadcast %t : i32[2, 3, 5]
          %jt = mul %j, %tf
          %k = iota axis 0 : i32[5]
          %kf = broadcast %k : i32[2, 3, 5]
          %s = add %if, %jt
          %r = add %s, %kf
          store %y[%a : 2, .., ..], %r
        }";
    let out = run_text(text, &[2, 3, 5], &[], (DType::I32, &[2, 3, 5]), Mode::Native).unwrap().values();
    let want: Vec<f64> = (0..30).map(|i| f64::from(100 * (i / 15) + 10 * (i / 5 % 3) + i % 5)).collect();
    assert_eq!(out, want);
}

#[test]
fn folds_of_middle_axes() {
    let text = "kernel @middle(%x: i32[A, B, C], %y: out i32[A, B, C])
        dims A = 3, B = 4, C = 5
        grid (%a) = (tiles(A, 3)) {
          %t = load %x[%a : 3, .., ..]
          %s = reduce sum %t axes [1]
          %m = reduce max %s axes [0, 2]
          %f = broadcast %m : i32[3, 4, 5]
          %g = broadcast %s : i32[3, 4, 5]
          %r = sub %f, %g
          store %y[%a : 3, .., ..], %r
        }";
    let x: Vec<i64> = (0..60).map(|i| (i * 37) % 23 - 11).collect();
    let buffer = Buffer::new(DType::I32, &x.iter().map(|&x| x as f64).collect::<Vec<_>>());
    let dims = [3, 4, 5];
    let out = run_text(text, &dims, &[(&buffer, &dims)], (DType::I32, &dims), Mode::Native).unwrap().values();
    let sum = |a: usize, c: usize| (0..4).map(|b| x[a * 20 + b * 5 + c]).sum::<i64>();
    let most = (0..15).map(|i| sum(i / 5, i % 5)).max().unwrap();
    let want: Vec<f64> = (0..60).map(|i| (most - sum(i / 20, i % 5)) as f64).collect();
    assert_eq!(out, want);
}

static AXPY: KernelDef = KernelDef {
    name: "axpy",
    doc: "y = a x + i, added up `steps` times.",
    file: file!(),
    types: &[],
    dims: &[DimDef { name: "N", whole: false }],
    params: &[
        ParamDef::Tensor { name: "x", dtype: DTypeRef::Fixed(DType::F32), dims: &[0], access: Access::In },
        ParamDef::Scalar { name: "a", dtype: DTypeRef::Fixed(DType::F32) },
        ParamDef::Scalar { name: "steps", dtype: DTypeRef::Fixed(DType::I32) },
        ParamDef::Tensor { name: "y", dtype: DTypeRef::Fixed(DType::F32), dims: &[0], access: Access::Out },
    ],
    tune: &[TuneDef { name: "BN", values: &[Number(32)] }],
    grid: &[],
    requires: &[],
    build: &build_axpy,
    refused: None,
};

fn build_axpy(spec: &Specialization, config: &Config) -> Result<Kernel, Diagnostics> {
    let at = Loc::default();
    let mut b = Builder::new(&AXPY, spec, config);
    let size = b.tune(at, "BN");
    let n = b.grid_tiles(b.dim(0), size);
    let x = b.load(at, b.param(0), &[Index::At(n)]);
    let a = b.scalar(at, b.param(1));
    let steps = b.scalar(at, b.param(2));
    let zeros = b.zeros(at, DType::F32, &[size]);
    let sums = b.for_loop(at, LoopKind::Carried, 0.into(), steps, None, &[zeros], |b, i, carried| {
        let ax = b.binary(at, BinaryOp::Mul, x, a);
        let i = b.cast(at, DType::F32, i);
        let term = b.binary(at, BinaryOp::Add, ax, i);
        vec![b.binary(at, BinaryOp::Add, carried[0], term)]
    });
    b.store(at, b.param(3), &[Index::At(n)], sums[0]);
    b.finish()
}

fn axpy_args<'a>(x: &'a Buffer, y: &'a mut Buffer) -> Vec<Arg<'a>> {
    let (a, steps) = (Arg::Scalar(Scalar::F32(0.1)), Arg::Scalar(Scalar::I32(4)));
    vec![Arg::In(x.view(&[50])), a, steps, Arg::Out(y.view_mut(&[50]))]
}

#[test]
fn a_built_kernel_with_scalars() {
    let kernel = (AXPY.build)(&Specialization::default(), &AXPY.default_config()).unwrap();
    let x = Buffer::new(F32, &noise(12, 50));
    let mut y = Buffer::poison(F32, 50);
    run(&kernel, &[50], axpy_args(&x, &mut y), Mode::Native).unwrap();
    let want: Vec<f64> =
        x.values().iter().map(|&x| f64::from((0..4).fold(0.0f32, |s, i| s + (x as f32 * 0.1f32 + i as f32)))).collect();
    assert_eq!(y.values(), want);
    // A scalar given as f32 is exactly that in f64 mode.
    let mut y = Buffer::poison(DType::F64, 50);
    run(&kernel, &[50], axpy_args(&x, &mut y), Mode::F64).unwrap();
    let term = |x: f64, i: i32| x * f64::from(0.1f32) + f64::from(i);
    let want: Vec<f64> = x.values().iter().map(|&x| (0..4).fold(0.0, |s, i| s + term(x, i))).collect();
    assert_eq!(y.values(), want);
}

#[test]
fn whole_numbers_of_dims() {
    let text = "kernel @sizes(%x: f32[N, M], %y: out i32[G])
        dims N: ?1, M: ?1, G: ?1
        grid (%g) = (G) {
          %n = size N
          %t = tiles(M, 48)
          %r = mul %n, %t
          store %y[%g], %r
        }";
    let x = Buffer::new(F32, &[0.0; 21 * 100]);
    let mut y = Buffer::poison(DType::I32, 1);
    let args = vec![Arg::In(x.view(&[21, 100])), Arg::Out(y.view_mut(&[1]))];
    run(&kernel(text), &[21, 100, 1], args, Mode::Native).unwrap();
    assert_eq!(y.values(), [63.0]);
}

/// Chains are as long as a kernel; a thread's stack does not grow with them.
#[test]
fn long_chains_run_on_the_stack_of_a_thread() {
    let mut text = String::from(
        "kernel @chain(%x: f32[N], %y: out f32[N])\ndims N: ?1\ngrid (%n) = (tiles(N, 4)) {\n\
         %a0 = load %x[%n : 4] : f32[4]\n%r0 = reshape %a0 : f32[4, 1]\n",
    );
    for i in 0..4000 {
        text += &format!("%c{i} = lt %a{i}, %a0\n%b{i} = select %c{i}, %a0, %a{i}\n%d{i} = neg %b{i}\n");
        text += &format!("%t{i} = transpose %r{i}\n%r{} = transpose %t{i}\n%a{} = abs %d{i}\n", i + 1, i + 1);
    }
    text += "%z = reshape %r4000 : f32[4]\n%s = add %a4000, %z\nstore %y[%n : 4], %s\n}";
    let run = move || {
        let x = Buffer::new(F32, &[1.0, 2.0, 3.0, 4.0, 5.0]);
        run_text(&text, &[5], &[(&x, &[5])], (F32, &[5]), Mode::Native).unwrap().values()
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
    assert_eq!(thread.join().expect("a thread that ends"), [2.0, 4.0, 6.0, 8.0, 10.0]);
}
