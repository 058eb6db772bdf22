//! Accesses to elements one by one: at the places of a tile, and atomic stores.

use crate::cta::Cta;
use crate::memory::{Cut, shape};
use crate::tile::{Tile, count, steps};
use atlas_codegen::gpu::{Slice, Value};
use atlas_dsl::Param;
use atlas_dsl::op::BinaryOp;

impl Cta<'_> {
    /// A tile of which each element has a place of its own along one axis.
    pub(crate) fn gather(
        &mut self,
        r: usize,
        param: Param,
        (slices, cuts): (&[Slice], &[Cut]),
        places: Value,
    ) -> Result<Tile, String> {
        let each = self.each(r, slices, cuts, Some(places))?;
        let tensor = self.tensor(param)?;
        let data = each.iter().map(|one| tensor.load(one).data[0]).collect();
        Ok(Tile { dtype: tensor.dtype, shape: shape(cuts), data })
    }

    /// Stores each element of a tile at its place, or combines it with the one there.
    pub(crate) fn store_each(
        &mut self,
        r: usize,
        op: Option<BinaryOp>,
        param: Param,
        (slices, cuts): (&[Slice], &[Cut]),
        tile: &Tile,
    ) -> Result<(), String> {
        let each = self.each(r, slices, cuts, slices.iter().find_map(|s| s.gathered()))?;
        let f = op.map(|op| self.launch.arithmetic.binary(op, tile.dtype)).transpose()?;
        let tensor = self.tensor(param)?;
        for (one, &x) in each.iter().zip(&tile.data) {
            let there = tensor.load(one);
            tensor.store(one, &there.map(there.dtype, |old| f.as_ref().map_or(x, |f| f(old, x))));
        }
        Ok(())
    }

    /// The place of each element of a tile, in order.
    fn each(&self, r: usize, slices: &[Slice], cuts: &[Cut], places: Option<Value>) -> Result<Vec<Vec<Cut>>, String> {
        let places = places.map(|v| self.tile(r, v)).transpose()?;
        let extents = shape(cuts);
        if let Some(places) = places.as_ref().filter(|places| places.shape != extents) {
            return Err(format!("places {:?} of a tile {extents:?}", places.shape));
        }
        let steps = steps(&extents);
        let element = |number: usize| {
            let mut kept = steps.iter().zip(&extents).map(|(&step, &extent)| (number / step % extent as usize) as i64);
            let one = slices.iter().zip(cuts).map(|(slice, cut)| {
                let along = if cut.kept { kept.next().unwrap_or(0) } else { 0 };
                let start = match (slice.gathered(), &places) {
                    (Some(_), Some(places)) => places.data[number] as i64,
                    _ => cut.start + along,
                };
                Cut { start, len: 1, kept: cut.kept }
            });
            one.collect()
        };
        Ok((0..count(&extents)).map(element).collect())
    }
}
