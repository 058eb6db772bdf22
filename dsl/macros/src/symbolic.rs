//! Types before sizes are known: element types by type parameter, extents by name.

use crate::error::SourceRange;
use crate::tree::{DTypeRef, Extent, Kernel};
use atlas_vocabulary::{BinaryOp, DType, Setting, Takes, Update};
use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// The element type of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Elem {
    /// A number that takes the type of the other operand, with its value if it is written here.
    Literal(Option<f64>),
    Fixed(DType),
    /// A type parameter: its index and name.
    Generic(usize, String),
    /// After a mistake.
    Unknown,
}

impl Elem {
    /// The dtype that a signature or a cast names.
    pub(crate) fn of(dtype: DTypeRef, kernel: Option<&Kernel>) -> Elem {
        match dtype {
            DTypeRef::Fixed(d) => Elem::Fixed(d),
            DTypeRef::Generic(i) => Elem::Generic(i, kernel.map_or(String::new(), |k| k.ast.types[i].name.to_string())),
        }
    }

    /// True for numbers of a type that can be named.
    pub(crate) fn is_of_numbers(&self) -> bool {
        matches!(self, Elem::Fixed(d) if *d != DType::Bool) || matches!(self, Elem::Generic(..))
    }

    /// True unless it is certainly not a float.
    pub(crate) fn may_be_float(&self) -> bool {
        !matches!(self, Elem::Fixed(d) if !d.is_float())
    }

    /// True unless it is certainly not an integer.
    pub(crate) fn may_be_int(&self) -> bool {
        match self {
            Elem::Fixed(d) => d.is_int(),
            Elem::Generic(..) => false,
            Elem::Literal(_) | Elem::Unknown => true,
        }
    }

    /// True unless an operation certainly does not take it.
    pub(crate) fn may_be(&self, takes: Takes) -> bool {
        match takes {
            Takes::Bool => self.is_bool() || *self == Elem::Unknown,
            Takes::Integers => self.may_be_int(),
            Takes::Bits => self.is_bool() || self.may_be_int(),
            Takes::Floats => self.may_be_float(),
            Takes::Numbers => !self.is_bool() && !self.is_small(),
        }
    }

    /// Why a value of this type cannot be a number, if it certainly cannot.
    pub(crate) fn refuses(&self, x: f64) -> Option<String> {
        let why = match self {
            Elem::Fixed(d) if d.is_whole() && x.fract() != 0.0 => "is not a whole number",
            Elem::Fixed(DType::I64) if x.abs() >= 9_007_199_254_740_992.0 => {
                "is not known exactly: numbers are exact below 2^53"
            }
            Elem::Fixed(d) => match d.range() {
                Some((least, most)) if x < least as f64 || x > most as f64 => "is out of its range",
                _ => return d.overflow(x),
            },
            // Every type that it may be has a range within that of f32.
            Elem::Generic(..) => return DType::F32.overflow(x),
            Elem::Literal(_) | Elem::Unknown => return None,
        };
        Some(why.to_owned())
    }

    /// An order of types: a type is better converted to one that is later in the order.
    pub(crate) fn width(&self) -> u8 {
        match self {
            Elem::Literal(_) | Elem::Unknown | Elem::Fixed(DType::Bool) => 0,
            Elem::Fixed(DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2) => 1,
            Elem::Fixed(DType::I16 | DType::U16) => 2,
            Elem::Fixed(DType::I32) => 3,
            Elem::Fixed(DType::I64) => 4,
            Elem::Generic(..) | Elem::Fixed(DType::F16 | DType::Bf16) => 5,
            Elem::Fixed(DType::F32) => 6,
            Elem::Fixed(DType::F64) => 7,
        }
    }

    /// True if it is certainly a float of 8 bits.
    pub(crate) fn is_fp8(&self) -> bool {
        matches!(self, Elem::Fixed(d) if d.is_fp8())
    }

    /// True if it is certainly an integer below 32 bits or a float of 8 bits, which have no arithmetic.
    pub(crate) fn is_small(&self) -> bool {
        matches!(self, Elem::Fixed(d) if d.is_small())
    }

