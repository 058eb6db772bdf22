//! Ops of several launches, recorded in graphs: each run of the graph writes, bit for bit, what the launches themselves would.

use crate::muon::{matrix, tensor};
use crate::stream;
use atlas_dsl::DType;
use atlas_ops::muon::{Muon, MuonMatrix, MuonSpace, MuonSpaces, NewtonSchulz};
use atlas_ops::omega::{Chunking, MemoryForm, OmegaRule, OmegaStream, StreamSizes, Tokens};
use atlas_ops::plans::plans;
use atlas_runtime::{Graph, Stream, Tensor};
use half::{bf16, f16};
use std::ops::Range;

/// The elements of a tensor, as they are.
#[derive(Clone, Debug)]
enum Bits {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    I32(Vec<i32>),
}

impl Bits {
    fn of(t: &Tensor) -> Bits {
        match t.dtype() {
            DType::F32 => Bits::F32(t.to_vec().unwrap()),
            DType::F16 => Bits::F16(t.to_vec().unwrap()),
            DType::Bf16 => Bits::Bf16(t.to_vec().unwrap()),
            DType::I32 => Bits::I32(t.to_vec().unwrap()),
            other => panic!("{other}"),
        }
    }

    fn part(&self, of: Range<usize>) -> Bits {
        match self {
            Bits::F32(v) => Bits::F32(v[of].to_vec()),
            Bits::F16(v) => Bits::F16(v[of].to_vec()),
            Bits::Bf16(v) => Bits::Bf16(v[of].to_vec()),
            Bits::I32(v) => Bits::I32(v[of].to_vec()),
        }
    }

    fn write(&self, t: &Tensor) {
        if !t.is_contiguous() {
            // Part by part along the first axis that has several.
            let axis = t.shape().iter().position(|&size| size > 1).unwrap();
            let each = t.len() / t.shape()[axis];
            for i in 0..t.shape()[axis] {
                self.part(i * each..(i + 1) * each).write(&t.slice(axis, i..i + 1).unwrap());
            }
            return;
        }
        let mut t = t.clone();
        match self {
            Bits::F32(v) => t.copy_from(v),
            Bits::F16(v) => t.copy_from(v),
            Bits::Bf16(v) => t.copy_from(v),
            Bits::I32(v) => t.copy_from(v),
        }
        .unwrap();
    }
}

impl PartialEq for Bits {
    /// What stands in memory that nothing has written may be NaN.
    fn eq(&self, other: &Bits) -> bool {
        match (self, other) {
            (Bits::F32(a), Bits::F32(b)) => a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits())),
            (Bits::F16(a), Bits::F16(b)) => a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits())),
            (Bits::Bf16(a), Bits::Bf16(b)) => a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits())),
            (Bits::I32(a), Bits::I32(b)) => a == b,
            _ => false,
        }
    }
}

fn all(graph: &Graph) -> Vec<Bits> {
    graph.tensors().map(Bits::of).collect()
}

#[test]
fn every_plan_is_recorded() {
    let device = crate::device();
    let stream = Stream::new(&device).unwrap();
    for plan in plans() {
        // The largest heads take the CPU long, and are no other code.
        if plan.name.ends_with("_96") || plan.name.ends_with("128x128") {
            continue;
        }
        // Some prepare nothing by themselves. Others write the same again where they ran before.
        plan.small().start(&device).unwrap()().unwrap();
        let mut work = plan.small().start(&device).unwrap();
        let mut graph = stream.capture(|_| work()).unwrap();
        assert!(!graph.is_empty(), "{}: {graph:?}", plan.name);
        let before = all(&graph);
        // A layer keeps its place on the host: after the recording, its own launches are those of the next tokens. A backward pass has a
        // forward pass before it the first time, which is the one that was recorded.
        let goes_on = plan.name.starts_with("layer_") || plan.name.contains("backward_plan");
        if goes_on { graph.launch(&stream) } else { work() }.unwrap();
        let wanted = all(&graph);
        assert!(before != wanted, "{}: nothing was written", plan.name);
        for _ in 0..2 {
            for (tensor, bits) in graph.tensors().zip(&before) {
                bits.write(tensor);
            }
            assert!(all(&graph) == before, "{}", plan.name);
            graph.launch(&stream).unwrap();
            assert!(all(&graph) == wanted, "{}", plan.name);
        }
    }
}

const SHAPES: [[usize; 2]; 3] = [[40, 24], [16, 64], [40, 24]];

