//! Bundles: the output of `atlas bundle` runs without a compiler, and a bad file is detected before anything runs.

use crate::command::{json_of, prints, prints_with, refuses};
use atlas::{Device, Tensor, args};
use atlas_ops::{rms_norm::rms_norm, softmax::softmax};
use atlas_runtime::bundle::{Bundle, BundleWriter, Bundles, Variant};
use atlas_runtime::{CacheDir, ConfigSource, DeviceId, KernelImage, Launch};
use half::bf16;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs;
use std::sync::LazyLock;

/// Rows of softmax at D = 64: a class for `N = *8` and one for all N, for two machines.
static SOFTMAX: LazyLock<Vec<u8>> = LazyLock::new(|| {
    made(&["softmax", "--dims", "N=8,D=64", "--dims", "N=24,D=64", "--arch", "sm_80,sm_90", "--variants", "3"])
});

pub(crate) fn made(args: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kernels.atlas");
    prints(&[&["bundle"], args, &["--out", &file.display().to_string()]].concat());
    fs::read(file).unwrap()
}

/// A simulated GPU that runs kernels from bundles and does not compile.
pub(crate) fn device(arch: &str, bundle: &[u8]) -> Device {
    let device = Device::open(DeviceId::Sim(arch.parse().unwrap()), CacheDir::Off).unwrap();
    device.set_compiling(false);
    device.add_bundle(Bundle::read("test", bundle.to_vec()).unwrap());
    device
}

fn rows(n: usize, d: usize) -> Vec<bf16> {
    (0..n * d).map(|i| bf16::from_f32((i * 37 % 101) as f32 / 25.0 - 2.0)).collect()
}

/// Softmax of a few rows on a device.
fn run(device: &Device, n: usize, d: usize) -> Result<Vec<bf16>, String> {
    let x = device.tensor_from(&rows(n, d), [n, d]).unwrap();
    let mut y = Tensor::zeros(device, atlas_dsl::DType::Bf16, [n, d]).unwrap();
    softmax.launch(device, args!(x, &mut y)).map_err(|e| e.to_string())?;
    Ok(y.to_vec::<bf16>().unwrap())
}

fn is_right(found: &[bf16], n: usize, d: usize) -> bool {
    let expected = run(&Device::cpu(), n, d).unwrap();
    found.len() == expected.len() && found.iter().zip(&expected).all(|(a, b)| (a.to_f32() - b.to_f32()).abs() < 1e-2)
}

#[test]
fn a_program_without_a_compiler_runs_what_a_bundle_has() {
    for arch in ["sm_80", "sm_86", "sm_90"] {
        let device = device(arch, &SOFTMAX);
        // The requested sizes, other sizes of their class, and arbitrary sizes.
        for n in [8, 24, 40, 5, 64, 1000] {
            assert!(is_right(&run(&device, n, 64).unwrap(), n, 64), "{arch} {n}");
        }
        let stats = device.stats();
        assert_eq!((stats.chosen_by_bundle, stats.chosen_by_region, stats.compiled), (2, 4, 0), "{arch}");
    }
}

#[test]
fn the_same_kernels_make_the_same_bytes() {
    let again =
        made(&["softmax", "--dims", "N=8,D=64", "--dims", "N=24,D=64", "--arch", "sm_80,sm_90", "--variants", "3"]);
    assert!(*SOFTMAX == again);
}

#[test]
fn what_a_bundle_lacks_is_named_with_its_mend() {
    let gpu = device("sm_90", &SOFTMAX);
    let why = run(&gpu, 8, 128).unwrap_err();
    assert!(
        why.contains("error[ATL640]") && why.contains("`atlas bundle softmax --dims N=8,D=128 --dtype T=bf16`"),
        "{why}"
    );
    assert!(why.contains("has no kernel for `T=bf16 N=*8 D=128`, only for `T=bf16 N=*8 D=64`"), "{why}");
    assert!(why.contains("`*8` is any multiple of 8; a dim that is a number is used whole"), "{why}");
    let odd = gpu.tensor_from(&rows(8, 66), [8, 66]).unwrap().slice(1, 1..65).unwrap();
    let mut y = Tensor::zeros(&gpu, atlas_dsl::DType::Bf16, [8, 64]).unwrap();
    let why = softmax.launch(&gpu, args!(odd, &mut y)).unwrap_err().to_string();
    assert!(why.contains("is a view, aligned to 4 bytes") && why.contains("has `tensors = \"x=2:*2,1\"`"), "{why}");
    let x = gpu.tensor_from(&rows(8, 64), [8, 64]).unwrap();
    let weight = gpu.tensor_from(&[bf16::from_f32(1.0); 64], [64]).unwrap();
    let mut y = Tensor::zeros(&gpu, atlas_dsl::DType::Bf16, [8, 64]).unwrap();
    let why = rms_norm.launch(&gpu, args!(x, weight, &mut y, 1e-5)).unwrap_err().to_string();
    assert!(why.contains("the bundle test has no kernel `rms_norm`"), "{why}");
    let only_90 = made(&["softmax", "--dims", "N=8,D=64", "--arch", "sm_90", "--no-evidence"]);
    let why = run(&device("sm_80", &only_90), 8, 64).unwrap_err();
    assert!(why.contains("has kernels for sm_90, which sm_80 does not run"), "{why}");
}

