//! Launches PTX text in tests, with buffers of words, under all policies.

use crate::alu::Arithmetic;
use crate::decode::compile;
use crate::fault::{Fault, FaultKind, Result};
use crate::launch::{Launch, Options, Policy, Report, run};
use crate::memory::{Global, Permission};
use crate::program::Program;
use crate::syntax::parse;

/// Text of a kernel `k` with this many 64-bit parameters `p0..`.
pub(super) fn kernel(params: usize, declarations: &str, body: &str) -> String {
    let params: Vec<String> = (0..params).map(|i| format!(".param .u64 p{i}")).collect();
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k({})\n{{\n.reg .pred %p<8>;\n\
         .reg .b16 %h<8>;\n.reg .b32 %r<40>;\n.reg .b64 %d<40>;\n.reg .f32 %f<40>;\n{declarations}\n{body}\n}}\n",
        params.join(", ")
    )
}

/// How to launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchShape {
    pub(super) grid: u32,
    pub(super) block: u32,
    pub(super) cluster: u32,
    pub(super) shared: u32,
    pub(super) budget: u64,
    /// Parameters after the buffers.
    pub(super) scalars: &'static [u64],
}

/// One CTA of this many threads.
pub(super) fn block(threads: u32) -> LaunchShape {
    LaunchShape { grid: 1, block: threads, cluster: 0, shared: 0, budget: 1 << 20, scalars: &[] }
}

/// Decodes text.
pub(super) fn program(text: &str) -> Program {
    let module = parse(text).unwrap_or_else(|f| panic!("{f}\n{text}"));
    compile(&module, None, Arithmetic::Ieee).unwrap_or_else(|f| panic!("{f}\n{text}"))
}

/// Runs text under one policy, with buffers as parameters. Returns their content afterwards.
pub(super) fn run_with(
    text: &str,
    shape: LaunchShape,
    buffers: &[Vec<u32>],
    (policy, seed): (Policy, u64),
) -> Result<(Vec<Vec<u32>>, Report)> {
    let program = program(text);
    let mut memory = Global::new();
    let addresses: Vec<u64> = buffers
        .iter()
        .map(|b| memory.alloc(b.iter().flat_map(|w| w.to_le_bytes()).collect(), Permission::ReadWrite))
        .collect();
    let mut params = vec![0; program.param_bytes as usize];
    for (slot, value) in program.params.iter().zip(addresses.iter().chain(shape.scalars)) {
        let to = params.iter_mut().skip(slot.offset as usize).take(slot.bytes as usize);
        to.zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
    }
    let launch = Launch {
        program: &program,
        grid: [shape.grid, 1, 1],
        block: [shape.block, 1, 1],
        cluster: (shape.cluster > 0).then_some([shape.cluster, 1, 1]),
        shared_bytes: shape.shared,
        params: &params,
    };
    let options = Options { policy, seed, budget: shape.budget, ..Options::default() };
    let report = run(&launch, &mut memory, &options)?;
    let words = |(address, buffer): (&u64, &Vec<u32>)| {
        let bytes = memory.read(*address, buffer.len() as u64 * 4).unwrap();
        bytes.chunks(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
    };
    Ok((addresses.iter().zip(buffers).map(words).collect(), report))
}

/// Policies and seeds under which a correct kernel gives the same result.
pub(super) const SCHEDULES: [(Policy, u64); 6] = [
    (Policy::RoundRobin, 0),
    (Policy::Adversarial, 0),
    (Policy::Adversarial, 5),
    (Policy::Random, 1),
    (Policy::Random, 2),
    (Policy::Random, 3),
];

/// Runs text under all policies. The buffers have to be the same each time.
pub(super) fn outputs(text: &str, shape: LaunchShape, buffers: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut first = None;
    for schedule in SCHEDULES {
        let (out, _) = run_with(text, shape, buffers, schedule).unwrap_or_else(|f| panic!("{schedule:?}: {f}\n{text}"));
        assert_eq!(first.get_or_insert_with(|| out.clone()), &out, "{schedule:?}");
    }
    first.unwrap()
}

/// The fault that ends text. It has to be of this kind under all policies.
pub(super) fn fault(text: &str, shape: LaunchShape, buffers: &[Vec<u32>], kind: FaultKind) -> Fault {
    let mut first = None;
    for schedule in SCHEDULES {
        match run_with(text, shape, buffers, schedule) {
            Ok(_) => panic!("{schedule:?}: no fault\n{text}"),
            Err(f) => {
                assert_eq!(f.kind, kind, "{schedule:?}: {f}\n{text}");
                first.get_or_insert(f);
            }
        }
    }
    first.unwrap()
}
