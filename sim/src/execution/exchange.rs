//! Exchange between the lanes of a warp: `shfl`, `vote`, `match`, `redux`, `elect`.

use super::warp::{LANES, Warp, lanes};
use crate::fault::{Fault, FaultKind, Result};
use crate::program::{Op, ShflMode, VoteOp};
use crate::tensor::WarpRegister;

/// The operation of an exchange. The lanes of `exec` take part, each with the lanes in its member mask.
pub(crate) fn exchange(warp: &mut Warp, op: &Op, exec: u32) -> Result<()> {
    match op {
        Op::Shfl { mode, dst, pred, src, lane, clamp, mask } => {
            let [src, lane, clamp, mask] = [src, lane, clamp, mask].map(|s| warp.row(*s));
            let (mut values, mut inside) = ([0; LANES], 0u32);
            for l in lanes(exec) {
                let (from, ok) = source(*mode, l as i64, lane[l], clamp[l]);
                if (mask[l] as u32 & exec) >> from & 1 == 0 {
                    let message = format!("lane {l} shuffles from lane {from}, which does not take part");
                    return Err(Fault::new(FaultKind::Divergent, message));
                }
                values[l] = src[from];
                inside |= u32::from(ok) << l;
            }
            warp.write(*dst, exec, &values);
            if let Some(pred) = pred {
                warp.write_pred(*pred, exec, inside);
            }
        }
        Op::Vote { op, src, mask } => {
            let (bits, mask) = (warp.pred(*src), warp.row(*mask));
            let (mut truth, mut ballots) = (0u32, [0; LANES]);
            for l in lanes(exec) {
                let members = mask[l] as u32 & exec;
                let ballot = bits & members;
                let holds = match op {
                    VoteOp::All(_) => ballot == members,
                    VoteOp::Any(_) => ballot != 0,
                    VoteOp::Uni(_) => ballot == 0 || ballot == members,
                    VoteOp::Ballot(_) => false,
                };
                truth |= u32::from(holds) << l;
                ballots[l] = u64::from(ballot);
            }
            match op {
                VoteOp::All(p) | VoteOp::Any(p) | VoteOp::Uni(p) => warp.write_pred(*p, exec, truth),
                VoteOp::Ballot(d) => warp.write(*d, exec, &ballots),
            }
        }
        Op::Match { all, dst, pred, src, mask, bits } => {
            let (values, mask) = (warp.row(*src), warp.row(*mask));
            let ones = super::arith::low_bits(u32::from(*bits));
            let (mut found, mut truth) = ([0; LANES], 0u32);
            for l in lanes(exec) {
                let members = mask[l] as u32 & exec;
                let equal = |m: usize| (values[m] ^ values[l]) & ones == 0;
                let same = lanes(members).filter(|&m| equal(m)).fold(0u32, |same, m| same | 1 << m);
                let whole = same == members;
                found[l] = if *all && !whole { 0 } else { u64::from(same) };
                truth |= u32::from(whole) << l;
            }
            warp.write(*dst, exec, &found);
            if let Some(pred) = pred {
                warp.write_pred(*pred, exec, truth);
            }
        }
        Op::Redux { f, dst, src, mask } => {
            let (values, mask) = (warp.row(*src), warp.row(*mask));
            let mut folded: WarpRegister = [0; LANES];
            for l in lanes(exec) {
                let members = lanes(mask[l] as u32 & exec).map(|m| values[m]);
                folded[l] = members.reduce(|a, b| f(a, b, 0, 0)).unwrap_or(0);
            }
            warp.write(*dst, exec, &folded);
        }
        Op::Elect { dst, pred, mask } => {
            let mask = warp.row(*mask);
            let leader = |l: usize| (mask[l] as u32 & exec).trailing_zeros();
            let chosen = lanes(exec).fold(0u32, |bits, l| bits | u32::from(leader(l) == l as u32) << l);
            let leaders = std::array::from_fn(|l| u64::from(leader(l)));
            if let Some(dst) = dst {
                warp.write(*dst, exec, &leaders);
            }
            if let Some(pred) = pred {
                warp.write_pred(*pred, exec, chosen);
            }
        }
        _ => {}
    }
    Ok(())
}

/// The lane that a shuffle reads, and whether it is within the segment. If it is not, a lane reads itself.
fn source(mode: ShflMode, lane: i64, by: u64, clamp: u64) -> (usize, bool) {
    let by = (by & 0x1f) as i64;
    let segment = (clamp >> 8 & 0x1f) as i64;
    let first = lane & segment;
    let limit = first | (clamp as i64 & 0x1f & !segment);
    let (from, ok) = match mode {
        ShflMode::Up => (lane - by, lane - by >= limit),
        ShflMode::Down => (lane + by, lane + by <= limit),
        ShflMode::Bfly => (lane ^ by, lane ^ by <= limit),
        ShflMode::Idx => (first | (by & !segment), first | (by & !segment) <= limit),
    };
    if ok { (from as usize & 0x1f, true) } else { (lane as usize, false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffles_stay_in_their_segment() {
        // Segments of eight lanes: mask 0x18 in the upper bits.
        let c = |clamp: u64| 0x18 << 8 | clamp;
        assert_eq!(source(ShflMode::Down, 6, 1, c(0x1f)), (7, true));
        assert_eq!(source(ShflMode::Down, 7, 1, c(0x1f)), (7, false));
        assert_eq!(source(ShflMode::Up, 9, 1, c(0)), (8, true));
        assert_eq!(source(ShflMode::Up, 8, 1, c(0)), (8, false));
        assert_eq!(source(ShflMode::Bfly, 9, 16, 0x1f), (25, true));
        assert_eq!(source(ShflMode::Idx, 13, 2, c(0x1f)), (10, true));
        assert_eq!(source(ShflMode::Idx, 3, 31, 0x1f), (31, true));
    }
}
