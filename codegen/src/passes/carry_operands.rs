//! `carry_operands`: loads the first operands of a loop's products at the end of the iteration before.
//!
//! Needs: products in steps, rings that run ahead. Establishes: a loop that only multiplies waits for its next stage, and loads
//! the operands of its first step, during the last step of this iteration. Never: moves a refill; holds operands if the body
//! computes other tiles, or has no registers for them. Refuses: nothing. Constructs: removes nothing; adds nothing.
//!
//! ```text
//!                                          wait 0; %p = if lo < hi { load.matrix .. } else 0
//! loop i {                                 loop i carry (%a = %p, ..) {
//!   wait i                                   mma %a, ..
//!   %a = load.matrix ..                      refill; other steps, up to the operands of the last
//!   mma %a, ..                          →    release i
//!   refill; other steps                      wait i + 1; %n = if i + 1 < hi { load.matrix .. } else %a
//!   release i                                mma of the last step
//! }                                          yield %n, ..
//!                                          }
//! ```
//!
//! All threads meet at a wait. Without this pass, the tensor cores are idle from the last step of an iteration until the first
//! operands of the next one arrive.
//!
//! # Promise
//! The same products over the same elements in the same order; a stage is read only after it is waited for, and released
//! after it is read.
//!
//! # Argument
//! The pass moves a wait, whose number depends on the index, and loads through its token or from buffers that the loop does not
//! write. They are placed once before the loop for the first index, and once in each iteration for the next index. So each
//! iteration finds the same operands as before. The wait after the last iteration is for an iteration that does not exist. Its
//! group of copies is an empty one that the refills commit, so it counts like any other. Its loads are guarded, because the
//! stage may never have been filled. The release moves up to directly after the last reader of its token. The refill of
//! iteration `i` goes to the stage of `i - 1`, which is released before the wait for `i`, where all threads meet, as before.
//!
//! # Breaks it
//! Loops without iterations, and with fewer iterations than stages; bounds that depend on data: tests/agreement/pipelines.rs,
//! ahead.rs.

use crate::arch::limits::registers_with_operands;
use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::analysis::peak_registers;
use crate::gpu::slices::{copy, is_plain, remove_unread, slice, visit_deep};
use crate::gpu::{Block, BlockData, Buffer, Inst, Kernel, Op, Type, Value};
use crate::gpu_ops;
use crate::layout::words;
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Predicate};
use std::collections::BTreeMap;

/// Rotates the loops of every block.
pub fn carry_operands(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    for block in k.blocks.keys().collect::<Vec<_>>() {
        for inst in k.blocks[block].insts.clone() {
            let Some(head) = LoopHead::of(k, inst) else { continue };
            let has = registers_with_operands(k.threads, k.occupancy);
            let needs = peak_registers(k) + head.words(k);
            let loc = k.locs[inst];
            cx.notes.push("operands", loc, || match needs <= has {
                true => ("of the first step come with the loop".to_owned(), format!("{needs} registers of {has}")),
                false => ("are loaded behind each wait".to_owned(), format!("{needs} registers, but {has} are there")),
            });
            if needs <= has {
                head.rotate(k, block, inst);
            }
        }
    }
    Ok(())
}

/// The part of a loop before its first product.
struct LoopHead {
    body: Block,
    bounds: (Value, Value),
    wait: Inst,
    token: Value,
    /// Loads of the first step's operands.
    loads: Vec<Inst>,
    /// Instructions of the body before the first product.
    len: usize,
    /// The position after the last reader of the stage.
    free: usize,
    release: usize,
}

