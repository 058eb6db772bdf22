//! Printing, for all verbs: `say!` prints a line for who asked, `tell!` a line of progress or warning beside it.
//!
//! Neither panics. What is said is the result: if it cannot be written, [`finish`] gives the reason once the verb is done,
//! and the program fails. What is told goes to stderr, and nobody is left to be told that it is lost.

use anyhow::{Context, Result};
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, PoisonError};

/// Prints a line to stdout.
macro_rules! say {
    ($($text:tt)*) => { $crate::print::line(format_args!($($text)*)) };
}

/// Prints a line to stderr.
macro_rules! tell {
    ($($text:tt)*) => { $crate::print::line_beside(format_args!($($text)*)) };
}

pub(super) use {say, tell};

/// Why something said since the last [`finish`] could not be written.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// What `say!` does.
pub(super) fn line(text: fmt::Arguments<'_>) {
    keep(writeln!(io::stdout(), "{text}"));
}

/// What `tell!` does.
pub(super) fn line_beside(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn keep(written: io::Result<()>) {
    if let Err(e) = written {
        LOST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
    }
}

/// Prints what is left, and fails if anything said could not be written. A reader that has left is no failure.
pub(super) fn finish() -> Result<()> {
    keep(io::stdout().flush());
    match LOST.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context("cannot write to stdout"),
        _ => Ok(()),
    }
}
