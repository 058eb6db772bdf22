//! The threads that run programs: a pool that runs nothing else, and that a forked process creates again.
//!
//! The caller of a launch may hold locks until the kernel has run. A rayon thread that waits for its share of some work runs
//! other tasks of its pool in the meantime. In the caller's pool, such a task could be another launch, which waits for a lock
//! that is released further down on the same stack. So programs have a pool of their own. Its only tasks are programs, which
//! never wait, and the launching thread waits without running tasks.
//!
//! `fork` copies the memory of a process and one of its threads. A pool then exists only in memory, and a task that is given to
//! it waits forever. So the pool belongs to a process, and a forked process creates its own when a kernel first runs in it.
//!
//! # Promise
//!
//! Running a kernel terminates, whatever locks its caller and other callers hold, whatever pool their threads belong to, and
//! also in a forked process. (What a launch does before that takes locks of the runtime, which a fork in the middle of another
//! thread's launch leaves locked.)
//!
//! # Argument
//!
//! A thread outside of every rayon pool that gives work to a pool sleeps until it is done. A thread inside another pool would
//! run tasks of that pool meanwhile. So it starts a thread that waits in its place, and sleeps until that thread has ended.
//! Starting a thread takes longer than running a small kernel, so the caller first runs programs itself for about as long.
//!
//! A lock that another thread held when the process was forked stays locked. So a caller waits for the lock on the pool no
//! longer than it takes to create one. If it does not get the lock, it runs the programs on its own thread, which is slower but
//! correct.
//!
//! # Breaks it
//! - Launches from pools of several sizes, on few storages: runtime/tests/suite/pools.rs.
//! - Forks before and after launches, inside pools and outside: runtime/tests/suite/forked.rs.

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::ops::Range;
use std::sync::RwLock;
use std::time::{Duration, Instant};

/// How long a thread of another pool runs programs itself: about the time it takes to start a thread.
const ALONE_FOR: Duration = Duration::from_micros(100);

/// The longest time to create a pool.
const MADE_WITHIN: Duration = Duration::from_millis(500);

/// The pool of the process with this number; `None` if no threads could be started.
static POOL: RwLock<(u32, Option<&'static ThreadPool>)> = RwLock::new((0, None));

/// The threads that run programs.
#[derive(Clone, Copy)]
pub(crate) enum Threads {
    /// The threads of a pool that runs nothing else.
    Pool(&'static ThreadPool),
    /// Only the caller's thread.
    Caller,
}

impl Threads {
    /// The threads of this process, for this many programs.
    pub(crate) fn of(programs: u64) -> Threads {
        match programs {
            // To give it to another thread is all that could be gained.
            0 | 1 => Threads::Caller,
            _ => pool().map_or(Threads::Caller, Threads::Pool),
        }
    }

    /// How many there are.
    pub(crate) fn count(self) -> u64 {
        match self {
            Threads::Pool(pool) => pool.current_num_threads().max(1) as u64,
            Threads::Caller => 1,
        }
    }

    /// The results of `f` for each number, in order.
    pub(crate) fn map<T: Send, E: Send>(
        self,
        range: Range<u64>,
        f: impl Fn(u64) -> Result<T, E> + Sync + Send,
    ) -> Result<Vec<T>, E> {
        let Threads::Pool(pool) = self else { return range.map(f).collect() };
        let f = &f;
        let on_all = |range: Range<u64>| pool.install(|| range.into_par_iter().map(f).collect::<Result<Vec<T>, E>>());
        if rayon::current_thread_index().is_none() {
            return on_all(range);
        }
        let (mut done, mut left, begun) = (Vec::new(), range, Instant::now());
        while begun.elapsed() < ALONE_FOR {
            match left.next() {
                Some(index) => done.push(f(index)?),
                None => return Ok(done),
            }
        }
        let rest = std::thread::scope(|scope| {
            let waits = || on_all(left.clone());
            match std::thread::Builder::new().spawn_scoped(scope, waits) {
                Ok(waiting) => waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // Where no thread is to be had, this one does it.
                Err(_) => left.clone().map(f).collect(),
            }
        })?;
        done.extend(rest);
        Ok(done)
    }
}

/// The pool of this process.
fn pool() -> Option<&'static ThreadPool> {
    let (process, begun) = (std::process::id(), Instant::now());
    loop {
        if let Ok(known) = POOL.try_read()
            && known.0 == process
        {
            return known.1;
        }
        if let Ok(mut known) = POOL.try_write() {
            if known.0 != process {
                // The one before has no threads that could end, and ending them would wait for them: it stays.
                let pool = ThreadPoolBuilder::new().thread_name(|i| format!("atlas-cpu-{i}")).build();
                *known = (process, pool.ok().map(|pool| &*Box::leak(Box::new(pool))));
            }
            return known.1;
        }
        if begun.elapsed() > MADE_WITHIN {
            return None;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}
