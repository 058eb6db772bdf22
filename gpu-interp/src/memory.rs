//! Tensors, and the shared buffers of a CTA. Shared memory is tracked element by element. An element cannot be read if nothing
//! wrote it, or if a write to another buffer overwrote its bytes.

use crate::tile::{Tile, count, next, steps};
use atlas_codegen::gpu::{Buffer, Kernel};
use atlas_dsl::DType;

/// A tensor by its coordinates. Its addresses in memory do not matter here.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Size along each axis.
    pub dims: Vec<u64>,
    /// The elements in the arithmetic's form, row-major.
    pub data: Vec<u64>,
}

/// The part of a dim that a slice selects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The first element, which may lie outside the dim.
    pub(crate) start: i64,
    pub(crate) len: u32,
    /// True if it is an axis of the tile.
    pub(crate) kept: bool,
}

/// The extents of the tile that cuts select.
pub(crate) fn shape(cuts: &[Cut]) -> Vec<u32> {
    cuts.iter().filter(|c| c.kept).map(|c| c.len).collect()
}

impl Tensor {
    /// The tensor with its axes in another order: the n-th is the one that `order` names there.
    pub(crate) fn reordered(&self, order: &[usize]) -> Tensor {
        let dims: Vec<u64> = order.iter().map(|&axis| self.dims[axis]).collect();
        let stride = |axis: usize| self.dims[axis + 1..].iter().product::<u64>();
        let element = |mut at: u64| {
            let from = dims.iter().zip(order).rev().map(|(&size, &axis)| {
                let coordinate = at % size;
                at /= size;
                coordinate * stride(axis)
            });
            self.data[from.sum::<u64>() as usize]
        };
        let data = (0..dims.iter().product()).map(element).collect();
        Tensor { dtype: self.dtype, dims, data }
    }

    /// Calls `f` on the position in the tensor of each element of a tile, in order; `None` outside the tensor.
    fn walk(&self, cuts: &[Cut], mut f: impl FnMut(Option<usize>)) {
        let lens: Vec<u32> = cuts.iter().map(|c| c.len).collect();
        let Some((&inner, outer)) = lens.split_last() else { return f(Some(0)) };
        let last = cuts.len() - 1;
        let mut at = vec![0; outer.len()];
        for _ in 0..count(outer) {
            let coordinate = |axis: usize| cuts[axis].start + i64::from(at[axis]);
            let inside = (0..last).all(|axis| (0..self.dims[axis] as i64).contains(&coordinate(axis)));
            let row = (0..last).fold(0, |i, axis| i * self.dims[axis] as i64 + coordinate(axis));
            let (start, size) = (cuts[last].start, self.dims[last] as i64);
            for i in 0..i64::from(inner) {
                let real = inside && start + i >= 0 && start + i < size;
                f(if real { Some((row * size + start + i) as usize) } else { None });
            }
            next(&mut at, outer);
        }
    }

    /// The tile; 0 outside the tensor.
    pub(crate) fn load(&self, cuts: &[Cut]) -> Tile {
        let shape = shape(cuts);
        let mut data = Vec::with_capacity(count(&shape));
        self.walk(cuts, |at| data.push(at.map_or(0, |at| self.data[at])));
        Tile { dtype: self.dtype, shape, data }
    }

    /// Writes a tile. Elements outside the tensor are dropped.
    pub(crate) fn store(&mut self, cuts: &[Cut], tile: &Tile) {
        let mut places = Vec::with_capacity(tile.data.len());
        self.walk(cuts, |at| places.push(at));
        for (place, &x) in places.into_iter().zip(&tile.data) {
            if let Some(place) = place {
                self.data[place] = x;
            }
        }
    }
}

/// A rectangle of a stage of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageRect {
    pub(crate) buffer: Buffer,
    pub(crate) stage: u32,
    pub(crate) row: u32,
    pub(crate) col: u32,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
}

/// A buffer: its elements by stage, row and column, as far as they were written.
#[derive(Clone, Debug)]
struct Cells {
    rows: u32,
    cols: u32,
    data: Vec<Option<u64>>,
    /// The number of copies in flight to each stage.
    pending: Vec<u32>,
}

/// Bytes that no swizzle splits, and that no two buffers share unless they overlap.
const CHUNK: u32 = 16;

/// The shared memory of a CTA.
pub(crate) struct Shared<'k> {
    k: &'k Kernel,
    cells: Vec<Cells>,
    /// The buffer that wrote each chunk last, once buffers have offsets.
    owners: Vec<Option<Buffer>>,
}

