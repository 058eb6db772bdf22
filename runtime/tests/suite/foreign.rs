//! Tensors in memory that the runtime did not allocate.

use crate::kernels::{GEMM, SCALE};
use atlas_dsl::DType;
use atlas_runtime::{Device, Launch, Result, Tensor, args};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The address of the first element, for memory that launches may write.
fn address<T>(values: &mut [T]) -> u64 {
    values.as_mut_ptr().expose_provenance() as u64
}

/// A tensor in a vector that it does not own.
///
/// # Safety
/// The vector outlives the tensor, and is not touched between.
unsafe fn of(values: &mut [f32], shape: [usize; 2], strides: [i64; 2]) -> Tensor {
    // SAFETY: the caller's promise.
    unsafe { Tensor::from_raw_parts(&Device::cpu(), DType::F32, address(values), shape, strides) }.unwrap()
}

fn message(made: Result<Tensor>) -> String {
    made.map_or_else(|e| e.to_string(), |t| format!("no error: {t:?}"))
}

#[test]
fn kernels_read_and_write_vectors_of_the_caller() {
    let mut x: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let mut y = vec![0.0_f32; 12];
    {
        // SAFETY: the vectors outlive this block, in which only the launch touches them.
        let (x, mut y) = unsafe { (of(&mut x, [3, 4], [4, 1]), of(&mut y, [3, 4], [4, 1])) };
        SCALE.launch(&Device::cpu(), args!(x, x, 2.0, &mut y)).unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap()[5], 5.0);
        // Views, clones and copies are those of any tensor.
        let column = y.clone().slice(1, 1..2).unwrap();
        assert_eq!(column.to_vec::<f32>().unwrap(), [3.0, 15.0, 27.0]);
    }
    let want: Vec<f32> = (0..12).map(|i| 3.0 * i as f32).collect();
    assert_eq!(y, want);
}

#[test]
fn strides_are_those_of_the_caller() {
    let mut x: Vec<f32> = (0..12).map(|i| i as f32).collect();
    // SAFETY: the vector outlives the tensor.
    let transposed = unsafe { of(&mut x, [4, 3], [1, 4]) };
    assert_eq!(transposed.to_vec::<f32>().unwrap(), [0., 4., 8., 1., 5., 9., 2., 6., 10., 3., 7., 11.]);
    // An axis of one element may have any stride, and so may all axes of a tensor without elements.
    // SAFETY: as above.
    let row = unsafe { of(&mut x, [1, 4], [-7, 2]) };
    assert_eq!(row.to_vec::<f32>().unwrap(), [0.0, 2.0, 4.0, 6.0]);
    // SAFETY: no element is accessed.
    let none = unsafe { Tensor::from_raw_parts(&Device::cpu(), DType::F32, 0, [0, 4], [-1, -1]) }.unwrap();
    assert!(none.to_vec::<f32>().unwrap().is_empty());
}

/// Two tensors with the same memory have locks of their own, and slices of it must not meet.
#[test]
fn tensors_of_one_memory_are_arguments_of_one_launch() {
    let mut both: Vec<f32> = (0..24).map(|i| i as f32).collect();
    {
        // The even columns are read and the odd ones written: disjoint elements in the same bytes.
        let base = address(&mut both);
        let cpu = Device::cpu();
        // SAFETY: the vector outlives the tensors, and nothing else touches it.
        let at = |first: u64| unsafe { Tensor::from_raw_parts(&cpu, DType::F32, base + 4 * first, [3, 4], [8, 2]) };
        let (x, mut y) = (at(0).unwrap(), at(1).unwrap());
        SCALE.launch(&cpu, args!(x, x, 1.0, &mut y)).unwrap();
        // The same address twice, of different lengths, read alone.
        // SAFETY: as above.
        let short = unsafe { Tensor::from_raw_parts(&cpu, DType::F32, base, [1, 4], [8, 2]) }.unwrap();
        let rows = short.expand([3, 4]).unwrap();
        let mut z = Tensor::zeros(&cpu, DType::F32, [3, 4]).unwrap();
        SCALE.launch(&cpu, args!(x, rows, 1.0, &mut z)).unwrap();
        assert_eq!(z.to_vec::<f32>().unwrap()[4..8], [8.0, 12.0, 16.0, 20.0]);
        let mut over = at(0).unwrap();
        let refused = SCALE.launch(&cpu, args!(x, x, 1.0, &mut over)).unwrap_err().to_string();
        assert!(refused.starts_with("error[ATL609]: "), "{refused}");
    }
    let want: Vec<f32> = (0..24).map(|i| if i % 2 == 0 { i as f32 } else { 2.0 * (i - 1) as f32 }).collect();
    assert_eq!(both, want);
}

