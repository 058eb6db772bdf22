//! Reads of tensor maps, which go through a proxy of their own.

use super::address::{self, Target};
use super::flight::{Flight, Home};
use super::warp::lanes;
use super::{At, Execution, Flow};
use crate::fault::{Fault, FaultKind, Result};
use crate::memory::{Actor, AsyncKind};
use crate::program::Addr;
use crate::syntax::ast::Space;
use crate::tma::TensorMap;
use crate::tma::encoding::{ALIGN, BYTES};

impl Execution<'_> {
    /// The tensor map at an address in a parameter, in constant or in global memory. An operation reads it until it ends.
    pub(super) fn read_map(&mut self, at: At, lane: usize, place: Target, flight: &mut Flight) -> Result<TensorMap> {
        let (Target::Param(address) | Target::Const(address) | Target::Global(address)) = place else {
            return Err(Fault::new(FaultKind::Illegal, format!("no tensor map can be at {place:x?}")));
        };
        if !address.is_multiple_of(ALIGN) {
            let message = format!("tensor map: its address {address:#x} is not a multiple of {ALIGN}");
            return Err(Fault::new(FaultKind::Misaligned, message));
        }
        if let Target::Global(address) = place {
            let by = Actor::of_map(self.thread(at, lane), self.line(at));
            let range = (Home::Global(address), address, BYTES as u64);
            self.begin_at((at, lane), flight, AsyncKind::Read, range, &by)?;
        }
        let bytes = match place {
            Target::Param(at) => self.launch.params.get(at as usize..at as usize + BYTES),
            Target::Const(at) => self.constants.get(at as usize..at as usize + BYTES),
            _ => self.global.read(address, BYTES as u64).ok(),
        };
        let bytes: Option<&[u8; BYTES]> = bytes.and_then(|b| b.try_into().ok());
        let none = || Fault::new(FaultKind::OutOfBounds, format!("no tensor map of {BYTES} bytes is at {place:x?}"));
        TensorMap::from_bytes(bytes.ok_or_else(none)?)
    }

    /// A prefetch of a tensor map, or by one. The read ends at once.
    pub(super) fn prefetch_map(&mut self, at: At, exec: u32, map: &Addr, space: Space) -> Result<Flow> {
        for lane in lanes(exec) {
            let Some(warp) = self.warp(at) else { return Ok(Flow::Moved) };
            let place = address::target(space, warp.address(map, lane));
            let mut flight = Flight::new(self.next_id());
            let read = self.read_map(at, lane, place, &mut flight);
            read.map_err(|f| if f.party.is_none() { self.blame_lane(at, lane, f) } else { f })?;
            let epoch = self.clocks.now(self.thread(at, lane));
            self.finish(&flight, epoch);
        }
        Ok(Flow::Next)
    }

    /// `fence.proxy.tensormap::generic.acquire` of a lane.
    pub(super) fn acquire_map(&mut self, at: At, lane: usize, map: &Addr) -> Result<()> {
        let Some(warp) = self.warp(at) else { return Ok(()) };
        if let Target::Global(address) = address::target(Space::Generic, warp.address(map, lane)) {
            self.clocks.acquire_map(self.thread(at, lane), address);
        }
        Ok(())
    }
}
