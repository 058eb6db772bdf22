//! What is refused, and with which number.

use super::compare::values as on_cpu;
use super::devices::{devices, gpus, to};
use atlas_candle::atlas::ops::muon::NewtonSchulz;
use atlas_candle::atlas::ops::omega::{Chunking, Loss, MemoryForm, OmegaRule, Read, Step};
use atlas_candle::{
    Attention, Gates, Memory, Tokens, log_sum_exp_into, memory_read, newton_schulz, omega, rms_norm, rotary, softmax,
    softmax_into, windowed_attention,
};
use candle_core::op::BackpropOp;
use candle_core::{DType, Device, Result, Shape, Tensor, Var};

/// Asserts that a call is refused with a message that has these parts.
#[track_caller]
fn refused<T>(result: Result<T>, parts: &[&str]) {
    let Err(error) = result else { panic!("it is not refused") };
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

#[test]
fn shapes_that_do_not_fit() {
    for device in devices() {
        let values = |seed, shape: &[usize]| to(&device, &on_cpu(seed, shape));
        let x = values(1, &[3, 8]);
        refused(rms_norm(&x, &values(2, &[7]), 1e-6), &["ATL604", "7", "8"]);
        refused(rms_norm(&x, &values(2, &[8, 1]), 1e-6), &["ATL603"]);
        refused(memory_read(&x, &x, &x, None), &["ATL603", "[G, N, D]", "[3, 8]"]);
        refused(newton_schulz(&values(2, &[8]), &NewtonSchulz::torch()), &["ATL603", "[.., M, N]", "[8]"]);
        let angles = values(3, &[3, 4]);
        refused(rotary(&values(4, &[5, 2, 8]), &angles, &angles, true), &["ATL604", "[3, 4]", "[5, 4]"]);
        refused(rotary(&values(4, &[2, 3, 7]), &angles, &angles, true), &["ATL603", "[.., N, H, 2 D]", "[2, 3, 7]"]);
        let with = Attention::default();
        refused(windowed_attention(&x, &x, &x, 4, &with), &["ATL603", "`q`", "[3, 8]"]);
        let (q, k) = (values(5, &[1, 4, 2, 8]), values(6, &[1, 4, 2, 16]));
        refused(windowed_attention(&q, &k, &q, 4, &with), &["ATL604", "8", "16"]);
        refused(windowed_attention(&q, &q, &q, usize::MAX, &with), &["ATL607", "`window`"]);
    }
}

#[test]
fn element_types_that_do_not_fit() {
    for device in devices() {
        let values = |seed, shape: &[usize]| to(&device, &on_cpu(seed, shape));
        let x = values(1, &[3, 8]);
        let bytes = Tensor::zeros((3, 8), DType::U8, &device).unwrap();
        refused(softmax(&bytes), &["ATL605", "`softmax`", "u8", "to_dtype"]);
        refused(rms_norm(&x, &values(2, &[8]).to_dtype(DType::BF16).unwrap(), 1e-6), &["ATL60", "bf16", "f32"]);
        refused(softmax(&x.to_dtype(DType::I64).unwrap()), &["ATL606", "i64"]);
    }
}

#[test]
fn layouts_that_reach_outside() {
    for device in devices() {
        // Safe code may claim more elements than a storage has.
        let of = |shape: (usize, usize)| {
            let zeros = Tensor::zeros(16, DType::F32, &device).unwrap();
            let storage = zeros.storage_and_layout().0.try_clone(zeros.layout()).unwrap();
            Tensor::from_storage(storage, Shape::from(shape), BackpropOp::none(), false)
        };
        assert!(softmax(&of((2, 8))).is_ok());
        refused(softmax(&of((2, 9))), &["ATL631", "`softmax`", "16 elements"]);
        refused(softmax(&of((1 << 40, 1 << 20))), &["ATL631"]);
    }
}

#[test]
fn tensors_that_a_result_does_not_fit() {
    for device in devices() {
        let values = |seed, shape: &[usize]| to(&device, &on_cpu(seed, shape));
        let x = values(1, &[3, 8]);
        let of = |shape: &[usize], dtype| Tensor::ones(shape, dtype, &device).unwrap();
        refused(softmax_into(&of(&[3, 9], DType::F32), &x), &["ATL604", "[3, 8]", "[3, 9]"]);
        refused(softmax_into(&of(&[3, 8], DType::F16), &x), &["ATL605", "f32", "f16"]);
        refused(log_sum_exp_into(&of(&[3, 8], DType::F32), &x), &["ATL604", "[3]", "[3, 8]"]);
        // candle itself refuses what is locked twice, and what has an element twice.
        let y = x.copy().unwrap();
        refused(softmax_into(&y, &y), &["shares storage"]);
        let wide = of(&[1, 8], DType::F32).broadcast_as((3, 8)).unwrap();
        refused(softmax_into(&wide, &x), &["repeated elements"]);
        assert_eq!(wide.to_vec2::<f32>().unwrap(), [[1.0; 8]; 3], "nothing is written");
    }
}

#[test]
fn gradients_that_do_not_exist() {
    for device in devices() {
        let values = |seed, shape: &[usize]| to(&device, &on_cpu(seed, shape));
        let angles = Var::from_tensor(&values(1, &[5, 4])).unwrap();
        let x = values(2, &[5, 3, 8]);
        refused(rotary(&x, &angles, &values(3, &[5, 4]), true), &["ATL651", "`cos`", "detach"]);
        assert!(rotary(&x, &angles.as_detached_tensor(), &values(3, &[5, 4]), true).is_ok());
        let g = Var::from_tensor(&values(4, &[4, 6])).unwrap();
        let y = newton_schulz(&g, &NewtonSchulz::torch()).unwrap();
        refused(y.sum_all().unwrap().backward(), &["ATL651", "`newton_schulz`", "detach"]);
    }
}

#[test]
fn memories_that_do_not_fit_their_rule() {
    for device in devices() {
        let values = |seed, shape: &[usize]| to(&device, &on_cpu(seed, shape));
        let x = values(1, &[1, 2, 1, 4]);
        let gate = values(2, &[1, 2, 1]);
        let gamma = values(3, &[1, 2, 1, 1]);
        let tokens = Tokens { q: &x, k: &x, v: &x, residual_q: None, residual_k: None };
        let gates = Gates { alpha: &gate, theta: &gate, eta: &gate, gamma: &gamma };
        let rule = |memory| OmegaRule {
            memory,
            step: Step::Descent,
            loss: Loss::Square,
            read: Read::After,
            chunking: Chunking::new(1, 1),
        };
        let w = || values(4, &[1, 1, 4, 4]);
        let one = Memory { weights: vec![w()], momenta: vec![w()] };
        assert!(omega(&rule(MemoryForm::Linear), tokens, gates, &one, None).is_ok());
        refused(omega(&rule(MemoryForm::Mlp), tokens, gates, &one, None), &["ATL601", "2 weights", "1 and 1"]);
        let norm = values(5, &[1, 4]);
        refused(omega(&rule(MemoryForm::Linear), tokens, gates, &one, Some(&norm)), &["ATL601", "no norm"]);
        let flat = Tokens { q: &gate, ..tokens };
        refused(omega(&rule(MemoryForm::Linear), flat, gates, &one, None), &["ATL603", "[B, N, H, D]"]);
        let tracked = Var::from_tensor(&gate).unwrap();
        let gates = Gates { alpha: &tracked, ..gates };
        refused(omega(&rule(MemoryForm::Linear), tokens, gates, &one, None), &["ATL651", "`alpha`", "detach"]);
    }
}

#[test]
fn tensors_of_several_devices() {
    let on = |device: &Device, seed, shape: &[usize]| to(device, &on_cpu(seed, shape));
    for (here, there) in gpus().into_iter().flat_map(|gpu| [(Device::Cpu, gpu.clone()), (gpu, Device::Cpu)]) {
        let (x, w) = (on(&here, 1, &[3, 8]), on(&there, 2, &[8]));
        refused(rms_norm(&x, &w, 1e-6), &["device mismatch"]);
        refused(softmax_into(&on(&there, 3, &[3, 8]), &x), &["device mismatch"]);
        // These are beside the arguments, where Atlas looks.
        let x = on(&here, 4, &[5, 3, 8]);
        let (cos, sin) = (on(&here, 5, &[5, 4]), on(&there, 6, &[5, 4]));
        refused(rotary(&x, &cos, &sin, true), &["ATL611", "`rotary`", "several devices"]);
    }
}
