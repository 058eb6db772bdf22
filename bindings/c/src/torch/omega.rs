//! The Omega rule: what calls of its functions are made of, as `_omega.py` of the Python package has it.

use super::call::{Item, OperatorCall};
use super::values::{GivenValue, Tensor, tuple};
use super::views::View;
use crate::calls::Callee;
use crate::chains;
use crate::dlpack::DLDataType;
use crate::omega::{MEMORIES, STEPS, chain_of};
use crate::status::{Failure, Result};

/// How many matrices each memory has.
const MATRICES: [usize; 4] = [1, 2, 3, 2];
const F32: DLDataType = DLDataType { code: 2, bits: 32, lanes: 1 };

/// Tokens, in the order of the operators.
const TOKENS: [&str; 9] = ["q", "k", "v", "rq", "rk", "alpha", "theta", "eta", "gamma"];

/// A rule, as operators take it.
struct Rule<'a> {
    memory: &'a str,
    step: &'a str,
    chunk: i64,
    is_before: i64,
    scale: f64,
    predicts: i64,
    eps: f64,
}

impl<'a> Rule<'a> {
    fn at(call: &OperatorCall<'a>, number: usize) -> Result<Rule<'a>> {
        Ok(Rule {
            memory: call.text(number)?,
            step: call.text(number + 1)?,
            chunk: call.whole(number + 2)?,
            is_before: call.whole(number + 3)?,
            scale: call.real(number + 4)?,
            predicts: call.whole(number + 5)?,
            eps: call.real(number + 6)?,
        })
    }

    /// As the passes take it, with how far they go at once.
    fn numbers(&self, extent: i64) -> Vec<Item<'static>> {
        let place = |of: &[&str], name: &str| of.iter().position(|known| *known == name).map_or(-1, |i| i as i64);
        vec![
            place(&MEMORIES, self.memory).into(),
            place(&STEPS, self.step).into(),
            self.chunk.into(),
            extent.into(),
            self.is_before.into(),
            self.predicts.into(),
            self.scale.into(),
            self.eps.into(),
        ]
    }
}

/// What an operator is given of tokens and memory.
struct Given9<'a> {
    tokens: [&'a Tensor; 9],
    weights: &'a [Tensor],
    momenta: &'a [Tensor],
    norm: Option<&'a Tensor>,
    rule: Rule<'a>,
}

impl<'a> Given9<'a> {
    /// Tokens from one argument on, the memory from another one, and the rule behind it.
    fn new(op: &str, call: &OperatorCall<'a>, tokens: usize, memory: usize) -> Result<Given9<'a>> {
        let of = Given9 {
            tokens: tokens_at(call, tokens)?,
            weights: call.tensors(memory)?,
            momenta: call.tensors(memory + 1)?,
            norm: call.maybe(memory + 2)?,
            rule: Rule::at(call, memory + 3)?,
        };
        of.check_axes(op)?;
        of.check_memory(op)?;
        Ok(of)
    }

    /// Refuses tensors whose sizes nobody could name.
    fn check_axes(&self, op: &str) -> Result<()> {
        let [q, _, v, .., gamma] = self.tokens;
        let (q, v, gamma) = (q.sizes()?, v.sizes()?, gamma.sizes()?);
        let weights = self.weights.iter().map(Tensor::sizes).collect::<Result<Vec<_>>>()?;
        if [q, v, gamma].iter().all(|sizes| sizes.len() == 4) && weights.first().is_some_and(|w| w.len() == 4) {
            return Ok(());
        }
        let weights: Vec<String> = weights.iter().map(|w| tuple(w)).collect();
        Err(Failure::coded(
            603,
            format_args!(
                "`{op}` takes q and k [B, N, H, D], v [B, N, H, E], gamma [B, N, H, W] and weights [B, H, .., ..], and is given q {}, \
                 v {}, gamma {} and weights [{}]",
                tuple(q),
                tuple(v),
                tuple(gamma),
                weights.join(", ")
            ),
        ))
    }

    /// Refuses a rule that does not exist, and a memory that is not its.
    fn check_memory(&self, op: &str) -> Result<()> {
        let Rule { memory, step, .. } = self.rule;
        let Some(number) = MEMORIES.iter().position(|known| *known == memory) else {
            let known = MEMORIES.join(", ");
            return Err(Failure::misuse(format_args!("there is no memory `{memory}`; the memories are {known}")));
        };
        if !STEPS.contains(&step) {
            let known = STEPS.join(", ");
            return Err(Failure::misuse(format_args!("there is no step `{step}`; the steps are {known}")));
        }
        let (count, is_normed) = (MATRICES[number], memory == "normed");
        let found = (self.weights.len(), self.momenta.len(), self.norm.is_some());
        if found == (count, count, is_normed) {
            return Ok(());
        }
        let norm = |has: bool| if has { "a" } else { "no" };
        let (wanted, given) = (norm(is_normed), norm(found.2));
        Err(Failure::coded(
            601,
            format_args!(
                "a memory `{memory}` takes {count} weights, {count} momenta and {wanted} norm, but `{op}` is given {} weights, {} momenta \
                 and {given} norm",
                found.0, found.1
            ),
        ))
    }

    /// A copy of the memory, on which the rule works.
    fn copies(&self) -> Result<[Vec<Tensor>; 2]> {
        let copies = |of: &[Tensor]| of.iter().map(Tensor::copy).collect::<Result<Vec<_>>>();
        Ok([copies(self.weights)?, copies(self.momenta)?])
    }

    /// Room for what tokens read.
    fn read(&self, call: &OperatorCall<'_>) -> Result<Tensor> {
        let (&[b, n, h, _], &[.., e]) = (self.tokens[0].sizes()?, self.tokens[2].sizes()?) else {
            return Err(Failure::misuse("tokens have four axes"));
        };
        call.made(self.tokens[2], &[b, n, h, e], None)
    }
}

fn tokens_at<'a>(call: &OperatorCall<'a>, number: usize) -> Result<[&'a Tensor; 9]> {
    let mut tokens = [call.tensor(number)?; 9];
    for (i, token) in tokens.iter_mut().enumerate() {
        *token = call.tensor(number + i)?;
    }
    Ok(tokens)
}

