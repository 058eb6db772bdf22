//! An operation of one's own, and whose memory it reads.

use super::compare::{F32, close, same_gradients, values};
use super::devices::{devices, on_host, to};
use atlas_candle::atlas::device::Stream;
use atlas_candle::atlas::kernel::{DType, Launch};
use atlas_candle::atlas::{self, args, atlas_kernel};
use atlas_candle::{Backward, Operation, apply1, apply2, run};
use candle_core::{CpuStorage, Result, Storage, Tensor};
use std::sync::{Arc, Mutex};

atlas_kernel! {
    /// y = a x^2 + b.
    kernel square_sum(a: &Tensor<f32, [N]>, b: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(a[n]);
            store(y[n], x * x + load(b[n]));
        }
    }
}

/// Notes the addresses that it reads.
#[derive(Default)]
struct SquareSum {
    /// What its gradient is multiplied by, beside what is right.
    off: f64,
    read: Arc<Mutex<Vec<u64>>>,
}

// SAFETY: it launches a kernel that writes its result.
unsafe impl Operation<2> for SquareSum {
    fn name(&self) -> &'static str {
        "square_sum"
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        Ok(vec![(DType::F32, reads[0].shape().to_vec())])
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        self.read.lock().unwrap().extend(reads.iter().map(atlas::Tensor::address));
        square_sum.launch_on(stream, args!(reads[0], reads[1], &mut writes[0]))
    }

    fn gradients(&self, of: Backward<'_, 2>) -> Result<[Option<Tensor>; 2]> {
        let by_a = ((of.args[0] * of.grad)? * (2.0 + self.off))?;
        Ok([Some(by_a), Some(of.grad.clone())])
    }
}

/// The address of an element of a tensor in f32.
fn address(x: &Tensor, element: usize) -> u64 {
    match &*x.storage_and_layout().0 {
        Storage::Cpu(CpuStorage::F32(elements)) => elements[element..].as_ptr() as u64,
        #[cfg(feature = "cuda")]
        Storage::Cuda(storage) => {
            use candle_core::cuda_backend::cudarc::driver::DevicePtr;
            let elements = storage.as_cuda_slice::<f32>().unwrap();
            assert!(element < elements.len());
            elements.device_ptr(&storage.device.cuda_stream()).0 + 4 * element as u64
        }
        _ => unreachable!("tensors are in f32 here"),
    }
}

#[test]
fn an_operation_of_ones_own_reads_candles_memory() {
    for device in devices() {
        let (a, b) = (to(&device, &values(1, &[100])), to(&device, &values(2, &[2, 300])));
        let part = b.narrow(0, 1, 1).unwrap().squeeze(0).unwrap().narrow(0, 7, 100).unwrap();
        let operation = SquareSum::default();
        let read = operation.read.clone();
        let y = apply2(operation, &a, &part).unwrap();
        close(&y, &(on_host(&a).sqr().unwrap() + on_host(&part)).unwrap(), F32);
        assert_eq!(*read.lock().unwrap(), [address(&a, 0), address(&b, 307)], "nothing is copied");
    }
}

#[test]
fn arguments_may_be_parts_of_each_other() {
    for device in devices() {
        let a = to(&device, &values(3, &[100]));
        let wanted = (on_host(&a).sqr().unwrap() + on_host(&a)).unwrap();
        close(&apply2(SquareSum::default(), &a, &a).unwrap(), &wanted, F32);
        close(&run(&SquareSum::default(), [&a, &a]).unwrap()[0], &wanted, F32);
    }
}

#[test]
fn gradients_of_ones_own_go_on() {
    let wanted = |x: &[Tensor]| (x[0].sqr()? * 3.0)?.sqr()? + &x[1];
    let found = |x: &[Tensor]| {
        let inner = apply2(SquareSum::default(), &x[0], &x[0].zeros_like()?)?;
        apply2(SquareSum::default(), &(inner * 3.0)?, &x[1])
    };
    for device in devices() {
        let inputs = [4, 5].map(|seed| to(&device, &values(seed, &[50])));
        same_gradients(&inputs, F32, found, wanted);
    }
}

#[test]
#[should_panic(expected = "apart")]
fn a_perturbed_gradient_is_seen() {
    let off = |x: &[Tensor]| apply2(SquareSum { off: 1e-3, ..SquareSum::default() }, &x[0], &x[1]);
    same_gradients(&[4, 5].map(|seed| values(seed, &[50])), F32, off, |x| x[0].sqr()? + &x[1]);
}

atlas_kernel! {
    /// To 8 bits and to the numbers of those.
    kernel narrowed(x: &Tensor<f32, [N]>, y: &mut Tensor<f8e4m3, [N]>)
    tune { BN: [64], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]).cast::<f8e4m3>());
        }
    }

    kernel widened(x: &Tensor<f8e4m3, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]).cast::<f32>());
        }
    }
}

/// From or to floats of 8 bits.
struct Converted(DType);

// SAFETY: it launches a kernel that writes its result.
unsafe impl Operation<1> for Converted {
    fn name(&self) -> &'static str {
        "converted"
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        Ok(vec![(self.0, reads[0].shape().to_vec())])
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        let kernel = if self.0 == DType::F32 { &widened } else { &narrowed };
        kernel.launch_on(stream, args!(reads[0], &mut writes[0]))
    }

    fn gradients(&self, _: Backward<'_, 1>) -> Result<[Option<Tensor>; 1]> {
        Ok([None])
    }
}

#[test]
fn floats_of_8_bits_are_candles() {
    let device = candle_core::Device::Cpu;
    let x = (values(3, &[200]) * 100.0).unwrap();
    let theirs = x.to_dtype(candle_core::DType::F8E4M3).unwrap();
    let ours = apply1(Converted(DType::F8E4M3), &to(&device, &x)).unwrap();
    let numbers = |x: &Tensor| x.to_dtype(candle_core::DType::F32).unwrap().to_vec1::<f32>().unwrap();
    assert_eq!((ours.dtype(), numbers(&ours)), (candle_core::DType::F8E4M3, numbers(&theirs)));
    assert_eq!(numbers(&apply1(Converted(DType::F32), &theirs).unwrap()), numbers(&theirs));
}
