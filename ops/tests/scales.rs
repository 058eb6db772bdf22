//! Norms of numbers far from 1: what is scaled is exact, and what has a domain is as stated beyond it.

use atlas_dsl::{DType, KernelDef};
use atlas_ops::cases::far_from_one;
use atlas_ops::inverse::inverse;
use atlas_ops::newton_schulz_small::newton_schulz_small;
use atlas_ops::omega::fused_optimization;
use atlas_ops::random_features::favor_features;
use atlas_ops::rbf_features::rbf_features;
use atlas_ops::rms_norm::rms_norm;
use atlas_ops::window_sums::token_losses;
use atlas_runtime::{Arg, Launch, Tensor, args};

fn noise(i: usize) -> f32 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

fn tensor(values: Vec<f32>, shape: &[usize]) -> Tensor {
    crate::device().tensor_from(&values, shape).unwrap()
}

fn of<const COUNT: usize>(kernel: &'static KernelDef, args: [Arg<'_>; COUNT]) {
    kernel.launch(&crate::device(), args).unwrap();
}

#[test]
fn every_config_holds_far_from_one() {
    let cpu = crate::device();
    for p in far_from_one() {
        let inputs = p.inputs();
        let expected = p.expected(&inputs);
        for config in p.kernel.configs() {
            let found = p.check_on(&cpu, Some(&config), &inputs, &expected);
            let Some(c) = crate::unless_too_large(found, format_args!("{p} with {config}")) else { continue };
            assert!(c.passes(p.bound()), "{p} with {config}: {c:?}");
        }
    }
}

#[test]
fn a_matrix_of_one_large_number_is_orthogonal() {
    for size in [1.0, 1e18, -1e18] {
        let (g, mut y) = (tensor(vec![size], &[1, 1, 1]), tensor(vec![0.0], &[1, 1, 1]));
        of(&newton_schulz_small, args!(g, &mut y));
        let (found, wanted) =
            (y.to_f64_vec().unwrap(), atlas_ops::newton_schulz_small::reference(&[size.into()], [1, 1]));
        assert!((found[0] - wanted[0]).abs() < 1e-5, "{size}: {found:?} for {wanted:?}");
    }
    // Beyond the domain.
    for size in [3e19, -3e19, 1e38] {
        let (g, mut y) = (tensor(vec![size], &[1, 1, 1]), tensor(vec![7.0], &[1, 1, 1]));
        of(&newton_schulz_small, args!(g, &mut y));
        assert_eq!(y.to_vec::<f32>().unwrap(), [0.0], "{size}");
    }
}

#[test]
fn a_power_of_two_changes_no_orthogonal_matrix() {
    let made = |power: i32| {
        let g: Vec<f32> = (0..2 * 8 * 24).map(|i| noise(i) * 2_f32.powi(power)).collect();
        let (g, mut y) = (tensor(g, &[2, 8, 24]), tensor(vec![0.0; 384], &[2, 8, 24]));
        of(&newton_schulz_small, args!(g, &mut y));
        y.to_vec::<f32>().unwrap()
    };
    // From where `eps` is below half a unit in the last place of the norm.
    for power in [20, 47, 48, 49, 58, 60] {
        assert_eq!(made(power), made(10), "2^{power}");
    }
}

#[test]
fn a_power_of_two_passes_through_an_inverse() {
    let made = |power: i32, damping: f32| {
        let by = 2_f32.powi(power);
        let a: Vec<f32> = (0..2 * 81).map(|i| noise(i) * by).collect();
        let (a, mut x) = (tensor(a, &[2, 9, 9]), tensor(vec![0.0; 162], &[2, 9, 9]));
        let mut status = crate::device().tensor_from(&[7, 7], [2]).unwrap();
        of(&inverse, args!(a, &mut x, &mut status, 40, damping * by));
        assert_eq!(status.to_vec::<i32>().unwrap(), [0, 0], "2^{power}");
        x.to_vec::<f32>().unwrap().into_iter().map(|x| x * by).collect::<Vec<f32>>()
    };
    for damping in [0.0, 3.0] {
        let usual = made(0, damping);
        for power in [-110, -80, -49, -20, 20, 47, 48, 49, 66, 100, 110] {
            assert_eq!(made(power, damping), usual, "2^{power}");
        }
    }
}

#[test]
fn a_matrix_without_an_inverse_has_none_at_any_size() {
    for size in [0.0, 1e-30, 1.0, 1e30] {
        // Rows of one number are alike.
        let (a, mut x) = (tensor(vec![size; 16], &[1, 4, 4]), tensor(vec![0.0; 16], &[1, 4, 4]));
        let mut status = crate::device().tensor_from(&[7], [1]).unwrap();
        of(&inverse, args!(a, &mut x, &mut status, 60, 0.0));
        assert_eq!(status.to_vec::<i32>().unwrap(), [1], "{size}");
        assert!(x.to_vec::<f32>().unwrap().iter().all(|x| x.is_nan()));
        let [wanted, status] = atlas_ops::inverse::reference(&[f64::from(size); 16], 4, 0.0);
        assert!(status == [1.0] && wanted.iter().all(|x| x.is_nan()));
    }
}

