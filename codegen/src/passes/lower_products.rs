//! `lower_products`: a product of tensor cores becomes its steps along K.
//!
//! Needs: synchronous products, each with its wait directly after it. Establishes: each product of tensor cores is one step of
//! its atom, with operands in registers that are loaded directly before it. Never: changes the order of additions to an
//! accumulator; touches products of fused multiply-adds or of wgmma. Refuses: nothing. Constructs: removes products; adds
//! nothing.
//!
//! ```text
//!                                          %a = load.matrix left %A
//!                                          %b = load.matrix right %B
//!                                          %f = mma [64, 64, 16] %a, %b acc %c
//! %f = mma [64, 64, 32] %A, %B acc %c  →   %d = wait.mma %f, 0
//! %d = wait.mma %f, 0                      %e = load.matrix left %A at (0, 16)
//!                                          ..
//! ```
//!
//! Steps are unrolled. A product with very many steps becomes a loop over groups of steps, because unrolling more compiles
//! slowly and does not run faster.
//!
//! # Promise
//! The same products over the same elements in the same order.
//!
//! # Argument
//! A product over K is the sum of its steps in ascending order. An atom adds to an accumulator in registers. A step reads as
//! many elements along K as its atom has. Where K ends earlier, there is padding, which is 0 in both operands: buffers are
//! padded to 16, and tiles computed in registers were refilled. In a loop over groups, the address of an operand advances
//! linearly, which the emitter turns into an offset. A group is 64 elements of 16 bits along K, and a swizzle depends on at
//! most 128 bytes of a row, or on fewer than 64 rows.
//!
//! # Breaks it
//! - K that no step divides: tests/agreement/exchanges.rs::what_lies_in_shared_memory_is_zero_past_the_edge.
//! - Products with more steps than are unrolled, with both orders of rows: tests/agreement/grids.rs.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::atom::MmaAtom;
use crate::gpu::{BlockData, Inst, Kernel, Op, Operand, SharedRef, Side, Type, Value, slice_layout};
use crate::layout::Fragment;
use atlas_dsl::DType;
use atlas_dsl::ir::Loc;
use atlas_dsl::op::LoopKind;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Steps of a group, and the number of instructions above which a product becomes a loop over groups.
const STEPS_AT_ONCE: u32 = 4;
const MOST_IN_LINE: u32 = 512;

/// Lowers the products of every block.
pub fn lower_products(k: &mut Kernel, _: &mut Cx<'_>) -> Result<(), CompileError> {
    let mut sums = BTreeMap::new();
    for block in k.blocks.keys().collect::<Vec<_>>() {
        let mut out = Vec::new();
        let mut insts = std::mem::take(&mut k.blocks[block].insts).into_iter().peekable();
        while let Some(inst) = insts.next() {
            let Some(product) = SynchronousProduct::of(k, inst) else {
                out.push(inst);
                continue;
            };
            let flying = k.results[inst][0];
            let Some(wait) = insts.next_if(|&next| k.insts[next] == Op::WaitMma(flying, 0)) else {
                return Err(CompileError::bug("a product without its wait"));
            };
            let sum = product.lower(k, &mut out)?;
            sums.insert(k.results[wait][0], sum);
        }
        k.blocks[block].insts = out;
    }
    for op in k.insts.values_mut() {
        op.replace_operands(|v| sums.get(&v).copied().unwrap_or(v));
    }
    Ok(())
}

/// A product to be lowered.
struct SynchronousProduct {
    a: Operand,
    b: SharedRef,
    acc: Option<Value>,
    atom: MmaAtom,
    shape: (u32, u32, u32),
    dtype: DType,
    layout: Arc<Fragment>,
    loc: Loc,
}

impl SynchronousProduct {
    fn of(k: &Kernel, inst: Inst) -> Option<SynchronousProduct> {
        let Op::Mma { a, b: Operand::Shared(b), acc, atom, shape, accumulate: None } = k.insts[inst] else {
            return None;
        };
        let (dtype, layout) = k.values[k.results[inst][0]].ty.tile()?;
        let synchronous = atom.is_tensor_core() && !atom.row().asynchronous;
        let layout = Arc::new(layout.clone());
        synchronous.then_some(SynchronousProduct { a, b, acc, atom, shape, dtype, layout, loc: k.locs[inst] })
    }

