//! A launch of a GPU's tensors that the CPU runs: copies to the host, the interpreter, and the results back.

use crate::args::Arg;
use crate::bind::is_written;
use crate::cpu::run_native;
use crate::device::Device;
use crate::error::Result;
use crate::tensor::{Tensor, each_offset};
use atlas_dsl::{Kernel, KernelDef};

/// Runs a kernel on checked arguments whose tensors are on a GPU, after all that is queued there.
pub(crate) fn run_on_host(
    def: &'static KernelDef,
    device: &Device,
    kernel: &Kernel,
    dims: &[u64],
    args: &[Arg<'_>],
) -> Result<()> {
    device.synchronize()?;
    let cpu = Device::cpu();
    let mut copies: Vec<Option<Tensor>> =
        args.iter().map(|arg| arg.tensor().map(|t| t.to_device(&cpu)).transpose()).collect::<Result<_>>()?;
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

/// Writes the elements of a contiguous tensor on the host to a view on a GPU, and nothing between them.
fn write_back(to: &Tensor, from: &Tensor) -> Result<()> {
    if to.is_empty() {
        return Ok(());
    }
    let size = to.dtype().bytes() as usize;
    let mut bytes = vec![0_u8; from.len() * size];
    from.storage().read(0, &mut bytes)?;
    let start = to.element_offset() * size as u64;
    if to.is_contiguous() {
        return to.storage().write(start, &bytes);
    }
    // Runs of neighbours at once, and never what lies between them: another stream may be writing that.
    let mut run: Option<(u64, usize)> = None;
    let (mut next, mut failed) = (0, Ok(()));
    let mut write = |(at, len): (u64, usize), end: usize| {
        if failed.is_ok() {
            failed = to.storage().write(start + at * size as u64, &bytes[(end - len) * size..end * size]);
        }
    };
    each_offset(to.shape(), to.strides(), &mut |at| {
        let at = at as u64;
        run = match run {
            Some((first, len)) if first + len as u64 == at => Some((first, len + 1)),
            other => {
                if let Some(done) = other {
                    write(done, next);
                }
                Some((at, 1))
            }
        };
        next += 1;
    });
    if let Some(done) = run {
        write(done, next);
    }
    failed
}
