//! A layer in the middle of its sequences.

use super::context::Context;
use super::features::{Features, Side};
use super::past::{Past, Seen};
use super::shapes::{check_memory, check_piece, check_sizes, check_weights, read_of};
use super::{Combine, LAYER, LayerRule, LayerSizes, LayerTokens, LayerWeights, Residual, part_of};
use super::{layer_combine, layer_norm};
use crate::omega::{OmegaStream, StreamSizes, Tokens, copy_tokens, stream};
use crate::pass::{Pass, check_apart, is_same_view};
use atlas_dsl::DType;
use atlas_runtime::{Device, LaunchError, Result, Tensor, args};

/// Names of the tensors of a memory: weights, then momenta.
const MATRICES: [[&str; 3]; 2] = [["w1", "w2", "w3"], ["s1", "s2", "s3"]];

/// Where in its sequences a layer is.
struct LayerPlace {
    past: Seen,
    stream: stream::Place,
    context: Option<usize>,
}

/// A layer in the middle of its sequences.
pub struct AtlasLayer {
    device: Device,
    sizes: LayerSizes,
    rule: LayerRule,
    weights: LayerWeights,
    stream: OmegaStream,
    /// Weights, then momenta.
    memory: Vec<Tensor>,
    /// Features of keys and of queries.
    features: [Features; 2],
    past: Past,
    context: Option<Context>,
    /// Tokens of the piece that came last.
    last: usize,
    /// Of a piece: what the memory gives, its norm, what the attention gives.
    room: [Tensor; 3],
    /// A zero for each element of a token.
    nothing: Tensor,
}

impl AtlasLayer {
    /// A layer at the start of its sequences. `memory` are the weights of all sequences' and heads' memories, `[B, H, ..]` in
    /// f32, in the order and with the shapes of [`MemoryForm::matrices`](crate::omega::MemoryForm::matrices); the layer copies
    /// them, and momenta are 0.
    ///
    /// # Errors
    /// Those of [`Tensor::zeros`]; [`LaunchError::Choice`] for what the rule does not offer; [`LaunchError::MissingTensor`] and
    /// [`LaunchError::UnknownTensor`] of [`LayerWeights::context`] and [`LayerWeights::inner_norm`]; [`LaunchError::WrongRank`],
    /// [`LaunchError::WrongShape`] and [`LaunchError::WrongDType`] of weights and of a matrix of the memory, by the names of fields.
    pub fn new(
        device: &Device,
        sizes: LayerSizes,
        rule: LayerRule,
        weights: LayerWeights,
        memory: &[Tensor],
    ) -> Result<AtlasLayer> {
        // No part of a sequence is computed at once that reaches past a segment.
        let (segment, most) = match rule.combine {
            Combine::Context { segment } => (Some(segment), segment),
            _ => (None, usize::MAX),
        };
        check_sizes(&sizes, &rule)?;
        let sizes = LayerSizes { piece: sizes.piece.min(most), ..sizes };
        let LayerSizes { sequences, heads, width, hidden, piece, dtype, .. } = sizes;
        rule.features.check(device, width, dtype)?;
        let key = rule.features.features(width);
        if rule.residual == Residual::Features && key != width {
            let found = format!("{key} features as the residual of {width} numbers");
            return Err(LaunchError::Choice { op: LAYER, found, mend: "use Residual::Raw or Residual::None" }.into());
        }
        let shapes = rule.memory.memory.matrices(key, width, hidden);
        check_memory(device, &sizes, &shapes, memory)?;
        check_weights(device, &sizes, &rule, &weights)?;
        let tokens = || Tensor::zeros(device, dtype, [sequences, piece, heads, width]);
        let momentum = |w: &Tensor| Tensor::zeros(device, DType::F32, w.shape());
        let own = |w: &Tensor| -> Result<Tensor> {
            let mut copy = momentum(w)?;
            copy_tokens(Pass::Run, device, w, &mut copy)?;
            Ok(copy)
        };
        let copies: Vec<Tensor> = memory.iter().map(own).collect::<Result<_>>()?;
        let momenta: Vec<Tensor> = memory.iter().map(momentum).collect::<Result<_>>()?;
        let of = StreamSizes { sequences, heads, key, value: width, piece, dtype };
        let rows = sequences.saturating_mul(piece).saturating_mul(heads);
        let features = || Features::new(device, &rule.features, dtype, rows, width);
        let stream = OmegaStream::new(device, rule.memory, of)?;
        let context = |segment| Context::new(device, (sizes, segment), &rule, &weights, memory);
        let context = segment.map(context).transpose()?;
        let stream = match &weights.inner_norm {
            Some(norm) => stream.with_norm(norm.clone()),
            None => stream,
        };
        // A context keeps its own keys, and a memory alone has none.
        let has_window = matches!(rule.combine, Combine::Gate | Combine::Sequence);
        let past = if has_window { sizes } else { LayerSizes { window: 1, piece: 0, ..sizes } };
        Ok(AtlasLayer {
            device: device.clone(),
            sizes,
            weights,
            stream,
            memory: copies.into_iter().chain(momenta).collect(),
            features: [features()?, features()?],
            past: Past::new(device, past)?,
            context,
            last: 0,
            room: [tokens()?, tokens()?, tokens()?],
            nothing: Tensor::zeros(device, dtype, [1, 1, 1, 1])?,
            rule,
        })
    }

