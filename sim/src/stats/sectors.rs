//! Sectors of 32 bytes that a request of global memory touches.

const SECTOR: u64 = 32;

/// Distinct sectors of the lanes' accesses.
pub(super) fn sectors(addresses: &[Option<u64>; 32], bytes: u32) -> u64 {
    let (mut distinct, mut next) = (0, 0);
    for &address in addresses.iter().flatten() {
        let (first, last) = span(address, bytes);
        if first.saturating_add(1) < next {
            return scattered(addresses, bytes);
        }
        // Addresses that rise meet again at most the sector before.
        let new = first.max(next);
        distinct += (last + 1).saturating_sub(new);
        next = next.max(last + 1);
    }
    distinct
}

/// The same for addresses in any order.
fn scattered(addresses: &[Option<u64>; 32], bytes: u32) -> u64 {
    let mut found = [0u64; 96];
    let (mut count, mut spill) = (0, 0);
    for &address in addresses.iter().flatten() {
        let (first, last) = span(address, bytes);
        for sector in first..=last {
            match found.get_mut(count) {
                Some(slot) => {
                    *slot = sector;
                    count += 1;
                }
                None => spill += 1,
            }
        }
    }
    let Some(found) = found.get_mut(..count) else { return spill };
    found.sort_unstable();
    let steps = found.windows(2).filter(|w| w.first() != w.last()).count() as u64;
    u64::from(count > 0) + steps + spill
}

/// The first and the last sector of an access.
fn span(address: u64, bytes: u32) -> (u64, u64) {
    (address / SECTOR, address.saturating_add(u64::from(bytes.max(1)) - 1) / SECTOR)
}
