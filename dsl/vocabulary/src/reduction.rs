//! The operations by which reductions, and stores to the same element, combine.

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

/// A row of [`Update`].
#[derive(Clone, Copy, Debug)]
pub struct Updating {
    /// In the text forms.
    pub name: &'static str,
    /// The statement of kernels.
    pub statement: &'static str,
    /// What the element that is there and the one that is stored become; `None` if it is replaced.
    pub combine: Option<BinaryOp>,
}

table! {
    /// What a store makes of the element that is there.
    Update: Updating {
        /// It is replaced.
        Replace = Updating { name: "store", statement: "store", combine: None },
        /// It is replaced, and no other store of the launch reaches it, as the kernel's author says.
        Disjoint = Updating { name: "disjoint", statement: "store_disjoint", combine: None },
        /// It is added to, atomically. Each addition rounds to the tensor's element type.
        Add = Updating { name: "add", statement: "atomic_add", combine: Some(BinaryOp::Add) },
        /// It becomes the greater one, atomically. NaN stays.
        Max = Updating { name: "max", statement: "atomic_max", combine: Some(BinaryOp::Max) },
        /// It becomes the less one, atomically. NaN stays.
        Min = Updating { name: "min", statement: "atomic_min", combine: Some(BinaryOp::Min) },
    }
}

impl Update {
    /// What the element that is there and the one that is stored become; `None` if it is replaced.
    pub const fn combine(self) -> Option<BinaryOp> {
        self.row().combine
    }

    /// True if other stores may reach the same element.
    pub const fn is_atomic(self) -> bool {
        self.combine().is_some()
    }

    /// True if the index may be any: without coordinates of the grid, and with a tile of places. What other programs store is no matter
    /// then, or is the author's.
    pub const fn is_free(self) -> bool {
        !matches!(self, Update::Replace)
    }

    /// The statement of kernels that stores so, such as `atomic_add`.
    pub const fn statement(self) -> &'static str {
        self.row().statement
    }

    /// The update of a statement's name.
    pub fn of_statement(name: &str) -> Option<Update> {
        Update::ALL.iter().copied().find(|u| u.statement() == name)
    }

    /// The element that changes nothing. A store that replaces writes 0 where nothing is valid.
    pub fn neutral(self, dtype: DType) -> f64 {
        match self {
            Update::Replace | Update::Disjoint | Update::Add => 0.0,
            Update::Max => ReduceOp::Max.neutral(dtype),
            Update::Min => ReduceOp::Min.neutral(dtype),
        }
    }

    /// True if the result depends on the order of the stores: sums that round.
    pub const fn depends_on_order(self, dtype: DType) -> bool {
        matches!(self, Update::Add) && dtype.is_float()
    }
}