fn views<'a>(of: impl IntoIterator<Item = &'a Tensor>) -> Result<Vec<Item<'a>>> {
    of.into_iter().map(|tensor| Ok(View::of(tensor)?.into())).collect()
}

/// A size for the library, which refuses those that are too large.
fn size(of: i64) -> usize {
    usize::try_from(of).unwrap_or(0)
}

/// `a / b`, rounded up.
fn pieces(a: i64, b: i64) -> i64 {
    a.saturating_add(b - 1) / b
}

fn chunk_of(rule: &Rule<'_>) -> Result<i64> {
    let refused =
        || Failure::coded(607, format_args!("`chunk` is a whole number from 1 on, and {} is given", rule.chunk));
    (rule.chunk >= 1).then_some(rule.chunk).ok_or_else(refused)
}

/// The rule on a copy of the memory. Shapes that do not fit are refused by the chain.
pub(super) fn omega(call: &OperatorCall<'_>) -> Result<Vec<GivenValue>> {
    let of = Given9::new("omega", call, 0, 9)?;
    let (rule, chunk) = (&of.rule, chunk_of(&of.rule)?);
    let last = |tensor: &Tensor| -> Result<usize> { Ok(size(tensor.sizes()?.last().copied().unwrap_or(0))) };
    let [q, _, v, .., gamma] = of.tokens;
    let hidden = if rule.memory == "linear" { 0 } else { last(&of.weights[0])? };
    let sizes = [last(q)?, last(v)?, hidden];
    let dtype = q.facts()?.tensor.dtype;
    let (chain, keys) = chain_of(rule.memory, rule.step, [size(chunk), last(gamma)?], sizes, dtype)?;
    let chain = chains::named(chain.name)?;
    let [weights, momenta] = of.copies()?;
    let y = of.read(call)?;
    let chunks = pieces(q.sizes()?[1], chunk);
    let given = |name: &str| -> Result<Item<'_>> {
        let numbered = |letter: char| Some(name.strip_prefix(letter)?.parse::<usize>().unwrap_or(1) - 1);
        let matrix = |letter: char, all: &'_ [Tensor]| numbered(letter).filter(|&i| i < all.len());
        Ok(match name {
            "y" => View::of(&y)?.into(),
            "norm" => View::of(of.norm.ok_or_else(|| Failure::misuse("a norm is missing"))?)?.into(),
            "before" => rule.is_before.into(),
            "commit" => chunks.into(),
            "chunk" => chunk.into(),
            "scale" => rule.scale.into(),
            "predicts" => rule.predicts.into(),
            "eps" => rule.eps.into(),
            _ => match TOKENS.iter().position(|token| *token == name) {
                Some(i) => View::of(of.tokens[i])?.into(),
                None => match (matrix('w', &weights), matrix('s', &momenta)) {
                    (Some(i), _) => View::of(&weights[i])?.into(),
                    (_, Some(i)) => View::of(&momenta[i])?.into(),
                    _ => return Err(Failure::misuse(format_args!("`{}` takes `{name}`", chain.name()))),
                },
            },
        })
    };
    let params = (0..chain.count()).filter_map(|i| chain.param(i));
    let mut items = params.map(|param| given(param.name)).collect::<Result<Vec<_>>>()?;
    for dim in chain.open() {
        items.push(match *dim {
            "C" => chunks.into(),
            "L" => chunk.into(),
            "K" => (keys as i64).into(),
            _ => return Err(Failure::misuse(format_args!("`{}` has a dim `{dim}`", chain.name()))),
        });
    }
    call.call(crate::tvm_ffi::Function::Chain(chain), items)?;
    Ok(vec![GivenValue::Tensor(y), GivenValue::Tensors(weights), GivenValue::Tensors(momenta)])
}

