//! Which chain takes which rule: each that is chosen runs on every GPU, also with long windows, and what runs on none is refused at once.

use atlas_dsl::{DType, KernelDef};
use atlas_ops::omega::{Chunking, MemoryForm, OMEGA_MLP, OmegaPacked, OmegaRule, OmegaStream, StreamSizes};
use atlas_runtime::{Chain, Device, choose_for};

const FORMS: [MemoryForm; 4] =
    [MemoryForm::Linear, MemoryForm::Mlp, MemoryForm::Gated, MemoryForm::Normed { eps: 1e-5 }];
const ARCHES: [&str; 3] = ["sm_80", "sm_89", "sm_90"];

/// Whether a kernel has a legal config for these sizes.
fn is_legal(kernel: &'static KernelDef, dtype: DType, arch: &str, [chunk, keys, width]: [usize; 3]) -> bool {
    let size = |dim: &str| match dim {
        "L" => chunk as u64,
        "K" => keys as u64,
        "W" => (keys - chunk + 1) as u64,
        "D" | "E" => width as u64,
        "M" => 4 * width as u64,
        "C" => 8,
        "B" | "H" => 4,
        _ => 8 * chunk as u64,
    };
    let dims: Vec<u64> = kernel.dims.iter().map(|d| size(d.name)).collect();
    let spec = kernel.specialization(dtype, &dims);
    choose_for(kernel, &spec, &dims, arch.parse().ok()).chosen().is_some()
}

fn is_legal_chain(chain: &'static Chain, dtype: DType, arch: &str, sizes: [usize; 3]) -> bool {
    chain.kernels.iter().all(|k| is_legal(k.declared(), dtype, arch, sizes))
}

fn rule(memory: MemoryForm, chunk: usize, window: usize) -> OmegaRule {
    OmegaRule { memory, ..OmegaRule::omega_net(Chunking::new(chunk, window)) }
}

/// Tokens of a chunk, and elements of a key and of a value.
const GRID: [[usize; 2]; 24] = [
    [1, 16],
    [1, 128],
    [16, 32],
    [16, 64],
    [16, 80],
    [16, 96],
    [16, 112],
    [32, 24],
    [32, 48],
    [48, 64],
    [64, 16],
    [64, 64],
    [64, 80],
    [64, 96],
    [64, 112],
    [128, 16],
    // Widths and chunks that are no multiples of tiles.
    [1, 241],
    [16, 25],
    [16, 129],
    [16, 225],
    [16, 256],
    [33, 168],
    [64, 177],
    [65, 64],
];

/// The chains of a form that are illegal on some GPU: with the longest window whose rows are held whole, and with the next one. Besides,
/// how many of these are streamed.
fn illegal(memory: MemoryForm, dtype: DType) -> (Vec<String>, usize) {
    let (mut found, mut streamed) = (vec![], 0);
    for [chunk, width] in GRID {
        let chain_of = |window: usize| rule(memory, chunk, window).chain_for(width, width, dtype);
        let is_whole = |window: usize| !chain_of(window).name.ends_with("_wide");
        // Longer windows are streamed if shorter ones are.
        let windows: Vec<usize> = (0..128).map(|eights| 8 * eights + 1).collect();
        let whole = windows.partition_point(|&window| is_whole(window));
        assert!(windows[whole..].iter().all(|&window| !is_whole(window)), "{memory:?} {dtype} {chunk} {width}");
        // All GPUs have room for 128 keys in tiles, of 64 tokens.
        let next = windows.get(whole).filter(|&&window| chunk <= 64 && chunk + window - 1 <= 128);
        streamed += usize::from(next.is_some());
        for &window in windows[..whole].last().into_iter().chain(next) {
            let (chain, keys) = (chain_of(window), Chunking::new(chunk, window).keys());
            for arch in ARCHES {
                if !is_legal_chain(chain, dtype, arch, [chunk, keys, width]) {
                    found.push(format!("{} {dtype} on {arch}: L={chunk} K={keys} D={width}", chain.name));
                }
            }
        }
    }
    (found, streamed)
}

#[test]
fn every_chain_that_is_chosen_has_a_legal_config_on_every_gpu() {
    let all: Vec<_> = FORMS.into_iter().flat_map(|form| [(form, DType::Bf16), (form, DType::F32)]).collect();
    let found = std::thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|&(form, dtype)| scope.spawn(move || illegal(form, dtype))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(found.iter().any(|(_, streamed)| *streamed > 0));
    let illegal: Vec<String> = found.into_iter().flat_map(|(illegal, _)| illegal).collect();
    assert!(illegal.is_empty(), "{}", illegal.join("\n"));
}

/// What was chosen for windows of 257 tokens, chunks of 16 and rows of 32 elements, does not fit an L4.
#[test]
fn a_chain_that_does_not_fit_shows() {
    assert!(is_legal_chain(&OMEGA_MLP, DType::Bf16, "sm_80", [16, 272, 32]));
    assert!(!is_legal_chain(&OMEGA_MLP, DType::Bf16, "sm_89", [16, 272, 32]));
}

#[test]
fn windows_that_fit_no_chain_are_refused_with_the_longest_that_does() {
    let sizes = StreamSizes { sequences: 1, heads: 1, key: 32, value: 32, piece: 16, dtype: DType::Bf16 };
    for arch in ["sm_80", "sm_89"] {
        let device = Device::sim(arch).unwrap();
        let on = device.default_stream();
        let made = |rule: OmegaRule, sizes: StreamSizes| {
            let refused = OmegaStream::new(&device, rule, sizes).err().map(|e| e.to_string());
            assert_eq!(OmegaPacked::new(&on, rule, sizes).err().map(|e| e.to_string()), refused);
            refused
        };
        let of = |chunk: usize, window: usize| rule(MemoryForm::Mlp, chunk, window);
        assert_eq!(made(of(16, 129), sizes), None);
        let refused = made(of(16, 2049), sizes).unwrap();
        let says = format!(
            "`omega_mlp_wide`: 2064 keys of a chunk, for windows of 2049 tokens and chunks of 16, where sim:{arch}"
        );
        assert!(refused.contains("ATL651") && refused.contains(&says), "{refused}");
        // The window that it names is the longest.
        let named = refused.split("which are windows of ").nth(1).and_then(|rest| rest.split(' ').next());
        let longest: usize = named.unwrap().parse().unwrap();
        assert!((100..2049).contains(&longest), "{refused}");
        assert_eq!(made(of(16, longest), sizes), None);
        assert!(made(of(16, longest + 8), sizes).is_some());
        let refused = made(of(512, 1), StreamSizes { dtype: DType::F32, ..sizes }).unwrap();
        assert!(refused.contains("ATL651") && refused.contains("take shorter chunks"), "{refused}");
        // The CPU has room for all.
        assert!(OmegaStream::new(&Device::cpu(), of(16, 2049), sizes).is_ok());
    }
}
