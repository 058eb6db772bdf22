//! The Omega rule as a chain, on every simulated GPU under three schedules and, on request, on a real one: compared
//! with its definition token by token, whole and in pieces.

use crate::agreement::devices;
use atlas::prelude::*;
use atlas_dsl::def::Declared;
use atlas_dsl::{DType, KernelDef};
use atlas_ops::muon::{Muon, MuonMatrix, MuonSpaces};
use atlas_ops::omega::backward::check::TrainingCase;
use atlas_ops::omega::backward::{
    omega_gated_query_backward, omega_gated_read_backward, omega_gated_states, omega_gated_train_backward,
    omega_linear_read_backward, omega_linear_states, omega_linear_train_backward, omega_mlp_query_backward,
    omega_mlp_read_backward, omega_mlp_states, omega_mlp_train_backward, omega_normed_read_backward,
    omega_normed_states, omega_normed_train_backward,
};
use atlas_ops::omega::check::Case;
use atlas_ops::omega::{Chunking, Loss, MemoryForm, OmegaRule, OmegaStream, Read, Step, StreamSizes, Tokens};
use atlas_runtime::{CacheDir, Machine, SimOptions, Stream, Target, choose_for};

#[test]
fn chains_follow_the_definition_on_every_device() {
    for (name, device) in devices() {
        for (dtype, bound) in [(DType::F32, 1e-5), (DType::F16, 2e-3), (DType::Bf16, 1e-2)] {
            let normed = MemoryForm::Normed { eps: 1e-5 };
            for (form, memory, loss) in [
                (MemoryForm::Mlp, [16, 16, 32], Loss::Square),
                (MemoryForm::Mlp, [8, 24, 40], Loss::Dot),
                (MemoryForm::Linear, [24, 16, 0], Loss::Square),
                (MemoryForm::Linear, [16, 24, 0], Loss::Dot),
                (MemoryForm::Gated, [16, 16, 32], Loss::Square),
                (MemoryForm::Gated, [8, 24, 40], Loss::Dot),
                (normed, [24, 16, 40], Loss::Square),
                (normed, [16, 16, 32], Loss::Dot),
            ] {
                let mut case = Case::new([2, 23, 1], memory, Chunking::new(8, 5)).of_form(form);
                (case.dtype, case.rule.loss) = (dtype, loss);
                case.rule.read = if dtype == DType::F16 { Read::Before } else { Read::After };
                let found = case.check(&device).unwrap_or_else(|e| panic!("{name}: {case:?}: {e}"));
                assert!(found.passes(bound), "{name}: {case:?}: {found:?}");
            }
        }
    }
}

#[test]
fn parts_of_a_sequence_give_the_bits_of_the_whole() {
    for (name, device) in devices().take(3) {
        let whole = Case::new([1, 23, 2], [16, 16, 32], Chunking::new(8, 5));
        let inputs = whole.inputs();
        let parts = Case { parts: vec![8, 15], ..whole.clone() };
        let [found, wanted] =
            [&parts, &whole].map(|c| c.run(&device, &inputs).unwrap_or_else(|e| panic!("{name}: {e}")));
        assert_eq!(found, wanted, "{name}");
    }
}

/// A simulator that has compiled the launches of `first`, and may compile nothing else.
fn with_what_it_launches(first: impl Fn(&Device)) -> Device {
    let options = SimOptions::default();
    let device = Device::sim_with(Target { sm: 80, specific: false }, options, CacheDir::Off);
    first(&device);
    device.set_compiling(false);
    device
}

fn numbers(device: &Device, shape: &[usize], middle: f32) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| middle + ((i * 37) % 11) as f32 / 40.0).collect();
    device.tensor_from(&values, shape).unwrap()
}

