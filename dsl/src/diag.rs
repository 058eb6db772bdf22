//! A diagnostic: a code, what was found, what was wanted, and where. All diagnostics are rendered here.
//!
//! Codes: `ATL0xx` syntax, `1xx` types, `2xx` Tile IR verifier, `3xx` schedule, `4xx` GPU IR
//! verifier, `5xx` back end, `6xx` launch.

use crate::ir::Loc;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use std::fmt;
use std::ops::Range;

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

/// One or more diagnostics: the error of a failed check.
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

/// The diagnostics as text for people, each with its source line and carets under the word it is about.
///
/// `source_name` is shown before the line, as in `gemm.tile:3:7`. A diagnostic without a known location shows no line.
pub fn render(diags: &Diagnostics, source_name: &str, source: &str) -> String {
    let renderer = Renderer::plain();
    let mut text = String::new();
    for d in &diags.0 {
        let title = Level::ERROR.primary_title(d.message.as_str()).id(d.code.to_string());
        let notes = d.notes.iter().map(|n| Level::NOTE.message(n.as_str()));
        let group = match word_at(source, d.loc) {
            Some(span) => {
                let snippet = Snippet::source(source).path(source_name).annotation(AnnotationKind::Primary.span(span));
                title.element(snippet).elements(notes)
            }
            None => title.elements(notes),
        };
        text.push_str(&renderer.render(&[group]));
        text.push('\n');
    }
    text
}

/// The bytes of the word, or of the one other character, at a location. `None` if the source has no such location.
fn word_at(source: &str, loc: Loc) -> Option<Range<usize>> {
    let line = source.split_inclusive('\n').nth((loc.line as usize).checked_sub(1)?)?;
    // Lines borrow from the source, so their lengths add up to the offset.
    let before: usize = source.split_inclusive('\n').take(loc.line as usize - 1).map(str::len).sum();
    let content = line.trim_end_matches(['\n', '\r']);
    let skipped: usize = content.chars().take((loc.column as usize).saturating_sub(1)).map(char::len_utf8).sum();
    let start = before + skipped;
    let rest = source.get(start..before + content.len())?;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let sigil = rest.chars().next().filter(|c| matches!(c, '%' | '@')).map_or(0, char::len_utf8);
    let word: usize = rest.get(sigil..)?.chars().take_while(|&c| is_word(c)).map(char::len_utf8).sum();
    let one = rest.chars().next().map_or(0, char::len_utf8);
    Some(start..start + (sigil + word).max(one))
}
