//! The requirements of a flat bulk copy on its addresses and its size.

use crate::fault::{Fault, FaultKind, Result};

/// Addresses and sizes of bulk copies are multiples of this.
pub const GRAIN: u64 = 16;

/// Refuses a bulk copy of `bytes` bytes between these addresses if any is not a multiple of 16.
pub fn check(destination: u64, source: u64, bytes: u32) -> Result<()> {
    for (name, address) in [("destination", destination), ("source", source)] {
        if !address.is_multiple_of(GRAIN) {
            let message = format!("bulk copy: the {name} {address:#x} is not a multiple of {GRAIN}");
            return Err(Fault::new(FaultKind::Misaligned, message));
        }
    }
    if !u64::from(bytes).is_multiple_of(GRAIN) {
        let message = format!("bulk copy: {bytes} bytes are not a multiple of {GRAIN}");
        return Err(Fault::new(FaultKind::Illegal, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_of_sixteen_only() {
        assert!(check(0x1000, 0x20, 48).is_ok());
        let kind = |d, s, n| check(d, s, n).unwrap_err().kind;
        assert_eq!(kind(0x1008, 0x20, 48), FaultKind::Misaligned);
        assert_eq!(kind(0x1000, 0x21, 48), FaultKind::Misaligned);
        assert_eq!(kind(0x1000, 0x20, 40), FaultKind::Illegal);
    }
}
