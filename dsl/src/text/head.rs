//! The tables at the head of both text forms, written and read: parameters, dims, constants, and the grid's extents.
//!
//! ```text
//!   %x: bf16[M, D] strides [64, 1] align 16,
//!   %y: out bf16[M, D] strides [64, 1] align 16,
//! )
//! dims M: ?1, D = 64
//! table @COEF: f32[3] = [1.0, 0.5, 0.25]
//! ```
//!
//! Tensors without `strides` are contiguous. Tensors without `align` are aligned to 16 bytes.

use super::{Cursor, Name, Token, TokenKind as T, commas, float_text};
use crate::diag::Diagnostic;
use crate::entity::{Dim, Param, Table};
use crate::ir::{Access, DimData, DimSize, GridExtent, Kernel, ParamData, ParamKind, Stride, TableData};
use crate::specialization::{DimFact, Specialization};
use crate::types::DType;
use cranelift_entity::{EntityRef, PrimaryMap};
use std::fmt::{self, Display, Formatter, Write};

/// The parsed item, or the error.
pub type Parsed<X> = Result<X, Diagnostic>;

/// The tables of a kernel.
#[derive(Clone, Copy)]
pub struct Head<'k> {
    /// Parameters.
    pub params: &'k PrimaryMap<Param, ParamData>,
    /// Dims.
    pub dims: &'k PrimaryMap<Dim, DimData>,
    /// Constant tables.
    pub tables: &'k PrimaryMap<Table, TableData>,
}

impl<'k> Head<'k> {
    /// A dim's name.
    pub fn dim(self, d: Dim) -> Name<'k> {
        Name(self.dims.get(d).map(|d| d.name.as_str()), d.index())
    }

    /// A parameter's name.
    pub fn param(self, p: Param) -> Name<'k> {
        Name(self.params.get(p).map(|p| p.name.as_str()), p.index())
    }

    /// A table's name.
    pub fn table(self, t: Table) -> Name<'k> {
        Name(self.tables.get(t).map(|t| t.name.as_str()), t.index())
    }

    /// The whole head after the opening parenthesis of the parameters.
    pub fn write(self, f: &mut Formatter<'_>) -> fmt::Result {
        for p in self.params.values() {
            write!(f, "\n  %{}: ", p.name)?;
            match &p.kind {
                ParamKind::Scalar { dtype } => write!(f, "{dtype}")?,
                ParamKind::Tensor { dtype, dims, strides, axes, align, access } => {
                    if *access == Access::Out {
                        f.write_str("out ")?;
                    }
                    write!(f, "{dtype}[")?;
                    commas(f, dims, |f, &d| self.dim(d).fmt(f))?;
                    f.write_str("] strides [")?;
                    commas(f, strides, |f, s| match s {
                        Stride::Const(n) => write!(f, "{n}"),
                        Stride::Dynamic { divisor } => write!(f, "?{divisor}"),
                    })?;
                    f.write_char(']')?;
                    if !axes.is_empty() {
                        f.write_str(" axes [")?;
                        commas(f, axes, |f, axis| write!(f, "{axis}"))?;
                        f.write_char(']')?;
                    }
                    write!(f, " align {align}")?;
                }
            }
            f.write_char(',')?;
        }
        f.write_str(if self.params.is_empty() { ")\n" } else { "\n)\n" })?;
        if !self.dims.is_empty() {
            f.write_str("dims ")?;
            commas(f, self.dims.values(), |f, d| match d.size {
                DimSize::Const(n) => write!(f, "{} = {n}", d.name),
                DimSize::Dynamic { divisor } => write!(f, "{}: ?{divisor}", d.name),
            })?;
            f.write_char('\n')?;
        }
        for t in self.tables.values() {
            write!(f, "table @{}: f32{:?} = [", t.name, t.shape)?;
            commas(f, &t.values, |f, x| f.write_str(&float_text(x)))?;
            f.write_str("]\n")?;
        }
        Ok(())
    }

    /// `(G, tiles(N, 64))`.
    pub fn write_extents(self, f: &mut Formatter<'_>, extents: impl IntoIterator<Item = GridExtent>) -> fmt::Result {
        f.write_char('(')?;
        commas(f, extents, |f, extent| match extent {
            GridExtent::Points(d) => self.dim(d).fmt(f),
            GridExtent::Tiles { dim, size } => write!(f, "tiles({}, {size})", self.dim(dim)),
            GridExtent::UpTo { dim, size } => write!(f, "upto({}, {size})", self.dim(dim)),
        })?;
        f.write_char(')')
    }
}

