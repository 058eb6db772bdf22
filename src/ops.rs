//! The kernels that ship with Atlas, and what launches several of them. They are used like kernels of your own.
//!
//! Each page of a kernel has its formula and its parameters in the order of [`args!`](crate::args), with their shapes: `T` is any
//! of f32, f16 and bf16, an upper-case name in brackets is a dim whose size comes from the tensors. [`Launch`](crate::kernel::Launch)
//! says which errors a launch has.
//!
//! A kernel that was fused from others has the parameters of its parts, in the order in which they first appear:
//! `mag_forward.params` lists them. A name in upper case is a [`Chain`](crate::kernel::Chain) of kernels, and `Chain::params` lists
//! its arguments.

pub use atlas_ops::attention::attention;
/// One query a sequence over its past keys: parts of the keys, then their sum. The tensors between the two are the workspace.
pub use atlas_ops::attention_decode::ATTENTION_DECODE;
pub use atlas_ops::block_attention::block_attention;
pub use atlas_ops::inverse::inverse;
pub use atlas_ops::linear_gelu::linear_gelu;
pub use atlas_ops::log_sum_exp::log_sum_exp;
pub use atlas_ops::matmul::matmul;
pub use atlas_ops::newton_schulz_small::newton_schulz_small;
pub use atlas_ops::rms_norm::rms_norm;
pub use atlas_ops::rotary::rotary;
pub use atlas_ops::softmax::softmax;
pub use atlas_ops::transpose::{swap_axes, transpose};
pub use atlas_ops::window_sums::{sum_windows, window_sum};
pub use atlas_ops::windowed_attention::windowed_attention;

/// Feature maps: rows of numbers to rows of their features.
pub mod features {
    pub use atlas_ops::monomials::{count as monomial_count, monomials2, monomials3, powers2, powers3};
    pub use atlas_ops::poly_features::{poly1, poly2, poly3, poly4};
    pub use atlas_ops::random_features::{favor_features, fourier_features, fourier_pairs};
    pub use atlas_ops::rbf_features::rbf_features;
    pub use atlas_ops::taylor_features::taylor2_features;
}

/// Memories that are perceptrons: read, differentiated, and trained a chunk at a time.
pub mod memory {
    pub use atlas_ops::fused_forward::{fused_forward, lerp_forward, mag_forward};
    pub use atlas_ops::gated_memory::{MEMORY_GATED_GRAD, memory_read_gated, memory_read_normed};
    pub use atlas_ops::memory_grad::{MEMORY_GRAD, MEMORY_GRAD_WITH_INPUT};
    pub use atlas_ops::memory_read::memory_read;
    pub use atlas_ops::omega::{fused_descent, fused_optimization};
    pub use atlas_ops::window_sums::WINDOW_LOSS;
}

/// The Omega rule: a memory that is trained while its sequence is read, on the tokens of a sliding window.
pub mod omega {
    pub use atlas_ops::omega::{
        Chunking, OMEGA_LINEAR, OMEGA_MLP, OMEGA_MUON, OMEGA_MUON_TOKENS, OmegaPacked, OmegaStream, StreamRule,
        StreamSizes, Tokens, omega_decay_gates, omega_token_gates,
    };
}

/// Muon on matrices of any size: momentum, a Newton-Schulz iteration, and the step.
pub mod muon {
    pub use atlas_ops::muon::{Form, Muon, MuonMatrix, MuonSpace, MuonSpaces, NewtonSchulz, StepScale};
}

/// One layer of an ATLAS model but for its projections, on sequences that come in pieces of any lengths.
pub mod layer {
    pub use atlas_ops::layer::{AtlasLayer, Combine, LayerRule, LayerSizes, LayerTokens, LayerWeights};
}
