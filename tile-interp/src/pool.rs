//! The threads that programs run on: a pool that runs nothing but programs, made anew in a process that was forked.
//!
//! Who launches a kernel may hold locks until it has run. A thread of rayon's that waits for its share of some work takes up
//! whatever else is queued in its pool meanwhile; were that pool the caller's, it could be another launch, which waits for a lock
//! that is released further down on the same stack. So programs have a pool of their own, where all that can be taken up is
//! programs, which wait for nobody, and the thread that launches waits without taking anything up.
//!
//! `fork` copies the memory of a process and one of its threads. A pool of threads is then there in memory alone: what is given to
//! it waits for ever. So the pool is that of a process, and a forked one makes its own when a kernel first runs in it.
//!
//! # Promise
//!
//! A kernel that is run ends, whatever locks its caller and other callers hold, on threads of whatever pool, also in a forked
//! process.
//!
//! # Argument
//!
//! A thread outside every pool of rayon's that gives work to one sleeps until it is done. A thread inside another pool would work
//! there meanwhile, so it starts a thread that waits in its place, and sleeps until that has ended. A thread takes longer to start
//! than a small kernel to run: first it runs programs itself for about as long.
//!
//! A lock that another thread held when the process was forked stays locked. So nobody waits for the lock on the pool for longer
//! than it takes to make one: who does not get it runs the programs on its own thread, which costs threads and is right still.
//!
//! # Breaks it
//! - Launches from pools of several sizes, on few storages: runtime/tests/suite/pools.rs.
//! - Forks before and after launches, inside pools and outside: runtime/tests/suite/forked.rs.

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::ops::Range;
use std::sync::RwLock;
use std::time::{Duration, Instant};

/// How long a thread of another pool runs programs itself: about as long as it takes to start a thread.
const ALONE_FOR: Duration = Duration::from_micros(100);

/// How long a pool takes to be made, at most.
const MADE_WITHIN: Duration = Duration::from_millis(500);

/// The pool of the process of this number: `None` where no threads could be started.
static POOL: RwLock<(u32, Option<&'static ThreadPool>)> = RwLock::new((0, None));

/// Who runs programs.
#[derive(Clone, Copy)]
pub(crate) enum Threads {
    /// Those of a pool that runs nothing else.
    Pool(&'static ThreadPool),
    /// The caller's alone.
    Caller,
}

impl Threads {
    /// Those of this process, for so many programs.
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

    /// What `f` makes of each number, in order.
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
