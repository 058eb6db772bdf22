//! The kernels of each rule that has gradients.

use super::{
    omega_gated_query_backward, omega_gated_read_backward, omega_gated_states, omega_gated_train_backward,
    omega_key_backward, omega_linear_read_backward, omega_linear_states, omega_linear_train_backward,
    omega_mix_backward, omega_mlp_query_backward, omega_mlp_read_backward, omega_mlp_states, omega_mlp_train_backward,
    omega_normed_read_backward, omega_normed_states, omega_normed_train_backward,
};
use crate::omega::{
    MemoryForm, OMEGA_GATED, OMEGA_LINEAR, OMEGA_MLP, OMEGA_MUON, OMEGA_MUON_GATED, OMEGA_MUON_GATED_WIDE,
    OMEGA_MUON_LINEAR, OMEGA_MUON_LINEAR_WIDE, OMEGA_MUON_NORMED, OMEGA_MUON_NORMED_WIDE, OMEGA_MUON_WIDE,
    OMEGA_NORMED, OmegaRule, Read, Step, omega_mix,
};
use atlas_dsl::DType;
use atlas_dsl::def::Declared;
use atlas_runtime::{Chain, LaunchError, Result};

/// The kernels of a memory.
#[derive(Clone, Copy)]
pub(super) struct TrainedRule {
    pub(super) forward: &'static Chain,
    /// From the gates of a segment to all of its gradients: the first mixes, the second makes states; the last three train, add up
    /// what keys have, and go back to the gates.
    pub(super) backward: &'static [&'static dyn Declared],
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

static LINEAR: TrainedRule = TrainedRule {
    forward: &OMEGA_LINEAR,
    backward: &[
        &omega_mix,
        &omega_linear_states,
        &omega_linear_read_backward,
        &omega_linear_train_backward,
        &omega_key_backward,
        &omega_mix_backward,
    ],
    state: &["w", "s"],
    dy: "dy",
    parts: ONE,
};

pub(super) static MLP: TrainedRule = TrainedRule {
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
    state: &["w1", "w2", "s1", "s2"],
    dy: "dy",
    parts: ONE,
};

static GATED: TrainedRule = TrainedRule {
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
    state: &["w1", "w2", "w3", "s1", "s2", "s3"],
    dy: "dy",
    parts: TWO,
};

/// Behind its norm a memory is one of two layers.
static NORMED: TrainedRule = TrainedRule {
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
    state: &["w1", "w2", "s1", "s2"],
    dy: "dout",
    parts: ONE,
};

// With one orthogonalised step for each chunk: see `by_chunk`.
static MUON_LINEAR: TrainedRule = TrainedRule { forward: &OMEGA_MUON_LINEAR, ..LINEAR };
static MUON_MLP: TrainedRule = TrainedRule { forward: &OMEGA_MUON, ..MLP };
static MUON_GATED: TrainedRule = TrainedRule { forward: &OMEGA_MUON_GATED, ..GATED };
static MUON_NORMED: TrainedRule = TrainedRule { forward: &OMEGA_MUON_NORMED, ..NORMED };
// The same where the forward pass walks over matrices.
static MUON_LINEAR_WIDE: TrainedRule = TrainedRule { forward: &OMEGA_MUON_LINEAR_WIDE, ..LINEAR };
static MUON_MLP_WIDE: TrainedRule = TrainedRule { forward: &OMEGA_MUON_WIDE, ..MLP };
static MUON_GATED_WIDE: TrainedRule = TrainedRule { forward: &OMEGA_MUON_GATED_WIDE, ..GATED };
static MUON_NORMED_WIDE: TrainedRule = TrainedRule { forward: &OMEGA_MUON_NORMED_WIDE, ..NORMED };