    /// The end of a message about an operation that takes `takes` and so not this type, if it has no arithmetic: what to write
    /// around `name`, which meets an operand of type `other`.
    pub(crate) fn small_mend(&self, name: &str, takes: Takes, other: Option<&Elem>) -> Option<String> {
        let x = if name.is_empty() { "(..)" } else { name };
        let mend = match (takes, other.filter(|other| other.may_be(takes) && other.is_of_numbers())) {
            (Takes::Bool, _) if self.is_fp8() => format!("`{x}.cast::<f32>() != 0.0`"),
            (Takes::Bool, _) => format!("`{x}.cast::<i32>() != 0`"),
            (_, Some(other)) if self.converts_to(other) => format!("`{x}.cast::<{other}>()`"),
            (Takes::Bits | Takes::Integers, _) if self.is_fp8() => format!("`{x}.cast::<f32>().cast::<i32>()`"),
            (Takes::Numbers, _) if self.is_fp8() => format!("`{x}.cast::<f32>()` or `{x}.cast::<f16>()`"),
            (Takes::Bits | Takes::Integers, _) => format!("`{x}.cast::<i32>()`"),
            (Takes::Floats, _) => format!("`{x}.cast::<f32>()`"),
            (Takes::Numbers, _) => format!("`{x}.cast::<i32>()` or `{x}.cast::<f32>()`"),
        };
        // What is underlined may be the whole operation, and the cast is of its operands.
        let around = if name.is_empty() { format!(" around what is {self}") } else { String::new() };
        self.is_small()
            .then(|| format!("; {self} is loaded, converted and stored, not computed with: write {mend}{around}"))
    }

    /// What to write in the place of a condition `name` that has this type and not bool, as the end of a message.
    pub(crate) fn compared(&self, name: &str) -> String {
        let x = if name.is_empty() { "(..)" } else { name };
        match self {
            Elem::Unknown | Elem::Literal(_) => String::new(),
            _ if self.is_fp8() => format!("; write `{x}.cast::<f32>() != 0.0`"),
            _ if self.is_small() => format!("; write `{x}.cast::<i32>() != 0`"),
            _ if self.may_be_int() => format!("; write `{x} != 0`"),
            _ => format!("; compare it, as in `{x} != 0.0`"),
        }
    }

    /// True unless there is certainly no conversion to this type.
    pub(crate) fn converts_to(&self, to: &Elem) -> bool {
        !matches!((self, to), (Elem::Fixed(a), Elem::Fixed(b)) if DType::no_conversion(*a, *b).is_some())
    }

    /// True if it is certainly bool.
    pub(crate) fn is_bool(&self) -> bool {
        *self == Elem::Fixed(DType::Bool)
    }

    /// The type in which `dot` over this type accumulates.
    pub(crate) fn accumulator(&self) -> Elem {
        match self {
            Elem::Fixed(DType::F64) => Elem::Fixed(DType::F64),
            Elem::Unknown => Elem::Unknown,
            _ => Elem::Fixed(DType::F32),
        }
    }

    /// True if a value of one type may be used where the other is wanted.
    pub(crate) fn agrees(&self, other: &Elem) -> bool {
        use Elem::{Literal, Unknown};
        matches!((self, other), (Literal(_) | Unknown, _) | (_, Literal(_) | Unknown)) || self == other
    }
}

impl Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Elem::Literal(_) => f.write_str("a number"),
            Elem::Fixed(d) => f.write_str(d.name()),
            Elem::Generic(_, name) => f.write_str(name),
            Elem::Unknown => f.write_str("?"),
        }
    }
}

/// The extent of one axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Size {
    Number(u32),
    /// A knob or a whole dim; `only` is its value if it has a single one.
    Named {
        name: String,
        only: Option<u32>,
    },
    /// A const or arithmetic, which may equal any extent.
    Open(String),
    Unknown,
}

impl Size {
    /// The size that an extent denotes.
    pub(crate) fn of(e: &Extent, kernel: Option<&Kernel>) -> Size {
        match (e, kernel) {
            (Extent::Number(n), _) => Size::Number(*n),
            (Extent::Knob(i), Some(k)) => {
                let knob = &k.ast.tune[*i];
                let only = if let [Setting::Number(n)] = knob.values[..] { Some(n) } else { None };
                Size::Named { name: knob.name.to_string(), only }
            }
            (Extent::Dim(i), Some(k)) => Size::dim(*i, k),
            (Extent::Const(path), _) => {
                Size::Open(path.path.segments.last().map_or(String::new(), |s| s.ident.to_string()))
            }
            (Extent::Combined(op, a, b), _) => {
                let side = |e: &Extent| {
                    let text = Size::of(e, kernel).to_string();
                    let loose = matches!(e, Extent::Combined(BinaryOp::Add | BinaryOp::Sub, ..));
                    if loose && *op != BinaryOp::Add { format!("({text})") } else { text }
                };
                Size::Open(format!("{} {} {}", side(a), op.text(), side(b)))
            }
            _ => Size::Unknown,
        }
    }

