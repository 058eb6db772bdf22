//! How many bytes the memory system moves for each byte that an access asks for.
//!
//! Caches move sectors of 32 bytes. A run of neighbouring bytes that begins in the middle of a sector wastes a part of it, at
//! both ends. Short runs waste most.

use crate::gpu::{Kernel, Slice};
use atlas_dsl::Param;
use atlas_dsl::ir::{DimSize, ParamKind, Stride};

/// Bytes of a sector, and of a line, which is four of them.
const SECTOR: u32 = 32;
const LINE: u32 = 128;
/// The largest known divisor of an address.
const KNOWN: u32 = 16;
/// Runs of single elements find their sectors in the L1 cache again.
const MOST: f64 = 4.0;

/// Bytes of sectors divided by requested bytes, averaged over the possible starts of the runs.
pub(super) fn sector_share(k: &Kernel, param: Param, slices: &[Slice]) -> f64 {
    share(k, param, slices, SECTOR)
}

/// The same for lines.
pub(super) fn line_share(k: &Kernel, param: Param, slices: &[Slice]) -> f64 {
    share(k, param, slices, LINE)
}

fn share(k: &Kernel, param: Param, slices: &[Slice], unit: u32) -> f64 {
    let ParamKind::Tensor { dtype, dims, strides, align, .. } = &k.params[param].kind else { return 1.0 };
    // The run: elements along the last axes that lie without gaps. Alignment is known up to 16 bytes, and most tensors that have
    // as much begin with a sector.
    let first = if *align >= KNOWN { LINE } else { *align };
    let (mut run, mut starts, mut whole) = (1_u64, first, true);
    for ((slice, stride), &dim) in slices.iter().zip(strides).zip(dims).rev() {
        let step = match *stride {
            Stride::Const(n) => n.unsigned_abs(),
            Stride::Dynamic { divisor } => u64::from(divisor),
        };
        let step_bytes = |elements: u64| gcd(step.saturating_mul(elements).saturating_mul(u64::from(dtype.bytes())));
        whole = whole && matches!(stride, Stride::Const(_)) && step == run;
        match *slice {
            Slice::Tile { size, len, .. } if whole => {
                (run, whole) = (run * u64::from(len), false);
                starts = starts.min(step_bytes(u64::from(size)));
            }
            Slice::Span { len, .. } if whole => {
                (run, whole) = (run * u64::from(len), false);
                starts = starts.min(step_bytes(1));
            }
            Slice::Whole { len, .. } if whole => {
                whole = k.dims[dim].size == DimSize::Const(u64::from(len));
                run *= u64::from(len);
            }
            Slice::Whole { .. } => starts = starts.min(step_bytes(1)),
            Slice::Tile { .. } | Slice::Span { .. } | Slice::At { .. } | Slice::Gather { .. } => {
                whole = false;
                starts = starts.min(step_bytes(1));
            }
        }
    }
    let bytes = run as f64 * f64::from(dtype.bytes());
    let lost = f64::from(unit - starts.clamp(1, unit));
    ((bytes + lost) / bytes).min(MOST)
}

/// The largest power of two that divides a number of bytes, 0 being a multiple of all.
fn gcd(bytes: u64) -> u32 {
    1 << bytes.trailing_zeros().min(LINE.trailing_zeros())
}
