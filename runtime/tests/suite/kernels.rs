//! Kernels for the tests, in the form that `atlas_kernel!` generates.

use atlas_dsl::builder::Index;
use atlas_dsl::config::Setting::Number;
use atlas_dsl::def::{DTypeRef, DimDef, ParamDef, TuneDef, TypeParamDef};
use atlas_dsl::ir::{Access, Loc};
use atlas_dsl::op::{BinaryOp, LoopKind, Precision, ReduceOp};
use atlas_dsl::{Builder, Config, DType, Diagnostics, Kernel, KernelDef, Operand, Specialization};

const FLOAT: &[DType] = &[DType::F32, DType::F16, DType::Bf16];
const T: DTypeRef = DTypeRef::Generic(0);
const TYPES: &[TypeParamDef] = &[TypeParamDef { name: "T", allowed: FLOAT }];
const AT: Loc = Loc { line: 0, column: 0 };

const fn tensor(name: &'static str, dims: &'static [usize], access: Access) -> ParamDef {
    ParamDef::Tensor { name, dtype: T, dims, access }
}

const fn dim(name: &'static str, whole: bool) -> DimDef {
    DimDef { name, whole }
}

/// `y = a * x + r`, element-wise: `scale<T: Float>(x: &[N, D], r: &[N, D], a: f32, y: &mut [N, D])`.
pub(crate) static SCALE: KernelDef = KernelDef {
    name: "scale",
    doc: "y = a * x + r",
    file: file!(),
    types: TYPES,
    dims: &[dim("N", false), dim("D", true)],
    params: &[
        tensor("x", &[0, 1], Access::In),
        tensor("r", &[0, 1], Access::In),
        ParamDef::Scalar { name: "a", dtype: DTypeRef::Fixed(DType::F32) },
        tensor("y", &[0, 1], Access::Out),
    ],
    tune: &[
        TuneDef { name: "BN", values: &[Number(16), Number(64)] },
        TuneDef { name: "warps", values: &[Number(4), Number(8)] },
    ],
    grid: &[],
    requires: &[],
    build: &build_scale,
    refused: None,
};

/// [`SCALE`] with knobs that have no effect on it.
pub(crate) static SCALE_IDLE: KernelDef = KernelDef {
    name: "scale",
    doc: "",
    file: file!(),
    types: SCALE.types,
    dims: SCALE.dims,
    params: SCALE.params,
    tune: &[
        TuneDef { name: "BN", values: &[Number(16), Number(64)] },
        TuneDef { name: "IDLE", values: &[Number(1), Number(2)] },
        TuneDef { name: "stages", values: &[Number(0), Number(2), Number(3)] },
        TuneDef { name: "warps", values: &[Number(4), Number(8)] },
    ],
    grid: &[],
    requires: &[],
    build: &build_scale,
    refused: None,
};

fn build_scale(spec: &Specialization, config: &Config) -> Result<Kernel, Diagnostics> {
    let mut b = Builder::new(&SCALE, spec, config);
    let size = b.tune(AT, "BN");
    let n = b.grid_tiles(b.dim(0), size);
    let index = [Index::At(n), Index::Whole];
    let x = b.load(AT, b.param(0), &index);
    let r = b.load(AT, b.param(1), &index);
    let a = b.scalar(AT, b.param(2));
    let (x, r) = (b.cast(AT, DType::F32, x), b.cast(AT, DType::F32, r));
    let ax = b.binary(AT, BinaryOp::Mul, x, a);
    let y = b.binary(AT, BinaryOp::Add, ax, r);
    let dtype = b.dtype(T);
    let y = b.cast(AT, dtype, y);
    b.store(AT, b.param(3), &index, y);
    b.finish()
}

/// `c = a · b`: `gemm<T: Float>(a: &[M, K], b: &[K, N], c: &mut [M, N])`.
pub(crate) static GEMM: KernelDef = KernelDef {
    name: "gemm",
    doc: "c = a · b",
    file: file!(),
    types: TYPES,
    dims: &[dim("M", false), dim("K", false), dim("N", false)],
    params: &[tensor("a", &[0, 1], Access::In), tensor("b", &[1, 2], Access::In), tensor("c", &[0, 2], Access::Out)],
    tune: &[
        TuneDef { name: "BM", values: &[Number(32), Number(128), Number(0), Number(1024)] },
        TuneDef { name: "BK", values: &[Number(32), Number(64)] },
        TuneDef { name: "stages", values: &[Number(2), Number(3), Number(4)] },
        TuneDef { name: "warps", values: &[Number(4), Number(8)] },
    ],
    grid: &[],
    requires: &[],
    build: &build_gemm,
    refused: None,
};

/// Another kernel with the name, the signature and the tune space of [`GEMM`].
pub(crate) static GEMM_OTHER: KernelDef = KernelDef {
    name: "gemm",
    doc: "",
    file: file!(),
    types: TYPES,
    dims: GEMM.dims,
    params: GEMM.params,
    tune: GEMM.tune,
    grid: &[],
    requires: &[],
    build: &|_, _| Err(Diagnostics::default()),
    refused: None,
};

