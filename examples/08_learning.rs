//! Lesson 8: a small language model learns, with Atlas alone.
//!
//! `cargo run --release --example 08_learning` trains two models of the same size on two tasks, and compares them. One has attention
//! over a short window in both of its blocks. In the other one, the second block has a memory that is trained while it reads.
//!
//! | option | meaning |
//! |---|---|
//! | `--task needle`, `--task bytes` | one task alone |
//! | `--steps N` | steps of each training |
//! | `--seeds N` | how often each model learns to recall, each time from other weights and on other sequences |
//! | `--plot FILE` | draws the losses, and recall by distance, as SVG |
//! | `--check` | compares the gradients of both models with differences first |

mod learning;

use atlas::prelude::*;
use learning::check::check;
use learning::model::{Mixer, Model, Sizes};
use learning::numbers::Numbers;
use learning::plot::{Curve, Plot, plot};
use learning::tasks::{Batch, Needle, Text};
use std::error::Error;
use std::time::Instant;

/// The greatest rates of AdamW, and the steps until they are reached.
const RECALL_RATE: f32 = 2e-3;
const TEXT_RATE: f32 = 1e-2;
const WARM_UP: usize = 20;

/// Steps of a training, without `--steps`.
const RECALL_STEPS: usize = 500;
const TEXT_STEPS: usize = 300;

/// Batches of text by which a trained model is measured.
const PIECES: u32 = 40;

/// Both models: a name, the mixers of its blocks, and the elements of its hidden layers. The model without a memory has wider hidden
/// layers, so that both have about as many weights.
const MODELS: [(&str, [Mixer; 2], usize); 2] = [
    ("attention", [Mixer::Attention, Mixer::Attention], 100),
    ("with a memory", [Mixer::Attention, Mixer::Memory], 64),
];

/// Distances between the last pair and a question, in windows.
const DISTANCES: [f64; 5] = [0.7, 2.0, 4.0, 7.0, 8.0];

const RECALL: Needle = Needle { keys: 8, pairs: 4 };
const RECALL_SIZES: Sizes = Sizes {
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
};
const TEXT_SIZES: Sizes = Sizes { tokens: 64, vocabulary: 256, window: 8, ..RECALL_SIZES };

struct Options {
    tasks: Vec<String>,
    steps: Option<usize>,
    seeds: u64,
    plot: Option<String>,
    check: bool,
}

impl Options {
    fn parse() -> Result<Options, Box<dyn Error>> {
        let tasks = vec!["needle".to_owned(), "bytes".to_owned()];
        let mut options = Options { tasks, steps: None, seeds: 1, plot: None, check: false };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} takes a value"));
            match word.as_str() {
                "--task" => options.tasks = vec![value()?],
                "--steps" => options.steps = Some(value()?.parse::<usize>()?.max(1)),
                "--seeds" => options.seeds = value()?.parse()?,
                "--plot" => options.plot = Some(value()?),
                "--check" => options.check = true,
                _ => return Err(format!("{word}: not an option of this lesson").into()),
            }
        }
        Ok(options)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse()?;
    let device = Device::best()?;
    println!("on {device}");
    if options.check {
        check_gradients(&device)?;
    }
    let mut plots = Vec::new();
    for task in &options.tasks {
        match task.as_str() {
            "needle" => plots.extend(recall(&device, &options)?),
            "bytes" => plots.push(text(&device, &options)?),
            other => return Err(format!("{other}: the tasks are needle and bytes").into()),
        }
    }
    if let Some(file) = &options.plot {
        std::fs::write(file, plot(&plots))?;
        println!("drawn to {file}");
    }
    Ok(())
}

