//! The simulator as a device: memory, launches of hand-written PTX, and the faults that it finds in them.

use crate::kernels::{ROW_OF, SCALE};
use crate::ptx::{PTX, counted, image, with_kernel, with_kernels};
use atlas_codegen::KernelImage;
use atlas_dsl::DType;
use atlas_runtime::bundle::{Bundle, BundleWriter, Bundles};
use atlas_runtime::records::{MODEL, Record, Records, Timed, TunedSize, class_text, ir_hash, tune_hash};
use atlas_runtime::simulator::fault::FaultKind;
use atlas_runtime::{
    CacheDir, ConfigSource, Device, DeviceError, DeviceId, Launch, LaunchError, Machine, RuntimeError, SimFault,
    SimOptions, SimPolicy, Target, Tensor, args, build_kernel, specialize,
};
use tempfile::TempDir;

const SM_80: Target = Target { sm: 80, specific: false };
const SM_90: Target = Target { sm: 90, specific: false };

fn sim(target: Target) -> Device {
    Device::sim_with(target, SimOptions::default(), CacheDir::Off)
}

/// A simulator whose store has this PTX for `scale` and the problem of `x`.
fn with_ptx(ptx: &str, options: SimOptions, x: impl Fn(&Device) -> Tensor) -> (TempDir, Device) {
    let folder = TempDir::new().unwrap();
    let cache = CacheDir::At(folder.path().to_owned());
    let device = with_kernel(Device::sim_with(SM_80, options, cache.clone()), cache, |d| image(d, ptx, 0), x);
    (folder, device)
}

/// The fault of this PTX for `scale` on 37 rows.
#[track_caller]
fn fault(ptx: &str) -> Box<SimFault> {
    let (_folder, device) = with_ptx(ptx, SimOptions { budget: 100_000, ..SimOptions::default() }, |d| counted(d, 37));
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    match SCALE.launch(&device, args!(x, x, 2.0, &mut y)).unwrap_err() {
        RuntimeError::Fault(fault) => fault,
        other => panic!("{other}"),
    }
}

#[test]
fn a_simulator_is_a_device_of_its_target() {
    let device = Device::sim("sm_90").unwrap();
    assert_eq!(
        (device.id(), device.target(), device.name()),
        (DeviceId::Sim(SM_90.into()), Some(SM_90), "simulator sm_90")
    );
    assert_eq!(
        (device.to_string(), device.capability(), device.sm_count()),
        ("sim:sm_90".to_owned(), Some((9, 0)), 132)
    );
    assert_eq!((device.memory_bytes(), device.driver_version()), (None, None));
    assert!(device.simulates() && !device.is_cpu() && !Device::cpu().simulates());
    assert_eq!(["sm_80", "sm_89"].map(|arch| Device::sim(arch).unwrap().sm_count()), [108, 128]);
    device.synchronize().unwrap();
    device.default_stream().synchronize().unwrap();
}

/// The variables belong to a process of its own, which runs this test again.
#[test]
fn a_simulator_has_the_bundles_and_records_that_a_gpu_would() {
    const ITSELF: &str = "ATLAS_TEST_OF_A_SIMULATED_GPU";
    if std::env::var_os(ITSELF).is_some() {
        let device = Device::sim("sm_90").unwrap();
        assert_eq!(device.records().iter().map(|r| r.kernel.as_str()).collect::<Vec<_>>(), ["scale"]);
        assert_eq!(device.bundles().problems().len(), 1, "the file is not there");
        assert_eq!(Device::sim("sm_80").unwrap().records().iter().count(), 0);
        let own = sim(SM_90);
        assert!(own.records().iter().count() == 0 && own.bundles().problems().is_empty());
        return;
    }
    let folder = TempDir::new().unwrap();
    let text = "kernel = \"scale\"\ngpu = \"simulator sm_90\"\ntune = \"0\"\n";
    std::fs::write(folder.path().join("scale.toml"), text).unwrap();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sim::a_simulator_has_the_bundles_and_records_that_a_gpu_would"])
        .env(ITSELF, "1")
        .env("ATLAS_RECORDS", folder.path())
        .env("ATLAS_BUNDLES", folder.path().join("none.atlas"))
        .status();
    assert!(status.unwrap().success());
}

