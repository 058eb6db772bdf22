//! Symbolic checking: element types and extents of every expression, as names, before any size is known.
//!
//! Tile fns are checked at each call, with the types of its arguments.

use crate::error::{Errors, SourceRange};
use crate::symbolic::{Access, Coordinate, Elem, Number, Size, Ty};
use crate::tree::{Expr, ExprKind, Extent, File, Kernel, Local, LocalKind, ParamKind, Stmt, TileFn};
use atlas_vocabulary::{BinaryOp, DType, Predicate, Random, Takes, number};
use quote::ToTokens;
use std::collections::BTreeMap;
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
        locals: &k.locals,
        vars: vec![Ty::unknown(); k.locals.len()],
        stored: vec![false; k.params.len()],
        accesses: vec![],
        counted: vec![],
        formulas: BTreeMap::new(),
        depth: 0,
        inside: None,
        tensors: None,
        at: None,
        home: None,
    };
    for (i, axis) in k.axes.iter().enumerate() {
        let coordinate = Coordinate {
            name: k.locals[axis.coord].name.to_string(),
            dim: axis.dim,
            axis: Some(i),
            tile: axis.size.as_ref().map(|s| Size::of(s, Some(k))),
        };
        let number = c.local_number(axis.coord);
        if axis.size.is_none() {
            c.counted.push((number.clone(), axis.dim));
        }
        c.vars[axis.coord] = Ty { coordinate: Some(coordinate), number, ..Ty::scalar(Elem::Fixed(DType::I32)) };
    }
    c.statements(&k.body);
    c.regions();
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
    errors.count() > before
}

/// The type of every name, while one kernel is checked.
pub(crate) struct Checker<'a> {
    errors: &'a mut Errors,
    pub(crate) fns: &'a [TileFn],
    pub(crate) kernel: &'a Kernel,
    /// The locals of the kernel, or of the tile fn being checked.
    locals: &'a [Local],
    /// Types of the locals of the kernel, or of the tile fn being checked.
    pub(crate) vars: Vec<Ty>,
    pub(crate) stored: Vec<bool>,
    /// Loads and stores so far.
    pub(crate) accesses: Vec<Access>,
    /// Numbers that the grid or a loop counts along a dim.
    pub(crate) counted: Vec<(Number, usize)>,
    /// The formulas met so far, numbered.
    formulas: BTreeMap<String, usize>,
    /// Open loops.
    pub(crate) depth: usize,
    /// The call being checked, for messages.
    inside: Option<String>,
    /// The names of tensors in the device fn being checked.
    pub(crate) tensors: Option<&'a BTreeMap<usize, String>>,
    /// Where the call stands, if the function is one of another module: a mistake is shown in the user's own text.
    at: Option<SourceRange>,
    /// The input that declares the function being checked, if that is another one.
    home: Option<&'a str>,
}

impl<'a> Checker<'a> {
    pub(crate) fn error(&mut self, code: u16, place: impl Into<SourceRange>, message: impl Display) {
        let place = self.at.unwrap_or(place.into());
        match &self.inside {
            Some(call) => self.errors.push(code, place, format!("{message} (in {call})")),
            None => self.errors.push(code, place, message),
        }
    }

    /// Reports a mistake, and gives the type that silences follow-up errors.
    pub(crate) fn mistake(&mut self, code: u16, place: impl Into<SourceRange>, message: impl Display) -> Ty {
        self.error(code, place, message);
        Ty::unknown()
    }

