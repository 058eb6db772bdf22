//! Resolved kernels: every name is replaced by what it refers to. `check` and `expand` read them.

use crate::ast::{self, KernelSyntax, TileFnSyntax};
use crate::error::SourceRange;
use atlas_vocabulary::{BinaryOp, DType, LoopKind, Precision, Predicate, Random, ReduceOp, UnaryOp, Update};
use proc_macro2::{Ident, Span};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use syn::ExprPath;

/// The macro's input, resolved.
pub(crate) struct File {
    pub(crate) fns: Vec<TileFn>,
    pub(crate) kernels: Vec<Kernel>,
}

/// What a call says, and the first tile fn of those that it stands for.
pub(crate) type Scope = BTreeMap<String, usize>;

/// A tile fn.
pub(crate) struct TileFn {
    pub(crate) ast: TileFnSyntax,
    /// The locals. The first ones are the parameters.
    pub(crate) locals: Vec<Local>,
    pub(crate) body: Vec<Stmt>,
    /// Its results. Those of a device fn are resolved at each call, as its body is.
    pub(crate) tail: Vec<Expr>,
    /// How many results it has.
    pub(crate) results: usize,
    /// Indices of the tile fns that it calls, with the locations of the calls.
    pub(crate) calls: Vec<(usize, Span)>,
    /// The first tile fn for each name or path that it calls.
    pub(crate) uses: BTreeMap<String, usize>,
    /// Of a device fn: what calls in its body mean.
    pub(crate) scope: Scope,
    /// The first of those that stand for each other under `cfg`s.
    pub(crate) group: usize,
    /// Where it is declared, if that is not in this input.
    pub(crate) origin: Option<Origin>,
    /// It has a mistake.
    pub(crate) broken: bool,
}

/// Where a tile fn of another module comes from.
pub(crate) struct Origin {
    /// By which it, or the one that calls it, is called here.
    pub(crate) path: syn::Path,
    /// Names the input that declares it.
    pub(crate) home: String,
    /// The path is of a device fn, which is no function of tiles: what it calls is called through it.
    pub(crate) is_through_device: bool,
}

impl TileFn {
    /// The tile fns that an index stands for: one, or those of a name under `cfg`s, of which Rust takes one.
    pub(crate) fn versions(fns: &[TileFn], index: usize) -> impl Iterator<Item = &TileFn> {
        fns.iter().filter(move |f| f.group == fns[index].group)
    }
}

/// A kernel.
pub(crate) struct Kernel {
    pub(crate) ast: KernelSyntax,
    pub(crate) params: Vec<Param>,
    pub(crate) dims: Vec<Dim>,
    pub(crate) locals: Vec<Local>,
    pub(crate) axes: Vec<Axis>,
    pub(crate) requires: Vec<Requirement>,
    pub(crate) body: Vec<Stmt>,
    /// It has a mistake, so it expands to a stub.
    pub(crate) broken: bool,
}

/// `H % J == 0`
pub(crate) struct Requirement {
    pub(crate) left: Quantity,
    pub(crate) is: Predicate,
    pub(crate) right: Quantity,
}

/// A number computed from the sizes of dims, which are indices into [`Kernel::dims`].
pub(crate) enum Quantity {
    Dim(usize),
    Number(u32),
    Of(BinaryOp, Box<[Quantity; 2]>),
}

/// A dtype in a signature or a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DTypeRef {
    Fixed(DType),
    /// The n-th type parameter.
    Generic(usize),
}

/// A kernel parameter.
pub(crate) struct Param {
    pub(crate) name: Ident,
    pub(crate) dtype: DTypeRef,
    pub(crate) kind: ParamKind,
}

/// What a parameter is; dims are indices into [`Kernel::dims`].
pub(crate) enum ParamKind {
    Tensor { writable: bool, dims: Vec<usize> },
    Scalar,
}

/// A named dim.
pub(crate) struct Dim {
    pub(crate) name: Ident,
    /// Used whole: a constant of the specialization.
    pub(crate) whole: bool,
}

/// Index into the locals of a kernel or tile fn.
pub(crate) type LocalId = usize;

/// A name that the body binds.
pub(crate) struct Local {
    pub(crate) name: Ident,
    pub(crate) kind: LocalKind,
    pub(crate) used: bool,
    pub(crate) assigned: bool,
    /// The local of the same name outside of the loop, if a `let` in a loop's body computes its value from it.
    pub(crate) hides: Option<LocalId>,
    /// The dim that it counts along, if the grid or a loop binds it.
    pub(crate) along: Option<usize>,
}

/// How a name is bound.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalKind {
    Let { mutable: bool },
    Coordinate,
    LoopIndex,
    FnParam,
}

/// One axis of the grid.
pub(crate) struct Axis {
    pub(crate) coord: LocalId,
    pub(crate) dim: usize,
    /// `None`: one program per element.
    pub(crate) size: Option<Extent>,
    /// The second of a pair, which counts tiles up to the coordinate before.
    pub(crate) up_to: bool,
    /// The programs along it are a cluster.
    pub(crate) cluster: bool,
}