fn build_gemm(spec: &Specialization, config: &Config) -> Result<Kernel, Diagnostics> {
    let mut b = Builder::new(&GEMM, spec, config);
    let (bm, bk) = (b.tune(AT, "BM"), b.tune(AT, "BK"));
    let (m, n) = (b.grid_tiles(b.dim(0), bm), b.grid_tiles(b.dim(2), bm));
    let zero = b.zeros(AT, DType::F32, &[bm, bm]);
    let (lo, hi) = (Operand::Literal(0.0), b.tiles(AT, b.dim(1), bk));
    let sums = b.for_loop(AT, LoopKind::Pipeline, lo, hi, Some(bk), &[zero], |b, k, carried| {
        let x = b.load(AT, b.param(0), &[Index::At(m), Index::At(k)]);
        let y = b.load(AT, b.param(1), &[Index::At(k), Index::At(n)]);
        vec![b.dot_acc(AT, carried[0], x, y, Precision::Default)]
    });
    let dtype = b.dtype(T);
    let c = b.cast(AT, dtype, sums[0]);
    b.store(AT, b.param(2), &[Index::At(m), Index::At(n)], c);
    b.finish()
}

/// The sum of each row, and twice the tensor: `sums(x: &[N, D], s: &mut [N], y: &mut [N, D])`, f32.
pub(crate) static SUMS: KernelDef = KernelDef {
    name: "sums",
    doc: "s = sum(x, 1); y = 2 x",
    file: file!(),
    types: &[],
    dims: &[dim("N", false), dim("D", true)],
    params: &[
        ParamDef::Tensor { name: "x", dtype: DTypeRef::Fixed(DType::F32), dims: &[0, 1], access: Access::In },
        ParamDef::Tensor { name: "s", dtype: DTypeRef::Fixed(DType::F32), dims: &[0], access: Access::Out },
        ParamDef::Tensor { name: "y", dtype: DTypeRef::Fixed(DType::F32), dims: &[0, 1], access: Access::Out },
    ],
    tune: &[TuneDef { name: "BN", values: &[Number(8)] }],
    grid: &[],
    requires: &[],
    build: &build_sums,
    refused: None,
};

fn build_sums(spec: &Specialization, config: &Config) -> Result<Kernel, Diagnostics> {
    let mut b = Builder::new(&SUMS, spec, config);
    let size = b.tune(AT, "BN");
    let n = b.grid_tiles(b.dim(0), size);
    let x = b.load(AT, b.param(0), &[Index::At(n), Index::Whole]);
    let s = b.reduce(AT, ReduceOp::Sum, x, 1);
    let s = b.reshape(AT, s, &[Some(0)]);
    b.store(AT, b.param(1), &[Index::At(n)], s);
    let y = b.binary(AT, BinaryOp::Add, x, x);
    b.store(AT, b.param(2), &[Index::At(n), Index::Whole], y);
    b.finish()
}

/// Adds a whole number in place: `bump(x: &mut [N] i32, by: i32)`.
pub(crate) static BUMP: KernelDef = KernelDef {
    name: "bump",
    doc: "x += by",
    file: file!(),
    types: &[],
    dims: &[dim("N", false)],
    params: &[
        ParamDef::Tensor { name: "x", dtype: DTypeRef::Fixed(DType::I32), dims: &[0], access: Access::Out },
        ParamDef::Scalar { name: "by", dtype: DTypeRef::Fixed(DType::I32) },
    ],
    tune: &[],
    grid: &[],
    requires: &[],
    build: &build_bump,
    refused: None,
};

fn build_bump(spec: &Specialization, config: &Config) -> Result<Kernel, Diagnostics> {
    let mut b = Builder::new(&BUMP, spec, config);
    let n = b.grid_tiles(b.dim(0), 4);
    let x = b.load(AT, b.param(0), &[Index::At(n)]);
    let by = b.scalar(AT, b.param(1));
    let y = b.binary(AT, BinaryOp::Add, x, by);
    b.store(AT, b.param(0), &[Index::At(n)], y);
    b.finish()
}

/// Twice the row whose index is a number: `row_of(x: &[M, D], row: i32, y: &mut [N, D])`, f32.
pub(crate) static ROW_OF: KernelDef = KernelDef {
    name: "row_of",
    doc: "y = 2 x[row]",
    file: file!(),
    types: &[],
    dims: &[dim("M", false), dim("D", true), dim("N", false)],
    params: &[
        ParamDef::Tensor { name: "x", dtype: DTypeRef::Fixed(DType::F32), dims: &[0, 1], access: Access::In },
        ParamDef::Scalar { name: "row", dtype: DTypeRef::Fixed(DType::I32) },
        ParamDef::Tensor { name: "y", dtype: DTypeRef::Fixed(DType::F32), dims: &[2, 1], access: Access::Out },
    ],
    tune: &[],
    grid: &[],
    requires: &[],
    build: &build_row_of,
    refused: None,
};

fn build_row_of(spec: &Specialization, config: &Config) -> Result<Kernel, Diagnostics> {
    let mut b = Builder::new(&ROW_OF, spec, config);
    let n = b.grid_points(b.dim(2));
    let row = b.scalar(AT, b.param(1));
    let x = b.load(AT, b.param(0), &[Index::At(row), Index::Whole]);
    let y = b.binary(AT, BinaryOp::Add, x, x);
    b.store(AT, b.param(2), &[Index::At(n), Index::Whole], y);
    b.finish()
}
