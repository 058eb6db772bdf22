//! Ops of several launches on a device that may not compile: a missing kernel is refused before anything is written.

use atlas_dsl::DType;
use atlas_ops::layer::{AtlasLayer, Combine, FeatureMap, LayerRule, LayerSizes, LayerTokens, LayerWeights, Residual};
use atlas_ops::muon::{Muon, MuonMatrix, MuonSpaces, StepScale, muon_momentum};
use atlas_ops::omega::{Chunking, Loss, OmegaPacked, OmegaRule, OmegaStream, StreamSizes, Tokens};
use atlas_runtime::{CacheDir, Device, Launch, Result, SimOptions, Target, Tensor, args};

const D: usize = 8;
const W: usize = 2;
fn rule(chunking: Chunking) -> OmegaRule {
    OmegaRule { loss: Loss::Scaled(1.0), ..OmegaRule::omega_net(chunking) }
}

fn sim() -> Device {
    Device::sim_with(Target::all()[0], SimOptions::default(), CacheDir::Off)
}

fn of(device: &Device, shape: &[usize], seed: usize) -> Tensor {
    let value = |i: usize| ((i * 37 + seed * 11) % 41) as f32 / 60.0 - 0.3;
    device.tensor_from(&(0..shape.iter().product()).map(value).collect::<Vec<f32>>(), shape).unwrap()
}

fn all(tensors: &[Tensor]) -> Vec<Vec<f32>> {
    tensors.iter().map(|t| t.to_vec().unwrap()).collect()
}

fn memory(device: &Device) -> [Tensor; 4] {
    [11, 12, 13, 14].map(|seed| of(device, &[1, 1, D, D], seed))
}

fn sizes() -> StreamSizes {
    StreamSizes { sequences: 1, heads: 1, key: D, value: D, piece: 4, dtype: DType::F32 }
}

