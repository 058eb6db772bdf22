//! Reviewed PTX and GPU IR of each op, and the properties that the PTX must have by design.
//!
//! A snapshot shows every change. The checks beside it reject mistakes that a reviewer might accept.
//! Sizes are small, so that a snapshot can be read.

use crate::kernels::{case, shipped, target};
use atlas_codegen::{Stage, compile_stages};
use atlas_dsl::{DType, Kernel, Schedule, Verified};
use std::path::Path;

/// The properties that the PTX of a kernel must have.
struct Intent {
    /// The exact counts of these instructions.
    exactly: &'static [(&'static str, usize)],
    /// Instructions that must occur.
    some: &'static [&'static str],
    /// Text that must not occur.
    none: &'static [&'static str],
    /// The bytes of the narrowest access to global memory, including `cp.async`.
    narrowest: usize,
}

const MMA_BF16: &str = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32";
const MMA_TF32: &str = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32";
const LDMATRIX: &str = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
const LDMATRIX_TRANSPOSED: &str = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16";
const COPY: &str = "cp.async.cg.shared.global";
const BARRIER: &str = "bar.sync";
const SHUFFLE: &str = "shfl.sync.bfly.b32";

/// The opcodes of the instructions, without labels, braces and predicates.
fn opcodes(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(|line| {
        let line = line.trim_start().trim_start_matches(['{', '}']).trim_start();
        let line = if line.starts_with('@') { line.split_once(' ')?.1.trim_start() } else { line };
        line.split([' ', '\t', ';']).next().filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
    })
}

/// The bytes that a global memory access moves per thread; `None` for other instructions.
fn global_bytes(line: &str) -> Option<usize> {
    let opcode = opcodes(line).next()?;
    if opcode.starts_with("cp.async.c") && opcode.ends_with(".global") {
        return line.rsplit(", ").find_map(|operand| operand.trim_end_matches(';').parse().ok());
    }
    if !opcode.starts_with("ld.global") && !opcode.starts_with("st.global") {
        return None;
    }
    let parts: Vec<&str> = opcode.split('.').collect();
    let count = parts.iter().find_map(|p| p.strip_prefix('v')?.parse().ok()).unwrap_or(1);
    let bits: usize = parts.last()?.trim_start_matches(char::is_alphabetic).parse().ok()?;
    Some(count * bits / 8)
}

/// The violated properties of a kernel's PTX.
fn faults(ptx: &str, intent: &Intent) -> Vec<String> {
    let count = |what: &str| opcodes(ptx).filter(|&opcode| opcode == what).count();
    let mut faults = Vec::new();
    for &(what, n) in intent.exactly {
        if count(what) != n {
            faults.push(format!("{} `{what}` instead of {n}", count(what)));
        }
    }
    faults.extend(intent.some.iter().filter(|what| count(what) == 0).map(|what| format!("no `{what}`")));
    // Local memory, undefined functions, waits for the whole device, and an unused input cache.
    let never = [".local", ".extern .func", "membar", "fence.sc", "call.uni", "brx.idx"];
    let found = never.iter().chain(intent.none).filter(|what| ptx.contains(**what));
    faults.extend(found.map(|what| format!("there is a `{what}`")));
    faults.extend(
        opcodes(ptx)
            .filter(|o| o.starts_with("ld.global") && !o.contains(".nc"))
            .map(|o| format!("`{o}` is not `.nc`")),
    );
    for line in ptx.lines() {
        if global_bytes(line).is_some_and(|bytes| bytes < intent.narrowest) {
            faults.push(format!("narrower than {} bytes: {}", intent.narrowest, line.trim()));
        }
    }
    faults
}

/// Compares with `snapshots/FOLDER/NAME.snap`.
fn snapshot(folder: &str, name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new(crate::ROOT).join("snapshots").join(folder));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// PTX without the lines that name the LLVM version.
fn without_producer(ptx: &str) -> String {
    ptx.lines().filter(|l| !l.starts_with("//")).map(|l| l.trim_end().to_owned() + "\n").collect()
}

/// Checks a kernel's PTX for each arch, then compares it; GPU IR too, for the last arch.
#[track_caller]
fn check(name: &str, (kernel, schedule): (Verified<Kernel>, Schedule), arches: &[&str], intent: &Intent) {
    let mut gpu = String::new();
    for arch in arches {
        let texts = compile_stages(&kernel, &schedule, target(arch), &[Stage::Gpu, Stage::Ptx]);
        let [(_, ir), (_, ptx)] = &texts.unwrap_or_else(|e| panic!("{name} for {arch}: {e}"))[..] else {
            panic!("two stages were asked for");
        };
        let ptx = without_producer(ptx);
        let head = format!(".target {arch}\n");
        assert!(ptx.contains(&head), "{name}: no `{head}`");
        let faults = faults(&ptx, intent);
        assert!(faults.is_empty(), "{name} for {arch}:\n{}\n\n{ptx}", faults.join("\n"));
        snapshot(&format!("ptx/{arch}"), name, &ptx);
        gpu.clone_from(ir);
    }
    snapshot("gpu", name, &gpu);
}

const BOTH: &[&str] = &["sm_80", "sm_90"];

