//! A diagnostic: a code, what was found, what was wanted, and where. Rendered in one place.
//!
//! Codes: `ATL0xx` syntax, `1xx` types, `2xx` Tile IR verifier, `3xx` schedule, `4xx` GPU IR
//! verifier, `5xx` back end, `6xx` launch.

use crate::ir::Loc;
use std::fmt;

/// A stable number that names a kind of mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ATL{:03}", self.0)
    }
}

/// One mistake, in the user's own names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Which kind of mistake.
    pub code: Code,
    /// What was found and what was wanted.
    pub message: String,
    /// Where, in the user's source or in the text form.
    pub loc: Loc,
    /// Further help, one sentence each.
    pub notes: Vec<String>,
}

impl Diagnostic {
    /// A diagnostic without notes.
    pub fn new(code: u16, loc: Loc, message: impl Into<String>) -> Diagnostic {
        Diagnostic { code: Code(code), message: message.into(), loc, notes: Vec::new() }
    }

    /// Adds a sentence of help.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Diagnostic {
        self.notes.push(note.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    /// One line: `error[ATL101]: message (line 3, column 7); note`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if self.loc.line > 0 {
            write!(f, " (line {}, column {})", self.loc.line, self.loc.column)?;
        }
        for note in &self.notes {
            write!(f, "; {note}")?;
        }
        Ok(())
    }
}

/// One or more diagnostics: what a failed check returns.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, d) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{d}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

impl From<Diagnostic> for Diagnostics {
    fn from(d: Diagnostic) -> Diagnostics {
        Diagnostics(vec![d])
    }
}
