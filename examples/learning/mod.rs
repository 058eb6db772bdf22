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
//! | `tasks` | what is learned |
//! | `numbers` | random numbers |
//! | `plot` | curves as SVG |

pub(crate) mod check;
mod kernels;
mod layers;
mod memory;
pub(crate) mod model;
pub(crate) mod numbers;
mod parameters;
pub(crate) mod plot;
pub(crate) mod tasks;
