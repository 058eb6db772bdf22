//! Chains of kernels: tensors shared by name, workspace, and mistakes in their arguments.

use atlas::prelude::*;
use atlas_dsl::DType;
use atlas_runtime::{Arg, RuntimeError, Stream};

atlas_kernel! {
    kernel squares<T: Float>(x: &Tensor<T, [N, D]>, s: &mut Tensor<T, [N, D]>, scale: f32)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            store(s[n, ..], (xs * xs * scale).cast::<T>());
        }
    }

    kernel totals<T: Float>(s: &Tensor<T, [N, D]>, t: &mut Tensor<f32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(t[n], sum(load(s[n, ..]).cast::<f32>(), axis = 1));
        }
    }

    /// Works in place on a tensor that the previous kernel wrote and it reads.
    kernel shifted(t: &mut Tensor<f32, [N]>, scale: f32)
    {
        for n in grid(tiles(N, 64)) {
            store(t[n], load(t[n]) + scale);
        }
    }
}

static NORMS: Chain = Chain::new("norms", &[&squares, &totals, &shifted], &["s"]);

fn tensors(n: usize, d: usize) -> (Tensor, Tensor) {
    let cpu = Device::cpu();
    let x: Vec<f32> = (0..n * d).map(|i| (i % 5) as f32).collect();
    (cpu.tensor_from(&x, [n, d]).unwrap(), Tensor::zeros(&cpu, DType::F32, [n]).unwrap())
}

fn wanted(n: usize, d: usize) -> Vec<f32> {
    (0..n).map(|i| (0..d).map(|j| 2.0 * (((i * d + j) % 5) as f32).powi(2)).sum::<f32>() + 2.0).collect()
}

#[test]
fn kernels_share_tensors_and_numbers_by_name() {
    let cpu = Device::cpu();
    let names: Vec<&str> = NORMS.params().iter().map(|p| p.name()).collect();
    assert_eq!(names, ["x", "scale", "t"]);
    let mut space = NORMS.workspace(&cpu, &[("T", DType::F32)], &[("N", 20), ("D", 8)]).unwrap();
    assert_eq!(space.bytes(), 20 * 8 * 4);
    let (x, mut t) = tensors(20, 8);
    NORMS.launch(&cpu, args!(x, 2.0, &mut t), &mut space).unwrap();
    assert_eq!(t.to_vec::<f32>().unwrap(), wanted(20, 8));

    let (x, mut t) = tensors(20, 8);
    let prepared = NORMS.prepare(&cpu, args!(x, 2.0, &mut t), &mut space).unwrap();
    assert_eq!(t.to_vec::<f32>().unwrap(), [0.0; 20], "nothing has run");
    prepared.launch(args!(x, 2.0, &mut t), &mut space).unwrap();
    assert_eq!(t.to_vec::<f32>().unwrap(), wanted(20, 8));
    let stream = Stream::new(&cpu).unwrap();
    let (x, mut t) = tensors(20, 8);
    NORMS.launch_on(&stream, args!(x, 2.0, &mut t), &mut space).unwrap();
    prepared.launch_on(&stream, args!(x, 2.0, &mut t), &mut space).unwrap();
    assert_eq!((t.to_vec::<f32>().unwrap(), prepared.launches().len()), (wanted(20, 8), 3));
}

atlas_kernel! {
    /// Works in place, so that a second run is visible.
    kernel raised(s: &mut Tensor<f32, [N]>, mid: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(s[n], load(s[n]) + 1.0);
            store(mid[n], load(s[n]));
        }
    }

    kernel joined(mid: &Tensor<f32, [N]>, x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(mid[n]) + load(x[n]));
        }
    }
}

static RAISED: Chain = Chain::new("raised", &[&raised, &joined], &["mid"]);
static TURNED: Chain = Chain::new("turned", &[&joined, &raised], &["mid"]);
static MISNAMED: Chain = Chain::new("misnamed", &[&raised, &joined], &["middle"]);

