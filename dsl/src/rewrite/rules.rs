//! The rules of simplification: for each its algebra, and a function that finds the pattern and checks its condition.

use crate::entity::{Inst, Value};
use crate::fold::{self, Known};
use crate::ir::Kernel;
use crate::op::{BinaryOp, Op};
use crate::reach::constant;
use crate::types::DType;
use crate::validity::{Validity, yields};

/// What a rule puts in the place of an operation.
pub enum Rewrite {
    /// Other values in the place of results, as pairs of old and new.
    Same(Vec<(Value, Value)>),
    /// Another operation, with the same result.
    Op(Op),
}

/// A rule: pattern, condition and replacement.
#[derive(Clone, Copy)]
pub struct RewriteRule {
    /// The name, such as `cast_back`.
    pub name: &'static str,
    /// The equality.
    pub algebra: &'static str,
    /// The replacement of an operation, if it has the rule's pattern and meets its condition.
    pub apply: fn(&Kernel, &Validity, Inst) -> Option<Rewrite>,
}

/// Every rule, in the order they are tried. Two rules need to see more than one operation, so the engine has them: `again`
/// merges equal operations, and `unused` removes operations that nothing needs.
pub const RULES: [RewriteRule; 12] = [
    RewriteRule { name: "constant", algebra: "f(1, 2) = 3, if every device agrees on it", apply: fold_constant },
    RewriteRule { name: "neutral", algebra: "x * 1 = x; x / 1 = x; i + 0 = i", apply: neutral },
    RewriteRule { name: "power", algebra: "pow(x, 1) = x; pow(x, 2) = x * x", apply: power },
    RewriteRule { name: "cast_same", algebra: "cast<T>(x: T) = x", apply: cast_same },
    RewriteRule { name: "cast_back", algebra: "cast<T>(cast<W>(x: T)) = x, if W holds every T", apply: cast_back },
    RewriteRule { name: "select_same", algebra: "select(c, x, x) = x", apply: select_same },
    RewriteRule { name: "reshape_twice", algebra: "reshape(reshape(x)) = reshape(x)", apply: reshape_twice },
    RewriteRule { name: "broadcast_twice", algebra: "broadcast(broadcast(x)) = broadcast(x)", apply: broadcast_twice },
    RewriteRule {
        name: "shape_same",
        algebra: "reshape(x) = broadcast(x) = x, if its extents stay",
        apply: shape_same,
    },
    RewriteRule { name: "transpose_twice", algebra: "x.t().t() = x", apply: transpose_twice },
    RewriteRule { name: "refill", algebra: "x.or(c) = x, if every element is valid", apply: refill },
    RewriteRule {
        name: "carried_unchanged",
        algebra: "what each iteration hands on as it came is what it began as",
        apply: unchanged,
    },
];

fn result(kernel: &Kernel, inst: Inst) -> Option<Value> {
    match kernel.results[inst][..] {
        [v] => Some(v),
        _ => None,
    }
}

fn same(kernel: &Kernel, inst: Inst, v: Value) -> Option<Rewrite> {
    Some(Rewrite::Same(vec![(result(kernel, inst)?, v)]))
}

/// The number that every element of a tile is.
fn splat(kernel: &Kernel, v: Value) -> Option<f64> {
    match kernel.def_op(v)?.1 {
        Op::Splat { value, .. } => Some(*value),
        Op::Broadcast { value, .. } | Op::Reshape { value, .. } => match kernel.def_op(*value)?.1 {
            Op::Splat { value, .. } => Some(*value),
            _ => None,
        },
        _ => None,
    }
}

fn fold_constant(kernel: &Kernel, _: &Validity, inst: Inst) -> Option<Rewrite> {
    let known = |v: Value| Known::constant(kernel.ty(v).dtype, splat(kernel, v)?);
    let op = &kernel.insts[inst];
    let found = match *op {
        Op::Unary(f, x) => fold::unary(f, kernel.ty(x).dtype, known(x)?)?,
        Op::Binary(f, x, y) => fold::binary(f, kernel.ty(x).dtype, known(x)?, known(y)?)?,
        Op::Cast(to, x) => fold::cast(kernel.ty(x).dtype, to, known(x)?)?,
        _ => return None,
    };
    let ty = kernel.ty(result(kernel, inst)?);
    // The table of constants does not keep the sign of a zero, and no text says what is infinite.
    let Known::Exact(value) = found else { return None };
    let held = value.is_finite() && (value != 0.0 || ty.dtype.is_whole()) && ty.dtype != DType::Bool;
    held.then(|| Rewrite::Op(Op::Splat { value, dtype: ty.dtype, shape: ty.shape.clone() }))
}

fn neutral(kernel: &Kernel, _: &Validity, inst: Inst) -> Option<Rewrite> {
    let Op::Binary(op, a, b) = kernel.insts[inst] else { return None };
    let is = |v: Value, x: f64| splat(kernel, v) == Some(x);
    let integer = kernel.ty(a).dtype.is_int();
    match op {
        BinaryOp::Mul if is(b, 1.0) => same(kernel, inst, a),
        BinaryOp::Mul if is(a, 1.0) => same(kernel, inst, b),
        BinaryOp::Div if is(b, 1.0) => same(kernel, inst, a),
        // A float's -0 + 0 is 0.
        BinaryOp::Add | BinaryOp::Sub if integer && is(b, 0.0) => same(kernel, inst, a),
        BinaryOp::Add if integer && is(a, 0.0) => same(kernel, inst, b),
        _ => None,
    }
}

