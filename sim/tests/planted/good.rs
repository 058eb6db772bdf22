//! The kernels in which mistakes are planted: their texts, their launches, and a check that nothing is found in them.

use super::{atlas, hopper};
use crate::harness::{self, Failure};
use crate::index::{self, Kernel, Param};
use crate::setup::Setup;
use crate::{elementwise, integers, products, programs, rows};
use atlas_sim::fault::Fault;
use atlas_sim::launch::Policy;
use atlas_sim::program::Program;
use std::path::Path;

/// Schedules, in the order in which they are tried.
pub(crate) const SCHEDULES: [(Policy, u64); 6] = [
    (Policy::RoundRobin, 0),
    (Policy::Adversarial, 1),
    (Policy::Adversarial, 2),
    (Policy::Random, 3),
    (Policy::Random, 4),
    (Policy::Random, 5),
];

/// Where the text is.
#[derive(Clone, Copy)]
enum Source {
    /// In the index of compiled kernels, by the name of the set-up.
    Index,
    /// PTX that Atlas once emitted. It is kept, so that edits of it stay the same when the compiler changes.
    Emitted(&'static str),
    /// Beside this file.
    Written,
}

/// A kernel without mistakes.
pub(crate) struct Base {
    pub(crate) name: &'static str,
    source: Source,
    /// Names of the parameters, if the text has none.
    params: &'static [&'static str],
    shared: u32,
    pub(crate) setup: fn() -> Setup,
}

impl Base {
    const fn foreign(name: &'static str, setup: fn() -> Setup) -> Base {
        Base { name, source: Source::Index, params: &[], shared: 0, setup }
    }

    const fn atlas(
        (name, path): (&'static str, &'static str),
        params: &'static [&'static str],
        shared: u32,
        setup: fn() -> Setup,
    ) -> Base {
        Base { name, source: Source::Emitted(path), params, shared, setup }
    }

    const fn written(name: &'static str, shared: u32, setup: fn() -> Setup) -> Base {
        Base { name, source: Source::Written, params: &[], shared, setup }
    }

    /// The text and how it is launched.
    pub(crate) fn kernel(&self) -> Kernel {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = match self.source {
            Source::Index => return index::kernel(self.name),
            Source::Emitted(file) => folder.join(format!("tests/planted/emitted/{file}.ptx")),
            Source::Written => folder.join(format!("tests/planted/{}.ptx", self.name)),
        };
        let file = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        // A comment of the compiler stands before.
        let text = file[file.find(".version").expect("PTX")..].to_owned();
        let entry = text.split_once(".entry ").expect("an entry").1.split('(').next().unwrap().to_owned();
        let program = harness::compile(&text, &entry).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let named = |i: usize, own: &str| self.params.get(i).map_or(own.to_owned(), |&name| name.to_owned());
        let slots = program.params.iter().enumerate();
        let params = slots.map(|(i, p)| Param { name: named(i, &p.name), bytes: p.bytes as usize }).collect();
        Kernel {
            entry,
            params,
            target: program.target,
            block: program.required_threads.expect("threads of a CTA"),
            cluster: program.cluster.unwrap_or([1; 3]),
            dynamic_shared: self.shared,
            maps: serde_json::Value::Null,
            text,
        }
    }
}

/// All of them.
pub(crate) const BASES: &[Base] = &[
    Base::atlas(("rms_norm_bf16", "sm_80_rms_norm_bf16"), &["x", "w", "y", "eps", "n"], 8, atlas::rms_norm),
    Base::atlas(("softmax_bf16", "sm_90_softmax_bf16"), &["x", "y", "n"], 0, atlas::softmax),
    Base::atlas(
        ("gemm_tf32", "sm_80_gemm_tf32"),
        &["a", "b", "c", "m", "n", "k", "a.stride", "b.stride", "c.stride"],
        8192,
        atlas::gemm,
    ),
    Base::atlas(
        ("memory_read_bf16", "sm_90_memory_read_bf16"),
        &[
            "x",
            "w2",
            "w1",
            "r",
            "y",
            "g",
            "n",
            "h",
            "x.stride",
            "w2.stride",
            "w1.stride",
            "w1.row",
            "r.stride",
            "y.stride",
        ],
        9216,
        atlas::memory_read,
    ),
    Base::atlas(
        ("newton_schulz_sm_80", "sm_80_newton_schulz_small_bf16"),
        &["g", "y", "n"],
        1536,
        atlas::newton_schulz,
    ),
    Base::atlas(
        ("newton_schulz_sm_90", "sm_90_newton_schulz_small_bf16"),
        &["g", "y", "n"],
        1536,
        atlas::newton_schulz,
    ),
    Base::foreign("vector_add", elementwise::vector_add),
    Base::foreign("saxpy", elementwise::saxpy),
    Base::foreign("barrier_copy", elementwise::barrier_copy),
    Base::foreign("histogram", integers::histogram),
    Base::foreign("bitonic_sort", integers::bitonic_sort),
    Base::foreign("scan", integers::scan),
    Base::foreign("interpreter", programs::interpreter),
    Base::foreign("atomics", programs::atomics),
    Base::foreign("softmax_rows", rows::softmax_rows),
    Base::foreign("last_block", rows::last_block),
    Base::foreign("cluster_reduce", rows::cluster_reduce),
    Base::foreign("bulk_reduce", rows::bulk_reduce),
    Base::foreign("sgemm_tiled", products::sgemm_tiled),
    Base::foreign("mma_cp_async", products::mma_cp_async),
    Base::foreign("triton_matmul_sm80", products::triton_matmul_sm80),
    Base::foreign("triton_matmul_tma", products::triton_matmul_tma),
    Base::foreign("wgmma_tma", products::wgmma_tma),
    Base::foreign("wgmma_specialised", products::wgmma_specialised),
    Base::foreign("bulk_copy", crate::hopper::bulk_copy),
    Base::foreign("multicast", crate::hopper::multicast),
    Base::written("ring", 22560, hopper::ring),
    Base::written("pingpong", 20512, hopper::pingpong),
    Base::written("cluster_ring", 20512, hopper::cluster_ring),
    Base::written("written_operand", 10240, hopper::written_operand),
    Base::written("written_map", 1032, hopper::written_map),
    Base::written("flag", 0, hopper::flag),
    Base::written("split_sum", 0, hopper::split_sum),
];

/// A failure, and the schedule that led to it.
pub(crate) type Found = ((Policy, u64), Failure);

/// The first failure that a schedule leads to.
pub(crate) fn first_failure(setup: &Setup, kernel: &Kernel, program: &Result<Program, Fault>) -> Option<Found> {
    let program = match program {
        Ok(program) => program,
        Err(fault) => return Some((SCHEDULES[0], Failure::Fault(Box::new(fault.clone())))),
    };
    SCHEDULES.into_iter().find_map(|(policy, seed)| {
        Some(((policy, seed), harness::execute(setup, kernel, program, policy, seed).err()?))
    })
}

#[test]
fn nothing_is_found_in_good_kernels() {
    let failures: Vec<String> = BASES
        .iter()
        .filter_map(|base| {
            let kernel = base.kernel();
            let program = harness::compile(&kernel.text, &kernel.entry);
            let (schedule, failure) = first_failure(&(base.setup)(), &kernel, &program)?;
            Some(format!("{} under {schedule:?}: {failure}", base.name))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
