//! Kernels after every pass, executed on whole tiles and compared with the interpreter; and with mistakes in them, which
//! have to be noticed.
//!
//! | file | holds |
//! |---|---|
//! | `trial` | a kernel after each pass, its arguments, and what they should hold |
//! | `kernels` | the kernels that are tried |
//! | `faults` | each fault of the GPU IR interpreter |
//! | `hand_written` | kernels with several roles, which no pass makes yet |
//! | `edits` | mistakes that a pass could make |
//! | `mutants` | the table of mistakes, and who has to notice them |

mod edits;
mod faults;
mod hand_written;
pub(crate) mod kernels;
mod mutants;
mod trial;
