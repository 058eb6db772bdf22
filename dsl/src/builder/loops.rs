//! Loops: their bounds, their bodies and the values that they carry.

use super::{Builder, Operand};
use crate::entity::{Dim, Value};
use crate::infer::infer;
use crate::ir::{BlockData, DimSize, Loc};
use crate::op::{LoopKind, Op};
use crate::types::{DType, TileType};

/// What a loop's body appends for its index and for what it carries, and what it leaves for the next iteration.
type LoopBody<'f> = dyn FnMut(&mut Builder, Operand, &[Operand]) -> Vec<Operand> + 'f;

impl Builder {
    /// Number of tiles of `size` elements in a dim, as a loop bound.
    pub fn tiles(&mut self, loc: Loc, dim: Dim, size: u32) -> Operand {
        match self.kernel.dims[dim].size {
            DimSize::Const(n) => Operand::from(n.div_ceil(u64::from(size)) as usize),
            DimSize::Dynamic { .. } => self.push(loc, Op::DimTiles { dim, size }),
        }
    }

    /// A loop. `tile` is the size of the tiles that the index counts, if it counts tiles. `body` gets the index and the carried
    /// operands, and returns the operands for the next iteration.
    #[allow(clippy::too_many_arguments, reason = "one argument per part of the loop syntax")]
    pub fn for_loop(
        &mut self,
        loc: Loc,
        kind: LoopKind,
        lo: Operand,
        hi: Operand,
        tile: Option<u32>,
        carried: &[Operand],
        body: impl FnOnce(&mut Builder, Operand, &[Operand]) -> Vec<Operand>,
    ) -> Vec<Operand> {
        let mut body = Some(body);
        let mut once = |b: &mut Builder, index: Operand, params: &[Operand]| {
            body.take().map_or_else(Vec::new, |body| body(b, index, params))
        };
        self.loop_of(loc, (kind, lo, hi), tile, carried, &mut once)
    }

    /// The loop, compiled once for all bodies: there are as many as there are loops in kernels.
    fn loop_of(
        &mut self,
        loc: Loc,
        (kind, lo, hi): (LoopKind, Operand, Operand),
        tile: Option<u32>,
        carried: &[Operand],
        body: &mut LoopBody<'_>,
    ) -> Vec<Operand> {
        let poison = vec![Operand::Poison; carried.len()];
        let (Some(lo), Some(hi)) = (self.index_scalar(loc, lo), self.index_scalar(loc, hi)) else { return poison };
        // A literal carried in is an f32 scalar.
        let inits: Option<Vec<Value>> = carried
            .iter()
            .map(|&c| match c.number() {
                Some(x) => self.splat(loc, x, DType::F32, &[]),
                None => c,
            })
            .map(|c| if let Operand::Value(v) = c { Some(v) } else { None })
            .collect();
        let Some(inits) = inits else { return poison };
        let block = self.kernel.blocks.push(BlockData::default());
        let index = self.kernel.push_block_param(block, TileType::scalar(DType::I32));
        if let Some(size) = tile {
            self.tile_coords.insert(index, size);
        }
        let params: Vec<Operand> = inits
            .iter()
            .map(|&v| {
                let ty = self.kernel.ty(v).clone();
                Operand::Value(self.kernel.push_block_param(block, ty))
            })
            .collect();
        self.open.push(block);
        let next = body(self, index.into(), &params);
        let mut yields = Vec::new();
        for (&init, next) in inits.iter().zip(next) {
            let want = self.kernel.ty(init).clone();
            let next = match next.number() {
                Some(x) => self.splat(loc, x, want.dtype, &want.shape),
                None => next,
            };
            let Operand::Value(mut v) = next else { continue };
            if self.kernel.ty(v).dtype == want.dtype && self.kernel.ty(v).shape != want.shape {
                v = self.broadcast_value(loc, v, &want.shape).unwrap_or(v);
            }
            if *self.kernel.ty(v) != want {
                let found = self.kernel.ty(v).clone();
                self.error(116, loc, format!("a loop carries {want}, but its body leaves {found}"));
            }
            yields.push(v);
        }
        if yields.len() == inits.len() {
            self.push(loc, Op::Yield(yields));
        }
        self.open.pop();
        let op = Op::Loop { kind, lo, hi, inits, body: block };
        match infer(&self.kernel, &op, loc) {
            Ok(types) => {
                let at = *self.open.last().unwrap_or(&self.kernel.body);
                let inst = self.kernel.push_inst(at, op, &types, loc);
                self.kernel.results[inst].iter().map(|&v| v.into()).collect()
            }
            Err(d) => {
                self.errors.push(d);
                poison
            }
        }
    }
}
