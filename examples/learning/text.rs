//! The task `bytes`: to continue the text of this repository.

use super::model::{Model, Sizes};
use super::numbers::Numbers;
use super::report::Run;
use super::tasks::Text;
use super::training::{MODELS, TEXT_RATE, TEXT_SIZES, TEXT_STEPS, train};
use atlas::prelude::*;
use std::error::Error;
use std::time::Instant;

/// Batches of text by which a trained model is measured.
const PIECES: u32 = 100;

/// Trains both models with each seed, on the same pieces of text in the same order. Prints losses side by side, and what the last model
/// with a memory writes.
pub(crate) fn text(device: &Device, steps: Option<usize>, seeds: &[u64]) -> Result<Vec<Run>, Box<dyn Error>> {
    let steps = steps.unwrap_or(TEXT_STEPS);
    let text = Text::of_repository()?;
    println!("\nbytes: {} kB of this repository's text, {steps} steps, losses in nats a byte", text.len() / 1000);
    println!("{:14} seed weights   loss  unseen    s", "model");
    let mut runs = Vec::new();
    for (i, seed) in seeds.iter().enumerate() {
        for (j, (name, ..)) in MODELS.iter().enumerate() {
            let (mut model, run) = learned(device, &text, steps, j, *seed)?;
            let (loss, unseen) = (run.last_loss(), run.unseen.unwrap_or(f64::NAN));
            println!("{name:14} {seed:>4} {:>7} {loss:>6.3}  {unseen:>6.3} {:>4.0}", run.weights, run.seconds);
            runs.push(run);
            if i + 1 == seeds.len() && j + 1 == MODELS.len() {
                println!("the model {name} continues text, from the bar on:");
                write(&mut model, &text)?.iter().for_each(|line| println!("  {line}"));
            }
        }
    }
    Ok(runs)
}

/// Trains a model of [`MODELS`] on text, with a seed.
pub(crate) fn learned(
    device: &Device,
    text: &Text,
    steps: usize,
    which: usize,
    seed: u64,
) -> Result<(Model, Run), Box<dyn Error>> {
    let (name, parts, mlp) = MODELS[which];
    let sizes = Sizes { mlp, ..TEXT_SIZES };
    let mut model = Model::new(device, sizes, &parts, seed)?;
    let mut numbers = Numbers::new(1000 + seed);
    let start = Instant::now();
    let batch = || text.batch(sizes.sequences, sizes.tokens, &mut numbers, false);
    let losses = train(&mut model, TEXT_RATE, steps, batch)?;
    let seconds = start.elapsed().as_secs_f64();
    let mut numbers = Numbers::new(99);
    let mut unseen = 0.0;
    for _ in 0..PIECES {
        unseen += model.loss(&text.batch(sizes.sequences, sizes.tokens, &mut numbers, true))? / f64::from(PIECES);
    }
    let weights = model.parameters.count();
    let run =
        Run { task: "bytes", model: name, weights, seed, seconds, losses, unseen: Some(unseen), recall: Vec::new() };
    Ok((model, run))
}

/// Whether the model with a memory has the lower loss on unseen text, with each seed.
pub(crate) fn reached(runs: &[Run]) -> bool {
    let unseen = |model: &str| -> Vec<Option<f64>> {
        runs.iter().filter(|run| run.task == "bytes" && run.model == model).map(|run| run.unseen).collect()
    };
    unseen(MODELS[0].0).iter().zip(unseen(MODELS[1].0)).all(|(without, with)| with < *without)
}

/// Continues pieces of text that the model has not seen, each from its first half on.
fn write(model: &mut Model, text: &Text) -> Result<Vec<String>, Box<dyn Error>> {
    let Sizes { sequences, tokens, vocabulary, .. } = model.sizes;
    let mut numbers = Numbers::new(7);
    let mut rows = text.batch(sequences, tokens, &mut numbers, true).tokens;
    for at in tokens / 2..tokens {
        let logits = model.logits(&rows)?.to_vec::<f32>()?;
        for row in 0..sequences {
            let here = row * tokens + at;
            rows[here] = drawn(&logits[(here - 1) * vocabulary..here * vocabulary], &mut numbers);
        }
    }
    let shown = |bytes: &[i32]| {
        let text: Vec<u8> = bytes.iter().map(|b| *b as u8).collect();
        String::from_utf8_lossy(&text).replace(char::is_control, " ")
    };
    Ok(rows
        .chunks(tokens)
        .take(4)
        .map(|r| format!("{}|{}", shown(&r[..tokens / 2]), shown(&r[tokens / 2..])))
        .collect())
}

/// A token, drawn with the probabilities of these logits. The temperature 0.7 prefers likely ones.
fn drawn(logits: &[f32], numbers: &mut Numbers) -> i32 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = logits.iter().map(|l| ((l - most) / 0.7).exp()).collect();
    let mut left = numbers.uniform() * weights.iter().sum::<f32>();
    let of = |w: &f32| {
        left -= w;
        left < 0.0
    };
    weights.iter().position(of).unwrap_or(weights.len() - 1) as i32
}
