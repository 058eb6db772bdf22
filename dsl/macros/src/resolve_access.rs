//! Brackets: slices of tensors, elements of tables, and extents.

use crate::ast::{ExprSyntax, ExprSyntaxKind};
use crate::names::nearest;
use crate::resolve::Resolver;
use crate::resolve_expr::is_const_name;
use crate::tree::{Expr, ExprKind, Extent, Index, Local, LocalId, ParamKind};
use atlas_vocabulary::BinaryOp;

/// The indices with as many entries as there are dims: `..` is added where one is missing, and left out where there are too many.
/// A name that is a dim's in lower case stands on its axis.
fn with_rank(index: &[ExprSyntax], dims: &[String]) -> Option<Vec<String>> {
    let text = |e: &ExprSyntax| match &e.kind {
        ExprSyntaxKind::Name(name) => name.to_string(),
        ExprSyntaxKind::Literal { value, .. } => value.to_string(),
        ExprSyntaxKind::Call { name, .. } if name == "span" => "span(..)".to_owned(),
        ExprSyntaxKind::Whole => "..".to_owned(),
        _ => "i".to_owned(),
    };
    let written: Vec<String> = index.iter().map(text).collect();
    if written.len() > dims.len() {
        let named: Vec<String> = written.into_iter().filter(|i| i != "..").collect();
        return (named.len() == dims.len()).then_some(named);
    }
    let mut all = Vec::new();
    for (i, name) in written.iter().enumerate() {
        let rest = written.len() - i;
        let own = dims.iter().position(|d| d.to_lowercase() == *name);
        while own.is_some_and(|own| all.len() < own) && all.len() + rest < dims.len() {
            all.push("..".to_owned());
        }
        all.push(name.clone());
    }
    all.resize(dims.len(), "..".to_owned());
    Some(all)
}

