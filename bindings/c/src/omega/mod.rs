//! The Omega rule: which chain computes it, its training, its streams of tokens, and packed documents.
//!
//! | file | holds |
//! |---|---|
//! | `rule` | rules as C writes them, and their chains |
//! | `tensors` | tokens, memories and gradients as C gives them |
//! | `training` | forward and backward passes |
//! | `stream` | sequences that come in pieces |
//! | `packed` | documents one after the other |
//! | `shared` | the handles, as threads share them, and what runs on them |

mod packed;
mod rule;
mod shared;
mod stream;
mod tensors;
mod training;

pub use packed::{
    AtlasOmegaPacked, atlas_omega_packed_bytes, atlas_omega_packed_close, atlas_omega_packed_launch,
    atlas_omega_packed_open,
};
pub use rule::{AtlasOmega, AtlasOmegaRule, atlas_omega_chain};
pub(crate) use rule::{MEMORIES, RuleSizes, STEPS, chain_of, rule_of};
pub(crate) use shared::{Backward, Forward, Packed, Pieces, Push, Training};
pub use stream::{
    AtlasOmegaStream, atlas_omega_stream_bytes, atlas_omega_stream_close, atlas_omega_stream_open,
    atlas_omega_stream_push, atlas_omega_stream_restart,
};
pub use tensors::{AtlasOmegaGradients, AtlasOmegaTokens};
pub use training::{
    AtlasOmegaTraining, atlas_omega_training_backward, atlas_omega_training_bytes, atlas_omega_training_close,
    atlas_omega_training_forward, atlas_omega_training_open, atlas_omega_training_segments,
};
