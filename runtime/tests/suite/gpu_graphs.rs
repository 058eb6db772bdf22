//! Graphs on a GPU: what the driver records, updates and runs, and what has to live meanwhile.

use crate::gpu::device_with;
use crate::kernels::SCALE;
use crate::ptx::{PTX, counted, image};
use crate::split::scaled;
use atlas_dsl::{Config, DType};
use atlas_runtime::{
    CacheDir, Device, Graph, Launch, Store, Stream, Tensor, args, build_kernel, kernel_key, specialize,
};
use cudarc::driver::sys as cuda;
use std::time::Instant;
use tempfile::TempDir;

/// As many kernels as a device keeps loaded.
const MOST_LOADED: usize = 1024;

fn ok(status: cuda::CUresult) {
    assert_eq!(status, cuda::CUresult::CUDA_SUCCESS);
}

fn device(folder: &TempDir) -> Device {
    device_with(folder, |d| image(d, PTX, 0), |d| counted(d, 37))
}

fn zeros(device: &Device) -> Tensor {
    Tensor::zeros(device, DType::F32, [37, 8]).unwrap()
}

/// A graph of launches that write `a * x + x` to each of these tensors, for an `a` of its own.
fn graph_of(stream: &Stream, x: &Tensor, outputs: &mut [(f64, Tensor)]) -> Graph {
    stream.capture(|recording| launches(recording, x, outputs)).unwrap()
}

fn launches(recording: &Stream, x: &Tensor, outputs: &mut [(f64, Tensor)]) -> atlas_runtime::Result<()> {
    outputs.iter_mut().try_for_each(|(a, y)| SCALE.launch_on(recording, args!(x, x, *a, y)))
}

fn prepare(device: &Device, rows: usize) {
    let (x, mut y) = (counted(device, rows), Tensor::zeros(device, DType::F32, [rows, 8]).unwrap());
    SCALE.prepare(device, args!(x, x, 1.0, &mut y)).unwrap();
}

/// Loads enough kernels to evict that of a graph, which still runs; without the graph it would be gone.
///
/// The device, whose store is in this folder, has `scale` for 37 rows of 8. Other kernels are `scale` for other rows, and never run.
pub(crate) fn check_eviction(cache: &CacheDir, device: &Device) {
    let stream = device.default_stream();
    let (x, mut y) = (counted(device, 37), zeros(device));
    SCALE.prepare(device, args!(x, x, 2.0, &mut y)).unwrap();
    let mut graph = stream.capture(|recording| SCALE.launch_on(recording, args!(x, x, 2.0, &mut y))).unwrap();
    let is_warm = |y: &mut Tensor| {
        let before = device.stats().warm_launches;
        SCALE.launch(device, args!(x, x, 7.0, y)).unwrap();
        device.stats().warm_launches > before
    };
    assert!(is_warm(&mut y));
    // Kernels that are loaded from now on are younger: the launch of no elements counts.
    let (none, mut out) = (x.slice(0, 0..0).unwrap(), zeros(device).slice(0, 0..0).unwrap());
    SCALE.launch(device, args!(none, none, 1.0, &mut out)).unwrap();
    let (store, config): (Store, Config) = (Store::new(cache.clone()), "BN=1 warps=4".parse().unwrap());
    for size in 9..9 + MOST_LOADED {
        let (x, mut y) = (
            Tensor::zeros(device, DType::F32, [1, size]).unwrap(),
            Tensor::zeros(device, DType::F32, [1, size]).unwrap(),
        );
        let bound = SCALE.bind(device, args!(x, x, 1.0, &mut y)).unwrap();
        let kernel = build_kernel(&SCALE, &specialize(&bound), &config).unwrap();
        store.put(&kernel_key(&kernel, config.schedule, device.target().unwrap()), image(device, PTX, 0));
        SCALE.prepare_with(device, &config, args!(x, x, 1.0, &mut y)).unwrap();
    }
    graph.launch(&stream).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), scaled(37, 2.0));
    assert!(!is_warm(&mut y), "the kernel was not evicted");
    graph.launch(&stream).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), scaled(37, 2.0));
}

