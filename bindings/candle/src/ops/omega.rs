//! The Omega rule: a memory that learns while it reads.

use super::launch_chain;
use crate::apply3;
use crate::error::refuse;
use crate::operation::Operation;
use crate::rows::merge;
use atlas::args;
use atlas::device::Stream;
use atlas::kernel::{Arg, Chain, DType, Launch};
use atlas::ops::omega::{MemoryForm, OmegaRule, Read};
use candle_core::{Result, Tensor};

/// What the tokens of sequences bring.
#[derive(Clone, Copy, Debug)]
pub struct Tokens<'a> {
    /// Queries, `[B, N, H, D]`.
    pub q: &'a Tensor,
    /// Keys, `[B, N, H, D]`.
    pub k: &'a Tensor,
    /// Values, `[B, N, H, E]`.
    pub v: &'a Tensor,
    /// What is added to the memory's outputs for queries, `[B, N, H, E]`; zeros if it is left out.
    pub residual_q: Option<&'a Tensor>,
    /// The same for keys.
    pub residual_k: Option<&'a Tensor>,
}

/// How the memory steps with each token, in f32.
#[derive(Clone, Copy, Debug)]
pub struct Gates<'a> {
    /// The factor by which a token decays the memory, `[B, N, H]`.
    pub alpha: &'a Tensor,
    /// The factor by which it decays the momentum, `[B, N, H]`.
    pub theta: &'a Tensor,
    /// Its step size, `[B, N, H]`.
    pub eta: &'a Tensor,
    /// The weights of the tokens in its window, oldest first, `[B, N, H, W]`.
    pub gamma: &'a Tensor,
}

/// The memory of each sequence and head, in f32.
#[derive(Clone, Debug)]
pub struct Memory {
    /// `[B, H, E, D]` if it is linear, else `[B, H, E, M]` and one or two of `[B, H, M, D]`.
    pub weights: Vec<Tensor>,
    /// The momentum of each of them.
    pub momenta: Vec<Tensor>,
}

