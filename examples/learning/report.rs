//! What trainings came to: as a table, as JSON and as plots.

use super::model::{Part, Sizes};
use super::plot::{Curve, Plot};

/// One training of one model.
pub(crate) struct Run {
    pub(crate) task: &'static str,
    pub(crate) model: &'static str,
    pub(crate) weights: usize,
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    /// Steps, and the mean loss of the batches since the point before.
    pub(crate) losses: Vec<[f64; 2]>,
    /// The loss on text that was not trained on.
    pub(crate) unseen: Option<f64>,
    /// Distances in windows, and the share of right answers.
    pub(crate) recall: Vec<[f64; 2]>,
}

impl Run {
    /// The mean loss of the last batches.
    pub(crate) fn last_loss(&self) -> f64 {
        self.losses.last().map_or(f64::NAN, |p| p[1])
    }

    fn json(&self) -> String {
        let points = |of: &[[f64; 2]]| {
            let points: Vec<String> = of.iter().map(|[x, y]| format!("[{x}, {y:.4}]")).collect();
            points.join(", ")
        };
        format!(
            r#"  {{"task": "{}", "model": "{}", "weights": {}, "seed": {}, "seconds": {:.1}, "unseen": {},
   "losses": [{}],
   "recall": [{}]}}"#,
            self.task,
            self.model,
            self.weights,
            self.seed,
            self.seconds,
            self.unseen.map_or("null".to_owned(), |loss| format!("{loss:.4}")),
            points(&self.losses),
            points(&self.recall)
        )
    }
}

/// All trainings as JSON.
pub(crate) fn json(runs: &[Run]) -> String {
    let runs: Vec<String> = runs.iter().map(Run::json).collect();
    format!("[\n{}\n]\n", runs.join(",\n"))
}

/// Bytes in f32 that a model keeps of one sequence, so that it can go on with the next token: keys and values in the window of an
/// attention, or weights and momenta of a memory. Neither grows with the sequence.
pub(crate) fn kept_bytes(part: Part, sizes: &Sizes) -> usize {
    let numbers = match part {
        Part::Attention => 2 * sizes.window * sizes.width,
        Part::Memory => 4 * sizes.width * sizes.hidden,
        Part::Hidden => 0,
    };
    4 * numbers
}

/// Loss by step, recall by distance, and what one block keeps of a sequence by its length. The first two have a thin line for each
/// seed and a wide one for their mean.
pub(crate) fn plots(runs: &[Run], tasks: &[(&'static str, Sizes)]) -> Vec<Plot> {
    let mut plots = Vec::new();
    for (task, sizes) in tasks {
        let of_task: Vec<&Run> = runs.iter().filter(|run| run.task == *task).collect();
        let curves = |points: fn(&Run) -> &Vec<[f64; 2]>| curves(&of_task, points);
        let title = format!("{task}: loss in nats");
        plots.push(Plot { title, across: "steps", curves: curves(|run| &run.losses) });
        if of_task.iter().any(|run| !run.recall.is_empty()) {
            let title = format!("{task}: share of answers that are right");
            plots.push(Plot { title, across: "windows between pair and question", curves: curves(|run| &run.recall) });
        }
        let title = format!("{task}: KiB that one block keeps of a sequence (f32)");
        plots.push(Plot { title, across: "tokens", curves: kept(sizes) });
    }
    plots
}

/// A thin line for each run, and a wide one for the mean of each model.
fn curves(runs: &[&Run], points: fn(&Run) -> &Vec<[f64; 2]>) -> Vec<Curve> {
    let mut models: Vec<&str> = Vec::new();
    for run in runs {
        if !models.contains(&run.model) {
            models.push(run.model);
        }
    }
    let mut curves = Vec::new();
    for (colour, model) in models.iter().enumerate() {
        let of_model: Vec<&Vec<[f64; 2]>> =
            runs.iter().filter(|run| run.model == *model).map(|run| points(run)).collect();
        let mut mean = of_model[0].clone();
        for (i, point) in mean.iter_mut().enumerate() {
            point[1] = of_model.iter().map(|points| points[i][1]).sum::<f64>() / of_model.len() as f64;
        }
        curves.extend(of_model.iter().map(|points| Curve { name: None, colour, points: points.to_vec() }));
        curves.push(Curve { name: Some((*model).to_owned()), colour, points: mean });
    }
    curves
}

/// What a block keeps of sequences of different lengths. Attention without a window would keep all keys and values.
fn kept(sizes: &Sizes) -> Vec<Curve> {
    let lengths = [0, sizes.window, 32, 64, 128, 256, 512];
    let line = |colour, name: &str, bytes: &dyn Fn(usize) -> usize| {
        let points = lengths.iter().map(|n| [*n as f64, bytes(*n) as f64 / 1024.0]).collect();
        Curve { name: Some(name.to_owned()), colour, points }
    };
    let attention = |n: usize| kept_bytes(Part::Attention, &Sizes { window: n, ..*sizes });
    vec![
        line(0, "attention in a window", &|n| attention(n.min(sizes.window))),
        line(1, "memory", &|_| kept_bytes(Part::Memory, sizes)),
        line(2, "attention without a window, for comparison", &attention),
    ]
}
