//! Results and gradients, of tensors and of views, against candle's operations in f64 on the CPU.

use super::compare::{F32, close, gradients, values};
use super::composed::{self, HALVES};
use super::devices::{beside, devices, none, on_host, to};
use atlas_candle::atlas::ops::muon::NewtonSchulz;
use atlas_candle::{
    Attention, log_sum_exp, log_sum_exp_into, memory_read, newton_schulz, rms_norm, rms_norm_into, rotary, softmax,
    softmax_into, windowed_attention,
};
use candle_core::{DType, Result, Tensor};

/// How many views of a tensor there are.
const VIEWS: usize = 4;

/// The same values in another view: as they are, as part of a larger tensor, and with two axes exchanged in memory.
fn view(x: &Tensor, number: usize) -> Result<Tensor> {
    let rank = x.rank();
    let exchanged = |one: usize, other: usize| x.transpose(one, other)?.contiguous()?.transpose(one, other);
    match number % VIEWS {
        1 => {
            let size = x.dim(rank - 1)?;
            Tensor::cat(&[x, x, x], rank - 1)?.narrow(rank - 1, size, size)
        }
        2 if rank > 1 => exchanged(0, 1),
        3 if rank > 1 => exchanged(0, rank - 1),
        _ => Ok(x.clone()),
    }
}

/// Compares a function of tensors and its gradients with one of candle's, on every device: of every view of the first tensor with
/// every view of the others.
#[track_caller]
fn check(
    inputs: &[&Tensor],
    found: impl Fn(&[Tensor]) -> Result<Tensor>,
    wanted: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let long: Vec<Tensor> = inputs.iter().map(|x| on_host(x)).collect();
    let (expected, slopes) = (wanted(&long).unwrap(), gradients(&long, DType::F32, wanted));
    for device in devices() {
        let inputs: Vec<Tensor> = inputs.iter().map(|x| to(&device, x)).collect();
        for turn in 0..VIEWS {
            let of_views = |x: &[Tensor]| {
                let views = x.iter().enumerate().map(|(i, x)| view(x, turn + i)).collect::<Result<Vec<_>>>()?;
                found(&views)
            };
            close(&of_views(&inputs).unwrap(), &expected, F32);
            for (found, wanted) in gradients(&inputs, DType::F32, of_views).iter().zip(&slopes) {
                close(found, wanted, F32);
            }
        }
    }
}

/// Compares a function of rounded tensors and its gradients with candle's.
#[track_caller]
fn check_halves(
    inputs: &[&Tensor],
    found: impl Fn(&[Tensor]) -> Result<Tensor>,
    wanted: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    for (dtype, bound) in HALVES {
        let rounded: Vec<Tensor> = inputs.iter().map(|x| x.to_dtype(dtype).unwrap()).collect();
        let long: Vec<Tensor> = rounded.iter().map(on_host).collect();
        let (expected, slopes) = (wanted(&long).unwrap(), gradients(&long, dtype, &wanted));
        for device in devices() {
            let inputs: Vec<Tensor> = rounded.iter().map(|x| to(&device, x)).collect();
            let y = found(&inputs).unwrap();
            assert_eq!(y.dtype(), dtype);
            close(&y, &expected, bound);
            for (found, wanted) in gradients(&inputs, dtype, &found).iter().zip(&slopes) {
                assert_eq!(found.dtype(), dtype);
                close(found, wanted, bound);
            }
        }
    }
}

#[test]
fn rms_norms() {
    let (x, w) = (values(1, &[3, 5, 24]), values(2, &[24]));
    let of = |x: &[Tensor]| rms_norm(&x[0], &x[1], 1e-6);
    let wanted = |x: &[Tensor]| composed::rms_norm(&x[0], &x[1], 1e-6);
    check(&[&x, &w], of, wanted);
    check_halves(&[&x, &w], of, wanted);
    check(&[&values(3, &[24]), &w], of, wanted);
}

