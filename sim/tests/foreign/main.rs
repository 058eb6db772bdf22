//! Kernels that nvcc and Triton compiled, executed by the simulator and compared with plain arithmetic in f64; and
//! these and others with mistakes planted in them.

mod attention;
mod data;
mod elementwise;
mod faults;
mod harness;
mod hopper;
mod index;
mod integers;
#[path = "../planted/mod.rs"]
mod planted;
mod products;
mod programs;
mod rows;
mod setup;
mod triton;

/// One test for each set-up, named after its file of PTX.
macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        mod executes {
            $(#[test]
            fn $name() {
                crate::harness::check(&super::$name());
            })*
        }
    };
}
pub(crate) use kernels;