/// All devices of a process have what is named, so a process of its own runs this test again.
#[test]
fn a_bundle_that_is_named_for_gpus_is_read_when_one_is_opened_and_searched_last() {
    const ITSELF: &str = "ATLAS_TEST_OF_A_NAMED_BUNDLE";
    if std::env::var_os(ITSELF).is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sim::a_bundle_that_is_named_for_gpus_is_read_when_one_is_opened_and_searched_last"])
            .env(ITSELF, "1")
            .env_remove("ATLAS_BUNDLES")
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let folder = TempDir::new().unwrap();
    let (named, missing) = (folder.path().join("named.atlas"), folder.path().join("none.atlas"));
    let opened = || Device::open(DeviceId::Sim(SM_90.into()), CacheDir::Off).unwrap();
    let origins = |device: &Device| device.bundles().iter().map(|b| b.origin().to_owned()).collect::<Vec<_>>();
    let before = opened();
    for path in [&named, &missing, &named] {
        Bundles::name_for_gpus(path);
    }
    // The file is not there yet. Whatever reads it now has a problem with it for good.
    let cpu = Device::open(DeviceId::Cpu, CacheDir::Off).unwrap();
    assert!(origins(&cpu).is_empty() && cpu.bundles().problems().is_empty());
    std::fs::write(&named, BundleWriter::new().finish()).unwrap();
    let device = opened();
    let path = named.display().to_string();
    assert_eq!(origins(&device), [path.as_str()]);
    let problems = device.bundles().problems().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(problems.len() == 1 && problems[0].contains("error[ATL650]") && problems[0].contains("none.atlas"));
    device.add_bundle(Bundle::read("of the program", BundleWriter::new().finish()).unwrap());
    assert_eq!(origins(&device), ["of the program", path.as_str()]);
    // It is read once, and GPUs that were open before do without.
    std::fs::remove_file(&named).unwrap();
    assert_eq!(origins(&opened()), [path.as_str()]);
    assert!(origins(&before).is_empty());
}

#[test]
fn there_is_one_per_process_and_target() {
    assert_eq!(Device::sim("sm_90").unwrap(), Device::sim("sm_90").unwrap());
    assert_ne!(Device::sim("sm_90").unwrap(), Device::sim("sm_80").unwrap());
    assert_ne!(Device::sim("sm_80").unwrap(), sim(SM_80));
    let opened = Device::open(DeviceId::Sim(SM_80.into()), CacheDir::Off).unwrap();
    assert_eq!(opened.clone(), opened);
    assert_ne!(opened, sim(SM_80), "each has its own memory");
}

#[test]
fn an_arch_that_is_not_there_is_an_error_with_those_that_are() {
    let error = Device::sim("sm_75").unwrap_err();
    assert!(matches!(error, RuntimeError::Device(DeviceError::NoSuchArch { .. })));
    let want = "error[ATL624]: no GPU to simulate: unknown arch `sm_75`; this compiler lowers for \
                sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_103, sm_110, sm_120, sm_121, sm_90a, sm_100a, sm_120a";
    assert_eq!(error.to_string(), want);
}

#[test]
fn tensors_live_in_simulated_memory() {
    let device = sim(SM_80);
    let mut x = counted(&device, 3);
    assert_eq!(x.address() % 256, 0);
    assert_eq!(x.slice(1, 2..4).unwrap().to_vec::<f32>().unwrap(), [2.0, 3.0, 10.0, 11.0, 18.0, 19.0]);
    assert_eq!(x.transpose(0, 1).unwrap().contiguous().unwrap().to_vec::<f32>().unwrap()[..3], [0.0, 8.0, 16.0]);
    x.copy_from(&[1.0_f32; 24]).unwrap();
    assert_eq!(x.to_device(&Device::cpu()).unwrap().to_vec::<f32>().unwrap(), [1.0; 24]);
    assert_eq!(Tensor::zeros(&device, DType::F64, [2]).unwrap().to_vec::<f64>().unwrap(), [0.0; 2]);
    let nothing = Tensor::zeros(&device, DType::F32, [0, 4]).unwrap();
    assert!(nothing.to_vec::<f32>().unwrap().is_empty());
    assert_ne!(nothing.address(), Tensor::zeros(&device, DType::F32, [0]).unwrap().address());
}