#[test]
fn softmaxes() {
    let x = (values(3, &[2, 7, 33]) * 4.0).unwrap();
    check(&[&x], |x| softmax(&x[0]), |x| composed::softmax(&x[0]));
    check_halves(&[&x], |x| softmax(&x[0]), |x| composed::softmax(&x[0]));
    check(&[&x], |x| log_sum_exp(&x[0]), |x| composed::log_sum_exp(&x[0]));
    check_halves(&[&x], |x| log_sum_exp(&x[0]), |x| composed::log_sum_exp(&x[0]));
}

#[test]
fn rotaries() {
    let x = values(4, &[2, 5, 3, 8]);
    let angles = (values(5, &[5, 4]) * 3.0).unwrap();
    let (cos, sin) = (angles.cos().unwrap(), angles.sin().unwrap());
    for interleaved in [false, true] {
        let of = |x: &[Tensor]| rotary(&x[0], &beside(&cos, &x[0]), &beside(&sin, &x[0]), interleaved);
        let wanted = |x: &[Tensor]| composed::rotary(&x[0], &beside(&cos, &x[0]), &beside(&sin, &x[0]), interleaved);
        check(&[&x], of, wanted);
        check_halves(&[&x], of, wanted);
    }
}

#[test]
fn windows_of_attention() {
    let (q, k, v) = (values(6, &[2, 6, 4, 8]), values(7, &[2, 9, 2, 8]), values(8, &[2, 9, 2, 8]));
    let with = Attention::default();
    let scale = 1.0 / 8.0_f64.sqrt();
    let of = |x: &[Tensor]| Ok(windowed_attention(&x[0], &x[1], &x[2], 4, &with)?.0);
    let wanted = |x: &[Tensor]| Ok(composed::windowed_attention([&x[0], &x[1], &x[2]], None, None, 4, scale)?.0);
    check(&[&q, &k, &v], of, wanted);
    check_halves(&[&q, &k, &v], of, wanted);
    // With a prefix, and with documents that begin in the middle.
    let (pk, pv) = (values(9, &[2, 3, 8]), values(10, &[2, 3, 8]));
    let first = vec![vec![0, 0, 5, 5, 5, 5], vec![0, 0, 0, 0, 7, 7]];
    let of = |x: &[Tensor]| {
        let begins = Tensor::from_vec(first.concat(), (2, 6), x[0].device())?;
        let prefix = (beside(&pk, &x[0]), beside(&pv, &x[0]));
        let with = Attention { scale: Some(0.5), prefix: Some(prefix), first: Some(begins) };
        windowed_attention(&x[0], &x[1], &x[2], 4, &with)
    };
    let wanted = |x: &[Tensor]| {
        let (pk, pv) = (beside(&pk, &x[0]), beside(&pv, &x[0]));
        composed::windowed_attention([&x[0], &x[1], &x[2]], Some((&pk, &pv)), Some(&first), 4, 0.5)
    };
    check(&[&q, &k, &v], |x| Ok(of(x)?.0), |x| Ok(wanted(x)?.0));
    check_halves(&[&q, &k, &v], |x| Ok(of(x)?.0), |x| Ok(wanted(x)?.0));
    let all = [q, k, v];
    for device in devices() {
        let lse = of(&all.each_ref().map(|x| to(&device, x))).unwrap().1;
        close(&lse, &wanted(&all.each_ref().map(on_host)).unwrap().1, F32);
    }
}

#[test]
fn reads_of_memories() {
    let (x, w2, w1) = (values(11, &[2, 5, 8]), values(12, &[2, 12, 8]), values(13, &[2, 8, 12]));
    let r = values(14, &[2, 5, 8]);
    let wanted = |x: &[Tensor]| composed::memory_read(&x[0], &x[1], &x[2]);
    check(&[&x, &w2, &w1], |x| memory_read(&x[0], &x[1], &x[2], None), wanted);
    let with = |x: &[Tensor]| memory_read(&x[0], &x[1], &x[2], Some(&beside(&r, &x[0])));
    check(&[&x, &w2, &w1], with, |x| wanted(x)? + beside(&r, &x[0]));
    check(&[&x, &w2, &w1, &r], |x| memory_read(&x[0], &x[1], &x[2], Some(&x[3])), |x| wanted(x)? + &x[3]);
    check_halves(&[&x, &w2, &w1], |x| memory_read(&x[0], &x[1], &x[2], None), wanted);
}

