//! Random numbers by counter: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
//!
//! The generator is an expansion into products, sums and exclusive ors of i32, so all devices give the same bits. The seed is the
//! key, and the index is the counter: words 0 and 1 of the counter are its lower and upper half, and words 2 and 3 are 0. Triton
//! counts in the same way.

use super::{Builder, Operand};
use crate::entity::Value;
use crate::ir::Loc;
use crate::op::{BinaryOp, Random, UnaryOp};
use crate::types::DType;
use std::collections::BTreeMap;

/// How many rounds there are.
const ROUNDS: usize = 10;
/// What words 0 and 2 of the counter are multiplied by in each round.
const FACTORS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// What is added to the two words of the key after each round: the golden ratio, and the square root of 3 less 1.
const STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
/// 2^-24, the distance of two neighbours that `uniform` gives.
const UNIT: f64 = 1.0 / 16_777_216.0;

/// 32 bits of each element.
#[derive(Clone, Copy)]
enum Word {
    /// Known when the kernel is built.
    Known(u32),
    /// A tile or scalar of i32.
    Of(Value),
}

/// The words of Philox that are asked for, and what they depend on.
struct Philox<'b> {
    b: &'b mut Builder,
    loc: Loc,
    shape: Vec<u32>,
    /// The key of the first round.
    key: [Word; 2],
    /// Words by the number of rounds before them and by their place in the counter.
    words: BTreeMap<(usize, usize), Word>,
    /// Tiles of one number.
    constants: BTreeMap<u32, Value>,
}

impl Builder {
    /// A random number for each element of `index`.
    pub fn random(&mut self, loc: Loc, of: Random, seed: Operand, index: Operand) -> Operand {
        self.random_of(loc, of, seed, index).unwrap_or(Operand::Poison)
    }

    fn random_of(&mut self, loc: Loc, of: Random, seed: Operand, index: Operand) -> Option<Operand> {
        let key = self.key(loc, of, seed);
        let counter = self.counter(loc, of, index);
        let (key, (counter, shape)) = (key?, counter?);
        let words = counter.into_iter().enumerate().map(|(at, word)| ((0, at), word)).collect();
        let mut philox = Philox { b: self, loc, shape, key, words, constants: BTreeMap::new() };
        let first = philox.drawn(0)?;
        match of {
            Random::Bits => Some(first.into()),
            Random::Uniform => {
                let whole = philox.upper(first)?;
                Some(self.binary(loc, BinaryOp::Mul, whole, UNIT))
            }
            Random::Normal => {
                let second = philox.drawn(1)?;
                let [first, second] = [philox.upper(first)?, philox.upper(second)?];
                Some(self.box_muller(loc, first, second))
            }
        }
    }

    /// `sqrt(-2 log(u)) cos(2 pi v)` of a `u` above 0 and up to 1, and a `v` from 0 to below 1. Both are given in units of 2^-24.
    fn box_muller(&mut self, loc: Loc, u: Value, v: Value) -> Operand {
        let above_zero = self.binary(loc, BinaryOp::Add, u, 1.0);
        let u = self.binary(loc, BinaryOp::Mul, above_zero, UNIT);
        let log = self.unary(loc, UnaryOp::Log, u);
        let square = self.binary(loc, BinaryOp::Mul, log, -2.0);
        let radius = self.unary(loc, UnaryOp::Sqrt, square);
        let turn = f64::from(std::f32::consts::TAU) * UNIT;
        let angle = self.binary(loc, BinaryOp::Mul, v, turn);
        let across = self.unary(loc, UnaryOp::Cos, angle);
        self.binary(loc, BinaryOp::Mul, radius, across)
    }

    /// The halves of a seed. One of i32 gives what one of i64 of the same value does.
    fn key(&mut self, loc: Loc, of: Random, seed: Operand) -> Option<[Word; 2]> {
        if let Some(x) = seed.number() {
            let whole = match seed {
                Operand::Whole(n) => Some(n),
                _ => Some(x as i64).filter(|&n| n as f64 == x && x.abs() < 9_007_199_254_740_992.0),
            };
            let Some(n) = whole else {
                let is_unsigned = x == x.trunc() && (2f64.powi(63)..2f64.powi(64)).contains(&x);
                let mend = match is_unsigned {
                    true => "a whole number of i64: of a const, take the bits, `SEED as i64`",
                    false => "a whole number below 2^53, or a const of i64",
                };
                let x = atlas_vocabulary::number(x);
                self.error(117, loc, format!("the seed of `{}` is {x}, but it has to be {mend}", of.name()));
                return None;
            };
            return Some([Word::Known(n as u32), Word::Known((n >> 32) as u32)]);
        }
        let v = value(seed)?;
        let ty = self.kernel.ty(v).clone();
        if !ty.dtype.is_int() || ty.rank() > 0 {
            self.error(104, loc, format!("the seed of `{}` is a scalar of i32 or i64, found {ty}", of.name()));
            return None;
        }
        Some(self.halves(loc, v)?.map(Word::Of))
    }

    /// The counter of an index, and the extents of its tile.
    fn counter(&mut self, loc: Loc, of: Random, index: Operand) -> Option<([Word; 4], Vec<u32>)> {
        let Operand::Value(v) = index else {
            if index != Operand::Poison {
                self.error(104, loc, format!("the index of `{}` is a tile or scalar, found a number", of.name()));
            }
            return None;
        };
        let ty = self.kernel.ty(v).clone();
        if !ty.dtype.is_int() {
            self.error(104, loc, format!("the index of `{}` is of i32 or i64, found {ty}", of.name()));
            return None;
        }
        let none = Word::Known(0);
        let [low, high] = match ty.dtype {
            DType::I64 => self.halves(loc, v)?.map(Word::Of),
            _ => [Word::Of(v), none],
        };
        Some(([low, high, none, none], ty.shape))
    }

