//! Derivatives of functions: what can be differentiated, and the types of the results.

use crate::ast::Mode;
use crate::check::Checker;
use crate::symbolic::Ty;
use crate::tree::{Callee, Expr, ExprKind, Stmt, TileFn};

impl Checker<'_> {
    /// A partial derivative has the extents and the edges of the function's result, and the element type of its argument. A
    /// derivative along tangents has the type of the result, with the edges of the tangents.
    pub(crate) fn derivative(&mut self, e: &Expr) -> Vec<Ty> {
        let ExprKind::Derivative { mode, of, args, tangents } = &e.kind else { return vec![] };
        let name = mode.name();
        let results = if *mode == Mode::Reverse { args.len() } else { 1 };
        let types: Vec<Ty> = args.iter().map(|a| self.expr(a)).collect();
        let moves: Vec<Ty> = tangents.iter().map(|a| self.expr(a)).collect();
        for (ty, arg) in types.iter().zip(args) {
            if ty.is_literal() || !ty.elem.may_be_float() {
                self.error(121, arg.place, format!("`{name}` differentiates by tiles of floats, found {ty}; a number is given as `full::<f32>([1], 1.5)`"));
                return vec![Ty::unknown(); results];
            }
        }
        let mut met = vec![];
        for ((ty, arg), (tangent, of)) in types.iter().zip(args).zip(moves.iter().zip(tangents)) {
            let both = self.together("`jvp`", (ty, self.named(arg)), (tangent, self.named(of)), of.place);
            met.push(if tangent.is_literal() { ty.clone() } else { both });
        }
        let result = match *of {
            Callee::Fn(index) => {
                if let Some(what) = not_elementwise(index, self.fns) {
                    let of = &self.fns[index].ast.name;
                    let message =
                        format!("`{name}` takes a function that works element by element, but `{of}` has {what}");
                    self.error(121, e.place, message);
                    return vec![Ty::unknown(); results];
                }
                self.call_with(index, types.clone(), e.place).into_iter().next().unwrap_or_else(Ty::unknown)
            }
            Callee::Builtin(_) => types.first().cloned().unwrap_or_else(Ty::unknown),
        };
        match mode {
            Mode::Reverse => {
                types.into_iter().map(|ty| Ty { elem: ty.elem, coordinate: None, ..result.clone() }).collect()
            }
            Mode::Forward => {
                // A tangent goes the way of its argument, and an `or` on it says what stands past the edges of both.
                let edges = match *of {
                    Callee::Fn(index) if result.shape.is_some() => {
                        self.call_with(index, met, e.place).into_iter().next().map_or(vec![], |ty| ty.edges)
                    }
                    Callee::Fn(_) => vec![],
                    Callee::Builtin(_) => met.into_iter().next().map_or(vec![], |ty| ty.edges),
                };
                vec![Ty { coordinate: None, edges, ..result }]
            }
        }
    }
}

/// The operation of a tile fn that reads more than one element for one element of its result.
fn not_elementwise(index: usize, fns: &[TileFn]) -> Option<&'static str> {
    let value = |s: &'_ Stmt| match s {
        Stmt::Let { value, .. } | Stmt::Assign { value, .. } | Stmt::Many { call: value, .. } => contracts(value, fns),
        Stmt::Store { .. } | Stmt::Loop(_) | Stmt::Inlined { .. } => None,
    };
    TileFn::versions(fns, index)
        .find_map(|f| f.body.iter().find_map(value).or_else(|| f.tail.iter().find_map(|e| contracts(e, fns))))
}

fn contracts(e: &Expr, fns: &[TileFn]) -> Option<&'static str> {
    let any = |list: &[Expr]| list.iter().find_map(|e| contracts(e, fns));
    match &e.kind {
        ExprKind::Dot { .. } => Some("a `dot`"),
        ExprKind::Reduce { .. } => Some("a reduction"),
        ExprKind::Scan { .. } => Some("a scan"),
        ExprKind::Transpose(_) => Some("a `.t()`"),
        ExprKind::Load { .. } => Some("a `load`"),
        ExprKind::ClusterSum(_) => Some("a `cluster_sum`"),
        ExprKind::Unary(_, x) | ExprKind::Cast(_, x) | ExprKind::IsNan(x) => contracts(x, fns),
        ExprKind::Broadcast { value, .. } | ExprKind::Fill { value, .. } => contracts(value, fns),
        ExprKind::Binary(_, a, b) | ExprKind::Compare(_, a, b) => contracts(a, fns).or_else(|| contracts(b, fns)),
        ExprKind::Select(parts) | ExprKind::Clamp(parts) | ExprKind::Fma(parts) => any(&parts[..]),
        ExprKind::Or(parts) | ExprKind::CastLike(parts) | ExprKind::Random(_, parts) => any(&parts[..]),
        ExprKind::CallFn { index, args } | ExprKind::Derivative { of: Callee::Fn(index), args, .. } => {
            any(args).or_else(|| not_elementwise(*index, fns))
        }
        ExprKind::Derivative { args, .. } => any(args),
        _ => None,
    }
}
