//! How a loop's body combines a carried value with a tile, and the neutral number of that combination.

use crate::symbolic::{Edge, Elem};
use crate::tree::{Expr, ExprKind, LocalId, Stmt};
use atlas_vocabulary::{BinaryOp, DType};
use std::collections::BTreeMap;

/// How all assignments of a carried name combine it with other operands.
#[derive(Clone, Copy)]
pub(crate) struct Combined<'t> {
    op: BinaryOp,
    /// The other operand, if there is only one.
    with: Option<&'t Expr>,
    /// The name is multiplied before something is added to it.
    scaled: bool,
}

/// How a loop's body combines a name with what it computes, if it does so by one operation that has a neutral element.
pub(crate) fn combined(body: &[Stmt], name: LocalId) -> Option<Combined<'_>> {
    let mut found: Option<Combined<'_>> = None;
    let mut lets = BTreeMap::new();
    for stmt in body {
        let next = match stmt {
            Stmt::Let { local, value } => {
                lets.insert(*local, value);
                continue;
            }
            Stmt::Assign { local, op, value, .. } if *local == name => match (op, &value.kind) {
                (Some(op), _) => Combined { op: kind(*op), with: Some(value), scaled: false },
                // `m = next`, where `next` is a `let` such as `max(m, x)`.
                (None, ExprKind::Local(id)) => of_expression(lets.get(id)?, name)??,
                (None, _) => of_expression(value, name)??,
            },
            // A name that is assigned again is not what its `let` says.
            Stmt::Assign { local, .. } => {
                lets.remove(local);
                continue;
            }
            Stmt::Many { locals, .. } if locals.contains(&name) => return None,
            Stmt::Loop(l) if l.carried.contains(&name) => combined(&l.body, name)?,
            Stmt::Loop(l) => {
                l.carried.iter().for_each(|local| _ = lets.remove(local));
                continue;
            }
            _ => continue,
        };
        found = Some(match found {
            None => next,
            Some(before) if before.op == next.op => {
                Combined { with: None, scaled: before.scaled || next.scaled, ..next }
            }
            Some(_) => return None,
        });
    }
    found
}

/// How an expression combines a name with other operands, as in `c + x` and `max(max(c, x), y)`. The name alone gives
/// `Some(None)`. An expression that does not have the name as an operand, or has it twice, gives `None`.
fn of_expression(e: &Expr, name: LocalId) -> Option<Option<Combined<'_>>> {
    let (op, a, b) = match &e.kind {
        ExprKind::Local(id) if *id == name => return Some(None),
        ExprKind::Binary(op, a, b) => (*op, a, b),
        _ => return None,
    };
    let keeps_order = matches!(op, BinaryOp::Sub | BinaryOp::Div | BinaryOp::Rem | BinaryOp::Shl | BinaryOp::Shr);
    let exchanges = !keeps_order && BinaryOp::functions().all(|f| f != op);
    let (inner, other) = match (of_expression(a, name), of_expression(b, name)) {
        (Some(inner), None) => (inner, b),
        (None, Some(inner)) if exchanges => (inner, a),
        _ => return None,
    };
    let op = kind(op);
    match inner {
        None => Some(Some(Combined { op, with: Some(other), scaled: false })),
        Some(inner) if inner.op == op => Some(Some(Combined { with: None, ..inner })),
        Some(inner) if (inner.op, op) == (BinaryOp::Mul, BinaryOp::Add) => {
            Some(Some(Combined { op, with: None, scaled: true }))
        }
        Some(_) => None,
    }
}

/// The operation with the same neutral element.
fn kind(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Sub => BinaryOp::Add,
        BinaryOp::Div => BinaryOp::Mul,
        op => op,
    }
}

/// The neutral element of an operation, as it is written for an element type.
pub(crate) fn neutral(op: BinaryOp, elem: &Elem) -> Option<&'static str> {
    let int = match elem {
        Elem::Fixed(d) if d.is_int() || d.is_small() => Some(*d),
        Elem::Unknown | Elem::Literal(_) => return None,
        _ => None,
    };
    Some(match (op, int) {
        (BinaryOp::Add, None) => "0.0",
        (BinaryOp::Add, Some(_)) => "0",
        (BinaryOp::Mul, None) => "1.0",
        (BinaryOp::Mul, Some(_)) => "1",
        (BinaryOp::BitOr | BinaryOp::BitXor | BinaryOp::Shl | BinaryOp::Shr, Some(_)) => "0",
        (BinaryOp::BitAnd, Some(_)) => "-1",
        (BinaryOp::Max, None) => "f32::NEG_INFINITY",
        (BinaryOp::Min, None) => "f32::INFINITY",
        (BinaryOp::Max, Some(DType::I32)) => "-2147483648",
        (BinaryOp::Min, Some(DType::I32)) => "2147483647",
        // The least and the greatest i64 are no numbers of the language.
        _ => return None,
    })
}

/// What to write past an edge of a tile that `name` carries out of its loop, for the end of a hint.
pub(crate) fn stands_past_the_end(how: Option<Combined<'_>>, edge: &Edge, elem: &Elem, name: &str) -> String {
    let right = || format!("`.or(..)` with the number that leaves `{name}` right");
    let Some(how) = how else { return right() };
    let Some(number) = neutral(how.op, elem) else {
        return match how.op {
            BinaryOp::Max => "`.or(..)` with a number that is above none of the elements".to_owned(),
            BinaryOp::Min => "`.or(..)` with a number that is below none of the elements".to_owned(),
            _ => right(),
        };
    };
    if how.with.is_some_and(|e| is_whole(e, edge, how.op)) {
        return format!("`{}.or({number})`", edge.load);
    }
    let meets = match how.op {
        BinaryOp::Add => "is added to",
        BinaryOp::Mul => "multiplies",
        _ => "meets",
    };
    let factor = match neutral(BinaryOp::Mul, elem).filter(|_| how.scaled) {
        Some(one) => format!(", and `(..).or({one})` around a factor of it"),
        None => String::new(),
    };
    format!("`(..).or({number})` around all that {meets} `{name}`{factor}")
}

/// True if the number may stand in an unchanged load with an edge: the load is the other operand, or, in a sum, a factor of a
/// product along another axis.
fn is_whole(e: &Expr, edge: &Edge, op: BinaryOp) -> bool {
    let is_load =
        format!("{:?} {:?}", e.place.start, e.place.end) == format!("{:?} {:?}", edge.place.start, edge.place.end);
    match &e.kind {
        ExprKind::Load { .. } => is_load,
        ExprKind::Transpose(x) => is_whole(x, edge, op),
        ExprKind::Dot { operands, .. } if op == BinaryOp::Add => operands.iter().any(|x| is_whole(x, edge, op)),
        _ => false,
    }
}
