//! Symbolic checking: element types and extents of every expression, by name, before any size is known.
//!
//! Tile fns are checked at each call, with the types of its arguments.

use crate::ast::{BinaryOp, DType, Precision, ReduceOp, UnaryOp};
use crate::error::{Errors, Place};
use crate::symbolic::{Coordinate, Elem, Size, Ty, broadcast, broadcasts_to, list, stores_to};
use crate::tree::{Expr, ExprKind, Extent, File, Index, Kernel, Loop, ParamKind, Range, Stmt, TileFn};
use std::fmt::Display;

/// Checks every kernel, and marks those with mistakes as broken.
pub(crate) fn check(file: &mut File, errors: &mut Errors) {
    if file.fns.iter().any(|f| reaches_itself(&file.fns, f)) {
        file.kernels.iter_mut().for_each(|k| k.broken = true);
        return;
    }
    let broken: Vec<bool> =
        file.kernels.iter().map(|k| k.ast.broken || kernel(k, &file.fns, errors) || k.broken).collect();
    for (k, broken) in file.kernels.iter_mut().zip(broken) {
        k.broken = broken;
    }
}

fn reaches_itself(fns: &[TileFn], f: &TileFn) -> bool {
    let (mut todo, mut seen) = (f.calls.clone(), vec![false; fns.len()]);
    while let Some((i, _)) = todo.pop() {
        if std::ptr::eq(&fns[i], f) {
            return true;
        }
        if !std::mem::replace(&mut seen[i], true) {
            todo.extend(&fns[i].calls);
        }
    }
    false
}

/// Checks one kernel; true if it has a mistake.
fn kernel(k: &Kernel, fns: &[TileFn], errors: &mut Errors) -> bool {
    let before = errors.count();
    let mut c = Checker {
        errors,
        fns,
        kernel: k,
        vars: vec![Ty::unknown(); k.locals.len()],
        stored: vec![false; k.params.len()],
        inside: None,
    };
    for (i, axis) in k.axes.iter().enumerate() {
        let coordinate = Coordinate {
            name: k.locals[axis.coord].name.to_string(),
            dim: axis.dim,
            axis: Some(i),
            tile: axis.size.as_ref().map(|s| Size::of(s, Some(k))),
        };
        c.vars[axis.coord] = Ty { coordinate: Some(coordinate), ..Ty::scalar(Elem::Fixed(DType::I32)) };
    }
    c.statements(&k.body);
    let stored = c.stored;
    if k.broken {
        return true; // A store may be among what was wrong.
    }
    for (p, stored) in k.params.iter().zip(stored) {
        if matches!(p.kind, ParamKind::Tensor { writable: true, .. }) && !stored {
            errors.push(
                212,
                p.name.span(),
                format!("`{0}` is `&mut`, but nothing is stored to it: `store({0}[..], value)`", p.name),
            );
        }
    }
    if errors.count() == before && !k.params.iter().any(|p| matches!(p.kind, ParamKind::Tensor { writable: true, .. }))
    {
        errors.push(
            212,
            k.ast.name.span(),
            format!("kernel `{}` writes nothing; declare an output as `y: &mut Tensor<..>`", k.ast.name),
        );
    }
    errors.count() > before
}

/// The type of every name, while one kernel is checked.
struct Checker<'a> {
    errors: &'a mut Errors,
    fns: &'a [TileFn],
    kernel: &'a Kernel,
    /// Types of the locals of the kernel, or of the tile fn being checked.
    vars: Vec<Ty>,
    stored: Vec<bool>,
    /// The call being checked, for messages.
    inside: Option<String>,
}

