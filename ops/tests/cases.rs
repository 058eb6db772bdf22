//! Every verification problem against its f64 reference.

use atlas_dsl::DType;
use atlas_ops::monomials::monomials3;
use atlas_ops::run::Expected;
use atlas_ops::{OPS, Problem, cases};
use atlas_runtime::{Launch, Tensor, args};

fn check(op: &str) {
    let device = crate::device();
    let mut problems = cases::verification();
    problems.retain(|p| p.op.name == op);
    assert!(!problems.is_empty());
    let mut missed = Vec::new();
    for p in &problems {
        match p.check(&device, None) {
            Ok(c) if c.passes(p.bound()) => {}
            Ok(c) => missed.push(format!("{p}: bound {:.0e}, {c:?}", p.bound())),
            Err(e) => missed.push(format!("{p}: {e}")),
        }
    }
    assert!(missed.is_empty(), "{} of {} problems:\n{}", missed.len(), problems.len(), missed.join("\n"));
}

/// Ops that are checked by a test of their own, beside the others.
macro_rules! alone {
    ($($op:ident)+) => {
        $(
            #[test]
            fn $op() {
                check(stringify!($op));
            }
        )+

        const ALONE: &[&str] = &[$(stringify!($op)),+];
    };
}

alone! { fused_forward gated_delta_rule memory_grad memory_read muon omega omega_backward omega_muon omega_muon_tokens omega_split_backward omega_wide_backward poly_features rms_norm softmax ttt_linear windowed_attention windowed_attention_grad attention_prefix_grad }

#[test]
fn every_other_op() {
    let others = OPS.iter().map(|op| op.name).filter(|name| !ALONE.contains(name));
    others.for_each(check);
}

#[test]
fn an_output_without_a_reference_does_not_pass() {
    let found = [vec![1.0], vec![2.0]];
    let wanted = |exact: &[f64]| Expected { exact: exact.iter().map(|&x| vec![x]).collect(), rounded: None };
    assert!(wanted(&[1.0, 2.0]).beside(&found).passes(0.0));
    assert!(!wanted(&[1.0]).beside(&found).passes(0.0));
    assert!(!wanted(&[]).beside(&found).passes(0.0));
}

#[test]
fn products_of_monomials_are_polynomials_of_the_product() {
    let cpu = crate::device();
    let (n, d) = (6, 8);
    let e = atlas_ops::monomials::count(d, 3);
    let row = |i: usize| ((i * 37 % 23) as f32 - 11.0) / 16.0;
    let x: Vec<f32> = (0..n * d).map(row).collect();
    // a_j = 1, 0.5, -0.25, 0.125 on the keys' side, and 1 on the queries'.
    let a = [1.0_f32, 0.5, -0.25, 0.125];
    let features = |c: [f32; 4]| {
        let x = cpu.tensor_from(&x, [n, d]).unwrap();
        let mut y = Tensor::zeros(&cpu, DType::F32, [n, e]).unwrap();
        monomials3.launch(&cpu, args!(x, &mut y, c[0], c[1], c[2], c[3], 0)).unwrap();
        y.to_vec::<f32>().unwrap()
    };
    let (queries, keys) = (features([1.0; 4]), features(a));
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    for i in 0..n {
        for j in 0..n {
            let product = dot(&x[i * d..][..d], &x[j * d..][..d]);
            let wanted: f64 = a.iter().enumerate().map(|(p, a)| f64::from(*a) * product.powi(p as i32)).sum();
            let found = dot(&queries[i * e..][..e], &keys[j * e..][..e]);
            assert!((found - wanted).abs() <= 1e-5 * wanted.abs().max(1.0), "{i} {j}: {found} for {wanted}");
        }
    }
}

#[test]
fn every_op_is_verified_and_simulated_in_every_dtype_and_measured() {
    let (verified, simulated) = (cases::verification(), cases::simulation());
    for op in &OPS {
        for &dtype in op.dtypes {
            let is_in = |problems: &[Problem]| problems.iter().any(|p| p.op.name == op.name && p.dtype == dtype);
            assert!(is_in(&verified), "{} {dtype} is never verified", op.name);
            assert!(is_in(&simulated), "{} {dtype} is never simulated", op.name);
        }
        for k in op.defs() {
            assert!(verified.iter().any(|p| p.kernel.name == k.name), "{} is never verified", k.name);
        }
        assert!(!op.measured.is_empty(), "{} is never measured", op.name);
    }
}

#[test]
fn every_config_gives_a_good_result() {
    let device = crate::device();
    for (kernel, dims) in [
        ("memory_read", &[2, 37, 48, 192][..]),
        ("newton_schulz_small", &[2, 48, 192]),
        ("poly3", &[37, 48]),
        ("rms_norm", &[37, 40]),
        ("softmax", &[37, 40]),
    ] {
        let Some(p) = cases::problem(kernel, DType::Bf16, dims) else { panic!("no kernel {kernel}") };
        let (inputs, mut count) = (p.inputs(), 0);
        let expected = p.expected(&inputs);
        for config in p.kernel.configs() {
            let found = p.check_on(&device, Some(&config), &inputs, &expected);
            let Some(c) = crate::unless_too_large(found, format_args!("{p} with {config}")) else { continue };
            assert!(c.passes(p.bound()), "{p} with {config}: {c:?}");
            count += 1;
        }
        assert!(count > 0, "no config of {kernel} is legal");
    }
}

#[test]
fn a_sample_of_the_result_is_checked_against_the_same_reference() {
    // The independent dim is the first of every tensor, and the last of a transpose's result.
    for (kernel, dims) in [("memory_read", &[5, 16, 16, 32][..]), ("transpose", &[20, 33])] {
        let Some(p) = cases::problem(kernel, DType::F32, dims) else { panic!("no kernel") };
        let inputs = p.inputs();
        let outcome = p.prepare(&crate::device(), &inputs).and_then(|mut prepared| {
            prepared.launch(None)?;
            prepared.check_sample(&prepared.sample(&inputs, 3))
        });
        assert!(outcome.is_ok_and(|c| c.passes(p.bound())), "{kernel}");
    }
}

#[test]
fn inputs_are_reproducible_and_differ_between_parameters() {
    let Some(p) = cases::problem("memory_read", DType::Bf16, &[2, 16, 16, 16]) else { panic!("no kernel") };
    assert_eq!(p.inputs().get("x"), p.inputs().get("x"));
    assert_ne!(p.inputs().get("x"), p.inputs().get("r"));
}
