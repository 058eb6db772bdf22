//! Mistakes that only code which calls the builder can make: facts that do not fit the signature.

use atlas_dsl::def::{DTypeRef, DimDef, ParamDef, TypeParamDef};
use atlas_dsl::ir::Access;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Builder, Config, DType, Diagnostics, KernelDef, Specialization};

static ROWS: KernelDef = KernelDef {
    name: "rows",
    doc: "",
    file: "",
    types: &[TypeParamDef { name: "T", allowed: &[DType::F32, DType::Bf16] }],
    dims: &[DimDef { name: "N", whole: false }, DimDef { name: "D", whole: true }],
    params: &[ParamDef::Tensor { name: "x", dtype: DTypeRef::Generic(0), dims: &[0, 1], access: Access::In }],
    tune: &[],
    build: |_, _| Err(Diagnostics::default()),
};

/// The codes and messages of a kernel begun for these facts.
fn begun(spec: &Specialization) -> Vec<String> {
    let errors = Builder::new(&ROWS, spec, &Config::default()).finish().err().unwrap_or_default();
    errors.0.iter().map(|d| d.to_string()).collect()
}

fn spec(dtype: DType, d: DimFact) -> Specialization {
    Specialization::default().with_type("T", dtype).with_dim("D", d)
}

#[test]
fn facts_that_fit() {
    assert_eq!(begun(&spec(DType::Bf16, DimFact::Const(64))), [""; 0]);
}

#[test]
fn a_type_outside_the_bound() {
    let want = "error[ATL115]: type parameter `T` of `rows` cannot be i32";
    assert_eq!(begun(&spec(DType::I32, DimFact::Const(64))), [want]);
}

#[test]
fn a_dim_used_whole_that_is_no_constant() {
    let want = "error[ATL114]: dim `D` of `rows` is used whole, so it must be a constant";
    assert_eq!(begun(&spec(DType::F32, DimFact::Dynamic(8))), [want]);
}
