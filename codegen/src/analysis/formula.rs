//! Numbers that follow from the sizes of a kernel's dims: written down once, worked out for each size.
//!
//! An expression that is not known for some sizes (a quotient by 0) is NaN for them, and so is all that is made of it.

use atlas_dsl::Dim;
use atlas_dsl::ir::GridExtent;
use atlas_dsl::op::BinaryOp;
use std::collections::HashMap;

/// An expression, by its place in [`Formulas`].
pub(crate) type Formula = u32;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Expr {
    /// A number by its bits.
    Const(u64),
    /// The coordinate along a grid axis of a program at a position from 0 to 1.
    Coordinate(GridExtent),
    /// Coordinates of a grid axis: a dim's size, or its number of tiles.
    Count(GridExtent),
    /// Elements of one tile that lie inside a dim, on average over its `tiles`: `len` of the `size` of each.
    Inside { dim: Dim, tiles: Formula, size: u32, len: u32 },
    /// A dim's size, or `len` if that is less.
    AtMost(Dim, u32),
    /// `Div` is the quotient of integers.
    Binary(BinaryOp, Formula, Formula),
    /// 1 if the first is less, else 0.
    Less(Formula, Formula),
}

/// Expressions, each after its operands; none stands here twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Formulas {
    exprs: Vec<Expr>,
    /// Only looked up, never iterated.
    places: HashMap<Expr, Formula>,
    /// Those that depend on where a program stands, rising.
    moving: Vec<Formula>,
}

impl Formulas {
    pub(crate) fn constant(&mut self, x: f64) -> Formula {
        self.add(Expr::Const(x.to_bits()))
    }

    pub(crate) fn coordinate(&mut self, extent: GridExtent) -> Formula {
        self.add(Expr::Coordinate(extent))
    }

    /// True if some number depends on where a program stands.
    pub(crate) fn has_coordinates(&self) -> bool {
        !self.moving.is_empty()
    }

    pub(crate) fn size(&mut self, dim: Dim) -> Formula {
        self.count(GridExtent::Points(dim))
    }

    pub(crate) fn count(&mut self, extent: GridExtent) -> Formula {
        self.add(Expr::Count(extent))
    }

    pub(crate) fn inside(&mut self, dim: Dim, size: u32, len: u32) -> Formula {
        let tiles = self.count(GridExtent::Tiles { dim, size });
        self.add(Expr::Inside { dim, tiles, size, len })
    }

    pub(crate) fn at_most(&mut self, dim: Dim, len: u32) -> Formula {
        self.add(Expr::AtMost(dim, len))
    }

    pub(crate) fn less(&mut self, a: Formula, b: Formula) -> Formula {
        self.add(Expr::Less(a, b))
    }

    /// `None` for an operation that no expression has.
    pub(crate) fn binary(&mut self, op: BinaryOp, a: Formula, b: Formula) -> Option<Formula> {
        use BinaryOp::{Add, And, Div, Max, Min, Mul, Or, Sub};
        // Of conditions, which are 0 or 1.
        let op = match op {
            And => Mul,
            Or => Max,
            op => op,
        };
        matches!(op, Add | Sub | Mul | Div | Min | Max).then(|| self.add(Expr::Binary(op, a, b)))
    }

    pub(crate) fn product(&mut self, factors: impl IntoIterator<Item = Formula>) -> Formula {
        let one = self.constant(1.0);
        factors.into_iter().fold(one, |a, b| if a == one { b } else { self.add(Expr::Binary(BinaryOp::Mul, a, b)) })
    }

    fn add(&mut self, expr: Expr) -> Formula {
        if let Some(&place) = self.places.get(&expr) {
            return place;
        }
        let moves = |f: Formula| self.moving.binary_search(&f).is_ok();
        let depends = match expr {
            Expr::Coordinate(_) => true,
            Expr::Const(_) | Expr::Count(_) | Expr::AtMost(..) => false,
            Expr::Inside { tiles, .. } => moves(tiles),
            Expr::Binary(_, a, b) | Expr::Less(a, b) => moves(a) || moves(b),
        };
        let place = self.exprs.len() as Formula;
        self.exprs.push(expr);
        self.places.insert(expr, place);
        if depends {
            self.moving.push(place);
        }
        place
    }

    /// Adds the expressions of another list; gives the place here of each.
    pub(crate) fn extend(&mut self, other: &Formulas) -> Vec<Formula> {
        let mut places: Vec<Formula> = Vec::with_capacity(other.exprs.len());
        for expr in &other.exprs {
            let of = |f: Formula| places[f as usize];
            let here = match *expr {
                Expr::Const(_) | Expr::Coordinate(_) | Expr::Count(_) | Expr::AtMost(..) => *expr,
                Expr::Inside { dim, tiles, size, len } => Expr::Inside { dim, tiles: of(tiles), size, len },
                Expr::Binary(op, a, b) => Expr::Binary(op, of(a), of(b)),
                Expr::Less(a, b) => Expr::Less(of(a), of(b)),
            };
            places.push(self.add(here));
        }
        places
    }

