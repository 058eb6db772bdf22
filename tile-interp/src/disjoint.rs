//! Whether stores of which the author says that no two of a launch meet do.

use crate::error::InterpError;
use crate::memory::{Places, Region, TensorViewMut};
use crate::walk::Row;
use atlas_dsl::Kernel;
use std::collections::BTreeMap;

/// The elements that a launch has stored so, of each parameter.
#[derive(Default)]
pub(crate) struct Stored(BTreeMap<usize, Vec<bool>>);

impl Stored {
    /// Adds the elements of a tile.
    ///
    /// # Errors
    /// [`InterpError::Met`] if one has been stored before.
    pub(crate) fn add(
        &mut self,
        kernel: &Kernel,
        param: usize,
        view: &TensorViewMut<'_>,
        (region, places): (&Region, Option<&Places>),
    ) -> Result<(), InterpError> {
        let dims = view.dims();
        let stored = self.0.entry(param).or_insert_with(|| vec![false; dims.iter().product::<u64>() as usize]);
        let mut twice = None;
        for walk in view.numbers(region, places) {
            let Row { count, b: step, .. } = walk.row;
            walk.rows(|_, first| {
                for i in 0..count as i64 {
                    let number = (first as i64 + i * step) as usize;
                    if std::mem::replace(&mut stored[number], true) {
                        twice.get_or_insert(number as u64);
                    }
                }
            });
        }
        let Some(mut number) = twice else { return Ok(()) };
        let mut element = vec![0; dims.len()];
        for (at, &dim) in element.iter_mut().zip(dims).rev() {
            (*at, number) = (number % dim, number / dim);
        }
        let name = kernel.params.values().nth(param).map_or_else(String::new, |p| p.name.clone());
        Err(InterpError::Met { name, element })
    }
}
