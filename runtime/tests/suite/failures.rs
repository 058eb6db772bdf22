//! Kernels that cannot be built, and one that reads outside its table.

use crate::kernels::SCALE;
use atlas_dsl::builder::Index;
use atlas_dsl::config::Setting::Number;
use atlas_dsl::def::{DTypeRef, DimDef, ParamDef, TuneDef};
use atlas_dsl::ir::{Access, Loc};
use atlas_dsl::{Builder, Config, DType, Diagnostics, KernelDef};
use atlas_runtime::{Device, Launch, RuntimeError, Tensor, args};

const AT: Loc = Loc { line: 0, column: 0 };
const N: &[DimDef] = &[DimDef { name: "N", whole: false }];
const Y: &[ParamDef] =
    &[ParamDef::Tensor { name: "y", dtype: DTypeRef::Fixed(DType::F32), dims: &[0], access: Access::Out }];

/// Builds nothing and gives no reason, which no kernel of the macro does.
static SILENT: KernelDef = KernelDef {
    name: "silent",
    doc: "",
    file: "",
    types: &[],
    dims: N,
    params: Y,
    tune: &[],
    grid: &[],
    requires: &[],
    build: &|_, _| Err(Diagnostics::default()),
    refused: None,
};

/// Reads element `N` of a table of two numbers.
static PICK: KernelDef = KernelDef {
    name: "pick",
    doc: "",
    file: "",
    types: &[],
    dims: N,
    params: Y,
    tune: &[],
    grid: &[],
    requires: &[],
    build: &|spec, config| {
        let mut b = Builder::new(&PICK, spec, config);
        let n = b.grid_tiles(b.dim(0), 4);
        let at = b.dim_size(AT, b.dim(0));
        let x = b.table_get(AT, "PAIR", &[2], &[1.0, 2.0], &[at]);
        let x = b.broadcast(AT, x, &[4]);
        b.store(AT, b.param(0), &[Index::At(n)], x);
        b.finish()
    },
    refused: None,
};

fn zeros(n: usize) -> Tensor {
    Tensor::zeros(&Device::cpu(), DType::F32, [n]).unwrap()
}

#[test]
fn a_kernel_that_cannot_be_built_has_the_code_of_its_first_mistake() {
    let cpu = Device::cpu();
    let (x, mut y) =
        (Tensor::zeros(&cpu, DType::F32, [4, 8]).unwrap(), Tensor::zeros(&cpu, DType::F32, [4, 8]).unwrap());
    let zero = Config::default().with("BN", 0);
    let error = SCALE.launch_with(&cpu, &zero, args!(x, x, 1.0, &mut y)).unwrap_err();
    assert_eq!(error.code().to_string(), "ATL301");
    let error = SILENT.launch_with(&cpu, &Config::default(), args!(&mut zeros(4))).unwrap_err();
    assert_eq!(error.code().to_string(), "ATL600");
    assert!(matches!(error, RuntimeError::Kernel { ref kernel, .. } if kernel == "silent"), "{error}");
}

#[test]
fn a_problem_that_no_config_can_run_says_why() {
    let error = SILENT.launch(&Device::cpu(), args!(&mut zeros(4))).unwrap_err().to_string();
    let want = "error[ATL641]: `silent`: this problem cannot run here, whatever the config";
    assert!(error.starts_with(want), "{error}");
}

#[test]
fn outside_a_table_stands_zero() {
    for (n, want) in [(1, 2.0), (4, 0.0)] {
        let mut y = zeros(n);
        PICK.launch(&Device::cpu(), args!(&mut y)).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), vec![want; n]);
    }
}

#[test]
fn a_kernel_that_the_cpu_cannot_run_is_named() {
    let error = RuntimeError::Cpu { kernel: "pick".into(), message: "an index is f32, not a scalar i32".into() };
    let want = "error[ATL626]: `pick` on the CPU: an index is f32, not a scalar i32";
    assert_eq!(error.to_string(), want);
}

const MANY: [atlas_dsl::config::Setting; 65] = {
    let mut values = [Number(0); 65];
    let mut i = 0;
    while i < values.len() {
        values[i] = Number(i as u32 + 1);
        i += 1;
    }
    values
};

/// Two fused kernels may look like this: each knob alone is legal.
static WIDE: KernelDef = KernelDef {
    name: "wide",
    doc: "",
    file: "",
    types: &[],
    dims: N,
    params: Y,
    tune: &[TuneDef { name: "A", values: &MANY }, TuneDef { name: "B", values: &MANY }],
    grid: &[],
    requires: &[],
    build: &|_, _| panic!("nothing of it is built"),
    refused: None,
};

#[test]
fn a_tune_space_that_is_too_large_is_refused_before_anything_is_built() {
    let error = WIDE.launch(&Device::cpu(), args!(&mut zeros(4))).unwrap_err();
    assert_eq!(error.code().to_string(), "ATL023");
    let want = "`wide` has 4225 configs (65 of `A`, 65 of `B`), and a kernel may have 4096: leave out values";
    assert!(error.to_string().contains(want), "{error}");
    assert!(WIDE.configs().is_empty());
}
