//! One launch in execution: resident CTAs, their warps, and the loop that runs them.

mod access;
mod address;
mod arith;
mod atomic;
mod barrier;
mod bulk;
mod control;
mod converge;
mod copy;
mod cta;
mod exchange;
mod fault;
mod flight;
mod local;
mod matrix;
mod mbarrier;
mod resident;
mod step;
mod strand;
mod stuck;
mod tensor_map;
mod warp;
mod wgmma;

use crate::fault::{Fault, FaultKind, Result};
use crate::launch::{Launch, Options, Report};
use crate::memory::Global;
use crate::program::Program;
use crate::race::Clocks;
use crate::schedule::Schedule;
use cta::{Cluster, Cta};
use flight::Landing;
use std::collections::VecDeque;
use std::rc::Rc;
use strand::Wait;
use warp::{Code, Coordinates, Spent, Stop, Warp};

/// Instructions for which lanes wait for others to meet them before they continue alone.
const PATIENCE: u64 = 1 << 16;
/// Turns in a row that only find their condition unmet, after which the condition counts as never met.
const FUTILE: u64 = 1 << 17;

/// The number of such turns after which some of the postponed operations happen.
const LATEST: u64 = 64;
/// The number of such turns after which lanes that wait to meet others continue alone.
const LONGER: u64 = 4096;

/// A strand, by the slot of its CTA, its warp, and its position in the list of that warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) cta: usize,
    pub(crate) warp: usize,
    pub(crate) strand: usize,
}

/// The state of a strand after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It continues with the next instruction.
    Next,
    /// The same, after others have had their turn, because its condition was not met.
    Spin,
    /// It waits.
    Blocked,
    /// Its position or its lanes have changed, or it is gone.
    Moved,
}

/// A launch in execution.
#[derive(Debug)]
pub(crate) struct Execution<'a> {
    pub(crate) program: &'a Program,
    code: Rc<Code<'a>>,
    pub(crate) launch: &'a Launch<'a>,
    options: &'a Options,
    pub(crate) global: &'a mut Global,
    pub(crate) constants: Vec<u8>,
    pub(crate) clocks: Clocks,
    pub(crate) schedule: Schedule,
    pub(crate) ctas: Vec<Cta>,
    pub(crate) clusters: Vec<Cluster>,
    /// Values of special registers that all CTAs have in common.
    at: Coordinates,
    /// Clusters of the grid, and how many of them have started.
    total: u64,
    started: u64,
    pub(crate) spent: Spent,
    /// Turns since something last changed.
    futile: u64,
    /// Warps of a CTA.
    warps: usize,
    turn: u64,
    /// Asynchronous operations so far.
    operations: u64,
    /// The number of postponed operations.
    late: VecDeque<Landing>,
}

