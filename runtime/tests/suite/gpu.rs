//! Launches on a GPU with hand-written PTX, so that no compiler is needed.

use crate::kernels::SCALE;
use crate::ptx::{PTX, counted, image, with_kernel};
use atlas_codegen::KernelImage;
use atlas_dsl::DType;
use atlas_runtime::{CacheDir, Device, DeviceId, Event, Launch, LaunchError, RuntimeError, Stream, Tensor, args};
use cudarc::driver::sys as cuda;
use std::time::Instant;
use tempfile::TempDir;

/// The first GPU, with a kernel for the problem of these tensors in its store.
pub(crate) fn device_with(
    folder: &TempDir,
    image: impl Fn(&Device) -> KernelImage,
    x: impl Fn(&Device) -> Tensor,
) -> Device {
    let cache = CacheDir::At(folder.path().to_owned());
    with_kernel(Device::open(DeviceId::Cuda(0), cache.clone()).unwrap(), cache, image, x)
}

#[test]
#[ignore = "needs a GPU"]
fn a_kernel_runs_on_every_stream() {
    let folder = TempDir::new().unwrap();
    let device = device_with(&folder, |d| image(d, PTX, 0), |d| counted(d, 37));
    println!("{device}, driver for CUDA {:?}, {} SMs", device.driver_version(), device.sm_count());
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    let want = |a: f32| (0..37 * 8).map(|i| i as f32 * (a + 1.0)).collect::<Vec<f32>>();
    SCALE.launch(&device, args!(x, x, 2.0, &mut y)).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), want(2.0));
    let owned = Stream::new(&device).unwrap();
    SCALE.launch_on(&owned, args!(x, x, 3.0, &mut y)).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), want(3.0));
    // SAFETY: the handle is that of `owned`, which is alive.
    let raw = unsafe { Stream::from_raw(&device, owned.as_raw()) };
    SCALE.launch_on(&raw, args!(x, x, 4.0, &mut y)).unwrap();
    raw.synchronize().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), want(4.0));
    let stats = device.stats();
    assert_eq!((stats.launches, stats.warm_launches, stats.disk_hits, stats.compiled), (3, 2, 1, 0));
    let prepared = SCALE.prepare(&device, args!(x, x, 1.0, &mut y)).unwrap();
    let facts = prepared.facts().unwrap();
    assert_eq!((facts.threads, facts.local_bytes, facts.shared_bytes), (128, 0, 0));
    assert!(facts.registers > 0);
    prepared.launch(args!(x, x, 5.0, &mut y)).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), want(5.0));
}

#[test]
#[ignore = "needs a GPU"]
fn a_view_and_much_shared_memory() {
    let folder = TempDir::new().unwrap();
    let wide = |d: &Device| {
        let values: Vec<f32> = (0..21 * 24).map(|i| i as f32).collect();
        d.tensor_from(&values, [21, 24]).unwrap().slice(1, 4..12).unwrap()
    };
    let device = device_with(&folder, |d| image(d, PTX, 64 * 1024), wide);
    let x = wide(&device);
    let r = x.contiguous().unwrap();
    let mut y = Tensor::zeros(&device, DType::F32, [21, 8]).unwrap();
    SCALE.launch(&device, args!(x, r, 1.0, &mut y)).unwrap();
    let want: Vec<f32> = x.to_vec::<f32>().unwrap().iter().map(|x| 2.0 * x).collect();
    assert_eq!(y.to_vec::<f32>().unwrap(), want);
    assert_eq!(SCALE.prepare(&device, args!(x, r, 1.0, &mut y)).unwrap().facts().unwrap().shared_bytes, 64 * 1024);
}

#[test]
#[ignore = "needs a GPU"]
fn ptx_that_does_not_load_says_why() {
    let folder = TempDir::new().unwrap();
    let broken = PTX.replace("fma.rn.f32", "nonsense.f32");
    let device = device_with(&folder, |d| image(d, &broken, 0), |d| counted(d, 5));
    let (x, mut y) = (counted(&device, 5), counted(&device, 5));
    let config = SCALE.select(&device, args!(x, x, 2.0, &mut y)).unwrap().chosen().unwrap().clone();
    let error = SCALE.launch_with(&device, &config, args!(x, x, 2.0, &mut y)).unwrap_err().to_string();
    println!("{error}");
    assert!(error.contains("error[ATL625]: cuModuleLoadDataEx failed on cuda:0: CUDA_ERROR_INVALID_PTX"));
    assert!(error.contains("kernel `scale`") && error.contains("nonsense"));
}

