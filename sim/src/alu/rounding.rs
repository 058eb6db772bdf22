//! Exact values of floats, and the single rounding to a format.

/// Directions of rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    Nearest,
    Zero,
    Down,
    Up,
    /// To nearest, ties away from zero.
    NearestAway,
}

/// A binary format. All patterns above the infinity, which follows the largest number, are NaNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) exponent_bits: u32,
    pub(super) fraction_bits: u32,
    /// The largest finite magnitude.
    pub(super) largest: u64,
    /// The canonical NaN of the hardware. Every format except `F64` also replaces other NaNs by it.
    pub(super) nan: u64,
}

const fn format(exponent_bits: u32, fraction_bits: u32, largest: u64, nan: u64) -> Format {
    Format { exponent_bits, fraction_bits, largest, nan }
}

pub(super) const F16: Format = format(5, 10, 0x7bff, 0x7fff);
pub(super) const BF16: Format = format(8, 7, 0x7f7f, 0x7fff);
pub(super) const F32: Format = format(8, 23, 0x7f7f_ffff, 0x7fff_ffff);
pub(super) const F64: Format = format(11, 52, 0x7fef_ffff_ffff_ffff, 0xfff8_0000_0000_0000);
pub(super) const E5M2: Format = format(5, 2, 0x7b, 0x7f);
/// True if it has no infinity. Its only NaN takes that place.
pub(super) const E4M3: Format = format(4, 3, 0x7e, 0x7f);

impl Format {
    pub(super) const fn sign(self) -> u64 {
        1 << (self.exponent_bits + self.fraction_bits)
    }

    pub(super) const fn infinity(self) -> u64 {
        self.largest + 1
    }

    /// The bits of 1.
    pub(super) const fn one(self) -> u64 {
        (self.bias() as u64) << self.fraction_bits
    }

    const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Replaces a subnormal number by the zero of its sign.
    pub(super) const fn flush(self, bits: u64) -> u64 {
        if bits & self.infinity() == 0 { bits & self.sign() } else { bits }
    }

    /// The exponent of the least normal number.
    const fn least_exponent(self) -> i32 {
        1 - self.bias()
    }

    /// The fraction of a NaN.
    pub(super) const fn payload(self, nan: u64) -> u64 {
        nan & ((1 << self.fraction_bits) - 1)
    }

    /// The bit that makes a NaN quiet.
    pub(super) const fn quiet(self) -> u64 {
        1 << (self.fraction_bits - 1)
    }

    /// The NaN that results from NaN operands: in double precision the first of them, made quiet. No specification says which
    /// of two different ones it is.
    pub(super) fn nan_of<const N: usize>(self, operands: [u64; N]) -> u64 {
        let first = operands.into_iter().find(|x| self.is_nan(*x)).filter(|_| self == F64);
        first.map_or(self.nan, |nan| nan | self.quiet())
    }

    pub(super) const fn is_nan(self, bits: u64) -> bool {
        let magnitude = bits & (self.sign() - 1);
        magnitude > self.infinity() || magnitude == self.nan
    }
}

/// The position of a number's leading bit within its significand.
const TOP: u32 = 126;

/// A real number, or a special value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Nan,
    Infinity { negative: bool },
    Zero { negative: bool },
    Number(Number),
}

/// `significand * 2^(exponent - 126)`, with bit 126 as the leading one. Bit 0 is sticky: it also stands for anything nonzero
/// below it, which is all that a later rounding to fewer bits needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) negative: bool,
    pub(super) exponent: i32,
    pub(super) significand: u128,
}

impl Value {
    /// The value of the bits of a format.
    pub(super) fn of(format: Format, bits: u64) -> Value {
        let negative = bits & format.sign() != 0;
        let magnitude = bits & (format.sign() - 1);
        let fraction = magnitude & ((1 << format.fraction_bits) - 1);
        if format.is_nan(bits) {
            return Value::Nan;
        }
        if magnitude == format.infinity() {
            return Value::Infinity { negative };
        }
        let least = format.least_exponent() - format.fraction_bits as i32;
        match (magnitude >> format.fraction_bits) as i32 {
            0 => Value::scaled(negative, u128::from(fraction), least),
            e => Value::scaled(negative, u128::from(fraction | 1 << format.fraction_bits), least + e - 1),
        }
    }

