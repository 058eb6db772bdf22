//! Launches whose programs are split, on a GPU: scratch memory of streams, of graphs, and of graphs that others record. All devices of
//! a process share its memory figures, so these tests run by `--test-threads=1`.

use crate::kernels::SCALE;
use crate::ptx::{counted, with_kernel};
use crate::split::{PTX, image, scaled};
use atlas_dsl::DType;
use atlas_runtime::{CacheDir, Device, DeviceId, HAS_COMPILER, Launch, Stream, Tensor, args};
use cudarc::driver::sys as cuda;
use std::time::Instant;
use tempfile::TempDir;

/// Enough that launches of two streams run side by side for a while.
const MANY: usize = 20_011;

fn device(folder: &TempDir) -> Device {
    let cache = CacheDir::At(folder.path().to_owned());
    with_kernel(Device::open(DeviceId::Cuda(0), cache.clone()).unwrap(), cache, |d| image(d, PTX), |d| counted(d, 37))
}

/// A launch on a stream; on the default one without it.
#[track_caller]
fn check(device: &Device, stream: Option<&Stream>, rows: usize, a: f32) {
    let (x, mut y) = (counted(device, rows), Tensor::zeros(device, DType::F32, [rows, 8]).unwrap());
    device.synchronize().unwrap();
    match stream {
        None => SCALE.launch(device, args!(x, x, a, &mut y)).unwrap(),
        Some(stream) => SCALE.launch_on(stream, args!(x, x, a, &mut y)).unwrap(),
    }
    device.synchronize().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), scaled(rows, a));
}

fn ok(status: cuda::CUresult) {
    assert_eq!(status, cuda::CUresult::CUDA_SUCCESS);
}

#[test]
#[ignore = "needs a GPU"]
fn every_stream_has_scratch_memory_that_grows() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    let owned = Stream::new(&device).unwrap();
    // SAFETY: the null stream, `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`, and the handle of `owned`, which is alive.
    let raw = [0, 1, 2, owned.as_raw().addr()]
        .map(|handle| unsafe { Stream::from_raw(&device, std::ptr::with_exposed_provenance_mut(handle)) });
    for (i, rows) in [37, 101, MANY, 37, 3 * MANY, MANY].into_iter().enumerate() {
        check(&device, None, rows, i as f32);
        for stream in std::iter::once(&owned).chain(&raw) {
            check(&device, Some(stream), rows, i as f32 + 1.0);
            check(&device, Some(stream), rows, i as f32 + 2.0);
        }
    }
    // Kept by the default stream, by `owned` and by three of the raw ones.
    let kept = device.memory().unwrap().unwrap().used;
    // The most rows take another config where it can be compiled, and its programs are not split.
    let most = if HAS_COMPILER { MANY } else { 3 * MANY };
    let programs = (most as u64).div_ceil(16);
    assert!(kept >= 5 * programs * 1536, "{kept}");
    // The raw ones first: one of them wraps `owned`.
    drop(raw);
    drop(owned);
    device.release_memory().unwrap();
    assert_eq!(device.memory().unwrap().unwrap().used, 0);
    check(&device, None, 37, 7.0);
}

#[test]
#[ignore = "needs a GPU"]
fn launches_of_two_streams_do_not_share_scratch_memory() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let x = counted(&device, MANY);
    let mut ys: Vec<Tensor> = (0..64).map(|_| Tensor::zeros(&device, DType::F32, [MANY, 8]).unwrap()).collect();
    device.synchronize().unwrap();
    for (i, y) in ys.iter_mut().enumerate() {
        SCALE.launch_on(&streams[i % 2], args!(x, x, i as f32, y)).unwrap();
    }
    device.synchronize().unwrap();
    for (i, y) in ys.iter().enumerate() {
        assert_eq!(y.to_vec::<f32>().unwrap(), scaled(MANY, i as f32), "{i}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn threads_that_share_a_stream_share_its_scratch_memory() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    let stream = Stream::new(&device).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (device, stream) = (&device, &stream);
            scope.spawn(move || (0..8).for_each(|i| check(device, Some(stream), 37 + 1000 * i * (thread + 1), 3.0)));
        }
    });
}

#[test]
#[ignore = "needs a GPU"]
fn a_graph_has_scratch_memory_of_its_own() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    let (x, mut y) = (counted(&device, MANY), Tensor::zeros(&device, DType::F32, [MANY, 8]).unwrap());
    let prepared = SCALE.prepare(&device, args!(x, x, 2.0, &mut y)).unwrap();
    let stream = Stream::new(&device).unwrap();
    let repeat = |recording: &Stream| (0..40).try_for_each(|_| prepared.launch_on(recording, args!(x, x, 2.0, &mut y)));
    let mut graph = stream.capture(repeat).unwrap();
    for round in 0..3 {
        graph.launch(&stream).unwrap();
        // The stream of the graph also runs other launches, for which its own scratch memory grows.
        check(&device, Some(&stream), (2 * round + 3) * MANY, 5.0);
        check(&device, None, MANY, 4.0);
        graph.launch(&stream).unwrap();
    }
    drop((graph, prepared, stream));
    assert_eq!(y.to_vec::<f32>().unwrap(), scaled(MANY, 2.0));
    drop((x, y));
    device.release_memory().unwrap();
    assert_eq!(device.memory().unwrap().unwrap().used, 0);
}