/// Two columns of a matrix with very long rows are copied by themselves, and not what lies between them.
#[test]
fn what_lies_between_the_elements_of_a_view_is_not_copied() {
    const ROW: usize = 1 << 26;
    // Pages that nobody touches take no memory.
    let Ok(layout) = std::alloc::Layout::from_size_align(2 * ROW * 4, 16) else { return };
    // SAFETY: the layout is not empty.
    let base = unsafe { std::alloc::alloc_zeroed(layout) };
    assert!(!base.is_null());
    let address = base.expose_provenance() as u64;
    let start = std::time::Instant::now();
    let cpu = Device::cpu();
    // SAFETY: the memory outlives the tensors.
    let at = |first: u64| unsafe {
        Tensor::from_raw_parts(&cpu, DType::F32, address + 4 * first, [2, 8], [ROW as i64, 1]).unwrap()
    };
    let (x, mut y) = (at(0), at(8));
    x.slice(0, 1..2).unwrap().copy_from(&[3.0_f32; 8]).unwrap();
    SCALE.launch(&cpu, args!(x, x, 1.0, &mut y)).unwrap();
    assert_eq!(y.slice(0, 1..2).unwrap().to_vec::<f32>().unwrap(), [6.0; 8]);
    assert!(start.elapsed().as_secs_f64() < 2.0, "{:?}", start.elapsed());
    drop((x, y));
    // SAFETY: allocated above, with this layout.
    unsafe { std::alloc::dealloc(base, layout) };
}

struct Counted(Vec<f32>, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_owner_goes_with_the_last_view_and_never_before() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let owned = |strides: [i64; 2]| {
        let mut owner = Counted(vec![1.0; 8], dropped.clone());
        let at = address(&mut owner.0);
        // SAFETY: the owner keeps the vector, whose elements do not move with it.
        unsafe { Tensor::from_foreign(&Device::cpu(), DType::F32, at, [2, 4], strides, owner) }
    };
    let x = owned([4, 1]).unwrap();
    let view = x.slice(0, 1..2).unwrap();
    drop(x);
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    assert_eq!(view.to_vec::<f32>().unwrap(), [1.0; 4]);
    drop(view);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    // A refused tensor gives its owner back to nobody.
    assert!(owned([-4, 1]).is_err());
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
}

#[test]
fn what_makes_no_tensor_is_refused() {
    let mut x = [0.0_f32; 16];
    let at = address(&mut x);
    let made = |dtype, address, shape: &[usize], strides: &[i64]| {
        // SAFETY: nothing is accessed.
        message(unsafe { Tensor::from_raw_parts(&Device::cpu(), dtype, address, shape, strides) })
    };
    let starts = |made: String, with: &str| assert!(made.starts_with(with), "{made}");
    starts(
        made(DType::F32, at, &[4, 4], &[4]),
        "error[ATL653]: no tensor of another library has sizes [4, 4] and strides [4]",
    );
    starts(made(DType::F32, at, &[4, 4], &[-4, 1]), "error[ATL653]: ");
    starts(made(DType::F32, 0, &[4], &[1]), "error[ATL653]: ");
    starts(made(DType::F32, at + 2, &[4], &[1]), "error[ATL654]: an element of type f32 cannot begin at address ");
    starts(made(DType::Bf16, at + 2, &[4], &[1]), "no error: ");
    starts(made(DType::Bool, at, &[4], &[1]), "error[ATL639]: ");
    starts(made(DType::F32, at, &[1 << 40, 1 << 40], &[1, 1]), "error[ATL637]: ");
    starts(made(DType::F32, at, &[2, 2], &[i64::MAX, 1]), "error[ATL637]: ");
    starts(made(DType::F32, at, &[3, 3], &[i64::MAX / 2, i64::MAX / 2]), "error[ATL637]: ");
    starts(made(DType::F32, u64::MAX - 3, &[2], &[1]), "error[ATL637]: ");
}