#[test]
fn a_kernel_runs_and_is_counted() {
    for policy in [SimPolicy::RoundRobin, SimPolicy::Adversarial, SimPolicy::Random] {
        let (_folder, device) =
            with_ptx(PTX, SimOptions { policy, seed: 7, ..SimOptions::default() }, |d| counted(d, 37));
        assert!(device.simulated().is_none());
        let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
        SCALE.launch(&device, args!(x, x, 2.0, &mut y)).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), (0..37 * 8).map(|i| i as f32 * 3.0).collect::<Vec<f32>>());
        let stats = device.stats();
        assert_eq!((stats.launches, stats.compiled, stats.spilling_kernels), (1, 0, 0), "{stats:?}");
        let run = device.simulated().unwrap();
        let totals = run.report.counters.totals();
        // 37 rows of 8 numbers are 37 sectors; two tensors are read, and one is written.
        assert_eq!((totals.loads.sectors, totals.stores.sectors), (2 * 37, 37));
        assert_eq!((totals.loads.bytes, totals.stores.bytes, run.conflicts()), (2 * 37 * 32, 37 * 32, 0));
        let global: Vec<_> =
            run.accesses().into_iter().map(|a| (a.opcode, a.global.requests, a.global.sectors)).collect();
        assert_eq!(global[2], ("st.global.f32".to_owned(), 10, 37));
        assert!(run.mix().contains(&("st.global", 10)), "{:?}", run.mix());
        let prepared = SCALE.prepare(&device, args!(x, x, 1.0, &mut y)).unwrap();
        assert!(prepared.facts().is_none() && prepared.image().is_some());
        prepared.launch(args!(x, x, 4.0, &mut y)).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap()[9], 45.0);
    }
}

#[test]
fn a_view_is_read_where_it_lies() {
    let wide = |d: &Device| {
        let values: Vec<f32> = (0..21 * 24).map(|i| i as f32).collect();
        d.tensor_from(&values, [21, 24]).unwrap().slice(1, 4..12).unwrap()
    };
    let (_folder, device) = with_ptx(PTX, SimOptions::default(), wide);
    let x = wide(&device);
    let (r, mut y) = (x.contiguous().unwrap(), Tensor::zeros(&device, DType::F32, [21, 8]).unwrap());
    SCALE.launch(&device, args!(x, r, 1.0, &mut y)).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), x.to_vec::<f32>().unwrap().iter().map(|x| 2.0 * x).collect::<Vec<_>>());
}

#[test]
fn tensors_of_another_simulator_are_refused() {
    let (device, other) = (sim(SM_80), sim(SM_90));
    let (x, mut y) = (counted(&other, 3), counted(&device, 3));
    let error = SCALE.launch(&device, args!(x, x, 2.0, &mut y)).unwrap_err();
    assert!(matches!(error, RuntimeError::Launch(LaunchError::WrongDevice { param: "x", .. })), "{error}");
    assert!(error.to_string().contains("is on sim:sm_90, but the launch is on sim:sm_80"), "{error}");
    let twin = counted(&sim(SM_80), 3);
    let error = SCALE.launch(&device, args!(twin, twin, 2.0, &mut y)).unwrap_err();
    let want = "is on sim:sm_80, but the launch is on another device of that name; copy it with `to_device`";
    assert!(error.to_string().contains(want), "{error}");
}

#[test]
fn without_a_compiler_a_kernel_must_be_in_the_store() {
    let device = sim(SM_80);
    let (x, mut y) = (counted(&device, 5), counted(&device, 5));
    let done = SCALE.launch(&device, args!(x, x, 2.0, &mut y));
    if atlas_runtime::HAS_COMPILER {
        done.unwrap();
    } else {
        assert!(done.unwrap_err().to_string().starts_with("error[ATL640]: `scale`: this build has no compiler"));
    }
}

#[test]
fn two_writers_of_one_address_race_and_both_are_named() {
    let ptx = PTX.replace("st.global.f32 [%l6], %f3;", ".loc 1 7 9\n  st.global.f32 [%l2], %f3;");
    let fault = fault(&ptx.replace(".address_size 64", ".address_size 64\n.file 1 \"kernels/scale.rs\""));
    assert_eq!(fault.fault.kind, FaultKind::Race);
    let text = fault.to_string();
    assert!(text.starts_with("error[ATL627]: `scale` on sim:sm_80: Race: "), "{text}");
    for part in ["st.global.f32 [%l2], %f3", "from kernels/scale.rs:7:9", "CTA 0 warp 0 lane 0", "lane 1"] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    assert_eq!(RuntimeError::from(*fault).code().to_string(), "ATL627");
}

