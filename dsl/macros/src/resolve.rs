//! Scopes and statements: resolves names to parameters, dims, knobs, coordinates, lets and tile fns.

use crate::ast::{self, AxisSyntax, ExprSyntax, ExprSyntaxKind, KernelSyntax, RangeSyntax, StmtSyntax, TileFnSyntax};
use crate::device_fn::{Frame, take_product};
use crate::error::{Errors, SourceRange};
use crate::import::Package;
use crate::names::{is_store, nearest};
use crate::require::requirement;
use crate::resolve_fns::{FnSignature, Foreign, Signatures, declared, report_recursion};
use crate::signature::{check_order, check_tune, is_upper, signature};
use crate::tree::{
    Axis, Dim, Expr, ExprKind, Extent, File, Kernel, Local, LocalId, LocalKind, Loop, Param, Range, Scope, Stmt, TileFn,
};
use atlas_vocabulary::{BinaryOp, LoopKind, ScheduleKey};
use proc_macro2::{Ident, Span};
use std::collections::BTreeMap;

/// Resolves every item. `packages` are the tile fns of other modules that are called, as far as they could be read.
pub(crate) fn resolve(items: Vec<ast::Item>, packages: Vec<(syn::Path, Option<Package>)>, errors: &mut Errors) -> File {
    let mut signatures = Signatures::default();
    signatures.own(&items, errors);
    let foreign = signatures.foreign(packages);
    signatures.imports(&items, errors);
    signatures.passed_on(&items);
    let (mut fns, mut kernel_asts) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            ast::Item::TileFn(f) => {
                let index = fns.len();
                fns.push(function(f, index, &signatures, &signatures.scope, errors));
            }
            ast::Item::Kernel(k) => kernel_asts.push(k),
            ast::Item::Use(_) => {}
        }
    }
    report_recursion(&mut fns, errors);
    for Foreign { ast, scope, origin } in foreign {
        // Where it is declared its mistakes were reported.
        let f = function(ast, fns.len(), &signatures, &scope, &mut Errors::default());
        fns.push(TileFn { origin: Some(origin), ..f });
    }
    let kernels = kernel_asts.into_iter().map(|k| kernel(k, &signatures, &fns, errors)).collect();
    File { fns, kernels }
}

fn function(ast: TileFnSyntax, index: usize, fns: &Signatures, scope: &Scope, errors: &mut Errors) -> TileFn {
    if ast.is_device {
        return declared(ast, index, fns, scope, errors);
    }
    let before = errors.count();
    let mut r = Resolver::new(&fns.list, &[], scope, errors);
    for (i, p) in ast.params.iter().enumerate() {
        if ast.params[..i].contains(p) {
            r.errors.push(4, p.span(), format!("parameter `{p}` of `{}` is declared twice", ast.name));
        }
        r.bind(p, LocalKind::FnParam);
    }
    let mut body = Vec::new();
    let mut tail = None;
    let count = ast.body.len();
    for (i, stmt) in ast.body.iter().enumerate() {
        match stmt {
            StmtSyntax::Expr { value: ExprSyntax { kind: ExprSyntaxKind::Tuple(list), .. }, last: true }
                if i + 1 == count =>
            {
                tail = Some(list.iter().map(|e| r.expr(e)).collect());
            }
            StmtSyntax::Expr { value, last: true } if i + 1 == count => tail = Some(vec![r.expr(value)]),
            StmtSyntax::Let { .. }
            | StmtSyntax::LetMany { .. }
            | StmtSyntax::Assign { .. }
            | StmtSyntax::AssignMany { .. } => r.statement(stmt, &mut body),
            StmtSyntax::Grid { place, .. } | StmtSyntax::Loop { place, .. } => {
                r.errors.push(20, *place, "a tile fn has no loops; write the loop in the kernel, or in a `device fn`");
            }
            StmtSyntax::Expr { value, .. } => {
                if let Some((_, name, _)) = r.device_call(value) {
                    r.no_device_call(&name, value.place);
                    continue;
                }
                let message = match &value.kind {
                    ExprSyntaxKind::Call { name, .. } if is_store(&name.to_string()) => {
                        "a tile fn gives a tile back, and stores nothing; store it in the kernel, or in a `device fn`"
                    }
                    _ => "the value of this expression is not used; a tile fn ends in an expression without `;`",
                };
                r.errors.push(20, value.place, message);
            }
        }
    }
    let no_tail = tail.is_none() && !ast.broken && r.errors.count() == before;
    let bad = || Expr { kind: ExprKind::Bad, place: ast.name.span().into(), token: ast.name.span() };
    let tail = tail.unwrap_or_else(|| vec![bad()]);
    if no_tail {
        r.errors.push(
            20,
            ast.name.span(),
            format!("tile fn `{}` ends without an expression: what is its result?", ast.name),
        );
    }
    if !ast.broken && r.errors.count() == before {
        r.report_unused();
    }
    let broken = ast.broken || r.errors.count() > before;
    let (locals, calls, uses) = (r.locals, r.calls, r.uses);
    let (results, group, scope) = (tail.len(), fns.list[index].group, Scope::new());
    TileFn { ast, locals, body, tail, results, calls, uses, scope, group, origin: None, broken }
}

