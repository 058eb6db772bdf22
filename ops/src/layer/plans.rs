//! A layer as it is measured: all launches of one piece, projections left out.

use super::plan_sizes::{CHUNK, MEMORY_WINDOW, PREFIX, WINDOW, in_pieces, memory_flops};
use super::reference::{HostContext, HostLayer, reference};
use super::step_plans::STEP;
use super::{
    AtlasLayer, Combine, ContextWeights, FeatureMap, LayerRule, LayerSizes, LayerTokens, LayerWeights, Residual,
};
use crate::compare::Comparison;
use crate::omega::{Chunking, OmegaRule};
use crate::plan::{Plan, PlanSizes, Steps, Work};
use crate::run::plan_tensor;
use crate::usual::unit;
use atlas_dsl::DType;
use atlas_runtime::{Device, Result, Tensor};

/// Layers of the paper's models (ATLAS, Table 7), with 2048 and 32768 tokens, and with a million, which come in pieces; and
/// training steps.
pub(crate) const PLANS: &[Plan] = &[
    Plan::new("layer_170m_plan", &GATE, [8, 2048, 16, 48, 192]),
    Plan::new("layer_340m_plan", &GATE, [8, 2048, 16, 64, 256]),
    Plan::new("layer_760m_plan", &GATE, [8, 2048, 16, 96, 384]),
    Plan::new("layer_1300m_plan", &GATE, [8, 2048, 8, 256, 1024]),
    Plan::new("layer_340m_million_plan", &GATE, [1, 1 << 20, 16, 64, 256]),
    Plan::new("layer_340m_long_plan", &GATE, [1, 32768, 16, 64, 256]),
    Plan::new("layer_340m_context_plan", &CONTEXT, [8, 2048, 16, 64, 256, 256]),
    Plan::new("layer_340m_step_plan", &STEP, [8, 2048, 16, 64, 256]),
    Plan::new("layer_340m_million_step_plan", &STEP, [1, 1 << 20, 16, 64, 256]),
    Plan::new("layer_340m_long_step_plan", &STEP, [1, 32768, 16, 64, 256]),
];

/// Sizes: sequences, tokens, heads, elements of a head, hidden elements.
static GATE: Steps = Steps {
    names: &["B", "T", "H", "D", "M"],
    dtype: DType::Bf16,
    bound: 1e-2,
    // Seven tensors of tokens, the gates, and the memory's state in and out.
    bytes: |[b, t, h, d, m, _]| (b * h * (14 * t * d + 4 * t * (3 + MEMORY_WINDOW) + 32 * d * m)) as f64,
    flops: |[b, t, h, d, m, _]| (b * h * (memory_flops(t, d, m) + 4 * t * d * (WINDOW.min(t) + PREFIX))) as f64,
    small: |[_, _, _, d, m, _]| [1, CHUNK + 5, 1, d, m, 0],
    start: |device, sizes| layer(device, sizes, Combine::Gate)?.work(),
    check: |device, sizes| layer(device, sizes, Combine::Gate)?.check(),
};

/// The same sizes, and tokens of a segment.
static CONTEXT: Steps = Steps {
    names: &["B", "T", "H", "D", "M", "C"],
    dtype: DType::Bf16,
    bound: 1e-2,
    // Five tensors of tokens, the gates, the memory's state in and out, and five projections.
    bytes: |[b, t, h, d, m, _]| {
        (b * h * (10 * t * d + 4 * t * (3 + MEMORY_WINDOW) + 32 * d * m) + 10 * h * d * h * d) as f64
    },
    // Recalled keys are as many as those of tokens, of which half of a segment is seen. A recall is one read.
    flops: |[b, t, h, d, m, c]| {
        let of_head = memory_flops(t, d, m) + 4 * t * d * m + 4 * t * d * (c + PREFIX);
        (b * h * of_head + 10 * b * t * h * d * h * d) as f64
    },
    small: |[_, _, _, d, m, _]| [1, CHUNK + 5, 2, d, m, CHUNK],
    start: |device, sizes| layer(device, sizes, Combine::Context { segment: sizes[5] })?.work(),
    check: |device, sizes| layer(device, sizes, Combine::Context { segment: sizes[5] })?.check(),
};

/// A layer and a piece of its tokens.
struct Made {
    sizes: LayerSizes,
    rule: LayerRule,
    layer: AtlasLayer,
    weights: LayerWeights,
    memory: Vec<Tensor>,
    tokens: [Tensor; 6],
    gates: [Tensor; 3],
    gamma: Tensor,
    y: Tensor,
    /// Pieces of a sequence.
    pieces: usize,
}

