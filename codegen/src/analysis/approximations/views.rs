//! Maps each element of a value to the element of another value that it is, through broadcasts, reshapes and transposes.

use atlas_dsl::Value;
use atlas_dsl::ir::Kernel;
use atlas_dsl::op::Op;

/// A value whose elements are elements of `root`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) root: Value,
    /// For each axis of the root, the matching axis of the value; `None` if it has one element.
    along: Vec<Option<u8>>,
}

impl View {
    pub(super) fn of(kernel: &Kernel, v: Value) -> View {
        let shape = &kernel.ty(v).shape;
        let along = (0..).zip(shape).map(|(axis, &n)| (n > 1).then_some(axis)).collect();
        View { root: v, along }.seen_through(kernel)
    }

    /// The view of an operand of the root, if the root is computed element by element.
    pub(super) fn operand(&self, kernel: &Kernel, operand: Value) -> View {
        if kernel.ty(operand).shape != kernel.ty(self.root).shape {
            return View::of(kernel, operand);
        }
        View { root: operand, along: self.along.clone() }.seen_through(kernel)
    }

    /// True if each element is the maximum of some elements of a value in `reduced`, among them the element of `other` at the
    /// same position. The root reduces `reduced` along `axes`.
    pub(super) fn covers(&self, kernel: &Kernel, reduced: Value, axes: &[u8], other: &View) -> bool {
        let whole = View::of(kernel, reduced);
        whole.root == other.root
            && whole.along.iter().zip(&other.along).all(|(of_whole, of_other)| match of_whole {
                Some(axis) => axes.contains(axis) || self.along.get(usize::from(*axis)) == Some(of_other),
                None => true,
            })
    }

    fn seen_through(mut self, kernel: &Kernel) -> View {
        loop {
            let (value, along) = match kernel.def_op(self.root) {
                Some((_, &Op::Broadcast { value, .. })) => {
                    let new = self.along.len().saturating_sub(kernel.ty(value).shape.len());
                    (value, self.along.split_off(new))
                }
                Some((_, Op::Reshape { value, axes })) => {
                    let rank = kernel.ty(*value).shape.len();
                    let of = |axis: usize| {
                        let at = axes.iter().position(|a| a.is_some_and(|a| usize::from(a) == axis))?;
                        self.along.get(at).copied().flatten()
                    };
                    (*value, (0..rank).map(of).collect())
                }
                Some((_, &Op::Transpose(value))) => {
                    self.along.reverse();
                    (value, std::mem::take(&mut self.along))
                }
                _ => return self,
            };
            let shape = &kernel.ty(value).shape;
            let along = along.into_iter().zip(shape).map(|(axis, &n)| axis.filter(|_| n > 1)).collect();
            self = View { root: value, along };
        }
    }
}
