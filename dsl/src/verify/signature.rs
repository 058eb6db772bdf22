//! Parameters, dims, tables and the grid.

use super::{Verifier, elements};
use crate::ir::{Access, DimSize, GridExtent, Loc, ParamKind, Stride};
use crate::types::DType;
use std::collections::BTreeSet;

/// The largest stride, in elements. No memory is larger, and addresses in bytes stay far below 2^63.
const MOST_STRIDE: u64 = 1 << 40;

impl Verifier<'_> {
    /// Parameters, dims, tables and the grid: 215 to 220 and 223 to 225.
    pub(super) fn signature(&mut self) {
        let (k, at) = (self.kernel, Loc::default());
        self.names("parameter", k.params.values().map(|p| &p.name));
        self.names("dim", k.dims.values().map(|d| &d.name));
        self.names("table", k.tables.values().map(|t| &t.name));
        self.names("kernel", [&k.name]);
        for d in k.dims.values() {
            match d.size {
                DimSize::Const(0) => self.error(218, at, format!("dim `{}` has no elements", d.name)),
                DimSize::Dynamic { divisor: 0 } => self.error(218, at, format!("dim `{}` has divisor 0", d.name)),
                _ => {}
            }
        }
        for p in k.params.values() {
            let name = &p.name;
            let (ParamKind::Scalar { dtype } | ParamKind::Tensor { dtype, .. }) = &p.kind;
            if *dtype == DType::Bool {
                self.error(223, at, format!("parameter `{name}` is bool, a type that exists inside kernels alone"));
            }
            if matches!(p.kind, ParamKind::Scalar { .. }) && dtype.is_small() {
                self.error(223, at, format!("parameter `{name}` is one number of {dtype}, a type of tensors alone"));
            }
            let ParamKind::Tensor { dims, strides, align, access, .. } = &p.kind else { continue };
            if p.kind.has_faulty_axes() {
                self.error(224, at, format!("`{name}` has axes that are not each of its {} once", dims.len()));
            }
            if strides.len() != dims.len() {
                self.error(
                    224,
                    at,
                    format!("`{name}` has rank {}, but the number of its strides is {}", dims.len(), strides.len()),
                );
            }
            for (stride, &dim) in strides.iter().zip(dims) {
                let dim = &k.dims[dim];
                if *stride == (Stride::Dynamic { divisor: 0 }) {
                    self.error(218, at, format!("the stride of `{name}` along `{}` has divisor 0", dim.name));
                }
                if let Stride::Const(n) = *stride
                    && n.unsigned_abs() > MOST_STRIDE
                {
                    let most = format!("no tensor has one of more than {MOST_STRIDE}");
                    self.error(224, at, format!("`{name}` has stride {n} along `{}`; {most}", dim.name));
                }
                if *access == Access::Out && *stride == Stride::Const(0) && dim.size != DimSize::Const(1) {
                    let message = format!("`{name}` is written, but has stride 0 along `{}`", dim.name);
                    self.error(224, at, message);
                }
            }
            if !align.is_power_of_two() || *align < dtype.bytes() {
                let message =
                    format!("`{name}` has alignment {align}; wanted a power of two from {} bytes up", dtype.bytes());
                self.error(225, at, message);
            }
        }
        for t in k.tables.values() {
            if t.shape.contains(&0) || elements(&t.shape) != t.values.len() as u64 {
                let message = format!("table `{}` of extents {:?} has {} values", t.name, t.shape, t.values.len());
                self.error(219, at, message);
            }
        }
        for (n, axis) in k.grid.iter().enumerate() {
            let GridExtent::UpTo { dim, size } = axis.extent else { continue };
            let before = n.checked_sub(1).map(|n| k.grid[n].extent);
            if n + 1 < k.grid.len() || before != Some(GridExtent::Tiles { dim, size }) {
                let name = &k.dims[dim].name;
                let message =
                    format!("`upto({name}, {size})` is the last axis of a grid, behind `tiles({name}, {size})`");
                self.error(217, at, message);
            }
        }
        self.cluster_axis();
        if k.grid.is_empty() {
            self.error(217, at, "the grid has no axis");
        }
        for axis in &k.grid {
            if axis.extent.tile() == Some(0) {
                let dim = axis.extent.dim();
                self.error(220, at, format!("the grid has tiles of 0 elements of `{}`", k.dims[dim].name));
            }
        }
    }

    fn names<'n>(&mut self, what: &str, names: impl IntoIterator<Item = &'n String>) {
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name) {
                self.error(215, Loc::default(), format!("two {what}s are called `{name}`"));
            }
            let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            if !starts || name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                self.error(216, Loc::default(), format!("the {what} name `{name}` is not a word"));
            }
        }
    }
}
