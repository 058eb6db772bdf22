//! Rows of the register file: registers whose values are never needed at once share one.
//!
//! A compiler gives each value a register of its own, and a warp has 256 bytes for each row. With thousands of rows, most
//! instructions would wait for memory.
//!
//! What a lane does is a path through the program, and a row keeps lanes apart. So two registers may share a row if no path needs
//! both at one place, whatever the other lanes do. A register that may be read before it is written has a row of its own: it
//! holds what registers hold at the start.

use super::flow::Graph;
use super::registers::{RegisterUse, visit};
use crate::program::{Op, Program, Reg};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Words of all sets of live registers together, and how often they are gone through. A program that needs more keeps a row for
/// each register. Loops in loops need one time each.
const MOST_WORDS: usize = 1 << 20;
const MOST_SWEEPS: usize = 64;

/// Gives registers of a program rows that they share.
pub(super) fn share(mut program: Program) -> Program {
    let touches = Touches::of(&mut program);
    let graph = Graph::new(&program.code);
    let Some(live) = Live::of(&program, &touches, &graph) else { return program };
    let rows = Rows::of(&program, &touches, &graph, &live);
    for instr in &mut program.code {
        visit(&mut instr.op, &mut |reg, _| *reg = rows.of_register.get(reg.0 as usize).copied().unwrap_or(*reg));
    }
    program.regs = rows.bits.len() as u32;
    program.reg_bits = rows.bits;
    program
}

/// The registers that each instruction uses, and how.
struct Touches {
    all: Vec<(u32, RegisterUse)>,
    /// For each instruction, the end of its part.
    ends: Vec<usize>,
}

impl Touches {
    fn of(program: &mut Program) -> Touches {
        let (mut all, mut ends) = (Vec::new(), Vec::with_capacity(program.code.len()));
        for instr in &mut program.code {
            visit(&mut instr.op, &mut |reg, how| all.push((reg.0, how)));
            ends.push(all.len());
        }
        Touches { all, ends }
    }

    fn at(&self, instr: usize) -> &[(u32, RegisterUse)] {
        let end = |i: usize| self.ends.get(i).copied().unwrap_or(0);
        let start = instr.checked_sub(1).map_or(0, end);
        self.all.get(start..end(instr)).unwrap_or_default()
    }
}

/// Registers whose values are needed at the start and at the end of each block: a bit for each, `words` words a block.
struct Live {
    words: usize,
    before: Vec<u64>,
    after: Vec<u64>,
}

impl Live {
    /// `None` if that would take too long.
    fn of(program: &Program, touches: &Touches, graph: &Graph) -> Option<Live> {
        let (words, blocks) = ((program.regs as usize).div_ceil(64), graph.starts.len());
        let size = words.checked_mul(blocks).filter(|&size| size <= MOST_WORDS)?;
        let (mut reads, mut writes) = (vec![0u64; size], vec![0u64; size]);
        for b in 0..blocks {
            let part = b * words..(b + 1) * words;
            let (reads, writes) = (reads.get_mut(part.clone())?, writes.get_mut(part)?);
            for i in (*graph.starts.get(b)?..=graph.last(b)?).rev() {
                // Lanes for which a guard does not hold keep what they have.
                let always = program.code.get(i)?.guard.is_none();
                for &(reg, _) in touches.at(i).iter().filter(|t| t.1 == RegisterUse::Write && always) {
                    *reads.get_mut(reg as usize / 64)? &= !(1 << (reg % 64));
                    *writes.get_mut(reg as usize / 64)? |= 1 << (reg % 64);
                }
                for &(reg, _) in touches.at(i).iter().filter(|t| t.1 != RegisterUse::Write) {
                    *reads.get_mut(reg as usize / 64)? |= 1 << (reg % 64);
                }
            }
        }
        let mut live = Live { words, before: reads, after: vec![0; size] };
        for _ in 0..MOST_SWEEPS {
            let mut changed = false;
            for b in (0..blocks).rev() {
                for word in b * words..(b + 1) * words {
                    let of = |next: &usize| live.before.get(next * words + word % words).copied().unwrap_or(0);
                    let after = graph.next.get(b)?.iter().fold(0, |all, next| all | of(next));
                    let before = *live.before.get(word)? | (after & !*writes.get(word)?);
                    changed |= before != *live.before.get(word)?;
                    *live.before.get_mut(word)? = before;
                    *live.after.get_mut(word)? = after;
                }
            }
            if !changed {
                return Some(live);
            }
        }
        None
    }

