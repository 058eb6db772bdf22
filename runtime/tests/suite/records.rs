//! Tuning records: what they decide, what they correct, and that a bad record decides nothing.

use crate::kernels::{GEMM, GEMM_OTHER, SCALE, SCALE_IDLE};
use atlas_dsl::specialization::{DimFact, StrideFact, TensorFacts, largest_class};
use atlas_dsl::{Config, DType, Specialization};
use atlas_runtime::records::{MODEL, MOST_SIZES, Record, Records, Timed, TunedSize, class_text, ir_hash, tune_hash};
use atlas_runtime::{
    ConfigSource, Device, Launch, Outcome, Selection, Tensor, args, build_kernel, choose_for, choose_with,
};
use proptest::prelude::*;
use std::fs;
use tempfile::TempDir;

const GPU: &str = "NVIDIA H200";

fn spec(sizes: [u64; 3]) -> Specialization {
    let spec = Specialization::default().with_type("T", DType::Bf16);
    ["M", "K", "N"].iter().zip(sizes).fold(spec, |s, (d, n)| s.with_dim(d, DimFact::Dynamic(largest_class(n))))
}

fn alone(sizes: [u64; 3]) -> Selection {
    choose_for(&GEMM, &spec(sizes), &sizes, "sm_90".parse().ok())
}

fn with(sizes: [u64; 3], records: &Records) -> Selection {
    choose_with(&GEMM, &spec(sizes), &sizes, "sm_90".parse().unwrap(), records)
}

/// A size at which each config takes the model's time multiplied by `err`, best config first.
fn size(sizes: [u64; 3], err: impl Fn(&Config) -> f64) -> TunedSize {
    let selection = alone(sizes);
    let mut configs: Vec<Timed> = selection
        .legal()
        .filter_map(|c| match c.outcome {
            Outcome::Legal(Some(cost)) => Some(Timed {
                config: c.config.to_string(),
                us: err(&c.config) * cost.cycles / 1e3,
                cycles: cost.cycles,
            }),
            _ => None,
        })
        .collect();
    configs.sort_by(|a, b| a.us.total_cmp(&b.us));
    let best: Config = configs[0].config.parse().unwrap();
    let (types, tensors) = class_text(&GEMM, &spec(sizes));
    TunedSize {
        types,
        tensors,
        dims: format!("M={} K={} N={}", sizes[0], sizes[1], sizes[2]),
        ir: ir_hash(&build_kernel(&GEMM, &spec(sizes), &best).unwrap()),
        spread: 0.01,
        of_copy: 0.5,
        measured: "2026-11-24".to_owned(),
        model: MODEL,
        target: String::new(),
        configs,
    }
}

fn record(sizes: Vec<TunedSize>) -> Record {
    Record { kernel: "gemm".to_owned(), gpu: GPU.to_owned(), tune: tune_hash(&GEMM), sizes }
}

fn records(record: &Record) -> Records {
    let mut records = Records::none(GPU);
    assert_eq!(records.add("test", &record.to_string()), Ok(true));
    records
}

/// A config that the model would never choose at these sizes.
fn unlikely(sizes: [u64; 3]) -> Config {
    let selection = alone(sizes);
    selection.legal().last().map(|c| c.config.clone()).unwrap()
}

#[test]
fn a_record_of_these_sizes_decides() {
    let sizes = [1000, 512, 768];
    let odd = unlikely(sizes);
    let there = size(sizes, |c| if *c == odd { 0.01 } else { 1.0 });
    let selection = with(sizes, &records(&record(vec![there])));
    assert_eq!((selection.source, selection.chosen()), (ConfigSource::Record, Some(&odd)));
    assert!(selection.notes[0].contains("of the rate of a copy"), "{:?}", selection.notes);
    // The others are in the order of their measurements, and none is lost.
    assert_eq!(selection.candidates.len(), alone(sizes).candidates.len());
    assert_eq!(alone(sizes).source, ConfigSource::CostModel);
}

#[test]
fn sizes_nearby_correct_the_model_and_those_far_away_do_not() {
    // The measurements say that loops of 32 elements take three times as long as the model predicts.
    let near = [[1024, 1024, 1024], [2048, 1024, 2048]];
    let slow = |c: &Config| if c.tile["BK"] == 32 { 3.0 } else { 1.0 };
    let records = records(&record(near.map(|s| size(s, slow)).into()));
    for sizes in [[1536, 1024, 1280], [1024, 2048, 1024]] {
        let selection = with(sizes, &records);
        assert_eq!(selection.source, ConfigSource::Nearby);
        assert!(selection.notes[0].starts_with("measured nearby: M="), "{:?}", selection.notes);
        let first = selection.legal().take(4).filter(|c| c.config.tile["BK"] == 64).count();
        assert_eq!(first, 4, "{selection}");
    }
    let far = [1 << 20, 32, 8];
    assert_eq!(with(far, &records).source, ConfigSource::CostModel);
}

