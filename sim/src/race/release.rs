//! The knowledge that threads pass on when they synchronise: a sum of clocks.

use super::proxies::View;
use super::vector::{Summand, Vector};
use std::cell::OnceCell;
use std::rc::Rc;

/// Points that a sum keeps separate when sums are merged into it.
const MOST: usize = 128;

/// The knowledge of some threads at the times when they released it. Acquiring it orders their past before what follows.
#[derive(Clone, Debug, Default)]
pub struct Release {
    pub(super) general: Sum<Vector>,
    /// The part that is visible to other proxies.
    pub(super) proxy: Sum<View>,
}

/// A join of clocks that is computed only when it is read.
#[derive(Clone, Debug)]
pub(super) struct Sum<K: Summand> {
    base: Option<Rc<K>>,
    points: Vec<K::Point>,
    folded: OnceCell<Rc<K>>,
}

impl<K: Summand> Default for Sum<K> {
    fn default() -> Sum<K> {
        Sum { base: None, points: Vec::new(), folded: OnceCell::new() }
    }
}

impl<K: Summand> Sum<K> {
    pub(super) fn add(&mut self, base: &Rc<K>, own: impl IntoIterator<Item = K::Point>) {
        self.folded.take();
        match &mut self.base {
            Some(known) if Rc::ptr_eq(known, base) => {}
            Some(known) => *known = K::join(known, base),
            None => self.base = Some(base.clone()),
        }
        self.points.extend(own);
    }

    pub(super) fn add_point(&mut self, point: K::Point) {
        self.folded.take();
        self.points.push(point);
    }

    /// The join of all that was added; `None` if nothing was.
    pub(super) fn fold(&self) -> Option<&Rc<K>> {
        if self.base.is_none() && self.points.is_empty() {
            return None;
        }
        Some(self.folded.get_or_init(|| {
            let base = self.base.clone().unwrap_or_default();
            if self.points.is_empty() {
                return base;
            }
            let mut whole = K::clone(&base);
            whole.raise(&self.points);
            Rc::new(whole)
        }))
    }

    /// Adds another sum without computing it, because most sums are never read.
    fn merge(&mut self, other: &Sum<K>) {
        if let Some(base) = &other.base {
            self.add(base, None);
        }
        if !other.points.is_empty() {
            self.folded.take();
            self.points.extend_from_slice(&other.points);
        }
        if self.points.len() > MOST {
            self.base = self.fold().cloned();
            self.points.clear();
        }
    }
}

impl Release {
    /// Nothing released yet.
    pub fn new() -> Release {
        Release::default()
    }

    /// Forgets everything, as at the start of a phase.
    pub fn clear(&mut self) {
        *self = Release::default();
    }

    /// Adds everything that another token holds.
    pub fn merge(&mut self, other: &Release) {
        self.general.merge(&other.general);
        self.proxy.merge(&other.proxy);
    }

    /// The same without what holds for single CTAs and tensor maps only, of which far threads have no use.
    pub(super) fn merge_far(&mut self, other: &Release) {
        self.general.merge(&other.general);
        if let Some(view) = other.proxy.fold() {
            self.proxy.add(&View::far(view), None);
        }
    }
}
