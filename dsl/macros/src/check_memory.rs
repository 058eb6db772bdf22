//! Loads and stores: the part of a tensor that an index selects, and the rule that no program touches what another one writes.

use crate::carried::neutral;
use crate::check::Checker;
use crate::check_operations::{PartAndWhole, whole_of_numbers};
use crate::error::SourceRange;
use crate::symbolic::{
    Access, Coordinate, Cut, Edge, Elem, Number, Size, Ty, broadcasts_to, list, stored_axes, stores_to,
};
use crate::tree::{Axis, Expr, ExprKind, Extent, Index, Kernel, LocalId, LocalKind, ParamKind};
use atlas_vocabulary::{BinaryOp, DType, Update, number};
use proc_macro2::Ident;
use std::fmt::Display;

/// The part of a tensor that an index selects.
struct Region {
    ty: Ty,
    /// Grid axes, each with the axis of the tensor on which its coordinate picks an element or a tile.
    coordinates: Vec<(usize, usize)>,
    /// Elements of dims that the index picks.
    points: Vec<(usize, Number)>,
}

impl Checker<'_> {
    /// Checks a store. If the ranks differ and the names of extents say it, returns the axis of the value for each axis of the
    /// place.
    pub(crate) fn store(
        &mut self,
        update: Update,
        (param, index): (usize, &[Index]),
        value: &Expr,
        place: SourceRange,
    ) -> Option<Vec<Option<u8>>> {
        self.stored[param] = true;
        let Region { ty: target, coordinates, points } = self.access(param, index, place, Some(update));
        if target.shape.is_some() {
            self.accesses.push(Access { param, update: Some(update), place, coordinates: coordinates.clone() });
        }
        let found = self.expr(value);
        let name = &self.kernel.params[param].name;
        // What else is wrong with the place would be said of a place that changes.
        if target.shape.is_some() && !update.is_free() && !self.is_apart(name, index, &coordinates, place) {
            return None;
        }
        let (Some(to), Some(from)) = (&target.shape, &found.shape) else { return None };
        if update.is_atomic() && target.elem.is_small() {
            let (statement, of) = (update.statement(), &target.elem);
            let wide = if of.is_fp8() { "f32" } else { "i32" };
            let message =
                format!("`{statement}` combines numbers, and `{name}` has elements of {of}: give it `{wide}`");
            self.error(104, place, message);
        } else if !found.elem.agrees(&target.elem) {
            let mend = stored_as(&found, &target.elem);
            let message = format!("`{name}` has elements of {}, but this is {found}; {mend}", target.elem);
            self.error(111, value.place, message);
        } else if let Elem::Literal(Some(x)) = found.elem
            && let Some(why) = target.elem.refuses(x)
        {
            self.error(117, value.place, format!("`{name}` has elements of {}, but {} {why}", target.elem, number(x)));
        } else if !found.is_literal() && !stores_to(from, to) {
            let wanted = list(to);
            let is_turned = matches!((&from[..], &to[..]), ([m, n], [p, q]) if m.agrees(q) && n.agrees(p));
            let mend = match &found.lacks_axes {
                Some(why) if from.len() < to.len() => format!("; {why}"),
                _ if broadcasts_to(from, to) => {
                    format!("; a store does not broadcast: write `broadcast(.., {wanted})`")
                }
                _ if is_turned => "; is a `.t()` missing, or one too many?".to_owned(),
                _ => match self.part_and_whole(&found, &target) {
                    Some(PartAndWhole { is_first: true, tile, dim }) => {
                        format!("; it has tile `{tile}` of {dim}: store it at `{tile}`, not `..`")
                    }
                    Some(PartAndWhole { is_first: false, tile, dim }) => {
                        format!("; it has all of {dim}, and the place is tile `{tile}` of it")
                    }
                    None => String::new(),
                },
            };
            let mend = match (&to[..], update.combine()) {
                ([], Some(op)) if mend.is_empty() => {
                    format!("; reduce first: `{}(..)`", if op == BinaryOp::Add { "sum" } else { op.name() })
                }
                _ => mend,
            };
            let verb = if update.is_free() { format!("`{}` to", update.statement()) } else { "store to".to_owned() };
            let found = if from.is_empty() { "a scalar".to_owned() } else { list(from) };
            self.error(111, value.place, format!("{verb} `{name}` wants a tile {wanted}, found {found}{mend}"));
        } else if let Some([p, q]) = crossed(&found, &target) {
            let message = format!(
                "the axes of this tile are tiles ({q}, {p}), and those of this store to `{name}` are ({p}, {q}): is a `.t()` missing, or one too many?"
            );
            self.error(227, value.place, message);
        } else if let Some((edge, axis)) = shown(&found, &target, &points) {
            let dim = &edge.cut.dim_name;
            let written = axis.and_then(|axis| self.dim_along(&target, axis)).filter(|written| written != dim);
            let other = axis.and_then(|axis| another_tile(edge, &target, axis));
            let stands = stands(edge, update, (value, name), &target.elem);
            let message = match (written, other) {
                (None, Some([own, other])) => format!(
                    "this tile has tile `{own}` of {dim} along the axis that this store to `{name}` has tile `{other}` along: is an index wrong?"
                ),
                (Some(written), _) => format!(
                    "this tile has {dim} along the axis that this store to `{name}` has {written} along: is a `.t()` missing, or one too many? If not, say what stands where elements of it lie outside of {dim}: {stands}"
                ),
                (None, None) => format!(
                    "this tile is stored to `{name}`, and elements of it may lie outside of {dim} where the store writes; say what stands there: {stands}"
                ),
            };
            self.error(227, edge.place, message);
        }
        if found.is_literal() || from.len() == to.len() { None } else { stored_axes(from, to) }
    }

    /// True if a store has each coordinate of the grid as an index. Reports those that are missing.
    fn is_apart(&mut self, name: &Ident, index: &[Index], coordinates: &[(usize, usize)], place: SourceRange) -> bool {
        let mut is_apart = true;
        for (i, axis) in self.kernel.axes.iter().enumerate() {
            // What all programs of a cluster store may leave its coordinate out. The verifier of Tile IR knows whether they do.
            if coordinates.iter().any(|c| c.0 == i) || axis.cluster {
                continue;
            }
            is_apart = false;
            let coord = self.local_name(axis.coord);
            let hidden = index.iter().find_map(|i| match i {
                Index::At(Expr { kind: ExprKind::Local(id), .. }) => {
                    (self.local_name(*id) == coord && *id != axis.coord).then(|| self.local_kind(*id))
                }
                _ => None,
            });
            let computed = index.iter().any(|i| matches!(i, Index::At(e) if matches!(e.kind, ExprKind::Load { .. })));
            let why = match (hidden, computed) {
                (Some(LocalKind::FnParam), _) => format!("; the call gives something else as `{coord}`"),
                (Some(_), _) => format!("; the `{coord}` of this index is another one, which hides it"),
                (_, true) => "; where to store is known from the grid alone, a place cannot be loaded".to_owned(),
                _ => self.at_coordinate(axis, index),
            };
            let message = format!(
                "no index of this store to `{name}` is the grid coordinate `{coord}`: programs that differ in it would write the same elements{why}"
            );
            self.error(213, place, message);
        }
        is_apart
    }

    /// The dim along which an axis of a tile runs, if that is known.
    pub(crate) fn dim_along(&self, ty: &Ty, axis: usize) -> Option<String> {
        if let Some(edge) = ty.edges.iter().find(|e| e.axis == axis && !e.repeats) {
            return Some(edge.cut.dim_name.clone());
        }
        let Size::Named { name, .. } = ty.shape.as_ref()?.get(axis)? else { return None };
        self.kernel.dims.iter().any(|d| d.name == *name).then(|| name.clone())
    }

    /// The tile that a load gives.
    pub(crate) fn load(&mut self, param: usize, index: &[Index], place: SourceRange) -> Ty {
        let Region { ty, coordinates, .. } = self.access(param, index, place, None);
        if ty.shape.is_some() {
            self.accesses.push(Access { param, update: None, place, coordinates });
        }
        ty
    }

    /// The part of a tensor that an index selects.
    fn access(&mut self, param: usize, index: &[Index], place: SourceRange, update: Option<Update>) -> Region {
        let (k, p) = (self.kernel, &self.kernel.params[param]);
        let ParamKind::Tensor { dims, writable } = &p.kind else {
            return Region { ty: Ty::unknown(), coordinates: vec![], points: vec![] };
        };
        let (mut shape, mut axes, mut edges, mut known) = (Vec::new(), Vec::new(), Vec::new(), true);
        let (mut points, mut lacks_axes) = (Vec::new(), None);
        let mut gathered: Option<usize> = None;
        let name = self.tensors.and_then(|names| names.get(&param).cloned()).unwrap_or_else(|| p.name.to_string());
        let load = || format!("load({name}[{}])", index_text(k, index));
        let elem = || Elem::of(p.dtype, Some(k));
        let edge = |axis: usize, depth: usize, dim: usize, start: Number, len: Size, tile: Option<String>| {
            let (load, elem) = (load(), elem());
            let cut = Cut { dim, dim_name: k.dims[dim].name.to_string(), start, len, is_tile: tile.is_some() };
            let (repeats, filled) = (false, false);
            Edge { axis, repeats, depth, contracted: None, place, load, elem, tile, filled, cut }
        };
        for (axis, (i, &dim)) in index.iter().zip(dims).enumerate() {
            match i {
                Index::Whole => shape.push(Size::dim(dim, k)),
                Index::Span { start, len } => {
                    let at = start.place;
                    let start = self.whole_number(start, &p.name);
                    let len = Size::of(len, Some(k));
                    if let Some(tiles) = &start.tile_number {
                        self.number_of_a_tile(tiles, at);
                        known = false;
                    }
                    if len.is_one() {
                        points.push((dim, start.number.clone()));
                    }
                    // One element that is counted along the dim lies inside.
                    if !len.is_one() || !self.counted.contains(&(start.number.clone(), dim)) {
                        edges.push(edge(shape.len(), start.depth, dim, start.number, len.clone(), None));
                    }
                    shape.push(len);
                }
                Index::At(e) => {
                    let ty = self.index(e, &p.name, dim);
                    known &= ty.elem != Elem::Unknown;
                    if let (None, Some(tiles)) = (&ty.coordinate, &ty.tile_number) {
                        self.number_of_a_tile(tiles, e.place);
                        known = false;
                    }
                    if let Some([extent]) = ty.shape.as_deref() {
                        if let Some(why) = not_gathered(&p.name, *writable, update, gathered.replace(axis)) {
                            self.error(235, e.place, why);
                            known = false;
                        }
                        // What is loaded has the edges of its places, and an `or` of it fills them.
                        edges.extend(ty.edges.iter().map(|edge| Edge {
                            axis: shape.len(),
                            load: load(),
                            elem: elem(),
                            place,
                            ..edge.clone()
                        }));
                        let ones = ty.edges.iter().filter(|edge| edge.cut.len.is_one());
                        points.extend(ones.map(|edge| (edge.cut.dim, edge.cut.start.clone())));
                        shape.push(extent.clone());
                        continue;
                    }
                    let tile = ty.coordinate.as_ref().and_then(|at| at.tile.clone());
                    if tile.as_ref().is_none_or(Size::is_one) {
                        points.push((dim, ty.number.clone()));
                    }
                    if let Some((coordinate, size, _)) = self.first_of_tile(e) {
                        lacks_axes = Some(format!(
                            "the index `{coordinate} * {size}` of `{name}` is one element, the first of tile `{coordinate}`: write `{coordinate}` for the tile"
                        ));
                    }
                    let Some(at) = ty.coordinate else { continue };
                    axes.extend(at.axis.map(|of| (of, axis)));
                    if let Some(size) = tile {
                        edges.push(edge(shape.len(), ty.depth, dim, ty.number, size.clone(), Some(at.name.clone())));
                        shape.push(size);
                    }
                    if at.dim != dim {
                        let (counted, wanted, name) = (&k.dims[at.dim].name, &k.dims[dim].name, &p.name);
                        let what = if at.tile.is_some() { "tiles" } else { "elements" };
                        let meant = match &at.tile {
                            None => format!("; if it is meant, say so: `{} + 0`", at.name),
                            Some(_) if !writable => String::new(),
                            Some(size) => format!(
                                "; if {wanted} counts these tiles, let the grid count {wanted}, as `p`, and load at `span(p * {size}, {size})` where `{}` is now",
                                at.name
                            ),
                        };
                        let message = format!(
                            "`{}` counts {what} of {counted}, but axis {axis} of `{name}` is {wanted}{meant}",
                            at.name
                        );
                        self.error(119, e.place, message);
                        known = false;
                    }
                }
            }
        }
        let elem = elem();
        let ty = if known { Ty { edges, lacks_axes, ..Ty::tile(elem, shape) } } else { Ty { elem, ..Ty::unknown() } };
        Region { ty, coordinates: axes, points }
    }

    /// What to say of the elements of a tile, if an expression counts them, as in `n * BN + iota([BN], 0)`, and their dim.
    pub(crate) fn elements_of_tile(&self, op: BinaryOp, a: &Expr, b: &Expr) -> Option<(String, usize)> {
        let sides = [(a, b), (b, a)].into_iter().filter(|_| op == BinaryOp::Add);
        sides.into_iter().find_map(|(first, counted)| {
            let ExprKind::Iota { shape, axis: (axis, _) } = &counted.kind else { return None };
            let (name, size, dim) = self.first_of_tile(first)?;
            // Other extents are other elements.
            let is_tile = |(at, extent): (usize, &Extent)| {
                let extent = Size::of(extent, Some(self.kernel));
                if at == usize::from(*axis) { extent.to_string() == size } else { extent.is_one() }
            };
            let why =
                || format!("the elements `{name} * {size} + iota(..)` are tile `{name}`: write `{name}` as the index");
            shape.iter().enumerate().all(is_tile).then(|| (why(), dim))
        })
    }

    /// The name of a tile's coordinate, the size of the tile and its dim, if an expression is the product of the first two.
    fn first_of_tile(&self, e: &Expr) -> Option<(String, String, usize)> {
        let ExprKind::Binary(BinaryOp::Mul, a, b) = &e.kind else { return None };
        let of = |at: &Expr, size: &Expr| {
            let ExprKind::Local(id) = at.kind else { return None };
            let coordinate = self.vars[id].coordinate.as_ref()?;
            let tile = coordinate.tile.as_ref()?.to_string();
            let written = match &size.kind {
                ExprKind::Knob(i) => self.kernel.ast.tune[*i].name.to_string(),
                ExprKind::Literal { value, .. } => value.to_string(),
                _ => return None,
            };
            (written == tile).then(|| (coordinate.name.clone(), tile, coordinate.dim))
        };
        of(a, b).or_else(|| of(b, a))
    }

    /// What to write if no index of a store is the coordinate of an axis of the grid.
    fn at_coordinate(&self, axis: &Axis, index: &[Index]) -> String {
        let coord = self.local_name(axis.coord);
        let starts = |e: &Expr| self.first_of_tile(e).filter(|(name, ..)| *name == coord);
        for i in index {
            let (Index::At(e) | Index::Span { start: e, .. }) = i else { continue };
            match starts(e) {
                Some((_, size, _)) if matches!(i, Index::At(_)) => {
                    return format!("; `{coord} * {size}` is one element: write `{coord}`, which is the whole tile");
                }
                Some((_, size, _)) => {
                    return format!(
                        "; write `{coord}`, which is the tile of {size} elements from `{coord} * {size}` on"
                    );
                }
                None if mentions(e, axis.coord) => {
                    return format!(
                        "; an index that is computed from `{coord}` may be the same in two programs: store at `{coord}` itself, and shift what is loaded"
                    );
                }
                None => {}
            }
        }
        let dim = &self.kernel.dims[axis.dim].name;
        let looped = match &axis.size {
            Some(size) => format!("tiles({dim}, {})", Size::of(size, Some(self.kernel))),
            None => format!("0..size({dim})"),
        };
        format!(
            "; to store something of each program, give the tensor an axis for `{coord}`; to combine along {dim}, take `{coord}` out of the grid, and loop inside of the program: `for {coord} in {looped}`, or add to what is there by `atomic_add`"
        )
    }

    /// Reports the number of a tile that is used as the number of an element.
    fn number_of_a_tile(&mut self, tiles: &Coordinate, place: SourceRange) {
        let name = &tiles.name;
        let size = tiles.tile.as_ref().map_or(String::new(), Size::to_string);
        let message = format!(
            "`{name}` counts tiles of {size} elements, and this index is an element: tile `{name}` begins at `{name} * {size}`, and the tile after it is `span(({name} + 1) * {size}, {size})`"
        );
        self.error(119, place, message);
    }

    /// An index or a bound: a scalar i32.
    pub(crate) fn whole_number(&mut self, e: &Expr, what: impl Display) -> Ty {
        let ty = self.expr(e);
        self.one_whole_number(ty, e.place, what)
    }

    /// An index that is an expression: an integer, or a tile of places along one axis.
    fn index(&mut self, e: &Expr, tensor: &Ident, dim: usize) -> Ty {
        let ty = self.expr(e);
        let Some(shape) = ty.shape.as_ref().filter(|s| !s.is_empty()) else {
            return self.one_whole_number(ty, e.place, tensor);
        };
        let cure = match &ty.lacks_axes {
            Some(why) if ty.spells_tile == Some(dim) => why,
            _ if shape.len() == 1 && ty.elem == Elem::Fixed(DType::I32) => return ty,
            _ if shape.len() == 1 => "write `(..).cast::<i32>()` around it",
            _ if shape.iter().filter(|size| !size.is_one()).count() == 1 => {
                "a tile of places has one axis, as `load(ids[n])` and `iota([BN], 0)` have: leave out `.t()`, or let the grid count \
                 single elements, where a reduction over all axes gives a scalar"
            }
            _ => "a tile of places has one axis: load part by part",
        };
        let message = format!("an index of `{tensor}` is an i32, or a tile of them along one axis, found {ty}; {cure}");
        self.mistake(113, e.place, message)
    }

    fn one_whole_number(&mut self, ty: Ty, place: SourceRange, what: impl Display) -> Ty {
        let fits = match &ty.elem {
            Elem::Literal(Some(x)) => Elem::Fixed(DType::I32).refuses(*x).is_none(),
            Elem::Literal(None) | Elem::Unknown => true,
            elem => *elem == Elem::Fixed(DType::I32),
        };
        if !fits || ty.shape.as_ref().is_some_and(|s| !s.is_empty()) {
            let is_tile = ty.shape.as_ref().is_some_and(|s| !s.is_empty());
            let cure = match &ty.lacks_axes {
                Some(why) if is_tile => format!("; {why}"),
                _ => not_one_i32(&ty),
            };
            return self.mistake(113, place, format!("an index of `{what}` is a scalar i32, found {ty}{cure}"));
        }
        ty
    }
}

