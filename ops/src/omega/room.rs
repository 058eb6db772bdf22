//! Whether a GPU has room for the keys of a chunk: a chain holds all of them at once, so windows and chunks may be too long for it.

use super::{Chunking, OmegaRule, Step, StreamSizes};
use atlas_dsl::KernelDef;
use atlas_runtime::{Chain, Device, LaunchError, Machine, Result, Tensor, choose_for};

/// Every GPU has room for so many tokens of a chunk with so many keys, in any element type.
const ALWAYS: [usize; 2] = [64, 128];

/// The chain that computes the rule on a device: that of [`OmegaRule::chain_for`], which fits the smallest GPU, or where its windows are too
/// long, the other one, if the device has room for that.
///
/// Kernels of Muon hold whole matrices of the memory, whose size is not known here: [`chain_with`] takes it into account.
///
/// # Errors
/// [`LaunchError::Choice`] where the device has room for neither. It names the longest window that fits.
pub(super) fn chain_on(device: &Device, rule: &OmegaRule, sizes: &StreamSizes) -> Result<&'static Chain> {
    let Chunking { chunk, window, .. } = rule.chunking;
    let (chain, keys) = (rule.chain_for(sizes.key, sizes.value, sizes.dtype), rule.chunking.keys());
    let is_short = chunk <= ALWAYS[0] && keys <= ALWAYS[1];
    let Some(machine) = device.machine().filter(|_| rule.step == Step::Descent && !is_short) else { return Ok(chain) };
    let fits = |chain: &Chain, keys: usize| {
        keys <= MOST_KEYS && chain.kernels.iter().all(|k| is_legal(k.declared(), machine, sizes, [chunk, keys]))
    };
    if let Some(fitting) = [chain, rule.wide_chain(), rule.chain()].into_iter().find(|chain| fits(chain, keys)) {
        return Ok(fitting);
    }
    // The longest in halves: more keys take more room.
    let (mut most, mut too_many) = (chunk.saturating_sub(1) / 8, keys.min(MOST_KEYS) / 8);
    while too_many > most + 1 {
        let half = usize::midpoint(most, too_many);
        *(if fits(chain, half * 8) { &mut most } else { &mut too_many }) = half;
    }
    let of = format!("{keys} keys of a chunk, for windows of {window} tokens and chunks of {chunk}");
    let (found, mend) = match (most * 8).checked_sub(chunk) {
        None => (
            format!("{of}, where {device} has no room for so many tokens of a chunk"),
            "take shorter chunks, or elements of 16 bits",
        ),
        Some(before) => (
            format!("{of}, where {device} has room for {} keys, which are windows of {} tokens", most * 8, before + 1),
            "take a shorter window, shorter chunks or elements of 16 bits",
        ),
    };
    Err(LaunchError::Choice { op: chain.name, found, mend }.into())
}

/// The chain for a memory of the caller's, where `chain` is that of [`chain_on`]: with Muon, the width of its hidden layer matters, too.
pub(super) fn chain_with(
    chain: &'static Chain,
    rule: &OmegaRule,
    sizes: &StreamSizes,
    memory: &[&mut Tensor],
) -> &'static Chain {
    if rule.step == Step::Descent {
        return chain;
    }
    let hidden = memory.first().and_then(|w| w.shape().get(3).copied()).unwrap_or(0);
    rule.chain_for_hidden(sizes.key, sizes.value, hidden, sizes.dtype)
}

/// More keys than any GPU has room for.
const MOST_KEYS: usize = 1 << 12;

/// Whether a kernel of a chain has a legal config. Of dims that are not used whole, only divisors matter; there are the usual ones.
fn is_legal(kernel: &'static KernelDef, machine: Machine, sizes: &StreamSizes, [chunk, keys]: [usize; 2]) -> bool {
    let size = |dim: &str| match dim {
        "B" => sizes.sequences,
        "H" => sizes.heads,
        "L" => chunk,
        "K" => keys,
        "W" => (keys + 1).saturating_sub(chunk),
        "D" => sizes.key,
        "E" => sizes.value,
        "C" => 1,
        // Tokens and hidden elements.
        _ => chunk.max(16).next_multiple_of(16),
    };
    let dims: Vec<u64> = kernel.dims.iter().map(|d| size(d.name).max(1) as u64).collect();
    let spec = kernel.specialization(sizes.dtype, &dims);
    choose_for(kernel, &spec, &dims, Some(machine)).chosen().is_some()
}
