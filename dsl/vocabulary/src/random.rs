//! Random numbers by counter: functions of kernels that the builder makes of other operations.

use crate::DType;

/// A row of [`Random`].
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// As kernels write it.
    pub name: &'static str,
    /// The element type of the result.
    pub dtype: DType,
}

const fn row(name: &'static str, dtype: DType) -> Draw {
    Draw { name, dtype }
}

table! {
    /// Functions of a seed and a counter, element by element: `uniform(seed, index)`.
    Random: Draw {
        /// 32 random bits.
        Bits = row("random_bits", DType::I32),
        /// Uniform in [0, 1).
        Uniform = row("uniform", DType::F32),
        /// Of the normal distribution with mean 0 and variance 1.
        Normal = row("normal", DType::F32),
    }
}
