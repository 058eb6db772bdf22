//! Copies by mbarriers: a ring with a producer, and a multicast within a cluster.

use crate::data::Data;
use crate::data::Format::F32;
use crate::kernels;
use crate::setup::{Matrix, Setup};

kernels!(bulk_copy, multicast);

pub(crate) fn bulk_copy() -> Setup {
    let (chunk, chunks) = (256, 9);
    let x = Data::new(50).reals(chunk * chunks, F32);
    let want: Vec<f64> = x.iter().map(|v| 2.0 * v).collect();
    Setup::new("bulk_copy", [2, 1, 1])
        .input("x", F32, &x)
        .close("y", F32, &want, &vec![0.0; x.len()])
        .int("chunks", chunks)
}

pub(crate) fn multicast() -> Setup {
    let (rows, columns, steps) = (16, 32, 3);
    let x = Data::new(51).reals(steps * rows * columns, F32);
    let column = |c: usize| x.iter().skip(c).step_by(columns);
    let want: Vec<f64> = (0..columns).map(|c| column(c).sum()).collect();
    let bound: Vec<f64> =
        (0..columns).map(|c| column(c).map(|v| v.abs()).sum::<f64>() * 48.0 * F32.epsilon()).collect();
    let matrix = Matrix { format: F32, rows: (steps * rows) as u64, columns: 32, tile: [32, 8], swizzle_bytes: 0 };
    Setup::new("multicast", [2, 1, 1])
        .input("map", F32, &x)
        .map("map", matrix)
        .close("out", F32, &want, &bound)
        .int("steps", steps)
}
