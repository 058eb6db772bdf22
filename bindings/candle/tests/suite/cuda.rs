//! What a GPU alone has: streams, events, graphs, freed memory that is used again, and problems of a size for its own instructions.
//!
//! Where tests do not run on a GPU, these do nothing.

use super::compare::{F32, close, gradients, same_gradients, values};
use super::composed;
use super::devices::{alone, gpus, on_default_stream, on_host, on_own_stream, to};
use atlas_candle::atlas::ops::muon::NewtonSchulz;
use atlas_candle::{
    Attention, memory_read, newton_schulz, rms_norm, rotary, softmax, softmax_into, windowed_attention,
};
use candle_core::cuda_backend::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, CudaStream};
use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, CudaStorage, DType, Device, InplaceOp1, Layout, Result, Shape, Storage, Tensor, Var};
use std::sync::Arc;

/// The bound of bf16.
const BF16: f64 = 1.6e-2;

/// The stream of a GPU.
fn stream(gpu: &Device) -> Arc<CudaStream> {
    gpu.as_cuda_device().unwrap().cuda_stream()
}

/// A tensor in memory of a GPU.
fn tensor(gpu: &Device, memory: CudaSlice<f32>, shape: impl Into<Shape>) -> Tensor {
    let storage = CudaStorage::wrap_cuda_slice(memory, gpu.as_cuda_device().unwrap().clone());
    Tensor::from_storage(Storage::Cuda(storage), shape, BackpropOp::none(), false)
}

/// Queues work of tens of milliseconds on a stream, and waits for none of it.
fn keep_busy(on: &Arc<CudaStream>) {
    let from = on.alloc_zeros::<f32>(1 << 26).unwrap();
    let mut to = on.alloc_zeros::<f32>(1 << 26).unwrap();
    for _ in 0..160 {
        on.memcpy_dtod(&from, &mut to).unwrap();
    }
    // Both are freed in the order of the stream.
}

/// Writes a tensor, on a stream that candle does not know.
struct Overwrite(Arc<CudaStream>, Vec<f32>);

impl InplaceOp1 for Overwrite {
    fn name(&self) -> &'static str {
        "overwrite"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> Result<()> {
        unreachable!("it is called on a GPU")
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, _: &Layout) -> Result<()> {
        self.0.memcpy_htod(&self.1, storage.as_cuda_slice_mut::<f32>()?).map_err(candle_core::Error::wrap)
    }
}