#[test]
fn what_a_kernel_only_reads_may_not_be_written() {
    assert_eq!(fault(&PTX.replace("st.global.f32 [%l6]", "st.global.f32 [%l4]")).fault.kind, FaultKind::ReadOnly);
    // After the output there is another tensor, which the launch does not use.
    let past = PTX.replace("st.global.f32 [%l6]", "st.global.f32 [%l6+8192]");
    assert_eq!(fault(&past).fault.kind, FaultKind::OutOfBounds);
}

#[test]
fn reading_past_the_end_is_found_though_nothing_would_come_of_it() {
    let text = fault(&PTX.replacen("@%p bra done;", "", 1)).to_string();
    assert!(text.contains("OutOfBounds") && text.contains("past the end of the allocation of 1184 bytes"), "{text}");
}

#[test]
fn memory_that_nobody_wrote_may_not_be_read() {
    let (_folder, device) = with_ptx(PTX, SimOptions::default(), |d| counted(d, 37));
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    let unwritten = Tensor::empty(&device, DType::F32, [37, 8]).unwrap();
    let error = SCALE.launch(&device, args!(x, unwritten, 2.0, &mut y)).unwrap_err().to_string();
    assert!(error.contains("UninitializedRead"), "{error}");
    SCALE.launch(&device, args!(x, x, 2.0, &mut y)).unwrap();
}

#[test]
fn a_launch_that_does_not_end_is_given_up() {
    assert_eq!(fault(&PTX.replace("done:", "again:\n  bra again;\ndone:")).fault.kind, FaultKind::Budget);
}

#[test]
fn text_that_is_no_ptx_is_told_with_its_line() {
    let fault = fault(&PTX.replace("fma.rn.f32", "nonsense.f32"));
    assert_eq!(fault.fault.kind, FaultKind::Syntax);
    assert!(fault.to_string().contains("nonsense"), "{fault}");
}

#[test]
fn a_kernel_of_other_parameters_is_refused() {
    let (_folder, device) =
        with_ptx(&PTX.replace(", .param .u64 stride", ""), SimOptions::default(), |d| counted(d, 37));
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    let error = SCALE.launch(&device, args!(x, x, 2.0, &mut y)).unwrap_err().to_string();
    assert!(error.contains("ATL619") || error.contains("stride"), "{error}");
}

/// A launch of `scale` on a simulated `sm_86` with these kernels for its two best configs, and the result for each.
fn with_two(first: impl Fn(&Device) -> KernelImage, second: impl Fn(&Device) -> KernelImage) -> (TempDir, Device) {
    let folder = TempDir::new().unwrap();
    let cache = CacheDir::At(folder.path().to_owned());
    let machine: Machine = "sm_86".parse().unwrap();
    let device = Device::sim_with(machine, SimOptions::default(), cache.clone());
    let device = with_kernels(device, cache, &[&first, &second], |d| counted(d, 37));
    (folder, device)
}

#[test]
fn what_the_machine_has_no_room_for_is_passed_over_and_remembered() {
    // 120 KiB, which fits an sm_80 and not an sm_86: from a store that serves both.
    let (_folder, device) = with_two(|d| image(d, PTX, 120 << 10), |d| image(d, PTX, 0));
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    let before = SCALE.select(&device, args!(x, x, 2.0, &mut y)).unwrap();
    let prepared = SCALE.prepare(&device, args!(x, x, 2.0, &mut y)).unwrap();
    let why = "it needs 122880 bytes of shared memory, but a CTA on sm_86 has 101376";
    assert_eq!(prepared.passed_over(), [(before.chosen().unwrap().clone(), why.to_owned())]);
    assert_eq!(*prepared.config(), before.legal().nth(1).unwrap().config);
    prepared.launch(args!(x, x, 2.0, &mut y)).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap()[9], 27.0);
    assert_eq!(device.stats().passed_over, 1);
    let after = SCALE.select(&device, args!(x, x, 2.0, &mut y)).unwrap();
    assert_eq!(after.chosen(), Some(prepared.config()));
    assert!(after.to_string().contains(&format!("refused: {why}")), "{after}");
    // The refusal belongs to this device, not to the config.
    let other = sim(SM_80);
    let (x, mut y) = (counted(&other, 37), counted(&other, 37));
    assert_eq!(SCALE.select(&other, args!(x, x, 2.0, &mut y)).unwrap().refused().count(), 0);
}

