//! Numbers that follow from the sizes of a kernel's dims: formulas that are built once and evaluated for each size.
//!
//! A [`SamplePoint`] gives the position of a program in the grid and the trip of each loop; a few of them represent all. An
//! expression that is not defined for some sizes (a quotient by 0, a whole number that the kernel's type cannot hold) is NaN
//! for them, and so is everything computed from it.

use super::sample_points::SamplePoint;
use atlas_dsl::DType;
use atlas_dsl::Dim;
use atlas_dsl::ir::GridExtent;
use atlas_dsl::op::{BinaryOp, Predicate};
use std::collections::HashMap;

/// An expression, by its index in [`Formulas`].
pub(crate) type Formula = u32;

/// The kind of numbers of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Numbers {
    /// Real numbers, and conditions, which are 0 or 1.
    Real,
    /// The kernel's whole numbers.
    I32,
    I64,
}

impl Numbers {
    pub(crate) fn of(dtype: DType) -> Numbers {
        match dtype {
            DType::I32 => Numbers::I32,
            DType::I64 => Numbers::I64,
            _ => Numbers::Real,
        }
    }

    /// A result; for whole numbers, its whole part. A result out of range has wrapped, and is not known.
    fn hold(self, x: f64) -> f64 {
        let least = match self {
            Numbers::Real => return x,
            Numbers::I32 => f64::from(i32::MIN),
            Numbers::I64 => i64::MIN as f64,
        };
        let x = x.trunc();
        if (least..-least).contains(&x) { x } else { f64::NAN }
    }
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Expr {
    /// A number by its bits.
    Const(u64),
    /// A program's coordinate along a grid axis, by the axis's number.
    Coordinate(u32, GridExtent),
    /// The same for the rows of a triangle, which have more columns the further down they are.
    Row(u32, GridExtent),
    /// The column of a program of a triangle, given the number of columns of its row.
    Column(u32, Formula),
    /// The index of a loop from one number to another, by its nesting depth.
    Index { depth: u32, lo: Formula, hi: Formula },
    /// Coordinates of a grid axis: a dim's size, or its number of tiles.
    Count(GridExtent),
    /// Elements of one tile that lie inside a dim, on average over its `tiles`: `len` of the `size` of each.
    Inside { dim: Dim, tiles: Formula, size: u32, len: u32 },
    /// The smaller of a dim's size and `len`.
    AtMost(Dim, u32),
    /// For whole numbers, `Div` is the whole part of the quotient.
    Binary(Numbers, BinaryOp, Formula, Formula),
    /// The number as one of these.
    Cast(Numbers, Formula),
    /// 1 if it holds, otherwise 0.
    Compare(Predicate, Formula, Formula),
    /// The second if the first is not 0, otherwise the third.
    Select(Formula, Formula, Formula),
}

/// Expressions, each after its operands and without duplicates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Formulas {
    exprs: Vec<Expr>,
    /// Only looked up, never iterated.
    places: HashMap<Expr, Formula>,
    /// Those that depend on the sample point, ascending.
    moving: Vec<Formula>,
    /// The axes and the depths of loops on which some depend, as bits. Those past the last bit share it.
    axes: u32,
    depths: u32,
}

impl Formulas {
    pub(crate) fn constant(&mut self, x: f64) -> Formula {
        self.add(Expr::Const(x.to_bits()))
    }

    pub(crate) fn coordinate(&mut self, axis: u32, extent: GridExtent) -> Formula {
        self.add(Expr::Coordinate(axis, extent))
    }

    pub(crate) fn row(&mut self, axis: u32, extent: GridExtent) -> Formula {
        self.add(Expr::Row(axis, extent))
    }

    pub(crate) fn column(&mut self, axis: u32, columns: Formula) -> Formula {
        self.add(Expr::Column(axis, columns))
    }

    pub(crate) fn index(&mut self, depth: u32, lo: Formula, hi: Formula) -> Formula {
        self.add(Expr::Index { depth, lo, hi })
    }