#[test]
fn a_mistake_of_the_second_kernel_is_found_before_the_first_runs() {
    let cpu = Device::cpu();
    let mut space = RAISED.workspace(&cpu, &[], &[("N", 4)]).unwrap();
    let mut s = Tensor::zeros(&cpu, DType::F32, [4]).unwrap();
    let (wrong, mut y) =
        (Tensor::zeros(&cpu, DType::Bf16, [4]).unwrap(), Tensor::zeros(&cpu, DType::F32, [4]).unwrap());
    assert!(RAISED.launch(&cpu, args!(&mut s, wrong, &mut y), &mut space).is_err());
    let x = Tensor::zeros(&cpu, DType::F32, [4]).unwrap();
    assert!(RAISED.launch(&cpu, args!(&mut s, x, y), &mut space).is_err());
    assert_eq!(s.to_vec::<f32>().unwrap(), [0.0; 4]);
    RAISED.launch(&cpu, args!(&mut s, x, &mut y), &mut space).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [1.0; 4]);
}

#[test]
fn workspace_is_a_tensor_that_is_written_first() {
    let cpu = Device::cpu();
    let said = |chain: &Chain| chain.workspace(&cpu, &[], &[("N", 4)]).unwrap_err().to_string();
    let text = said(&TURNED);
    assert!(text.contains("ATL647") && text.contains("`joined` reads `mid`"), "{text}");
    let text = said(&MISNAMED);
    assert!(text.contains("ATL646") && text.contains("`middle`") && text.contains("mid, s, x, y"), "{text}");
}

#[test]
fn mistakes_are_found_before_anything_runs() {
    let cpu = Device::cpu();
    let f32s = [("T", DType::F32)];
    let mut space = NORMS.workspace(&cpu, &f32s, &[("N", 20), ("D", 8)]).unwrap();
    let said = |e: RuntimeError| e.to_string();
    let has = |e: RuntimeError, code: &str, what: &str| {
        let text = said(e);
        assert!(text.contains(code) && text.contains(what), "{text}");
    };
    // A workspace for other sizes.
    let (x, mut t) = tensors(21, 8);
    let e = NORMS.launch(&cpu, args!(x, 2.0, &mut t), &mut space).unwrap_err();
    has(e, "ATL643", "dim `N` of the chain `norms` is 21 in `x`, but its workspace was allocated for 20");
    // Too few arguments, and a written tensor passed as read-only.
    let (x, mut t) = tensors(20, 8);
    has(NORMS.launch(&cpu, args!(x, &mut t), &mut space).unwrap_err(), "ATL601", "(x, scale, t)");
    let (x, t) = tensors(20, 8);
    has(NORMS.launch(&cpu, args!(x, 2.0, t), &mut space).unwrap_err(), "ATL608", "writes `t`");
    // The workspace of another chain, or for smaller sizes.
    static OTHER: Chain = Chain::new("other", &[&totals], &[]);
    let mut none = OTHER.workspace(&cpu, &[], &[]).unwrap();
    let (x, mut t) = tensors(20, 8);
    has(NORMS.launch(&cpu, args!(x, 2.0, &mut t), &mut none).unwrap_err(), "ATL644", "`norms`");
    // It may have as many tensors.
    static LIKEWISE: Chain = Chain::new("likewise", &[&squares, &totals, &shifted], &["s"]);
    let mut likewise = LIKEWISE.workspace(&cpu, &f32s, &[("N", 20), ("D", 8)]).unwrap();
    has(NORMS.launch(&cpu, args!(x, 2.0, &mut t), &mut likewise).unwrap_err(), "ATL644", "`norms`");
    has(NORMS.workspace(&cpu, &f32s, &[("N", 20)]).unwrap_err(), "ATL645", "needs `D`");
    has(NORMS.workspace(&cpu, &[], &[("N", 20), ("D", 8)]).unwrap_err(), "ATL645", "needs `T`");
    let unknown = NORMS.workspace(&cpu, &f32s, &[("N", 20), ("D", 8), ("K", 3)]).unwrap_err();
    has(unknown, "ATL645", "no kernel of the chain `norms` has a dim or a type parameter `K`");
    static WRONG: Chain = Chain::new("wrong", &[&totals], &["w"]);
    has(WRONG.workspace(&cpu, &[], &[]).unwrap_err(), "ATL646", "`w`");
}

atlas_kernel! {
    kernel stepped(mid: &Tensor<f32, [N]>, k: i32, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(mid[n]) + k.cast::<f32>());
        }
    }

    kernel weighed(mid: &Tensor<f32, [N]>, a: f16, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(mid[n]) * a.cast::<f32>());
        }
    }
}