/// An edge of a stored tile that the store's own index certainly does not leave out, and the matching axis of the store's tile,
/// if there is one.
fn shown<'t>(value: &'t Ty, target: &Ty, points: &[(usize, Number)]) -> Option<(&'t Edge, Option<usize>)> {
    let (from, to) = (value.shape.as_deref()?, target.shape.as_deref()?);
    // Axes of the value to those of the store's tile, which may lack axes of one element.
    let wide = |shape: &[Size]| (0..shape.len()).filter(|&a| !shape[a].is_one()).collect::<Vec<_>>();
    let place = |axis: usize| match from.len() == to.len() {
        true => Some(axis),
        false => wide(to).get(wide(from).iter().position(|&a| a == axis)?).copied(),
    };
    let one = |edge: &Edge| edge.repeats || from.get(edge.axis).is_some_and(Size::is_one);
    let found = value.edges.iter().find(|edge| match edge.cut.start {
        _ if edge.filled => false,
        Number::Sized(_) => false,
        _ if one(edge) => {
            edge.cut.len.is_one()
                && !points.iter().any(|(dim, number)| *dim == edge.cut.dim && edge.cut.start.may_equal(number))
        }
        _ => !place(edge.axis)
            .is_some_and(|axis| target.edges.iter().any(|own| own.axis == axis && own.cut.may_equal(&edge.cut))),
    })?;
    Some((found, place(found.axis).filter(|_| !one(found))))
}