/// Rows of two kinds that alternate in the order in which `atlas tune` sorts them: however many there are, both kinds
/// are used.
#[test]
fn of_many_rows_those_of_each_kind_count() {
    let rows = |count: u64| {
        let of = |m: u64| [8_u64, 8192].map(|n| size([128 * m, 512, n], |_| 1.0));
        records(&record((1..=count).flat_map(of).collect()))
    };
    for records in [rows(64), rows(65), rows(70)] {
        for n in [8, 8192] {
            let selection = with([1000, 512, n], &records);
            assert_eq!(selection.source, ConfigSource::Nearby, "N={n}");
            assert!(selection.notes[0].contains(&format!("N={n}")), "{:?}", selection.notes);
        }
    }
}

#[test]
fn sizes_may_be_written_otherwise() {
    let sizes = [1000, 512, 768];
    let odd = unlikely(sizes);
    for dims in ["M=1000 K=512 N=768", "M=1000  K=512 N=0768 ", "N=768 M=1000 K=512"] {
        let there = size(sizes, |c| if *c == odd { 0.01 } else { 1.0 });
        let known = records(&record(vec![TunedSize { dims: dims.to_owned(), ..there }]));
        let selection = with(sizes, &known);
        assert_eq!((selection.source, selection.chosen()), (ConfigSource::Record, Some(&odd)), "{dims}");
        // And they correct the model at nearby sizes.
        assert_eq!(with([1000, 512, 1024], &known).source, ConfigSource::Nearby, "{dims}");
    }
}

#[test]
fn what_a_record_cannot_decide_the_model_does() {
    let sizes = [1000, 512, 768];
    let good = record(vec![size(sizes, |_| 1.0)]);
    let plain = alone(sizes).chosen().cloned();
    let note = |record: &Record, why: &str| {
        let selection = with(sizes, &records(record));
        assert_ne!(selection.source, ConfigSource::Record);
        assert!(selection.notes.iter().any(|n| n.contains(why)), "{why}: {:?}", selection.notes);
        selection
    };
    let mut other_tune = good.clone();
    other_tune.tune = "0123456789abcdef".to_owned();
    let selection = note(&other_tune, "of another tune space");
    assert_eq!((selection.source, selection.chosen()), (ConfigSource::CostModel, plain.as_ref()));
    let mut other_kernel = good.clone();
    other_kernel.sizes[0].ir = "0123456789abcdef".to_owned();
    let selection = note(&other_kernel, "the kernel has changed");
    assert_eq!((selection.source, selection.chosen()), (ConfigSource::CostModel, plain.as_ref()));
    // Edited by hand: a config that fits no machine, and a config that is not in the tune space.
    for (config, why) in
        [("BK=64 BM=128 stages=4 warps=32", "none of the tune space"), ("BK=64 BM=1024 stages=4 warps=8", "refused")]
    {
        let mut edited = good.clone();
        edited.sizes[0].configs[0].config = config.to_owned();
        if let Ok(kernel) = build_kernel(&GEMM, &spec(sizes), &config.parse().unwrap()) {
            edited.sizes[0].ir = ir_hash(&kernel);
        }
        note(&edited, why);
    }
}

#[test]
fn records_of_other_gpus_and_of_other_kernels_say_nothing() {
    let sizes = [1000, 512, 768];
    let mut other = record(vec![size(sizes, |_| 1.0)]);
    other.gpu = "NVIDIA A100".to_owned();
    let mut records = Records::none(GPU);
    assert_eq!(records.add("test", &other.to_string()), Ok(false));
    assert_eq!(with(sizes, &records).source, ConfigSource::CostModel);
}

/// A folder with new measurements works both before and after one that is stale.
#[test]
fn the_first_row_that_is_current_counts() {
    let sizes = [1000, 512, 768];
    let current = record(vec![size(sizes, |_| 1.0)]);
    let mut stale = current.clone();
    stale.sizes[0].ir = "0123456789abcdef".to_owned();
    let odd = unlikely(sizes);
    let later = record(vec![size(sizes, |c| if *c == odd { 0.01 } else { 1.0 })]);
    let mut records = records(&stale);
    assert_eq!(records.add("again", &stale.to_string()), Ok(false));
    assert_eq!(records.add("measured anew", &current.to_string()), Ok(true));
    assert_eq!(records.add("last", &later.to_string()), Ok(true));
    let selection = with(sizes, &records);
    let chosen: Config = current.sizes[0].configs[0].config.parse().unwrap();
    assert_eq!((selection.source, selection.chosen()), (ConfigSource::Record, Some(&chosen)));
    assert!(!selection.notes.iter().any(|n| n.contains("has changed")), "{:?}", selection.notes);
    // At nearby sizes too, and once: the text of the record has each size once.
    assert_eq!(with([1008, 512, 768], &records).source, ConfigSource::Nearby);
    let whole = records.of_kernel("gemm").unwrap();
    assert_eq!(whole.to_string(), stale.to_string());
}

