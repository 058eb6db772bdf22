//! Walks two strided boxes of equal extents together, row by row.

/// The innermost axis of a walk: the number of elements, and the step of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Elements of a row.
    pub(crate) count: usize,
    /// Step of the first side, in elements.
    pub(crate) a: i64,
    /// Step of the second side, in elements.
    pub(crate) b: i64,
}

/// Two strided boxes. Axes that are contiguous on both sides are merged.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    /// The innermost axis.
    pub(crate) row: Row,
    /// The other axes, outermost first.
    outer: Vec<Row>,
    start: (i64, i64),
}

impl Walk {
    /// A walk over `axes`, outermost first, from the given first elements; `None` if it has no element.
    pub(crate) fn new(axes: impl DoubleEndedIterator<Item = Row>, a: i64, b: i64) -> Option<Walk> {
        let mut merged: Vec<Row> = Vec::new();
        for axis in axes.rev() {
            match merged.last_mut() {
                _ if axis.count == 0 => return None,
                _ if axis.count == 1 => {}
                Some(inner) if axis.a == inner.count as i64 * inner.a && axis.b == inner.count as i64 * inner.b => {
                    inner.count *= axis.count;
                }
                _ => merged.push(axis),
            }
        }
        merged.reverse();
        let row = merged.pop().unwrap_or(Row { count: 1, a: 1, b: 1 });
        Some(Walk { row, outer: merged, start: (a, b) })
    }

    /// Calls `f` with the first element of every row on both sides.
    pub(crate) fn rows(&self, mut f: impl FnMut(usize, usize)) {
        let mut at = vec![0usize; self.outer.len()];
        let (mut a, mut b) = self.start;
        loop {
            f(a as usize, b as usize);
            let mut axis = self.outer.len();
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                let step = self.outer[axis];
                at[axis] += 1;
                a += step.a;
                b += step.b;
                if at[axis] < step.count {
                    break;
                }
                at[axis] = 0;
                a -= step.count as i64 * step.a;
                b -= step.count as i64 * step.b;
            }
        }
    }

    /// Copies the second box into the first.
    pub(crate) fn copy<T: Copy>(&self, to: &mut [T], from: &[T]) {
        let Row { count, a: step_a, b: step_b } = self.row;
        self.rows(|a, b| match (step_a, step_b) {
            (1, 1) => to[a..a + count].copy_from_slice(&from[b..b + count]),
            (1, 0) => to[a..a + count].fill(from[b]),
            _ => {
                for i in 0..count as i64 {
                    to[(a as i64 + i * step_a) as usize] = from[(b as i64 + i * step_b) as usize];
                }
            }
        });
    }
}

/// Steps of a dense row-major box.
pub(crate) fn dense_strides(extents: impl DoubleEndedIterator<Item = u64> + ExactSizeIterator) -> Vec<i64> {
    let mut strides = vec![1; extents.len()];
    let mut inner = 1i64;
    for (stride, extent) in strides.iter_mut().rev().zip(extents.rev()) {
        *stride = inner;
        inner = inner.saturating_mul(i64::try_from(extent).unwrap_or(i64::MAX));
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(count: usize, a: i64, b: i64) -> Row {
        Row { count, a, b }
    }

    #[test]
    fn merges_what_lies_end_to_end() {
        let w = Walk::new([row(3, 20, 40), row(4, 5, 10), row(5, 1, 2)].into_iter(), 0, 0).unwrap();
        assert_eq!((w.row, w.outer.len()), (row(60, 1, 2), 0));
        assert!(Walk::new([row(3, 1, 1), row(0, 1, 1)].into_iter(), 0, 0).is_none());
    }

    #[test]
    fn copies_a_transpose() {
        let from: Vec<u32> = (0..6).collect();
        let mut to = vec![0; 6];
        Walk::new([row(3, 2, 1), row(2, 1, 3)].into_iter(), 0, 0).unwrap().copy(&mut to, &from);
        assert_eq!(to, [0, 3, 1, 4, 2, 5]);
    }
}