impl TrainedRule {
    /// The kernels of a rule on a memory whose keys, values and hidden layer have these sizes.
    pub(super) fn of(rule: &OmegaRule, [key, value, hidden]: [usize; 3], dtype: DType) -> Result<&'static TrainedRule> {
        let forward = rule.chain_for_hidden(key, value, hidden, dtype);
        let walks = !std::ptr::eq(forward, rule.chain());
        match (rule.memory, rule.step, rule.read) {
            (MemoryForm::Linear, Step::Descent, _) => Ok(&LINEAR),
            (MemoryForm::Mlp, Step::Descent, _) => Ok(&MLP),
            (MemoryForm::Gated, Step::Descent, _) => Ok(&GATED),
            (MemoryForm::Normed { .. }, Step::Descent, _) => Ok(&NORMED),
            (MemoryForm::Linear, Step::MuonByChunk, Read::Before) if walks => Ok(&MUON_LINEAR_WIDE),
            (MemoryForm::Linear, Step::MuonByChunk, Read::Before) => Ok(&MUON_LINEAR),
            (MemoryForm::Mlp, Step::MuonByChunk, Read::Before) if walks => Ok(&MUON_MLP_WIDE),
            (MemoryForm::Mlp, Step::MuonByChunk, Read::Before) => Ok(&MUON_MLP),
            (MemoryForm::Gated, Step::MuonByChunk, Read::Before) if walks => Ok(&MUON_GATED_WIDE),
            (MemoryForm::Gated, Step::MuonByChunk, Read::Before) => Ok(&MUON_GATED),
            (MemoryForm::Normed { .. }, Step::MuonByChunk, Read::Before) if walks => Ok(&MUON_NORMED_WIDE),
            (MemoryForm::Normed { .. }, Step::MuonByChunk, Read::Before) => Ok(&MUON_NORMED),
            _ => {
                let found = format!("{:?} that reads {:?}", rule.step, rule.read);
                let mend =
                    "gradients are of rules by descent, and of those with a step for each chunk that read before it";
                Err(LaunchError::Choice { op: "omega_training", found, mend }.into())
            }
        }
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
    use super::{MemoryForm, OmegaRule, Read, Step, TrainedRule};
    use crate::omega::Chunking;
    use atlas_dsl::{DType, KernelDef};
    use atlas_runtime::choose_for;

    /// Heads of 128 elements, as large models have them, and all monomials up to degree 2 of 16 numbers: no GPU holds their matrices.
    #[test]
    fn gpus_run_the_forward_pass_of_wide_memories() {
        let rule =
            OmegaRule { read: Read::Before, step: Step::MuonByChunk, ..OmegaRule::omega_net(Chunking::new(64, 16)) };
        for memory in [MemoryForm::Linear, MemoryForm::Mlp, MemoryForm::Gated, MemoryForm::Normed { eps: 0.01 }] {
            let rule = OmegaRule { memory, ..rule };
            for [key, value, width] in [[64, 64, 256], [128, 128, 512], [152, 16, 64]] {
                let hidden = if memory == MemoryForm::Linear { 0 } else { width };
                let sizes = [key, value, hidden];
                let inner = if hidden == 0 { key } else { hidden };
                let size = |name: &str| match name {
                    "B" | "C" => 2,
                    "H" => 4,
                    "N" | "P" => 128,
                    "L" => 64,
                    "K" => 80,
                    "W" => 16,
                    "D" => key as u64,
                    "E" => value as u64,
                    "M" => hidden as u64,
                    "I" => 2,
                    "R" => value.min(inner) as u64,
                    "Q" => value.max(inner) as u64,
                    "U" => hidden.min(key) as u64,
                    _ => hidden.max(key) as u64,
                };
                let is_legal = |kernel: &'static KernelDef| {
                    let dims: Vec<u64> = kernel.dims.iter().map(|d| size(d.name)).collect();
                    let spec = kernel.specialization(DType::Bf16, &dims);
                    choose_for(kernel, &spec, &dims, "sm_89".parse().ok()).chosen().is_some()
                };
                let forward = TrainedRule::of(&rule, sizes, DType::Bf16).unwrap().forward;
                let kernel = forward.kernels[1].declared();
                assert!(is_legal(kernel), "{} {sizes:?}", kernel.name);
                if key > 96 {
                    assert!(!is_legal(rule.chain().kernels[1].declared()) || memory == MemoryForm::Linear, "{sizes:?}");
                }
            }
        }
    }
}
