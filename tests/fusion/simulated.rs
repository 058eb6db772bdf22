//! Fused kernels in the simulator: they agree with the CPU, and no intermediate tensor is in memory.

use super::stages::*;
use crate::agreement::{agrees, input, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::KernelDef;
use atlas_dsl::def::ParamDef;
use atlas_runtime::{CacheDir, SimOptions, Target};

fuse! {
    kernel rows = affine >> softmaxed >> differences;
    kernel layers = normed >> layered(v = v1, w = w1) >> softmaxed;
    kernel linear = normed >> product(w = m) >> affine;
    kernel activated_product = activated(U = bf16) >> product;
    kernel loss = projected >> measured_loss;
    kernel widened = centred >> softmaxed;
    kernel pipeline_of_maps = affine >> turned;
    kernel maps = affine >> softmaxed >> activated;
    kernel padded_softmax = padded(w = p) >> softmaxed;
    kernel halved_product = halved(w = p) >> projected(w = m);
}

atlas_kernel! {
    kernel measured_loss<T: Float>(x: &Tensor<T, [N, D]>, v: &Tensor<T, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [16, 32] }
    {
        for n in grid(tiles(N, BN)) {
            let e = load(x[n, ..]).cast::<f32>() - load(v[n, ..]).cast::<f32>();
            store(y[n], sum(e * e, axis = 1));
        }
    }
}

atlas_kernel! {
    kernel sum_of_row(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(N) {
            store(y[n], sum(load(x[n, ..])));
        }
    }

    kernel beside_all(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], exp(load(x[n]) - max(load(x[..]))));
        }
    }
}

fuse! {
    kernel beside_all_sums = sum_of_row >> beside_all;
}

const BF16: DType = DType::Bf16;

fn small(shape: &[usize]) -> crate::agreement::Given {
    input(BF16, shape, |i| 0.25 * noise(i + 11))
}

#[test]
fn fused_kernels_agree() {
    agrees(&rows, &[random(BF16, &[37, 40]), crate::agreement::Given::F32(0.5), output(BF16, &[37, 40])], 2e-2);
    agrees(
        &pipeline_of_maps,
        &[random(BF16, &[37, 40]), crate::agreement::Given::F32(0.5), output(BF16, &[40, 37])],
        1e-2,
    );
    agrees(
        &layers,
        &[
            random(BF16, &[37, 32]),
            random(BF16, &[32]),
            crate::agreement::Given::F32(0.1),
            small(&[50, 32]),
            small(&[32, 50]),
            output(BF16, &[37, 32]),
        ],
        2e-2,
    );
}

#[test]
fn rows_made_one_by_one_agree_as_tiles() {
    let given = [random(BF16, &[37, 40]), random(BF16, &[40]), output(BF16, &[37, 40])];
    agrees(&widened, &given, 2e-2);
}

#[test]
fn fused_products_agree() {
    agrees(
        &linear,
        &[
            random(BF16, &[37, 40]),
            random(BF16, &[40]),
            crate::agreement::Given::F32(0.1),
            small(&[40, 50]),
            crate::agreement::Given::F32(0.5),
            output(BF16, &[37, 50]),
        ],
        2e-2,
    );
    agrees(&activated_product, &[random(DType::F32, &[37, 40]), small(&[40, 50]), output(BF16, &[37, 50])], 2e-2);
    agrees(&loss, &[random(BF16, &[37, 40]), small(&[50, 40]), small(&[37, 50]), output(DType::F32, &[37])], 2e-2);
}

/// Rows that end before the tensor's do, in tiles that are ragged along the other axis.
#[test]
fn zeros_that_are_stored_agree() {
    let given = [random(BF16, &[37, 20]), random(BF16, &[32]), output(BF16, &[37, 32])];
    agrees(&padded_softmax, &given, 2e-2);
    let given = [random(BF16, &[37, 40]), random(BF16, &[32]), small(&[50, 32]), output(BF16, &[37, 50])];
    agrees(&halved_product, &given, 2e-2);
}