/// The weights, momenta and gradients of a small model.
fn model() -> Vec<[Tensor; 3]> {
    let device = crate::device();
    let of =
        |seed: usize, shape: [usize; 2]| tensor(&device, DType::F32, &matrix(seed, shape[0] * shape[1], 0.5), &shape);
    SHAPES
        .iter()
        .enumerate()
        .map(|(i, &shape)| [of(3 * i, shape), of(3 * i + 1, shape), of(3 * i + 2, shape)])
        .collect()
}

/// New gradients, where the old ones were.
fn next_gradients(model: &mut [[Tensor; 3]], step: usize) {
    for (i, [_, _, g]) in model.iter_mut().enumerate() {
        g.copy_from(&matrix(100 * step + i, g.len(), 0.5).iter().map(|&v| v as f32).collect::<Vec<f32>>()).unwrap();
    }
}

fn step(of: &Muon, stream: &Stream, model: &mut [[Tensor; 3]], spaces: &mut MuonSpaces) -> atlas_runtime::Result<()> {
    let mut list: Vec<MuonMatrix<'_>> = model.iter_mut().map(|[w, buf, g]| MuonMatrix { w, buf, g }).collect();
    of.step(stream, &mut list, spaces)
}

fn weights(model: &[[Tensor; 3]]) -> Vec<Bits> {
    model.iter().flat_map(|[w, buf, _]| [Bits::of(w), Bits::of(buf)]).collect()
}

#[test]
fn steps_of_muon_on_new_gradients() {
    let stream = Stream::new(&crate::device()).unwrap();
    let gram = Muon { iteration: NewtonSchulz::torch().gram(), dtype: DType::F16, ..Muon::torch() };
    for of in [Muon { rate: 0.02, ..Muon::torch() }, Muon { rate: 0.02, ..gram }] {
        let (mut wanted, mut found) = (model(), model());
        let (mut direct, mut recorded) = (MuonSpaces::default(), MuonSpaces::default());
        let start = weights(&found);
        let mut graph = stream.capture(|recording| step(&of, recording, &mut found, &mut recorded)).unwrap();
        assert!(weights(&found) == start, "recording runs nothing");
        // The graph has the workspaces, too.
        drop(std::mem::take(&mut recorded));
        for at in 1..=3 {
            next_gradients(&mut wanted, at);
            next_gradients(&mut found, at);
            step(&of, &stream, &mut wanted, &mut direct).unwrap();
            graph.launch(&stream).unwrap();
            assert!(weights(&found) == weights(&wanted), "step {at}");
        }
        // The rate is a number, which an update replaces.
        let slower = Muon { rate: 0.001, ..of.clone() };
        graph.update(|recording| step(&slower, recording, &mut found, &mut recorded)).unwrap();
        graph.launch(&stream).unwrap();
        let before = weights(&wanted);
        step(&of, &stream, &mut wanted, &mut direct).unwrap();
        assert!(weights(&found) != weights(&wanted), "the rate is another one");
        for (tensor, bits) in wanted.iter().flat_map(|[w, buf, _]| [w, buf]).zip(&before) {
            bits.write(tensor);
        }
        step(&slower, &stream, &mut wanted, &mut direct).unwrap();
        assert!(weights(&found) == weights(&wanted));
    }
}

#[test]
fn newton_schulz_on_new_matrices() {
    let stream = Stream::new(&crate::device()).unwrap();
    let shape = [2, 40, 70];
    for of in [NewtonSchulz::torch(), NewtonSchulz::polar_express().gram()] {
        let of_matrix = |seed| tensor(stream.device(), DType::Bf16, &matrix(seed, shape.iter().product(), 0.7), &shape);
        let zeros = || Tensor::zeros(stream.device(), DType::Bf16, shape).unwrap();
        let (g, mut y, mut wanted) = (of_matrix(0), zeros(), zeros());
        let mut space = MuonSpace::new(&stream, &of, DType::Bf16, 2, 40, 70).unwrap();
        let mut graph = stream.capture(|recording| of.launch(recording, &g, &mut y, &mut space)).unwrap();
        for seed in 1..=3 {
            let next = of_matrix(seed);
            Bits::of(&next).write(&g);
            graph.launch(&stream).unwrap();
            of.launch(&stream, &next, &mut wanted, &mut space).unwrap();
            assert!(Bits::of(&y) == Bits::of(&wanted), "{seed}");
            assert!(y.to_f64_vec().unwrap().iter().any(|&y| y != 0.0));
        }
    }
}

