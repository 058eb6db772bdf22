//! The configs of a kernel for one problem, best first, as data for people: what `explain` prints.

use super::config_source::ConfigSource;
use crate::cost::Cost;
use atlas_dsl::Config;
use std::fmt;

/// One config and what the model says of it.
#[derive(Clone)]
pub struct Candidate {
    /// The config.
    pub config: Config,
    /// Its cost, or why it cannot run.
    pub outcome: Outcome,
    /// What an earlier launch on this device found against it, short of a refusal: that its registers spill.
    pub drawback: Option<String>,
}

/// What the model says of a config.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Legal, at this cost; no cost where none was estimated (on the CPU, or given by the caller).
    Legal(Option<Cost>),
    /// Illegal, with the reason.
    Refused(String),
}

/// The configs of a kernel for one problem, best first, those refused last.
#[derive(Clone)]
pub struct Selection {
    /// The kernel.
    pub kernel: &'static str,
    /// Best first; refused ones last, in the order of the tune space.
    pub candidates: Vec<Candidate>,
    /// How the first came to be first.
    pub source: ConfigSource,
    /// What tuning records had to say, a line each.
    pub notes: Vec<String>,
}

impl Selection {
    /// The chosen config, if any is legal.
    pub fn chosen(&self) -> Option<&Config> {
        self.legal().next().map(|c| &c.config)
    }

    /// Legal candidates, best first.
    pub fn legal(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter().filter(|c| matches!(c.outcome, Outcome::Legal(_)))
    }

    /// Refused configs with their reasons.
    pub fn refused(&self) -> impl Iterator<Item = (&Config, &str)> {
        self.candidates.iter().filter_map(|c| match &c.outcome {
            Outcome::Refused(reason) => Some((&c.config, reason.as_str())),
            Outcome::Legal(_) => None,
        })
    }
}

impl fmt::Display for Selection {
    /// One line per config: what `explain` prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: chosen by {}", self.kernel, self.source)?;
        for note in &self.notes {
            writeln!(f, "     {note}")?;
        }
        for (rank, c) in self.candidates.iter().enumerate() {
            write!(f, "{:>3}  {}", rank + 1, c.config)?;
            match &c.outcome {
                Outcome::Refused(reason) => write!(f, "  refused: {reason}")?,
                Outcome::Legal(None) => {}
                Outcome::Legal(Some(cost)) => write!(
                    f,
                    "  {:.0} cycles, {} programs in {} waves of {} per SM, {} bytes shared, about {} registers",
                    cost.cycles, cost.programs, cost.waves, cost.ctas_per_sm, cost.shared_bytes, cost.registers,
                )?,
            }
            match &c.drawback {
                Some(drawback) => writeln!(f, "; {drawback}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
