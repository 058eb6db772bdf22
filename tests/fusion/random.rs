//! Random chains: fused kernels give the same bits as the kernels one after the other.

use super::stages::*;
use crate::kernels::Bits;
use atlas::prelude::*;
use atlas_dsl::KernelDef;
use atlas_dsl::config::Schedule;
use atlas_dsl::def::{DTypeRef, GridSize, ParamDef};
use atlas_dsl::fuse::{Fused, Fusion, Part};
use atlas_runtime::{Arg, RuntimeError};
use half::{bf16, f16};
use std::collections::BTreeMap;

/// The number of chains to fuse and compare.
const WANTED: usize = 600;

const TYPES: [DType; 3] = [DType::F32, DType::Bf16, DType::F16];

/// The tensor between two kernels: rows of floats or of whole numbers, or one number per row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rows,
    Whole,
    Numbers,
}

/// A kernel, and the kinds of its input and output.
type Stage = (&'static KernelDef, Kind, Kind);

static STAGES: [Stage; 26] = [
    (&affine, Kind::Rows, Kind::Rows),
    (&activated, Kind::Rows, Kind::Rows),
    (&biased, Kind::Rows, Kind::Rows),
    (&centred, Kind::Rows, Kind::Rows),
    (&normed, Kind::Rows, Kind::Rows),
    (&softmaxed, Kind::Rows, Kind::Rows),
    (&product, Kind::Rows, Kind::Rows),
    (&projected, Kind::Rows, Kind::Rows),
    (&layered, Kind::Rows, Kind::Rows),
    (&turned, Kind::Rows, Kind::Rows),
    (&differences, Kind::Rows, Kind::Rows),
    (&totals, Kind::Rows, Kind::Numbers),
    (&streamed, Kind::Rows, Kind::Numbers),
    (&gathered, Kind::Rows, Kind::Numbers),
    (&chosen, Kind::Rows, Kind::Numbers),
    (&spread, Kind::Numbers, Kind::Rows),
    (&rooted, Kind::Numbers, Kind::Numbers),
    (&counted, Kind::Rows, Kind::Whole),
    (&measured, Kind::Whole, Kind::Rows),
    (&padded, Kind::Rows, Kind::Rows),
    (&padded_rows, Kind::Rows, Kind::Rows),
    (&halved, Kind::Rows, Kind::Rows),
    (&shifted, Kind::Rows, Kind::Rows),
    (&repeated, Kind::Rows, Kind::Rows),
    (&refilled, Kind::Rows, Kind::Rows),
    (&least, Kind::Rows, Kind::Numbers),
];

/// Leaks a value for the rest of the process.
fn leak<T>(x: T) -> &'static T {
    Box::leak(Box::new(x))
}

/// A chain of two to four kernels. Parameters of different kernels have different names, except for the tensors that
/// are passed on.
fn chain(bits: &mut Bits) -> (Vec<&'static KernelDef>, Vec<Option<DType>>, &'static Fused) {
    let length = 2 + bits.next() as usize % 3;
    let mut kind = None;
    let mut parts: Vec<Part> = Vec::new();
    for at in 0..length {
        let fitting: Vec<&Stage> = STAGES.iter().filter(|s| kind.is_none_or(|k| s.1 == k)).collect();
        let &&(kernel, _, made) = &fitting[bits.next() as usize % fitting.len()];
        kind = Some(made);
        let names = kernel.params.iter().map(ParamDef::name).filter(|n| !["x", "y"].contains(n));
        let names: Vec<(&str, &str)> = names.map(|n| (n, leak(format!("{n}{at}")).as_str())).collect();
        let (say, dtype) = (bits.next() & 1 == 0, TYPES[bits.next() as usize % 3]);
        let told = kernel.types.iter().filter(|t| say && t.name == "U").map(|t| (t.name, dtype.name()));
        parts.push(Part { kernel, names: leak(names.into_iter().chain(told).collect::<Vec<_>>()) });
    }
    let defs = parts.iter().map(|p| p.kernel.declared()).collect();
    let told = |p: &Part| p.names.iter().find(|n| n.0 == "U").and_then(|n| DType::from_name(n.1));
    let told = parts.iter().map(told).collect();
    let fusion = Fusion { name: "chain", doc: "", file: file!(), parts: leak(parts), keep_f32: false };
    (defs, told, leak(Fused::new(fusion)))
}

/// A random config of the tune space.
fn config(def: &KernelDef, bits: &mut Bits) -> Config {
    def.tune
        .iter()
        .fold(Config::default(), |c, knob| c.with(knob.name, knob.values[bits.next() as usize % knob.values.len()]))
}

