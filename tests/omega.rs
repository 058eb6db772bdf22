//! The Omega rule as a chain, on every simulated GPU under three schedules and, if asked for, on a real one: against its
//! definition token by token, whole and in parts.

use crate::agreement::devices;
use atlas::dsl::DType;
use atlas_ops::omega::Chunking;
use atlas_ops::omega::check::Case;

#[test]
fn chains_follow_the_definition_on_every_device() {
    for (name, device) in devices() {
        for (dtype, bound) in [(DType::F32, 1e-5), (DType::F16, 2e-3), (DType::Bf16, 1e-2)] {
            for memory in [[16, 16, 32], [8, 24, 40], [24, 16, 0]] {
                let mut case = Case::new([2, 23, 1], memory, Chunking::new(8, 5));
                case.dtype = dtype;
                case.before = dtype == DType::F16;
                let found = case.check(&device).unwrap_or_else(|e| panic!("{name}: {case:?}: {e}"));
                assert!(found.passes(bound), "{name}: {case:?}: {found:?}");
            }
        }
    }
}

#[test]
fn parts_of_a_sequence_give_the_bits_of_the_whole() {
    for (name, device) in devices().into_iter().take(3) {
        let whole = Case::new([1, 23, 2], [16, 16, 32], Chunking::new(8, 5));
        let inputs = whole.inputs();
        let parts = Case { parts: vec![8, 15], ..whole.clone() };
        let [found, wanted] =
            [&parts, &whole].map(|c| c.run(&device, &inputs).unwrap_or_else(|e| panic!("{name}: {e}")));
        assert_eq!(found, wanted, "{name}");
    }
}