impl Resolver<'_> {
    /// Indices of these dims: the coordinates in scope that count along them, the innermost first, and `..` along others.
    pub(crate) fn place_in(&self, dims: &[usize]) -> String {
        let mut left: Vec<LocalId> = (0..self.locals.len()).rev().filter(|&id| self.counts_now(id)).collect();
        let mut index = |dim: &usize| match left.iter().position(|&id| self.locals[id].along == Some(*dim)) {
            Some(at) => self.locals[left.remove(at)].name.to_string(),
            None => "..".to_owned(),
        };
        dims.iter().map(&mut index).collect::<Vec<_>>().join(", ")
    }

    /// True for a coordinate or a loop's index whose name means it here.
    fn counts_now(&self, id: LocalId) -> bool {
        let Local { name, along, .. } = &self.locals[id];
        along.is_some() && name != "_" && self.lookup(name) == Some(id)
    }

    /// The tensor of `store(value, y[n])`, where the place stands behind the value.
    pub(crate) fn place_second(&self, args: &[ExprSyntax]) -> Option<String> {
        let tensor = |e: &ExprSyntax| match &e.kind {
            ExprSyntaxKind::Index { base, .. } => match &base.kind {
                ExprSyntaxKind::Name(name) => self.dims_of(name).map(|_| name.to_string()),
                _ => None,
            },
            _ => None,
        };
        let [first, second] = args else { return None };
        let is_place = matches!(&first.kind, ExprSyntaxKind::Name(name) if self.dims_of(name).is_some());
        tensor(second).filter(|_| tensor(first).is_none() && !is_place)
    }

    /// The tensor and the indices of `x[g, n, ..]`.
    pub(crate) fn access(&mut self, e: &ExprSyntax, verb: &str) -> Option<(usize, Vec<Index>)> {
        let (base, index) = match &e.kind {
            ExprSyntaxKind::Index { base, index } => (&**base, Some(index)),
            _ => (e, None),
        };
        let ExprSyntaxKind::Name(name) = &base.kind else {
            if let ExprSyntaxKind::Index { .. } = &base.kind {
                let message = format!("all indices stand in one pair of brackets, as in `{verb}(x[g, n, ..])`");
                self.errors.push(20, e.place, message);
                return None;
            }
            self.errors.push(
                20,
                e.place,
                format!("`{verb}` needs a tensor and its indices, as in `{verb}(x[g, n, ..])`"),
            );
            return None;
        };
        if self.kernel.is_none() {
            self.errors.push(20, e.place, format!("a tile fn cannot {verb}; {verb} in the kernel and pass the tile"));
            return None;
        }
        let Some(param) = self.param(name) else {
            let message = if let Some(local) = self.lookup(name) {
                self.locals[local].used = true;
                format!("`{name}` is a tile already; `{verb}` works on tensors")
            } else {
                let tensors: Vec<String> = self.given_names();
                format!("unknown tensor `{name}`{}", nearest(&name.to_string(), tensors.iter().map(String::as_str)))
            };
            self.errors.push(3, name.span(), message);
            return None;
        };
        self.param_used[param] = true;
        let ParamKind::Tensor { dims, .. } = &self.params[param].kind else {
            self.errors.push(102, name.span(), format!("`{name}` is a scalar; use it as `{name}`, without `{verb}`"));
            return None;
        };
        let (dims, rank) = (dims.clone(), dims.len());
        let shape = || dims.iter().map(|&d| self.dims[d].name.to_string()).collect::<Vec<_>>().join(", ");
        let Some(index) = index else {
            let message = format!(
                "`{verb}` needs the indices of `{name}` [{}], one per axis: `{verb}({name}[{}])`",
                shape(),
                self.place_in(&dims)
            );
            self.errors.push(113, e.place, message);
            return None;
        };
        if index.len() != rank {
            let plural = if index.len() == 1 { "index is" } else { "indices are" };
            let names: Vec<String> = dims.iter().map(|&d| self.dims[d].name.to_string()).collect();
            let mend = with_rank(index, &names).map_or_else(String::new, |all| {
                let whole = if all.iter().any(|i| i == "..") { ", where `..` is a whole axis" } else { "" };
                format!("; write `{name}[{}]`{whole}", all.join(", "))
            });
            let message = format!("`{name}` [{}] has rank {rank}, but {} {plural} given{mend}", shape(), index.len());
            self.errors.push(113, e.place, message);
            return None;
        }
        let index = index.iter().zip(dims).map(|(i, dim)| self.index(i, dim)).collect();
        Some((param, index))
    }

    fn index(&mut self, e: &ExprSyntax, dim: usize) -> Index {
        match &e.kind {
            ExprSyntaxKind::Whole => {
                self.dims[dim].whole = true;
                Index::Whole
            }
            ExprSyntaxKind::Call { name, generics, args } if name == "span" => {
                let _ = self.no_types(name, generics);
                match self.arity(e, args, name, &["start", "LEN"]) {
                    Some(args) => Index::Span { start: self.expr(&args[0]), len: self.extent(&args[1]) },
                    None => Index::At(Expr { kind: ExprKind::Bad, place: e.place, token: e.token }),
                }
            }
            _ => {
                let at = self.expr(e);
                if matches!(at.kind, ExprKind::Literal { value, .. } if value < 0.0) {
                    let dim = &self.dims[dim].name;
                    let message = format!(
                        "elements count from 0, and before it there are none; the last is at `size({dim}) - 1`"
                    );
                    self.errors.push(113, e.place, message);
                }
                Index::At(at)
            }
        }
    }

    /// `TABLE[i][j]`. Every other index is a mistake.
    pub(crate) fn table(&mut self, e: &ExprSyntax, base: &ExprSyntax, index: &[ExprSyntax]) -> Option<ExprKind> {
        let mut written: Vec<&ExprSyntax> = index.iter().collect();
        let mut base = base;
        while let ExprSyntaxKind::Index { base: inner, index } = &base.kind {
            written.splice(0..0, index);
            base = inner;
        }
        if let ExprSyntaxKind::Field(of, name) = &base.kind {
            self.field(e, of, name, written.first().copied());
            return None;
        }
        // Of a tensor's place the indices are none of a table, and of a tile `..` is not one that is misplaced.
        let is_tensor = matches!(&base.kind, ExprSyntaxKind::Name(name) if self.dims_of(name).is_some());
        let is_tile = match &base.kind {
            ExprSyntaxKind::Name(name) => self.lookup(name).is_some(),
            kind => !matches!(kind, ExprSyntaxKind::Path(_)),
        };
        written.retain(|i| !(is_tensor || is_tile && matches!(i.kind, ExprSyntaxKind::Whole)));
        let indices = written.iter().map(|i| self.expr(i)).collect();
        let of_tiles = |tile: &str| {
            format!(
                "tiles are not indexed; load the part that you need, or pick a column of a computed tile, as in `sum(select(iota([BN, D], 1) == 0, {tile}, 0), axis = 1)`"
            )
        };
        let (name, message) = match &base.kind {
            ExprSyntaxKind::Path(p) => return Some(ExprKind::Table { name: self.const_here(p, base.place)?, indices }),
            ExprSyntaxKind::Name(name) => {
                if let Some(i) = self.param(name) {
                    self.param_used[i] = true;
                    (name, format!("`{name}[..]` is a place in a tensor; its tile is `load({name}[..])`"))
                } else if let Some(local) = self.lookup(name) {
                    self.locals[local].used = true;
                    (name, format!("`{name}` is a tile, and {}", of_tiles(&name.to_string())))
                } else if let Some(Extent::Const(table)) = self.size_given(name) {
                    return Some(ExprKind::Table { name: table, indices });
                } else if self.dim_named(name).is_some() || self.knob(name).is_some() || self.size_given(name).is_some()
                {
                    (name, format!("`{name}` is a number; it cannot be indexed"))
                } else if is_const_name(name) {
                    return Some(ExprKind::Table { name: self.const_named(name)?, indices });
                } else {
                    self.name(name);
                    return None;
                }
            }
            _ => {
                self.errors.push(20, base.place, of_tiles("x"));
                return None;
            }
        };
        self.errors.push(31, name.span(), message);
        None
    }
}

