//! The number of the cost model changes with its results: records correct one model, and are useless to another.

use atlas_dsl::DType;
use atlas_ops::cases::{problem, usual_dims};
use atlas_runtime::records::{MODEL, Record};
use atlas_runtime::{Outcome, choose_for};
use std::fmt::Write as _;
use std::path::Path;

/// One kernel of each kind: rows, products, a ring, loops that depend on data, copies through registers, windows.
const KERNELS: [&str; 8] = [
    "softmax",
    "matmul",
    "memory_read",
    "windowed_attention",
    "log_sum_exp",
    "window_sum",
    "fourier_features",
    "newton_schulz_small",
];

/// If these numbers change, [`MODEL`] must change, and `atlas tune --recount` must update the records.
#[test]
fn what_the_model_says_is_the_models_whose_number_it_has() {
    let mut text = format!("cost model {MODEL}\n");
    for name in KERNELS {
        let usual = usual_dims(name);
        let def = problem(name, DType::Bf16, &usual).expect("a shipped kernel").kernel;
        // The second size is ragged.
        for odd in [0, 1] {
            let sizes: Vec<u64> =
                def.dims.iter().zip(&usual).map(|(d, &n)| if d.whole || n < 64 { n } else { n - odd }).collect();
            let spec = def.specialization(DType::Bf16, &sizes);
            for arch in ["sm_80", "sm_89", "sm_90"] {
                let selection = choose_for(def, &spec, &sizes, Some(arch.parse().expect("an arch")));
                let legal: Vec<_> = selection.legal().collect();
                for c in legal.first().into_iter().chain(legal.last()) {
                    if let Outcome::Legal(Some(cost)) = &c.outcome {
                        writeln!(text, "{name} {sizes:?} {arch} `{}` {:.0}", c.config, cost.cycles).expect("a string");
                    }
                }
            }
        }
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("cost_model", text));
}

/// The shipped records belong to the current model.
#[test]
fn shipped_records_are_of_this_model() {
    let root = Path::new(crate::ROOT);
    let mut sizes = 0;
    for folder in ["ops/records/nvidia-h200", "examples/shipping/records/nvidia-h200"] {
        for file in std::fs::read_dir(root.join(folder)).expect("the folder of records").flatten() {
            let name = file.path().display().to_string();
            let record =
                Record::parse(&name, &std::fs::read_to_string(file.path()).expect("a file")).expect("a record");
            for size in &record.sizes {
                assert_eq!(size.model, MODEL, "{name} {}", size.dims);
                sizes += 1;
            }
        }
    }
    assert!(sizes > 100, "{sizes}");
}
