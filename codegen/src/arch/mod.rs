//! What is known of architectures, in tables that code asks by name and never by number.
//!
//! | file | its table says |
//! |---|---|
//! | `capability` | what a target may have: instructions, and units that take instructions of their own |
//! | `target` | which capabilities each target has, and the PTX version that knows it |
//! | `machine` | what the GPUs of each compute capability hold, and what an SM does in a clock |
//! | `platform` | nothing: a target and a machine together |
//! | `limits` | nothing: what a config may take of a machine, and the text of a refusal |
//! | `card` | bandwidth and arithmetic rates of GPUs by their name |
//!
//! A new target is one row of `target`; a new generation of GPUs is one row of `machine`. Rows may stand in any number, and
//! nothing outside of this folder compares compute capabilities.

pub mod capability;
pub mod card;
pub(crate) mod limits;
pub mod machine;
pub mod platform;
pub mod target;

pub use capability::{Capabilities, Capability};
pub use card::Card;
pub use machine::{Machine, Rates};
pub use platform::Platform;
pub use target::Target;
