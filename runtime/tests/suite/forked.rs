//! Processes that are forked after kernels ran: the threads of a pool do not exist in the child, and launches must
//! finish anyway.

use crate::kernels::SCALE;
use atlas_dsl::DType;
use atlas_runtime::{Device, Launch, Tensor, args};
use rayon::prelude::*;
use std::process::Command;
use std::time::{Duration, Instant};

/// Set in a process that runs one test alone and so may fork, because no other thread holds a lock then.
const ALONE: &str = "ATLAS_TEST_FORKS";
const PATIENCE: Duration = Duration::from_secs(60);

/// A launch on the CPU with more programs than threads.
fn launches() -> bool {
    let cpu = Device::cpu();
    let host: Vec<f32> = (0..4096 * 8).map(|i| i as f32).collect();
    let x = cpu.tensor_from(&host, [4096, 8]).unwrap();
    let mut y = Tensor::zeros(&cpu, DType::F32, [4096, 8]).unwrap();
    SCALE.launch(&cpu, args!(x, x, 2.0, &mut y)).unwrap();
    y.to_vec::<f32>().unwrap() == host.iter().map(|x| x * 3.0).collect::<Vec<f32>>()
}

/// Whether `work` succeeds in a child process.
fn succeeds_in_a_fork(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: this process runs one test alone, so its other threads are idle threads of a pool and hold no lock.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "cannot fork");
    if child == 0 {
        let is_well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
        // SAFETY: it ends this process, and no code of the test harness runs in it.
        unsafe { libc::_exit(i32::from(!is_well)) };
    }
    let (start, mut status) = (Instant::now(), -1);
    while start.elapsed() < PATIENCE {
        // SAFETY: an out-pointer to a live integer, and a child of this process.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            return status == 0;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: a child of this process, which hangs.
    unsafe { libc::kill(child, libc::SIGKILL) };
    false
}

/// Runs a test of this file in a process of its own.
fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let mut own = Command::new(std::env::current_exe().unwrap());
    own.args(["--exact", &format!("forked::{name}"), "--test-threads=1"]).env(ALONE, "1");
    let out = own.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_process_forked_after_a_launch_launches_too() {
    alone("a_process_forked_after_a_launch_launches_too", || {
        assert!(launches());
        assert!(succeeds_in_a_fork(|| launches() && launches()));
        // A child of that child, before and after a launch there.
        assert!(succeeds_in_a_fork(|| succeeds_in_a_fork(launches) && launches() && succeeds_in_a_fork(launches)));
        assert!(launches());
    });
}

/// For rayon's own pool.
#[test]
fn a_process_forked_after_others_used_threads_launches_too() {
    alone("a_process_forked_after_others_used_threads_launches_too", || {
        assert_eq!((0..1000_u64).into_par_iter().sum::<u64>(), 499_500);
        assert!(succeeds_in_a_fork(|| launches() && launches()));
        assert!(launches());
    });
}

/// A process that is forked on a thread of the caller's pool has no other thread of the pool.
#[test]
fn a_process_forked_inside_a_pool_launches_too() {
    alone("a_process_forked_inside_a_pool_launches_too", || {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        assert!(pool.install(launches));
        assert!(pool.install(|| succeeds_in_a_fork(launches)));
    });
}

#[test]
fn a_process_whose_driver_did_not_follow_is_told_so() {
    let error = atlas_runtime::RuntimeError::from(atlas_runtime::DeviceError::Forked {}).to_string();
    assert!(error.contains("ATL649") && error.contains("exec"), "{error}");
}
