//! Leading axes as one, without a copy where the strides allow it.

use candle_core::{Result, Tensor};

/// The size and the stride of leading axes as one axis; nothing if no stride makes one of them.
fn merged(dims: &[usize], strides: impl DoubleEndedIterator<Item = i64>) -> Option<(usize, i64)> {
    let mut outer: Option<(i64, i64)> = None;
    for (&size, stride) in dims.iter().rev().zip(strides.rev()).filter(|&(&size, _)| size != 1) {
        let expected = outer.map_or(stride, |(_, next)| next);
        if stride != expected && !dims.contains(&0) {
            return None;
        }
        let first = outer.map_or(stride, |(first, _)| first);
        outer = Some((first, stride.checked_mul(i64::try_from(size).ok()?)?));
    }
    Some((dims.iter().product(), outer.map_or(1, |(first, _)| first)))
}

/// A tensor whose axes but the last `kept` can be one: itself, or a contiguous copy.
pub(crate) fn mergeable(x: &Tensor, kept: usize) -> Result<Tensor> {
    let leading = x.rank().saturating_sub(kept);
    let strides = x.stride()[..leading].iter().map(|&stride| i64::try_from(stride).unwrap_or(i64::MAX));
    // What has no elements is merged whatever its strides are.
    if merged(&x.dims()[..leading], strides).is_some() { Ok(x.clone()) } else { x.contiguous() }
}

/// A view with all axes but the last `kept` as one.
///
/// # Errors
/// That of a reshape if they do not lie so.
pub(crate) fn merge(x: &atlas::Tensor, kept: usize) -> atlas::Result<atlas::Tensor> {
    let leading = x.rank().saturating_sub(kept);
    let (dims, rest) = x.shape().split_at(leading);
    let shape = |count: usize| -> Vec<usize> { std::iter::once(count).chain(rest.iter().copied()).collect() };
    let Some((count, stride)) = merged(dims, x.strides()[..leading].iter().copied()) else {
        return x.reshape(shape(dims.iter().product()));
    };
    let strides: Vec<i64> = std::iter::once(stride).chain(x.strides()[leading..].iter().copied()).collect();
    // SAFETY: it has the elements of `x`, and is used as long as that is borrowed.
    unsafe { atlas::Tensor::from_raw_parts(x.device(), x.dtype(), x.address(), shape(count), strides) }
}