#[test]
fn what_a_bundle_lacks_is_compiled_or_left_to_the_cpu() {
    let gpu = device("sm_90", &SOFTMAX);
    gpu.set_cpu_fallback(true);
    assert!(is_right(&run(&gpu, 8, 128).unwrap(), 8, 128));
    assert_eq!(gpu.stats().on_cpu, 1);
    gpu.set_cpu_fallback(false);
    gpu.set_compiling(true);
    assert!(is_right(&run(&gpu, 8, 128).unwrap(), 8, 128));
    // A kernel that the bundle has for exactly this class is not compiled. For a class that it merely serves, one is.
    assert!(is_right(&run(&gpu, 40, 64).unwrap(), 40, 64));
    assert_eq!(gpu.stats().compiled, 1);
    assert!(is_right(&run(&gpu, 64, 64).unwrap(), 64, 64));
    assert_eq!((gpu.stats().compiled, gpu.stats().chosen_by_region), (2, 1));
}

/// On the CPU, a view's results are written to the view, and nowhere else.
#[test]
fn the_cpu_writes_what_a_view_has_and_nothing_between() {
    let gpu = device("sm_90", &SOFTMAX);
    gpu.set_cpu_fallback(true);
    let x = gpu.tensor_from(&rows(4, 6), [4, 6]).unwrap();
    let whole = gpu.tensor_from(&[bf16::from_f32(9.0); 4 * 8], [4, 8]).unwrap();
    let mut y = whole.slice(1, 1..7).unwrap();
    softmax.launch(&gpu, args!(x, &mut y)).unwrap();
    let (rows, all) = (y.to_vec::<bf16>().unwrap(), whole.to_vec::<bf16>().unwrap());
    assert!(is_right(&rows, 4, 6));
    assert!(all.chunks(8).all(|row| row[0].to_f32() == 9.0 && row[7].to_f32() == 9.0));
}

#[test]
fn a_config_of_the_callers_is_taken_from_the_bundle_if_it_is_there() {
    let gpu = device("sm_90", &SOFTMAX);
    let x = gpu.tensor_from(&rows(8, 64), [8, 64]).unwrap();
    let mut y = Tensor::zeros(&gpu, atlas_dsl::DType::Bf16, [8, 64]).unwrap();
    let prepared = softmax.prepare(&gpu, args!(x, &mut y)).unwrap();
    assert_eq!(prepared.source(), ConfigSource::Bundle);
    let config = prepared.config().clone();
    assert_eq!(softmax.prepare_with(&gpu, &config, args!(x, &mut y)).unwrap().source(), ConfigSource::Given);
    let other: atlas_dsl::Config = "BN=1 stages=2 warps=32".parse().unwrap();
    let why = softmax.prepare_with(&gpu, &other, args!(x, &mut y)).map(drop).unwrap_err().to_string();
    assert!(why.contains("has no kernel with the config `BN=1 stages=2 warps=32`"), "{why}");
}

#[test]
fn a_kernel_that_has_changed_since_is_not_run() {
    let why = run(&device("sm_90", &stale(&SOFTMAX)), 8, 64).unwrap_err();
    let told = "the kernel has changed since the bundle was made; make the bundle again";
    assert_eq!(why.matches(told).count(), 1, "{why}");
}

