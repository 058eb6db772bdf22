//! Strands: the lanes of a warp that run together, how they diverge at branches and where they reconverge.

use super::mbarrier::Key;

/// No divergence, no meeting point.
pub(crate) const NONE: u32 = u32::MAX;

/// Why a strand does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Ready,
    /// At an instruction that lanes of other strands must also reach.
    Converge {
        needed: u32,
        aligned: bool,
    },
    /// At `bar.warp.sync`, which other strands may pass at another instruction.
    WarpBarrier {
        mask: u32,
    },
    Barrier {
        id: u8,
    },
    /// At `barrier.cluster.wait`.
    Cluster,
    /// At `wgmma.mma_async`, for the other warps of the warpgroup.
    Warpgroup,
    /// At `mbarrier.try_wait`.
    Mbarrier {
        key: Key,
    },
}

/// Lanes that share a program counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strand {
    pub(crate) pc: u32,
    pub(crate) mask: u32,
    pub(crate) wait: Wait,
    /// The next `mbarrier.try_wait` answers instead of waiting.
    pub(crate) poll: bool,
    /// The innermost open divergence.
    group: u32,
    /// Where the lanes of that divergence meet.
    join: u32,
}

impl Strand {
    /// True where the innermost divergence ends.
    pub(crate) fn joins(&self, pc: u32) -> bool {
        pc == self.join
    }
}

/// An open divergence: lanes that have not reached `pc`, and lanes that have.
#[derive(Clone, Copy, Debug)]
struct Group {
    pc: u32,
    parent: u32,
    pending: u32,
    arrived: u32,
}

/// The strands of a warp.
#[derive(Clone, Debug)]
pub(crate) struct Strands {
    list: Vec<Strand>,
    groups: Vec<Group>,
    free: Vec<u32>,
    /// Lanes that have not exited.
    live: u32,
}

impl Strands {
    /// One strand at the entry.
    pub(crate) fn new(mask: u32) -> Strands {
        let first = Strand { pc: 0, mask, wait: Wait::Ready, poll: false, group: NONE, join: NONE };
        Strands { list: vec![first], groups: Vec::new(), free: Vec::new(), live: mask }
    }

    /// Lanes that have not exited.
    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    /// All strands that are not waiting to meet others.
    pub(crate) fn list(&self) -> &[Strand] {
        &self.list
    }

    /// A strand by its index.
    pub(crate) fn get(&self, s: usize) -> Option<Strand> {
        self.list.get(s).copied()
    }

    /// Writes a strand's program counter. The caller handles joins.
    pub(crate) fn set_pc(&mut self, s: usize, pc: u32) {
        if let Some(strand) = self.list.get_mut(s) {
            strand.pc = pc;
        }
    }

    /// Blocks or wakes a strand.
    pub(crate) fn set_wait(&mut self, s: usize, wait: Wait) {
        if let Some(strand) = self.list.get_mut(s) {
            strand.wait = wait;
        }
    }

    /// True if the next `mbarrier.try_wait` of a strand answers instead of waiting.
    pub(crate) fn set_poll(&mut self, s: usize, poll: bool) {
        if let Some(strand) = self.list.get_mut(s) {
            strand.poll = poll;
        }
    }

    /// Wakes strands that wait at mbarriers, so that they answer "not complete"; true if there are any.
    pub(crate) fn wake_polls(&mut self) -> bool {
        let mut any = false;
        for strand in self.list.iter_mut().filter(|s| matches!(s.wait, Wait::Mbarrier { .. })) {
            (strand.wait, strand.poll, any) = (Wait::Ready, true, true);
        }
        any
    }

    /// Wakes every strand that waits in this way.
    pub(crate) fn wake(&mut self, which: impl Fn(Wait) -> bool) {
        for strand in self.list.iter_mut().filter(|s| which(s.wait)) {
            strand.wait = Wait::Ready;
        }
    }

