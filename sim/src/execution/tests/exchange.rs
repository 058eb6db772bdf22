//! Shuffles, votes, matches, elections, and lanes that do not reach them.

use super::harness::{block, fault, kernel, outputs};
use crate::fault::FaultKind;

/// Each lane of a warp writes what `body` leaves in `%r9`; `%r1` is its lane.
fn each_lane(body: &str) -> String {
    let body = format!(
        "mov.u32 %r1, %laneid; {body} ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d1, %d2;
        st.global.u32 [%d2], %r9; ret;"
    );
    kernel(1, "", &body)
}

fn lanes_of(body: &str) -> Vec<u32> {
    outputs(&each_lane(body), block(32), &[vec![0; 32]]).remove(0)
}

#[test]
fn exchanges_between_lanes() {
    let all = |f: fn(u32) -> u32| (0..32).map(f).collect::<Vec<u32>>();
    let cases: [(&str, Vec<u32>); 11] = [
        ("shfl.sync.bfly.b32 %r9, %r1, 1, 31, -1;", all(|l| l ^ 1)),
        ("shfl.sync.up.b32 %r9|%p1, %r1, 4, 0, -1; @!%p1 mov.u32 %r9, 99;", all(|l| if l < 4 { 99 } else { l - 4 })),
        ("shfl.sync.down.b32 %r9, %r1, 1, 0x181f, -1;", all(|l| if l % 8 < 7 { l + 1 } else { l })),
        ("shfl.sync.idx.b32 %r9, %r1, 2, 0x181f, -1;", all(|l| l / 8 * 8 + 2)),
        ("setp.gt.u32 %p1, %r1, 20; vote.sync.ballot.b32 %r9, %p1, -1;", all(|_| 0xffe0_0000)),
        ("setp.gt.u32 %p1, %r1, 20; vote.sync.any.pred %p2, %p1, -1; selp.u32 %r9, 1, 0, %p2;", all(|_| 1)),
        ("setp.gt.u32 %p1, %r1, 20; vote.sync.all.pred %p2, %p1, -1; selp.u32 %r9, 1, 0, %p2;", all(|_| 0)),
        ("and.b32 %r2, %r1, 3; match.any.sync.b32 %r9, %r2, -1;", all(|l| 0x1111_1111 << (l % 4))),
        ("redux.sync.add.u32 %r9, %r1, -1;", all(|_| 496)),
        ("elect.sync %r9|%p1, -1; selp.u32 %r9, 7, %r9, %p1;", all(|l| if l == 0 { 7 } else { 0 })),
        ("activemask.b32 %r9;", all(|_| u32::MAX)),
    ];
    for (body, expected) in cases {
        assert_eq!(lanes_of(body), expected, "{body}");
    }
}

#[test]
fn lanes_of_different_branches_meet_at_a_shuffle() {
    // The even lanes take a detour, and the odd ones reach the shuffle first.
    let body = "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra A; mov.u32 %r3, 5; bra C;
        A: mov.u32 %r3, 6; mov.u32 %r4, 7; C: shfl.sync.bfly.b32 %r9, %r3, 1, 31, -1;";
    assert_eq!(lanes_of(body), (0..32).map(|l| if l % 2 == 0 { 5 } else { 6 }).collect::<Vec<u32>>());
    // Half a warp may shuffle among itself.
    let body = "mov.u32 %r9, 1; setp.lt.u32 %p1, %r1, 16; @!%p1 bra C;
        shfl.sync.idx.b32 %r9, %r1, 15, 31, 0xffff; C:";
    assert_eq!(lanes_of(body), (0..32).map(|l| if l < 16 { 15 } else { 1 }).collect::<Vec<u32>>());
}

#[test]
fn absent_lanes_are_found() {
    let half = |exchange: &str| {
        each_lane(&format!("mov.u32 %r9, 0; setp.lt.u32 %p1, %r1, 16; @!%p1 bra C; {exchange} C: bar.warp.sync -1;"))
    };
    let cases = [
        // A lane that no one brings.
        half("shfl.sync.bfly.b32 %r9, %r1, 1, 31, -1;"),
        // A lane outside the mask.
        half("shfl.sync.bfly.b32 %r9, %r1, 16, 31, 0xffff;"),
        // Lanes that are not in their own mask.
        half("shfl.sync.bfly.b32 %r9, %r1, 1, 31, 0xff;"),
        // Masks that disagree.
        half(
            "and.b32 %r3, %r1, 1; shl.b32 %r3, %r3, 16; or.b32 %r3, %r3, 0xffff;
            shfl.sync.idx.b32 %r9, %r1, 0, 31, %r3;",
        ),
        each_lane("setp.lt.u32 %p1, %r1, 16; mov.u32 %r9, 0; @%p1 shfl.sync.bfly.b32 %r9, %r1, 1, 31, -1;"),
    ];
    for text in cases {
        fault(&text, block(32), &[vec![0; 32]], FaultKind::Divergent);
    }
}

#[test]
fn warp_barriers_pair_at_different_instructions() {
    let text = |wait: &str| {
        let body = format!(
            "mov.u32 %r1, %laneid; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2;
            setp.lt.u32 %p1, %r1, 16; @%p1 bra A;
            st.shared.u32 [%r3], %r1; {wait} bra B;
            A: {wait} ld.shared.u32 %r9, [%r3+64]; ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r1, 4;
            add.u64 %d2, %d1, %d2; st.global.u32 [%d2], %r9;
            B: ret;"
        );
        kernel(1, ".shared .align 4 .b8 s[128];", &body)
    };
    let out = outputs(&text("bar.warp.sync -1;"), block(32), &[vec![0; 16]]);
    assert_eq!(out[0], (16..32).collect::<Vec<u32>>());
    for schedule in super::harness::SCHEDULES {
        let f = super::harness::run_with(&text(""), block(32), &[vec![0; 16]], schedule).unwrap_err();
        assert!(matches!(f.kind, FaultKind::Race | FaultKind::UninitializedRead), "{f}");
    }
}

#[test]
fn lanes_that_spin_do_not_stop_the_others() {
    // Lane 0 waits for lane 1, which a reconvergence would hold back for ever.
    let body = "mov.u32 %r9, 0; ld.param.u64 %d1, [p0]; setp.ne.u32 %p1, %r1, 0; @%p1 bra A;
        L: ld.relaxed.gpu.global.u32 %r2, [%d1+4]; setp.eq.u32 %p2, %r2, 0; @%p2 bra L;
        A: setp.ne.u32 %p3, %r1, 1; @%p3 bra B; mov.u32 %r4, 1; st.relaxed.gpu.global.u32 [%d1+4], %r4; B: ret;";
    let text = kernel(1, "", &format!("mov.u32 %r1, %laneid; {body}"));
    assert_eq!(outputs(&text, block(32), &[vec![0; 2]])[0], [0, 1]);
}
