//! Memory accesses: out of bounds, misaligned, uninitialised, read-only.

use super::plant::{Plant, all_found, drop, swap};
use atlas_sim::fault::FaultKind::*;

const MEMORY: &[Plant] = &[
    Plant("a mask is one off", "vector_add", &[swap("setp.ge.s32", "setp.gt.s32")], &[OutOfBounds]),
    Plant("a loop runs once more", "saxpy", &[swap("setp.lt.s32", "setp.le.s32")], &[OutOfBounds]),
    Plant(
        "a row too many is loaded",
        "gemm_tf32",
        &[swap("setp.lt.u32 \t%p1, %r6, %r12;", "setp.le.u32 \t%p1, %r6, %r12;")],
        &[OutOfBounds],
    ),
    Plant(
        "a row too many is stored",
        "gemm_tf32",
        &[swap("setp.lt.s32 \t%p19, %r173, %r170;", "setp.le.s32 \t%p19, %r173, %r170;")],
        &[OutOfBounds],
    ),
    Plant(
        "a column too many is stored",
        "gemm_tf32",
        &[swap("setp.lt.s32 \t%p18, %r168, %r172;", "setp.le.s32 \t%p18, %r168, %r172;")],
        &[Race, OutOfBounds],
    ),
    Plant("the mask is dropped", "gemm_tf32", &[swap("@%p13 st.global", "st.global")], &[OutOfBounds, Race]),
    Plant(
        "a tile reaches beyond shared memory",
        "newton_schulz_sm_80",
        &[swap("+1280]", "+1536]").nth(0)],
        &[OutOfBounds],
    ),
    Plant(
        "shared memory is not written before",
        "rms_norm_bf16",
        &[drop("@%p1 st.shared.b32 [%r1], %r2;")],
        &[UninitializedRead],
    ),
    Plant("counts do not begin at zero", "histogram", &[drop("st.shared.u32 \t[%r16], %r17;")], &[UninitializedRead]),
    Plant("a register is not written before", "gemm_tf32", &[drop("mov.b32 \t%r177, 0f00000000;")], &[]),
    Plant(
        "a vector of global memory is misaligned",
        "rms_norm_bf16",
        &[swap("%r14}, [%rd7];", "%r14}, [%rd7+8];")],
        &[Misaligned],
    ),
    Plant(
        "a vector of shared memory is misaligned",
        "rms_norm_bf16",
        &[swap("[shared];", "[shared+4];")],
        &[Misaligned],
    ),
    Plant(
        "a copy of threads is misaligned",
        "gemm_tf32",
        &[swap("shl.b32 \t%r28, %r15, 4;", "shl.b32 \t%r28, %r15, 3;")],
        &[Misaligned],
    ),
    Plant(
        "a bulk copy is misaligned",
        "ring",
        &[swap("add.s32 %to, %to, 16384;", "add.s32 %to, %to, 16392;")],
        &[Misaligned],
    ),
    Plant(
        "a bulk copy is not of whole 16 bytes",
        "bulk_copy",
        &[swap("mov.u32 \t%r86, 1024;", "mov.u32 \t%r86, 1020;")],
        &[Misaligned, Illegal],
    ),
    Plant("a matrix row is misaligned", "ring", &[swap("[%from+20480]", "[%from+20488]")], &[Misaligned]),
    Plant(
        "a stack of local memory overflows",
        "interpreter",
        &[swap("add.u64 \t%rd1, %SPL, 0;", "add.u64 \t%rd1, %SPL, 64;")],
        &[OutOfBounds],
    ),
    Plant(
        "a stack is read where nothing was put",
        "interpreter",
        &[swap("add.s32 \t%r49, %r49, -1;", "add.s32 \t%r49, %r49, 0;")],
        &[UninitializedRead],
    ),
    Plant(
        "a constant table is read beyond its end",
        "interpreter",
        &[swap("and.b64  \t%rd18, %rd17, 28;", "and.b64  \t%rd18, %rd17, 60;")],
        &[OutOfBounds],
    ),
    Plant(
        "a step too many of a constant table",
        "newton_schulz_sm_80",
        &[swap("+8];\n\tneg.f32", "+12];\n\tneg.f32")],
        &[OutOfBounds],
    ),
    Plant("a parameter is read beyond the last", "flag", &[swap("[flags];", "[flags+8];")], &[OutOfBounds, Syntax]),
    Plant(
        "an input is written",
        "rms_norm_bf16",
        &[swap("add.s64 \t%rd9, %rd3, %rd4;", "add.s64 \t%rd9, %rd1, %rd4;")],
        &[ReadOnly],
    ),
    Plant(
        "elements are read as wider ones",
        "bitonic_sort",
        &[swap("ld.global.u16", "ld.global.u32").nth(0)],
        &[OutOfBounds, Misaligned, Syntax],
    ),
];

#[test]
fn accesses() {
    all_found("memory", MEMORY);
}
