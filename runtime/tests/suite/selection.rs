//! Choosing a config: deterministic, legal, and sensible at extreme sizes.

use crate::kernels::{GEMM, SCALE, SCALE_IDLE};
use atlas_dsl::specialization::{DimFact, StrideFact};
use atlas_dsl::{DType, Specialization};
use atlas_runtime::{ConfigSource, Device, Launch, Outcome, Selection, Tensor, args, choose_for, specialize};

fn gemm(m: u64, k: u64, n: u64, sm: u32) -> Selection {
    let spec = Specialization::default().with_type("T", DType::Bf16);
    choose_for(&GEMM, &spec, &[m, k, n], format!("sm_{sm}").parse().ok())
}

#[test]
fn the_choice_is_deterministic() {
    for (m, k, n) in [(64, 64, 64), (4096, 4096, 4096), (17, 5, 100_000)] {
        let first = gemm(m, k, n, 90).to_string();
        assert!((0..5).all(|_| gemm(m, k, n, 90).to_string() == first));
    }
}

#[test]
fn an_illegal_config_is_never_chosen_and_says_why() {
    for size in [1, 100, 5000] {
        for sm in [80, 89, 90] {
            let selection = gemm(size, size, size, sm);
            let chosen = selection.chosen().unwrap();
            assert!(![0, 1024].contains(&chosen.tile["BM"]), "{chosen}");
            assert_eq!(selection.source, ConfigSource::CostModel);
            assert_eq!(selection.candidates.len(), GEMM.configs().len());
            let zero = selection.refused().find(|(c, _)| c.tile["BM"] == 0).unwrap();
            assert!(zero.1.contains("error[ATL301]"), "{}", zero.1);
            let large = selection.refused().find(|(c, _)| c.tile["BM"] == 1024).unwrap();
            assert!(large.1.contains("the tiles that a loop carries need"), "{}", large.1);
        }
    }
}

#[test]
fn large_problems_take_large_tiles_and_small_ones_small_tiles() {
    assert_eq!(gemm(8192, 4096, 8192, 90).chosen().unwrap().tile["BM"], 128);
    assert_eq!(gemm(256, 4096, 256, 90).chosen().unwrap().tile["BM"], 32);
}

/// Except for the first, which is one of those that the model cannot distinguish from the cheapest.
#[test]
fn costs_rise_along_the_ranking() {
    let selection = gemm(1000, 1000, 1000, 80);
    let cycles: Vec<f64> = selection
        .legal()
        .map(|c| match c.outcome {
            Outcome::Legal(Some(cost)) => cost.cycles,
            _ => f64::NAN,
        })
        .collect();
    assert!(cycles.len() > 3 && cycles[1..].windows(2).all(|w| w[0] <= w[1]), "{cycles:?}");
    assert!(cycles[0] <= 1.03 * cycles[1], "{cycles:?}");
}

/// `stages` without a pipelined loop, and a tile size that no tile uses. A refused config gives no kernel.
#[test]
fn configs_of_one_kernel_are_one() {
    let spec = Specialization::default().with_type("T", DType::F32).with_dim("D", DimFact::Const(64));
    let selection = choose_for(&SCALE_IDLE, &spec, &[1000, 64], "sm_90".parse().ok());
    let mut legal: Vec<String> = selection.legal().map(|c| c.config.to_string()).collect();
    legal.sort();
    let of = |bn: u32| [4, 8].map(|warps| format!("BN={bn} IDLE=1 stages=2 warps={warps}"));
    assert_eq!(legal, [of(16), of(64)].concat());
    assert_eq!(selection.refused().count(), 8);
    assert!(selection.refused().all(|(c, why)| c.schedule.stages == 0 && why.contains("stages = 0")));
}

#[test]
fn the_cpu_takes_the_default() {
    let x = Tensor::zeros(&Device::cpu(), DType::F32, [100, 8]).unwrap();
    let mut y = Tensor::zeros(&Device::cpu(), DType::F32, [100, 8]).unwrap();
    let selection = SCALE.select(&Device::cpu(), args!(x, x, 1.0, &mut y)).unwrap();
    assert_eq!((selection.source, selection.chosen()), (ConfigSource::Default, Some(&SCALE.default_config())));
}

#[test]
fn a_problem_becomes_its_facts() {
    let x = Tensor::zeros(&Device::cpu(), DType::F32, [208, 48]).unwrap();
    let view = x.slice(1, 3..35).unwrap();
    let mut y = Tensor::zeros(&Device::cpu(), DType::F32, [32, 208]).unwrap().transpose(0, 1).unwrap();
    let spec = specialize(&SCALE.bind(&Device::cpu(), args!(view, view, 1.0, &mut y)).unwrap());
    assert_eq!(spec.types["T"], DType::F32);
    assert_eq!((spec.dims["N"], spec.dims["D"]), (DimFact::Dynamic(16), DimFact::Const(32)));
    assert_eq!(
        (spec.tensors["x"].align, &spec.tensors["x"].strides[..]),
        (4, &[StrideFact::Dynamic(16), StrideFact::Const(1)][..])
    );
    assert_eq!(
        (spec.tensors["y"].align, &spec.tensors["y"].strides[..]),
        (16, &[StrideFact::Const(1), StrideFact::Dynamic(16)][..])
    );
}

#[test]
fn problems_of_one_class_share_a_kernel() {
    let spec = |n: usize| {
        let x = Tensor::zeros(&Device::cpu(), DType::F32, [n, 8]).unwrap();
        let mut y = Tensor::zeros(&Device::cpu(), DType::F32, [n, 8]).unwrap();
        specialize(&SCALE.bind(&Device::cpu(), args!(x, x, 1.0, &mut y)).unwrap())
    };
    assert_eq!(spec(3), spec(777));
    assert_ne!(spec(3), spec(776));
    assert_eq!(spec(3).tensors["x"].strides, [StrideFact::Const(8), StrideFact::Const(1)]);
}

/// A size of a known specialization gets the same choice as in a new process.
#[test]
fn a_space_that_is_kept_changes_no_choice() {
    let spec = |n: u64| Specialization::default().with_type("T", DType::Bf16).with_dim("none", DimFact::Const(n));
    let machine = || "sm_90".parse().ok();
    for size in [1, 100, 4096] {
        let kept = choose_for(&GEMM, &spec(0), &[size; 3], machine()).to_string();
        assert_eq!(choose_for(&GEMM, &spec(size), &[size; 3], machine()).to_string(), kept);
    }
}