impl Kernel {
    /// The tables with which the text of a kernel begins.
    pub fn head(&self) -> Head<'_> {
        Head { params: &self.params, dims: &self.dims, tables: &self.tables }
    }
}

/// The tables of a kernel that is being read.
pub struct HeadMut<'k> {
    /// Parameters.
    pub params: &'k mut PrimaryMap<Param, ParamData>,
    /// Dims.
    pub dims: &'k mut PrimaryMap<Dim, DimData>,
    /// Constant tables.
    pub tables: &'k mut PrimaryMap<Table, TableData>,
}

impl HeadMut<'_> {
    /// The whole head after the opening parenthesis of the parameters.
    pub fn read(self, text: &mut Cursor<'_>) -> Parsed<()> {
        let params = text.list(T::RParen, param)?;
        if text.eat_word("dims") {
            loop {
                self.dims.push(dim(text)?);
                if !text.eat(T::Comma) {
                    break;
                }
            }
        }
        for p in params {
            self.params.push(p.resolve(self.dims)?);
        }
        while text.eat_word("table") {
            self.tables.push(table(text)?);
        }
        Ok(())
    }
}

/// The text of one parameter, before the dims are known.
struct ParamText<'s> {
    name: Token<'s>,
    dtype: DType,
    /// `None` for a scalar.
    tensor: Option<TensorText<'s>>,
}

struct TensorText<'s> {
    access: Access,
    dims: Vec<Token<'s>>,
    /// `None` for the strides of a contiguous tensor.
    strides: Option<Vec<Stride>>,
    axes: Vec<u8>,
    align: u32,
}

impl ParamText<'_> {
    fn resolve(self, known: &PrimaryMap<Dim, DimData>) -> Parsed<ParamData> {
        let (name, dtype) = (self.name.name().to_owned(), self.dtype);
        let Some(t) = self.tensor else {
            return Ok(ParamData { name, kind: ParamKind::Scalar { dtype } });
        };
        let dims = t.dims.into_iter().map(|d| find_dim(known, d)).collect::<Parsed<Vec<Dim>>>()?;
        let strides = t.strides.unwrap_or_else(|| {
            let fact = |&d: &Dim| match known[d].size {
                DimSize::Const(n) => DimFact::Const(n),
                DimSize::Dynamic { divisor } => DimFact::Dynamic(divisor),
            };
            let facts: Vec<DimFact> = dims.iter().map(fact).collect();
            Specialization::contiguous_strides(&facts).into_iter().map(Stride::from).collect()
        });
        let kind = ParamKind::Tensor { dtype, dims, strides, axes: t.axes, align: t.align, access: t.access };
        Ok(ParamData { name, kind })
    }
}

/// `%x: out bf16[N, D] strides [?8, 1] align 16` or `%eps: f32`.
fn param<'s>(text: &mut Cursor<'s>) -> Parsed<ParamText<'s>> {
    let name = text.expect(T::Value)?;
    text.expect(T::Colon)?;
    let access = if text.eat_word("out") { Access::Out } else { Access::In };
    let dtype = dtype(text)?;
    if !text.eat(T::LBracket) {
        if access == Access::Out {
            return Err(text.expected("`[`, since a scalar is never `out`"));
        }
        return Ok(ParamText { name, dtype, tensor: None });
    }
    let dims = text.list(T::RBracket, |t| t.expect(T::Ident))?;
    let mut strides = None;
    if text.eat_word("strides") {
        text.expect(T::LBracket)?;
        strides = Some(text.list(T::RBracket, |t| {
            Ok(if t.eat(T::Question) { Stride::Dynamic { divisor: t.int()? } } else { Stride::Const(t.signed_int()?) })
        })?);
    }
    let mut axes = Vec::new();
    if text.eat_word("axes") {
        text.expect(T::LBracket)?;
        axes = text.list(T::RBracket, Cursor::int)?;
    }
    let align = if text.eat_word("align") { text.int()? } else { 16 };
    Ok(ParamText { name, dtype, tensor: Some(TensorText { access, dims, strides, axes, align }) })
}

