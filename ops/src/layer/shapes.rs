//! Whether what a layer is given has the shapes and element types of its sizes: told by the names of fields, and before any launch.

use super::{Combine, ContextWeights, LAYER, LayerRule, LayerSizes, LayerTokens, LayerWeights, missing};
use crate::omega::MemoryForm;
use crate::pass::{check_tensor, tokens_of};
use atlas_dsl::DType;
use atlas_runtime::{Device, LaunchError, Result, Tensor};

/// Names of the matrices of a memory.
const MEMORY: [&str; 3] = ["memory[0]", "memory[1]", "memory[2]"];

/// Names of fields of a piece: a matrix of the memory has the number of a query, key or value, too.
const TOKENS: [&str; 3] = ["tokens.memory[0]", "tokens.memory[1]", "tokens.memory[2]"];
const GATES: [&str; 3] = ["tokens.gates[0]", "tokens.gates[1]", "tokens.gates[2]"];
const ATTENTION: [&str; 3] = ["tokens.attention[0]", "tokens.attention[1]", "tokens.attention[2]"];
const GAMMA: &str = "tokens.gamma";

/// Fails for sizes of which a layer has none: no heads or heads of no elements, a window, a piece or a segment of no tokens, and
/// segments that are not whole chunks.
pub(super) fn check_sizes(sizes: &LayerSizes, rule: &LayerRule) -> Result<()> {
    let refuse = |found: String, mend: &'static str| Err(LaunchError::Choice { op: LAYER, found, mend }.into());
    if sizes.heads == 0 || sizes.width == 0 {
        let found = format!("{} heads of {} elements", sizes.heads, sizes.width);
        return refuse(found, "give `LayerSizes::heads` and `LayerSizes::width` 1 or more");
    }
    if sizes.piece == 0 {
        return refuse("pieces of 0 tokens".to_owned(), "give `LayerSizes::piece` 1 token or more");
    }
    match rule.combine {
        Combine::Gate | Combine::Sequence if sizes.window == 0 => {
            refuse("an attention over a window of 0 keys".to_owned(), "give `LayerSizes::window` 1 key or more")
        }
        Combine::Context { segment } => {
            let chunk = rule.memory.chunking.chunk.max(1);
            if segment > 0 && segment.is_multiple_of(chunk) {
                return Ok(());
            }
            let found = format!("segments of {segment} tokens, with chunks of {chunk}");
            refuse(found, "make a segment of one or more whole chunks")
        }
        _ => Ok(()),
    }
}

/// Fails unless the weights that the layer reads fit it, and those are given, and no others, that its rule has.
pub(super) fn check_weights(
    device: &Device,
    sizes: &LayerSizes,
    rule: &LayerRule,
    weights: &LayerWeights,
) -> Result<()> {
    let (heads, width, of) = (sizes.heads, sizes.width, (device, sizes.dtype));
    let needs_context = matches!(rule.combine, Combine::Context { .. });
    check_given("context", needs_context, weights.context.is_some())?;
    check_given("inner_norm", matches!(rule.memory.memory, MemoryForm::Normed { .. }), weights.inner_norm.is_some())?;
    let norm = |name, w: &Tensor| check_tensor(LAYER, (name, w), of, ("[H, D]", &[heads, width]));
    norm("memory_norm", &weights.memory_norm)?;
    weights.inner_norm.iter().try_for_each(|w| norm("inner_norm", w))?;
    if rule.combine != Combine::Alone {
        // There may be any number of keys that every query sees.
        let keys = weights.prefix_keys.shape().get(1).copied().unwrap_or(0);
        for (name, w) in [("prefix_keys", &weights.prefix_keys), ("prefix_values", &weights.prefix_values)] {
            check_tensor(LAYER, (name, w), of, ("[H, S, D]", &[heads, keys, width]))?;
        }
    }
    if matches!(rule.combine, Combine::Gate | Combine::Context { .. }) {
        norm("attention_norm", &weights.attention_norm)?;
    }
    let row = heads.saturating_mul(width);
    for (name, w) in weights.context.iter().flat_map(ContextWeights::named) {
        match name {
            "context.norms[0]" | "context.norms[1]" => norm(name, w)?,
            _ => check_tensor(LAYER, (name, w), of, ("[H D, H D]", &[row, row]))?,
        }
    }
    Ok(())
}

/// Fails if a weight is missing, or given to a layer that has none.
fn check_given(param: &'static str, is_needed: bool, is_given: bool) -> Result<()> {
    match (is_needed, is_given) {
        (true, false) => Err(missing(param).into()),
        (false, true) => Err(LaunchError::UnknownTensor { kernel: LAYER, param }.into()),
        _ => Ok(()),
    }
}

/// Fails unless a memory has the matrices of its form, for all sequences and heads.
pub(super) fn check_memory(
    device: &Device,
    sizes: &LayerSizes,
    shapes: &[[usize; 2]],
    memory: &[Tensor],
) -> Result<()> {
    if memory.len() != shapes.len() {
        let plural = if memory.len() == 1 { "matrix" } else { "matrices" };
        let found = format!("a memory of {} {plural}, where the rule has {}", memory.len(), shapes.len());
        let mend = "give the matrices of `MemoryForm::matrices`";
        return Err(LaunchError::Choice { op: LAYER, found, mend }.into());
    }
    for ((name, w), [rows, columns]) in MEMORY.into_iter().zip(memory).zip(shapes) {
        let wanted = [sizes.sequences, sizes.heads, *rows, *columns];
        let dims = "[B, H, ..] of `MemoryForm::matrices`";
        check_tensor(LAYER, (name, w), (device, DType::F32), (dims, &wanted))?;
    }
    Ok(())
}

/// The tensors of a piece that the layer reads, by name.
pub(super) fn read_of<'t>(combine: Combine, tokens: &LayerTokens<'t>) -> Vec<(&'static str, &'t Tensor)> {
    // A context makes keys and values of its own.
    let own = if matches!(combine, Combine::Context { .. }) { 1 } else { 3 };
    let mut read: Vec<_> = TOKENS.into_iter().zip(tokens.memory).take(own).collect();
    read.extend(GATES.into_iter().zip(tokens.gates));
    read.push((GAMMA, tokens.gamma));
    if matches!(combine, Combine::Gate | Combine::Context { .. }) {
        read.extend(ATTENTION.into_iter().zip(tokens.attention));
    }
    read
}

/// The number of tokens of a piece. Fails unless all that the layer reads of it, and `y`, fit the layer.
pub(super) fn check_piece(
    device: &Device,
    (sizes, rule): (&LayerSizes, &LayerRule),
    tokens: &LayerTokens<'_>,
    y: &Tensor,
) -> Result<usize> {
    let LayerSizes { sequences, heads, width, dtype, .. } = *sizes;
    let (of, of_gates) = ((device, dtype), (device, DType::F32));
    let count = tokens_of(LAYER, (TOKENS[0], tokens.memory[0]))?;
    let window = rule.memory.chunking.window.max(1);
    for given in read_of(rule.combine, tokens).into_iter().chain([("y", y)]) {
        let wide = |width: usize| [sequences, count, heads, width];
        match given.0 {
            GAMMA => check_tensor(LAYER, given, of_gates, ("[B, T, H, W]", &wide(window)))?,
            name if GATES.contains(&name) => {
                check_tensor(LAYER, given, of_gates, ("[B, T, H]", &[sequences, count, heads]))?;
            }
            _ => check_tensor(LAYER, given, of, ("[B, T, H, D]", &wide(width)))?,
        }
    }
    Ok(count)
}
