//! Randomly damaged files, records and bundles: reading them never panics, and the chosen configs are legal.
//!
//! `ATLAS_FUZZ_ROUNDS` multiplies the number of rounds, and `ATLAS_FUZZ_SEED` changes the seed.

use atlas::{Device, Tensor, args};
use atlas_ops::softmax::softmax;
use atlas_runtime::bundle::{Bundle, BundleWriter, KernelEntry};
use atlas_runtime::records::{Record, Records};
use atlas_runtime::{CacheDir, DeviceId, Launch, choose_with};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn rng(salt: u64) -> StdRng {
    StdRng::seed_from_u64(number("ATLAS_FUZZ_SEED", 1).wrapping_mul(1000) + salt)
}

fn rounds(usual: u64) -> u64 {
    usual * number("ATLAS_FUZZ_ROUNDS", 1)
}

/// Pieces of the texts of these files, and invalid ones.
const PIECES: [&str; 24] = [
    "0",
    "-1",
    "1e308",
    "nan",
    "inf",
    "18446744073709551616",
    "\"",
    "[",
    "]",
    "{",
    "}",
    "=",
    "*",
    "*8",
    "*3",
    "*0",
    "N=",
    "T=bf16",
    "BN=0",
    "warps=4096",
    "stages=2",
    "\n",
    "\u{0}",
    "é",
];

/// A text with a few of its parts removed, doubled, swapped or replaced.
fn damaged(text: &str, rng: &mut StdRng) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..rng.random_range(1..5) {
        let at = rng.random_range(0..=chars.len());
        let end = (at + rng.random_range(0..12)).min(chars.len());
        let piece: Vec<char> = match rng.random_range(0..4) {
            0 => Vec::new(),
            1 => chars[at..end].repeat(2),
            2 => PIECES[rng.random_range(0..PIECES.len())].chars().collect(),
            _ => {
                let from = rng.random_range(0..=chars.len());
                chars[from..(from + 8).min(chars.len())].to_vec()
            }
        };
        chars.splice(at..end, piece);
    }
    chars.into_iter().collect()
}

#[test]
fn records_may_say_anything() {
    let text = fs::read_to_string("../benches/results/h200-tune/softmax.toml").unwrap();
    // The header and the first sizes.
    let text = text.split("\n[[size]]").take(4).collect::<Vec<_>>().join("\n[[size]]");
    let (mut rng, mut read) = (rng(1), 0);
    for round in 0..rounds(1500) {
        let damaged = damaged(&text, &mut rng);
        let Ok(record) = Record::parse("damaged", &damaged) else { continue };
        read += 1;
        if round % 8 != 0 {
            continue;
        }
        // A readable record takes part in the choice, and the chosen config is legal.
        let mut records = Records::none("NVIDIA H200");
        records.insert(record);
        let spec = atlas_dsl::Specialization::default()
            .with_type("T", atlas_dsl::DType::Bf16)
            .with_dim("N", atlas_dsl::specialization::DimFact::Dynamic(128))
            .with_dim("D", atlas_dsl::specialization::DimFact::Const(7168));
        let chosen = choose_with(&softmax, &spec, &[5120, 7168], "sm_90".parse().unwrap(), &records);
        let first = chosen.chosen().expect("some config is legal");
        assert!(softmax.configs().contains(first), "{first} is none of the kernel's");
    }
    assert!(read > 50, "too little of this is a record still: {read}");
}

/// The JSON of an entry with some of its values replaced.
fn twisted(entry: &KernelEntry, rng: &mut StdRng) -> Option<KernelEntry> {
    let text = serde_json::to_string(entry).unwrap();
    serde_json::from_str(&damaged(&text, rng)).ok()
}

/// The hashes of these bundles are correct, but their content is not.
#[test]
fn bundles_may_say_anything() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kernels.atlas").display().to_string();
    let args = ["bundle", "softmax", "--dims", "N=8,D=64", "--arch", "sm_90", "--variants", "2", "--no-evidence"];
    crate::command::prints(&[&args[..], &["--out", &file]].concat());
    let bundle = Bundle::open(&file).unwrap();
    let entry = (*bundle.entry("softmax").unwrap().unwrap()).clone();
    let images: Vec<_> = entry.classes.iter().flat_map(|c| &c.variants).map(|v| bundle.image(v).unwrap()).collect();
    let (mut rng, mut ran, mut read) = (rng(2), 0, 0);
    for _ in 0..rounds(3000) {
        let Some(twisted) = twisted(&entry, &mut rng) else { continue };
        read += 1;
        let mut writer = BundleWriter::new();
        for image in &images {
            writer.image(image);
        }
        writer.kernel("softmax", &twisted);
        let bundle = Bundle::read("twisted", writer.finish()).unwrap();
        // Both results are acceptable.
        let _ = bundle.check();
        let device = Device::open(DeviceId::Sim("sm_90".parse().unwrap()), CacheDir::Off).unwrap();
        device.set_compiling(false);
        device.add_bundle(bundle);
        let x = device.tensor_from(&[half::bf16::ONE; 8 * 64], [8, 64]).unwrap();
        let mut y = Tensor::zeros(&device, atlas_dsl::DType::Bf16, [8, 64]).unwrap();
        if softmax.launch(&device, args!(x, &mut y)).is_ok() {
            ran += 1;
            let right = |v: &half::bf16| (v.to_f32() - 1.0 / 64.0).abs() < 1e-3;
            assert!(y.to_vec::<half::bf16>().unwrap().iter().all(right), "{twisted:?}");
        }
    }
    assert!(ran > 10 && read > ran, "{ran} of {read} ran");
}
