//! Launches on the CPU: tensors in host memory, programs in the interpreter.

use crate::error::{LaunchError, Result, RuntimeError};
use crate::launch::args::Arg;
use crate::launch::bind::{is_written, scalar_bits};
use crate::tensor::{HostBytes, Storage, Tensor, each_offset, host_room};
use atlas_dsl::ir::ParamKind;
use atlas_dsl::{DType, Kernel, KernelDef};
use atlas_tile_interp::{InterpError, Mode, Scalar, TensorView, TensorViewMut};
use half::{bf16, f16};
use std::ops::Range;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

/// Runs a kernel on checked arguments whose tensors are in host memory.
///
/// Storage is locked in the order of addresses while the kernel runs, for writing if an argument writes it. If another argument
/// writes to an argument's storage too, the kernel works on a copy of the elements of the view, and they are copied back. The views are
/// disjoint, but one may lie between the elements of another, and what lies there is not touched.
///
/// Nothing that has passed the checks of a launch is refused here, except for lack of memory and for stores of `store_disjoint` that meet,
/// which only running shows: a chain has already run its first kernels at this point.
pub(crate) fn run_native(def: &'static KernelDef, kernel: &Kernel, dims: &[u64], args: &[Arg<'_>]) -> Result<()> {
    let written: Vec<bool> = def.params.iter().map(is_written).collect();
    let mut copies: Vec<Option<Vec<u8>>> =
        args.iter().map(|arg| copy_if_shared(args, &written, arg)).collect::<Result<_>>()?;
    let mut locks: Vec<(&Storage, bool)> = Vec::new();
    for ((arg, &written), _) in args.iter().zip(&written).zip(&copies).filter(|(_, copy)| copy.is_none()) {
        if let Some(tensor) = arg.tensor() {
            locks.push((tensor.storage(), written));
        }
    }
    locks.sort_by_key(|(storage, _)| (storage.address(), storage.len()));
    locks.dedup_by_key(|(storage, _)| storage.addresses());
    let mut guards: Vec<Guard<'_>> = locks.iter().map(|&(storage, write)| Guard::new(storage, write)).collect();
    let mut host: Vec<(Range<u64>, Bytes<'_>)> =
        locks.iter().map(|(storage, _)| storage.addresses()).zip(guards.iter_mut().map(Guard::bytes)).collect();

    let mut views = Vec::with_capacity(args.len());
    for (i, ((param, arg), copy)) in kernel.params.values().zip(args).zip(&mut copies).enumerate() {
        // Whether a tensor was passed as `&` or `&mut` does not matter: the signature says which are written.
        let view = match arg.tensor() {
            None => {
                let dtype = match param.kind {
                    ParamKind::Scalar { dtype } | ParamKind::Tensor { dtype, .. } => dtype,
                };
                let bits = scalar_bits(def.name, def.params[i].name(), dtype, arg)?;
                Ok(atlas_tile_interp::Arg::Scalar(scalar(dtype, bits)))
            }
            Some(t) if written[i] => match copy {
                Some(bytes) => {
                    TensorViewMut::contiguous(t.dtype(), bytes, &dims_of(t)).map(atlas_tile_interp::Arg::Out)
                }
                None => match find(&mut host, t) {
                    Some(Bytes::Write(bytes)) => match bytes.take() {
                        Some(bytes) => view_mut(t, bytes, t.element_offset() as i64),
                        None => Err(unreachable_storage()),
                    },
                    _ => Err(unreachable_storage()),
                },
            },
            Some(t) => match copy {
                Some(bytes) => TensorView::contiguous(t.dtype(), bytes, &dims_of(t)).map(atlas_tile_interp::Arg::In),
                None => match find(&mut host, t) {
                    Some(Bytes::Read(bytes)) => view(t, bytes, t.element_offset() as i64),
                    _ => Err(unreachable_storage()),
                },
            },
        };
        views.push(view.map_err(|e| failure(kernel, &e))?);
    }
    atlas_tile_interp::run(kernel, dims, views, Mode::Native).map_err(|e| failure(kernel, &e))?;
    drop(host);
    drop(guards);
    for ((arg, &written), copy) in args.iter().zip(&written).zip(copies) {
        if let (Some(tensor), true, Some(bytes)) = (arg.tensor(), written, copy) {
            copy_back(tensor, &bytes)?;
        }
    }
    Ok(())
}

/// Writes the elements of a view, and nothing between them, from a row-major copy.
fn copy_back(tensor: &Tensor, bytes: &[u8]) -> Result<()> {
    let (start, size) = (byte_offset(tensor), tensor.dtype().bytes() as usize);
    if tensor.is_contiguous() {
        return tensor.storage().write(start, bytes);
    }
    tensor.storage().with_host_mut(|data| {
        let mut elements = bytes.chunks_exact(size);
        each_offset(tensor.shape(), tensor.strides(), &mut |at| {
            if let Some(element) = elements.next() {
                data[start as usize + at as usize * size..][..size].copy_from_slice(element);
            }
        });
    });
    Ok(())
}

/// A number from its bits in a parameter's type.
pub(crate) fn scalar(dtype: DType, bits: u64) -> Scalar {
    match dtype {
        DType::I64 => Scalar::I64(bits as i64),
        // No number of the floats of 8 bits is passed by value.
        DType::F8E4M3 | DType::F8E5M2 => Scalar::I32(bits as i32),
        DType::I32 | DType::I16 | DType::I8 | DType::U16 | DType::U8 | DType::Bool => Scalar::I32(bits as i32),
        DType::F64 => Scalar::F64(f64::from_bits(bits)),
        DType::F32 => Scalar::F32(f32::from_bits(bits as u32)),
        DType::F16 => Scalar::F32(f16::from_bits(bits as u16).to_f32()),
        DType::Bf16 => Scalar::F32(bf16::from_bits(bits as u16).to_f32()),
    }
}

/// An interpreter's error as a runtime error.
pub(crate) fn failure(kernel: &Kernel, error: &InterpError) -> RuntimeError {
    match error {
        InterpError::Met { name, element } => {
            LaunchError::StoresMeet { kernel: kernel.name.clone(), tensor: name.clone(), element: element.clone() }
                .into()
        }
        other => RuntimeError::Cpu { kernel: kernel.name.clone(), message: other.to_string() },
    }
}

/// A row-major copy of the elements of a view, if one argument writes to its storage and another one has it too. Storage of other
/// libraries is the same if it shares a byte.
fn copy_if_shared(args: &[Arg<'_>], written: &[bool], arg: &Arg<'_>) -> Result<Option<Vec<u8>>> {
    let Some(tensor) = arg.tensor() else { return Ok(None) };
    let own = tensor.storage().addresses();
    let shares = |other: Range<u64>| other == own || (other.start < own.end && own.start < other.end);
    let same = |other: &Arg<'_>| other.tensor().is_some_and(|t| shares(t.storage().addresses()));
    let users = args.iter().filter(|a| same(a)).count();
    let is_written = args.iter().zip(written).any(|(a, &written)| written && same(a));
    if users < 2 || !is_written {
        return Ok(None);
    }
    let (start, size) = (byte_offset(tensor), tensor.dtype().bytes() as usize);
    let len = tensor.len().saturating_mul(size);
    let mut bytes: Vec<u8> = host_room(len)?;
    if tensor.is_contiguous() {
        bytes.resize(len, 0);
        tensor.storage().read(start, &mut bytes)?;
    } else if let Some(data) = tensor.storage().host() {
        let data = data.read().unwrap_or_else(PoisonError::into_inner);
        each_offset(tensor.shape(), tensor.strides(), &mut |at| {
            bytes.extend_from_slice(&data[start as usize + at as usize * size..][..size]);
        });
    }
    Ok(Some(bytes))
}

fn byte_offset(tensor: &Tensor) -> u64 {
    tensor.address() - tensor.storage().address()
}

fn dims_of(tensor: &Tensor) -> Vec<u64> {
    tensor.shape().iter().map(|&n| n as u64).collect()
}

fn view<'a>(t: &Tensor, bytes: &'a [u8], offset: i64) -> std::result::Result<atlas_tile_interp::Arg<'a>, InterpError> {
    TensorView::new(t.dtype(), bytes, offset, &dims_of(t), t.strides()).map(atlas_tile_interp::Arg::In)
}

