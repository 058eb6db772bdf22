//! Packed operands: kernels that copy a product's operands to workspaces, and the kernel whose products read them there.
//!
//! The copy engine takes tensors of aligned rows only, `wgmma` reads 32-bit operands that run along K only, and multiplies no
//! split numbers. Where a product is large, it pays to copy such an operand once, by a kernel of its own (a *packer*), to a
//! *workspace* with aligned rows, of the axis order or the narrow numbers that the instructions take. BLAS libraries call this
//! packing. All kernels of a packed launch have one signature: that of the kernel, then the workspaces.
//!
//! # Promise
//! The packers, and then the kernel, store what the kernel that was given stores: the same elements where an operand is copied,
//! and within the stated error of the precision where its numbers are split.
//!
//! # Argument
//! A packer copies each element of a tensor that the kernel only reads, so a load of a workspace reads what the same load of the
//! tensor read, zeros past its ends included. A product of split numbers is the sum of three products of narrow ones, which is
//! how the same precision is defined (docs/decisions/0034).
//!
//! # Breaks it
//! Ragged tensors, flipped and transposed views, numbers without a rest: tests/agreement/packed.rs.
//!
//! | file | holds |
//! |---|---|
//! | `wanted` | which operands of a kernel have to be packed, and how |
//! | `packers` | the kernels that fill workspaces |
//! | `products` | the kernel whose products read workspaces |

mod packers;
mod products;
mod wanted;

use crate::arch::Target;
use crate::error::CompileError;
use crate::notes::Note;
use atlas_dsl::ir::{Access, Loc, ParamData, ParamKind, Stride};
use atlas_dsl::{DType, Kernel, Param, Schedule, Verified, verify};
use wanted::Wanted;

/// Rows of a workspace begin at a multiple of this many bytes: a line of L2.
const ROW_BYTES: u64 = 128;
/// What the kernels know of their alignment, in bytes: as much as the copy engine asks for.
const KNOWN_ALIGN: u32 = 16;

/// The kernels of a launch: one, or with packed operands several.
#[derive(Clone, Debug)]
pub struct LaunchKernels {
    /// The kernel, which reads the workspaces.
    pub kernel: Verified<Kernel>,
    /// The kernels that fill the workspaces. They run before it, in any order. None if no operand is packed.
    pub packers: Vec<Verified<Kernel>>,
    /// The workspaces, in the order of the signature that all of these kernels have.
    pub workspaces: Vec<Workspace>,
}

/// A packed copy of an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Its number in the signature.
    pub param: Param,
    /// The tensor that it is a copy of. It has the same sizes.
    pub of: Param,
    /// Its element type.
    pub dtype: DType,
    /// The axis along which its elements are contiguous. The others are in the tensor's order.
    pub innermost: u8,
    /// True for one of two workspaces of split numbers.
    pub is_part: bool,
}

impl LaunchKernels {
    /// A note for each workspace, as the passes make them.
    pub fn notes(&self) -> Vec<Note> {
        let name = |p: Param| &self.kernel.params[p].name;
        let because = |w: &Workspace| match w.dtype {
            DType::Bf16 if w.is_part => "its products take numbers split into two of bf16",
            DType::F32 if w.is_part => "its products take numbers split into two of tf32",
            _ => "its rows in memory are not those that the copy engine or wgmma takes",
        };
        let note = |w: &Workspace| Note {
            pass: "packing",
            subject: format!("pack {}", name(w.of)),
            loc: Loc::default(),
            decision: format!("in {}, {} contiguous along axis {}", name(w.param), w.dtype, w.innermost),
            because: because(w).to_owned(),
        };
        self.workspaces.iter().map(note).collect()
    }
}

impl Workspace {
    /// Its strides in elements, for the sizes of the tensor.
    pub fn strides(&self, sizes: &[u64]) -> Vec<i64> {
        let mut strides = vec![1; sizes.len()];
        let row_elements = ROW_BYTES / u64::from(self.dtype.bytes());
        let innermost = usize::from(self.innermost);
        let row = sizes.get(innermost).map_or(1, |n| n.next_multiple_of(row_elements));
        let mut next = i64::try_from(row.max(row_elements)).unwrap_or(i64::MAX);
        for axis in (0..sizes.len()).rev().filter(|&axis| axis != innermost) {
            strides[axis] = next;
            next = next.saturating_mul(i64::try_from(sizes[axis].max(1)).unwrap_or(i64::MAX));
        }
        strides
    }

