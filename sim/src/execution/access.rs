//! Loads, stores and prefetches.

use super::address::{self, Target};
use super::cta::{Cluster, Cta};
use super::warp::{LANES, lanes};
use super::{At, Execution, Flow};
use crate::fault::{Fault, FaultKind, Result};
use crate::memory::{Actor, Global, LaneOffsets, Region, Word};
use crate::program::{Access, Extend, Order, Reg, Src};
use crate::race::{Clocks, ThreadId};

/// The widest access of a lane, in bytes.
pub(crate) const WIDEST: usize = 32;

/// The places in memory that the lanes access.
pub(crate) type Places = [Option<Target>; LANES];

/// The region and the offset in it that a place names, and its name in messages.
pub(crate) fn region<'m>(
    (ctas, clusters, global): (&'m mut [Cta], &[Cluster], &'m mut Global),
    slot: usize,
    target: Target,
    bytes: u64,
) -> Result<(&'m mut Region, u64, &'static str)> {
    match target {
        Target::Global(address) => match global.region_at(address, bytes) {
            Ok((region, offset)) => Ok((region, offset, "global memory")),
            Err(out) => Err(Fault::new(FaultKind::OutOfBounds, format!("global memory: {out}"))),
        },
        Target::Shared(rank, offset) => {
            let slot = match rank {
                None => Some(slot),
                Some(rank) => {
                    let of = ctas.get(slot).and_then(|c| clusters.get(c.cluster));
                    of.filter(|c| (rank as usize) < c.size).map(|c| c.first + rank as usize)
                }
            };
            let Some(cta) = slot.and_then(|s| ctas.get_mut(s)) else {
                let message =
                    format!("shared memory of a CTA of rank {}, which the cluster has not", rank.unwrap_or(0));
                return Err(Fault::new(FaultKind::OutOfBounds, message));
            };
            if cta.live == 0 {
                let message = format!("shared memory of CTA {}, which has exited", cta.index);
                return Err(Fault::new(FaultKind::OutOfBounds, message));
            }
            Ok((&mut cta.shared, offset, "shared memory"))
        }
        _ => Err(Fault::new(FaultKind::Illegal, "an access to local, constant or parameter memory of this kind")),
    }
}

/// Offsets of all lanes' places in the region that begins at `start` for one of them; `None` if some are elsewhere.
fn offsets(exec: u32, places: &Places, (one, start): (Target, u64), room: u64) -> Option<[u64; LANES]> {
    let mut offsets = [0; LANES];
    for lane in lanes(exec) {
        offsets[lane] = match (places[lane]?, one) {
            (Target::Global(address), Target::Global(first)) => {
                Some(start.wrapping_add(address.wrapping_sub(first))).filter(|&offset| offset <= room)?
            }
            (Target::Shared(rank, offset), Target::Shared(of, _)) if rank == of => offset,
            _ => return None,
        };
    }
    Some(offsets)
}

/// The bytes of a read-only space.
fn read_only(bytes: &[u8], offset: u64, out: &mut [u8], name: &str) -> Result<()> {
    let found = usize::try_from(offset).ok().and_then(|at| bytes.get(at..at.checked_add(out.len())?));
    let Some(found) = found else {
        let message = format!("{name}: {} bytes at offset {offset:#x} of {}", out.len(), bytes.len());
        return Err(Fault::new(FaultKind::OutOfBounds, message));
    };
    out.copy_from_slice(found);
    Ok(())
}

fn aligned(offset: u64, bytes: usize, name: &str) -> Result<()> {
    if bytes.is_power_of_two() && offset & (bytes as u64 - 1) != 0 {
        let message = format!("{name}: {bytes} bytes at offset {offset:#x} are not aligned to their size");
        return Err(Fault::new(FaultKind::Misaligned, message));
    }
    Ok(())
}

/// A region that all lanes of a warp access.
struct Together<'m> {
    region: &'m mut Region,
    offsets: [u64; LANES],
    name: &'static str,
    clocks: &'m mut Clocks,
}

