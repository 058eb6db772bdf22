//! Operations on tiles: matching element types, broadcast extents, reduced axes.

use crate::check::Checker;
use crate::error::SourceRange;
use crate::names::POWER;
use crate::symbolic::{Edge, Elem, Size, Ty, broadcast, broadcasts_to, list};
use crate::tree::{Expr, ExprKind, Extent};
use atlas_vocabulary::{BinaryOp, DType, Precision, ReduceOp, Takes, UnaryOp, number};

/// The i32 with the bits of a number from 2^31 to 2^32, such as a factor of a hash.
fn same_bits(x: f64, elem: &Elem) -> String {
    let unsigned = f64::from(i32::MAX) + 1.0..=f64::from(u32::MAX);
    if *elem != Elem::Fixed(DType::I32) || x.fract() != 0.0 || !unsigned.contains(&x) {
        return String::new();
    }
    format!("; {} has the same 32 bits", x as u32 as i32)
}

/// Two tiles of which one has a tile of a dim along an axis that is the whole dim in the other one.
pub(crate) struct PartAndWhole {
    /// Whether the first of the two has the tile.
    pub(crate) is_first: bool,
    /// The name of the tile's coordinate.
    pub(crate) tile: String,
    pub(crate) dim: String,
}

impl Checker<'_> {
    /// Finds such an axis. Axes are aligned at the last one.
    pub(crate) fn part_and_whole(&self, x: &Ty, y: &Ty) -> Option<PartAndWhole> {
        let (a, b) = (x.shape.as_deref()?, y.shape.as_deref()?);
        (1..=a.len().min(b.len())).find_map(|from_end| {
            let (p, q) = (a.len() - from_end, b.len() - from_end);
            if a[p].agrees(&b[q]) {
                return None;
            }
            let of = |part: &Ty, axis: usize, whole: &Size, is_first: bool| {
                let Size::Named { name, .. } = whole else { return None };
                let edge = part.edges.iter().find(|e| e.axis == axis && !e.repeats && e.cut.dim_name == *name)?;
                Some(PartAndWhole { is_first, tile: edge.tile.clone()?, dim: name.clone() })
            };
            of(x, p, &b[q], true).or_else(|| of(y, q, &a[p], false))
        })
    }

    /// The end of a message about two operands whose extents differ.
    pub(crate) fn extents_mend(&self, x: &Ty, y: &Ty) -> String {
        let (Some(a), Some(b)) = (&x.shape, &y.shape) else { return String::new() };
        let turned = |row: &[Size], tile: &[Size]| row.len() == 1 && tile.len() == 2 && row[0] == tile[0];
        let row = if turned(a, b) { Some(list(a)) } else { turned(b, a).then(|| list(b)) };
        if let Some(row) = row {
            return format!("; `.t()` makes a column of {row}");
        }
        let Some(PartAndWhole { is_first, tile, dim }) = self.part_and_whole(x, y) else { return String::new() };
        let (part, whole) = if is_first { ("left", "right") } else { ("right", "left") };
        format!(
            "; the {part} one has tile `{tile}` of {dim} there, and the {whole} one all of {dim}: load the {whole} one at `{tile}`, not `..`"
        )
    }

    pub(crate) fn broadcast(&mut self, value: &Expr, shape: &[Extent]) -> Ty {
        let (ty, to) = (self.expr(value), self.sizes(shape));
        let Some(from) = &ty.shape else { return Ty { shape: Some(to), coordinate: None, ..ty } };
        if ty.is_literal() {
            let message =
                format!("`broadcast` needs a tile or a scalar, found {ty}; write `full::<f32>({}, ..)`", list(&to));
            return self.mistake(107, value.place, message);
        }
        if !broadcasts_to(from, &to) {
            let message = format!("a tile {} does not broadcast to {}", list(from), list(&to));
            return self.mistake(107, value.place, message);
        }
        let (of_numbers, counts) = (ty.of_numbers, ty.counts);
        Ty { of_numbers, counts, ..Ty::tile(ty.elem.clone(), to) }.with_edges_of(&[&ty])
    }

    /// `iota([A, B], axis)`
    pub(crate) fn iota(&mut self, shape: &[Extent], (axis, place): (u8, SourceRange)) -> Ty {
        let shape = self.sizes(shape);
        let (tile, rank) = (list(&shape), shape.len());
        if usize::from(axis) < rank {
            return Ty::tile(Elem::Fixed(DType::I32), shape);
        }
        let message = match from_the_end(axis, rank) {
            Some((written, Some(axis))) => {
                format!("axes count from the front, and axis {written} of a tile {tile} is {axis}")
            }
            Some((written, None)) => format!("axis {written} of a tile {tile}, which has rank {rank}"),
            None => format!("axis {axis} of a tile {tile}, which has rank {rank}"),
        };
        self.mistake(101, place, message)
    }

    /// `5 / 2` of literals, which is 2 in Rust and 2.5 in mathematics, and divisions by 0.
    pub(crate) fn whole_quotient(&mut self, op: BinaryOp, a: &Expr, b: &Expr, place: SourceRange) -> Option<Ty> {
        let whole = |e: &Expr| match e.kind {
            ExprKind::Literal { value, whole: true } => Some(value),
            _ => None,
        };
        let (x, y) = (whole(a)?, whole(b)?);
        let message = match op {
            BinaryOp::Div | BinaryOp::Rem if y == 0.0 => format!("{x} is divided by 0"),
            BinaryOp::Div if x % y != 0.0 => {
                format!("{x} / {y} of whole numbers is not a whole number; for a float write {x}.0 / {y}.0")
            }
            _ => return None,
        };
        Some(self.mistake(117, place, message))
    }

    /// `x.or(0.0)`: a tile with a number past its edges.
    pub(crate) fn or(&mut self, [x, other]: &[Expr; 2]) -> Ty {
        let (ty, stands) = (self.expr(x), self.expr(other));
        if ty.is_literal() || ty.elem.is_bool() {
            return self.mistake(
                104,
                x.place,
                format!("`or` says what number stands past the edges of a tile, found {ty}"),
            );
        }
        if !stands.is_literal() && stands.elem != Elem::Unknown {
            let message =
                format!("what stands past an edge is a number that is known when the kernel is built, found {stands}");
            return self.mistake(120, other.place, message);
        }
        if let Elem::Literal(Some(v)) = stands.elem
            && let Some(why) = ty.elem.refuses(v)
        {
            return self.mistake(
                117,
                other.place,
                format!("`or`: the number {} meets {}, and {why}", number(v), ty.elem),
            );
        }
        let edges = ty.edges.into_iter().map(|e| Edge { filled: true, ..e }).collect();
        Ty { coordinate: None, edges, ..ty }
    }

    pub(crate) fn unary(&mut self, op: UnaryOp, x: &Expr, e: &Expr) -> Ty {
        let ty = self.expr(x);
        // How many bits a number has is not known.
        let takes = op.row().takes;
        let tiles_alone = op.row().of_number.is_none() || takes == Takes::Bits;
        let fits = ty.elem.may_be(takes) && !(tiles_alone && ty.is_literal());
        let wanted = match takes {
            Takes::Bool => "bool",
            Takes::Bits => "bool or an integer tile or scalar",
            Takes::Integers => "an integer tile or scalar",
            Takes::Numbers => "a number",
            Takes::Floats if tiles_alone => "a float tile or scalar",
            Takes::Floats => "a float",
        };
        if !fits {
            // `floor` and its kin have nothing to do on an integer.
            let exact = matches!(op, UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round);
            let name = self.named(x);
            let mend = match takes {
                _ if ty.elem.is_small() => ty.elem.small_mend(name.trim_end(), takes, None).unwrap_or_default(),
                Takes::Floats if exact && ty.elem.may_be_int() && !ty.is_literal() => {
                    "; an integer is whole: leave it out".to_owned()
                }
                Takes::Floats if ty.elem.may_be_int() && !ty.is_literal() => match name.trim_end() {
                    "" => "; write `(..).cast::<f32>()` around it".to_owned(),
                    name => format!("; write `{name}.cast::<f32>()`"),
                },
                _ => String::new(),
            };
            return self.mistake(104, e.place, format!("`{}` needs {wanted}, found {name}{ty}{mend}", op.text()));
        }
        let counts = ty.counts && matches!(op, UnaryOp::Neg | UnaryOp::Abs);
        Ty { coordinate: None, counts, ..ty }
    }

    /// Two operands: one element type, extents that broadcast.
    pub(crate) fn together(
        &mut self,
        what: &str,
        (x, x_name): (&Ty, String),
        (y, y_name): (&Ty, String),
        place: SourceRange,
    ) -> Ty {
        if !x.elem.agrees(&y.elem) {
            let message = format!(
                "{what} of {x_name}{x} and {y_name}{y}: there is no implicit promotion; {}",
                promotion((x, x_name.trim_end()), (y, y_name.trim_end()))
            );
            return self.mistake(105, place, message);
        }
        for (literal, other) in [(x, y), (y, x)] {
            let Elem::Literal(Some(v)) = literal.elem else { continue };
            if other.elem.is_bool() {
                return self.mistake(104, place, format!("{what}: the number {v} meets bool"));
            }
            if let Some(why) = other.elem.refuses(v) {
                let bits = same_bits(v, &other.elem);
                let message = format!("{what}: the number {} meets {}, and {why}{bits}", number(v), other.elem);
                return self.mistake(117, place, message);
            }
        }
        let (Some(a), Some(b)) = (&x.shape, &y.shape) else { return Ty::unknown() };
        let crosses = |row: &[Size], column: &[Size]| match (row, column) {
            ([n @ Size::Named { .. }], [m, one]) if n == m && one.is_one() && !n.is_one() => Some(n.clone()),
            _ => None,
        };
        if let Some(n) = crosses(a, b).or_else(|| crosses(b, a)) {
            let (a, b) = (list(a), list(b));
            let message = format!(
                "{what} of {x_name}{a} and {y_name}{b} would be [{n}, {n}], every row with every column; `.t()` makes a column of [{n}], and `broadcast(.., [1, {n}])` says that it is a row"
            );
            return self.mistake(107, place, message);
        }
        let shape = match broadcast(a, b) {
            Ok(shape) => shape,
            Err((m, n)) => {
                let hint = match (a.as_slice(), b.as_slice()) {
                    ([_, k], [l, _]) if what == "`*`" && k.agrees(l) => "; a matrix product is `dot(a, b)`".to_owned(),
                    _ => self.extents_mend(x, y),
                };
                let (a, b) = (list(a), list(b));
                let message = format!(
                    "{what} of {x_name}{a} and {y_name}{b}: the extents {m} and {n} differ, and neither is 1{hint}"
                );
                return self.mistake(107, place, message);
            }
        };
        let elem = if x.is_literal() || x.elem == Elem::Unknown { y.elem.clone() } else { x.elem.clone() };
        let elem = if let Elem::Literal(_) = elem { Elem::Literal(None) } else { elem };
        let sides = [x, y];
        let of_numbers = sides.iter().all(|t| t.of_numbers || t.is_literal()) && sides.iter().any(|t| t.of_numbers);
        let counts = sides.iter().all(|t| t.counts);
        let lacks_axes = sides.iter().find_map(|t| t.lacks_axes.clone());
        Ty { of_numbers, counts, lacks_axes, ..Ty::tile(elem, shape) }.with_edges_of(&sides)
    }

    /// Reports `c += x` of two types. What to write is not a cast of `c`, as it is in `c + x`.
    pub(crate) fn other_type(
        &mut self,
        op: BinaryOp,
        name: &str,
        old: &Ty,
        value: &Ty,
        place: SourceRange,
    ) -> Option<Ty> {
        if old.elem.agrees(&value.elem) || old.elem.is_bool() || value.elem.is_bool() {
            return None;
        }
        let mend = if let Some(mend) = whole_of_numbers(value, &old.elem) {
            format!("what meets `{name}` {mend}")
        } else if let Some(mend) = whole_of_numbers(old, &value.elem) {
            format!("`{name}` {mend}; or write `(..).cast::<{}>()` around what meets it", old.elem)
        } else if old.elem.is_fp8() {
            format!(
                "make `{name}` {} where it begins",
                if value.elem.is_fp8() { "f32".to_owned() } else { value.elem.to_string() }
            )
        } else if old.elem.width() < value.elem.width() {
            let loses = if old.elem.may_be_int() && value.elem.may_be_float() { ", which cuts towards 0" } else { "" };
            format!(
                "make `{name}` {} where it begins, or write `(..).cast::<{}>()` around what meets it{loses}",
                value.elem, old.elem
            )
        } else {
            format!("write `(..).cast::<{}>()` around what meets `{name}`", old.elem)
        };
        let message = format!("`{}=` of {name} {old} and {value}: there is no implicit promotion; {mend}", op.text());
        Some(self.mistake(105, place, message))
    }

    /// Reports `s += sum(x, axis = 1)` of a row `s`. What to write is not a column of the row, as it is in `s + sum(x, axis = 1)`.
    pub(crate) fn row_meets_column(&mut self, name: &str, old: &Ty, value: &Ty, place: SourceRange) -> Option<Ty> {
        let (Some([n @ Size::Named { .. }]), Some([m, one])) = (old.shape.as_deref(), value.shape.as_deref()) else {
            return None;
        };
        if n != m || !one.is_one() {
            return None;
        }
        let column = list(value.shape.as_deref().unwrap_or_default());
        let message = format!(
            "`{name}` [{n}] is a row, and {column} a column, for a reduced axis stays with extent 1: make `{name}` a column where it begins, as in `let mut {name} = zeros::<{}>({column})`",
            value.elem
        );
        Some(self.mistake(107, place, message))
    }

    /// Reports `x * (1 / size(D))`, whose quotient a cast around it would leave at 0.
    pub(crate) fn cut_quotient(&mut self, (x, a): (&Ty, &Expr), (y, b): (&Ty, &Expr)) -> Option<Ty> {
        let is_int = |ty: &Ty| matches!(ty.elem, Elem::Fixed(d) if d.is_int());
        let is_float = |ty: &Ty| ty.elem.is_of_numbers() && ty.elem.may_be_float();
        let (_, e, float) = [(x, a, y), (y, b, x)].into_iter().find(|(ty, e, other)| {
            is_int(ty) && is_float(other) && matches!(e.kind, ExprKind::Binary(BinaryOp::Div, ..))
        })?;
        let message = format!(
            "a quotient of whole numbers meets {float}, and it is cut towards 0: convert what is divided, as in `1.0 / size(D).cast::<f32>()`"
        );
        Some(self.mistake(105, e.place, message))
    }

    pub(crate) fn binary(&mut self, op: BinaryOp, x: (&Ty, String), y: (&Ty, String), place: SourceRange) -> Ty {
        let what = format!("`{}`", op.text());
        for ((ty, name), other) in [((x.0, &x.1), y.0), ((y.0, &y.1), x.0)] {
            let takes = op.row().takes;
            if !ty.elem.may_be(takes) {
                let wanted = match takes {
                    Takes::Bool => "bool",
                    Takes::Bits => "integers or bool",
                    Takes::Integers => "integers",
                    Takes::Floats => "floats",
                    Takes::Numbers => "numbers",
                };
                let hint = match op {
                    _ if ty.elem.is_small() => {
                        ty.elem.small_mend(name.trim_end(), takes, Some(&other.elem)).unwrap_or_default()
                    }
                    BinaryOp::BitXor if ty.elem.may_be_float() => format!("; for a power write {POWER}"),
                    BinaryOp::Rem if ty.elem.may_be_float() => {
                        "; of floats write `x - y * floor(x / y)`, or `x - y * trunc(x / y)` with the sign of `x`"
                            .to_owned()
                    }
                    _ if takes == Takes::Numbers && ty.elem.is_bool() && other.elem.is_of_numbers() => {
                        format!("; write `(..).cast::<{}>()` around it, or choose by it: `select(c, x, 0)`", other.elem)
                    }
                    _ if takes == Takes::Numbers && ty.elem.is_bool() => {
                        "; write `(..).cast::<i32>()` around it, or another type".to_owned()
                    }
                    _ => String::new(),
                };
                return self.mistake(104, place, format!("{what} needs {wanted}, found {ty}{hint}"));
            }
        }
        let ty = self.together(&what, x, y, place);
        let stays_whole = matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min);
        Ty { counts: ty.counts && stays_whole, ..ty }
    }

    /// `clamp(x, lo, hi)` and `fma(a, b, c)`: three operands of one element type.
    pub(crate) fn of_three(&mut self, name: &str, takes: Takes, [x, y, z]: &[Expr; 3], e: &Expr) -> Ty {
        let (of_x, of_y, of_z) = (self.expr(x), self.expr(y), self.expr(z));
        if let Some(ty) = [&of_x, &of_y, &of_z].into_iter().find(|ty| !ty.elem.may_be(takes)) {
            let wanted = if takes == Takes::Floats { "floats" } else { "numbers" };
            let mend = ty.elem.small_mend("", takes, None).unwrap_or_default();
            return self.mistake(104, e.place, format!("`{name}` needs {wanted}, found {ty}{mend}"));
        }
        let what = format!("`{name}`");
        let both = self.together(&what, (&of_x, self.named(x)), (&of_y, self.named(y)), e.place);
        self.together(&what, (&both, self.named(x)), (&of_z, self.named(z)), e.place)
    }

    pub(crate) fn cluster_sum(&mut self, x: &Expr, e: &Expr) -> Ty {
        let ty = self.expr(x);
        if !self.kernel.axes.iter().any(|axis| axis.cluster) {
            let message = "`cluster_sum` adds up what the programs of a cluster have, but the grid has no cluster: `grid(B, cluster(tiles(N, BN)))`";
            return self.mistake(229, e.place, message);
        }
        let fits = [DType::F32, DType::F64].map(Elem::Fixed).contains(&ty.elem) || ty.elem == Elem::Unknown;
        if ty.is_literal() || !fits {
            let mend = match ty.elem {
                Elem::Fixed(DType::I32) => {
                    "write `(..).cast::<f64>()` around it, which keeps each i32, or `.cast::<f32>()`, which keeps whole numbers up to 2^24"
                }
                Elem::Fixed(DType::I64) => "write `(..).cast::<f64>()` around it, which keeps whole numbers up to 2^53",
                _ => "write `(..).cast::<f32>()` around it",
            };
            let message = format!("`cluster_sum` adds up f32 or f64, found {}{ty}; {mend}", self.named(x));
            return self.mistake(104, e.place, message);
        }
        Ty { coordinate: None, of_numbers: false, ..ty }
    }

    pub(crate) fn select(&mut self, [c, t, f]: &[Expr; 3], e: &Expr) -> Ty {
        let (cond, x, y) = (self.expr(c), self.expr(t), self.expr(f));
        if !cond.elem.is_bool() && cond.elem != Elem::Unknown {
            let name = self.named(c);
            let mend = cond.elem.compared(name.trim_end());
            return self.mistake(105, c.place, format!("`select` needs a condition of bool, found {name}{cond}{mend}"));
        }
        let mut both = self.together("`select`", (&x, self.named(t)), (&y, self.named(f)), e.place);
        let of_numbers = both.is_literal() || both.of_numbers;
        if both.is_literal() {
            both.elem = Elem::Fixed(DType::F32);
        }
        let (Some(a), Some(b)) = (&cond.shape, &both.shape) else { return Ty::unknown() };
        match broadcast(a, b) {
            Ok(shape) => Ty { of_numbers, counts: both.counts, ..Ty::tile(both.elem.clone(), shape) }
                .with_edges_of(&[&cond, &both]),
            Err((m, n)) => {
                let message =
                    format!("`select` of {} by a condition {}: the extents {n} and {m} differ", list(b), list(a));
                self.mistake(107, e.place, message)
            }
        }
    }

    pub(crate) fn dot(&mut self, [a, b]: &[Expr; 2], precision: Precision, e: &Expr) -> Ty {
        let (x, y) = (self.expr(a), self.expr(b));
        let (x_name, y_name) = (self.named(a), self.named(b));
        let (Some(s), Some(t)) = (&x.shape, &y.shape) else {
            return Ty { elem: x.elem.accumulator(), ..Ty::unknown() };
        };
        let ([m, k], [k2, n]) = (&s[..], &t[..]) else {
            let why = [&x, &y].into_iter().find_map(|t| t.lacks_axes.as_ref());
            let why = why.map_or_else(String::new, |why| format!("; {why}"));
            return self.mistake(
                108,
                e.place,
                format!("dot needs two tiles of rank 2, found {x_name}{x} and {y_name}{y}{why}"),
            );
        };
        if !k.agrees(k2) {
            let (s, t) = (list(s), list(t));
            let turned = if k == n {
                "; is a `.t()` of the right one missing, or one too many?"
            } else if m == k2 {
                "; is a `.t()` of the left one missing, or one too many?"
            } else {
                ""
            };
            let message = format!("dot of {x_name}{s} and {y_name}{t}: the inner extents {k} and {k2} differ{turned}");
            return self.mistake(109, e.place, message);
        }
        if !x.elem.agrees(&y.elem) || !x.elem.may_be_float() {
            let mend = factors((&x, x_name.trim_end()), (&y, y_name.trim_end()));
            let message = format!("dot needs two operands of one float type, found {x_name}{x} and {y_name}{y}{mend}");
            return self.mistake(105, e.place, message);
        }
        if precision != Precision::Default && !x.elem.agrees(&Elem::Fixed(DType::F32)) {
            let but = if matches!(x.elem, Elem::Generic(..)) { ", which may be bf16 or f16" } else { "" };
            let name = precision.name();
            let message = format!(
                "precision {name} needs f32 operands, found {}{but}; write `(..).cast::<f32>()` around both, or leave `.precision({name})` out",
                x.elem
            );
            return self.mistake(110, e.place, message);
        }
        let result = Ty::tile(x.elem.accumulator(), vec![m.clone(), n.clone()]);
        let (of_x, of_y) = (self.dim_along(&x, 1), self.dim_along(&y, 0));
        let mut rows = x.with_moved_edges(|axis| (axis == 0).then_some(0));
        let mut columns = y.with_moved_edges(|axis| (axis == 1).then_some(1));
        rows.edges.iter_mut().for_each(|e| e.contracted.clone_from(&of_x));
        columns.edges.iter_mut().for_each(|e| e.contracted.clone_from(&of_y));
        result.with_edges_of(&[&rows, &columns])
    }

    pub(crate) fn reduce(&mut self, op: ReduceOp, ty: Ty, axis: Option<(u8, SourceRange)>, value: SourceRange) -> Ty {
        let name = op.name();
        if ty.elem.is_bool() {
            let counts = if name == "sum" { ", which counts" } else { "" };
            let message = format!("`{name}` reduces numbers, found {ty}; write `(..).cast::<i32>()` around it{counts}");
            return self.mistake(104, value, message);
        }
        if let Some(mend) = ty.elem.small_mend("", Takes::Numbers, None) {
            return self.mistake(104, value, format!("`{name}` reduces numbers, found {ty}{mend}"));
        }
        let Some(shape) = ty.shape.clone() else { return ty };
        let Some((axis, place)) = axis else {
            let lacks_axes = (shape.len() > 1).then(|| {
                let last = shape.len() - 1;
                format!("`{name}(x)` is one number of all elements, `{name}(x, axis = {last})` is one for each row")
            });
            return Ty { of_numbers: ty.of_numbers, counts: ty.counts, lacks_axes, ..Ty::tile(ty.elem, vec![]) };
        };
        if let Some(mistake) = self.lacks_axis(name, &ty, &shape, (axis, place), value) {
            return mistake;
        }
        let mut shape = shape;
        let folded = usize::from(axis);
        shape[folded] = Size::Number(1);
        Ty { shape: Some(shape), coordinate: None, ..ty }.with_moved_edges(|a| (a != folded).then_some(a))
    }

    pub(crate) fn scan(&mut self, op: ReduceOp, x: &Expr, axis: (u8, SourceRange)) -> Ty {
        let (ty, name, value) = (self.expr(x), op.scan_name(), x.place);
        if ty.elem.is_bool() || ty.is_literal() {
            let mend = if ty.elem.is_bool() { "; write `(..).cast::<i32>()` around it" } else { "" };
            return self.mistake(104, value, format!("`{name}` takes a tile of numbers, found {ty}{mend}"));
        }
        if let Some(mend) = ty.elem.small_mend("", Takes::Numbers, None) {
            return self.mistake(104, value, format!("`{name}` takes a tile of numbers, found {ty}{mend}"));
        }
        if let Some(shape) = &ty.shape
            && let Some(mistake) = self.lacks_axis(name, &ty, shape, axis, value)
        {
            return mistake;
        }
        Ty { coordinate: None, ..ty }
    }

    /// The mistake of an axis that a tile does not have.
    fn lacks_axis(
        &mut self,
        name: &str,
        ty: &Ty,
        shape: &[Size],
        (axis, place): (u8, SourceRange),
        value: SourceRange,
    ) -> Option<Ty> {
        let rank = shape.len();
        if usize::from(axis) < rank {
            return None;
        }
        if rank == 0 {
            let message = format!("`{name}` goes along an axis of a tile, but this is a scalar {ty}");
            return Some(self.mistake(101, value, message));
        }
        let axes = match rank {
            1 => "whose only axis is 0".to_owned(),
            _ => format!("whose axes are 0 to {}", rank - 1),
        };
        let from_end = from_the_end(axis, rank);
        let message = match from_end {
            Some((written, Some(axis))) => {
                format!("axes count from the front, and axis {written} of a tile {ty} is `axis = {axis}`, {axes}")
            }
            _ => {
                let written = from_end.map_or(i16::from(axis), |(written, _)| written);
                format!("`{name}` along axis {written} of a tile {ty}, {axes}")
            }
        };
        Some(self.mistake(101, place, message))
    }
}

