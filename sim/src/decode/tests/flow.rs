//! Where branches meet again.

use super::compile;

/// The line at which each branch meets again, by the line of the branch; lines count from the body's first.
fn meets(body: &str) -> Vec<(u32, Option<u32>)> {
    let program = compile(body).unwrap();
    let branches = program.code.iter().zip(&program.reconverge).filter(|(i, _)| i.guard.is_some());
    let line = |at: u32| program.code[at as usize].line - 4;
    let jumps = branches.filter(|(i, _)| format!("{:?}", i.op).starts_with("Branch"));
    jumps.map(|(i, meet)| (i.line - 4, meet.map(line))).collect()
}

const WORK: &str = "add.s32 r0, r0, 1;";

#[test]
fn a_conditional_meets_after_both_sides() {
    let body = format!("@p0 bra E;\n{WORK}\nbra J;\nE:\n{WORK}\nJ:\n{WORK}\nret;");
    assert_eq!(meets(&body), [(1, Some(7))]);
}

#[test]
fn a_loop_meets_at_its_exit() {
    assert_eq!(meets(&format!("L:\n{WORK}\n@p0 bra L;\n{WORK}\nret;")), [(3, Some(4))]);
}

#[test]
fn inner_conditionals_meet_before_outer_ones() {
    let body = format!("@p0 bra E;\n@p1 bra I;\n{WORK}\nI:\n{WORK}\nbra J;\nE:\n{WORK}\nJ:\n{WORK}\nret;");
    assert_eq!(meets(&body), [(1, Some(10)), (2, Some(5))]);
}

#[test]
fn lanes_that_leave_are_not_waited_for() {
    // The inner exit does not keep the outer branch from meeting; the exit's own branch meets nowhere.
    let body = format!("@p0 bra J;\n@p1 bra X;\n{WORK}\nbra J;\nX:\nexit;\nJ:\n{WORK}\nret;");
    assert_eq!(meets(&body), [(1, Some(8)), (2, None)]);
    let body = format!("@p0 bra J;\n@p1 exit;\n{WORK}\nJ:\n{WORK}\nret;");
    assert_eq!(meets(&body), [(1, Some(5))]);
    // Jumping to the one return is leaving.
    assert_eq!(meets(&format!("@p0 bra R;\n{WORK}\nR:\nret;")), [(1, None)]);
}

#[test]
fn a_trap_is_no_way_out() {
    let body = format!("@p0 bra J;\n@p1 bra T;\n{WORK}\nbra J;\nT:\ntrap;\nJ:\n{WORK}\nret;");
    assert_eq!(meets(&body), [(1, Some(8)), (2, Some(3))]);
}

#[test]
fn two_returns_meet_each_in_its_own_part() {
    let body = format!("@p0 bra E;\n@p1 bra I;\n{WORK}\nI:\n{WORK}\nret;\nE:\n@p2 bra K;\n{WORK}\nK:\n{WORK}\nret;");
    assert_eq!(meets(&body), [(1, None), (2, Some(5)), (8, Some(11))]);
}

#[test]
fn a_loop_without_an_end_still_has_meetings() {
    let body = format!("L:\n@p0 bra E;\n{WORK}\nE:\n{WORK}\nbra L;");
    assert_eq!(meets(&body), [(2, Some(5))]);
}

#[test]
fn an_indexed_branch_meets_after_all_its_targets() {
    let body = format!("t: .branchtargets A, B, C;\n@p0 brx.idx r1, t;\nA:\n{WORK}\nB:\n{WORK}\nC:\n{WORK}\nret;");
    assert_eq!(meets(&body), [(2, Some(8))]);
}
