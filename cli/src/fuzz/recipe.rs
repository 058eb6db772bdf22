//! A random kernel and its problem as a small tree. Tile IR is built from it, and it can be shrunk.
//!
//! Extents, dims, parameters and variables are indices into tables. So one change of a table changes the whole kernel,
//! and most changes leave it well formed. Nothing is checked here: an ill-formed recipe fails to build.

use atlas_dsl::op::{BinaryOp, Precision, Predicate, ReduceOp, UnaryOp, Update};
use atlas_dsl::{DType, Schedule};

/// An extent, as a row of [`Recipe::extents`]; row 0 is 1.
pub(super) type Ext = usize;
/// A variable. Names are never used twice.
pub(super) type Name = usize;

/// The extent of one element.
pub(super) const ONE: Ext = 0;
/// The values of the constant table.
pub(super) const TABLE: [f32; 4] = [0.5, -1.25, 2.0, 0.75];

/// A kernel, its problem and its schedule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recipe {
    /// Extents of tiles.
    pub(super) extents: Vec<u32>,
    pub(super) dims: Vec<DimRecipe>,
    pub(super) params: Vec<ParamRecipe>,
    pub(super) grid: Vec<GridRecipe>,
    pub(super) body: Vec<Stmt>,
    pub(super) schedule: Schedule,
    /// The seed of the arguments' values.
    pub(super) seed: u64,
}

/// A dim, and the extent of its tiles.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DimRecipe {
    /// The size of a dim that is not a constant.
    pub(super) size: u64,
    /// Whether it is a constant of the specialization, of the size of one tile.
    pub(super) whole: bool,
    pub(super) tile: Ext,
}

/// A parameter and its argument.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ParamRecipe {
    Tensor { dtype: DType, dims: Vec<usize>, out: bool, view: View, fill: Fill },
    Scalar { dtype: DType, value: f64 },
}

/// The layout of a tensor in its buffer. The default is contiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct View {
    /// Elements before the first one.
    pub(super) offset: u32,
    /// Padding elements after each row.
    pub(super) pad: u32,
    /// Only every second element is used.
    pub(super) spread: bool,
    /// The first axis is innermost.
    pub(super) reversed: bool,
    /// All indices of the first axis share one row.
    pub(super) expanded: bool,
}

/// The values of an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fill {
    /// 1 everywhere.
    Ones,
    /// Multiples of 1/4 below 4, whose sums are exact.
    Quarters,
    /// Any number between -2 and 2.
    Uniform,
    /// Numbers above 0.
    Positive,
    /// Numbers above 1.
    Large,
    /// Quarters, with some infinities, NaNs, large and tiny numbers among them.
    Wild,
}

/// An axis of the grid. Its coordinate is the variable with the same index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum GridRecipe {
    Points(usize),
    Tiles(usize),
    /// Tiles up to the previous coordinate, which counts the same dim.
    UpTo(usize),
}

impl GridRecipe {
    pub(super) fn dim(self) -> usize {
        match self {
            GridRecipe::Points(d) | GridRecipe::Tiles(d) | GridRecipe::UpTo(d) => d,
        }
    }
}

/// One axis of an access.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cut {
    At(Expr),
    Tile(Expr, Ext),
    Span(Expr, Ext),
    /// Places, one for each element of the axis.
    Gather(Expr),
    Whole,
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Var(Name),
    Splat(f64, DType, Vec<Ext>),
    Iota(Vec<Ext>, u8),
    /// An extent, as a number.
    Extent(Ext),
    /// The size of a dim.
    Size(usize),
    /// The number of tiles of a dim.
    Tiles(usize),
    Scalar(usize),
    /// An element of [`TABLE`], with the index taken modulo its length.
    Table(Box<Expr>),
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<[Expr; 2]>),
    Compare(Predicate, Box<[Expr; 2]>),
    Select(Box<[Expr; 3]>),
    /// `a * b + c`, rounded once.
    Fma(Box<[Expr; 3]>),
    Cast(DType, Box<Expr>),
    /// A tile, and the value of its invalid elements.
    Other(f64, Box<Expr>),
    Broadcast(Box<Expr>, Vec<Ext>),
    /// A tile, and for each axis of the result the axis of the tile that it comes from.
    Reshape(Box<Expr>, Vec<Option<u8>>),
    Transpose(Box<Expr>),
    Reduce(ReduceOp, Box<Expr>, Vec<u8>),
    Scan {
        op: ReduceOp,
        of: Box<Expr>,
        axis: u8,
        reverse: bool,
    },
    /// Two factors and an optional addend.
    Dot {
        factors: Box<[Expr; 2]>,
        acc: Option<Box<Expr>>,
        precision: Precision,
    },
    Load(usize, Vec<Cut>),
}

/// A value that a loop carries.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Carried {
    /// The name in the loop's body.
    pub(super) inner: Name,
    /// The name after the loop.
    pub(super) outer: Name,
    pub(super) init: Expr,
    pub(super) next: Expr,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stmt {
    Let(Name, Expr),
    Store(Update, usize, Vec<Cut>, Expr),
    Loop(Box<Loop>),
}

