//! Tensors of f8e4m3 and f8e5m2: every code as it is and as a number, every rounding to them, and quantised rows and weights.

use super::{Given, agrees, agrees_with, devices, input, noise, output};
use atlas::prelude::*;
use atlas_dsl::DType::{self, Bf16, F8E4M3 as E4M3, F8E5M2 as E5M2, F16, F32, F64};
use atlas_dsl::KernelDef;
use atlas_runtime::Arg;
use std::sync::LazyLock;

/// Kernels of one type.
macro_rules! of_type {
    ($small:ident, $copied:ident, $widened:ident, $narrowed:ident, $shaped:ident, $picked:ident, $latest:ident) => {
        atlas_kernel! {
            kernel $copied(x: &Tensor<$small, [N, D]>, y: &mut Tensor<$small, [N, D]>)
            tune { BN: [16, 3, 64], BD: [64, 5, 16, 256], warps: [4, 1, 2] }
            {
                for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
                    store(y[n, d], load(x[n, d]));
                }
            }

            kernel $widened(
                x: &Tensor<$small, [N]>, h: &mut Tensor<f16, [N]>, b: &mut Tensor<bf16, [N]>, s: &mut Tensor<f32, [N]>,
                w: &mut Tensor<f64, [N]>, p: &mut Tensor<f8e4m3, [N]>, q: &mut Tensor<f8e5m2, [N]>,
            )
            tune { BN: [64, 5, 256], warps: [1, 2] }
            {
                for n in grid(tiles(N, BN)) {
                    let xs = load(x[n]);
                    store(h[n], xs.cast::<f16>());
                    store(b[n], xs.cast::<bf16>());
                    store(s[n], xs.cast::<f32>());
                    store(w[n], xs.cast::<f64>());
                    store(p[n], xs.cast::<f8e4m3>());
                    store(q[n], xs.cast::<f8e5m2>());
                }
            }

            kernel $narrowed(
                h: &Tensor<f16, [N]>, b: &Tensor<bf16, [N]>, s: &Tensor<f32, [N]>, w: &Tensor<f64, [N]>,
                y: &mut Tensor<$small, [P, N]>,
            )
            tune { BN: [1024, 5, 33], warps: [4, 1] }
            {
                for n in grid(tiles(N, BN)) {
                    store(y[0, n], load(h[n]).cast::<$small>());
                    store(y[1, n], load(b[n]).cast::<$small>());
                    store(y[2, n], load(s[n]).cast::<$small>());
                    store(y[3, n], load(w[n]).cast::<$small>());
                }
            }

            /// Choices, broadcasts, transposes, numbers and what stands past the edge.
            kernel $shaped(
                x: &Tensor<$small, [N, D]>, r: &Tensor<$small, [D]>, at: &Tensor<i32, [N]>,
                y: &mut Tensor<$small, [N, D]>, z: &mut Tensor<$small, [D, N]>, e: &mut Tensor<$small, [N, D]>,
            )
            tune { BN: [16, 3, 32], BD: [32, 64, 5], warps: [4, 1, 2] }
            {
                for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
                    let xs = load(x[n, d]);
                    let row = load(r[d]);
                    let is_less = xs.cast::<f32>() < row.cast::<f32>();
                    store(y[n, d], select(is_less, xs, select(load(at[n]).t() > 2, row, 1.7)));
                    store(z[d, n], xs.t());
                    let before = load(x[span(n * BN - 2, BN), span(d * BD - 3, BD)]).or(-2.5);
                    store(e[n, d], before);
                }
            }

            /// Rows at places that are loaded, and a loop over them.
            kernel $picked(
                table: &Tensor<$small, [V, D]>, ids: &Tensor<i32, [N]>,
                y: &mut Tensor<$small, [N, D]>, most: &mut Tensor<f32, [D]>,
            )
            tune { BN: [16, 8, 1], BD: [32, 128, 16], warps: [4, 1], stages: [2, 3] }
            {
                for d in grid(tiles(D, BD)) {
                    let mut found = zeros::<f32>([1, BD]);
                    for n in pipeline(tiles(N, BN)) {
                        let rows = load(table[load(ids[n]), d]);
                        store(y[n, d], rows);
                        found = max(found, max(rows.cast::<f32>(), axis = 0));
                    }
                    store(most[d], found);
                }
            }

            /// A tile that a loop carries.
            kernel $latest(x: &Tensor<$small, [N, D]>, y: &mut Tensor<$small, [D]>)
            tune { BD: [32, 5, 128], warps: [1, 4] }
            {
                for d in grid(tiles(D, BD)) {
                    let mut last = full::<$small>([BD], 0.3);
                    for n in 0..size(N) {
                        let xs = load(x[n, d]);
                        last = select(xs.cast::<f32>() > 20.0, xs, last);
                    }
                    store(y[d], last);
                }
            }
        }
    };
}

