//! Approximate results that are off by as much as the ISA allows.

use super::rounding::{F64, Format, Round, Value};

/// How far a result may be from the exact one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Units in the last place of the result's type.
    Ulp(f64),
    /// Relative to the exact result.
    Relative(f64),
    /// Absolute.
    Absolute(f64),
    /// The larger of both.
    AbsoluteOrRelative(f64),
}

/// Which of the results that the ISA allows an approximate instruction gives. Results that the ISA's tables define are not
/// changed: those for zeros, infinities and NaNs as arguments or results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Approximation {
    /// The exact result, rounded.
    #[default]
    Nearest,
    /// The greatest.
    Up,
    /// The least.
    Down,
    /// By the seed, the function and its arguments: mostly the greatest or the least, sometimes one between them.
    Random,
}

impl Approximation {
    /// The fraction of the bound by which a result is off, from -1 to 1. Equal arguments give equal results.
    fn share(self, seed: u64, salt: u64, arguments: [u64; 2]) -> f64 {
        match self {
            Approximation::Nearest => 0.0,
            Approximation::Up => 1.0,
            Approximation::Down => -1.0,
            Approximation::Random => {
                let n = [salt, arguments[0], arguments[1]].iter().fold(seed, |n, &x| mixed(n ^ x));
                match n & 3 {
                    0 | 1 => f64::from(n & 1 == 0) * 2.0 - 1.0,
                    _ => (n >> 11) as f64 / (1u64 << 52) as f64 - 1.0,
                }
            }
        }
    }
}

/// SplitMix64.
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// The function that an instruction approximates.
#[derive(Clone, Copy, Debug)]
pub(super) enum Exact {
    /// A function of one argument.
    Function(fn(f64) -> f64),
    /// The quotient of two.
    Quotient,
}

/// An instruction whose result the ISA bounds but does not define.
#[derive(Clone, Copy, Debug)]
pub struct Inexact {
    pub(super) f: Exact,
    pub(super) format: Format,
    /// Subnormal arguments and results count as zeros.
    pub(super) flushes: bool,
    /// Two numbers of 16 bits.
    pub(super) packed: bool,
    pub(super) bound: Bound,
    /// The number of the opcode.
    pub(super) salt: u64,
}

impl Inexact {
    /// The result that replaces `rounded`, which is the exact one rounded.
    pub fn result(&self, rounded: u64, [a, b]: [u64; 2], by: Approximation, seed: u64) -> u64 {
        if by == Approximation::Nearest {
            return rounded;
        }
        if self.packed {
            let half = |at: u32| self.of_one(rounded >> at & 0xffff, [a >> at & 0xffff, 0], by, seed) << at;
            return half(0) | half(16);
        }
        self.of_one(rounded, [a, b], by, seed)
    }

    fn of_one(&self, rounded: u64, arguments: [u64; 2], by: Approximation, seed: u64) -> u64 {
        let format = self.format;
        let is_number = |bits| matches!(Value::of(format, bits), Value::Number(_));
        let of = |bits| f64::from_bits(Value::of(format, bits).pack(F64, Round::Nearest));
        let [a, b] = arguments.map(|x| if self.flushes { format.flush(x) } else { x });
        let (exact, is_fixed) = match self.f {
            Exact::Function(f) => (f(of(a)), !is_number(a)),
            Exact::Quotient => (of(a) / of(b), !is_number(a) || !is_number(b)),
        };
        if is_fixed || !is_number(rounded) {
            return rounded;
        }
        let room = self.bound.room(exact, format);
        let share = by.share(seed, self.salt, [a, b]);
        let pack = |y: f64| Value::of(F64, y.to_bits()).pack(format, Round::Nearest);
        let (mut bits, mut y) = (pack(exact + share * room), exact + share * room);
        // A rounding outwards would leave the bound.
        if (of(bits) - exact).abs() > room || !is_number(bits) {
            y -= share.signum() * unit(y, format);
            bits = pack(y);
        }
        if (of(bits) - exact).abs() > room || !is_number(bits) {
            return rounded;
        }
        if self.flushes { format.flush(bits) } else { bits }
    }
}