/// The check comes before anything is compiled.
#[test]
fn a_file_that_cannot_be_written_is_told_at_once() {
    let all = ["--dims", "N=8,D=64", "--arch", "sm_80,sm_90a", "--variants", "1", "--no-evidence"];
    let why = crate::command::refuses(&[&["bundle", "softmax", "--out", "/nowhere/k.atlas"], &all[..]].concat());
    assert!(why.contains("--out: cannot write /nowhere/k.atlas") && !why.contains("[1/"), "{why}");
    let why = crate::command::refuses(&["tune", "softmax", "--dims", "N=8,D=64", "--pack", "/nowhere/p.atlas"]);
    assert!(why.contains("--pack: cannot write /nowhere/p.atlas") && !why.contains("[1/"), "{why}");
    // The error shows a bundle's classes as exactly as they were requested.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.atlas").display().to_string();
    let shown = crate::command::prints(&[&["bundle", "softmax", "--out", &file], &all[..]].concat());
    crate::command::has(&shown, &["sm_80, sm_90a"]);
}

#[test]
fn a_file_of_another_kind_version_or_abi_is_refused() {
    let read = |bytes: &[u8]| Bundle::read("file", bytes.to_vec()).map(drop).map_err(|e| e.to_string());
    let changed = |at: usize, to: u8| {
        let mut bytes = SOFTMAX.clone();
        bytes[at] = to;
        read(&bytes).unwrap_err()
    };
    assert_eq!(read(b"").unwrap_err(), "error[ATL650]: the bundle file cannot be used: it is cut off; copy it anew");
    assert!(read(b"# a record").unwrap_err().contains("it is no bundle"));
    assert!(changed(8, 9).contains("it has format 9 for ABI 1, and this program reads format 3 for ABI 1"));
    assert!(changed(12, 9).contains("it has format 3 for ABI 9"));
    assert!(changed(22, 1).contains("it is cut off"));
    assert!(changed(40, SOFTMAX[40] ^ 1).contains("its table of contents is damaged"));
    assert!(Bundle::open("no/such/file.atlas").unwrap_err().to_string().contains("no/such/file.atlas"));
}

/// However a file is damaged, a launch is correct or refused.
#[test]
fn a_bundle_that_is_cut_off_or_damaged_never_runs_another_kernel() {
    let mut rng = StdRng::seed_from_u64(7);
    let mut refused = 0;
    for _ in 0..1000 {
        let cut = rng.random_range(0..SOFTMAX.len());
        assert!(Bundle::read("cut", SOFTMAX[..cut].to_vec()).is_err(), "{cut} bytes are taken for a bundle");
    }
    for round in 0..300 {
        let mut bytes = SOFTMAX.clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
        }
        let Ok(bundle) = Bundle::read("damaged", bytes.clone()) else {
            refused += 1;
            continue;
        };
        refused += usize::from(bundle.check().is_err());
        if round % 10 == 0 {
            match run(&device("sm_80", &bytes), 8, 64) {
                Ok(found) => assert!(is_right(&found, 8, 64)),
                Err(why) => assert!(why.contains("damaged"), "{why}"),
            }
        }
    }
    assert_eq!(refused, 300, "every flipped bit is found");
}

#[test]
fn a_bundle_is_shown_and_verified_by_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("softmax.atlas");
    fs::write(&file, &*SOFTMAX).unwrap();
    let file = file.display().to_string();
    let shown = prints(&["bundle", "--show", &file]);
    assert!(shown.contains("N=*8 D=64") && shown.contains("sm_80, sm_90") && shown.contains("simulated"), "{shown}");
    let verified = prints(&["verify", "--bundle", &file]);
    assert!(verified.contains("are as they were made") && !verified.contains("FAILED"), "{verified}");
    let mut bytes = SOFTMAX.clone();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    assert!(refuses(&["verify", "--bundle", &file]).contains("error[ATL650]"));
    assert!(refuses(&["bundle", "softmax", "--arch", "sm_12", "--out", &file]).contains("--arch"));
    assert!(refuses(&["bundle", "--out", &file]).contains("nothing to do"));
    assert!(
        refuses(&["bundle", "softmax", "--dims", "N=8,D=64", "--out", "no/such/folder/f"]).contains("cannot write")
    );
}

/// Evidence that cannot be reproduced is a failure, not a remark.
#[test]
fn evidence_is_made_again_and_compared() {
    let bundle = Bundle::read("test", SOFTMAX.clone()).unwrap();
    let mut entry = (*bundle.entry("softmax").unwrap().unwrap()).clone();
    let mut writer = BundleWriter::new();
    for variant in entry.classes.iter_mut().flat_map(|c| &mut c.variants) {
        variant.image = writer.image(&bundle.image(variant).unwrap());
        variant.evidence[0].error += 1e-3;
    }
    writer.kernel("softmax", &entry);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("softmax.atlas");
    fs::write(&file, writer.finish()).unwrap();
    let (passes, found) = json_of(&["verify", "--bundle", &file.display().to_string(), "--json"]);
    assert!(!passes && found["failed"] != 0, "{found}");
    assert!(found.to_string().contains("FAILED: other figures than the bundle has"), "{found}");
}

