//! The interpreter against plain references.

mod control;
mod dot;
mod elementwise;
mod launch;
mod models;
mod ragged;
mod support;
mod views;
