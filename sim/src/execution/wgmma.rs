//! `wgmma`: products of four warps, in flight until their group is waited for.

use super::flight::{Flight, Home, bounded};
use super::strand::Wait;
use super::warp::LANES;
use super::{At, Execution, Flow};
use crate::fault::{Fault, FaultKind, Result};
use crate::memory::{Actor, AsyncKind};
use crate::program::{Reg, Src, Wgmma, WgmmaA};
use crate::race::{AgentId, Release, ThreadId};
use crate::tensor::WarpRegister;
use crate::tensor::wgmma::{self, SharedOperand, WARP_ROWS, WgmmaOperand};

/// Warps of a warpgroup.
pub(crate) const WARPS: usize = 4;

/// The register is an operand of a product in flight.
const READ: u8 = 1;
/// The register is an accumulator of one.
const WRITTEN: u8 = 2;

/// Products of a warpgroup.
#[derive(Debug, Default)]
pub(crate) struct Warpgroup {
    agent: Option<AgentId>,
    /// The clocks that complete products have released.
    done: Release,
    flying: Vec<Product>,
}

/// A product whose operands are being read.
#[derive(Debug)]
struct Product {
    group: u32,
    flight: Flight,
}

/// Products of a warp.
#[derive(Clone, Debug, Default)]
pub(crate) struct Products {
    /// Groups committed.
    groups: u32,
    /// By group: registers in flight, and how.
    flying: Vec<(u32, Vec<(Reg, u8)>)>,
    /// True if a fence has been executed.
    fenced: bool,
    /// Registers written since the last fence. Empty in kernels without products.
    pub(crate) written: Vec<bool>,
}

impl Products {
    /// The state for a kernel with this many registers.
    pub(crate) fn new(regs: usize) -> Products {
        Products { written: vec![true; regs], ..Products::default() }
    }
}