/// A stream of tokens keeps on the host where it is in its sequence. From a whole chunk on, and with room for the windows behind it, two pushes of
/// whole chunks leave that as it was, so a graph of two pushes goes on for ever.
#[test]
fn a_stream_of_tokens_goes_on_in_a_graph() {
    let device = crate::device();
    let on = Stream::new(&device).unwrap();
    let (piece, rounds) = (8, 3);
    for memory in [MemoryForm::Mlp, MemoryForm::Gated] {
        let rule = OmegaRule { memory, ..OmegaRule::omega_net(Chunking::new(4, 3)) };
        let sizes = StreamSizes { piece, ..stream::sizes() };
        let tokens = |at: usize| stream::sequence_of(&device, rule.chunking.window, piece, 1000 * at);
        let make = || {
            (OmegaStream::new(&device, rule, sizes).unwrap(), stream::memory(&device, rule.chain()), y(&device, piece))
        };
        // As usual.
        let (mut direct, mut state, mut read) = make();
        let mut wanted = Vec::new();
        for at in 0..2 + 2 * rounds {
            push(&mut direct, &tokens(at), &mut state, &mut read).unwrap();
            wanted.push(Bits::of(&read));
        }
        let wanted_state: Vec<Bits> = state.iter().map(Bits::of).collect();
        // Two pushes, and then two by the graph again and again, on the tensors that it has.
        let (mut recorded, mut state, mut reads) = (make().0, make().1, [y(&device, piece), y(&device, piece)]);
        let inputs = [tokens(0), tokens(1)];
        for (tokens, read) in inputs.iter().zip(&mut reads) {
            push(&mut recorded, tokens, &mut state, read).unwrap();
        }
        let mut graph = on
            .capture(|_| {
                let mut both = inputs.iter().zip(&mut reads);
                both.try_for_each(|(tokens, read)| push(&mut recorded, tokens, &mut state, read))
            })
            .unwrap();
        drop(recorded);
        for round in 1..=rounds {
            for (i, input) in inputs.iter().enumerate() {
                let next = tokens(2 * round + i);
                input.iter().for_each(|(name, tensor)| Bits::of(&next[name]).write(tensor));
            }
            graph.launch(&on).unwrap();
            for (i, read) in reads.iter().enumerate() {
                assert!(Bits::of(read) == wanted[2 * round + i], "{memory:?}: push {i} of round {round}");
            }
        }
        assert!(state.iter().map(Bits::of).collect::<Vec<_>>() == wanted_state);
        assert!(wanted[2] != wanted[3] && wanted[2] != wanted[4], "each push reads something else");
    }
}

/// A stream, its memory, and what it reads.
type Made = (OmegaStream, Vec<Tensor>, Tensor);

