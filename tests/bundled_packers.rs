//! Bundles whose variants pack operands: all kernels of a launch are in the file, and each is checked for its place.

use crate::bundle::{device, made};
use atlas::{Device, Tensor, args};
use atlas_dsl::{Config, DType};
use atlas_ops::matmul::matmul_tf32x3;
use atlas_runtime::bundle::{Bundle, BundleWriter, Variant, VariantCode};
use atlas_runtime::{KernelImage, Launch};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static BUNDLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    made(&["matmul_tf32x3", "--dims", "M=2048,N=2048,K=2048", "--arch", "sm_90a", "--variants", "2", "--only-these"])
});

/// All sizes are multiples of 128, as those of the class.
const SIZES: [usize; 3] = [128, 256, 128];

fn product(device: &Device, config: Option<&Config>) -> Result<Vec<f32>, String> {
    let [m, n, k] = SIZES;
    let values = |n: usize| (0..n).map(|i| (i * 37 % 101) as f32 / 25.0 - 2.0).collect::<Vec<_>>();
    let a = device.tensor_from(&values(m * k), [m, k]).unwrap();
    let b = device.tensor_from(&values(n * k), [n, k]).unwrap();
    let mut c = Tensor::zeros(device, DType::F32, [m, n]).unwrap();
    let done = match config {
        Some(config) => matmul_tf32x3.launch_with(device, config, args!(a, b, &mut c)),
        None => matmul_tf32x3.launch(device, args!(a, b, &mut c)),
    };
    done.map_err(|e| e.to_string())?;
    Ok(c.to_vec::<f32>().unwrap())
}

fn is_right(found: &[f32]) -> bool {
    static EXPECTED: LazyLock<Vec<f32>> = LazyLock::new(|| product(&Device::cpu(), None).unwrap());
    found.len() == EXPECTED.len() && found.iter().zip(&*EXPECTED).all(|(a, b)| (a - b).abs() < 1e-2)
}

/// The bundle with its packing variants alone, after a change of them. The images of a variant are those of its launch in order.
fn rewritten(change: impl Fn(&mut Vec<Variant>, &dyn Fn(&Variant) -> Vec<KernelImage>, &mut BundleWriter)) -> Vec<u8> {
    let bundle = Bundle::read("test", BUNDLE.clone()).unwrap();
    let mut entry = (*bundle.entry("matmul_tf32x3").unwrap().unwrap()).clone();
    entry.classes.iter_mut().for_each(|class| class.variants.retain(|v| !v.packers.is_empty()));
    entry.classes.retain(|class| !class.variants.is_empty());
    assert!(!entry.classes.is_empty(), "no variant packs operands");
    let images_of = |v: &Variant| v.codes().map(|code| bundle.image_of(v, code).unwrap()).collect::<Vec<_>>();
    let mut writer = BundleWriter::new();
    for class in &mut entry.classes {
        change(&mut class.variants, &images_of, &mut writer);
        let count = class.variants.len() as u16;
        for of in &mut class.tables {
            of.table.exact.clear();
            of.table.cells.iter_mut().for_each(|cell| *cell = 0);
            of.table.order = (0..count).collect();
        }
    }
    writer.kernel("matmul_tf32x3", &entry);
    writer.finish()
}

fn place(variant: &mut Variant, images: &[KernelImage], writer: &mut BundleWriter) {
    let codes = images.iter().map(|image| VariantCode { image: writer.image(image), cubin: None });
    let mut codes: Vec<VariantCode> = codes.collect();
    (variant.image, variant.cubin) = codes.pop().map_or((0, None), |own| (own.image, own.cubin));
    variant.packers = codes;
}

/// The same after a change of each variant's images.
fn with_images(change: impl Fn(&mut Vec<KernelImage>)) -> Vec<u8> {
    rewritten(|variants, images_of, writer| {
        for variant in variants {
            let mut images = images_of(variant);
            change(&mut images);
            place(variant, &images, writer);
        }
    })
}

#[test]
fn a_program_without_a_compiler_packs_operands() {
    let bundle = Bundle::read("test", BUNDLE.clone()).unwrap();
    bundle.check().unwrap();
    let entry = bundle.entry("matmul_tf32x3").unwrap().unwrap();
    let packed = entry.classes.iter().flat_map(|c| &c.variants).find(|v| v.config.contains("operands=packed"));
    let packed = packed.expect("no variant packs operands");
    assert_eq!((packed.packers.len(), packed.evidence.len()), (2, 3), "{packed:?}");
    let gpu = device("sm_90a", &BUNDLE);
    // Twice: the second time, its kernels are loaded.
    for _ in 0..2 {
        assert!(is_right(&product(&gpu, Some(&packed.config.parse().unwrap())).unwrap()));
    }
    assert_eq!(gpu.stats().compiled, 0);
}

#[test]
fn a_variant_is_refused_without_its_packers() {
    for kept in [1, 0] {
        let bad = with_images(|images| drop(images.drain(..2 - kept)));
        let why = product(&device("sm_90a", &bad), None).unwrap_err();
        assert!(why.contains("the kernel has changed since the bundle was made"), "{why}");
    }
}

#[test]
fn one_image_does_not_stand_for_two_kernels_of_a_launch() {
    let changes: [fn(&mut Vec<KernelImage>); 2] =
        [|images| images[1] = images[0].clone(), |images| images[2] = images[0].clone()];
    for (at, change) in changes.into_iter().enumerate() {
        let bad = with_images(change);
        let why = product(&device("sm_90a", &bad), None).unwrap_err();
        assert!(why.contains("another grid or other parameters"), "{at}: {why}");
        let gpu = device("sm_90a", &bad);
        gpu.add_bundle(Bundle::read("intact", BUNDLE.clone()).unwrap());
        assert!(is_right(&product(&gpu, None).unwrap()), "{at}: an intact bundle behind it");
    }
}

/// A refusal is of a kernel at its place.
#[test]
fn a_refused_packer_does_not_refuse_the_next_variant() {
    let bytes = rewritten(|variants, images_of, writer| {
        let mut good = variants[0].clone();
        let mut images = images_of(&good);
        place(&mut good, &images, writer);
        let mut bad = good.clone();
        images.swap(0, 1);
        place(&mut bad, &images, writer);
        *variants = vec![bad, good];
    });
    assert!(is_right(&product(&device("sm_90a", &bytes), None).unwrap()));
}

#[test]
fn packers_run_as_many_ctas_as_their_tensors_have_tiles() {
    let changes: [fn(&mut KernelImage); 2] = [|image| image.persistent = true, |image| image.splits = 2];
    for (at, change) in changes.into_iter().enumerate() {
        let bad = with_images(|images| images[..2].iter_mut().for_each(change));
        let why = product(&device("sm_90a", &bad), None).unwrap_err();
        assert!(why.contains("another grid or other parameters"), "{at}: {why}");
    }
}

#[test]
fn a_small_file_is_checked_soon() {
    let bytes = rewritten(|variants, images_of, writer| {
        let mut image = images_of(&variants[0]).remove(0);
        image.ptx = " ".repeat(8 << 20);
        let code = VariantCode { image: writer.image(&image), cubin: None };
        let of = Variant { image: code.image, cubin: None, packers: vec![code; 64], ..variants[0].clone() };
        *variants = vec![of; 20];
    });
    assert!(bytes.len() < 1 << 18, "{}", bytes.len());
    let start = Instant::now();
    let _ = Bundle::read("hostile", bytes).and_then(|bundle| bundle.check());
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
