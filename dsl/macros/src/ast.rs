//! The syntax of `atlas_kernel!`: the source as written, each node with its location.

use crate::error::SourceRange;
use atlas_vocabulary::{BinaryOp, LoopKind, Predicate, Setting};
use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use syn::{Attribute, ExprPath, Visibility};

/// One item of the macro's input.
pub(crate) enum Item {
    /// `tile fn mean_square(z) { .. }`
    TileFn(TileFn),
    /// `kernel memory_read<T: Float>(..) tune { .. } { .. }`
    Kernel(Kernel),
    /// `use math::{gelu2, silu as swish};`
    Use(Vec<Import>),
}

/// A tile fn of another module, and its name here.
pub(crate) struct Import {
    pub(crate) name: Ident,
    pub(crate) path: syn::Path,
}

/// A function where it is called: by its name alone, or by a path.
pub(crate) struct Called {
    /// The last name of a path.
    pub(crate) name: Ident,
    pub(crate) path: Option<syn::Path>,
}

impl Called {
    /// A name alone.
    pub(crate) fn named(name: &Ident) -> Called {
        Called { name: name.clone(), path: None }
    }

    /// What it says, as a text: equal texts are one function.
    pub(crate) fn key(&self) -> String {
        self.path.as_ref().map_or_else(|| self.name.to_string(), path_key)
    }
}

/// A path as a text.
pub(crate) fn path_key(path: &syn::Path) -> String {
    path.to_token_stream().to_string().replace(' ', "")
}

/// A function of tiles.
pub(crate) struct TileFn {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) params: Vec<Ident>,
    pub(crate) body: Vec<Stmt>,
    /// Its parameters and its body as they were written, for kernels of other modules.
    pub(crate) tokens: TokenStream,
    /// The body could not be read; it was reported.
    pub(crate) broken: bool,
}

/// A kernel.
pub(crate) struct Kernel {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) types: Vec<TypeParam>,
    pub(crate) params: Vec<Param>,
    pub(crate) tune: Vec<Knob>,
    /// `require { H % J == 0 }`
    pub(crate) requires: Vec<Expr>,
    pub(crate) body: Vec<Stmt>,
    /// The signature or the body could not be read, and that was reported.
    pub(crate) broken: bool,
}

/// `T: Float`
pub(crate) struct TypeParam {
    pub(crate) name: Ident,
    /// `None` if no bound is written.
    pub(crate) bound: Option<Ident>,
}

/// A kernel parameter.
pub(crate) struct Param {
    pub(crate) name: Ident,
    pub(crate) kind: ParamKind,
}

/// What a parameter is.
pub(crate) enum ParamKind {
    /// `&Tensor<T, [G, N]>`, or `&mut`.
    Tensor { writable: bool, dtype: Ident, dims: Vec<Ident> },
    /// `eps: f32`
    Scalar { dtype: Ident },
}

/// `BN: [64, 128]`, `stages: 2..=4` or `order: [linear, groups(8)]`
pub(crate) struct Knob {
    pub(crate) name: Ident,
    pub(crate) values: Vec<Setting>,
}

/// A statement.
pub(crate) enum Stmt {
    /// `let [mut] name [= value];`
    Let { mutable: bool, name: Ident, value: Option<Expr> },
    /// `let (a, mut b) = f(..);`
    LetMany { names: Vec<(bool, Ident)>, value: Expr },
    /// `(a, b) = f(..);`
    AssignMany { names: Vec<Ident>, value: Expr },
    /// `name = value;`, `name += value;`
    Assign { name: Ident, op: Option<BinaryOp>, op_span: Span, value: Expr },
    /// `for (g, n) in grid(G, tiles(N, BN)) { .. }`
    Grid { coords: Vec<Ident>, axes: Vec<Axis>, body: Vec<Stmt>, place: SourceRange },
    /// `for i in .. { .. }`
    Loop { index: Ident, kind: LoopKind, range: Range, body: Vec<Stmt>, place: SourceRange },
    /// An expression. Only `store(..)` has an effect. `last` is set if no semicolon follows.
    Expr { value: Expr, last: bool },
}

/// One axis of the grid.
pub(crate) enum Axis {
    /// `G`
    Points(Ident),
    /// `tiles(N, BN)`
    Tiles { dim: Ident, size: Expr },
    /// `pairs(tiles(N, BN))`, with two coordinates.
    Pairs { dim: Ident, size: Expr },
}

/// What a loop runs over.
pub(crate) enum Range {
    /// `tiles(H, BH)`
    Tiles { dim: Ident, size: Expr, span: Span },
    /// `lo..hi`
    Between { lo: Expr, hi: Expr },
}

/// An expression.
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    /// All of its tokens, for messages.
    pub(crate) place: SourceRange,
    /// The token that names the operation, for source locations.
    pub(crate) token: Span,
}

/// What an expression is.
pub(crate) enum ExprKind {
    /// `0.5`, `1`
    Literal { value: f64, whole: bool },
    /// `xs`
    Name(Ident),
    /// `std::f32::consts::PI`, `<u32>::MAX`
    Path(ExprPath),
    /// `-x`, `!m`
    Unary(&'static str, Box<Expr>),
    /// `a + b`
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `a < b`
    Compare(Predicate, Box<Expr>, Box<Expr>),
    /// `zeros::<f32>([BN, D])`
    Call { name: Ident, generics: Vec<Ident>, args: Vec<Expr> },
    /// `math::gelu2(x)`
    CallPath { of: Called, generics: Vec<Ident>, args: Vec<Expr> },
    /// `grad(f)(x)` and `jvp(f)(x, dx)`: the function and what it is given.
    Derivative { mode: Mode, of: Called, args: Vec<Expr> },
    /// `(a, b)`, what a tile fn gives back.
    Tuple(Vec<Expr>),
    /// `x.cast::<f32>()`
    Method { receiver: Box<Expr>, name: Ident, generics: Vec<Ident>, args: Vec<Expr> },
    /// `x[g, n, ..]`
    Index { base: Box<Expr>, index: Vec<Expr> },
    /// `[BN, D]`
    Array(Vec<Expr>),
    /// `..`
    Whole,
    /// `axis = 1`, an argument with a name.
    Named(Ident, Box<Expr>),
}

/// How a function is differentiated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// `grad(f)(x, y)`
    Reverse,
    /// `jvp(f)(x, y, dx, dy)`
    Forward,
}

impl Mode {
    pub(crate) fn named(name: &str) -> Option<Mode> {
        match name {
            "grad" => Some(Mode::Reverse),
            "jvp" => Some(Mode::Forward),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Reverse => "grad",
            Mode::Forward => "jvp",
        }
    }
}
