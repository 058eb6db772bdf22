//! Tensors of PyTorch as those of DLPack, in other shapes where a function wants them.

use super::values::{Axes, Tensor, TensorFacts, contiguous};
use crate::dlpack::DLTensor;
use crate::status::{Failure, Result};
use std::marker::PhantomData;

/// A tensor of DLPack on the memory of one of PyTorch.
pub(super) struct View<'a> {
    tensor: DLTensor,
    /// Sizes and strides of another shape than that of the tensor.
    axes: Option<(Axes, Axes)>,
    /// A copy, if the tensor could not be seen in this shape.
    _kept: Option<Tensor>,
    _of: PhantomData<&'a Tensor>,
}

impl<'a> View<'a> {
    /// A tensor as it lies.
    pub(super) fn of(of: &'a Tensor) -> Result<View<'a>> {
        Ok(View::with(of.facts()?, None))
    }

    fn with(facts: TensorFacts, axes: Option<(Axes, Axes)>) -> View<'a> {
        View { tensor: facts.tensor, axes, _kept: None, _of: PhantomData }
    }

    /// A tensor as rows, `[N, D]`. One of two axes stays as it lies.
    pub(super) fn rows(of: &'a Tensor) -> Result<View<'a>> {
        let facts = of.facts()?;
        // SAFETY: the tensor outlives the view, here and below.
        let (sizes, strides) = unsafe { facts.axes() };
        match sizes {
            [] => Err(Failure::coded(603, "an array of no axes has no rows; give it one")),
            [_, _] => Ok(View::with(facts, None)),
            [before @ .., last] => View::shaped(of, facts, (sizes, strides), &[before.iter().product(), *last]),
        }
    }

    /// A tensor in one axis.
    pub(super) fn flat(of: &'a Tensor) -> Result<View<'a>> {
        let facts = of.facts()?;
        // SAFETY: as above.
        let (sizes, strides) = unsafe { facts.axes() };
        View::shaped(of, facts, (sizes, strides), &[sizes.iter().product()])
    }

    /// A tensor in another shape, of as many elements.
    pub(super) fn reshaped(of: &'a Tensor, shape: &[i64]) -> Result<View<'a>> {
        let facts = of.facts()?;
        // SAFETY: as above.
        let axes = unsafe { facts.axes() };
        View::shaped(of, facts, axes, shape)
    }

    /// A tensor repeated to more elements, and then in another shape. None if it cannot be repeated so.
    pub(super) fn broadcast(of: &'a Tensor, to: &[i64], shape: &[i64]) -> Result<Option<View<'a>>> {
        let facts = of.facts()?;
        // SAFETY: as above.
        let (sizes, strides) = unsafe { facts.axes() };
        let Some(before) = to.len().checked_sub(sizes.len()) else { return Ok(None) };
        let mut repeated: Axes = to.iter().map(|_| 0).collect();
        for (axis, (&size, &stride)) in sizes.iter().zip(strides).enumerate() {
            match (size, to[before + axis]) {
                (size, wanted) if size == wanted => repeated[before + axis] = stride,
                (1, _) => {}
                _ => return Ok(None),
            }
        }
        View::shaped(of, facts, (to, &repeated), shape).map(Some)
    }

    fn shaped(
        of: &'a Tensor,
        facts: TensorFacts,
        (sizes, strides): (&[i64], &[i64]),
        shape: &[i64],
    ) -> Result<View<'a>> {
        if let Some(strides) = strides_of(sizes, strides, shape) {
            return Ok(View::with(facts, Some((shape.into(), strides))));
        }
        let copy = of.copy_as(sizes)?;
        let facts = copy.facts()?;
        Ok(View { _kept: Some(copy), ..View::with(facts, Some((shape.into(), contiguous(shape)))) })
    }

    /// The tensor of DLPack. It is valid as long as this one stays where it is.
    pub(super) fn settle(&mut self) -> &DLTensor {
        if let Some((sizes, strides)) = &mut self.axes {
            self.tensor.ndim = i32::try_from(sizes.len()).unwrap_or(i32::MAX);
            self.tensor.shape = sizes.as_mut_ptr();
            self.tensor.strides = strides.as_mut_ptr();
        }
        &self.tensor
    }
}

/// The strides of a tensor in another shape of as many elements, if its memory has them.
fn strides_of(sizes: &[i64], strides: &[i64], shape: &[i64]) -> Option<Axes> {
    if sizes.contains(&0) {
        return Some(contiguous(shape));
    }
    let mut found: Axes = shape.iter().map(|_| 1).collect();
    // From the last axis on, axes that follow each other without gaps are one piece, which new axes cut.
    let mut left = shape.len();
    let mut axes = sizes.iter().zip(strides).rev().filter(|(size, _)| **size != 1).peekable();
    while let Some((&size, &step)) = axes.next() {
        let (mut piece, mut at) = (size, step);
        while let Some((&size, _)) = axes.next_if(|(_, stride)| **stride == piece * step) {
            piece *= size;
        }
        while piece > 1 {
            left = left.checked_sub(1)?;
            if piece % shape[left] != 0 {
                return None;
            }
            found[left] = at;
            at *= shape[left];
            piece /= shape[left];
        }
    }
    // Axes of one element that are left have any stride.
    shape[..left].iter().all(|&size| size == 1).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::strides_of;

    fn strides(sizes: &[i64], of: &[i64], shape: &[i64]) -> Option<Vec<i64>> {
        strides_of(sizes, of, shape).map(|found| found.to_vec())
    }

    #[test]
    fn axes_are_merged_and_cut_where_memory_allows_it() {
        assert_eq!(strides(&[3, 11, 40], &[440, 40, 1], &[33, 40]), Some(vec![40, 1]));
        // Rows with gaps between them.
        assert_eq!(strides(&[3, 11, 40], &[1100, 100, 1], &[33, 40]), Some(vec![100, 1]));
        assert_eq!(strides(&[3, 11, 40], &[880, 40, 1], &[33, 40]), None);
        assert_eq!(strides(&[11, 3, 40], &[40, 440, 1], &[33, 40]), None);
        assert_eq!(strides(&[5], &[2], &[1, 5]).map(|s| s[1]), Some(2));
        assert_eq!(strides(&[1, 1, 8], &[7, 9, 3], &[1, 8]).map(|s| s[1]), Some(3));
        assert_eq!(strides(&[6, 3, 16], &[96, 32, 2], &[6, 3, 2, 8]), Some(vec![96, 32, 16, 2]));
        assert_eq!(strides(&[6, 3, 16], &[48, 16, 1], &[6, 3, 8, 2]), Some(vec![48, 16, 2, 1]));
        // What is repeated is one piece only if all of it is.
        assert_eq!(strides(&[2, 7, 8], &[0, 0, 1], &[14, 8]), Some(vec![0, 1]));
        assert_eq!(strides(&[2, 7, 8], &[0, 8, 1], &[14, 8]), None);
        assert_eq!(strides(&[0, 7], &[7, 1], &[0, 7]), Some(vec![7, 1]));
        assert_eq!(strides(&[], &[], &[1]), Some(vec![1]));
        assert_eq!(strides(&[4, 6], &[6, 1], &[3, 8]), Some(vec![8, 1]));
        assert_eq!(strides(&[4, 6], &[7, 1], &[3, 8]), None);
    }
}
