//! Every id refers to something, and each block and instruction has exactly one place.

use super::{MAX_LOOPS, Verifier};
use crate::entity::{Block, Dim, Inst, Value};
use crate::ir::{Loc, ParamKind};
use crate::op::Op;
use std::collections::BTreeSet;

impl Verifier<'_> {
    /// 201, 205 and 228.
    pub(super) fn ids(&mut self) {
        let k = self.kernel;
        for p in k.params.values() {
            if let ParamKind::Tensor { dims, .. } = &p.kind {
                dims.iter().for_each(|&d| self.dim_exists(d, Loc::default()));
            }
        }
        for axis in &k.grid {
            let d = axis.extent.dim();
            self.dim_exists(d, Loc::default());
            self.value_exists(axis.coord, Loc::default());
        }
        let (mut blocks, mut insts) = (BTreeSet::new(), BTreeSet::new());
        self.block_ids((k.body, 0), Loc::default(), &mut blocks, &mut insts);
    }

    fn block_ids(
        &mut self,
        (block, depth): (Block, usize),
        loc: Loc,
        blocks: &mut BTreeSet<Block>,
        insts: &mut BTreeSet<Inst>,
    ) {
        let k = self.kernel;
        if depth > MAX_LOOPS {
            return self.error(228, loc, format!("loops nest deeper than {MAX_LOOPS}"));
        }
        let Some(data) = k.blocks.get(block) else {
            return self.error(201, loc, format!("there is no block {block}"));
        };
        if !blocks.insert(block) {
            return self.error(205, loc, format!("{block} is the body of this loop and of another"));
        }
        data.params.iter().for_each(|&v| self.value_exists(v, loc));
        for &inst in &data.insts {
            let loc = k.locs[inst];
            let Some(op) = k.insts.get(inst) else {
                self.error(201, loc, format!("there is no instruction {inst}"));
                continue;
            };
            if !insts.insert(inst) {
                self.error(205, loc, format!("{inst} stands in two places"));
                continue;
            }
            op.visit_operands(|v| self.value_exists(v, loc));
            k.results[inst].iter().for_each(|&v| self.value_exists(v, loc));
            match op {
                Op::DimSize(d) | Op::DimTiles { dim: d, .. } => self.dim_exists(*d, loc),
                Op::ScalarParam(p) | Op::Load { param: p, .. } | Op::Store { param: p, .. }
                    if !k.params.is_valid(*p) =>
                {
                    self.error(201, loc, format!("there is no parameter {p}"));
                }
                Op::TableGet { table, .. } if !k.tables.is_valid(*table) => {
                    self.error(201, loc, format!("there is no table {table}"));
                }
                Op::Loop { body, .. } => self.block_ids((*body, depth + 1), loc, blocks, insts),
                _ => {}
            }
        }
    }

    fn dim_exists(&mut self, d: Dim, loc: Loc) {
        if !self.kernel.dims.is_valid(d) {
            self.error(201, loc, format!("there is no dim {d}"));
        }
    }

    fn value_exists(&mut self, v: Value, loc: Loc) {
        if !self.kernel.values.is_valid(v) {
            self.error(201, loc, format!("there is no value {v}"));
        }
    }
}
