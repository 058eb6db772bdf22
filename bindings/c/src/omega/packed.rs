//! An Omega rule on documents one after the other.

use super::rule::{AtlasOmegaRule, whole_rule};
use super::shared::{Packed, Push};
use super::tensors::{AtlasOmegaTokens, list};
use crate::device::{AtlasDevice, AtlasStream, stream_on};
use crate::dlpack::DLTensor;
use crate::status::{AtlasStatus, give, handle, status};
use atlas::Device;

/// The workspace of an Omega rule on packed documents. It serves one launch at a time: calls from several threads follow each other, but
/// launches on several streams race unless the caller orders them.
pub struct AtlasOmegaPacked {
    device: Device,
    packed: Packed,
}

/// Makes room for `sequences` documents of at most `tokens` tokens each. `norm`, `[H, E]` in the element type of tokens, is the weight
/// of the norm inside a memory that has one, and null for others. Memory is allocated on the device's default stream, and there when
/// this returns. A rule that would read what later tokens have taught is refused (ATL652). If it fails, `*packed` is null.
///
/// # Safety
/// The device is open. `rule` points to a rule whose strings end with a zero byte. `norm` is null or a tensor whose memory lives as long
/// as the result, and is as `atlas_launch` says at each launch. `packed` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_packed_open(
    device: *const AtlasDevice,
    rule: *const AtlasOmegaRule,
    norm: *const DLTensor,
    packed: *mut *mut AtlasOmegaPacked,
) -> AtlasStatus {
    status(|| {
        let make = || {
            // SAFETY: the caller's promise, here and below.
            let device = unsafe { &handle("device", device)?.0 };
            // SAFETY: as above.
            let (rule, sizes) = unsafe { whole_rule(rule) }?;
            // SAFETY: as above.
            let packed = unsafe { Packed::new(device, rule, &sizes, norm.as_ref()) }?;
            Ok(AtlasOmegaPacked { device: device.clone(), packed })
        };
        // SAFETY: as above.
        unsafe { give(packed, make) }
    })
}

/// Reads and trains a memory on each document, and writes what is read to `y`: on a stream of `atlas_stream_open`, or on the device's default
/// stream if that is null. `tokens` and `y` are of one sequence, `[1, P, ..]`, with the documents one after the other. `starts`,
/// `[B + 1]` in i32, ascends: document `b` has the tokens from `starts[b]` to before `starts[b + 1]`, and may have none. `memory` has
/// the weights and then the momenta, `[B, H, .., ..]`: one for each document. What is read of tokens in no document is 0. Of a document that
/// is longer than there is room for, the memory is trained on the first tokens, and what is read of the others is NaN.
///
/// The first launch with a memory of some sizes allocates, waits for the stream, and runs on the default stream. If something does not
/// fit, nothing is written.
///
/// # Safety
/// As `atlas_launch`. `memory` has `memory_count` tensors; no other launch with it runs at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_packed_launch(
    packed: *const AtlasOmegaPacked,
    stream: *const AtlasStream,
    tokens: *const AtlasOmegaTokens,
    starts: *const DLTensor,
    memory: *const *const DLTensor,
    memory_count: usize,
    y: *const DLTensor,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise, here and below.
        let of = unsafe { handle("room for documents", packed) }?;
        // SAFETY: as above.
        let (given, starts) = unsafe {
            let tokens = AtlasOmegaTokens::given(tokens)?;
            let (memory, y) = (list("memory", memory, memory_count)?, handle("tensor `y`", y)?);
            (Push { tokens, memory, y }, handle("tensor `starts`", starts)?)
        };
        // SAFETY: as above.
        unsafe { of.packed.launch(&stream_on(&of.device, stream)?, &given, starts) }
    })
}

/// The bytes that it holds on its device; 0 for null.
///
/// # Safety
/// It came from `atlas_omega_packed_open`, and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_packed_bytes(packed: *const AtlasOmegaPacked) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { packed.as_ref() }.map_or(0, |of| of.packed.bytes())
}

/// Closes the room for documents. Its memory is freed when the default stream comes to it, so work on other streams that uses it has run
/// before. Null is ignored.
///
/// # Safety
/// It came from `atlas_omega_packed_open`, and is not used again, nor is a CUDA graph that recorded its launches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_packed_close(packed: *mut AtlasOmegaPacked) {
    if !packed.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(packed) });
    }
}