of_type!(f8e4m3, copied_e4m3, widened_e4m3, narrowed_e4m3, shaped_e4m3, picked_e4m3, latest_e4m3);
of_type!(f8e5m2, copied_e5m2, widened_e5m2, narrowed_e5m2, shaped_e5m2, picked_e5m2, latest_e5m2);

type Kernels = (DType, [&'static KernelDef; 6]);

const fn types() -> [Kernels; 2] {
    [
        (E4M3, [&copied_e4m3, &widened_e4m3, &narrowed_e4m3, &shaped_e4m3, &picked_e4m3, &latest_e4m3]),
        (E5M2, [&copied_e5m2, &widened_e5m2, &narrowed_e5m2, &shaped_e5m2, &picked_e5m2, &latest_e5m2]),
    ]
}

/// The number of a code by its definition, apart from what the compiler and the interpreter use.
pub(super) fn number(dtype: DType, code: u8) -> f64 {
    if dtype == E5M2 {
        return f16::from_bits(u16::from(code) << 8).to_f64();
    }
    let (sign, exponent, fraction) = (code >> 7, i32::from(code >> 3 & 15), f64::from(code & 7));
    let size = match (exponent, code & 7) {
        (15, 7) => f64::NAN,
        (0, _) => fraction / 8.0 * 2f64.powi(-6),
        _ => (1.0 + fraction / 8.0) * 2f64.powi(exponent - 7),
    };
    if sign == 1 { -size } else { size }
}

/// The code of the nearest number of all, ties to the even code.
pub(super) fn nearest(dtype: DType, x: f64) -> u8 {
    if x.is_nan() {
        return 0x7f;
    }
    static NUMBERS: LazyLock<[Vec<f64>; 2]> =
        LazyLock::new(|| [E4M3, E5M2].map(|d| (0..=127).map(|code| number(d, code)).collect()));
    let numbers = &NUMBERS[usize::from(dtype == E5M2)];
    let last = if dtype == E4M3 { 0x7e } else { 0x7b };
    let size = x.abs();
    let far = |code: &u8| ((numbers[usize::from(*code)] - size).abs(), code & 1);
    let closer = |a: &u8, b: &u8| far(a).partial_cmp(&far(b)).expect("no NaN");
    let is_beyond = size > numbers[usize::from(last)];
    let code = if is_beyond { last } else { (0..=last).min_by(closer).expect("codes") };
    code | if x.is_sign_negative() { 0x80 } else { 0 }
}

/// A type of the host.
trait Code: Element {
    fn of(code: u8) -> Self;
    fn code(self) -> u8;
}

impl Code for F8E4M3 {
    fn of(code: u8) -> F8E4M3 {
        F8E4M3::from_bits(code)
    }
    fn code(self) -> u8 {
        self.to_bits()
    }
}

impl Code for F8E5M2 {
    fn of(code: u8) -> F8E5M2 {
        F8E5M2::from_bits(code)
    }
    fn code(self) -> u8 {
        self.to_bits()
    }
}

/// The CPU, and the devices that it is compared with.
fn all() -> impl Iterator<Item = (String, Device)> {
    std::iter::once(("cpu".to_owned(), Device::cpu())).chain(devices())
}

fn every_code_is_kept<T: Code>(copied: &'static KernelDef) {
    for (name, device) in all() {
        for config in copied.configs().iter().step_by(5) {
            let codes: Vec<T> = (0..=255).map(T::of).collect();
            let x = device.tensor_from(&codes, [4, 64]).expect("memory");
            let mut y = Tensor::zeros(&device, T::DTYPE, [4, 64]).expect("memory");
            copied.launch_with(&device, config, vec![Arg::In(&x), Arg::Out(&mut y)]).expect("a launch");
            let found: Vec<u8> = y.to_vec::<T>().expect("elements").into_iter().map(T::code).collect();
            assert_eq!(found, (0..=255).collect::<Vec<u8>>(), "{name} {config}");
        }
    }
}

#[test]
fn every_code_is_copied_as_it_is() {
    every_code_is_kept::<F8E4M3>(&copied_e4m3);
    every_code_is_kept::<F8E5M2>(&copied_e5m2);
}

/// All codes in an order that is none along a row.
fn codes(dtype: DType, shape: &[usize]) -> Given {
    input(dtype, shape, |i| number(dtype, (i * 37) as u8))
}

#[test]
fn tiles_are_copied() {
    for (dtype, [copied, ..]) in types() {
        for (n, d) in [(40, 64), (33, 130), (5, 3), (1, 1), (7, 257), (0, 16), (3, 0), (64, 8)] {
            agrees(copied, &[codes(dtype, &[n, d]), output(dtype, &[n, d])], 0.0);
        }
        // Rows that begin anywhere, and a tensor that is turned.
        for (before, after) in [(1, 2), (4, 12), (16, 0)] {
            let given = [codes(dtype, &[20, 64]).within(before, after), output(dtype, &[20, 64]).within(after, before)];
            agrees(copied, &given, 0.0);
        }
        agrees(copied, &[codes(dtype, &[50, 64]).by_columns(), output(dtype, &[50, 64])], 0.0);
    }
}

fn widens<T: Code>(widened: &'static KernelDef, of: impl Fn(u8) -> f64) -> Vec<String> {
    let expected: Vec<f64> = (0..=255).map(&of).collect();
    let mut wrong = Vec::new();
    for (name, device) in all() {
        let given: Vec<T> = (0..=255).map(T::of).collect();
        let x = device.tensor_from(&given, [256]).expect("memory");
        let mut y = [F16, Bf16, F32, F64, E4M3, E5M2].map(|d| Tensor::zeros(&device, d, [256]).expect("memory"));
        let args: Vec<Arg<'_>> = std::iter::once(Arg::In(&x)).chain(y.iter_mut().map(Arg::Out)).collect();
        widened.launch(&device, args).expect("a launch");
        let mut check = |to: &str, code: usize, good: bool| {
            if !good {
                wrong.push(format!("{name}: {code:#x} to {to}"));
            }
        };
        for to in &y[..4] {
            let found = to.to_f64_vec().expect("numbers");
            for (code, (&f, &w)) in found.iter().zip(&expected).enumerate() {
                let same = f.to_bits() == w.to_bits() || (f.is_nan() && w.is_nan());
                check(to.dtype().name(), code, same);
            }
        }
        let found = [
            y[4].to_vec::<F8E4M3>().expect("codes").into_iter().map(F8E4M3::code).collect::<Vec<u8>>(),
            y[5].to_vec::<F8E5M2>().expect("codes").into_iter().map(F8E5M2::code).collect(),
        ];
        for (to, found) in [E4M3, E5M2].into_iter().zip(found) {
            for (code, f) in found.into_iter().enumerate() {
                let wanted = if to == T::DTYPE { code as u8 } else { nearest(to, expected[code]) };
                check(to.name(), code, f == wanted);
            }
        }
    }
    wrong
}

#[test]
fn every_code_becomes_its_number() {
    assert_eq!(widens::<F8E4M3>(&widened_e4m3, |code| number(E4M3, code)), [""; 0]);
    assert_eq!(widens::<F8E5M2>(&widened_e5m2, |code| number(E5M2, code)), [""; 0]);
}

/// The test above would notice codes of the other type, and of a type with infinities.
#[test]
fn wrong_numbers_of_codes_are_noticed() {
    assert!(widens::<F8E4M3>(&widened_e4m3, |code| number(E5M2, code)).len() > 1000);
    let with_infinity = |code: u8| if code & 0x7f == 0x7f { f64::INFINITY } else { number(E4M3, code) };
    let wrong = widens::<F8E4M3>(&widened_e4m3, with_infinity);
    assert!(!wrong.is_empty() && wrong.iter().all(|w| w.contains(": 0x7f") || w.contains(": 0xff")), "{wrong:?}");
}

/// Numbers around every rounding boundary of a type, with what is beyond its ends.
fn boundaries(dtype: DType) -> Vec<f64> {
    let last = if dtype == E4M3 { 0x7e } else { 0x7b };
    let mut all = vec![0.0, f64::NAN, f64::INFINITY, 1e30, 3.4e38, 1e-45, 1e-40, 1e-20, 65504.0, 65520.0, 480.0, 464.0];
    for code in 0..=last {
        let (low, high) =
            (number(dtype, code), if code == last { 1.125 } else { 1.0 } * number(dtype, code.min(last - 1) + 1));
        all.extend([low, (low + high) / 2.0, low + (high - low) / 4.0]);
    }
    all.iter().flat_map(|&x| [x, -x]).collect()
}

/// All f16, all bf16, and of f32 and f64 the boundaries with their neighbours and numbers of all sizes.
fn inputs(dtype: DType) -> (Vec<f16>, Vec<bf16>, Vec<f32>, Vec<f64>) {
    let count = 1 << 16;
    let halves = (0..count).map(|i| f16::from_bits(i as u16)).collect();
    let brains: Vec<bf16> = (0..count).map(|i| bf16::from_bits(i as u16)).collect();
    let at = boundaries(dtype);
    let beside = |x: f32| [f32::from_bits(x.to_bits().wrapping_sub(1)), x, f32::from_bits(x.to_bits().wrapping_add(1))];
    let mut singles: Vec<f32> = at.iter().flat_map(|&x| beside(x as f32)).collect();
    // The low bits that a bf16 does not have.
    let more = |i: usize| f32::from_bits((i as u32) << 16 | ((noise(i).abs() * 65535.0) as u32));
    singles.extend((singles.len()..count).map(more));
    // Numbers that f32 would round to a tie.
    let near = |x: f64| {
        [1, 1 << 12, 1 << 28].into_iter().flat_map(move |step: u64| {
            [f64::from_bits(x.to_bits().wrapping_sub(step)), f64::from_bits(x.to_bits().wrapping_add(step))]
        })
    };
    let mut doubles: Vec<f64> = at.iter().flat_map(|&x| near(x).chain([x])).collect();
    doubles.extend([1e300, -1e300, 1e-300, -5e-324, f64::MAX]);
    doubles.extend((doubles.len()..count).map(|i| f64::from(singles[i]) * (1.0 + noise(i) * 1e-9)));
    (halves, brains, singles, doubles)
}

/// The numbers that a device rounds to another code than `wanted`.
fn narrows<T: Code>(
    narrowed: &'static KernelDef,
    devices: &[(String, Device)],
    wanted: fn(DType, f64) -> u8,
) -> Vec<String> {
    let (h, b, s, w) = inputs(T::DTYPE);
    let n = h.len();
    let numbers: [Vec<f64>; 4] = [
        h.iter().map(|x| x.to_f64()).collect(),
        b.iter().map(|x| x.to_f64()).collect(),
        s.iter().map(|&x| x.into()).collect(),
        w.clone(),
    ];
    let expected: Vec<u8> = numbers.iter().flatten().map(|&x| wanted(T::DTYPE, x)).collect();
    let mut wrong = Vec::new();
    for (name, device) in devices {
        let given = (
            device.tensor_from(&h, [n]).expect("memory"),
            device.tensor_from(&b, [n]).expect("memory"),
            device.tensor_from(&s, [n]).expect("memory"),
            device.tensor_from(&w, [n]).expect("memory"),
        );
        let mut y = Tensor::zeros(device, T::DTYPE, [4, n]).expect("memory");
        let args = vec![Arg::In(&given.0), Arg::In(&given.1), Arg::In(&given.2), Arg::In(&given.3), Arg::Out(&mut y)];
        narrowed.launch_with(device, &narrowed.configs()[0], args).expect("a launch");
        let found = y.to_vec::<T>().expect("codes");
        for (i, (f, &wanted)) in found.into_iter().zip(&expected).enumerate() {
            if f.code() != wanted {
                let x = numbers[i / n][i % n];
                wrong.push(format!(
                    "{name}: {x:e} of {} gives {:#x} for {wanted:#x}",
                    ["f16", "bf16", "f32", "f64"][i / n],
                    f.code()
                ));
            }
        }
    }
    wrong
}

/// One schedule is enough: no thread of these kernels meets another.
fn one_of_each() -> Vec<(String, Device)> {
    all().filter(|(name, _)| !name.contains("Random") && !name.contains("Adversarial")).collect()
}

#[test]
fn every_number_is_rounded_once_to_nearest_even() {
    let none: [&str; 0] = [];
    let devices = one_of_each();
    assert!(devices.len() > 1 || std::env::var_os("ATLAS_NO_SIM").is_some());
    let shown = |wrong: Vec<String>| wrong.into_iter().take(8).collect::<Vec<String>>();
    assert_eq!(shown(narrows::<F8E4M3>(&narrowed_e4m3, &devices, nearest)), none);
    assert_eq!(shown(narrows::<F8E5M2>(&narrowed_e5m2, &devices, nearest)), none);
}

/// Toward zero.
fn cut(dtype: DType, x: f64) -> u8 {
    let code = nearest(dtype, x);
    if number(dtype, code).abs() > x.abs() { code - 1 } else { code }
}

/// By way of f16: two roundings.
fn twice(dtype: DType, x: f64) -> u8 {
    let half = atlas_dsl::rounding::to_f16(x.clamp(-65504.0, 65504.0));
    nearest(dtype, half.to_f64())
}

/// The test above would notice another rounding: one toward zero, one of two steps, and one that does not saturate.
#[test]
fn other_roundings_are_noticed() {
    let cpu = [("cpu".to_owned(), Device::cpu())];
    let by_cutting = narrows::<F8E4M3>(&narrowed_e4m3, &cpu, cut);
    assert!(by_cutting.len() > 1000 && by_cutting.iter().any(|w| w.contains("of bf16")));
    let by_two = narrows::<F8E4M3>(&narrowed_e4m3, &cpu, twice);
    assert!(!by_two.is_empty() && by_two.iter().all(|w| !w.contains("of f16")), "{:?}", by_two.first());
    let by_two = narrows::<F8E5M2>(&narrowed_e5m2, &cpu, twice);
    assert!(!by_two.is_empty() && by_two.iter().all(|w| !w.contains("of f16")), "{:?}", by_two.first());
    let unbounded = |dtype: DType, x: f64| nearest(dtype, if x.is_infinite() { f64::NAN } else { x });
    let infinite = narrows::<F8E4M3>(&narrowed_e4m3, &cpu, unbounded);
    assert!(infinite.len() >= 8 && infinite.iter().all(|w| w.contains("inf of")), "{:?}", infinite.first());
}

/// The compiler's mistake is noticed on each target: those that convert by an instruction, and those that do not.
#[cfg(feature = "mutations")]
#[test]
fn a_planted_rounding_is_noticed() {
    use atlas_codegen::mutation::{Mutation, with};
    use atlas_runtime::{CacheDir, SimOptions};
    for target in ["sm_80", "sm_89", "sm_90"] {
        let target: atlas_runtime::Target = target.parse().expect("a target");
        let device = [("sim".to_owned(), Device::sim_with(target, SimOptions::default(), CacheDir::Off))];
        let wrong = with(Mutation::Fp8TowardZero, || narrows::<F8E4M3>(&narrowed_e4m3, &device, nearest));
        assert!(wrong.len() > 1000, "{target}");
    }
}

#[test]
fn tiles_are_chosen_from_broadcast_and_turned() {
    for (dtype, [_, _, _, shaped, ..]) in types() {
        for (n, d) in [(40, 64), (33, 70), (5, 3), (1, 1), (0, 8)] {
            let places = input(DType::I32, &[n], |i| (i % 5) as f64);
            let row = input(dtype, &[d], |i| number(dtype, (i * 91 + 5) as u8));
            let outputs = [output(dtype, &[n, d]), output(dtype, &[d, n]), output(dtype, &[n, d])];
            let given: Vec<Given> = [codes(dtype, &[n, d]), row, places].into_iter().chain(outputs).collect();
            agrees_with(shaped, &given, 0.0, |x| {
                let at = |i: usize, j: usize| x[0][i * d + j];
                let every = |f: &dyn Fn(usize, usize) -> f64| {
                    (0..n).flat_map(|i| (0..d).map(move |j| (i, j))).map(|(i, j)| f(i, j)).collect::<Vec<f64>>()
                };
                let near = number(dtype, nearest(dtype, 1.7));
                let chosen = every(&|i, j| match (at(i, j) < x[1][j], x[2][i] > 2.0) {
                    (true, _) => at(i, j),
                    (false, true) => x[1][j],
                    (false, false) => near,
                });
                let turned = (0..d).flat_map(|j| (0..n).map(move |i| (i, j))).map(|(i, j)| at(i, j)).collect();
                vec![chosen, turned, every(&|i, j| if i < 2 || j < 3 { -2.5 } else { at(i - 2, j - 3) })]
            });
        }
    }
}

#[test]
fn rows_at_places_and_carried_tiles() {
    for (dtype, [_, _, _, _, picked, latest]) in types() {
        let finite = |i: usize| number(dtype, (i * 37) as u8 & 0xf7);
        for (v, n, d) in [(20, 40, 64), (7, 33, 48), (3, 5, 7), (4, 0, 16)] {
            let ids = input(DType::I32, &[n], |i| (i * 7 % v) as f64);
            let given = [input(dtype, &[v, d], finite), ids, output(dtype, &[n, d]), output(F32, &[d])];
            agrees_with(picked, &given, 0.0, |x| {
                let rows: Vec<f64> = x[1].iter().flat_map(|&v| x[0][v as usize * d..][..d].to_vec()).collect();
                let most = (0..d).map(|j| rows.iter().skip(j).step_by(d).fold(0.0, |a: f64, &b| a.max(b))).collect();
                vec![rows, most]
            });
            let given = [input(dtype, &[n, d], finite), output(dtype, &[d])];
            agrees_with(latest, &given, 0.0, |x| {
                let first = number(dtype, nearest(dtype, 0.3));
                let last = |j: usize| x[0].iter().skip(j).step_by(d).fold(first, |a, &b| if b > 20.0 { b } else { a });
                vec![(0..d).map(last).collect()]
            });
        }
    }
}
