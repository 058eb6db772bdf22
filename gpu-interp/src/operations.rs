//! Operations with an effect or with a completion that is waited for: memory, rings, products, control.

use crate::cta::{Cta, Flight, Held, Landing, Side};
use crate::evaluate::{evaluate, refill};
use crate::memory::{Cut, StageRect, matrix, shape, transposed};
use crate::rings::{Flying, Stop, Token};
use crate::tile::{Tile, count};
use atlas_codegen::gpu::{
    AccessKind, At, Block, CopyAtom, Inst, Mover, Op, Operand, Reach, Ring, RingData, SharedRef, Side as OperandSide,
    Slice, Type, Valid, Value, writable,
};
use atlas_codegen::gpu_ops;
use atlas_dsl::ir::ParamKind;
use atlas_dsl::op::BinaryOp;
use atlas_dsl::{Dim, Param};
use std::ops::Range;
use std::rc::Rc;

/// Where control continues after an instruction.
pub(crate) enum Next {
    /// To the next one, with these results.
    On(Vec<Held>),
    /// Into the body of a branch.
    Enter(Block),
    Loop {
        lo: i64,
        hi: i64,
        inits: Vec<Held>,
        body: Block,
    },
    Programs(Block),
    Yield(Vec<Held>),
    /// The program ends here.
    End,
}

