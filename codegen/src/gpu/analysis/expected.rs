//! Expected values of the numbers in loop bounds, as formulas of the sizes.
//!
//! Grid coordinates and loop indices are those of a sample point, which the evaluation chooses. For a tile, the smallest and
//! the largest element are tracked, because reductions select these. A whole number from the caller is taken to be between 0
//! and [`UNKNOWN_ELEMENTS`] elements, because it is usually a window or a length. Data in memory is not known. If data only
//! narrows a known range, as in a loop from `max(row - window, load(first[m]))` on, it is assumed not to narrow it. A loop goes
//! from the smallest lower bound to the largest upper bound. If both bounds depend on the same unknown number, that number has
//! one value, the largest.

use super::formula::{Formula, Formulas, Numbers};
use crate::gpu::{Block, Domain, Inst, Kernel, Op, SharedRef, UnsignedOp, Value, ValueDef};
use crate::gpu_ops;
use atlas_dsl::DType;
use atlas_dsl::ir::GridExtent;
use atlas_dsl::op::{BinaryOp, Predicate, ReduceOp, UnaryOp};
use std::collections::BTreeMap;

/// Trips of a loop whose bounds are not known.
pub(super) const UNKNOWN_TRIPS: f64 = 8.0;
/// Elements that such a loop covers, if it counts tiles.
pub(super) const UNKNOWN_ELEMENTS: f64 = 512.0;
/// The longest chain of operations through which numbers are followed. It uses the stack.
const MOST_DEEP: u32 = 1000;

/// Which of several values is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Least,
    Greatest,
}

impl End {
    fn other(self) -> End {
        match self {
            End::Least => End::Greatest,
            End::Greatest => End::Least,
        }
    }
}

/// A question about a value: which element of a tile, and for unknown numbers whether the smallest or the largest possible
/// value, or the value where each unknown number has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ask {
    element: End,
    possible: Option<End>,
}

impl Ask {
    fn of(possible: Option<End>) -> Ask {
        Ask { element: End::Greatest, possible }
    }

    /// The opposite question, for an operand with which the value falls.
    fn other(self) -> Ask {
        Ask { element: self.element.other(), possible: self.possible.map(End::other) }
    }
}

/// The numbers of a kernel, as far as they were requested.
pub(super) struct Expected<'a> {
    k: &'a Kernel,
    known: BTreeMap<(Value, Ask), Option<Formula>>,
    /// The unknown numbers on which values depend, as bits.
    unknowns: BTreeMap<Value, u64>,
    divisors: BTreeMap<Value, Option<f64>>,
    /// The grid axis of each coordinate.
    axes: BTreeMap<Inst, u32>,
    /// For the body of each loop, its bounds and its nesting depth.
    loops: BTreeMap<Block, (Value, Value, u32)>,
    /// The depth of the walk. Nothing is known about values deeper than [`MOST_DEEP`].
    depth: u32,
    /// True for lower bounds: loops go from the largest lower bound to the smallest upper bound, and conditions must hold for
    /// certain.
    certain: bool,
}

