//! The kernels of each rule that has gradients.

use super::{
    omega_key_backward, omega_linear_read_backward, omega_linear_states, omega_linear_train_backward,
    omega_mix_backward, omega_mlp_query_backward, omega_mlp_read_backward, omega_mlp_states, omega_mlp_train_backward,
};
use crate::omega::{MemoryForm, OMEGA_LINEAR, OMEGA_MLP, OmegaRule, Step, omega_mix};
use atlas_dsl::def::Declared;
use atlas_runtime::{Chain, LaunchError, Result};

/// The kernels of a memory.
pub(super) struct TrainedRule {
    pub(super) forward: &'static Chain,
    /// From the gates of a segment to all of its gradients.
    pub(super) backward: &'static [&'static dyn Declared],
    /// The tensors of the state, weights first.
    pub(super) state: &'static [&'static str],
}

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
};

impl TrainedRule {
    /// The kernels of a rule.
    pub(super) fn of(rule: &OmegaRule) -> Result<&'static TrainedRule> {
        match (rule.memory, rule.step, rule.loss.predicts()) {
            (MemoryForm::Linear, Step::Descent, true) => Ok(&LINEAR),
            (MemoryForm::Mlp, Step::Descent, true) => Ok(&MLP),
            _ => {
                let found = format!("{:?} by {:?} for {:?}", rule.memory, rule.step, rule.loss);
                let mend =
                    "only linear memories and those of two layers, by descent, for losses of an error have gradients";
                Err(LaunchError::Choice { op: "omega_training", found, mend }.into())
            }
        }
    }
}

/// The name of a gradient.
pub(super) fn gradient(name: &str) -> String {
    format!("d{name}")
}