static STEPPED: Chain = Chain::new("stepped", &[&raised, &stepped], &["mid"]);
static WEIGHED: Chain = Chain::new("weighed", &[&raised, &weighed], &["mid"]);

/// Launches a chain with a valid number, and again with an invalid one.
fn refused_when_warm<'a>(device: &Device, chain: &'static Chain, fits: impl Into<Arg<'a>>, wrong: Arg<'_>, said: &str) {
    let zeros = || Tensor::zeros(device, DType::F32, [4]).unwrap();
    let mut space = chain.workspace(device, &[], &[("N", 4)]).unwrap();
    let (mut s, mut y) = (zeros(), zeros());
    let number = || match wrong {
        Arg::I64(x) => Arg::I64(x),
        Arg::F64(x) => Arg::F64(x),
        _ => unreachable!("a number"),
    };
    let mut first = [Arg::Out(&mut s), fits.into(), Arg::Out(&mut y)];
    let prepared = chain.prepare(device, &mut first[..], &mut space).unwrap();
    chain.launch(device, &mut first[..], &mut space).unwrap();
    assert_eq!(s.to_vec::<f32>().unwrap(), [1.0; 4]);
    let stream = Stream::new(device).unwrap();
    for way in 0..4 {
        let mut args = [Arg::Out(&mut s), number(), Arg::Out(&mut y)];
        let refused = match way {
            0 => chain.launch(device, &mut args[..], &mut space),
            1 => chain.launch_on(&stream, &mut args[..], &mut space),
            2 => prepared.launch(&mut args[..], &mut space),
            _ => prepared.launch_on(&stream, &mut args[..], &mut space),
        };
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("ATL607") && text.contains(said), "{text}");
        assert_eq!(s.to_vec::<f32>().unwrap(), [1.0; 4], "{way}: the first kernel has run");
    }
}

#[test]
fn a_number_that_does_not_fit_is_refused_before_the_first_kernel_runs() {
    let mut devices = vec![Device::cpu()];
    if cfg!(feature = "jit") {
        devices.push(Device::sim("sm_80").unwrap());
    }
    for device in &devices {
        refused_when_warm(device, &STEPPED, 3_i64, Arg::I64(5_000_000_000), "`k` of `stepped` is an i32");
        refused_when_warm(device, &WEIGHED, 0.5, Arg::F64(1e9), "`a` of `weighed` is a number of type f16");
    }
}

#[test]
fn a_prepared_chain_is_of_one_device() {
    let cpu = Device::cpu();
    let mut space = RAISED.workspace(&cpu, &[], &[("N", 4)]).unwrap();
    let zeros = || Tensor::zeros(&cpu, DType::F32, [4]).unwrap();
    let (mut s, x, mut y) = (zeros(), zeros(), zeros());
    let prepared = RAISED.prepare(&cpu, args!(&mut s, x, &mut y), &mut space).unwrap();
    let stream = Stream::new(&Device::sim("sm_80").unwrap()).unwrap();
    let text = prepared.launch_on(&stream, args!(&mut s, x, &mut y), &mut space).unwrap_err().to_string();
    assert!(text.contains("ATL614"), "{text}");
    assert_eq!(s.to_vec::<f32>().unwrap(), [0.0; 4]);
}

atlas_kernel! {
    kernel doubled<T: Float>(s: &mut Tensor<T, [N]>, mid: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(s[n], load(s[n]) + load(s[n]));
            store(mid[n], load(s[n]).cast::<f32>());
        }
    }

    kernel narrowed<T: Float>(mid: &Tensor<f32, [N]>, y: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(mid[n]).cast::<T>());
        }
    }

    kernel lifted<T: Float>(y: &mut Tensor<f32, [N]>, mid: &Tensor<f32, [N]>, a: T)
    {
        for n in grid(tiles(N, 16)) {
            store(y[n], load(mid[n]) + a.cast::<f32>());
        }
    }
}

static NARROWED: Chain = Chain::new("narrowed", &[&doubled, &narrowed], &["mid"]);
static LIFTED: Chain = Chain::new("lifted", &[&doubled, &lifted], &["mid"]);

