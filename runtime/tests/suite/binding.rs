//! Every mistake in the arguments of a launch, reported in the user's names.

use crate::kernels::{BUMP, GEMM, SCALE, SUMS};
use atlas_dsl::def::{DTypeRef, DimDef, ParamDef, TypeParamDef};
use atlas_dsl::ir::Access;
use atlas_dsl::{DType, Diagnostics, KernelDef};
use atlas_runtime::{Arg, BoundArg, BoundLaunch, Device, Element, Launch, Tensor, args};

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(&Device::cpu(), DType::F32, shape).unwrap()
}

/// A launch that must fail, and its message.
macro_rules! refused {
    ($def:expr, [$($args:tt)*], $want:expr) => {
        assert_eq!($def.launch(&Device::cpu(), args!($($args)*)).unwrap_err().to_string(), $want)
    };
}

#[test]
fn wrong_argument_count() {
    let x = zeros(&[4, 8]);
    refused!(SCALE, [x], "error[ATL601]: `scale` takes 4 arguments (x, r, a, y), but is given 1");
    let none: [Arg<'_>; 0] = args!();
    let error = SCALE.launch(&Device::cpu(), none).unwrap_err();
    assert_eq!(error.to_string(), "error[ATL601]: `scale` takes 4 arguments (x, r, a, y), but is given 0");
}

#[test]
fn wrong_kind() {
    let (x, mut y) = (zeros(&[4, 8]), zeros(&[4, 8]));
    refused!(
        SCALE,
        [x, x, x, &mut y],
        "error[ATL602]: `a` of `scale` is a number, but a tensor is given in its place; arguments stand in the order of the parameters"
    );
    refused!(
        SCALE,
        [1.0, x, 1.0, &mut y],
        "error[ATL602]: `x` of `scale` is a tensor, but a number is given in its place; arguments stand in the order of the parameters"
    );
}

#[test]
fn wrong_rank() {
    let (x, r, mut y) = (zeros(&[4, 8]), zeros(&[4, 8, 1]), zeros(&[4, 8]));
    refused!(
        SCALE,
        [x, r, 1.0, &mut y],
        "error[ATL603]: `r` of `scale` has dims [N, D], but a tensor of shape [4, 8, 1] is given"
    );
}

#[test]
fn one_dim_two_sizes() {
    let (a, b, mut c) = (zeros(&[4, 8]), zeros(&[9, 5]), zeros(&[4, 5]));
    refused!(GEMM, [a, b, &mut c], "error[ATL604]: dim `K` of `gemm` is 8 on axis 1 of `a`, but 9 on axis 0 of `b`");
}

#[test]
fn wrong_dtype() {
    let (x, s) = (Tensor::zeros(&Device::cpu(), DType::F16, [4, 8]).unwrap(), zeros(&[4]));
    let (mut s, mut y) = (s, zeros(&[4, 8]));
    refused!(SUMS, [x, &mut s, &mut y], "error[ATL605]: `x` of `sums` holds f32, but a tensor of f16 is given");
}

#[test]
fn one_type_parameter_two_types() {
    let (x, mut y) = (zeros(&[4, 8]), zeros(&[4, 8]));
    let r = Tensor::zeros(&Device::cpu(), DType::Bf16, [4, 8]).unwrap();
    refused!(SCALE, [x, r, 1.0, &mut y], "error[ATL606]: type `T` of `scale` is f32 in `x`, but bf16 in `r`");
}

#[test]
fn a_type_outside_the_bound() {
    let x = Tensor::zeros(&Device::cpu(), DType::F64, [4, 8]).unwrap();
    let mut y = x.to_device(&Device::cpu()).unwrap();
    refused!(
        SCALE,
        [x, x, 1.0, &mut y],
        "error[ATL606]: type `T` of `scale` may be f32, f16, bf16, but `x` makes it f64"
    );
}

#[test]
fn wrong_scalar() {
    let (x, mut y) = (zeros(&[4, 8]), zeros(&[4, 8]));
    refused!(
        SCALE,
        [x, x, 2, &mut y],
        "error[ATL607]: `a` of `scale` is a number of type f32, but a number of type i32 is given; write the number as f32"
    );
    refused!(
        SCALE,
        [x, x, 1e300, &mut y],
        "error[ATL607]: `a` of `scale` is a number of type f32, and 1e300 is beyond its largest number, 3.4028235e38; infinity is `f32::INFINITY`"
    );
    SCALE.launch(&Device::cpu(), args!(x, x, f64::INFINITY, &mut y)).unwrap();
    let mut n = Tensor::zeros(&Device::cpu(), DType::I32, [4]).unwrap();
    refused!(
        BUMP,
        [&mut n, 3_000_000_000_i64],
        "error[ATL607]: `by` of `bump` is an i32, and 3000000000 does not fit it"
    );
}

#[test]
fn a_scalar_that_does_not_fit_is_refused_warm_too() {
    let mut n = Tensor::zeros(&Device::cpu(), DType::I32, [4]).unwrap();
    BUMP.launch(&Device::cpu(), args!(&mut n, 3_i64)).unwrap();
    refused!(
        BUMP,
        [&mut n, 3_000_000_000_i64],
        "error[ATL607]: `by` of `bump` is an i32, and 3000000000 does not fit it"
    );
    assert_eq!(n.to_vec::<i32>().unwrap(), [3; 4]);
}

/// A number beside a tie is not a tie, however close it is.
#[test]
fn a_scalar_rounds_once() {
    let cpu = Device::cpu();
    for (dtype, half_step, wanted) in [(DType::F16, -11, [0x3c01, 0x3c00]), (DType::Bf16, -8, [0x3f81, 0x3f80])] {
        let x = Tensor::zeros(&cpu, dtype, [4, 8]).unwrap();
        let mut y = Tensor::zeros(&cpu, dtype, [4, 8]).unwrap();
        for (beside, wanted) in [2f64.powi(-40), -2f64.powi(-40)].into_iter().zip(wanted) {
            let number = 1.0 + 2f64.powi(half_step) + beside;
            let bound = BoundLaunch::new(&GENERIC, &cpu, &args!(x, number, &mut y)).unwrap();
            let BoundArg::Scalar { bits, .. } = bound.args()[1] else { panic!("no number") };
            assert_eq!(bits, wanted, "{dtype} {number:e}");
        }
    }
    assert_eq!(<half::f16 as Element>::from_f64(1.0 + 2f64.powi(-11) + 2f64.powi(-40)).to_bits(), 0x3c01);
    assert_eq!(<half::bf16 as Element>::from_f64(-1.0 - 2f64.powi(-8) - 2f64.powi(-40)).to_bits(), 0xbf81);
}

/// A number of the same type as the tensors.
static GENERIC: KernelDef = KernelDef {
    name: "generic",
    doc: "",
    file: file!(),
    types: &[TypeParamDef { name: "T", allowed: &[DType::F16, DType::Bf16] }],
    dims: &[DimDef { name: "N", whole: false }, DimDef { name: "D", whole: false }],
    params: &[
        ParamDef::Tensor { name: "x", dtype: DTypeRef::Generic(0), dims: &[0, 1], access: Access::In },
        ParamDef::Scalar { name: "a", dtype: DTypeRef::Generic(0) },
        ParamDef::Tensor { name: "y", dtype: DTypeRef::Generic(0), dims: &[0, 1], access: Access::Out },
    ],
    tune: &[],
    grid: &[],
    requires: &[],
    build: &|_, _| Err(Diagnostics::default()),
    refused: None,
};

#[test]
fn an_output_must_be_mutable() {
    let (x, y) = (zeros(&[4, 8]), zeros(&[4, 8]));
    refused!(
        SCALE,
        [x, x, 1.0, y],
        "error[ATL608]: `scale` writes `y`, but it is given as `&y`, which may only be read; pass `&mut y`"
    );
    refused!(
        SCALE,
        [x, x, 1.0, &y],
        "error[ATL608]: `scale` writes `y`, but it is given as `&y`, which may only be read; pass `&mut y`"
    );
}

#[test]
fn an_output_shares_no_memory() {
    let want = "error[ATL609]: `y` and `r` of `scale` share memory, and `y` is written; pass a tensor of its own";
    let (x, y) = (zeros(&[4, 8]), zeros(&[4, 8]));
    refused!(SCALE, [x, y, 1.0, &mut y.clone()], want);
    let long = zeros(&[6, 8]);
    let (low, high) = (long.slice(0, 0..4).unwrap(), long.slice(0, 2..6).unwrap());
    refused!(SCALE, [x, low, 1.0, &mut high.clone()], want);
    let s = zeros(&[8]);
    let mut y = s.reshape([1, 8]).unwrap();
    refused!(
        SUMS,
        [zeros(&[1, 8]), &mut s.slice(0, 7..8).unwrap(), &mut y],
        "error[ATL609]: `s` and `y` of `sums` share memory, and `s` is written; pass a tensor of its own"
    );
}

#[test]
fn sharing_is_found_in_a_problem_seen_before() {
    let (x, r, mut y) = (zeros(&[4, 8]), zeros(&[4, 8]), zeros(&[4, 8]));
    SCALE.launch(&Device::cpu(), args!(x, r, 1.0, &mut y)).unwrap();
    let want = "error[ATL609]: `y` and `x` of `scale` share memory, and `y` is written; pass a tensor of its own";
    refused!(SCALE, [y, r, 1.0, &mut y.clone()], want);
}

#[test]
fn disjoint_halves_of_one_tensor_are_no_overlap() {
    let long = Device::cpu().tensor_from(&[1.0_f32; 64], [8, 8]).unwrap();
    let (x, mut y) = (long.slice(0, 0..4).unwrap(), long.slice(0, 4..8).unwrap());
    SCALE.launch(&Device::cpu(), args!(x, x, 2.0, &mut y)).unwrap();
    assert_eq!(long.to_vec::<f32>().unwrap(), [[1.0; 32], [3.0; 32]].concat());
}

#[test]
fn disjoint_columns_of_one_tensor_are_no_overlap() {
    let wide = Device::cpu().tensor_from(&[1.0_f32; 64], [2, 32]).unwrap();
    let block = |from: usize| wide.slice(1, from..from + 8).unwrap();
    SCALE.launch(&Device::cpu(), args!(block(0), block(24), 2.0, &mut block(8))).unwrap();
    let row = [[1.0_f32; 8], [3.0; 8], [1.0; 8], [1.0; 8]].concat();
    assert_eq!(wide.to_vec::<f32>().unwrap(), [row.clone(), row].concat());
    let want = "error[ATL609]: `y` and `x` of `scale` share memory, and `y` is written; pass a tensor of its own";
    refused!(SCALE, [block(1), block(24), 1.0, &mut block(8)], want);
}

#[test]
fn a_mutable_borrow_is_as_good_as_a_shared_one() {
    let (mut x, r, mut y) = (zeros(&[4, 8]), zeros(&[4, 8]), zeros(&[4, 8]));
    let mut whole = Device::cpu().tensor_from(&[2.0_f32; 32], [4, 8]).unwrap();
    SCALE.launch(&Device::cpu(), args!(&mut whole, r, 3.0, &mut y)).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [6.0; 32]);
    let prepared = SCALE.prepare(&Device::cpu(), args!(x, r, 1.0, &mut y)).unwrap();
    prepared.launch(args!(&mut x, r, 1.0, &mut y)).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [0.0; 32]);
    // The storage of a tensor that is only read is not locked for writing.
    let (mut low, mut high) = (x.slice(0, 0..2).unwrap(), x.slice(0, 0..2).unwrap());
    SCALE.launch(&Device::cpu(), args!(&mut low, &mut high, 1.0, &mut y.slice(0, 0..2).unwrap())).unwrap();
}

