//! The façade's text for chains and fused kernels lists their actual parameters.

use atlas::kernel::{Chain, DType, KernelDef};
use atlas::ops::{self, delta, memory, omega};
use atlas_dsl::def::{DTypeRef, ParamDef};
use atlas_dsl::ir::Access;

/// A parameter's type in the form of its declaration: `&mut Tensor<T, [N, D]>`.
fn type_text(def: &KernelDef, param: &ParamDef) -> String {
    let element = |dtype: DTypeRef| match dtype {
        DTypeRef::Fixed(dtype) => DType::name(dtype),
        DTypeRef::Generic(i) => def.types[i].name,
    };
    match *param {
        ParamDef::Scalar { dtype, .. } => element(dtype).to_owned(),
        ParamDef::Tensor { dtype, dims, access, .. } => {
            let dims: Vec<&str> = dims.iter().map(|&d| def.dims[d].name).collect();
            let reference = if access == Access::Out { "&mut " } else { "&" };
            format!("{reference}Tensor<{}, [{}]>", element(dtype), dims.join(", "))
        }
    }
}

/// Lines of parameters. Adjacent parameters of one type share a line.
fn lines(params: impl IntoIterator<Item = (&'static str, String)>) -> Vec<String> {
    let mut groups: Vec<(Vec<&str>, String)> = Vec::new();
    for (name, ty) in params {
        match groups.last_mut() {
            Some((names, last)) if *last == ty => names.push(name),
            _ => groups.push((vec![name], ty)),
        }
    }
    groups.into_iter().map(|(names, ty)| format!("    {}: {ty}", names.join(", "))).collect()
}

fn of_kernel(name: &str, def: &'static KernelDef) -> String {
    let params = lines(def.params.iter().map(|p| (p.name(), type_text(def, p))));
    format!("{name}\n{}", params.join("\n"))
}

fn of_chain(name: &str, chain: &'static Chain) -> String {
    // A chain takes the parameter from the kernel that writes it.
    let owner = |param: &'static ParamDef| {
        chain
            .kernels
            .iter()
            .map(|k| k.declared())
            .find(|def| def.params.iter().any(|p| std::ptr::eq(p, param)))
            .unwrap()
    };
    let mut all = lines(chain.params().into_iter().map(|p| (p.name(), type_text(owner(p), p))));
    all.push(format!("    workspace: {}", chain.workspace.join(", ")));
    format!("{name}\n{}", all.join("\n"))
}

/// A host function of a program: generic over elements, with a config that is read from a text.
fn config_of<E: atlas::prelude::Element>(text: &str) -> atlas::Result<(DType, atlas::kernel::Config)> {
    Ok((E::DTYPE, text.parse::<atlas::kernel::Config>()?))
}

atlas::atlas_kernel! {
    kernel doubled(x: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(x[n], 2.0 * load(x[n]));
        }
    }
}

/// A function of a program over kernels, declared or fused, that it makes a chain of.
const fn chained(kernels: &'static [&'static dyn atlas::kernel::Declared]) -> Chain {
    Chain::new("chained", kernels, &[])
}

#[test]
fn a_program_can_name_what_chains_are_made_of() {
    static TWICE: Chain = chained(&[&doubled, &doubled]);
    let device = atlas::Device::cpu();
    let mut x = device.tensor_from(&[1.0_f32, 2.0], [2]).unwrap();
    let mut space = TWICE.workspace(&device, &[], &[]).unwrap();
    TWICE.launch(&device, atlas::args!(&mut x), &mut space).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [4.0, 8.0]);
}

#[test]
fn a_config_that_cannot_be_read_is_an_error_of_atlas() {
    let (dtype, config) = config_of::<f32>("BN=64 stages=2").unwrap();
    assert_eq!((dtype, config.to_string().starts_with("BN=64")), (DType::F32, true));
    let why = config_of::<f32>("BN=64 BN=32").unwrap_err();
    assert_eq!(why.code().to_string(), "ATL616");
    assert!(why.to_string().contains("`BN` is set twice; write its keys and values as in `BN=64 stages=2"), "{why}");
}

