//! Operands: edge values of arithmetic, and random ones.

use super::text::bytes;
use crate::syntax::ast::Type;

/// Elements of a case.
const COUNT: usize = 512;

/// The values that an operand may have.
#[derive(Clone, Copy, PartialEq)]
enum Domain {
    Any,
    /// Integer divisors. The result for zero is undefined.
    NonZero,
    /// Shifts and lengths, some beyond any width.
    Amount,
    /// Positions and lengths, of which 8 bits count.
    Byte,
    /// Positions within a word.
    Position,
    /// Counts of bits either way.
    Offset,
    /// Angles for which the ISA bounds the error, and special values.
    Angle,
    /// Exponents of two around the range of results.
    Exponent,
    /// No subnormal numbers, for which approximate quotients have no bound.
    Normal,
}

fn domain(opcode: &str, name: &str, index: usize, ty: Type) -> Domain {
    let integer = !matches!(ty, Type::F32 | Type::F64);
    match (opcode, index) {
        ("div" | "rem", 1) if integer => Domain::NonZero,
        ("div", _) if name.contains("approx") || name.contains("full") => Domain::Normal,
        ("shl" | "shr" | "szext", 1) | ("shf", 2) | ("bmsk", _) => Domain::Amount,
        ("bfe", 1 | 2) | ("bfi", 2 | 3) => Domain::Byte,
        ("fns", 1) => Domain::Position,
        ("fns", 2) => Domain::Offset,
        ("sin" | "cos", 0) => Domain::Angle,
        ("ex2", 0) if ty == Type::F32 => Domain::Exponent,
        _ => Domain::Any,
    }
}

/// A column of values for each operand. The first rows pair edges with edges, the rest are random.
pub(super) fn for_operands(opcode: &str, name: &str, types: &[Type]) -> Vec<Vec<u64>> {
    let mut random = Random(name.bytes().fold(0x9e37_79b9, |seed, byte| seed * 31 % (1 << 48) + u64::from(byte)));
    let domains = types.iter().enumerate().map(|(i, ty)| (domain(opcode, name, i, *ty), *ty));
    let operands: Vec<_> = domains.map(|(domain, ty)| (domain, ty, edges(domain, ty))).collect();
    let pairs: usize = operands.iter().map(|(.., edges)| edges.len()).product();
    // Where all combinations are too many, a stride without a common factor walks through some, of every operand.
    let stride = if pairs <= COUNT / 2 { 1 } else { coprime(pairs) };
    let rows = pairs.min(COUNT / 2);
    let mut columns = vec![Vec::with_capacity(COUNT); operands.len()];
    for row in 0..COUNT {
        let mut place = row * stride;
        for ((domain, ty, edges), column) in operands.iter().zip(&mut columns) {
            let value = match edges.get(place % edges.len().max(1)) {
                Some(edge) if row < rows => *edge,
                _ => random_value(&mut random, *domain, *ty),
            };
            place /= edges.len().max(1);
            column.push(value);
        }
    }
    columns
}

/// A number that is coprime to a larger one, and about five eighths of it.
fn coprime(n: usize) -> usize {
    let factor = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (n * 5 / 8..n).find(|s| factor(*s, n) == 1).unwrap_or(1)
}

fn mask(ty: Type) -> u64 {
    u64::MAX >> (64 - 8 * bytes(ty).clamp(1, 8))
}

fn edges(domain: Domain, ty: Type) -> Vec<u64> {
    let small = |values: &[i64]| values.iter().map(|v| *v as u64 & mask(ty)).collect();
    match domain {
        Domain::Amount => small(&[0, 1, 7, 15, 16, 31, 32, 33, 63, 64, 65, 255, 256, -1, i64::from(i32::MIN)]),
        Domain::Byte => small(&[0, 1, 8, 16, 31, 32, 33, 63, 64, 200, 255]),
        Domain::Position => small(&[0, 1, 15, 30, 31]),
        Domain::Offset => small(&[0, 1, 2, 16, 32, 33, -1, -2, -32, -33]),
        Domain::Angle => [0.0, -0.0, 1e-30, 0.5, -1.0, 1.5, -3.0, 3.125, f32::INFINITY, f32::NAN]
            .map(|x| u64::from(x.to_bits()))
            .into(),
        Domain::Exponent => [0.0, -0.0, 1.0, -1.0, 0.5, 127.0, 127.99999, 128.0, -125.5, -126.0, 1e-42, 1e30, -1e30]
            .into_iter()
            .chain([f32::INFINITY, f32::NEG_INFINITY, f32::NAN])
            .map(|x: f32| u64::from(x.to_bits()))
            .collect(),
        Domain::Any | Domain::NonZero | Domain::Normal => {
            let all = plain_edges(ty);
            let fits = |v: &u64| match domain {
                Domain::NonZero => *v != 0,
                Domain::Normal => *v as u32 & 0x7f80_0000 != 0 || *v as u32 & 0x7f_ffff == 0,
                _ => true,
            };
            all.into_iter().filter(fits).collect()
        }
    }
}

