//! Asynchronous operations that have begun: the regions that they touch, and the queue of postponed ones.

use super::Execution;
use super::mbarrier::Key;
use crate::fault::{Fault, FaultKind, Result};
use crate::memory::{AsyncId, Region};
use crate::race::Epoch;

/// A reference to a region that outlives the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// Shared memory of the CTA in a slot.
    Shared(usize),
    /// The allocation at an address.
    Global(u64),
}

/// An operation and the regions in which its bytes are in flight.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) id: AsyncId,
    pub(crate) homes: Vec<Home>,
}

impl Flight {
    /// No operation yet.
    pub(crate) fn new(id: AsyncId) -> Flight {
        Flight { id, homes: Vec::new() }
    }

    /// Another region.
    pub(crate) fn touch(&mut self, home: Home) {
        if !self.homes.contains(&home) {
            self.homes.push(home);
        }
    }
}

/// A run of bytes that a copy moves; `None` as its source fills.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) from: Option<(Home, u64)>,
    pub(crate) to: (Home, u64),
    pub(crate) bytes: u64,
}

/// The effect of a postponed operation when it completes.
#[derive(Clone, Debug)]
pub(crate) struct Landing {
    pub(crate) moves: Vec<Move>,
    /// The bytes of one element out of bounds.
    pub(crate) fill: Vec<u8>,
    /// The mbarrier that it notifies, the number of bytes, and whether it arrives there instead.
    pub(crate) tells: (Key, i64, bool),
    pub(crate) flights: Vec<Flight>,
}

/// Operations of one kind that a warp, or the execution, may have in flight. A warp that fills all of shared memory four bytes
/// at a time has 58,112.
const MOST_IN_FLIGHT: usize = 1 << 17;

/// Refuses to let operations accumulate that nothing waits for.
pub(crate) fn bounded(in_flight: usize) -> Result<()> {
    if in_flight < MOST_IN_FLIGHT {
        return Ok(());
    }
    Err(Fault::new(FaultKind::Budget, format!("{in_flight} asynchronous operations are in flight: nothing waits")))
}

impl Execution<'_> {
    /// The region of a home, and where an offset or address is in it.
    pub(crate) fn home(&mut self, home: Home, at: u64, bytes: u64) -> Option<(&mut Region, u64)> {
        match home {
            Home::Shared(slot) => self.ctas.get_mut(slot).map(|c| (&mut *c.shared, at)),
            Home::Global(_) => self.global.region_at(at, bytes).ok(),
        }
    }

    /// Ends an operation in all the regions it touched.
    pub(crate) fn finish(&mut self, flight: &Flight, epoch: Epoch) {
        for &home in &flight.homes {
            let region = match home {
                Home::Shared(slot) => self.ctas.get_mut(slot).map(|c| &mut *c.shared),
                Home::Global(address) => self.global.region_at(address, 0).ok().map(|(region, _)| region),
            };
            if let Some(region) = region {
                region.finish(flight.id, epoch, &self.clocks);
            }
        }
    }

    /// Moves the bytes of a copy.
    pub(crate) fn move_bytes(&mut self, moves: &[Move], fill: &[u8]) {
        let mut data = Vec::new();
        for m in moves {
            data.clear();
            match m.from {
                Some((home, at)) => {
                    let found = self.home(home, at, m.bytes).and_then(|(r, offset)| r.read_raw(offset, m.bytes));
                    data.extend_from_slice(found.unwrap_or_default());
                }
                None => data.extend(fill.iter().cycle().take(m.bytes as usize)),
            }
            if let Some((region, offset)) = self.home(m.to.0, m.to.1, m.bytes) {
                region.write_raw(offset, &data);
            }
        }
    }

    /// Completes an operation, now or when the policy decides.
    pub(crate) fn launch_landing(&mut self, landing: Landing) -> Result<()> {
        if self.schedule.late() {
            bounded(self.late.len())?;
            self.late.push_back(landing);
            return Ok(());
        }
        self.perform_landing(landing)
    }

    fn perform_landing(&mut self, landing: Landing) -> Result<()> {
        self.futile = 0;
        self.move_bytes(&landing.moves, &landing.fill);
        let (key, bytes, arrives) = landing.tells;
        self.land(key, bytes, landing.flights)?;
        if arrives { self.arrive(key, 1, false, None).map(|_| ()) } else { Ok(()) }
    }

    /// Completes one of the postponed operations; false if there is none.
    pub(crate) fn land_one(&mut self) -> Result<bool> {
        let which = self.schedule.below(self.late.len());
        match self.late.remove(which) {
            Some(landing) => self.perform_landing(landing).map(|()| true),
            None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_do_not_pile_up() {
        assert_eq!(bounded(MOST_IN_FLIGHT - 1), Ok(()));
        assert_eq!(bounded(MOST_IN_FLIGHT).map_err(|f| f.kind), Err(FaultKind::Budget));
    }
}