/// A graph repeats launches, and not what the host does between them. So pushes that would leave the stream elsewhere are refused, and it
/// is where it was then, as after any recording that fails.
#[test]
fn a_stream_of_tokens_that_a_graph_would_leave_elsewhere_is_refused() {
    let device = crate::device();
    let on = Stream::new(&device).unwrap();
    let rule = OmegaRule::omega_net(Chunking::new(4, 3));
    let sizes = StreamSizes { piece: 8, ..stream::sizes() };
    let tokens = |count: usize, at: usize| stream::sequence_of(&device, rule.chunking.window, count, 1000 * at);
    let make =
        || (OmegaStream::new(&device, rule, sizes).unwrap(), stream::memory(&device, rule.chain()), y(&device, 8));
    let (mut direct, mut state, mut read) = make();
    let wanted = [0, 1, 2].map(|at| {
        push(&mut direct, &tokens(8, at), &mut state, &mut read).unwrap();
        Bits::of(&read)
    });
    let mut made = make();
    let (mut half, part) = (y(&device, 2), tokens(2, 7));
    for at in 0..2 {
        // Of nothing yet, and of a stream whose windows are full: one piece, parts of chunks, and a closure that fails.
        let mut refused = |made: &mut Made, parts: &[usize], fails: bool| {
            let (of, state, read) = made;
            let error = on.capture(|_| {
                for count in parts {
                    let (tokens, y) = if *count == 8 { (tokens(8, 9), &mut *read) } else { (part.clone(), &mut half) };
                    push(of, &tokens, state, y)?;
                }
                if fails { push(of, &tokens(8, 0), &mut [], read) } else { Ok(()) }
            });
            error.unwrap_err().to_string()
        };
        if at == 0 {
            // Windows reach farther back after these.
            let text = refused(&mut made, &[8, 8], false);
            assert!(text.contains("ATL656") || text.contains("ATL660"), "{text}");
        } else {
            for (parts, wanted) in [(&[8][..], "ATL660"), (&[2, 8], "ATL660"), (&[8, 8, 8], "ATL660")] {
                let text = refused(&mut made, parts, false);
                assert!(text.contains(wanted) && text.contains("omega_mlp"), "{text}");
            }
            assert!(!refused(&mut made, &[8, 8], true).contains("ATL660"));
        }
        let (of, state, read) = &mut made;
        push(of, &tokens(8, at), state, read).unwrap();
        assert!(Bits::of(read) == wanted[at], "push {at}");
    }
    let (mut of, mut state, mut read) = made;
    push(&mut of, &tokens(8, 2), &mut state, &mut read).unwrap();
    assert!(Bits::of(&read) == wanted[2]);
    // From a start, one piece may be recorded.
    let first = tokens(8, 0);
    let mut graph = on
        .capture(|_| {
            of.restart();
            push(&mut of, &first, &mut state, &mut read)
        })
        .unwrap();
    let begun: Vec<Bits> = stream::memory(&device, rule.chain()).iter().map(Bits::of).collect();
    for _ in 0..2 {
        begun.iter().zip(&state).for_each(|(bits, tensor)| bits.write(tensor));
        graph.launch(&on).unwrap();
        assert!(Bits::of(&read) == wanted[0]);
    }
}

/// Each launch of a push is on the stream that is given, and those of a push without one are on the default stream, which the innermost
/// recording takes.
#[test]
fn a_push_is_on_its_stream() {
    let device = crate::device();
    let [outer, inner] = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let rule = OmegaRule::omega_net(Chunking::new(4, 3));
    let tokens = stream::sequence_of(&device, rule.chunking.window, 7, 0);
    let recorded = |is_on_outer: bool| {
        let mut of = OmegaStream::new(&device, rule, stream::sizes()).unwrap();
        let (mut state, mut read) = (stream::memory(&device, rule.chain()), y(&device, 7));
        push(&mut of, &tokens, &mut state, &mut read).unwrap();
        let mut inside = 0;
        let graph = outer.capture(|on_outer| {
            let graph = inner.capture(|_| {
                of.restart();
                match is_on_outer {
                    true => push_on(&mut of, Some(on_outer), &tokens, &mut state, &mut read),
                    false => push(&mut of, &tokens, &mut state, &mut read),
                }
            })?;
            inside = graph.len();
            Ok(())
        });
        (graph.unwrap().len(), inside)
    };
    let (on_outer, nothing) = recorded(true);
    assert!(on_outer > 10 && nothing == 0, "{on_outer} {nothing}");
    assert_eq!(recorded(false), (0, on_outer));
}

fn y(device: &atlas_runtime::Device, tokens: usize) -> Tensor {
    let StreamSizes { sequences, heads, value, dtype, .. } = stream::sizes();
    Tensor::zeros(device, dtype, [sequences, tokens, heads, value]).unwrap()
}

fn push(
    stream: &mut OmegaStream,
    tokens: &stream::Sequence,
    memory: &mut [Tensor],
    y: &mut Tensor,
) -> atlas_runtime::Result<()> {
    push_on(stream, None, tokens, memory, y)
}

/// The same on a stream, if one is given.
fn push_on(
    stream: &mut OmegaStream,
    on: Option<&Stream>,
    tokens: &stream::Sequence,
    memory: &mut [Tensor],
    y: &mut Tensor,
) -> atlas_runtime::Result<()> {
    let [q, k, v, rq, rk] = ["q", "k", "v", "rq", "rk"].map(|name| &tokens[name]);
    let [alpha, theta, eta, gamma] = ["alpha", "theta", "eta", "gamma"].map(|name| &tokens[name]);
    let tokens = Tokens { q, k, v, rq, rk, alpha, theta, eta, gamma };
    let mut memory: Vec<&mut Tensor> = memory.iter_mut().collect();
    match on {
        Some(on) => stream.push_on(on, &tokens, &mut memory, y),
        None => stream.push(&tokens, &mut memory, y),
    }
}
