//! Launches on the CPU: numbers, views, empty problems, plans and the oracle.

use crate::kernels::{BUMP, GEMM, SCALE, SUMS};
use atlas_dsl::{Config, DType};
use atlas_runtime::{CacheDir, ConfigSource, Device, DeviceId, Event, Launch, Stream, Tensor, args, run_f64};
use half::bf16;

fn counted(shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| (i % 13) as f32 - 6.0).collect();
    Device::cpu().tensor_from(&values, shape).unwrap()
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(&Device::cpu(), DType::F32, shape).unwrap()
}

fn matmul(a: &Tensor, b: &Tensor) -> Vec<f32> {
    let (m, k, n) = (a.shape()[0], a.shape()[1], b.shape()[1]);
    let (x, y) = (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
    let at = |i: usize| (0..k).map(|p| x[i / n * k + p] * y[p * n + i % n]).sum();
    (0..m * n).map(at).collect()
}

#[test]
fn ragged_element_wise() {
    let (x, r, mut y) = (counted(&[37, 8]), counted(&[37, 8]), zeros(&[37, 8]));
    SCALE.launch(&Device::cpu(), args!(x, r, 2.0, &mut y)).unwrap();
    let want: Vec<f32> = x.to_vec::<f32>().unwrap().iter().map(|x| 3.0 * x).collect();
    assert_eq!(y.to_vec::<f32>().unwrap(), want);
}

#[test]
fn half_types() {
    let cpu = Device::cpu();
    let x = cpu.tensor_from(&[bf16::from_f32(1.5); 16], [2, 8]).unwrap();
    let mut y = Tensor::zeros(&cpu, DType::Bf16, [2, 8]).unwrap();
    SCALE.launch(&cpu, args!(x, x, 3.0, &mut y)).unwrap();
    assert_eq!(y.to_f64_vec().unwrap(), [6.0; 16]);
}

#[test]
fn strided_views_go_in_and_out() {
    let (a, b) = (counted(&[21, 19]), counted(&[23, 21]));
    let mut wide = zeros(&[19, 40]);
    let (at, bt) = (a.transpose(0, 1).unwrap(), b.transpose(0, 1).unwrap());
    let mut c = wide.slice(1, 9..32).unwrap();
    GEMM.launch(&Device::cpu(), args!(at, bt, &mut c)).unwrap();
    assert_eq!(c.to_vec::<f32>().unwrap(), matmul(&at, &bt));
    let edge = wide.slice(1, 0..9).unwrap().to_vec::<f32>().unwrap();
    assert!(edge.iter().all(|&x| x == 0.0));
    wide.copy_from(&[0.0_f32; 760]).unwrap();
}

#[test]
fn a_repeated_input_and_two_outputs() {
    let (row, mut s, mut y) = (counted(&[1, 5]), zeros(&[9]), zeros(&[9, 5]));
    SUMS.launch(&Device::cpu(), args!(row.expand([9, 5]).unwrap(), &mut s, &mut y)).unwrap();
    assert_eq!(s.to_vec::<f32>().unwrap(), [-20.0; 9]);
    assert_eq!(y.to_vec::<f32>().unwrap(), [-12.0, -10.0, -8.0, -6.0, -4.0].repeat(9));
}

#[test]
fn outputs_may_share_a_storage() {
    let (x, all) = (counted(&[4, 8]), zeros(&[5, 8]));
    let mut s = all.slice(0, 4..5).unwrap().reshape([8]).unwrap().slice(0, 2..6).unwrap();
    let mut y = all.slice(0, 0..4).unwrap();
    SUMS.launch(&Device::cpu(), args!(x, &mut s, &mut y)).unwrap();
    let rows: Vec<f32> = x.to_vec::<f32>().unwrap().chunks(8).map(|row| row.iter().sum()).collect();
    let values = all.to_vec::<f32>().unwrap();
    assert_eq!(values[34..38], rows);
    assert_eq!((values[32], values[33], values[38]), (0.0, 0.0, 0.0));
}

#[test]
fn in_place_through_one_mutable_argument() {
    let mut x = Device::cpu().tensor_from(&[1, 2, 3, 4, 5], [5]).unwrap();
    BUMP.launch(&Device::cpu(), args!(&mut x, 10)).unwrap();
    assert_eq!(x.to_vec::<i32>().unwrap(), [11, 12, 13, 14, 15]);
}

#[test]
fn empty_problems_launch_nothing() {
    let device = Device::open(DeviceId::Cpu, CacheDir::Off).unwrap();
    let (x, mut y) = (zeros(&[0, 8]), zeros(&[0, 8]));
    SCALE.launch(&device, args!(x, x, 1.0, &mut y)).unwrap();
    let (x, mut s, mut y) = (zeros(&[0, 0]), zeros(&[0]), zeros(&[0, 0]));
    SUMS.launch(&device, args!(x, &mut s, &mut y)).unwrap();
    SUMS.launch(&device, args!(x, &mut s, &mut y)).unwrap();
    assert_eq!((device.stats().launches, device.stats().warm_launches), (3, 1));
}

#[test]
fn an_empty_contraction_is_zero() {
    let (a, b) = (zeros(&[3, 0]), zeros(&[0, 4]));
    let mut c = Device::cpu().tensor_from(&[7.0_f32; 12], [3, 4]).unwrap();
    GEMM.launch(&Device::cpu(), args!(a, b, &mut c)).unwrap();
    assert_eq!(c.to_vec::<f32>().unwrap(), [0.0; 12]);
}

#[test]
fn a_whole_dim_of_no_elements_is_named() {
    let (x, mut s, mut y) = (zeros(&[5, 0]), zeros(&[5]), zeros(&[5, 0]));
    let error = SUMS.launch(&Device::cpu(), args!(x, &mut s, &mut y)).unwrap_err().to_string();
    let want = "error[ATL629]: dim `D` of `sums` is 0, but the kernel uses it whole or as the axis of a cluster, and needs at least one element of it; \
                launch only where `D` is 1 or more";
    assert_eq!(error, want);
}

#[test]
fn a_problem_is_resolved_once() {
    let device = Device::open(DeviceId::Cpu, CacheDir::Off).unwrap();
    let (x, mut y) = (counted(&[4, 8]), zeros(&[4, 8]));
    for _ in 0..3 {
        SCALE.launch(&device, args!(x, x, 1.0, &mut y)).unwrap();
    }
    assert_eq!((device.stats().launches, device.stats().warm_launches), (3, 2));
    SCALE.launch_with(&device, &Config::default().with("BN", 64), args!(x, x, 1.0, &mut y)).unwrap();
    assert_eq!((device.stats().launches, device.stats().warm_launches), (4, 2));
}

#[test]
fn a_prepared_launch_takes_its_problem_only() {
    let device = Device::cpu();
    let (x, mut y) = (counted(&[4, 8]), zeros(&[4, 8]));
    let config = Config::default().with("BN", 64).with("warps", 8);
    let prepared = SCALE.prepare_with(&device, &config, args!(x, x, 1.0, &mut y)).unwrap();
    assert_eq!((prepared.config(), prepared.source()), (&config, ConfigSource::Given));
    prepared.launch(args!(x, x, 1.0, &mut y)).unwrap();
    prepared.launch_on(&device.default_stream(), args!(x, x, -1.0, &mut y)).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [0.0; 32]);
    let (x, mut y) = (counted(&[5, 8]), zeros(&[5, 8]));
    assert_eq!(
        prepared.launch(args!(x, x, 1.0, &mut y)).unwrap_err().to_string(),
        "error[ATL615]: these arguments of `scale` differ from the prepared ones in shape, strides, type or alignment; \
         prepare again"
    );
}