fn numbers(x: &Tensor) -> Vec<f32> {
    x.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn work_of_candle_and_of_atlas_runs_in_turns() {
    let x = values(1, &[64, 512]);
    let w = values(2, &[512]);
    let matrix = (values(3, &[512, 512]) * 0.05).unwrap();
    let run = |x: &Tensor, w: &Tensor, matrix: &Tensor, norm: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>| {
        let mut x = x.clone();
        for _ in 0..6 {
            x = (norm(&x, w)? + x.matmul(matrix)?.relu()?)?;
        }
        Ok::<_, candle_core::Error>(x)
    };
    let wanted = run(&on_host(&x), &on_host(&w), &on_host(&matrix), &|x, w| composed::rms_norm(x, w, 1e-6)).unwrap();
    for gpu in gpus() {
        let (x, w, matrix) = (to(&gpu, &x), to(&gpu, &w), to(&gpu, &matrix));
        // The first turn compiles. In the others, all of it is queued before the first kernel has run.
        for turn in 0..3 {
            if turn > 0 {
                keep_busy(&stream(&gpu));
            }
            close(&run(&x, &w, &matrix, &|x, w| rms_norm(x, w, 1e-6)).unwrap(), &wanted, 10.0 * F32);
        }
    }
}

#[test]
fn a_write_on_another_stream_is_waited_for() {
    let numbers = numbers(&values(4, &[16, 64]));
    let wanted = composed::softmax(&on_host(&values(4, &[16, 64]))).unwrap();
    for gpu in gpus() {
        let own = stream(&gpu);
        let other = own.fork().unwrap();
        // It compiles before anything is timed.
        softmax(&tensor(&gpu, own.alloc_zeros::<f32>(1024).unwrap(), (16, 64))).unwrap();
        gpu.synchronize().unwrap();
        keep_busy(&other);
        let x = tensor(&gpu, other.clone_htod(&numbers).unwrap(), (16, 64));
        let y = softmax(&x).unwrap();
        close(&y, &wanted, F32);
        gpu.synchronize().unwrap();
        other.synchronize().unwrap();
    }
}

#[test]
fn a_write_on_another_stream_waits_for_what_reads() {
    let x = values(5, &[16, 64]);
    let wanted = composed::softmax(&on_host(&x)).unwrap();
    for gpu in gpus() {
        let own = stream(&gpu);
        let other = own.fork().unwrap();
        let on = to(&gpu, &x);
        close(&softmax(&on).unwrap(), &wanted, F32);
        keep_busy(&own);
        let y = softmax(&on).unwrap();
        on.inplace_op1(&Overwrite(other.clone(), vec![0.0; 1024])).unwrap();
        close(&y, &wanted, F32);
        other.synchronize().unwrap();
        assert!(numbers(&on).iter().all(|&x| x == 0.0));
    }
}

#[test]
fn devices_of_one_gpu_are_ordered() {
    if gpus().is_empty() {
        return;
    }
    let (x, w) = (values(6, &[64, 128]), values(7, &[128]));
    let wanted = composed::rms_norm(&on_host(&x), &on_host(&w), 1e-6).unwrap();
    let (shared, own) = (on_default_stream, on_own_stream);
    for [one, other] in [[shared(), shared()], [shared(), own()], [own(), shared()], [own(), own()]] {
        let of = |x: &Tensor, w: &Tensor| rms_norm(x, w, 1e-6).unwrap();
        close(&of(&to(&one, &x), &to(&other, &w)), &wanted, F32);
        // The weight is there only behind much work on its stream.
        let there = to(&one, &x);
        keep_busy(&stream(&other));
        let late = to(&other, &w);
        let y = of(&there, &late);
        close(&y, &wanted, F32);
        // It is overwritten only behind the work that reads it.
        keep_busy(&stream(&one));
        let y = of(&there, &late);
        late.inplace_op1(&Overwrite(stream(&other), vec![0.0; 128])).unwrap();
        close(&y, &wanted, F32);
        // So is a result that is there.
        let into = Tensor::zeros((64, 128), DType::F32, &other).unwrap();
        keep_busy(&stream(&one));
        softmax_into(&into, &there).unwrap();
        close(&(&into * 1.0).unwrap(), &composed::softmax(&on_host(&x)).unwrap(), F32);
        // Tensors beside the arguments.
        let angles = values(8, &[64, 32]);
        let (cos, sin) = (angles.cos().unwrap(), angles.sin().unwrap());
        let heads = there.reshape((64, 2, 64)).unwrap();
        let y = rotary(&heads, &to(&one, &cos), &to(&other, &sin), false).unwrap();
        let turned = composed::rotary(&on_host(&heads), &on_host(&cos), &on_host(&sin), false).unwrap();
        close(&y, &turned, F32);
        // Gradients, whose kernels read them all once more.
        let qkv = [1, 2, 3].map(|seed| values(seed, &[1, 16, 2, 8]));
        let on = [(&one, &qkv[0]), (&other, &qkv[1]), (&other, &qkv[2])].map(|(gpu, x)| to(gpu, x));
        let found = |x: &[Tensor]| Ok(windowed_attention(&x[0], &x[1], &x[2], 4, &Attention::default())?.0);
        let scale = 1.0 / 8.0_f64.sqrt();
        same_gradients(&on, F32, found, |x| {
            Ok(composed::windowed_attention([&x[0], &x[1], &x[2]], None, None, 4, scale)?.0)
        });
    }
}

#[test]
fn threads_have_streams_of_their_own() {
    if gpus().is_empty() {
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                for gpu in gpus() {
                    for turn in 0..20 {
                        let x = values(100 * thread + turn, &[8, 96]);
                        let y = softmax(&to(&gpu, &x)).unwrap();
                        close(&y, &composed::softmax(&on_host(&x)).unwrap(), F32);
                    }
                }
            });
        }
    });
}

