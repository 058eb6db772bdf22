//! The problems that are measured.

use crate::op::find;
use crate::problem::Problem;
use crate::verify_cases::model_problem;
use atlas_dsl::DType;

/// A problem to measure, and the name under which its result is kept.
pub struct Bench {
    /// The name in records.
    pub name: &'static str,
    /// The problem.
    pub problem: Problem,
}

/// The problems that `atlas bench` measures.
pub fn benches() -> Vec<Bench> {
    let rows: [(&str, &str, &[u64]); 88] = [
        ("poly3", "poly3", &[2_097_152, 64]),
        ("rms_norm", "rms_norm", &[32_768, 8192]),
        ("softmax", "softmax", &[32_768, 8192]),
        ("memory_read", "memory_read", &[512, 64, 64, 256]),
        ("newton_schulz_small", "newton_schulz_small", &[512, 64, 256]),
        ("newton_schulz_small_128x512", "newton_schulz_small", &[512, 128, 512]),
        ("newton_schulz_small_48x192", "newton_schulz_small", &[512, 48, 192]),
        ("memory_errors", "memory_errors", &[512, 64, 64, 256, 64]),
        ("memory_weight_grads", "memory_weight_grads", &[512, 64, 64, 256, 64]),
        ("memory_input_grad", "memory_input_grad", &[512, 64, 64, 256, 64]),
        ("memory_read_256x64", "memory_read", &[256, 256, 64, 256]),
        ("memory_read_256x128", "memory_read", &[256, 128, 128, 512]),
        ("memory_read_2000x48", "memory_read", &[128, 2000, 48, 192]),
        ("fused_forward", "fused_forward", &[128, 2048, 64, 256]),
        ("mag_forward", "mag_forward", &[128, 2048, 64, 256]),
        ("lerp_forward", "lerp_forward", &[128, 2048, 64, 256]),
        ("group_norm", "group_norm", &[128, 2048, 64]),
        ("silu_gate", "silu_gate", &[128, 2048, 64]),
        ("sigmoid_gate", "sigmoid_gate", &[128, 2048, 64]),
        ("lerp_gate", "lerp_gate", &[128, 2048, 64]),
        ("layer_features", "layer_features", &[8, 2048, 16, 64]),
        ("layer_norm", "layer_norm", &[8, 2048, 16, 64]),
        ("layer_gate", "layer_gate", &[8, 2048, 16, 64]),
        ("layer_combine", "layer_combine", &[8, 2048, 16, 64]),
        ("omega_copy_tokens", "omega_copy_tokens", &[8, 2048, 16, 64]),
        ("omega_copy_gates", "omega_copy_gates", &[8, 2048, 16]),
        ("ns_squares", "ns_squares", &[24, 1024, 4096]),
        ("ns_normalise", "ns_normalise", &[24, 1024, 4096]),
        ("ns_gram", "ns_gram", &[24, 1024, 4096]),
        ("ns_product", "ns_product", &[24, 1024]),
        ("ns_apply", "ns_apply", &[24, 1024, 4096]),
        ("muon_momentum", "muon_momentum", &[1024, 4096]),
        ("muon_apply", "muon_apply", &[1024, 4096]),
        ("matmul_2048", "matmul", &[2048, 2048, 2048]),
        ("matmul_4096", "matmul", &[4096, 4096, 4096]),
        ("matmul_8192", "matmul", &[8192, 8192, 8192]),
        ("matmul_skinny", "matmul", &[64, 4096, 4096]),
        ("linear_gelu", "linear_gelu", &[8192, 1024, 4096]),
        ("attention_128", "attention", &[64, 4096, 128, 4096]),
        ("attention_64", "attention", &[64, 4096, 64, 4096]),
        ("windowed_attention_4096", "windowed_attention", &[4, 4096, 16, 128, 4096, 16, 0]),
        ("windowed_attention_16384", "windowed_attention", &[2, 16384, 16, 128, 16384, 16, 0]),
        ("window_sum", "window_sum", &[16, 8192, 512]),
        ("token_losses", "token_losses", &[16, 8192, 512]),
        ("window_sum_eights", "window_sum_eights", &[16, 1024, 8, 512]),
        ("window_totals", "window_totals", &[16, 8192]),
        ("decode_parts", "decode_parts", &[64, 8, 4, 128, 2048, 4]),
        ("decode_join", "decode_join", &[64, 8, 4, 4, 128]),
        ("block_attention", "block_attention", &[4, 4096, 16, 128, 4096, 16, 64, 64]),
        ("taylor2", "taylor2_features", &[262_144, 64, 4161]),
        ("memory_read_gated", "memory_read_gated", &[512, 64, 64, 256, 64]),
        ("memory_read_normed", "memory_read_normed", &[512, 64, 64, 256, 64]),
        ("memory_gated_errors", "memory_gated_errors", &[512, 64, 64, 256, 64]),
        ("memory_gated_grads", "memory_gated_grads", &[512, 64, 64, 256, 64]),
        ("log_sum_exp", "log_sum_exp", &[8192, 32000]),
        ("log_sum_exp_odd", "log_sum_exp", &[8192, 50257]),
        ("log_sum_exp_128256", "log_sum_exp", &[2048, 128_256]),
        ("rotary", "rotary", &[32768, 32, 2, 64]),
        ("favor_features", "favor_features", &[2_097_152, 64, 256]),
        ("fourier_features", "fourier_features", &[2_097_152, 64, 256]),
        ("fourier_pairs", "fourier_pairs", &[2_097_152, 64, 256, 2]),
        ("rbf_features", "rbf_features", &[2_097_152, 64, 256]),
        ("transpose", "transpose", &[8192, 8192]),
        ("swap_axes", "swap_axes", &[16, 2048, 16, 64]),
        ("swap_axes_blocks", "swap_axes", &[64, 128, 64, 128]),
        ("monomials2", "monomials2", &[262_144, 64, 2145]),
        ("monomials3", "monomials3", &[65_536, 16, 969]),
        ("powers2", "powers2", &[262_144, 64]),
        ("powers3", "powers3", &[65_536, 16]),
        ("inverse", "inverse", &[256, 64]),
        ("omega_mix", "omega_mix", &[8, 2048, 16, 16, 32, 64, 80]),
        // In f32 the others have no room on every GPU.
        ("omega_mlp_short_chunks", "omega_mlp", &[8, 2048, 16, 64, 2048, 64, 128, 16, 24, 256]),
        ("omega_mlp", "omega_mlp", &[8, 2048, 16, 64, 2048, 64, 32, 64, 80, 256]),
        ("omega_mlp_48", "omega_mlp", &[8, 2048, 16, 48, 2048, 48, 32, 64, 80, 192]),
        ("omega_mlp_16_heads", "omega_mlp", &[1, 2048, 16, 64, 2048, 64, 32, 64, 80, 256]),
        ("omega_token_gates", "omega_token_gates", &[8, 2048, 16, 16]),
        ("omega_decay_gates", "omega_decay_gates", &[8, 2048, 16, 16]),
        ("omega_muon_32", "omega_muon", &[8, 2048, 16, 32, 2048, 32, 128, 24, 16, 128]),
        ("omega_muon", "omega_muon", &[8, 2048, 16, 64, 2048, 64, 32, 80, 64, 256]),
        ("omega_muon_tokens_32", "omega_muon_tokens", &[8, 32, 16, 32, 32, 32, 16, 128, 24]),
        ("omega_muon_tokens", "omega_muon_tokens", &[8, 32, 16, 64, 32, 64, 16, 256, 24]),
        ("omega_unpack_tokens", "omega_unpack_tokens", &[1, 16384, 16, 64, 16, 2048]),
        ("omega_unpack_gates", "omega_unpack_gates", &[1, 16384, 16, 16, 2048]),
        ("omega_pack_tokens", "omega_pack_tokens", &[16, 2048, 16, 64, 1, 16384]),
        ("fused_optimization_32", "fused_optimization", &[128, 64, 32, 32, 128]),
        ("fused_optimization", "fused_optimization", &[128, 64, 64, 64, 256]),
        ("fused_descent", "fused_descent", &[128, 64, 64, 64, 256]),
        ("omega_linear", "omega_linear", &[8, 2048, 16, 64, 2048, 64, 32, 64, 80]),
    ];
    let of_bf16 = rows.into_iter().map(|(name, kernel, dims)| (name, kernel, DType::Bf16, dims));
    // As it is used: of losses and of gradients.
    let of_f32: [(&str, &str, DType, &[u64]); 1] =
        [("window_sum_f32", "window_sum_eights", DType::F32, &[16, 1024, 8, 512])];
    of_bf16
        .chain(of_f32)
        .filter_map(|(name, kernel, dtype, dims)| Some(Bench { name, problem: model_problem(kernel, dtype, dims)? }))
        .collect()
}

/// The dims for which a kernel that ships here is usually compiled; empty for any other kernel.
pub fn usual_dims(kernel: &str) -> Vec<u64> {
    if let Some(bench) = benches().into_iter().find(|b| b.problem.kernel.name == kernel) {
        return bench.problem.dims;
    }
    find(kernel).map(|_| vec![2_097_152, 64]).unwrap_or_default()
}
