//! Contiguous bytes with bounds, permissions, initialisation and a shadow of past accesses.

use super::init::Init;
use super::{Actor, AsyncId, AsyncKind, Earlier, Proxy, Violation};
use crate::fault::FaultKind;
use crate::program::{Order, Scope};
use crate::race::{Clocks, Conflict, Crew, Entry, Epoch, Reach, Shadow, Touch};
use std::collections::BTreeMap;
use std::ops::Range;

/// Set in the identifier of a region that is the shared memory of a CTA, whose number the low bits are.
pub(super) const SHARED: u64 = 1 << 63;

/// What a launch may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Loads only; needs no shadow.
    ReadOnly,
    /// All.
    ReadWrite,
}

/// Contiguous bytes.
#[derive(Clone, Debug)]
pub struct Region {
    /// An identifier among the regions of a launch; for a global region, its address.
    base: u64,
    bytes: Vec<u8>,
    init: Init,
    pub(super) permission: Permission,
    /// Parts that are read-only in this launch.
    pub(super) read_only: Vec<Range<u64>>,
    shadow: Option<Shadow>,
    /// Asynchronous operations in flight and the ranges they touch here.
    flights: BTreeMap<AsyncId, Vec<FlightRange>>,
    /// Offsets of mbarriers, sorted.
    barriers: Vec<u64>,
}

#[derive(Clone, Debug)]
struct FlightRange {
    offset: u64,
    len: u64,
    entry: Entry,
}

impl Region {
    /// A tracked region of initialised bytes.
    pub fn new(base: u64, bytes: Vec<u8>, permission: Permission) -> Region {
        Region {
            base,
            bytes,
            init: Init::All,
            permission,
            read_only: Vec::new(),
            shadow: Some(Shadow::default()),
            flights: BTreeMap::new(),
            barriers: Vec::new(),
        }
    }

    /// A tracked region whose bytes are uninitialised.
    pub fn uninitialized(base: u64, len: usize) -> Region {
        let mut region = Region::new(base, vec![0; len], Permission::ReadWrite);
        region.init = Init::none(len);
        region
    }

    /// A region of one thread, such as its local memory, where accesses cannot race. Its bytes are uninitialised.
    pub fn private(len: usize) -> Region {
        Region { shadow: None, ..Region::uninitialized(0, len) }
    }

    /// Bytes of the region.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All bytes, unchecked.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A range of bytes, unchecked but for bounds.
    pub fn read_raw(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let end = offset.checked_add(len)?;
        self.bytes.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
    }

    /// Sets bytes when data of an asynchronous operation or of the host arrives, and marks them initialised. False if out of
    /// bounds.
    pub fn write_raw(&mut self, offset: u64, data: &[u8]) -> bool {
        let Some(to) = range(offset, data.len() as u64).and_then(|r| self.bytes.get_mut(r)) else { return false };
        to.copy_from_slice(data);
        self.init.set(offset, data.len() as u64, true);
        true
    }

    /// The first uninitialised byte of a range.
    pub fn missing(&self, offset: u64, len: u64) -> Option<u64> {
        self.init.missing(offset, len)
    }

    /// Forgets all accesses, as between launches.
    pub fn reset(&mut self) {
        self.shadow = self.shadow.take().map(|_| Shadow::default());
        self.flights.clear();
        self.barriers.clear();
        self.read_only.clear();
    }

    /// A load of `out.len()` bytes, naturally aligned.
    #[inline]
    pub fn load(&mut self, offset: u64, out: &mut [u8], by: &Actor, clocks: &mut Clocks) -> Result<(), Violation> {
        let len = out.len() as u64;
        self.enter(offset, len, Touch::Load, by, clocks)?;
        if let Some(at) = self.init.missing(offset, len) {
            return Err(uninitialized(at, offset, len, Touch::Load));
        }
        if let Some(from) = range(offset, len).and_then(|r| self.bytes.get(r)) {
            out.copy_from_slice(from);
        }
        if by.order != Order::Weak {
            clocks.observe((self.base, offset), by.thread, by.order, by.scope);
        }
        Ok(())
    }

    /// A store, naturally aligned.
    #[inline]
    pub fn store(&mut self, offset: u64, data: &[u8], by: &Actor, clocks: &mut Clocks) -> Result<(), Violation> {
        self.enter(offset, data.len() as u64, Touch::Store, by, clocks)?;
        self.write_raw(offset, data);
        if by.order == Order::Weak {
            clocks.retract(self.base, offset..offset + data.len() as u64);
        } else {
            clocks.publish((self.base, offset), by.thread, by.order, by.scope, false);
        }
        Ok(())
    }

