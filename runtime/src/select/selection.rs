//! The configs of a kernel for one problem, best first, in a readable form: the output of `explain`.

use super::config_source::ConfigSource;
use crate::cost::Cost;
use atlas_dsl::Config;
use std::fmt;

/// One config and the model's result for it.
#[derive(Clone)]
pub struct Candidate {
    /// The config.
    pub config: Config,
    /// Its cost, or why it cannot run.
    pub outcome: Outcome,
    /// A drawback that an earlier launch on this device found, short of a refusal: its registers spill.
    pub drawback: Option<String>,
}

/// The model's result for a config.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Legal, with its cost. There is no cost if none was estimated (on the CPU, or for the caller's config).
    Legal(Option<Cost>),
    /// Illegal, with the reason.
    Refused(String),
}

/// The configs of a kernel for one problem: legal ones best first, then the refused ones.
#[derive(Clone)]
pub struct Selection {
    /// The kernel.
    pub kernel: &'static str,
    /// Best first; refused ones last, in the order of the tune space.
    pub candidates: Vec<Candidate>,
    /// How the first one was chosen.
    pub source: ConfigSource,
    /// Notes about the tuning records, one per line.
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
    /// One line per config, as `explain` prints them.
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
                Outcome::Legal(Some(cost)) => {
                    write!(f, "  {:.0} cycles, ", cost.cycles)?;
                    // The model counts each CTA that shares a program.
                    match c.config.schedule.split_k {
                        1 => write!(f, "{} programs", cost.programs)?,
                        splits => {
                            let programs = cost.programs / u64::from(splits);
                            write!(f, "{programs} programs of {splits} CTAs, {} CTAs", cost.programs)?;
                        }
                    }
                    write!(
                        f,
                        " in {} waves of {} per SM, {} bytes shared, about {} registers",
                        cost.waves, cost.ctas_per_sm, cost.shared_bytes, cost.registers,
                    )?;
                }
            }
            match &c.drawback {
                Some(drawback) => writeln!(f, "; {drawback}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