    /// The value of every expression for these sizes of the dims, in the signature's order, and a position in the grid.
    pub(crate) fn values(&self, dims: &[u64], position: f64) -> Vec<f64> {
        let mut values: Vec<f64> = Vec::with_capacity(self.exprs.len());
        for expr in &self.exprs {
            values.push(expr.value(&values, dims, position));
        }
        values
    }

    /// The same for another position, given the values for one.
    pub(crate) fn moved(&self, mut values: Vec<f64>, dims: &[u64], position: f64) -> Vec<f64> {
        for &f in &self.moving {
            values[f as usize] = self.exprs[f as usize].value(&values, dims, position);
        }
        values
    }
}

impl Expr {
    /// Its value, given those of its operands.
    fn value(&self, values: &[f64], dims: &[u64], position: f64) -> f64 {
        let of = |f: Formula| values[f as usize];
        match *self {
            Expr::Const(bits) => f64::from_bits(bits),
            Expr::Coordinate(extent) => (extent.count(dims) as f64 * position).floor(),
            Expr::Count(extent) => extent.count(dims) as f64,
            Expr::Inside { dim, tiles, size, len } => {
                size_of(dim, dims) as f64 / of(tiles).max(1.0) * f64::from(len) / f64::from(size.max(1))
            }
            Expr::AtMost(dim, len) => f64::from(len).min(size_of(dim, dims) as f64),
            Expr::Binary(op, a, b) => binary(op, of(a), of(b)),
            Expr::Less(a, b) if of(a).is_nan() || of(b).is_nan() => f64::NAN,
            Expr::Less(a, b) => f64::from(u8::from(of(a) < of(b))),
        }
    }
}

fn binary(op: BinaryOp, a: f64, b: f64) -> f64 {
    match op {
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div if b != 0.0 => (a / b).trunc(),
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        _ => f64::NAN,
    }
}

fn size_of(dim: Dim, dims: &[u64]) -> u64 {
    dims.get(dim.as_u32() as usize).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_stays_so() {
        let mut f = Formulas::default();
        let n = f.size(Dim::from_u32(0));
        let seven = f.constant(7.0);
        let quotient = f.binary(BinaryOp::Div, seven, n).unwrap();
        let least = f.binary(BinaryOp::Min, quotient, seven).unwrap();
        let less = f.less(least, seven);
        assert_eq!(f.binary(BinaryOp::Rem, seven, n), None);
        let at = |n: u64| {
            let values = f.values(&[n], 0.5);
            [quotient, least, less].map(|x| values[x as usize])
        };
        assert_eq!(at(2), [3.0, 3.0, 1.0]);
        assert_eq!(at(1), [7.0, 7.0, 0.0]);
        assert!(at(0).iter().all(|x| x.is_nan()));
    }

    #[test]
    fn an_expression_stands_once() {
        let mut f = Formulas::default();
        let dim = Dim::from_u32(1);
        let tiles = GridExtent::Tiles { dim, size: 16 };
        assert_eq!(f.count(tiles), f.count(tiles));
        let (a, b) = (f.inside(dim, 16, 8), f.at_most(dim, 100));
        let product = f.product([a, b]);
        assert_eq!(f.product([a, b]), product);
        // 40 elements are 3 tiles of 13 1/3 elements on average, of which half are asked for.
        let values = f.values(&[0, 40], 0.5);
        assert_eq!(values[product as usize].round(), 267.0);
    }

    /// However few there are, their mean is that of all.
    #[test]
    fn coordinates_are_whole() {
        let mut f = Formulas::default();
        let at = f.coordinate(GridExtent::Points(Dim::from_u32(0)));
        assert!(f.has_coordinates() && !Formulas::default().has_coordinates());
        for n in [1, 2, 3, 4, 1000] {
            let mean = [0.125, 0.375, 0.625, 0.875].map(|p| f.values(&[n], p)[at as usize]).iter().sum::<f64>() / 4.0;
            assert!((mean - (n - 1) as f64 / 2.0).abs() <= 0.5, "{n}: {mean}");
        }
    }

    #[test]
    fn elsewhere_only_what_depends_on_the_place_is_worked_out_again() {
        let mut f = Formulas::default();
        let (n, at) = (f.size(Dim::from_u32(0)), f.coordinate(GridExtent::Points(Dim::from_u32(0))));
        let product = f.product([n, at]);
        let (_, less) = (f.product([n, n]), f.less(product, n));
        assert_eq!(f.moving, [at, product, less]);
        for n in [1, 7, 1000] {
            let first = f.values(&[n], 0.125);
            assert_eq!(f.moved(first, &[n], 0.875), f.values(&[n], 0.875));
        }
    }

    #[test]
    fn lists_share_what_both_have() {
        let dim = Dim::from_u32(0);
        let (mut f, mut g) = (Formulas::default(), Formulas::default());
        let n = f.size(dim);
        let seven = g.constant(7.0);
        let m = g.size(dim);
        let product = g.product([m, seven]);
        let places = f.extend(&g);
        assert_eq!(places[m as usize], n);
        assert_eq!(f.extend(&g), places);
        let values = f.values(&[6], 0.5);
        assert_eq!(values[places[product as usize] as usize], 42.0);
    }
}