    /// `magnitude * 2^exponent`.
    pub(super) fn scaled(negative: bool, magnitude: u128, exponent: i32) -> Value {
        if magnitude == 0 {
            return Value::Zero { negative };
        }
        let lead = 127 - magnitude.leading_zeros();
        let significand = if lead > TOP { shift_jam(magnitude, 1) } else { magnitude << (TOP - lead) };
        Value::Number(Number { negative, exponent: exponent + lead as i32, significand })
    }

    /// An integer.
    pub(super) fn integer(value: i128) -> Value {
        Value::scaled(value < 0, value.unsigned_abs(), 0)
    }

    pub(super) fn negate(self) -> Value {
        match self {
            Value::Nan => Value::Nan,
            Value::Infinity { negative } => Value::Infinity { negative: !negative },
            Value::Zero { negative } => Value::Zero { negative: !negative },
            Value::Number(n) => Value::Number(Number { negative: !n.negative, ..n }),
        }
    }

    fn negative(self) -> bool {
        match self {
            Value::Nan => false,
            Value::Infinity { negative } | Value::Zero { negative } => negative,
            Value::Number(n) => n.negative,
        }
    }

    /// True if the number is below the normal ones of a format.
    pub(super) fn is_subnormal(self, format: Format) -> bool {
        matches!(self, Value::Number(n) if n.exponent < format.least_exponent())
    }

