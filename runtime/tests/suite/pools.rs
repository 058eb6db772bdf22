//! Concurrent launches on the CPU from threads of pools on few storages: they finish, and give the same results as
//! alone.

use crate::kernels::SCALE;
use atlas_dsl::DType;
use atlas_runtime::{Device, Launch, Tensor, args};
use rayon::prelude::*;
use std::sync::mpsc::channel;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// A launch of this many rows takes longer than starting a thread.
const ROWS: usize = 512;
const PARTS: usize = 32;
const ROUNDS: usize = 40;

/// Runs work in a pool of `threads` threads. Panics if the work panics or does not finish.
#[track_caller]
fn in_a_pool(threads: usize, work: impl FnOnce() + Send + 'static) {
    let (ended, has_ended) = channel();
    std::thread::spawn(move || {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.install(work)));
        ended.send(outcome.is_ok()).unwrap();
    });
    let outcome = has_ended.recv_timeout(PATIENCE);
    assert_eq!(outcome, Ok(true), "launches from a pool of {threads} threads");
}

fn counted(shape: [usize; 2]) -> Tensor {
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(|i| (i % 251) as f32).collect();
    Device::cpu().tensor_from(&values, shape).unwrap()
}

/// Part `i` of a tensor that is split into parts.
fn part(whole: &Tensor, i: usize) -> Tensor {
    whole.slice(0, i..i + 1).unwrap().reshape(&whole.shape()[1..]).unwrap()
}

/// A launch holds its storages while it waits for its programs; a thread that waits in a pool runs other tasks of the
/// pool.
#[test]
fn launches_on_a_few_storages_end() {
    for (threads, storages) in [(2, 3), (4, 3), (8, 3), (3, 2), (4, 1)] {
        in_a_pool(threads, move || {
            let cpu = Device::cpu();
            let x = counted([ROWS, 64]);
            let wholes: Vec<Tensor> =
                (0..storages).map(|_| Tensor::zeros(&cpu, DType::F32, [PARTS, ROWS, 64]).unwrap()).collect();
            for round in 0..ROUNDS {
                (0..PARTS * storages).into_par_iter().for_each(|i| {
                    let mut y = part(&wholes[i % storages], i / storages);
                    SCALE.launch(&cpu, args!(x, x, round as f32, &mut y)).unwrap();
                });
            }
            let want: Vec<f32> = x.to_vec::<f32>().unwrap().iter().map(|x| (ROUNDS as f32 - 1.0) * x + x).collect();
            for whole in &wholes {
                (0..PARTS).for_each(|i| assert_eq!(part(whole, i).to_vec::<f32>().unwrap(), want));
            }
        });
    }
}

/// Some launches write tensors that the others read.
#[test]
fn launches_that_read_what_others_write_end() {
    for threads in [3, 8] {
        in_a_pool(threads, || {
            let cpu = Device::cpu();
            let (weights, r) = (Tensor::zeros(&cpu, DType::F32, [2, ROWS, 64]).unwrap(), counted([ROWS, 64]));
            for _ in 0..ROUNDS {
                (0..2 * PARTS).into_par_iter().for_each(|i| {
                    if i % 8 == 0 {
                        return SCALE.launch(&cpu, args!(r, r, 0.0, &mut part(&weights, 0))).unwrap();
                    }
                    let mut y = Tensor::zeros(&cpu, DType::F32, [ROWS, 64]).unwrap();
                    SCALE.launch(&cpu, args!(part(&weights, i % 2), r, 1.0, &mut y)).unwrap();
                });
            }
            assert_eq!(part(&weights, 0).to_vec::<f32>().unwrap(), r.to_vec::<f32>().unwrap());
        });
    }
}

/// Threads outside any pool, beside a pool that runs launches too: rayon's own, which programs once shared with it.
#[test]
fn launches_from_inside_and_outside_of_rayons_pool_end() {
    let (ended, has_ended) = channel();
    std::thread::spawn(move || {
        let cpu = Device::cpu();
        let x = counted([ROWS, 64]);
        let whole = Tensor::zeros(&cpu, DType::F32, [PARTS, ROWS, 64]).unwrap();
        let launch = |i: usize| SCALE.launch(&cpu, args!(x, x, 2.0, &mut part(&whole, i % PARTS))).unwrap();
        for _ in 0..ROUNDS {
            std::thread::scope(|scope| {
                scope.spawn(|| (0..2 * PARTS).into_par_iter().for_each(launch));
                scope.spawn(|| (0..2 * PARTS).for_each(launch));
            });
        }
        ended.send(()).unwrap();
    });
    assert_eq!(has_ended.recv_timeout(PATIENCE), Ok(()));
}