/// Pushes tokens in pieces of eight. Returns the outputs; the memory is in `state`.
fn pushed(device: &Device, stream: &mut OmegaStream, count: usize, state: &mut [Tensor]) -> atlas::Result<Vec<f32>> {
    let token = numbers(device, &[1, count, 1, 16], -0.1);
    let (gate, gamma) = (numbers(device, &[1, count, 1], 0.1), numbers(device, &[1, count, 1, 3], 0.2));
    let mut y = Tensor::zeros(device, DType::F32, [1, count, 1, 16]).unwrap();
    let (q, k, v, rq, rk) = (&token, &token, &token, &token, &token);
    let tokens = Tokens { q, k, v, rq, rk, alpha: &gate, theta: &gate, eta: &gate, gamma: &gamma };
    let mut memory: Vec<&mut Tensor> = state.iter_mut().collect();
    stream.push(&tokens, &mut memory, &mut y)?;
    y.to_vec()
}

/// The second piece needs missing kernels, which is found before the first piece has trained the memory.
#[test]
fn a_push_whose_last_piece_is_refused_changes_nothing() {
    let start = |device: &Device| {
        let sizes = StreamSizes { sequences: 1, heads: 1, key: 16, value: 16, piece: 8, dtype: DType::F32 };
        let rule = OmegaRule::omega_net(Chunking::new(8, 3));
        let rule = OmegaRule { memory: MemoryForm::Linear, loss: Loss::HalfSquare, ..rule };
        let state = [numbers(device, &[1, 1, 16, 16], 0.0), numbers(device, &[1, 1, 16, 16], -0.2)];
        (OmegaStream::new(device, rule, sizes).unwrap(), state)
    };
    let device = with_what_it_launches(|device| {
        let (mut stream, mut state) = start(device);
        pushed(device, &mut stream, 8, &mut state).unwrap();
    });
    let values = |state: &[Tensor; 2]| state.each_ref().map(|t| t.to_vec::<f32>().unwrap());
    let (mut stream, mut state) = start(&device);
    let before = values(&state);
    let error = pushed(&device, &mut stream, 8 + 3, &mut state).unwrap_err().to_string();
    assert!(error.contains("may not compile"), "{error}");
    assert_eq!(values(&state), before, "the first piece has run");
    // And the stream is unchanged.
    let found = (pushed(&device, &mut stream, 8, &mut state).unwrap(), values(&state));
    let (mut fresh, mut state) = start(&device);
    assert_eq!(found, (pushed(&device, &mut fresh, 8, &mut state).unwrap(), values(&state)));
    assert_ne!(found.1, before);
}

/// A step on matrices of two shapes, the second of which has no kernels.
#[test]
fn a_step_of_which_one_shape_is_refused_changes_no_matrix() {
    let of = Muon { rate: 0.02, momentum: 0.9, dtype: DType::F32, ..Muon::torch() };
    let matrix = |device: &Device, shape: [usize; 2]| [0.1, -0.1, 0.3].map(|middle| numbers(device, &shape, middle));
    let step = |device: &Device, matrices: &mut [[Tensor; 3]]| {
        let mut list: Vec<MuonMatrix<'_>> = matrices.iter_mut().map(|[w, buf, g]| MuonMatrix { w, buf, g }).collect();
        of.step(&Stream::default_of(device), &mut list, &mut MuonSpaces::default())
    };
    let device = with_what_it_launches(|device| step(device, &mut [matrix(device, [16, 16])]).unwrap());
    let mut matrices = [matrix(&device, [16, 16]), matrix(&device, [24, 17])];
    let values = |matrices: &[[Tensor; 3]]| -> Vec<Vec<f32>> {
        matrices.iter().flatten().map(|t| t.to_vec().unwrap()).collect()
    };
    let before = values(&matrices);
    let error = step(&device, &mut matrices).unwrap_err().to_string();
    assert!(error.contains("may not compile"), "{error}");
    assert_eq!(values(&matrices), before, "the first shape has been stepped");
    step(&device, &mut matrices[..1]).unwrap();
    assert_ne!(values(&matrices), before);
}

/// Elements of a key: more than any kernel holds as a whole row, a multiple of 8 as rows are laid out for loads of 16 bytes, and no
/// multiple of a tile, so that the walk over a row ends in a part of one.
const LONG_KEY: usize = 776;

