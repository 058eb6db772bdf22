//! A fault of the simulator as a runtime error: the kernel, the line of PTX, the threads involved, the source.

use atlas_codegen::KernelImage;
use atlas_sim::fault::{Fault, Party};
use atlas_sim::program::Program;
use std::fmt;
use std::sync::Arc;

/// A fault that the simulator found in a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct SimFault {
    /// The kernel's entry.
    pub kernel: String,
    /// The device.
    pub device: String,
    /// The simulator's finding: its kind, its message, and the threads involved.
    pub fault: Fault,
    /// The threads involved as text, the one at fault first.
    parties: Vec<String>,
    image: Arc<KernelImage>,
}

impl SimFault {
    pub(crate) fn new(device: &str, image: &Arc<KernelImage>, program: Option<&Program>, fault: Fault) -> SimFault {
        let (kernel, device) = (image.entry.clone(), device.to_owned());
        let parties = parties(&fault, image, program);
        SimFault { kernel, device, fault, parties, image: image.clone() }
    }

    /// The same fault with source locations, taken from a program of the same instructions that has them.
    pub(crate) fn with_source(mut self, program: &Program, lined: &Program) -> SimFault {
        let source = |line: u32| {
            let at = program.code.iter().position(|i| i.line == line)?;
            lined.locs.get(at).copied().flatten()
        };
        for party in self.fault.party.iter_mut().chain(self.fault.others.iter_mut().map(|(p, _)| p)) {
            party.source = party.source.or_else(|| source(party.line));
        }
        self.parties = parties(&self.fault, &self.image, Some(lined));
        self
    }
}

/// The threads involved as text, the one at fault first.
fn parties(fault: &Fault, image: &KernelImage, program: Option<&Program>) -> Vec<String> {
    let first = fault.party.iter().map(|p| format!("at {}", place(p, image, program)));
    first.chain(fault.others.iter().map(|(p, what)| format!("{what} at {}", place(p, image, program)))).collect()
}

/// `PTX line 88 (st.shared.b32 [%r1], %r2) from softmax.rs:12:9, CTA 0 warp 1 lane 3`.
fn place(party: &Party, image: &KernelImage, program: Option<&Program>) -> String {
    let text = image.ptx.lines().nth((party.line as usize).saturating_sub(1)).unwrap_or_default();
    let text = text.trim().trim_end_matches(';').replace('\t', " ");
    let source = party.source.map(|loc| {
        let files = program.map_or(&[][..], |p| &p.files);
        let file = files.iter().find(|(number, _)| *number == loc.file).map_or("?", |(_, name)| name);
        format!(" from {file}:{}:{}", loc.line, loc.column)
    });
    format!("PTX line {} ({text}){}, {}", party.line, source.unwrap_or_default(), party.place)
}

impl fmt::Display for SimFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "error[ATL627]: `{}` on {}: {:?}: {}",
            self.kernel, self.device, self.fault.kind, self.fault.message
        )?;
        self.parties.iter().try_for_each(|party| write!(f, "; {party}"))
    }
}