    /// The memory as it is: weights, then momenta. Tokens of a chunk that is not full have not changed it yet.
    pub fn memory(&self) -> &[Tensor] {
        &self.memory
    }

    /// What the memory gave for the first tokens of the piece that was computed last, before its norm: `[B, T, H, D]`. A push is
    /// computed in several pieces if it is longer than [`LayerSizes::piece`] or reaches past a segment of [`Combine::Context`].
    ///
    /// # Errors
    /// [`LaunchError::Choice`] if more tokens are asked for than that piece had, as before the first push.
    pub fn last_read(&self, tokens: usize) -> Result<Tensor> {
        let last = self.last;
        if tokens > last {
            let of = format!("`last_read` of {tokens} tokens");
            let (found, mend) = match last {
                0 => (format!("{of}, where no token has been pushed"), "push tokens first"),
                _ => (
                    format!("{of}, where the piece that was computed last has {last}"),
                    "ask for no more than these; a push is computed in pieces of at most `LayerSizes::piece` tokens",
                ),
            };
            return Err(LaunchError::Choice { op: LAYER, found, mend }.into());
        }
        part_of(&self.room[0], tokens)
    }

    /// Bytes that the layer holds on its device, its weights left out.
    pub fn bytes(&self) -> u64 {
        let of = |t: &Tensor| t.len() as u64 * u64::from(t.dtype().bytes());
        let own = self.memory.iter().chain(&self.room).chain(self.past.tensors()).chain([&self.nothing]);
        let features: u64 = self.features.iter().map(Features::bytes).sum();
        let context = self.context.as_ref().map_or(0, Context::bytes);
        self.stream.bytes() + features + context + own.map(of).sum::<u64>()
    }

    /// Computes the tokens that come next, and writes `y` `[B, T, H, D]`, which may be one of the tokens' tensors and shares no
    /// memory with what else is given. It may return before a GPU has done so. All launches are made ready before the first one
    /// runs.
    ///
    /// # Errors
    /// Those of [`Launch::launch`](atlas_runtime::Launch::launch); [`LaunchError::WrongRank`], [`LaunchError::WrongShape`] and
    /// [`LaunchError::WrongDType`] of `y` and of a field of [`LayerTokens`] that the layer reads. The layer and `y` are as they were
    /// then.
    pub fn push(&mut self, tokens: &LayerTokens<'_>, y: &mut Tensor) -> Result<()> {
        let count = check_piece(&self.device, (&self.sizes, &self.rule), tokens, y)?;
        self.check_apart(tokens, y)?;
        let parts = self.parts(count);
        let memory: Vec<&mut Tensor> = self.memory.iter_mut().collect();
        self.stream.reserve(&memory)?;
        let start = self.place();
        let prepared = self.pass(Pass::Prepare, tokens, y, &parts);
        self.go_back(start);
        prepared?;
        self.pass(Pass::Run, tokens, y, &parts)
    }

