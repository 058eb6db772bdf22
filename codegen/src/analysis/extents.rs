//! Which elements of each tile are real, and what the other elements contain.
//!
//! A tile cut at the end of a dim is *ragged*: some of its elements lie outside the tensor. Layouts add *padding* beyond the
//! tile's own extents. Loads put 0 in both, and element-wise operations map that constant to another one. A contraction needs
//! its neutral element there. A refill puts it there, unless this analysis proves that it is there already.
//!
//! # Promise
//! [`Extents::constraints`] are those of [`Validity`], which the interpreter follows too: an element that meets all of
//! them is real. [`Extents::fill`] holds of every element that is not real and of all padding, in the bits that any
//! device computes, of every fragment that the lowering makes of the value.
//!
//! # Argument
//! Tile IR decides once which elements are real. A fact about a value is an [`Info`]: what is [`Known`] of the elements that
//! are not real, and whether that holds for all elements. The order is that of [`Known::join`]: a number, below it `Finite`,
//! and below that nothing. Per operation:
//!
//! - A load gives 0: it is predicated, and its padding is masked.
//! - A function of elements that each hold a known constant gives what [`fold`] proves on every implementation, with the
//!   rounding of its type. The constants of several operands are combined only if they hold on the same elements: operands with
//!   the same constraints, or constants everywhere (`uniform`). Padding is the same for all operands, because all are computed
//!   in one layout.
//! - A change of layout leaves 0 in padding, whatever was there, because elements that the other layout does not reach are read
//!   as 0. Operands of element-wise operations, of reductions and of loops share a class and never change layout. Broadcasts
//!   and reshapes may change the layout of their operand. They keep only the part of its constant that also holds for 0. Tiles
//!   of one element, and tiles that are computed in any requested layout, have no padding to lose.
//! - A broadcast repeats real elements into padding, so nothing is known there unless the operand is uniform.
//! - A carried value has the facts that hold for both its initial value and the value that the body yields. The analysis
//!   iterates downwards from the initial value. Each step goes down in an order of height 3, so it ends at a fixed point.
//! - A tile in shared memory is stored with 0 in every element that is not real, whatever it held in registers. So a transpose,
//!   and a carried tile in shared memory, is 0 there.
//! - Nothing is known about reductions, products and numbers.
//!
//! # Breaks it
//! - An operand of extent 1 repeated along a ragged axis:
//!   tests/agreement/wrong_code.rs::a_column_of_one_element_is_repeated_whole.
//! - `max(sqrt(x - 1), 0)`, whose fill is NaN; a fill rounded by a cast (`+ 0.75`, to i32) or by bf16 (`+ 256 + 1`):
//!   tests/agreement/wrong_code.rs::what_padding_holds_is_known_in_the_type, dsl/tests/fold.rs.
//! - A fill taken from registers for a tile read from shared memory (`exp(x).t()`):
//!   tests/agreement/exchanges.rs::what_lies_in_shared_memory_is_zero_past_the_edge.
//! - A constant computed in one layout and repeated in another:
//!   tests/agreement/arguments.rs::a_change_of_layout_keeps_no_constant_in_padding.

use super::{Home, Placement, fills};
use crate::mutation::{Mutation, is_planted};
use atlas_dsl::fold::{self, Known};
use atlas_dsl::op::Slice;
use atlas_dsl::validity::{self, Validity};
use atlas_dsl::{Block, Dim, Inst, Kernel, Op, Value};
use cranelift_entity::SecondaryMap;
use std::collections::BTreeSet;

/// Elements of a tile along `axis` are real where the sliced coordinate is inside `dim`. If the slice is one element that is
/// repeated along the axis, either all elements are real or none is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Tile axis.
    pub axis: u8,
    /// The slice of the tensor along the axis.
    pub slice: Slice,
    /// The dim.
    pub dim: Dim,
}

impl From<&validity::Constraint> for Constraint {
    fn from(c: &validity::Constraint) -> Constraint {
        let slice = match (c.whole_axis, c.coordinate()) {
            (true, Some(v)) if !is_planted(Mutation::BroadcastOfOne) => Slice::At(v),
            _ => c.slice,
        };
        Constraint { axis: c.axis, slice, dim: c.dim }
    }
}

/// What is known of one value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Info {
    /// What is known of every element outside the tensor, and of all padding.
    fill: Option<Known>,
    /// The same holds for every element, including real ones.
    uniform: bool,
}

/// The raggedness of every value of a kernel.
#[derive(Clone, Debug)]
pub struct Extents {
    validity: Validity,
    info: SecondaryMap<Value, Info>,
    /// For each loop, the facts about its carried values so far.
    carried: SecondaryMap<Inst, Option<Vec<Info>>>,
    /// Carried tiles that live in shared memory.
    shared: BTreeSet<Value>,
    /// Tiles that are computed in any requested layout.
    anywhere: BTreeSet<Value>,
}

