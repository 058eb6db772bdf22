//! Shared memory of a CTA.

use super::Region;
use super::region::SHARED;
use std::ops::{Deref, DerefMut};

/// Static and dynamic shared memory of one CTA, uninitialised at the start.
#[derive(Clone, Debug)]
pub struct Shared {
    region: Region,
}

impl Shared {
    /// Shared memory of a CTA, by its linear index.
    pub fn new(cta: u32, bytes: u32) -> Shared {
        Shared { region: Region::uninitialized(SHARED | u64::from(cta), bytes as usize) }
    }
}

impl Deref for Shared {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.region
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut Region {
        &mut self.region
    }
}
