//! Errors of Atlas as errors of candle.

use candle_core::Error;
use std::fmt::Display;

/// A mistake in a call, with the number under which the book explains it.
pub(crate) fn refuse(code: u16, text: impl Display) -> Error {
    Error::wrap(format!("error[ATL{code:03}]: {text}"))
}

/// An error of Atlas, whose text begins with its number.
pub(crate) fn of_atlas(error: atlas::RuntimeError) -> Error {
    Error::wrap(error)
}