/// A loop.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loop {
    pub(super) pipeline: bool,
    pub(super) lo: Expr,
    pub(super) hi: Expr,
    pub(super) index: Name,
    pub(super) carried: Vec<Carried>,
    pub(super) body: Vec<Stmt>,
}

impl Recipe {
    /// The size of a dim.
    pub(super) fn size(&self, dim: usize) -> u64 {
        let d = &self.dims[dim];
        if d.whole { u64::from(self.extents[d.tile]) } else { d.size }
    }

    /// The extents of a shape.
    pub(super) fn shape(&self, shape: &[Ext]) -> Vec<u32> {
        shape.iter().map(|&e| self.extents[e]).collect()
    }
}

impl Expr {
    pub(super) fn binary(op: BinaryOp, a: Expr, b: Expr) -> Expr {
        Expr::Binary(op, Box::new([a, b]))
    }

    pub(super) fn unary(op: UnaryOp, a: Expr) -> Expr {
        Expr::Unary(op, Box::new(a))
    }

    pub(super) fn cast(dtype: DType, a: Expr) -> Expr {
        Expr::Cast(dtype, Box::new(a))
    }

    pub(super) fn int(x: i64) -> Expr {
        Expr::Splat(x as f64, DType::I32, Vec::new())
    }

    /// The number of expressions in it, including itself.
    pub(super) fn count(&self) -> usize {
        fn of(e: &mut Expr) -> usize {
            1 + e.children_mut().into_iter().map(of).sum::<usize>()
        }
        of(&mut self.clone())
    }

    /// The direct subexpressions, including those in cuts of a load.
    pub(super) fn children_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            Expr::Var(_)
            | Expr::Splat(..)
            | Expr::Iota(..)
            | Expr::Extent(_)
            | Expr::Size(_)
            | Expr::Tiles(_)
            | Expr::Scalar(_) => Vec::new(),
            Expr::Table(a)
            | Expr::Unary(_, a)
            | Expr::Cast(_, a)
            | Expr::Other(_, a)
            | Expr::Broadcast(a, _)
            | Expr::Reshape(a, _)
            | Expr::Transpose(a)
            | Expr::Reduce(_, a, _)
            | Expr::Scan { of: a, .. } => vec![&mut **a],
            Expr::Binary(_, pair) | Expr::Compare(_, pair) => pair.iter_mut().collect(),
            Expr::Select(three) | Expr::Fma(three) => three.iter_mut().collect(),
            Expr::Dot { factors, acc, .. } => factors.iter_mut().chain(acc.as_deref_mut()).collect(),
            Expr::Load(_, cuts) => cuts.iter_mut().filter_map(Cut::expr_mut).collect(),
        }
    }
}

impl Cut {
    /// The expression of the coordinate.
    pub(super) fn expr_mut(&mut self) -> Option<&mut Expr> {
        match self {
            Cut::At(e) | Cut::Tile(e, _) | Cut::Span(e, _) | Cut::Gather(e) => Some(e),
            Cut::Whole => None,
        }
    }
}

impl Stmt {
    /// The expressions of this statement, without those of nested statements.
    pub(super) fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            Stmt::Let(_, e) => vec![e],
            Stmt::Store(_, _, cuts, e) => cuts.iter_mut().filter_map(Cut::expr_mut).chain([e]).collect(),
            Stmt::Loop(l) => {
                let carried = l.carried.iter_mut().flat_map(|c| [&mut c.init, &mut c.next]);
                [&mut l.lo, &mut l.hi].into_iter().chain(carried).collect()
            }
        }
    }
}

/// Gives every store of a tile a value for invalid elements.
pub(super) fn make_stores_valid(body: &mut [Stmt]) {
    for stmt in body {
        match stmt {
            Stmt::Store(_, param, cuts, e) if cuts.iter().any(|c| !matches!(c, Cut::At(_))) => {
                let number: f64 = [0.0, 1.0, -2.0][*param % 3];
                let value = std::mem::replace(e, Expr::int(0));
                let is_unsigned = matches!(value, Expr::Cast(dtype, _) if dtype.is_unsigned());
                *e = Expr::Other(if is_unsigned { number.abs() } else { number }, Box::new(value));
            }
            Stmt::Loop(l) => make_stores_valid(&mut l.body),
            Stmt::Store(..) | Stmt::Let(..) => {}
        }
    }
}

/// Visits every expression of some statements, outer ones before nested ones.
pub(super) fn visit_exprs(body: &mut [Stmt], f: &mut impl FnMut(&mut Expr)) {
    fn deep(e: &mut Expr, f: &mut impl FnMut(&mut Expr)) {
        f(e);
        e.children_mut().into_iter().for_each(|child| deep(child, f));
    }
    for stmt in body {
        stmt.exprs_mut().into_iter().for_each(|e| deep(e, f));
        if let Stmt::Loop(l) = stmt {
            visit_exprs(&mut l.body, f);
        }
    }
}

/// A random number generator whose sequence depends only on its seed.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(0x2545_f491_4f6c_dd1d))
    }

    /// SplitMix64.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// True in `p` of 100 cases.
    pub(super) fn percent(&mut self, p: usize) -> bool {
        self.below(100) < p
    }

    /// A random element of a list.
    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A number between 0 and 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
