//! Arithmetic, divergence, barriers, shared and global memory.

use super::harness::{block, fault, kernel, outputs};
use crate::fault::FaultKind;

/// `out[tid] = tid * 3 + ctaid`, by `%r1` = tid and `%d2` = the address of out's element.
const ELEMENT: &str = "
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1;
    ld.param.u64 %d1, [p0];
    cvta.to.global.u64 %d1, %d1;
    mul.wide.u32 %d2, %r4, 4;
    add.u64 %d2, %d1, %d2;
";

#[test]
fn every_thread_writes_its_element() {
    let text = kernel(1, "", &format!("{ELEMENT} mad.lo.u32 %r5, %r1, 3, %r2; st.global.u32 [%d2], %r5; ret;"));
    let shape = super::harness::LaunchShape { grid: 9, ..block(70) };
    let out = outputs(&text, shape, &[vec![0; 630]]);
    let expected: Vec<u32> = (0..630).map(|i| i % 70 * 3 + i / 70).collect();
    assert_eq!(out[0], expected);
    let shape = super::harness::LaunchShape { grid: 10, ..shape };
    let f = fault(&text, shape, &[vec![0; 630]], FaultKind::OutOfBounds);
    assert_eq!(f.party.unwrap().line, 21, "{}", f.message);
}

#[test]
fn loops_of_each_length_meet() {
    // Lane l counts to l, then all meet at a barrier.
    let body = format!(
        "{ELEMENT} mov.u32 %r6, 0; mov.u32 %r7, 0;
        LOOP: setp.ge.u32 %p1, %r6, %r1; @%p1 bra DONE;
        add.u32 %r6, %r6, 1; add.u32 %r7, %r7, %r6; bra LOOP;
        DONE: bar.sync 0; st.global.u32 [%d2], %r7; ret;"
    );
    let out = outputs(&kernel(1, "", &body), block(64), &[vec![0; 64]]);
    assert_eq!(out[0], (0..64).map(|l| l * (l + 1) / 2).collect::<Vec<u32>>());
}

/// Neighbours exchange through shared memory.
fn exchange(barrier: &str) -> String {
    let body = format!(
        "{ELEMENT} mov.u32 %r5, s; shl.b32 %r6, %r1, 2; add.u32 %r5, %r5, %r6; st.shared.u32 [%r5], %r1;
        {barrier}
        xor.b32 %r7, %r6, 128; mov.u32 %r8, s; add.u32 %r8, %r8, %r7; ld.shared.u32 %r9, [%r8];
        st.global.u32 [%d2], %r9; ret;"
    );
    kernel(1, ".shared .align 4 .b8 s[256];", &body)
}

#[test]
fn barriers_order_shared_memory() {
    let out = outputs(&exchange("bar.sync 0;"), block(64), &[vec![0; 64]]);
    assert_eq!(out[0], (0..64).map(|l| l ^ 32).collect::<Vec<u32>>());
    let out = outputs(&exchange("barrier.sync 3, 64;"), block(64), &[vec![0; 64]]);
    assert_eq!(out[0], (0..64).map(|l| l ^ 32).collect::<Vec<u32>>());
}

#[test]
fn a_missing_barrier_is_found() {
    for schedule in super::harness::SCHEDULES {
        let f = super::harness::run_with(&exchange(""), block(64), &[vec![0; 64]], schedule).unwrap_err();
        // Whoever comes first reads what was not written; else the two race.
        assert!(matches!(f.kind, FaultKind::Race | FaultKind::UninitializedRead), "{f}");
    }
}

#[test]
fn a_barrier_in_a_divergent_branch_is_found() {
    let body = "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; @%p1 bra A; bra B; A: bar.sync 0; B: bar.sync 0; ret;";
    let f = fault(&kernel(0, "", body), block(32), &[], FaultKind::Divergent);
    assert_eq!(f.party.unwrap().line, 12, "{}", f.message);
    // Lanes that have exited are not missed.
    let body = "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; @!%p1 bra B; bar.sync 0; ret; B: exit;";
    outputs(&kernel(0, "", body), block(32), &[]);
}

#[test]
fn a_barrier_of_too_many_is_a_deadlock() {
    let f = fault(&kernel(0, "", "bar.sync 1, 96; ret;"), block(64), &[], FaultKind::Deadlock);
    assert!(f.message.contains("barrier 1") && f.message.contains("64 threads of 96"), "{f}");
    assert_eq!(f.others.len(), 1, "{f}");
    fault(&kernel(0, "", "bar.sync 16; ret;"), block(64), &[], FaultKind::Illegal);
}

#[test]
fn loops_without_end_spend_the_budget() {
    fault(&kernel(0, "", "L: bra L;"), block(32), &[], FaultKind::Budget);
}

#[test]
fn misaligned_and_unwritten_memory_is_found() {
    let text =
        |access: &str| kernel(1, ".shared .align 16 .b8 s[64];", &format!("ld.param.u64 %d1, [p0]; {access} ret;"));
    fault(&text("ld.global.u32 %r1, [%d1+2];"), block(1), &[vec![0; 8]], FaultKind::Misaligned);
    fault(&text("ld.global.v2.u32 {%r1, %r2}, [%d1+4];"), block(1), &[vec![0; 8]], FaultKind::Misaligned);
    fault(&text("ld.shared.u32 %r1, [s];"), block(1), &[vec![0; 8]], FaultKind::UninitializedRead);
    fault(&text("st.shared.u32 [s+64], %r1;"), block(1), &[vec![0; 8]], FaultKind::OutOfBounds);
    fault(&text("ld.global.u32 %r1, [%d1+-4];"), block(1), &[vec![0; 8]], FaultKind::OutOfBounds);
    fault(&text("trap;"), block(1), &[vec![0; 8]], FaultKind::Trap);
}
