//! The training step of a layer as it is measured: both passes of its memory, of its attention, and of what combines them, with the
//! gradients of all that they are given. Projections, and sums of gradients by what a layer takes twice, are left out. Of a long
//! sequence, which comes in pieces, a gradient goes no further back than its piece begins, so that memory is constant.

use super::plan_sizes::{CHUNK, MEMORY_WINDOW, PREFIX, WINDOW, in_pieces, memory_flops};
use super::reference::{HostLayer, memory};
use super::{FeatureMap, LayerRule, LayerSizes, Residual, layer_combine};
use crate::compare::Comparison;
use crate::layer_grad::{self, LAYER_COMBINE_GRAD};
use crate::omega::backward::check::{Found, TrainingCase, compared, found};
use crate::omega::backward::reference::Forgotten;
use crate::omega::backward::{OmegaGradients, OmegaKept, OmegaTraining, TrainingSizes};
use crate::omega::{Chunking, OmegaRule, Tokens};
use crate::plan::{PlanSizes, Steps, Work};
use crate::problem::HostTensor;
use crate::run::plan_tensor;
use crate::usual::unit;
use crate::windowed_attention::{self, WindowedAttentionSizes, windowed_attention};
use crate::windowed_attention_grad::{self, Sight, WINDOWED_ATTENTION_GRAD};
use atlas_dsl::DType;
use atlas_runtime::{Device, Launch, Result, Tensor, Workspace, args};
use std::collections::BTreeMap;

/// Sizes: sequences, tokens, heads, elements of a head, hidden elements.
pub(super) static STEP: Steps = Steps {
    names: &["B", "T", "H", "D", "M"],
    dtype: DType::Bf16,
    bound: 1e-2,
    // Seven tensors of tokens and `dy` are read, `y` and the gradients of the seven are written; gates and their gradients; the
    // memory's state in and out, and its gradients.
    bytes: |[b, t, h, d, m, _]| (b * h * (32 * t * d + 8 * t * (3 + MEMORY_WINDOW) + 48 * d * m)) as f64,
    // A backward pass has twice the operations of its forward pass, and half as many again to compute weights and hidden rows
    // anew.
    flops: |[b, t, h, d, m, _]| 3.5 * (b * h * (memory_flops(t, d, m) + 4 * t * d * (WINDOW.min(t) + PREFIX))) as f64,
    small: |[_, _, _, d, m, _]| [1, CHUNK + 5, 2, d, m, 0],
    start: |device, sizes| Layer::new(device, sizes)?.work(),
    check: |device, sizes| Layer::new(device, sizes)?.check(),
};

const EPS: f32 = 1e-6;
const DTYPE: DType = DType::Bf16;

/// Gradients that are written, with the inputs whose shapes they have.
const GRADIENTS: [(&str, &str, DType); 9] = [
    ("dmemory", "q", DTYPE),
    ("dattention", "q", DTYPE),
    ("daq", "aq", DTYPE),
    ("dak", "ak", DTYPE),
    ("dav", "av", DTYPE),
    ("dpk", "pk", DType::F32),
    ("dpv", "pv", DType::F32),
    ("dwm", "wm", DType::F32),
    ("dwa", "wa", DType::F32),
];

/// A layer, a piece of its tokens, and room for all gradients.
struct Layer {
    /// With the tokens of a piece.
    sizes: PlanSizes,
    pieces: usize,
    scale: f32,
    /// What the step reads, by name.
    given: BTreeMap<&'static str, Tensor>,
    /// The memory's matrices and their momenta.
    state: [Tensor; 4],
    /// The first key of each query's document.
    first: Tensor,
    training: OmegaTraining,
    kept: OmegaKept,
    gradients: OmegaGradients,
    /// What memory and attention give, and the layer.
    read: Tensor,
    attended: Tensor,
    y: Tensor,
    lse: Tensor,
    /// Gradients of all but the memory, in the order of [`GRADIENTS`].
    by: [Tensor; 9],
    spaces: [Workspace; 2],
}

