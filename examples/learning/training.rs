//! How both models learn: sizes, steps, rates and seeds.

use super::model::{Model, Part, Sizes};
use super::tasks::{Batch, Needle};

/// The greatest rates of AdamW, and the steps until they are reached.
pub(crate) const RECALL_RATE: f32 = 2e-3;
pub(crate) const TEXT_RATE: f32 = 1e-2;
const WARM_UP: usize = 20;

/// Steps of a training, without `--steps`.
pub(crate) const RECALL_STEPS: usize = 300;
pub(crate) const TEXT_STEPS: usize = 1000;

/// Both models: a name, the blocks, and the elements of hidden layers. The model without a memory has wider hidden layers, so that both
/// have about as many weights.
pub(crate) const MODELS: [(&str, [Part; 4], usize); 2] = [
    ("attention", [Part::Attention, Part::Hidden, Part::Attention, Part::Hidden], 100),
    ("with a memory", [Part::Attention, Part::Hidden, Part::Memory, Part::Hidden], 64),
];

pub(crate) const RECALL: Needle = Needle { keys: 8, pairs: 4 };

/// The sizes of a model for `needle`.
pub(crate) const RECALL_SIZES: Sizes = Sizes {
    sequences: 8,
    tokens: 48,
    vocabulary: RECALL.vocabulary(),
    width: 32,
    heads: 1,
    mlp: 64,
    window: 4,
    hidden: 64,
    chunk: 16,
    reach: 2,
    keys_before: true,
    longest_step: 0.07,
};

/// The sizes of a model for `bytes`. Steps are shorter: in text, keys of one chunk are alike, and their steps add up, because all of
/// them are taken at the memory before the chunk.
pub(crate) const TEXT_SIZES: Sizes =
    Sizes { tokens: 256, vocabulary: 256, heads: 2, window: 8, longest_step: 0.01, ..RECALL_SIZES };

/// Learns, at a rate that rises for a while and then falls to a tenth. Returns the mean loss of every so many steps, as points of a
/// curve.
pub(crate) fn train(
    model: &mut Model,
    rate: f32,
    steps: usize,
    mut batch: impl FnMut() -> Batch,
) -> atlas::Result<Vec<[f64; 2]>> {
    let (mut points, mut sum) = (Vec::new(), 0.0);
    let every = steps.div_ceil(20);
    for i in 0..steps {
        sum += model.loss(&batch())?;
        model.backward()?;
        let rise = ((i + 1) as f32 / WARM_UP as f32).min(1.0);
        model.parameters.step(rate * rise * (1.0 - 0.9 * i as f32 / steps as f32))?;
        if (i + 1) % every == 0 {
            points.push([(i + 1) as f64, sum / every as f64]);
            sum = 0.0;
        }
    }
    Ok(points)
}