/// Calls `f` with the tokens of a sequence of length `n`.
fn with_tokens<R>(device: &Device, n: usize, f: impl FnOnce(&Tokens<'_>) -> R) -> R {
    let (q, g, gamma) = (of(device, &[1, n, 1, D], 1), of(device, &[1, n, 1], 3), of(device, &[1, n, 1, W], 4));
    f(&Tokens { q: &q, k: &q, v: &q, rq: &q, rk: &q, alpha: &g, theta: &g, eta: &g, gamma: &gamma })
}

fn push(device: &Device, n: usize, memory: &mut [Tensor; 4], y: &mut Tensor) -> Result<()> {
    let mut stream = OmegaStream::new(device, rule(Chunking::new(2, W)), sizes()).unwrap();
    with_tokens(device, n, |tokens| stream.push(tokens, &mut memory.each_mut(), y))
}

/// A view of rows with other elements around them.
fn view(device: &Device, n: usize) -> Tensor {
    of(device, &[1, n, 1, D + 3], 9).slice(3, 1..D + 1).unwrap()
}

/// Fails unless an op was refused for lack of a compiler, without changing these tensors.
fn refused(done: Result<()>, before: &[Vec<f32>], after: &[Tensor], what: &str) {
    let error = done.expect_err(what).to_string();
    assert!(error.contains("ATL640"), "{what}: {error}");
    assert!(all(after) == before, "{what}: refused, and changed");
}

#[test]
fn a_stream_whose_later_pieces_have_no_kernel() {
    let device = sim();
    push(&device, 4, &mut memory(&device), &mut of(&device, &[1, 4, 1, D], 9)).unwrap();
    device.set_compiling(false);
    let mut some_refused = false;
    for n in [4, 5, 6, 7, 9] {
        let (mut memory, mut y) = (memory(&device), of(&device, &[1, n, 1, D], 9));
        let (before, read) = (all(&memory), all(std::slice::from_ref(&y)));
        if let Err(error) = push(&device, n, &mut memory, &mut y) {
            some_refused = true;
            refused(Err(error), &before, &memory, &format!("{n} tokens"));
            assert_eq!(all(&[y]), read, "{n} tokens");
        }
    }
    assert!(some_refused);
    let mut memory = memory(&device);
    let before = all(&memory);
    refused(push(&device, 4, &mut memory, &mut view(&device, 4)), &before, &memory, "a view");
}

#[test]
fn packed_documents_that_cannot_be_laid_out() {
    let device = sim();
    let stream = device.default_stream();
    let starts = device.tensor_from(&[0, 4], [2]).unwrap();
    let mut packed = OmegaPacked::new(&stream, rule(Chunking::new(2, W)), sizes()).unwrap();
    let mut launch = |memory: &mut [Tensor; 4], y: &mut Tensor| {
        with_tokens(&device, 4, |tokens| packed.launch(&stream, tokens, &starts, &mut memory.each_mut(), y))
    };
    launch(&mut memory(&device), &mut of(&device, &[1, 4, 1, D], 9)).unwrap();
    device.set_compiling(false);
    let mut own = memory(&device);
    let before = all(&own);
    refused(launch(&mut own, &mut view(&device, 4)), &before, &own, "a view");
}

fn layer(device: &Device, combine: Combine) -> AtlasLayer {
    let sizes = LayerSizes { sequences: 1, heads: 1, width: D, hidden: D, window: 3, piece: 4, dtype: DType::F32 };
    let (omega, features) = (rule(Chunking::new(2, W)), FeatureMap::Elementwise([1.0, 0.5, 0.0]));
    let rule = LayerRule { combine, memory: omega, features, residual: Residual::Raw, eps: 1e-6 };
    let weights = LayerWeights {
        prefix_keys: of(device, &[1, 1, D], 1),
        prefix_values: of(device, &[1, 1, D], 2),
        memory_norm: of(device, &[1, D], 3),
        attention_norm: of(device, &[1, D], 4),
        inner_norm: None,
        context: None,
    };
    let [w1, w2, ..] = memory(device);
    AtlasLayer::new(device, sizes, rule, weights, &[w1, w2]).unwrap()
}

#[test]
fn a_layer_whose_last_kernel_is_not_known() {
    let device = sim();
    let (x, g, gamma) = (of(&device, &[1, 4, 1, D], 20), of(&device, &[1, 4, 1], 21), of(&device, &[1, 4, 1, W], 22));
    let tokens = LayerTokens { memory: [&x; 3], attention: [&x; 3], gates: [&g; 3], gamma: &gamma };
    let mut y = of(&device, &[1, 4, 1, D], 23);
    layer(&device, Combine::Sequence).push(&tokens, &mut y).unwrap();
    let mut gated = layer(&device, Combine::Gate);
    device.set_compiling(false);
    let (before, read) = (all(gated.memory()), all(std::slice::from_ref(&y)));
    let done = gated.push(&tokens, &mut y);
    refused(done, &before, gated.memory(), "layer_combine");
    assert_eq!(all(&[y.clone()]), read);
    // It continues from its previous state.
    device.set_compiling(true);
    gated.push(&tokens, &mut y).unwrap();
    let mut wanted = of(&device, &[1, 4, 1, D], 23);
    layer(&device, Combine::Gate).push(&tokens, &mut wanted).unwrap();
    assert_eq!(all(&[y]), all(&[wanted]));
}

fn optimiser() -> Muon {
    Muon { rate: 0.1, momentum: 0.9, scale: StepScale::One, dtype: DType::F32, ..Muon::torch() }
}

#[test]
fn a_step_whose_later_kernels_are_not_known() {
    let device = sim();
    let [mut w, mut buf, g, mut u, mut other] = [1, 2, 3, 4, 5].map(|seed| of(&device, &[3, 5], seed));
    muon_momentum.launch(&device, args!(&g, &mut other, &mut u, 0.9, 0.1, 0.1, 0.9)).unwrap();
    device.set_compiling(false);
    let before = all(&[w.clone(), buf.clone()]);
    let mut list = [MuonMatrix { w: &mut w, buf: &mut buf, g: &g }];
    let done = optimiser().step(&device.default_stream(), &mut list, &mut MuonSpaces::default());
    refused(done, &before, &[w, buf], "ns_squares");
}

#[test]
fn workspaces_of_another_device_are_not_used() {
    let mut spaces = MuonSpaces::default();
    for device in [Device::cpu(), sim(), Device::cpu()] {
        let mut made = [[3, 5], [4, 4]].map(|shape| [1, 2, 3].map(|seed| of(&device, &shape, seed)));
        let mut list: Vec<MuonMatrix<'_>> = made.iter_mut().map(|[w, buf, g]| MuonMatrix { w, buf, g }).collect();
        optimiser().step(&device.default_stream(), &mut list, &mut spaces).unwrap_or_else(|e| panic!("{device}: {e}"));
    }
}
