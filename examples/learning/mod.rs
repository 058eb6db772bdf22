//! A small language model that is trained with Atlas alone.
//!
//! | module | what it has |
//! |---|---|
//! | `layers` | attention over a window, and a hidden layer: forward and back |
//! | `memory` | the memory of ATLAS as such a layer |
//! | `kernels` | what both need besides the kernels of `atlas::ops` |
//! | `model` | the model of these layers, its loss and its gradient |
//! | `parameters` | weights, and the optimizer |
//! | `check` | compares the gradient with differences of losses |
//! | `training` | how it is learned |
//! | `tasks` | what is learned |
//! | `recall`, `text` | the two tasks, from a new model to its results |
//! | `numbers` | random numbers |
//! | `precision`, `reference` | what 16 bits cost, and the model in f64 |
//! | `report`, `plot` | results as JSON and as curves |

pub(crate) mod check;
mod kernels;
mod layers;
mod memory;
pub(crate) mod model;
pub(crate) mod numbers;
mod parameters;
pub(crate) mod plot;
#[cfg(feature = "verify")]
pub(crate) mod precision;
pub(crate) mod recall;
#[cfg(feature = "verify")]
mod reference;
pub(crate) mod report;
pub(crate) mod tasks;
pub(crate) mod text;
pub(crate) mod training;