fn kernel(ast: KernelSyntax, fns: &Signatures, device: &[TileFn], errors: &mut Errors) -> Kernel {
    let before = errors.count();
    check_tune(&ast, errors);
    let (params, dims) = signature(&ast, errors);
    let requires = ast.requires.iter().filter_map(|e| requirement(e, &dims, errors)).collect();
    let mut r = Resolver::new(&fns.list, device, &fns.scope, errors);
    r.kernel = Some(&ast);
    r.params = params;
    r.dims = dims;
    r.param_used = vec![false; r.params.len()];
    r.knob_used = vec![false; ast.tune.len()];
    let (mut axes, mut body) = (Vec::new(), Vec::new());
    let mut grid: Option<SourceRange> = None;
    let has_grid = ast.body.iter().any(|s| matches!(s, StmtSyntax::Grid { .. }));
    for stmt in &ast.body {
        match stmt {
            StmtSyntax::Grid { coords, axes: written, body: stmts, place } => {
                if grid.is_some() {
                    let message =
                        format!("`{}` has a second grid loop; a kernel has one, so write two kernels", ast.name);
                    r.errors.push(26, *place, message);
                    continue;
                }
                grid = Some(*place);
                axes = r.grid(coords, written, *place);
                body = r.block(stmts);
            }
            _ if !has_grid => {}
            StmtSyntax::Loop { place, .. } => {
                r.errors.push(26, *place, "this loop stands outside the grid loop; move it inside")
            }
            StmtSyntax::Let { name, .. } | StmtSyntax::Assign { name, .. } => {
                r.errors.push(26, name.span(), "this statement stands outside the grid loop; move it inside");
            }
            StmtSyntax::LetMany { value, .. } | StmtSyntax::AssignMany { value, .. } => {
                r.errors.push(26, value.place, "this statement stands outside the grid loop; move it inside");
            }
            StmtSyntax::Expr { value, .. } => {
                r.errors.push(26, value.place, "this statement stands outside the grid loop; move it inside");
            }
        }
    }
    let is_mistaken = ast.broken || r.lacks_a_body || r.errors.count() > before;
    if !is_mistaken {
        if !has_grid {
            r.report_no_grid(&ast);
        } else if !r.stores {
            r.report_no_store(&ast, &axes);
        } else {
            r.report_unused();
        }
    }
    let (params, dims, locals) = (r.params, r.dims, r.locals);
    check_order(&ast, axes.len(), errors);
    let broken = is_mistaken || errors.count() > before;
    Kernel { ast, params, dims, locals, axes, requires, body, broken }
}

/// The names that a body binds.
pub(crate) struct LocalNames {
    scopes: Vec<BTreeMap<String, LocalId>>,
    /// Names of scopes that have ended.
    pub(crate) ended: Vec<String>,
}

impl Default for LocalNames {
    fn default() -> LocalNames {
        LocalNames { scopes: vec![BTreeMap::new()], ended: vec![] }
    }
}