/// Two products per step on tensor cores. The second uses registers from the first; weights go through a ring.
#[test]
fn memory_read_bf16() {
    let kernel = shipped("memory_read", DType::Bf16, &[2, 64, 32, 64], "BN=16 BH=32 stages=2 warps=1");
    let intent = Intent {
        // Each product has 2 k-steps and 4 columns of 8, and so do the steps of the loop's second half.
        exactly: &[(MMA_BF16, 16), (BARRIER, 2)],
        some: &[LDMATRIX, COPY, "cp.async.commit_group", "cp.async.wait_group", "cvt.rn.bf16x2.f32"],
        // The result of the first product stays in registers.
        none: &["st.shared"],
        narrowest: 4,
    };
    check("memory_read_bf16", kernel, BOTH, &intent);
}

/// f32 products use FMA and never tensor cores; `N` and `H` are ragged.
#[test]
fn memory_read_f32() {
    let kernel = shipped("memory_read", DType::F32, &[2, 37, 16, 40], "BN=16 BH=32 stages=2 warps=2");
    let intent = Intent {
        exactly: &[(BARRIER, 3)],
        some: &["fma.rn.f32", "ld.shared.v4.b32", COPY],
        none: &["mma.", "ldmatrix", "tf32"],
        narrowest: 16,
    };
    check("memory_read_f32", kernel, &["sm_80"], &intent);
}

/// The matrix stays on chip for all steps: one read and one write. The transpose is read from the same buffer.
#[test]
fn newton_schulz_small_bf16() {
    let kernel = shipped("newton_schulz_small", DType::Bf16, &[2, 16, 32], "warps=1");
    let intent = Intent {
        exactly: &[(MMA_BF16, 10), (BARRIER, 4)],
        some: &[LDMATRIX, LDMATRIX_TRANSPOSED, SHUFFLE, "st.global.v4.b32"],
        none: &[],
        narrowest: 4,
    };
    check("newton_schulz_small_bf16", kernel, BOTH, &intent);
}

/// One 16-byte load and store per thread, no shared memory, each product and sum rounded once.
#[test]
fn poly3_bf16() {
    let kernel = shipped("poly3", DType::Bf16, &[64, 64], "BN=16 warps=4");
    let intent = Intent {
        exactly: &[("st.global.v4.b32", 1), (BARRIER, 0), ("mul.rn.f32", 24), ("add.rn.f32", 16)],
        some: &["cvt.rn.bf16x2.f32"],
        none: &["shared", "bra", "setp", "fma"],
        narrowest: 16,
    };
    check("poly3_bf16", kernel, BOTH, &intent);
}

/// A row on two warps: reduced by shuffles, then once through shared memory.
#[test]
fn rms_norm_bf16() {
    let kernel = shipped("rms_norm", DType::Bf16, &[64, 512], "BN=1 warps=2");
    let intent = Intent {
        exactly: &[(SHUFFLE, 5), (BARRIER, 1), ("st.global.v4.b32", 1)],
        some: &["ld.shared.v2.b32"],
        none: &["bra"],
        narrowest: 16,
    };
    check("rms_norm_bf16", kernel, BOTH, &intent);
}

/// A row on each of four warps, reduced only by shuffles.
#[test]
fn softmax_bf16() {
    let kernel = shipped("softmax", DType::Bf16, &[64, 512], "BN=4 warps=4");
    let intent = Intent {
        exactly: &[(SHUFFLE, 10), (BARRIER, 0), ("ex2.approx.ftz.f32", 16), ("st.global.v4.b32", 2)],
        some: &[],
        none: &["shared", "bra"],
        narrowest: 16,
    };
    check("softmax_bf16", kernel, BOTH, &intent);
}

/// tf32 is requested; the operands are rounded to it before the product.
#[test]
fn gemm_tf32() {
    // One barrier before the loop and one inside: the next operands are loaded before the last step.
    let kernel = (case("gemm_tf32"), Schedule::default());
    let intent = Intent {
        exactly: &[(MMA_TF32, 4), ("cvt.rna.tf32.f32", 16), (BARRIER, 2)],
        some: &[COPY],
        none: &["fma.rn.f32"],
        narrowest: 8,
    };
    check("gemm_tf32", kernel, &["sm_80"], &intent);
}

/// The checks detect the mistakes that they are meant for.
#[test]
fn faults_are_noticed() {
    let intent = Intent { exactly: &[(BARRIER, 1)], some: &[COPY], none: &["shfl"], narrowest: 8 };
    let good = "\tcp.async.cg.shared.global [%r1], [%rd1], 16;\n\t@%p1 bar.sync \t0;\n\
                \t{ ld.global.nc.L1::no_allocate.v4.b32 {%r1}, [%rd1]; }\n\tst.global.v2.b32 \t[%rd1], {%r1, %r2};\n";
    assert_eq!(faults(good, &intent), [""; 0]);
    for (from, to, fault) in [
        ("bar.sync", "bar.arrive", "0 `bar.sync` instead of 1"),
        ("cp.async.cg", "cp.async.ca", "no `cp.async.cg.shared.global`"),
        ("16;", "4;", "narrower than 8 bytes"),
        (".nc", "", "is not `.nc`"),
        ("v2.b32", "b32", "narrower than 8 bytes: st.global.b32"),
        ("v4.b32", "v2.b16", "narrower than 8 bytes: { ld.global.nc"),
        ("st.global", "st.local", "there is a `.local`"),
        ("bar.sync", "bar.sync 0; shfl", "there is a `shfl`"),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(good, bad);
        let found = faults(&bad, &intent);
        assert!(found.iter().any(|f| f.contains(fault)), "{fault}: {found:?}");
    }
}