/// `N: ?16` or `D = 64`.
fn dim(text: &mut Cursor<'_>) -> Parsed<DimData> {
    let name = text.expect(T::Ident)?.text.to_owned();
    let size = if text.eat(T::Equals) {
        DimSize::Const(text.int()?)
    } else if text.eat(T::Colon) {
        text.expect(T::Question)?;
        DimSize::Dynamic { divisor: text.int()? }
    } else {
        return Err(text.expected("`: ?` and a divisor, or `=` and a size"));
    };
    Ok(DimData { name, size })
}

/// `@COEF: f32[5, 3] = [..]`.
fn table(text: &mut Cursor<'_>) -> Parsed<TableData> {
    let name = text.expect(T::Symbol)?.name().to_owned();
    text.expect(T::Colon)?;
    text.expect_word("f32")?;
    text.expect(T::LBracket)?;
    let shape = text.list(T::RBracket, Cursor::int)?;
    text.expect(T::Equals)?;
    text.expect(T::LBracket)?;
    let values = text.list(T::RBracket, Cursor::float)?;
    Ok(TableData { name, shape, values })
}

/// An element type.
pub fn dtype(text: &mut Cursor<'_>) -> Parsed<DType> {
    let dtype = DType::from_name(text.peek().text).ok_or_else(|| text.expected("an element type"))?;
    text.next();
    Ok(dtype)
}

impl Head<'_> {
    /// The name of a dim.
    pub fn read_dim(self, text: &mut Cursor<'_>) -> Parsed<Dim> {
        find_dim(self.dims, text.expect(T::Ident)?)
    }

    /// `(N, 64)`, after the word `tiles`.
    pub fn read_tiles(self, text: &mut Cursor<'_>) -> Parsed<(Dim, u32)> {
        text.expect(T::LParen)?;
        let dim = self.read_dim(text)?;
        text.expect(T::Comma)?;
        let size = text.int()?;
        text.expect(T::RParen)?;
        Ok((dim, size))
    }

    /// `(G, tiles(N, 64))`.
    pub fn read_extents(self, text: &mut Cursor<'_>) -> Parsed<Vec<GridExtent>> {
        text.expect(T::LParen)?;
        text.list(T::RParen, |t| {
            if t.at_word("tiles") && t.peek_nth(1).kind == T::LParen {
                t.next();
                let (dim, size) = self.read_tiles(t)?;
                return Ok(GridExtent::Tiles { dim, size });
            }
            if t.at_word("upto") && t.peek_nth(1).kind == T::LParen {
                t.next();
                let (dim, size) = self.read_tiles(t)?;
                return Ok(GridExtent::UpTo { dim, size });
            }
            Ok(GridExtent::Points(self.read_dim(t)?))
        })
    }

    /// The name of a parameter.
    pub fn read_param(self, text: &mut Cursor<'_>) -> Parsed<Param> {
        let name = text.expect(T::Value)?;
        let found = self.params.iter().find(|(_, p)| p.name == name.name());
        found.map(|(p, _)| p).ok_or_else(|| Diagnostic::new(3, name.loc, format!("no parameter is called {name}")))
    }

    /// The name of a table.
    pub fn read_table(self, text: &mut Cursor<'_>) -> Parsed<Table> {
        let name = text.expect(T::Symbol)?;
        let found = self.tables.iter().find(|(_, t)| t.name == name.name());
        found.map(|(t, _)| t).ok_or_else(|| Diagnostic::new(3, name.loc, format!("no table is called {name}")))
    }
}

fn find_dim(dims: &PrimaryMap<Dim, DimData>, name: Token<'_>) -> Parsed<Dim> {
    let found = dims.iter().find(|(_, d)| d.name == name.text);
    found.map(|(d, _)| d).ok_or_else(|| Diagnostic::new(3, name.loc, format!("no dim is called {name}")))
}