/// Chunks of a segment, about the square root of all if `segment` is 0, and how many segments there are.
fn segments(tokens: i64, chunk: i64, segment: i64) -> (i64, i64) {
    let chunks = pieces(tokens, chunk);
    let mut segment = segment;
    if segment == 0 {
        let mut root = 1;
        while root * root < chunks {
            root += 1;
        }
        segment = if chunks > 0 { pieces(chunks, pieces(chunks, root)) } else { 1 };
    }
    let segment = segment.clamp(1, chunks.max(1));
    (segment, pieces(chunks, segment))
}

/// The rule on a copy of the memory, with what its backward pass needs: the state before each segment.
pub(super) fn training(call: &OperatorCall<'_>) -> Result<Vec<GivenValue>> {
    let of = Given9::new("omega", call, 0, 9)?;
    let (length, count) = segments(of.tokens[0].sizes()?[1], chunk_of(&of.rule)?, call.whole(19)?);
    let mut kept = Vec::new();
    for matrix in of.weights.iter().chain(of.momenta) {
        let shape: Vec<i64> = [count].into_iter().chain(matrix.sizes()?.iter().copied()).collect();
        kept.push(call.made(matrix, &shape, None)?);
    }
    let [weights, momenta] = of.copies()?;
    let y = of.read(call)?;
    let mut items = of.rule.numbers(length);
    items.extend(views(of.tokens.into_iter().chain(of.norm).chain(&weights).chain(&momenta).chain([&y]).chain(&kept))?);
    call.launch("omega_forward", items)?;
    Ok(vec![
        GivenValue::Tensor(y),
        GivenValue::Tensors(weights),
        GivenValue::Tensors(momenta),
        GivenValue::Tensors(kept),
    ])
}

/// All gradients, those by tokens before those by the norm and by the memory. Some have room for whole chunks.
pub(super) fn training_backward(call: &OperatorCall<'_>) -> Result<Vec<GivenValue>> {
    let (dy, last, tokens) = (call.tensor(0)?, call.tensors(1)?, tokens_at(call, 2)?);
    let (norm, kept, rule, segment) = (call.maybe(11)?, call.tensors(12)?, Rule::at(call, 13)?, call.whole(20)?);
    let chunk = chunk_of(&rule)?;
    let &[_, n, ..] = tokens[0].sizes()? else { return Err(Failure::misuse("tokens have four axes")) };
    let (whole, (length, _)) = (pieces(n, chunk) * chunk, segments(n, chunk, segment));
    let padded = |of: &Tensor| {
        let mut sizes = of.sizes()?.to_vec();
        if let Some(tokens) = sizes.get_mut(1) {
            *tokens = whole;
        }
        call.made(dy, &sizes, Some(F32))
    };
    let same = |of: &Tensor| call.made(dy, of.sizes()?, Some(F32));
    let [q, k, v, _, rk, alpha, theta, eta, gamma] = tokens;
    let mut found = vec![padded(q)?, same(k)?, same(v)?, same(rk)?];
    for of in [alpha, theta, eta, gamma] {
        found.push(padded(of)?);
    }
    for of in norm.into_iter().chain(last) {
        found.push(same(of)?);
    }
    let mut items = rule.numbers(length);
    items.extend(views(tokens.into_iter().chain(norm).chain(kept).chain([dy]).chain(last).chain(&found))?);
    call.launch("omega_backward", items)?;
    Ok(vec![GivenValue::Tensors(found)])
}

/// The rule on a copy of the memories of documents.
pub(super) fn packed(call: &OperatorCall<'_>) -> Result<Vec<GivenValue>> {
    let of = Given9::new("omega_packed", call, 0, 10)?;
    let (starts, longest) = (call.tensor(9)?, call.whole(20)?);
    let [weights, momenta] = of.copies()?;
    let y = of.read(call)?;
    let mut items = of.rule.numbers(longest);
    items.extend(views(
        of.tokens.into_iter().chain(of.norm).chain([starts]).chain(&weights).chain(&momenta).chain([&y]),
    )?);
    call.launch("omega_packed", items)?;
    Ok(vec![GivenValue::Tensor(y), GivenValue::Tensors(weights), GivenValue::Tensors(momenta)])
}

#[cfg(test)]
mod tests {
    use super::segments;

    #[test]
    fn segments_are_about_the_square_root_of_all_chunks() {
        assert_eq!(segments(100, 4, 0), (5, 5));
        assert_eq!(segments(7, 4, 0), (2, 1));
        assert_eq!(segments(0, 4, 0), (1, 0));
        assert_eq!(segments(100, 4, 3), (3, 9));
        assert_eq!(segments(100, 4, 1000), (25, 1));
    }
}
