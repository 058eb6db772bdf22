//! Machines and problems at their limits: old or broken drivers, unwritable caches, huge tensors.

use crate::command::{folder, has, json_with, prints_with, refuses, refuses_with, write};
use atlas::prelude::*;
#[cfg(feature = "llvm")]
use atlas_runtime::{CacheDir, SimOptions};
use std::path::Path;
use std::process::Command;

/// A fake driver with fixed answers, as a library in a folder of its own.
#[derive(Clone, Copy)]
struct FakeDriver {
    /// The status that `cuInit` returns.
    init: u32,
    /// 12040 for CUDA 12.4.
    version: u32,
    gpus: u32,
    /// A function that this driver lacks.
    lacks: &'static str,
}

const DRIVER: FakeDriver = FakeDriver { init: 0, version: 13_000, gpus: 1, lacks: "" };

/// The functions that the runtime looks up, from its own table.
fn driver_functions() -> impl Iterator<Item = &'static str> {
    let table = include_str!("../runtime/src/gpu/driver.rs");
    table.lines().filter_map(|l| l.split_once("= \"cu")?.1.split_once("\"(").map(|(name, _)| name))
}

impl FakeDriver {
    fn build(self, dir: &Path) {
        let FakeDriver { init, version, gpus, lacks } = self;
        // Attributes 75 and 76 are the compute capability.
        let mut source = format!(
            "int cuInit(unsigned flags) {{ return {init}; }}\n\
             int cuDriverGetVersion(int *v) {{ *v = {version}; return 0; }}\n\
             int cuDeviceGetCount(int *n) {{ *n = {gpus}; return 0; }}\n\
             int cuDeviceGetAttribute(int *v, int a, int d) {{ *v = a == 75 ? 7 : a == 76 ? 0 : 1; return 0; }}\n\
             int cuDeviceGetName(char *s, int n, int d) {{ s[0] = 'V'; s[1] = 0; return 0; }}\n\
             int cuGetErrorName(int e, const char **s) {{ *s = \"CUDA_ERROR_SYSTEM_NOT_READY\"; return 0; }}\n\
             int cuGetErrorString(int e, const char **s) {{ *s = \"system not yet initialized\"; return 0; }}\n"
        );
        for name in driver_functions().map(|n| format!("cu{n}")).filter(|n| n != lacks) {
            if !source.contains(&format!("{name}(")) {
                source += &format!("int {name}(void) {{ return 0; }}\n");
            }
        }
        write(&dir.join("driver.c"), &source);
        let built = Command::new("cc")
            .current_dir(dir)
            .args(["-shared", "-fPIC", "-w", "driver.c", "-o"])
            .args(["libcuda.so.1"])
            .status();
        assert!(built.is_ok_and(|s| s.success()), "cc builds no library from\n{source}");
    }

