//! Errors of the expansions of functions of two operands, on the CPU.
//!
//! All pairs are too many. So arguments are drawn such that results of every size occur, with those near 1 that a logarithm makes
//! small, and every pair of special values is compared. `cargo test -p atlas-gpu-codegen --test math_of_two -- --ignored --nocapture`
//! measures more pairs, in minutes.

mod ulps;

use atlas_codegen::math::{Host, InstructionCount, precise_of_two};
use atlas_dsl::op::BinaryOp;
use ulps::ulps;

fn reference(op: BinaryOp, x: f32, y: f32) -> f64 {
    op.of_numbers(f64::from(x), f64::from(y)).unwrap()
}

struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    fn unit(&mut self) -> f64 {
        f64::from(self.bits()) / 4_294_967_296.0
    }

    fn any(&mut self) -> f32 {
        f32::from_bits(self.bits())
    }

    /// A base and an exponent whose power has any size, and often one at either end.
    fn power(&mut self, i: u32) -> (f32, f32) {
        if i.is_multiple_of(4) {
            return (self.any(), self.any());
        }
        let x = match i % 3 {
            0 => self.any().abs(),
            1 => (2.0 / 3.0 + self.unit() * 2.0 / 3.0) as f32,
            _ => (1.0 + (self.unit() - 0.5) * (-24.0 * self.unit()).exp2()) as f32,
        };
        let size = match i % 5 {
            0 => 128.0 - 0.1 * self.unit(),
            1 => -126.0 - 25.0 * self.unit(),
            _ => 280.0 * self.unit() - 150.0,
        };
        (x, (size / f64::from(x).log2()) as f32)
    }

    /// Coordinates in every octant, and of sizes that differ by up to 2^30.
    fn point(&mut self, i: u32) -> (f32, f32) {
        let x = self.any();
        let near = f64::from(x) * (60.0 * self.unit() - 30.0).exp2() * if self.bits() & 1 == 0 { -1.0 } else { 1.0 };
        (if i.is_multiple_of(3) { self.any() } else { near as f32 }, x)
    }
}

/// The largest error over some pairs, with the instruction that may be inexact off by as much as it may be, and none.
fn worst(op: BinaryOp, pairs: u32) -> f64 {
    let mut worst = (0.0, 0.0, 0.0);
    for error in [0.0, 1.0, -1.0] {
        let mut draw = Draw(77);
        for i in 0..pairs {
            let (x, y) = if op == BinaryOp::Pow { draw.power(i) } else { draw.point(i) };
            let got = precise_of_two(&mut Host { error, alternating: false }, op, x, y).unwrap();
            let off = ulps(got, reference(op, x, y));
            if off > worst.0 {
                worst = (off, x, y);
            }
        }
    }
    println!("{}: {:.3} ulp at ({:e}, {:e})", op.name(), worst.0, worst.1, worst.2);
    worst.0
}

#[test]
fn powers_are_within_2_ulp() {
    assert!(worst(BinaryOp::Pow, 400_000) <= 1.2);
}

#[test]
fn angles_are_within_2_ulp() {
    assert!(worst(BinaryOp::Atan2, 400_000) <= 1.6);
}

#[test]
#[ignore = "minutes"]
fn more_pairs() {
    assert!(worst(BinaryOp::Pow, 300_000_000) <= 1.2);
    assert!(worst(BinaryOp::Atan2, 300_000_000) <= 1.6);
}

/// Zeros and infinities of either sign, NaN, whole numbers about those from which on all are whole, or even, and ends of the type.
const SPECIAL: [f32; 38] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    1.5,
    -1.5,
    1e-45,
    -1e-45,
    1e-30,
    f32::MIN_POSITIVE,
    1e38,
    -1e38,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    4_194_303.5,
    8_388_607.5,
    -8_388_607.5,
    8_388_608.0,
    8_388_609.0,
    -8_388_609.0,
    16_777_215.0,
    -16_777_215.0,
    16_777_216.0,
    16_777_218.0,
    33_554_432.0,
    0.999_999_94,
    -0.999_999_94,
    1.000_000_1,
    1.0 / 3.0,
];

/// Every pair of special values has what C's `pow` and `atan2` give, with its sign.
#[test]
fn specials() {
    for op in [BinaryOp::Pow, BinaryOp::Atan2] {
        for (x, y) in SPECIAL.iter().flat_map(|&x| SPECIAL.iter().map(move |&y| (x, y))) {
            let (got, want) = (precise_of_two(&mut Host::default(), op, x, y).unwrap(), reference(op, x, y));
            let same_sign = want.is_nan() || got.is_sign_negative() == want.is_sign_negative();
            assert!(same_sign && ulps(got, want) <= 2.0, "{}({x:e}, {y:e}) = {got:e}, not {want:e}", op.name());
        }
    }
}

/// Powers that f32 holds are exact.
#[test]
fn exact_powers() {
    let pow = |x: f32, y: f32| precise_of_two(&mut Host::default(), BinaryOp::Pow, x, y).unwrap();
    for n in -149..128 {
        assert_eq!(pow(2.0, n as f32), (n as f32).exp2());
        assert_eq!(pow(-2.0, n as f32), if n % 2 == 0 { 1.0 } else { -1.0 } * (n as f32).exp2());
    }
    assert_eq!([pow(3.0, 3.0), pow(-5.0, 3.0), pow(10.0, 10.0), pow(4.0, 0.5)], [27.0, -125.0, 1e10, 2.0]);
}

#[test]
fn lengths() {
    let of = |op| {
        let InstructionCount { instructions, special } = InstructionCount::of_two(op);
        (instructions, special)
    };
    assert_eq!([of(BinaryOp::Pow), of(BinaryOp::Atan2), of(BinaryOp::Min)], [(112, 1), (39, 1), (1, 0)]);
}

/// A sign or a case that is forgotten is noticed: these differ from what a power of the absolute value gives.
#[test]
fn the_comparison_of_special_values_notices_a_forgotten_case() {
    let of_size = |x: f32, y: f32| precise_of_two(&mut Host::default(), BinaryOp::Pow, x.abs(), y).unwrap();
    for (x, y) in [(-2.0, 3.0), (-2.0, 0.5), (-0.0, -3.0), (f32::NEG_INFINITY, 3.0)] {
        let (got, want) = (of_size(x, y), reference(BinaryOp::Pow, x, y));
        assert!(ulps(got, want) > 2.0, "pow({x}, {y})");
    }
}