impl Layer {
    fn new(device: &Device, mut sizes: PlanSizes) -> Result<Layer> {
        let (piece, pieces) = in_pieces(sizes[1]);
        sizes[1] = piece;
        let [b, t, h, d, m, _] = sizes;
        let mut given = BTreeMap::new();
        let mut add = |name: &'static str, dtype: DType, fill: (f64, f64), shape: &[usize]| -> Result<()> {
            given.insert(name, plan_tensor(device, dtype, name, fill, shape)?);
            Ok(())
        };
        for name in ["q", "k", "v", "aq", "ak", "av", "dy"] {
            add(name, DTYPE, (0.0, unit(d)), &[b, t, h, d])?;
        }
        for (name, mean) in [("alpha", 0.95), ("theta", 0.8), ("eta", 1e-3)] {
            add(name, DType::F32, (mean, mean / 20.0), &[b, t, h])?;
        }
        add("gamma", DType::F32, (0.5, 0.1), &[b, t, h, MEMORY_WINDOW])?;
        for (name, fill, shape) in [
            ("pk", (0.0, 1.0), &[h, PREFIX, d][..]),
            ("pv", (0.0, 1.0), &[h, PREFIX, d]),
            ("wm", (1.0, 0.1), &[h, d]),
            ("wa", (1.0, 0.1), &[h, d]),
        ] {
            add(name, DTYPE, fill, shape)?;
        }
        add("w1", DType::F32, (0.0, unit(m)), &[b, h, d, m])?;
        add("w2", DType::F32, (0.0, unit(d)), &[b, h, m, d])?;
        let zeros = |dtype: DType, shape: &[usize]| Tensor::zeros(device, dtype, shape);
        let of = TrainingSizes { sequences: b, tokens: t, heads: h, key: d, value: d, hidden: m, dtype: DTYPE };
        let training = OmegaTraining::new(device, rule(), of, None)?;
        let mut by = Vec::new();
        for (_, like, dtype) in GRADIENTS {
            by.push(zeros(dtype, given[like].shape())?);
        }
        let matrix = |rows: usize, cols: usize| zeros(DType::F32, &[b, h, rows, cols]);
        Ok(Layer {
            sizes,
            pieces,
            scale: (d as f32).sqrt().recip(),
            state: [given["w1"].clone(), given["w2"].clone(), matrix(d, m)?, matrix(m, d)?],
            first: zeros(DType::I32, &[b, t])?,
            kept: training.kept()?,
            gradients: training.gradients()?,
            training,
            read: zeros(DTYPE, &[b, t, h, d])?,
            attended: zeros(DTYPE, &[b, t, h, d])?,
            y: zeros(DTYPE, &[b, t, h, d])?,
            lse: zeros(DType::F32, &[b, h, t])?,
            by: by.try_into().unwrap_or_else(|_| unreachable!("as many as there are names")),
            spaces: [
                WINDOWED_ATTENTION_GRAD.workspace(device, &[], &[("B", b), ("H", h), ("M", t)])?,
                LAYER_COMBINE_GRAD.workspace(device, &[], &[])?,
            ],
            given,
        })
    }

    fn step(&mut self, device: &Device) -> Result<()> {
        let scale = self.scale;
        let stream = device.default_stream();
        let Layer { given, training, state, first, read, attended, lse, y, kept, by, spaces, gradients, .. } = self;
        let of = |name: &str| &given[name];
        let [q, k, v, alpha, theta, eta, gamma] = ["q", "k", "v", "alpha", "theta", "eta", "gamma"].map(of);
        let [aq, ak, av, pk, pv, wm, wa, dy] = ["aq", "ak", "av", "pk", "pv", "wm", "wa", "dy"].map(of);
        let (first, window) = (&*first, WINDOW as i32);
        let tokens = Tokens { q, k, v, rq: q, rk: k, alpha, theta, eta, gamma };
        training.forward(&stream, &tokens, &mut state.each_mut(), read, kept)?;
        windowed_attention
            .launch(device, args!(aq, ak, av, pk, pv, first, window, scale, &mut *attended, &mut *lse))?;
        layer_combine.launch(device, args!(&*read, wm, EPS, &*attended, wa, &mut *y))?;
        let ([dmemory, dattention, dq, dk, dv, dpk, dpv, dwm, dwa], [of_attention, of_combine]) = (by, spaces);
        let combined =
            args!(&*read, wm, EPS, &*attended, wa, dy, &mut *dmemory, &mut *dattention, &mut *dwm, &mut *dwa);
        LAYER_COMBINE_GRAD.launch(device, combined, of_combine)?;
        let (o, dout) = (&*attended, &*dattention);
        let attention = args!(aq, ak, av, pk, pv, first, window, scale, o, &*lse, dout, dq, dk, dv, dpk, dpv);
        WINDOWED_ATTENTION_GRAD.launch(device, attention, of_attention)?;
        training.backward(&stream, &tokens, kept, dmemory, None, gradients)
    }

    fn work(mut self) -> Result<Work> {
        let device = self.y.device().clone();
        Ok(Box::new(move || (0..self.pieces).try_for_each(|_| self.step(&device))))
    }

    /// Compares all gradients with those of the references of the parts, one after the other.
    fn check(mut self) -> Result<Comparison> {
        let [b, t, h, d, m, _] = self.sizes;
        // The step writes over the matrices.
        let mut host: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for (name, tensor) in &self.given {
            host.insert(name, tensor.to_f64_vec()?);
        }
        self.step(&self.y.device().clone())?;
        let of = |name: &str| &host[name][..];
        let all = |names: [&str; 3]| names.map(|name| host[name].clone());
        let layer = HostLayer {
            memory: all(["q", "k", "v"]),
            gates: all(["alpha", "theta", "eta"]),
            gamma: host["gamma"].clone(),
            weights: vec![host["w1"].clone(), host["w2"].clone()],
            ..HostLayer::default()
        };
        let sizes = LayerSizes { sequences: b, heads: h, width: d, hidden: m, window: WINDOW, piece: t, dtype: DTYPE };
        let read = memory(&sizes, &layer_rule(), &layer, t);
        let attention = WindowedAttentionSizes { b, m: t, n: t, h, j: h, d, s: PREFIX };
        let first = vec![0.0; b * t];
        let sight = Sight { first: &first, window: WINDOW as i64, scale: f64::from(self.scale) };
        let given = ["aq", "ak", "av", "pk", "pv"].map(of);
        let [attended, _] = windowed_attention::reference(given, &first, sight.window, sight.scale, attention);
        let combine = layer_grad::combine_grad([&read, of("wm"), &attended, of("wa"), of("dy")], d, EPS.into());
        let by_attention = windowed_attention_grad::reference(given, &combine.attention, sight, attention);
        let mut wanted = vec![combine.memory, combine.attention];
        wanted.extend(by_attention);
        wanted.extend([combine.memory_norm, combine.attention_norm]);
        let mut each = Vec::new();
        for (by, wanted) in self.by.iter().zip(&wanted) {
            each.push(Comparison::new(&by.to_f64_vec()?, wanted));
        }
        let memory = self.of_memory(&host, &wanted[0]);
        each.extend(compared(&found(&self.gradients, &["w1", "w2", "s1", "s2"])?, &memory).into_values());
        Ok(each.into_iter().fold(Comparison::new(&[], &[]), Comparison::and))
    }

    /// The gradients of the memory by definition, from that of what it gives.
    fn of_memory(&self, host: &BTreeMap<&'static str, Vec<f64>>, by_read: &[f64]) -> Found {
        let [b, t, h, d, m, _] = self.sizes;
        let case = TrainingCase { dtype: DTYPE, ..TrainingCase::new([b, t, h], [d, d, m], chunking()) };
        let mut named = case.inputs();
        for (name, of) in &mut named {
            let like = match *name {
                "rq" => "q",
                "rk" => "k",
                name => name,
            };
            let values = match like {
                "dy" => by_read,
                name => host.get(name).map_or(&[][..], Vec::as_slice),
            };
            let len = of.values.len();
            // Momenta begin as zeros.
            let values = if values.is_empty() { vec![0.0; len] } else { values.iter().map(|&v| v as f32).collect() };
            *of = HostTensor { values, sizes: of.sizes.clone() };
        }
        case.expected(&named, Forgotten::Nothing)
    }
}

fn chunking() -> Chunking {
    Chunking::new(CHUNK, MEMORY_WINDOW)
}

fn rule() -> OmegaRule {
    OmegaRule::omega_net(chunking())
}

fn layer_rule() -> LayerRule {
    LayerRule {
        combine: super::Combine::Gate,
        memory: rule(),
        features: FeatureMap::None,
        residual: Residual::Raw,
        eps: EPS,
    }
}