impl Extents {
    /// Analyses a kernel whose values are placed.
    pub fn of(kernel: &Kernel, placement: &Placement) -> Extents {
        let validity = Validity::of(kernel);
        let at = |home: Home| kernel.values.keys().filter(|&v| *placement.home(v) == home).collect();
        let (shared, anywhere) = (at(Home::Carried), at(Home::Anywhere));
        let mut e = Extents { validity, info: SecondaryMap::new(), carried: SecondaryMap::new(), shared, anywhere };
        e.block(kernel, kernel.body);
        e
    }

    /// The axes along which a tile may be ragged.
    pub fn constraints(&self, v: Value) -> impl Iterator<Item = Constraint> {
        self.validity.constraints(v).iter().map(Constraint::from)
    }

    /// What is known of elements outside the tensor, and of padding.
    pub fn fill(&self, v: Value) -> Option<Known> {
        self.info[v].fill
    }

    /// True if elements outside the tensor contain exactly `number`. A known zero may have either sign, but the zero of a load
    /// is positive.
    pub fn is_filled_with(&self, kernel: &Kernel, v: Value, number: f64) -> bool {
        if number == 0.0 {
            return number.is_sign_positive() && is_loaded(kernel, v) && self.fill(v) == Some(Known::Exact(0.0));
        }
        self.fill(v).is_some() && self.fill(v) == Known::constant(kernel.ty(v).dtype, number)
    }

    /// True if the neutral element has to be put in before a contraction of `axes`. `padded` is set if the layout adds padding
    /// along those axes.
    pub fn needs_refill(&self, v: Value, axes: &[u8], neutral: f64, padded: bool) -> bool {
        let ragged = self.validity.constraints(v).iter().any(|c| axes.contains(&c.axis));
        (ragged || padded) && self.info[v].fill != Some(Known::Exact(neutral))
    }

    fn block(&mut self, kernel: &Kernel, block: Block) {
        for &inst in &kernel.blocks[block].insts {
            let op = &kernel.insts[inst];
            let results = kernel.results[inst].clone();
            if let Op::Loop { inits, body, .. } = op {
                let carried = self.loop_(kernel, inst, inits, *body);
                for (r, info) in results.iter().zip(carried) {
                    self.info[*r] = self.held(*r, info);
                }
            } else if let [result] = results[..] {
                self.info[result] = self.transfer(kernel, op);
            }
        }
    }

    /// The facts about carried values at the head of every iteration, and after the last.
    fn loop_(&mut self, kernel: &Kernel, inst: Inst, inits: &[Value], body: Block) -> Vec<Info> {
        let params = kernel.blocks[body].params[1..].to_vec();
        // What starts with fewer invalid elements than the loop's value has is known of those alone.
        let at_head = |e: &Extents, p: Value, v: Value| match e.same_set(v, p) {
            true => e.info[v],
            false => Info::default(),
        };
        let mut carried: Vec<Info> = params.iter().zip(inits).map(|(&p, &v)| at_head(self, p, v)).collect();
        // A loop around this one may walk it again, with less than before: what was lost then stays so, and need not be lost anew.
        for (c, before) in carried.iter_mut().zip(self.carried[inst].iter().flatten()) {
            *c = c.join(*before);
        }
        loop {
            for (&p, info) in params.iter().zip(&carried) {
                self.info[p] = self.held(p, *info);
            }
            self.block(kernel, body);
            let yields = validity::yields(kernel, body);
            let next: Vec<Info> = carried
                .iter()
                .zip(params.iter().zip(yields))
                .map(|(c, (&p, &v))| c.join(at_head(self, p, v)))
                .collect();
            if next == carried {
                self.carried[inst] = Some(carried.clone());
                return carried;
            }
            carried = next;
        }
    }

    /// The facts about a carried tile in its home.
    fn held(&self, v: Value, info: Info) -> Info {
        if self.shared.contains(&v) { Info::ZERO } else { info }
    }

    /// The facts about a value in a layout that may not be its own. New padding is 0.
    fn moved(&self, kernel: &Kernel, v: Value) -> Info {
        let keeps = kernel.ty(v).elements() == 1 || self.anywhere.contains(&v);
        if keeps { self.info[v] } else { self.info[v].map(|fill| fill.join(Known::Exact(0.0))) }
    }

    /// True if what is known of the elements of `v` that are not real also holds for those of `like`.
    fn same_set(&self, v: Value, like: Value) -> bool {
        self.info[v].uniform || self.validity.constraints(v).len() == self.validity.constraints(like).len()
    }

