//! The same kernel gives the same bytes, within one process and in two. `cargo xtask static` compares two builds of
//! Atlas.

use crate::command::prints;
use crate::kernels::{case, shipped, target};
use atlas_codegen::{Machine, compile, compile_with_lines};
use atlas_dsl::{DType, Kernel, Schedule, Verified};

/// Kernels that together use every kind of instruction.
fn kernels() -> Vec<(Verified<Kernel>, Schedule)> {
    vec![
        shipped("memory_read", DType::Bf16, &[2, 37, 48, 96], "BN=64 BH=32 stages=2 warps=4"),
        shipped("memory_read", DType::F32, &[2, 37, 16, 40], "BN=16 BH=32 stages=2 warps=2"),
        shipped("newton_schulz_small", DType::F16, &[2, 48, 192], "warps=4"),
        shipped("rms_norm", DType::Bf16, &[5, 1000], "BN=4 warps=4"),
        shipped("softmax", DType::F32, &[5, 768], "BN=1 warps=4"),
        (case("gemm_tf32"), Schedule { stages: 3, ..Schedule::default() }),
    ]
}

#[test]
fn two_compilations_in_one_process() {
    for (kernel, schedule) in kernels() {
        for arch in ["sm_80", "sm_90"] {
            let image = || compile(&kernel, &schedule, target(arch)).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
            assert_eq!(image(), image());
        }
    }
}

/// A machine either refuses a kernel or does not affect it: one stored kernel serves all machines of a target.
#[test]
fn machines_of_one_target_get_one_text() {
    let machine = |arch: &str| arch.parse::<Machine>().unwrap_or_else(|e| panic!("{e}"));
    let mut kernels: Vec<_> = kernels().into_iter().take(1).collect();
    // 128 KiB of shared memory.
    kernels.push(shipped("memory_read", DType::Bf16, &[2, 128, 64, 256], "BN=128 BH=128 stages=3 warps=8"));
    let mut refused = Vec::new();
    for (kernel, schedule) in kernels {
        for (arch, like) in [("sm_80", "sm_86"), ("sm_80", "sm_87"), ("sm_90", "sm_100"), ("sm_90", "sm_120")] {
            let usual = compile(&kernel, &schedule, machine(arch)).unwrap_or_else(|e| panic!("{arch}: {e}"));
            match compile(&kernel, &schedule, machine(like)) {
                Ok(image) => assert_eq!(image, usual, "{like}"),
                Err(e) if e.is_refusal() => refused.push(like),
                Err(e) => panic!("{like}: {e}"),
            }
        }
    }
    assert_eq!(refused, ["sm_86", "sm_120"]);
}

#[test]
fn lines_of_the_source_change_no_instruction() {
    for (kernel, schedule) in kernels() {
        let compile_error = |e| panic!("{}: {e}", kernel.name);
        let plain = compile(&kernel, &schedule, target("sm_90")).unwrap_or_else(compile_error).ptx;
        let lined = compile_with_lines(&kernel, &schedule, target("sm_90")).unwrap_or_else(compile_error).ptx;
        assert!(lined.contains("\t.loc\t1 "), "{lined}");
        assert_eq!(instructions(&plain), instructions(&lined), "{}", kernel.name);
    }
}

/// The text without location directives, their labels, comments and empty lines.
fn instructions(ptx: &str) -> Vec<String> {
    let code = ptx.lines().map(|l| l.split("//").next().unwrap_or("").trim().to_owned());
    let mark = |l: &str| [".loc", ".file", "$L__tmp", "$L__func_", "{", "}"].iter().any(|m| l.starts_with(m));
    code.filter(|l| !l.is_empty() && !mark(l)).collect()
}

#[test]
fn threads_that_compile_at_once() {
    let kernels = kernels();
    let all = || -> Vec<String> {
        let ptx = |(k, s): &(Verified<Kernel>, Schedule)| compile(k, s, target("sm_80")).map(|image| image.ptx);
        kernels.iter().map(ptx).map(|ptx| ptx.unwrap_or_else(|e| panic!("{e}"))).collect()
    };
    let alone = all();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(all)).collect();
        assert!(workers.into_iter().all(|w| w.join().is_ok_and(|ptx| ptx == alone)));
    });
}

/// The kernels that the command line compiles.
const ASKED: [&[&str]; 4] = [
    &["memory_read", "--config", "BN=64 BH=64 stages=2 warps=4"],
    &["newton_schulz_small", "--dims", "M=48,N=192", "--arch", "sm_90"],
    &["softmax", "--dtype", "f32", "--arch", "sm_89"],
    &["poly4", "--dtype", "f16"],
];

#[test]
fn two_processes() {
    for asked in ASKED {
        let args = [&["compile"], asked].concat();
        let ptx = prints(&args);
        assert!(ptx.contains(".visible .entry"), "{args:?}");
        assert_eq!(prints(&args), ptx, "{args:?}");
    }
}