/// The knobs of one part in a chain's config.
fn part_config(label: &str, def: &KernelDef, config: &Config) -> Config {
    let mut own = def.default_config();
    own.schedule = config.schedule;
    for (k, knob) in def.tune.iter().enumerate() {
        let sizes_grid = def.grid.iter().any(|axis| axis.size == GridSize::Knob(k));
        let value = config.get(&format!("{label}_{}", knob.name)).or_else(|| config.get(knob.name));
        if let (false, false, Some(value)) = (sizes_grid, Schedule::KEYS.contains(&knob.name), value) {
            own.set(knob.name, value);
        }
    }
    own
}

fn tensor(device: &Device, dtype: DType, shape: &[usize], bits: &mut Bits) -> Tensor {
    let values = (0..shape.iter().product()).map(|_| (bits.next() >> 40) as f32 / (1 << 22) as f32 - 2.0);
    match dtype {
        DType::F32 => device.tensor_from(&values.collect::<Vec<_>>(), shape),
        DType::F16 => device.tensor_from(&values.map(f16::from_f32).collect::<Vec<_>>(), shape),
        DType::Bf16 => device.tensor_from(&values.map(bf16::from_f32).collect::<Vec<_>>(), shape),
        _ => device.tensor_from(&values.map(|v| (v * 100.0) as i32).collect::<Vec<_>>(), shape),
    }
    .unwrap()
}

fn bits_of(t: &Tensor) -> Vec<u64> {
    t.to_f64_vec().unwrap().into_iter().map(|x| if x.is_nan() { 0 } else { x.to_bits() }).collect()
}

/// The element types and sizes of one launch, by name.
struct Problem {
    types: BTreeMap<&'static str, DType>,
    dims: BTreeMap<&'static str, usize>,
    tensors: BTreeMap<&'static str, Tensor>,
}

fn dtype_of(def: &KernelDef, dtype: DTypeRef, types: &BTreeMap<&'static str, DType>) -> DType {
    match dtype {
        DTypeRef::Fixed(d) => d,
        DTypeRef::Generic(i) => types[def.types[i].name],
    }
}

fn problem(def: &'static KernelDef, device: &Device, bits: &mut Bits) -> Problem {
    const SIZES: [usize; 9] = [1, 2, 3, 5, 8, 16, 20, 33, 48];
    let types: BTreeMap<_, _> = def.types.iter().map(|t| (t.name, TYPES[bits.next() as usize % 3])).collect();
    let dims: BTreeMap<_, _> = def.dims.iter().map(|d| (d.name, SIZES[bits.next() as usize % SIZES.len()])).collect();
    let mut tensors = BTreeMap::new();
    for p in def.params {
        if let ParamDef::Tensor { name, dtype, dims: of, .. } = p {
            let shape: Vec<usize> = of.iter().map(|&d| dims[def.dims[d].name]).collect();
            tensors.insert(*name, tensor(device, dtype_of(def, *dtype, &types), &shape, bits));
        }
    }
    Problem { types, dims, tensors }
}

/// The arguments in parameter order, each by its name in the chain. The output is `y`.
fn launch(
    def: &'static KernelDef,
    device: &Device,
    config: &Config,
    name: impl Fn(&str) -> String,
    given: &BTreeMap<&'static str, Tensor>,
    first: Option<&Tensor>,
    y: &mut Tensor,
) -> Result<(), RuntimeError> {
    let mut y = Some(y);
    let args: Vec<Arg<'_>> = def
        .params
        .iter()
        .map(|p| match (p, first) {
            (ParamDef::Scalar { .. }, _) => Arg::F32(0.375),
            (ParamDef::Tensor { name: "y", .. }, _) => Arg::Out(y.take().unwrap()),
            (ParamDef::Tensor { name: "x", .. }, Some(x)) => Arg::In(x),
            (p, _) => Arg::In(&given[&*name(p.name())]),
        })
        .collect();
    def.launch_with(device, config, args)
}

