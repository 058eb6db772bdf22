//! Ops of several launches as they are measured: right on a small problem, and again when run again.

use atlas_ops::plans::plans;

#[test]
fn plans_are_right_and_run_again() {
    let cpu = crate::device();
    for plan in plans() {
        // The largest heads take the CPU long, and are no other code.
        if plan.name.ends_with("_96") || plan.name.ends_with("128x128") {
            continue;
        }
        let c = plan.check(&cpu).unwrap();
        assert!(c.passes(plan.bound()), "{}: {c:?}", plan.name);
        let mut work = plan.small().start(&cpu).unwrap();
        work().and_then(|()| work()).unwrap();
        assert!(plan.flops() > 1e8 && plan.bytes() > 1e6 && plan.shape().starts_with(['G', 'B', 'S']));
    }
}