    /// Moves a strand to the next instruction. True if it ended there, at the end of its divergence.
    pub(crate) fn advance(&mut self, s: usize) -> bool {
        let Some(strand) = self.list.get_mut(s) else { return true };
        strand.pc += 1;
        strand.wait = Wait::Ready;
        if strand.pc != strand.join {
            return false;
        }
        self.arrive(s);
        true
    }

    /// Ends a strand at the meeting point of its divergence.
    pub(crate) fn arrive(&mut self, s: usize) {
        if s < self.list.len() {
            let strand = self.list.remove(s);
            self.place(strand.mask, strand.pc, strand.group);
        }
    }

    /// Splits a strand into parts with their own program counters, which meet at `meet`.
    pub(crate) fn split(&mut self, s: usize, parts: &[(u32, u32)], meet: Option<u32>) {
        if s >= self.list.len() {
            return;
        }
        let strand = self.list.remove(s);
        let group = match meet {
            Some(pc) if strand.join != pc => {
                self.open(Group { pc, parent: strand.group, pending: strand.mask, arrived: 0 })
            }
            _ => strand.group,
        };
        for &(mask, pc) in parts.iter().filter(|part| part.0 != 0) {
            self.place(mask, pc, group);
        }
    }

    fn open(&mut self, group: Group) -> u32 {
        if let Some(at) = self.free.pop() {
            self.groups[at as usize] = group;
            return at;
        }
        self.groups.push(group);
        (self.groups.len() - 1) as u32
    }

    fn close(&mut self, at: u32) {
        self.groups[at as usize] = Group { pc: NONE, parent: NONE, pending: 0, arrived: 0 };
        self.free.push(at);
    }

    /// Moves lanes to an instruction within a divergence, through all divergences that end there.
    fn place(&mut self, mut mask: u32, pc: u32, mut group: u32) {
        while let Some(g) = self.groups.get_mut(group as usize)
            && g.pc == pc
        {
            g.arrived |= mask;
            g.pending &= !mask;
            if g.pending != 0 {
                return;
            }
            mask = g.arrived;
            let parent = g.parent;
            self.close(group);
            group = parent;
        }
        let join = self.groups.get(group as usize).map_or(NONE, |g| g.pc);
        self.list.push(Strand { pc, mask, wait: Wait::Ready, poll: false, group, join });
    }

    /// Removes lanes from the divergences from `group` up to `above`, permanently.
    fn leave(&mut self, lanes: u32, group: u32, above: u32) {
        let mut at = group;
        while at != above
            && let Some(g) = self.groups.get_mut(at as usize)
        {
            g.pending &= !lanes;
            let (parent, done, arrived, pc) = (g.parent, g.pending == 0, g.arrived, g.pc);
            if done {
                self.close(at);
                if arrived != 0 {
                    self.place(arrived, pc, parent);
                }
            }
            at = parent;
        }
    }

    /// Lanes of a strand exit. True if no lane of it is left.
    pub(crate) fn exit(&mut self, s: usize, lanes: u32) -> bool {
        let Some(strand) = self.list.get_mut(s) else { return true };
        strand.mask &= !lanes;
        let (group, gone) = (strand.group, strand.mask == 0);
        self.live &= !lanes;
        if gone {
            self.list.remove(s);
        }
        self.leave(lanes, group, NONE);
        self.wake(|wait| matches!(wait, Wait::Converge { .. } | Wait::WarpBarrier { .. }));
        gone
    }

    /// Merges strand `t` into strand `s`. Both are at one instruction, and the result is ready.
    pub(crate) fn merge(&mut self, s: usize, t: usize) {
        let (Some(a), Some(b)) = (self.get(s), self.get(t)) else { return };
        if s == t || a.pc != b.pc {
            return;
        }
        let above = self.common(a.group, b.group);
        let join = self.groups.get(above as usize).map_or(NONE, |g| g.pc);
        self.list[s] = Strand { pc: a.pc, mask: a.mask | b.mask, wait: Wait::Ready, poll: false, group: above, join };
        self.list.remove(t);
        self.leave(a.mask, a.group, above);
        self.leave(b.mask, b.group, above);
    }

