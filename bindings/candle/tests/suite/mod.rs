//! | file | holds |
//! |---|---|
//! | `devices` | the CPU, and the GPU if tests run on it |
//! | `compare` | values, distances and gradients of both sides |
//! | `composed` | what the operations compute, of candle's operations |
//! | `results` | results and gradients, of tensors and of views |
//! | `omega` | the Omega rule, token by token with candle's gradients |
//! | `mistakes` | what is refused |
//! | `own` | an operation of one's own, and whose memory it reads |
//! | `cuda` | what a GPU alone has: streams, events, graphs, large problems |

mod compare;
mod composed;
#[cfg(feature = "cuda")]
mod cuda;
mod devices;
mod mistakes;
mod omega;
mod own;
mod results;