/// A number of elements that is known as soon as the config is.
#[derive(Clone)]
pub(crate) enum Extent {
    Number(u32),
    Knob(usize),
    Dim(usize),
    Const(ExprPath),
    Combined(BinaryOp, Box<Extent>, Box<Extent>),
    Bad,
}

/// A statement.
pub(crate) enum Stmt {
    Let {
        local: LocalId,
        value: Expr,
    },
    Assign {
        local: LocalId,
        op: Option<BinaryOp>,
        value: Expr,
        token: Span,
    },
    /// Several names for the results of a function. `binds` is set if they are new.
    Many {
        locals: Vec<LocalId>,
        binds: bool,
        call: Expr,
    },
    Store {
        update: Update,
        param: usize,
        index: Vec<Index>,
        value: Expr,
        token: Span,
        place: SourceRange,
        /// For each axis of the place, the axis of the value, as names give it. The check fills this in if the ranks differ.
        axes: OnceCell<Vec<Option<u8>>>,
    },
    Loop(Box<Loop>),
    /// The body of a device fn, which assigns only names of its own. `call` is for messages, as are the names that tensors have
    /// in it.
    Inlined {
        call: String,
        tensors: BTreeMap<usize, String>,
        body: Vec<Stmt>,
    },
}

/// A loop.
pub(crate) struct Loop {
    pub(crate) kind: LoopKind,
    pub(crate) index: LocalId,
    pub(crate) range: Range,
    /// Outer names that the body assigns, in the order of their first assignment.
    pub(crate) carried: Vec<LocalId>,
    pub(crate) body: Vec<Stmt>,
    pub(crate) place: SourceRange,
}

/// What a loop runs over.
pub(crate) enum Range {
    Tiles { dim: usize, size: Extent, token: Span },
    Between { lo: Expr, hi: Expr },
}

impl Range {
    /// The dim whose tiles it counts.
    pub(crate) fn dim(&self) -> Option<usize> {
        match self {
            Range::Tiles { dim, .. } => Some(*dim),
            Range::Between { .. } => None,
        }
    }
}

/// One index of a load or store.
pub(crate) enum Index {
    At(Expr),
    Span { start: Expr, len: Extent },
    Whole,
}

/// A function that can be differentiated.
#[derive(Clone, Copy)]
pub(crate) enum Callee {
    /// A tile fn, by index.
    Fn(usize),
    /// A built-in function.
    Builtin(UnaryOp),
}

/// An expression.
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) place: SourceRange,
    pub(crate) token: Span,
}

/// What an expression is.
pub(crate) enum ExprKind {
    Literal {
        value: f64,
        whole: bool,
    },
    Const(ExprPath),
    Local(LocalId),
    Scalar(usize),
    Knob(usize),
    Size(usize),
    Table {
        name: ExprPath,
        indices: Vec<Expr>,
    },
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    Compare(Predicate, Box<Expr>, Box<Expr>),
    Select(Box<[Expr; 3]>),
    /// `clamp(x, lo, hi)`
    Clamp(Box<[Expr; 3]>),
    /// `fma(a, b, c)`
    Fma(Box<[Expr; 3]>),
    /// `uniform(seed, index)`
    Random(Random, Box<[Expr; 2]>),
    /// `is_nan(x)`
    IsNan(Box<Expr>),
    Cast(DTypeRef, Box<Expr>),
    /// `x.cast_like(y)`
    CastLike(Box<[Expr; 2]>),
    Transpose(Box<Expr>),
    /// `cluster_sum(x)`
    ClusterSum(Box<Expr>),
    Dot {
        operands: Box<[Expr; 2]>,
        precision: Precision,
    },
    Reduce {
        op: ReduceOp,
        value: Box<Expr>,
        axis: Option<(u8, SourceRange)>,
    },
    /// `cumsum(x, axis = 0)`
    Scan {
        op: ReduceOp,
        value: Box<Expr>,
        axis: (u8, SourceRange),
        reverse: bool,
    },
    Load {
        param: usize,
        index: Vec<Index>,
    },
    Fill {
        dtype: DTypeRef,
        shape: Vec<Extent>,
        value: Box<Expr>,
    },
    Iota {
        shape: Vec<Extent>,
        axis: (u8, SourceRange),
    },
    /// `x.or(0.0)`
    Or(Box<[Expr; 2]>),
    Broadcast {
        value: Box<Expr>,
        shape: Vec<Extent>,
    },
    CallFn {
        index: usize,
        args: Vec<Expr>,
    },
    /// The partial derivatives of a function by its arguments, or its derivative along tangents.
    Derivative {
        mode: ast::Mode,
        of: Callee,
        args: Vec<Expr>,
        /// The tangents of [`ast::Mode::Forward`], one for each argument.
        tangents: Vec<Expr>,
    },
    /// A mistake that was reported.
    Bad,
}
