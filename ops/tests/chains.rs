//! Every chain that ships gives, bit for bit, what its kernels give one after the other.

use atlas_dsl::def::{DTypeRef, ParamDef};
use atlas_dsl::ir::Access;
use atlas_dsl::{DType, KernelDef};
use atlas_ops::attention_decode::ATTENTION_DECODE;
use atlas_ops::clip_factor::CLIP_FACTOR;
use atlas_ops::gated_memory::MEMORY_GATED_GRAD;
use atlas_ops::layer_grad::{LAYER_COMBINE_GRAD, LAYER_NORM_GRAD};
use atlas_ops::memory_grad::{MEMORY_GRAD, MEMORY_GRAD_WITH_INPUT};
use atlas_ops::omega::{
    OMEGA_GATED, OMEGA_GATED_WIDE, OMEGA_LINEAR, OMEGA_LINEAR_WIDE, OMEGA_MLP, OMEGA_MLP_CLUSTER, OMEGA_MLP_SPLIT,
    OMEGA_MLP_WIDE, OMEGA_MUON, OMEGA_MUON_GATED, OMEGA_MUON_GATED_WIDE, OMEGA_MUON_LINEAR, OMEGA_MUON_LINEAR_WIDE,
    OMEGA_MUON_NORMED, OMEGA_MUON_NORMED_WIDE, OMEGA_MUON_TOKENS, OMEGA_MUON_TOKENS_GATED,
    OMEGA_MUON_TOKENS_GATED_WIDE, OMEGA_MUON_TOKENS_LINEAR, OMEGA_MUON_TOKENS_LINEAR_WIDE, OMEGA_MUON_TOKENS_NORMED,
    OMEGA_MUON_TOKENS_NORMED_WIDE, OMEGA_MUON_TOKENS_WIDE, OMEGA_MUON_WIDE, OMEGA_NORMED, OMEGA_NORMED_WIDE,
};
use atlas_ops::rms_norm_grad::{RMS_NORM_GRAD, RMS_NORM_RESIDUAL_GRAD};
use atlas_ops::window_sums::WINDOW_LOSS;
use atlas_ops::windowed_attention_grad::WINDOWED_ATTENTION_GRAD;
use atlas_runtime::{Arg, Chain, Device, Launch, Tensor, Workspace};
use std::collections::BTreeMap;

const MEMORY: &[(&str, usize)] = &[("G", 2), ("N", 9), ("D", 16), ("H", 24), ("E", 16)];
const OMEGA: &[(&str, usize)] = &[
    ("B", 1),
    ("N", 11),
    ("H", 2),
    ("W", 3),
    ("C", 2),
    ("L", 8),
    ("K", 16),
    ("D", 16),
    ("P", 11),
    ("E", 16),
    ("M", 32),
];

/// Three chunks in segments of two.
const OMEGA_SPLIT: &[(&str, usize)] = &[
    ("B", 1),
    ("N", 19),
    ("H", 2),
    ("W", 3),
    ("C", 3),
    ("R", 2),
    ("L", 8),
    ("K", 16),
    ("D", 16),
    ("P", 19),
    ("E", 16),
    ("M", 32),
];

const CHAINS: [(&Chain, &[(&str, usize)]); 37] = [
    (&ATTENTION_DECODE, &[("S", 2), ("J", 1), ("R", 3), ("D", 16), ("W", 20), ("X", 2)]),
    (&WINDOWED_ATTENTION_GRAD, &[("B", 2), ("M", 19), ("N", 21), ("H", 4), ("J", 2), ("D", 8), ("S", 3)]),
    (&RMS_NORM_GRAD, &[("N", 13), ("D", 5)]),
    (&RMS_NORM_RESIDUAL_GRAD, &[("N", 13), ("D", 5)]),
    (&LAYER_NORM_GRAD, &[("B", 2), ("N", 13), ("H", 3), ("D", 5)]),
    (&LAYER_COMBINE_GRAD, &[("B", 2), ("N", 13), ("H", 3), ("D", 5)]),
    (&CLIP_FACTOR, &[("N", 5000), ("X", 3), ("K", 1)]),
    (&WINDOW_LOSS, &[("B", 2), ("N", 13), ("D", 5)]),
    (&MEMORY_GRAD, MEMORY),
    (&MEMORY_GRAD_WITH_INPUT, MEMORY),
    (&MEMORY_GATED_GRAD, MEMORY),
    (&OMEGA_MLP, OMEGA),
    (&OMEGA_LINEAR, OMEGA),
    (&OMEGA_GATED, OMEGA),
    (&OMEGA_NORMED, OMEGA),
    (&OMEGA_MLP_WIDE, OMEGA),
    (&OMEGA_MLP_SPLIT, OMEGA_SPLIT),
    (&OMEGA_MLP_CLUSTER, OMEGA_SPLIT),
    (&OMEGA_LINEAR_WIDE, OMEGA),
    (&OMEGA_GATED_WIDE, OMEGA),
    (&OMEGA_NORMED_WIDE, OMEGA),
    (&OMEGA_MUON, OMEGA),
    (&OMEGA_MUON_WIDE, OMEGA),
    (&OMEGA_MUON_GATED, OMEGA),
    (&OMEGA_MUON_GATED_WIDE, OMEGA),
    (&OMEGA_MUON_LINEAR, OMEGA),
    (&OMEGA_MUON_LINEAR_WIDE, OMEGA),
    (&OMEGA_MUON_NORMED, OMEGA),
    (&OMEGA_MUON_NORMED_WIDE, OMEGA),
    (&OMEGA_MUON_TOKENS, OMEGA),
    (&OMEGA_MUON_TOKENS_WIDE, OMEGA),
    (&OMEGA_MUON_TOKENS_GATED, OMEGA),
    (&OMEGA_MUON_TOKENS_GATED_WIDE, OMEGA),
    (&OMEGA_MUON_TOKENS_LINEAR, OMEGA),
    (&OMEGA_MUON_TOKENS_LINEAR_WIDE, OMEGA),
    (&OMEGA_MUON_TOKENS_NORMED, OMEGA),
    (&OMEGA_MUON_TOKENS_NORMED_WIDE, OMEGA),
];