/// If the machine refuses a recorded config, no record chose the one that runs instead, and no message claims so.
#[test]
fn after_a_refusal_what_is_told_is_what_runs() {
    let (_folder, device) = with_two(|d| image(d, PTX, 120 << 10), |d| image(d, PTX, 0));
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    let bound = SCALE.bind(&device, args!(x, x, 2.0, &mut y)).unwrap();
    let first = SCALE.select(&device, args!(x, x, 2.0, &mut y)).unwrap().chosen().unwrap().clone();
    let spec = specialize(&bound);
    let (types, tensors) = class_text(&SCALE, &spec);
    let row = TunedSize {
        types,
        tensors,
        dims: "N=37 D=8".to_owned(),
        ir: ir_hash(&build_kernel(&SCALE, &spec, &first).unwrap()),
        spread: 0.01,
        of_copy: 0.5,
        measured: String::new(),
        model: MODEL,
        target: String::new(),
        configs: vec![Timed { config: first.to_string(), us: 1.0, cycles: 1000.0 }],
    };
    let mut records = Records::none("simulator sm_90");
    let (kernel, gpu) = ("scale".to_owned(), "simulator sm_90".to_owned());
    records.insert(Record { kernel, gpu, tune: tune_hash(&SCALE), sizes: vec![row] });
    device.set_records(records.clone());
    assert_eq!(SCALE.select(&device, args!(x, x, 2.0, &mut y)).unwrap().source, ConfigSource::Record);
    for passed_over in [1, 0] {
        let prepared = SCALE.prepare(&device, args!(x, x, 2.0, &mut y)).unwrap();
        assert_eq!((prepared.source(), prepared.passed_over().len()), (ConfigSource::Nearby, passed_over));
        let told = SCALE.select(&device, args!(x, x, 2.0, &mut y)).unwrap();
        assert_eq!((told.source, told.chosen()), (ConfigSource::Nearby, Some(prepared.config())));
        assert!(told.notes.iter().all(|n| n.contains("is refused: it needs 122880 bytes")), "{:?}", told.notes);
        device.set_records(records.clone());
    }
    assert_eq!((device.stats().chosen_by_record, device.stats().chosen_by_nearby), (0, 2));
}

#[test]
fn a_config_that_was_asked_for_is_refused_with_the_reason() {
    let (_folder, device) = with_two(|d| image(d, PTX, 120 << 10), |d| image(d, PTX, 0));
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    let config = SCALE.select(&device, args!(x, x, 2.0, &mut y)).unwrap().chosen().unwrap().clone();
    let error = SCALE.launch_with(&device, &config, args!(x, x, 2.0, &mut y)).unwrap_err().to_string();
    assert!(error.starts_with("error[ATL641]: `scale`: the given config cannot run this problem here"), "{error}");
    assert!(error.contains("122880 bytes of shared memory") && !error.contains("defect"), "{error}");
}

#[test]
fn a_kernel_that_spills_is_left_for_the_next() {
    let spilling = PTX.replacen("{", "{\n  .local .align 4 .b8 depot[48];", 1);
    let (_folder, device) = with_two(|d| image(d, &spilling, 0), |d| image(d, PTX, 0));
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    let prepared = SCALE.prepare(&device, args!(x, x, 2.0, &mut y)).unwrap();
    assert_eq!(prepared.passed_over()[0].1, "its registers spill 48 bytes per thread");
    let spilled = prepared.passed_over()[0].0.clone();
    assert_ne!(*prepared.config(), spilled);
    let stats = device.stats();
    assert_eq!((stats.spilling_kernels, stats.passed_over), (1, 1));
    let explained = SCALE.select(&device, args!(x, x, 2.0, &mut y)).unwrap().to_string();
    assert!(explained.contains("; its registers spill 48 bytes per thread"), "{explained}");
    let given = SCALE.prepare_with(&device, &spilled, args!(x, x, 2.0, &mut y)).unwrap();
    assert_eq!(*given.config(), spilled);
}