#[test]
fn a_config_is_checked() {
    let device = Device::cpu();
    let (x, mut y) = (counted(&[4, 8]), zeros(&[4, 8]));
    let wrong = Config::default().with("BM", 64);
    assert_eq!(
        SCALE.launch_with(&device, &wrong, args!(x, x, 1.0, &mut y)).unwrap_err().to_string(),
        "error[ATL616]: config key `BM` is no knob of `scale`; it has BN, stages, warps, occupancy, warp_grid, order, \
         copies, stores, products, programs, split_k, operands"
    );
    // A key that is spelled in another way, or as another language has it, is named.
    for (key, meant) in [("bn", "BN"), ("warp", "warps"), ("num_warps", "warps"), ("num_stages", "stages")] {
        let refused = SCALE.launch_with(&device, &Config::default().with(key, 4), args!(x, x, 1.0, &mut y));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("ATL616") && text.ends_with(&format!("; did you mean `{meant}`?")), "{text}");
    }
    for (key, value, why) in [
        ("warps", 0, "warps = 0 is not in 1..=32"),
        ("warps", 64, "warps = 64 is not in 1..=32"),
        ("stages", 0, "stages = 0 is not in 1..=8"),
        ("occupancy", 0, "occupancy = 0 is not at least 1"),
    ] {
        let wrong = Config::default().with(key, value);
        assert_eq!(
            SCALE.launch_with(&device, &wrong, args!(x, x, 1.0, &mut y)).unwrap_err().to_string(),
            format!("error[ATL642]: the schedule given for `scale` runs on no device: {why}")
        );
    }
    let zero = Config::default().with("BN", 0);
    let error = SCALE.launch_with(&device, &zero, args!(x, x, 1.0, &mut y)).unwrap_err();
    assert_eq!(error.code().to_string(), "ATL301");
}

