//! Whether a GPU has room for the keys of a chunk: a chain holds all of them at once, so windows and chunks may be too long for it.

use super::{Chunking, MemoryForm, OmegaRule, Step, StreamSizes};
use atlas_dsl::{DType, KernelDef};
use atlas_runtime::{Capability, Chain, Device, LaunchError, Machine, Result, RuntimeError, choose_for};

/// Every GPU has room for so many tokens of a chunk with so many keys, in any element type.
const ALWAYS: [usize; 2] = [64, 128];

/// The shortest chunk whose passes are worth a launch each.
const SPLIT_CHUNK: usize = 32;

/// Whether chunks are so long that a pass over one may be a launch on this device.
pub(super) fn is_worth_launches(device: &Device, rule: &OmegaRule) -> bool {
    let Chunking { chunk, .. } = rule.chunking;
    device.chooses_for().is_some() && chunk >= SPLIT_CHUNK && rule.chunking.keys() <= MOST_KEYS
}

/// Whether passes over a chunk should be launches because `programs`, one for each sequence and head, would leave at least half of the
/// multiprocessors idle.
pub(super) fn is_idle(device: &Device, rule: &OmegaRule, programs: usize) -> bool {
    let sms = device.chooses_for().map_or(0, |machine| machine.sms as usize);
    programs.saturating_mul(2) <= sms && is_worth_launches(device, rule)
}

/// The chain that computes the rule on a device: the one whose passes over a chunk are launches, on a GPU that [`is_idle`] if it has room for
/// that; or else that of [`OmegaRule::chain_for`], which fits the smallest GPU, or where its windows are too long, the other one.
///
/// Kernels of Muon hold whole matrices of the memory, whose size is not known here: [`chain_with`] takes it into account. Where keys are
/// too many for these, the chain is the one that walks over matrices, of any size.
///
/// # Errors
/// [`LaunchError::Choice`] for tokens of a type that no kernel takes, and where the device has room for none of these chains. It names the
/// longest window that fits.
pub(super) fn chain_on(device: &Device, rule: &OmegaRule, sizes: &StreamSizes) -> Result<&'static Chain> {
    let split = rule.split_chain().filter(|_| is_idle(device, rule, sizes.sequences.saturating_mul(sizes.heads)));
    // No config is legal for such tokens, which would read as a lack of room.
    if !matches!(sizes.dtype, DType::F32 | DType::Bf16 | DType::F16) {
        let found = format!("tokens of {}", sizes.dtype);
        return Err(
            LaunchError::Choice { op: rule.chain().name, found, mend: "take tokens of f32, bf16 or f16" }.into()
        );
    }
    let (chunk, keys) = (rule.chunking.chunk, rule.chunking.keys());
    let chain = rule.chain_for(sizes.key, sizes.value, sizes.dtype);
    let Some(machine) = device.chooses_for() else { return Ok(chain) };
    let fits = |chain: &Chain, [chunk, keys]: [usize; 2]| {
        keys <= MOST_KEYS && chain.kernels.iter().all(|k| is_legal(k.declared(), machine, sizes, [chunk, keys]))
    };
    if let Some(split) = split.filter(|split| fits(split, [chunk, keys])) {
        return Ok(split);
    }
    let others = match rule.step {
        Step::Descent => vec![rule.wide_chain(), rule.chain()],
        // Its keys are few enough: `chain_for` has seen to that.
        _ if std::ptr::eq(chain, rule.chain()) => return Ok(chain),
        _ => vec![],
    };
    // With Muon, a memory with a norm inside holds whole rows of values, which take room from keys.
    let holds_rows = rule.step != Step::Descent && matches!(rule.memory, MemoryForm::Normed { .. });
    let is_short = chunk <= ALWAYS[0] && keys <= ALWAYS[1] && !holds_rows;
    if is_short {
        return Ok(chain);
    }
    let chains: Vec<&'static Chain> = split.into_iter().chain([chain]).chain(others).collect();
    let fitting = |keys: usize| chains.iter().copied().find(|chain| fits(chain, [chunk, keys]));
    if let Some(fitting) = fitting(keys) {
        return Ok(fitting);
    }
    // Values that are too wide for any window are for the launch to refuse.
    if holds_rows && !fits(chain, [1, 8]) {
        return Ok(chain);
    }
    // More keys take more room, but whole tiles of keys less than some that fill none: 256 may fit where 200 do not. So the longest is
    // searched for among whole tiles first, in halves.
    let longest = |step: usize, from: usize, to: usize| {
        let (mut most, mut too_many) = (from / step, to.div_ceil(step));
        while too_many > most + 1 {
            let half = usize::midpoint(most, too_many);
            *(if fitting(half * step).is_some() { &mut most } else { &mut too_many }) = half;
        }
        most * step
    };
    let (below, above) = (chunk.saturating_sub(1), keys.min(MOST_KEYS));
    let whole = longest(64, below, above);
    let most = longest(8, whole.max(below), above.min(whole + 64));
    Err(refused(device, rule, fitting(most).unwrap_or(chain), most))
}

/// The error for too many keys of a chunk, where a device has room for so many by this chain.
fn refused(device: &Device, rule: &OmegaRule, chain: &'static Chain, most: usize) -> RuntimeError {
    let Chunking { chunk, window, .. } = rule.chunking;
    let of = format!("{} keys of a chunk, for windows of {window} tokens and chunks of {chunk}", rule.chunking.keys());
    let (found, mend) = match most.checked_sub(chunk) {
        None => (
            format!("{of}, where {device} has no room for so many tokens of a chunk"),
            "take shorter chunks, or elements of 16 bits",
        ),
        Some(before) => (
            format!("{of}, where {device} has room for {most} keys, which are windows of {} tokens", before + 1),
            "take a shorter window, shorter chunks or elements of 16 bits",
        ),
    };
    LaunchError::Choice { op: chain.name, found, mend }.into()
}

