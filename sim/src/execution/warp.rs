//! A warp: its registers and strands, and the loop that runs instructions touching nothing else.

use super::bulk::Outgoings;
use super::copy::Copies;
use super::strand::{Strand, Strands};
use super::wgmma::Products;
use crate::alu::Approximation;
use crate::decode::registers::registers;
use crate::fault::{Fault, FaultKind, Result};
use crate::program::{Addr, Instr, Op, Pred, PredOrImm, PredSrc, Program, Reg, Src};
use crate::stats::{Counters, InstructionClass};
use crate::tensor::WarpRegister;

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;
/// All lanes.
pub(crate) const ALL: u32 = u32::MAX;
/// The content of a register before it is written, truncated to its width. It is not zero, which would hide mistakes, but a NaN
/// in every floating-point format. With odd seeds each bit is inverted.
const UNWRITTEN: u64 = 0x7ff8_beef_7fc0_7fc5;

/// The set lanes of a mask, in order.
pub(crate) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let lane = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            lane
        })
    })
}

/// The place of a warp in the grid, as special registers give it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Coordinates {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) ctaid: [u32; 3],
    pub(crate) rank: u32,
    pub(crate) warp: u32,
    pub(crate) slot: u32,
    pub(crate) slots: u32,
    pub(crate) explicit_cluster: bool,
    pub(crate) static_shared: u32,
    pub(crate) dynamic_shared: u32,
    /// The seed of the schedule and the approximations.
    pub(crate) seed: u64,
    pub(crate) approximation: Approximation,
}

/// Why the loop over a strand's instructions ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The quantum is spent.
    Limit,
    /// The next instruction reaches beyond the warp.
    Beyond,
    /// The strand diverged, or met others.
    Moved,
}

/// A program, and the class of each of its instructions.
#[derive(Clone, Debug)]
pub(crate) struct Code<'a> {
    pub(crate) program: &'a Program,
    classes: Vec<InstructionClass>,
    /// Registers of each instruction and whether they are written. Only kept for kernels with asynchronous products.
    touches: Vec<Box<[(Reg, bool)]>>,
}

impl<'a> Code<'a> {
    /// Classes of a program.
    pub(crate) fn new(program: &'a Program) -> Code<'a> {
        let products = program.code.iter().any(|i| matches!(i.op, Op::Wgmma(_)));
        let touches = program.code.iter().filter(|_| products).map(|i| registers(&i.op).into());
        let touches = touches.collect();
        Code { program, classes: program.code.iter().map(|i| InstructionClass::of(&i.op)).collect(), touches }
    }

    fn touches(&self, pc: u32) -> &[(Reg, bool)] {
        self.touches.get(pc as usize).map_or(&[], |t| t)
    }

    fn class(&self, pc: u32) -> InstructionClass {
        self.classes.get(pc as usize).copied().unwrap_or(InstructionClass::Other)
    }
}

/// What a launch cost so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) warp: u64,
    pub(crate) lane: u64,
    pub(crate) counters: Counters,
}

impl Spent {
    /// Counts an instruction.
    #[inline]
    pub(crate) fn add(&mut self, line: u32, class: InstructionClass, exec: u32) {
        self.warp += 1;
        self.lane += u64::from(exec.count_ones());
        self.counters.instruction(line, class, exec.count_ones());
    }
}

fn unwritten(bits: u8, seed: u64) -> u64 {
    let pattern = if seed & 1 == 0 { UNWRITTEN } else { !UNWRITTEN };
    pattern & u64::MAX.checked_shr(64 - u32::from(bits.min(64))).unwrap_or(0)
}

/// A warp.
#[derive(Clone, Debug)]
pub(crate) struct Warp {
    pub(crate) at: Coordinates,
    pub(crate) regs: Vec<WarpRegister>,
    pub(crate) preds: Vec<u32>,
    /// `CC.CF`.
    pub(crate) carry: u32,
    pub(crate) strands: Strands,
    /// Registers that an asynchronous product still uses: 1 for read, 2 for written. Empty if there are none.
    pub(crate) in_flight: Vec<u8>,
    /// Asynchronous copies of its lanes.
    pub(crate) copies: Copies,
    /// Bulk copies of its lanes out of shared memory.
    pub(crate) outgoings: Outgoings,
    /// Asynchronous products.
    pub(crate) products: Products,
    /// At the cluster's barrier: lanes that arrived in this phase, and lanes whose phase is complete.
    pub(crate) cluster: [u32; 2],
    /// Warp instructions that ran while lanes waited to meet others.
    pub(crate) patience: u64,
    /// Warp instructions, for the clock registers.
    pub(crate) clock: u64,
}

impl Warp {
    /// A warp at the entry of a program.
    pub(crate) fn new(program: &Program, at: Coordinates, lanes: u32) -> Warp {
        let products = program.code.iter().any(|i| matches!(i.op, Op::Wgmma(_)));
        Warp {
            at,
            regs: program.reg_bits.iter().map(|&bits| [unwritten(bits, at.seed); LANES]).collect(),
            preds: vec![if at.seed & 1 == 0 { 0x5555_5555 } else { 0xaaaa_aaaa }; program.preds as usize],
            carry: 0,
            strands: Strands::new(lanes),
            in_flight: Vec::new(),
            copies: Copies::default(),
            outgoings: Outgoings::default(),
            products: if products { Products::new(program.regs as usize) } else { Products::default() },
            cluster: [0, 0],
            patience: 0,
            clock: 0,
        }
    }