    /// Forgets the tokens so far: what comes next is the start of sequences. The memory is that of [`memory`](AtlasLayer::memory), which
    /// stays as the tokens have trained it.
    pub fn restart(&mut self) {
        self.stream.restart();
        self.past.restart();
        if let Some(context) = &mut self.context {
            context.restart();
        }
    }

    /// Tokens of the parts that so many tokens are computed in.
    fn parts(&self, count: usize) -> Vec<usize> {
        let piece = self.sizes.piece;
        match &self.context {
            Some(context) => context.parts(count),
            None => (0..count).step_by(piece).map(|from| piece.min(count - from)).collect(),
        }
    }

    fn place(&self) -> LayerPlace {
        let context = self.context.as_ref().map(Context::seen);
        LayerPlace { past: self.past.seen(), stream: self.stream.place(), context }
    }

    /// Goes back to where it was before a pass that only prepared.
    fn go_back(&mut self, place: LayerPlace) {
        self.stream.move_to(place.stream);
        self.past.go_back(place.past);
        if let Some((context, seen)) = self.context.as_mut().zip(place.context) {
            context.go_back(seen);
        }
    }

    /// Fails if tensors share memory where launches that write and read them lie apart.
    fn check_apart(&self, tokens: &LayerTokens<'_>, y: &Tensor) -> Result<()> {
        let given = read_of(self.rule.combine, tokens);
        // `last_read` gives a view of what the next push writes first, and `memory` what it trains.
        for own in self.room.iter().chain(&self.memory) {
            for of in given.iter().copied() {
                check_apart(LAYER, ("the layer's own tensors", own), of)?;
            }
        }
        for own in &self.room {
            check_apart(LAYER, ("y", y), ("the layer's own tensors", own))?;
        }
        for of in self.weights.named() {
            check_apart(LAYER, ("y", y), of)?;
        }
        // A piece of `y` is written after the same piece of the tokens has been read.
        for of in given.into_iter().filter(|of| !is_same_view(of.1, y)) {
            check_apart(LAYER, ("y", y), of)?;
        }
        let matrices = self.memory.len() / 2;
        for (i, memory) in self.memory.iter().enumerate() {
            check_apart(LAYER, ("y", y), (MATRICES[i / matrices][i % matrices], memory))?;
        }
        Ok(())
    }

    /// Goes over the launches of tokens that are checked, in parts.
    fn pass(&mut self, pass: Pass, tokens: &LayerTokens<'_>, y: &mut Tensor, parts: &[usize]) -> Result<()> {
        let mut from = 0;
        for count in parts {
            let to = from + count;
            let of = |t: &Tensor| t.slice(1, from..to);
            let [alpha, theta, eta] = [of(tokens.gates[0])?, of(tokens.gates[1])?, of(tokens.gates[2])?];
            let gates = [&alpha, &theta, &eta, &of(tokens.gamma)?];
            let attention = || Ok([of(tokens.attention[0])?, of(tokens.attention[1])?, of(tokens.attention[2])?]);
            let mut out = y.slice(1, from..to)?;
            if self.context.is_some() {
                self.pass_context(pass, &of(tokens.memory[0])?, attention()?.each_ref(), gates, &mut out)?;
            } else {
                let [q, k, v] = [of(tokens.memory[0])?, of(tokens.memory[1])?, of(tokens.memory[2])?];
                self.read_memory(pass, [&q, &k, &v], gates)?;
                self.combine(pass, attention, &mut out)?;
            }
            if pass == Pass::Run {
                self.last = to - from;
            }
            from = to;
        }
        Ok(())
    }

