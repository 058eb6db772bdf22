//! Printing for all verbs: `say!` prints a line of the result to stdout, `tell!` a line of progress or a warning to
//! stderr.
//!
//! Neither panics. If the result cannot be written, [`finish`] returns the reason at the end of the verb, and the
//! program fails. Lost lines on stderr are ignored.

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

/// Why a line of the result since the last [`finish`] could not be written.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// The implementation of `say!`.
pub(super) fn line(text: fmt::Arguments<'_>) {
    keep(writeln!(io::stdout(), "{text}"));
}

/// The implementation of `tell!`.
pub(super) fn line_beside(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn keep(written: io::Result<()>) {
    if let Err(e) = written {
        LOST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
    }
}

/// Flushes stdout, and fails if any part of the result could not be written. A reader that has closed the pipe is not
/// an error.
pub(super) fn finish() -> Result<()> {
    keep(io::stdout().flush());
    match LOST.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context("cannot write to stdout"),
        _ => Ok(()),
    }
}
