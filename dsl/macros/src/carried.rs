//! How a loop's body combines a carried value with a tile, and the neutral number of that combination.

use crate::symbolic::{Edge, Elem};
use crate::tree::{Expr, ExprKind, LocalId, Stmt};
use atlas_vocabulary::{BinaryOp, DType};

/// How all assignments of a carried name combine it: the operation and the other operand.
#[derive(Clone, Copy)]
pub(crate) struct Combined<'t> {
    op: BinaryOp,
    /// The other operand, if there is only one assignment.
    with: Option<&'t Expr>,
}

/// How a loop's body combines a name with what it computes, if it does so by one operation that has a neutral element.
pub(crate) fn combined(body: &[Stmt], name: LocalId) -> Option<Combined<'_>> {
    let mut found: Option<Combined<'_>> = None;
    for stmt in body {
        let next = match stmt {
            Stmt::Assign { local, op, value, .. } if *local == name => match (op, &value.kind) {
                (Some(op), _) => Some(Combined { op: *op, with: Some(value) }),
                (None, ExprKind::Binary(op, a, b)) => of_two(*op, [a, b], name),
                _ => None,
            }?,
            Stmt::Many { locals, .. } if locals.contains(&name) => return None,
            Stmt::Loop(l) if l.carried.contains(&name) => combined(&l.body, name)?,
            _ => continue,
        };
        let next = Combined { op: kind(next.op), ..next };
        found = Some(match found {
            None => next,
            Some(before) if before.op == next.op => Combined { with: None, ..next },
            Some(_) => return None,
        });
    }
    found
}

/// `c + x`, or `x + c` if the operation is commutative.
fn of_two<'t>(op: BinaryOp, [a, b]: [&'t Expr; 2], name: LocalId) -> Option<Combined<'t>> {
    let is = |e: &Expr| matches!(e.kind, ExprKind::Local(id) if id == name);
    let exchanges = !matches!(op, BinaryOp::Sub | BinaryOp::Div | BinaryOp::Shl | BinaryOp::Shr);
    match (is(a), is(b)) {
        (true, false) => Some(Combined { op, with: Some(b) }),
        (false, true) if exchanges => Some(Combined { op, with: Some(a) }),
        _ => None,
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
        Elem::Fixed(d) if d.is_int() => Some(*d),
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

/// The end of a hint: what to write past an edge of a tile that `name` carries out of its loop.
pub(crate) fn stands_past_the_end(how: Option<Combined<'_>>, edge: &Edge, elem: &Elem, name: &str) -> String {
    let right = || format!(": `.or(..)` with the number that leaves `{name}` right");
    let Some(how) = how else { return right() };
    let Some(number) = neutral(how.op, elem) else {
        return match how.op {
            BinaryOp::Max => ": `.or(..)` with a number that is above none of the elements".to_owned(),
            BinaryOp::Min => ": `.or(..)` with a number that is below none of the elements".to_owned(),
            _ => right(),
        };
    };
    if how.with.is_some_and(|e| is_whole(e, edge)) {
        return format!(": `{}.or({number})`", edge.load);
    }
    let meets = match how.op {
        BinaryOp::Add => "is added to",
        BinaryOp::Mul => "multiplies",
        _ => "meets",
    };
    format!(": `(..).or({number})` around all that {meets} `{name}`")
}

/// True if the other operand is an unchanged load with an edge, or a product along another axis.
fn is_whole(e: &Expr, edge: &Edge) -> bool {
    let is_load =
        format!("{:?} {:?}", e.place.start, e.place.end) == format!("{:?} {:?}", edge.place.start, edge.place.end);
    match &e.kind {
        ExprKind::Load { .. } => is_load,
        ExprKind::Transpose(x) => is_whole(x, edge),
        ExprKind::Dot { operands, .. } => operands.iter().any(|x| is_whole(x, edge)),
        _ => false,
    }
}
