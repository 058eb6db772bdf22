//! Merges several records of one kernel and one tune space.

use super::record::{MOST_SIZES, Record, TunedSize};

/// The rows of a record, and of records that were added later.
#[derive(Clone, Debug)]
pub(super) struct Merged {
    /// The first row of each size.
    pub(super) record: Record,
    /// Further rows of these sizes. One of them counts if the rows before it are stale, which only a launch can tell.
    later: Vec<TunedSize>,
}

impl Merged {
    pub(super) fn new(record: Record) -> Merged {
        Merged { record, later: Vec::new() }
    }

    /// All rows. Rows of one size are in the order in which they were added.
    pub(super) fn rows(&self) -> impl Iterator<Item = &TunedSize> {
        self.record.sizes.iter().chain(&self.later)
    }

    /// The rows of a size, in order.
    pub(super) fn at<'a>(
        &'a self,
        types: &'a str,
        tensors: &'a str,
        dims: &'a str,
    ) -> impl Iterator<Item = &'a TunedSize> {
        self.rows().filter(move |s| s.is_of(types, tensors, dims))
    }

    /// Adds the rows of a later record, new sizes first. Returns how many were added, and how many had no room.
    pub(super) fn add(&mut self, rows: Vec<TunedSize>) -> (usize, usize) {
        let is_known = |s: &TunedSize| self.record.at(&s.types, &s.tensors, &s.dims).is_some();
        let (known, new): (Vec<TunedSize>, Vec<TunedSize>) = rows.into_iter().partition(is_known);
        // A row that is stale under exactly the same conditions as an earlier one has no effect.
        let is_alike = |a: &TunedSize, b: &TunedSize| {
            a.ir == b.ir && a.chosen().config == b.chosen().config && a.target == b.target
        };
        let decides = |s: &TunedSize| !self.at(&s.types, &s.tensors, &s.dims).any(|before| is_alike(before, s));
        let known: Vec<TunedSize> = known.into_iter().filter(decides).collect();
        let (all, room) = (new.len() + known.len(), MOST_SIZES.saturating_sub(self.rows().count()));
        let of_new = room.min(new.len());
        self.record.sizes.extend(new.into_iter().take(of_new));
        self.later.extend(known.into_iter().take(room - of_new));
        let added = all.min(room);
        (added, all - added)
    }
}