/// The bytes that a launch loads from and stores to global memory.
fn moved(kernel: &'static KernelDef, target: Target, inputs: &[&[usize]], out: &[usize]) -> (u64, u64) {
    let device = Device::sim_with(target, SimOptions::default(), CacheDir::Off);
    let tensors: Vec<Tensor> = inputs.iter().map(|s| Tensor::zeros(&device, BF16, s).unwrap()).collect();
    let mut y = Tensor::zeros(&device, BF16, out).unwrap();
    let mut rest = tensors.iter();
    let mut out = Some(&mut y);
    let args: Vec<atlas_runtime::Arg<'_>> = kernel
        .params
        .iter()
        .map(|p| match p {
            atlas_dsl::def::ParamDef::Scalar { .. } => atlas_runtime::Arg::F32(1.0),
            p if p.name() == "y" => atlas_runtime::Arg::Out(out.take().unwrap()),
            _ => atlas_runtime::Arg::In(rest.next().unwrap()),
        })
        .collect();
    kernel.launch_with(&device, &kernel.default_config(), args).unwrap();
    let run = device.simulated().unwrap().report.counters.totals();
    (run.loads.bytes, run.stores.bytes)
}

/// The forward pass of an ATLAS memory: features, memory, norm and gate.
#[test]
fn the_fused_forward_moves_its_inputs_and_its_output_alone() {
    let (g, n, d, h) = (2, 64, 64, 128);
    let shapes: [&[usize]; 6] = [&[g, n, d], &[g, h, d], &[g, d, h], &[g, d], &[g, n, d], &[g, n, d]];
    let kernel = &atlas_ops::fused_forward::fused_forward;
    let tensors: Vec<&str> =
        kernel.params.iter().filter(|p| !matches!(p, ParamDef::Scalar { .. })).map(|p| p.name()).collect();
    assert_eq!(tensors, ["q", "w2", "w1", "w", "gate", "y"]);
    let tokens = (2 * g * n * d) as u64;
    for target in ["sm_80", "sm_89", "sm_90"] {
        let (loads, stores) = moved(kernel, target.parse().unwrap(), &shapes[..5], shapes[5]);
        assert_eq!(stores, tokens, "{target}: the output and nothing else");
        // Each program along N reads the weights, and the tokens at most twice: as keys, and as the residual.
        let programs = n.div_ceil(16) as u64;
        let most = 3 * tokens + programs * (2 * 2 * g * h * d + 4 * d * g) as u64;
        assert!(loads <= most, "{target}: {loads} bytes are loaded, {most} expected");
    }
}

#[test]
fn no_tensor_between_kernels_is_in_memory() {
    for target in ["sm_80", "sm_89", "sm_90"] {
        let target: Target = target.parse().unwrap();
        // A row has as many bytes as a warp loads at once, so no two lanes load the same bytes.
        let all = 64 * 256 * 2;
        // Each row is read twice, as itself and as the previous one, except that the first row has no previous one.
        let at = moved(&rows, target, &[&[64, 256]], &[64, 256]);
        assert!(at.0 <= 2 * all && at.1 == all, "{target}: {at:?}");
        let at = moved(&maps, target, &[&[64, 256]], &[64, 256]);
        assert_eq!(at, (all, all), "{target}");
    }
}

/// A tile of all rows, which fits on the CPU.
#[test]
fn a_tile_that_no_gpu_holds_is_named() {
    let device = Device::sim_with("sm_90".parse::<Target>().unwrap(), SimOptions::default(), CacheDir::Off);
    let x = Tensor::zeros(&device, DType::F32, [64, 1024]).unwrap();
    let mut y = Tensor::zeros(&device, DType::F32, [64]).unwrap();
    let said = beside_all_sums.launch(&device, args!(&x, &mut y)).unwrap_err().to_string();
    for words in [
        "ATL302",
        "`sum_of_row` makes a tile of 65536 elements",
        "where that is too large, end the fusion with `sum_of_row`",
    ] {
        assert!(said.contains(words), "{words} not in: {said}");
    }
}
