//! The table of ops: a row for each, which its folder has.

use crate::problem::Op;
use crate::{
    activation_grad, adamw, attention, attention_decode, batched_matmul, block_attention, clip_factor, column_sums,
    copy, cross_entropy, embedding, fused_forward, gated_delta_rule, gated_memory, inverse, l2_norm, layer, layer_grad,
    linear_gelu, linear_gelu_train, linear_residual, linear_row_scale, linear_square_sums, log_sum_exp, matmul,
    matmul_add, memory_grad, memory_read, memory_recall, monomials, muon, newton_schulz_small, omega, poly_features,
    random_features, rbf_features, rms_norm, rms_norm_grad, rotary, scaled_gate, short_conv, softmax, taylor_features,
    transpose, ttt_linear, window_sums, windowed_attention, windowed_attention_grad,
};

/// Every op, by name.
pub static OPS: [Op; 64] = [
    activation_grad::cases::OP,
    adamw::cases::OP,
    attention::cases::OP,
    attention_decode::cases::OP,
    batched_matmul::cases::OP,
    block_attention::cases::OP,
    clip_factor::cases::OP,
    clip_factor::cases::SUMS,
    column_sums::cases::OP,
    copy::cases::OP,
    cross_entropy::cases::OP,
    embedding::cases::GRADIENT,
    embedding::cases::OP,
    fused_forward::cases::OP,
    gated_delta_rule::cases::OP,
    gated_memory::cases::OP,
    inverse::cases::OP,
    l2_norm::cases::OP,
    layer::cases::OP,
    layer_grad::cases::OP,
    layer_grad::cases::WEIGHTS,
    linear_gelu::cases::OP,
    linear_gelu_train::cases::OP,
    linear_residual::cases::OP,
    linear_row_scale::cases::OP,
    linear_square_sums::cases::OP,
    log_sum_exp::cases::OP,
    matmul::cases::OP,
    matmul::precision_cases::BF16X3,
    matmul::precision_cases::TF32,
    matmul::precision_cases::TF32X3,
    matmul_add::cases::OP,
    memory_grad::cases::OP,
    memory_read::cases::OP,
    memory_recall::cases::OP,
    monomials::cases::OP,
    muon::cases::OP,
    newton_schulz_small::cases::OP,
    omega::backward::backward_cases::OMEGA_BACKWARD,
    omega::backward::step_cases::STEP,
    omega::backward::wide_cases::OMEGA_WIDE_BACKWARD,
    omega::backward::split_cases::OMEGA_SPLIT_BACKWARD,
    omega::cases::OMEGA,
    omega::cases::PACKING,
    omega::split_cases::OMEGA_SPLIT,
    omega::muon::muon_cases::BY_CHUNK,
    omega::muon::muon_cases::BY_TOKEN,
    poly_features::cases::OP,
    random_features::cases::OP,
    rbf_features::cases::OP,
    rms_norm::cases::OP,
    rms_norm_grad::cases::OP,
    rms_norm_grad::cases::WEIGHTS,
    rotary::cases::OP,
    scaled_gate::cases::OP,
    short_conv::cases::OP,
    softmax::cases::OP,
    taylor_features::cases::OP,
    transpose::cases::OP,
    ttt_linear::cases::OP,
    window_sums::cases::OP,
    windowed_attention::cases::OP,
    windowed_attention_grad::cases::OP,
    windowed_attention_grad::cases::PREFIX,
];

/// An op by name, or by the name of one of its kernels.
pub fn find(name: &str) -> Option<&'static Op> {
    OPS.iter().find(|op| op.name == name || op.defs().any(|k| k.name == name))
}

/// True if a kernel is one of an op, and not another of the same name.
pub fn ships(def: &atlas_dsl::KernelDef) -> bool {
    OPS.iter().flat_map(Op::defs).any(|k| std::ptr::eq(k, def))
}
