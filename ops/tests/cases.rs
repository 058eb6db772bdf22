//! Every verification problem against its f64 reference.

use atlas_dsl::DType;
use atlas_ops::{OPS, cases};
use atlas_runtime::Device;

fn check(op: &str) {
    let device = Device::cpu();
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

#[test]
fn fused_forward() {
    check("fused_forward");
    check("gated_memory");
    check("taylor_features");
    check("layer");
}

#[test]
fn memory_grad() {
    check("memory_grad");
}

#[test]
fn memory_read() {
    check("memory_read");
}

#[test]
fn muon() {
    check("muon");
}

#[test]
fn newton_schulz_small() {
    check("newton_schulz_small");
}

#[test]
fn attention_over_windows() {
    check("attention_decode");
    check("block_attention");
    check("window_sums");
    check("windowed_attention");
}

#[test]
fn omega() {
    check("omega");
}

#[test]
fn poly_features() {
    check("poly_features");
}

#[test]
fn rms_norm() {
    check("rms_norm");
}

#[test]
fn softmax() {
    check("softmax");
}

#[test]
fn every_op_is_verified_in_every_dtype() {
    let problems = cases::verification();
    for op in &OPS {
        for dtype in cases::DTYPES {
            assert!(problems.iter().any(|p| p.op.name == op.name && p.dtype == dtype), "{} {dtype}", op.name);
        }
        for k in op.defs() {
            assert!(problems.iter().any(|p| p.kernel.name == k.name), "{}", k.name);
        }
    }
}

#[test]
fn every_config_gives_a_good_result() {
    let device = Device::cpu();
    for (kernel, dims) in [
        ("memory_read", &[2, 37, 48, 192][..]),
        ("newton_schulz_small", &[2, 48, 192]),
        ("poly3", &[37, 48]),
        ("rms_norm", &[37, 40]),
        ("softmax", &[37, 40]),
    ] {
        let Some(p) = cases::problem(kernel, DType::Bf16, dims) else { panic!("no kernel {kernel}") };
        for config in p.kernel.configs() {
            match p.check(&device, Some(&config)) {
                Ok(c) => assert!(c.passes(p.bound()), "{p} with {config}: {c:?}"),
                Err(e) => panic!("{p} with {config}: {e}"),
            }
        }
    }
}

#[test]
fn a_sample_of_the_result_is_checked_against_the_same_reference() {
    // The independent dim is the first of every tensor, and the last of a transpose's result.
    for (kernel, dims) in [("memory_read", &[5, 16, 16, 32][..]), ("transpose", &[20, 33])] {
        let Some(p) = cases::problem(kernel, DType::F32, dims) else { panic!("no kernel") };
        let inputs = p.inputs();
        let outcome = p.prepare(&Device::cpu(), &inputs).and_then(|mut prepared| {
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