    /// Appends the steps; returns the sum.
    fn lower(&self, k: &mut Kernel, out: &mut Vec<Inst>) -> Result<Value, CompileError> {
        let step = self.atom.row().shape.2;
        let steps = self.shape.2.div_ceil(step);
        // What a ring may be refilled behind stands in line.
        let first = u32::from(self.b.token.is_some());
        let groups = (steps - first) / STEPS_AT_ONCE;
        let looped = if self.is_long(steps) && groups > 1 { groups } else { 0 };
        let mut acc = self.acc;
        for n in 0..if looped == 0 { steps } else { first } {
            acc = Some(self.step(k, n * step, None, acc, out)?);
        }
        if looped > 0 {
            let grouped = self.groups(k, first * step, looped, acc, out)?;
            acc = Some(grouped);
            for n in first + looped * STEPS_AT_ONCE..steps {
                acc = Some(self.step(k, n * step, None, acc, out)?);
            }
        }
        acc.ok_or_else(|| CompileError::bug("a product over nothing"))
    }

    /// True if there are too many steps to unroll. Parts of a fragment have fixed positions, so they cannot be in a loop.
    fn is_long(&self, steps: u32) -> bool {
        let instructions = self.layout.reg_count() / 4;
        matches!(self.a, Operand::Shared(_))
            && self.atom.row().operand.is_half()
            && steps * instructions >= MOST_IN_LINE
    }

    /// A loop over groups of steps.
    fn groups(
        &self,
        k: &mut Kernel,
        from: u32,
        groups: u32,
        acc: Option<Value>,
        out: &mut Vec<Inst>,
    ) -> Result<Value, CompileError> {
        let int = k.scalar_type(DType::I32);
        let lo = self.push(k, Op::Const(0.0), int.clone(), out);
        let hi = self.push(k, Op::Const(f64::from(groups)), int.clone(), out);
        let init = match acc {
            Some(acc) => acc,
            None => self.push(k, Op::Const(0.0), self.sum(), out),
        };
        let body = k.blocks.push(BlockData::default());
        let index = k.push_block_param(body, int);
        let mut acc = k.push_block_param(body, self.sum());
        let mut inside = Vec::new();
        let step = self.atom.row().shape.2;
        for n in 0..STEPS_AT_ONCE {
            let further = Some((index, STEPS_AT_ONCE * step));
            acc = self.step(k, from + n * step, further, Some(acc), &mut inside)?;
        }
        inside.push(k.new_inst(Op::Yield(vec![acc]), vec![], self.loc));
        k.blocks[body].insts = inside;
        let op = Op::Loop { kind: LoopKind::Carried, lo, hi, inits: vec![init], body };
        Ok(self.push(k, op, self.sum(), out))
    }

    /// One step, from a position along K on.
    fn step(
        &self,
        k: &mut Kernel,
        at: u32,
        further: Option<(Value, u32)>,
        acc: Option<Value>,
        out: &mut Vec<Inst>,
    ) -> Result<Value, CompileError> {
        let (m, n, _) = self.shape;
        let step = self.atom.row().shape.2;
        let a = match self.a {
            Operand::Shared(from) => self.load(k, Side::Left, from.further(0, at), [m, step], further, out),
            Operand::Fragment(v) if self.shape.2 == step => v,
            Operand::Fragment(v) => {
                let (dtype, whole) = k.tile(v);
                let layout = slice_layout(whole, 1, at, step)
                    .ok_or_else(|| CompileError::bug("a left operand of which threads hold different parts"))?;
                self.push(k, Op::ExtractSlice { value: v, axis: 1, offset: at }, Type::fragment(dtype, layout), out)
            }
        };
        let b = self.load(k, Side::Right, self.b.further(at, 0), [step, n], further, out);
        let (a, b) = (Operand::Fragment(a), Operand::Fragment(b));
        let op = Op::Mma { a, b, acc, atom: self.atom, shape: (m, n, step), accumulate: None };
        let flying = Type::in_flight(self.dtype, self.layout.clone());
        let flying = self.push(k, op, flying, out);
        Ok(self.push(k, Op::WaitMma(flying, 0), self.sum(), out))
    }

    fn load(
        &self,
        k: &mut Kernel,
        side: Side,
        from: SharedRef,
        shape: [u32; 2],
        further: Option<(Value, u32)>,
        out: &mut Vec<Inst>,
    ) -> Value {
        let layout = self.atom.operand(side, shape, &self.layout);
        let dtype = self.atom.row().operand;
        self.push(k, Op::LoadMatrix { side, from, further }, Type::fragment(dtype, layout), out)
    }

    fn sum(&self) -> Type {
        Type::fragment(self.dtype, self.layout.clone())
    }

    fn push(&self, k: &mut Kernel, op: Op, ty: Type, out: &mut Vec<Inst>) -> Value {
        let inst = k.new_inst(op, vec![ty], self.loc);
        out.push(inst);
        k.results[inst][0]
    }
}
