//! The kernels and chains that ship with Atlas. Naming them here links them, in a static library too, whose linker takes what is named
//! alone.

use crate::calls::NamedChain;
use atlas::kernel::KernelDef;

macro_rules! shipped {
    ($($($part:ident)::+),* $(,)?) => {
        /// The kernels of Atlas's public interface.
        pub(crate) fn shipped() -> Vec<&'static KernelDef> {
            vec![$(&$($part)::+),*]
        }

        $(crate::export!(@one [] $($part)::+);)*
    };
}

macro_rules! shipped_chains {
    ($($($part:ident)::+),* $(,)?) => {
        /// The chains of Atlas's public interface.
        pub(crate) fn shipped_chains() -> Vec<&'static NamedChain> {
            vec![$({
                static CHAIN: NamedChain = NamedChain::new(&$($part)::+);
                &CHAIN
            }),*]
        }

        $(crate::export_chains!(@one [] $($part)::+);)*
    };
}

shipped!(
    atlas::ops::attention,
    atlas::ops::batched_matmul,
    atlas::ops::block_attention,
    atlas::ops::copy,
    atlas::ops::inverse,
    atlas::ops::linear_gelu,
    atlas::ops::linear_gelu_residual,
    atlas::ops::linear_gelu_train,
    atlas::ops::linear_relu_residual,
    atlas::ops::linear_residual,
    atlas::ops::linear_row_scale,
    atlas::ops::linear_silu_residual,
    atlas::ops::linear_square_sums,
    atlas::ops::log_sum_exp,
    atlas::ops::matmul,
    atlas::ops::matmul_add,
    atlas::ops::matmul_bf16x3,
    atlas::ops::matmul_tf32,
    atlas::ops::matmul_tf32x3,
    atlas::ops::newton_schulz_small,
    atlas::ops::rms_norm,
    atlas::ops::rotary_halves,
    atlas::ops::rotary_interleaved,
    atlas::ops::short_conv,
    atlas::ops::short_conv_input_grad,
    atlas::ops::short_conv_weight_grad,
    atlas::ops::softmax,
    atlas::ops::swap_axes,
    atlas::ops::transpose,
    atlas::ops::window_sum,
    atlas::ops::windowed_attention,
    atlas::ops::delta::l2_norm,
    atlas::ops::features::favor_features,
    atlas::ops::features::fourier_features,
    atlas::ops::features::fourier_pairs,
    atlas::ops::features::monomials2,
    atlas::ops::features::monomials3,
    atlas::ops::features::poly1,
    atlas::ops::features::poly2,
    atlas::ops::features::poly3,
    atlas::ops::features::poly4,
    atlas::ops::features::powers2,
    atlas::ops::features::powers3,
    atlas::ops::features::rbf_features,
    atlas::ops::features::taylor2_features,
    atlas::ops::memory::fused_descent,
    atlas::ops::memory::fused_forward,
    atlas::ops::memory::fused_optimization,
    atlas::ops::memory::lerp_forward,
    atlas::ops::memory::mag_forward,
    atlas::ops::memory::memory_input_grad,
    atlas::ops::memory::memory_read,
    atlas::ops::memory::memory_read_gated,
    atlas::ops::memory::memory_read_normed,
    atlas::ops::memory::memory_recall_gated,
    atlas::ops::memory::memory_recall_gated_wide,
    atlas::ops::memory::memory_recall_linear,
    atlas::ops::memory::memory_recall_linear_wide,
    atlas::ops::memory::memory_recall_mlp,
    atlas::ops::memory::memory_recall_mlp_wide,
    atlas::ops::memory::memory_recall_normed,
    atlas::ops::memory::memory_recall_normed_wide,
    atlas::ops::memory::memory_weight_grads,
    atlas::ops::omega::omega_decay_gates,
    atlas::ops::omega::omega_token_gates,
    atlas::ops::training::adamw,
    atlas::ops::training::adamw_rounded,
    atlas::ops::training::clip_factor,
    atlas::ops::training::column_sums,
    atlas::ops::training::cross_entropy,
    atlas::ops::training::embedding,
    atlas::ops::training::embedding_grad,
    atlas::ops::training::gelu_grad,
    atlas::ops::training::layer_combine,
    atlas::ops::training::layer_combine_grad,
    atlas::ops::training::layer_features,
    atlas::ops::training::layer_features_grad,
    atlas::ops::training::layer_gate,
    atlas::ops::training::layer_gate_grad,
    atlas::ops::training::layer_norm,
    atlas::ops::training::layer_norm_grad,
    atlas::ops::training::scaled_gate,
    atlas::ops::training::scaled_gate_grad,
    atlas::ops::training::silu_gate_grad,
    atlas::ops::training::silu_grad,
    atlas::ops::training::square_sums,
);