impl LoopHead {
    fn of(k: &Kernel, inst: Inst) -> Option<LoopHead> {
        let Op::Loop { lo, hi, body, .. } = k.insts[inst] else { return None };
        let insts = &k.blocks[body].insts;
        // An asynchronous product still reads its stage when the instruction after it runs.
        if insts.iter().any(|&i| k.insts[i].is_asynchronous()) {
            return None;
        }
        let len = insts.iter().position(|&i| matches!(k.insts[i], Op::Mma { .. }))?;
        let (mut waits, mut loads) = (Vec::new(), Vec::new());
        for &i in &insts[..len] {
            if let Op::Wait(..) = k.insts[i] {
                waits.push(i);
            } else if let Op::LoadMatrix { further: None, .. } = k.insts[i] {
                loads.push(i);
            } else if !matches!(k.insts[i], Op::Const(_)) && !is_plain(k, i) {
                return None;
            }
        }
        let ([wait], false) = (waits.as_slice(), loads.is_empty()) else { return None };
        let token = k.results[*wait][0];
        let Op::Wait(ring, _) = k.insts[*wait] else { return None };
        let release = insts.iter().position(|&i| k.insts[i] == Op::Release(token))?;
        let mut free = len;
        for (at, &i) in insts.iter().enumerate().skip(len).filter(|&(at, _)| at != release) {
            visit_deep(k, i, &mut |v| free = if v == token { at + 1 } else { free });
        }
        let refilled = insts[len..free].iter().any(|&i| k.insts[i] == Op::Commit(ring, None));
        let multiplies = insts[len..].iter().all(|&i| only_multiplies(k, i));
        let written = |b: &Buffer| insts.iter().any(|&i| writes(k, i, *b));
        let kept = loads
            .iter()
            .flat_map(|&i| k.insts[i].buffers().0)
            .all(|b| k.rings[ring].buffers.contains(&b) || !written(&b));
        let fits = k.rings[ring].stages > 1 && refilled && multiplies && kept && release >= free;
        fits.then_some(LoopHead { body, bounds: (lo, hi), wait: *wait, token, loads, len, free, release })
    }

    /// Registers of a thread that the operands take.
    fn words(&self, k: &Kernel) -> u32 {
        self.loads.iter().map(|&i| words(k.tile(k.results[i][0]))).sum()
    }

    fn rotate(&self, k: &mut Kernel, block: Block, inst: Inst) {
        let insts = std::mem::take(&mut k.blocks[self.body].insts);
        let index = k.blocks[self.body].params[0];
        let (lo, hi) = self.bounds;
        // Before the loop: for the first index; where there is none, zeros.
        let mut before = Vec::new();
        let none = self.loads.iter().map(|&i| {
            let ty = k.values[k.results[i][0]].ty.clone();
            self.push(k, Op::Const(0.0), ty, &mut before)
        });
        let none = none.collect::<Vec<_>>();
        let first = self.place(k, &insts, (index, lo), hi, none, &mut before);
        let carried: Vec<Value> =
            std::iter::once(self.token).chain(self.loads.iter().map(|&i| k.results[i][0])).collect();
        let mut inside = BTreeMap::new();
        for &v in &carried {
            let ty = k.values[v].ty.clone();
            inside.insert(v, k.push_block_param(self.body, ty.clone()));
            k.push_result(inst, ty);
        }
        for &i in &insts[self.len..] {
            rename(k, i, &inside);
        }
        let params: Vec<Value> = carried.iter().map(|v| inside[v]).collect();
        // Scalars stay where they are; those that nothing needs any more go.
        let mut out: Vec<Inst> =
            insts[..self.len].iter().copied().filter(|&i| i != self.wait && !self.loads.contains(&i)).collect();
        out.extend(&insts[self.len..self.free]);
        out.push(insts[self.release]);
        let one = self.int(k, 1, &mut out);
        let int = k.scalar_type(DType::I32);
        let after = self.push(k, Op::binary(BinaryOp::Add, index, one), int, &mut out);
        let next = self.place(k, &insts, (index, after), hi, params[1..].to_vec(), &mut out);
        out.extend(insts[self.free..].iter().copied().filter(|&i| i != insts[self.release]));
        if let Some(&end) = out.last()
            && let Op::Yield(values) = &mut k.insts[end]
        {
            values.extend(next);
        }
        if let Op::Loop { inits, .. } = &mut k.insts[inst] {
            inits.extend(first);
        }
        k.blocks[self.body].insts = out;
        remove_unread(k, self.body, is_plain);
        let at = k.blocks[block].insts.iter().position(|&i| i == inst).unwrap_or(0);
        k.blocks[block].insts.splice(at..at, before);
    }