    /// Weak loads by lanes of a warp whose first is `by`, of this many bytes each. A violation also names the lane.
    pub(crate) fn load_row(
        &mut self,
        row: &LaneOffsets<'_>,
        by: &Actor,
        clocks: &Clocks,
        out: &mut [Word; 32],
    ) -> Result<(), (usize, Violation)> {
        let mut crew = self.tracks().then(|| Crew::new(self.entry(Touch::Load, by, 0), clocks));
        for (lane, (&offset, out)) in row.offsets.iter().zip(out).enumerate() {
            if row.lanes >> lane & 1 == 0 {
                continue;
            }
            self.enter_by(offset, row.bytes, Touch::Load, &mut crew, (lane, clocks)).map_err(|v| (lane, v))?;
            if let Some(at) = self.init.missing(offset, row.bytes) {
                return Err((lane, uninitialized(at, offset, row.bytes, Touch::Load)));
            }
            let from = range(offset, row.bytes).and_then(|r| self.bytes.get(r));
            if let (Some(from), Some(out)) = (from, out.get_mut(..row.bytes as usize)) {
                out.copy_from_slice(from);
            }
        }
        Ok(())
    }

    /// Weak stores by lanes of a warp whose first is `by`, of this many bytes each. A violation also names the lane.
    pub(crate) fn store_row(
        &mut self,
        row: &LaneOffsets<'_>,
        by: &Actor,
        clocks: &mut Clocks,
        data: &[Word; 32],
    ) -> Result<(), (usize, Violation)> {
        let mut crew = self.tracks().then(|| Crew::new(self.entry(Touch::Store, by, 0), clocks));
        for (lane, (&offset, data)) in row.offsets.iter().zip(data).enumerate() {
            if row.lanes >> lane & 1 == 0 {
                continue;
            }
            self.enter_by(offset, row.bytes, Touch::Store, &mut crew, (lane, clocks)).map_err(|v| (lane, v))?;
            self.write_raw(offset, data.get(..row.bytes as usize).unwrap_or_default());
        }
        for (lane, &offset) in row.offsets.iter().enumerate() {
            if row.lanes >> lane & 1 == 1 {
                clocks.retract(self.base, offset..offset + row.bytes);
            }
        }
        Ok(())
    }

    /// A read-modify-write of at most 8 bytes, little-endian: stores `f(old)` and returns `old`.
    pub fn atomic(
        &mut self,
        offset: u64,
        len: u8,
        by: &Actor,
        clocks: &mut Clocks,
        f: impl FnOnce(u64) -> u64,
    ) -> Result<u64, Violation> {
        let size = u64::from(len.min(8));
        let by = Actor { order: if by.order == Order::Weak { Order::Relaxed } else { by.order }, ..*by };
        self.enter(offset, size, Touch::Atomic, &by, clocks)?;
        if let Some(at) = self.init.missing(offset, size) {
            return Err(uninitialized(at, offset, size, Touch::Atomic));
        }
        let mut word = [0; 8];
        if let (Some(from), Some(to)) = (self.read_raw(offset, size), word.get_mut(..size as usize)) {
            to.copy_from_slice(from);
        }
        let old = u64::from_le_bytes(word);
        self.write_raw(offset, f(old).to_le_bytes().get(..size as usize).unwrap_or_default());
        let at = (self.base, offset);
        clocks.observe(at, by.thread, by.order, by.scope);
        clocks.publish(at, by.thread, by.order, by.scope, true);
        Ok(old)
    }

    /// Begins an asynchronous operation over a range: checks it against earlier accesses, and marks the range as in flight. One
    /// operation may begin many ranges.
    pub fn begin(
        &mut self,
        id: AsyncId,
        kind: AsyncKind,
        offset: u64,
        len: u64,
        by: &Actor,
        clocks: &Clocks,
    ) -> Result<(), Violation> {
        let touch = match kind {
            AsyncKind::Read => Touch::AsyncRead,
            AsyncKind::Write => Touch::AsyncWrite,
            AsyncKind::Reduce => Touch::AsyncReduce,
        };
        self.permit(offset, len, touch)?;
        if kind != AsyncKind::Write
            && let Some(at) = self.init.missing(offset, len)
        {
            return Err(uninitialized(at, offset, len, touch));
        }
        let strong = (kind == AsyncKind::Reduce).then_some(Scope::Gpu);
        let entry = Entry { strong, ..self.entry(touch, by, offset) };
        if self.tracks()
            && let Some(shadow) = &mut self.shadow
        {
            shadow.begin(offset, len, &entry, clocks).map_err(|c| self.explain(c, offset, len, touch, clocks))?;
            self.flights.entry(id).or_default().push(FlightRange { offset, len, entry });
        }
        Ok(())
    }