/// What to write so that a stored tile has numbers past its edge: `value` goes to a tensor `name` whose elements are `of`.
fn stands(edge: &Edge, update: Update, (value, name): (&Expr, &Ident), of: &Elem) -> String {
    let is_load = matches!(value.kind, ExprKind::Load { .. });
    match update.combine().map(|op| neutral(op, of)) {
        Some(Some(same)) if is_load => return format!("`{}.or({same})`, which changes nothing", edge.load),
        Some(Some(same)) => return format!("`.or({same})` behind all that is stored, which changes nothing"),
        _ => {}
    }
    let number = |op| neutral(op, &edge.elem);
    let stands = match (number(BinaryOp::Add), number(BinaryOp::Mul)) {
        (Some(zero), _) if is_load => format!("`{}.or({zero})`, or another number", edge.load),
        (Some(zero), Some(one)) => format!(
            "`{}.or(v)`, whose number `v` is {zero} for what is added, {one} for a factor, {} for a side of `max`, {} for a side of `min`",
            edge.load,
            number(BinaryOp::Max).map_or("one above none of the elements".to_owned(), |least| format!("`{least}`")),
            number(BinaryOp::Min)
                .map_or("one below none of the elements".to_owned(), |greatest| format!("`{greatest}`"))
        ),
        _ => format!("`{}.or(v)`", edge.load),
    };
    if !update.is_free() || update.is_atomic() {
        return stands;
    }
    format!(
        "{stands}. It is stored too, where its place is inside of `{name}`: give it the place -1 there, as `select(in_range, place, -1)` does"
    )
}