impl Checker<'_> {
    fn error(&mut self, code: u16, place: impl Into<Place>, message: impl Display) {
        match &self.inside {
            Some(call) => self.errors.push(code, place, format!("{message} (in {call})")),
            None => self.errors.push(code, place, message),
        }
    }

    /// Reports, and gives the type that silences what follows.
    fn mistake(&mut self, code: u16, place: impl Into<Place>, message: impl Display) -> Ty {
        self.error(code, place, message);
        Ty::unknown()
    }

    fn statements(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Let { local, value } => self.vars[*local] = self.expr(value),
                Stmt::Assign { local, op, value, .. } => {
                    let next = match (op, &value.kind) {
                        (None, _) => self.expr(value),
                        (Some(BinaryOp::Add), ExprKind::Dot { .. }) => self.accumulate(*local, value),
                        (Some(op), _) => {
                            let (old, value_ty) = (self.vars[*local].clone(), self.expr(value));
                            let name = format!("{} ", self.local_name(*local));
                            self.binary(*op, (&old, name), (&value_ty, self.named(value)), value.place)
                        }
                    };
                    self.vars[*local] = next;
                }
                Stmt::Store { param, index, value, place, .. } => self.store(*param, index, value, *place),
                Stmt::Loop(l) => self.for_loop(l),
            }
        }
    }

    fn local_name(&self, local: usize) -> String {
        self.kernel.locals[local].name.to_string()
    }

    /// `acc += dot(a, b)`, which accumulates in place.
    fn accumulate(&mut self, local: usize, dot: &Expr) -> Ty {
        let (old, product) = (self.vars[local].clone(), self.expr(dot));
        let name = self.local_name(local);
        let (Some(a), Some(b)) = (&old.shape, &product.shape) else { return product };
        if old.is_literal() || (a.is_empty() && old.elem.agrees(&product.elem)) {
            let zeros = format!("let mut {name} = zeros::<{}>({})", product.elem, list(b));
            return self.mistake(
                105,
                dot.place,
                format!("`{name}` is a number, but accumulates a dot {product}; start with `{zeros}`"),
            );
        }
        if !old.elem.agrees(&product.elem) {
            let message = format!(
                "dot accumulates {}, but `{name}` is {old}; make it `{name}.cast::<{}>()`",
                product.elem, product.elem
            );
            return self.mistake(105, dot.place, message);
        }
        if a.len() != b.len() || !a.iter().zip(b).all(|(x, y)| x.agrees(y)) {
            return self.mistake(107, dot.place, format!("a dot {} is added to `{name}` {}", list(b), list(a)));
        }
        old
    }

    fn store(&mut self, param: usize, index: &[Index], value: &Expr, place: Place) {
        self.stored[param] = true;
        let (target, axes) = self.access(param, index);
        let found = self.expr(value);
        let name = &self.kernel.params[param].name;
        for (i, axis) in self.kernel.axes.iter().enumerate() {
            if target.shape.is_some() && !axes.contains(&i) {
                let coord = self.local_name(axis.coord);
                let message = format!(
                    "no index of this store to `{name}` is the grid coordinate `{coord}`: programs that differ in it would write the same elements"
                );
                self.error(213, place, message);
            }
        }
        let (Some(to), Some(from)) = (&target.shape, &found.shape) else { return };
        if !found.elem.agrees(&target.elem) {
            let wanted = target.elem;
            self.error(
                111,
                value.place,
                format!("`{name}` has elements of {wanted}, but this is {found}; write `.cast::<{wanted}>()`"),
            );
        } else if let Elem::Literal(Some(x)) = found.elem
            && target.elem.may_be_int()
            && x.fract() != 0.0
        {
            self.error(
                117,
                value.place,
                format!("`{name}` has elements of {}, but {x} is not a whole number", target.elem),
            );
        } else if !found.is_literal() && !stores_to(from, to) {
            let (wanted, found) = (list(to), list(from));
            let mend = if broadcasts_to(from, to) {
                format!("; a store does not broadcast: write `broadcast(.., {wanted})`")
            } else {
                String::new()
            };
            let found = if from.is_empty() { "a scalar".to_owned() } else { found };
            self.error(111, value.place, format!("store to `{name}` wants a tile {wanted}, found {found}{mend}"));
        }
    }

    /// The type of the tile that an index cuts out of a tensor, and the grid axes whose coordinates are in it.
    fn access(&mut self, param: usize, index: &[Index]) -> (Ty, Vec<usize>) {
        let (k, p) = (self.kernel, &self.kernel.params[param]);
        let ParamKind::Tensor { dims, .. } = &p.kind else { return (Ty::unknown(), vec![]) };
        let (mut shape, mut axes, mut known) = (Vec::new(), Vec::new(), true);
        for (axis, (i, &dim)) in index.iter().zip(dims).enumerate() {
            match i {
                Index::Whole => shape.push(Size::dim(dim, k)),
                Index::Span { start, len } => {
                    self.whole_number(start, &p.name);
                    shape.push(Size::of(len, Some(k)));
                }
                Index::At(e) => {
                    let ty = self.whole_number(e, &p.name);
                    known &= ty.elem != Elem::Unknown;
                    let Some(at) = ty.coordinate else { continue };
                    axes.extend(at.axis);
                    shape.extend(at.tile.clone());
                    if at.dim != dim {
                        let (counted, wanted, name) = (&k.dims[at.dim].name, &k.dims[dim].name, &p.name);
                        let what = if at.tile.is_some() { "tiles" } else { "elements" };
                        let message = format!(
                            "`{}` counts {what} of {counted}, but axis {axis} of `{name}` is {wanted}",
                            at.name
                        );
                        self.error(119, e.place, message);
                        known = false;
                    }
                }
            }
        }
        let elem = Elem::of(p.dtype, Some(k));
        let ty = if known { Ty::tile(elem, shape) } else { Ty { elem, ..Ty::unknown() } };
        (ty, axes)
    }

    /// An index or a bound: a scalar i32.
    fn whole_number(&mut self, e: &Expr, what: impl Display) -> Ty {
        let ty = self.expr(e);
        let fits = match &ty.elem {
            Elem::Literal(Some(x)) => x.fract() == 0.0,
            Elem::Literal(None) | Elem::Unknown => true,
            elem => *elem == Elem::Fixed(DType::I32),
        };
        if !fits || ty.shape.as_ref().is_some_and(|s| !s.is_empty()) {
            return self.mistake(113, e.place, format!("an index of `{what}` is a scalar i32, found {ty}"));
        }
        ty
    }

    fn for_loop(&mut self, l: &Loop) {
        let mut index = Ty::scalar(Elem::Fixed(DType::I32));
        match &l.range {
            Range::Tiles { dim, size, .. } => {
                let name = self.local_name(l.index);
                let tile = Some(Size::of(size, Some(self.kernel)));
                index.coordinate = Some(Coordinate { name, dim: *dim, axis: None, tile });
            }
            Range::Between { lo, hi } => {
                for bound in [lo, hi] {
                    let ty = self.expr(bound);
                    let whole = !matches!(ty.elem, Elem::Literal(Some(x)) if x.fract() != 0.0);
                    if !whole || !ty.elem.agrees(&Elem::Fixed(DType::I32)) || ty.shape.is_some_and(|s| !s.is_empty()) {
                        self.error(112, bound.place, "a loop bound is a scalar i32");
                    }
                }
            }
        }
        self.vars[l.index] = index;
        let entered: Vec<Ty> = l
            .carried
            .iter()
            .map(|&c| {
                // A number carried in is an f32 scalar.
                if self.vars[c].is_literal() {
                    self.vars[c].elem = Elem::Fixed(DType::F32);
                }
                self.vars[c].coordinate = None;
                self.vars[c].clone()
            })
            .collect();
        self.statements(&l.body);
        for (&c, want) in l.carried.iter().zip(entered) {
            let left = self.vars[c].clone();
            if let (Some(a), Some(b)) = (&left.shape, &want.shape)
                && (!left.elem.agrees(&want.elem) || !broadcasts_to(a, b))
            {
                let name = self.local_name(c);
                let message = format!(
                    "the loop carries `{name}` as {want}, but its body leaves it {left}; a carried name keeps its type"
                );
                self.error(116, l.place, message);
            }
            // A mistake in the body is not reported again after it.
            self.vars[c] = if left.shape.is_some() { want } else { left };
        }
    }

    /// The operand's name and a space if it is a name, for messages such as `dot of xs [BN, D] and ..`.
    fn named(&self, e: &Expr) -> String {
        match &e.kind {
            ExprKind::Local(id) if self.inside.is_none() => format!("{} ", self.local_name(*id)),
            ExprKind::Scalar(i) => format!("{} ", self.kernel.params[*i].name),
            ExprKind::Knob(i) => format!("{} ", self.kernel.ast.tune[*i].name),
            _ => String::new(),
        }
    }

    fn expr(&mut self, e: &Expr) -> Ty {
        let elem = |d| Elem::of(d, Some(self.kernel));
        match &e.kind {
            ExprKind::Literal { value, .. } => Ty::literal(Some(*value)),
            ExprKind::Const(_) | ExprKind::Knob(_) => Ty::literal(None),
            ExprKind::Local(id) => self.vars[*id].clone(),
            ExprKind::Scalar(i) => Ty::scalar(elem(self.kernel.params[*i].dtype)),
            ExprKind::Size(_) => Ty::scalar(Elem::Fixed(DType::I32)),
            ExprKind::Table { name, indices } => {
                let name = name.segments.last().map_or(String::new(), |s| s.ident.to_string());
                for i in indices {
                    self.whole_number(i, &name);
                }
                Ty::scalar(Elem::Fixed(DType::F32))
            }
            ExprKind::Unary(op, x) => self.unary(*op, x, e),
            ExprKind::Binary(op, a, b) => {
                let (x, y) = (self.expr(a), self.expr(b));
                self.binary(*op, (&x, self.named(a)), (&y, self.named(b)), e.place)
            }
            ExprKind::Compare(p, a, b) => {
                let (x, y) = (self.expr(a), self.expr(b));
                let both = self.together(&format!("`{}`", p.text()), (&x, self.named(a)), (&y, self.named(b)), e.place);
                Ty { elem: Elem::Fixed(DType::Bool), ..both }
            }
            ExprKind::Select(parts) => self.select(parts, e),
            ExprKind::Cast(to, x) => {
                let (to, x) = (elem(*to), self.expr(x));
                Ty { elem: to, coordinate: None, ..x }
            }
            ExprKind::Transpose(x) => {
                let ty = self.expr(x);
                match ty.shape.as_deref() {
                    Some([m, n]) => Ty { shape: Some(vec![n.clone(), m.clone()]), ..ty },
                    Some(_) => self.mistake(
                        108,
                        e.place,
                        format!("`t` transposes a tile of rank 2, found {}{ty}", self.named(x)),
                    ),
                    None => ty,
                }
            }
            ExprKind::Dot { operands, precision } => self.dot(operands, *precision, e),
            ExprKind::Reduce { op, value, axis } => {
                let ty = self.expr(value);
                self.reduce(*op, ty, *axis, value.place)
            }
            ExprKind::Load { param, index } => self.access(*param, index).0,
            ExprKind::Fill { dtype, shape, value } => {
                let (to, x) = (elem(*dtype), self.expr(value));
                if !x.elem.agrees(&to) || x.shape.as_ref().is_some_and(|s| !s.is_empty()) {
                    return self.mistake(105, value.place, format!("`full` repeats one {to}, found {x}"));
                }
                Ty::tile(to, self.sizes(shape))
            }
            ExprKind::Iota { shape, axis: (axis, place) } => {
                let shape = self.sizes(shape);
                if usize::from(*axis) >= shape.len() {
                    return self.mistake(
                        101,
                        *place,
                        format!("axis {axis} of a tile {}, which has rank {}", list(&shape), shape.len()),
                    );
                }
                Ty::tile(Elem::Fixed(DType::I32), shape)
            }
            ExprKind::Broadcast { value, shape } => self.broadcast(value, shape),
            ExprKind::CallFn { index, args } => self.call(*index, args),
            ExprKind::Bad => Ty::unknown(),
        }
    }

    fn broadcast(&mut self, value: &Expr, shape: &[Extent]) -> Ty {
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
        Ty { shape: Some(to), coordinate: None, ..ty }
    }

    fn sizes(&self, shape: &[Extent]) -> Vec<Size> {
        shape.iter().map(|e| Size::of(e, Some(self.kernel))).collect()
    }

    fn unary(&mut self, op: UnaryOp, x: &Expr, e: &Expr) -> Ty {
        let ty = self.expr(x);
        let (fits, wanted) = match op {
            UnaryOp::Not => (ty.elem.is_bool() || ty.elem == Elem::Unknown, "bool"),
            UnaryOp::Neg | UnaryOp::Abs => (!ty.elem.is_bool(), "a number"),
            UnaryOp::Erf => (ty.elem.may_be_float() && !ty.is_literal(), "a float tile or scalar"),
            _ => (ty.elem.may_be_float(), "a float"),
        };
        if !fits {
            return self.mistake(104, e.place, format!("`{}` needs {wanted}, found {}{ty}", op.text(), self.named(x)));
        }
        Ty { coordinate: None, ..ty }
    }

    /// Two operands that meet: one element type, extents that broadcast.
    fn together(&mut self, what: &str, (x, x_name): (&Ty, String), (y, y_name): (&Ty, String), place: Place) -> Ty {
        if !x.elem.agrees(&y.elem) {
            let cast = if matches!(y.elem, Elem::Fixed(DType::F32)) { &y.elem } else { &x.elem };
            let message = format!(
                "{what} of {x_name}{x} and {y_name}{y}: there is no implicit promotion; write `.cast::<{cast}>()`"
            );
            return self.mistake(105, place, message);
        }
        for (number, other) in [(x, y), (y, x)] {
            if let (Elem::Literal(Some(v)), Elem::Fixed(d)) = (&number.elem, &other.elem)
                && (v.fract() != 0.0 && d.is_int() || *d == DType::Bool)
            {
                let code = if *d == DType::Bool { 104 } else { 117 };
                let note = if *d == DType::Bool { "" } else { ", and is not a whole number" };
                return self.mistake(code, place, format!("{what}: the number {v} meets {}{note}", d.text()));
            }
        }
        let (Some(a), Some(b)) = (&x.shape, &y.shape) else { return Ty::unknown() };
        let shape = match broadcast(a, b) {
            Ok(shape) => shape,
            Err((m, n)) => {
                let (a, b) = (list(a), list(b));
                let message =
                    format!("{what} of {x_name}{a} and {y_name}{b}: the extents {m} and {n} differ, and neither is 1");
                return self.mistake(107, place, message);
            }
        };
        let elem = if x.is_literal() || x.elem == Elem::Unknown { y.elem.clone() } else { x.elem.clone() };
        let elem = if let Elem::Literal(_) = elem { Elem::Literal(None) } else { elem };
        Ty::tile(elem, shape)
    }

    fn binary(&mut self, op: BinaryOp, x: (&Ty, String), y: (&Ty, String), place: Place) -> Ty {
        let what = format!("`{}`", op.text());
        for ty in [x.0, y.0] {
            let (fits, wanted) = match op {
                BinaryOp::And | BinaryOp::Or => (ty.elem.is_bool() || ty.elem == Elem::Unknown, "bool"),
                BinaryOp::Rem => (ty.elem.may_be_int(), "integers"),
                _ => (!ty.elem.is_bool(), "numbers"),
            };
            if !fits {
                return self.mistake(104, place, format!("{what} needs {wanted}, found {ty}"));
            }
        }
        self.together(&what, x, y, place)
    }

    fn select(&mut self, [c, t, f]: &[Expr; 3], e: &Expr) -> Ty {
        let (cond, x, y) = (self.expr(c), self.expr(t), self.expr(f));
        if !cond.elem.is_bool() && cond.elem != Elem::Unknown {
            return self.mistake(
                105,
                c.place,
                format!("`select` needs a condition of bool, found {}{cond}", self.named(c)),
            );
        }
        let mut both = self.together("`select`", (&x, self.named(t)), (&y, self.named(f)), e.place);
        if both.is_literal() {
            both.elem = Elem::Fixed(DType::F32);
        }
        let (Some(a), Some(b)) = (&cond.shape, &both.shape) else { return Ty::unknown() };
        match broadcast(a, b) {
            Ok(shape) => Ty { shape: Some(shape), ..both },
            Err((m, n)) => {
                let message =
                    format!("`select` of {} by a condition {}: the extents {n} and {m} differ", list(b), list(a));
                self.mistake(107, e.place, message)
            }
        }
    }

    fn dot(&mut self, [a, b]: &[Expr; 2], precision: Precision, e: &Expr) -> Ty {
        let (x, y) = (self.expr(a), self.expr(b));
        let (x_name, y_name) = (self.named(a), self.named(b));
        let (Some(s), Some(t)) = (&x.shape, &y.shape) else {
            return Ty { elem: x.elem.accumulator(), ..Ty::unknown() };
        };
        let ([m, k], [k2, n]) = (&s[..], &t[..]) else {
            return self.mistake(
                108,
                e.place,
                format!("dot needs two tiles of rank 2, found {x_name}{x} and {y_name}{y}"),
            );
        };
        if !k.agrees(k2) {
            let (s, t) = (list(s), list(t));
            let message = format!("dot of {x_name}{s} and {y_name}{t}: the inner extents {k} and {k2} differ");
            return self.mistake(109, e.place, message);
        }
        if !x.elem.agrees(&y.elem) || !x.elem.may_be_float() {
            let message = format!("dot needs two operands of one float type, found {x_name}{x} and {y_name}{y}");
            return self.mistake(105, e.place, message);
        }
        if precision == Precision::Tf32 && !x.elem.agrees(&Elem::Fixed(DType::F32)) {
            let but = if matches!(x.elem, Elem::Generic(..)) { ", which may be bf16 or f16" } else { "" };
            return self.mistake(110, e.place, format!("precision tf32 needs f32 operands, found {}{but}", x.elem));
        }
        Ty::tile(x.elem.accumulator(), vec![m.clone(), n.clone()])
    }

    fn reduce(&mut self, op: ReduceOp, ty: Ty, axis: Option<(u8, Place)>, value: Place) -> Ty {
        let name = op.text();
        if ty.elem.is_bool() {
            return self.mistake(104, value, format!("`{name}` folds numbers, found {ty}"));
        }
        let Some(shape) = ty.shape.clone() else { return ty };
        let Some((axis, place)) = axis else { return Ty { shape: Some(vec![]), coordinate: None, ..ty } };
        let mut shape = shape;
        let rank = shape.len();
        let axes = if rank == 1 {
            "whose only axis is 0".to_owned()
        } else {
            format!("whose axes are 0 to {}", rank.max(1) - 1)
        };
        match shape.get_mut(usize::from(axis)) {
            Some(size) => *size = Size::Number(1),
            None if rank == 0 => {
                return self.mistake(
                    101,
                    value,
                    format!("`{name}` folds an axis of a tile, but this is a scalar {ty}"),
                );
            }
            None => {
                return self.mistake(101, place, format!("`{name}` along axis {axis} of a tile {ty}, {axes}"));
            }
        }
        Ty { shape: Some(shape), coordinate: None, ..ty }
    }

    /// A call of a tile fn: its body, checked with the types of the arguments.
    fn call(&mut self, index: usize, args: &[Expr]) -> Ty {
        let fns = self.fns;
        let f = &fns[index];
        let types: Vec<Ty> = args.iter().map(|a| self.expr(a)).collect();
        let list: Vec<String> = f.ast.params.iter().zip(&types).map(|(p, t)| format!("{p}: {t}")).collect();
        let call = format!("`{}` called with {}", f.ast.name, list.join(", "));
        let mut vars = types;
        vars.resize(f.locals.len(), Ty::unknown());
        let (outer_vars, outer_call) = (std::mem::replace(&mut self.vars, vars), self.inside.replace(call));
        self.statements(&f.body);
        let result = self.expr(&f.tail);
        (self.vars, self.inside) = (outer_vars, outer_call);
        result
    }
}
