//! Bundles that were made to attack a reader: their code cannot stand in for another kernel, and reading them costs no
//! more than their declared size.

use crate::command::prints;
use atlas::{Device, Tensor, args};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::{DType, Dim};
use atlas_ops::softmax::softmax;
use atlas_runtime::bundle::{Bundle, BundleWriter, KernelEntry, Variant};
use atlas_runtime::{CacheDir, DeviceId, KernelImage, Launch, Target};
use std::fs;
use std::path::Path;

fn made(path: &Path) {
    let out = path.display().to_string();
    let args = ["--dims", "N=8,D=64", "--dtype", "f32", "--arch", "sm_80", "--variants", "2", "--only-these"];
    prints(&[&["bundle", "softmax"], &args[..], &["--out", &out]].concat());
}

fn changed(from: &Path, change: impl Fn(usize, &mut KernelImage, &mut Variant)) -> Vec<u8> {
    let bundle = Bundle::open(from).unwrap();
    let mut entry: KernelEntry = (*bundle.entry("softmax").unwrap().unwrap()).clone();
    let mut writer = BundleWriter::new();
    for (at, variant) in entry.classes.iter_mut().flat_map(|c| &mut c.variants).enumerate() {
        let mut image = bundle.image(variant).unwrap();
        change(at, &mut image, variant);
        variant.image = writer.image(&image);
    }
    writer.kernel("softmax", &entry);
    writer.finish()
}

/// A launch that runs no program, or another kernel's, would silently leave its outputs unchanged.
#[test]
fn code_with_another_grid_is_not_launched() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.atlas");
    made(&file);
    let launched = |bytes: Vec<u8>| {
        let device = Device::open(DeviceId::Sim("sm_80".parse().unwrap()), CacheDir::Off).unwrap();
        device.set_compiling(false);
        device.add_bundle(Bundle::read("hostile", bytes).unwrap());
        let x = device.tensor_from(&[1.0_f32; 8 * 64], [8, 64]).unwrap();
        let mut y = Tensor::zeros(&device, DType::F32, [8, 64]).unwrap();
        softmax.launch(&device, args![&x, &mut y]).map_err(|e| e.to_string())
    };
    assert_eq!(launched(changed(&file, |_, _, _| {})), Ok(()));
    let changes: [fn(&mut KernelImage); 5] = [
        |image| image.grid.clear(),
        |image| image.grid = vec![GridExtent::Points(Dim::from_u32(99))],
        |image| image.grid = vec![GridExtent::Tiles { dim: Dim::from_u32(0), size: 1 << 20 }],
        |image| image.params.push(atlas_codegen::AbiParam::GridCount(200)),
        |image| image.params.push(atlas_codegen::AbiParam::Dim(Dim::from_u32(99))),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let why = launched(changed(&file, |_, image, _| change(image))).unwrap_err();
        assert!(why.contains("another grid or other parameters"), "{at}: {why}");
    }
}

/// A variant that cannot be tried here has not passed.
#[test]
fn a_target_that_is_not_known_is_not_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let (file, other) = (folder.path().join("a.atlas"), folder.path().join("b.atlas"));
    made(&file);
    let bytes = changed(&file, |at, image, variant| {
        if at == 0 {
            image.target = Target { sm: 12345, specific: false };
            variant.target = image.target.to_string();
        }
    });
    fs::write(&other, bytes).unwrap();
    let verifies = |path: &Path| atlas_cli::run(["atlas", "verify", "--bundle", &path.display().to_string()]);
    assert_eq!(verifies(&file), Ok(true));
    assert_eq!(verifies(&other), Ok(false));
}

/// A pipe may have no writer, and a device may be endless.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [&pipe, Path::new("/dev/zero"), folder.path()] {
        let why = Bundle::open(path).unwrap_err().to_string();
        assert!(why.contains("it is no file"), "{why}");
    }
}