    /// A whole dim.
    pub(crate) fn dim(i: usize, k: &Kernel) -> Size {
        Size::Named { name: k.dims[i].name.to_string(), only: None }
    }

    /// True unless the two certainly differ in some config.
    pub(crate) fn agrees(&self, other: &Size) -> bool {
        match (self, other) {
            (Size::Unknown | Size::Open(_), _) | (_, Size::Unknown | Size::Open(_)) => true,
            // Two knobs are two sizes, though each may have one value today, and the same: they say what an axis is.
            (Size::Named { name: a, .. }, Size::Named { name: b, .. }) => a == b,
            (Size::Named { only, .. }, Size::Number(n)) | (Size::Number(n), Size::Named { only, .. }) => {
                *only == Some(*n)
            }
            (Size::Number(a), Size::Number(b)) => a == b,
        }
    }

    pub(crate) fn is_one(&self) -> bool {
        matches!(self, Size::Number(1) | Size::Named { only: Some(1), .. })
    }
}

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Number(n) => write!(f, "{n}"),
            Size::Named { name, .. } | Size::Open(name) => f.write_str(name),
            Size::Unknown => f.write_str("?"),
        }
    }
}

/// The coordinate that a scalar is, if it is one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Coordinate {
    /// As the user named it.
    pub(crate) name: String,
    /// The dim along which it counts.
    pub(crate) dim: usize,
    /// Its grid axis, if it is not a loop index.
    pub(crate) axis: Option<usize>,
    /// The size of its tiles; `None` if it counts elements.
    pub(crate) tile: Option<Size>,
}

/// A tile or a span of a dim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cut {
    /// The dim that is sliced, by index and by name.
    pub(crate) dim: usize,
    pub(crate) dim_name: String,
    /// Its start: the number of a tile, or of an element.
    pub(crate) start: Number,
    /// The number of its elements.
    pub(crate) len: Size,
    pub(crate) is_tile: bool,
}

impl Cut {
    /// True if two cuts may pick the same elements when read at one place.
    pub(crate) fn may_equal(&self, other: &Cut) -> bool {
        self.dim == other.dim
            && self.is_tile == other.is_tile
            && self.len.agrees(&other.len)
            && self.start.may_equal(&other.start)
    }
}

/// What is known of an integer scalar. Equal texts are equal numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Number {
    /// A formula that may contain coordinates and parameters.
    Formula(String),
    /// A number that is written here, or that depends only on the config and the sizes of dims.
    Sized(String),
    Unknown,
}

impl Number {
    pub(crate) fn may_equal(&self, other: &Number) -> bool {
        match (self, other) {
            (Number::Formula(a), Number::Formula(b)) => a == b,
            (Number::Formula(_), Number::Sized(_)) | (Number::Sized(_), Number::Formula(_)) => false,
            _ => true,
        }
    }

    /// The number that results from an operation on others. `formulas` numbers the formulas met so far, and a formula refers to
    /// its parts by these numbers. Spelled out, a formula that uses each of its parts twice would grow exponentially.
    pub(crate) fn made_of(op: &str, operands: &[&Number], formulas: &mut BTreeMap<String, usize>) -> Number {
        let mut texts = Vec::new();
        let mut sized = true;
        for operand in operands {
            sized &= matches!(operand, Number::Sized(_));
            match operand {
                Number::Formula(text) | Number::Sized(text) => texts.push(text.as_str()),
                Number::Unknown => return Number::Unknown,
            }
        }
        let next = formulas.len();
        let number = *formulas.entry(format!("{op}({})", texts.join(", "))).or_insert(next);
        let text = format!("#{number}");
        if sized { Number::Sized(text) } else { Number::Formula(text) }
    }
}

/// An axis of a tile that may reach past the end of a dim, where its elements are not valid, or are what an `or` says.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) axis: usize,
    /// The axis repeats one element of the cut.
    pub(crate) repeats: bool,
    /// The number of loops around the slice whose index it uses: 0 if no loop moves it.
    pub(crate) depth: usize,
    /// The other dim of a tile, if a `dot` contracts that one and keeps this one.
    pub(crate) contracted: Option<String>,
    /// The load, as written and as a short text.
    pub(crate) place: SourceRange,
    pub(crate) load: String,
    /// The element type of the tensor.
    pub(crate) elem: Elem,
    /// The name of the tile's coordinate, if the index is one.
    pub(crate) tile: Option<String>,
    /// An `or` says what stands past the end.
    pub(crate) filled: bool,
    pub(crate) cut: Cut,
}

