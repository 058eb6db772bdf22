//! Loads, and stores that are kept until the program has ended. Elements that are not valid are stored as 0, or as what changes
//! nothing.

use crate::Arg;
use crate::error::InterpError;
use crate::eval::Program;
use crate::memory::{PendingStore, Places, Region};
use crate::tile::{Data, Tile, mismatch};
use crate::walk::Walk;
use atlas_dsl::ir::ParamKind;
use atlas_dsl::op::{Slice, Update};
use atlas_dsl::reach::constant;
use atlas_dsl::validity::Constraint;
use atlas_dsl::{Dim, Param, TileType, Value};
use std::ops::Range;
use std::sync::Arc;

/// How many of the latest stores are searched for one that a new store replaces.
const RECENT: usize = 64;

/// The target of a load or store.
struct Access {
    region: Region,
    /// The tile of the region. Axes that are addressed by one element are dropped.
    ty: TileType,
    /// The part of each axis of the tile that lies in the tensor.
    valid: Vec<Range<u32>>,
    /// The axis that is gathered, and the tile of its places.
    gathered: Option<(usize, Arc<Tile>)>,
}

impl Program<'_> {
    fn access(&self, param: Param, slices: &[Slice]) -> Result<Access, InterpError> {
        let ParamKind::Tensor { dtype, dims, .. } = &self.launch.kernel.params[param].kind else {
            return Err(InterpError::kernel(format!("{param} is no tensor")));
        };
        if dims.len() != slices.len() {
            return Err(InterpError::kernel(format!("{param} has rank {}, but {} indices", dims.len(), slices.len())));
        }
        let mut region = Region { start: Vec::with_capacity(dims.len()), extent: Vec::with_capacity(dims.len()) };
        let (mut shape, mut valid, mut gathered) = (Vec::new(), Vec::new(), None);
        for (axis, (slice, &dim)) in slices.iter().zip(dims).enumerate() {
            let (start, extent, inside) = match *slice {
                Slice::Gather(v) => {
                    let places = self.tile(v)?;
                    let [extent] = places.ty.shape[..] else { return Err(mismatch("load")) };
                    let inside = places.valid[0].clone();
                    gathered = Some((axis, places));
                    (0, extent, inside)
                }
                slice => self.slice(slice, dim)?,
            };
            if !matches!(slice, Slice::At(_)) {
                shape.push(extent);
                valid.push(inside);
            }
            region.start.push(start);
            region.extent.push(extent);
        }
        Ok(Access { region, ty: TileType::new(*dtype, shape), valid, gathered })
    }

    /// The first element of a slice in its dim, its extent, and the part of it inside the dim.
    fn slice(&self, slice: Slice, dim: Dim) -> Result<(i64, u32, Range<u32>), InterpError> {
        let size = self.launch.dims[dim.as_u32() as usize] as i64;
        // Constants are read off the kernel: their values may be defined inside the loop that asks for them.
        let index = |v: Value| match constant(self.launch.kernel, v) {
            Some(i) => Ok(i),
            None => self.index(v).map(i64::from),
        };
        let (start, extent) = match slice {
            Slice::At(v) => (index(v)?, 1),
            Slice::Tile { index: i, size } => (index(i)? * i64::from(size), size),
            Slice::Span { start, len } => (index(start)?, len),
            Slice::Whole => (0, size as u32),
            Slice::Gather(_) => return Err(InterpError::kernel("a tile of places is no range of elements")),
        };
        let inside = |at: i64| at.clamp(0, i64::from(extent)) as u32;
        let first = inside(-start);
        Ok((start, extent, first..inside(size - start).max(first)))
    }

    /// The valid part of each axis of a tile under some constraints.
    pub(crate) fn valid_part(&self, ty: &TileType, constraints: &[Constraint]) -> Result<Vec<Range<u32>>, InterpError> {
        let mut valid: Vec<Range<u32>> = ty.shape.iter().map(|&e| 0..e).collect();
        for c in constraints {
            let (_, _, mut inside) = self.slice(c.slice, c.dim)?;
            let Some(axis) = valid.get_mut(usize::from(c.axis)) else { return Err(mismatch("load")) };
            if c.whole_axis {
                inside = if inside.is_empty() { 0..0 } else { axis.clone() };
            }
            let start = axis.start.max(inside.start);
            *axis = start..axis.end.min(inside.end).max(start);
        }
        Ok(valid)
    }

    pub(crate) fn load(&self, param: Param, slices: &[Slice]) -> Result<Tile, InterpError> {
        let Access { region, ty, valid, gathered } = self.access(param, slices)?;
        let mut data = Data::filled(ty.dtype, self.launch.mode, ty.elements() as usize, 0.0);
        let index = param.as_u32() as usize;
        if let Some((axis, places)) = gathered {
            let Some(Arg::In(view)) = self.launch.args.get(index) else {
                return Err(InterpError::kernel(format!("{param} is no input, and is loaded at the places of a tile")));
            };
            let Data::I32(places) = &places.data else { return Err(mismatch("load")) };
            // One place after another, each put where it belongs in a tile whose axis counts them.
            let mut extents: Vec<u64> = view.dims().to_vec();
            extents[axis] = places.len() as u64;
            let mut one = region;
            one.extent[axis] = 1;
            let elements = one.extent.iter().map(|&e| e as usize).product();
            let mut whole = one.clone();
            whole.extent[axis] = places.len() as u32;
            for (number, &place) in (0..).zip(places) {
                one.start[axis] = i64::from(place);
                let mut read = Data::filled(ty.dtype, self.launch.mode, elements, 0.0);
                view.read(&one, &mut read)?;
                let mut at = one.clone();
                at.start[axis] = number;
                if let Some(walk) = whole.walk_shared(&at, &extents) {
                    overlay(&walk, &mut data, &read)?;
                }
            }
            return Ok(Tile { ty, valid, data });
        }
        match self.launch.args.get(index) {
            Some(Arg::In(view)) => view.read(&region, &mut data)?,
            Some(Arg::Out(view)) => {
                view.read(&region, &mut data)?;
                // What this program stored lies on top; a store past the end of a dim left nothing there.
                let dims = view.dims();
                for stored in self.stores.iter().filter(|s| s.param == index) {
                    if let Some(walk) = region.walk_shared(&stored.region, dims) {
                        overlay(&walk, &mut data, &stored.tile.data)?;
                    }
                }
            }
            _ => return Err(InterpError::kernel(format!("{param} is no tensor"))),
        }
        Ok(Tile { ty, valid, data })
    }

    pub(crate) fn store(
        &mut self,
        update: Update,
        param: Param,
        slices: &[Slice],
        value: Value,
    ) -> Result<(), InterpError> {
        let tile = self.tile(value)?;
        let Access { region, ty, gathered, .. } = self.access(param, slices)?;
        if gathered.is_some() && !update.is_free() {
            return Err(InterpError::kernel(format!("{param} is stored to at the places of a tile")));
        }
        let places = gathered.map(|(axis, places)| Places::of(axis, &places)).transpose()?;
        if tile.ty != ty {
            return Err(InterpError::kernel(format!("a tile {} is stored to {ty}", tile.ty)));
        }
        let tile = if tile.is_valid() { tile } else { Arc::new(tile.filled(update.neutral(ty.dtype))?) };
        let param = param.as_u32() as usize;
        // A loop that keeps its state in memory stores to the same regions in every iteration. Nothing of the store before
        // is left then, and loads would go through all of them.
        let recent = self.stores.len().saturating_sub(RECENT)..self.stores.len();
        if !update.is_free()
            && let Some(before) =
                recent.rev().find(|&i| self.stores[i].param == param && self.stores[i].region == region)
        {
            self.stores.remove(before);
        }
        self.stores.push(PendingStore { update, places, param, region, tile });
        Ok(())
    }
}

/// Copies the walk's box of one tile onto another of its type.
pub(crate) fn overlay(walk: &Walk, to: &mut Data, from: &Data) -> Result<(), InterpError> {
    match (to, from) {
        (Data::Bool(to), Data::Bool(from)) => walk.copy(to, from),
        (Data::I32(to), Data::I32(from)) => walk.copy(to, from),
        (Data::I64(to), Data::I64(from)) => walk.copy(to, from),
        (Data::F32(to), Data::F32(from)) => walk.copy(to, from),
        (Data::F64(to), Data::F64(from)) => walk.copy(to, from),
        (Data::Ring(to), Data::Ring(from)) => walk.copy(to, from),
        _ => return Err(mismatch("load")),
    }
    Ok(())
}
