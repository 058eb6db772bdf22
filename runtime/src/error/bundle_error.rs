//! Why a bundle cannot be used, and how text from a file is shown in a message.

use atlas_dsl::diag::Code;
use std::fmt;

/// The most characters of a file's text that a message shows, in total and in one word.
const MOST_SHOWN: usize = 2000;
const MOST_SHOWN_WORD: usize = 500;

/// Why a bundle, or a part of it, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleError {
    /// The path of the file, or another origin of the bytes.
    pub origin: String,
    /// What is wrong.
    pub message: String,
}

impl BundleError {
    /// The stable number of this kind of mistake.
    pub fn code(&self) -> Code {
        Code(650)
    }
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (origin, message) = (shown_up_to(&self.origin, MOST_SHOWN), shown_up_to(&self.message, MOST_SHOWN));
        write!(f, "error[{}]: the bundle {origin} cannot be used: {message}", self.code())
    }
}

/// Text from a file in a printable form: it has no control characters, and a long text is cut.
pub fn shown(text: &str) -> String {
    shown_up_to(text, MOST_SHOWN_WORD)
}

fn shown_up_to(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for c in text.chars().take(most) {
        // Characters that change the direction of text are not control characters, but can hide as much.
        let is_hidden =
            c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if is_hidden { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    if text.chars().nth(most).is_some() { shown + ".." } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_moves_no_cursor() {
        assert_eq!(shown("atlas 1, \u{1b}[2J\u{202e}x"), "atlas 1, \\u{1b}[2J\\u{202e}x");
        assert_eq!(shown(&"a".repeat(501)), "a".repeat(500) + "..");
        let e = BundleError { origin: "a\nb".to_owned(), message: "\u{7}".repeat(5000) };
        assert!(e.to_string().lines().count() == 1 && e.to_string().len() < 20_000);
    }
}