#[test]
fn a_type_parameter_is_one_type_in_all_kernels() {
    let cpu = Device::cpu();
    let zeros = |dtype| Tensor::zeros(&cpu, dtype, [4]).unwrap();
    let ones = || cpu.tensor_from(&[1.0_f32; 4], [4]).unwrap();
    let mut space = NARROWED.workspace(&cpu, &[], &[("N", 4)]).unwrap();
    let (mut s, mut y) = (ones(), zeros(DType::Bf16));
    let wanted = "error[ATL643]: type parameter `T` of the chain `narrowed` is f32 in `s`, but bf16 in `y`; it is one type in all \
                  kernels of a chain";
    let refused = NARROWED.launch(&cpu, args!(&mut s, &mut y), &mut space).unwrap_err();
    assert_eq!(refused.to_string(), wanted);
    let Err(refused) = NARROWED.prepare(&cpu, args!(&mut s, &mut y), &mut space) else { panic!("two types") };
    assert_eq!(refused.to_string(), wanted);
    assert_eq!(s.to_f64_vec().unwrap(), [1.0; 4]);
    let mut y = zeros(DType::F32);
    NARROWED.launch(&cpu, args!(&mut s, &mut y), &mut space).unwrap();
    assert_eq!(y.to_f64_vec().unwrap(), [2.0; 4]);

    // If no tensor of a kernel determines its type, a number does.
    let mut space = LIFTED.workspace(&cpu, &[], &[("N", 4)]).unwrap();
    let mut s = ones();
    let text = LIFTED.launch(&cpu, args!(&mut s, &mut y, 1.0), &mut space).unwrap_err().to_string();
    assert!(text.contains("ATL643") && text.contains("f32 in `s`, but f64 in `a`"), "{text}");
    LIFTED.launch(&cpu, args!(&mut s, &mut y, 1.0_f32), &mut space).unwrap();
    assert_eq!(y.to_f64_vec().unwrap(), [3.0; 4]);
}

atlas_kernel! {
    kernel twofold(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    {
        for n in grid(N) {
            store(y[n, ..], load(x[n, ..]) * 2.0);
        }
    }

    kernel raised_by_one(y: &Tensor<f32, [N, D]>, z: &mut Tensor<f32, [N, D]>)
    {
        for n in grid(N) {
            store(z[n, ..], load(y[n, ..]) + 1.0);
        }
    }
}

static WOVEN: Chain = Chain::new("woven", &[&twofold, &raised_by_one], &[]);

/// Elements 0, 3, 2, 5, 4 and 7: none occurs twice, although the strides interleave. The checks of a launch, the
/// interpreter and the simulator agree on that. So a chain with this as its last output runs, or is refused before it
/// begins.
#[test]
fn an_interleaved_output_is_written() {
    let mut devices = vec![Device::cpu()];
    if cfg!(feature = "jit") {
        devices.push(Device::sim("sm_80").unwrap());
    }
    for device in &devices {
        let x = device.tensor_from(&[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0], [3, 2]).unwrap();
        let mut y = Tensor::zeros(device, DType::F32, [3, 2]).unwrap();
        let base = Tensor::zeros(device, DType::F32, [8]).unwrap();
        let mut z = base.as_strided([3, 2], [2, 3], 0).unwrap();
        let mut space = WOVEN.workspace(device, &[], &[]).unwrap();
        WOVEN.launch(device, args!(x, &mut y, &mut z), &mut space).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0], "{device}");
        let woven = [1.0, 0.0, 5.0, 3.0, 9.0, 7.0, 0.0, 11.0];
        assert_eq!(base.to_vec::<f32>().unwrap(), woven, "{device}");
        let prepared = WOVEN.prepare(device, args!(x, &mut y, &mut z), &mut space).unwrap();
        base.as_strided([8], [1], 0).unwrap().copy_from(&[0.0_f32; 8]).unwrap();
        prepared.launch(args!(x, &mut y, &mut z), &mut space).unwrap();
        assert_eq!(base.to_vec::<f32>().unwrap(), woven, "{device}");
        // A view that does repeat an element is refused before the first kernel runs.
        let mut twice = base.as_strided([3, 2], [2, 2], 0).unwrap();
        let mut y = Tensor::zeros(device, DType::F32, [3, 2]).unwrap();
        let error = WOVEN.launch(device, args!(x, &mut y, &mut twice), &mut space).unwrap_err().to_string();
        assert!(error.contains("ATL610"), "{error}");
        assert!(WOVEN.prepare(device, args!(x, &mut y, &mut twice), &mut space).is_err());
        assert_eq!(y.to_vec::<f32>().unwrap(), [0.0; 6], "{device}: the first kernel has run");
    }
}

