//! Bulk and tensor copies: one thread issues them, and an mbarrier or groups of that thread report their completion.

use super::address;
use super::flight::{Flight, Home, Landing, Move, bounded};
use super::warp::{LANES, lanes};
use super::{At, Execution, Flow};
use crate::alu;
use crate::fault::{Fault, FaultKind, Result};
use crate::memory::{Actor, AsyncKind};
use crate::program::{AtomOp, Bulk, BulkDirection, BulkDone, BulkRemote};
use crate::syntax::ast::{Space, Type};
use crate::tma::{Element, flat, pieces};

/// A copy out of shared memory that its thread has not waited for.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    lane: usize,
    group: u32,
    moves: Vec<Move>,
    reduce: Option<(AtomOp, Type)>,
    /// The bytes are not yet read from shared memory and written.
    late: bool,
    source: Flight,
    destination: Flight,
    line: u32,
}

/// Copies of the lanes of a warp.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoings {
    flying: Vec<Outgoing>,
    groups: [u32; LANES],
}

/// The copy of one lane.
struct BulkCopy {
    /// The ranges of the CTA's own side, then those of the other side.
    moves: Vec<(u32, Option<u64>, u32)>,
    fill: Vec<u8>,
    bytes: u64,
    element: Option<Element>,
    /// The operation, which has begun to read the tensor map.
    flight: Flight,
}

