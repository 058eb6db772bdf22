//! The task `needle`: pairs, then questions about them.

use super::model::{Model, Sizes};
use super::numbers::Numbers;
use super::report::Run;
use super::training::{MODELS, RECALL, RECALL_RATE, RECALL_SIZES, RECALL_STEPS, train};
use atlas::prelude::*;
use std::error::Error;
use std::time::Instant;

/// Distances between the last pair and a question, in windows. Trainings have questions at up to `LEARNED` windows.
const DISTANCES: [f64; 7] = [0.7, 2.0, 4.0, 7.0, 8.0, 16.0, 32.0];
const LEARNED: f64 = 8.0;

/// The share of right answers that a model with a memory has to reach at these distances.
const WANTED: f64 = 0.9;

/// Questions of each distance, in batches.
const QUESTIONS: usize = 128;
const BATCH: usize = 32;

/// Trains both models with each seed. Prints recall by distance.
pub(crate) fn recall(device: &Device, steps: Option<usize>, seeds: &[u64]) -> Result<Vec<Run>, Box<dyn Error>> {
    let steps = steps.unwrap_or(RECALL_STEPS);
    println!("\nneedle: {} pairs, {steps} steps, chance {:.3}", RECALL.pairs, 1.0 / RECALL.keys as f64);
    println!("recall by the distance in windows of {} tokens", RECALL_SIZES.window);
    println!("{:14} seed weights   loss    s {}", "model", DISTANCES.map(|d| format!("{d:>6.1}")).join(""));
    let mut runs = Vec::new();
    for seed in seeds {
        for (name, parts, mlp) in MODELS {
            let sizes = Sizes { mlp, ..RECALL_SIZES };
            let mut model = Model::new(device, sizes, &parts, *seed)?;
            let mut numbers = Numbers::new(1000 + seed);
            let start = Instant::now();
            let batch = || RECALL.batch(sizes.sequences, sizes.tokens, &mut numbers, None);
            let losses = train(&mut model, RECALL_RATE, steps, batch)?;
            let seconds = start.elapsed().as_secs_f64();
            let mut found = Vec::new();
            for distance in DISTANCES {
                found.push([distance, recalled(&model, (distance * sizes.window as f64) as usize)?]);
            }
            let row: String = found.iter().map(|[_, share]| format!("{share:>6.2}")).collect();
            let weights = model.parameters.count();
            let run =
                Run { task: "needle", model: name, weights, seed: *seed, seconds, losses, unseen: None, recall: found };
            println!("{name:14} {seed:>4} {weights:>7} {:>6.3} {seconds:>4.0} {row}", run.last_loss());
            runs.push(run);
        }
    }
    Ok(runs)
}

/// Whether each model with a memory recalls what it should, as far as it was trained to.
pub(crate) fn reached(runs: &[Run]) -> bool {
    let with_memory = runs.iter().filter(|run| run.task == "needle" && run.model == MODELS[1].0);
    let mut near = with_memory.flat_map(|run| &run.recall).filter(|[distance, _]| *distance <= LEARNED);
    near.all(|[_, share]| *share >= WANTED)
}

/// The share of questions at a distance from the last pair that the model answers right.
fn recalled(model: &Model, distance: usize) -> Result<f64, Box<dyn Error>> {
    // A question has three tokens, the last of which is the answer.
    let tokens = (2 * RECALL.pairs + distance + 3).next_multiple_of(model.sizes.chunk);
    let mut model = model.resized(BATCH, tokens)?;
    let mut numbers = Numbers::new(99);
    let mut right = 0;
    for _ in 0..QUESTIONS / BATCH {
        let batch = RECALL.batch(BATCH, tokens, &mut numbers, Some(distance));
        let logits = model.logits(&batch.tokens)?.to_vec::<f32>()?;
        for (row, target) in
            logits.chunks(model.sizes.vocabulary).zip(&batch.targets).filter(|(_, target)| **target >= 0)
        {
            let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).expect("a vocabulary");
            right += usize::from(best as i32 == *target);
        }
    }
    Ok(right as f64 / QUESTIONS as f64)
}
