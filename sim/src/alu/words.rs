//! Reading an instruction's modifiers in the order that the ISA gives them.

use crate::syntax::ast::Type;

/// The modifiers that are not read yet.
#[derive(Clone, Copy)]
pub(super) struct Words<'a>(&'a [&'a str]);

impl<'a> Words<'a> {
    pub(super) fn new(words: &'a [&'a str]) -> Words<'a> {
        Words(words)
    }

    /// Reads a word if it is the next.
    pub(super) fn flag(&mut self, word: &str) -> bool {
        let found = self.0.first() == Some(&word);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    /// Reads the next word if the table names it.
    pub(super) fn pick<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        let word = self.0.first()?;
        let (_, value) = table.iter().find(|(name, _)| name == word)?;
        self.0 = &self.0[1..];
        Some(*value)
    }

    /// Reads a type.
    pub(super) fn ty(&mut self) -> Option<Type> {
        self.pick(TYPES)
    }

    /// Reads a type that must be the last word.
    pub(super) fn last_ty(&mut self) -> Option<Type> {
        let ty = self.ty()?;
        self.end().then_some(ty)
    }

    /// True if one of these is among the words.
    pub(super) fn names(&self, words: &[&str]) -> bool {
        self.0.iter().any(|word| words.contains(word))
    }

    /// True if nothing is left.
    pub(super) fn end(&self) -> bool {
        self.0.is_empty()
    }
}

/// A type's word.
pub(super) fn name(ty: Type) -> Option<&'static str> {
    TYPES.iter().find(|(_, t)| *t == ty).map(|(word, _)| *word)
}

const TYPES: &[(&str, Type)] = &[
    ("b16", Type::B16),
    ("b32", Type::B32),
    ("b64", Type::B64),
    ("u8", Type::U8),
    ("u16", Type::U16),
    ("u32", Type::U32),
    ("u64", Type::U64),
    ("s8", Type::S8),
    ("s16", Type::S16),
    ("s32", Type::S32),
    ("s64", Type::S64),
    ("f16", Type::F16),
    ("f16x2", Type::F16x2),
    ("bf16", Type::Bf16),
    ("bf16x2", Type::Bf16x2),
    ("f32", Type::F32),
    ("f32x2", Type::F32x2),
    ("f64", Type::F64),
    ("tf32", Type::Tf32),
    ("e4m3x2", Type::E4m3x2),
    ("e5m2x2", Type::E5m2x2),
];