/// An axis that was written as a number below 0, and the axis that it is elsewhere, if there is one.
fn from_the_end(axis: u8, rank: usize) -> Option<(i16, Option<usize>)> {
    let written = i16::from(axis) - 256;
    (axis >= 128).then(|| (written, rank.checked_sub(usize::from(written.unsigned_abs()))))
}

/// What to write for an f32 that was made from numbers only, where whole numbers are wanted. A cast of it would convert a value
/// that f32 has rounded already.
pub(crate) fn whole_of_numbers(found: &Ty, wanted: &Elem) -> Option<String> {
    let Elem::Fixed(to @ (DType::I32 | DType::I64)) = wanted else { return None };
    if found.elem != Elem::Fixed(DType::F32) {
        return None;
    }
    if found.of_numbers {
        let why = "is made of numbers that met no type, which are f32 and lose counts above 2^24";
        return Some(format!("{why}: write `0.cast::<{to}>()` for 0"));
    }
    let from = format!("`zeros::<{to}>(..)` or `0.cast::<{to}>()`");
    found.counts.then(|| {
        format!(
            "counts in f32, which loses counts above 2^24: count in {to}, from {from} on, and convert conditions by `.cast::<{to}>()`"
        )
    })
}

/// The end of a message: how to convert two factors of a product of tiles to one float type.
fn factors((x, x_name): (&Ty, &str), (y, y_name): (&Ty, &str)) -> String {
    if x.elem.is_bool() || y.elem.is_bool() {
        return String::new();
    }
    if x.elem.is_fp8() && y.elem.is_fp8() {
        return "; write `(..).cast::<f16>()` around both, which is exact".to_owned();
    }
    if !x.elem.may_be_float() && !y.elem.may_be_float() {
        // Tensor cores multiply bf16, which holds each number of 8 bits.
        let bytes = [x, y].iter().all(|ty| matches!(ty.elem, Elem::Fixed(DType::I8 | DType::U8)));
        let (to, why) = if bytes { ("bf16", ", which keeps each number of 8 bits") } else { ("f32", "") };
        return format!("; write `(..).cast::<{to}>()` around both{why}");
    }
    if x.elem.width() == y.elem.width() {
        let right = if y_name.is_empty() { "the right one" } else { &format!("`{y_name}`") };
        return format!(
            "; write `(..).cast::<f32>()` around both, or `.cast::<{}>()` around {right}, which rounds it",
            x.elem
        );
    }
    format!("; {}", promotion((x, x_name), (y, y_name)))
}

