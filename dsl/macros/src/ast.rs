//! The syntax of `atlas_kernel!`: what was written, each node with its place.

use crate::error::Place;
use proc_macro2::{Ident, Span};
use syn::{Attribute, Path, Visibility};

/// One item of the macro's input.
pub(crate) enum Item {
    /// `tile fn gelu(z) { .. }`
    TileFn(TileFn),
    /// `kernel memory_read<T: Float>(..) tune { .. } { .. }`
    Kernel(Kernel),
}

/// A function of tiles.
pub(crate) struct TileFn {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) params: Vec<Ident>,
    pub(crate) body: Vec<Stmt>,
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
    pub(crate) body: Vec<Stmt>,
    /// The signature or the body could not be read; it was reported.
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

/// `BN: [64, 128]` or `stages: 2..=4`
pub(crate) struct Knob {
    pub(crate) name: Ident,
    pub(crate) values: Vec<u32>,
}

/// A statement.
pub(crate) enum Stmt {
    /// `let [mut] name [= value];`
    Let { mutable: bool, name: Ident, value: Option<Expr> },
    /// `name = value;`, `name += value;`
    Assign { name: Ident, op: Option<BinaryOp>, op_span: Span, value: Expr },
    /// `for (g, n) in grid(G, tiles(N, BN)) { .. }`
    Grid { coords: Vec<Ident>, axes: Vec<Axis>, body: Vec<Stmt>, place: Place },
    /// `for i in .. { .. }`
    Loop { index: Ident, kind: LoopKind, range: Range, body: Vec<Stmt>, place: Place },
    /// An expression; only `store(..)` does something. `last` if no semicolon follows.
    Expr { value: Expr, last: bool },
}

/// One axis of the grid.
pub(crate) enum Axis {
    /// `G`
    Points(Ident),
    /// `tiles(N, BN)`
    Tiles { dim: Ident, size: Expr },
}

/// What a loop runs over.
pub(crate) enum Range {
    /// `tiles(H, BH)`
    Tiles { dim: Ident, size: Expr, span: Span },
    /// `lo..hi`
    Between { lo: Expr, hi: Expr },
}

/// Whether loads may run ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopKind {
    Carried,
    Pipeline,
}

/// An expression.
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    /// All of its tokens, for messages.
    pub(crate) place: Place,
    /// The token that names the operation, for source locations.
    pub(crate) token: Span,
}

/// What an expression is.
pub(crate) enum ExprKind {
    /// `0.5`, `1`
    Literal { value: f64, whole: bool },
    /// `xs`
    Name(Ident),
    /// `std::f32::consts::PI`
    Path(Path),
    /// `-x`, `!m`
    Unary(&'static str, Box<Expr>),
    /// `a + b`
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `a < b`
    Compare(Predicate, Box<Expr>, Box<Expr>),
    /// `zeros::<f32>([BN, D])`
    Call { name: Ident, generics: Vec<Ident>, args: Vec<Expr> },
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

/// Declares an operation enum with its spelling in kernels and its variant in emitted code.
macro_rules! spelled {
    ($(#[$m:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($variant),+ }
        impl $name {
            /// As users write it.
            pub(crate) fn text(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
            /// The name of the variant.
            pub(crate) fn variant(self) -> Ident {
                let name = match self { $($name::$variant => stringify!($variant)),+ };
                Ident::new(name, Span::call_site())
            }
            /// Every variant.
            pub(crate) const ALL: &'static [$name] = &[$($name::$variant),+];
            /// The inverse of `text`.
            pub(crate) fn from_text(text: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|v| v.text() == text)
            }
        }
    };
}

spelled! {
    /// Element-wise operations of one operand.
    UnaryOp {
        Neg = "-", Not = "!", Abs = "abs", Exp = "exp", Exp2 = "exp2", Log = "log", Tanh = "tanh", Erf = "erf",
        Sqrt = "sqrt", Rsqrt = "rsqrt", Sin = "sin", Cos = "cos", Sigmoid = "sigmoid",
    }
}
spelled! {
    /// Element-wise operations of two operands.
    BinaryOp {
        Add = "+", Sub = "-", Mul = "*", Div = "/", Rem = "%", And = "&&", Or = "||", Min = "min", Max = "max",
    }
}
spelled! {
    /// Comparisons.
    Predicate { Eq = "==", Ne = "!=", Lt = "<", Le = "<=", Gt = ">", Ge = ">=" }
}
spelled! {
    /// What a reduction folds with.
    ReduceOp { Sum = "sum", Max = "max", Min = "min" }
}
spelled! {
    /// How `dot` multiplies.
    Precision { Default = "default", Tf32 = "tf32" }
}
spelled! {
    /// Element types.
    DType { Bool = "bool", I32 = "i32", I64 = "i64", F16 = "f16", Bf16 = "bf16", F32 = "f32", F64 = "f64" }
}

impl DType {
    /// True for f16, bf16, f32 and f64.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16 | DType::F32 | DType::F64)
    }

    /// True for i32 and i64.
    pub(crate) fn is_int(self) -> bool {
        matches!(self, DType::I32 | DType::I64)
    }
}
