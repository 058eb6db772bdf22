//! What other proxies see of generic writes: for each stretch of memory that proxy fences cover, a clock.

use super::vector::{Seat, Summand, Vector};
use std::rc::Rc;

/// The memory that a proxy fence covers, and the proxy for which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Shared memory of one CTA, for the asynchronous proxy.
    Cta(u32),
    /// Shared memory of all CTAs of the thread's cluster, for the asynchronous proxy.
    Cluster,
    /// Global memory, for the asynchronous proxy.
    Global,
    /// What `fence.proxy.tensormap::generic.release` has released. Nothing sees it before it is acquired.
    Released,
    /// The tensor map at a global address, for the proxy that reads tensor maps.
    Map(u64),
}

/// Reaches for which a thread's own time is kept beside the view: its own CTA's shared memory, the cluster's, global memory.
pub(super) const OWN: usize = 3;

/// The place of a reach among those, for a thread of a CTA.
pub(super) fn own(reach: Reach, cta: u32) -> Option<usize> {
    match reach {
        Reach::Cta(of) if of == cta => Some(0),
        Reach::Cluster => Some(1),
        Reach::Global => Some(2),
        _ => None,
    }
}

/// The reverse of [`own`].
pub(super) fn owned(cta: u32) -> [Reach; OWN] {
    [Reach::Cta(cta), Reach::Cluster, Reach::Global]
}

/// Knowledge that is visible to other proxies.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    /// Sorted. What is not there is not visible at all.
    known: Vec<(Reach, Rc<Vector>)>,
}

impl View {
    /// The clock of a reach.
    pub(super) fn of(&self, reach: Reach) -> Option<&Rc<Vector>> {
        let at = self.known.binary_search_by_key(&reach, |k| k.0).ok()?;
        self.known.get(at).map(|k| &k.1)
    }

    /// Sets the clock of a reach.
    pub(super) fn set(&mut self, reach: Reach, clock: Rc<Vector>) {
        match self.known.binary_search_by_key(&reach, |k| k.0) {
            Ok(at) => {
                if let Some(known) = self.known.get_mut(at) {
                    known.1 = clock;
                }
            }
            Err(at) => self.known.insert(at, (reach, clock)),
        }
    }

    /// True if the time of an agent is visible.
    pub(super) fn sees(&self, reach: Reach, seat: Seat, time: u32) -> bool {
        self.of(reach).is_some_and(|clock| clock.get(seat) >= time)
    }

    /// The part that means something to threads of other clusters.
    pub(super) fn far(view: &Rc<View>) -> Rc<View> {
        let far = |k: &&(Reach, Rc<Vector>)| !matches!(k.0, Reach::Cta(_) | Reach::Map(_));
        if view.known.iter().all(|k| far(&k)) {
            return view.clone();
        }
        Rc::new(View { known: view.known.iter().filter(far).cloned().collect() })
    }
}

impl Summand for View {
    type Point = (Reach, Seat, u32);

    fn join(a: &Rc<View>, b: &Rc<View>) -> Rc<View> {
        if Rc::ptr_eq(a, b) || b.known.is_empty() {
            return a.clone();
        }
        if a.known.is_empty() {
            return b.clone();
        }
        let mut joined = View::clone(a);
        for (reach, clock) in &b.known {
            let both = a.of(*reach).map_or_else(|| clock.clone(), |known| Vector::join(known, clock));
            joined.set(*reach, both);
        }
        let same = |x: &View| {
            let pairs = x.known.iter().zip(&joined.known);
            x.known.len() == joined.known.len() && { pairs }.all(|(x, y)| Rc::ptr_eq(&x.1, &y.1))
        };
        if same(a) {
            return a.clone();
        }
        if same(b) { b.clone() } else { Rc::new(joined) }
    }

    fn raise(&mut self, points: &[(Reach, Seat, u32)]) {
        let mut reaches: Vec<Reach> = points.iter().map(|p| p.0).collect();
        reaches.sort_unstable();
        reaches.dedup();
        for reach in reaches {
            let mut clock = self.of(reach).map_or_else(Vector::default, |known| Vector::clone(known));
            let points: Vec<(Seat, u32)> = points.iter().filter(|p| p.0 == reach).map(|p| (p.1, p.2)).collect();
            clock.raise(&points);
            self.set(reach, Rc::new(clock));
        }
    }
}