impl Edge {
    /// True if both belong to the same axis of the same load. The location is not enough, because everything that a repetition
    /// in a user's macro writes has the same location.
    pub(crate) fn same(&self, other: &Edge) -> bool {
        let place = |e: &Edge| format!("{:?} {:?}", e.place.start, e.place.end);
        (self.axis, self.repeats, self.filled, self.depth) == (other.axis, other.repeats, other.filled, other.depth)
            && self.cut == other.cut
            && place(self) == place(other)
    }
}

/// The symbolic type of an expression.
#[derive(Clone, Debug)]
pub(crate) struct Ty {
    pub(crate) elem: Elem,
    /// `None` after a mistake.
    pub(crate) shape: Option<Vec<Size>>,
    pub(crate) coordinate: Option<Coordinate>,
    /// The tile coordinate from which it is computed by sums only. It is not a position in a dim.
    pub(crate) tile_number: Option<Coordinate>,
    /// The number that it is, if it is an integer scalar.
    pub(crate) number: Number,
    pub(crate) edges: Vec<Edge>,
    /// It is f32 only because it was made from numbers without a type.
    pub(crate) of_numbers: bool,
    /// It is made of whole numbers alone, as a count is.
    pub(crate) counts: bool,
    /// Why it may have fewer axes than are wanted, and what to write then.
    pub(crate) lacks_axes: Option<String>,
    /// The dim of whose tile it is the elements one by one: of that dim the tile should be the index.
    pub(crate) spells_tile: Option<usize>,
    /// The number of loops around the computation of the value.
    pub(crate) depth: usize,
}

impl Ty {
    /// The type after a mistake, which agrees with everything.
    pub(crate) fn unknown() -> Ty {
        Ty { shape: None, ..Ty::tile(Elem::Unknown, vec![]) }
    }

    /// A tile.
    pub(crate) fn tile(elem: Elem, shape: Vec<Size>) -> Ty {
        Ty {
            elem,
            shape: Some(shape),
            coordinate: None,
            tile_number: None,
            number: Number::Unknown,
            edges: vec![],
            of_numbers: false,
            counts: false,
            lacks_axes: None,
            spells_tile: None,
            depth: 0,
        }
    }

    /// A scalar.
    pub(crate) fn scalar(elem: Elem) -> Ty {
        Ty::tile(elem, vec![])
    }

    /// A number written in the source.
    pub(crate) fn literal(value: Option<f64>) -> Ty {
        let counts = value.is_some_and(|v| v.fract() == 0.0);
        Ty { counts, ..Ty::scalar(Elem::Literal(value)) }
    }

    /// The same tile with the edges of tiles that broadcast to it.
    pub(crate) fn with_edges_of(mut self, operands: &[&Ty]) -> Ty {
        let shape = self.shape.clone().unwrap_or_default();
        let rank = shape.len();
        for operand in operands {
            let added = rank.saturating_sub(operand.shape.as_ref().map_or(rank, Vec::len));
            let is_one = |axis: usize| operand.shape.as_ref().and_then(|s| s.get(axis)).is_some_and(Size::is_one);
            for edge in &operand.edges {
                let widens = is_one(edge.axis) && shape.get(edge.axis + added).is_some_and(|s| !s.is_one());
                let edge = Edge { axis: edge.axis + added, repeats: edge.repeats || widens, ..edge.clone() };
                if edge.axis < rank && !self.edges.iter().any(|e| e.same(&edge)) {
                    self.edges.push(edge);
                }
            }
        }
        self
    }

    /// The same tile, with only the edges of the axes to which `to` gives a new position.
    pub(crate) fn with_moved_edges(mut self, to: impl Fn(usize) -> Option<usize>) -> Ty {
        let moved = |e: Edge| to(e.axis).map(|axis| Edge { axis, ..e });
        self.edges = std::mem::take(&mut self.edges).into_iter().filter_map(moved).collect();
        self
    }

    /// True for a number that has no type yet.
    pub(crate) fn is_literal(&self) -> bool {
        matches!(self.elem, Elem::Literal(_))
    }
}

impl Display for Ty {
    /// `T[BN, D]`; a scalar is its element type alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.elem)?;
        match &self.shape {
            Some(shape) if shape.is_empty() => Ok(()),
            Some(shape) => f.write_str(&list(shape)),
            None => f.write_str("[?]"),
        }
    }
}

