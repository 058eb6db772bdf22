//! Runs a Tile IR kernel without a declared signature, such as a random one, on a GPU with plain bytes.
//!
//! The code generator relies on the kernel's facts about dims, strides and alignments. So all of them are checked here,
//! and also that each tensor lies in its bytes. The kernel then accesses nothing else.

use super::compiled_launch::MAP_ALIGN;
use super::{RawBuffer, RawKernel, RawScratch, encode_map};
use crate::compile::{CompileProblem, compile};
use crate::cost::programs;
use crate::device::Device;
use crate::error::{CompileFailure, LaunchError, Result};
use crate::gpu::{BoundMap, ScratchAddresses};
use atlas_codegen::{AbiParam, KernelImage, Machine, TensorMapData};
use atlas_dsl::ir::{DimSize, ParamKind, Stride};
use atlas_dsl::{DType, Dim, Kernel, Param, Schedule, Verified};

/// An argument of a kernel in Tile IR.
#[derive(Clone, Copy, Debug)]
pub enum TileArg<'a> {
    /// The bits of a number in the parameter's type.
    Number(u64),
    /// A tensor.
    Tensor {
        /// All of its memory.
        bytes: &'a [u8],
        /// The index of its first element in there.
        offset: u64,
        /// One per dim, in elements.
        strides: &'a [i64],
    },
}

/// Compiles a kernel, runs it on a GPU on copies of its arguments, and returns the memory of each afterwards.
///
/// # Errors
/// `LaunchError::WrongAbi` if sizes, strides or bytes do not match the kernel; `RuntimeError::Compile` if it cannot be
/// compiled; driver errors.
pub fn launch_tile_ir(
    device: &Device,
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    dims: &[u64],
    args: &[TileArg<'_>],
) -> Result<Vec<Vec<u8>>> {
    check(kernel, dims, args).ok_or_else(|| LaunchError::WrongAbi { kernel: kernel.name.clone() })?;
    let machine = device.machine().ok_or(crate::error::DeviceError::NotAGpu {})?;
    let image = compiled(kernel, schedule, machine)?;
    let bytes = |arg: &TileArg<'_>| match arg {
        TileArg::Number(_) => Vec::new(),
        TileArg::Tensor { bytes, .. } => bytes.to_vec(),
    };
    let grid = image.ctas(programs(&image.grid, dims), None);
    if grid == 0 {
        return Ok(args.iter().map(bytes).collect());
    }
    let Ok(grid) = i32::try_from(grid).map(i32::unsigned_abs) else {
        return Err(LaunchError::WrongAbi { kernel: kernel.name.clone() }.into());
    };
    let raw = RawKernel::load(device, &image.ptx, &image.entry, image.shared_bytes)?;
    let buffers: Vec<RawBuffer> = args.iter().map(|a| RawBuffer::new(device, &bytes(a))).collect::<Result<_>>()?;
    let scratch = RawScratch::new(device, &image, grid)?;
    let params = block(device, kernel, &image, dims, args, (&buffers, scratch.addresses()))?;
    // SAFETY: the code generator made this PTX from a verified kernel. `check` has found that its dims, strides and
    // alignments match the kernel and that every tensor lies in its bytes. Buffers do not overlap, are aligned to 256
    // bytes, and live until they have been read. The scratch memory is as large as the image says, and is freed in stream order.
    unsafe { raw.launch([grid, 1, 1], [image.threads, 1, 1], &params) }?;
    buffers.iter().map(RawBuffer::read).collect()
}

fn compiled(kernel: &Verified<Kernel>, schedule: &Schedule, machine: Machine) -> Result<KernelImage> {
    compile(kernel, schedule, machine).map_err(|problem| {
        let compiler_present = problem != CompileProblem::NoCompiler;
        let message = match problem {
            CompileProblem::NoCompiler => "this build has no compiler".to_owned(),
            CompileProblem::Refused(message) | CompileProblem::Failed(message) => message,
        };
        CompileFailure { kernel: kernel.name.clone(), message, refused: Vec::new(), compiler_present }.into()
    })
}