#[test]
fn freed_memory_is_used_again() {
    let [q, k, v] = [1, 2, 3].map(|seed| values(seed, &[1, 4096, 8, 64]));
    let g = values(4, &[4, 96, 128]);
    for gpu in gpus() {
        let inputs = [&q, &k, &v].map(|x| to(&gpu, x));
        let g = to(&gpu, &g);
        let weights = to(&gpu, &values(99, &[1, 4096, 8, 64]));
        let turn = || {
            let vars = inputs.each_ref().map(|x| Var::from_tensor(x).unwrap());
            let (y, _) = windowed_attention(&vars[0], &vars[1], &vars[2], 64, &Attention::default()).unwrap();
            let slopes = (&y * &weights).unwrap().sum_all().unwrap().backward().unwrap();
            let mut all: Vec<Tensor> = vars.iter().map(|var| slopes.get(var).unwrap().clone()).collect();
            // Tensors of other sizes lie between.
            let part = inputs[0].narrow(1, 3, 17).unwrap();
            all.extend([y, softmax(&part).unwrap(), newton_schulz(&g, &NewtonSchulz::torch()).unwrap()]);
            all
        };
        let first: Vec<Tensor> = turn().iter().map(on_host).collect();
        let context = stream(&gpu).context().clone();
        let free = context.mem_get_info().unwrap().0;
        // More than 12 GiB in all.
        for round in 1..=100 {
            let now = turn();
            if round % 50 == 0 {
                for (now, first) in now.iter().zip(&first) {
                    close(now, first, F32);
                }
            }
        }
        // Other tests use memory at the same time, if less.
        let lost = free.saturating_sub(context.mem_get_info().unwrap().0);
        assert!(lost < 8 << 30, "{lost} bytes are gone");
    }
}

#[test]
fn offsets_of_any_alignment() {
    let x = values(1, &[40, 300]);
    for gpu in gpus() {
        for dtype in [DType::F32, DType::BF16] {
            let bound = if dtype == DType::F32 { F32 } else { BF16 };
            let rounded = x.to_dtype(dtype).unwrap();
            let on = to(&gpu, &rounded);
            for start in 0..9 {
                for (rows, width) in [(start, 256), (start + 3, 33)] {
                    let part = |x: &Tensor| x.narrow(0, rows, 17).unwrap().narrow(1, start, width).unwrap();
                    close(&softmax(&part(&on)).unwrap(), &composed::softmax(&part(&on_host(&rounded))).unwrap(), bound);
                    // As columns.
                    let turned = |x: &Tensor| part(x).t().unwrap();
                    let wanted = composed::softmax(&turned(&on_host(&rounded))).unwrap();
                    close(&softmax(&turned(&on)).unwrap(), &wanted, bound);
                }
            }
        }
    }
}

/// Compares results and gradients of large tensors in bf16 and in f32.
fn check_large(
    inputs: &[Tensor],
    found: impl Fn(&[Tensor]) -> Result<Tensor>,
    wanted: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    if gpus().is_empty() {
        return;
    }
    for (dtype, bound) in [(DType::F32, 3.0 * F32), (DType::BF16, BF16)] {
        let rounded: Vec<Tensor> = inputs.iter().map(|x| x.to_dtype(dtype).unwrap()).collect();
        let long: Vec<Tensor> = rounded.iter().map(on_host).collect();
        let (expected, slopes) = (wanted(&long).unwrap(), gradients(&long, dtype, &wanted));
        for gpu in gpus() {
            let inputs: Vec<Tensor> = rounded.iter().map(|x| to(&gpu, x)).collect();
            close(&found(&inputs).unwrap(), &expected, bound);
            for (found, wanted) in gradients(&inputs, dtype, &found).iter().zip(&slopes) {
                close(found, wanted, bound);
            }
        }
    }
}