/// `[BN, D]`
pub(crate) fn list(shape: &[Size]) -> String {
    let sizes: Vec<String> = shape.iter().map(Size::to_string).collect();
    format!("[{}]", sizes.join(", "))
}

/// The extents after broadcasting, aligned at the last axis; or the two extents that differ.
pub(crate) fn broadcast(a: &[Size], b: &[Size]) -> Result<Vec<Size>, (Size, Size)> {
    let rank = a.len().max(b.len());
    let axis = |s: &[Size], i: usize| (i + s.len()).checked_sub(rank).map_or(Size::Number(1), |j| s[j].clone());
    (0..rank)
        .map(|i| match (axis(a, i), axis(b, i)) {
            (x, y) if x.is_one() => Ok(y),
            (x, y) if y.is_one() => Ok(x),
            (x @ (Size::Unknown | Size::Open(_)), y) => Ok(if x == Size::Unknown { x } else { y }),
            (x, y) if x.agrees(&y) => Ok(x),
            (x, y) => Err((x, y)),
        })
        .collect()
}

/// True if a tile of extents `shape` broadcasts to exactly `target`.
pub(crate) fn broadcasts_to(shape: &[Size], target: &[Size]) -> bool {
    shape.len() <= target.len() && shape.iter().rev().zip(target.iter().rev()).all(|(s, t)| s.is_one() || s.agrees(t))
}

/// True if a tile of extents `shape` can be stored to a place of extents `target`: they are equal, or the ranks differ by axes
/// of extent 1.
pub(crate) fn stores_to(shape: &[Size], target: &[Size]) -> bool {
    let agree = |a: &[Size], b: &[Size]| a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.agrees(y));
    let core = |s: &[Size]| s.iter().filter(|e| !e.is_one()).cloned().collect::<Vec<_>>();
    agree(shape, target) || (shape.len() != target.len() && agree(&core(shape), &core(target)))
}

/// For each axis of a store's place, the axis of the tile of extents `shape`; `None` for an axis of extent 1 that the tile does
/// not have. Names of extents decide, because an extent that some config makes 1 is still an axis. The result is `None` if
/// names do not decide it.
pub(crate) fn stored_axes(shape: &[Size], target: &[Size]) -> Option<Vec<Option<u8>>> {
    fn matched(
        shape: &[Size],
        target: &[Size],
        one: impl Fn(&Size) -> bool,
        same: impl Fn(&Size, &Size) -> bool,
    ) -> Option<Vec<Option<u8>>> {
        let mut left = (0..).zip(shape).peekable();
        let mut axes = Vec::with_capacity(target.len());
        for size in target {
            while !one(size) && left.next_if(|(_, s)| one(s)).is_some() {}
            let found = left.next_if(|(_, s)| same(s, size)).map(|(axis, _)| axis);
            if found.is_none() && !one(size) {
                return None;
            }
            axes.push(found);
        }
        left.all(|(_, s)| one(s)).then_some(axes)
    }
    let known = |s: &Size| matches!(s, Size::Number(_) | Size::Named { .. });
    matched(shape, target, |s| *s == Size::Number(1), Size::eq).or_else(|| {
        let all = shape.iter().chain(target).all(known);
        if all { matched(shape, target, Size::is_one, Size::agrees) } else { None }
    })
}

/// A load or a store.
pub(crate) struct Access {
    pub(crate) param: usize,
    /// What a store makes of the elements that are there; `None` for a load.
    pub(crate) update: Option<Update>,
    pub(crate) place: SourceRange,
    /// Grid axes, each with the axis of the tensor on which its coordinate picks an element or a tile.
    pub(crate) coordinates: Vec<(usize, usize)>,
}

impl Access {
    pub(crate) fn is_store(&self) -> bool {
        self.update.is_some()
    }

    pub(crate) fn places(&self, grid_axis: usize) -> Vec<usize> {
        self.coordinates.iter().filter(|c| c.0 == grid_axis).map(|c| c.1).collect()
    }

    /// Pairs of axes of the tensor, the first before the second, on which the coordinates of two axes of the grid pick tiles,
    /// in any order.
    pub(crate) fn pair_places(&self, [i, j]: [usize; 2]) -> Vec<[usize; 2]> {
        let of_second = self.places(j);
        let both = |p: usize| of_second.iter().map(move |&q| [p.min(q), p.max(q)]).collect::<Vec<_>>();
        self.places(i).into_iter().flat_map(both).collect()
    }
}