/// Scopes and the used names of the signature, while a body is resolved.
pub(crate) struct Resolver<'a> {
    pub(crate) errors: &'a mut Errors,
    pub(crate) fns: &'a [FnSignature],
    /// The bodies of device fns, by the same numbers.
    pub(crate) device: &'a [TileFn],
    /// What names and paths mean here.
    pub(crate) scope: &'a Scope,
    /// The device fns being inlined, each called by the one before it.
    pub(crate) frames: Vec<Frame>,
    /// How many calls of device fns were written out.
    pub(crate) inlined: usize,
    /// `None` in a tile fn.
    pub(crate) kernel: Option<&'a KernelSyntax>,
    pub(crate) params: Vec<Param>,
    pub(crate) dims: Vec<Dim>,
    pub(crate) param_used: Vec<bool>,
    pub(crate) knob_used: Vec<bool>,
    /// Something is stored.
    pub(crate) stores: bool,
    /// A device fn that is called has a mistake where it is declared, so its body is not here.
    pub(crate) lacks_a_body: bool,
    pub(crate) calls: Vec<(usize, Span)>,
    uses: BTreeMap<String, usize>,
    pub(crate) locals: Vec<Local>,
    pub(crate) names: LocalNames,
    /// Open loops: the first local that each binds, and what it carries.
    pub(crate) loops: Vec<(LocalId, Vec<LocalId>)>,
}

