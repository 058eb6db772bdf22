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
    // The distinct words so far, each with the one before it in the same bank; 0 for none, and else an index plus 1.
    let mut met = [(0u32, 0u8); 64];
    let (mut latest, mut counts) = ([0u8; BANKS as usize], [0u32; BANKS as usize]);
    let mut count = 0u8;
    for &offset in lanes.iter().flatten() {
        for word in offset / 4..(offset / 4).saturating_add(words) {
            let bank = (word % BANKS) as usize;
            let mut at = latest[bank];
            while let Some(&(other, before)) = usize::from(at).checked_sub(1).and_then(|at| met.get(at))
                && other != word
            {
                at = before;
            }
            if at == 0
                && let Some(slot) = met.get_mut(usize::from(count))
            {
                *slot = (word, latest[bank]);
                count += 1;
                latest[bank] = count;
                counts[bank] += 1;
            }
        }
    }
    counts.into_iter().max().unwrap_or(0)
}