impl Cta<'_> {
    /// The CTA that arrives last adds the tiles of all, in the order of their numbers.
    fn sum_splits(&mut self, r: usize, values: &[Value]) -> Result<Next, Stop> {
        let own = values.iter().map(|&v| self.tile(r, v)).collect::<Result<Vec<_>, _>>()?;
        let splits = self.k.index_map.splits as usize;
        self.share.partials.push((self.share.number % splits, own));
        if self.share.partials.len() < splits {
            return Ok(Next::End);
        }
        let mut parts = std::mem::take(&mut self.share.partials);
        parts.sort_by_key(|&(number, _)| number);
        let of_value = |at: usize| self.sum_of(parts.iter().map(|(_, tiles)| Rc::clone(&tiles[at])).collect());
        Ok(Next::On((0..values.len()).map(|at| of_value(at).map(Held::Tile)).collect::<Result<_, _>>()?))
    }

    /// The sum of tiles, added one after the other.
    pub(crate) fn sum_of(&self, parts: Vec<Rc<Tile>>) -> Result<Rc<Tile>, String> {
        let mut parts = parts.into_iter();
        let mut sum = parts.next().ok_or("a sum of nothing")?;
        for part in parts {
            let add = self.launch.arithmetic.binary(BinaryOp::Add, sum.dtype)?;
            sum = Rc::new(sum.zip(&part, sum.dtype, &add)?);
        }
        Ok(sum)
    }

    /// Executes an instruction.
    pub(crate) fn operation(&mut self, r: usize, inst: Inst) -> Result<Next, Stop> {
        let k = self.k;
        let op = &k.insts[inst];
        let one = |tile: Tile| Ok(Next::On(vec![Held::Tile(Rc::new(tile))]));
        let none = Ok(Next::On(Vec::new()));
        match op {
            Op::Loop { lo, hi, inits, body, .. } => {
                let inits = inits.iter().map(|&v| self.held(r, v).cloned()).collect::<Result<_, _>>()?;
                Ok(Next::Loop { lo: self.int(r, *lo)?, hi: self.int(r, *hi)?, inits, body: *body })
            }
            Op::Programs(body) => Ok(Next::Programs(*body)),
            Op::If(condition, body, others) => match self.int(r, *condition)? {
                0 => Ok(Next::On(others.iter().map(|&v| self.held(r, v).cloned()).collect::<Result<_, _>>()?)),
                _ => Ok(Next::Enter(*body)),
            },
            Op::Once(body) => Ok(Next::Enter(*body)),
            Op::Yield(values) => {
                Ok(Next::Yield(values.iter().map(|&v| self.held(r, v).cloned()).collect::<Result<_, _>>()?))
            }
            Op::CtaNumber => one(Tile::int(self.share.number as i64)),
            Op::SplitCount => one(Tile::int(i64::from(k.index_map.splits))),
            Op::SplitNumber => one(Tile::int((self.share.number % k.index_map.splits as usize) as i64)),
            Op::SumSplits(values) => self.sum_splits(r, values),
            // Its buffer is as good as any other, which the verifier has checked.
            Op::SumCluster(value, _) => match self.share.sum.take() {
                Some(sum) => Ok(Next::On(vec![Held::Tile(sum)])),
                None => {
                    self.share.part = Some(self.tile(r, *value)?);
                    Err(Stop::Blocked("waits for the other CTAs of its cluster".to_owned()))
                }
            },
            Op::CtaCount => one(Tile::int(self.share.count as i64)),
            // Of one role's instructions the order is that of the text, in which shared memory changes here.
            Op::Barrier | Op::WarpgroupBarrier | Op::Fence(_) => none,
            Op::MaskInvalid { value, neutral, valid } => {
                let x = self.tile(r, *value)?;
                let real = valid.iter().map(|v| self.real(r, v)).collect::<Result<Vec<_>, _>>()?;
                one(refill(&x, self.launch.arithmetic.constant(x.dtype, *neutral), &real))
            }
            Op::LoadGlobal { param, slices, .. } => one(self.load_global(r, *param, slices)?),
            Op::StoreGlobal { param, slices, value, update } => {
                let (cuts, tile) = (self.cuts(r, *param, slices)?, self.tile(r, *value)?);
                if shape(&cuts) != tile.shape {
                    return Err(format!("stores {:?} to {:?}", tile.shape, shape(&cuts)).into());
                }
                match update.combine() {
                    None if slices.iter().all(|s| s.gathered().is_none()) => self.tensor(*param)?.store(&cuts, &tile),
                    op => self.store_each(r, op, *param, (slices, &cuts), &tile)?,
                }
                none
            }
            Op::Copy { atom, param, slices, to } => {
                self.copy(r, *atom, *param, slices, to)?;
                none
            }
            Op::LoadShared(from) => {
                let Some((dtype, layout)) = k.results[inst].first().and_then(|&v| k.values[v].ty.tile()) else {
                    return Err("a load of nothing".to_owned().into());
                };
                let data = self.read(r, from, matrix(&layout.shape))?;
                one(Tile { dtype, shape: layout.shape.clone(), data })
            }
            Op::LoadMatrix { side, from, further } => {
                let Some((dtype, layout)) = k.results[inst].first().and_then(|&v| k.values[v].ty.tile()) else {
                    return Err("a load of nothing".to_owned().into());
                };
                let by = further.map_or(Ok(0), |(v, each)| self.int(r, v).map(|n| n as u32 * each))?;
                let along_rows = (*side == OperandSide::Right) != from.transposed;
                let (row, col) = if along_rows { (by, 0) } else { (0, by) };
                let from = SharedRef { origin: (from.origin.0 + row, from.origin.1 + col), ..*from };
                let data = self.read(r, &from, matrix(&layout.shape))?;
                one(Tile { dtype, shape: layout.shape.clone(), data })
            }
            Op::StoreShared { to, value } => {
                self.store(r, inst, to, *value)?;
                none
            }
            Op::ZeroShared(buffer) => {
                for stage in 0..k.buffers[*buffer].stages {
                    self.shared.write(self.shared.whole(*buffer, stage), |_, _| Some(0))?;
                }
                none
            }
            Op::Mma { .. } => self.start_product(r, inst),
            Op::WaitMma(v, pending) => self.end_product(r, *v, *pending),
            Op::Acquire(..)
            | Op::Commit(..)
            | Op::Wait(..)
            | Op::Release(_)
            | Op::Drain(_)
            | Op::InitRing(_)
            | Op::CopyWait(_)
            | Op::StoreWait(_) => self.protocol(r, op),
            gpu_ops!(sources elementwise views) | Op::Reduce { .. } | Op::Scan { .. } | Op::ConvertLayout(_) => {
                let result = k.results[inst].first().map(|&v| &k.values[v].ty);
                let tile = |v: Value| self.tile(r, v);
                match result.map(|ty: &Type| evaluate(k, self.launch, op, ty, &tile)).transpose()?.flatten() {
                    Some(tile) => one(tile),
                    None => Err("the GPU IR interpreter does not know this operation".to_owned().into()),
                }
            }
        }
    }

    // ----- slices -----

    pub(crate) fn tensor(&mut self, param: Param) -> Result<&mut crate::memory::Tensor, String> {
        let tensor = self.tensors.get_mut(param.as_u32() as usize).and_then(Option::as_mut);
        tensor.ok_or_else(|| format!("{param} is no tensor"))
    }

    /// The part of a tensor that slices select.
    fn cuts(&self, r: usize, param: Param, slices: &[Slice]) -> Result<Vec<Cut>, String> {
        let ParamKind::Tensor { dims, .. } = &self.k.params[param].kind else {
            return Err(format!("{param} is no tensor"));
        };
        slices.iter().zip(dims).map(|(slice, &dim)| self.cut(r, slice, dim)).collect()
    }

    fn load_global(&mut self, r: usize, param: Param, slices: &[Slice]) -> Result<Tile, String> {
        let cuts = self.cuts(r, param, slices)?;
        match slices.iter().find_map(|s| s.gathered()) {
            Some(places) => self.gather(r, param, (slices, &cuts), places),
            None => Ok(self.tensor(param)?.load(&cuts)),
        }
    }

    /// The part of a dim that a slice selects. Fails if the slice's claim about its reach is false.
    fn cut(&self, r: usize, slice: &Slice, dim: Dim) -> Result<Cut, String> {
        let size = self.launch.dims[dim.as_u32() as usize] as i64;
        let name = &self.k.dims[dim].name;
        let (start, len) = match *slice {
            Slice::At { coord, in_bounds } => {
                let start = self.int(r, coord)?;
                if in_bounds && !(0..size).contains(&start) {
                    return Err(format!("element {start} of `{name}`, which has {size}, is said to be in bounds"));
                }
                (start, 1)
            }
            Slice::Tile { index, size: tile, offset, len, reach } => {
                let base = self.int(r, index)? * i64::from(tile);
                let ends = base + i64::from(tile) <= size;
                let holds = match reach {
                    Reach::Inside => base >= 0 && ends,
                    Reach::PastEnd => (0..size).contains(&base),
                    Reach::Anywhere => true,
                };
                if !holds {
                    let word = reach.word();
                    return Err(format!("a tile of {tile} from {base} of `{name}`, which has {size}, is not {word}"));
                }
                (base + i64::from(offset), len)
            }
            Slice::Span { start, offset, len } => (self.int(r, start)? + i64::from(offset), len),
            Slice::Whole { offset, len } => (i64::from(offset), len),
            // From the first of the places on.
            Slice::Gather { len, .. } => (0, len),
        };
        Ok(Cut { start, len, kept: slice.len().is_some() })
    }

    /// The elements along an axis that are real.
    fn real(&self, r: usize, valid: &Valid) -> Result<(u8, Range<i64>), String> {
        let size = self.launch.dims[valid.dim.as_u32() as usize] as i64;
        let cut = self.cut(r, &valid.slice, valid.dim)?;
        Ok(match cut.kept {
            true => (valid.axis, -cut.start..size - cut.start),
            // One element, repeated along the axis: all of them, or none.
            false if (0..size).contains(&cut.start) => (valid.axis, 0..i64::MAX),
            false => (valid.axis, 0..0),
        })
    }

    // ----- shared memory -----

    /// The stage that a reference names by a token, which has to give the right to write it (`write`) or to read it.
    fn stage(&mut self, at: &SharedRef, token: Option<Token>, write: bool) -> Result<u32, String> {
        let Some(token) = token else {
            return match self.k.buffers[at.buffer].stages {
                1 => Ok(0),
                n => Err(format!("no token says which of {n} stages")),
            };
        };
        if write {
            self.rings.writable(token)?
        } else {
            self.rings.readable(token)?
        }
        Ok(token.slot)
    }

    fn token_of(&self, r: usize, at: &SharedRef) -> Result<Option<Token>, String> {
        at.token.map(|v| self.token(r, v)).transpose()
    }

    /// The rectangle of a tile with these rows and columns.
    fn place(at: &SharedRef, stage: u32, (rows, cols): (u32, u32)) -> StageRect {
        let (rows, cols) = if at.transposed { (cols, rows) } else { (rows, cols) };
        StageRect { buffer: at.buffer, stage, row: at.origin.0, col: at.origin.1, rows, cols }
    }

    fn read(&mut self, r: usize, at: &SharedRef, extents: (u32, u32)) -> Result<Vec<u64>, String> {
        let token = self.token_of(r, at)?;
        self.read_by(at, token, extents)
    }

    fn read_by(&mut self, at: &SharedRef, token: Option<Token>, extents: (u32, u32)) -> Result<Vec<u64>, String> {
        let place = Self::place(at, self.stage(at, token, false)?, extents);
        let data = self.shared.read(place)?;
        Ok(if at.transposed { transposed(&data, (place.rows, place.cols)) } else { data })
    }

    /// Stores a tile. The padding of its layout is stored too, as far as it fits, and counts as 0.
    fn store(&mut self, r: usize, inst: Inst, to: &SharedRef, value: Value) -> Result<(), String> {
        let tile = self.tile(r, value)?;
        let token = self.token_of(r, to)?;
        let place = Self::place(to, self.stage(to, token, true)?, matrix(&tile.shape));
        if self.shared.awaits(place.buffer, place.stage) {
            return Err("stores to where copies are on their way".to_owned());
        }
        if let (Some((_, layout)), [_, _]) = (self.k.values[value].ty.tile(), &tile.shape[..]) {
            let cover = [layout.cover(0), layout.cover(1)];
            let fits = match &self.k.access_kinds[inst] {
                Some(AccessKind::Vector { within: Some(extents), .. }) => extents.clone(),
                Some(_) => cover.to_vec(),
                None => writable(self.k, to, layout),
            };
            let padded = (cover[0].min(fits[0]), cover[1].min(fits[1]));
            let around = Self::place(to, place.stage, (padded.0.max(tile.shape[0]), padded.1.max(tile.shape[1])));
            self.shared.write(around, |_, _| Some(0))?;
        }
        let data = if to.transposed { transposed(&tile.data, matrix(&tile.shape)) } else { tile.data.clone() };
        self.shared.write(place, |row, col| Some(data[(row * place.cols + col) as usize]))
    }

    /// Starts a copy. One by threads fills the stage with zeros around the tile; the engine writes its box and nothing else.
    fn copy(&mut self, r: usize, atom: CopyAtom, param: Param, slices: &[Slice], to: &SharedRef) -> Result<(), String> {
        let cuts = self.cuts(r, param, slices)?;
        let extents = matrix(&shape(&cuts));
        let token = self.token_of(r, to)?;
        if atom.is_store() {
            let place = Self::place(to, self.stage(to, token, true)?, extents);
            let landed = self.manner.landing == Landing::AtOnce;
            let copy = Flying { param, cuts, to: place, landed };
            if landed {
                self.write_out(&copy)?;
            }
            self.roles[r].stores.issue(copy);
            return Ok(());
        }
        let place = Self::place(to, self.stage(to, token, true)?, extents);
        let at_once = self.manner.landing == Landing::AtOnce || atom == CopyAtom::Direct;
        self.shared.write(self.written(place), |_, _| None)?;
        let copy = Flying { param, cuts, to: place, landed: at_once };
        if at_once {
            self.land(&copy)?;
        }
        self.shared.on_its_way(place.buffer, place.stage, true);
        self.roles[r].groups.issue(copy);
        Ok(())
    }

    /// Stores what lies in shared memory now.
    fn write_out(&mut self, copy: &Flying) -> Result<(), String> {
        let data = self.shared.read(copy.to)?;
        let tensor = self.tensor(copy.param)?;
        let tile = Tile { dtype: tensor.dtype, shape: shape(&copy.cuts), data };
        tensor.store(&copy.cuts, &tile);
        Ok(())
    }

    /// Ends the stores of a role by the engine, but for those of the newest groups.
    fn finish_stores(&mut self, r: usize, pending: u32) -> Result<(), String> {
        let done = self.roles[r].stores.wait(pending);
        done.iter().filter(|copy| !copy.landed).try_for_each(|copy| self.write_out(copy))
    }

    /// A slot that the engine reads is handed out when its stores are over. Checks that, unless instructions that wait for them
    /// are still to come.
    fn wait_for_stores(&mut self, ring: Ring, slot: u32) -> Result<(), String> {
        let data = &self.k.rings[ring];
        for r in 0..self.roles.len() {
            if self.manner.waits_for_copies {
                self.finish_stores(r, 0)?;
            } else if self.roles[r].stores.touches(&data.buffers, slot) {
                return Err(format!("slot {slot} of {ring} is handed out while the engine may still store it"));
            }
        }
        Ok(())
    }

    /// Delivers the data of a copy.
    fn land(&mut self, copy: &Flying) -> Result<(), String> {
        let tile = self.tensor(copy.param)?.load(&copy.cuts);
        let to = copy.to;
        let all = self.written(to);
        let inside =
            |row: u32, col: u32| row >= to.row && row - to.row < to.rows && col >= to.col && col - to.col < to.cols;
        let element = |row: u32, col: u32| tile.data[((row - to.row) * to.cols + col - to.col) as usize];
        let at = |row: u32, col: u32| if inside(row, col) { element(row, col) } else { 0 };
        self.shared.write(all, |row, col| Some(at(all.row + row, all.col + col)))
    }

    /// What a copy to a place writes: the place, or the stage around it if threads copy.
    fn written(&self, to: StageRect) -> StageRect {
        let by_engine = |r: &RingData| r.filled_by == Mover::Engine && r.buffers.contains(&to.buffer);
        if self.k.rings.values().any(by_engine) { to } else { self.shared.whole(to.buffer, to.stage) }
    }

    /// Ends copies that are waited for.
    fn arrive(&mut self, copies: Vec<Flying>) -> Result<(), String> {
        for copy in copies {
            self.shared.on_its_way(copy.to.buffer, copy.to.stage, false);
            if !copy.landed {
                self.land(&copy)?;
            }
        }
        Ok(())
    }

    // ----- rings -----

    fn protocol(&mut self, r: usize, op: &Op) -> Result<Next, Stop> {
        let phase = |cta: &Self, at: &At| match *at {
            At::Cursor { phase, .. } => cta.int(r, phase).map(Some),
            At::Iteration(_) | At::Slot(_) => Ok(None),
        };
        let token = match op {
            Op::Acquire(ring, at) => {
                let (n, phase) = (self.int(r, at.number())?, phase(self, at)?);
                let token = self.rings.acquire(*ring, *at, n, phase)?;
                if self.k.rings[*ring].read_by == Mover::Engine {
                    self.wait_for_stores(*ring, token.slot)?;
                }
                Some(token)
            }
            Op::Commit(ring, token) => {
                let token = token.map(|v| self.token(r, v)).transpose()?;
                self.rings.commit(*ring, token)?;
                match self.k.rings[*ring].read_by {
                    Mover::Engine => self.roles[r].stores.commit(),
                    Mover::Threads => self.roles[r].groups.commit(),
                }
                None
            }
            Op::Wait(ring, at) => {
                let (n, role) = ((self.int(r, at.number())?, phase(self, at)?), self.roles[r].role);
                let token = self.rings.wait(*ring, *at, n, role)?;
                self.wait_for_copies(*ring, token.slot)?;
                Some(token)
            }
            Op::Release(v) => {
                let (token, role) = (self.token(r, *v)?, self.roles[r].role);
                self.rings.release(token, role)?;
                None
            }
            Op::Drain(ring) if self.k.rings[*ring].read_by == Mover::Engine => {
                self.finish_stores(r, 0)?;
                None
            }
            Op::StoreWait(pending) => {
                self.finish_stores(r, *pending)?;
                None
            }
            Op::Drain(ring) if !self.rings.is_drained(*ring) => {
                return Err(Stop::Blocked("a slot was never released".to_owned()));
            }
            // Its mbarriers have no state here but the slots'.
            Op::Drain(_) | Op::InitRing(_) => None,
            Op::CopyWait(pending) => {
                let copies = self.roles[r].groups.wait(*pending);
                self.arrive(copies)?;
                None
            }
            Op::Barrier
            | Op::WarpgroupBarrier
            | Op::SumSplits(_)
            | Op::Fence(_)
            | gpu_ops!(sources elementwise views fragments global shared clusters products control) => {
                return Err("no step of a ring's protocol".to_owned().into());
            }
        };
        Ok(Next::On(token.map(Held::Token).into_iter().collect()))
    }

    /// Delivers the copies to a slot, of any role. If other instructions wait for copies, checks that they have arrived.
    fn wait_for_copies(&mut self, ring: Ring, slot: u32) -> Result<(), String> {
        let data = &self.k.rings[ring];
        if self.manner.waits_for_copies || data.filled_by == Mover::Engine {
            for r in 0..self.roles.len() {
                let copies = self.roles[r].groups.wait_for(&data.buffers, slot);
                self.arrive(copies)?;
            }
        }
        match data.buffers.iter().find(|&&b| self.shared.awaits(b, slot)) {
            Some(&b) => Err(format!("copies to slot {slot} of `{}` are still on their way", self.k.buffers[b].name)),
            None => Ok(()),
        }
    }

    // ----- products -----

    fn start_product(&mut self, r: usize, inst: Inst) -> Result<Next, Stop> {
        let Op::Mma { a, b, acc, accumulate, .. } = &self.k.insts[inst] else {
            return Err("no product".to_owned().into());
        };
        let side = |o: &Operand| match o {
            Operand::Shared(at) => Ok(Side::Shared(*at, self.token_of(r, at)?)),
            Operand::Fragment(v) => self.tile(r, *v).map(Side::Tile),
        };
        let sides = [side(a)?, side(b)?];
        let from_zero = accumulate.map(|v| self.int(r, v)).transpose()? == Some(0);
        let acc = acc.map(|v| self.tile(r, v)).transpose()?.filter(|_| !from_zero);
        let mut flight = Flight { number: self.roles[r].products, inst, sides, acc, done: None };
        self.roles[r].products += 1;
        if self.manner.landing == Landing::AtOnce {
            flight.done = Some(Rc::new(self.product(&flight)?));
        }
        Ok(Next::On(vec![Held::Flight(Rc::new(flight))]))
    }

    fn end_product(&mut self, r: usize, v: Value, pending: u32) -> Result<Next, Stop> {
        let Held::Flight(flight) = self.held(r, v)?.clone() else {
            return Err(format!("{v} is not in flight").into());
        };
        let younger = self.roles[r].products - flight.number - 1;
        if u64::from(pending) > younger {
            return Err(format!("leaves {pending} products in flight, of which one is {v}").into());
        }
        let sum = match &flight.done {
            Some(sum) => Rc::clone(sum),
            None => Rc::new(self.product(&flight)?),
        };
        Ok(Next::On(vec![Held::Tile(sum)]))
    }

    /// `acc + a · b`. Along K, the operands are read in whole steps of the instruction, as the instruction does.
    fn product(&mut self, flight: &Flight) -> Result<Tile, String> {
        let Op::Mma { atom, shape: (m, n, depth), .. } = self.k.insts[flight.inst] else {
            return Err("no product".to_owned());
        };
        let info = atom.row();
        let padded = depth.next_multiple_of(info.shape.2);
        let [a, b] = &flight.sides;
        let a = self.side(a, (m, depth), padded, true)?;
        let b = self.side(b, (depth, n), padded, false)?;
        let mut data = match &flight.acc {
            Some(acc) => acc.data.clone(),
            None => vec![self.launch.arithmetic.constant(info.accumulator, 0.0); count(&[m, n])],
        };
        self.launch.arithmetic.multiply(&a, &b, &mut data, (m as usize, n as usize, padded as usize));
        Ok(Tile { dtype: info.accumulator, shape: vec![m, n], data })
    }

    /// An operand with its K axis padded (the columns of the left operand). The padding of a fragment is 0.
    fn side(&mut self, side: &Side, (rows, cols): (u32, u32), padded: u32, left: bool) -> Result<Vec<u64>, String> {
        let (data, held) = match side {
            Side::Tile(tile) => (tile.data.clone(), (rows, cols)),
            Side::Shared(at, token) => {
                let layout = &self.k.buffers[at.buffer].layout;
                let along_rows = left == at.transposed;
                let room = if along_rows { layout.rows - at.origin.0 } else { layout.cols - at.origin.1 };
                let held = padded.min(room).max(if left { cols } else { rows });
                let extents = if left { (rows, held) } else { (held, cols) };
                (self.read_by(at, *token, extents)?, extents)
            }
        };
        let wanted = if left { (rows, padded) } else { (padded, cols) };
        if held == wanted {
            return Ok(data);
        }
        let element = |row: u32, col: u32| {
            if row < held.0 && col < held.1 { data[(row * held.1 + col) as usize] } else { 0 }
        };
        Ok((0..wanted.0).flat_map(|row| (0..wanted.1).map(move |col| (row, col))).map(|(r, c)| element(r, c)).collect())
    }
}