/// The tiles of two axes of a store, if the stored tile certainly has them the other way round: what it holds is of the tiles
/// `(q, p)`, and it would be stored to `(p, q)`. An `or` does not make that right.
fn crossed(value: &Ty, target: &Ty) -> Option<[String; 2]> {
    let (from, to) = (value.shape.as_deref()?, target.shape.as_deref()?);
    // `t` exchanges two axes.
    let [p, q] = (from.len() == 2 && to.len() == 2).then_some([0, 1])?;
    let written = |axis: usize| {
        let edge = target.edges.iter().find(|e| e.axis == axis)?;
        let is_known = matches!(edge.cut.start, Number::Formula(_)) && !edge.cut.len.is_one();
        Some((&edge.cut, edge.tile.clone().filter(|_| is_known)?))
    };
    let ((at_p, name_p), (at_q, name_q)) = (written(p)?, written(q)?);
    let is_all = |axis: usize, cut: &Cut| {
        let mut own = value.edges.iter().filter(|e| e.axis == axis && !e.repeats).peekable();
        own.peek().is_some() && own.all(|e| e.cut == *cut)
    };
    (at_p != at_q && is_all(p, at_q) && is_all(q, at_p)).then_some([name_p, name_q])
}

/// True if a local is an operand of an expression of numbers.
fn mentions(e: &Expr, local: LocalId) -> bool {
    match &e.kind {
        ExprKind::Local(id) => *id == local,
        ExprKind::Unary(_, x) | ExprKind::Cast(_, x) => mentions(x, local),
        ExprKind::Binary(_, a, b) => mentions(a, local) || mentions(b, local),
        ExprKind::Select(parts) | ExprKind::Clamp(parts) => parts.iter().any(|x| mentions(x, local)),
        _ => false,
    }
}

