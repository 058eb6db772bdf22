//! A step of Muon as it is measured: all of its launches.

use super::{Muon, MuonMatrix, MuonSpaces};
use crate::compare::Comparison;
use crate::plan::{Plan, PlanSizes, Steps, Work};
use crate::run::plan_tensor;
use crate::usual::unit;
use atlas_dsl::DType;
use atlas_runtime::{Device, Result, Stream, Tensor};

pub(crate) const PLANS: &[Plan] = &[
    Plan::new("muon_step_plan", &STEP, [24, 1024, 4096]),
    Plan::new("muon_step_gram_plan", &GRAM_STEP, [24, 1024, 4096]),
];

/// Sizes: matrices, rows, columns.
const STEP: Steps = Steps {
    names: &["B", "M", "N"],
    dtype: DType::F32,
    bound: 3e-2,
    bytes: |[b, m, n, ..]| (20 * b * m * n) as f64,
    // Of symmetric products half.
    flops: |[b, m, n, ..]| (b * (15 * m * m * n + 5 * m * m * m)) as f64,
    small: |_| [2, 64, 256, 0, 0, 0],
    start: |device, sizes| muon(device, optimiser(), sizes),
    check: |device, sizes| check_muon(device, optimiser(), sizes),
};

/// The same in the form of Gram.
const GRAM_STEP: Steps = Steps {
    flops: |[b, m, n, ..]| (b * (6 * m * m * n + 14 * m * m * m)) as f64,
    start: |device, sizes| muon(device, by_gram(), sizes),
    check: |device, sizes| check_muon(device, by_gram(), sizes),
    ..STEP
};

/// The optimiser as torch has it.
fn optimiser() -> Muon {
    Muon { rate: 0.02, ..Muon::torch() }
}

/// The same in the form of Gram and in f16, which is as accurate.
fn by_gram() -> Muon {
    let usual = optimiser();
    Muon { iteration: usual.iteration.gram(), dtype: DType::F16, ..usual }
}

fn matrices(device: &Device, [count, m, n, ..]: PlanSizes) -> Result<Vec<[Tensor; 3]>> {
    let of = |i: usize| {
        let make = |name: &str, sd: f64| plan_tensor(device, DType::F32, &format!("{name} {i}"), (0.0, sd), &[m, n]);
        Ok([make("w", unit(n))?, make("buf", 0.1)?, make("g", 1.0)?])
    };
    (0..count).map(of).collect()
}

fn muon(device: &Device, of: Muon, sizes: PlanSizes) -> Result<Work> {
    let mut tensors = matrices(device, sizes)?;
    let (mut spaces, stream) = (MuonSpaces::default(), Stream::default_of(device));
    Ok(Box::new(move || {
        let mut list: Vec<MuonMatrix<'_>> = tensors.iter_mut().map(|[w, buf, g]| MuonMatrix { w, buf, g }).collect();
        of.step(&stream, &mut list, &mut spaces)
    }))
}

fn check_muon(device: &Device, of: Muon, sizes: PlanSizes) -> Result<Comparison> {
    let [_, m, n, ..] = sizes;
    let mut tensors = matrices(device, sizes)?;
    let stream = Stream::default_of(device);
    let mut wanted = Vec::new();
    for [w, buf, g] in &tensors {
        let (w, buf, g) = (w.to_f64_vec()?, buf.to_f64_vec()?, g.to_f64_vec()?);
        wanted.extend(super::reference::step(&of, [&w, &buf, &g], [m, n]));
    }
    let mut list: Vec<MuonMatrix<'_>> = tensors.iter_mut().map(|[w, buf, g]| MuonMatrix { w, buf, g }).collect();
    of.step(&stream, &mut list, &mut MuonSpaces::default())?;
    let mut found = Vec::new();
    for [w, buf, _] in &tensors {
        found.extend([w.to_f64_vec()?, buf.to_f64_vec()?]);
    }
    Ok(Comparison::of_all(found.iter().map(Vec::as_slice).zip(wanted.iter().map(Vec::as_slice))))
}
