//! Local memory of the lanes of a warp.

use super::warp::LANES;
use crate::fault::{Fault, FaultKind, Result};

/// A range of bytes for each lane, allocated when it is first touched.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    bytes: u64,
    data: Vec<u8>,
    written: Vec<bool>,
}

impl Local {
    /// This many bytes for each lane.
    pub(crate) fn new(bytes: u32) -> Local {
        Local { bytes: u64::from(bytes), data: Vec::new(), written: Vec::new() }
    }

    fn range(&mut self, lane: usize, offset: u64, len: usize) -> Result<std::ops::Range<usize>> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.bytes) {
            let message = format!("local address {offset:#x}, {len} bytes: a thread has {} of them", self.bytes);
            return Err(Fault::new(FaultKind::OutOfBounds, message));
        }
        if self.data.is_empty() {
            self.data = vec![0; self.bytes as usize * LANES];
            self.written = vec![false; self.data.len()];
        }
        let from = lane * self.bytes as usize + offset as usize;
        Ok(from..from + len)
    }

    /// Reads bytes that a lane has written.
    pub(crate) fn load(&mut self, lane: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        let range = self.range(lane, offset, out.len())?;
        if self.written.get(range.clone()).is_some_and(|w| w.contains(&false)) {
            let message = format!("local address {offset:#x} was never written");
            return Err(Fault::new(FaultKind::UninitializedRead, message));
        }
        if let Some(bytes) = self.data.get(range) {
            out.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Writes bytes of a lane.
    pub(crate) fn store(&mut self, lane: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let range = self.range(lane, offset, bytes.len())?;
        if let (Some(data), Some(written)) = (self.data.get_mut(range.clone()), self.written.get_mut(range)) {
            data.copy_from_slice(bytes);
            written.fill(true);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_their_own_bytes() {
        let mut local = Local::new(8);
        local.store(1, 4, &[1, 2]).unwrap();
        local.store(2, 4, &[3, 4]).unwrap();
        let mut out = [0; 2];
        local.load(1, 4, &mut out).unwrap();
        assert_eq!(out, [1, 2]);
        assert_eq!(local.load(1, 5, &mut out).unwrap_err().kind, FaultKind::UninitializedRead);
        assert_eq!(local.load(1, 7, &mut out).unwrap_err().kind, FaultKind::OutOfBounds);
        assert_eq!(local.store(1, u64::MAX, &out).unwrap_err().kind, FaultKind::OutOfBounds);
    }
}