#[test]
fn many_threads_launch_on_one_device() {
    let device = Device::open(DeviceId::Cpu, CacheDir::Off).unwrap();
    let x = counted(&[33, 8]);
    std::thread::scope(|scope| {
        for factor in 0..4 {
            let (device, x) = (&device, &x);
            scope.spawn(move || {
                for _ in 0..20 {
                    let mut y = zeros(&[33, 8]);
                    SCALE.launch(device, args!(x, x, f64::from(factor), &mut y)).unwrap();
                    let (x, y) = (x.to_vec::<f32>().unwrap(), y.to_vec::<f32>().unwrap());
                    assert!(x.iter().zip(y).all(|(x, y)| y == x * (factor as f32 + 1.0)));
                }
            });
        }
    });
}

#[test]
fn the_oracle_computes_in_f64() {
    let cpu = Device::cpu();
    let x = cpu.tensor_from(&[bf16::from_f32(1.0); 8], [1, 8]).unwrap();
    let mut y = Tensor::zeros(&cpu, DType::Bf16, [1, 8]).unwrap();
    let bound = SCALE.bind(&cpu, args!(x, x, 1e-3, &mut y)).unwrap();
    let outputs = run_f64(&bound).unwrap();
    assert_eq!((outputs.len(), outputs[0].name, &outputs[0].shape[..]), (1, "y", &[1, 8][..]));
    assert_eq!(outputs[0].values, [1.0 + f64::from(1e-3_f32); 8]);
    assert_eq!(y.to_f64_vec().unwrap(), [0.0; 8]);
}

#[test]
fn the_oracle_sees_views_as_they_are() {
    let (a, b) = (counted(&[21, 19]), counted(&[23, 21]));
    let (at, bt, mut c) = (a.transpose(0, 1).unwrap(), b.transpose(0, 1).unwrap(), zeros(&[19, 23]));
    let outputs = run_f64(&GEMM.bind(&Device::cpu(), args!(at, bt, &mut c)).unwrap()).unwrap();
    let want: Vec<f64> = matmul(&at, &bt).into_iter().map(f64::from).collect();
    assert_eq!(outputs[0].values, want);
}

#[test]
fn events_time_the_cpu() {
    let device = Device::cpu();
    let stream = Stream::new(&device).unwrap();
    let (start, end) = (Event::new(&device).unwrap(), Event::new(&device).unwrap());
    start.record(&stream).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2));
    end.record(&stream).unwrap();
    assert!(start.elapsed_ms(&end).unwrap() >= 2.0);
}

#[test]
fn finding_a_plan_is_cheap() {
    let device = Device::open(DeviceId::Cpu, CacheDir::Off).unwrap();
    let (x, r, mut y) = (zeros(&[0, 8]), zeros(&[0, 8]), zeros(&[0, 8]));
    let mut best = f64::INFINITY;
    for _ in 0..50 {
        let start = std::time::Instant::now();
        for _ in 0..100 {
            SCALE.launch(&device, args!(x, r, 1.0, &mut y)).unwrap();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / 100.0);
    }
    println!("{best:.3} us");
    assert!(best < 5.0, "{best} us");
}
