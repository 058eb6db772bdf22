//! Lesson 7: a memory layer of a PyTorch model, ported with the book's page "Porting", and checked against PyTorch's numbers.
//!
//! `cargo run --release --example 07_porting`. The PyTorch code stands on the page. It differs from Atlas in the sign of the
//! momentum, in where the step size is, in the order of a window's weights and in how gates lie. The numbers at the end are those that it
//! printed in f64.

use atlas::ops::layer::{AtlasLayer, Combine, FeatureMap, LayerRule, LayerSizes, LayerTokens, LayerWeights, Residual};
use atlas::ops::matmul;
use atlas::ops::omega::{Chunking, OmegaRule};
use atlas::prelude::*;

/// Tokens, channels, heads, hidden elements of a memory, tokens of a window and of a chunk.
const T: usize = 40;
const C: usize = 32;
const H: usize = 2;
const D: usize = C / H;
const M: usize = 24;
const WINDOW: usize = 4;
const CHUNK: usize = 8;

atlas_kernel! {
    /// y = x / |x|, row by row: `torch.nn.functional.normalize`.
    kernel unit(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16, 64], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            store(y[n, ..], xs / max(sqrt(sum(xs * xs, axis = 1)), 1e-12));
        }
    }

    /// y = sigmoid(x w^T + bias)
    kernel gate(x: &Tensor<f32, [N, C]>, w: &Tensor<f32, [G, C]>, y: &mut Tensor<f32, [N, G]>, bias: f32)
    tune { BN: [16, 64], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], sigmoid(dot(load(x[n, ..]), load(w[.., ..]).t()) + bias));
        }
    }

    /// y = scale eta x, for each weight of a window.
    kernel step_inside(x: &Tensor<f32, [N, H, W]>, eta: &Tensor<f32, [N, H]>, y: &mut Tensor<f32, [N, H, W]>, scale: f32)
    tune { BN: [16, 64], warps: [4] }
    {
        for (n, h) in grid(tiles(N, BN), H) {
            store(y[n, h, ..], load(x[n, h, ..]) * (load(eta[n, h]).t() * scale));
        }
    }
}

fn main() -> atlas::Result<()> {
    let device = Device::best()?;
    let of = |seed: f64, shape: &[usize], scale: f64, middle: f64| {
        let value = |i: usize| (middle + scale * (1.7 * i as f64 + seed).sin()) as f32;
        device.tensor_from(&(0..shape.iter().product()).map(value).collect::<Vec<_>>(), shape)
    };
    let zeros = |shape: &[usize]| Tensor::zeros(&device, DType::F32, shape);
    let x = of(1.0, &[T, C], 1.0, 0.0)?;
    let project = |x: &Tensor, seed: f64| -> atlas::Result<Tensor> {
        let (w, mut y) = (of(seed, &[C, C], 0.3, 0.0)?, zeros(&[T, C])?);
        matmul.launch(&device, args!(x, w, &mut y))?;
        Ok(y)
    };
    // Queries and keys are of length 1, head by head.
    let of_length_one = |x: Tensor| -> atlas::Result<Tensor> {
        let mut y = zeros(&[T * H, D])?;
        unit.launch(&device, args!(x.reshape([T * H, D])?, &mut y))?;
        Ok(y)
    };
    let (q, k, v) = (of_length_one(project(&x, 2.0)?)?, of_length_one(project(&x, 3.0)?)?, project(&x, 4.0)?);
    // The model's projection has the gates of a head side by side: its rows are taken apart, gate by gate.
    let rows = of(6.0, &[3 * H, C], 0.1, 0.0)?.to_vec::<f32>()?;
    let gates = [(0, 3.0), (1, 0.0), (2, -1.0)].map(|(which, bias)| -> atlas::Result<Tensor> {
        let of_gate: Vec<f32> = rows.chunks(C).skip(which).step_by(3).flatten().copied().collect();
        let (w, mut y) = (device.tensor_from(&of_gate, [H, C])?, zeros(&[T, H])?);
        gate.launch(&device, args!(&x, w, &mut y, bias))?;
        Ok(y)
    });
    let [alpha, theta, eta] = gates;
    let (alpha, theta, eta) = (alpha?, theta?, eta?);
    // The model's window begins with the token itself, that of Atlas ends with it: the rows of each head are reversed.
    let rows = of(7.0, &[H * WINDOW, C], 0.2, 0.0)?.to_vec::<f32>()?;
    let reversed: Vec<f32> = rows.chunks(WINDOW * C).flat_map(|head| head.chunks(C).rev().flatten()).copied().collect();
    let (mut window, mut gamma) = (zeros(&[T, H * WINDOW])?, zeros(&[T, H, WINDOW])?);
    gate.launch(&device, args!(&x, device.tensor_from(&reversed, [H * WINDOW, C])?, &mut window, 0.0))?;
    // The model's step size is inside of its momentum, which is that of Titans: it becomes part of the window's weights.
    step_inside.launch(&device, args!(window.reshape([T, H, WINDOW])?, &eta, &mut gamma, 0.02))?;
    let one = device.tensor_from(&[1.0_f32], [1, 1, 1])?.expand([1, T, H])?;

    let sizes = LayerSizes { sequences: 1, heads: H, width: D, hidden: M, window: 1, piece: T, dtype: DType::F32 };
    let rule = LayerRule {
        combine: Combine::Alone,
        memory: OmegaRule::omega_net(Chunking::new(CHUNK, WINDOW)),
        features: FeatureMap::None,
        residual: Residual::Raw,
        eps: 1e-6,
    };
    let weights = LayerWeights {
        prefix_keys: zeros(&[H, 1, D])?,
        prefix_values: zeros(&[H, 1, D])?,
        memory_norm: of(8.0, &[H, D], 0.1, 1.0)?,
        attention_norm: zeros(&[H, D])?,
        inner_norm: None,
        context: None,
    };
    let memory = [of(9.0, &[1, H, D, M], 0.2, 0.0)?, of(10.0, &[1, H, M, D], 0.3, 0.0)?];
    let mut layer = AtlasLayer::new(&device, sizes, rule, weights, &memory)?;
    let heads = |t: &Tensor| t.reshape([1, T, H, D]);
    let (q, k, v) = (heads(&q)?, heads(&k)?, heads(&v)?);
    let (alpha, theta) = (alpha.reshape([1, T, H])?, theta.reshape([1, T, H])?);
    let tokens = LayerTokens {
        memory: [&q, &k, &v],
        attention: [&q, &k, &v],
        gates: [&alpha, &theta, &one],
        gamma: &gamma.reshape([1, T, H, WINDOW])?,
    };
    let mut y = zeros(&[1, T, H, D])?;
    layer.push(&tokens, &mut y)?;
    let out = project(&y.reshape([T, C])?, 5.0)?.to_f64_vec()?;

    let torch = [
        -0.7592735, -0.022088, 0.708514, -0.4631133, -0.3013625, 0.5552781, -0.0060949, -0.5958044, 0.3967114,
        0.4145056, -0.7967847, 0.2355017, 0.6459794, -0.8025944,
    ];
    let off = out.iter().step_by(97).zip(torch).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    println!("on {device}: {} outputs, at most {off:.1e} from those of PyTorch in f64", torch.len());
    assert!(off < 2e-5, "the layer is PyTorch's: {off:.1e}");
    Ok(())
}
