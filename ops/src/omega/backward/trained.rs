//! The kernels of each rule that has gradients.

use super::sizes::TrainingSizes;
use super::{
    omega_gated_query_backward, omega_gated_read_backward, omega_gated_states, omega_gated_train_backward,
    omega_gated_wide_query_backward, omega_gated_wide_read_backward, omega_gated_wide_states,
    omega_gated_wide_train_backward, omega_key_backward, omega_linear_read_backward, omega_linear_states,
    omega_linear_train_backward, omega_linear_wide_read_backward, omega_linear_wide_states,
    omega_linear_wide_train_backward, omega_mix_backward, omega_mlp_query_backward, omega_mlp_read_backward,
    omega_mlp_states, omega_mlp_train_backward, omega_mlp_wide_query_backward, omega_mlp_wide_read_backward,
    omega_mlp_wide_states, omega_mlp_wide_train_backward, omega_normed_read_backward, omega_normed_states,
    omega_normed_train_backward, omega_normed_wide_read_backward, omega_normed_wide_states,
    omega_normed_wide_train_backward,
};
use crate::omega::room::{chain_on, has_config};
use crate::omega::{
    MemoryForm, OMEGA_GATED, OMEGA_LINEAR, OMEGA_MLP, OMEGA_NORMED, OmegaRule, Read, Step, StreamSizes, omega_mix,
};
use atlas_dsl::def::Declared;
use atlas_runtime::{Chain, Device, LaunchError, Machine, Result};

