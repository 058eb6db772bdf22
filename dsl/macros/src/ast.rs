//! The syntax of `atlas_kernel!`: the source as written, each node with its location.

use crate::error::SourceRange;
use atlas_vocabulary::{BinaryOp, LoopKind, Predicate, Setting};
use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use syn::{Attribute, ExprPath, Visibility};

/// One item of the macro's input.
pub(crate) enum Item {
    /// `tile fn mean_square(z) { .. }`, `device fn scan(x, N, BN) { .. }`
    TileFn(TileFnSyntax),
    /// `kernel memory_read<T: Float>(..) tune { .. } { .. }`
    Kernel(KernelSyntax),
    /// `use math::{gelu2, silu as swish};`
    Use(Vec<Import>),
}

/// A tile fn of another module, and its name here.
pub(crate) struct Import {
    pub(crate) name: Ident,
    pub(crate) path: syn::Path,
}

/// A function where it is called: by its name alone, or by a path.
#[derive(Clone)]
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

/// A function of tiles, or one of tensors.
pub(crate) struct TileFnSyntax {
    /// A `device fn`: it loads, stores and loops, and is inlined as statements.
    pub(crate) is_device: bool,
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) params: Vec<Ident>,
    pub(crate) body: Vec<StmtSyntax>,
    /// Its parameters and its body as they were written, for kernels of other modules.
    pub(crate) tokens: TokenStream,
    /// The body could not be read; it was reported.
    pub(crate) broken: bool,
}

/// A kernel.
pub(crate) struct KernelSyntax {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) types: Vec<TypeParam>,
    pub(crate) params: Vec<ParamSyntax>,
    pub(crate) tune: Vec<Knob>,
    /// `require { H % J == 0 }`
    pub(crate) requires: Vec<ExprSyntax>,
    pub(crate) body: Vec<StmtSyntax>,
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
pub(crate) struct ParamSyntax {
    pub(crate) name: Ident,
    pub(crate) kind: ParamSyntaxKind,
}

/// What a parameter is.
pub(crate) enum ParamSyntaxKind {
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
pub(crate) enum StmtSyntax {
    /// `let [mut] name [= value];`
    Let { mutable: bool, name: Ident, value: Option<ExprSyntax> },
    /// `let (a, mut b) = f(..);`
    LetMany { names: Vec<(bool, Ident)>, value: ExprSyntax },
    /// `(a, b) = f(..);`
    AssignMany { names: Vec<Ident>, value: ExprSyntax },
    /// `name = value;`, `name += value;`
    Assign { name: Ident, op: Option<BinaryOp>, op_span: Span, value: ExprSyntax },
    /// `for (g, n) in grid(G, tiles(N, BN)) { .. }`
    Grid { coords: Vec<Ident>, axes: Vec<AxisSyntax>, body: Vec<StmtSyntax>, place: SourceRange },
    /// `for i in .. { .. }`
    Loop { index: Ident, kind: LoopKind, range: RangeSyntax, body: Vec<StmtSyntax>, place: SourceRange },
    /// An expression. Only `store(..)` has an effect. `last` is set if no semicolon follows.
    Expr { value: ExprSyntax, last: bool },
}

/// One axis of the grid.
pub(crate) enum AxisSyntax {
    /// `G`
    Points(Ident),
    /// `tiles(N, BN)`
    Tiles { dim: Ident, size: ExprSyntax },
    /// `pairs(tiles(N, BN))`, with two coordinates.
    Pairs { dim: Ident, size: ExprSyntax },
    /// `cluster(tiles(N, BN))` or `cluster(N)`: the programs along the axis are a cluster.
    Cluster { dim: Ident, size: Option<ExprSyntax>, place: SourceRange },
}

/// What a loop runs over.
pub(crate) enum RangeSyntax {
    /// `tiles(H, BH)`
    Tiles { dim: Ident, size: ExprSyntax, span: Span },
    /// `lo..hi`
    Between { lo: ExprSyntax, hi: ExprSyntax },
}

/// An expression.
pub(crate) struct ExprSyntax {
    pub(crate) kind: ExprSyntaxKind,
    /// All of its tokens, for messages.
    pub(crate) place: SourceRange,
    /// The token that names the operation, for source locations.
    pub(crate) token: Span,
}

/// What an expression is.
pub(crate) enum ExprSyntaxKind {
    /// `0.5`, `1`
    Literal { value: f64, whole: bool },
    /// `xs`
    Name(Ident),
    /// `std::f32::consts::PI`, `<u32>::MAX`
    Path(ExprPath),
    /// `-x`, `!m`
    Unary(&'static str, Box<ExprSyntax>),
    /// `a + b`
    Binary(BinaryOp, Box<ExprSyntax>, Box<ExprSyntax>),
    /// `a < b`
    Compare(Predicate, Box<ExprSyntax>, Box<ExprSyntax>),
    /// `zeros::<f32>([BN, D])`
    Call { name: Ident, generics: Vec<Ident>, args: Vec<ExprSyntax> },
    /// `math::gelu2(x)`
    CallPath { of: Called, generics: Vec<Ident>, args: Vec<ExprSyntax> },
    /// `grad(f)(x)` and `jvp(f)(x, dx)`: the function and what it is given.
    Derivative { mode: Mode, of: Called, args: Vec<ExprSyntax> },
    /// `(a, b)`, what a tile fn gives back.
    Tuple(Vec<ExprSyntax>),
    /// `x.cast::<f32>()`
    Method { receiver: Box<ExprSyntax>, name: Ident, generics: Vec<Ident>, args: Vec<ExprSyntax> },
    /// `x[g, n, ..]`
    Index { base: Box<ExprSyntax>, index: Vec<ExprSyntax> },
    /// `x.T`, which is always a mistake.
    Field(Box<ExprSyntax>, Ident),
    /// `[BN, D]`
    Array(Vec<ExprSyntax>),
    /// `..`
    Whole,
    /// A mistake that was reported.
    Bad,
    /// `axis = 1`, an argument with a name.
    Named(Ident, Box<ExprSyntax>),
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

/// The attributes that may leave out what they stand before.
pub(crate) fn conditions(attrs: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attrs.iter().filter(|a| {
        let path = a.path();
        let text = || a.meta.to_token_stream().to_string();
        path.is_ident("cfg")
            || (path.is_ident("cfg_attr")
                && text().split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "cfg"))
    })
}