    /// The message of `atlas verify --device cuda:0` with this driver.
    fn refuses(self) -> String {
        let dir = folder();
        self.build(dir.path());
        refuses_with(&["verify", "--device", "cuda:0"], &[("LD_LIBRARY_PATH", &dir.path().display().to_string())])
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_driver_that_cannot_be_used_is_told_with_its_mend() {
    assert!(driver_functions().count() > 30);
    let old = FakeDriver { version: 11_000, ..DRIVER }.refuses();
    has(
        &old,
        &["ATL621", "too old", "found one for CUDA 11.0", "wanted one for CUDA 11.4 or later", "update the driver"],
    );
    let lacking = FakeDriver { lacks: "cuMemAllocAsync", ..DRIVER }.refuses();
    has(&lacking, &["ATL621", "lacks `cuMemAllocAsync`", "update the driver"]);
    let broken = FakeDriver { init: 802, ..DRIVER }.refuses();
    has(&broken, &["ATL621", "does not start", "CUDA_ERROR_SYSTEM_NOT_READY (802)", "nvidia-smi"]);
    has(
        &FakeDriver { gpus: 0, ..DRIVER }.refuses(),
        &["ATL622", "there is no GPU 0", "shows 0", "CUDA_VISIBLE_DEVICES"],
    );
    has(&DRIVER.refuses(), &["ATL623", "compute capability 7.0", "use another GPU or --device cpu"]);
}

#[test]
#[cfg(target_os = "linux")]
fn without_a_usable_driver_the_best_device_is_the_cpu() {
    let dir = folder();
    FakeDriver { version: 11_000, ..DRIVER }.build(dir.path());
    let path = dir.path().display().to_string();
    let demo = prints_with(&["demo", "--only", "softmax"], &[("LD_LIBRARY_PATH", &path)]);
    has(&demo, &["softmax", "cpu"]);
    let findings = json_with(&["doctor", "--json"], &[("LD_LIBRARY_PATH", &path)]);
    let gpu = findings.as_array().into_iter().flatten().find(|f| f["what"] == "GPU");
    assert!(gpu.is_some_and(|f| f["mend"].as_str().is_some_and(|m| m.contains("update the driver"))), "{findings}");
}

/// The doctor's finding for the kernel cache in `dir`.
fn cache(dir: &str) -> serde_json::Value {
    let findings = json_with(&["doctor", "--json"], &[("ATLAS_CACHE_DIR", dir)]);
    let found = findings.as_array().into_iter().flatten().find(|f| f["what"] == "kernel cache");
    found.cloned().unwrap_or_default()
}

#[test]
#[cfg(target_os = "linux")]
fn a_cache_that_cannot_be_written_is_told_and_stops_nothing() {
    let dir = folder();
    let file = dir.path().join("file");
    write(&file, "");
    // The folder's parent is a file: no user, not even root, can make a folder there.
    let below_a_file = file.join("cache").display().to_string();
    for bad in [&*below_a_file, "/dev/full"] {
        let found = cache(bad);
        assert!(
            found["has"] == false && found["mend"].as_str().is_some_and(|m| m.contains("ATLAS_CACHE_DIR")),
            "{found}"
        );
        has(
            &prints_with(&["verify", "--device", "cpu", "--only", "poly1"], &[("ATLAS_CACHE_DIR", bad)]),
            &["problems pass on cpu"],
        );
    }
    assert_eq!(cache(&dir.path().join("cache").display().to_string())["has"], true);
    assert_eq!(cache("")["has"], false);
}

#[test]
#[cfg(not(feature = "llvm"))]
fn the_doctor_says_how_to_get_a_code_generator() {
    let findings = crate::command::json(&["doctor", "--json"]);
    let found = findings.as_array().into_iter().flatten().find(|f| f["what"] == "code generator");
    assert!(found.is_some_and(|f| f["has"] == false), "{findings}");
    has(&findings.to_string(), &["--features jit", "--features static-llvm"]);
}

#[test]
fn illegal_configs_of_a_tile_file_are_refused() {
    const STAGES: &str = if cfg!(feature = "llvm") { "tile,ptx" } else { "tile" };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cases/tile/gemm.tile");
    let with = |config: &str| refuses(&["compile", file, "--emit", STAGES, "--config", config]);
    has(&with("BM=64"), &["no knob `BM`", "stages, warps"]);
    has(&with("stages=x"), &["`x`"]);
    #[cfg(feature = "llvm")]
    {
        has(&with("warps=0"), &["ATL302", "warps = 0"]);
        has(&with("warps=64"), &["ATL302", "warps = 64"]);
        has(&with("stages=9"), &["ATL302", "stages = 9"]);
        for occupancy in ["0", "17", "50000000", "4294967295"] {
            has(&with(&format!("occupancy={occupancy}")), &["ATL302", &format!("occupancy = {occupancy} ")]);
        }
        // 128 x 256 sums do not fit in the registers of one warp.
        has(&with("warps=1"), &["ATL302", "registers per thread"]);
    }
}

atlas_kernel! {
    /// Sums of rows; O is 1.
    kernel row_sums(x: &Tensor<bf16, [N, D]>, y: &mut Tensor<f32, [N, O]>)
    tune { BN: [256, 16], BD: [1024, 64] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, O]);
            for d in tiles(D, BD) {
                total += sum(load(x[n, d]).cast::<f32>(), axis = 1);
            }
            store(y[n, ..], total);
        }
    }
}

/// A stride of 0 keeps the memory small; every element is still counted.
#[test]
fn more_elements_than_an_i32_counts() -> atlas::Result<()> {
    let device = Device::cpu();
    let (n, d) = (65_536, 32_772);
    assert!(n * d > 1 << 31);
    let one = device.tensor_from(&[bf16::from_f32(0.5)], [1, 1])?;
    let mut y = Tensor::zeros(&device, DType::F32, [n, 1])?;
    row_sums.launch(&device, args!(one.expand([n, d])?, &mut y))?;
    assert!(y.to_vec::<f32>()?.iter().all(|&sum| sum == d as f32 / 2.0));
    Ok(())
}

#[test]
fn a_view_of_nothing_may_start_past_its_storage() -> atlas::Result<()> {
    for device in [Device::cpu(), Device::sim("sm_80")?] {
        let mut view = device.tensor_from::<f32>(&[], [2, 0, 8])?.slice(2, 1..5)?;
        assert!(view.to_vec::<f32>()?.is_empty() && view.to_f64_vec()?.is_empty());
        view.copy_from::<f32>(&[])?;
    }
    Ok(())
}

#[test]
fn memory_that_is_not_there_is_an_error() -> atlas::Result<()> {
    for device in [Device::cpu(), Device::sim("sm_80")?] {
        let error = Tensor::empty(&device, DType::F32, [1 << 45]).map(drop).unwrap_err().to_string();
        assert!(error.contains("ATL638"), "{error}");
    }
    Ok(())
}

#[cfg(feature = "llvm")]
#[test]
fn a_kernel_is_compiled_once_however_many_threads_want_it() -> atlas::Result<()> {
    let device = Device::sim_with(crate::kernels::target("sm_80"), SimOptions::default(), CacheDir::Off);
    let launch = || -> atlas::Result<()> {
        let x = device.tensor_from(&[bf16::from_f32(0.5); 48], [3, 16])?;
        let mut y = Tensor::zeros(&device, DType::F32, [3, 1])?;
        row_sums.launch(&device, args!(&x, &mut y))?;
        assert_eq!(y.to_vec::<f32>()?, [8.0; 3]);
        Ok(())
    };
    let results: Vec<_> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..8).map(|_| s.spawn(launch)).collect();
        threads.into_iter().map(|t| t.join().expect("a thread")).collect()
    });
    results.into_iter().collect::<atlas::Result<Vec<()>>>()?;
    assert_eq!(device.stats().compiled, 1);
    Ok(())
}