#[test]
fn large_norms_and_softmaxes() {
    let (x, w) = (values(1, &[64, 4096]), values(2, &[4096]));
    check_large(&[x, w], |x| rms_norm(&x[0], &x[1], 1e-6), |x| composed::rms_norm(&x[0], &x[1], 1e-6));
    let x = (values(3, &[8, 32000]) * 4.0).unwrap();
    check_large(&[x], |x| softmax(&x[0]), |x| composed::softmax(&x[0]));
}

#[test]
fn large_attention() {
    let of = |seed, heads| values(seed, &[2, 256, heads, 64]);
    let found = |x: &[Tensor]| Ok(windowed_attention(&x[0], &x[1], &x[2], 100, &Attention::default())?.0);
    let wanted = |x: &[Tensor]| Ok(composed::windowed_attention([&x[0], &x[1], &x[2]], None, None, 100, 0.125)?.0);
    check_large(&[of(1, 4), of(2, 2), of(3, 2)], found, wanted);
}

#[test]
fn large_reads_of_memories() {
    let w2 = (values(2, &[4, 256, 64]) * 0.2).unwrap();
    let w1 = (values(3, &[4, 64, 256]) * 0.2).unwrap();
    let found = |x: &[Tensor]| memory_read(&x[0], &x[1], &x[2], None);
    check_large(&[values(1, &[4, 256, 64]), w2, w1], found, |x| composed::memory_read(&x[0], &x[1], &x[2]));
}

#[test]
fn large_iterations_of_newton_and_schulz() {
    let (g, iteration) = (values(1, &[3, 64, 256]), NewtonSchulz::torch());
    for gpu in gpus() {
        let wanted = composed::newton_schulz(&on_host(&g), &iteration.steps, 1e-7).unwrap();
        close(&newton_schulz(&to(&gpu, &g), &iteration).unwrap(), &wanted, 10.0 * F32);
        let half = g.to_dtype(DType::BF16).unwrap();
        // Each step multiplies what small singular values are off by.
        close(&newton_schulz(&to(&gpu, &half), &iteration).unwrap(), &wanted, 4.0 * BF16);
    }
}

#[test]
fn a_graph_of_the_driver_holds_launches() {
    if gpus().is_empty() {
        return;
    }
    // Devices of its own, because what is set here holds for their tensors from now on.
    for gpu in [on_default_stream(), on_own_stream()] {
        let stream = stream(&gpu);
        // SAFETY: all work of this device is on one stream. A stream that records waits for no event from before.
        unsafe { gpu.as_cuda_device().unwrap().disable_event_tracking() };
        let (one, two) = (values(1, &[16, 64]), values(2, &[16, 64]));
        let (x, y) = (to(&gpu, &one), Tensor::zeros((16, 64), DType::F32, &gpu).unwrap());
        // It compiles.
        softmax_into(&y, &x).unwrap();
        gpu.synchronize().unwrap();
        let alone = alone();
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        softmax_into(&y, &x).unwrap();
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags).unwrap().expect("a graph with a launch");
        drop(alone);
        x.inplace_op1(&Overwrite(stream.clone(), numbers(&two))).unwrap();
        close(&y, &composed::softmax(&on_host(&one)).unwrap(), F32);
        graph.launch().unwrap();
        close(&y, &composed::softmax(&on_host(&two)).unwrap(), F32);
    }
}

#[test]
fn memory_of_a_gpu_that_is_none_of_the_storage() {
    for gpu in gpus() {
        let zeros = gpu.as_cuda_device().unwrap().alloc_zeros::<f32>(16).unwrap();
        let x = tensor(&gpu, zeros, (2, 9));
        let text = softmax(&x).unwrap_err().to_string();
        assert!(text.contains("ATL631"), "{text}");
        assert_eq!(x.storage_and_layout().0.dtype(), DType::F32);
    }
}
