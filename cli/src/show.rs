//! Tables, progress and JSON on the terminal.

use super::print::{say, tell};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// A table with these headings.
pub(super) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(headings);
    table
}

/// Aligns the columns with these headings to the right.
pub(super) fn right(table: &mut Table, columns: &[usize]) {
    for &i in columns {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// A small number in scientific notation.
pub(super) fn small(x: f64) -> String {
    if x == 0.0 { "0".to_owned() } else { format!("{x:.1e}") }
}

/// A time in a suitable unit.
pub(super) fn time(ms: f64) -> String {
    match ms {
        ms if ms >= 1000.0 => format!("{:.2} s", ms / 1000.0),
        ms if ms >= 1.0 => format!("{ms:.3} ms"),
        ms => format!("{:.2} us", ms * 1000.0),
    }
}

/// Above this many steps, a pipe gets no line for each.
const FEW: usize = 100;
/// The least time between two lines of many.
const BETWEEN: Duration = Duration::from_secs(1);

/// The least time between two lines of one step.
pub(super) const WITHIN: Duration = Duration::from_secs(10);

/// A progress bar on a terminal. In a pipe, a plain line for each step of few, and one a second for many. Both go to stderr.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    done: usize,
    total: usize,
    /// The step that has begun.
    step: String,
    /// When the last line was printed.
    printed: Option<Instant>,
}

impl Progress {
    /// Progress over `total` steps.
    pub(super) fn new(total: usize) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total as u64);
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Progress { bar, done: 0, total, step: String::new(), printed: None }
    }

    /// Begins a step.
    pub(super) fn step(&mut self, what: &str) {
        self.done += 1;
        what.clone_into(&mut self.step);
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.done as u64 - 1);
                bar.set_message(what.to_owned());
            }
            None if self.total <= FEW || self.printed.is_none_or(|at| at.elapsed() >= BETWEEN) => {
                tell!("[{}/{}] {what}", self.done, self.total);
                self.printed = Some(Instant::now());
            }
            None => {}
        }
    }

    /// Says how far a step is that takes long. In a pipe, one line in ten seconds.
    pub(super) fn within(&mut self, how_far: &str) {
        self.update(&format!("{}: {how_far}", self.step), how_far);
    }

    /// Says what the next step waits for. In a pipe, one line in ten seconds.
    pub(super) fn before_next(&mut self, what: &str) {
        self.update(what, what);
    }

    fn update(&mut self, of_bar: &str, of_pipe: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(of_bar.to_owned()),
            None if self.printed.is_none_or(|at| at.elapsed() >= WITHIN) => {
                tell!("  {of_pipe}");
                self.printed = Some(Instant::now());
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Prints a value as indented JSON.
pub(super) fn json(value: &serde_json::Value) {
    say!("{value:#}");
}

#[cfg(test)]
mod tests {
    use super::{Progress, WITHIN};
    use std::time::Instant;

    #[test]
    fn a_pipe_hears_of_a_long_step_now_and_then() {
        let heard = |printed: Option<Instant>| {
            let mut progress = Progress { bar: None, done: 1, total: 1, step: String::new(), printed };
            progress.within("round 2 of 4");
            progress.printed != printed
        };
        assert!(heard(None) && heard(Instant::now().checked_sub(WITHIN)));
        assert!(!heard(Some(Instant::now())));
    }
}