    /// Its size in bytes, for the sizes of the tensor; saturates.
    pub fn bytes(&self, sizes: &[u64]) -> u64 {
        let row_elements = ROW_BYTES / u64::from(self.dtype.bytes());
        let innermost = usize::from(self.innermost);
        let extents = sizes.iter().enumerate().map(|(axis, &n)| match axis == innermost {
            true => n.max(1).next_multiple_of(row_elements),
            false => n.max(1),
        });
        extents.fold(u64::from(self.dtype.bytes()), u64::saturating_mul)
    }
}

/// The kernel with its operands packed for a target; `None` if none has to be, because the target takes them all as they are or has
/// no copy engine.
///
/// # Errors
/// A defect: a kernel that it makes does not verify.
pub fn pack(kernel: &Verified<Kernel>, target: Target) -> Result<Option<LaunchKernels>, CompileError> {
    let wanted = wanted::wanted(kernel, target);
    if wanted.is_empty() {
        return Ok(None);
    }
    let mut signature = Kernel::new(kernel.name.clone());
    signature.dims = kernel.dims.clone();
    signature.params = kernel.params.clone();
    let mut declared =
        |w: &Wanted| -> Vec<Workspace> { w.kind.parts().iter().map(|part| declare(&mut signature, w, part)).collect() };
    let groups: Vec<Vec<Workspace>> = wanted.iter().map(&mut declared).collect();
    let verified = |k: Kernel| verify(k).map_err(|d| CompileError::bug(format!("a kernel of packed operands: {d}")));
    let packers = wanted.iter().zip(&groups).map(|(w, made)| verified(packers::packer(&signature, w, made)));
    let packers = packers.collect::<Result<_, _>>()?;
    let kernel = verified(products::with_workspaces(kernel, &signature, &wanted, &groups))?;
    Ok(Some(LaunchKernels { kernel, packers, workspaces: groups.concat() }))
}

/// The kernels of a launch with a schedule. Operands are packed if the schedule says so and the target wants any of them packed.
///
/// # Errors
/// As [`pack`].
pub fn launch_kernels(
    kernel: Verified<Kernel>,
    schedule: &Schedule,
    target: Target,
) -> Result<LaunchKernels, CompileError> {
    let packed = if schedule.packs_operands() { pack(&kernel, target)? } else { None };
    Ok(packed.unwrap_or_else(|| LaunchKernels { kernel, packers: Vec::new(), workspaces: Vec::new() }))
}

/// The schedule of packers. They copy from registers to memory, so there is nothing to stage.
pub fn packer_schedule() -> Schedule {
    Schedule { stages: 1, warps: 8, ..Schedule::default() }
}

/// Appends a workspace to a signature.
fn declare(signature: &mut Kernel, wanted: &Wanted, part: &wanted::WorkspacePart) -> Workspace {
    let data = &signature.params[wanted.of];
    let name = free_name(signature, format!("{}_{}", data.name, part.suffix));
    let dims = match &data.kind {
        ParamKind::Tensor { dims, .. } => dims.clone(),
        ParamKind::Scalar { .. } => Vec::new(),
    };
    let divisor = KNOWN_ALIGN / part.dtype.bytes();
    let stride = |axis: usize| match axis == usize::from(wanted.innermost) {
        true => Stride::Const(1),
        false => Stride::Dynamic { divisor },
    };
    let kind = ParamKind::Tensor {
        dtype: part.dtype,
        strides: (0..dims.len()).map(stride).collect(),
        dims,
        axes: Vec::new(),
        align: KNOWN_ALIGN,
        access: Access::In,
    };
    let param = signature.params.push(ParamData { name, kind });
    let is_part = wanted.kind.parts().len() > 1;
    Workspace { param, of: wanted.of, dtype: part.dtype, innermost: wanted.innermost, is_part }
}

/// A name that no parameter has.
fn free_name(signature: &Kernel, name: String) -> String {
    let mut free = name;
    while signature.param_by_name(&free).is_some() {
        free.push('_');
    }
    free
}
