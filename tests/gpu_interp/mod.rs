//! Kernels after every pass, executed on whole tiles and compared with the interpreter; and kernels with planted
//! mistakes, which must be noticed.
//!
//! | file | holds |
//! |---|---|
//! | `trial` | a kernel after each pass, its arguments, and the expected results |
//! | `kernels` | the kernels that are tried |
//! | `faults` | each fault of the GPU IR interpreter |
//! | `hand_written` | kernels with several roles, which no pass emits yet |
//! | `edits` | mistakes that a pass could make |
//! | `mutants` | the table of mistakes, and which tool must notice each |

mod edits;
mod faults;
mod hand_written;
pub(crate) mod kernels;
mod mutants;
mod trial;