/// `None` if an argument does not match the kernel.
fn check(kernel: &Kernel, dims: &[u64], args: &[TileArg<'_>]) -> Option<()> {
    let all = |holds: bool| holds.then_some(());
    all(dims.len() == kernel.dims.len() && args.len() == kernel.params.len())?;
    for (&n, dim) in dims.iter().zip(kernel.dims.values()) {
        all(n <= i32::MAX as u64)?;
        all(match dim.size {
            DimSize::Const(size) => size == n,
            DimSize::Dynamic { divisor } => n.is_multiple_of(divisor.into()),
        })?;
    }
    for (arg, param) in args.iter().zip(kernel.params.values()) {
        match (arg, &param.kind) {
            (TileArg::Number(_), ParamKind::Scalar { .. }) => {}
            (
                TileArg::Tensor { bytes, offset, strides },
                ParamKind::Tensor { dtype, dims: of, strides: known, align, .. },
            ) => {
                all(strides.len() == of.len())?;
                for (&stride, known) in strides.iter().zip(known) {
                    all(match *known {
                        Stride::Const(s) => s == stride,
                        // A known divisor is a promise of no flipped axis too, as it is in launches.
                        Stride::Dynamic { divisor: 1 } => true,
                        Stride::Dynamic { divisor } => {
                            u64::try_from(stride).is_ok_and(|s| s.is_multiple_of(divisor.into()))
                        }
                    })?;
                }
                let first = offset.checked_mul(dtype.bytes().into())?;
                all(first.is_multiple_of((*align).into()))?;
                let sizes: Vec<u64> = of.iter().map(|d| dims[d.as_u32() as usize]).collect();
                all(lies_in(*offset, &sizes, strides, bytes.len() as u64 / u64::from(dtype.bytes())))?;
            }
            _ => return None,
        }
    }
    Some(())
}

/// True if every element of a view has an index below `count`.
fn lies_in(offset: u64, sizes: &[u64], strides: &[i64], count: u64) -> bool {
    if sizes.contains(&0) {
        return true;
    }
    let (mut low, mut high) = (i128::from(offset), i128::from(offset));
    for (&n, &stride) in sizes.iter().zip(strides) {
        let reach = i128::from(n - 1) * i128::from(stride);
        low += reach.min(0);
        high += reach.max(0);
    }
    low >= 0 && high < i128::from(count)
}

/// The parameters in the memory layout of the `.entry`, each at a multiple of its size.
fn block(
    device: &Device,
    kernel: &Kernel,
    image: &KernelImage,
    dims: &[u64],
    args: &[TileArg<'_>],
    (buffers, scratch): (&[RawBuffer], ScratchAddresses),
) -> Result<Vec<u8>> {
    let index = |p: Param| p.as_u32() as usize;
    let dtype = |p: Param| match kernel.params[p].kind {
        ParamKind::Scalar { dtype } | ParamKind::Tensor { dtype, .. } => dtype,
    };
    let at = |d: Dim| dims[d.as_u32() as usize];
    let address = |p: Param| match args[index(p)] {
        TileArg::Tensor { offset, .. } => buffers[index(p)].address() + offset * u64::from(dtype(p).bytes()),
        TileArg::Number(bits) => bits,
    };
    let mut block = Vec::new();
    for param in &image.params {
        if let AbiParam::TensorMap(n) = *param {
            let map = bound_map(kernel, &image.maps[usize::from(n)], dims, args);
            let map = map.ok_or_else(|| LaunchError::WrongAbi { kernel: kernel.name.clone() })?;
            block.resize(block.len().next_multiple_of(MAP_ALIGN), 0);
            block.extend_from_slice(&encode_map(device, &map, address(image.maps[usize::from(n)].param))?);
            continue;
        }
        let (bits, size) = match *param {
            AbiParam::Ptr(p) => (address(p), DType::I64.bytes()),
            AbiParam::Arrivals => (scratch.arrivals, 8),
            AbiParam::Partials => (scratch.partials, 8),
            AbiParam::TensorMap(_) => continue,
            AbiParam::Scalar(p) => match args[index(p)] {
                TileArg::Number(bits) => (bits, dtype(p).bytes()),
                TileArg::Tensor { .. } => (0, dtype(p).bytes()),
            },
            AbiParam::Dim(d) => (at(d), 4),
            AbiParam::GridCount(axis) => (image.grid[usize::from(axis)].count(dims), 4),
            AbiParam::Stride(p, axis) => match args[index(p)] {
                TileArg::Tensor { strides, .. } => (strides[usize::from(axis)] as u64, 8),
                TileArg::Number(_) => (0, 8),
            },
        };
        let size = size as usize;
        block.resize(block.len().next_multiple_of(size), 0);
        block.extend_from_slice(&bits.to_le_bytes()[..size]);
    }
    Ok(block)
}

/// A tensor map of an argument, but for its address.
fn bound_map(kernel: &Kernel, map: &TensorMapData, dims: &[u64], args: &[TileArg<'_>]) -> Option<BoundMap> {
    let ParamKind::Tensor { dtype, dims: of, .. } = &kernel.params.get(map.param)?.kind else { return None };
    let TileArg::Tensor { strides, .. } = args.get(map.param.as_u32() as usize)? else { return None };
    let sizes: Vec<u64> = of.iter().map(|d| dims[d.as_u32() as usize]).collect();
    BoundMap::new(map, *dtype, &sizes, strides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_that_leaves_its_bytes_is_seen() {
        assert!(lies_in(0, &[4, 3], &[3, 1], 12));
        assert!(!lies_in(1, &[4, 3], &[3, 1], 12));
        assert!(lies_in(9, &[4, 3], &[-3, 1], 12));
        assert!(!lies_in(8, &[4, 3], &[-3, 1], 11 - 1));
        assert!(!lies_in(2, &[2], &[-3], 8));
        assert!(lies_in(5, &[7, 0], &[9, 9], 0));
        assert!(!lies_in(0, &[u64::MAX, 2], &[i64::MAX, 1], 8));
    }
}