    /// Ends an asynchronous operation. What it touched counts as touched at that epoch.
    pub fn finish(&mut self, id: AsyncId, at: Epoch, clocks: &Clocks) {
        let flights = self.flights.remove(&id).unwrap_or_default();
        let Some(shadow) = &mut self.shadow else { return };
        for flight in flights {
            shadow.finish(flight.offset, flight.len, &flight.entry, at, clocks);
        }
    }

    /// Whether any operation is in flight here.
    pub fn in_flight(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Makes the 8 bytes at an offset an mbarrier: a write by the thread.
    pub fn set_barrier(&mut self, offset: u64, by: &Actor, clocks: &Clocks) -> Result<(), Violation> {
        self.enter(offset, 8, Touch::Store, by, clocks)?;
        self.init.clear(offset, 8, self.bytes.len());
        if let Err(at) = self.barriers.binary_search(&offset) {
            self.barriers.insert(at, offset);
        }
        Ok(())
    }

    /// Makes the initialisation of the mbarrier at an offset one of the mbarrier itself, at an epoch.
    pub fn attribute_barrier(&mut self, offset: u64, by: &Actor, epoch: Epoch, clocks: &Clocks) {
        let entry = self.entry(Touch::Store, by, offset);
        if let Some(shadow) = &mut self.shadow {
            shadow.attribute(offset, 8, &entry, epoch, clocks);
        }
    }

    /// An operation of the mbarrier at an offset. Its initialisation must be ordered before.
    pub fn use_barrier(&mut self, offset: u64, by: &Actor, clocks: &Clocks) -> Result<(), Violation> {
        if self.barriers.binary_search(&offset).is_err() {
            let why = "is an operation of an mbarrier, but none was initialised there";
            return Err(Violation { kind: FaultKind::NotABarrier, ..violation(offset, 8, Touch::Atomic, why) });
        }
        let entry = Entry { strong: Some(Scope::Cluster), ..self.entry(Touch::Atomic, by, offset) };
        self.note(offset, 8, &entry, clocks)
    }

    /// Turns the mbarrier at an offset back into plain, uninitialised memory: a write by the thread.
    pub fn clear_barrier(&mut self, offset: u64, by: &Actor, clocks: &Clocks) -> Result<(), Violation> {
        self.use_barrier(offset, by, clocks)?;
        self.barriers.retain(|&b| b != offset);
        self.enter(offset, 8, Touch::Store, by, clocks)
    }

    fn entry(&self, touch: Touch, by: &Actor, offset: u64) -> Entry {
        Entry {
            thread: by.thread,
            line: by.line,
            touch,
            strong: (by.order != Order::Weak).then_some(by.scope),
            proxy: match by.proxy {
                Proxy::Generic => None,
                Proxy::Async => Some(self.reach()),
                Proxy::TensorMap => Some(Reach::Map(self.base + offset)),
            },
            non_coherent: by.non_coherent,
        }
    }

    /// The memory that fences of the asynchronous proxy have to name.
    fn reach(&self) -> Reach {
        if self.base & SHARED == 0 { Reach::Global } else { Reach::Cta(self.base as u32) }
    }

    fn tracks(&self) -> bool {
        self.shadow.is_some() && self.permission == Permission::ReadWrite
    }

    /// Checks an access and enters it into the shadow.
    #[inline]
    fn enter(&mut self, offset: u64, len: u64, touch: Touch, by: &Actor, clocks: &Clocks) -> Result<(), Violation> {
        aligned(offset, len, touch)?;
        self.permit(offset, len, touch)?;
        if self.tracks() { self.note(offset, len, &self.entry(touch, by, offset), clocks) } else { Ok(()) }
    }

    /// The same for a lane of a warp, if there is a crew into the shadow.
    #[inline]
    fn enter_by(
        &mut self,
        offset: u64,
        len: u64,
        touch: Touch,
        crew: &mut Option<Crew<'_>>,
        (lane, clocks): (usize, &Clocks),
    ) -> Result<(), Violation> {
        aligned(offset, len, touch)?;
        self.permit(offset, len, touch)?;
        let (Some(crew), Some(shadow)) = (crew, &mut self.shadow) else { return Ok(()) };
        shadow.access_by(offset, len, crew, lane).map_err(|c| self.explain(c, offset, len, touch, clocks))
    }

    #[inline]
    fn note(&mut self, offset: u64, len: u64, entry: &Entry, clocks: &Clocks) -> Result<(), Violation> {
        let Some(shadow) = &mut self.shadow else { return Ok(()) };
        shadow.access(offset, len, entry, clocks).map_err(|c| self.explain(c, offset, len, entry.touch, clocks))
    }

    /// Checks bounds, permission, and that there is no mbarrier.
    #[inline]
    fn permit(&self, offset: u64, len: u64, touch: Touch) -> Result<(), Violation> {
        let refuse = |kind, why| Err(Violation { kind, ..violation(offset, len, touch, why) });
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return refuse(FaultKind::OutOfBounds, "is out of bounds");
        }
        let meets = |r: &Range<u64>| r.start < offset + len && offset < r.end;
        if touch.writes() && (self.permission == Permission::ReadOnly || self.read_only.iter().any(meets)) {
            return refuse(FaultKind::ReadOnly, "writes what this launch may only read");
        }
        if !self.barriers.is_empty() {
            let next = self.barriers.partition_point(|&b| b + 8 <= offset);
            if self.barriers.get(next).is_some_and(|&b| b < offset + len) {
                return refuse(FaultKind::NotABarrier, "touches an mbarrier");
            }
        }
        Ok(())
    }