#[test]
#[ignore = "needs a GPU"]
fn the_kernel_of_a_graph_outlives_its_eviction() {
    let folder = TempDir::new().unwrap();
    check_eviction(&CacheDir::At(folder.path().to_owned()), &device(&folder));
}

#[test]
#[ignore = "needs a GPU"]
fn a_graph_repeats_launches_on_every_stream() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    prepare(&device, 37);
    let (mut x, owned) = (counted(&device, 37), Stream::new(&device).unwrap());
    let mut outputs: Vec<_> = (0..40).map(|a| (f64::from(a), zeros(&device))).collect();
    let mut graph = graph_of(&owned, &x, &mut outputs);
    assert!(outputs.iter().all(|(_, y)| y.to_vec::<f32>().unwrap() == [0.0; 37 * 8]), "recording runs nothing");
    // SAFETY: the handle is that of `owned`, which is alive.
    let raw = unsafe { Stream::from_raw(&device, owned.as_raw()) };
    for (round, stream) in [&owned, &device.default_stream(), &raw].into_iter().enumerate() {
        let values: Vec<f32> = (0..37 * 8).map(|i| (i * (round + 1)) as f32).collect();
        x.copy_from(&values).unwrap();
        graph.launch(stream).unwrap();
        for (a, y) in &outputs {
            let wanted: Vec<f32> = values.iter().map(|x| x * (*a as f32 + 1.0)).collect();
            assert_eq!(y.to_vec::<f32>().unwrap(), wanted, "{a} in round {round}");
        }
    }
    assert_eq!(device.stats().launches, 3 * 40);
}

#[test]
#[ignore = "needs a GPU"]
fn a_graph_outlives_tensors_and_device() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    prepare(&device, 37);
    let stream = Stream::new(&device).unwrap();
    let mut outputs = vec![(2.0, zeros(&device))];
    let seen = outputs[0].1.clone();
    let x = counted(&device, 37);
    let mut graph = graph_of(&stream, &x, &mut outputs);
    drop((x, outputs, device));
    // Memory that is free again would be taken by these.
    let others: Vec<Tensor> = (0..64).map(|_| Tensor::zeros(graph.device(), DType::F32, [37, 8]).unwrap()).collect();
    graph.launch(&stream).unwrap();
    drop((graph, others));
    assert_eq!(seen.to_vec::<f32>().unwrap(), scaled(37, 2.0));
}

#[test]
#[ignore = "needs a GPU"]
fn an_update_is_in_place_or_makes_another_graph() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    [37, 20_011].into_iter().for_each(|rows| prepare(&device, rows));
    let stream = Stream::new(&device).unwrap();
    let x = counted(&device, 37);
    let mut first: Vec<_> = (0..8).map(|a| (f64::from(a), zeros(&device))).collect();
    let mut second: Vec<_> = (0..8).map(|a| (f64::from(a + 100), zeros(&device))).collect();
    let mut graph = graph_of(&stream, &x, &mut first);
    // The run that is queued when the update comes is the first one's.
    graph.launch(&stream).unwrap();
    graph.update(|recording| launches(recording, &x, &mut second)).unwrap();
    graph.launch(&stream).unwrap();
    for (a, y) in first.iter().chain(&second) {
        assert_eq!(y.to_vec::<f32>().unwrap(), scaled(37, *a as f32), "{a}");
    }
    // More launches than before, and another grid.
    let (many, mut last) = (counted(&device, 20_011), Tensor::zeros(&device, DType::F32, [20_011, 8]).unwrap());
    graph
        .update(|recording| {
            launches(recording, &x, &mut first)?;
            SCALE.launch_on(recording, args!(many, many, 3.0, &mut last))
        })
        .unwrap();
    first.iter_mut().for_each(|(_, y)| y.copy_from(&[0.0_f32; 37 * 8]).unwrap());
    graph.launch(&stream).unwrap();
    assert_eq!(last.to_vec::<f32>().unwrap(), scaled(20_011, 3.0));
    for (a, y) in &first {
        assert_eq!(y.to_vec::<f32>().unwrap(), scaled(37, *a as f32), "{a}");
    }
    let begin = Instant::now();
    for _ in 0..100 {
        graph.update(|recording| launches(recording, &x, &mut second)).unwrap();
    }
    println!("host time of an update of 8 launches: {:.2} us", begin.elapsed().as_secs_f64() * 1e4);
}

