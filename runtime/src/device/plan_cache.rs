//! The plan cache of a device: launch plans by the words of their problem, loaded kernels, and refusals, all of them
//! bounded.

use super::launch_plan::{LaunchBody, LaunchPlan};
use crate::compile::KernelKey;
use crate::gpu::LoadedKernel;
use lru::LruCache;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The most plans, loaded kernels and refusals that a device keeps. Beyond it, the least recently used is dropped; for
/// kernels, the one with the oldest launch.
const MOST_PLANS: NonZeroUsize = NonZeroUsize::new(8192).unwrap();
const MOST_LOADED: usize = 1024;
const MOST_REFUSED: NonZeroUsize = NonZeroUsize::new(8192).unwrap();

/// Plans by the words of their problem.
type ByProblem = LruCache<Box<[u64]>, Arc<LaunchPlan>, BuildHasherDefault<WordHasher>>;

/// The plans of a device, its loaded kernels, and its refusals. Each is bounded.
///
/// A kernel that is evicted is not unloaded while it is in use: plans, prepared launches and launches that are being
/// queued hold it by `Arc`. When the last of them is dropped, [`DriverModule`](crate::gpu::DriverModule) waits for the
/// device before it unloads the kernel, so a launch in flight on any stream has ended.
pub(crate) struct PlanCache {
    by_problem: Mutex<ByProblem>,
    /// How often choices were forgotten. A plan that was begun before is not kept afterwards.
    generation: AtomicU64,
    loaded: Mutex<BTreeMap<KernelKey, Arc<LoadedKernel>>>,
    most_loaded: usize,
    /// Kernels in graphs of other libraries, by their addresses. Nobody says when such a graph ends, so they stay.
    recorded: Mutex<HashMap<usize, Arc<LoadedKernel>>>,
    refused: Mutex<LruCache<KernelKey, String>>,
    /// The kernels that some thread is making now.
    making: Mutex<HashMap<KernelKey, Weak<Mutex<()>>>>,
}

impl Default for PlanCache {
    fn default() -> PlanCache {
        PlanCache {
            by_problem: Mutex::new(LruCache::with_hasher(MOST_PLANS, BuildHasherDefault::default())),
            generation: AtomicU64::new(0),
            loaded: Mutex::default(),
            most_loaded: MOST_LOADED,
            recorded: Mutex::default(),
            refused: Mutex::new(LruCache::new(MOST_REFUSED)),
            making: Mutex::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hashes words by rotation and multiplication. Keys are compared in full, so collisions only cost time.
#[derive(Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|&w| self.write_u64(u64::from_ne_bytes(w)));
        rest.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        // The table takes its bucket from the low bits, which multiplication mixes least.
        self.0 ^ (self.0 >> 32)
    }
}

impl PlanCache {
    /// Keeps a kernel that a graph of another library has recorded.
    pub(crate) fn keep_recorded(&self, kernel: &Arc<LoadedKernel>) {
        lock(&self.recorded).entry(Arc::as_ptr(kernel).addr()).or_insert_with(|| kernel.clone());
    }

    /// The plan of a problem seen before.
    pub(crate) fn find(&self, words: &[u64]) -> Option<Arc<LaunchPlan>> {
        lock(&self.by_problem).get(words).cloned()
    }

    /// How often choices were forgotten so far.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Keeps a plan that was begun in a generation, unless choices have been forgotten since.
    pub(crate) fn keep(&self, words: &[u64], plan: &Arc<LaunchPlan>, begun: u64) {
        let mut plans = lock(&self.by_problem);
        if self.generation() != begun {
            return;
        }
        // Dropping an evicted plan may unload a kernel, which waits for the device, so the lock is not held.
        let evicted = plans.push(words.into(), plan.clone());
        drop(plans);
        drop(evicted);
    }

    /// A loaded kernel.
    pub(crate) fn loaded(&self, key: &KernelKey) -> Option<Arc<LoadedKernel>> {
        lock(&self.loaded).get(key).cloned()
    }

    /// Keeps a loaded kernel as if it were launched now, or returns the one that another thread has loaded in the
    /// meantime. If a kernel is evicted, the plans that hold it are too.
    pub(crate) fn keep_loaded(&self, kernel: Arc<LoadedKernel>, now: u64) -> Arc<LoadedKernel> {
        let mut all = lock(&self.loaded);
        if let Some(first) = all.get(&kernel.key) {
            return first.clone();
        }
        kernel.touch(now);
        // Launches of a known problem only store their time, so the oldest kernel is searched for among all of them.
        let oldest = all.values().min_by_key(|k| k.launched()).map(|k| k.key).filter(|_| all.len() >= self.most_loaded);
        let evicted = oldest.and_then(|key| all.remove(&key));
        all.insert(kernel.key, kernel.clone());
        drop(all);
        if let Some(evicted) = &evicted {
            self.forget(&evicted.key);
        }
        kernel
    }