atlas_kernel! {
    /// The state before the first step.
    kernel begun(start: &Tensor<f32, [N]>, state: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(state[n], 2.0 * load(start[n]));
        }
    }

    /// What each step finds.
    kernel found(state: &Tensor<f32, [N]>, y: &mut Tensor<f32, [C, N]>, at: i32)
    {
        for n in grid(tiles(N, 16)) {
            store(y[at, n], load(state[n]));
        }
    }

    /// The state after a step.
    kernel advanced(x: &Tensor<f32, [C, N]>, state: &mut Tensor<f32, [N]>, decay: f32, at: i32)
    {
        for n in grid(tiles(N, 16)) {
            store(state[n], decay * load(state[n]) + load(x[at, n]));
        }
    }
}

static SCAN: Chain =
    Chain::new("scan", &[&begun, &found, &advanced], &["state"]).repeated(1..3, "C", "at").ordered(&["decay", "x"]);
static ENDLESS: Chain = Chain::new("endless", &[&begun, &found, &advanced], &["state"]).repeated(1..3, "Q", "at");

#[test]
fn the_last_kernels_run_once_for_each_index() {
    let mut devices = vec![Device::cpu()];
    if cfg!(feature = "jit") {
        devices.push(Device::sim("sm_80").unwrap());
    }
    let names: Vec<&str> = SCAN.params().iter().map(|p| p.name()).collect();
    assert_eq!(names, ["decay", "x", "start", "y"]);
    for device in devices {
        for steps in [3, 1, 0] {
            let n = 21;
            let x = device.tensor_from(&(0..steps * n).map(|i| i as f32).collect::<Vec<_>>(), [steps, n]).unwrap();
            let start = device.tensor_from(&vec![1.0_f32; n], [n]).unwrap();
            let mut y = Tensor::zeros(&device, DType::F32, [steps, n]).unwrap();
            let mut space = SCAN.workspace(&device, &[], &[("N", n)]).unwrap();
            let mut want = vec![];
            let mut state = vec![2.0_f32; n];
            for c in 0..steps {
                want.extend(state.iter().copied());
                state.iter_mut().enumerate().for_each(|(i, s)| *s = 0.5 * *s + (c * n + i) as f32);
            }
            SCAN.launch(&device, args!(0.5, x, start, &mut y), &mut space).unwrap();
            assert_eq!(y.to_vec::<f32>().unwrap(), want, "{device}");
            let prepared = SCAN.prepare(&device, args!(0.5, x, start, &mut y), &mut space).unwrap();
            prepared.launch(args!(1.0, x, start, &mut y), &mut space).unwrap();
            if steps == 3 {
                assert_eq!(y.to_vec::<f32>().unwrap()[2 * n + 1], 2.0 + 1.0 + 22.0, "{device}");
            }
            let stream = Stream::new(&device).unwrap();
            prepared.launch_on(&stream, args!(0.5, x, start, &mut y), &mut space).unwrap();
            assert_eq!(y.to_vec::<f32>().unwrap(), want, "{device}");
        }
    }
}

atlas_kernel! {
    /// The state before each step, among those that are kept.
    kernel kept(state: &Tensor<f32, [N]>, states: &mut Tensor<f32, [R, N]>, at: i32)
    {
        for n in grid(tiles(N, 16)) {
            store(states[at % size(R), n], load(state[n]));
        }
    }

    /// What the steps from `at` on find, as far as their states are kept.
    kernel read_kept(states: &Tensor<f32, [R, N]>, y: &mut Tensor<f32, [C, N]>, at: i32)
    {
        for n in grid(tiles(N, 16)) {
            for r in 0..min(size(C) - at, size(R)) {
                store(y[at + r, n], load(states[r, n]));
            }
        }
    }
}

static BY_SEGMENTS: Chain = Chain::new("by_segments", &[&begun, &kept, &advanced, &read_kept], &["state", "states"])
    .repeated(1..3, "C", "at")
    .after_each("R");