/// A bundle can be made for the launches of a program.
#[test]
fn sizes_that_a_run_recorded_are_bundled() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = folder.path().join("sizes.toml").display().to_string();
    let variables = [("ATLAS_RECORD_SIZES", sizes.as_str())];
    for _ in 0..2 {
        prints_with(&["verify", "--device", "cpu", "--only", "softmax"], &variables);
    }
    let text = fs::read_to_string(&sizes).unwrap();
    assert!(text.contains("kernel = \"softmax\"") && text.contains("count = 2"), "{text}");
    let bytes = made(&["--sizes", &sizes, "--arch", "sm_90", "--variants", "1", "--no-evidence"]);
    let bundle = Bundle::read("test", bytes).unwrap();
    let classes = bundle.entry("softmax").unwrap().unwrap().classes.len();
    assert!(classes > 2, "{classes}");
}

mod of_its_own {
    use atlas::prelude::*;

    atlas_kernel! {
        /// Another kernel with the name and the signature of a shipped one.
        pub kernel softmax<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
        tune { BN: [1, 2, 4, 8], warps: [4, 8, 16], occupancy: [1, 4] }
        {
            for n in grid(tiles(N, BN)) {
                store(y[n, ..], load(x[n, ..]));
            }
        }
    }
}

/// Two kernels with one name: neither runs the other's code, whichever comes first.
#[test]
fn a_bundle_is_of_one_kernel_and_not_of_its_name() {
    for own_first in [false, true] {
        let gpu = device("sm_90", &SOFTMAX);
        let own = || {
            let x = gpu.tensor_from(&rows(8, 64), [8, 64]).unwrap();
            let mut y = Tensor::zeros(&gpu, atlas_dsl::DType::Bf16, [8, 64]).unwrap();
            of_its_own::softmax.launch(&gpu, args!(x, &mut y)).map_err(|e| e.to_string())
        };
        if own_first {
            assert!(own().unwrap_err().contains("the kernel has changed since the bundle was made"));
        }
        assert!(is_right(&run(&gpu, 8, 64).unwrap(), 8, 64));
        assert!(own().unwrap_err().contains("the kernel has changed since the bundle was made"));
    }
}

/// The bytes of a bundle, with its variants and their images changed.
fn changed(bytes: &[u8], change: impl Fn(&mut Variant, &mut KernelImage)) -> Vec<u8> {
    let bundle = Bundle::read("test", bytes.to_vec()).unwrap();
    let mut entry = (*bundle.entry("softmax").unwrap().unwrap()).clone();
    let mut writer = BundleWriter::new();
    for variant in entry.classes.iter_mut().flat_map(|c| &mut c.variants) {
        let mut image = bundle.image(variant).unwrap();
        change(variant, &mut image);
        variant.image = writer.image(&image);
    }
    writer.kernel("softmax", &entry);
    writer.finish()
}

/// The bytes of a bundle whose every variant claims another kernel than it is.
fn stale(bytes: &[u8]) -> Vec<u8> {
    changed(bytes, |variant, _| variant.tile_ir = "0".repeat(64))
}

#[test]
fn a_bundle_that_is_of_no_use_hides_no_other() {
    let gpu = device("sm_90", &stale(&SOFTMAX));
    assert!(run(&gpu, 8, 64).is_err());
    gpu.add_bundle(Bundle::read("good", SOFTMAX.clone()).unwrap());
    assert!(is_right(&run(&gpu, 8, 64).unwrap(), 8, 64));
    // A variant for any size ranks after one for exactly this class, in whatever order they were added.
    let any = made(&["softmax", "--dims", "N=5,D=64", "--arch", "sm_90", "--variants", "1", "--no-evidence"]);
    let gpu = device("sm_90", &any);
    gpu.add_bundle(Bundle::read("good", SOFTMAX.clone()).unwrap());
    run(&gpu, 24, 64).unwrap();
    assert_eq!((gpu.stats().chosen_by_bundle, gpu.stats().chosen_by_region), (1, 0));
}

