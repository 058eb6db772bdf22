//! Good kernels with one mistake planted in their text: the simulator must find each, and nothing in the kernels as
//! they were.

mod atlas;
mod barriers;
mod copies;
mod each;
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