#[test]
fn the_kernels_behind_run_after_each_segment_and_after_the_last_step() {
    let device = Device::cpu();
    let n = 21;
    for (steps, room) in [(5, 2), (4, 2), (3, 7), (1, 1), (0, 3)] {
        let x = device.tensor_from(&(0..steps * n).map(|i| i as f32).collect::<Vec<_>>(), [steps, n]).unwrap();
        let start = device.tensor_from(&vec![1.0_f32; n], [n]).unwrap();
        let mut y = Tensor::zeros(&device, DType::F32, [steps, n]).unwrap();
        let mut space = BY_SEGMENTS.workspace(&device, &[], &[("N", n), ("R", room)]).unwrap();
        let (mut want, mut state) = (vec![], vec![2.0_f32; n]);
        for c in 0..steps {
            want.extend(state.iter().copied());
            state.iter_mut().enumerate().for_each(|(i, s)| *s = 0.5 * *s + (c * n + i) as f32);
        }
        BY_SEGMENTS.launch(&device, args!(start, x, 0.5, &mut y), &mut space).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), want, "{steps} steps, {room} kept");
    }
}

#[test]
fn segments_of_no_indices_are_refused() {
    let device = Device::cpu();
    let n = 4;
    for steps in [3, 0] {
        let start = device.tensor_from(&vec![1.0_f32; n], [n]).unwrap();
        let [x, mut y] = [2.0_f32, -1.0].map(|of| device.tensor_from(&vec![of; steps * n], [steps, n]).unwrap());
        let mut space = BY_SEGMENTS.workspace(&device, &[], &[("N", n), ("R", 0)]).unwrap();
        let launched = BY_SEGMENTS.launch(&device, args!(&start, &x, 0.5, &mut y), &mut space);
        let prepared = BY_SEGMENTS.prepare(&device, args!(&start, &x, 0.5, &mut y), &mut space);
        for refused in [launched.unwrap_err(), prepared.map(drop).unwrap_err()] {
            let text = refused.to_string();
            let wanted = "the chain `by_segments` repeats kernels in segments of `R` indices, and `R` is 0";
            assert!(text.contains("ATL645") && text.contains(wanted), "{text}");
        }
        assert_eq!(y.to_vec::<f32>().unwrap(), vec![-1.0; steps * n]);
    }
}

static MISORDERED: Chain = Chain::new("misordered", &[&begun, &found, &advanced], &["state"])
    .repeated(1..3, "C", "at")
    .ordered(&["decoy", "x"]);
static TWICE_ORDERED: Chain =
    Chain::new("twice", &[&begun, &found, &advanced], &["state"]).repeated(1..3, "C", "at").ordered(&["x", "x"]);
static MISINDEXED: Chain =
    Chain::new("misindexed", &[&begun, &found, &advanced], &["state"]).repeated(1..3, "C", "step");
static FRACTIONAL: Chain =
    Chain::new("fractional", &[&begun, &found, &advanced], &["state"]).repeated(1..3, "C", "decay");

#[test]
fn lists_of_a_chain_name_what_its_kernels_have() {
    let device = Device::cpu();
    // Without a workspace no launch of it is possible.
    let refused = |chain: &'static Chain| chain.workspace(&device, &[], &[("N", 4)]).unwrap_err().to_string();
    for (chain, wanted) in [
        (&MISORDERED, "names `decoy`"),
        (&TWICE_ORDERED, "names `x`"),
        (&MISINDEXED, "none of them has such a parameter; it has to be a parameter `step: i32`"),
        (&FRACTIONAL, "`advanced` has `decay: f32`"),
    ] {
        let text = refused(chain);
        assert!(text.contains("ATL646") && text.contains(wanted), "{text}");
    }
}

#[test]
fn a_chain_that_repeats_over_a_dim_of_no_kernel_is_refused() {
    let device = Device::cpu();
    let [x, mut y] = [0, 1].map(|_| Tensor::zeros(&device, DType::F32, [2, 4]).unwrap());
    let start = Tensor::zeros(&device, DType::F32, [4]).unwrap();
    let mut space = ENDLESS.workspace(&device, &[], &[("N", 4)]).unwrap();
    let refused = ENDLESS.launch(&device, args!(start, &mut y, x, 0.5), &mut space).unwrap_err().to_string();
    assert!(refused.contains("ATL645") && refused.contains("no kernel of the chain `endless` has a dim"), "{refused}");
}

