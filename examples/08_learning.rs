//! Lesson 8: a small language model learns, with Atlas alone.
//!
//! `cargo run --release --example 08_learning` trains two models of the same size on two tasks, and compares them. One has attention
//! over a short window in both of its blocks. In the other one, the second block has a memory that is trained while it reads.
//!
//! | option | meaning |
//! |---|---|
//! | `--task needle`, `--task bytes` | one task alone |
//! | `--task precision` | what 16 bits cost, compared with f64; needs `--features verify` |
//! | `--steps N` | steps of each training |
//! | `--seeds N`, `--seeds A-B` | trains with the seeds 1 to N, or A to B; each has other weights and other batches |
//! | `--plot FILE` | draws losses, and recall by distance, as SVG |
//! | `--json FILE` | writes the same numbers as JSON |
//! | `--check` | compares the gradients of both models with differences first |

mod learning;

use atlas::prelude::*;
use learning::check::check;
use learning::model::{Model, Sizes};
use learning::numbers::Numbers;
use learning::training::{MODELS, RECALL, RECALL_RATE, RECALL_SIZES, TEXT_SIZES, train};
use learning::{plot, recall, report, text};
use std::error::Error;

struct Options {
    tasks: Vec<String>,
    steps: Option<usize>,
    seeds: Vec<u64>,
    plot: Option<String>,
    json: Option<String>,
    check: bool,
}

impl Options {
    fn parse() -> Result<Options, Box<dyn Error>> {
        let tasks = vec!["needle".to_owned(), "bytes".to_owned()];
        let mut options = Options { tasks, steps: None, seeds: vec![1], plot: None, json: None, check: false };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} takes a value"));
            match word.as_str() {
                "--task" => options.tasks = vec![value()?],
                "--steps" => options.steps = Some(value()?.parse::<usize>()?.max(1)),
                "--seeds" => {
                    let seeds = value()?;
                    let (first, last) = seeds.split_once('-').unwrap_or(("1", &seeds));
                    options.seeds = (first.parse()?..=last.parse()?).collect();
                    if options.seeds.is_empty() {
                        return Err(format!("--seeds {seeds}: no seed is in it").into());
                    }
                }
                "--plot" => options.plot = Some(value()?),
                "--json" => options.json = Some(value()?),
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
    let (mut runs, mut tasks) = (Vec::new(), Vec::new());
    for task in &options.tasks {
        match task.as_str() {
            "needle" => {
                runs.extend(recall::recall(&device, options.steps, &options.seeds)?);
                tasks.push(("needle", RECALL_SIZES));
            }
            "bytes" => {
                runs.extend(text::text(&device, options.steps, &options.seeds)?);
                tasks.push(("bytes", TEXT_SIZES));
            }
            #[cfg(feature = "verify")]
            "precision" => learning::precision::precision(&device, options.steps, options.seeds[0])?,
            #[cfg(not(feature = "verify"))]
            "precision" => return Err("precision needs the option --features verify of cargo".into()),
            other => return Err(format!("{other}: the tasks are needle, bytes and precision").into()),
        }
    }
    if let Some(file) = &options.plot {
        std::fs::write(file, plot::plot(&report::plots(&runs, &tasks)))?;
        println!("drawn to {file}");
    }
    if let Some(file) = &options.json {
        std::fs::write(file, report::json(&runs))?;
        println!("written to {file}");
    }
    if options.steps.is_none() && !recall::reached(&runs) {
        return Err("a model with a memory recalls too little".into());
    }
    if options.steps.is_none() && !text::reached(&runs) {
        println!("the model with a memory does not have the lower loss on unseen text with every seed");
    }
    Ok(())
}

/// Checks both models, on one sequence whose last chunk is not full. A gradient that is 5 % too long has to be noticed.
fn check_gradients(device: &Device) -> Result<(), Box<dyn Error>> {
    for (name, parts, mlp) in MODELS {
        println!("\n{name}");
        let sizes = Sizes { sequences: 1, tokens: 37, heads: 2, mlp, ..RECALL_SIZES };
        let mut model = Model::new(device, sizes, &parts, 5)?;
        let mut numbers = Numbers::new(5);
        let mut batch = || RECALL.batch(sizes.sequences, sizes.tokens, &mut numbers, None);
        // After some steps no gradient is as small as at the start.
        train(&mut model, RECALL_RATE, 10, &mut batch)?;
        check(&mut model, &batch(), 0.05)?;
    }
    Ok(())
}
