//! Which chain takes which rule: each that is chosen runs on every GPU, also with long windows, and what runs on none is refused at once.

use atlas_dsl::{DType, KernelDef};
use atlas_ops::omega::{
    Chunking, MemoryForm, OMEGA_MLP, OMEGA_MLP_SPLIT, OmegaPacked, OmegaRule, OmegaStream, Read, Step, StreamSizes,
};
use atlas_runtime::{Chain, Device, choose_for};

const FORMS: [MemoryForm; 4] =
    [MemoryForm::Linear, MemoryForm::Mlp, MemoryForm::Gated, MemoryForm::Normed { eps: 1e-5 }];
const ARCHES: [&str; 3] = ["sm_80", "sm_89", "sm_90"];

/// Whether a kernel has a legal config for these sizes.
fn is_legal(kernel: &'static KernelDef, dtype: DType, arch: &str, [chunk, keys, width]: [usize; 3]) -> bool {
    let size = |dim: &str| match dim {
        "L" => Some(chunk as u64),
        "K" => Some(keys as u64),
        "W" => Some((keys - chunk + 1) as u64),
        "D" | "E" => Some(width as u64),
        "M" => Some(4 * width as u64),
        "C" => Some(8),
        "B" | "H" => Some(4),
        "N" | "P" => Some(8 * chunk as u64),
        _ => None,
    };
    let known = kernel.dims.iter().map(|d| size(d.name)).collect();
    let dims: Vec<u64> = kernel.with_implied(known).into_iter().map(Option::unwrap).collect();
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
    let of = |chunk: usize, window: usize| rule(MemoryForm::Mlp, chunk, window);
    for arch in ["sm_80", "sm_89"] {
        let longest = longest_window(arch, of(16, 2049), SIZES, "omega_mlp_wide");
        assert!((114..2049).contains(&longest), "{longest}");
        let refused = refused(arch, of(512, 1), StreamSizes { dtype: DType::F32, ..SIZES }).unwrap();
        assert!(refused.contains("ATL651") && refused.contains("take shorter chunks"), "{refused}");
    }
    // The CPU has room for all.
    assert!(OmegaStream::new(&Device::cpu(), of(16, 2049), SIZES).is_ok());
}

/// A GPU that few heads leave mostly idle takes them by another chain, which has room for longer windows.
#[test]
fn windows_of_few_heads_may_be_as_long_as_their_own_chain_has_room_for() {
    let device = Device::sim("sm_89").unwrap();
    let made = |heads: usize, window: usize| {
        let sizes = StreamSizes { heads, key: 64, value: 64, dtype: DType::F32, ..SIZES };
        OmegaStream::new(&device, rule(MemoryForm::Mlp, 64, window), sizes).map_err(|e| e.to_string())
    };
    assert_eq!(made(1, 193).unwrap().chain().name, OMEGA_MLP_SPLIT.name);
    for (heads, wanted) in [(1, ["`omega_mlp_split`", "of 193 tokens"]), (128, ["`omega_mlp_wide`", "of 81 tokens"])] {
        let why = made(heads, 201).err().unwrap();
        assert!(wanted.iter().all(|part| why.contains(part)), "{heads}: {why}");
    }
}

const SIZES: StreamSizes = StreamSizes { sequences: 1, heads: 1, key: 32, value: 32, piece: 16, dtype: DType::Bf16 };

/// What a stream says that is not made, which packed documents say, too.
fn refused(arch: &str, rule: OmegaRule, sizes: StreamSizes) -> Option<String> {
    let device = Device::sim(arch).unwrap();
    let refused = OmegaStream::new(&device, rule, sizes).err().map(|e| e.to_string());
    assert_eq!(OmegaPacked::new(&device.default_stream(), rule, sizes).err().map(|e| e.to_string()), refused);
    refused
}

/// The longest window of a rule, whose own one is refused, that the error names, with the chain that takes it.
fn longest_window(arch: &str, rule: OmegaRule, sizes: StreamSizes, chain: &str) -> usize {
    let Chunking { chunk, window, .. } = rule.chunking;
    let says = format!(
        "`{chain}`: {} keys of a chunk, for windows of {window} tokens and chunks of {chunk}, where sim:{arch}",
        rule.chunking.keys()
    );
    let whole = refused(arch, rule, sizes).unwrap();
    assert!(whole.contains("ATL651") && whole.contains(&says), "{whole}");
    let named = whole.split("which are windows of ").nth(1).and_then(|rest| rest.split(' ').next());
    let longest: usize = named.unwrap().parse().unwrap();
    let with = |window: usize| OmegaRule { chunking: Chunking::new(chunk, window), ..rule };
    assert_eq!(refused(arch, with(longest), sizes), None);
    assert!(refused(arch, with(longest + 8), sizes).is_some(), "{longest}");
    longest
}

/// With Muon, what a stream is made for runs with a memory of any hidden layer.
#[test]
fn windows_that_are_too_long_for_muon_are_refused_before_the_first_push() {
    for (memory, step) in [(MemoryForm::Linear, Step::MuonByChunk), (MemoryForm::Mlp, Step::MuonByToken)] {
        let rule = OmegaRule { step, read: Read::Before, ..rule(memory, 16, 2049) };
        let longest = longest_window("sm_89", rule, SIZES, &format!("{}_wide", rule.chain().name));
        let chunking = Chunking::new(16, longest);
        let chain = OmegaRule { chunking, ..rule }.chain_for(32, 32, DType::Bf16);
        let is_legal = |keys: usize| is_legal_chain(chain, DType::Bf16, "sm_89", [16, keys, 32]);
        assert!(is_legal(chunking.keys()) && !is_legal(chunking.keys() + 8), "{rule:?} {longest}");
    }
    // Of a memory with a norm inside, wide values take room from keys. Values that are too wide are no matter of windows.
    let rule = OmegaRule { step: Step::MuonByChunk, read: Read::Before, ..rule(FORMS[3], 64, 57) };
    let refused = |value: usize| refused("sm_89", rule, StreamSizes { key: 128, value, dtype: DType::F32, ..SIZES });
    let why = refused(128).unwrap();
    assert!(why.contains("room for 96 keys, which are windows of 33 tokens"), "{why}");
    assert!(refused(256).unwrap().contains("take shorter chunks"));
    assert_eq!(refused(16384), None);
}