#[test]
fn an_output_repeats_no_element() {
    let (x, row) = (zeros(&[4, 8]), zeros(&[1, 8]));
    refused!(
        SCALE,
        [x, x, 1.0, &mut row.expand([4, 8]).unwrap()],
        "error[ATL610]: `scale` writes `y`, but elements of that view (shape [4, 8], strides [0, 1]) share memory; \
         pass a view without repeats"
    );
}

#[test]
fn a_dim_of_two_to_the_31() {
    let one = zeros(&[1, 8]);
    let big = one.expand([1 << 31, 8]).unwrap();
    let mut y = zeros(&[4, 8]);
    refused!(
        SCALE,
        [big, big, 1.0, &mut y],
        "error[ATL612]: dim `N` of `scale` is 2147483648 on axis 0 of `x`; one dim may have at most 2147483647 elements"
    );
}

#[test]
fn a_tensor_of_more_elements_than_an_i32_counts_binds() {
    let one = zeros(&[1, 1]);
    let big = one.expand([1 << 16, 1 << 16]).unwrap();
    let narrow = one.expand([1 << 16, 1]).unwrap();
    let mut c = zeros(&[1 << 16, 1]);
    assert!(GEMM.bind(&Device::cpu(), args!(big, narrow, &mut c)).is_ok());
}