/// The chain for a memory with so many hidden elements, where `chain` is that of [`chain_on`]. Their number matters with Muon, and where
/// clusters of programs may take the place of launches over tiles.
pub(super) fn chain_with(
    chain: &'static Chain,
    device: &Device,
    rule: &OmegaRule,
    sizes: &StreamSizes,
    hidden: usize,
) -> &'static Chain {
    let StreamSizes { key, value, dtype, .. } = *sizes;
    if rule.step != Step::Descent {
        return rule.chain_for_hidden(key, value, hidden, dtype);
    }
    let is_split = rule.split_chain().is_some_and(|split| std::ptr::eq(chain, split));
    let has_room = || device.chooses_for().is_some_and(has_room_for_clusters);
    let clusters = || rule.cluster_chain(key, value, hidden, dtype).filter(|_| has_room());
    if is_split { clusters().unwrap_or(chain) } else { chain }
}

/// Shared memory of a CTA with which [`OmegaRule::cluster_chain`] has room for all that it takes. GPUs of consumers have 99 KiB, and a memory
/// of 64 x 256 with 80 keys a chunk takes 105.
const CLUSTER_SHARED_BYTES: u32 = 160 << 10;

fn has_room_for_clusters(machine: Machine) -> bool {
    machine.target().has(Capability::Clusters) && machine.cta_shared_bytes >= CLUSTER_SHARED_BYTES
}

/// More keys than any GPU has room for.
const MOST_KEYS: usize = 1 << 12;

/// Whether a kernel of a chain has a legal config. Of dims that are not used whole, only divisors matter; there are the usual ones.
fn is_legal(kernel: &'static KernelDef, machine: Machine, sizes: &StreamSizes, [chunk, keys]: [usize; 2]) -> bool {
    let size = |dim: &str| match dim {
        "B" => Some(sizes.sequences),
        "H" => Some(sizes.heads),
        "L" => Some(chunk),
        "K" => Some(keys),
        "W" => Some((keys + 1).saturating_sub(chunk)),
        "D" => Some(sizes.key),
        "E" => Some(sizes.value),
        "C" => Some(1),
        "N" | "P" | "M" => Some(chunk.max(16).next_multiple_of(16)),
        _ => None,
    };
    has_config(kernel, machine, sizes.dtype, size)
}

/// Whether a kernel has a legal config for a machine, where its dims have these sizes by name. Those of which the size is not known
/// follow from the kernel's requirements.
pub(super) fn has_config(
    kernel: &'static KernelDef,
    machine: Machine,
    dtype: DType,
    size: impl Fn(&str) -> Option<usize>,
) -> bool {
    let known = kernel.dims.iter().map(|d| size(d.name).map(|size| size.max(1) as u64)).collect();
    let dims: Vec<u64> = kernel.with_implied(known).into_iter().map(|size| size.unwrap_or(1)).collect();
    let spec = kernel.specialization(dtype, &dims);
    choose_for(kernel, &spec, &dims, Some(machine)).chosen().is_some()
}

#[cfg(test)]
mod tests {
    use super::{OmegaRule, has_config, has_room_for_clusters};
    use crate::omega::{Chunking, OMEGA_MLP_CLUSTER, omega_mlp_cluster_train};
    use atlas_dsl::DType;
    use atlas_runtime::Machine;

    /// Whether the kernel of clusters has a configuration for these keys of a chunk, width of rows and hidden elements.
    fn fits(arch: &str, [keys, width, hidden]: [usize; 3]) -> bool {
        let machine: Machine = arch.parse().unwrap();
        has_config(&omega_mlp_cluster_train, machine, DType::Bf16, |dim| match dim {
            "D" | "E" => Some(width),
            "K" => Some(keys),
            "M" => Some(hidden),
            _ => Some(16),
        })
    }

    #[test]
    fn clusters_have_room_for_all_that_takes_them() {
        let corners = [[49, 64, 512], [48, 64, 65], [49, 40, 511], [1, 64, 256], [49, 8, 512], [17, 56, 192]];
        for [window, width, hidden] in corners {
            let rule = OmegaRule::omega_net(Chunking::new(32, window));
            let keys = rule.chunking.keys();
            let chain = rule.cluster_chain(width, width, hidden, DType::Bf16).unwrap();
            assert!(std::ptr::eq(chain, &raw const OMEGA_MLP_CLUSTER));
            let archs = ["sm_90", "sm_90a", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"];
            for arch in archs.iter().filter(|arch| has_room_for_clusters(arch.parse().unwrap())) {
                assert!(fits(arch, [keys, width, hidden]), "{keys} {width} {hidden} on {arch}");
            }
        }
        // A GPU of consumers has clusters, and no room for a usual memory.
        let has_room = ["sm_90", "sm_90a", "sm_100", "sm_120"].map(|arch| has_room_for_clusters(arch.parse().unwrap()));
        assert!(has_room == [true, true, true, false] && !fits("sm_120", [80, 64, 256]));
        // Older GPUs have no clusters, and no GPU runs more than eight programs together.
        assert!(!fits("sm_80", [80, 64, 256]) && !fits("sm_90", [80, 64, 1024]));
    }
}