/// The kernels of backward passes that hold whole rows.
const OF_WHOLE_ROWS: [&dyn Declared; 14] = [
    &omega_linear_states,
    &omega_linear_read_backward,
    &omega_linear_train_backward,
    &omega_mlp_states,
    &omega_mlp_read_backward,
    &omega_mlp_query_backward,
    &omega_mlp_train_backward,
    &omega_gated_states,
    &omega_gated_read_backward,
    &omega_gated_query_backward,
    &omega_gated_train_backward,
    &omega_normed_states,
    &omega_normed_read_backward,
    &omega_normed_train_backward,
];

/// Whether a kernel has a config for a problem of these sizes, by name.
fn has_config(kernel: &'static KernelDef, machine: Machine, sizes: &[(&str, usize)]) -> bool {
    let size = |name: &str| sizes.iter().find(|(of, _)| *of == name).map(|(_, size)| *size as u64);
    let known = kernel.dims.iter().map(|dim| size(dim.name)).collect();
    let dims: Vec<u64> = kernel.with_implied(known).into_iter().map(|size| size.unwrap_or(1)).collect();
    let spec = kernel.specialization(DType::F32, &dims);
    choose_for(kernel, &spec, &dims, Some(machine)).chosen().is_some()
}

/// No GPU holds a row of these, so the passes walk over it.
#[test]
fn memories_with_long_rows_train_on_a_gpu() {
    let target = Target { sm: 89, specific: false };
    for kernel in OF_WHOLE_ROWS {
        let kernel = kernel.declared();
        let with_keys_of = |key: usize| {
            let sizes = [("B", 1), ("H", 1), ("C", 1), ("L", 4), ("K", 6), ("W", 3), ("N", 16), ("P", 16)];
            // A hidden row comes of one product, or of two.
            let [factors, queries] = if kernel.name.contains("gated") { [7, 3] } else { [4, 2] };
            let parts = [("F", factors), ("V", queries), ("R", 2), ("E", 12), ("M", 24), ("D", key)];
            has_config(kernel, target.into(), &[&sizes[..], &parts].concat())
        };
        assert!(with_keys_of(64) && !with_keys_of(LONG_KEY), "{}", kernel.name);
    }
    let device = Device::sim_with(target, SimOptions::default(), CacheDir::Off);
    for (form, memory) in [
        (MemoryForm::Linear, [LONG_KEY, 12, 0]),
        (MemoryForm::Mlp, [LONG_KEY, 12, 24]),
        (MemoryForm::Gated, [LONG_KEY, 12, 24]),
        (MemoryForm::Normed { eps: 0.3 }, [LONG_KEY, 12, 24]),
    ] {
        for step in [Step::Descent, Step::MuonByChunk] {
            let of = TrainingCase::new([1, 7, 1], memory, Chunking::new(4, 3));
            let case = TrainingCase { form, step, before: step != Step::Descent, of_memory: true, ..of };
            let found = case.check(&device).unwrap_or_else(|e| panic!("{case:?}: {e}"));
            assert!(found.passes(1e-5), "{case:?}: {found:?}");
        }
    }
}

/// Few heads take the passes over a chunk as launches, forward and back, over segments of which the last one is shorter; and with a short
/// last chunk.
#[test]
fn a_training_of_few_heads_takes_launches_over_tiles() {
    let device = Device::sim_with(Target { sm: 90, specific: true }, SimOptions::default(), CacheDir::Off);
    let launches = |case: &TrainingCase| {
        let before = device.stats().launches;
        let found = case.check(&device).unwrap_or_else(|e| panic!("{case:?}: {e}"));
        assert!(found.passes(1e-5), "{case:?}: {found:?}");
        device.stats().launches - before
    };
    let case = TrainingCase::new([1, 150, 1], [16, 24, 40], Chunking::new(32, 5));
    let case = TrainingCase { of_memory: true, segment: Some(2), ..case };
    let (few, whole) = (launches(&case), launches(&TrainingCase { is_split: Some(false), ..case.clone() }));
    // Two backward passes, of five chunks each: two launches for each instead of one for a segment.
    assert!(few > whole + 2 * 2 * 5, "{few} {whole}");
}
