//! What differs between the programs of a cluster.
//!
//! # Promise
//! Where [`Differing`] says that a value does not differ, the programs of a cluster have the same value there, if they have run the
//! same instructions so far; and they run the same instructions except those that it calls apart.
//!
//! # Argument
//! Only the coordinate of the last axis tells the programs of a cluster apart. Every other value is computed, by the same operation,
//! from operands. So a value may differ if an operand may. A carried value may also differ if the number of iterations may. A load
//! reads the same elements if its slices are the same. It may read what the program itself stored before: by rule 211 such a load
//! uses the coordinate, so it counts as different. `cluster_sum` gives the same tile to all, whatever its operand is. The sets only
//! grow, so the walk reaches a fixed point.
//!
//! # Breaks it
//! - A store in a loop whose bound differs, a carried value that starts the same and becomes different: dsl/tests/verify.rs.

use crate::entity::{Block, Inst, Param, Value};
use crate::ir::Kernel;
use crate::op::Op;
use cranelift_entity::EntitySet;

/// The values that may differ between the programs of a cluster, and the instructions that not all of them run equally often.
#[derive(Debug, Default)]
pub(super) struct Differing {
    values: EntitySet<Value>,
    apart: EntitySet<Inst>,
    grown: bool,
}

impl Differing {
    /// Walks a kernel. Nothing differs in one without clusters.
    pub(super) fn of(kernel: &Kernel) -> Differing {
        let mut found = Differing::default();
        if let (true, Some(axis)) = (kernel.cluster, kernel.grid.last()) {
            found.values.insert(axis.coord);
            found.grown = true;
        }
        while std::mem::take(&mut found.grown) {
            found.block(kernel, kernel.body, false);
        }
        found
    }

    /// True if the programs of a cluster may have different values here.
    pub(super) fn value(&self, v: Value) -> bool {
        self.values.contains(v)
    }

    /// True if the programs of a cluster may run this instruction a different number of times.
    pub(super) fn is_apart(&self, inst: Inst) -> bool {
        self.apart.contains(inst)
    }

    /// The tensor from which a value that differs is loaded, each program another part. `None` if it comes from no load.
    pub(super) fn load(&self, kernel: &Kernel, v: Value) -> Option<Param> {
        let (mut open, mut seen) = (vec![v], EntitySet::new());
        while let Some(v) = open.pop() {
            if !self.value(v) || !seen.insert(v) {
                continue;
            }
            let Some((_, op)) = kernel.def_op(v) else { continue };
            match op {
                Op::Load { param, .. } => return Some(*param),
                Op::Loop { body, .. } => open.extend(crate::validity::yields(kernel, *body)),
                _ => {}
            }
            op.visit_operands(|v| open.push(v));
        }
        None
    }

    fn add(&mut self, v: Value) {
        self.grown |= self.values.insert(v);
    }

    fn block(&mut self, kernel: &Kernel, block: Block, apart: bool) {
        for &inst in &kernel.blocks[block].insts {
            if apart {
                self.grown |= self.apart.insert(inst);
            }
            let op = &kernel.insts[inst];
            match op {
                Op::Loop { lo, hi, inits, body, .. } => {
                    let apart = apart || self.value(*lo) || self.value(*hi);
                    let params = &kernel.blocks[*body].params;
                    let yielded = crate::validity::yields(kernel, *body);
                    for (n, &r) in kernel.results[inst].iter().enumerate() {
                        let ends = [inits.get(n), yielded.get(n)];
                        if apart || ends.into_iter().flatten().any(|&v| self.value(v)) {
                            self.add(r);
                            params.get(n + 1).into_iter().for_each(|&p| self.add(p));
                        }
                    }
                    if apart {
                        params.first().into_iter().for_each(|&index| self.add(index));
                    }
                    self.block(kernel, *body, apart);
                }
                Op::ClusterSum(_) => {}
                _ => {
                    let mut differs = false;
                    op.visit_operands(|v| differs |= self.value(v));
                    if differs {
                        kernel.results[inst].iter().for_each(|&r| self.add(r));
                    }
                }
            }
        }
    }
}
