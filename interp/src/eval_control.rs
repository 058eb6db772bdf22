//! Loops, and the transposes that need not be carried out.

use crate::error::InterpError;
use crate::eval::Program;
use crate::tile::Tile;
use atlas_dsl::{Block, Kernel, Op, Value};
use std::sync::Arc;

impl Program<'_> {
    /// Runs a loop; returns the values it carries out.
    pub(crate) fn run_loop(
        &mut self,
        lo: Value,
        hi: Value,
        inits: &[Value],
        body: Block,
    ) -> Result<Vec<Arc<Tile>>, InterpError> {
        let (lo, hi) = (self.index(lo)?, self.index(hi)?);
        let mut carried = inits.iter().map(|&v| self.tile(v)).collect::<Result<Vec<_>, _>>()?;
        let params = &self.machine.kernel.blocks[body].params;
        let Some((&index, params)) = params.split_first() else {
            return Err(InterpError::kernel("a loop body has no index"));
        };
        for i in lo..hi {
            self.set(index, Arc::new(Tile::index(i)));
            for (&param, tile) in params.iter().zip(carried) {
                self.set(param, tile);
            }
            carried = self.block(body)?;
        }
        Ok(carried)
    }
}

/// Per value: is it a transpose whose every use is an operand of a `dot`? Those read the original by
/// its strides. The original outlives such a use, since it is defined where the transpose is or outside.
pub(crate) fn deferred_transposes(kernel: &Kernel) -> Vec<bool> {
    let mut deferred = vec![false; kernel.values.len()];
    for (inst, op) in kernel.insts.iter() {
        if let (Op::Transpose(_), [v]) = (op, &kernel.results[inst][..]) {
            deferred[v.as_u32() as usize] = true;
        }
    }
    for op in kernel.insts.values() {
        if let Op::Dot { acc, .. } = op {
            acc.iter().for_each(|v| deferred[v.as_u32() as usize] = false);
        } else {
            op.visit_operands(|v| deferred[v.as_u32() as usize] = false);
        }
    }
    deferred
}
