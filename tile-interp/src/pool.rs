//! The threads that programs run on: those of the pool that the caller has, or of one made anew in a process that was forked.
//!
//! `fork` copies the memory of a process and one of its threads. A pool of threads is then there in memory alone: what is given to
//! it waits for ever. rayon's own pool is one for the whole process and cannot be made again, so a forked process has one of its own
//! here, made when a kernel first runs in it.
//!
//! # Promise
//!
//! A kernel that is run in a forked process ends, whether this crate or somebody else started rayon's pool before the fork.
//!
//! # Argument
//!
//! Each process finds out once whether rayon's pool is alive. If this crate saw it alive in a process of another number, it is not.
//! Else a task is given to it: one that is alive takes it, and one that is too busy to do so for a while is taken as dead, which
//! costs threads and is right still. A caller that is one of a pool's threads is alive, and does the work of all if it must.

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long rayon's pool may take to start a task.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// The process in which rayon's pool was alive; none is 0.
static ALIVE_IN: AtomicU32 = AtomicU32::new(0);

/// The last process in which it was not, and the pool there: `None` where no threads could be started.
static OWN: Mutex<(u32, Option<&'static ThreadPool>)> = Mutex::new((0, None));

/// Threads that are alive.
#[derive(Clone, Copy)]
pub(crate) enum Threads {
    /// Of the pool that rayon finds: the caller's, or the one of the process.
    Rayons,
    /// Of the pool of a forked process.
    Own(&'static ThreadPool),
    /// The caller's alone.
    Caller,
}

impl Threads {
    /// Those of this process.
    pub(crate) fn here() -> Threads {
        if rayon::current_thread_index().is_some() || is_rayons_alive() {
            return Threads::Rayons;
        }
        own().map_or(Threads::Caller, Threads::Own)
    }

    /// How many there are.
    pub(crate) fn count(self) -> u64 {
        let count = match self {
            Threads::Rayons => rayon::current_num_threads(),
            Threads::Own(pool) => pool.current_num_threads(),
            Threads::Caller => 1,
        };
        count.max(1) as u64
    }

    /// What `f` makes of each number, in order.
    pub(crate) fn map<T: Send, E: Send>(
        self,
        range: Range<u64>,
        f: impl Fn(u64) -> Result<T, E> + Sync + Send,
    ) -> Result<Vec<T>, E> {
        match self {
            Threads::Rayons => range.into_par_iter().map(f).collect(),
            Threads::Own(pool) => pool.install(|| range.into_par_iter().map(f).collect()),
            Threads::Caller => range.map(f).collect(),
        }
    }
}

fn is_rayons_alive() -> bool {
    let process = std::process::id();
    match ALIVE_IN.load(Ordering::Relaxed) {
        known if known == process => true,
        0 if OWN.lock().unwrap_or_else(PoisonError::into_inner).0 != process && answers() => {
            ALIVE_IN.store(process, Ordering::Relaxed);
            true
        }
        _ => false,
    }
}

/// Whether rayon's pool, which is started if nobody has, takes a task.
fn answers() -> bool {
    let (taken, is_taken) = channel();
    rayon::spawn(move || {
        // Who waits may have gone.
        let _ = taken.send(());
    });
    is_taken.recv_timeout(ANSWERS_WITHIN).is_ok()
}

/// The pool of this process.
fn own() -> Option<&'static ThreadPool> {
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if own.0 != process {
        // The one before has no threads that could end, and ending them would wait for them: it stays.
        let pool = ThreadPoolBuilder::new().build();
        *own = (process, pool.ok().map(|pool| &*Box::leak(Box::new(pool))));
    }
    own.1
}
