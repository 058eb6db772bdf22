//! Lesson 2: reductions, broadcasting, and one kernel for several element types.
//!
//! `cargo run --example 02_softmax`

use atlas::prelude::*;

// T is a type parameter: the launch binds it to the tensors' element type. The arithmetic is in f32, so intermediate
// results are not rounded to bf16. `max(x, axis = 1)` reduces axis 1, which keeps extent 1 and broadcasts against x. D
// is used whole (`..`): it becomes a constant of the compiled kernel.
atlas_kernel! {
    /// y = softmax(x), row by row.
    kernel softmax<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [1, 2, 4], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            let e = exp(xs - max(xs, axis = 1));
            store(y[n, ..], (e / sum(e, axis = 1)).cast::<T>());
        }
    }
}

fn plain(x: &[f64]) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = x.iter().map(|v| (v - max).exp()).sum();
    x.iter().map(|v| (v - max).exp() / sum).collect()
}

fn main() -> atlas::Result<()> {
    let (rows, columns) = (37, 200);
    let x: Vec<bf16> = (0..rows * columns).map(|i| bf16::from_f32((i as f32 * 0.37).sin() * 5.0)).collect();

    let device = Device::best()?;
    let dx = device.tensor_from(&x, [rows, columns])?;
    let mut dy = device.tensor_from(&vec![bf16::ZERO; x.len()], [rows, columns])?;
    softmax.launch(&device, args!(dx, &mut dy))?;
    let result = dy.to_f64_vec()?;

    let mut worst = 0.0_f64;
    for (row, result) in x.chunks(columns).zip(result.chunks(columns)) {
        let row: Vec<f64> = row.iter().map(|v| v.to_f64()).collect();
        for (y, r) in result.iter().zip(plain(&row)) {
            worst = worst.max((y - r).abs() / r);
        }
    }
    println!("on {device}: {rows} rows of {columns}, largest relative error {worst:.1e} (bf16 rounds at 3.9e-3)");
    assert!(worst < 4e-3);
    Ok(())
}
