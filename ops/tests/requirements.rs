//! Sizes that a kernel would leave outputs unwritten for are refused.

use atlas_dsl::def::{DTypeRef, ParamDef};
use atlas_dsl::ir::Access;
use atlas_dsl::{DType, KernelDef};
use atlas_ops::block_attention::block_attention;
use atlas_ops::omega::{omega_linear, omega_mix, omega_mlp, omega_muon};
use atlas_ops::rotary::{rotary_halves, rotary_interleaved};
use atlas_ops::taylor_features::taylor2_features;
use atlas_ops::windowed_attention::windowed_attention;
use atlas_runtime::{Arg, Device, Launch, Tensor};

/// What a launch for these sizes of dims says; other dims are 2.
fn answer(kernel: &'static KernelDef, sizes: &[(&str, usize)]) -> String {
    let cpu = Device::cpu();
    let size = |d: usize| sizes.iter().find(|(name, _)| *name == kernel.dims[d].name).map_or(2, |(_, size)| *size);
    let tensor = |dims: &[usize], dtype: DTypeRef| {
        let dtype = match dtype {
            DTypeRef::Fixed(dtype) => dtype,
            DTypeRef::Generic(_) => DType::F32,
        };
        Tensor::zeros(&cpu, dtype, dims.iter().map(|&d| size(d)).collect::<Vec<_>>()).unwrap()
    };
    let mut tensors: Vec<Option<Tensor>> = kernel
        .params
        .iter()
        .map(|p| match p {
            ParamDef::Tensor { dtype, dims, .. } => Some(tensor(dims, *dtype)),
            ParamDef::Scalar { .. } => None,
        })
        .collect();
    let args: Vec<Arg<'_>> = tensors
        .iter_mut()
        .zip(kernel.params)
        .map(|(t, p)| match (t, p) {
            (Some(t), ParamDef::Tensor { access: Access::Out, .. }) => Arg::Out(t),
            (Some(t), _) => Arg::In(t),
            (None, ParamDef::Scalar { dtype: DTypeRef::Fixed(DType::I32), .. }) => Arg::I32(1),
            (None, _) => Arg::F32(1.0),
        })
        .collect();
    kernel.bind(&cpu, args).err().map_or_else(String::new, |e| e.to_string())
}

/// A kernel, sizes of its dims, and how the answer ends; an empty one if they fit.
type Row = (&'static KernelDef, &'static [(&'static str, usize)], &'static str);

#[test]
fn sizes_that_do_not_fit_each_other_are_told() {
    let table: [Row; 11] = [
        (&windowed_attention, &[("H", 6), ("J", 3)], ""),
        (&windowed_attention, &[("H", 6), ("J", 4)], "requires H % J == 0, but H = 6, J = 4"),
        (&block_attention, &[("M", 128), ("P", 2)], ""),
        (&block_attention, &[("M", 129), ("P", 2)], "requires P * 64 >= M, but P = 2, M = 129"),
        (&taylor2_features, &[("D", 4), ("E", 22)], "requires E == 1 + D + D * D, but E = 22, D = 4"),
        (&rotary_halves, &[("P", 3)], "requires P == 2, but P = 3"),
        (&rotary_interleaved, &[("P", 3)], "requires P == 2, but P = 3"),
        (&omega_mix, &[("C", 3), ("L", 4), ("K", 4), ("N", 13)], "requires C * L >= N, but C = 3, L = 4, N = 13"),
        (&omega_mlp, &[("C", 3), ("L", 4), ("K", 3), ("N", 12)], "requires K >= L, but K = 3, L = 4"),
        (&omega_linear, &[("P", 3), ("N", 4)], "requires P >= N, but P = 3, N = 4"),
        (&omega_muon, &[("P", 4), ("N", 4)], ""),
    ];
    for (kernel, sizes, says) in table {
        let found = answer(kernel, sizes);
        let fits = if says.is_empty() { found.is_empty() } else { found.contains("ATL648") && found.ends_with(says) };
        assert!(fits, "{} {sizes:?}: {found}", kernel.name);
    }
}
