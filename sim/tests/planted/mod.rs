//! Correct kernels with one mistake planted in their text. The simulator must find each mistake, and nothing in the original
//! kernels.

mod atlas;
mod barriers;
mod copies;
mod each;
mod engine;
mod good;
mod harmless;
mod hopper;
mod memory;
mod order;
mod phases;
mod plant;
mod proxies;
mod values;
mod warps;
mod wgmma;
