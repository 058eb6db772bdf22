//! The knowledge that threads pass on when they synchronise: a sum of clocks.

use super::vector::{Seat, Vector};
use std::cell::OnceCell;
use std::rc::Rc;

/// Points that a sum keeps separate when sums are merged into it.
const MOST: usize = 128;

/// The knowledge of some threads at the times when they released it. Acquiring it orders their past before what follows.
#[derive(Clone, Debug, Default)]
pub struct Release {
    pub(super) general: Sum,
    /// The part that is visible to the asynchronous proxy.
    pub(super) proxy: Sum,
}

/// A join of clocks that is computed only when it is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    base: Option<Rc<Vector>>,
    points: Vec<(Seat, u32)>,
    folded: OnceCell<Rc<Vector>>,
}

impl Sum {
    pub(super) fn add(&mut self, base: &Rc<Vector>, own: Option<(Seat, u32)>) {
        self.folded.take();
        match &mut self.base {
            Some(known) if Rc::ptr_eq(known, base) => {}
            Some(known) => *known = Vector::join(known, base),
            None => self.base = Some(base.clone()),
        }
        self.points.extend(own);
    }

    pub(super) fn add_point(&mut self, seat: Seat, time: u32) {
        self.folded.take();
        self.points.push((seat, time));
    }

    /// The join of all that was added; `None` if nothing was.
    pub(super) fn fold(&self) -> Option<&Rc<Vector>> {
        if self.base.is_none() && self.points.is_empty() {
            return None;
        }
        Some(self.folded.get_or_init(|| {
            let base = self.base.clone().unwrap_or_default();
            if self.points.is_empty() {
                return base;
            }
            let mut whole = Vector::clone(&base);
            whole.raise(&self.points);
            Rc::new(whole)
        }))
    }

    /// Adds another sum without computing it, because most sums are never read.
    fn merge(&mut self, other: &Sum) {
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
}