impl Resolver<'_> {
    pub(crate) fn extents(&mut self, e: &ExprSyntax) -> Option<Vec<Extent>> {
        let ExprSyntaxKind::Array(list) = &e.kind else {
            self.errors.push(20, e.place, "extents are written in brackets, as in `[BN, D]`");
            return None;
        };
        Some(list.iter().map(|x| self.extent(x)).collect())
    }

    /// A tile size, a whole dim, a const, a number, or arithmetic of these.
    pub(crate) fn extent(&mut self, e: &ExprSyntax) -> Extent {
        match &e.kind {
            ExprSyntaxKind::Literal { value, whole: true } if (1.0..=f64::from(u32::MAX)).contains(value) => {
                Extent::Number(*value as u32)
            }
            ExprSyntaxKind::Name(name) => {
                if let Some(i) = self.dim_named(name) {
                    self.dims[i].whole = true;
                    return Extent::Dim(i);
                }
                if is_const_name(name) {
                    return match self.knob(name) {
                        Some(i) => Extent::Knob(i),
                        None if self.size_given(name).is_some() => self.size_given(name).unwrap_or(Extent::Bad),
                        None if self.param(name).is_some() => {
                            let message = format!(
                                "`{name}` is a parameter, known at a launch; an extent is known when a kernel is built"
                            );
                            self.errors.push(31, e.place, message);
                            Extent::Bad
                        }
                        None => self.const_named(name).map_or(Extent::Bad, Extent::Const),
                    };
                }
                self.bad_extent(e)
            }
            ExprSyntaxKind::Path(p) => self.const_here(p, e.place).map_or(Extent::Bad, Extent::Const),
            ExprSyntaxKind::Binary(op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div), a, b) => {
                let (a, b) = (self.extent(a), self.extent(b));
                Extent::Combined(*op, Box::new(a), Box::new(b))
            }
            _ => self.bad_extent(e),
        }
    }

    fn bad_extent(&mut self, e: &ExprSyntax) -> Extent {
        self.errors.push(28, e.place, "an extent is a tile size of `tune`, a dim, a const or a whole number above 0");
        Extent::Bad
    }
}