/// Learns, at a rate that rises for a while and then falls to a tenth. Returns the mean loss of every so many steps, as points of a
/// curve.
fn train(model: &mut Model, rate: f32, steps: usize, mut batch: impl FnMut() -> Batch) -> atlas::Result<Vec<[f64; 2]>> {
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

/// Pairs, then questions. Prints recall by distance, for each seed and model.
fn recall(device: &Device, options: &Options) -> Result<[Plot; 2], Box<dyn Error>> {
    let steps = options.steps.unwrap_or(RECALL_STEPS);
    let (mut losses, mut recalls) = (Vec::new(), Vec::new());
    println!("\nneedle: {} pairs, {steps} steps, chance {:.3}", RECALL.pairs, 1.0 / RECALL.keys as f64);
    println!("recall by the distance in windows of {} tokens", RECALL_SIZES.window);
    println!("{:14} seed weights   loss    s {}", "model", DISTANCES.map(|d| format!("{d:>6.1}")).join(""));
    for seed in 0..options.seeds {
        for (name, mixers, mlp) in MODELS {
            let sizes = Sizes { mlp, ..RECALL_SIZES };
            let mut model = Model::new(device, sizes, &mixers, seed)?;
            let mut numbers = Numbers::new(1000 + seed);
            let start = Instant::now();
            let batch = || RECALL.batch(sizes.sequences, sizes.tokens, &mut numbers, None);
            let points = train(&mut model, RECALL_RATE, steps, batch)?;
            let seconds = start.elapsed().as_secs_f64();
            let mut found = Vec::new();
            for distance in DISTANCES {
                found.push([distance, recalled(&mut model, (distance * sizes.window as f64) as usize)?]);
            }
            let row: String = found.iter().map(|[_, share]| format!("{share:>6.2}")).collect();
            let (loss, count) = (points[points.len() - 1][1], model.parameters.count());
            println!("{name:14} {seed:>4} {count:>7} {loss:>6.3} {seconds:>4.0} {row}");
            if seed == 0 {
                let learned = found.iter().all(|[_, share]| *share > 0.8);
                assert!(steps < RECALL_STEPS || !mixers.contains(&Mixer::Memory) || learned, "the memory recalls");
                losses.push(Curve { name: name.to_owned(), points });
                recalls.push(Curve { name: name.to_owned(), points: found });
            }
        }
    }
    Ok([
        Plot { title: "loss of answers, in nats", across: "steps", curves: losses },
        Plot { title: "share of answers that are right", across: "windows", curves: recalls },
    ])
}

/// The share of questions at a distance from the last pair that the model answers right, of 128.
fn recalled(model: &mut Model, distance: usize) -> Result<f64, Box<dyn Error>> {
    let Sizes { sequences, tokens, vocabulary, .. } = model.sizes;
    let mut numbers = Numbers::new(99);
    let (mut right, mut all) = (0, 0);
    for _ in 0..128 / sequences {
        let batch = RECALL.batch(sequences, tokens, &mut numbers, Some(distance));
        let logits = model.logits(&batch.tokens)?.to_vec::<f32>()?;
        for (row, target) in logits.chunks(vocabulary).zip(&batch.targets).filter(|(_, target)| **target >= 0) {
            let best = (0..vocabulary).max_by(|a, b| row[*a].total_cmp(&row[*b])).expect("a vocabulary");
            right += usize::from(best as i32 == *target);
            all += 1;
        }
    }
    Ok(f64::from(right as u32) / f64::from(all as u32))
}

/// The text of the repository, byte by byte. Prints losses side by side, and what the model with a memory writes.
fn text(device: &Device, options: &Options) -> Result<Plot, Box<dyn Error>> {
    let steps = options.steps.unwrap_or(TEXT_STEPS);
    let text = Text::of_repository()?;
    println!("\nbytes: {} kB of this repository's text, {steps} steps, losses in nats a byte", text.len() / 1000);
    let (mut curves, mut models) = (Vec::new(), Vec::new());
    for (name, mixers, mlp) in MODELS {
        let sizes = Sizes { mlp, ..TEXT_SIZES };
        let mut model = Model::new(device, sizes, &mixers, 0)?;
        let mut numbers = Numbers::new(1000);
        let start = Instant::now();
        let batch = || text.batch(sizes.sequences, sizes.tokens, &mut numbers, false);
        let points = train(&mut model, TEXT_RATE, steps, batch)?;
        let seconds = start.elapsed().as_secs_f64();
        let mut numbers = Numbers::new(99);
        let mut unseen = 0.0;
        for _ in 0..PIECES {
            unseen += model.loss(&text.batch(sizes.sequences, sizes.tokens, &mut numbers, true))? / f64::from(PIECES);
        }
        let count = model.parameters.count();
        println!("{name:14} {count:>7} weights, {seconds:>4.0} s, {unseen:.3} on text that it has not seen");
        curves.push(Curve { name: name.to_owned(), points });
        models.push(model);
    }
    println!("{:>6} {}", "step", MODELS.map(|(name, ..)| format!("{name:>14}")).join(""));
    for (a, b) in curves[0].points.iter().zip(&curves[1].points) {
        println!("{:>6} {:>14.3}{:>14.3}", a[0], a[1], b[1]);
    }
    println!("the model {} continues text, from the bar on:", MODELS[1].0);
    write(&mut models[1], &text)?.iter().for_each(|line| println!("  {line}"));
    Ok(Plot { title: "loss of bytes, in nats", across: "steps", curves })
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

/// Checks both models, on one sequence whose last chunk is not full. A gradient that is 5 % too long has to be noticed.
fn check_gradients(device: &Device) -> Result<(), Box<dyn Error>> {
    for (name, mixers, mlp) in MODELS {
        println!("\n{name}");
        let sizes = Sizes { sequences: 1, tokens: 37, heads: 2, mlp, ..RECALL_SIZES };
        let mut model = Model::new(device, sizes, &mixers, 5)?;
        let mut numbers = Numbers::new(5);
        let mut batch = || RECALL.batch(sizes.sequences, sizes.tokens, &mut numbers, None);
        // After some steps no gradient is as small as at the start.
        train(&mut model, RECALL_RATE, 10, &mut batch)?;
        check(&mut model, &batch(), 0.05)?;
    }
    Ok(())
}