    pub(crate) fn statements(&mut self, stmts: &'a [Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Let { local, value } => self.vars[*local] = self.expr(value),
                Stmt::Many { locals, call, .. } => {
                    let types = match &call.kind {
                        ExprKind::CallFn { index, args } => self.call(*index, args, call.place),
                        ExprKind::Derivative { .. } => self.derivative(call),
                        _ => vec![],
                    };
                    for (&local, ty) in locals.iter().zip(types) {
                        self.vars[local] = ty;
                    }
                }
                Stmt::Assign { local, op, value, .. } => {
                    let next = match (op, &value.kind) {
                        (None, _) => self.expr(value),
                        (Some(BinaryOp::Add), ExprKind::Dot { .. }) => self.accumulate(*local, value),
                        (Some(op), _) => {
                            let (old, value_ty) = (self.vars[*local].clone(), self.expr(value));
                            let name = self.local_name(*local);
                            let mistake = self.other_type(*op, &name, &old, &value_ty, value.place);
                            let mistake =
                                mistake.or_else(|| self.row_meets_column(&name, &old, &value_ty, value.place));
                            let ty = match mistake {
                                Some(mistake) => mistake,
                                None => {
                                    let (x, y) = ((&old, format!("{name} ")), (&value_ty, self.named(value)));
                                    self.binary(*op, x, y, value.place)
                                }
                            };
                            Ty { depth: self.depth, ..ty }
                        }
                    };
                    self.vars[*local] = next;
                }
                Stmt::Store { update, param, index, value, place, axes, .. } => {
                    if let Some(found) = self.store(*update, (*param, index), value, *place) {
                        axes.get_or_init(|| found);
                    }
                }
                Stmt::Loop(l) => self.for_loop(l),
                Stmt::Inlined { call, tensors, body } => {
                    let outer = self.inside.replace(call.clone());
                    let outer_tensors = self.tensors.replace(tensors);
                    self.statements(body);
                    (self.inside, self.tensors) = (outer, outer_tensors);
                }
            }
        }
    }

    pub(crate) fn local_name(&self, local: usize) -> String {
        self.locals[local].name.to_string()
    }

    pub(crate) fn local_kind(&self, local: usize) -> LocalKind {
        self.locals[local].kind
    }

    /// The operand's name and a space if it is a name, for messages such as `dot of xs [BN, D] and ..`.
    pub(crate) fn named(&self, e: &Expr) -> String {
        match &e.kind {
            ExprKind::Local(id) if self.inside.is_none() => format!("{} ", self.local_name(*id)),
            ExprKind::Scalar(i) => format!("{} ", self.kernel.params[*i].name),
            ExprKind::Knob(i) => format!("{} ", self.kernel.ast.tune[*i].name),
            _ => String::new(),
        }
    }

    pub(crate) fn expr(&mut self, e: &Expr) -> Ty {
        let ty = Ty { number: self.number_of(e), tile_number: self.tile_number(e), ..self.type_of(e) };
        let depth = match e.kind {
            ExprKind::Local(_) | ExprKind::CallFn { .. } => ty.depth,
            ExprKind::Scalar(_) => 0,
            _ if ty.is_literal() => 0,
            _ => self.depth,
        };
        // What is made of the elements of a tile is another tile.
        let is_same = matches!(e.kind, ExprKind::Local(_) | ExprKind::Binary(..) | ExprKind::CallFn { .. });
        let spells_tile = ty.spells_tile.filter(|_| is_same);
        Ty { depth, spells_tile, ..ty }
    }

    /// The number behind a name of the grid or of a loop.
    pub(crate) fn local_number(&self, local: usize) -> Number {
        Number::Formula(format!("%{local}"))
    }

    /// The tile coordinate that a number is, as it stands or with something added to it.
    fn tile_number(&self, e: &Expr) -> Option<Coordinate> {
        match &e.kind {
            ExprKind::Local(id) => {
                let ty = &self.vars[*id];
                let own = ty.coordinate.clone().filter(|c| c.tile.as_ref().is_some_and(|size| !size.is_one()));
                own.or_else(|| ty.tile_number.clone())
            }
            ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => {
                self.tile_number(a).or_else(|| self.tile_number(b))
            }
            _ => None,
        }
    }

    /// The number that an expression denotes. Calls are not followed.
    fn number_of(&mut self, e: &Expr) -> Number {
        match &e.kind {
            ExprKind::Literal { value, .. } => Number::Sized(value.to_string()),
            // The whole path: consts of two modules are two numbers.
            ExprKind::Const(path) => {
                Number::Sized(format!("{}{}", self.home.unwrap_or_default(), path.to_token_stream()))
            }
            ExprKind::Knob(i) => Number::Sized(self.kernel.ast.tune[*i].name.to_string()),
            ExprKind::Local(id) => self.vars[*id].number.clone(),
            ExprKind::Scalar(i) => Number::Formula(self.kernel.params[*i].name.to_string()),
            ExprKind::Size(dim) => Number::Sized(format!("size({dim})")),
            ExprKind::Unary(op, x) => {
                let x = self.number_of(x);
                Number::made_of(op.text(), &[&x], &mut self.formulas)
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.number_of(a), self.number_of(b));
                Number::made_of(op.text(), &[&a, &b], &mut self.formulas)
            }
            _ => Number::Unknown,
        }
    }

    fn type_of(&mut self, e: &Expr) -> Ty {
        let elem = |d| Elem::of(d, Some(self.kernel));
        match &e.kind {
            ExprKind::Literal { value, .. } => Ty::literal(Some(*value)),
            ExprKind::Const(_) | ExprKind::Knob(_) => Ty::literal(None),
            ExprKind::Local(id) => self.vars[*id].clone(),
            ExprKind::Scalar(i) => Ty::scalar(elem(self.kernel.params[*i].dtype)),
            ExprKind::Size(_) => Ty::scalar(Elem::Fixed(DType::I32)),
            ExprKind::Table { name, indices } => {
                let name = name.path.segments.last().map_or(String::new(), |s| s.ident.to_string());
                for i in indices {
                    self.whole_number(i, &name);
                }
                Ty::scalar(Elem::Fixed(DType::F32))
            }
            ExprKind::Unary(op, x) => self.unary(*op, x, e),
            ExprKind::Binary(op, a, b) => {
                let (x, y) = (self.expr(a), self.expr(b));
                let mistake = self.whole_quotient(*op, a, b, e.place);
                if let Some(mistake) = mistake.or_else(|| self.cut_quotient((&x, a), (&y, b))) {
                    return mistake;
                }
                let ty = self.binary(*op, (&x, self.named(a)), (&y, self.named(b)), e.place);
                match self.elements_of_tile(*op, a, b) {
                    None => ty,
                    Some((why, dim)) => Ty { lacks_axes: Some(why), spells_tile: Some(dim), ..ty },
                }
            }
            ExprKind::Compare(p, a, b) => self.compare(*p, [&**a, &**b], e),
            ExprKind::Select(parts) => self.select(parts, e),
            ExprKind::Clamp(parts) => self.of_three("clamp", Takes::Numbers, parts, e),
            ExprKind::Fma(parts) => self.of_three("fma", Takes::Floats, parts, e),
            ExprKind::IsNan(x) => self.is_nan(x, e),
            ExprKind::Random(of, parts) => self.random(*of, parts),
            ExprKind::Cast(to, x) => self.cast(elem(*to), x, e),
            ExprKind::CastLike(parts) => self.cast_like(parts, e),
            ExprKind::Transpose(x) => {
                let ty = self.expr(x);
                match ty.shape.as_deref() {
                    Some([m, n]) => {
                        let shape = Some(vec![n.clone(), m.clone()]);
                        Ty { shape, ..ty }.with_moved_edges(|axis| Some(1 - axis.min(1)))
                    }
                    // A tile of rank 1 is a row wherever it broadcasts.
                    Some([n]) => Ty { shape: Some(vec![n.clone(), Size::Number(1)]), ..ty },
                    Some(_) => self.mistake(
                        108,
                        e.place,
                        format!("`t` transposes a tile of rank 1 or 2, found {}{ty}", self.named(x)),
                    ),
                    None => ty,
                }
            }
            ExprKind::ClusterSum(x) => self.cluster_sum(x, e),
            ExprKind::Dot { operands, precision } => self.dot(operands, *precision, e),
            ExprKind::Reduce { op, value, axis } => {
                let ty = self.expr(value);
                self.reduce(*op, ty, *axis, value.place)
            }
            ExprKind::Scan { op, value, axis, .. } => self.scan(*op, value, *axis),
            ExprKind::Load { param, index } => self.load(*param, index, e.place),
            ExprKind::Or(parts) => self.or(parts),
            ExprKind::Fill { dtype, shape, value } => {
                let (to, x) = (elem(*dtype), self.expr(value));
                if !x.elem.agrees(&to) || x.shape.as_ref().is_some_and(|s| !s.is_empty()) {
                    return self.mistake(105, value.place, format!("`full` repeats one {to}, found {x}"));
                }
                if let Elem::Literal(Some(v)) = x.elem
                    && let Some(why) = to.refuses(v)
                {
                    return self.mistake(
                        117,
                        value.place,
                        format!("`full`: the number {} meets {to}, and {why}", number(v)),
                    );
                }
                Ty { counts: x.counts, ..Ty::tile(to, self.sizes(shape)) }
            }
            ExprKind::Iota { shape, axis } => self.iota(shape, *axis),
            ExprKind::Broadcast { value, shape } => self.broadcast(value, shape),
            ExprKind::CallFn { index, args } => {
                self.call(*index, args, e.place).into_iter().next().unwrap_or_else(Ty::unknown)
            }
            ExprKind::Derivative { .. } => self.derivative(e).into_iter().next().unwrap_or_else(Ty::unknown),
            ExprKind::Bad => Ty::unknown(),
        }
    }

    /// `is_nan(x)`: a truth value for each element.
    fn is_nan(&mut self, x: &Expr, e: &Expr) -> Ty {
        let ty = self.expr(x);
        if ty.is_literal() || !ty.elem.may_be_float() {
            let mend = match ty.elem.is_small() && !ty.elem.is_fp8() {
                true => "; no integer is NaN".to_owned(),
                false => ty.elem.small_mend(self.named(x).trim_end(), Takes::Floats, None).unwrap_or_default(),
            };
            let message = format!("`is_nan` needs a float tile or scalar, found {}{ty}{mend}", self.named(x));
            return self.mistake(104, e.place, message);
        }
        Ty { elem: Elem::Fixed(DType::Bool), coordinate: None, of_numbers: false, ..ty }
    }

    /// `x.cast::<to>()`.
    fn cast(&mut self, to: Elem, x: &Expr, e: &Expr) -> Ty {
        let (name, x) = (self.named(x), self.expr(x));
        if !x.elem.converts_to(&to) {
            let message = format!(
                "nothing casts {} to {to}: floats of 8 bits convert from and to floats alone; write `{}.cast::<f32>().cast::<{to}>()`",
                x.elem,
                if name.is_empty() { "(..)" } else { name.trim_end() },
            );
            return self.mistake(106, e.place, message);
        }
        let counts = x.counts || x.elem.is_bool();
        Ty { elem: to, coordinate: None, of_numbers: false, counts, ..x }
    }

    /// `x.cast_like(like)`.
    fn cast_like(&mut self, parts: &[Expr; 2], e: &Expr) -> Ty {
        let [x, like] = [0, 1].map(|i| self.expr(&parts[i]));
        if like.is_literal() || like.elem.is_bool() {
            let message = format!("`cast_like` takes the element type of a tile of numbers, found {like}");
            return self.mistake(106, parts[1].place, message);
        }
        if !x.elem.converts_to(&like.elem) {
            let message = format!(
                "nothing casts {} to {}: floats of 8 bits convert from and to floats alone; write `.cast::<f32>()` before it",
                x.elem, like.elem
            );
            return self.mistake(106, e.place, message);
        }
        Ty { elem: like.elem, coordinate: None, of_numbers: like.of_numbers, ..x }
    }

    /// Two operands of one element type: a truth value for each element.
    fn compare(&mut self, p: Predicate, [a, b]: [&Expr; 2], e: &Expr) -> Ty {
        let (x, y) = (self.expr(a), self.expr(b));
        let (x_name, y_name) = (self.named(a), self.named(b));
        for ((ty, name), other) in [((&x, &x_name), &y), ((&y, &y_name), &x)] {
            if let Some(mend) = ty.elem.small_mend(name.trim_end(), Takes::Numbers, Some(&other.elem)) {
                let message = format!("`{}` compares numbers or bool, found {name}{ty}{mend}", p.text());
                return self.mistake(104, e.place, message);
            }
        }
        let both = self.together(&format!("`{}`", p.text()), (&x, x_name), (&y, y_name), e.place);
        Ty { elem: Elem::Fixed(DType::Bool), counts: false, ..both }
    }

    /// `uniform(seed, index)`: a number for each element of the index.
    fn random(&mut self, of: Random, [seed, index]: &[Expr; 2]) -> Ty {
        let (of_seed, of_index) = (self.expr(seed), self.expr(index));
        let name = of.name();
        let is_scalar = |ty: &Ty| ty.shape.as_ref().is_none_or(Vec::is_empty);
        if let Elem::Literal(Some(x)) = of_seed.elem
            && (x.fract() != 0.0 || x.abs() >= 9_007_199_254_740_992.0)
        {
            let message = format!("the seed of `{name}` is {}, but it has to be a whole number below 2^53", number(x));
            return self.mistake(117, seed.place, message);
        }
        if !of_seed.elem.may_be_int() || !is_scalar(&of_seed) {
            let mend = if !of_seed.elem.may_be_int() {
                "; as a parameter it is `seed: i64`"
            } else if is_scalar(&of_index) {
                "; the seed comes first, and then the tile of counters"
            } else {
                "; one element of a tensor is `load(seed[0])`"
            };
            let found = self.named(seed);
            let message = format!("the seed of `{name}` is one whole number, i32 or i64, found {found}{of_seed}{mend}");
            return self.mistake(104, seed.place, message);
        }
        if of_index.is_literal() || !of_index.elem.may_be_int() {
            let found = self.named(index);
            let message = format!(
                "the index of `{name}` is a tile or scalar of i32 or i64, found {found}{of_index}; it counts elements, as in `n * BN + iota([BN], 0)`"
            );
            return self.mistake(104, index.place, message);
        }
        Ty {
            elem: Elem::Fixed(of.row().dtype),
            coordinate: None,
            tile_number: None,
            number: Number::Unknown,
            of_numbers: false,
            counts: false,
            lacks_axes: None,
            spells_tile: None,
            depth: of_index.depth.max(of_seed.depth),
            ..of_index
        }
    }

    pub(crate) fn sizes(&self, shape: &[Extent]) -> Vec<Size> {
        shape.iter().map(|e| Size::of(e, Some(self.kernel))).collect()
    }

    /// A call of a tile fn: its body, checked with the types of the arguments.
    fn call(&mut self, index: usize, args: &[Expr], place: SourceRange) -> Vec<Ty> {
        let types: Vec<Ty> = args.iter().map(|a| self.expr(a)).collect();
        self.call_with(index, types, place)
    }

    /// Each version of a function that stands under `cfg`s is checked; Rust takes one, so all give the same type.
    pub(crate) fn call_with(&mut self, index: usize, types: Vec<Ty>, place: SourceRange) -> Vec<Ty> {
        let fns = self.fns;
        let mut versions = TileFn::versions(fns, index).map(|f| (f, self.call_version(f, types.clone(), place)));
        let Some((_, mut results)) = versions.next() else { return vec![] };
        let versions: Vec<(&TileFn, Vec<Ty>)> = versions.collect();
        for (f, others) in versions {
            for (result, other) in results.iter_mut().zip(others) {
                let (Some(a), Some(b)) = (&result.shape, &other.shape) else { continue };
                let numbers = result.is_literal() && other.is_literal();
                if a == b && (numbers || result.elem == other.elem) {
                    let elem = if numbers { Elem::Literal(None) } else { other.elem.clone() };
                    let depth = result.depth.max(other.depth);
                    let merged = Ty { elem, depth, coordinate: None, number: Number::Unknown, ..result.clone() };
                    *result = merged.with_edges_of(&[&other]);
                    continue;
                }
                let name = &f.ast.name;
                let message =
                    format!("the versions of tile fn `{name}` under `cfg`s give different types: {result} and {other}");
                *result = self.mistake(4, name.span(), message);
            }
        }
        results
    }

    fn call_version(&mut self, f: &'a TileFn, types: Vec<Ty>, place: SourceRange) -> Vec<Ty> {
        let list: Vec<String> = f.ast.params.iter().zip(&types).map(|(p, t)| format!("{p}: {t}")).collect();
        let call = format!("`{}` called with {}", f.ast.name, list.join(", "));
        let mut vars = types;
        vars.resize(f.locals.len(), Ty::unknown());
        let outer_call = self.inside.clone();
        // What a function of another module calls is not the user's.
        if self.at.is_none() {
            self.inside = Some(call);
        }
        let outer_vars = std::mem::replace(&mut self.vars, vars);
        let outer_locals = std::mem::replace(&mut self.locals, &f.locals);
        let (outer_at, outer_home) = (self.at, self.home);
        if let Some(origin) = &f.origin {
            (self.at, self.home) = (Some(outer_at.unwrap_or(place)), Some(origin.home.as_str()));
        }
        self.statements(&f.body);
        let result = f.tail.iter().map(|e| self.expr(e)).collect();
        (self.vars, self.inside, self.locals) = (outer_vars, outer_call, outer_locals);
        (self.at, self.home) = (outer_at, outer_home);
        result
    }
}