impl Execution<'_> {
    /// `cp.async.bulk` and its relatives, for each lane.
    pub(crate) fn bulk(&mut self, at: At, exec: u32, spec: &Bulk) -> Result<Flow> {
        for lane in lanes(exec) {
            let done = self.bulk_lane(at, lane, spec);
            done.map_err(|f| if f.party.is_none() { self.blame_lane(at, lane, f) } else { f })?;
        }
        Ok(Flow::Next)
    }

    fn bulk_lane(&mut self, at: At, lane: usize, spec: &Bulk) -> Result<()> {
        let Some(warp) = self.warp(at) else { return Ok(()) };
        let shared = warp.address(&spec.shared, lane);
        let multicast = spec.multicast.map(|m| warp.value(m, lane) as u32 & 0xffff);
        let (slot, base) = self.barrier_key(at, shared)?;
        let copy = self.copied(at, lane, spec, base)?;
        let line = self.line(at);
        self.spent.counters.bulk(line, copy.bytes);
        let reads = spec.direction != BulkDirection::GlobalToShared;
        self.spent.counters.shared_chunks(line, &Self::chunks(&copy, !reads));
        match spec.direction {
            BulkDirection::SharedToGlobal => self.outgoing(at, lane, spec, copy, slot),
            BulkDirection::GlobalToShared => {
                let slots = match multicast {
                    None => vec![slot],
                    Some(mask) => lanes(mask).map(|rank| self.slot_of(at, rank as u32)).collect::<Result<_>>()?,
                };
                let BulkDone::Mbarrier(addr) = &spec.done else {
                    return Err(Fault::new(FaultKind::Illegal, "a copy into shared memory that no mbarrier tells"));
                };
                let barrier = self.warp(at).map_or(0, |w| w.address(addr, lane));
                let (of, offset) = self.barrier_key(at, barrier)?;
                if multicast.is_none() && of != slot {
                    return Err(Fault::new(FaultKind::Illegal, "the mbarrier is not in the CTA that the copy goes to"));
                }
                let mut flight = Some(copy.flight.clone());
                for slot in slots {
                    self.is_ready(at, lane, (slot, offset))?;
                    let flight = flight.take().unwrap_or_else(|| Flight::new(self.next_id()));
                    self.incoming(at, lane, &copy, flight, slot, (slot, offset))?;
                }
                Ok(())
            }
            BulkDirection::SharedToCluster => {
                let BulkDone::Mbarrier(addr) = &spec.done else {
                    return Err(Fault::new(FaultKind::Illegal, "a copy into shared memory that no mbarrier tells"));
                };
                let barrier = self.warp(at).map_or(0, |w| w.address(addr, lane));
                let key = self.barrier_key(at, barrier)?;
                self.is_ready(at, lane, key)?;
                self.across(at, lane, &copy, slot, key)
            }
        }
    }

    /// The copy of a lane, with its own shared side at `base`.
    fn copied(&mut self, at: At, lane: usize, spec: &Bulk, base: u32) -> Result<BulkCopy> {
        let mut flight = Flight::new(self.next_id());
        let Some(warp) = self.warp(at) else { return Err(Fault::new(FaultKind::Illegal, "no warp")) };
        match &spec.remote {
            BulkRemote::Flat { addr, bytes } => {
                let (remote, bytes) = (warp.address(addr, lane), warp.value(*bytes, lane) as u32);
                flat::check(u64::from(base), remote, bytes)?;
                let moves = if bytes == 0 { Vec::new() } else { vec![(base, Some(remote), bytes)] };
                Ok(BulkCopy { moves, fill: Vec::new(), bytes: u64::from(bytes), element: None, flight })
            }
            BulkRemote::Tensor { im2col: Some(_), .. } => {
                Err(Fault::new(FaultKind::Syntax, "im2col copies are not simulated"))
            }
            BulkRemote::Tensor { map, coordinates, .. } => {
                let place = address::target(Space::Generic, warp.address(map, lane));
                let coordinates: Vec<i32> = coordinates.iter().map(|c| warp.value(*c, lane) as i32).collect();
                let map = self.read_map(at, lane, place, &mut flight)?;
                let moves = pieces(&map, &coordinates, base)?;
                let moves = moves.iter().map(|p| (p.shared, p.global, p.bytes)).collect();
                let bytes = u64::from(map.box_bytes());
                Ok(BulkCopy { moves, fill: map.fill_bytes(), bytes, element: Some(map.element), flight })
            }
        }
    }

    /// The chunks of shared memory that a copy touches, in the order of the copy.
    fn chunks(copy: &BulkCopy, all: bool) -> Vec<u32> {
        const CHUNK: u32 = crate::tensor::layout::CHUNK;
        let mut chunks: Vec<u32> = Vec::new();
        for &(start, _, bytes) in copy.moves.iter().filter(|m| all || m.1.is_some()) {
            chunks.extend((start & !(CHUNK - 1)..start.saturating_add(bytes)).step_by(CHUNK as usize));
        }
        chunks.dedup();
        chunks
    }

    /// Begins an operation over a range of a home.
    pub(super) fn begin_at(
        &mut self,
        (at, lane): (At, usize),
        flight: &mut Flight,
        kind: AsyncKind,
        (home, address, bytes): (Home, u64, u64),
        by: &Actor,
    ) -> Result<()> {
        let (found, name) = match home {
            Home::Shared(slot) => (self.ctas.get_mut(slot).map(|c| (&mut *c.shared, address)), "shared memory"),
            Home::Global(_) => match self.global.region_at(address, bytes) {
                Ok(found) => (Some(found), "global memory"),
                Err(out) => return Err(Fault::new(FaultKind::OutOfBounds, format!("global memory: {out}"))),
            },
        };
        let Some((region, offset)) = found else { return Ok(()) };
        if let Err(violation) = region.begin(flight.id, kind, offset, bytes, by, &self.clocks) {
            return Err(self.refuse(at, lane, name, &violation));
        }
        // Of an allocation the first byte stands for all.
        flight.touch(match home {
            Home::Global(_) => Home::Global(address.wrapping_sub(offset)),
            home => home,
        });
        Ok(())
    }

    /// Ranges of one side, joined where they touch.
    fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        ranges.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (start, bytes) in ranges {
            match out.last_mut() {
                Some(last) if last.0 + last.1 == start => last.1 += bytes,
                _ => out.push((start, bytes)),
            }
        }
        out
    }

    fn shared_side(copy: &BulkCopy, all: bool) -> Vec<(u64, u64)> {
        let moved = copy.moves.iter().filter(|m| all || m.1.is_some());
        Self::joined(moved.map(|m| (u64::from(m.0), u64::from(m.2))).collect())
    }

    fn global_side(copy: &BulkCopy) -> Vec<(u64, u64)> {
        Self::joined(copy.moves.iter().filter_map(|m| Some((m.1?, u64::from(m.2)))).collect())
    }

    /// From global memory into the shared memory of one CTA.
    fn incoming(
        &mut self,
        at: At,
        lane: usize,
        copy: &BulkCopy,
        mut flight: Flight,
        slot: usize,
        key: (usize, u32),
    ) -> Result<()> {
        let by = Actor::asynchronous(self.thread(at, lane), self.line(at));
        for (start, bytes) in Self::global_side(copy) {
            self.begin_at((at, lane), &mut flight, AsyncKind::Read, (Home::Global(start), start, bytes), &by)?;
        }
        for (start, bytes) in Self::shared_side(copy, true) {
            self.begin_at((at, lane), &mut flight, AsyncKind::Write, (Home::Shared(slot), start, bytes), &by)?;
        }
        let moves = copy.moves.iter().map(|&(to, from, bytes)| Move {
            from: from.map(|a| (Home::Global(a), a)),
            to: (Home::Shared(slot), u64::from(to)),
            bytes: u64::from(bytes),
        });
        let (moves, fill) = (moves.collect(), copy.fill.clone());
        self.launch_landing(Landing { moves, fill, tells: (key, copy.bytes as i64, false), flights: vec![flight] })
    }

    /// From the CTA's shared memory to that of another CTA of the cluster.
    fn across(&mut self, at: At, lane: usize, copy: &BulkCopy, slot: usize, key: (usize, u32)) -> Result<()> {
        let by = Actor::asynchronous(self.thread(at, lane), self.line(at));
        let mut flight = Flight::new(self.next_id());
        let mut moves = Vec::new();
        for &(from, to, bytes) in &copy.moves {
            let (there, to) = self.barrier_key(at, to.unwrap_or(0))?;
            let len = u64::from(bytes);
            let (from, to) = ((Home::Shared(slot), u64::from(from)), (Home::Shared(there), u64::from(to)));
            self.begin_at((at, lane), &mut flight, AsyncKind::Read, (from.0, from.1, len), &by)?;
            self.begin_at((at, lane), &mut flight, AsyncKind::Write, (to.0, to.1, len), &by)?;
            moves.push(Move { from: Some(from), to, bytes: len });
        }
        let tells = (key, copy.bytes as i64, false);
        self.launch_landing(Landing { moves, fill: Vec::new(), tells, flights: vec![flight] })
    }

    /// From shared memory to global memory, by groups.
    fn outgoing(&mut self, at: At, lane: usize, spec: &Bulk, copy: BulkCopy, slot: usize) -> Result<()> {
        if spec.done != BulkDone::Group {
            return Err(Fault::new(FaultKind::Illegal, "a copy out of shared memory is told by groups"));
        }
        let line = self.line(at);
        let by = Actor::asynchronous(self.thread(at, lane), line);
        let reduce = match (spec.reduce, copy.element) {
            (Some((op, _)), Some(element)) => Some((op, reduced_type(op, element)?)),
            (Some((op, ty)), None) => Some((op, ty)),
            (None, _) => None,
        };
        let (mut source, mut destination) = (copy.flight.clone(), Flight::new(self.next_id()));
        for (start, bytes) in Self::shared_side(&copy, false) {
            self.begin_at((at, lane), &mut source, AsyncKind::Read, (Home::Shared(slot), start, bytes), &by)?;
        }
        let kind = if reduce.is_some() { AsyncKind::Reduce } else { AsyncKind::Write };
        for (start, bytes) in Self::global_side(&copy) {
            self.begin_at((at, lane), &mut destination, kind, (Home::Global(start), start, bytes), &by)?;
        }
        let moves = copy.moves.iter().filter_map(|&(from, to, bytes)| {
            let to = to?;
            let from = Some((Home::Shared(slot), u64::from(from)));
            Some(Move { from, to: (Home::Global(to), to), bytes: u64::from(bytes) })
        });
        let moves: Vec<Move> = moves.collect();
        let late = self.schedule.late();
        let group = self.warp(at).map_or(0, |w| w.outgoings.groups[lane]);
        let mut out = Outgoing { lane, group, moves, reduce, late, source, destination, line };
        if !late {
            self.read_out(&mut out)?;
        }
        if let Some(warp) = self.warp_mut(at) {
            bounded(warp.outgoings.flying.len())?;
            warp.outgoings.flying.push(out);
        }
        Ok(())
    }

    /// Moves or reduces the bytes of an outgoing copy.
    fn read_out(&mut self, out: &mut Outgoing) -> Result<()> {
        out.late = false;
        let moves = std::mem::take(&mut out.moves);
        match out.reduce {
            None => self.move_bytes(&moves, &[]),
            Some((op, ty)) => {
                for m in &moves {
                    self.reduce_bytes(m, op, ty)?;
                }
            }
        }
        Ok(())
    }

    fn reduce_bytes(&mut self, m: &Move, op: AtomOp, ty: Type) -> Result<()> {
        let f = alu::atom(op, ty, self.program.arithmetic);
        let Some(f) = f else {
            return Err(Fault::new(FaultKind::Illegal, format!("no bulk reduction {op:?} of type {ty:?}")));
        };
        let size = width(ty);
        let Some((from, at)) = m.from else { return Ok(()) };
        let source = self.home(from, at, m.bytes).and_then(|(r, o)| r.read_raw(o, m.bytes)).map(<[u8]>::to_vec);
        let Some((region, offset)) = self.home(m.to.0, m.to.1, m.bytes) else { return Ok(()) };
        let mut data = region.read_raw(offset, m.bytes).unwrap_or_default().to_vec();
        for (old, new) in data.chunks_mut(size).zip(source.unwrap_or_default().chunks(size)) {
            let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
            let value = f(word(old), word(new), 0, 0).to_le_bytes();
            old.iter_mut().zip(value).for_each(|(to, from)| *to = from);
        }
        region.write_raw(offset, &data);
        Ok(())
    }

    /// `cp.async.bulk.commit_group`.
    pub(crate) fn bulk_commit(&mut self, at: At, exec: u32) -> Result<Flow> {
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        for lane in lanes(exec) {
            warp.outgoings.groups[lane] += 1;
        }
        Ok(Flow::Next)
    }

    /// `cp.async.bulk.wait_group`. With `.read`, only bytes that were read may be touched again.
    pub(crate) fn bulk_wait(&mut self, at: At, exec: u32, newest: u32, read: bool) -> Result<Flow> {
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        let groups = warp.outgoings.groups;
        let done = |o: &Outgoing| exec >> o.lane & 1 == 1 && o.group < groups[o.lane].saturating_sub(newest);
        let flying = std::mem::take(&mut warp.outgoings.flying);
        let (mut done, mut left): (Vec<Outgoing>, Vec<Outgoing>) = flying.into_iter().partition(done);
        for out in &mut done {
            if out.late {
                self.read_out(out)?;
            }
            let epoch = self.clocks.now(self.thread(at, out.lane));
            self.finish(&std::mem::replace(&mut out.source, Flight::new(crate::memory::AsyncId(0))), epoch);
            if !read {
                self.finish(&out.destination, epoch);
            }
        }
        if read {
            left.append(&mut done);
        }
        if let Some(warp) = self.warp_mut(at) {
            warp.outgoings.flying = left;
        }
        Ok(Flow::Next)
    }

    /// A thread that exits must have waited until its copies have read shared memory, because the memory ends with the CTA.
    pub(super) fn outgoing_at_exit(&mut self, at: At, exec: u32) -> Result<()> {
        let Some(warp) = self.warp_mut(at) else { return Ok(()) };
        let flying = std::mem::take(&mut warp.outgoings.flying);
        let (gone, left): (Vec<Outgoing>, Vec<Outgoing>) = flying.into_iter().partition(|o| exec >> o.lane & 1 == 1);
        warp.outgoings.flying = left;
        for out in gone {
            if !out.source.homes.is_empty() {
                let message = format!(
                    "a thread exits before its bulk copy of line {} has read shared memory: wait_group is missing",
                    out.line
                );
                return Err(self.blame_lane(at, out.lane, Fault::new(FaultKind::InFlight, message)));
            }
            let epoch = self.clocks.now(self.thread(at, out.lane));
            self.finish(&out.destination, epoch);
        }
        Ok(())
    }
}

/// Bytes of an element of a bulk reduction.
fn width(ty: Type) -> usize {
    match ty {
        Type::B8 | Type::U8 | Type::S8 => 1,
        Type::F16 | Type::Bf16 | Type::B16 | Type::U16 | Type::S16 => 2,
        Type::B64 | Type::U64 | Type::S64 | Type::F64 => 8,
        _ => 4,
    }
}

/// The type in which a tensor's elements are reduced.
fn reduced_type(op: AtomOp, element: Element) -> Result<Type> {
    let logic = matches!(op, AtomOp::And | AtomOp::Or | AtomOp::Xor);
    Ok(match element {
        Element::U32 if logic => Type::B32,
        Element::U64 if logic => Type::B64,
        Element::U32 => Type::U32,
        Element::I32 => Type::S32,
        // Two's complement adds alike.
        Element::I64 if op == AtomOp::Add => Type::U64,
        Element::U64 => Type::U64,
        Element::I64 => Type::S64,
        Element::F16 => Type::F16,
        Element::Bf16 => Type::Bf16,
        Element::F32 => Type::F32,
        Element::F64 => Type::F64,
        _ => return Err(Fault::new(FaultKind::Illegal, format!("no reduction of elements of type {element:?}"))),
    })
}
