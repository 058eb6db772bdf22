//! Runs a launch of a GPU's tensors on the CPU: copies to the host, the interpreter, and copies of the results back.
//!
//! It copies the memory that a view spans, and not the elements of the view, because a view may repeat an element more
//! often than there is memory.

use super::native::run_native;
use crate::device::Device;
use crate::error::Result;
use crate::launch::args::Arg;
use crate::launch::bind::is_written;
use crate::tensor::{Tensor, each_offset};
use atlas_dsl::{Kernel, KernelDef};
use std::ops::Range;
use std::sync::PoisonError;

/// Runs a kernel on checked arguments whose tensors are on a GPU, after everything that is queued there.
pub(crate) fn run_on_host(
    def: &'static KernelDef,
    device: &Device,
    kernel: &Kernel,
    dims: &[u64],
    args: &[Arg<'_>],
) -> Result<()> {
    device.synchronize()?;
    let mut copies: Vec<Option<Tensor>> =
        args.iter().map(|arg| arg.tensor().map(Tensor::copy_to_host).transpose()).collect::<Result<_>>()?;
    let mut on_host = Vec::with_capacity(args.len());
    for ((arg, copy), param) in args.iter().zip(&mut copies).zip(def.params) {
        on_host.push(match (copy, arg) {
            (Some(copy), _) => {
                if is_written(param) {
                    Arg::Out(copy)
                } else {
                    Arg::In(copy)
                }
            }
            (None, Arg::F32(x)) => Arg::F32(*x),
            (None, Arg::F64(x)) => Arg::F64(*x),
            (None, Arg::I32(x)) => Arg::I32(*x),
            (None, Arg::I64(x)) => Arg::I64(*x),
            // Each tensor has a copy.
            (None, Arg::In(t)) => Arg::In(t),
            (None, Arg::Out(t)) => Arg::In(t),
            (None, Arg::Lent(t)) => Arg::In(t),
        });
    }
    run_native(def, kernel, dims, &on_host)?;
    drop(on_host);
    for ((arg, copy), param) in args.iter().zip(&copies).zip(def.params) {
        if let (Some(tensor), Some(copy), true) = (arg.tensor(), copy, is_written(param)) {
            write_back(tensor, copy)?;
        }
    }
    Ok(())
}

/// Writes the elements of a view on a GPU, and nothing between them, from the same view of a host copy.
fn write_back(to: &Tensor, from: &Tensor) -> Result<()> {
    let Some(bytes) = from.storage().host().filter(|_| !to.is_empty()) else { return Ok(()) };
    let bytes = bytes.read().unwrap_or_else(PoisonError::into_inner);
    let size = to.dtype().bytes() as usize;
    let start = to.element_offset() * size as u64;
    if to.is_contiguous() {
        return to.storage().write(start, &bytes[..to.len() * size]);
    }
    // Adjacent elements are copied together, but never the bytes between them: another stream may be writing those.
    let (mut run, mut failed): (Option<Range<usize>>, Result<()>) = (None, Ok(()));
    let mut write = |run: Range<usize>| {
        if failed.is_ok() {
            failed = to.storage().write(start + (run.start * size) as u64, &bytes[run.start * size..run.end * size]);
        }
    };
    each_offset(to.shape(), to.strides(), &mut |at| {
        let at = at as usize;
        match &mut run {
            Some(run) if run.end == at => run.end += 1,
            other => {
                if let Some(done) = other.replace(at..at + 1) {
                    write(done);
                }
            }
        }
    });
    if let Some(done) = run {
        write(done);
    }
    failed
}
