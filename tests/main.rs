//! Tests of the whole: one binary.

mod cli;
