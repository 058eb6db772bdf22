//! The training of an Omega rule: forward and backward passes over whole sequences.

use super::rule::{AtlasOmegaRule, whole_rule};
use super::shared::{Backward, Forward, Training};
use super::tensors::{AtlasOmegaGradients, AtlasOmegaTokens, list};
use crate::device::{AtlasDevice, AtlasStream, stream_on};
use crate::dlpack::DLTensor;
use crate::status::{AtlasStatus, Result, give, handle, status};
use atlas::Device;

/// The workspace of forward and backward passes of an Omega rule over sequences of one length. All layers of such sizes may share one. It
/// serves one pass at a time: calls from several threads follow each other, but passes on several streams race unless the caller
/// orders them.
pub struct AtlasOmegaTraining {
    device: Device,
    training: Training,
}

/// Makes the training of a rule. `segment` chunks are gone back over at once: a forward pass keeps the state before each such
/// segment, and the backward pass computes the states inside of it again. 0 stands for about the square root of all chunks. Memory
/// is allocated on the device's default stream, and there when this returns. A rule without gradients is refused (ATL651): one with a step
/// for each token, or with a step for each chunk that is read after it. If it fails, `*training` is null.
///
/// # Safety
/// The device is open. `rule` points to a rule whose strings end with a zero byte; `training` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_training_open(
    device: *const AtlasDevice,
    rule: *const AtlasOmegaRule,
    segment: usize,
    training: *mut *mut AtlasOmegaTraining,
) -> AtlasStatus {
    status(|| {
        let make = || {
            // SAFETY: the caller's promise, here and below.
            let device = unsafe { &handle("device", device)?.0 };
            // SAFETY: as above.
            let (rule, sizes) = unsafe { whole_rule(rule) }?;
            let training = Training::new(device, rule, &sizes, (segment > 0).then_some(segment))?;
            Ok(AtlasOmegaTraining { device: device.clone(), training })
        };
        // SAFETY: as above.
        unsafe { give(training, make) }
    })
}

/// How many segments a training has, which is the size `S` of what a forward pass keeps; 0 for null.
///
/// # Safety
/// It came from `atlas_omega_training_open`, and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_training_segments(training: *const AtlasOmegaTraining) -> usize {
    // SAFETY: the caller's promise.
    unsafe { training.as_ref() }.map_or(0, |of| of.training.segments())
}

/// The bytes of a training's workspace on its device; 0 for null.
///
/// # Safety
/// It came from `atlas_omega_training_open`, and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_training_bytes(training: *const AtlasOmegaTraining) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { training.as_ref() }.map_or(0, |of| of.training.bytes())
}

/// Reads and trains the memory on all tokens, and writes what is read to `y`, `[B, T, H, E]`: on a stream of `atlas_stream_open`, or on
/// the device's default stream if that is null. `memory` has the weights and then the momenta, which go on. `norm`, `[H, E]` in the
/// element type of tokens, is the weight of the norm inside a memory that has one, and null for others. `kept` has a tensor for each of the
/// memory, `[S, B, H, .., ..]` in f32 without gaps, for `atlas_omega_training_backward`; what stands in them does not matter.
///
/// If something does not fit, nothing is written.
///
/// # Safety
/// As `atlas_launch`. `memory` and `kept` have as many tensors as is said; no other pass with the training runs at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_training_forward(
    training: *const AtlasOmegaTraining,
    stream: *const AtlasStream,
    tokens: *const AtlasOmegaTokens,
    norm: *const DLTensor,
    memory: *const *const DLTensor,
    memory_count: usize,
    y: *const DLTensor,
    kept: *const *const DLTensor,
    kept_count: usize,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise, here and below.
        let of = unsafe { handle("training", training) }?;
        // SAFETY: as above.
        let given = unsafe {
            Forward {
                tokens: AtlasOmegaTokens::given(tokens)?,
                norm: norm.as_ref(),
                memory: list("memory", memory, memory_count)?,
                y: handle("tensor `y`", y)?,
                kept: list("states that are kept", kept, kept_count)?,
            }
        };
        // SAFETY: as above.
        unsafe { of.training.forward(&stream_on(&of.device, stream)?, &given) }
    })
}

/// From the gradients `dy` by what was read, `[B, T, H, E]` in the element type of tokens, and those by the memory after the last
/// token, f32, to the gradients by everything that the forward pass took. `tokens` and `norm` are those of that pass, and `kept` is what
/// it kept. `final_memory` has a tensor for each of the memory; null with a count of 0 stands for zeros.
///
/// If something does not fit, nothing is written.
///
/// # Safety
/// As `atlas_omega_training_forward`; `gradients` points to gradients.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_training_backward(
    training: *const AtlasOmegaTraining,
    stream: *const AtlasStream,
    tokens: *const AtlasOmegaTokens,
    norm: *const DLTensor,
    kept: *const *const DLTensor,
    kept_count: usize,
    dy: *const DLTensor,
    final_memory: *const *const DLTensor,
    final_count: usize,
    gradients: *const AtlasOmegaGradients,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise, here and below.
        let of = unsafe { handle("training", training) }?;
        // SAFETY: as above.
        let given = || -> Result<Backward<'_>> {
            // SAFETY: as above.
            unsafe {
                let (gradients, of_memory) = AtlasOmegaGradients::given(gradients)?;
                Ok(Backward {
                    tokens: AtlasOmegaTokens::given(tokens)?,
                    norm: norm.as_ref(),
                    kept: list("states that are kept", kept, kept_count)?,
                    dy: handle("tensor `dy`", dy)?,
                    final_memory: list("gradients by the last memory", final_memory, final_count)?,
                    gradients,
                    of_memory,
                })
            }
        };
        // SAFETY: as above.
        unsafe { of.training.backward(&stream_on(&of.device, stream)?, &given()?) }
    })
}

/// Closes a training. Its memory is freed when the default stream comes to it, so work on other streams that uses it has run before. Null
/// is ignored.
///
/// # Safety
/// It came from `atlas_omega_training_open`, and is not used again, nor is a CUDA graph that recorded its passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_training_close(training: *mut AtlasOmegaTraining) {
    if !training.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(training) });
    }
}