    /// The wait for another index and, if that is below `hi`, the loads after it: the token and the operands, or `others`.
    fn place(
        &self,
        k: &mut Kernel,
        insts: &[Inst],
        (index, to): (Value, Value),
        hi: Value,
        others: Vec<Value>,
        out: &mut Vec<Inst>,
    ) -> Vec<Value> {
        let mut values = BTreeMap::from([(index, to)]);
        let mut number = Vec::new();
        k.insts[self.wait].visit_operands(|v| number.push(v));
        for i in slice(k, &insts[..self.len], number).into_iter().chain([self.wait]) {
            out.push(copy(k, i, &mut values));
        }
        let bool = k.scalar_type(DType::Bool);
        let there = self.push(k, Op::Compare(Predicate::Lt, to, hi), bool, out);
        let mut loads: Vec<Inst> = self.loads.iter().map(|&i| copy(k, i, &mut values)).collect();
        let made: Vec<Value> = loads.iter().map(|&i| k.results[i][0]).collect();
        let types: Vec<Type> = made.iter().map(|&v| k.values[v].ty.clone()).collect();
        let loc = k.locs[self.wait];
        loads.push(k.new_inst(Op::Yield(made), vec![], loc));
        let body = k.blocks.push(BlockData { params: Vec::new(), insts: loads });
        let guarded = k.new_inst(Op::If(there, body, others), types, loc);
        out.push(guarded);
        std::iter::once(values[&self.token]).chain(k.results[guarded].iter().copied()).collect()
    }

    fn int(&self, k: &mut Kernel, x: u32, out: &mut Vec<Inst>) -> Value {
        let int = k.scalar_type(DType::I32);
        self.push(k, Op::Const(f64::from(x)), int, out)
    }

    fn push(&self, k: &mut Kernel, op: Op, ty: Type, out: &mut Vec<Inst>) -> Value {
        let inst = k.new_inst(op, vec![ty], k.locs[self.wait]);
        out.push(inst);
        k.results[inst][0]
    }
}

/// True for the operations of a loop of products: steps, loads of operands, scalars, and its ring.
fn only_multiplies(k: &Kernel, inst: Inst) -> bool {
    let blocks = |b: Block| k.blocks[b].insts.iter().all(|&i| only_multiplies(k, i));
    match k.insts[inst] {
        Op::Mma { .. }
        | Op::WaitMma(..)
        | Op::LoadMatrix { .. }
        | Op::ExtractSlice { .. }
        | Op::Acquire(..)
        | Op::Copy { .. }
        | Op::Commit(..)
        | Op::Release(_)
        | Op::Yield(_) => true,
        Op::If(_, body, _) | Op::Loop { body, .. } => blocks(body),
        gpu_ops!(sources elementwise) => is_plain(k, inst),
        Op::Broadcast(_) | Op::Reshape(_) | Op::Transpose(_) | Op::Wait(..) | Op::Drain(_) | Op::Programs(_) => false,
        Op::InitRing(_) | Op::Once(_) => false,
        Op::LoadGlobal { .. } | Op::StoreGlobal { .. } => false,
        Op::LoadShared(_) | Op::StoreShared { .. } | Op::ZeroShared(_) | Op::SumCluster(..) => false,
        gpu_ops!(fragments orders) => false,
    }
}

/// True if an instruction, or one in its blocks, writes a buffer.
fn writes(k: &Kernel, inst: Inst, buffer: Buffer) -> bool {
    let op = &k.insts[inst];
    let within = op.body().is_some_and(|body| k.blocks[body].insts.iter().any(|&i| writes(k, i, buffer)));
    within || op.buffers().1.contains(&buffer)
}

/// Replaces values in an instruction and in its blocks.
fn rename(k: &mut Kernel, inst: Inst, values: &BTreeMap<Value, Value>) {
    k.insts[inst].replace_operands(|v| values.get(&v).copied().unwrap_or(v));
    if let Some(body) = k.insts[inst].body() {
        for i in k.blocks[body].insts.clone() {
            rename(k, i, values);
        }
    }
}