    /// A source as each lane reads it.
    pub(crate) fn row(&self, src: Src) -> WarpRegister {
        match src {
            Src::Reg(r) => self.regs.get(r.0 as usize).copied().unwrap_or([UNWRITTEN; LANES]),
            Src::Imm(v) => [v; LANES],
        }
    }

    /// A source as one lane reads it.
    pub(crate) fn value(&self, src: Src, lane: usize) -> u64 {
        match src {
            Src::Reg(r) => self.regs.get(r.0 as usize).and_then(|row| row.get(lane)).copied().unwrap_or(UNWRITTEN),
            Src::Imm(v) => v,
        }
    }

    /// An address as one lane makes it.
    pub(crate) fn address(&self, addr: &Addr, lane: usize) -> u64 {
        self.value(addr.base, lane).wrapping_add_signed(addr.offset)
    }

    /// Lanes in which a predicate holds.
    pub(crate) fn pred(&self, src: PredSrc) -> u32 {
        let bits = self.preds.get(src.pred.0 as usize).copied().unwrap_or(0);
        if src.negated { !bits } else { bits }
    }

    /// Lanes in which a predicate or a constant holds.
    pub(crate) fn truth(&self, src: PredOrImm) -> u32 {
        match src {
            PredOrImm::Pred(p) => self.pred(p),
            PredOrImm::Imm(true) => ALL,
            PredOrImm::Imm(false) => 0,
        }
    }

    /// Lanes of a mask that satisfy a guard.
    pub(crate) fn guarded(&self, instr: &Instr, mask: u32) -> u32 {
        instr.guard.map_or(mask, |g| mask & self.pred(g))
    }

    /// Writes a register in some lanes.
    pub(crate) fn write(&mut self, reg: Reg, exec: u32, values: &WarpRegister) {
        let Some(row) = self.regs.get_mut(reg.0 as usize) else { return };
        if exec == ALL {
            *row = *values;
        } else {
            for lane in lanes(exec) {
                row[lane] = values[lane];
            }
        }
    }

    /// Writes a predicate in some lanes.
    pub(crate) fn write_pred(&mut self, pred: Pred, exec: u32, bits: u32) {
        if let Some(row) = self.preds.get_mut(pred.0 as usize) {
            *row = (*row & !exec) | (bits & exec);
        }
    }

    /// Runs a strand until an instruction reaches beyond the warp, the strand moves, or `limit` instructions ran.
    pub(crate) fn run(&mut self, code: &Code<'_>, s: usize, limit: u64, spent: &mut Spent) -> Result<Stop> {
        let program = code.program;
        let Some(strand) = self.strands.get(s) else { return Ok(Stop::Moved) };
        let Strand { mut pc, mask, .. } = strand;
        let mut left = limit;
        let stop = loop {
            let Some(instr) = program.code.get(pc as usize) else { break Stop::Beyond };
            if left == 0 {
                break Stop::Limit;
            }
            let exec = self.guarded(instr, mask);
            if !self.products.written.is_empty() {
                self.note_writes(code.touches(pc), exec);
            }
            if !self.in_flight.is_empty()
                && let Err(mut fault) = self.check_in_flight(code.touches(pc), exec)
            {
                self.strands.set_pc(s, pc);
                fault.message = format!("{} at line {}", fault.message, instr.line);
                return Err(fault);
            }
            if let Op::Branch { target, uniform } = instr.op {
                left -= 1;
                spent.add(instr.line, code.class(pc), exec);
                if exec != 0 && exec != mask {
                    self.strands.set_pc(s, pc);
                    if uniform {
                        return Err(Fault::new(FaultKind::Divergent, "lanes of a warp part at a bra.uni"));
                    }
                    let meet = program.reconverge.get(pc as usize).copied().flatten();
                    self.strands.split(s, &[(mask & !exec, pc + 1), (exec, target)], meet);
                    self.clock += limit - left;
                    return Ok(Stop::Moved);
                }
                pc = if exec == 0 { pc + 1 } else { target };
            } else {
                if !self.local(instr, exec, limit - left) {
                    break Stop::Beyond;
                }
                left -= 1;
                spent.add(instr.line, code.class(pc), exec);
                pc += 1;
            }
            if strand.joins(pc) {
                self.strands.set_pc(s, pc);
                self.strands.arrive(s);
                self.clock += limit - left;
                return Ok(Stop::Moved);
            }
        };
        self.strands.set_pc(s, pc);
        self.clock += limit - left;
        Ok(stop)
    }

    /// Registers that an instruction writes need a fence before a product uses them, except its own accumulators.
    fn note_writes(&mut self, touches: &[(Reg, bool)], exec: u32) {
        if exec == 0 {
            return;
        }
        for (reg, _) in touches.iter().filter(|t| t.1) {
            if let Some(state) = self.products.written.get_mut(reg.0 as usize) {
                *state = true;
            }
        }
    }

    /// A register that an asynchronous product writes may not be touched, and one that it reads may not be written.
    fn check_in_flight(&self, touches: &[(Reg, bool)], exec: u32) -> Result<()> {
        let state = |reg: &Reg| self.in_flight.get(reg.0 as usize).copied().unwrap_or(0);
        let bad = touches.iter().any(|(reg, writes)| state(reg) & 2 != 0 || (state(reg) & 1 != 0 && *writes));
        if exec != 0 && bad {
            return Err(Fault::new(FaultKind::InFlight, "a register of a wgmma that was not waited for is touched"));
        }
        Ok(())
    }
}