shipped_chains!(
    atlas::ops::ATTENTION_DECODE,
    atlas::ops::delta::GATED_DELTA_RULE,
    atlas::ops::delta::GATED_DELTA_RULE_SPLIT,
    atlas::ops::delta::TTT_LINEAR,
    atlas::ops::memory::MEMORY_GATED_GRAD,
    atlas::ops::memory::MEMORY_GRAD,
    atlas::ops::memory::MEMORY_GRAD_WITH_INPUT,
    atlas::ops::memory::WINDOW_LOSS,
    atlas::ops::omega::OMEGA_GATED,
    atlas::ops::omega::OMEGA_GATED_WIDE,
    atlas::ops::omega::OMEGA_LINEAR,
    atlas::ops::omega::OMEGA_LINEAR_WIDE,
    atlas::ops::omega::OMEGA_MLP,
    atlas::ops::omega::OMEGA_MLP_CLUSTER,
    atlas::ops::omega::OMEGA_MLP_SPLIT,
    atlas::ops::omega::OMEGA_MLP_WIDE,
    atlas::ops::omega::OMEGA_MUON,
    atlas::ops::omega::OMEGA_MUON_GATED,
    atlas::ops::omega::OMEGA_MUON_GATED_WIDE,
    atlas::ops::omega::OMEGA_MUON_LINEAR,
    atlas::ops::omega::OMEGA_MUON_LINEAR_WIDE,
    atlas::ops::omega::OMEGA_MUON_NORMED,
    atlas::ops::omega::OMEGA_MUON_NORMED_WIDE,
    atlas::ops::omega::OMEGA_MUON_TOKENS,
    atlas::ops::omega::OMEGA_MUON_TOKENS_GATED,
    atlas::ops::omega::OMEGA_MUON_TOKENS_GATED_WIDE,
    atlas::ops::omega::OMEGA_MUON_TOKENS_LINEAR,
    atlas::ops::omega::OMEGA_MUON_TOKENS_LINEAR_WIDE,
    atlas::ops::omega::OMEGA_MUON_TOKENS_NORMED,
    atlas::ops::omega::OMEGA_MUON_TOKENS_NORMED_WIDE,
    atlas::ops::omega::OMEGA_MUON_TOKENS_WIDE,
    atlas::ops::omega::OMEGA_MUON_WIDE,
    atlas::ops::omega::OMEGA_NORMED,
    atlas::ops::omega::OMEGA_NORMED_WIDE,
    atlas::ops::training::CLIP_FACTOR,
    atlas::ops::training::LAYER_COMBINE_GRAD,
    atlas::ops::training::LAYER_NORM_GRAD,
    atlas::ops::training::RMS_NORM_GRAD,
    atlas::ops::training::RMS_NORM_INPUT_GRAD,
    atlas::ops::training::RMS_NORM_RESIDUAL_GRAD,
    atlas::ops::training::RMS_NORM_RESIDUAL_INPUT_GRAD,
    atlas::ops::training::WINDOWED_ATTENTION_GRAD,
);
