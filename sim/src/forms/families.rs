//! All instruction forms: every combination of a family's words, except those that `alu` finds illegal.

use crate::alu::{Arithmetic, lookup};
use crate::syntax::ast::Type;

/// Opcodes, and for each position after them the possible words. An empty word means that there is none.
struct OpcodeFamily {
    opcodes: &'static [&'static str],
    places: &'static [&'static [&'static str]],
}

const fn family(opcodes: &'static [&'static str], places: &'static [&'static [&'static str]]) -> OpcodeFamily {
    OpcodeFamily { opcodes, places }
}

const TYPES: &[&str] = &[
    "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "u16x2", "s16x2", "f16", "f16x2", "bf16", "bf16x2",
    "f32", "f64",
];
const ROUNDS: &[&str] = &["", "rn", "rz", "rm", "rp"];
const FTZ: &[&str] = &["", "ftz"];
const SCALARS: &[&str] = &["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "bf16", "f32", "f64"];
const PAIRS: &[&str] = &["f16x2", "bf16x2", "e4m3x2", "e5m2x2"];

const FAMILIES: &[OpcodeFamily] = &[
    family(&["mov", "not", "cnot", "popc", "clz", "brev"], &[TYPES]),
    family(&["and", "or", "xor", "shl", "shr", "rem", "sad", "bfe", "bfi", "lop3", "fns", "copysign"], &[TYPES]),
    family(&["add", "sub", "mul"], &[ROUNDS, FTZ, &["", "sat"], TYPES]),
    family(&["fma", "mad"], &[ROUNDS, FTZ, &["", "sat", "relu"], TYPES]),
    family(&["mul", "mad", "mul24", "mad24"], &[&["lo", "hi", "wide"], &["", "sat"], TYPES]),
    family(&["div", "rcp", "sqrt", "rsqrt"], &[&["", "rn", "rz", "rm", "rp", "approx", "full"], FTZ, TYPES]),
    family(&["sin", "cos", "lg2", "ex2", "tanh"], &[&["approx"], FTZ, TYPES]),
    family(&["abs", "neg"], &[FTZ, TYPES]),
    family(&["min", "max"], &[FTZ, &["", "NaN"], &["", "xorsign.abs"], &["", "relu"], TYPES]),
    family(&["bfind"], &[&["", "shiftamt"], TYPES]),
    family(&["shf"], &[&["l", "r"], &["wrap", "clamp"], TYPES]),
    family(&["prmt"], &[TYPES, &["", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]]),
    family(&["szext", "bmsk"], &[&["wrap", "clamp"], TYPES]),
    family(&["slct"], &[FTZ, TYPES, &["s32", "f32"]]),
    family(&["dp4a"], &[&["u32", "s32"], &["u32", "s32"]]),
    family(&["dp2a"], &[&["lo", "hi"], &["u32", "s32"], &["u32", "s32"]]),
    family(
        &["cvt"],
        &[
            &["", "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"],
            FTZ,
            &["", "sat", "relu", "satfinite"],
            SCALARS,
            SCALARS,
        ],
    ),
    family(&["cvt"], &[&["rn", "rz"], &["", "satfinite"], &["", "relu"], PAIRS, &["f32", "f16x2", "e4m3x2", "e5m2x2"]]),
    family(&["cvt"], &[&["rn", "rz", "rna"], &["", "satfinite"], &["", "relu"], &["tf32"], &["f32"]]),
    family(&["cvt.pack.sat"], &[&["u16.s32", "s16.s32", "u8.s32.b32", "s8.s32.b32"]]),
];

/// The spellings of all forms, each once.
pub(super) fn spellings() -> Vec<String> {
    let mut all = Vec::new();
    for family in FAMILIES {
        for opcode in family.opcodes {
            let mut spellings = vec![(*opcode).to_owned()];
            for words in family.places {
                let extend = |s: &String, w: &&str| if w.is_empty() { s.clone() } else { format!("{s}.{w}") };
                spellings = spellings.iter().flat_map(|s| words.iter().map(move |w| extend(s, w))).collect();
            }
            all.extend(spellings.into_iter().filter(|s| is_legal(s)));
        }
    }
    all
}

fn is_legal(spelling: &str) -> bool {
    let mut words = spelling.split('.');
    let opcode = words.next().unwrap_or_default();
    lookup(opcode, &words.collect::<Vec<_>>(), Arithmetic::Ieee).is_some()
}

/// A possible comparison.
pub(super) struct Comparison {
    pub(super) cmp: &'static str,
    pub(super) ftz: bool,
    pub(super) ty: Type,
    pub(super) word: &'static str,
}

const COMPARISONS: &[&str] = &[
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];
const COMPARED: &[(&str, Type)] = &[
    ("b16", Type::B16),
    ("b32", Type::B32),
    ("b64", Type::B64),
    ("u16", Type::U16),
    ("u32", Type::U32),
    ("u64", Type::U64),
    ("s16", Type::S16),
    ("s32", Type::S32),
    ("s64", Type::S64),
    ("f16", Type::F16),
    ("bf16", Type::Bf16),
    ("f32", Type::F32),
    ("f64", Type::F64),
];

/// Comparisons of every type, including illegal ones.
pub(super) fn comparisons() -> Vec<Comparison> {
    let of_type = |(word, ty): &(&'static str, Type)| {
        let (word, ty) = (*word, *ty);
        let flush = [false, true].into_iter();
        flush
            .flat_map(move |ftz| COMPARISONS.iter().map(move |cmp| Comparison { cmp, ftz, ty, word }))
            .collect::<Vec<_>>()
    };
    COMPARED.iter().flat_map(of_type).collect()
}

/// Tests of class.
pub(super) fn tests() -> Vec<(&'static str, Type)> {
    let kinds = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
    [Type::F32, Type::F64].into_iter().flat_map(|ty| kinds.map(|kind| (kind, ty))).collect()
}