/// Lets the memory read all tokens and learn from them. Gives what the tokens read, `[B, N, H, E]`, and the memory behind the last one;
/// that which is given stays as it is. `norm`, `[H, E]`, is the weight of the norm of [`MemoryForm::Normed`]. There is no gradient.
///
/// # Errors
/// As a launch of the chain of the rule; if a tensor tracks gradients.
pub fn omega(
    rule: &OmegaRule,
    tokens: Tokens<'_>,
    gates: Gates<'_>,
    memory: &Memory,
    norm: Option<&Tensor>,
) -> Result<(Tensor, Memory)> {
    let Tokens { q, k, v, residual_q, residual_k } = tokens;
    let wrong = |what: &str, found: &[usize]| {
        refuse(603, format_args!("`{what}` of `omega`, but a tensor of shape {found:?} is given"))
    };
    let (sequences, count, heads, key) = q.dims4().map_err(|_| wrong("q` has dims [B, N, H, D]", q.dims()))?;
    let (_, _, _, value) = v.dims4().map_err(|_| wrong("v` has dims [B, N, H, E]", v.dims()))?;
    let hidden = match (rule.memory, memory.weights.first()) {
        (MemoryForm::Linear, _) | (_, None) => 0,
        (_, Some(first)) => first.dims4().map_err(|_| wrong("weights[0]` has dims [B, H, E, M]", first.dims()))?.3,
    };
    let rest = rule.memory.matrices(key, value, hidden).len();
    if (memory.weights.len(), memory.momenta.len()) != (rest, rest) {
        let (weights, momenta) = (memory.weights.len(), memory.momenta.len());
        return Err(refuse(
            601,
            format_args!(
                "a memory `{:?}` has {rest} weights and as many momenta, and {weights} and {momenta} are given to `omega`",
                rule.memory
            ),
        ));
    }
    if norm.is_some() != matches!(rule.memory, MemoryForm::Normed { .. }) {
        let (takes, given) = if norm.is_some() { ("no norm", "one") } else { ("a norm", "none") };
        return Err(refuse(
            601,
            format_args!("a memory `{:?}` takes {takes}, and {given} is given to `omega`", rule.memory),
        ));
    }
    let zeros = Tensor::zeros((1, 1, 1, 1), v.dtype(), v.device())?.broadcast_as((sequences, count, heads, value))?;
    let mut named = vec![
        ("rq", residual_q.unwrap_or(&zeros).clone()),
        ("rk", residual_k.unwrap_or(&zeros).clone()),
        ("alpha", gates.alpha.clone()),
        ("theta", gates.theta.clone()),
        ("eta", gates.eta.clone()),
        ("gamma", gates.gamma.clone()),
    ];
    named.extend(norm.map(|norm| ("norm", norm.clone())));
    let names: [[&'static str; 3]; 2] = match rule.memory {
        MemoryForm::Linear => [["w", "", ""], ["s", "", ""]],
        _ => [["w1", "w2", "w3"], ["s1", "s2", "s3"]],
    };
    let state: Vec<&'static str> = names.iter().flat_map(|names| &names[..rest]).copied().collect();
    named.extend(state.iter().copied().zip(memory.weights.iter().chain(&memory.momenta).cloned()));
    let operation = Omega { rule: *rule, named, state, hidden };
    let (y, mut weights) = apply3(operation, [q, k, v])?;
    let momenta = weights.split_off(rest);
    Ok((y, Memory { weights, momenta }))
}

struct Omega {
    rule: OmegaRule,
    /// The tensors behind `q`, `k` and `v`, by the names of parameters.
    named: Vec<(&'static str, Tensor)>,
    /// The names of those that the rule changes, which are the last ones.
    state: Vec<&'static str>,
    hidden: usize,
}

impl Omega {
    fn chain(&self, q: &atlas::Tensor, v: &atlas::Tensor) -> &'static Chain {
        let width = |of: &atlas::Tensor| of.shape().last().copied().unwrap_or(0);
        self.rule.chain_for_hidden(width(q), width(v), self.hidden, q.dtype())
    }
}

// SAFETY: it launches a chain that writes its results; the memory that is given is copied before it.
unsafe impl Operation<3> for Omega {
    fn name(&self) -> &'static str {
        "omega"
    }

    fn beside(&self) -> Vec<(&'static str, &Tensor)> {
        self.named.iter().map(|(name, tensor)| (*name, tensor)).collect()
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        let (q, v) = (&reads[0], &reads[2]);
        let mut read = q.shape().to_vec();
        if let (Some(last), Some(&value)) = (read.last_mut(), v.shape().last()) {
            *last = value;
        }
        let state = &reads[reads.len() - self.state.len()..];
        let same = state.iter().map(|of| (of.dtype(), of.shape().to_vec()));
        Ok(std::iter::once((v.dtype(), read)).chain(same).collect())
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        let (q, v) = (&reads[0], &reads[2]);
        let chain = self.chain(q, v);
        let chunking = self.rule.chunking;
        let chunks = chunking.chunks(q.shape().get(1).copied().unwrap_or(0));
        for (given, copy) in reads[reads.len() - self.state.len()..].iter().zip(&writes[1..]) {
            atlas::ops::copy.launch_on(stream, args!(merge(given, 3)?, &mut merge(copy, 3)?))?;
        }
        let read = |name: &str| match name {
            "q" => Some(0),
            "k" => Some(1),
            "v" => Some(2),
            _ => self.named.iter().position(|(named, _)| *named == name).map(|at| at + 3),
        };
        let whole = |of: usize| Arg::I64(i64::try_from(of).unwrap_or(i64::MAX));
        let mut written: Vec<(&str, &mut atlas::Tensor)> =
            std::iter::once("y").chain(self.state.iter().copied()).zip(writes).collect();
        let mut args = Vec::new();
        for param in chain.params() {
            let name = param.name();
            args.push(match name {
                "before" => Arg::I32((self.rule.read == Read::Before).into()),
                "commit" => whole(chunks),
                "chunk" => whole(chunking.chunk.max(1)),
                "scale" => Arg::F32(self.rule.loss.factor(v.shape().last().copied().unwrap_or(0))),
                "predicts" => Arg::I32(self.rule.loss.predicts().into()),
                "eps" => Arg::F32(match self.rule.memory {
                    MemoryForm::Normed { eps } => eps,
                    _ => 0.0,
                }),
                _ => match (written.iter().position(|(of, _)| *of == name), read(name)) {
                    (Some(at), _) => Arg::Out(written.swap_remove(at).1),
                    (None, Some(at)) => Arg::In(&reads[at]),
                    // The launch says which argument is missing.
                    (None, None) => continue,
                },
            });
        }
        let sizes = [("C", chunks), ("L", chunking.chunk.max(1)), ("K", chunking.keys())];
        let open = chain.open_dims();
        let sizes: Vec<(&str, usize)> = sizes.into_iter().filter(|(name, _)| open.contains(name)).collect();
        launch_chain(chain, stream, &mut args, &sizes)
    }
}