    /// The innermost common divergence of two.
    fn common(&self, a: u32, b: u32) -> u32 {
        let parents = |from: u32| {
            std::iter::successors((from != NONE).then_some(from), |&g| {
                self.groups.get(g as usize).map(|g| g.parent).filter(|&p| p != NONE)
            })
        };
        parents(a).find(|&g| parents(b).any(|h| h == g)).unwrap_or(NONE)
    }

    /// Lanes that wait where a divergence ends.
    pub(crate) fn arrived(&self) -> u32 {
        self.groups.iter().fold(0, |all, g| all | g.arrived)
    }

    /// Lets lanes that wait for others continue without them; true if there were any.
    pub(crate) fn release_arrived(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.groups.len() {
            let Group { pc, parent, arrived, .. } = self.groups[at];
            if arrived != 0 {
                self.groups[at].arrived = 0;
                self.place(arrived, pc, parent);
                any = true;
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masks(strands: &Strands) -> Vec<(u32, u32)> {
        strands.list().iter().map(|s| (s.pc, s.mask)).collect()
    }

    #[test]
    fn parts_meet_at_the_end_of_the_divergence() {
        let mut s = Strands::new(0xff);
        s.split(0, &[(0x0f, 10), (0xf0, 1)], Some(20));
        assert_eq!(masks(&s), [(10, 0x0f), (1, 0xf0)]);
        s.set_pc(0, 19);
        assert!(s.advance(0));
        assert_eq!(masks(&s), [(1, 0xf0)]);
        s.set_pc(0, 19);
        assert!(s.advance(0));
        assert_eq!(masks(&s), [(20, 0xff)]);
    }

    #[test]
    fn nested_divergences_with_one_end_meet_there() {
        let mut s = Strands::new(0xff);
        s.split(0, &[(0x0f, 10), (0xf0, 1)], Some(20));
        s.split(0, &[(0x03, 12), (0x0c, 11)], Some(20));
        for at in [1, 0, 0] {
            s.set_pc(at, 19);
            s.advance(at);
        }
        assert_eq!(masks(&s), [(20, 0xff)]);
    }

    #[test]
    fn an_exit_frees_the_lanes_that_wait() {
        let mut s = Strands::new(0xff);
        s.split(0, &[(0x0f, 10), (0xf0, 20)], Some(20));
        assert_eq!((masks(&s), s.arrived()), (vec![(10, 0x0f)], 0xf0));
        assert!(!s.exit(0, 0x03));
        assert_eq!(s.arrived(), 0xf0);
        assert!(s.exit(0, 0x0c));
        assert_eq!((masks(&s), s.live()), (vec![(20, 0xf0)], 0xf0));
    }

    #[test]
    fn merging_leaves_the_inner_divergence() {
        let mut s = Strands::new(0xff);
        s.split(0, &[(0x0f, 10), (0xf0, 1)], Some(20));
        s.split(0, &[(0x03, 30), (0x0c, 11)], Some(15));
        s.set_pc(0, 30);
        let (a, b) = (0, 1);
        assert_eq!(masks(&s)[b], (30, 0x03));
        s.merge(a, b);
        assert_eq!(masks(&s)[0], (30, 0xf3));
        // The other lanes of the inner divergence go on alone.
        let at = s.list().iter().position(|x| x.mask == 0x0c).unwrap();
        s.set_pc(at, 14);
        s.advance(at);
        assert!(masks(&s).contains(&(15, 0x0c)));
    }

    #[test]
    fn lanes_may_go_on_without_the_others() {
        let mut s = Strands::new(0xff);
        s.split(0, &[(0x0f, 10), (0xf0, 20)], Some(20));
        assert!(s.release_arrived());
        assert_eq!(masks(&s), [(10, 0x0f), (20, 0xf0)]);
        s.set_pc(0, 19);
        s.advance(0);
        assert!(masks(&s).contains(&(20, 0x0f)));
    }
}
