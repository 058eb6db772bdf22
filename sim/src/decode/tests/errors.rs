//! Texts that the decoder refuses, with its messages.

use super::error;

#[test]
fn what_is_not_known_is_named_whole() {
    let rows = [
        ("frob.x.y r0, r1;", "line 5: unknown instruction `frob.x.y`"),
        ("add.s33 r0, r1, r2;", "line 5: unknown instruction `add.s33`"),
        ("\n\nadd.rx.f32 r0, r1, r2;", "line 7: unknown instruction `add.rx.f32`"),
        ("bra.far L; L:", "line 5: `bra.far`: modifier `.far` is not supported here"),
        ("ld.global.foo.b32 r0, [d0];", "line 5: `ld.global.foo.b32`: modifier `.foo` is not supported here"),
        ("ld.global.b32.b32 r0, [d0];", "line 5: `ld.global.b32.b32`: modifier `.b32` is not supported here"),
        ("bar.sync.aligned.x 0;", "line 5: `bar.sync.aligned.x`: modifier `.x` is not supported here"),
        (
            "mbarrier.try_wait.parity.b64 p0, [r0], 1;",
            "line 5: `mbarrier.try_wait.parity.b64`: generic addresses of an mbarrier are not supported",
        ),
        ("red.shared.add.v4.f32 [r9], {r0, r1, r2, r3};", "line 5: unknown instruction `red.shared.add.v4.f32`"),
        (
            "atom.ca.global.add.u32 r0, [d0], 1;",
            "line 5: `atom.ca.global.add.u32`: modifier `.ca` is not supported here",
        ),
        ("call.uni (r0), f, (r1);", "line 5: `call` is not supported: functions must be inlined"),
        (
            "mma.sync.aligned.m16n8k7.row.col.f32.f16.f16.f32 {r0,r1,r2,r3}, {r4,r5}, {r6}, {r0,r1,r2,r3};",
            "line 5: unknown instruction `mma.sync.aligned.m16n8k7.row.col.f32.f16.f16.f32`",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f16 {r0,r1,r2,r3}, {r4,r5}, {r6}, {r0,r1};",
            "line 5: unknown instruction `mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f16`",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {r0}, d0, d1, 1, 1, 1, 0, 0;",
            "line 5: unknown instruction `wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16`",
        ),
    ];
    for (body, message) in rows {
        assert_eq!(error(body), message);
    }
}

#[test]
fn operands_must_fit() {
    let rows = [
        ("add.s32 r0, r1, x;", "line 5: `add.s32`: `x` is not declared"),
        ("add.s32 r140, r1, r2;", "line 5: `add.s32`: `r140` is not declared"),
        ("add.s32 r01, r1, r2;", "line 5: `add.s32`: `r01` is not declared"),
        ("add.s32 r0, r1, d0;", "line 5: `add.s32`: register `d0` has 64 bits, and 32 are wanted"),
        ("add.s32 r0, r1, p0;", "line 5: `add.s32`: `p0` is no register of 32 bits"),
        ("add.s32 r0, r1;", "line 5: `add.s32`: 3 operands are wanted, found 2"),
        ("add.s32 5, r1, r2;", "line 5: `add.s32`: a register is wanted, found a constant"),
        ("ld.global.b64 r0, [d0];", "line 5: `ld.global.b64`: register `r0` has 32 bits, and 64 are wanted"),
        ("ld.global.f32 d0, [d0];", "line 5: `ld.global.f32`: register `d0` has 64 bits, and 32 are wanted"),
        ("ld.global.b32 r0, [r1];", "line 5: `ld.global.b32`: register `r1` of 32 bits is no address here"),
        ("ld.global.b32 r0, [b];", "line 5: `ld.global.b32`: `b` is a variable of another state space"),
        ("ld.global.b32 r0, r1;", "line 5: `ld.global.b32`: an address is wanted, found `r1`"),
        ("ld.global.v4.b32 {r0, r1}, [d0];", "line 5: `ld.global.v4.b32`: a vector of 4 is wanted"),
        ("ld.global.v4.b32 r0, [d0];", "line 5: `ld.global.v4.b32`: a vector of 4 is wanted"),
        ("ld.global.b32 r0, [d0], d1;", "line 5: `ld.global.b32`: 1 operands too many"),
        ("setp.eq.s32 r0, r1, r2;", "line 5: `setp.eq.s32`: `r0` is no predicate"),
        ("setp.zz.s32 p0, r1, r2;", "line 5: `setp.zz.s32`: there is no comparison `.zz` of .s32"),
        ("@r0 ret;", "line 5: `ret`: `r0` is no predicate"),
        ("bra L;", "line 5: there is no label `L` here"),
        ("{ L: } bra L;", "line 5: there is no label `L` here"),
        ("{ .reg .b32 x; } mov.b32 r0, x;", "line 5: `mov.b32`: `x` is not declared"),
        ("L: L:", "line 5: label `L` is declared twice"),
        (".reg .b32 x; .reg .b64 x;", "line 5: `x` is declared twice"),
        ("mov.b64 d0, {r0, r1, r2};", "line 5: `mov.b64`: 3 parts do not make 64 bits"),
        ("mov.u64 d0, %tid.x;", "line 5: `mov.u64`: `%tid.x` has 32 bits"),
        ("mov.u32 r0, %nothing;", "line 5: `mov.u32`: `%nothing` is not declared"),
        ("cp.async.cg.shared.global [r0], [d0], 8;", "line 5: `cp.async.cg.shared.global`: 8 bytes may not be copied"),
        (
            "setmaxnreg.inc.sync.aligned.u32 25;",
            "line 5: `setmaxnreg.inc.sync.aligned.u32`: 25 is no multiple of 8 from 24 to 256",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {r0,r1,r2,r3}, {r4,r5}, {r6,r7}, {r0,r1,r2,r3};",
            "line 5: `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32`: a vector of 4 is wanted, found 2",
        ),
        ("shfl.sync.up.b32 r0, r1, 1, 0;", "line 5: `shfl.sync.up.b32`: an operand is missing"),
        ("st.const.b32 [d0], r0;", "line 5: `st.const.b32`: this state space may not be written"),
    ];
    for (body, message) in rows {
        assert_eq!(error(body), message);
    }
}