/// The workspace of a chain for those of these sizes that it has.
fn workspace(device: &Device, chain: &Chain, sizes: &[(&str, usize)]) -> Workspace {
    let has = |dim: &str| chain.kernels.iter().any(|k| k.declared().dims.iter().any(|d| d.name == dim));
    let own: Vec<(&str, usize)> = sizes.iter().copied().filter(|(dim, _)| has(dim)).collect();
    chain.workspace(device, &[("T", DType::F32)], &own).unwrap_or_else(|e| panic!("{e}"))
}

/// The tensors of all kernels by name, each as it is before the launch.
fn tensors(device: &Device, chain: &Chain, sizes: &[(&str, usize)]) -> BTreeMap<&'static str, Tensor> {
    let space = workspace(device, chain, sizes);
    let mut made = BTreeMap::new();
    for kernel in chain.kernels.iter().map(|k| k.declared()) {
        for param in kernel.params {
            let ParamDef::Tensor { name, dtype, dims, .. } = param else { continue };
            let size = |d: &usize| {
                let of = sizes.iter().find(|(dim, _)| *dim == kernel.dims[*d].name);
                of.unwrap_or_else(|| panic!("{}: no size of {}", chain.name, kernel.dims[*d].name)).1
            };
            let own = space.tensors().find(|(of, _)| of == name);
            let shape: Vec<usize> = own.map_or_else(|| dims.iter().map(size).collect(), |(_, t)| t.shape().to_vec());
            let len: usize = shape.iter().product();
            let salt: usize = name.bytes().map(usize::from).sum();
            let value = |i: usize| ((i + salt) * 37 % 41) as f32 / 80.0 + 0.01;
            let tensor = match dtype {
                DTypeRef::Fixed(DType::I32) => device.tensor_from(&vec![13; len], shape),
                _ => device.tensor_from(&(0..len).map(value).collect::<Vec<f32>>(), shape),
            };
            made.entry(*name).or_insert(tensor.unwrap());
        }
    }
    made
}

/// Arguments for parameters, of these tensors.
fn args<'a>(params: &[&ParamDef], of: &'a mut BTreeMap<&'static str, Tensor>) -> Vec<Arg<'a>> {
    let mut left: BTreeMap<&str, &'a mut Tensor> = of.iter_mut().map(|(name, t)| (*name, t)).collect();
    let arg = |p: &&ParamDef| match **p {
        ParamDef::Scalar { dtype: DTypeRef::Fixed(DType::I32), name } => Arg::I32(if name == "before" { 0 } else { 8 }),
        ParamDef::Scalar { .. } => Arg::F32(0.25),
        ParamDef::Tensor { name, access: Access::Out, .. } => Arg::Out(left.remove(name).unwrap()),
        ParamDef::Tensor { name, .. } => Arg::In(left.remove(name).unwrap()),
    };
    params.iter().map(arg).collect()
}

#[test]
fn chains_are_their_kernels_one_after_the_other() {
    let device = crate::device();
    for (chain, sizes) in CHAINS {
        let mut by_kernel = tensors(&device, chain, sizes);
        let mut run = |kernel: &'static KernelDef, index: usize| {
            let params: Vec<&ParamDef> = kernel.params.iter().collect();
            let mut args = args(&params, &mut by_kernel);
            for (param, arg) in params.iter().zip(&mut args) {
                if chain.repeated.as_ref().is_some_and(|r| r.index == param.name()) {
                    *arg = Arg::I32(index as i32);
                }
            }
            kernel.launch(&device, args).unwrap_or_else(|e| panic!("{}: {e}", chain.name));
        };
        let kernels: Vec<_> = chain.kernels.iter().map(|k| k.declared()).collect();
        let size = |dim: &str| sizes.iter().find(|(name, _)| *name == dim).unwrap().1;
        match chain.repeated {
            None => kernels.iter().for_each(|kernel| run(kernel, 0)),
            Some(of) => {
                kernels[..of.first].iter().for_each(|kernel| run(kernel, 0));
                let (times, kept) = (size(of.dim), of.segment.map_or(usize::MAX, size));
                assert!(times > 1 && (of.segment.is_none() || times % kept != 0), "{}", chain.name);
                for index in 0..times {
                    kernels[of.first..of.end].iter().for_each(|kernel| run(kernel, index));
                    if (index + 1) % kept == 0 || index + 1 == times {
                        let first = index / kept * kept;
                        kernels[of.end..].iter().for_each(|kernel| run(kernel, first));
                    }
                }
            }
        }
        let mut at_once = tensors(&device, chain, sizes);
        let mut space = workspace(&device, chain, sizes);
        let params = chain.params();
        chain
            .launch(&device, args(&params, &mut at_once), &mut space)
            .unwrap_or_else(|e| panic!("{}: {e}", chain.name));
        for param in params {
            let ParamDef::Tensor { name, .. } = param else { continue };
            let [found, wanted] = [&at_once, &by_kernel].map(|of| of[name].to_f64_vec().unwrap());
            assert_eq!(found, wanted, "{}: {name}", chain.name);
            assert!(found.iter().all(|v| v.is_finite()) && found.iter().any(|v| *v != 0.0), "{}: {name}", chain.name);
        }
    }
}