#[test]
fn parameters_are_documented_as_they_are() {
    let files = [
        include_str!("../src/ops/mod.rs"),
        include_str!("../src/ops/delta.rs"),
        include_str!("../src/ops/memory.rs"),
        include_str!("../src/ops/omega.rs"),
    ];
    let said: Vec<&str> = files.iter().flat_map(|f| f.lines()).filter_map(|l| l.strip_prefix("//! ")).collect();
    let said = said.join("\n");
    let all = [
        of_chain("ATTENTION_DECODE", &ops::ATTENTION_DECODE),
        of_chain("GATED_DELTA_RULE", &delta::GATED_DELTA_RULE),
        of_chain("GATED_DELTA_RULE_SPLIT", &delta::GATED_DELTA_RULE_SPLIT),
        of_chain("TTT_LINEAR", &delta::TTT_LINEAR),
        of_kernel("fused_forward", &memory::fused_forward),
        of_kernel("mag_forward", &memory::mag_forward),
        of_kernel("lerp_forward", &memory::lerp_forward),
        of_chain("MEMORY_GRAD", &memory::MEMORY_GRAD),
        of_chain("MEMORY_GRAD_WITH_INPUT", &memory::MEMORY_GRAD_WITH_INPUT),
        of_chain("MEMORY_GATED_GRAD", &memory::MEMORY_GATED_GRAD),
        of_chain("WINDOW_LOSS", &memory::WINDOW_LOSS),
        of_chain("OMEGA_MLP", &omega::OMEGA_MLP),
        of_chain("OMEGA_LINEAR", &omega::OMEGA_LINEAR),
        of_chain("OMEGA_GATED", &omega::OMEGA_GATED),
        of_chain("OMEGA_NORMED", &omega::OMEGA_NORMED),
        of_chain("OMEGA_MLP_WIDE", &omega::OMEGA_MLP_WIDE),
        of_chain("OMEGA_MLP_SPLIT", &omega::OMEGA_MLP_SPLIT),
        of_chain("OMEGA_MLP_CLUSTER", &omega::OMEGA_MLP_CLUSTER),
        of_chain("OMEGA_LINEAR_WIDE", &omega::OMEGA_LINEAR_WIDE),
        of_chain("OMEGA_GATED_WIDE", &omega::OMEGA_GATED_WIDE),
        of_chain("OMEGA_NORMED_WIDE", &omega::OMEGA_NORMED_WIDE),
        of_chain("OMEGA_MUON", &omega::OMEGA_MUON),
        of_chain("OMEGA_MUON_WIDE", &omega::OMEGA_MUON_WIDE),
        of_chain("OMEGA_MUON_GATED", &omega::OMEGA_MUON_GATED),
        of_chain("OMEGA_MUON_GATED_WIDE", &omega::OMEGA_MUON_GATED_WIDE),
        of_chain("OMEGA_MUON_LINEAR", &omega::OMEGA_MUON_LINEAR),
        of_chain("OMEGA_MUON_LINEAR_WIDE", &omega::OMEGA_MUON_LINEAR_WIDE),
        of_chain("OMEGA_MUON_NORMED", &omega::OMEGA_MUON_NORMED),
        of_chain("OMEGA_MUON_NORMED_WIDE", &omega::OMEGA_MUON_NORMED_WIDE),
        of_chain("OMEGA_MUON_TOKENS", &omega::OMEGA_MUON_TOKENS),
        of_chain("OMEGA_MUON_TOKENS_WIDE", &omega::OMEGA_MUON_TOKENS_WIDE),
        of_chain("OMEGA_MUON_TOKENS_GATED", &omega::OMEGA_MUON_TOKENS_GATED),
        of_chain("OMEGA_MUON_TOKENS_GATED_WIDE", &omega::OMEGA_MUON_TOKENS_GATED_WIDE),
        of_chain("OMEGA_MUON_TOKENS_LINEAR", &omega::OMEGA_MUON_TOKENS_LINEAR),
        of_chain("OMEGA_MUON_TOKENS_LINEAR_WIDE", &omega::OMEGA_MUON_TOKENS_LINEAR_WIDE),
        of_chain("OMEGA_MUON_TOKENS_NORMED", &omega::OMEGA_MUON_TOKENS_NORMED),
        of_chain("OMEGA_MUON_TOKENS_NORMED_WIDE", &omega::OMEGA_MUON_TOKENS_NORMED_WIDE),
    ];
    let missing: Vec<String> = all.into_iter().filter(|text| !said.contains(text)).collect();
    assert!(missing.is_empty(), "`src/ops/` should say:\n{}", missing.join("\n"));
}
