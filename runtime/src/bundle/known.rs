//! A bundle's entry for a kernel of the program, parsed once, with the specialization of each class.

use super::Bundle;
use super::entry::KernelEntry;
use crate::compile::specialization_class::{assumed, serves};
use crate::error::BundleError;
use atlas_dsl::{KernelDef, Specialization};
use std::sync::{Arc, PoisonError};

/// An entry and the specialization of each of its classes, for one kernel of the program.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) entry: KernelEntry,
    pub(super) specs: Vec<Specialization>,
    /// The classes, those that assume most first.
    order: Vec<usize>,
}

impl Known {
    fn new(def: &KernelDef, mut entry: KernelEntry) -> Known {
        // A class whose text does not parse for this kernel serves no problem.
        entry.classes.retain(|class| class.spec(def).is_some());
        let specs: Vec<Specialization> = entry.classes.iter().filter_map(|class| class.spec(def)).collect();
        let mut order: Vec<usize> = (0..specs.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(assumed(def, &specs[at])));
        Known { entry, specs, order }
    }

    /// The classes that serve a problem of the class `here`: only that class, or that class first and then all others.
    pub(super) fn serving(
        &self,
        def: &KernelDef,
        here: &Specialization,
        sizes: &[u64],
        only_exact: bool,
    ) -> Vec<usize> {
        let own = self.order.iter().copied().filter(|&at| self.specs[at] == *here);
        let serves = |at: &usize| self.specs[*at] != *here && serves(def, &self.specs[*at], here, sizes);
        let wider = self.order.iter().copied().filter(serves);
        if only_exact { own.collect() } else { own.chain(wider).collect() }
    }
}

impl Bundle {
    /// The entry for a kernel of the program. `None` if the bundle has no kernel of its name.
    pub(super) fn known(&self, def: &'static KernelDef) -> Option<Result<Arc<Known>, BundleError>> {
        let place = std::ptr::from_ref(def).addr();
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&place) {
            return Some(known.clone());
        }
        let known = self.entry(def.name)?.map(|entry| Arc::new(Known::new(def, (*entry).clone())));
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(place, known.clone());
        Some(known)
    }
}