impl<'a> Execution<'a> {
    /// An execution with its first CTAs resident.
    pub(crate) fn new(
        launch: &'a Launch<'a>,
        cluster: Option<[u32; 3]>,
        global: &'a mut Global,
        options: &'a Options,
    ) -> Result<Execution<'a>> {
        let program = launch.program;
        let count = |shape: [u32; 3]| shape.iter().product::<u32>();
        let (threads, ctas) = (count(launch.block), count(launch.grid));
        let shape = cluster.unwrap_or([1; 3]);
        let size = count(shape);
        let at = Coordinates {
            grid: launch.grid,
            block: launch.block,
            cluster: shape,
            explicit_cluster: cluster.is_some(),
            static_shared: program.shared_bytes,
            dynamic_shared: launch.shared_bytes,
            slots: (options.resident_ctas / size).max(1) * size,
            seed: options.seed,
            approximation: options.approximation,
            ..Coordinates::default()
        };
        let mut execution = Execution {
            program,
            code: Rc::new(Code::new(program)),
            launch,
            options,
            global,
            constants: Vec::new(),
            clocks: Clocks::new(ctas, threads),
            schedule: Schedule::new(options.policy, options.seed),
            ctas: Vec::new(),
            clusters: Vec::new(),
            at,
            total: u64::from(ctas / size),
            started: 0,
            spent: Spent::default(),
            futile: 0,
            warps: threads.div_ceil(32) as usize,
            turn: 0,
            operations: 0,
            late: VecDeque::new(),
        };
        execution.check_products()?;
        execution.define_variables()?;
        execution.fill()?;
        Ok(execution)
    }

    /// Runs the launch to its end.
    pub(crate) fn run(mut self) -> Result<Report> {
        loop {
            let (warps, ctas) = (self.warps, &self.ctas);
            let ready = |w: usize| {
                let warp = ctas.get(w / warps).and_then(|c| c.warps.get(w % warps));
                warp.is_some_and(|w| w.strands.list().iter().any(|s| s.wait == Wait::Ready))
            };
            match self.schedule.pick(warps * ctas.len(), ready) {
                Some(w) => self.turn(w / warps, w % warps)?,
                None if self.ctas.iter().all(|c| c.live == 0) => break,
                None => self.stuck()?,
            }
        }
        let Spent { warp, lane, counters } = self.spent;
        Ok(Report { counters, warp_instructions: warp, lane_instructions: lane })
    }

    /// Runs a strand of a warp for a quantum.
    fn turn(&mut self, cta: usize, warp: usize) -> Result<()> {
        self.turn += 1;
        if !self.late.is_empty() && (self.futile % LATEST == LATEST - 1 || self.schedule.lands()) {
            for _ in 0..self.late.len().div_ceil(4) {
                self.land_one()?;
            }
        }
        if self.futile % LONGER == LONGER - 1 {
            self.futile += 1;
            self.release_waiting();
        }
        let Some(of) = self.ctas.get(cta).and_then(|c| c.warps.get(warp)) else { return Ok(()) };
        let ready = |s: &&strand::Strand| s.wait == Wait::Ready;
        let choice = self.schedule.strand(self.turn, of.strands.list().iter().filter(ready).count());
        let list = of.strands.list().iter().enumerate();
        let Some((strand, _)) = list.filter(|(_, s)| s.wait == Wait::Ready).nth(choice) else { return Ok(()) };
        let at = At { cta, warp, strand };
        let quantum = self.schedule.quantum();
        let mut accesses = quantum.accesses;
        let before = self.spent.warp;
        let end = before.saturating_add(quantum.instructions);
        let code = self.code.clone();
        loop {
            let Some(of) = self.ctas.get_mut(cta).and_then(|c| c.warps.get_mut(warp)) else { return Ok(()) };
            let left = end.saturating_sub(self.spent.warp);
            let stop = match of.run(&code, strand, left, &mut self.spent) {
                Ok(stop) => stop,
                Err(fault) => return Err(self.blame(at, fault)),
            };
            match stop {
                Stop::Moved => break,
                Stop::Limit => {
                    self.schedule.next_warp();
                    break;
                }
                Stop::Beyond => {
                    let flow = match self.step(at) {
                        Ok(flow) => flow,
                        Err(fault) => return Err(self.blame(at, fault)),
                    };
                    self.futile = if flow == Flow::Spin { self.futile + 1 } else { self.futile };
                    accesses -= 1;
                    match flow {
                        Flow::Next | Flow::Spin => {
                            let Some(of) = self.warp_mut(at) else { return Ok(()) };
                            let ended = of.strands.advance(strand);
                            if flow == Flow::Spin {
                                self.schedule.next_warp();
                                break;
                            }
                            if ended || accesses == 0 {
                                break;
                            }
                        }
                        Flow::Blocked | Flow::Moved => break,
                    }
                }
            }
        }
        self.after(at, self.spent.warp - before)
    }

    /// Checks budgets, and handles lanes that wait for others which do not come.
    fn after(&mut self, at: At, ran: u64) -> Result<()> {
        if self.spent.warp > self.options.budget {
            let message = format!("the budget of {} warp instructions is spent", self.options.budget);
            let mut fault = self.blame(at, Fault::new(FaultKind::Budget, message));
            fault.others = self.waiting();
            return Err(fault);
        }
        if self.futile > FUTILE {
            return Err(self.deadlock("every thread that runs waits for what does not come"));
        }
        let Some(warp) = self.warp_mut(at) else { return Ok(()) };
        if warp.strands.arrived() == 0 {
            warp.patience = 0;
        } else {
            warp.patience += ran;
            if warp.patience > PATIENCE {
                warp.patience = 0;
                warp.strands.release_arrived();
            }
        }
        self.unblock(at.cta, at.warp, false).map(|_| ())
    }

    /// The warp of a strand.
    pub(crate) fn warp(&self, at: At) -> Option<&Warp> {
        self.ctas.get(at.cta)?.warps.get(at.warp)
    }

    /// The warp of a strand.
    pub(crate) fn warp_mut(&mut self, at: At) -> Option<&mut Warp> {
        self.ctas.get_mut(at.cta)?.warps.get_mut(at.warp)
    }
}

#[cfg(test)]
mod tests;