impl<'k> Shared<'k> {
    pub(crate) fn new(k: &'k Kernel) -> Shared<'k> {
        let cells = k.buffers.values().map(|b| {
            let (rows, cols) = (b.layout.rows, b.layout.cols);
            let elements = b.stages as usize * rows as usize * cols as usize;
            Cells { rows, cols, data: vec![None; elements], pending: vec![0; b.stages as usize] }
        });
        let bytes = if k.buffers.values().any(|b| b.offset.is_some()) { k.shared_bytes() } else { 0 };
        Shared { k, cells: cells.collect(), owners: vec![None; bytes.div_ceil(CHUNK) as usize] }
    }

    /// The rectangle of a buffer with all its rows and columns.
    pub(crate) fn whole(&self, buffer: Buffer, stage: u32) -> StageRect {
        let Cells { rows, cols, .. } = self.cells[buffer.as_u32() as usize];
        StageRect { buffer, stage, row: 0, col: 0, rows, cols }
    }

    /// Counts a copy to a stage that begins or ends.
    pub(crate) fn on_its_way(&mut self, buffer: Buffer, stage: u32, begins: bool) {
        let pending = &mut self.cells[buffer.as_u32() as usize].pending[stage as usize];
        *pending = if begins { *pending + 1 } else { pending.saturating_sub(1) };
    }

    /// True if a copy to a stage is in flight.
    pub(crate) fn awaits(&self, buffer: Buffer, stage: u32) -> bool {
        self.cells[buffer.as_u32() as usize].pending.get(stage as usize).is_some_and(|&n| n > 0)
    }

    fn name(&self, buffer: Buffer) -> &'k str {
        &self.k.buffers[buffer].name
    }

    fn check(&self, p: StageRect) -> Result<(), String> {
        let cells = &self.cells[p.buffer.as_u32() as usize];
        let inside = p.row + p.rows <= cells.rows && p.col + p.cols <= cells.cols;
        match inside && (p.stage as usize) < cells.pending.len() {
            true => Ok(()),
            false => Err(format!("{p:?} lies outside the buffer `{}`", self.name(p.buffer))),
        }
    }

    fn index(&self, p: StageRect, row: u32, col: u32) -> usize {
        let cells = &self.cells[p.buffer.as_u32() as usize];
        ((p.stage * cells.rows + row) * cells.cols + col) as usize
    }

    /// The chunks of each row of a rectangle: the chunk's number and the elements in it.
    fn chunks(&self, p: StageRect) -> Vec<(u32, u32, u32, usize)> {
        let data = &self.k.buffers[p.buffer];
        let (Some(offset), bytes) = (data.offset, data.dtype.bytes()) else { return Vec::new() };
        let per = CHUNK / bytes;
        let base = offset + p.stage * data.layout.bytes();
        let mut found = Vec::new();
        for row in p.row..p.row + p.rows {
            for chunk in p.col / per..(p.col + p.cols).div_ceil(per) {
                let at = base + data.layout.offset(row, chunk * per, bytes);
                found.push((row, chunk * per, ((chunk + 1) * per).min(data.layout.cols), (at / CHUNK) as usize));
            }
        }
        found
    }

    /// The elements of a rectangle, row by row.
    pub(crate) fn read(&self, p: StageRect) -> Result<Vec<u64>, String> {
        self.check(p)?;
        let name = self.name(p.buffer);
        if self.awaits(p.buffer, p.stage) {
            return Err(format!("reads stage {} of `{name}`, to which copies are on their way", p.stage));
        }
        for (row, col, _, chunk) in self.chunks(p) {
            match self.owners.get(chunk) {
                Some(Some(owner)) if *owner != p.buffer => {
                    let over = self.name(*owner);
                    return Err(format!(
                        "reads row {row} and column {col} of `{name}`, over which `{over}` was written"
                    ));
                }
                _ => {}
            }
        }
        let cells = &self.cells[p.buffer.as_u32() as usize];
        let mut data = Vec::with_capacity((p.rows * p.cols) as usize);
        for row in p.row..p.row + p.rows {
            let first = self.index(p, row, p.col);
            for (i, x) in cells.data[first..first + p.cols as usize].iter().enumerate() {
                let col = p.col as usize + i;
                data.push(
                    x.ok_or_else(|| format!("reads row {row} and column {col} of `{name}`, which nothing wrote"))?,
                );
            }
        }
        Ok(data)
    }

    /// Writes a rectangle, row by row. `None` marks an element that cannot be read.
    pub(crate) fn write(&mut self, p: StageRect, data: impl Fn(u32, u32) -> Option<u64>) -> Result<(), String> {
        self.check(p)?;
        self.claim(p);
        for row in 0..p.rows {
            let first = self.index(p, p.row + row, p.col);
            let cells = &mut self.cells[p.buffer.as_u32() as usize];
            for col in 0..p.cols {
                cells.data[first + col as usize] = data(row, col);
            }
        }
        Ok(())
    }

    /// Takes over the chunks of a rectangle. Elements of the buffer in chunks that another buffer wrote since are lost.
    fn claim(&mut self, p: StageRect) {
        for (row, from, to, chunk) in self.chunks(p) {
            let Some(owner) = self.owners.get_mut(chunk) else { continue };
            if owner.replace(p.buffer) != Some(p.buffer) {
                let (first, last) = (self.index(p, row, from), self.index(p, row, to));
                self.cells[p.buffer.as_u32() as usize].data[first..last].fill(None);
            }
        }
    }
}

/// A tile as rows and columns: all axes but the last count as rows.
pub(crate) fn matrix(shape: &[u32]) -> (u32, u32) {
    match shape.split_last() {
        Some((&cols, outer)) => (count(outer) as u32, cols),
        None => (1, 1),
    }
}

/// A dense matrix with its axes exchanged.
pub(crate) fn transposed(data: &[u64], (rows, cols): (u32, u32)) -> Vec<u64> {
    let step = steps(&[rows, cols]);
    let mut out = Vec::with_capacity(data.len());
    for col in 0..cols as usize {
        for row in 0..rows as usize {
            out.push(data[row * step[0] + col]);
        }
    }
    out
}
