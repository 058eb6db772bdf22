//! Which operands of a kernel have to be packed, and how.
//!
//! An operand is packed if warpgroups could make its product, and it is a tensor that the kernel only reads, and
//! - the product splits its numbers, or
//! - the copy engine does not take the tensor's strides or address, or
//! - the instruction wants it to run along K, and it does not.

use crate::analysis::placement_root as root;
use crate::arch::{Capability, Target};
use crate::gpu::atom::MmaAtom;
use crate::layout::tensor_map::takes_strides;
use atlas_dsl::ir::{ParamKind, Stride};
use atlas_dsl::op::{Precision, Slice};
use atlas_dsl::{DType, Inst, Kernel, Op, Param, Value};

/// How an operand is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its elements are copied.
    Copied(DType),
    /// Its numbers are split into two of bf16.
    Bf16Pair,
    /// Its numbers are split into two of tf32.
    Tf32Pair,
}

/// A workspace of a packed operand: its element type, and what its name ends in.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkspacePart {
    pub(super) dtype: DType,
    pub(super) suffix: &'static str,
}

impl Kind {
    /// The workspaces: of a pair, the larger part first.
    pub(super) fn parts(self) -> Vec<WorkspacePart> {
        let pair = |dtype| vec![WorkspacePart { dtype, suffix: "high" }, WorkspacePart { dtype, suffix: "low" }];
        match self {
            Kind::Copied(dtype) => vec![WorkspacePart { dtype, suffix: "packed" }],
            Kind::Bf16Pair => pair(DType::Bf16),
            Kind::Tf32Pair => pair(DType::F32),
        }
    }

    /// The kind of a product's operands that splits them.
    pub(super) fn splitting(precision: Precision) -> Option<Kind> {
        match precision {
            Precision::Bf16x3 => Some(Kind::Bf16Pair),
            Precision::Tf32x3 => Some(Kind::Tf32Pair),
            Precision::Default | Precision::Tf32 => None,
        }
    }

    /// The element type and the precision of the products of what is packed.
    pub(super) fn product(self, precision: Precision) -> (DType, Precision) {
        match self {
            Kind::Copied(dtype) => (dtype, precision),
            Kind::Bf16Pair => (DType::Bf16, Precision::Default),
            Kind::Tf32Pair => (DType::F32, Precision::Tf32),
        }
    }
}

/// A tensor to be packed, and its loads that read the workspace.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) of: Param,
    pub(super) kind: Kind,
    pub(super) innermost: u8,
    /// The other axis that the first load has a tile along.
    pub(super) across: u8,
    pub(super) loads: Vec<Inst>,
}

/// What has to be packed for a target. A load occurs once.
pub(super) fn wanted(kernel: &Kernel, target: Target) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    if !target.has(Capability::Tma) {
        return wanted;
    }
    for op in kernel.insts.values() {
        let Op::Dot { a, b, precision, .. } = *op else { continue };
        let operands = [operand(kernel, a, true), operand(kernel, b, false)];
        // Another product may need a tile otherwise. Numbers are split in both operands or in none.
        let is_free = |found: &LoadedOperand, kind: Kind, innermost: u8| {
            let claimed = wanted.iter().find(|w| w.loads.contains(&found.load));
            claimed.is_none_or(|w| (w.kind, w.innermost) == (kind, innermost))
        };
        let splits = |found: &Option<LoadedOperand>, kind: Kind| {
            let packing = found.as_ref().and_then(|f| Some((f, f.packing(kernel, Some(kind), precision, target)?)));
            packing.is_some_and(|(f, (kind, innermost))| is_free(f, kind, innermost))
        };
        let split = Kind::splitting(precision).filter(|&kind| operands.iter().all(|found| splits(found, kind)));
        for found in operands.into_iter().flatten() {
            let Some((kind, innermost)) = found.packing(kernel, split, precision, target) else { continue };
            if wanted.iter().any(|w| w.loads.contains(&found.load)) {
                continue;
            }
            let across = found.axes.into_iter().find(|&axis| axis != innermost).unwrap_or(innermost);
            let same = |w: &&mut Wanted| (w.of, w.kind, w.innermost) == (found.param, kind, innermost);
            match wanted.iter_mut().find(same) {
                Some(w) => w.loads.push(found.load),
                None => wanted.push(Wanted { of: found.param, kind, innermost, across, loads: vec![found.load] }),
            }
        }
    }
    wanted
}

/// An operand of a product that is loaded from a tensor which the kernel only reads.
struct LoadedOperand {
    load: Inst,
    param: Param,
    dtype: DType,
    /// The axes of the tensor that the tile has.
    axes: [u8; 2],
    /// The one along which the product adds.
    along_k: u8,
}

/// A product's operand, if it is a loaded tile of two axes.
fn operand(kernel: &Kernel, v: Value, is_left: bool) -> Option<LoadedOperand> {
    let (root, turned) = root(kernel, v);
    let (load, op) = kernel.def_op(root)?;
    let Op::Load { param, ref slices } = *op else { return None };
    if op.gathers() {
        return None;
    }
    let kept = |(axis, slice): (usize, &Slice)| (!matches!(slice, Slice::At(_))).then_some(axis);
    let axes: Vec<usize> = slices.iter().enumerate().filter_map(kept).collect();
    let [rows, columns] = *axes else { return None };
    let along_k = if is_left != turned { columns } else { rows };
    let ty = kernel.ty(root);
    let is_read_only = kernel.params[param].kind.is_read_only();
    let axes = [u8::try_from(rows).ok()?, u8::try_from(columns).ok()?];
    let along_k = u8::try_from(along_k).ok()?;
    is_read_only.then_some(LoadedOperand { load, param, dtype: ty.dtype, axes, along_k })
}

impl LoadedOperand {
    /// How it is packed, and along which axis the workspace is contiguous. `split` is how the product splits numbers, if it does.
    fn packing(
        &self,
        kernel: &Kernel,
        split: Option<Kind>,
        precision: Precision,
        target: Target,
    ) -> Option<(Kind, u8)> {
        let kind = split.unwrap_or(Kind::Copied(self.dtype));
        let (dtype, precision) = kind.product(precision);
        let atom = MmaAtom::select_asynchronous(dtype, precision, target)?;
        let ParamKind::Tensor { strides, align, .. } = &kernel.params[self.param].kind else { return None };
        let contiguous = strides.iter().position(|&s| s == Stride::Const(1)).and_then(|axis| u8::try_from(axis).ok());
        let last = u8::try_from(strides.len().checked_sub(1)?).ok()?;
        let innermost = if atom.reads_along_k_alone() { self.along_k } else { contiguous.unwrap_or(last) };
        let is_taken = contiguous == Some(innermost) && takes_all(strides, innermost, *align, self.dtype.bytes());
        (split.is_some() || !is_taken).then_some((kind, innermost))
    }
}

/// True if the copy engine takes a tensor whose axes are put in the order of memory.
fn takes_all(strides: &[Stride], innermost: u8, align: u32, bytes: u32) -> bool {
    let mut ordered = strides.to_vec();
    let last = ordered.remove(usize::from(innermost));
    ordered.push(last);
    takes_strides(&ordered, align, bytes)
}
