//! Launches a set-up in the simulator under every policy and compares the memory afterwards.

use crate::data::Format;
use crate::index::{self, Kernel};
use crate::setup::{Matrix, Setup, Value};
use atlas_sim::alu::Arithmetic;
use atlas_sim::fault::Fault;
use atlas_sim::launch::{Launch, Options, Policy, run};
use atlas_sim::memory::{Global, Permission};
use atlas_sim::program::Program;
use atlas_sim::tensor::swizzle::Swizzle;
use atlas_sim::tma::{Element, TensorMap};
use atlas_sim::{decode, syntax};
use std::collections::BTreeMap;

/// Every policy, with several seeds for those that use one.
pub(crate) const SCHEDULES: [(Policy, u64); 5] = [
    (Policy::RoundRobin, 0),
    (Policy::Adversarial, 1),
    (Policy::Adversarial, 2),
    (Policy::Random, 3),
    (Policy::Random, 4),
];

/// PTX text to an executable entry.
pub(crate) fn compile(text: &str, entry: &str) -> Result<Program, Fault> {
    decode::compile(&syntax::parse(text)?, Some(entry), Arithmetic::Ieee)
}

/// Launches under every policy. All must succeed with the expected memory.
pub(crate) fn check(setup: &Setup) {
    check_kernel(setup, &index::kernel(setup.name));
}

/// The same with another text of the kernel.
pub(crate) fn check_kernel(setup: &Setup, kernel: &Kernel) {
    let program = compile(&kernel.text, &kernel.entry).unwrap_or_else(|e| panic!("{}: {e}", setup.name));
    for (policy, seed) in SCHEDULES {
        if let Err(message) = execute(setup, kernel, &program, policy, seed) {
            panic!("{} under {policy:?} {seed}: {message}", setup.name);
        }
    }
}

/// The failure of a launch.
#[derive(Debug)]
pub(crate) enum Failure {
    Fault(Box<Fault>),
    Result(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Fault(fault) => fault.fmt(f),
            Failure::Result(message) => f.write_str(message),
        }
    }
}

/// One launch.
pub(crate) fn execute(
    setup: &Setup,
    kernel: &Kernel,
    program: &Program,
    policy: Policy,
    seed: u64,
) -> Result<(), Failure> {
    let mut global = Global::new();
    let mut addresses = BTreeMap::new();
    for (name, buffer) in &setup.buffers {
        let permission = if buffer.writable { Permission::ReadWrite } else { Permission::ReadOnly };
        let address = match &buffer.initial {
            Some(bytes) => global.alloc(bytes.clone(), permission),
            None => global.alloc_uninitialized(buffer.bytes),
        };
        addresses.insert(name.as_str(), address);
    }
    let params = pack(setup, kernel, program, &addresses);
    let launch = Launch {
        program,
        grid: setup.grid,
        block: kernel.block,
        cluster: None,
        shared_bytes: kernel.dynamic_shared,
        params: &params,
    };
    // Far more than any of these kernels takes: what spins forever ends soon.
    let options = Options { policy, seed, budget: 1 << 20, ..Options::default() };
    run(&launch, &mut global, &options).map_err(|f| Failure::Fault(Box::new(f)))?;
    for (name, buffer) in &setup.buffers {
        let Some(expect) = &buffer.expect else { continue };
        let got = global.read(addresses[name.as_str()], buffer.bytes as u64).unwrap();
        expect.compare(got).map_err(|e| Failure::Result(format!("{name}: {e}")))?;
    }
    Ok(())
}

/// The parameter space: values by the names of the index, at the offsets of the program.
fn pack(setup: &Setup, kernel: &Kernel, program: &Program, addresses: &BTreeMap<&str, u64>) -> Vec<u8> {
    let mut space = vec![0; program.param_bytes as usize];
    for (param, slot) in kernel.params.iter().zip(&program.params) {
        let name = param.name.as_str();
        let bytes = match setup.values.get(name) {
            Some(Value::Bytes(bytes)) => bytes.clone(),
            Some(Value::Pointer) => addresses[name].to_le_bytes().to_vec(),
            Some(Value::Map(matrix)) => tensor_map(matrix, addresses[name]).to_bytes().to_vec(),
            // Pointers that Triton adds for kernels that need scratch memory, which none of these does.
            None if name.ends_with("_scratch") => vec![0; 8],
            None => panic!("{}: nothing is set for {name}", setup.name),
        };
        assert_eq!(bytes.len(), param.bytes, "{}: {name}", setup.name);
        space[slot.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    space
}

fn tensor_map(matrix: &Matrix, address: u64) -> TensorMap {
    let element = match matrix.format {
        Format::I8 | Format::E4m3 => Element::U8,
        Format::I32 => Element::I32,
        Format::F16 => Element::F16,
        Format::Bf16 => Element::Bf16,
        Format::F32 => Element::F32,
        Format::F64 => Element::F64,
    };
    let swizzle = match matrix.swizzle_bytes {
        0 | 16 => Swizzle::None,
        32 => Swizzle::B32,
        64 => Swizzle::B64,
        _ => Swizzle::B128,
    };
    let dense = TensorMap::dense(element, address, &[matrix.columns, matrix.rows], &matrix.tile);
    let map = TensorMap { swizzle, ..dense };
    map.validate().expect("a map that the driver would encode");
    map
}
