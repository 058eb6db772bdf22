//! How `dot` multiplies, and kinds of loops.

/// A row that has a name and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// In kernels and in the text forms.
    pub name: &'static str,
}

const fn word(name: &'static str) -> Word {
    Word { name }
}

table! {
    /// How `dot` multiplies. The default is exact products of the operand type, accumulated in its accumulator.
    Precision: Word {
        /// f32 by FMA; f16 and bf16 on tensor cores with f32 accumulation.
        Default = word("default"),
        /// f32 operands rounded or truncated to tf32, multiplied on tensor cores.
        Tf32 = word("tf32"),
        /// f32 operands split into two bf16 each, whose products but the smallest are added.
        Bf16x3 = word("bf16x3"),
        /// f32 operands split into two tf32 each, whose products but the smallest are added.
        Tf32x3 = word("tf32x3"),
    }
}

table! {
    /// What kind of loop: both run in order; a pipeline may have its loads issued ahead.
    LoopKind: Word {
        /// A carried loop (`for step in 0..5`).
        Carried = word("loop"),
        /// A loop whose loads may run ahead (`for h in pipeline(tiles(H, BH))`).
        Pipeline = word("pipeline"),
    }
}