fn layer(device: &Device, [b, t, h, d, m, _]: PlanSizes, combine: Combine) -> Result<Made> {
    let (t, pieces) = in_pieces(t);
    let rule = LayerRule {
        combine,
        memory: OmegaRule::omega_net(Chunking::new(CHUNK, MEMORY_WINDOW)),
        features: FeatureMap::None,
        residual: Residual::Raw,
        eps: 1e-6,
    };
    let dtype = DType::Bf16;
    let sizes = LayerSizes { sequences: b, heads: h, width: d, hidden: m, window: WINDOW, piece: t, dtype };
    let of = |dtype, name: &str, fill, shape: &[usize]| plan_tensor(device, dtype, name, fill, shape);
    let token = |name: &str| of(dtype, name, (0.0, unit(d)), &[b, t, h, d]);
    let gate = |name: &str, mean: f64| of(DType::F32, name, (mean, mean / 20.0), &[b, t, h]);
    let square = |name: &str| of(dtype, name, (0.0, unit(h * d)), &[h * d, h * d]);
    let context = match combine {
        Combine::Context { .. } => Some(ContextWeights {
            recalled: [square("rk")?, square("rv")?],
            memory: [square("yq")?, square("yk")?, square("yv")?],
            norms: Some([of(dtype, "nq", (unit(d), 0.0), &[h, d])?, of(dtype, "nk", (unit(d), 0.0), &[h, d])?]),
        }),
        _ => None,
    };
    let weights = LayerWeights {
        prefix_keys: of(dtype, "pk", (0.0, 1.0), &[h, PREFIX, d])?,
        prefix_values: of(dtype, "pv", (0.0, 1.0), &[h, PREFIX, d])?,
        memory_norm: of(dtype, "wm", (1.0, 0.1), &[h, d])?,
        attention_norm: of(dtype, "wa", (1.0, 0.1), &[h, d])?,
        inner_norm: None,
        context,
    };
    let matrix = |name: &str, sd: f64, rows: usize, cols: usize| of(DType::F32, name, (0.0, sd), &[b, h, rows, cols]);
    let memory = vec![matrix("w1", unit(m), d, m)?, matrix("w2", unit(d), m, d)?];
    Ok(Made {
        layer: AtlasLayer::new(device, sizes, rule.clone(), weights.clone(), &memory)?,
        sizes,
        rule,
        weights,
        memory,
        tokens: [token("q")?, token("k")?, token("v")?, token("aq")?, token("ak")?, token("av")?],
        // Steps so short that a memory that goes on from run to run stays as it is.
        gates: [gate("alpha", 0.95)?, gate("theta", 0.8)?, gate("eta", 1e-4)?],
        gamma: of(DType::F32, "gamma", (0.5, 0.1), &[b, t, h, MEMORY_WINDOW])?,
        y: Tensor::zeros(device, dtype, [b, t, h, d])?,
        pieces,
    })
}

impl Made {
    fn push(&mut self) -> Result<()> {
        let [q, k, v, aq, ak, av] = &self.tokens;
        let [alpha, theta, eta] = &self.gates;
        let gates = [alpha, theta, eta];
        let tokens = LayerTokens { memory: [q, k, v], attention: [aq, ak, av], gates, gamma: &self.gamma };
        // So that a graph of it may run again.
        self.layer.restart();
        (0..self.pieces).try_for_each(|_| self.layer.push(&tokens, &mut self.y))
    }

    fn work(mut self) -> Result<Work> {
        Ok(Box::new(move || self.push()))
    }

    fn check(mut self) -> Result<Comparison> {
        self.push()?;
        let mut host = HostLayer { gamma: self.gamma.to_f64_vec()?, ..HostLayer::default() };
        for i in 0..3 {
            host.memory[i] = self.tokens[i].to_f64_vec()?;
            host.attention[i] = self.tokens[3 + i].to_f64_vec()?;
            host.gates[i] = self.gates[i].to_f64_vec()?;
        }
        let w = &self.weights;
        host.prefix = [w.prefix_keys.to_f64_vec()?, w.prefix_values.to_f64_vec()?];
        host.norms = [w.memory_norm.to_f64_vec()?, w.attention_norm.to_f64_vec()?];
        host.weights = self.memory.iter().map(Tensor::to_f64_vec).collect::<Result<_>>()?;
        if let Some(c) = &w.context {
            let all = |t: &Tensor| t.to_f64_vec();
            let [rk, rv] = [all(&c.recalled[0])?, all(&c.recalled[1])?];
            let norms = c.norms.as_ref().map(|[q, k]| Ok::<_, atlas_runtime::RuntimeError>([all(q)?, all(k)?]));
            let memory = [all(&c.memory[0])?, all(&c.memory[1])?, all(&c.memory[2])?];
            host.context = HostContext { recalled: [rk, rv], memory, norms: norms.transpose()? };
        }
        let wanted = reference(&self.sizes, &self.rule, &host);
        Ok(Comparison::of_all([(&self.y.to_f64_vec()?[..], &wanted[..])]))
    }
}
