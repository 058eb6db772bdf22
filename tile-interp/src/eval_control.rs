//! Loops, and the transposes that do not have to be computed.

use crate::error::InterpError;
use crate::eval::Program;
use crate::tile::{Tile, common};
use atlas_dsl::{Block, Inst, Kernel, Op, Value};
use std::ops::Range;
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
        let (begun, mut carried) = self.begin_loop([lo, hi], inits, body)?;
        for i in begun.range.clone() {
            self.begin_iteration(&begun, i, carried)?;
            carried = self.block(body)?;
            begun.narrow(&mut carried);
        }
        Ok(carried)
    }

    /// A loop before its first iteration, and the values that go into that.
    pub(crate) fn begin_loop(
        &self,
        [lo, hi]: [Value; 2],
        inits: &[Value],
        body: Block,
    ) -> Result<(BegunLoop, Vec<Arc<Tile>>), InterpError> {
        let range = self.index(lo)?..self.index(hi)?;
        let mut carried = inits.iter().map(|&v| self.tile(v)).collect::<Result<Vec<_>, _>>()?;
        let Some((_, params)) = self.launch.kernel.blocks[body].params.split_first() else {
            return Err(InterpError::kernel("a loop body has no index"));
        };
        // What is carried is valid where both what it starts as and what the body leaves are.
        let validity = self.launch.validity;
        let valid = |tile: &Arc<Tile>, &param: &Value| self.valid_part(&tile.ty, validity.constraints(param));
        let valid =
            carried.iter().zip(params).map(|(tile, param)| valid(tile, param)).collect::<Result<Vec<_>, _>>()?;
        narrow(&mut carried, &valid);
        Ok((BegunLoop { range, body, valid }, carried))
    }

    /// Sets the parameters of the body.
    pub(crate) fn begin_iteration(
        &mut self,
        begun: &BegunLoop,
        i: i32,
        carried: Vec<Arc<Tile>>,
    ) -> Result<(), InterpError> {
        self.count_step()?;
        let params = &self.launch.kernel.blocks[begun.body].params;
        for (&param, tile) in params.iter().zip(std::iter::once(Arc::new(Tile::index(i))).chain(carried)) {
            self.set(param, tile);
        }
        Ok(())
    }

    /// Sets the results of a loop.
    pub(crate) fn end_loop(&mut self, inst: Inst, carried: Vec<Arc<Tile>>) {
        for (&result, tile) in self.launch.kernel.results[inst].iter().zip(carried) {
            self.set(result, tile);
        }
    }
}

/// A loop that a program runs.
pub(crate) struct BegunLoop {
    /// The numbers of its iterations.
    pub(crate) range: Range<i32>,
    body: Block,
    /// Where what is carried may be valid.
    valid: Vec<Vec<Range<u32>>>,
}

impl BegunLoop {
    /// Restricts what an iteration leaves.
    pub(crate) fn narrow(&self, carried: &mut [Arc<Tile>]) {
        narrow(carried, &self.valid);
    }
}

/// Restricts the valid part of each tile to that of the given one.
fn narrow(tiles: &mut [Arc<Tile>], valid: &[Vec<Range<u32>>]) {
    for (tile, valid) in tiles.iter_mut().zip(valid) {
        let both = common(&tile.valid, valid);
        if both != tile.valid {
            Arc::make_mut(tile).valid = both;
        }
    }
}

/// Per value: true for a transpose that is only used as an operand of `dot`s. These read the original by its strides. The
/// original is still there, because it is defined in the block of the transpose or outside of it.
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