/// A program with a compiler uses a bundle's kernel if that is as good as the one it would compile.
#[test]
fn what_can_be_compiled_better_is_not_taken_from_a_bundle() {
    let lower = made(&["softmax", "--dims", "N=8,D=64", "--arch", "sm_80", "--variants", "1", "--no-evidence"]);
    let gpu = device("sm_90", &lower);
    gpu.set_compiling(true);
    // The first size was requested; the second is only in a region.
    for (n, compiled) in [(8, 0), (40, 1)] {
        assert!(is_right(&run(&gpu, n, 64).unwrap(), n, 64));
        assert_eq!(gpu.stats().compiled, compiled, "{n}");
    }
    assert_eq!((gpu.stats().chosen_by_bundle, gpu.stats().chosen_by_region), (1, 0));
    // A GPU of that target cannot compile a better one.
    let gpu = device("sm_86", &lower);
    gpu.set_compiling(true);
    run(&gpu, 40, 64).unwrap();
    assert_eq!((gpu.stats().compiled, gpu.stats().chosen_by_region), (0, 1));
    let spilling = changed(&SOFTMAX, |_, image| {
        image.ptx = image.ptx.replacen("\n{\n", "\n{\n\t.local .align 4 .b8 \t__local_depot9[16];\n", 1);
    });
    let gpu = device("sm_90", &spilling);
    run(&gpu, 8, 64).unwrap();
    assert_eq!(gpu.stats().chosen_by_bundle, 1, "where nothing can be compiled, what spills runs");
    gpu.set_compiling(true);
    let x = gpu.tensor_from(&rows(8, 64), [8, 64]).unwrap();
    let mut y = Tensor::zeros(&gpu, atlas_dsl::DType::Bf16, [8, 64]).unwrap();
    let prepared = softmax.prepare(&gpu, args!(x, &mut y)).unwrap();
    assert_eq!((prepared.source(), gpu.stats().compiled), (ConfigSource::CostModel, 1));
    assert!(prepared.passed_over()[0].1.contains("spill 16 bytes"), "{:?}", prepared.passed_over());
    assert_eq!((gpu.stats().chosen_by_bundle, gpu.stats().chosen_by_model), (1, 1));
}

/// A device with two bundles.
fn device_with(first: &[u8], second: &[u8]) -> Device {
    let gpu = device("sm_90", first);
    gpu.add_bundle(Bundle::read("second", second.to_vec()).unwrap());
    gpu
}

/// The images of two copies of a file have the same hashes, but one of them is damaged.
#[test]
fn a_damaged_file_does_not_hide_an_intact_copy() {
    let one = ["softmax", "--dims", "N=8,D=64", "--arch", "sm_90", "--variants", "1", "--only-these", "--no-evidence"];
    let good = made(&one);
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let gpu = device_with(&damaged, &good);
    assert!(is_right(&run(&gpu, 8, 64).unwrap(), 8, 64));
    assert_eq!(gpu.stats().passed_over, 1);
}

/// Code that does not load, or has another signature, does not fail a launch if the next file has good code.
#[test]
fn an_image_that_cannot_be_used_is_passed_over() {
    let no_ptx = changed(&SOFTMAX, |_, image| image.ptx = image.ptx.replace("add", "odd"));
    let fewer = changed(&SOFTMAX, |_, image| image.params.truncate(1));
    let more = changed(&SOFTMAX, |_, image| image.params[0] = atlas_codegen::AbiParam::GridCount(9));
    for (bad, why) in [(no_ptx, "ATL627"), (fewer, "ATL619"), (more, "another grid or other parameters")] {
        let lack = run(&device("sm_90", &bad), 8, 64).unwrap_err();
        assert!(lack.contains("error[ATL640]") && lack.contains(why), "{lack}");
        assert!(is_right(&run(&device_with(&bad, &SOFTMAX), 8, 64).unwrap(), 8, 64));
    }
}

/// A kernel that is refused in one file may be in the next.
#[test]
fn a_file_that_was_mended_is_read_again() {
    let one = ["softmax", "--dims", "N=8,D=64", "--arch", "sm_90", "--variants", "1", "--only-these", "--no-evidence"];
    let good = made(&one);
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let gpu = device("sm_90", &damaged);
    assert!(run(&gpu, 8, 64).unwrap_err().contains("is damaged"));
    gpu.set_bundles(Bundles::default());
    gpu.add_bundle(Bundle::read("mended", good).unwrap());
    assert!(is_right(&run(&gpu, 8, 64).unwrap(), 8, 64));
}

