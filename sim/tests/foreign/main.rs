//! Kernels that nvcc and Triton compiled. The simulator executes them and compares the results with plain arithmetic in f64.
//! These and other kernels are also executed with planted mistakes.

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