    /// The registers of a block's set.
    fn registers(&self, sets: &[u64], block: usize) -> Vec<u32> {
        let set = sets.get(block * self.words..(block + 1) * self.words).unwrap_or_default();
        let bits =
            |(at, &word): (u32, &u64)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit);
        (0..).zip(set).filter(|(_, word)| **word != 0).flat_map(bits).collect()
    }
}

/// The first and the last instruction between which the value of a register is needed.
#[derive(Clone, Copy)]
struct Span {
    first: usize,
    last: usize,
}

impl Span {
    const EMPTY: Span = Span { first: usize::MAX, last: 0 };

    fn add(&mut self, instr: usize) {
        *self = Span { first: self.first.min(instr), last: self.last.max(instr) };
    }
}

struct Rows {
    of_register: Vec<Reg>,
    /// Bits of each row.
    bits: Vec<u8>,
}

impl Rows {
    fn of(program: &Program, touches: &Touches, graph: &Graph, live: &Live) -> Rows {
        let mut spans = vec![Span::EMPTY; program.regs as usize];
        let mut add = |reg: u32, instr| {
            if let Some(span) = spans.get_mut(reg as usize) {
                span.add(instr);
            }
        };
        for i in 0..program.code.len() {
            touches.at(i).iter().for_each(|&(reg, _)| add(reg, i));
        }
        for (b, &start) in graph.starts.iter().enumerate() {
            live.registers(&live.before, b).into_iter().for_each(|reg| add(reg, start));
            let end = graph.last(b).unwrap_or(start);
            live.registers(&live.after, b).into_iter().for_each(|reg| add(reg, end));
        }
        let mut rows = Rows { of_register: (0..program.regs).map(Reg).collect(), bits: Vec::new() };
        // What is needed at the start has not been written. A product in flight uses its registers after its instruction.
        let mut own = live.registers(&live.before, 0);
        for i in (0..program.code.len()).filter(|&i| program.code.get(i).is_some_and(|i| matches!(i.op, Op::Wgmma(_))))
        {
            own.extend(touches.at(i).iter().map(|t| t.0));
        }
        own.sort_unstable();
        own.dedup();
        for reg in own {
            let bits = program.reg_bits.get(reg as usize).copied().unwrap_or(64);
            rows.place(reg, None, bits);
            if let Some(span) = spans.get_mut(reg as usize) {
                *span = Span::EMPTY;
            }
        }
        let mut order: Vec<(usize, u32)> = (0..).zip(&spans).map(|(reg, span)| (span.first, reg)).collect();
        order.retain(|(first, _)| *first != usize::MAX);
        order.sort_unstable();
        // The rows in use by the end of their use, and the rows that are free.
        let (mut used, mut free) = (BinaryHeap::new(), Vec::new());
        for (first, reg) in order {
            while let Some(&Reverse((last, row))) = used.peek()
                && last < first
            {
                used.pop();
                free.push(row);
            }
            let row = rows.place(reg, free.pop(), 64);
            used.push(Reverse((spans.get(reg as usize).map_or(usize::MAX, |s| s.last), row)));
        }
        rows
    }

    /// Gives a register a row that is free, or a new one of this many bits.
    fn place(&mut self, reg: u32, free: Option<u32>, bits: u8) -> u32 {
        let row = free.unwrap_or_else(|| {
            self.bits.push(bits);
            self.bits.len() as u32 - 1
        });
        if let Some(of) = self.of_register.get_mut(reg as usize) {
            *of = Reg(row);
        }
        row
    }
}