/// On a stream that is ordered with no other, a graph that is dropped or updated first waits for its runs.
#[test]
#[ignore = "needs a GPU"]
fn what_a_foreign_stream_runs_is_waited_for() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    // No multiple of 2, as the 37 rows that the kernel of the store is for.
    const ROWS: usize = 500_001;
    prepare(&device, ROWS);
    let x = counted(&device, ROWS);
    let mut y = Tensor::zeros(&device, DType::F32, [ROWS, 8]).unwrap();
    let seen = y.clone();
    let (mut context, mut handle) = (std::ptr::null_mut(), std::ptr::null_mut());
    const NON_BLOCKING: u32 = 1;
    // SAFETY: out-pointers to live handles; the primary context of device 0, which `device` keeps.
    unsafe {
        ok(cuda::cuDevicePrimaryCtxRetain(&mut context, 0));
        ok(cuda::cuCtxPushCurrent_v2(context));
        ok(cuda::cuStreamCreate(&mut handle, NON_BLOCKING));
    }
    device.synchronize().unwrap();
    // SAFETY: a live stream of the context; the tensors are made, and dropped by the graph.
    let raw = unsafe { Stream::from_raw(&device, handle.cast()) };
    let mut graph = raw
        .capture(|recording| (0..50).try_for_each(|a| SCALE.launch_on(recording, args!(x, x, f64::from(a), &mut y))))
        .unwrap();
    drop((x, y));
    graph.launch(&raw).unwrap();
    drop(graph);
    // The wait is over, so the stream is idle and the results are there.
    // SAFETY: a live stream, which is destroyed once, when its last user is gone.
    unsafe { ok(cuda::cuStreamQuery(handle)) };
    assert_eq!(seen.to_vec::<f32>().unwrap()[8], 8.0 * 50.0);
    drop(raw);
    // SAFETY: as above.
    unsafe {
        ok(cuda::cuStreamDestroy_v2(handle));
        ok(cuda::cuCtxPopCurrent_v2(&mut context));
    }
}

/// While another library has a stream record, a launch that would have to load its kernel is refused, and the recording goes on.
#[test]
#[ignore = "needs a GPU"]
fn an_unprepared_launch_does_not_spoil_the_recording_of_others() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    let (x, mut y) = (counted(&device, 37), zeros(&device));
    let stream = Stream::new(&device).unwrap();
    device.synchronize().unwrap();
    let mut context = std::ptr::null_mut();
    let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
    let handle = stream.as_raw().cast();
    let mode = cuda::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let prepared = SCALE.prepare(&device, args!(x, x, 2.0, &mut y)).unwrap();
    let (few, mut out) = (counted(&device, 5), counted(&device, 5));
    device.synchronize().unwrap();
    // SAFETY: out-pointers to live handles; the primary context of device 0, which `device` keeps; the stream is alive.
    unsafe {
        ok(cuda::cuDevicePrimaryCtxRetain(&mut context, 0));
        ok(cuda::cuCtxPushCurrent_v2(context));
        ok(cuda::cuStreamBeginCapture_v2(handle, mode));
    }
    let refused = SCALE.launch_on(&stream, args!(few, few, 2.0, &mut out)).unwrap_err();
    assert_eq!(refused.code().to_string(), "ATL656");
    prepared.launch_on(&stream, args!(x, x, 2.0, &mut y)).unwrap();
    // SAFETY: as above; the graph is destroyed once.
    unsafe {
        ok(cuda::cuStreamEndCapture(handle, &mut graph));
        ok(cuda::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
        ok(cuda::cuGraphDestroy(graph));
        ok(cuda::cuGraphLaunch(executable, handle));
    }
    assert_eq!(y.to_vec::<f32>().unwrap(), scaled(37, 2.0));
    // SAFETY: destroyed once, and the device is idle; pushed above.
    unsafe {
        ok(cuda::cuGraphExecDestroy(executable));
        ok(cuda::cuCtxPopCurrent_v2(&mut context));
    }
}