impl Bound {
    /// How far a result may be from the exact one.
    fn room(self, exact: f64, format: Format) -> f64 {
        match self {
            Bound::Ulp(n) => n * unit(exact, format),
            Bound::Relative(part) => part * exact.abs(),
            Bound::Absolute(size) => size,
            Bound::AbsoluteOrRelative(part) => part * exact.abs().max(1.0),
        }
    }
}

/// A unit in the last place of a format at a number.
fn unit(x: f64, format: Format) -> f64 {
    let exponent = (x.abs().to_bits() >> 52) as i32 - 1023;
    let least = 2 - (1 << (format.exponent_bits - 1));
    libm::exp2(f64::from(exponent.max(least) - format.fraction_bits as i32))
}

#[cfg(test)]
mod tests {
    use super::super::rounding::F32;
    use super::*;
    use crate::alu::{Arithmetic, error_bound, lookup};

    fn form(opcode: &str, words: &[&str]) -> (crate::alu::AluForm, Bound) {
        (lookup(opcode, words, Arithmetic::Ieee).unwrap(), error_bound(opcode, words).unwrap())
    }

    #[test]
    fn results_reach_the_bound_and_stay_within() {
        type ApproximationCase = (&'static str, &'static [&'static str], fn(f64) -> f64);
        let cases: [ApproximationCase; 7] = [
            ("ex2", &["approx", "ftz", "f32"], libm::exp2),
            ("rcp", &["approx", "ftz", "f32"], |x| 1.0 / x),
            ("rsqrt", &["approx", "ftz", "f32"], |x| 1.0 / x.sqrt()),
            ("sqrt", &["approx", "f32"], f64::sqrt),
            ("lg2", &["approx", "f32"], libm::log2),
            ("tanh", &["approx", "f32"], libm::tanh),
            ("cos", &["approx", "f32"], libm::cos),
        ];
        for (opcode, words, f) in cases {
            let (form, bound) = form(opcode, words);
            let inexact = form.inexact.unwrap();
            let (mut up, mut down) = (0f64, 0f64);
            for i in 1..4000 {
                let x = i as f32 * 7.3e-4;
                let (a, exact) = (u64::from(x.to_bits()), f(f64::from(x)));
                let rounded = (form.f)(a, 0, 0, 0);
                for by in [Approximation::Up, Approximation::Down, Approximation::Random] {
                    let y = f64::from(f32::from_bits(inexact.result(rounded, [a, 0], by, 3) as u32));
                    let share = (y - exact) / bound.room(exact, F32);
                    (up, down) = (up.max(share), down.min(share));
                    assert!(by != Approximation::Up || share > -0.6, "{opcode}({x}): {share}");
                }
            }
            assert!(up <= 1.0 && up > 0.9 && (-1.0..-0.9).contains(&down), "{opcode}: {down} to {up}");
        }
    }

    #[test]
    fn quotients_are_off_by_two_units() {
        let (form, _) = form("div", &["full", "f32"]);
        let bits = |x: f32| u64::from(x.to_bits());
        let of = |a: f32, by| {
            let rounded = (form.f)(bits(a), bits(3.0), 0, 0);
            f32::from_bits(form.inexact.unwrap().result(rounded, [bits(a), bits(3.0)], by, 0) as u32)
        };
        assert_eq!(of(3.0, Approximation::Nearest), 1.0);
        assert_eq!(of(3.0, Approximation::Up), 1.0 + 2.0 * f32::EPSILON);
        assert_eq!(of(0.0, Approximation::Up), 0.0);
        assert_eq!(of(f32::INFINITY, Approximation::Down), f32::INFINITY);
    }

    #[test]
    fn what_the_tables_fix_stays() {
        let (ex2, _) = form("ex2", &["approx", "ftz", "f32"]);
        let one = u64::from(1f32.to_bits());
        for zero in [0, 1 << 31, 1] {
            assert_eq!(ex2.inexact.unwrap().result(one, [zero, 0], Approximation::Up, 0), one);
        }
        let (pair, _) = form("ex2", &["approx", "f16x2"]);
        let args = 0x3c00;
        let moved = pair.inexact.unwrap().result((pair.f)(args, 0, 0, 0), [args, 0], Approximation::Up, 0);
        assert_eq!((moved >> 16, moved & 0xffff), (0x3c00, 0x4001), "2^0 is 1, 2^1 is off");
    }
}
