//! Kernels as Atlas emits them, with what they compute.

use super::harness::{LaunchShape, SCHEDULES, block, outputs, run_with};
use crate::fault::FaultKind;
use half::bf16;

/// The text of a snapshot, without its header.
pub(super) fn snapshot(name: &str) -> String {
    let path = format!("{}/../snapshots/ptx/{name}.snap", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    text[text.find(".version").unwrap()..].to_string()
}

fn words(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Pairs of bf16 in words.
fn packed(values: &[f32]) -> Vec<u32> {
    let bits = |v: f32| u32::from(bf16::from_f32(v).to_bits());
    values.chunks(2).map(|c| bits(c[0]) | bits(c[1]) << 16).collect()
}

const ROWS: usize = 40;
const COLUMNS: usize = 36;
const INNER: usize = 44;

/// Operands of the product: small integers, of which all sums are exact.
fn gemm() -> (LaunchShape, [Vec<u32>; 3], Vec<u32>) {
    let a: Vec<f32> = (0..ROWS * INNER).map(|i| (i % 7) as f32 - 3.0).collect();
    let b: Vec<f32> = (0..INNER * COLUMNS).map(|i| (i % 5) as f32 - 2.0).collect();
    let at = |i: usize| (0..INNER).map(|k| a[i / COLUMNS * INNER + k] * b[k * COLUMNS + i % COLUMNS]).sum();
    let c: Vec<f32> = (0..ROWS * COLUMNS).map(at).collect();
    let scalars: &[u64] = &[40, 36, 44, 44, 36, 36];
    let shape = LaunchShape { grid: 4, shared: 8192, scalars, ..block(128) };
    (shape, [words(&a), words(&b), vec![0; ROWS * COLUMNS]], words(&c))
}

#[test]
fn a_matrix_product_with_a_pipeline() {
    let (shape, buffers, expected) = gemm();
    let out = outputs(&snapshot("sm_80/gemm_tf32"), shape, &buffers);
    assert!(out[2] == expected);
}

#[test]
fn the_pipeline_without_one_of_its_waits_or_barriers() {
    let (shape, buffers, _) = gemm();
    let text = snapshot("sm_80/gemm_tf32");
    let lines: Vec<&str> = text.lines().collect();
    let guards = ["bar.sync", "cp.async.wait_group"];
    let mut found = 0;
    for (i, _) in lines.iter().enumerate().filter(|(_, l)| guards.iter().any(|g| l.contains(g))) {
        let without: Vec<&str> = lines.iter().enumerate().filter(|(k, _)| *k != i).map(|(_, l)| *l).collect();
        for schedule in SCHEDULES {
            match run_with(&without.join("\n"), shape, &buffers, schedule) {
                Err(f) => assert!(
                    matches!(f.kind, FaultKind::Race | FaultKind::InFlight | FaultKind::UninitializedRead),
                    "{f}"
                ),
                // The barrier that ends the last round guards nothing after it.
                Ok(_) => panic!("line {} may be left out: {}", i + 1, lines[i]),
            }
        }
        found += 1;
    }
    assert!(found >= 2);
}

#[test]
fn a_norm_of_rows() {
    for target in ["sm_80", "sm_90"] {
        let x: Vec<f32> = (0..3 * 512).map(|i| ((i * 37) % 64) as f32 / 16.0 - 2.0).collect();
        let weight: Vec<f32> = (0..512).map(|i| 1.0 + (i % 4) as f32 / 4.0).collect();
        let buffers = [packed(&x), packed(&weight), vec![0; 3 * 256]];
        let scalars: &[u64] = &[0x3727_c5ac, 3];
        let shape = LaunchShape { grid: 3, shared: 64, scalars, ..block(64) };
        let out = outputs(&snapshot(&format!("{target}/rms_norm_bf16")), shape, &buffers);
        for (row, x) in x.chunks(512).enumerate() {
            let mean = x.iter().map(|v| v * v).sum::<f32>() / 512.0;
            for (i, v) in x.iter().enumerate() {
                let expected = v / (mean + 1e-5).sqrt() * weight[i];
                let word = out[2][(row * 512 + i) / 2] >> (16 * (i % 2));
                let got = bf16::from_bits(word as u16).to_f32();
                assert!((got - expected).abs() <= expected.abs() / 128.0, "{row} {i}: {got} {expected}");
            }
        }
    }
}