    /// The facts of an operation's one result.
    fn transfer(&self, kernel: &Kernel, op: &Op) -> Info {
        let get = |v: &Value| self.info[*v];
        match op {
            Op::Splat { value, dtype, .. } => Info::uniform(Known::constant(*dtype, *value)),
            // A transpose is read from shared memory, where all but what is real is 0.
            Op::Load { .. } | Op::Transpose(_) => Info::ZERO,
            // Along the filled axes all of it is real; padding holds what a refill puts there, or what the operand has.
            Op::Other { value, other, axes } => {
                let info = get(value);
                let (filled, left): (Vec<&validity::Constraint>, Vec<&validity::Constraint>) =
                    self.validity.constraints(*value).iter().partition(|c| axes.contains(&c.axis));
                let filling = Info { fill: Known::constant(kernel.ty(*value).dtype, *other), uniform: false };
                match (filled.is_empty(), left.is_empty()) {
                    (true, _) => info,
                    (false, true) => filling,
                    // Past the edges of the other axes stands what stood there.
                    (false, false) => filling.join(info),
                }
            }
            Op::Unary(op, v) => get(v).map(|x| fills::unary(*op, kernel.ty(*v).dtype, x)),
            Op::Cast(to, v) => get(v).map(|x| fills::cast(kernel.ty(*v).dtype, *to, x)),
            Op::Binary(op, a, b) => self.merge([*a, *b], |[x, y]| fills::binary(*op, kernel.ty(*a).dtype, x, y)),
            Op::Compare(p, a, b) => self.merge([*a, *b], |[x, y]| fold::compare(*p, kernel.ty(*a).dtype, x, y)),
            Op::Select { cond, on_true, on_false } => {
                self.merge([*cond, *on_true, *on_false], |[c, x, y]| fold::select(Some(c), Some(x), Some(y)))
            }
            // Padding along a repeated axis repeats what is real.
            Op::Broadcast { value: v, .. } => {
                let moved = self.moved(kernel, *v);
                Info::uniform(moved.fill.filter(|_| moved.uniform))
            }
            Op::Reshape { value: v, axes } => {
                let moved = self.moved(kernel, *v);
                let drops = |c: &validity::Constraint| !axes.contains(&Some(c.axis));
                match self.validity.constraints(*v).iter().any(drops) {
                    // The lowering puts 0 where an axis that goes is not real.
                    true => moved.join(Info::ZERO),
                    false => moved,
                }
            }
            Op::Fma(..)
            | Op::Reduce { .. }
            | Op::Scan { .. }
            | Op::ClusterSum(_)
            | Op::Dot { .. }
            | Op::Iota { .. }
            | Op::DimSize(_)
            | Op::DimTiles { .. }
            | Op::ScalarParam(_)
            | Op::TableGet { .. }
            | Op::Store { .. }
            | Op::Loop { .. }
            | Op::Yield(_) => Info::default(),
        }
    }

    /// The facts about an element-wise operation. Its fill is computed from the operands' fills if all of them hold on the same
    /// set of elements.
    fn merge<const N: usize>(&self, operands: [Value; N], f: impl FnOnce([Known; N]) -> Option<Known>) -> Info {
        let uniform = operands.iter().all(|&v| self.info[v].uniform);
        let ragged: Vec<Value> = operands.into_iter().filter(|&v| !self.info[v].uniform).collect();
        let same_set = ragged.windows(2).all(|w| self.same_constraints(w[0], w[1]));
        let fills: Option<Vec<Known>> = operands.iter().map(|&v| self.info[v].fill).collect();
        let fill = fills.filter(|_| same_set).and_then(|f| <[Known; N]>::try_from(f).ok()).and_then(f);
        Info { fill, uniform: uniform && fill.is_some() }
    }

    /// True if the same elements of both are not real.
    pub fn same_constraints(&self, a: Value, b: Value) -> bool {
        let (a, b) = (self.validity.constraints(a), self.validity.constraints(b));
        a.len() == b.len() && a.iter().all(|c| b.contains(c))
    }
}

impl Info {
    /// 0 in every element that is not real.
    const ZERO: Info = Info { fill: Some(Known::Exact(0.0)), uniform: false };

    /// The same value everywhere, if it is known.
    fn uniform(fill: Option<Known>) -> Info {
        Info { fill, uniform: fill.is_some() }
    }

    /// The facts of a function of one value.
    fn map(self, f: impl FnOnce(Known) -> Option<Known>) -> Info {
        let fill = self.fill.and_then(f);
        Info { fill, uniform: self.uniform && fill.is_some() }
    }

    /// The facts that hold for either value.
    fn join(self, other: Info) -> Info {
        let fill = if self.fill == other.fill { self.fill } else { None };
        Info { fill, uniform: self.uniform && other.uniform && fill.is_some() }
    }
}

/// A load, and operations that only move its elements.
fn is_loaded(kernel: &Kernel, mut v: Value) -> bool {
    loop {
        match kernel.def_op(v).map(|d| d.1) {
            Some(Op::Load { .. } | Op::Transpose(_)) => return true,
            Some(Op::Cast(_, x) | Op::Broadcast { value: x, .. } | Op::Reshape { value: x, .. }) => v = *x,
            _ => return false,
        }
    }
}
