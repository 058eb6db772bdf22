//! The parameters of a fused kernel, and how tensors are matched.

use super::stages::*;
use atlas::prelude::*;
use atlas_dsl::config::Setting;
use atlas_dsl::def::{Declared, ParamDef};
use atlas_dsl::{Specialization, specialization::DimFact};

atlas_kernel! {
    /// Two outputs of one tile.
    kernel parted<T: Float>(x: &Tensor<T, [N, D]>, low: &mut Tensor<T, [N, D]>, high: &mut Tensor<T, [N, D]>)
    tune { BN: [8, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let v = load(x[n, ..]);
            store(low[n, ..], min(v, 0.0));
            store(high[n, ..], max(v, 0.0));
        }
    }

    kernel joined<T: Float>(a: &Tensor<T, [N, D]>, b: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(a[n, ..]) - load(b[n, ..]));
        }
    }

    /// Rows of pairs.
    kernel paired<T: Float>(x: &Tensor<T, [R, E]>, y: &mut Tensor<T, [R, E]>)
    tune { BR: [8] }
    require { E % 2 == 0, R >= 1 + E / 2 }
    {
        for r in grid(tiles(R, BR)) {
            let v = load(x[r, ..]);
            store(y[r, ..], select(iota([BR, E], 1) % 2 == 0, v, -v));
        }
    }

    /// Groups of rows.
    kernel grouped<T: Float>(x: &Tensor<T, [G, N, D]>, y: &mut Tensor<T, [G, N, D]>)
    tune { BN: [8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            store(y[g, n, ..], load(x[g, n, ..]) + 1.0);
        }
    }
}

fuse! {
    /// Two norms with weights of their own.
    kernel twice_normed = normed(w = v, y = z) >> normed(x = z);

    /// Dims with two names, and a requirement on one.
    kernel normed_pairs = normed >> paired;

    /// One kernel writes two tensors, and another reads both.
    kernel absolute = parted(low = l, high = h) >> joined(a = h, b = l);

    /// Rows of groups: kernels of rows before and after a kernel of groups.
    kernel lifted = normed >> grouped >> biased_rows;

    /// The product of a norm, and a bias.
    kernel linear = normed >> product(w = m) >> affine;

    kernel exact(keep_f32) = activated(U = bf16) >> activated;

    kernel rounded = activated(U = bf16) >> activated;
}

atlas_kernel! {
    kernel biased_rows<T: Float>(x: &Tensor<T, [N, D]>, b: &Tensor<T, [D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [16, 8] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]) + load(b[..]));
        }
    }
}

fn names(def: &atlas_dsl::KernelDef) -> Vec<&'static str> {
    def.params.iter().map(ParamDef::name).collect()
}

fn floats(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37) % 23) as f32 / 4.0 - 2.5).collect()
}

#[test]
fn what_a_part_requires_the_whole_requires() -> atlas::Result<()> {
    let cpu = Device::cpu();
    let of = |rows: usize, width: usize| -> atlas::Result<String> {
        let x = cpu.tensor_from(&floats(rows * width), [rows, width])?;
        let w = cpu.tensor_from(&floats(width), [width])?;
        let mut y = Tensor::zeros(&cpu, DType::F32, [rows, width])?;
        let made = normed_pairs.launch(&cpu, args!(x, w, 1e-6, &mut y));
        Ok(made.err().map_or_else(String::new, |e| e.to_string()))
    };
    assert_eq!(of(3, 4)?, "");
    assert_eq!(of(3, 5)?, "error[ATL648]: `normed_pairs` requires D % 2 == 0, but D = 5");
    assert_eq!(of(2, 4)?, "error[ATL648]: `normed_pairs` requires N >= 1 + D / 2, but N = 2, D = 4");
    Ok(())
}

#[test]
fn parameters_of_one_name_are_one() {
    assert_eq!(names(&twice_normed), ["x", "v", "eps", "w", "y"]);
    assert_eq!(names(&absolute), ["x", "y"]);
    assert_eq!(names(&linear), ["x", "w", "eps", "m", "a", "y"]);
    // A dim gets a name that nothing else has.
    let dims: Vec<&str> = linear.dims.iter().map(|d| d.name).collect();
    assert_eq!(dims, ["N", "D", "M"]);
}

#[test]
fn knobs_are_those_of_the_last_kernel_and_what_the_cover_does_not_say() {
    let knob = |name: &str| linear.tune.iter().find(|k| k.name == name).map(|k| k.values);
    let numbers = |all: &[u32]| Some(all.iter().map(|&n| Setting::Number(n)).collect::<Vec<_>>());
    assert_eq!(knob("BN").map(<[_]>::to_vec), numbers(&[16]), "what affine, product and normed all allow");
    assert_eq!(knob("BD").map(<[_]>::to_vec), numbers(&[32]));
    assert_eq!(knob("BK").map(<[_]>::to_vec), numbers(&[16, 32]));
    assert!(knob("BM").is_none(), "the cover says it");
}