impl<'a> Resolver<'a> {
    fn new(fns: &'a [FnSignature], device: &'a [TileFn], scope: &'a Scope, errors: &'a mut Errors) -> Resolver<'a> {
        Resolver {
            errors,
            fns,
            device,
            scope,
            frames: vec![],
            inlined: 0,
            kernel: None,
            params: vec![],
            dims: vec![],
            param_used: vec![],
            knob_used: vec![],
            stores: false,
            lacks_a_body: false,
            calls: vec![],
            uses: BTreeMap::new(),
            locals: vec![],
            names: LocalNames::default(),
            loops: vec![],
        }
    }

    pub(crate) fn bind(&mut self, name: &Ident, kind: LocalKind) -> LocalId {
        if is_upper(name) {
            self.errors.push(
                4,
                name.span(),
                format!("`{name}` is upper-case, which is for dims, tile sizes and consts; rename it"),
            );
        }
        let id = self.locals.len();
        let used = name.to_string().starts_with('_');
        self.locals.push(Local { name: name.clone(), kind, used, assigned: false, hides: None, along: None });
        if let Some(scope) = self.names.scopes.last_mut() {
            scope.insert(name.to_string(), id);
        }
        id
    }

    /// The innermost binding of a name.
    pub(crate) fn lookup(&self, name: &Ident) -> Option<LocalId> {
        let name = name.to_string();
        self.names.scopes.iter().rev().find_map(|s| s.get(&name).copied())
    }

    /// The tile fn that is called, the first of several under `cfg`s.
    pub(crate) fn called(&mut self, of: &ast::Called) -> Option<usize> {
        let key = of.key();
        let first = *self.scope.get(&key)?;
        self.uses.insert(key, first);
        let group = self.fns[first].group;
        let all = (0..self.fns.len()).filter(|&i| self.fns[i].group == group);
        self.calls.extend(all.map(|i| (i, of.name.span())));
        Some(first)
    }

    /// True for the name of a tile fn.
    pub(crate) fn is_tile_fn(&self, name: &Ident) -> bool {
        self.scope.contains_key(&name.to_string())
    }

    /// The names of tile fns.
    pub(crate) fn tile_fns(&self) -> impl Iterator<Item = &str> {
        self.scope.keys().map(String::as_str).filter(|key| !key.contains(':'))
    }

    /// Every name that is in scope.
    pub(crate) fn bound_names(&self) -> Vec<String> {
        self.names.scopes.iter().flat_map(|s| s.keys().cloned()).collect()
    }

    fn end_scope(&mut self) {
        if let Some(scope) = self.names.scopes.pop() {
            self.names.ended.extend(scope.into_keys());
        }
    }

    fn grid(&mut self, coords: &[Ident], written: &[AxisSyntax], place: SourceRange) -> Vec<Axis> {
        let of_pairs = |axis: &AxisSyntax| matches!(axis, AxisSyntax::Pairs { .. });
        let of_cluster = |axis: &AxisSyntax| matches!(axis, AxisSyntax::Cluster { .. });
        let wanted = written.len() + written.iter().filter(|a| of_pairs(a)).count();
        if coords.len() != wanted {
            let verb = if coords.len() == 1 { "coordinate is" } else { "coordinates are" };
            let found = format!("{} {verb}", coords.len());
            let message = if wanted == written.len() {
                let plural = if wanted == 1 { "axis" } else { "axes" };
                format!(
                    "{found} bound, but the grid has {wanted} {plural}: each has a name, as in `for (g, n) in grid(G, tiles(N, BN))`"
                )
            } else {
                format!("{found} bound, but the grid has {wanted}, of which `pairs` are two")
            };
            self.errors.push(26, place, message);
        } else if written.is_empty() {
            self.errors.push(26, place, "the grid needs at least one axis");
        } else if written[..written.len() - 1].iter().any(of_pairs) {
            let message = match written.iter().any(of_cluster) {
                true => "`pairs` and `cluster` do not go together: each is the last of a grid",
                false => "`pairs` are the last of a grid",
            };
            self.errors.push(26, place, message);
        } else if let [others @ .., last] = written
            && let Some(AxisSyntax::Cluster { place, .. }) = others.iter().find(|axis| of_cluster(axis))
        {
            let message = match last {
                AxisSyntax::Pairs { .. } => "`pairs` and `cluster` do not go together: each is the last of a grid",
                AxisSyntax::Cluster { .. } => "a grid has one `cluster`, its last axis: write this axis without it",
                _ => {
                    "`cluster` is the last axis of a grid: move this one to the end, as in `grid(tiles(N, BN), cluster(tiles(D, BD)))`"
                }
            };
            self.errors.push(26, *place, message);
        }
        let mut axes = Vec::new();
        let mut coords = coords.iter();
        for axis in written {
            let (dim, size) = match axis {
                AxisSyntax::Points(dim) => (self.dim(dim), None),
                AxisSyntax::Tiles { dim, size } | AxisSyntax::Pairs { dim, size } => {
                    (self.dim(dim), Some(self.tile_size(size)))
                }
                AxisSyntax::Cluster { dim, size, .. } => {
                    (self.dim(dim), size.as_ref().map(|size| self.tile_size(size)))
                }
            };
            // The number of programs of a cluster is a constant.
            if let Some(dim) = dim.filter(|_| of_cluster(axis)) {
                self.dims[dim].whole = true;
            }
            for up_to in [false, true].into_iter().take(if of_pairs(axis) { 2 } else { 1 }) {
                let Some(coord) = coords.next() else { return axes };
                let coord = self.bind(coord, LocalKind::Coordinate);
                self.locals[coord].along = dim;
                if let Some(dim) = dim {
                    axes.push(Axis { coord, dim, size: size.clone(), up_to, cluster: of_cluster(axis) });
                }
            }
        }
        axes
    }

    pub(crate) fn block(&mut self, stmts: &[StmtSyntax]) -> Vec<Stmt> {
        let mut out = Vec::new();
        stmts.iter().for_each(|s| self.statement(s, &mut out));
        out
    }

    /// Appends a statement, or those of the device fn that it calls.
    fn statement(&mut self, stmt: &StmtSyntax, out: &mut Vec<Stmt>) {
        let value = match stmt {
            StmtSyntax::Let { value: Some(value), .. }
            | StmtSyntax::LetMany { value, .. }
            | StmtSyntax::Assign { value, .. }
            | StmtSyntax::AssignMany { value, .. }
            | StmtSyntax::Expr { value, .. } => value,
            _ => return out.extend(self.plain_statement(stmt)),
        };
        match self.device_call(value) {
            Some(call) => self.calling_statement(stmt, value, call, out),
            None => out.extend(self.plain_statement(stmt)),
        }
    }

    /// A statement that binds or assigns what a device fn gives, or that only calls it.
    fn calling_statement(
        &mut self,
        stmt: &StmtSyntax,
        value: &ExprSyntax,
        call: (usize, Ident, &[ExprSyntax]),
        out: &mut Vec<Stmt>,
    ) {
        match stmt {
            // `let _ = f(..);` drops whatever it gives.
            StmtSyntax::Let { name, .. } if name == "_" => {
                let results = self.fns[call.0].results;
                self.inline(value, call, results, out);
            }
            StmtSyntax::Let { mutable, name, .. } => {
                let (given, hides) = self.let_value(name, |r| r.inline(value, call, 1, out));
                let local = self.bind(name, LocalKind::Let { mutable: *mutable });
                self.locals[local].hides = hides;
                out.extend(given.into_iter().flatten().map(|value| Stmt::Let { local, value }));
            }
            StmtSyntax::LetMany { names, .. } => {
                let given = self.inline(value, call, names.len(), out).unwrap_or_default();
                let bind = |(mutable, name): &(bool, Ident)| self.bind(name, LocalKind::Let { mutable: *mutable });
                let locals: Vec<LocalId> = names.iter().map(bind).collect();
                out.extend(locals.into_iter().zip(given).map(|(local, value)| Stmt::Let { local, value }));
            }
            StmtSyntax::Assign { name, op, op_span, .. } => {
                let given = self.inline(value, call, 1, out);
                let Some(local) = self.assigned(name) else { return };
                self.locals[local].used |= op.is_some();
                for mut value in given.into_iter().flatten() {
                    if *op == Some(BinaryOp::Add) {
                        value = take_product(value, out);
                    }
                    out.push(Stmt::Assign { local, op: *op, value, token: *op_span });
                }
            }
            StmtSyntax::AssignMany { names, .. } => {
                let given = self.inline(value, call, names.len(), out).unwrap_or_default();
                self.assigned_once(names);
                let locals: Vec<Option<LocalId>> = names.iter().map(|name| self.assigned(name)).collect();
                for (local, value) in locals.into_iter().zip(given) {
                    let Some(local) = local else { continue };
                    let token = value.token;
                    out.push(Stmt::Assign { local, op: None, value, token });
                }
            }
            _ => _ = self.inline(value, call, 0, out),
        }
    }

    fn plain_statement(&mut self, stmt: &StmtSyntax) -> Option<Stmt> {
        match stmt {
            StmtSyntax::Let { mutable, name, value } => {
                let Some(value) = value else {
                    self.errors.push(20, name.span(), format!("`{name}` has no value; write `let {name} = ..;`"));
                    self.bind(name, LocalKind::Let { mutable: *mutable });
                    return None;
                };
                let (value, hides) = self.let_value(name, |r| r.expr(value));
                let local = self.bind(name, LocalKind::Let { mutable: *mutable });
                self.locals[local].hides = hides;
                Some(Stmt::Let { local, value })
            }
            StmtSyntax::LetMany { names, value } => {
                let call = self.call_of_many(value, names.len());
                let kind = |mutable| LocalKind::Let { mutable };
                let locals = names.iter().map(|(mutable, name)| self.bind(name, kind(*mutable))).collect();
                Some(Stmt::Many { locals, binds: true, call: call? })
            }
            StmtSyntax::AssignMany { names, value } => {
                let call = self.call_of_many(value, names.len());
                self.assigned_once(names);
                let locals: Vec<Option<LocalId>> = names.iter().map(|name| self.assigned(name)).collect();
                Some(Stmt::Many { locals: locals.into_iter().collect::<Option<_>>()?, binds: false, call: call? })
            }
            StmtSyntax::Assign { name, op, op_span, value } => {
                let value = self.expr(value);
                let local = self.assigned(name)?;
                if op.is_some() {
                    self.locals[local].used = true;
                }
                Some(Stmt::Assign { local, op: *op, value, token: *op_span })
            }
            StmtSyntax::Grid { place, .. } => {
                self.errors.push(
                    26,
                    *place,
                    "a grid loop stands alone at the top of a kernel; loop with `for i in tiles(DIM, SIZE)` here",
                );
                None
            }
            StmtSyntax::Loop { index, kind, range, body, place } => self.for_loop(index, *kind, range, body, *place),
            StmtSyntax::Expr { value, .. } => self.expression_statement(value),
        }
    }

    /// The value of a `let`, and the local of the same name outside of the loop, if the value is computed from it.
    fn let_value<V>(&mut self, name: &Ident, value: impl FnOnce(&mut Self) -> V) -> (V, Option<LocalId>) {
        let (Some(before), Some(&(first, _))) = (self.lookup(name), self.loops.last()) else {
            return (value(self), None);
        };
        let was_used = std::mem::replace(&mut self.locals[before].used, false);
        let value = value(self);
        let reads = std::mem::replace(&mut self.locals[before].used, true);
        self.locals[before].used = reads || was_used;
        let outside = if before < first { Some(before) } else { self.locals[before].hides };
        let is_let = |l: &LocalId| matches!(self.locals[*l].kind, LocalKind::Let { .. });
        (value, outside.filter(is_let).filter(|_| reads))
    }

    fn for_loop(
        &mut self,
        index: &Ident,
        kind: LoopKind,
        range: &RangeSyntax,
        stmts: &[StmtSyntax],
        place: SourceRange,
    ) -> Option<Stmt> {
        let range = match range {
            RangeSyntax::Tiles { dim, size, span } => {
                let (dim, size) = (self.dim(dim), self.tile_size(size));
                dim.map(|dim| Range::Tiles { dim, size, token: *span })
            }
            RangeSyntax::Between { lo, hi } => Some(Range::Between { lo: self.expr(lo), hi: self.expr(hi) }),
        };
        self.names.scopes.push(BTreeMap::new());
        self.loops.push((self.locals.len(), vec![]));
        let index = self.bind(index, LocalKind::LoopIndex);
        self.locals[index].along = range.as_ref().and_then(Range::dim);
        let body = self.block(stmts);
        self.end_scope();
        let (_, carried) = self.loops.pop()?;
        Some(Stmt::Loop(Box::new(Loop { kind, index, range: range?, carried, body, place })))
    }

    /// A dim by name. Reports a name that is not a dim.
    pub(crate) fn dim(&mut self, name: &Ident) -> Option<usize> {
        let found = self.dim_named(name);
        if found.is_none() {
            let names: Vec<String> = match self.frame() {
                Some(_) => self.given_names(),
                None => self.dims.iter().map(|d| d.name.to_string()).collect(),
            };
            let hint = nearest(&name.to_string(), names.iter().map(String::as_str));
            let message = if self.kernel.is_none() {
                format!("a tile fn has no dims, so `{name}` is unknown; pass what you need of it as an argument")
            } else if let Some(message) = self.no_dim_given(name) {
                format!("{message}{hint}")
            } else if self.knob(name).is_some() {
                format!("`{name}` is a tile size, not a dim; the dims of this kernel are {}", names.join(", "))
            } else {
                match names.join(", ") {
                    none if none.is_empty() => {
                        format!("unknown dim `{name}`; this kernel has none: a dim stands in the type of a tensor")
                    }
                    names => format!("unknown dim `{name}`; the dims of this kernel are {names}{hint}"),
                }
            };
            self.errors.push(27, name.span(), message);
        }
        found
    }

    /// A knob by name, which is marked as used.
    pub(crate) fn knob(&mut self, name: &Ident) -> Option<usize> {
        let i = match (self.frame(), self.size_given(name)) {
            (Some(_), Some(Extent::Knob(i))) => i,
            (Some(_), _) => return None,
            (None, _) => self.kernel?.tune.iter().position(|k| k.name == *name)?,
        };
        self.knob_used[i] = true;
        Some(i)
    }

    /// The size in `tiles(DIM, SIZE)`: a knob or a literal.
    fn tile_size(&mut self, size: &ExprSyntax) -> Extent {
        match &size.kind {
            ExprSyntaxKind::Literal { value, whole: true } if (1.0..=f64::from(u32::MAX)).contains(value) => {
                Extent::Number(*value as u32)
            }
            ExprSyntaxKind::Name(name) => match (self.knob(name), self.size_given(name)) {
                (Some(i), _) => Extent::Knob(i),
                (None, Some(size @ Extent::Number(_))) => size,
                (None, given) if self.frame().is_some() => {
                    self.no_tile_size_given(name, given.is_some());
                    Extent::Bad
                }
                (None, _) => {
                    let knobs = self.kernel.map_or(&[][..], |k| &k.tune);
                    let names: Vec<String> =
                        knobs.iter().map(|k| k.name.to_string()).filter(|n| ScheduleKey::named(n).is_none()).collect();
                    let mut hint = nearest(&name.to_string(), names.iter().map(String::as_str));
                    if hint.is_empty() {
                        hint = format!("; add `{}: [64]` to it", name.to_string().to_uppercase());
                    }
                    self.errors.push(28, name.span(), format!("tile size `{name}` is not in `tune`{hint}"));
                    Extent::Bad
                }
            },
            _ => {
                self.errors.push(28, size.place, "a tile size is a knob of `tune` or a whole number");
                Extent::Bad
            }
        }
    }
}