/// A product is rounded once too, and one instruction in the place of a hundred.
fn power(kernel: &Kernel, _: &Validity, inst: Inst) -> Option<Rewrite> {
    let Op::Binary(BinaryOp::Pow, x, y) = kernel.insts[inst] else { return None };
    match splat(kernel, y)? {
        1.0 => same(kernel, inst, x),
        2.0 => Some(Rewrite::Op(Op::Binary(BinaryOp::Mul, x, x))),
        _ => None,
    }
}

fn cast_same(kernel: &Kernel, _: &Validity, inst: Inst) -> Option<Rewrite> {
    match kernel.insts[inst] {
        Op::Cast(to, x) if kernel.ty(x).dtype == to => same(kernel, inst, x),
        _ => None,
    }
}

/// True if every value of the one type is a value of the wider type.
fn holds(wider: DType, dtype: DType) -> bool {
    let whole = wider.range().zip(dtype.range()).is_some_and(|(w, d)| w.0 <= d.0 && d.1 <= w.1);
    let fits = |least: i64, most: i64| dtype.range().is_some_and(|(a, b)| least <= a && b <= most);
    let in_float = match wider {
        DType::F16 => fits(-2048, 2048),
        DType::Bf16 => fits(-256, 256),
        DType::F32 => fits(-(1 << 24), 1 << 24),
        DType::F64 => fits(-(1 << 53), 1 << 53),
        _ => false,
    };
    let of_floats =
        matches!((wider, dtype), (DType::F32 | DType::F64, DType::F16 | DType::Bf16) | (DType::F64, DType::F32));
    whole || in_float || of_floats
}

fn cast_back(kernel: &Kernel, _: &Validity, inst: Inst) -> Option<Rewrite> {
    let Op::Cast(to, wide) = kernel.insts[inst] else { return None };
    let (_, &Op::Cast(wider, x)) = kernel.def_op(wide)? else { return None };
    let back = kernel.ty(x).dtype == to && holds(wider, to);
    back.then(|| same(kernel, inst, x))?
}

fn select_same(kernel: &Kernel, _: &Validity, inst: Inst) -> Option<Rewrite> {
    match kernel.insts[inst] {
        Op::Select { on_true, on_false, .. } if on_true == on_false => same(kernel, inst, on_true),
        _ => None,
    }
}

fn reshape_twice(kernel: &Kernel, _: &Validity, inst: Inst) -> Option<Rewrite> {
    let Op::Reshape { value, axes } = &kernel.insts[inst] else { return None };
    let (_, Op::Reshape { value, axes: before }) = kernel.def_op(*value)? else { return None };
    let through = |axis: &Option<u8>| axis.and_then(|a| before.get(usize::from(a)).copied().flatten());
    Some(Rewrite::Op(Op::Reshape { value: *value, axes: axes.iter().map(through).collect() }))
}

fn broadcast_twice(kernel: &Kernel, _: &Validity, inst: Inst) -> Option<Rewrite> {
    let Op::Broadcast { value, shape } = &kernel.insts[inst] else { return None };
    let (_, &Op::Broadcast { value, .. }) = kernel.def_op(*value)? else { return None };
    Some(Rewrite::Op(Op::Broadcast { value, shape: shape.clone() }))
}

fn shape_same(kernel: &Kernel, _: &Validity, inst: Inst) -> Option<Rewrite> {
    match &kernel.insts[inst] {
        Op::Reshape { value, .. } | Op::Broadcast { value, .. }
            if kernel.ty(*value).shape == kernel.ty(result(kernel, inst)?).shape =>
        {
            same(kernel, inst, *value)
        }
        _ => None,
    }
}

fn transpose_twice(kernel: &Kernel, _: &Validity, inst: Inst) -> Option<Rewrite> {
    let Op::Transpose(turned) = kernel.insts[inst] else { return None };
    let (_, &Op::Transpose(x)) = kernel.def_op(turned)? else { return None };
    same(kernel, inst, x)
}

fn refill(kernel: &Kernel, validity: &Validity, inst: Inst) -> Option<Rewrite> {
    let Op::Other { value, ref axes, .. } = kernel.insts[inst] else { return None };
    if validity.constraints(value).iter().any(|c| axes.contains(&c.axis)) {
        return None;
    }
    // A reshape forgets the edges of the axes that it drops; the verifier does not.
    let mut behind = value;
    while let (_, Op::Reshape { value, axes }) = kernel.def_op(behind)? {
        if validity.constraints(*value).iter().any(|c| !axes.contains(&Some(c.axis))) {
            return None;
        }
        behind = *value;
    }
    same(kernel, inst, value)
}

/// Carried values that the body passes on unchanged, and loops that do not run.
fn unchanged(kernel: &Kernel, _: &Validity, inst: Inst) -> Option<Rewrite> {
    let Op::Loop { lo, hi, inits, body, .. } = &kernel.insts[inst] else { return None };
    let reads = |v: Value| {
        kernel.insts.values().any(|op| {
            let mut found = false;
            op.visit_operands(|o| found |= o == v);
            found
        })
    };
    let never = constant(kernel, *lo).zip(constant(kernel, *hi)).is_some_and(|(lo, hi)| hi <= lo);
    let mut pairs = Vec::new();
    for (i, (&init, &left)) in inits.iter().zip(yields(kernel, *body)).enumerate() {
        let (param, out) = (kernel.blocks[*body].params[i + 1], kernel.results[inst][i]);
        // What a loop that does not run leaves may still be carried for its body.
        if left == param || left == init || never && reads(out) {
            pairs.push((out, init));
        }
        if left == param || left == init {
            pairs.push((param, init));
        }
    }
    (!pairs.is_empty()).then_some(Rewrite::Same(pairs))
}