    /// The number of axes on which some depend, and the number of depths of loops whose indices some depend on.
    pub(crate) fn variables(&self) -> (u32, u32) {
        (self.axes.count_ones(), self.depths.count_ones())
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

    pub(crate) fn compare(&mut self, predicate: Predicate, a: Formula, b: Formula) -> Formula {
        self.add(Expr::Compare(predicate, a, b))
    }

    pub(crate) fn select(&mut self, condition: Formula, a: Formula, b: Formula) -> Formula {
        self.add(Expr::Select(condition, a, b))
    }

    pub(crate) fn cast(&mut self, to: Numbers, a: Formula) -> Formula {
        self.add(Expr::Cast(to, a))
    }

    pub(crate) fn binary(&mut self, op: BinaryOp, of: Numbers, a: Formula, b: Formula) -> Formula {
        // Of 0 and 1, the least holds if both do, and the greatest if one does.
        let op = match op {
            BinaryOp::And => BinaryOp::Min,
            BinaryOp::Or => BinaryOp::Max,
            op => op,
        };
        self.add(Expr::Binary(of, op, a, b))
    }

    pub(crate) fn product(&mut self, factors: impl IntoIterator<Item = Formula>) -> Formula {
        let one = self.constant(1.0);
        factors.into_iter().fold(one, |a, b| if a == one { b } else { self.binary(BinaryOp::Mul, Numbers::Real, a, b) })
    }

    fn add(&mut self, expr: Expr) -> Formula {
        if let Some(&place) = self.places.get(&expr) {
            return place;
        }
        let moves = |f: Formula| self.moving.binary_search(&f).is_ok();
        let depends = match expr {
            Expr::Coordinate(axis, _) | Expr::Row(axis, _) | Expr::Column(axis, _) => {
                self.axes |= bit(axis);
                true
            }
            Expr::Index { depth, .. } => {
                self.depths |= bit(depth);
                true
            }
            Expr::Const(_) | Expr::Count(_) | Expr::AtMost(..) => false,
            Expr::Inside { tiles: a, .. } | Expr::Cast(_, a) => moves(a),
            Expr::Binary(_, _, a, b) | Expr::Compare(_, a, b) => moves(a) || moves(b),
            Expr::Select(c, a, b) => moves(c) || moves(a) || moves(b),
        };
        let place = self.exprs.len() as Formula;
        self.exprs.push(expr);
        self.places.insert(expr, place);
        if depends {
            self.moving.push(place);
        }
        place
    }

    /// Adds the expressions of another list. Returns the index here of each.
    pub(crate) fn extend(&mut self, other: &Formulas) -> Vec<Formula> {
        let mut places: Vec<Formula> = Vec::with_capacity(other.exprs.len());
        for expr in &other.exprs {
            let of = |f: Formula| places[f as usize];
            let here = match *expr {
                Expr::Const(_) | Expr::Coordinate(..) | Expr::Row(..) | Expr::Count(_) | Expr::AtMost(..) => *expr,
                Expr::Column(axis, columns) => Expr::Column(axis, of(columns)),
                Expr::Index { depth, lo, hi } => Expr::Index { depth, lo: of(lo), hi: of(hi) },
                Expr::Inside { dim, tiles, size, len } => Expr::Inside { dim, tiles: of(tiles), size, len },
                Expr::Binary(numbers, op, a, b) => Expr::Binary(numbers, op, of(a), of(b)),
                Expr::Cast(numbers, a) => Expr::Cast(numbers, of(a)),
                Expr::Compare(predicate, a, b) => Expr::Compare(predicate, of(a), of(b)),
                Expr::Select(c, a, b) => Expr::Select(of(c), of(a), of(b)),
            };
            places.push(self.add(here));
        }
        places
    }

    /// The value of every expression for these sizes of the dims, in the signature's order, at a sample point.
    pub(crate) fn values(&self, dims: &[u64], place: SamplePoint) -> Vec<f64> {
        let mut values: Vec<f64> = Vec::with_capacity(self.exprs.len());
        for expr in &self.exprs {
            values.push(expr.value(&values, dims, place));
        }
        values
    }

    /// The same at another sample point, from the values at one.
    pub(crate) fn moved(&self, mut values: Vec<f64>, dims: &[u64], place: SamplePoint) -> Vec<f64> {
        for &f in &self.moving {
            values[f as usize] = self.exprs[f as usize].value(&values, dims, place);
        }
        values
    }
}

/// The bit of an axis or a depth.
fn bit(number: u32) -> u32 {
    1 << number.min(31)
}

impl Expr {
    /// Its value, given those of its operands.
    fn value(&self, values: &[f64], dims: &[u64], place: SamplePoint) -> f64 {
        let of = |f: Formula| values[f as usize];
        match *self {
            Expr::Const(bits) => f64::from_bits(bits),
            Expr::Coordinate(axis, extent) => (extent.count(dims) as f64 * place.along_axis(axis)).floor(),
            Expr::Row(axis, extent) => (extent.count(dims) as f64 * place.along_axis(axis).sqrt()).floor(),
            Expr::Column(axis, columns) => (of(columns) * place.along_axis(axis)).floor(),
            Expr::Index { depth, lo, hi } => {
                let trips = of(hi) - of(lo);
                // `max` would make 0 of what is not known.
                let trips = if trips < 0.0 { 0.0 } else { trips };
                of(lo) + (trips * place.along_loop(depth)).floor()
            }
            Expr::Count(extent) => extent.count(dims) as f64,
            Expr::Inside { dim, tiles, size, len } => {
                size_of(dim, dims) as f64 / of(tiles).max(1.0) * f64::from(len) / f64::from(size.max(1))
            }
            Expr::AtMost(dim, len) => f64::from(len).min(size_of(dim, dims) as f64),
            Expr::Binary(numbers, op, a, b) => numbers.hold(binary(op, of(a), of(b))),
            Expr::Cast(numbers, a) => numbers.hold(of(a)),
            Expr::Compare(_, a, b) if of(a).is_nan() || of(b).is_nan() => f64::NAN,
            Expr::Compare(predicate, a, b) => f64::from(u8::from(predicate.holds(&of(a), &of(b)))),
            Expr::Select(c, ..) if of(c).is_nan() => f64::NAN,
            Expr::Select(c, a, b) => of(if of(c) == 0.0 { b } else { a }),
        }
    }
}

fn binary(op: BinaryOp, a: f64, b: f64) -> f64 {
    match op {
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div if b != 0.0 => a / b,
        BinaryOp::Rem => a % b,
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::Shl if b >= 0.0 => a * b.exp2(),
        BinaryOp::Shr if b >= 0.0 => (a / b.exp2()).floor(),
        _ => f64::NAN,
    }
}

fn size_of(dim: Dim, dims: &[u64]) -> u64 {
    dims.get(dim.as_u32() as usize).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::sample_points::{SamplePoints, programs};
    use super::*;

    fn dim(n: u32) -> Dim {
        Dim::from_u32(n)
    }

    /// The values of expressions at the first sample point.
    fn at<const N: usize>(f: &Formulas, dims: &[u64], of: [Formula; N]) -> [f64; N] {
        let values = f.values(dims, SamplePoint::FIRST);
        of.map(|x| values[x as usize])
    }

    #[test]
    fn what_is_not_known_stays_so() {
        let mut f = Formulas::default();
        let n = f.size(dim(0));
        let seven = f.constant(7.0);
        let quotient = f.binary(BinaryOp::Div, Numbers::I32, seven, n);
        let least = f.binary(BinaryOp::Min, Numbers::I32, quotient, seven);
        let less = f.compare(Predicate::Lt, least, seven);
        let index = f.index(0, seven, quotient);
        let rest = f.binary(BinaryOp::Rem, Numbers::I32, seven, n);
        let either = f.select(less, rest, seven);
        assert_eq!(at(&f, &[2], [quotient, least, less, index, rest, either]), [3.0, 3.0, 1.0, 7.0, 1.0, 1.0]);
        assert_eq!(at(&f, &[1], [quotient, least, less, index, rest, either]), [7.0, 7.0, 0.0, 7.0, 0.0, 7.0]);
        assert!(at(&f, &[0], [quotient, least, less, index, rest, either]).iter().all(|x| x.is_nan()));
    }

    /// The kernel's whole numbers are truncated and wrap. Real numbers do neither.
    #[test]
    fn whole_numbers_are_those_of_i32() {
        let mut f = Formulas::default();
        let (n, seven) = (f.size(dim(0)), f.constant(7.0));
        let real = f.binary(BinaryOp::Div, Numbers::Real, n, seven);
        let back = f.binary(BinaryOp::Mul, Numbers::Real, real, seven);
        let (cut, square) = (f.cast(Numbers::I32, real), f.binary(BinaryOp::Mul, Numbers::I32, n, n));
        let wide = f.binary(BinaryOp::Mul, Numbers::I64, n, n);
        let (narrow, fourth) = (f.cast(Numbers::I32, wide), f.binary(BinaryOp::Mul, Numbers::I64, wide, wide));
        let [cut_real, back, square_of_n] = at(&f, &[20], [cut, back, square]);
        assert_eq!([cut_real, back.round(), square_of_n], [2.0, 20.0, 400.0]);
        let [cut, square] = at(&f, &[1 << 20], [cut, square]);
        assert_eq!(cut, 149_796.0);
        assert!(square.is_nan());
        let [wide, narrow, fourth] = at(&f, &[1 << 20], [wide, narrow, fourth]);
        assert_eq!(wide, f64::from(1 << 20).powi(2));
        assert!(narrow.is_nan() && fourth.is_nan());
        let bytes = f.product([n, n]);
        assert_eq!(at(&f, &[1 << 20], [bytes]), [f64::from(1 << 20).powi(2)]);
    }

    #[test]
    fn an_expression_stands_once() {
        let mut f = Formulas::default();
        let tiles = GridExtent::Tiles { dim: dim(1), size: 16 };
        assert_eq!(f.count(tiles), f.count(tiles));
        let (a, b) = (f.inside(dim(1), 16, 8), f.at_most(dim(1), 100));
        let product = f.product([a, b]);
        assert_eq!(f.product([a, b]), product);
        // 40 elements are 3 tiles of 13 1/3 elements on average, of which half are asked for.
        assert_eq!(at(&f, &[0, 40], [product])[0].round(), 267.0);
    }

    /// However few sample points there are, their mean is that of all: of coordinates, of rows of a triangle, and of loop
    /// indices.
    #[test]
    fn means_of_places_are_those_of_all() {
        let points = GridExtent::Points(dim(0));
        let mut f = Formulas::default();
        let (coordinate, row) = (f.coordinate(0, points), f.row(1, points));
        let (zero, size) = (f.constant(0.0), f.size(dim(0)));
        let index = f.index(0, zero, size);
        assert_eq!(f.variables(), (2, 1));
        assert_eq!(Formulas::default().variables(), (0, 0));
        for n in [1, 2, 3, 4, 1000] {
            let places = SamplePoints::of(f.variables());
            let means = [coordinate, row, index].map(|x| {
                let sum: f64 = programs(places).flatten().map(|p| f.values(&[n], p)[x as usize]).sum();
                sum / programs(places).flatten().count() as f64
            });
            let (last, rows) = ((n - 1) as f64, n as f64);
            // Row i has i + 1 of the n (n + 1) / 2 columns.
            let of_rows = (0..n).map(|i| (i * (i + 1)) as f64).sum::<f64>() / (rows * (rows + 1.0) / 2.0);
            for (mean, all) in means.into_iter().zip([last / 2.0, of_rows, last / 2.0]) {
                assert!((mean - all).abs() <= 0.51 + 0.01 * all, "{n}: {mean} for {all}");
            }
        }
    }

    #[test]
    fn elsewhere_only_what_depends_on_the_place_is_worked_out_again() {
        let mut f = Formulas::default();
        let (n, at) = (f.size(dim(0)), f.coordinate(0, GridExtent::Points(dim(0))));
        let product = f.product([n, at]);
        let (_, less) = (f.product([n, n]), f.compare(Predicate::Lt, product, n));
        let index = f.index(0, n, product);
        assert_eq!(f.moving, [at, product, less, index]);
        let last = programs(SamplePoints::of(f.variables())).flatten().last().unwrap();
        for n in [1, 7, 1000] {
            let first = f.values(&[n], SamplePoint::FIRST);
            assert_eq!(f.moved(first, &[n], last), f.values(&[n], last));
        }
    }

    #[test]
    fn lists_share_what_both_have() {
        let (mut f, mut g) = (Formulas::default(), Formulas::default());
        let n = f.size(dim(0));
        let seven = g.constant(7.0);
        let m = g.size(dim(0));
        let product = g.product([m, seven]);
        let places = f.extend(&g);
        assert_eq!(places[m as usize], n);
        assert_eq!(f.extend(&g), places);
        assert_eq!(at(&f, &[6], [places[product as usize]]), [42.0]);
    }
}