fn plain_edges(ty: Type) -> Vec<u64> {
    const HALF: [u64; 14] =
        [0, 0x8000, 1, 0x83ff, 0x0400, 0x3bff, 0x3c00, 0xbc00, 0x3e00, 0x4100, 0x7bff, 0x7c00, 0xfc00, 0x7e01];
    const BRAIN: [u64; 14] =
        [0, 0x8000, 1, 0x807f, 0x0080, 0x3f7f, 0x3f80, 0xbf80, 0x3fc0, 0x4020, 0x7f7f, 0x7f80, 0xff80, 0x7fc1];
    let both = |half: [u64; 14]| half.iter().zip(half.iter().rev()).map(|(a, b)| a << 16 | b).collect();
    match ty {
        Type::F16 => HALF.into(),
        Type::Bf16 => BRAIN.into(),
        Type::F16x2 => both(HALF),
        Type::Bf16x2 => both(BRAIN),
        Type::F32 | Type::Tf32 => vec![
            0,
            0x8000_0000,
            1,
            0x807f_ffff,
            0x0080_0000,
            0x3f00_0000,
            0x3f7f_ffff,
            0x3f80_0000,
            0xbf80_0000,
            0x3fc0_0000,
            0x4020_0000,
            0x4b80_0001,
            0x4f00_0000,
            0xcf00_0001,
            0x7e80_0001,
            0x7f7f_ffff,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0001,
            0xff80_0001,
        ],
        Type::F64 => vec![
            0,
            1 << 63,
            1,
            0x800f_ffff_ffff_ffff,
            0x0010_0000_0000_0000,
            0x3690_0000_0000_0001,
            0x3fef_ffff_ffff_ffff,
            0x3ff0_0000_0000_0000,
            0xbff8_0000_0000_0000,
            0x4004_0000_0000_0000,
            0x3ff0_0000_1000_0000,
            0x41e0_0000_0000_0000,
            0xc3e0_0000_0000_0001,
            0x47ef_ffff_f000_0000,
            0x7fef_ffff_ffff_ffff,
            0x7ff0_0000_0000_0000,
            0xfff0_0000_0000_0000,
            0x7ff8_0000_0000_0001,
            0xfff4_0000_0000_0002,
        ],
        Type::E4m3x2 | Type::E5m2x2 => (0..=0xffff).step_by(0x101).collect(),
        _ => {
            let top = (mask(ty) >> 1) + 1;
            [0, 1, 2, 7, 0x80, 0x7f, 0xff, 0x8000, 0x7fff, top - 1, top, top + 1, mask(ty) - 1, mask(ty)]
                .map(|v| v & mask(ty))
                .into()
        }
    }
}

/// A generator of fixed sequences (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to 1.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 24) as f32
    }
}

fn random_value(random: &mut Random, domain: Domain, ty: Type) -> u64 {
    let bits = random.next();
    let single = |x: f32| u64::from(x.to_bits());
    match domain {
        Domain::Amount => bits % 70,
        Domain::Byte => bits % 72,
        Domain::Position => bits % 32,
        Domain::Offset => (bits % 41).wrapping_sub(20) & mask(ty),
        Domain::Angle => single((random.unit() - 0.5) * std::f32::consts::TAU * 0.9999),
        Domain::Exponent => single((random.unit() - 0.5) * 260.0),
        Domain::NonZero => (bits >> (random.next() % 60) & mask(ty)).max(1),
        Domain::Normal => single((random.unit() + 0.5) * 2f32.powi((bits % 120) as i32 - 60)),
        Domain::Any => match (ty, bits & 1) {
            // Exponents near one another, so that sums cancel and products stay finite.
            (Type::F32, 0) => near_one(random, 23, 8, 127),
            (Type::F64, 0) => near_one(random, 52, 11, 1023),
            (Type::F16, 0) => near_one(random, 10, 5, 15),
            (Type::Bf16, 0) => near_one(random, 7, 8, 127),
            (Type::F16x2, 0) => near_one(random, 10, 5, 15) << 16 | near_one(random, 10, 5, 15),
            (Type::Bf16x2, 0) => near_one(random, 7, 8, 127) << 16 | near_one(random, 7, 8, 127),
            _ => random.next() & mask(ty),
        },
    }
}

fn near_one(random: &mut Random, fraction: u32, exponent: u32, bias: u64) -> u64 {
    let bits = random.next();
    let power = bias - 6 + (bits >> 56) % 13;
    (bits & 1) << (fraction + exponent) | power << fraction | (bits >> 1 & ((1 << fraction) - 1))
}
