//! The operations by which reductions combine elements.

use crate::{BinaryOp, DType};

/// A row of [`ReduceOp`].
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    /// In kernels and in the text forms.
    pub name: &'static str,
    /// What two elements become.
    pub combine: BinaryOp,
    /// The name of the scan: what each element and those before it become.
    pub scan: &'static str,
    /// The name of the element-wise operation of two tiles, if it has the reduction's name.
    pub elementwise: Option<BinaryOp>,
}

table! {
    /// The operation by which a reduction combines elements.
    ReduceOp: Reduction {
        /// Sum, accumulated in [`DType::accumulator`].
        Sum = Reduction { name: "sum", combine: BinaryOp::Add, scan: "cumsum", elementwise: None },
        /// Maximum. NaN propagates.
        Max = Reduction { name: "max", combine: BinaryOp::Max, scan: "cummax", elementwise: Some(BinaryOp::Max) },
        /// Minimum. NaN propagates.
        Min = Reduction { name: "min", combine: BinaryOp::Min, scan: "cummin", elementwise: Some(BinaryOp::Min) },
    }
}

impl ReduceOp {
    /// What two elements become.
    pub const fn combine(self) -> BinaryOp {
        self.row().combine
    }

    /// The name of the scan that combines by it, such as `cumsum`.
    pub const fn scan_name(self) -> &'static str {
        self.row().scan
    }

    /// The operation of a scan's name.
    pub fn of_scan(name: &str) -> Option<ReduceOp> {
        ReduceOp::ALL.iter().copied().find(|op| op.scan_name() == name)
    }

    /// The neutral element of the reduction, and the result of a reduction of nothing.
    pub fn neutral(self, dtype: DType) -> f64 {
        match (self, dtype) {
            (ReduceOp::Sum, _) => 0.0,
            (ReduceOp::Max, DType::I32) => f64::from(i32::MIN),
            (ReduceOp::Min, DType::I32) => f64::from(i32::MAX),
            (ReduceOp::Max, DType::I64) => i64::MIN as f64,
            // The nearest number of f64; a conversion to i64 gives the greatest.
            (ReduceOp::Min, DType::I64) => i64::MAX as f64,
            (ReduceOp::Max, _) => f64::NEG_INFINITY,
            (ReduceOp::Min, _) => f64::INFINITY,
        }
    }
}