#[test]
fn what_spills_runs_if_nothing_else_does() {
    let spilling = |bytes: u32| PTX.replacen("{", &format!("{{\n  .local .align 4 .b8 depot[{bytes}];"), 1);
    let (much, little) = (spilling(480), spilling(48));
    let (_folder, device) = with_two(|d| image(d, &much, 0), |d| image(d, &little, 0));
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    let prepared = SCALE.prepare(&device, args!(x, x, 2.0, &mut y)).unwrap();
    if !atlas_runtime::HAS_COMPILER {
        assert_eq!(prepared.passed_over()[0].1, "its registers spill 480 bytes per thread");
        assert_eq!(prepared.passed_over().len(), 1);
    }
    prepared.launch(args!(x, x, 2.0, &mut y)).unwrap();
}

#[test]
fn a_mutable_borrow_is_as_good_as_a_shared_one() {
    let (_folder, device) = with_ptx(PTX, SimOptions::default(), |d| counted(d, 37));
    let (mut x, mut r, mut y) = (counted(&device, 37), counted(&device, 37), counted(&device, 37));
    SCALE.launch(&device, args!(&mut x, &mut r, 2.0, &mut y)).unwrap();
    SCALE.launch(&device, args!(x, r, 2.0, &mut y)).unwrap();
    assert_eq!(device.stats().warm_launches, 1);
}

#[test]
fn nothing_is_launched_for_an_output_of_no_elements() {
    let device = sim(SM_80);
    let none = || Tensor::zeros(&device, DType::F32, [0, 8]).unwrap();
    SCALE.launch(&device, args!(none(), none(), 2.0, &mut none())).unwrap();
    assert!(device.simulated().is_none());
}

#[cfg(feature = "jit")]
#[test]
fn an_empty_contraction_is_zero() {
    let device = sim(SM_80);
    let zeros = |shape: [usize; 2]| Tensor::zeros(&device, DType::F32, shape).unwrap();
    let mut c = device.tensor_from(&[7.0_f32; 12], [3, 4]).unwrap();
    crate::kernels::GEMM.launch(&device, args!(zeros([3, 0]), zeros([0, 4]), &mut c)).unwrap();
    assert_eq!(c.to_vec::<f32>().unwrap(), [0.0; 12]);
}

/// The CPU runs a launch for a simulator that may not compile: on the memory of a view that repeats itself beyond the
/// memory there is.
#[test]
fn the_cpu_takes_a_repeated_input_for_a_simulator() {
    let device = sim(SM_80);
    device.set_compiling(false);
    device.set_cpu_fallback(true);
    let x = device.tensor_from(&[1.0_f32, 2.0, 3.0, 4.0], [1, 4]).unwrap().expand([i32::MAX as usize, 4]).unwrap();
    // Every other column, and alternate rows: the bytes between them are unchanged.
    let whole = device.tensor_from(&[-1.0_f32; 4 * 9], [4, 9]).unwrap();
    let mut y = whole.as_strided([2, 4], [18, 2], 1).unwrap();
    ROW_OF.launch(&device, args!(x, 7, &mut y)).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0].repeat(2));
    let (written, kept) = ([-1.0, 2.0, -1.0, 4.0, -1.0, 6.0, -1.0, 8.0, -1.0], [-1.0; 9]);
    assert_eq!(whole.to_vec::<f32>().unwrap(), [written, kept, written, kept].concat());
    // Runs of adjacent elements, and the same tensor read through another view.
    let mut y = whole.slice(1, 0..4).unwrap().slice(0, 1..2).unwrap();
    ROW_OF.launch(&device, args!(whole.as_strided([2, 4], [18, 2], 1).unwrap(), 0, &mut y)).unwrap();
    let between = [4.0, 8.0, 12.0, 16.0, -1.0, -1.0, -1.0, -1.0, -1.0];
    assert_eq!(whole.to_vec::<f32>().unwrap(), [written, between, written, kept].concat());
    let mut y = whole.slice(1, 0..4).unwrap().slice(0, 2..4).unwrap();
    ROW_OF.launch(&device, args!(x, -1, &mut y)).unwrap();
    assert_eq!(whole.to_vec::<f32>().unwrap()[18..27], [0.0, 0.0, 0.0, 0.0, -1.0, 6.0, -1.0, 8.0, -1.0]);
}