#[test]
fn many_axes_are_no_special_case() {
    let mut x: Vec<f32> = (0..256).map(|i| i as f32).collect();
    let strides: Vec<i64> = (0..8).rev().map(|i| 1 << i).collect();
    // SAFETY: the vector outlives the tensor.
    let t = unsafe { Tensor::from_raw_parts(&Device::cpu(), DType::F32, address(&mut x), [2; 8], &strides) }.unwrap();
    assert!(t.is_contiguous());
    assert_eq!(t.transpose(0, 7).unwrap().to_vec::<f32>().unwrap()[1], 128.0);
}

#[test]
fn a_product_of_foreign_matrices() {
    let mut a: Vec<f32> = (0..21 * 19).map(|i| (i % 7) as f32).collect();
    let mut b: Vec<f32> = (0..19 * 23).map(|i| (i % 5) as f32).collect();
    let want: Vec<f32> = (0..21 * 23).map(|i| (0..19).map(|k| a[i / 23 * 19 + k] * b[k * 23 + i % 23]).sum()).collect();
    let mut c = Tensor::zeros(&Device::cpu(), DType::F32, [21, 23]).unwrap();
    // SAFETY: the vectors outlive the tensors.
    let (a, b) = unsafe { (of(&mut a, [21, 19], [19, 1]), of(&mut b, [19, 23], [23, 1])) };
    GEMM.launch(&Device::cpu(), args!(a, b, &mut c)).unwrap();
    assert_eq!(c.to_vec::<f32>().unwrap(), want);
}

/// A simulated GPU has memory of its own, in which a tensor can be made again from its address.
#[cfg(feature = "sim")]
#[test]
fn the_reach_is_checked_on_a_gpu() {
    let device = Device::sim("sm_80").unwrap();
    let x = device.tensor_from(&[1.0_f32, 2.0, 3.0, 4.0], [4]).unwrap();
    let made = |address, n: usize| {
        // SAFETY: `x` stays until the end of the test, and nothing writes it.
        unsafe { Tensor::from_foreign(&device, DType::F32, address, [n], [1], x.clone()) }
    };
    assert_eq!(made(x.address() + 4, 3).unwrap().to_vec::<f32>().unwrap(), [2.0, 3.0, 4.0]);
    let beyond = message(made(x.address() + 4, 4));
    assert!(beyond.starts_with("error[ATL655]: 16 bytes at "), "{beyond}");
    assert!(beyond.contains("are not memory of sim:sm_80: the allocation ends after 12 bytes"), "{beyond}");
    let mut host = [0.0_f32; 4];
    let of_host = message(made(address(&mut host), 4));
    assert!(of_host.contains("it is not memory of a GPU; copy the tensor to sim:sm_80"), "{of_host}");
}

/// What the driver says of addresses: allocations of the pool, which are those of tensors, and of no GPU.
#[test]
#[ignore = "needs a GPU"]
fn the_driver_knows_the_reach() {
    let device = Device::cuda(0).unwrap();
    let x = device.tensor_from(&(0..4096).map(|i| i as f32).collect::<Vec<_>>(), [4096]).unwrap();
    let made = |address, n: usize| {
        // SAFETY: `x` stays until the end of the test, and nothing writes it.
        unsafe { Tensor::from_foreign(&device, DType::F32, address, [n], [1], x.clone()) }
    };
    assert_eq!(made(x.address() + 4, 3).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(made(x.address(), 4096).unwrap().to_vec::<f32>().unwrap()[4095], 4095.0);
    let beyond = message(made(x.address() + 4, 1 << 38));
    assert!(beyond.starts_with("error[ATL655]: ") && beyond.contains("the allocation ends after"), "{beyond}");
    let mut host = [0.0_f32; 4];
    let of_host = message(made(address(&mut host), 4));
    assert!(of_host.contains("it is not memory of a GPU; copy the tensor to cuda:0"), "{of_host}");
    // The owner may be the only one left.
    let (at, y) = (x.address(), Tensor::zeros(&device, DType::F32, [4096]).unwrap());
    // SAFETY: each tensor keeps the memory.
    let of =
        |t: Tensor| unsafe { Tensor::from_foreign(&device, DType::F32, t.address(), [64, 64], [64, 1], t) }.unwrap();
    let (x, y) = (of(x), of(y));
    assert_eq!(x.address(), at);
    let mut rows = y.slice(0, 1..3).unwrap();
    rows.copy_from(&x.slice(0, 62..64).unwrap().to_vec::<f32>().unwrap()).unwrap();
    drop((x, rows));
    let found = y.to_vec::<f32>().unwrap();
    assert_eq!([found[63], found[64], found[191], found[192]], [0.0, 3968.0, 4095.0, 0.0]);
}