#[test]
fn a_step_is_as_long_whatever_the_momentum_is() {
    let stepped = |power: i32| {
        let [d, m] = [8, 16];
        let rows = |seed: usize, len: usize| (0..len).map(|i| noise(i + 1000 * seed)).collect::<Vec<f32>>();
        let momentum = |seed: usize| rows(seed, d * m).into_iter().map(|s| s * 2_f32.powi(power)).collect::<Vec<f32>>();
        let [x, v] = [1, 2].map(|seed| tensor(rows(seed, 5 * d), &[1, 5, d]));
        let (wide, tall) = ([1, d, m], [1, m, d]);
        let [mut w1, mut w2] = [(3, &wide), (4, &tall)].map(|(seed, of)| tensor(rows(seed, d * m), of));
        let [mut s1, mut s2] = [(5, &wide), (6, &tall)].map(|(seed, of)| tensor(momentum(seed), of));
        let (c, mut loss) = (tensor(vec![0.5; 5], &[1, 5]), tensor(vec![0.0], &[1]));
        let [alpha, theta, eta] = [1.0, 1.0, 0.25].map(|gate| tensor(vec![gate], &[1]));
        let out = args!(&x, &v, &x, c, alpha, theta, eta, &mut w1, &mut w2, &mut s1, &mut s2, &mut loss, 2.0, 1, 5);
        of(&fused_optimization, out);
        [w1.to_vec::<f32>().unwrap(), w2.to_vec::<f32>().unwrap()]
    };
    // The gradient is far below the momentum, and nothing is left of it.
    for power in [90, 120] {
        assert_eq!(stepped(power), stepped(66), "2^{power}");
    }
    let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(stepped(40).iter().zip(&stepped(66)).all(|(a, b)| near(a, b)));
}

#[test]
fn beyond_their_domain_rows_are_as_their_ops_say() {
    for [size, wanted] in [[1e18, 1.0], [1e20, 0.0], [1e38, 0.0]] {
        let (x, w) = (tensor(vec![size; 40], &[2, 20]), tensor(vec![1.0; 20], &[20]));
        let mut y = tensor(vec![7.0; 40], &[2, 20]);
        of(&rms_norm, args!(x, w, &mut y, 1e-6));
        assert!(y.to_vec::<f32>().unwrap().iter().all(|y| (y - wanted).abs() < 1e-6), "{size}");
    }
    // Far below `eps`, a row is divided by its root.
    let (x, w) = (tensor(vec![1e-30; 20], &[1, 20]), tensor(vec![1.0; 20], &[20]));
    let mut y = tensor(vec![7.0; 20], &[1, 20]);
    of(&rms_norm, args!(x, w, &mut y, 1e-30));
    assert!(y.to_vec::<f32>().unwrap().iter().all(|y| (y / 1e-15 - 1.0).abs() < 1e-6));
    // Losses are infinite, positive features and radial functions 0.
    let (p, v) = (tensor(vec![1e20; 8], &[1, 1, 8]), tensor(vec![-1e20; 8], &[1, 1, 8]));
    let mut loss = tensor(vec![7.0], &[1, 1]);
    of(&token_losses, args!(p, v, &mut loss, 0.5));
    assert_eq!(loss.to_vec::<f32>().unwrap(), [f32::INFINITY]);
    let (x, c) = (tensor(vec![1e20; 8], &[1, 8]), tensor(vec![1.0; 8], &[1, 8]));
    let mut y = tensor(vec![7.0], &[1, 1]);
    of(&favor_features, args!(&x, &c, 0.35, 0.5, &mut y));
    assert_eq!(y.to_vec::<f32>().unwrap(), [0.0]);
    let g = tensor(vec![0.5], &[1]);
    of(&rbf_features, args!(&x, &c, &g, &mut y));
    assert_eq!(y.to_vec::<f32>().unwrap(), [0.0]);
    of(&rbf_features, args!(&x, &x, &g, &mut y));
    assert!(y.to_vec::<f32>().unwrap()[0].is_nan());
}

#[test]
fn radial_features_are_off_by_what_is_said() {
    let (n, m, d) = (5usize, 7usize, 3usize);
    let device = crate::device();
    for at in [0.0f32, 4.0, 100.0, 4000.0] {
        let spread = |i: usize| (i * 37 % 29) as f32 / 64.0 - 0.2;
        let x: Vec<f32> = (0..n * d).map(|i| at + spread(i)).collect();
        let c: Vec<f32> = (0..m * d).map(|i| at + spread(i + 5)).collect();
        let g: Vec<f32> = (0..m).map(|i| 0.25 * (1 + i) as f32).collect();
        let features = |x: &[f32], c: &[f32]| {
            let mut y = Tensor::zeros(&device, DType::F32, [n, m]).unwrap();
            let [x, c] = [(x, n), (c, m)].map(|(t, rows)| device.tensor_from(t, [rows, d]).unwrap());
            let g = device.tensor_from(&g, [m]).unwrap();
            rbf_features.launch(&device, args!(&x, &c, &g, &mut y)).unwrap();
            y.to_vec::<f32>().unwrap()
        };
        let squares = |row: &[f32]| row.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>();
        let off = |found: &[f32], from: f64| {
            for (i, y) in found.iter().enumerate() {
                let (x, c, g) = (&x[i / m * d..][..d], &c[i % m * d..][..d], f64::from(g[i % m]));
                let apart: f64 = x.iter().zip(c).map(|(x, c)| f64::from(x - c).powi(2)).sum();
                let bound = g * (squares(x) + squares(c)) * from * (d + 4) as f64 / f64::from(1 << 24) + 1e-6;
                let (exponent, found) = (g * apart, -f64::from(*y).ln());
                assert!((found - exponent).abs() <= bound, "at {at}: {found} for {exponent} within {bound}");
            }
        };
        off(&features(&x, &c), 1.0);
        // With the place taken off, which is exact here, no digits are lost.
        let [x0, c0] = [&x, &c].map(|t| t.iter().map(|v| v - at).collect::<Vec<f32>>());
        off(&features(&x0, &c0), 0.0);
    }
}