fn view_mut<'a>(
    t: &Tensor,
    bytes: &'a mut [u8],
    offset: i64,
) -> std::result::Result<atlas_tile_interp::Arg<'a>, InterpError> {
    TensorViewMut::new(t.dtype(), bytes, offset, &dims_of(t), t.strides()).map(atlas_tile_interp::Arg::Out)
}

fn find<'h, 'a>(host: &'h mut [(Range<u64>, Bytes<'a>)], tensor: &Tensor) -> Option<&'h mut Bytes<'a>> {
    let addresses = tensor.storage().addresses();
    host.iter_mut().find(|(a, _)| *a == addresses).map(|(_, bytes)| bytes)
}

/// Cannot happen: checked arguments are in host memory, and written storage has one user here.
fn unreachable_storage() -> InterpError {
    InterpError::View("a tensor is not in host memory".to_owned())
}

enum Guard<'a> {
    Read(RwLockReadGuard<'a, HostBytes>),
    Write(RwLockWriteGuard<'a, HostBytes>),
    Absent,
}

enum Bytes<'a> {
    Read(&'a [u8]),
    Write(Option<&'a mut [u8]>),
}

impl<'a> Guard<'a> {
    fn new(storage: &'a Storage, write: bool) -> Guard<'a> {
        match storage.host() {
            None => Guard::Absent,
            Some(data) if write => Guard::Write(data.write().unwrap_or_else(PoisonError::into_inner)),
            Some(data) => Guard::Read(data.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn bytes(&mut self) -> Bytes<'_> {
        match self {
            Guard::Read(data) => Bytes::Read(data),
            Guard::Write(data) => Bytes::Write(Some(data)),
            Guard::Absent => Bytes::Read(&[]),
        }
    }
}
