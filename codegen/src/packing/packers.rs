//! The kernels that fill workspaces: each program copies, or splits, a tile of two axes.

use super::Workspace;
use super::wanted::{Kind, Wanted};
use atlas_dsl::ir::{Access, GridExtent, Loc, ParamKind, Stride};
use atlas_dsl::op::{BinaryOp, Predicate, Slice, UnaryOp, Update};
use atlas_dsl::{DType, Kernel, Op, Param, TileType, Value};

/// Elements of a tile, along memory and across, where tensor and workspace are contiguous along the same axis.
const ALIKE: [u32; 2] = [256, 16];
/// The same where they are not.
const TURNED: [u32; 2] = [64, 64];

/// The kernel that fills the workspaces of one operand.
pub(super) fn packer(signature: &Kernel, wanted: &Wanted, workspaces: &[Workspace]) -> Kernel {
    let mut k = Kernel::new(format!("{}_pack_{}", signature.name, signature.params[wanted.of].name));
    k.dims = signature.dims.clone();
    k.params = signature.params.clone();
    let written: Vec<Param> = workspaces.iter().map(|w| w.param).collect();
    for (param, data) in k.params.iter_mut() {
        if let ParamKind::Tensor { access, .. } = &mut data.kind {
            *access = if written.contains(&param) { Access::Out } else { Access::In };
        }
    }
    let ParamKind::Tensor { dtype, dims, strides, .. } = &signature.params[wanted.of].kind else { return k };
    let innermost = usize::from(wanted.innermost);
    let contiguous = strides.iter().position(|&s| s == Stride::Const(1)).unwrap_or(innermost);
    let (across, [along_size, across_size]) = match contiguous == innermost {
        true => (usize::from(wanted.across), ALIKE),
        false => (contiguous, TURNED),
    };
    let tile = |axis: usize| match axis {
        _ if axis == innermost => Some(along_size),
        _ if axis == across => Some(across_size),
        _ => None,
    };
    // The grid runs along the workspace.
    let mut slices = vec![None; dims.len()];
    let order = (0..dims.len()).filter(|&axis| axis != innermost).chain([innermost]);
    for axis in order {
        let dim = dims[axis];
        slices[axis] = Some(match tile(axis) {
            Some(size) => Slice::Tile { index: k.push_grid_axis(GridExtent::Tiles { dim, size }), size },
            None => Slice::At(k.push_grid_axis(GridExtent::Points(dim))),
        });
    }
    let slices: Vec<Slice> = slices.into_iter().flatten().collect();
    let shape: Vec<u32> = (0..dims.len()).filter_map(tile).collect();
    let mut body = PackerBody { k, shape };
    let x = body.push(Op::Load { param: wanted.of, slices: slices.clone() }, *dtype);
    let parts = match wanted.kind {
        Kind::Copied(_) => vec![x],
        Kind::Bf16Pair => body.bf16_pair(x),
        Kind::Tf32Pair => body.tf32_pair(x),
    };
    for (w, value) in workspaces.iter().zip(parts) {
        let store = Op::Store { param: w.param, slices: slices.clone(), value, update: Update::Replace };
        let block = body.k.body;
        body.k.push_inst(block, store, &[], Loc::default());
    }
    body.k
}

/// The body of a packer, whose tiles have one shape.
struct PackerBody {
    k: Kernel,
    shape: Vec<u32>,
}

impl PackerBody {
    fn push(&mut self, op: Op, dtype: DType) -> Value {
        let (block, ty) = (self.k.body, TileType::new(dtype, self.shape.clone()));
        let inst = self.k.push_inst(block, op, &[ty], Loc::default());
        self.k.results[inst][0]
    }

    fn number(&mut self, value: f64) -> Value {
        let shape = self.shape.clone();
        self.push(Op::Splat { value, dtype: DType::F32, shape }, DType::F32)
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        self.push(Op::Binary(op, a, b), DType::F32)
    }

    /// `on_true` where |x| is below a number, which no infinity and no NaN is.
    fn where_below(&mut self, x: Value, most: f64, on_true: Value, on_false: Value) -> Value {
        let size = self.push(Op::Unary(UnaryOp::Abs, x), DType::F32);
        let most = self.number(most);
        let cond = self.push(Op::Compare(Predicate::Lt, size, most), DType::Bool);
        self.push(Op::Select { cond, on_true, on_false }, DType::F32)
    }

    /// What is left of a number when a part of it is taken away: nothing of an infinity and of a NaN.
    fn rest(&mut self, x: Value, part: Value) -> Value {
        let (rest, none) = (self.binary(BinaryOp::Sub, x, part), self.number(0.0));
        self.where_below(part, f64::INFINITY, rest, none)
    }

    /// x to nearest in bf16, and the rest in bf16.
    fn bf16_pair(&mut self, x: Value) -> Vec<Value> {
        let high = self.push(Op::Cast(DType::Bf16, x), DType::Bf16);
        let wide = self.push(Op::Cast(DType::F32, high), DType::F32);
        let rest = self.rest(x, wide);
        vec![high, self.push(Op::Cast(DType::Bf16, rest), DType::Bf16)]
    }

    /// x to nearest with the 11 bits of tf32, and the rest, of which the product takes 11 bits.
    ///
    /// With t = (2^13 + 1) x, t - (t - x) has the 11 leading bits of x (Dekker, "A floating-point technique for extending the
    /// available precision", 1971). Large numbers are scaled down for it, so that t is finite.
    fn tf32_pair(&mut self, x: Value) -> Vec<Value> {
        const LARGE: i32 = 100;
        let small = self.leading_bits(x);
        let (down, up) = (self.number(2_f64.powi(-LARGE)), self.number(2_f64.powi(LARGE)));
        let scaled = self.binary(BinaryOp::Mul, x, down);
        let large = self.leading_bits(scaled);
        let large = self.binary(BinaryOp::Mul, large, up);
        let high = self.where_below(x, 2_f64.powi(LARGE), small, large);
        let high = self.where_below(x, f64::INFINITY, high, x);
        let rest = self.rest(x, high);
        vec![high, rest]
    }

    fn leading_bits(&mut self, x: Value) -> Value {
        let factor = self.number(8193.0);
        let t = self.binary(BinaryOp::Mul, x, factor);
        let u = self.binary(BinaryOp::Sub, t, x);
        self.binary(BinaryOp::Sub, t, u)
    }
}
