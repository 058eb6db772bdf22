//! What the emitter can say: the last verifier, whose ticket the emitter takes.
//!
//! GPU IR says more than is lowered today. Whatever the emitter has no instructions for is refused here, by name, so that
//! nothing verified loses its meaning on the way to LLVM. A field that the emitter does not read has here the one value
//! that needs no instruction.

use super::atom::MmaAtom;
use super::{CopyAtom, IndexMap, Kernel, Op, Operand, Owner, Scope, SharedRef};
use atlas_dsl::DType;
use atlas_dsl::op::UnaryOp;
use std::ops::Deref;

/// A kernel of which every operation and every field has its instructions. Made by [`verify_emittable`] alone.
#[derive(Clone, Copy, Debug)]
pub struct Emittable<'k>(&'k Kernel);

impl Deref for Emittable<'_> {
    type Target = Kernel;

    fn deref(&self) -> &Kernel {
        self.0
    }
}

impl<'k> Emittable<'k> {
    /// The kernel.
    pub fn kernel(self) -> &'k Kernel {
        self.0
    }
}

/// Checks that a kernel, verified and through all passes, can be emitted as it stands; else says what cannot.
pub fn verify_emittable(k: &Kernel) -> Result<Emittable<'_>, String> {
    shape(k)?;
    for inst in k.blocks.values().flat_map(|b| &b.insts) {
        operation(k, &k.insts[*inst])?;
        for result in &k.results[*inst] {
            unary(&k.insts[*inst], k.values[*result].ty.tile().map(|(dtype, _)| dtype))?;
        }
    }
    Ok(Emittable(k))
}

fn refuse<T>(what: impl Into<String>) -> Result<T, String> {
    Err(what.into())
}

/// Roles, clusters, the index map, buffers and rings.
fn shape(k: &Kernel) -> Result<(), String> {
    let mut roles = k.roles.values();
    match (roles.next(), roles.next()) {
        (Some(role), None) if role.scope == Scope::Cta && role.registers.is_none() => {}
        _ => return refuse("a kernel of several roles, or of one that sets its registers, is not lowered yet"),
    }
    if k.cluster != (1, 1) {
        return refuse("clusters of CTAs are not lowered yet");
    }
    if !matches!(k.index_map, IndexMap::Linear(_)) {
        return refuse("only the linear index map is lowered yet");
    }
    for buffer in k.buffers.values() {
        if buffer.owner != Owner::Cta || buffer.offset.is_none() {
            return refuse(format!("buffer `{}` belongs to a cluster, or has no place in shared memory", buffer.name));
        }
    }
    for ring in k.rings.values() {
        if ring.tx_bytes != 0 || (ring.producer, ring.consumer) != (Scope::Cta, Scope::Cta) {
            return refuse("a ring that the copy engine or a part of the CTA fills is not lowered yet");
        }
    }
    Ok(())
}

fn operation(k: &Kernel, op: &Op) -> Result<(), String> {
    match op {
        Op::Mma { a, b, acc: _, atom, shape: _, accumulate } => {
            if accumulate.is_some() {
                return refuse("a product that starts from zero on a condition is not lowered yet");
            }
            match (atom, a, b) {
                (MmaAtom::WgmmaBf16, ..) => refuse("wgmma is not lowered yet"),
                (MmaAtom::M16N8K16Bf16 | MmaAtom::M16N8K16F16, _, Operand::Shared(_))
                | (MmaAtom::M16N8K8Tf32 | MmaAtom::FmaF32 | MmaAtom::FmaF64, Operand::Shared(_), Operand::Shared(_)) => {
                    Ok(())
                }
                _ => refuse(format!("{} takes this operand from shared memory", atom.info().name)),
            }
        }
        Op::WaitMma(_, pending) if *pending != 0 => refuse("a product left in flight is not lowered yet"),
        Op::Copy { atom, param: _, slices, to: _ } => match atom {
            CopyAtom::Tma | CopyAtom::TmaMulticast | CopyAtom::TmaStore => {
                refuse("the tensor copy engine is not lowered yet")
            }
            CopyAtom::CpAsync(_) | CopyAtom::Direct => match slices.iter().filter(|s| s.len().is_some()).count() {
                0..=2 => Ok(()),
                _ => refuse("a tile of rank above 2 cannot be copied to shared memory"),
            },
        },
        Op::LoadShared(at) | Op::StoreShared { to: at, value: _ } => no_bool(k, at),
        Op::Convert(_) | Op::Programs(_) | Op::Fence(_) | Op::Drain(_) => {
            refuse("an operation that a pass should have lowered")
        }
        _ => Ok(()),
    }
}

/// A bit is no byte: vectors of bits would be packed in memory.
fn no_bool(k: &Kernel, at: &SharedRef) -> Result<(), String> {
    if k.buffers[at.buffer].dtype == DType::Bool {
        return refuse("a tile of bool would have to pass through shared memory; make it an i32 first");
    }
    Ok(())
}

/// Functions that have no expansion in f64.
fn unary(op: &Op, dtype: Option<DType>) -> Result<(), String> {
    match (op, dtype) {
        (Op::Unary(UnaryOp::Sqrt | UnaryOp::Rsqrt, _), _) => Ok(()),
        (Op::Unary(f, _), _) if f.row().exact => Ok(()),
        (Op::Unary(f, _), Some(DType::F64)) => refuse(format!("`{}` of f64 has no GPU lowering", f.name())),
        _ => Ok(()),
    }
}
