//! Names in a caller's code that collide with names in emitted Rust, with primitives, or with each other: each kernel is still
//! the one that was written.
#![forbid(unsafe_code)]
#![deny(warnings)]

use atlas_dsl::op::Op;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, Kernel, KernelDef, Specialization, registry};
use atlas_macros::{atlas_kernel, fuse};

/// Items of a caller that hide items of Rust with the same names.
#[allow(non_camel_case_types, non_upper_case_globals, dead_code, reason = "they are here to be met by mistake")]
mod hiding {
    use atlas_macros::atlas_kernel;

    pub(crate) struct u32;
    pub(crate) struct i64;
    pub(crate) struct Some;
    pub(crate) struct None;
    pub(crate) struct Ok;
    pub(crate) struct Operand;
    pub(crate) struct Option;
    pub(crate) struct Result;
    pub(crate) const BN_: usize = 3;
    pub(crate) static n_0: usize = 4;
    pub(crate) static __b: usize = 5;
    pub(crate) const WIDE: usize = 2;

    atlas_kernel! {
        pub(crate) kernel hidden(x: &Tensor<f32, [N, M]>, a: f32, y: &mut Tensor<f32, [N, M]>)
        tune { BN: [16], order: [auto, groups(2)], warp_grid: [auto, 2x2] }
        require { N % 2 == 0 }
        {
            for (n, m) in grid(tiles(N, BN), tiles(M, BN)) {
                let mut b = load(x[n, m]);
                for i in 0..3 { b += i.cast::<f32>() * a + sum(zeros::<f32>([WIDE * BN])); }
                store(y[n, m], b);
            }
        }
    }
}

const BN_: f32 = 3.0;
const STEP: f32 = 7.0;

/// Kernels with the names that variables and functions in emitted Rust once had.
mod emitted {
    use atlas_macros::atlas_kernel;

    atlas_kernel! {
        pub(crate) kernel n_0(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
            for n in grid(tiles(N, 16)) { store(y[n], load(x[n]) * 2.0); }
        }
        pub(crate) kernel build(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
            for n in grid(tiles(N, 16)) { store(y[n], load(x[n]) * 3.0); }
        }
    }
}

atlas_kernel! {
    tile fn step_1(x) { x * STEP }
    tile fn build(x) { x * 5.0 }
    kernel called(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let step = load(x[n]);
            store(y[n], build(step_1(step)) * BN_);
        }
    }

    tile fn r#move(r#type, r#sum_of) { let r#type = r#type + 11.0; r#type * sum_of }
    kernel r#loop(r#x: &Tensor<f32, [N]>, r#in: f32, r#y: &mut Tensor<f32, [r#N]>)
    tune { r#BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let mut r#a = load(x[r#n]);
            for r#k in 0..2 { a = r#move(r#a, r#in) * k.cast::<f32>(); }
            store(r#y[n], r#exp(a));
        }
    }
}

fuse! {
    kernel r#chain = r#emitted::n_0(x = q, y = r#z) >> emitted::build(r#x = z);
}

fn built(def: &'static KernelDef) -> Kernel {
    let mut config = Config::default();
    config.tile.extend(def.tune.iter().map(|knob| (knob.name.to_owned(), 16)));
    let spec = def.dims.iter().fold(Specialization::default(), |s, d| s.with_dim(d.name, DimFact::Dynamic(1)));
    (def.build)(&spec, &config).unwrap_or_else(|e| panic!("{}: {e}", def.name))
}

fn numbers(def: &'static KernelDef) -> Vec<f64> {
    let number = |op: &Op| if let Op::Splat { value, .. } = op { Some(*value) } else { None };
    built(def).insts.values().filter_map(number).collect()
}

#[test]
fn emitted_names_meet_no_names_of_a_caller() {
    assert_eq!(numbers(&called), [7.0, 5.0, 3.0]);
    assert_eq!((numbers(&emitted::n_0), numbers(&emitted::build)), (vec![2.0], vec![3.0]));
    let hidden = built(&hiding::hidden);
    assert!(hidden.insts.values().any(|op| matches!(op, Op::Splat { shape, .. } if shape[..] == [32])));
}

#[test]
fn a_raw_name_is_the_same_name() {
    assert_eq!(r#loop.name, "loop");
    let names: Vec<&str> = r#loop.params.iter().map(|p| p.name()).collect();
    assert_eq!((names, r#loop.dims.len()), (vec!["x", "in", "y"], 1));
    assert!(numbers(&r#loop).contains(&11.0));
    let registered: Vec<&str> = registry().iter().map(|k| k.name).collect();
    for name in ["loop", "chain", "n_0", "build", "called", "hidden"] {
        assert!(registered.contains(&name), "{registered:?}");
    }
}