/// Runs one kernel after the other. Each reads the output of the previous one.
fn unfused(
    parts: &[&'static KernelDef],
    told: &[Option<DType>],
    device: &Device,
    config: &Config,
    p: &Problem,
) -> Result<Tensor, RuntimeError> {
    let mut passed: Option<Tensor> = None;
    for (at, def) in parts.iter().enumerate() {
        let same = parts[..at].iter().filter(|d| d.name == def.name).count();
        let label = if same == 0 { def.name.to_owned() } else { format!("{}_{}", def.name, same + 1) };
        let name = |n: &str| if at == 0 && n == "x" { "x".to_owned() } else { format!("{n}{at}") };
        // The sizes of dims and the element types, from the input tensors.
        let (mut dims, mut types) = (BTreeMap::new(), BTreeMap::new());
        let mut out = None;
        for param in def.params {
            let ParamDef::Tensor { name: own, dtype, dims: of, .. } = param else { continue };
            if *own == "y" {
                out = Some((*dtype, *of));
                continue;
            }
            let tensor = if let ("x", Some(passed)) = (*own, &passed) { passed } else { &p.tensors[&*name(own)] };
            of.iter().zip(tensor.shape()).for_each(|(&d, &n)| _ = dims.insert(d, n));
            if let DTypeRef::Generic(i) = dtype {
                types.insert(def.types[*i].name, tensor.dtype());
            }
        }
        let (dtype, of) = out.unwrap();
        let made = if let DTypeRef::Generic(i) = dtype {
            let next = made_type(parts, told[at], at, p);
            *types.entry(def.types[i].name).or_insert(next)
        } else {
            dtype_of(def, dtype, &types)
        };
        let shape: Vec<usize> = of.iter().map(|d| dims[d]).collect();
        let mut y = tensor(device, made, &shape, &mut Bits(1));
        launch(def, device, &part_config(&label, def, config), name, &p.tensors, passed.as_ref(), &mut y)?;
        passed = Some(y);
    }
    Ok(passed.unwrap())
}

/// The output element type of a kernel whose inputs do not determine it: from the fusion, or from later tensors.
fn made_type(parts: &[&'static KernelDef], told: Option<DType>, at: usize, p: &Problem) -> DType {
    if let Some(told) = told {
        return told;
    }
    for (later, def) in parts.iter().enumerate().skip(at + 1) {
        let is_of = |p: &ParamDef, of: DTypeRef| matches!(p, ParamDef::Tensor { dtype, .. } if *dtype == of);
        let Some(&ParamDef::Tensor { dtype: x, .. }) = def.params.first() else { break };
        let other = def.params.iter().find(|p| is_of(p, x) && !["x", "y"].contains(&p.name()));
        if let Some(other) = other {
            return p.tensors[&*format!("{}{later}", other.name())].dtype();
        }
        if !def.params.iter().any(|p| p.name() == "y" && is_of(p, x)) {
            break;
        }
    }
    p.tensors["y"].dtype()
}

#[test]
fn fused_chains_equal_their_kernels_bit_for_bit() {
    let device = Device::cpu();
    let mut bits = Bits(9);
    let (mut compared, mut refused) = (0, BTreeMap::new());
    let mut wrong = Vec::new();
    while compared < WANTED && wrong.len() < 5 {
        assert!(refused.values().sum::<usize>() < 10 * WANTED, "{refused:?}");
        let (parts, told, fused) = chain(&mut bits);
        let names: Vec<&str> = parts.iter().map(|d| d.name).collect();
        let def = fused.def();
        if let Some(why) = def.refused {
            *refused.entry(format!("{}", why.0[0].code)).or_default() += 1;
            continue;
        }
        let config = config(def, &mut bits);
        let p = problem(def, &device, &mut bits);
        let what = format!("{} with {config}, {:?} {:?}", names.join(" >> "), p.types, p.dims);
        let mut y = p.tensors["y"].contiguous().unwrap();
        match launch(def, &device, &config, str::to_owned, &p.tensors, None, &mut y) {
            Err(RuntimeError::Kernel { diagnostics, .. }) => {
                let code = diagnostics.0[0].code.to_string();
                if !["ATL231", "ATL232"].contains(&&*code) {
                    wrong.push(format!("{what}: {diagnostics}"));
                }
                *refused.entry(code).or_default() += 1;
                continue;
            }
            Err(e) => wrong.push(format!("{what}: {e}")),
            Ok(()) => {}
        }
        match unfused(&parts, &told, &device, &config, &p) {
            Err(e) => wrong.push(format!("{what}: apart: {e}")),
            Ok(apart) => {
                compared += 1;
                let (is, was) = (bits_of(&y), bits_of(&apart));
                let differing = is.iter().zip(&was).filter(|(a, b)| a != b).count();
                if differing > 0 || is.len() != was.len() {
                    wrong.push(format!("{what}: {differing} of {} elements differ", is.len()));
                }
            }
        }
    }
    println!("{compared} compared, refused {refused:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused.contains_key("ATL231"), "nothing was refused: {refused:?}");
}
