//! Faults with their parties: the thread, its place in the grid, and the line.

use super::warp::LANES;
use super::{At, Execution};
use crate::fault::{Fault, GridLocation, Party};
use crate::memory::Violation;
use crate::race::ThreadId;

impl Execution<'_> {
    /// Line of the instruction at which a strand is; the last line if it is past the end.
    pub(crate) fn line(&self, at: At) -> u32 {
        let pc = self.warp(at).and_then(|w| w.strands.get(at.strand)).map_or(0, |s| s.pc as usize);
        self.program.code.get(pc).or(self.program.code.last()).map_or(0, |i| i.line)
    }

    /// A party to a fault.
    pub(crate) fn party(&self, cta: u32, warp: usize, lane: Option<usize>, line: u32) -> Party {
        let place = GridLocation { cta, warp: warp as u32, lane: lane.map(|l| l as u8) };
        let pc = self.program.code.iter().position(|i| i.line == line);
        let source = pc.and_then(|pc| self.program.locs.get(pc).copied().flatten());
        Party { place, line, source }
    }

    /// The place of a thread.
    fn thread_party(&self, thread: ThreadId, line: u32) -> Party {
        let threads = self.launch.block.iter().product::<u32>().max(1);
        let within = (thread.0 % threads) as usize;
        self.party(thread.0 / threads, within / LANES, Some(within % LANES), line)
    }

    /// Adds the strand to a fault.
    pub(crate) fn blame(&self, at: At, mut fault: Fault) -> Fault {
        if fault.party.is_none() {
            let cta = self.ctas.get(at.cta).map_or(0, |c| c.index);
            fault.party = Some(self.party(cta, at.warp, None, self.line(at)));
        }
        fault
    }

    /// Adds the lane to a fault.
    pub(crate) fn blame_lane(&self, at: At, lane: usize, mut fault: Fault) -> Fault {
        let cta = self.ctas.get(at.cta).map_or(0, |c| c.index);
        fault.party = Some(self.party(cta, at.warp, Some(lane), self.line(at)));
        fault
    }

    /// Turns a violation that a region reports into a fault of a lane.
    #[cold]
    pub(crate) fn refuse(&self, at: At, lane: usize, memory: &str, violation: &Violation) -> Fault {
        let mut fault = self.blame_lane(at, lane, Fault::new(violation.kind, format!("{memory}: {violation}")));
        if let Some(earlier) = &violation.earlier {
            let party = match earlier.thread {
                Some(thread) => self.thread_party(thread, earlier.line),
                // Of an asynchronous operation only its line is known.
                None => Party { line: earlier.line, ..self.blame_party(at) },
            };
            fault.others.push((party, earlier.touch.words().into()));
        }
        fault
    }

    fn blame_party(&self, at: At) -> Party {
        let cta = self.ctas.get(at.cta).map_or(0, |c| c.index);
        self.party(cta, at.warp, None, self.line(at))
    }
}