/// Two graphs of one prepared launch run side by side, beside launches that no graph records.
#[test]
#[ignore = "needs a GPU"]
fn a_graph_that_the_caller_records_has_its_own_too() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    let x = counted(&device, MANY);
    let mut ys: Vec<Tensor> = (0..3).map(|_| Tensor::zeros(&device, DType::F32, [MANY, 8]).unwrap()).collect();
    let prepared = SCALE.prepare(&device, args!(x, x, 2.0, &mut ys[0])).unwrap();
    let streams = [(); 3].map(|()| Stream::new(&device).unwrap());
    // The recording stream has scratch memory already, which the graph must not use.
    check(&device, Some(&streams[0]), MANY, 1.0);
    let mut current = std::ptr::null_mut();
    // SAFETY: out-pointers to live handles; the primary context of device 0, which `device` keeps.
    unsafe {
        ok(cuda::cuDevicePrimaryCtxRetain(&mut current, 0));
        ok(cuda::cuCtxPushCurrent_v2(current));
    }
    let graphs: Vec<cuda::CUgraphExec> = (0..2)
        .map(|i| {
            let handle = streams[0].as_raw().cast();
            let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
            let mode = cuda::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            // SAFETY: the stream is alive; out-pointers to live handles.
            unsafe {
                ok(cuda::cuStreamBeginCapture_v2(handle, mode));
                for _ in 0..8 {
                    prepared.launch_on(&streams[0], args!(x, x, 2.0 + i as f64, &mut ys[i])).unwrap();
                }
                ok(cuda::cuStreamEndCapture(handle, &mut graph));
                ok(cuda::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
                ok(cuda::cuGraphDestroy(graph));
            }
            executable
        })
        .collect();
    for _ in 0..10 {
        for (graph, stream) in graphs.iter().zip(&streams[1..]) {
            // SAFETY: a live graph and a live stream; the kernel and the tensors live on.
            ok(unsafe { cuda::cuGraphLaunch(*graph, stream.as_raw().cast()) });
        }
        prepared.launch_on(&streams[0], args!(x, x, 9.0, &mut ys[2])).unwrap();
    }
    device.synchronize().unwrap();
    for (y, a) in ys.iter().zip([2.0, 3.0, 9.0]) {
        assert_eq!(y.to_vec::<f32>().unwrap(), scaled(MANY, a));
    }
    // SAFETY: each is destroyed once, and the device is idle.
    graphs.into_iter().for_each(|graph| ok(unsafe { cuda::cuGraphExecDestroy(graph) }));
    // SAFETY: pushed above.
    ok(unsafe { cuda::cuCtxPopCurrent_v2(&mut current) });
}

#[test]
#[ignore = "needs a GPU"]
fn scratch_memory_beyond_the_device_is_out_of_memory() {
    let folder = TempDir::new().unwrap();
    let cache = CacheDir::At(folder.path().to_owned());
    let huge = |d: &Device| atlas_codegen::KernelImage { partial_bytes: 1 << 62, ..image(d, PTX) };
    let open = Device::open(DeviceId::Cuda(0), cache.clone()).unwrap();
    let device = with_kernel(open, cache, huge, |d| counted(d, 37));
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    let config = SCALE.select(&device, args!(x, x, 2.0, &mut y)).unwrap().legal().next().unwrap().config.clone();
    let error = SCALE.launch_with(&device, &config, args!(x, x, 2.0, &mut y)).unwrap_err();
    assert!(error.to_string().contains("ATL638"), "{error}");
    // Another config needs no scratch memory. It is taken if it can be compiled.
    match SCALE.launch(&device, args!(x, x, 2.0, &mut y)) {
        Ok(()) if HAS_COMPILER => assert_eq!(y.to_vec::<f32>().unwrap(), scaled(37, 2.0)),
        other => assert_eq!(other.unwrap_err().code().to_string(), "ATL640"),
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_warm_launch_takes_microseconds() {
    let folder = TempDir::new().unwrap();
    let device = device(&folder);
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    let owned = Stream::new(&device).unwrap();
    let prepared = SCALE.prepare(&device, args!(x, x, 1.0, &mut y)).unwrap();
    for stream in [device.default_stream(), owned] {
        let mut best = f64::INFINITY;
        for _ in 0..50 {
            device.synchronize().unwrap();
            let start = Instant::now();
            (0..100).for_each(|_| prepared.launch_on(&stream, args!(x, x, 2.0, &mut y)).unwrap());
            best = best.min(start.elapsed().as_secs_f64() * 1e6 / 100.0);
        }
        println!("host time of a launch of split programs: {best:.2} us");
        assert!(best < 20.0);
    }
}