impl Execution<'_> {
    /// The thread of a lane.
    pub(crate) fn thread(&self, at: At, lane: usize) -> ThreadId {
        self.ctas.get(at.cta).map_or(ThreadId(0), |c| c.thread(at.warp, lane))
    }

    /// A load by one lane.
    pub(crate) fn load_lane(&mut self, at: At, lane: usize, to: Target, by: &Actor, out: &mut [u8]) -> Result<()> {
        let done = match to {
            Target::Global(_) | Target::Shared(..) => {
                let memory = (self.ctas.as_mut_slice(), self.clusters.as_slice(), &mut *self.global);
                match region(memory, at.cta, to, out.len() as u64) {
                    Ok((region, offset, name)) => match region.load(offset, out, by, &mut self.clocks) {
                        Ok(()) => return Ok(()),
                        Err(violation) => return Err(self.refuse(at, lane, name, &violation)),
                    },
                    Err(fault) => Err(fault),
                }
            }
            Target::Local(offset) => aligned(offset, out.len(), "local memory").and_then(|()| {
                let local = self.ctas.get_mut(at.cta).and_then(|c| c.locals.get_mut(at.warp));
                local.map_or(Ok(()), |l| l.load(lane, offset, out))
            }),
            Target::Param(offset) => aligned(offset, out.len(), "parameters")
                .and_then(|()| read_only(self.launch.params, offset, out, "parameters")),
            Target::Const(offset) => aligned(offset, out.len(), "constant memory")
                .and_then(|()| read_only(&self.constants, offset, out, "constant memory")),
        };
        done.map_err(|fault| self.blame_lane(at, lane, fault))
    }

    /// A store by one lane.
    pub(crate) fn store_lane(&mut self, at: At, lane: usize, to: Target, by: &Actor, data: &[u8]) -> Result<()> {
        let done = match to {
            Target::Global(_) | Target::Shared(..) => {
                let memory = (self.ctas.as_mut_slice(), self.clusters.as_slice(), &mut *self.global);
                match region(memory, at.cta, to, data.len() as u64) {
                    Ok((region, offset, name)) => match region.store(offset, data, by, &mut self.clocks) {
                        Ok(()) => return Ok(()),
                        Err(violation) => return Err(self.refuse(at, lane, name, &violation)),
                    },
                    Err(fault) => Err(fault),
                }
            }
            Target::Local(offset) => aligned(offset, data.len(), "local memory").and_then(|()| {
                let local = self.ctas.get_mut(at.cta).and_then(|c| c.locals.get_mut(at.warp));
                local.map_or(Ok(()), |l| l.store(lane, offset, data))
            }),
            Target::Param(_) | Target::Const(_) => {
                Err(Fault::new(FaultKind::ReadOnly, "a store to constant or parameter memory"))
            }
        };
        done.map_err(|fault| self.blame_lane(at, lane, fault))
    }

    /// The region that all lanes access, if it is the same one, their offsets in it, and its name in messages.
    fn together(&mut self, at: At, exec: u32, places: &Places, bytes: u64) -> Option<Together<'_>> {
        let one = (*places.get(exec.trailing_zeros() as usize)?)?;
        let memory = (self.ctas.as_mut_slice(), self.clusters.as_slice(), &mut *self.global);
        let (region, start, name) = region(memory, at.cta, one, bytes).ok()?;
        let offsets = offsets(exec, places, (one, start), region.len().checked_sub(bytes)?)?;
        Some(Together { region, offsets, name, clocks: &mut self.clocks })
    }

    /// Loads by all lanes of `exec`, each of `bytes`.
    pub(crate) fn load_lanes(
        &mut self,
        (at, exec): (At, u32),
        places: &Places,
        by: &Actor,
        bytes: usize,
        data: &mut [Word; LANES],
    ) -> Result<()> {
        if by.order == Order::Weak
            && let Some(all) = self.together(at, exec, places, bytes as u64)
        {
            let row = LaneOffsets { lanes: exec, offsets: &all.offsets, bytes: bytes as u64 };
            let (done, name) = (all.region.load_row(&row, by, all.clocks, data), all.name);
            return done.map_err(|(lane, violation)| self.refuse(at, lane, name, &violation));
        }
        for lane in lanes(exec) {
            if let (Some(place), Some(out)) = (places[lane], data[lane].get_mut(..bytes)) {
                let by = Actor { thread: ThreadId(by.thread.0 + lane as u32), ..*by };
                self.load_lane(at, lane, place, &by, out)?;
            }
        }
        Ok(())
    }

    /// Stores by all lanes of `exec`, each of `bytes`.
    pub(crate) fn store_lanes(
        &mut self,
        (at, exec): (At, u32),
        places: &Places,
        by: &Actor,
        bytes: usize,
        data: &[Word; LANES],
    ) -> Result<()> {
        if by.order == Order::Weak
            && let Some(all) = self.together(at, exec, places, bytes as u64)
        {
            let row = LaneOffsets { lanes: exec, offsets: &all.offsets, bytes: bytes as u64 };
            let (done, name) = (all.region.store_row(&row, by, all.clocks, data), all.name);
            return done.map_err(|(lane, violation)| self.refuse(at, lane, name, &violation));
        }
        for lane in lanes(exec) {
            if let (Some(place), Some(data)) = (places[lane], data[lane].get(..bytes)) {
                let by = Actor { thread: ThreadId(by.thread.0 + lane as u32), ..*by };
                self.store_lane(at, lane, place, &by, data)?;
            }
        }
        Ok(())
    }

    /// The places that the lanes of `exec` access, which are counted.
    pub(crate) fn places(&mut self, at: At, exec: u32, access: &Access, store: bool) -> Places {
        let Some(warp) = self.warp(at) else { return [None; LANES] };
        let bases = warp.row(access.addr.base);
        let mut places = [None; LANES];
        let (mut offsets, mut addresses) = ([None; LANES], [None; LANES]);
        let (mut shared, mut global) = (false, false);
        for lane in lanes(exec) {
            let target = address::target(access.space, bases[lane].wrapping_add_signed(access.addr.offset));
            match target {
                Target::Shared(_, offset) => {
                    shared = true;
                    offsets[lane] = Some(offset as u32);
                }
                Target::Global(address) => {
                    global = true;
                    addresses[lane] = Some(address);
                }
                _ => {}
            }
            places[lane] = Some(target);
        }
        let (line, bytes) = (self.line(at), u32::from(access.bytes) * u32::from(access.count));
        if shared {
            self.spent.counters.shared_access(line, &offsets, bytes);
        }
        if global {
            self.spent.counters.global_access(line, &addresses, bytes, store);
        }
        places
    }

    /// `ld`.
    pub(crate) fn load(
        &mut self,
        at: At,
        exec: u32,
        access: &Access,
        dst: &[Option<Reg>],
        extend: Extend,
    ) -> Result<Flow> {
        let (element, count) = (usize::from(access.bytes), usize::from(access.count));
        let size = (element * count).min(WIDEST);
        let by = Actor::of(self.thread(at, 0), self.line(at), access);
        let places = self.places(at, exec, access, false);
        let mut data = [[0; WIDEST]; LANES];
        self.load_lanes((at, exec), &places, &by, size, &mut data)?;
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        for (i, dst) in dst.iter().enumerate().take(count) {
            let Some(dst) = dst else { continue };
            let mut row = [0; LANES];
            for (value, bytes) in row.iter_mut().zip(&data) {
                let bytes = bytes.get(i * element..(i + 1) * element).unwrap_or_default();
                *value = extended(little_endian(bytes), access.bytes, extend);
            }
            warp.write(*dst, exec, &row);
        }
        Ok(Flow::Next)
    }

    /// `st`.
    pub(crate) fn store(&mut self, at: At, exec: u32, access: &Access, src: &[Src]) -> Result<Flow> {
        let (element, count) = (usize::from(access.bytes), usize::from(access.count));
        let size = (element * count).min(WIDEST);
        let by = Actor::of(self.thread(at, 0), self.line(at), access);
        let places = self.places(at, exec, access, true);
        let mut data = [[0; WIDEST]; LANES];
        let Some(warp) = self.warp(at) else { return Ok(Flow::Moved) };
        for (i, src) in src.iter().enumerate().take(count) {
            let row = warp.row(*src);
            for (data, value) in data.iter_mut().zip(row) {
                let to = data.get_mut(i * element..(i + 1) * element).unwrap_or_default();
                if let Some(from) = value.to_le_bytes().get(..to.len()) {
                    to.copy_from_slice(from);
                }
            }
        }
        self.store_lanes((at, exec), &places, &by, size, &data)?;
        Ok(Flow::Next)
    }

    /// Prefetches. A global address has to belong to some allocation.
    pub(crate) fn prefetch(&mut self, at: At, exec: u32, access: &Access) -> Result<Flow> {
        let Some(warp) = self.warp(at) else { return Ok(Flow::Moved) };
        let bases = warp.row(access.addr.base);
        for lane in lanes(exec) {
            let place = address::target(access.space, bases[lane].wrapping_add_signed(access.addr.offset));
            if let Target::Global(address) = place
                && let Err(out) = self.global.region_at(address, 1)
            {
                let fault = Fault::new(FaultKind::OutOfBounds, format!("prefetch of global memory: {out}"));
                return Err(self.blame_lane(at, lane, fault));
            }
        }
        Ok(Flow::Next)
    }
}

/// The value of at most 8 bytes.
#[inline]
fn little_endian(bytes: &[u8]) -> u64 {
    if let Ok(word) = <[u8; 4]>::try_from(bytes) {
        return u64::from(u32::from_le_bytes(word));
    }
    if let Ok(word) = <[u8; 8]>::try_from(bytes) {
        return u64::from_le_bytes(word);
    }
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// An element in the form in which its register holds it.
fn extended(value: u64, bytes: u8, extend: Extend) -> u64 {
    match extend {
        Extend::Zero => value,
        Extend::Sign(width) => {
            let unused = 64 - 8 * u32::from(bytes.clamp(1, 8));
            let signed = (value << unused) as i64 >> unused;
            signed as u64 & super::arith::low_bits(8 * u32::from(width))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_fill_the_register_and_no_more() {
        assert_eq!(extended(0x80, 1, Extend::Sign(4)), 0xffff_ff80);
        assert_eq!(extended(0x7f, 1, Extend::Sign(8)), 0x7f);
        assert_eq!(extended(0x8000_0000, 4, Extend::Sign(8)), 0xffff_ffff_8000_0000);
        assert_eq!(extended(0x80, 1, Extend::Zero), 0x80);
    }
}
