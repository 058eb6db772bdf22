//! An Omega rule on a sequence that comes in pieces.

use super::rule::{AtlasOmegaRule, whole_rule};
use super::shared::{Pieces, Push};
use super::tensors::{AtlasOmegaTokens, list};
use crate::device::{AtlasDevice, AtlasStream, stream_on};
use crate::dlpack::DLTensor;
use crate::status::{AtlasStatus, give, handle, status};
use atlas::Device;

/// An Omega rule on a sequence that comes in pieces of any lengths. It keeps the tokens of the chunk that is not full yet and those that
/// windows reach; the memory is the caller's. It serves one push at a time: calls from several threads follow each other.
pub struct AtlasOmegaStream {
    device: Device,
    pieces: Pieces,
}

/// Makes a stream at the start of a sequence. `norm`, `[H, E]` in the element type of tokens, is the weight of the norm inside a
/// memory that has one, and null for others. Memory is allocated on the device's default stream, and there when this returns. A rule
/// that would read what later tokens have taught is refused (ATL652). If it fails, `*stream` is null.
///
/// # Safety
/// The device is open. `rule` points to a rule whose strings end with a zero byte. `norm` is null or a tensor whose memory lives as long
/// as the result, and is as `atlas_launch` says at each push. `stream` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_stream_open(
    device: *const AtlasDevice,
    rule: *const AtlasOmegaRule,
    norm: *const DLTensor,
    stream: *mut *mut AtlasOmegaStream,
) -> AtlasStatus {
    status(|| {
        let make = || {
            // SAFETY: the caller's promise, here and below.
            let device = unsafe { &handle("device", device)?.0 };
            // SAFETY: as above.
            let (rule, sizes) = unsafe { whole_rule(rule) }?;
            // SAFETY: as above.
            let pieces = unsafe { Pieces::new(device, rule, &sizes, norm.as_ref()) }?;
            Ok(AtlasOmegaStream { device: device.clone(), pieces })
        };
        // SAFETY: as above.
        unsafe { give(stream, make) }
    })
}

/// Reads and trains the memory on the tokens that come next, and writes what is read to `y`, `[B, T, H, E]`: on a stream of
/// `atlas_stream_open`, or on the device's default stream if that is null. `memory` has the weights and then the momenta, `[B, H, .., ..]`,
/// which go on: behind a push they stand behind the last chunk that is full. The first push with a memory of some sizes allocates, waits
/// for the stream, and runs on the default stream. No CUDA graph should record a push: a replay would not go on in the sequence.
///
/// If something does not fit, nothing is written, and the stream stays where it is.
///
/// # Safety
/// As `atlas_launch`. `memory` has `memory_count` tensors; pushes on several streams are ordered by the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_stream_push(
    stream: *const AtlasOmegaStream,
    on: *const AtlasStream,
    tokens: *const AtlasOmegaTokens,
    memory: *const *const DLTensor,
    memory_count: usize,
    y: *const DLTensor,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise, here and below.
        let of = unsafe { handle("stream of tokens", stream) }?;
        // SAFETY: as above.
        let given = unsafe {
            Push {
                tokens: AtlasOmegaTokens::given(tokens)?,
                memory: list("memory", memory, memory_count)?,
                y: handle("tensor `y`", y)?,
            }
        };
        // SAFETY: as above.
        unsafe { of.pieces.push(&stream_on(&of.device, on)?, &given) }
    })
}

/// Forgets the tokens so far: what comes next is the start of a sequence. The memory is the caller's to reset. Null is ignored.
///
/// # Safety
/// It came from `atlas_omega_stream_open`, and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_stream_restart(stream: *const AtlasOmegaStream) {
    // SAFETY: the caller's promise.
    if let Some(of) = unsafe { stream.as_ref() } {
        of.pieces.restart();
    }
}

/// The bytes that a stream holds on its device, the memory left out; 0 for null.
///
/// # Safety
/// It came from `atlas_omega_stream_open`, and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_stream_bytes(stream: *const AtlasOmegaStream) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { stream.as_ref() }.map_or(0, |of| of.pieces.bytes())
}

/// Closes a stream. Its memory is freed when the default stream comes to it, so work on other streams that uses it has run before. Null
/// is ignored.
///
/// # Safety
/// It came from `atlas_omega_stream_open`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_stream_close(stream: *mut AtlasOmegaStream) {
    if !stream.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(stream) });
    }
}