#[test]
fn a_dim_that_no_tensor_has() {
    use atlas_dsl::def::DimDef;
    use atlas_dsl::{Diagnostics, KernelDef};
    static LOST: KernelDef = KernelDef {
        name: "lost",
        doc: "",
        file: "",
        types: &[],
        dims: &[DimDef { name: "Q", whole: false }],
        params: &[],
        tune: &[],
        grid: &[],
        requires: &[],
        build: &|_, _| Err(Diagnostics::default()),
        refused: None,
    };
    let none: [Arg<'_>; 0] = [];
    let error = LOST.launch(&Device::cpu(), none).unwrap_err();
    assert_eq!(
        error.to_string(),
        "error[ATL613]: dim `Q` of `lost` stands in no tensor parameter, so no argument gives its size"
    );
}

#[test]
fn arguments_convert_and_borrow() {
    let (x, mut y, mut z) = (zeros(&[1]), zeros(&[1]), zeros(&[1]));
    let (by_reference, by_mutable, eps) = (&x, &mut z, 0.5_f32);
    let list = args!(x, &x, by_reference, &mut y, by_mutable, 1e-6, eps, -3, 4_i64,);
    let kinds: Vec<String> = list
        .iter()
        .map(|a| match a {
            Arg::In(_) => "in".to_owned(),
            Arg::Out(_) => "out".to_owned(),
            Arg::Lent(_) => "lent".to_owned(),
            number => format!("{number:?}"),
        })
        .collect();
    assert_eq!(kinds, ["in", "in", "in", "out", "lent", "F64(1e-6)", "F32(0.5)", "I32(-3)", "I64(4)"]);
}

/// A user's macro that passes its arguments on.
macro_rules! launch {
    ($kernel:expr, $($arg:expr),*) => { $kernel.launch(&Device::cpu(), args!($($arg),*)) };
}

#[test]
fn arguments_come_through_a_macro() {
    let cpu = Device::cpu();
    let (x, mut y) = (cpu.tensor_from(&[1.0_f32; 32], [4, 8]).unwrap(), zeros(&[4, 8]));
    launch!(SCALE, x, &x, 2.0, &mut y).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [3.0; 32]);
    launch!(SCALE, x.slice(0, 0..4).unwrap(), x, 1.0 + 2.0, &mut y.slice(0, 0..4).unwrap()).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [4.0; 32]);
    let text = launch!(SCALE, x, x, 2.0, y).unwrap_err().to_string();
    assert!(text.contains("ATL608"), "{text}");
    let want = "error[ATL609]: `y` and `x` of `scale` share memory, and `y` is written; pass a tensor of its own";
    assert_eq!(launch!(SCALE, y, x, 2.0, &mut y.clone()).unwrap_err().to_string(), want);
}

/// A tensor behind `&mut` may be written, and may be read as several arguments.
#[test]
fn a_variable_that_is_a_mutable_borrow_is_named_alone() {
    let cpu = Device::cpu();
    let (mut x, mut y) = (cpu.tensor_from(&[1.0_f32; 32], [4, 8]).unwrap(), zeros(&[4, 8]));
    let (from, into) = (&mut x, &mut y);
    SCALE.launch(&cpu, args!(from, from, 2.0, into)).unwrap();
    assert_eq!(into.to_vec::<f32>().unwrap(), [3.0; 32]);
    // Prepared with one form, launched with the other.
    let prepared = SCALE.prepare(&cpu, args!(from, from, 2.0, into)).unwrap();
    prepared.launch(args!(from, from, 4.0, &mut *into)).unwrap();
    assert_eq!(into.to_vec::<f32>().unwrap(), [5.0; 32]);
    refused!(
        SCALE,
        [from, into, 2.0, into],
        "error[ATL609]: `y` and `r` of `scale` share memory, and `y` is written; pass a tensor of its own"
    );
}
