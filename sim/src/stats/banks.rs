//! Conflicts of the 32 banks of shared memory, each 4 bytes wide.

const BANKS: u32 = 32;

/// The passes that the width of a request needs, and the passes that it takes with its conflicts.
pub(super) fn wavefronts(offsets: &[Option<u32>; 32], bytes: u32) -> (u32, u32) {
    // A pass serves at most 32 words: wide accesses go by halves and quarters of the warp.
    let words = bytes.div_ceil(4).max(1);
    let lanes = (BANKS / words.min(BANKS)).next_power_of_two() as usize;
    let (mut needed, mut taken) = (0, 0);
    for phase in offsets.chunks(lanes) {
        let conflicts = phase_wavefronts(phase, words);
        if conflicts > 0 {
            needed += 1;
            taken += conflicts;
        }
    }
    (needed, taken)
}

/// The largest number of distinct words in one bank.
fn phase_wavefronts(lanes: &[Option<u32>], words: u32) -> u32 {
    let (mut used, mut served) = (0u32, [0u32; BANKS as usize]);
    for &offset in lanes.iter().flatten() {
        for word in offset / 4..(offset / 4).saturating_add(words) {
            let bank = word % BANKS;
            let Some(slot) = served.get_mut(bank as usize) else { continue };
            if used >> bank & 1 == 0 {
                used |= 1 << bank;
                *slot = word;
            } else if *slot != word {
                return conflicting(lanes, words);
            }
        }
    }
    u32::from(used != 0)
}

/// The same, if some bank has more than one.
fn conflicting(lanes: &[Option<u32>], words: u32) -> u32 {
    let mut touched = [0u32; 64];
    let mut count = 0;
    for &offset in lanes.iter().flatten() {
        for word in offset / 4..(offset / 4).saturating_add(words) {
            if let Some(slot) = touched.get_mut(count) {
                *slot = word;
                count += 1;
            }
        }
    }
    let Some(touched) = touched.get_mut(..count) else { return 0 };
    touched.sort_unstable();
    let mut banks = [0u32; BANKS as usize];
    let mut before = None;
    for &word in touched.iter() {
        if before != Some(word)
            && let Some(bank) = banks.get_mut((word % BANKS) as usize)
        {
            *bank += 1;
        }
        before = Some(word);
    }
    banks.into_iter().max().unwrap_or(0)
}