#[test]
fn a_tensor_finds_its_readers_by_name() {
    let cpu = Device::cpu();
    let x = cpu.tensor_from(&floats(15), [3, 5]).unwrap();
    let mut y = Tensor::zeros(&cpu, DType::F32, [3, 5]).unwrap();
    absolute.launch(&cpu, args!(x, &mut y)).unwrap();
    let wanted: Vec<f32> = floats(15).into_iter().map(f32::abs).collect();
    assert_eq!(y.to_vec::<f32>().unwrap(), wanted);
}

#[test]
fn kernels_of_rows_are_lifted_over_groups() {
    let cpu = Device::cpu();
    let dims: Vec<usize> = lifted
        .params
        .iter()
        .map(|p| match p {
            ParamDef::Tensor { dims, .. } => dims.len(),
            ParamDef::Scalar { .. } => 0,
        })
        .collect();
    assert_eq!((names(&lifted), dims), (vec!["x", "w", "eps", "b", "y"], vec![3, 1, 0, 1, 3]));
    let (shape, rows) = ([2, 3, 5], [6, 5]);
    let x = cpu.tensor_from(&floats(30), shape).unwrap();
    let (w, b) = (cpu.tensor_from(&floats(5), [5]).unwrap(), cpu.tensor_from(&floats(5), [5]).unwrap());
    let mut y = Tensor::zeros(&cpu, DType::F32, shape).unwrap();
    lifted.launch(&cpu, args!(x, w, 0.5, b, &mut y)).unwrap();
    let mut apart = [(); 3].map(|()| Tensor::zeros(&cpu, DType::F32, shape).unwrap());
    let [a, c, d] = &mut apart;
    normed.launch(&cpu, args!(x.reshape(rows).unwrap(), w, &mut a.reshape(rows).unwrap(), 0.5)).unwrap();
    grouped.launch(&cpu, args!(a, &mut *c)).unwrap();
    biased_rows.launch(&cpu, args!(c.reshape(rows).unwrap(), b, &mut d.reshape(rows).unwrap())).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), d.to_vec::<f32>().unwrap());
}

#[test]
fn rounding_goes_with_keep_f32_alone() {
    let cpu = Device::cpu();
    let run = |kernel: &'static atlas_dsl::KernelDef| {
        let x = cpu.tensor_from(&floats(40), [4, 10]).unwrap();
        let mut y = Tensor::zeros(&cpu, DType::F32, [4, 10]).unwrap();
        kernel.launch(&cpu, args!(x, &mut y)).unwrap();
        y.to_vec::<f32>().unwrap()
    };
    let (kept, mut apart) = (run(&exact), [0.0; 40]);
    assert_ne!(kept, run(&rounded));
    let x = cpu.tensor_from(&floats(40), [4, 10]).unwrap();
    let (mut t, mut u) =
        (Tensor::zeros(&cpu, DType::F32, [4, 10]).unwrap(), Tensor::zeros(&cpu, DType::F32, [4, 10]).unwrap());
    activated.launch(&cpu, args!(x, &mut t)).unwrap();
    activated.launch(&cpu, args!(t, &mut u)).unwrap();
    apart.copy_from_slice(&u.to_vec::<f32>().unwrap());
    assert_eq!(kept, apart, "as if the tensor between were f32");
}

#[test]
fn what_is_removed_says_by_which_rule() {
    let spec = Specialization::default().with_type("T", DType::Bf16);
    let spec = ["N", "D", "M"].iter().fold(spec, |s, d| s.with_dim(d, DimFact::Const(64)));
    let fused: &'static dyn Declared = &linear;
    let config = linear.default_config();
    let removed = fused.removed(&spec, &config).unwrap();
    let said: Vec<_> =
        removed.iter().map(|r| (r.maker.as_str(), r.reader.as_str(), r.rule.0, r.loops, &r.again)).collect();
    let (none, along) = (Vec::new(), vec!["M".to_owned()]);
    // The norm itself is computed once, before the loop. The scaling is in the loop, and each program along M repeats
    // it.
    assert_eq!(said, [("normed", "product", "reduce_dot", 1, &along), ("product", "affine", "epilogue", 0, &none)]);
    let text = (linear.build)(&spec, &config).unwrap().to_string();
    let (before, inside) = text.split_once("pipeline").unwrap();
    assert!(before.contains("reduce sum") && !inside.contains("reduce sum"), "{text}");
    assert!(!text.contains("%t") && text.matches("store").count() == 1, "{text}");
}