impl Execution<'_> {
    /// `wgmma.mma_async`, once all warps of the warpgroup are here.
    pub(crate) fn wgmma(&mut self, at: At, exec: u32, spec: &Wgmma) -> Result<Flow> {
        self.whole(exec)?;
        let Some(cta) = self.ctas.get(at.cta) else { return Ok(Flow::Moved) };
        let first = at.warp / WARPS * WARPS;
        let Some(strand) = self.warp(at).and_then(|w| w.strands.get(at.strand)) else { return Ok(Flow::Moved) };
        if first + WARPS > cta.warps.len() {
            return Err(Fault::new(FaultKind::Divergent, "a wgmma in a CTA whose last warpgroup is not whole"));
        }
        let mut places = [at; WARPS];
        for (i, place) in places.iter_mut().enumerate().filter(|(i, _)| first + i != at.warp) {
            let list = cta.warps.get(first + i).map_or(&[][..], |w| w.strands.list());
            let here = list.iter().position(|s| s.wait == Wait::Warpgroup && s.pc == strand.pc);
            let Some(s) = here else { return Ok(self.block(at, exec, Wait::Warpgroup)) };
            *place = At { warp: first + i, strand: s, ..at };
        }
        self.product(places, spec).map_err(|f| if f.party.is_none() { self.blame(at, f) } else { f })?;
        for place in places {
            if let Some(warp) = self.warp_mut(place) {
                warp.strands.advance(place.strand);
            }
        }
        Ok(Flow::Moved)
    }

    /// The product of a warpgroup when each of its warps is at the instruction.
    fn product(&mut self, places: [At; WARPS], spec: &Wgmma) -> Result<()> {
        let at = places[0];
        let arithmetic = self.program.arithmetic;
        let b = SharedOperand::of_b(spec, self.same(places, spec.b, "the descriptor of b")?)?;
        let a = match &spec.a {
            WgmmaA::Registers(_) => None,
            WgmmaA::Descriptor { desc, .. } => {
                Some(SharedOperand::of_a(spec, self.same(places, *desc, "the descriptor of a")?)?)
            }
        };
        let mut flight = Flight::new(self.next_id());
        // The warps do not wait for each other: each thread has to know that the operands are there.
        let (first, line) = (self.thread(at, 0).0, self.line(at));
        let threads = (first..).take(WARPS * LANES).map(ThreadId);
        for thread in self.clocks.representatives(threads) {
            let by = Actor::asynchronous(thread, line);
            let rank = (thread.0 - first) as usize;
            for range in a.iter().chain([&b]).flat_map(SharedOperand::ranges) {
                let Some(cta) = self.ctas.get_mut(at.cta) else { return Ok(()) };
                let (start, len) = (u64::from(range.start), u64::from(range.end - range.start));
                if let Err(violation) = cta.shared.begin(flight.id, AsyncKind::Read, start, len, &by, &self.clocks) {
                    let place = places.get(rank / LANES).copied().unwrap_or(at);
                    return Err(self.refuse(place, rank % LANES, "shared memory, as an operand of wgmma", &violation));
                }
            }
        }
        flight.touch(Home::Shared(at.cta));
        for operand in a.iter().chain([&b]) {
            self.spent.counters.shared_chunks(line, &operand.core_matrices());
        }
        let read_operand = |place: &SharedOperand, negate| {
            let shared = self.ctas.get(at.cta).map(|c| &c.shared);
            let mut read = |address: u32| {
                let bytes = shared.and_then(|s| s.read_raw(u64::from(address), 16));
                bytes.and_then(|b| b.try_into().ok()).ok_or_else(|| {
                    Fault::new(FaultKind::OutOfBounds, format!("an operand of wgmma at shared address {address:#x}"))
                })
            };
            WgmmaOperand::from_shared(place, negate, arithmetic, &mut read)
        };
        let b = read_operand(&b, spec.negate_b)?;
        let a = a.map(|place| read_operand(&place, spec.negate_a)).transpose()?;
        let mut group = None;
        for (rank, &place) in places.iter().enumerate() {
            let Some(warp) = self.warp(place) else { return Ok(()) };
            if *group.get_or_insert(warp.products.groups) != warp.products.groups {
                let message = "the warps of a warpgroup have committed different numbers of wgmma groups";
                return Err(Fault::new(FaultKind::Divergent, message));
            }
            let used = self.check_registers(place, spec)?;
            let Some(warp) = self.warp_mut(place) else { return Ok(()) };
            let scale = warp.truth(spec.scale_d);
            if scale != 0 && scale != u32::MAX {
                return Err(Fault::new(FaultKind::Illegal, "scale-d of a wgmma differs between lanes"));
            }
            let rows = |src: &[Src]| src.iter().map(|s| warp.row(*s)).collect::<Vec<WarpRegister>>();
            let d: Vec<WarpRegister> = spec.d.iter().map(|r| warp.row(Src::Reg(*r))).collect();
            let d = match (&a, &spec.a) {
                (Some(a), _) => wgmma::wgmma(spec, rank * WARP_ROWS, a, &b, scale != 0, &d)?,
                (None, WgmmaA::Registers(a)) => {
                    let a = WgmmaOperand::from_registers(spec, arithmetic, &rows(a));
                    wgmma::wgmma(spec, 0, &a, &b, scale != 0, &d)?
                }
                _ => d,
            };
            for (reg, row) in spec.d.iter().zip(&d) {
                warp.write(*reg, u32::MAX, row);
            }
            if warp.in_flight.is_empty() {
                warp.in_flight = vec![0; warp.regs.len()];
            }
            for &(reg, how) in &used {
                if let Some(state) = warp.in_flight.get_mut(reg.0 as usize) {
                    *state |= how;
                }
            }
            bounded(warp.products.flying.len())?;
            warp.products.flying.push((warp.products.groups, used));
        }
        let of = self.ctas.get_mut(at.cta).and_then(|c| c.warpgroups.get_mut(at.warp / WARPS));
        if let Some(of) = of {
            bounded(of.flying.len())?;
            of.flying.push(Product { group: group.unwrap_or(0), flight });
        }
        Ok(())
    }

    /// An operand that has to be the same in all lanes of a warpgroup.
    fn same(&self, places: [At; WARPS], src: Src, what: &str) -> Result<u64> {
        let rows = places.map(|p| self.warp(p).map_or([0; LANES], |w| w.row(src)));
        let value = rows[0][0];
        if rows.iter().flatten().any(|&v| v != value) {
            return Err(Fault::new(FaultKind::Illegal, format!("{what} of a wgmma differs between lanes")));
        }
        Ok(value)
    }

    /// Checks that a fence has covered the registers of a product.
    fn check_registers(&self, at: At, spec: &Wgmma) -> Result<Vec<(Reg, u8)>> {
        let Some(warp) = self.warp(at) else { return Ok(Vec::new()) };
        let mut used: Vec<(Reg, u8)> = spec.d.iter().map(|r| (*r, WRITTEN)).collect();
        if let WgmmaA::Registers(a) = &spec.a {
            used.extend(a.iter().filter_map(|s| if let Src::Reg(r) = s { Some((*r, READ)) } else { None }));
        }
        if !warp.products.fenced {
            return Err(self.blame(at, Fault::new(FaultKind::InFlight, "a wgmma with no wgmma.fence before it")));
        }
        let written = |r: &Reg| warp.products.written.get(r.0 as usize).copied().unwrap_or(false);
        if used.iter().any(|(r, _)| written(r)) {
            let message = "a register of a wgmma was written since the last wgmma.fence";
            return Err(self.blame(at, Fault::new(FaultKind::InFlight, message)));
        }
        Ok(used)
    }

    /// `wgmma.fence`.
    pub(crate) fn wgmma_fence(&mut self, at: At) -> Result<Flow> {
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        warp.products.fenced = true;
        warp.products.written.fill(false);
        Ok(Flow::Next)
    }

    /// `wgmma.commit_group`.
    pub(crate) fn wgmma_commit(&mut self, at: At) -> Result<Flow> {
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        warp.products.groups += 1;
        Ok(Flow::Next)
    }

    /// `wgmma.wait_group`: waits until all but the newest groups of the warpgroup are complete.
    pub(crate) fn wgmma_wait(&mut self, at: At, newest: u32) -> Result<Flow> {
        let Some(cta) = self.ctas.get_mut(at.cta) else { return Ok(Flow::Moved) };
        let (index, first) = (cta.index, cta.thread(at.warp, 0).0);
        let Some(warp) = cta.warps.get_mut(at.warp) else { return Ok(Flow::Moved) };
        let complete = warp.products.groups.saturating_sub(newest);
        warp.products.flying.retain(|p| p.0 >= complete);
        warp.in_flight.fill(0);
        if warp.products.flying.is_empty() {
            warp.in_flight.clear();
        }
        for &(reg, how) in warp.products.flying.iter().flat_map(|p| &p.1) {
            if let Some(state) = warp.in_flight.get_mut(reg.0 as usize) {
                *state |= how;
            }
        }
        let Some(of) = cta.warpgroups.get_mut(at.warp / WARPS) else { return Ok(Flow::Next) };
        let (done, left): (Vec<Product>, Vec<Product>) =
            std::mem::take(&mut of.flying).into_iter().partition(|p| p.group < complete);
        of.flying = left;
        if !done.is_empty() {
            let agent = *of.agent.get_or_insert_with(|| self.clocks.new_agent(index));
            let epoch = self.clocks.complete(agent, &mut of.done);
            for product in done {
                self.finish(&product.flight, epoch);
            }
        }
        let of = self.ctas.get(at.cta).and_then(|c| c.warpgroups.get(at.warp / WARPS));
        if let Some(of) = of.filter(|of| of.agent.is_some()) {
            for lane in 0..LANES as u32 {
                self.clocks.acquire(ThreadId(first + lane), &of.done);
            }
        }
        Ok(Flow::Next)
    }
}
