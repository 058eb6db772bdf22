//! Lesson 5: consecutive kernels, fused into one. The tensors between them never reach memory.
//!
//! `cargo run --release --example 05_fusion`

use atlas::ops::rms_norm;
use atlas::prelude::*;

/// The number of rows, and of elements per row before and after the product.
const N: usize = 300;
const D: usize = 64;
const M: usize = 48;

atlas_kernel! {
    /// y = x w
    kernel product<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [D, M]>, y: &mut Tensor<T, [N, M]>)
    tune { BN: [64, 32], BM: [64, 32], BD: [32, 64], stages: 2..=3, warps: [4, 8] }
    {
        for (n, m) in grid(tiles(N, BN), tiles(M, BM)) {
            let mut acc = zeros::<f32>([BN, BM]);
            for d in pipeline(tiles(D, BD)) {
                acc += dot(load(x[n, d]), load(w[d, m]));
            }
            store(y[n, m], acc.cast::<T>());
        }
    }

    /// y = gelu(x + b)
    kernel activated<T: Float>(x: &Tensor<T, [N, M]>, b: &Tensor<T, [M]>, y: &mut Tensor<T, [N, M]>)
    tune { BN: [64, 32, 16], BM: [64, 32], warps: [4, 8] }
    {
        for (n, m) in grid(tiles(N, BN), tiles(M, BM)) {
            let z = load(x[n, m]).cast::<f32>() + load(b[m]).cast::<f32>();
            store(y[n, m], gelu(z).cast::<T>());
        }
    }
}

fuse! {
    /// y = gelu(norm(x) w + b). Both norm and product have a `w`; the norm's gets another name.
    kernel layer = rms_norm(w = scale) >> product >> activated;
}

fn main() -> atlas::Result<()> {
    let device = Device::best()?;
    let of = |n: usize, scale: f32| -> Vec<f32> { (0..n).map(|i| scale * noise(i)).collect() };
    let x = device.tensor_from(&of(N * D, 2.0), [N, D])?;
    let (scale, w) = (device.tensor_from(&of(D, 1.0), [D])?, device.tensor_from(&of(D * M, 0.3), [D, M])?);
    let b = device.tensor_from(&of(M, 0.5), [M])?;

    // Three launches, with two intermediate tensors.
    let mut normed = Tensor::zeros(&device, DType::F32, [N, D])?;
    let mut made = Tensor::zeros(&device, DType::F32, [N, M])?;
    let mut apart = Tensor::zeros(&device, DType::F32, [N, M])?;
    rms_norm.launch(&device, args!(x, scale, &mut normed, 1e-6))?;
    product.launch(&device, args!(normed, w, &mut made))?;
    activated.launch(&device, args!(made, b, &mut apart))?;

    // One launch, without intermediate tensors. Parameters are in the order in which the kernels first name them.
    let names: Vec<&str> = layer.params.iter().map(|p| p.name()).collect();
    assert_eq!(names, ["x", "scale", "eps", "w", "b", "y"]);
    let mut y = Tensor::zeros(&device, DType::F32, [N, M])?;
    layer.launch(&device, args!(x, scale, 1e-6, w, b, &mut y))?;

    let (y, apart) = (y.to_vec::<f32>()?, apart.to_vec::<f32>()?);
    let worst = y.iter().zip(&apart).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("on {device}, one launch for three: at most {worst:.1e} from what three launches make");
    // The same operations on the same numbers, but a GPU may sum a row, or a product's terms, in another order.
    assert!(worst < 1e-5);
    Ok(())
}

/// A pseudo-random number between -1 and 1 that depends only on the index.
fn noise(i: usize) -> f32 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1 << 23) as f32 - 1.0
}
