//! The interpreter against plain references.

mod control;
mod derivatives;
mod dot;
mod elementwise;
mod launch;
mod models;
mod ragged;
mod support;
mod views;
