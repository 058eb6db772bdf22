//! Addresses: the windows of generic addresses, and the meaning of an address in each space.

use crate::syntax::ast::Space;

/// The start of a space among generic addresses. Each window is 2^40 bytes.
const WINDOWS: [(Space, u64); 4] = [
    (Space::Shared, 0x7e00_0000_0000),
    (Space::Local, 0x7d00_0000_0000),
    (Space::Param, 0x7c00_0000_0000),
    (Space::Const, 0x7b00_0000_0000),
];
const WINDOW_BITS: u32 = 40;

/// Bits of an offset in the shared memory of a CTA. Above them is the rank plus one, or 0 for the CTA itself.
pub(crate) const RANK_SHIFT: u32 = 24;
const OFFSET_MASK: u64 = (1 << RANK_SHIFT) - 1;

/// A place in memory, as one lane sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Global(u64),
    /// The rank in the cluster, or `None` for the CTA itself, and the offset.
    Shared(Option<u32>, u64),
    Local(u64),
    Param(u64),
    Const(u64),
}

fn shared(address: u64) -> Target {
    let rank = (address >> RANK_SHIFT) as u32;
    Target::Shared(rank.checked_sub(1), address & OFFSET_MASK)
}

/// The place that an address in a space names.
pub(crate) fn target(space: Space, address: u64) -> Target {
    match space {
        Space::Global => Target::Global(address),
        // Shared addresses are 32 bits wide, whatever register holds them.
        Space::Shared | Space::SharedCluster if address >> 32 == 0 => shared(address),
        Space::Shared | Space::SharedCluster => match window(address) {
            Some((Space::Shared, _)) | None => shared(address & 0xffff_ffff),
            Some(_) => Target::Global(address),
        },
        Space::Local => Target::Local(address),
        Space::Param => Target::Param(address),
        Space::Const => Target::Const(address),
        Space::Generic => match window(address) {
            Some((Space::Shared, at)) => shared(at),
            Some((Space::Local, at)) => Target::Local(at),
            Some((Space::Param, at)) => Target::Param(at),
            Some((Space::Const, at)) => Target::Const(at),
            _ => Target::Global(address),
        },
    }
}

/// The space whose window holds a generic address, and the address in it.
fn window(address: u64) -> Option<(Space, u64)> {
    let found = WINDOWS.iter().find(|(_, base)| address >> WINDOW_BITS == base >> WINDOW_BITS)?;
    Some((found.0, address - found.1))
}

/// `cvta`: an address of a space as a generic one.
pub(crate) fn to_generic(space: Space, address: u64) -> u64 {
    let space = if space == Space::SharedCluster { Space::Shared } else { space };
    WINDOWS.iter().find(|w| w.0 == space).map_or(address, |w| w.1.wrapping_add(address))
}

/// `cvta.to`: a generic address as one of a space.
pub(crate) fn from_generic(space: Space, address: u64) -> u64 {
    let space = if space == Space::SharedCluster { Space::Shared } else { space };
    WINDOWS.iter().find(|w| w.0 == space).map_or(address, |w| address.wrapping_sub(w.1))
}

/// `isspacep`, for a CTA of this rank.
pub(crate) fn is_in(space: Space, address: u64, rank: u32) -> bool {
    match (space, target(Space::Generic, address)) {
        (Space::Global, Target::Global(_))
        | (Space::Local, Target::Local(_))
        | (Space::Param, Target::Param(_))
        | (Space::Const, Target::Const(_))
        | (Space::SharedCluster, Target::Shared(..)) => true,
        (Space::Shared, Target::Shared(of, _)) => of.is_none_or(|of| of == rank),
        _ => false,
    }
}

/// `mapa`: the address of the same variable in the CTA of a rank.
pub(crate) fn mapa(address: u64, rank: u64, generic: bool) -> u64 {
    let space = if generic { Space::Generic } else { Space::Shared };
    let Target::Shared(_, offset) = target(space, address) else { return address };
    let there = ((rank + 1) << RANK_SHIFT) | offset;
    if generic { to_generic(Space::Shared, there) } else { there }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_addresses_go_back_to_their_space() {
        for space in [Space::Shared, Space::Local, Space::Param, Space::Const, Space::Global] {
            let generic = to_generic(space, 0x40);
            assert_eq!(from_generic(space, generic), 0x40);
            assert_eq!(target(Space::Generic, generic), target(space, 0x40));
            assert!(is_in(space, generic, 0));
        }
        assert!(!is_in(Space::Global, to_generic(Space::Shared, 0), 0));
    }

    #[test]
    fn mapa_names_the_cta_of_a_rank() {
        let there = mapa(0x40, 3, false);
        assert_eq!(target(Space::SharedCluster, there), Target::Shared(Some(3), 0x40));
        assert_eq!(mapa(there, 1, false), mapa(0x40, 1, false));
        let generic = mapa(to_generic(Space::Shared, 0x40), 2, true);
        assert_eq!(target(Space::Generic, generic), Target::Shared(Some(2), 0x40));
        assert!(is_in(Space::Shared, generic, 2) && !is_in(Space::Shared, generic, 1));
        assert!(is_in(Space::SharedCluster, generic, 1));
    }
}