#[test]
#[ignore = "needs a GPU"]
fn a_problem_without_a_kernel_names_the_missing_compiler() {
    let device = Device::open(DeviceId::Cuda(0), CacheDir::Off).unwrap();
    let (x, mut y) = (counted(&device, 5), counted(&device, 5));
    let error = SCALE.launch(&device, args!(x, x, 2.0, &mut y));
    if !atlas_runtime::HAS_COMPILER {
        assert!(error.unwrap_err().to_string().starts_with("error[ATL640]: `scale`: this build has no compiler"));
    }
    let host = x.to_device(&Device::cpu()).unwrap();
    let error = SCALE.launch(&device, args!(host, x, 2.0, &mut y)).unwrap_err();
    assert!(matches!(error, RuntimeError::Launch(LaunchError::WrongDevice { param: "x", .. })), "{error}");
    let error = Tensor::zeros(&device, DType::F64, [1 << 42]).unwrap_err();
    assert_eq!(error.code().to_string(), "ATL638");
}

#[test]
#[ignore = "needs a GPU"]
fn a_warm_launch_takes_microseconds() {
    let folder = TempDir::new().unwrap();
    let device = device_with(&folder, |d| image(d, PTX, 0), |d| counted(d, 37));
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    SCALE.launch(&device, args!(x, x, 2.0, &mut y)).unwrap();
    let prepared = SCALE.prepare(&device, args!(x, x, 1.0, &mut y)).unwrap();
    let mut best = [f64::INFINITY; 2];
    for _ in 0..50 {
        for (way, best) in best.iter_mut().enumerate() {
            device.synchronize().unwrap();
            let start = Instant::now();
            for _ in 0..100 {
                if way == 0 {
                    SCALE.launch(&device, args!(x, x, 2.0, &mut y)).unwrap();
                } else {
                    prepared.launch(args!(x, x, 2.0, &mut y)).unwrap();
                }
            }
            *best = best.min(start.elapsed().as_secs_f64() * 1e6 / 100.0);
        }
    }
    let (start, end) = (Event::new(&device).unwrap(), Event::new(&device).unwrap());
    let stream = device.default_stream();
    start.record(&stream).unwrap();
    prepared.launch(args!(x, x, 2.0, &mut y)).unwrap();
    end.record(&stream).unwrap();
    println!("host time of a launch: {:.2} us, prepared {:.2} us", best[0], best[1]);
    println!("device time between events: {:.2} us", start.elapsed_ms(&end).unwrap() * 1e3);
    assert!(best.iter().all(|&us| us < 5.0), "{best:?}");
}

/// The calling thread's current context.
fn current() -> cuda::CUcontext {
    let mut context = std::ptr::null_mut();
    // SAFETY: the driver is initialised, and writes one handle.
    assert_eq!(unsafe { cuda::cuCtxGetCurrent(&mut context) }, cuda::CUresult::CUDA_SUCCESS);
    context
}

#[test]
#[ignore = "needs a GPU"]
fn another_library_keeps_its_context() {
    let folder = TempDir::new().unwrap();
    let device = device_with(&folder, |d| image(d, PTX, 0), |d| counted(d, 37));
    let (x, mut y) = (counted(&device, 37), Tensor::zeros(&device, DType::F32, [37, 8]).unwrap());
    let launch = |y: &mut Tensor| {
        SCALE.launch(&device, args!(x, x, 2.0, &mut *y)).unwrap();
        let stream = Stream::new(&device).unwrap();
        SCALE.launch_on(&stream, args!(x, x, 3.0, &mut *y)).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap()[1], 4.0);
        drop(counted(&device, 5));
    };
    assert!(current().is_null(), "no context is left current where there was none");
    launch(&mut y);
    assert!(current().is_null(), "no context is left current where there was none");
    let mut own = std::ptr::null_mut();
    // SAFETY: a context of device 0 without parameters; it is destroyed below, and nothing uses it afterwards.
    let made = unsafe { cuda::cuCtxCreate_v4(&mut own, std::ptr::null_mut(), 0, 0) };
    assert_eq!((made, current()), (cuda::CUresult::CUDA_SUCCESS, own));
    launch(&mut y);
    let failed = SCALE.launch(&device, args!(x, x.to_device(&Device::cpu()).unwrap(), 2.0, &mut y));
    assert!(failed.is_err() && current() == own, "the other context stays, also after an error");
    // SAFETY: made above.
    assert_eq!(unsafe { cuda::cuCtxDestroy_v2(own) }, cuda::CUresult::CUDA_SUCCESS);
}
