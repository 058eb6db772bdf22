//! Lesson 1: a kernel, a device, tensors, a launch.
//!
//! `cargo run --example 01_saxpy`

use atlas::prelude::*;

// A kernel defines the work of one program on its tile. `grid` gives the tiles that the programs process. N is a named
// dim: its size comes from the tensors at launch. BN is a tile size, which is chosen from `tune` for each problem.
atlas_kernel! {
    /// y = a x + y, in place.
    kernel saxpy(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, a: f32)
    tune { BN: [1024, 512], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], a * load(x[n]) + load(y[n]));
        }
    }
}

fn main() -> atlas::Result<()> {
    // 1000 is not a multiple of any tile size: the compiler masks the ragged edge, and the kernel does not mention it.
    let x: Vec<f32> = (0..1000).map(|i| i as f32 * 0.5).collect();
    let y: Vec<f32> = (0..1000).map(|i| 1000.0 - i as f32).collect();

    let device = Device::best()?;
    let dx = device.tensor_from(&x, [1000])?;
    let mut dy = device.tensor_from(&y, [1000])?;
    saxpy.launch(&device, args!(dx, &mut dy, 2.0))?;
    let result = dy.to_vec::<f32>()?;

    let wrong = (0..1000).filter(|&i| result[i] != 2.0 * x[i] + y[i]).count();
    println!("on {device}: y[0] = {}, y[999] = {}, {wrong} of 1000 differ from a plain loop", result[0], result[999]);
    assert_eq!(wrong, 0);
    Ok(())
}