    #[cold]
    fn explain(&self, conflict: Conflict, offset: u64, len: u64, touch: Touch, clocks: &Clocks) -> Violation {
        let (kind, other, why) = match conflict {
            Conflict::Race(o) => (FaultKind::Race, Some((o.agent, o.line, o.touch)), "is not ordered after"),
            Conflict::Proxy(o, memory, elsewhere) => {
                let why = match (memory, elsewhere) {
                    (Reach::Map(_), _) => "is ordered after, but with no fence.proxy.tensormap between,",
                    (_, false) => "is ordered after, but with no fence.proxy.async between,",
                    (_, true) => "is ordered after, but with only a fence.proxy.async of other memory between,",
                };
                (FaultKind::MissingProxyFence, Some((o.agent, o.line, o.touch)), why)
            }
            Conflict::NonCoherent(o) => {
                let why = "mixes writes and .nc loads in one launch";
                (FaultKind::ReadOnly, o.map(|o| (o.agent, o.line, o.touch)), why)
            }
            Conflict::InFlight => {
                let reads_only = !touch.writes();
                let other = self.flights.values().flatten().find(|f| {
                    let meets = f.offset < offset + len && offset < f.offset + f.len;
                    meets && (!reads_only || f.entry.touch.writes())
                });
                let why = "touches bytes in flight: not waited for is";
                (FaultKind::InFlight, other.map(|f| (f.entry.thread.into(), f.entry.line, f.entry.touch)), why)
            }
        };
        let earlier = other.map(|(agent, line, touch)| Earlier { agent, thread: clocks.thread(agent), line, touch });
        Violation { kind, earlier, ..violation(offset, len, touch, why) }
    }
}

/// The bytes that one lane moves.
pub(crate) type Word = [u8; 32];

/// The places of a warp's lanes in a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneOffsets<'a> {
    /// Lanes that access memory.
    pub(crate) lanes: u32,
    pub(crate) offsets: &'a [u64; 32],
    /// Bytes of a lane.
    pub(crate) bytes: u64,
}

#[inline]
fn aligned(offset: u64, len: u64, touch: Touch) -> Result<(), Violation> {
    if len.is_power_of_two() && offset & (len - 1) != 0 {
        let why = "is not aligned to its size";
        return Err(Violation { kind: FaultKind::Misaligned, ..violation(offset, len, touch, why) });
    }
    Ok(())
}

fn violation(offset: u64, len: u64, doing: Touch, why: &'static str) -> Violation {
    Violation { kind: FaultKind::OutOfBounds, offset, len, doing, earlier: None, why }
}

fn uninitialized(at: u64, offset: u64, len: u64, doing: Touch) -> Violation {
    let why = "reads bytes that nothing has written";
    Violation { kind: FaultKind::UninitializedRead, ..violation(at, offset + len - at, doing, why) }
}

fn range(offset: u64, len: u64) -> Option<Range<usize>> {
    Some(usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(len)?).ok()?)
}
