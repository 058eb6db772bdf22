//! A CTA and its cluster while they are resident.

use super::barrier::Barrier;
use super::local::Local;
use super::mbarrier::Mbarrier;
use super::warp::{ALL, Coordinates, LANES, Warp};
use super::wgmma::{WARPS, Warpgroup};
use crate::memory::Shared;
use crate::program::Program;
use crate::race::{Release, ThreadId};
use std::collections::BTreeMap;

/// Named barriers of a CTA.
pub(crate) const BARRIERS: usize = 16;

/// A resident CTA.
#[derive(Debug)]
pub(crate) struct Cta {
    /// Linear index in the grid.
    pub(crate) index: u32,
    /// Index among the resident clusters.
    pub(crate) cluster: usize,
    pub(crate) threads: u32,
    pub(crate) shared: Shared,
    pub(crate) warps: Vec<Warp>,
    pub(crate) locals: Vec<Local>,
    pub(crate) warpgroups: Vec<Warpgroup>,
    pub(crate) barriers: [Barrier; BARRIERS],
    /// The mbarriers, by their offset in shared memory.
    pub(crate) mbarriers: BTreeMap<u32, Mbarrier>,
    /// Warps with lanes that have not exited.
    pub(crate) live: usize,
}

/// A resident cluster. A CTA without a cluster forms one by itself.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// Slot of its CTA of rank 0. The others follow.
    pub(crate) first: usize,
    pub(crate) size: usize,
    /// CTAs with lanes that have not exited.
    pub(crate) live: usize,
    /// The clocks that arrivals of this phase of the barrier release.
    pub(crate) arriving: Release,
    /// The clocks that those of the last phase released.
    pub(crate) arrived: Release,
}

impl Cta {
    /// A CTA at its entry.
    pub(crate) fn new(program: &Program, at: Coordinates, cta: [u32; 2], cluster: usize, shared: Shared) -> Cta {
        let [index, threads] = cta;
        let count = threads.div_ceil(LANES as u32);
        let warps: Vec<Warp> = (0..count)
            .map(|warp| {
                let left = threads - warp * LANES as u32;
                let lanes = if left >= LANES as u32 { ALL } else { (1 << left) - 1 };
                Warp::new(program, Coordinates { warp, ..at }, lanes)
            })
            .collect();
        Cta {
            index,
            cluster,
            threads,
            shared,
            locals: warps.iter().map(|_| Local::new(program.local_bytes)).collect(),
            warpgroups: warps.chunks(WARPS).map(|_| Warpgroup::default()).collect(),
            live: warps.len(),
            warps,
            barriers: Default::default(),
            mbarriers: BTreeMap::new(),
        }
    }

    /// The thread of a lane.
    pub(crate) fn thread(&self, warp: usize, lane: usize) -> ThreadId {
        ThreadId(self.index * self.threads + (warp * LANES + lane) as u32)
    }
}
