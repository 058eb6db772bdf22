//! A program that runs its kernels with only the driver: no LLVM, no other file, and nothing written.
//!
//! `shipping [N [D]]` normalises N rows of D numbers, checks the result, and prints the times of the first launch and
//! of later ones.

use atlas::prelude::*;
use shipping_kernels::layer_norm;
use std::time::{Duration, Instant};

// The bundle that `build.rs` made.
atlas::bundle!();

/// The number of launches that are timed together: fewer than a stream can queue.
const TOGETHER: u32 = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut sizes = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let (n, d) = (sizes.next().unwrap_or(Ok(4096))?, sizes.next().unwrap_or(Ok(1024))?);

    let device = Device::best()?;
    let x: Vec<bf16> = (0..n * d).map(|i| bf16::from_f32((i % 1013) as f32 / 337.0 - 1.5)).collect();
    let dx = device.tensor_from(&x, [n, d])?;
    let w = device.tensor_from(&vec![bf16::from_f32(0.5); d], [d])?;
    let b = device.tensor_from(&vec![bf16::from_f32(0.25); d], [d])?;
    let mut y = device.tensor_from(&vec![bf16::ZERO; n * d], [n, d])?;
    let eps = 1e-5;

    let start = Instant::now();
    layer_norm.launch(&device, args!(dx, w, b, &mut y, eps))?;
    let first = start.elapsed();
    device.synchronize()?;
    let stats = device.stats();
    let load = Duration::from_micros(stats.load_us);
    let worst = check(&x, &y.to_vec::<bf16>()?, d, eps);

    println!("on {device}: {n} rows of {d}, largest error {worst:.1e}");
    println!("first launch {first:.1?}, of which the driver loaded the kernel for {load:.1?}");
    println!(
        "compiled here: {}, chosen by the bundle: {}",
        stats.compiled,
        stats.chosen_by_bundle + stats.chosen_by_region
    );
    if !device.is_cpu() {
        let mut rounds: Vec<Duration> = Vec::new();
        for _ in 0..9 {
            let start = Instant::now();
            for _ in 0..TOGETHER {
                layer_norm.launch(&device, args!(dx, w, b, &mut y, eps))?;
            }
            rounds.push(start.elapsed() / (TOGETHER));
            device.synchronize()?;
        }
        rounds.sort();
        println!("warm launch {:.2?} of host time, the median of {} rounds", rounds[rounds.len() / 2], rounds.len());
        // New sizes: the launch looks in the bundle's table, and the kernel that it finds may or may not be loaded
        // already.
        let mut fresh: Vec<Duration> = Vec::new();
        for rows in (1..=64).map(|i| n.saturating_sub(i).max(1)) {
            let (dx, mut y) = (dx.slice(0, 0..rows)?, y.slice(0, 0..rows)?);
            let start = Instant::now();
            layer_norm.launch(&device, args!(dx, w, b, &mut y, eps))?;
            fresh.push(start.elapsed());
        }
        device.synchronize()?;
        fresh.sort();
        println!("launch at sizes not seen before {:.1?}, the median of {}", fresh[fresh.len() / 2], fresh.len());
    }
    assert!(worst < 0.02, "the result is wrong");
    Ok(())
}

/// The largest error of the first and the last rows, compared with plain loops in f64.
fn check(x: &[bf16], y: &[bf16], d: usize, eps: f32) -> f64 {
    let rows = x.len() / d;
    let mut worst = 0.0_f64;
    for row in (0..rows.min(8)).chain(rows.saturating_sub(8)..rows) {
        let of = row * d..(row + 1) * d;
        let xs: Vec<f64> = x[of.clone()].iter().map(|v| v.to_f64()).collect();
        let mean = xs.iter().sum::<f64>() / d as f64;
        let variance = xs.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / d as f64;
        for (x, y) in xs.iter().zip(&y[of]) {
            let want = (x - mean) / (variance + f64::from(eps)).sqrt() * 0.5 + 0.25;
            worst = worst.max((y.to_f64() - want).abs());
        }
    }
    worst
}
