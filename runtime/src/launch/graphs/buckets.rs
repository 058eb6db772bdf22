//! Buckets of sizes: what is made once for each of a few sizes, and serves all smaller ones.

use crate::error::{LaunchError, Result};

/// One value, such as a [`Graph`](super::Graph) with its tensors, for each of a few sizes. A size is served by the smallest bucket that
/// holds it, which is made when it is first needed.
///
/// A graph has the sizes that were recorded. So one of a bucket computes all rows of its tensors, those past the size of this run too,
/// from whatever stands there. That is right for kernels that compute each row from itself. A kernel that mixes rows along
/// this axis has to be told the size as data: by a tensor that it loads it from, and masks by.
#[derive(Clone, Debug)]
pub struct Buckets<T> {
    /// By size, ascending.
    all: Vec<(usize, Option<T>)>,
}

impl<T> Buckets<T> {
    /// Buckets of these sizes, in any order. Nothing is made yet.
    pub fn new(sizes: impl IntoIterator<Item = usize>) -> Buckets<T> {
        let mut sizes: Vec<usize> = sizes.into_iter().collect();
        sizes.sort_unstable();
        sizes.dedup();
        Buckets { all: sizes.into_iter().map(|size| (size, None)).collect() }
    }

    /// The sizes of the buckets, ascending.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        self.all.iter().map(|(size, _)| *size)
    }

    /// The smallest bucket that holds `size`. `make` makes it for the bucket's size if this is its first use.
    ///
    /// # Errors
    /// [`LaunchError::NoBucket`] for a size above all buckets; those of `make`, which is called again next time.
    pub fn get(&mut self, size: usize, make: impl FnOnce(usize) -> Result<T>) -> Result<&mut T> {
        let at = self.all.partition_point(|(bucket, _)| *bucket < size);
        let sizes: Vec<usize> = if at == self.all.len() { self.sizes().collect() } else { Vec::new() };
        let Some((bucket, made)) = self.all.get_mut(at) else {
            return Err(LaunchError::NoBucket { size, sizes }.into());
        };
        match made {
            Some(made) => Ok(made),
            None => Ok(made.insert(make(*bucket)?)),
        }
    }
}