impl Expected<'_> {
    pub(super) fn new(k: &Kernel) -> Expected<'_> {
        let mut expected = Expected {
            k,
            known: BTreeMap::new(),
            unknowns: BTreeMap::new(),
            divisors: BTreeMap::new(),
            axes: BTreeMap::new(),
            loops: BTreeMap::new(),
            depth: 0,
            certain: false,
        };
        for role in k.roles.values() {
            expected.look_around(role.body, &mut 0, 0);
        }
        expected
    }

    /// The numbers for the work that a kernel does in any case, instead of the work that it may do.
    pub(super) fn certain(k: &Kernel) -> Expected<'_> {
        Expected { certain: true, ..Expected::new(k) }
    }

    /// True if it depends on data in memory or on a number from the caller.
    pub(super) fn is_open(&mut self, v: Value) -> bool {
        self.unknowns(v) != 0
    }

    /// The grid axis of a coordinate.
    pub(super) fn axis_of(&self, coordinate: Inst) -> Option<u32> {
        self.axes.get(&coordinate).copied()
    }

    /// Records coordinates and loops. Coordinates are in the order of their axes: each belongs to the next axis of its extent,
    /// from `axis` on.
    fn look_around(&mut self, block: Block, axis: &mut usize, depth: u32) {
        let axes = &self.k.index_map.axes;
        for &inst in &self.k.blocks[block].insts {
            match &self.k.insts[inst] {
                Op::Coordinate(_, extent) => {
                    let next = (*axis..axes.len()).chain(0..*axis).find(|&a| axes[a] == *extent);
                    let found = next.unwrap_or(*axis);
                    self.axes.insert(inst, found as u32);
                    *axis = found + 1;
                }
                Op::Loop { lo, hi, body, .. } => {
                    self.loops.insert(*body, (*lo, *hi, depth));
                    let deeper = u32::from(!self.is_over_turns(*hi));
                    self.look_around(*body, axis, depth + deeper);
                }
                op => {
                    if let Some(body) = op.body() {
                        self.look_around(body, axis, depth);
                    }
                }
            }
        }
    }

    /// The bounds of a loop; `None` if nothing is known of one of them.
    pub(super) fn bounds(&mut self, f: &mut Formulas, lo: Value, hi: Value) -> Option<(Formula, Formula)> {
        let (least, greatest) = match self.unknowns(lo) & self.unknowns(hi) {
            0 if self.certain => (Some(End::Greatest), Some(End::Least)),
            0 => (Some(End::Least), Some(End::Greatest)),
            _ => (None, None),
        };
        self.ask(f, lo, Ask::of(least)).zip(self.ask(f, hi, Ask::of(greatest)))
    }

    /// 1 if a condition can hold, or holds for certain, otherwise 0; `None` if nothing is known about it.
    pub(super) fn condition(&mut self, f: &mut Formulas, v: Value) -> Option<Formula> {
        self.ask(f, v, Ask::of(Some(if self.certain { End::Least } else { End::Greatest })))
    }

    /// The extent of the tiles that a number counts.
    pub(super) fn divisor(&mut self, v: Value) -> Option<f64> {
        // By many ways one comes to the same number, and looks at it once.
        if let Some(&known) = self.divisors.get(&v) {
            return known;
        }
        let made = self.deeper(|e| e.make_divisor(v));
        self.divisors.insert(v, made);
        made
    }

    fn make_divisor(&mut self, v: Value) -> Option<f64> {
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return None };
        match self.k.insts[inst] {
            Op::Cast(x) | Op::Broadcast(x) | Op::Reshape(x) => self.divisor(x),
            Op::Binary(BinaryOp::Div, _, _, by) => {
                let ValueDef::Result(inst, _) = self.k.values[by].def else { return None };
                let Op::Const(extent) = self.k.insts[inst] else { return None };
                (extent >= 1.0).then_some(extent)
            }
            Op::Binary(BinaryOp::Min | BinaryOp::Max | BinaryOp::Add | BinaryOp::Sub, _, a, b)
            | Op::Select(_, a, b) => self.divisor(a).or_else(|| self.divisor(b)),
            Op::DimTiles(_, size) | Op::Coordinate(_, GridExtent::Tiles { size, .. }) => Some(f64::from(size)),
            Op::Unary(..) | Op::Binary(..) | Op::Compare(..) | Op::Fma(..) | Op::Rematerialize(_) => None,
            Op::Transpose(_) | Op::ExtractSlice { .. } => None,
            Op::Const(_)
            | Op::Iota { .. }
            | Op::DimSize(_)
            | Op::CtaNumber
            | Op::CtaCount
            | Op::SplitNumber
            | Op::SplitCount => None,
            Op::Unsigned(..) | Op::Coordinate(..) | Op::ScalarParam(_) | Op::TableGet(..) => None,
            gpu_ops!(fragments global shared clusters products rings orders control) => None,
        }
    }

    /// The result of `make`, one operation deeper.
    fn deeper<T>(&mut self, make: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth == MOST_DEEP {
            return None;
        }
        self.depth += 1;
        let made = make(self);
        self.depth -= 1;
        made
    }

    /// True for the number of programs that a CTA runs. Work is that of one program, so it counts as 1.
    fn counts_turns(&self, op: &Op) -> bool {
        let Op::Unsigned(UnsignedOp::Div, _, ctas) = *op else { return false };
        matches!(self.k.values[ctas].def, ValueDef::Result(inst, _) if self.k.insts[inst] == Op::CtaCount)
    }

    /// True for a loop over the programs of a CTA, by its end. The program that is counted is the first one.
    fn is_over_turns(&self, hi: Value) -> bool {
        matches!(self.k.values[hi].def, ValueDef::Result(inst, _) if self.counts_turns(&self.k.insts[inst]))
    }

    fn ask(&mut self, f: &mut Formulas, v: Value, ask: Ask) -> Option<Formula> {
        if let Some(&known) = self.known.get(&(v, ask)) {
            return known;
        }
        let made = self.deeper(|e| e.make(f, v, ask));
        self.known.insert((v, ask), made);
        made
    }

    /// The unknown numbers on which a value depends, as bits. If there are very many, two may share a bit.
    fn unknowns(&mut self, v: Value) -> u64 {
        if let Some(&known) = self.unknowns.get(&v) {
            return known;
        }
        let own = 1 << (v.as_u32() % 64);
        let made = self.deeper(|e| {
            let inst = match e.k.values[v].def {
                ValueDef::Result(inst, _) => inst,
                ValueDef::BlockParam(block, 0) => {
                    let &(lo, hi, _) = e.loops.get(&block)?;
                    return Some(e.unknowns(lo) | e.unknowns(hi));
                }
                _ => return None,
            };
            match &e.k.insts[inst] {
                Op::Const(_) | Op::Iota { .. } | Op::DimSize(_) | Op::DimTiles(..) | Op::Coordinate(..) => Some(0),
                Op::SplitNumber | Op::SplitCount => Some(0),
                Op::ScalarParam(param) => Some(1 << (param.as_u32() % 64)),
                Op::LoadShared(from) => e.stored(*from).map(|x| e.unknowns(x)),
                op @ (Op::Cast(_)
                | Op::Broadcast(_)
                | Op::Reshape(_)
                | Op::Transpose(_)
                | Op::Rematerialize(_)
                | Op::Reduce { .. }
                | Op::Compare(..)
                | Op::Select(..)
                | Op::Fma(..)
                | Op::Unary(..)
                | Op::Unsigned(UnsignedOp::Min, ..)
                | Op::Binary(..)) => {
                    let mut operands = Vec::new();
                    op.visit_operands(|x| operands.push(x));
                    Some(operands.into_iter().fold(0, |all, x| all | e.unknowns(x)))
                }
                op if e.counts_turns(op) => Some(0),
                Op::CtaNumber | Op::CtaCount | Op::Unsigned(UnsignedOp::Div, ..) | Op::TableGet(..) => None,
                Op::ExtractSlice { .. } | Op::MaskInvalid { .. } | Op::Scan { .. } | Op::ConvertLayout(_) => None,
                Op::LoadMatrix { .. } | Op::StoreShared { .. } | Op::ZeroShared(_) | Op::SumCluster(..) => None,
                gpu_ops!(global products rings orders control) => None,
            }
        });
        let made = made.unwrap_or(own);
        self.unknowns.insert(v, made);
        made
    }

    /// The coordinate of a grid axis. For a triangle, the last one counts the columns up to the row before.
    fn coordinate(&self, f: &mut Formulas, axis: u32, extent: GridExtent) -> Option<Formula> {
        let map = &self.k.index_map;
        let row = (map.axes.len() as u32).checked_sub(2);
        let Some(row) = row.filter(|_| map.domain == Domain::Triangle) else {
            return Some(f.coordinate(axis, extent));
        };
        if axis < row {
            return Some(f.coordinate(axis, extent));
        }
        let at = f.row(row, extent);
        if axis == row {
            return Some(at);
        }
        let one = f.constant(1.0);
        let columns = f.binary(BinaryOp::Add, Numbers::I32, at, one);
        Some(f.column(axis, columns))
    }

    fn make(&mut self, f: &mut Formulas, v: Value, ask: Ask) -> Option<Formula> {
        let inst = match self.k.values[v].def {
            ValueDef::Result(inst, _) => inst,
            // The index of a loop; what loops carry is not known.
            ValueDef::BlockParam(block, 0) => {
                let &(lo, hi, depth) = self.loops.get(&block)?;
                if self.is_over_turns(hi) {
                    return self.ask(f, lo, ask);
                }
                let (lo, hi) = self.bounds(f, lo, hi)?;
                return Some(f.index(depth, lo, hi));
            }
            _ => return None,
        };
        let (dtype, layout) = self.k.values[v].ty.tile()?;
        match &self.k.insts[inst] {
            op if self.counts_turns(op) => Some(f.constant(1.0)),
            Op::Const(x) => Some(f.constant(*x)),
            // The first part of the iterations, which is no shorter than the others. What is certain is counted for the program as a
            // whole.
            Op::SplitNumber => Some(f.constant(0.0)),
            Op::SplitCount if self.certain => Some(f.constant(1.0)),
            Op::SplitCount => Some(f.constant(f64::from(self.k.index_map.splits))),
            Op::Iota { axis, offset } => {
                let last = layout.shape.get(usize::from(*axis)).map_or(0, |n| n.saturating_sub(1));
                Some(f.constant(f64::from(offset + if ask.element == End::Greatest { last } else { 0 })))
            }
            Op::DimSize(dim) => Some(f.size(*dim)),
            Op::DimTiles(dim, size) => Some(f.count(GridExtent::Tiles { dim: *dim, size: *size })),
            Op::Coordinate(_, extent) => self.coordinate(f, *self.axes.get(&inst)?, *extent),
            Op::ScalarParam(_) if dtype.is_int() => Some(f.constant(match ask.possible {
                Some(End::Least) => 0.0,
                Some(End::Greatest) if self.certain => f64::INFINITY,
                Some(End::Greatest) | None => UNKNOWN_ELEMENTS,
            })),
            // The low bits of a number may be any number.
            Op::Cast(_) if dtype.is_small() => None,
            // Conditions and what i64 has of i32 stay what they are.
            Op::Cast(x) if dtype.is_int() && !matches!(self.k.tile(*x).0, DType::Bool | DType::I32) => {
                let x = self.ask(f, *x, ask)?;
                Some(f.cast(Numbers::of(dtype), x))
            }
            Op::Cast(x) | Op::Broadcast(x) | Op::Reshape(x) | Op::Transpose(x) | Op::Rematerialize(x) => {
                self.ask(f, *x, ask)
            }
            Op::Reduce { op: ReduceOp::Max, value, .. } => self.ask(f, *value, Ask { element: End::Greatest, ..ask }),
            Op::Reduce { op: ReduceOp::Min, value, .. } => self.ask(f, *value, Ask { element: End::Least, ..ask }),
            Op::LoadShared(from) => self.stored(*from).and_then(|x| self.ask(f, x, ask)),
            // It holds the more the less what is to be less is.
            Op::Compare(predicate, a, b) => {
                let (of_a, of_b) = match predicate {
                    Predicate::Lt | Predicate::Le => (ask.other(), ask),
                    Predicate::Gt | Predicate::Ge => (ask, ask.other()),
                    Predicate::Eq | Predicate::Ne => (ask, ask),
                };
                let (a, b) = (self.ask(f, *a, of_a)?, self.ask(f, *b, of_b)?);
                Some(f.compare(*predicate, a, b))
            }
            Op::Select(c, a, b) => {
                let (a, b) = (self.ask(f, *a, ask)?, self.ask(f, *b, ask)?);
                let c = self.ask(f, *c, Ask::of(ask.possible.map(|_| End::Greatest)))?;
                Some(f.select(c, a, b))
            }
            Op::Unary(op @ (UnaryOp::Neg | UnaryOp::Not), _, x) if *op == UnaryOp::Neg || dtype == DType::Bool => {
                let all = f.constant(if *op == UnaryOp::Not { 1.0 } else { 0.0 });
                let x = self.ask(f, *x, ask.other())?;
                Some(f.binary(BinaryOp::Sub, Numbers::of(dtype), all, x))
            }
            // They neither rise nor fall with their operands.
            Op::Binary(BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor, ..) => None,
            Op::Binary(BinaryOp::ShrLogical | BinaryOp::MulHi | BinaryOp::Pow | BinaryOp::Atan2, ..) => None,
            Op::Binary(op, _, a, b) => {
                let (of_a, of_b) = match op {
                    // The nearer to 0, the further a number below 0 is moved.
                    BinaryOp::Div | BinaryOp::Shr if self.is_negative(*a) => (ask, ask),
                    BinaryOp::Shl if self.is_negative(*a) => (ask, ask.other()),
                    BinaryOp::Sub | BinaryOp::Div | BinaryOp::Shr => (ask, ask.other()),
                    BinaryOp::Mul if self.is_negative(*a) => (ask, ask.other()),
                    BinaryOp::Mul if self.is_negative(*b) => (ask.other(), ask),
                    _ => (ask, ask),
                };
                let numbers = Numbers::of(dtype);
                // Of a number that is not known, any remainder is possible.
                let is_open = *op == BinaryOp::Rem && self.unknowns(*a) != 0;
                match (self.ask(f, *a, of_a), self.ask(f, *b, of_b)) {
                    (Some(_), Some(_)) if is_open && ask.possible == Some(End::Least) => Some(f.constant(0.0)),
                    (Some(a), Some(b)) if is_open => {
                        let one = f.constant(1.0);
                        let most = f.binary(BinaryOp::Sub, numbers, b, one);
                        Some(f.binary(BinaryOp::Min, numbers, a, most))
                    }
                    (Some(a), Some(b)) => Some(f.binary(*op, numbers, a, b)),
                    // The greatest of the lesser ones is not above that which is known, and so the other way.
                    (one, other) => match (op, ask.possible) {
                        (BinaryOp::Min, Some(End::Greatest) | None) | (BinaryOp::Max, Some(End::Least) | None) => {
                            one.or(other)
                        }
                        _ => None,
                    },
                }
            }
            // Where it matters, both numbers are at least 0.
            Op::Unsigned(UnsignedOp::Min, a, b) => {
                let (a, b) = (self.ask(f, *a, ask)?, self.ask(f, *b, ask)?);
                Some(f.binary(BinaryOp::Min, Numbers::of(dtype), a, b))
            }
            Op::ScalarParam(_) | Op::CtaNumber | Op::CtaCount | Op::Unsigned(..) | Op::TableGet(..) => None,
            Op::Unary(..) | Op::Fma(..) | Op::Reduce { op: ReduceOp::Sum, .. } => None,
            Op::ExtractSlice { .. } | Op::MaskInvalid { .. } | Op::Scan { .. } | Op::ConvertLayout(_) => None,
            Op::LoadMatrix { .. } | Op::StoreShared { .. } | Op::ZeroShared(_) | Op::SumCluster(..) => None,
            gpu_ops!(global products rings orders control) => None,
        }
    }

    /// True for a negative constant of the kernel.
    fn is_negative(&self, v: Value) -> bool {
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return false };
        let is_below = |of: Inst| matches!(self.k.insts[of], Op::Const(x) if x < 0.0);
        if let Op::Cast(x) | Op::Broadcast(x) | Op::Reshape(x) = self.k.insts[inst] {
            return matches!(self.k.values[x].def, ValueDef::Result(of, _) if is_below(of));
        }
        is_below(inst)
    }

    /// The value in a place of shared memory that only one store writes.
    fn stored(&self, from: SharedRef) -> Option<Value> {
        let mut stores = self.k.insts.values().filter_map(|op| {
            let Op::StoreShared { to, value } = op else { return None };
            (to.buffer == from.buffer).then_some(*value)
        });
        let first = stores.next()?;
        stores.next().is_none().then_some(first)
    }
}
