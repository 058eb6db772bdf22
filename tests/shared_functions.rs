//! Tile fns of another crate: a kernel that imports them is the kernel that has them beside it.

use atlas::prelude::*;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Kernel, Specialization};

/// A crate between passes functions on, under another name too.
mod passed_on {
    pub(crate) use atlas::ops::functions::silu as swish;
}

atlas_kernel! {
    use atlas::ops::online_softmax::{attend, attended, base_two};

    /// What `attention` is, of the shipped steps.
    kernel attention_of_the_shipped_steps<T: Float>(
        q: &Tensor<T, [H, M, D]>,
        k: &Tensor<T, [H, N, D]>,
        v: &Tensor<T, [H, N, D]>,
        scale: f32,
        o: &mut Tensor<T, [H, M, D]>,
    )
    tune { BM: [128, 64, 32], BN: [64, 128, 32], stages: 2..=3, warps: [4, 8] }
    {
        for (h, m) in grid(H, tiles(M, BM)) {
            let qs = load(q[h, m, ..]);
            let mut top = full::<f32>([BM, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BM, 1]);
            let mut acc = zeros::<f32>([BM, D]);
            for n in pipeline(tiles(N, BN)) {
                let z = dot(qs, load(k[h, n, ..]).t()) * base_two(scale);
                (top, total, acc) = attend(z, load(v[h, n, ..]), top, total, acc);
            }
            store(o[h, m, ..], attended(top, total, acc).cast::<T>());
        }
    }

    /// By paths, through another module and by a gradient.
    kernel swished(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, slope: &mut Tensor<f32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            store(y[n], passed_on::swish(xs));
            store(slope[n], grad(atlas::ops::functions::silu)(xs));
        }
    }
}

fn built(def: &'static KernelDef, config: &Config) -> Kernel {
    let spec = def.dims.iter().fold(Specialization::default(), |s, d| s.with_dim(d.name, DimFact::Const(128)));
    (def.build)(&spec, config).unwrap()
}

#[test]
fn a_kernel_of_shipped_functions_is_the_shipped_kernel() {
    let (shipped, own) = (&atlas::ops::attention, &attention_of_the_shipped_steps);
    assert_eq!(shipped.configs(), own.configs());
    for config in own.configs() {
        let text = built(own, &config).to_string().replace(own.name, shipped.name);
        assert_eq!(text, built(shipped, &config).to_string());
    }
}

#[test]
fn functions_of_another_crate_compute_what_they_say() {
    let device = Device::cpu();
    let x: Vec<f32> = (0..40).map(|i| i as f32 * 0.25 - 5.0).collect();
    let input = device.tensor_from(&x, [40]).unwrap();
    let [mut y, mut slope] = [0, 1].map(|_| Tensor::zeros(&device, DType::F32, [40]).unwrap());
    swished.launch(&device, args!(&input, &mut y, &mut slope)).unwrap();
    let (y, slope) = (y.to_f64_vec().unwrap(), slope.to_f64_vec().unwrap());
    for (i, x) in x.into_iter().map(f64::from).enumerate() {
        let s = 1.0 / (1.0 + (-x).exp());
        assert!((y[i] - x * s).abs() < 1e-5 && (slope[i] - (s + x * s * (1.0 - s))).abs() < 1e-5, "at {x}");
    }
}