    /// The lower 32 bits of an integer, and the 32 above them, which are copies of the sign in an i32.
    fn halves(&mut self, loc: Loc, v: Value) -> Option<[Value; 2]> {
        let by = if self.kernel.ty(v).dtype == DType::I64 { 32 } else { 31 };
        let upper = self.binary(loc, BinaryOp::Shr, v, by);
        let [low, high] = [v.into(), upper].map(|x: Operand| value(self.cast(loc, DType::I32, x)));
        Some([low?, high?])
    }
}

fn value(x: Operand) -> Option<Value> {
    match x {
        Operand::Value(v) => Some(v),
        _ => None,
    }
}

impl Philox<'_> {
    /// A word of the counter after some rounds.
    fn word(&mut self, rounds: usize, at: usize) -> Option<Word> {
        if let Some(&word) = self.words.get(&(rounds, at)) {
            return Some(word);
        }
        // Words 0 and 1 are made of the product of word 2, and words 2 and 3 of that of word 0.
        let before = rounds.checked_sub(1)?;
        let factor = 1 - at / 2;
        let product = self.word(before, 2 * factor)?;
        let word = if at % 2 == 1 {
            self.combine(BinaryOp::Mul, product, Word::Known(FACTORS[factor]))?
        } else {
            let high = self.combine(BinaryOp::MulHi, product, Word::Known(FACTORS[factor]))?;
            let other = self.word(before, at + 1)?;
            let mixed = self.combine(BinaryOp::BitXor, high, other)?;
            let step = STEPS[at / 2].wrapping_mul(before as u32);
            let key = self.combine(BinaryOp::Add, self.key[at / 2], Word::Known(step))?;
            self.combine(BinaryOp::BitXor, mixed, key)?
        };
        self.words.insert((rounds, at), word);
        Some(word)
    }

    /// An operation whose operands may be exchanged.
    fn combine(&mut self, op: BinaryOp, x: Word, y: Word) -> Option<Word> {
        let (x, y) = match (x, y) {
            (Word::Known(x), Word::Known(y)) => return Some(Word::Known(of_known(op, x, y))),
            (Word::Of(v), Word::Known(0)) | (Word::Known(0), Word::Of(v))
                if matches!(op, BinaryOp::Add | BinaryOp::BitXor) =>
            {
                return Some(Word::Of(v));
            }
            (Word::Of(v), Word::Known(n)) | (Word::Known(n), Word::Of(v)) => (v, self.constant(n, v)?),
            (Word::Of(x), Word::Of(y)) => (x, y),
        };
        value(self.b.binary(self.loc, op, x, y)).map(Word::Of)
    }

    /// A number as a tile of the extents of another one. The factors are the same in each round.
    fn constant(&mut self, n: u32, like: Value) -> Option<Value> {
        let shape = self.b.kernel.ty(like).shape.clone();
        let is_tile = shape == self.shape;
        if is_tile && let Some(&v) = self.constants.get(&n) {
            return Some(v);
        }
        let v = value(self.b.splat(self.loc, f64::from(n as i32), DType::I32, &shape))?;
        if is_tile {
            self.constants.insert(n, v);
        }
        Some(v)
    }

    /// The upper 24 bits of a word, as a whole f32.
    fn upper(&mut self, word: Value) -> Option<Value> {
        let bits = self.b.binary(self.loc, BinaryOp::ShrLogical, word, 8);
        value(self.b.cast(self.loc, DType::F32, bits))
    }

    /// A word that depends on the index, as all do after the rounds.
    fn drawn(&mut self, at: usize) -> Option<Value> {
        match self.word(ROUNDS, at)? {
            Word::Of(v) => Some(v),
            Word::Known(_) => None,
        }
    }
}

fn of_known(op: BinaryOp, x: u32, y: u32) -> u32 {
    match op {
        BinaryOp::Add => x.wrapping_add(y),
        BinaryOp::Mul => x.wrapping_mul(y),
        BinaryOp::MulHi => ((u64::from(x) * u64::from(y)) >> 32) as u32,
        _ => x ^ y,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::def::KernelDef;
    use crate::diag::Diagnostics;
    use crate::specialization::Specialization;

    static NONE: KernelDef = KernelDef {
        name: "none",
        doc: "",
        file: "",
        types: &[],
        dims: &[],
        params: &[],
        tune: &[],
        grid: &[],
        requires: &[],
        build: &|_, _| Err(Diagnostics::default()),
        refused: None,
    };

    /// The known answers of the authors, from Random123: counter, key and result.
    #[test]
    fn all_words_are_the_known_answers() {
        let all = u32::MAX;
        let answers = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([all; 4], [all; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        let mut b = Builder::new(&NONE, &Specialization::default(), &Config::default());
        for (counter, key, answer) in answers {
            let words = (0..4).map(|at| ((0, at), Word::Known(counter[at]))).collect();
            let (loc, key) = (Loc::default(), key.map(Word::Known));
            let mut philox = Philox { b: &mut b, loc, shape: vec![], key, words, constants: BTreeMap::new() };
            let found = [0, 1, 2, 3].map(|at| match philox.word(ROUNDS, at) {
                Some(Word::Known(n)) => n,
                _ => 0,
            });
            assert_eq!(found, answer);
        }
    }
}