/// The kernels of a memory.
#[derive(Clone, Copy)]
pub(super) struct TrainedRule {
    pub(super) forward: &'static Chain,
    /// From the gates of a segment to all of its gradients: the first mixes, the second makes states; the last three train, add up
    /// what keys have, and go back to the gates.
    pub(super) backward: &'static [&'static dyn Declared],
    /// The same for rows of any width.
    backward_wide: &'static [&'static dyn Declared],
    /// The tensors of the state, weights first.
    pub(super) state: &'static [&'static str],
    /// The name that its kernels have for the gradients by what is read.
    pub(super) dy: &'static str,
    /// Dims that are numbers of parts: of `factors`, `queries` and `mixed`.
    pub(super) parts: [(&'static str, usize); 3],
}

/// Of a hidden row that comes of one product, and of two.
const ONE: [(&str, usize); 3] = [("F", 4), ("V", 2), ("R", 2)];
const TWO: [(&str, usize); 3] = [("F", 7), ("V", 3), ("R", 2)];

const LINEAR: TrainedRule = TrainedRule {
    forward: &OMEGA_LINEAR,
    backward: &[
        &omega_mix,
        &omega_linear_states,
        &omega_linear_read_backward,
        &omega_linear_train_backward,
        &omega_key_backward,
        &omega_mix_backward,
    ],
    backward_wide: &[
        &omega_mix,
        &omega_linear_wide_states,
        &omega_linear_wide_read_backward,
        &omega_linear_wide_train_backward,
        &omega_key_backward,
        &omega_mix_backward,
    ],
    state: &["w", "s"],
    dy: "dy",
    parts: ONE,
};

pub(super) const MLP: TrainedRule = TrainedRule {
    forward: &OMEGA_MLP,
    backward: &[
        &omega_mix,
        &omega_mlp_states,
        &omega_mlp_read_backward,
        &omega_mlp_query_backward,
        &omega_mlp_train_backward,
        &omega_key_backward,
        &omega_mix_backward,
    ],
    backward_wide: &[
        &omega_mix,
        &omega_mlp_wide_states,
        &omega_mlp_wide_read_backward,
        &omega_mlp_wide_query_backward,
        &omega_mlp_wide_train_backward,
        &omega_key_backward,
        &omega_mix_backward,
    ],
    state: &["w1", "w2", "s1", "s2"],
    dy: "dy",
    parts: ONE,
};

const GATED: TrainedRule = TrainedRule {
    forward: &OMEGA_GATED,
    backward: &[
        &omega_mix,
        &omega_gated_states,
        &omega_gated_read_backward,
        &omega_gated_query_backward,
        &omega_gated_train_backward,
        &omega_key_backward,
        &omega_mix_backward,
    ],
    backward_wide: &[
        &omega_mix,
        &omega_gated_wide_states,
        &omega_gated_wide_read_backward,
        &omega_gated_wide_query_backward,
        &omega_gated_wide_train_backward,
        &omega_key_backward,
        &omega_mix_backward,
    ],
    state: &["w1", "w2", "w3", "s1", "s2", "s3"],
    dy: "dy",
    parts: TWO,
};

/// Behind its norm a memory is one of two layers.
const NORMED: TrainedRule = TrainedRule {
    forward: &OMEGA_NORMED,
    backward: &[
        &omega_mix,
        &omega_normed_states,
        &omega_normed_read_backward,
        &omega_mlp_read_backward,
        &omega_mlp_query_backward,
        &omega_normed_train_backward,
        &omega_key_backward,
        &omega_mix_backward,
    ],
    backward_wide: &[
        &omega_mix,
        &omega_normed_wide_states,
        &omega_normed_wide_read_backward,
        &omega_mlp_wide_read_backward,
        &omega_mlp_wide_query_backward,
        &omega_normed_wide_train_backward,
        &omega_key_backward,
        &omega_mix_backward,
    ],
    state: &["w1", "w2", "s1", "s2"],
    dy: "dout",
    parts: ONE,
};

impl TrainedRule {
    /// The kernels of a rule for a training on a device. Those that hold whole rows are taken if the device has room for them.
    pub(super) fn of(device: &Device, rule: &OmegaRule, sizes: &TrainingSizes) -> Result<TrainedRule> {
        let of_memory = match rule.memory {
            MemoryForm::Linear => LINEAR,
            MemoryForm::Mlp => MLP,
            MemoryForm::Gated => GATED,
            MemoryForm::Normed { .. } => NORMED,
        };
        let TrainingSizes { sequences, tokens: piece, heads, key, value, hidden, dtype } = *sizes;
        let forward = match (rule.step, rule.read) {
            (Step::Descent, _) => chain_on(device, rule, &StreamSizes { sequences, heads, key, value, piece, dtype })?,
            // See `by_chunk`.
            (Step::MuonByChunk, Read::Before) => rule.chain_for_hidden(key, value, hidden, dtype),
            _ => {
                let found = format!("{:?} that reads {:?}", rule.step, rule.read);
                let mend =
                    "gradients are of rules by descent, and of those with a step for each chunk that read before it";
                return Err(LaunchError::Choice { op: "omega_training", found, mend }.into());
            }
        };
        Ok(TrainedRule { forward, ..of_memory }.with_room(device.machine(), rule, sizes))
    }

    /// The same, with kernels for rows of any width if a machine has no room for whole rows.
    fn with_room(self, machine: Option<Machine>, rule: &OmegaRule, sizes: &TrainingSizes) -> TrainedRule {
        let fits = machine.is_none_or(|machine| self.fits(machine, rule, sizes));
        if fits { self } else { TrainedRule { backward: self.backward_wide, ..self } }
    }

    /// Whether each of its kernels has a config for a machine.
    fn fits(&self, machine: Machine, rule: &OmegaRule, sizes: &TrainingSizes) -> bool {
        let dims = self.dims(rule, sizes, 1);
        // Of tokens, which are not used whole, only a divisor matters.
        let tokens = [("N", 16), ("P", 16)];
        let size = |dim: &str| dims.iter().chain(&tokens).find(|(name, _)| *name == dim).map(|(_, size)| *size);
        self.backward.iter().all(|kernel| has_config(kernel.declared(), machine, sizes.dtype, size))
    }

    /// The sizes of all dims of its kernels but those of tokens, by name. A segment has `chunks` chunks.
    pub(super) fn dims(&self, rule: &OmegaRule, sizes: &TrainingSizes, chunks: usize) -> Vec<(&'static str, usize)> {
        let own = [
            ("B", sizes.sequences),
            ("H", sizes.heads),
            ("C", chunks),
            ("L", rule.chunking.chunk),
            ("K", rule.chunking.keys()),
            ("W", rule.chunking.window),
            ("D", sizes.key),
            ("E", sizes.value),
            ("M", sizes.hidden),
        ];
        own.into_iter().chain(self.parts).collect()
    }

    /// Whether its memory has a norm inside.
    pub(super) fn is_normed(&self) -> bool {
        self.forward.params().iter().any(|p| p.name() == "norm")
    }
}

/// The name of a gradient.
pub(super) fn gradient(name: &str) -> String {
    format!("d{name}")
}

#[cfg(test)]
mod tests {
    use super::{GATED, LINEAR, MLP, MemoryForm, NORMED, OmegaRule, Read, Step, TrainingSizes, has_config};
    use crate::omega::Chunking;
    use atlas_dsl::{DType, KernelDef};
    use atlas_runtime::Machine;

    /// Keys, values and hidden elements: of heads as large models have them, of all monomials up to degree 2 of 16, 23 and 64
    /// numbers, and of heads that are wide themselves.
    const SIZES: [[usize; 3]; 6] =
        [[64, 64, 256], [128, 128, 512], [152, 16, 64], [300, 64, 256], [2144, 64, 256], [256, 200, 1024]];

    fn sizes([key, value, hidden]: [usize; 3], dtype: DType) -> TrainingSizes {
        TrainingSizes { sequences: 2, tokens: 128, heads: 4, key, value, hidden, dtype }
    }

    #[test]
    fn gpus_run_the_backward_pass_of_wide_memories() {
        let rule = OmegaRule::omega_net(Chunking::new(64, 16));
        // Of all targets it has the least shared memory.
        let machine: Machine = "sm_89".parse().unwrap();
        let mut whole = 0;
        for trained in [LINEAR, MLP, GATED, NORMED] {
            for (of, dtype) in SIZES.into_iter().flat_map(|of| [DType::F32, DType::Bf16].map(|dtype| (of, dtype))) {
                let found = trained.with_room(Some(machine), &rule, &sizes(of, dtype));
                assert!(found.fits(machine, &rule, &sizes(of, dtype)), "{:?} {of:?} {dtype}", found.state);
                whole += usize::from(std::ptr::eq(found.backward, trained.backward));
                if of[0] > 2000 {
                    assert!(!std::ptr::eq(found.backward, trained.backward), "{of:?}");
                }
            }
            assert!(std::ptr::eq(
                trained.with_room(None, &rule, &sizes(SIZES[5], DType::F32)).backward,
                trained.backward
            ));
        }
        assert!(whole > 0);
    }

    /// No GPU holds the matrices of Muon for these.
    #[test]
    fn gpus_run_the_forward_pass_of_wide_memories() {
        let rule =
            OmegaRule { read: Read::Before, step: Step::MuonByChunk, ..OmegaRule::omega_net(Chunking::new(64, 16)) };
        for memory in [MemoryForm::Linear, MemoryForm::Mlp, MemoryForm::Gated, MemoryForm::Normed { eps: 0.01 }] {
            let rule = OmegaRule { memory, ..rule };
            for [key, value, width] in SIZES.into_iter().take(3) {
                let hidden = if memory == MemoryForm::Linear { 0 } else { width };
                let size = |name: &str| match name {
                    "B" | "C" => Some(2),
                    "H" => Some(4),
                    "N" | "P" => Some(128),
                    "L" => Some(64),
                    "K" => Some(80),
                    "W" => Some(16),
                    "D" => Some(key),
                    "E" => Some(value),
                    "M" => Some(hidden),
                    _ => None,
                };
                let machine: Machine = "sm_89".parse().unwrap();
                let is_legal = |kernel: &'static KernelDef| has_config(kernel, machine, DType::Bf16, size);
                let of = [key, value, hidden];
                let forward = rule.chain_for_hidden(key, value, hidden, DType::Bf16);
                let kernel = forward.kernels[1].declared();
                assert!(is_legal(kernel), "{} {of:?}", kernel.name);
                if key > 96 {
                    assert!(!is_legal(rule.chain().kernels[1].declared()) || memory == MemoryForm::Linear, "{of:?}");
                }
            }
        }
    }
}