/// If there are no kernels for the highest target, those for a lower one are used.
#[test]
fn code_for_a_lower_target_serves_where_the_higher_cannot() {
    let bundle = Bundle::read("test", SOFTMAX.clone()).unwrap();
    let mut entry = (*bundle.entry("softmax").unwrap().unwrap()).clone();
    let mut writer = BundleWriter::new();
    for variant in entry.classes.iter_mut().flat_map(|c| &mut c.variants) {
        variant.image = writer.image(&bundle.image(variant).unwrap());
        if variant.target == "sm_90" {
            variant.tile_ir = "0".repeat(64);
        }
    }
    writer.kernel("softmax", &entry);
    let gpu = device("sm_90", &writer.finish());
    assert!(is_right(&run(&gpu, 8, 64).unwrap(), 8, 64));
    let x = gpu.tensor_from(&rows(8, 64), [8, 64]).unwrap();
    let mut y = Tensor::zeros(&gpu, atlas_dsl::DType::Bf16, [8, 64]).unwrap();
    let prepared = softmax.prepare(&gpu, args!(x, &mut y)).unwrap();
    assert_eq!(prepared.image().unwrap().target.to_string(), "sm_80");
}

/// A tensor that needs narrow loads has a kernel of its own, which other tensors do not get.
#[test]
fn a_plain_tensor_does_not_get_the_kernel_of_a_slice() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = folder.path().join("sizes.toml");
    let launch =
        |more: &str| format!("[[launch]]\nkernel = \"softmax\"\ntypes = \"T=bf16\"\ndims = \"N=5 D=64\"\n{more}\n");
    fs::write(&sizes, launch("tensors = \"x=2:*1,1\"") + &launch("")).unwrap();
    let sizes = sizes.display().to_string();
    let bundle = made(&["--sizes", &sizes, "--arch", "sm_90", "--variants", "1", "--no-evidence"]);
    let gpu = device("sm_90", &bundle);
    let x = gpu.tensor_from(&rows(24, 64), [24, 64]).unwrap();
    let mut y = Tensor::zeros(&gpu, atlas_dsl::DType::Bf16, [24, 64]).unwrap();
    let plain = softmax.prepare(&gpu, args!(x, &mut y)).unwrap();
    let odd = gpu.tensor_from(&rows(24, 66), [24, 66]).unwrap().slice(1, 1..65).unwrap();
    let slice = softmax.prepare(&gpu, args!(odd, &mut y)).unwrap();
    let vectors = |p: &atlas_runtime::PreparedLaunch| p.image().unwrap().ptx.matches("ld.global.v").count();
    assert!(vectors(&plain) > 0 || plain.image().unwrap().ptx.contains(".v4."), "narrow loads for a plain tensor");
    assert_ne!(plain.image().unwrap().ptx, slice.image().unwrap().ptx);
}

/// The stride of an axis of one element is never used: a view with one row is served by a kernel for several rows.
#[test]
fn one_row_of_a_view_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = folder.path().join("sizes.toml");
    let launch =
        "[[launch]]\nkernel = \"softmax\"\ntypes = \"T=bf16\"\ndims = \"N=7 D=33\"\ntensors = \"x=2:*8,1 y=2:*8,1\"\n";
    fs::write(&sizes, launch).unwrap();
    let args = ["--sizes", &sizes.display().to_string(), "--arch", "sm_80", "--no-evidence", "--only-these"];
    let device = device("sm_80", &made(&args));
    let wide = |values: &[bf16], n: usize| device.tensor_from(values, [n, 40]).unwrap().slice(1, 0..33).unwrap();
    for n in [7, 1, 3] {
        let padded: Vec<bf16> = rows(n, 33).chunks(33).flat_map(|row| [row, &[bf16::ZERO; 7]].concat()).collect();
        let (x, mut y) = (wide(&padded, n), wide(&vec![bf16::ZERO; n * 40], n));
        softmax.launch(&device, args!(x, &mut y)).map_err(|e| e.to_string()).unwrap();
        assert!(is_right(&y.to_vec::<bf16>().unwrap(), n, 33), "{n}");
        // A contiguous tensor with one row belongs to the class too.
        let alone = run(&device, n, 33);
        assert_eq!(alone.is_ok(), n == 1, "{n}: {alone:?}");
        assert!(n != 1 || is_right(&alone.unwrap(), n, 33));
    }
}