    /// The lock for making a kernel. Other threads that need the same kernel wait for it, and then find the result.
    pub(crate) fn turn(&self, key: &KernelKey) -> Arc<Mutex<()>> {
        let mut making = lock(&self.making);
        if let Some(turn) = making.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        making.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        making.insert(*key, Arc::downgrade(&turn));
        turn
    }

    /// Why a kernel is refused on this device, if it is.
    pub(crate) fn refusal(&self, key: &KernelKey) -> Option<String> {
        lock(&self.refused).get(key).cloned()
    }

    /// Remembers that a kernel is refused here, and drops it and its plans. Another device may accept it.
    pub(crate) fn refuse(&self, key: &KernelKey, reason: &str) {
        lock(&self.refused).put(*key, reason.to_owned());
        let loaded = lock(&self.loaded).remove(key);
        self.forget(key);
        drop(loaded);
    }

    /// Drops the plans of a kernel.
    fn forget(&self, key: &KernelKey) {
        let mut plans = lock(&self.by_problem);
        let uses = |plan: &LaunchPlan| matches!(&plan.body, LaunchBody::Gpu(gpu) if gpu.kernels().any(|k| k.kernel.key == *key));
        let words: Vec<Box<[u64]>> = plans.iter().filter(|(_, p)| uses(p)).map(|(words, _)| words.clone()).collect();
        let dropped: Vec<_> = words.iter().filter_map(|words| plans.pop(words)).collect();
        drop(plans);
        drop(dropped);
    }

    /// Drops all plans, so that the config of each problem is chosen again. Loaded kernels stay.
    pub(crate) fn forget_choices(&self) {
        let mut plans = lock(&self.by_problem);
        self.generation.fetch_add(1, Ordering::Release);
        let none = LruCache::with_hasher(MOST_PLANS, BuildHasherDefault::default());
        let dropped = std::mem::replace(&mut *plans, none);
        drop(plans);
        drop(dropped);
    }

    /// Forgets all refusals, because a damaged file may have been replaced.
    pub(crate) fn forget_refusals(&self) {
        lock(&self.refused).clear();
    }

    /// True if something has been refused here.
    pub(crate) fn has_refused(&self) -> bool {
        !lock(&self.refused).is_empty()
    }

    /// Bytes of local memory per thread of a loaded kernel whose registers spill.
    pub(crate) fn spills(&self, key: &KernelKey) -> Option<u32> {
        let bytes = lock(&self.loaded).get(key).map(|k| k.facts.local_bytes)?;
        (bytes > 0).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{GpuLaunch, KernelLaunch};
    use crate::select::ConfigSource;
    use atlas_dsl::Config;

    #[test]
    fn the_kernel_that_was_launched_the_longest_time_ago_is_unloaded() {
        let plans = PlanCache { most_loaded: 2, ..PlanCache::default() };
        let load = |key: u8, now: u64| plans.keep_loaded(Arc::new(LoadedKernel::idle(KernelKey([key; 32]))), now);
        let hot = load(1, 1);
        let words = [7_u64];
        let body = LaunchBody::Gpu(GpuLaunch::of(KernelLaunch::plain(hot.clone())));
        let (config, source, passed_over) = (Config::default(), ConfigSource::Default, Vec::new());
        let plan = LaunchPlan { config, source, body, passed_over, tally: None, numbers: Box::default() };
        plans.keep(&words, &Arc::new(plan), plans.generation());
        // Loaded first, and launched regularly since.
        for (key, now) in [(2, 10), (3, 20), (4, 30)] {
            hot.touch(now - 1);
            load(key, now);
            let kept = [1, 2, 3, 4].map(|key| plans.loaded(&KernelKey([key; 32])).is_some());
            assert_eq!(kept, [true, key == 2, key == 3, key == 4]);
        }
        assert!(plans.find(&words).is_some());
        // Once it is no longer launched it is evicted, and its plan too.
        load(5, 40);
        assert!(plans.loaded(&hot.key).is_none() && plans.find(&words).is_none());
    }
}