    /// A part of a segment whose attention sees what the memory recalls, and whose memory is trained on what the attention gives.
    fn pass_context(
        &mut self,
        pass: Pass,
        q: &Tensor,
        attention: [&Tensor; 3],
        gates: [&Tensor; 4],
        out: &mut Tensor,
    ) -> Result<()> {
        let count = out.shape()[1];
        let asked = self.shown(pass, Side::Queries, q)?;
        let Some(context) = &mut self.context else { return Ok(()) };
        context.recall(pass, &self.memory, asked.each_ref())?;
        let attended = context.attend(pass, attention, [&self.weights.prefix_keys, &self.weights.prefix_values])?;
        let taught = context.project_attended(pass, count)?;
        context.advance(count);
        self.read_memory(pass, taught.each_ref(), gates)?;
        let (memory, weights, eps) = (part_of(&self.room[0], count)?, &self.weights, self.rule.eps);
        let (wm, wa) = (&weights.memory_norm, &weights.attention_norm);
        pass.launch(&layer_combine, &self.device, args!(memory, wm, eps, attended, wa, &mut *out))
    }

    /// What the memory is shown of keys or queries: features, and what is added to what it makes of them.
    fn shown(&self, pass: Pass, side: Side, x: &Tensor) -> Result<[Tensor; 2]> {
        let room = &self.features[usize::from(side == Side::Queries)];
        self.rule.features.launch(pass, &self.device, side, x, room)?;
        let features = room.given(x)?;
        let residual = match self.rule.residual {
            Residual::Raw => x.clone(),
            Residual::Features => features.clone(),
            Residual::None => self.nothing.expand(x.shape())?,
        };
        Ok([features, residual])
    }

    /// Reads and trains the memory; what it gives is the first room.
    fn read_memory(
        &mut self,
        pass: Pass,
        [q, k, v]: [&Tensor; 3],
        [alpha, theta, eta, gamma]: [&Tensor; 4],
    ) -> Result<()> {
        let [fk, rk] = &self.shown(pass, Side::Keys, k)?;
        let [fq, rq] = &self.shown(pass, Side::Queries, q)?;
        let tokens = Tokens { q: fq, k: fk, v, rq, rk, alpha, theta, eta, gamma };
        let mut memory: Vec<&mut Tensor> = self.memory.iter_mut().collect();
        let stream = self.device.default_stream();
        self.stream.pass((pass, &stream), &tokens, &mut memory, &mut part_of(&self.room[0], q.shape()[1])?)
    }

    /// Makes one of memory and attention.
    fn combine(&mut self, pass: Pass, attention: impl Fn() -> Result<[Tensor; 3]>, out: &mut Tensor) -> Result<()> {
        let count = out.shape()[1];
        let (device, weights, eps) = (&self.device, &self.weights, self.rule.eps);
        let [memory, mut normed, mut attended] =
            [part_of(&self.room[0], count)?, part_of(&self.room[1], count)?, part_of(&self.room[2], count)?];
        let prefix = [&weights.prefix_keys, &weights.prefix_values];
        let (wm, wa) = (&weights.memory_norm, &weights.attention_norm);
        match self.rule.combine {
            Combine::Alone => pass.launch(&layer_norm, device, args!(memory, wm, &mut *out, eps)),
            // Combined where its attention is.
            Combine::Context { .. } => Ok(()),
            Combine::Gate => {
                let given = attention()?;
                self.past.attend(pass, device, given.each_ref(), prefix, &mut attended)?;
                pass.launch(&layer_combine, device, args!(memory, wm, eps, attended, wa, &mut *out))
            }
            Combine::Sequence => {
                pass.launch(&layer_norm, device, args!(memory, wm, &mut normed, eps))?;
                self.past.attend(pass, device, [&normed; 3], prefix, out)
            }
        }
    }
}
