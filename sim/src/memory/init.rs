//! Tracks which bytes of a region are initialised.

/// A set of bytes. The set of all bytes takes no memory.
#[derive(Clone, Debug)]
pub(super) enum Init {
    All,
    /// One bit a byte.
    Some(Vec<u64>),
}

impl Init {
    pub(super) fn none(len: usize) -> Init {
        Init::Some(vec![0; len.div_ceil(64)])
    }

    /// The first uninitialised byte of a range.
    #[inline]
    pub(super) fn missing(&self, offset: u64, len: u64) -> Option<u64> {
        let Init::Some(bits) = self else { return None };
        if offset % 64 + len <= 64
            && len < 64
            && let Some(word) = bits.get((offset / 64) as usize)
        {
            let holes = (!word >> (offset % 64)) & ((1 << len) - 1);
            return (holes != 0).then(|| offset + u64::from(holes.trailing_zeros()));
        }
        words(offset, len).find_map(|(word, mask, base)| {
            let holes = mask & !bits.get(word).copied().unwrap_or(0);
            (holes != 0).then(|| base + u64::from(holes.trailing_zeros()))
        })
    }

    #[inline]
    pub(super) fn set(&mut self, offset: u64, len: u64, value: bool) {
        let Init::Some(bits) = self else { return };
        if value
            && offset % 64 + len <= 64
            && len < 64
            && let Some(word) = bits.get_mut((offset / 64) as usize)
        {
            *word |= ((1 << len) - 1) << (offset % 64);
            return;
        }
        for (word, mask, _) in words(offset, len) {
            if let Some(bits) = bits.get_mut(word) {
                *bits = if value { *bits | mask } else { *bits & !mask };
            }
        }
    }

    /// The same, for a set that may have been all.
    pub(super) fn clear(&mut self, offset: u64, len: u64, size: usize) {
        if matches!(self, Init::All) {
            *self = Init::Some(vec![u64::MAX; size.div_ceil(64)]);
        }
        self.set(offset, len, false);
    }
}

/// Words of the set that a range meets: index, mask of the range's bits, first byte.
fn words(offset: u64, len: u64) -> impl Iterator<Item = (usize, u64, u64)> {
    let end = offset.saturating_add(len);
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let base = at & !63;
        let bits = (end - at).min(base + 64 - at);
        let ones = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let item = ((base / 64) as usize, ones << (at - base), base);
        at += bits;
        Some(item)
    })
}