/// While another library has a stream record, the launches of a graph become a part of that recording. A graph with conditions is refused,
/// and the recording goes on.
#[test]
#[ignore = "needs a GPU"]
fn graphs_do_not_spoil_the_recording_of_others() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    let (x, mut y, stream) = (counted(&device, 37), zeros(&device), Stream::new(&device).unwrap());
    let flag = device.tensor_from(&[1_i32], [1]).unwrap();
    prepare(&device, 37);
    let mut plain = stream.capture(|recording| SCALE.launch_on(recording, args!(x, x, 3.0, &mut y))).unwrap();
    let mut conditional = stream
        .capture(|recording| recording.run_if(&flag, |then| SCALE.launch_on(then, args!(x, x, 5.0, &mut y))))
        .unwrap();
    device.synchronize().unwrap();
    let (mut context, mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    let handle = stream.as_raw().cast();
    let mode = cuda::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: out-pointers to live handles; the primary context of device 0, which `device` keeps; the stream is alive.
    unsafe {
        ok(cuda::cuDevicePrimaryCtxRetain(&mut context, 0));
        ok(cuda::cuCtxPushCurrent_v2(context));
        ok(cuda::cuStreamBeginCapture_v2(handle, mode));
    }
    assert_eq!(conditional.launch(&stream).unwrap_err().code().to_string(), "ATL663");
    plain.launch(&stream).unwrap();
    // Neither does dropping one.
    drop(conditional);
    // SAFETY: as above; the graph is destroyed once.
    unsafe {
        ok(cuda::cuStreamEndCapture(handle, &mut graph));
        ok(cuda::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
        ok(cuda::cuGraphDestroy(graph));
        ok(cuda::cuGraphLaunch(executable, handle));
    }
    assert_eq!(y.to_vec::<f32>().unwrap(), scaled(37, 3.0));
    // SAFETY: destroyed once, and the device is idle; pushed above.
    unsafe {
        ok(cuda::cuGraphExecDestroy(executable));
        ok(cuda::cuCtxPopCurrent_v2(&mut context));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_graph_takes_less_host_time_than_its_launches() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    prepare(&device, 37);
    let (x, stream) = (counted(&device, 37), Stream::new(&device).unwrap());
    let mut outputs: Vec<_> = (0..20).map(|a| (f64::from(a), zeros(&device))).collect();
    let mut graph = graph_of(&stream, &x, &mut outputs);
    let mut best = [f64::INFINITY; 2];
    for _ in 0..200 {
        for (way, best) in best.iter_mut().enumerate() {
            device.synchronize().unwrap();
            let begin = Instant::now();
            match way {
                0 => launches(&stream, &x, &mut outputs).unwrap(),
                _ => graph.launch(&stream).unwrap(),
            }
            *best = best.min(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    println!("host time of 20 launches: {:.2} us, of their graph: {:.2} us", best[0], best[1]);
    assert!(best[1] < best[0], "{best:?}");
}

/// While one thread records, another one launches and reads on the default stream.
#[test]
#[ignore = "needs a GPU"]
fn other_threads_go_on_while_one_records() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    let (x, mut y) = (counted(&device, 37), zeros(&device));
    SCALE.launch(&device, args!(x, x, 1.0, &mut y)).unwrap();
    std::thread::scope(|threads| {
        for a in 0..4 {
            let device = device.clone();
            threads.spawn(move || {
                let (x, mut y) = (counted(&device, 37), zeros(&device));
                for at in 0..200 {
                    if (a + at) % 2 == 0 {
                        let mut outputs: Vec<(f64, Tensor)> = (0..20).map(|i| (f64::from(i), y.clone())).collect();
                        graph_of(&device.default_stream(), &x, &mut outputs);
                    }
                    SCALE.launch(&device, args!(x, x, f64::from(at), &mut y)).unwrap();
                    assert_eq!(y.to_vec::<f32>().unwrap()[1], (at + 1) as f32);
                }
            });
        }
    });
}