/// The names of two tiles of one dim: of an axis of a tile, and of the axis of the store where that is to stand.
fn another_tile(edge: &Edge, target: &Ty, axis: usize) -> Option<[String; 2]> {
    let to = target.edges.iter().find(|e| e.axis == axis && e.cut.dim == edge.cut.dim)?;
    let [own, other] = [edge, to].map(|e| e.tile.clone());
    own.zip(other).filter(|(own, other)| own != other).map(Into::into)
}

/// The indices of an access as a short text.
fn index_text(k: &Kernel, index: &[Index]) -> String {
    let one = |i: &Index| match i {
        Index::Whole => "..".to_owned(),
        Index::Span { .. } => "span(..)".to_owned(),
        Index::At(e) => match &e.kind {
            ExprKind::Local(id) => k.locals[*id].name.to_string(),
            ExprKind::Literal { value, .. } => value.to_string(),
            _ => "..".to_owned(),
        },
    };
    index.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Why a tensor is not accessed at the places of a tile; `before` is an axis that has a tile of places, too.
fn not_gathered(name: &Ident, is_writable: bool, update: Option<Update>, before: Option<usize>) -> Option<String> {
    if update == Some(Update::Replace) {
        return Some(format!(
            "`{name}` is stored to at the places of a tile, which may name one twice: `atomic_add({name}[..], value)` adds up what \
             meets, to a `{name}` that holds 0 before. If no two places of the whole launch are the same, `store_disjoint({name}[..], value)`"
        ));
    }
    if is_writable && update.is_none() {
        return Some(format!(
            "`{name}` is `&mut`, and is loaded at the places of a tile, which other programs may write: load from a tensor that this \
             kernel does not write, or in a kernel after this one"
        ));
    }
    let before = before?;
    Some(format!(
        "axis {before} of this {} `{name}` has a tile of places, and one axis may have one: give the others `..`, a tile, a span or a number. For an element at two places, give the tensor one axis for both, and a place such as `select(inside, i * L + j, -1)`",
        if update.is_some() { "store to" } else { "load of" }
    ))
}

/// What to write instead of a value that is not a scalar i32.
pub(crate) fn not_one_i32(ty: &Ty) -> String {
    match &ty.shape {
        Some(shape) if !shape.is_empty() => {
            "; a program reads one at a time: let the grid or a loop count the elements".to_owned()
        }
        _ if ty.is_literal() || ty.elem.is_bool() => String::new(),
        _ => match whole_of_numbers(ty, &Elem::Fixed(DType::I32)) {
            Some(mend) => format!("; it {mend}"),
            None => "; write `(..).cast::<i32>()` around it".to_owned(),
        },
    }
}

/// What to write if a tile of another element type is stored, and what that loses.
fn stored_as(found: &Ty, wanted: &Elem) -> String {
    if let Some(mend) = whole_of_numbers(found, wanted) {
        return format!("it {mend}");
    }
    let loses = match (&found.elem, wanted) {
        (Elem::Fixed(from), Elem::Fixed(to)) if from.is_whole() && to.is_whole() => match from.range() != to.range() {
            true if from.bytes() >= to.bytes() => format!(", which keeps the low {} bits", 8 * to.bytes()),
            _ => String::new(),
        },
        (from, to) if !from.converts_to(to) => {
            return format!(
                "write `(..).cast::<f32>().cast::<{to}>()` around it: floats of 8 bits convert from and to floats alone"
            );
        }
        (_, Elem::Fixed(to)) if to.is_fp8() => format!(", which rounds, and ends at the largest number of {to}"),
        (from, Elem::Fixed(to)) if to.is_small() && from.may_be_float() => {
            format!(", which cuts towards 0 and ends at the range of {to}")
        }
        (from, Elem::Fixed(to)) if to.is_int() && from.may_be_float() => ", which cuts towards 0".to_owned(),
        _ => String::new(),
    };
    format!("write `(..).cast::<{wanted}>()` around it{loses}")
}