/// Two kernels of the same name, with the same tune space and with different ones.
#[test]
fn records_are_of_a_kernel_and_not_of_its_name() {
    let records = records(&record(vec![size([1024, 1024, 1024], |_| 1.0)]));
    let near = [1536, 1024, 1280];
    // It has the name, the dims and the tune space of the other, but the measurements are not of it.
    choose_with(&GEMM_OTHER, &spec(near), &near, "sm_90".parse().unwrap(), &records);
    assert_eq!(with(near, &records).source, ConfigSource::Nearby);

    let spec = Specialization::default().with_type("T", DType::F32);
    let spec = spec.with_dim("N", DimFact::Dynamic(8)).with_dim("D", DimFact::Const(8));
    let mut both = Records::none(GPU);
    let machine = "sm_90".parse().ok();
    let chosen = |def| choose_for(def, &spec, &[40, 8], machine).chosen().cloned().unwrap();
    for def in [&SCALE, &SCALE_IDLE] {
        let config = chosen(def);
        let (types, tensors) = class_text(def, &spec);
        let sizes = vec![TunedSize {
            types,
            tensors,
            dims: "N=40 D=8".to_owned(),
            ir: ir_hash(&build_kernel(def, &spec, &config).unwrap()),
            configs: vec![Timed { config: config.to_string(), us: 1.0, cycles: 1000.0 }],
            ..size([1000, 512, 768], |_| 1.0)
        }];
        let record = Record { kernel: "scale".to_owned(), tune: tune_hash(def), sizes, ..record(Vec::new()) };
        assert_eq!(both.add("test", &record.to_string()), Ok(true));
    }
    for def in [&SCALE, &SCALE_IDLE] {
        let selection = choose_with(def, &spec, &[40, 8], "sm_90".parse().unwrap(), &both);
        assert_eq!((selection.source, selection.chosen()), (ConfigSource::Record, Some(&chosen(def))));
    }
}

#[test]
fn records_together_have_a_bound_too() {
    let row = size([1000, 512, 768], |_| 1.0);
    let row = TunedSize { configs: row.configs[..1].to_vec(), ..row };
    let rows = |from: usize, to: usize| {
        record((from..to).map(|m| TunedSize { dims: format!("M={m} K=512 N=768"), ..row.clone() }).collect())
    };
    let mut records = records(&rows(0, MOST_SIZES));
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("more.toml"), rows(MOST_SIZES - 1, MOST_SIZES + 7).to_string()).unwrap();
    records.add_folder(folder.path());
    assert_eq!(records.of_kernel("gemm").unwrap().sizes.len(), MOST_SIZES);
    let why = records.problems()[0].to_string();
    assert!(why.contains("more.toml") && why.contains("more than 4096 sizes; 7 are left out"), "{why}");
}

/// A row of a view is compared with its kernel like any other.
#[test]
fn rows_of_views_go_stale_too() {
    let of_view = |sizes: [u64; 3]| {
        let facts = TensorFacts { align: 2, strides: vec![StrideFact::Dynamic(1), StrideFact::Const(1)] };
        let mut spec = spec(sizes);
        spec.tensors.insert("a".to_owned(), facts);
        spec
    };
    let (near, here) = ([1024, 1024, 1024], [1536, 1024, 1280]);
    let machine = "sm_90".parse().unwrap();
    let mut row = size(near, |_| 1.0);
    row.tensors = class_text(&GEMM, &of_view(near)).1;
    let config = row.configs[0].config.parse().unwrap();
    row.ir = ir_hash(&build_kernel(&GEMM, &of_view(near), &config).unwrap());
    let source = |row: &TunedSize| {
        choose_with(&GEMM, &of_view(here), &here, machine, &records(&record(vec![row.clone()]))).source
    };
    assert_eq!(source(&row), ConfigSource::Nearby);
    for (ir, tensors) in
        [("0123456789abcdef", &*row.tensors), (&*row.ir, "a=2:1"), (&*row.ir, "x=2:*1,1"), (&*row.ir, "a")]
    {
        let row = TunedSize { ir: ir.to_owned(), tensors: tensors.to_owned(), ..row.clone() };
        assert_eq!(source(&row), ConfigSource::CostModel, "{ir} {tensors}");
    }
}