#[test]
fn a_workspace_is_made_of_arguments() {
    let cpu = Device::cpu();
    let (x, mut t) = tensors(20, 8);
    assert_eq!(NORMS.open_dims(), [""; 0]);
    let wanted_text = "norms<T: bf16 | f16 | f32>(x: &Tensor<T, [N, D]>, scale: f32, t: &mut Tensor<f32, [N]>)";
    assert_eq!(NORMS.signature(), wanted_text);
    let mut space = NORMS.workspace_for(&cpu, &args!(x, 2.0, &mut t), &[]).unwrap();
    NORMS.launch(&cpu, args!(x, 2.0, &mut t), &mut space).unwrap();
    assert_eq!(t.to_vec::<f32>().unwrap(), wanted(20, 8));

    let said = |e: RuntimeError| e.to_string();
    let text = said(NORMS.workspace_for(&cpu, &args!(x, &mut t), &[]).unwrap_err());
    assert!(text.contains("ATL601") && text.contains("(x, scale, t)"), "{text}");
    let text = said(NORMS.workspace_for(&cpu, &args!(1.0, 2.0, &mut t), &[]).unwrap_err());
    assert!(text.contains("ATL602") && text.contains("`x` of `norms` is a tensor"), "{text}");
    let text = said(NORMS.workspace_for(&cpu, &args!(&t.clone(), 2.0, &mut t), &[]).unwrap_err());
    assert!(text.contains("ATL603") && text.contains("[N, D]"), "{text}");
    let text = said(NORMS.workspace_for(&cpu, &args!(x, 2.0, &mut t), &[("Z", 3)]).unwrap_err());
    assert!(text.contains("`Z`"), "{text}");
}

atlas_kernel! {
    kernel parted(x: &Tensor<f32, [N]>, part: &mut Tensor<f32, [X, N]>)
    {
        for (i, n) in grid(X, tiles(N, 16)) {
            store(part[i, n], load(x[n]));
        }
    }

    kernel summed(part: &Tensor<f32, [X, N]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(y[n], sum(load(part[.., n]), axis = 0));
        }
    }
}

static PARTED: Chain = Chain::new("parted_sum", &[&parted, &summed], &["part"]);

#[test]
fn a_dim_that_no_argument_has_is_open() {
    let cpu = Device::cpu();
    let x = cpu.tensor_from(&[1.0_f32, 2.0, 3.0], [3]).unwrap();
    let mut y = Tensor::zeros(&cpu, DType::F32, [3]).unwrap();
    assert_eq!(PARTED.open_dims(), ["X"]);
    assert!(PARTED.signature().ends_with("y: &mut Tensor<f32, [N]>; X)"), "{}", PARTED.signature());
    let text = PARTED.workspace_for(&cpu, &args!(x, &mut y), &[]).unwrap_err().to_string();
    assert!(text.contains("ATL645") && text.contains("`X`"), "{text}");
    let mut space = PARTED.workspace_for(&cpu, &args!(x, &mut y), &[("X", 4)]).unwrap();
    PARTED.launch(&cpu, args!(x, &mut y), &mut space).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [4.0, 8.0, 12.0]);
}

/// No kernel has both tensors, so each launch by itself would find nothing.
#[test]
fn a_written_tensor_shares_memory_with_no_other_argument() {
    let device = Device::cpu();
    let x = device.tensor_from(&[1.0_f32; 8], [2, 4]).unwrap();
    let start = device.tensor_from(&[1.0_f32; 4], [4]).unwrap();
    let mut y = x.clone();
    let mut space = SCAN.workspace(&device, &[], &[("N", 4)]).unwrap();
    let refused = |e: RuntimeError| {
        let text = e.to_string();
        assert!(text.contains("ATL609") && text.contains("scan") && text.contains("`y`"), "{text}");
    };
    refused(SCAN.launch(&device, args!(0.5, x, start, &mut y), &mut space).unwrap_err());
    assert!(SCAN.prepare(&device, args!(0.5, x, start, &mut y), &mut space).is_err());
    let mut apart = Tensor::zeros(&device, DType::F32, [2, 4]).unwrap();
    let prepared = SCAN.prepare(&device, args!(0.5, x, start, &mut apart), &mut space).unwrap();
    refused(prepared.launch(args!(0.5, x, start, &mut y), &mut space).unwrap_err());
    // The first row of `y` is `start`.
    let mut over = start.as_strided([2, 4], [0, 1], 0).unwrap();
    assert!(SCAN.launch(&device, args!(0.5, x, start, &mut over), &mut space).is_err());
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0; 8]);
}
