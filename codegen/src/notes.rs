//! The decisions of passes with their reasons. Passes record them, and `explain` prints them.

use atlas_dsl::ir::Loc;
use std::fmt;

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The pass that decided.
    pub pass: &'static str,
    /// Its subject, in a word or two: `product`, `load X`.
    pub subject: String,
    /// The source location, if one location asks for it.
    pub loc: Loc,
    /// The decision.
    pub decision: String,
    /// The reason.
    pub because: String,
}

/// The decisions about a kernel, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// The running pass.
    pub(crate) pass: &'static str,
    kept: Option<Vec<Note>>,
}

impl Notes {
    /// Discards notes, for callers that only want the kernel.
    pub fn forgotten() -> Notes {
        Notes::default()
    }

    /// Keeps notes.
    pub fn kept() -> Notes {
        Notes { pass: "", kept: Some(Vec::new()) }
    }

    /// True if notes are kept.
    pub fn are_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Adds a decision of the running pass. `say` gives the decision and its reason, and is only called if notes are kept.
    pub fn push(&mut self, subject: impl fmt::Display, loc: Loc, say: impl FnOnce() -> (String, String)) {
        if let Some(kept) = &mut self.kept {
            let (decision, because) = say();
            kept.push(Note { pass: self.pass, subject: subject.to_string(), loc, decision, because });
        }
    }

    /// Discards the notes of a schedule that was refused, before another one is tried.
    pub(crate) fn begin_anew(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.clear();
        }
    }

    /// The notes that were kept.
    pub fn into_vec(self) -> Vec<Note> {
        self.kept.unwrap_or_default()
    }
}

/// `12:17`, or nothing if no location is known.
pub(crate) fn place(loc: Loc) -> String {
    match loc.line {
        0 => String::new(),
        line => format!("{line}:{}", loc.column),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_reads_is_not_made() {
        let mut notes = Notes::forgotten();
        notes.push("registers", Loc::default(), || unreachable!("nobody reads it"));
        assert_eq!(notes.into_vec(), []);
        let mut notes = Notes::kept();
        notes.pass = "check_registers";
        notes.push("registers", Loc::default(), || ("few".into(), "small tiles".into()));
        let [note] = &notes.into_vec()[..] else { panic!("one note") };
        assert_eq!((note.pass, &note.decision[..], &note.because[..]), ("check_registers", "few", "small tiles"));
    }
}
