//! Scalars computed from each other: a value that is reached on many paths is visited once.

use super::{Given, agrees_with, output, random, run};
use atlas::prelude::*;
use atlas_dsl::DType::F32;
use atlas_dsl::{Specialization, parse_kernel, same_kernel, verify};
use std::time::{Duration, Instant};

atlas_kernel! {
    /// A load that starts at a number each of whose factors is the product of two others.
    kernel starts_far(x: &Tensor<f32, [L]>, s: i32, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            let a = s;
            let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a;
            let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a;
            let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a;
            let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a; let a = a * a;
            store(y[n], load(x[span(a, 16)]).or(0.0));
        }
    }

    /// A pipeline that ends at such a number.
    kernel ends_far(x: &Tensor<f32, [N, L]>, s: i32, y: &mut Tensor<f32, [N]>)
    tune { stages: [3, 1] }
    {
        for n in grid(tiles(N, 16)) {
            let a = s;
            let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a;
            let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a;
            let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a;
            let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a; let a = a + a;
            let mut total = zeros::<f32>([16, 1]);
            for l in pipeline(0..a + 2) {
                total += sum(load(x[n, span(l * 8, 8)]), axis = 1);
            }
            store(y[n], total);
        }
    }
}

/// Expanded as trees, these numbers have 2^32 leaves for every part that checks, builds, prints, reads or runs the
/// kernel.
#[test]
fn numbers_that_share_their_parts_are_built_once() {
    let (row, rows) = (random(F32, &[40]), random(F32, &[16, 16]));
    let value = |g: &Given, i: usize| if let Given::In(d) = g { d.values[i] as f32 } else { f32::NAN };
    let want: Vec<f64> = (1..17).map(|i| f64::from(value(&row, i))).collect();
    let sums: Vec<f32> = (0..16).map(|n| (0..16).map(|l| value(&rows, n * 16 + l)).sum()).collect();
    let found = run(&starts_far, &Device::cpu(), None, &[row, Given::I32(1), output(F32, &[16])]).unwrap();
    assert_eq!(found[0], want);
    let found = run(&ends_far, &Device::cpu(), None, &[rows, Given::I32(0), output(F32, &[16])]).unwrap();
    assert!(found[0].iter().zip(sums).all(|(f, s)| (f - f64::from(s)).abs() < 1e-5), "{found:?}");
    for def in [&starts_far, &ends_far] {
        let spec = Specialization::default();
        let kernel = verify((def.build)(&spec, &def.default_config()).unwrap()).unwrap();
        let read = parse_kernel(&kernel.to_string()).unwrap();
        assert!(same_kernel(&kernel, &read), "{}", def.name);
    }
}

/// Code that visits them on each path would take minutes at least.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn scalars_are_visited_once() {
    let start = Instant::now();
    let args = [random(F32, &[40]), Given::I32(1), output(F32, &[16])];
    agrees_with(&starts_far, &args, 0.0, |a| vec![a[0][1..17].to_vec()]);
    let args = [random(F32, &[16, 16]), Given::I32(0), output(F32, &[16])];
    agrees_with(&ends_far, &args, 1e-6, |a| vec![a[0].chunks(16).map(|row| row.iter().sum()).collect()]);
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
}