    /// The sum. If two numbers cancel, the rounding direction decides the sign of the zero.
    pub(super) fn add(self, other: Value, round: Round) -> Value {
        let cancelled = Value::Zero { negative: round == Round::Down };
        match (self, other) {
            (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
            (Value::Infinity { negative: a }, Value::Infinity { negative: b }) if a != b => Value::Nan,
            (Value::Infinity { .. }, _) => self,
            (_, Value::Infinity { .. }) => other,
            (Value::Zero { negative: a }, Value::Zero { negative: b }) => {
                if a == b {
                    self
                } else {
                    cancelled
                }
            }
            (Value::Zero { .. }, _) => other,
            (_, Value::Zero { .. }) => self,
            (Value::Number(a), Value::Number(b)) => {
                let (large, small) =
                    if (a.exponent, a.significand) >= (b.exponent, b.significand) { (a, b) } else { (b, a) };
                let aligned = shift_jam(small.significand, (large.exponent - small.exponent) as u32);
                let magnitude = if large.negative == small.negative {
                    large.significand + aligned
                } else {
                    large.significand - aligned
                };
                match magnitude {
                    0 => cancelled,
                    m => Value::scaled(large.negative, m, large.exponent - TOP as i32),
                }
            }
        }
    }

    /// The product; exact for formats of up to 64 bits.
    pub(super) fn mul(self, other: Value) -> Value {
        let negative = self.negative() != other.negative();
        match (self, other) {
            (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
            (Value::Infinity { .. }, Value::Zero { .. }) | (Value::Zero { .. }, Value::Infinity { .. }) => Value::Nan,
            (Value::Infinity { .. }, _) | (_, Value::Infinity { .. }) => Value::Infinity { negative },
            (Value::Zero { .. }, _) | (_, Value::Zero { .. }) => Value::Zero { negative },
            (Value::Number(a), Value::Number(b)) => {
                let product = (a.significand >> 63) * (b.significand >> 63);
                Value::scaled(negative, product, a.exponent + b.exponent - TOP as i32)
            }
        }
    }

    /// The quotient, correct to 63 bits and a sticky bit.
    pub(super) fn div(self, other: Value) -> Value {
        let negative = self.negative() != other.negative();
        match (self, other) {
            (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
            (Value::Infinity { .. }, Value::Infinity { .. }) | (Value::Zero { .. }, Value::Zero { .. }) => Value::Nan,
            (Value::Infinity { .. }, _) | (_, Value::Zero { .. }) => Value::Infinity { negative },
            (Value::Zero { .. }, _) | (_, Value::Infinity { .. }) => Value::Zero { negative },
            (Value::Number(a), Value::Number(b)) => {
                let divisor = b.significand >> 63;
                let (quotient, rest) = (a.significand / divisor, a.significand % divisor);
                let sticky = u128::from(rest != 0);
                Value::scaled(negative, quotient << 1 | sticky, a.exponent - b.exponent - 64)
            }
        }
    }

    /// The square root, correct to 63 bits and a sticky bit.
    pub(super) fn sqrt(self) -> Value {
        match self {
            Value::Number(n) if n.negative => Value::Nan,
            Value::Infinity { negative: true } => Value::Nan,
            Value::Number(n) => {
                let odd = n.exponent & 1;
                let square = n.significand << odd;
                let root = square.isqrt();
                let sticky = u128::from(root * root != square);
                Value::scaled(false, root << 1 | sticky, (n.exponent - odd) / 2 - 64)
            }
            other => other,
        }
    }

    /// The nearest integer in a direction, within 128 bits; `None` for a NaN.
    pub(super) fn to_integer(self, round: Round) -> Option<i128> {
        let magnitude = match self {
            Value::Nan => return None,
            Value::Zero { .. } => 0,
            Value::Infinity { .. } => i128::MAX,
            Value::Number(n) if n.exponent > TOP as i32 => i128::MAX,
            Value::Number(n) => drop_bits(n.significand, (TOP as i32 - n.exponent) as u32, round, n.negative) as i128,
        };
        Some(if self.negative() { -magnitude } else { magnitude })
    }

    /// The nearest value of a format in a direction. Beyond the largest number it is an infinity, or the largest number if the
    /// direction does not go past it.
    pub(super) fn pack(self, format: Format, round: Round) -> u64 {
        let sign = |negative: bool| if negative { format.sign() } else { 0 };
        match self {
            Value::Nan => format.nan,
            Value::Infinity { negative } => sign(negative) | format.infinity(),
            Value::Zero { negative } => sign(negative),
            Value::Number(n) => {
                let least = format.least_exponent();
                let below = (least - n.exponent).max(0);
                let kept = drop_bits(n.significand, TOP - format.fraction_bits + below as u32, round, n.negative);
                // The leading bit adds one to the exponent field, as does a carry out of the fraction.
                let field = u64::from((n.exponent.max(least) - least) as u32);
                let bits = (field.min(1 << 20) << format.fraction_bits) + kept as u64;
                sign(n.negative) | if bits <= format.largest { bits } else { overflow(format, round, n.negative) }
            }
        }
    }
}

fn overflow(format: Format, round: Round, negative: bool) -> u64 {
    let outwards = match round {
        Round::Nearest | Round::NearestAway => true,
        Round::Zero => false,
        Round::Down => negative,
        Round::Up => !negative,
    };
    format.infinity() - u64::from(!outwards)
}

/// Shifts right. Bits that are shifted out set the lowest bit.
fn shift_jam(value: u128, amount: u32) -> u128 {
    match amount {
        0 => value,
        1..128 => value >> amount | u128::from(value & ((1 << amount) - 1) != 0),
        _ => u128::from(value != 0),
    }
}

/// Drops low bits of a magnitude, rounding what is kept.
fn drop_bits(value: u128, amount: u32, round: Round, negative: bool) -> u128 {
    if amount == 0 {
        return value;
    }
    // One bit more than is dropped, so that half of it can be told from more.
    let value = if amount > TOP { shift_jam(value, amount - TOP) } else { value };
    let amount = amount.min(TOP);
    let (kept, rest, half) = (value >> amount, value & ((1 << amount) - 1), 1 << (amount - 1));
    let up = match round {
        Round::Nearest => rest > half || (rest == half && kept & 1 == 1),
        Round::NearestAway => rest >= half,
        Round::Zero => false,
        Round::Down => negative && rest != 0,
        Round::Up => !negative && rest != 0,
    };
    kept + u128::from(up)
}
