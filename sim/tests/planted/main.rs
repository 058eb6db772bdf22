//! Good kernels with one mistake planted in their text: the simulator must find each, and nothing in the kernels as
//! they were.

#[path = "../foreign/data.rs"]
mod data;
#[path = "../foreign/harness.rs"]
#[allow(dead_code, reason = "launches under its own schedules")]
mod harness;
#[path = "../foreign/index.rs"]
mod index;
#[path = "../foreign/setup.rs"]
mod setup;

#[path = "../foreign/elementwise.rs"]
#[allow(dead_code, reason = "some of its kernels have no mistakes planted")]
mod elementwise;
#[path = "../foreign/hopper.rs"]
#[allow(dead_code, reason = "some of its kernels have no mistakes planted")]
mod foreign_hopper;
#[path = "../foreign/integers.rs"]
#[allow(dead_code, reason = "some of its kernels have no mistakes planted")]
mod integers;
#[path = "../foreign/products.rs"]
#[allow(dead_code, reason = "some of its kernels have no mistakes planted")]
mod products;
#[path = "../foreign/programs.rs"]
#[allow(dead_code, reason = "some of its kernels have no mistakes planted")]
mod programs;
#[path = "../foreign/rows.rs"]
#[allow(dead_code, reason = "some of its kernels have no mistakes planted")]
mod rows;

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

/// Set-ups of the compiled kernels, whose own tests are elsewhere.
macro_rules! kernels {
    ($($name:ident),* $(,)?) => {};
}
pub(crate) use kernels;