#[test]
fn iterations_of_newton_and_schulz() {
    let g = values(15, &[2, 6, 10]);
    let iteration = NewtonSchulz::torch();
    let wanted = composed::newton_schulz(&on_host(&g), &iteration.steps, 1e-7).unwrap();
    for device in devices() {
        let g = to(&device, &g);
        for number in 0..VIEWS {
            close(&newton_schulz(&view(&g, number).unwrap(), &iteration).unwrap(), &wanted, F32);
        }
        let stack = g.reshape((1, 2, 6, 10)).unwrap();
        close(&newton_schulz(&stack, &iteration).unwrap().squeeze(0).unwrap(), &wanted, F32);
        let half = newton_schulz(&g.to_dtype(DType::BF16).unwrap(), &iteration).unwrap();
        assert_eq!(half.dtype(), DType::BF16);
    }
}

#[test]
fn results_in_place() {
    let (x, w) = (values(16, &[3, 8]), values(17, &[8]));
    for device in devices() {
        let (on, weight) = (to(&device, &x), to(&device, &w));
        let room = Tensor::ones((3, 24), DType::F32, &device).unwrap();
        let into = room.narrow(1, 8, 8).unwrap();
        softmax_into(&into, &on).unwrap();
        close(&into, &composed::softmax(&x).unwrap(), F32);
        rms_norm_into(&into, &on, &weight, 1e-6).unwrap();
        close(&into, &composed::rms_norm(&x, &w, 1e-6).unwrap(), F32);
        let sums = room.narrow(1, 20, 1).unwrap().squeeze(1).unwrap();
        log_sum_exp_into(&sums, &on).unwrap();
        close(&sums, &composed::log_sum_exp(&x).unwrap(), F32);
        // What lies beside it stays.
        for (start, len) in [(0, 8), (16, 4), (21, 3)] {
            let beside = room.narrow(1, start, len).unwrap();
            close(&beside, &beside.ones_like().unwrap(), 0.0);
        }
    }
}

#[test]
fn nothing_is_computed_of_nothing() {
    for device in devices() {
        let none = |shape: &[usize]| none(&device, shape);
        let w = to(&device, &values(18, &[8]));
        assert_eq!(rms_norm(&none(&[0, 8]), &w, 1e-6).unwrap().dims(), [0, 8]);
        assert_eq!(rms_norm(&none(&[2, 0, 8]), &w, 1e-6).unwrap().dims(), [2, 0, 8]);
        assert_eq!(softmax(&none(&[0, 3])).unwrap().dims(), [0, 3]);
        assert_eq!(log_sum_exp(&none(&[2, 0, 3])).unwrap().dims(), [2, 0]);
        assert_eq!(rotary(&none(&[0, 2, 8]), &none(&[1, 4]), &none(&[1, 4]), true).unwrap().dims(), [0, 2, 8]);
        let (q, k) = (none(&[1, 0, 2, 8]), none(&[1, 0, 1, 8]));
        assert_eq!(windowed_attention(&q, &k, &k, 3, &Attention::default()).unwrap().0.dims(), [1, 0, 2, 8]);
        let (w2, w1) = (none(&[2, 4, 8]), none(&[2, 8, 4]));
        assert_eq!(memory_read(&none(&[2, 0, 8]), &w2, &w1, None).unwrap().dims(), [2, 0, 8]);
        assert_eq!(newton_schulz(&none(&[0, 4, 6]), &NewtonSchulz::torch()).unwrap().dims(), [0, 4, 6]);
        // The gradient by a weight is that of no row. On a GPU candle has no sum of nothing.
        if device.is_cpu() {
            let w = candle_core::Var::from_tensor(&w).unwrap();
            let gradients = rms_norm(&none(&[0, 8]), &w, 1e-6).unwrap().sum_all().unwrap().backward().unwrap();
            close(gradients.get(&w).unwrap(), &none(&[8]), 0.0);
        }
    }
}