/// Such a config changes the kernel, but that is not the mistake.
#[test]
fn a_record_whose_config_is_none_of_the_tune_space_is_told_as_such() {
    let sizes = [1000, 512, 768];
    let mut row = size(sizes, |_| 1.0);
    row.configs[0].config = row.configs[0].config.replace("BM=", "BM=1");
    let selection = with(sizes, &records(&record(vec![row])));
    assert_eq!(selection.source, ConfigSource::CostModel);
    assert!(selection.notes[0].contains("is none of the tune space"), "{:?}", selection.notes);
}

/// Opening a pipe waits until somebody writes to it.
#[cfg(unix)]
#[test]
fn a_pipe_in_a_folder_of_records_is_not_opened() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("x.toml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut records = Records::none(GPU);
    records.add_folder(folder.path());
    assert!(records.problems()[0].to_string().contains("it is no regular file"));
}

#[test]
fn texts_that_are_no_records_say_what_is_wrong() {
    let good = record(vec![size([1000, 512, 768], |_| 1.0)]).to_string();
    let parsed = Record::parse("x", &good).unwrap();
    assert_eq!(parsed.to_string(), good);
    let config = parsed.sizes[0].configs[0].config.clone();
    let whole = &good[good.find("[[size]]").unwrap()..];
    for (text, why) in [
        (good.replace("kernel =", "colonel ="), "colonel"),
        (good.replace("M=1000", "M=thousand"), "the dims are not NAME=SIZE"),
        (good.replace("M=1000 K=512", "M=1000 M=512"), "the dims are not NAME=SIZE"),
        (good.replace(&config, "BM=64 warps=many"), "config `BM=64 warps=many`"),
        (format!("{good}\n{whole}"), "it stands there twice"),
        (good.replace("spread", "spread_"), "spread_"),
        (good[..good.len() / 2].to_owned(), ""),
    ] {
        let error = Record::parse("here.toml", &text).unwrap_err().to_string();
        assert!(
            error.starts_with("the tuning records of here.toml cannot be used: ") && error.contains(why),
            "{error}"
        );
    }
    let negative = good.replacen("\", ", "\", -", 1);
    assert!(Record::parse("x", &negative).unwrap_err().message.contains("has no time"));
}

#[test]
fn folders_are_read_as_far_as_they_can_be() {
    let folder = TempDir::new().unwrap();
    let inside = folder.path().join("nvidia-h200");
    fs::create_dir(&inside).unwrap();
    fs::write(inside.join("gemm.toml"), record(vec![size([1000, 512, 768], |_| 1.0)]).to_string()).unwrap();
    fs::write(inside.join("bad.toml"), "kernel = 3").unwrap();
    fs::write(inside.join("notes.txt"), "not a record").unwrap();
    let mut records = Records::none(GPU);
    records.add_folder(folder.path());
    records.add_folder(&folder.path().join("none"));
    assert_eq!((records.iter().count(), records.problems().len()), (1, 2));
    assert!(records.problems()[0].origin.ends_with("bad.toml"));
    assert!(records.problems()[1].to_string().contains("none cannot be used: it is no folder to read"));
    let mut of_another = Records::none("NVIDIA H20");
    of_another.add_folder(folder.path());
    assert_eq!(of_another.other_gpus().collect::<Vec<_>>(), [GPU]);
}

#[test]
fn a_device_follows_the_records_that_it_is_given() {
    // The CPU has no costs to correct, and uses its default whatever a record says.
    let device = Device::cpu();
    device.set_records(Records::none("CPU"));
    let x = Tensor::zeros(&device, DType::F32, [100, 8]).unwrap();
    let mut y = Tensor::zeros(&device, DType::F32, [100, 8]).unwrap();
    SCALE.launch(&device, args!(x, x, 1.0, &mut y)).unwrap();
    assert_eq!(device.records().gpu(), "CPU");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Whatever bytes a record has, it is read or refused, and a config is chosen.
    #[test]
    fn damaged_records_never_panic(at in 0..4000_usize, with_byte in any::<u8>(), cut in 0..4000_usize) {
        let sizes = [1000, 512, 768];
        let mut bytes = record(vec![size(sizes, |_| 1.0)]).to_string().into_bytes();
        let (at, cut) = (at % bytes.len(), cut % bytes.len());
        bytes[at] = with_byte;
        for text in [String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&bytes[..cut])] {
            let mut records = Records::none(GPU);
            if records.add("test", &text) == Ok(true) {
                prop_assert!(with(sizes, &records).chosen().is_some());
            }
        }
    }
}
