//! The compiler's decisions about a kernel and their reasons, as text for people.

use crate::arch::Platform;
use crate::error::CompileError;
use crate::gpu::{self, Kernel, Op};
use crate::notes::{Note, Notes, place};
use crate::packing::Workspace;
use crate::{packing, pipeline};
use atlas_dsl::ir::ParamKind;
use atlas_dsl::{Schedule, Verified};
use std::fmt;

/// The decisions about a kernel, and its shared buffers.
#[derive(Clone, Debug)]
pub struct Explained {
    /// In the order in which they were made.
    pub notes: Vec<Note>,
    /// The number of CTAs that share each program.
    pub splits: u32,
    /// Bytes that the CTAs of one program leave for each other in global memory: 0 if each has its own program.
    pub partial_bytes: u64,
    /// The workspaces of packed operands, each with the names of its tensor's dims.
    pub workspaces: Vec<(Workspace, Vec<String>)>,
    /// The target and the threads.
    head: String,
    /// One line per buffer.
    buffers: Vec<String>,
}

/// The decisions of each pass for a kernel, with their reasons: threads, products, loads, rings, registers, memory and
/// barriers.
///
/// # Errors
/// [`CompileError::Refused`] if the schedule does not fit the kernel and machine, with one that does if one is near.
pub fn explain(
    kernel: &Verified<atlas_dsl::Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
) -> Result<Explained, CompileError> {
    let (on, mut notes) = (on.into(), Notes::kept());
    let launch = packing::launch_kernels(kernel.clone(), schedule, on.target)?;
    let kernel = &launch.kernel;
    let k = pipeline::run_with_notes(kernel, schedule, on, &mut notes, |_, _| {})
        .map_err(|e| pipeline::with_what_fits(e, kernel, schedule, on))?;
    let of_workspace = |w: &Workspace| match &kernel.params[w.of].kind {
        ParamKind::Tensor { dims, .. } => dims.iter().map(|&d| kernel.dims[d].name.clone()).collect(),
        ParamKind::Scalar { .. } => Vec::new(),
    };
    Ok(Explained {
        notes: launch.notes().into_iter().chain(notes.into_vec()).collect(),
        splits: k.index_map.splits,
        partial_bytes: k.partial_bytes(),
        workspaces: launch.workspaces.iter().map(|w| (w.clone(), of_workspace(w))).collect(),
        head: format!("{}, {} threads", k.target, k.threads),
        buffers: buffers(&k),
    })
}

/// Each buffer with its stages, layout, offset and readers.
fn buffers(k: &Kernel) -> Vec<String> {
    let mut lines = Vec::new();
    for (b, data) in k.buffers.iter() {
        let Some(offset) = data.offset else { continue };
        let readers = readers(k, b);
        lines.push(format!(
            "{:<10} {} x {} {} at {offset}{}{}",
            data.name,
            data.stages,
            data.dtype,
            data.layout,
            if readers.is_empty() { "" } else { ", read as " },
            readers.join(", ")
        ));
    }
    lines
}

impl fmt::Display for Explained {
    /// A line per note: subject, source location, decision, reason. Then a line per buffer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "target    {}", self.head)?;
        let wide =
            |text: fn(&Note) -> String, least| self.notes.iter().map(|n| text(n).len()).max().unwrap_or(0).max(least);
        let (subject, at) = (wide(|n| n.subject.clone(), 8), wide(|n| place(n.loc), 0));
        let decision = wide(|n| n.decision.clone(), 0);
        for n in &self.notes {
            let at_text = place(n.loc);
            writeln!(f, "{:<subject$} {at_text:<at$} {:<decision$}  {}", n.subject, n.decision, n.because)?;
        }
        if !self.buffers.is_empty() {
            writeln!(f, "buffers")?;
        }
        for line in &self.buffers {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
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
            Op::LoadMatrix { side, from, .. } if from.buffer == buffer => add(match (side, from.transposed) {
                (gpu::Side::Left, false) => "A",
                (gpu::Side::Left, true) => "transposed A",
                (gpu::Side::Right, false) => "B",
                (gpu::Side::Right, true) => "transposed B",
            }),
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
