//! What the compiler decided for a kernel, as a table for people.

use crate::error::CompileError;
use crate::gpu::{self, Kernel, Op};
use crate::machine::{Machine, Platform};
use crate::pipeline;
use atlas_dsl::{Schedule, Verified};
use std::fmt::Write as _;

/// The placement of a kernel: its threads, buffers, rings, products and barriers.
///
/// # Errors
/// [`CompileError::Refused`] if the schedule does not fit the kernel and machine.
pub fn explain(
    kernel: &Verified<atlas_dsl::Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
) -> Result<String, CompileError> {
    let on = on.into();
    let k = pipeline::run(kernel, schedule, on, |_, _| {})?;
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut out, &k, &on.machine);
    Ok(out)
}

fn write_table(out: &mut String, k: &Kernel, machine: &Machine) -> std::fmt::Result {
    let limit = machine.cta_shared_bytes;
    writeln!(out, "target   {}, {} threads", k.target, k.threads)?;
    writeln!(out, "shared   {} of {limit} bytes", k.shared_bytes())?;
    for (b, data) in k.buffers.iter() {
        let Some(offset) = data.offset else { continue };
        let readers = readers(k, b);
        writeln!(
            out,
            "  {:<10} {} x {} {} at {offset}{}{}",
            data.name,
            data.stages,
            data.dtype,
            data.layout,
            if readers.is_empty() { "" } else { ", read as " },
            readers.join(", ")
        )?;
    }
    for ring in k.rings.values() {
        let names: Vec<&str> = ring.buffers.iter().map(|&b| k.buffers[b].name.as_str()).collect();
        writeln!(out, "ring     {} stages of {}", ring.stages, names.join(", "))?;
    }
    let mut barriers = 0;
    for op in k.blocks.values().flat_map(|b| &b.insts).map(|&i| &k.insts[i]) {
        match op {
            Op::Barrier => barriers += 1,
            Op::Mma { a, atom, shape, .. } => {
                let left = match a {
                    gpu::Operand::Shared(_) => "shared memory",
                    gpu::Operand::Fragment(_) => "registers",
                };
                writeln!(
                    out,
                    "product  {}x{}x{} by {}, left operand from {left}",
                    shape.0,
                    shape.1,
                    shape.2,
                    atom.info().name
                )?;
            }
            _ => {}
        }
    }
    writeln!(out, "barriers {barriers}")?;
    writeln!(out, "tiles    about {} registers per thread", crate::analysis::peak_registers(k))
}

/// How the operations of a kernel read a buffer.
fn readers(k: &Kernel, buffer: gpu::Buffer) -> Vec<&'static str> {
    let mut out = Vec::new();
    let mut add = |what: &'static str| {
        if !out.contains(&what) {
            out.push(what);
        }
    };
    for op in k.insts.values() {
        match op {
            Op::LoadShared(r) if r.buffer == buffer => {
                add(if r.transposed { "transposed fragment" } else { "fragment" })
            }
            Op::Mma { a, b, .. } => {
                for (o, plain, transposed) in [(a, "A", "transposed A"), (b, "B", "transposed B")] {
                    if let gpu::Operand::Shared(r) = o
                        && r.buffer == buffer
                    {
                        add(if r.transposed { transposed } else { plain });
                    }
                }
            }
            _ => {}
        }
    }
    out
}
