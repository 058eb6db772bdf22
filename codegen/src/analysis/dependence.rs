//! Which values a tensor of more than 16 bits depends on, and which a discontinuous operation.
//!
//! # Promise
//! If [`Dependence::by`] names no tensor for a value, what a kernel writes to tensors wider than 16 bits is the same whatever
//! the value is, but for what a rounding to 16 bits on the way makes of it; else it names one of them that may differ. If it
//! names no discontinuous operation (comparisons, whole numbers made of others, `floor` and `round`), the operands of these are
//! the same, with no exception.
//!
//! # Argument
//! The least set that holds what a store to a wide tensor takes, its tile and its place (or what a discontinuous operation takes), and is closed under these rules:
//! the operands of what computes a member are members; a member that a loop carries or leaves brings what it starts as and
//! what the body leaves of it, and the bounds of the loop, which say how often; a store brings the bounds of all loops
//! around it; a member that is loaded from a tensor that the kernel writes brings every store to that tensor, since one of
//! them may have written what is loaded. Nothing else passes a value on: arguments of a launch do not share what is written,
//! and Tile IR has no other memory and no branches. Comparisons and indices are operands like others, so what a choice or a
//! place depends on is a member too. A cast to f16 or bf16 ends the set of the tensors: what was rounded says no more of a
//! value than a 16-bit tensor would, and whoever reads it reckons with that. It does not end the set of the discontinuous operations, for what
//! lies near the edge of a rounding falls to the other side. Sets only grow, so the walk ends.
//!
//! # Breaks it
//! - A wide output beside a narrow one: tests/agreement/arguments.rs::each_output_has_the_digits_of_its_type.
//! - What loops carry, their bounds, a choice, a tensor in between: the tests of `approximations`,
//!   `what_reaches_a_wide_output` and `what_reaches_it_by_memory_or_loops`; a rounding before a comparison:
//!   `a_rounding_hides_from_tensors_and_not_from_discontinuous_operations`.

use super::Uses;
use atlas_dsl::ir::{ParamKind, ValueDef};
use atlas_dsl::validity::yields;
use atlas_dsl::{Inst, Kernel, Op, Param, Value};
use cranelift_entity::SecondaryMap;

/// The values that something depends on, and what: a tensor wider than 16 bits, or a discontinuous operation.
pub(super) struct Dependence<'a, By: Clone> {
    kernel: &'a Kernel,
    uses: &'a Uses,
    by: SecondaryMap<Value, Option<By>>,
    open: Vec<Value>,
    /// Tensors whose stores are members already.
    stored: SecondaryMap<Param, bool>,
    /// True if a rounding to 16 bits ends the walk.
    roundings_hide: bool,
}

impl<'a> Dependence<'a, Inst> {
    /// Walks back from every discontinuous operation: a step of its operand, however small, may become a step of its result.
    pub(super) fn of_discontinuous(kernel: &'a Kernel, uses: &'a Uses) -> Dependence<'a, Inst> {
        let mut dependence = Dependence {
            kernel,
            uses,
            by: SecondaryMap::new(),
            open: Vec::new(),
            stored: SecondaryMap::new(),
            roundings_hide: false,
        };
        for (inst, op) in kernel.insts.iter().filter(|&(inst, _)| uses.is_live(inst)) {
            let is_discontinuous = match op {
                Op::Unary(f, _) => f.row().is_discontinuous,
                Op::Compare(..) => true,
                Op::Cast(to, _) => !to.is_float(),
                _ => false,
            };
            if is_discontinuous {
                op.visit_operands(|v| dependence.want(v, inst));
                dependence.walk(inst);
            }
        }
        dependence
    }
}

impl<'a> Dependence<'a, Param> {
    /// Walks back from every store to a wide tensor.
    pub(super) fn of(kernel: &'a Kernel, uses: &'a Uses) -> Dependence<'a, Param> {
        let mut dependence = Dependence {
            kernel,
            uses,
            by: SecondaryMap::new(),
            open: Vec::new(),
            stored: SecondaryMap::new(),
            roundings_hide: true,
        };
        for (inst, op) in kernel.insts.iter().filter(|&(inst, _)| uses.is_live(inst)) {
            if let Op::Store { param, .. } = op
                && !matches!(kernel.params[*param].kind, ParamKind::Tensor { dtype, .. } if dtype.is_half())
            {
                dependence.store(inst, *param);
                dependence.walk(*param);
            }
        }
        dependence
    }
}

impl<By: Copy> Dependence<'_, By> {
    /// What depends on a value, if anything does.
    pub(super) fn by(&self, v: Value) -> Option<By> {
        self.by[v]
    }

    fn want(&mut self, v: Value, by: By) {
        if self.by[v].is_none() {
            self.by[v] = Some(by);
            self.open.push(v);
        }
    }

    /// What a store takes, and whether it is run.
    fn store(&mut self, inst: Inst, by: By) {
        self.kernel.insts[inst].visit_operands(|v| self.want(v, by));
        let mut block = self.uses.block_of(inst);
        while let Some(around) = block.and_then(|b| self.uses.loop_of(b)) {
            if let Op::Loop { lo, hi, .. } = self.kernel.insts[around] {
                self.want(lo, by);
                self.want(hi, by);
            }
            block = self.uses.block_of(around);
        }
    }

    fn walk(&mut self, by: By) {
        let k = self.kernel;
        while let Some(v) = self.open.pop() {
            match k.values[v].def {
                ValueDef::Grid(_) => {}
                ValueDef::BlockParam(body, at) => {
                    if let Some(inst) = self.uses.loop_of(body) {
                        // Before what is carried stands the index.
                        self.carried(inst, (at as usize).checked_sub(1), by);
                    }
                }
                ValueDef::Result(inst, at) => match &k.insts[inst] {
                    Op::Loop { .. } => self.carried(inst, Some(at as usize), by),
                    Op::Cast(to, _) if self.roundings_hide && to.is_half() => {}
                    op => {
                        op.visit_operands(|v| self.want(v, by));
                        if let Op::Load { param, .. } = op {
                            self.written(*param, by);
                        }
                    }
                },
            }
        }
    }

    /// The bounds of a loop, and one of the values that it carries.
    fn carried(&mut self, inst: Inst, at: Option<usize>, by: By) {
        let Op::Loop { lo, hi, inits, body, .. } = &self.kernel.insts[inst] else { return };
        let yielded = yields(self.kernel, *body);
        let carried = at.and_then(|i| Some([*inits.get(i)?, *yielded.get(i)?]));
        for v in [*lo, *hi].into_iter().chain(carried.into_iter().flatten()) {
            self.want(v, by);
        }
    }

    /// Whatever a kernel writes to a tensor that it reads too.
    fn written(&mut self, tensor: Param, by: By) {
        if std::mem::replace(&mut self.stored[tensor], true) {
            return;
        }
        for (inst, op) in self.kernel.insts.iter() {
            if matches!(op, Op::Store { param, .. } if *param == tensor) && self.uses.is_live(inst) {
                self.store(inst, by);
            }
        }
    }
}
