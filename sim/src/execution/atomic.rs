//! `atom` and `red`.

use super::access::region;
use super::address::Target;
use super::warp::{LANES, lanes};
use super::{At, Execution, Flow};
use crate::alu;
use crate::fault::{Fault, FaultKind, Result};
use crate::memory::Actor;
use crate::program::{Access, AtomOp, Reg, Src};
use crate::race::ThreadId;
use crate::syntax::ast::{Space, Type};

/// An atomic: operation, type, destination, operands.
pub(crate) type Atomic = (AtomOp, Type, Option<Reg>, [Src; 2]);

impl Execution<'_> {
    /// Runs the lanes one after the other. The lanes of a warp have no fixed order on hardware either.
    pub(crate) fn atom(&mut self, at: At, exec: u32, access: &Access, (op, ty, dst, src): Atomic) -> Result<Flow> {
        let Some(f) = alu::atom(op, ty, self.program.arithmetic) else {
            return Err(Fault::new(FaultKind::Illegal, format!("no atomic {op:?} of type {ty:?}")));
        };
        // PTX ISA, `atom`: sums of f32 in global memory take subnormal numbers for 0, and give 0 for them.
        let flushes = (op, ty, access.space) == (AtomOp::Add, Type::F32, Space::Global)
            && self.program.arithmetic == alu::Arithmetic::Ieee;
        let kept = |x: u64| if flushes { without_subnormal(x) } else { x };
        let (line, first) = (self.line(at), self.thread(at, 0).0);
        let places = self.places(at, exec, access, true);
        let Some(warp) = self.warp(at) else { return Ok(Flow::Moved) };
        let [b, c] = src.map(|s| warp.row(s));
        let mut old = [0; LANES];
        for lane in lanes(exec) {
            let Some(place) = places[lane] else { continue };
            let by = Actor::of(ThreadId(first + lane as u32), line, access);
            if !matches!(place, Target::Global(_) | Target::Shared(..)) {
                let fault = Fault::new(FaultKind::Illegal, "an atomic on memory that is neither global nor shared");
                return Err(self.blame_lane(at, lane, fault));
            }
            let memory = (self.ctas.as_mut_slice(), self.clusters.as_slice(), &mut *self.global);
            let found = region(memory, at.cta, place, u64::from(access.bytes));
            let (region, offset, name) = match found {
                Ok(found) => found,
                Err(fault) => return Err(self.blame_lane(at, lane, fault)),
            };
            let new = |old: u64| kept(f(kept(old), kept(b[lane]), c[lane], 0));
            old[lane] = match region.atomic(offset, access.bytes, &by, &mut self.clocks, new) {
                Ok(old) => old,
                Err(violation) => return Err(self.refuse(at, lane, name, &violation)),
            };
        }
        if let (Some(dst), Some(warp)) = (dst, self.warp_mut(at)) {
            warp.write(dst, exec, &old);
        }
        Ok(Flow::Next)
    }
}

/// The bits of an f32, with a zero of its sign for a subnormal number.
fn without_subnormal(bits: u64) -> u64 {
    let is_subnormal = f32::from_bits(bits as u32).is_subnormal();
    if is_subnormal { bits & 0x8000_0000 } else { bits }
}
