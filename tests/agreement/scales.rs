//! Norms of numbers far from 1 by shipped kernels. They are compared with their references, not with the CPU.

use super::{Given, agrees, devices, devices_of, input, noise, output, usual};
use crate::kernels::Executed;
use atlas_dsl::DType;
use atlas_ops::Problem;
use atlas_ops::cases::far_from_one;
use atlas_ops::muon::{Muon, MuonMatrix, MuonSpaces, NewtonSchulz, ns_normalise, ns_squares};
use atlas_runtime::{Device, Stream};

#[test]
fn shipped_norms_far_from_one() {
    let with_results = |p: Problem| {
        let inputs = p.inputs();
        let expected = p.expected(&inputs);
        (p, inputs, expected, Executed::default())
    };
    let mut problems: Vec<_> = far_from_one().into_iter().map(with_results).collect();
    for (name, device, policy) in devices_of(usual) {
        for (p, inputs, expected, executed) in &mut problems {
            let compared = p.prepare(&device, inputs).and_then(|mut prepared| {
                let launch = prepared.resolve(None)?;
                let again = policy.zip(launch.image()).is_some_and(|(policy, image)| executed.has(policy, image));
                if again {
                    return Ok(None);
                }
                prepared.launch(None)?;
                prepared.compare(expected).map(Some)
            });
            let compared = compared.unwrap_or_else(|e| panic!("{p} on {name}: {e}"));
            assert!(compared.as_ref().is_none_or(|c| c.passes(p.bound())), "{p} on {name}: {compared:?}");
        }
    }
}

#[test]
fn what_f16_cannot_hold_it_holds_when_it_is_normalised() {
    for size in [1e5, 1e-8, 1e30, 1e-30] {
        let g = |shape: &[usize]| input(DType::F32, shape, |i| size * noise(i));
        agrees(&ns_squares, &[g(&[2, 5, 70]), output(DType::F32, &[2, 5]), output(DType::F32, &[2, 5])], 1e-6);
        let tops = input(DType::F32, &[2, 5], |_| size);
        let squares = input(DType::F32, &[2, 5], |_| 23.0);
        let numbers = [Given::F32(1.0), Given::F32(1e-7), Given::F32(0.0), Given::I32(1)];
        let tensors = [g(&[2, 5, 70]), tops, squares, output(DType::F16, &[2, 5, 70])];
        agrees(&ns_normalise, &[&tensors[..], &numbers].concat(), 1e-3);
    }
}

#[test]
fn a_step_in_f16_is_the_same_at_every_size() {
    let iteration = NewtonSchulz { scale_safe: true, ..NewtonSchulz::classic() };
    let of = Muon { iteration, dtype: DType::F16, ..Muon::jordan() };
    let step = |device: &Device, power: i32| {
        let g: Vec<f32> = (0..16 * 40).map(|i| (noise(i) * f64::from(power).exp2()) as f32).collect();
        let tensor = |values: &[f32]| device.tensor_from(values, [16, 40]).unwrap();
        let (mut w, mut buf, g) = (tensor(&[0.0; 640]), tensor(&[0.0; 640]), tensor(&g));
        let mut list = [MuonMatrix { w: &mut w, buf: &mut buf, g: &g }];
        of.step(&Stream::default_of(device), &mut list, &mut MuonSpaces::default()).unwrap();
        w.to_f64_vec().unwrap()
    };
    let cpu = step(&Device::cpu(), 0);
    for (name, device) in devices() {
        let usual = step(&device, 0);
        let (apart, size) = usual.iter().zip(&cpu).fold((0.0, 0.0), |(a, s), (x, y)| (a + (x - y).powi(2), s + y * y));
        assert!((apart / size).sqrt() < 1e-2, "{name}");
        for power in [-100, -27, 17, 100] {
            assert_eq!(step(&device, power), usual, "{name}: 2^{power}");
        }
    }
}
