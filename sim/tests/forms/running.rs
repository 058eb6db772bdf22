//! Every form's program through the parser, the decoder and the machine.

use super::CASES;
use atlas_sim::alu::Arithmetic;
use atlas_sim::decode::compile;
use atlas_sim::forms::{Case, ENTRY};
use atlas_sim::launch::{Launch, Options, run};
use atlas_sim::memory::{Global, Permission};
use atlas_sim::syntax::parse;
use rayon::prelude::*;

/// The output of a program, or what stopped it.
fn execute(case: &Case) -> Result<Vec<u8>, String> {
    let module = parse(&case.ptx).map_err(|fault| fault.to_string())?;
    let program = compile(&module, Some(ENTRY), Arithmetic::Ieee).map_err(|fault| fault.to_string())?;
    let mut memory = Global::new();
    let bytes = case.count() * case.result_bytes as usize;
    let out = memory.alloc_uninitialized(bytes);
    let inputs = case.inputs.iter().map(|input| memory.alloc(input.buffer(), Permission::ReadWrite));
    let mut params: Vec<u8> = [out].into_iter().chain(inputs).flat_map(u64::to_le_bytes).collect();
    params.extend((case.count() as u32).to_le_bytes());
    // More threads than elements, so that the guard matters.
    let grid = [case.count() as u32 / 128 + 1, 1, 1];
    let launch =
        Launch { program: &program, grid, block: [128, 1, 1], cluster: None, shared_bytes: 0, params: &params };
    run(&launch, &mut memory, &Options::default()).map_err(|fault| fault.to_string())?;
    memory.read(out, bytes as u64).map(<[u8]>::to_vec).map_err(|stray| stray.to_string())
}

#[test]
fn every_program_makes_what_its_instruction_should() {
    let failures: Vec<String> = CASES
        .par_iter()
        .filter_map(|case| match execute(case) {
            Err(fault) => Some(format!("{}: {fault}", case.name)),
            Ok(output) => {
                let wrong = case.disagreements(&output);
                wrong.first().map(|first| format!("{}: {} elements, first {first:x?}", case.name, wrong.len()))
            }
        })
        .collect();
    assert!(failures.is_empty(), "{} programs fail:\n{}", failures.len(), failures.join("\n"));
}