/// How to convert two operands of different types to one.
fn promotion((x, x_name): (&Ty, &str), (y, y_name): (&Ty, &str)) -> String {
    for (number, name, other) in [(x, x_name, y), (y, y_name, x)] {
        if let Some(mend) = whole_of_numbers(number, &other.elem) {
            let name = if name.is_empty() { "the f32".to_owned() } else { format!("`{name}`") };
            let or = if number.of_numbers { "" } else { "; or write `(..).cast::<f32>()` around the other one" };
            return format!("{name} {mend}{or}");
        }
    }
    // 16 bits hold whole numbers up to 256 or 2048 alone, and floats of 8 bits are converted by f32.
    let is_short = |ty: &Ty| matches!(ty.elem, Elem::Generic(..) | Elem::Fixed(DType::F16 | DType::Bf16));
    let is_long = |ty: &Ty| matches!(ty.elem, Elem::Fixed(d) if d.is_int() || d.is_small() && d.bytes() == 2);
    let is_mixed = |a: &Ty, b: &Ty| is_short(a) && is_long(b) || a.elem.is_fp8() && b.elem.may_be_int();
    if is_mixed(x, y) || is_mixed(y, x) {
        return "write `(..).cast::<f32>()` around both".to_owned();
    }
    // Neither i8 nor u8 holds all numbers of the other one.
    if x.elem.is_small() && y.elem.is_small() && x.elem.width() == y.elem.width() {
        let to = if x.elem.is_fp8() || y.elem.is_fp8() { "f32" } else { "i32" };
        return format!("write `(..).cast::<{to}>()` around both");
    }
    let (to, side, name) =
        if x.elem.width() < y.elem.width() { (&y.elem, "left", x_name) } else { (&x.elem, "right", y_name) };
    match name {
        "" => format!("write `(..).cast::<{to}>()` around the {side} one"),
        name => format!("write `{name}.cast::<{to}>()`"),
    }
}
