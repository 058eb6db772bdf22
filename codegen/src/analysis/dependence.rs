//! The values on which a tensor of more than 16 bits depends, and those on which a discontinuous operation depends.
//!
//! # Promise
//! If [`Dependence::by`] names no tensor for a value, then the kernel writes the same to tensors wider than 16 bits whatever
//! the value is, except through a rounding to 16 bits on the way. Otherwise, it names one of the tensors that may differ. If it
//! names no discontinuous operation (a comparison, a conversion to whole numbers, `floor` or `round`), the operands of all of
//! these are the same, without exception.
//!
//! # Argument
//! It is the smallest set that contains the tile and the indices of each store to a wide tensor (or the operands of each
//! discontinuous operation), and that is closed under these rules. The operands of the operation that computes a member are
//! members. A carried value, or the result of a loop, adds its initial value, the value that the body yields, and the bounds of
//! the loop. A store adds the bounds of all loops around it. A load from a tensor that the kernel writes adds every store to
//! that tensor, because one of them may have written the loaded value. Nothing else passes a value on: arguments of a launch do
//! not share written memory, and Tile IR has no other memory and no branches. Comparisons and indices are operands like any
//! others, so the values on which a choice or an address depends are members too. For tensors, a cast to f16 or bf16 ends the
//! walk: the rounded value says no more than a 16-bit tensor would, and its readers expect that. For discontinuous operations
//! it does not, because a value near the edge of a rounding may fall to the other side. Sets only grow, so the walk terminates.
//!
//! # Breaks it
//! - A wide output beside a narrow one: tests/agreement/arguments.rs::each_output_has_the_digits_of_its_type.
//! - Carried values, bounds of loops, a choice, a tensor in between: the tests of `approximations`,
//!   `what_reaches_a_wide_output` and `what_reaches_it_by_memory_or_loops`; a rounding before a comparison:
//!   `a_rounding_hides_from_tensors_and_not_from_discontinuous_operations`.

use super::Uses;
use atlas_dsl::ir::{ParamKind, ValueDef};
use atlas_dsl::validity::yields;
use atlas_dsl::{Inst, Kernel, Op, Param, Value};
use cranelift_entity::SecondaryMap;

/// The values on which a tensor wider than 16 bits, or a discontinuous operation, depends, with that tensor or operation.
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
    /// Walks back from every discontinuous operation. Any change of its operand, however small, may become a whole step of its
    /// result.
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
    /// The tensor or operation that depends on a value, if any.
    pub(super) fn by(&self, v: Value) -> Option<By> {
        self.by[v]
    }

    fn want(&mut self, v: Value, by: By) {
        if self.by[v].is_none() {
            self.by[v] = Some(by);
            self.open.push(v);
        }
    }

    /// The operands of a store, and the values that decide whether it runs.
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

    /// Every store of a kernel to a tensor that it also reads.
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
