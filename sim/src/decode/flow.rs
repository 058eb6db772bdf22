//! Where diverging lanes reconverge: immediate post-dominators.

use crate::program::{Instr, Op};

/// No block, or none found yet.
const NONE: usize = usize::MAX;

/// Basic blocks and their edges.
pub(super) struct Graph {
    /// First instruction of each block.
    pub(super) starts: Vec<usize>,
    /// Block of each instruction.
    block_of: Vec<usize>,
    pub(super) next: Vec<Vec<usize>>,
    previous: Vec<Vec<usize>>,
    /// Blocks that the entry reaches.
    live: Vec<bool>,
}

/// For each branch, the first instruction that every way out of it passes.
///
/// A trap is not a way out. If some ways end early, only those that reach the end count, if there is more than one, because
/// lanes that have exited are not waited for. The end itself is not a meeting point.
pub(super) fn reconverge(code: &[Instr]) -> Vec<Option<u32>> {
    let graph = Graph::new(code);
    let last = |b: usize| graph.last(b).and_then(|i| code.get(i));
    let blocks = 0..graph.starts.len();
    let mut ends: Vec<usize> = blocks.clone().filter(|&b| graph.live[b] && ends_here(last(b))).collect();
    graph.anchor_loops(code, &mut ends);
    let all = graph.post_dominators(&ends);
    let main = ends.iter().copied().rfind(|&b| last(b).is_some_and(|i| i.guard.is_none()));
    let main = main.or(ends.last().copied());
    let lasting = main.map(|end| graph.post_dominators(&[end]));
    let mut found = vec![None; code.len()];
    for b in blocks {
        let Some(at) = graph.last(b).filter(|&i| is_branch(&code[i])) else { continue };
        let strict = all.get(b).copied().unwrap_or(NONE);
        let mut meet = strict;
        if strict == NONE
            && let Some(lasting) = &lasting
        {
            let ways = graph.next[b].iter().filter(|&&s| Some(s) == main || lasting[s] != NONE).count();
            meet = if ways > 1 { lasting[b] } else { NONE };
        }
        // Lanes that only leave have nothing to do together.
        let meet = graph.starts.get(meet).filter(|&&i| !ends_here(code.get(i)));
        found[at] = meet.and_then(|&i| u32::try_from(i).ok());
    }
    found
}

fn is_branch(instr: &Instr) -> bool {
    matches!(instr.op, Op::Branch { .. } | Op::BranchIndex { .. })
}

fn ends_here(instr: Option<&Instr>) -> bool {
    instr.is_some_and(|i| matches!(i.op, Op::Exit))
}

/// The instructions that may follow an instruction, except the end.
fn successors(code: &[Instr], at: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let Some(instr) = code.get(at) else { return found };
    let falls = match &instr.op {
        Op::Branch { target, .. } => {
            found.push(*target as usize);
            instr.guard.is_some()
        }
        Op::BranchIndex { targets, .. } => {
            found.extend(targets.iter().map(|&t| t as usize));
            instr.guard.is_some()
        }
        Op::Exit | Op::Trap => instr.guard.is_some(),
        _ => true,
    };
    if falls {
        found.push(at + 1);
    }
    found.retain(|&to| to < code.len());
    found.sort_unstable();
    found.dedup();
    found
}

impl Graph {
    pub(super) fn new(code: &[Instr]) -> Graph {
        let mut leader = vec![false; code.len()];
        if let Some(first) = leader.first_mut() {
            *first = true;
        }
        for (at, instr) in code.iter().enumerate() {
            if is_branch(instr) || matches!(instr.op, Op::Exit | Op::Trap) {
                for to in successors(code, at).into_iter().chain([at + 1]) {
                    if let Some(slot) = leader.get_mut(to) {
                        *slot = true;
                    }
                }
            }
        }
        let mut starts = Vec::new();
        let mut block_of = vec![0; code.len()];
        for (at, &leads) in leader.iter().enumerate() {
            if leads {
                starts.push(at);
            }
            block_of[at] = starts.len().saturating_sub(1);
        }
        let blocks = starts.len();
        let mut graph = Graph {
            starts,
            block_of,
            next: vec![Vec::new(); blocks],
            previous: vec![Vec::new(); blocks],
            live: vec![false; blocks],
        };
        for b in 0..blocks {
            let Some(at) = graph.last(b) else { continue };
            for to in successors(code, at) {
                let to = graph.block_of[to];
                graph.next[b].push(to);
                graph.previous[to].push(b);
            }
        }
        let mut open = if blocks > 0 { vec![0] } else { Vec::new() };
        while let Some(b) = open.pop() {
            if !std::mem::replace(&mut graph.live[b], true) {
                open.extend(&graph.next[b]);
            }
        }
        graph
    }

    /// The last instruction of a block.
    pub(super) fn last(&self, block: usize) -> Option<usize> {
        let after = self.starts.get(block + 1).copied().unwrap_or(self.block_of.len());
        after.checked_sub(1)
    }

    /// The blocks from which one of these can be reached.
    fn reaching(&self, ends: &[usize]) -> Vec<bool> {
        let mut reached = vec![false; self.starts.len()];
        let mut open = ends.to_vec();
        while let Some(b) = open.pop() {
            if self.live[b] && !std::mem::replace(&mut reached[b], true) {
                open.extend(&self.previous[b]);
            }
        }
        reached
    }

    /// Treats the last backward jump of each loop without an exit as an additional end.
    fn anchor_loops(&self, code: &[Instr], ends: &mut Vec<usize>) {
        let mut reached = self.reaching(ends);
        for b in (0..self.starts.len()).rev() {
            let back = self.next[b].iter().any(|&to| to <= b);
            let jumps = self.last(b).and_then(|i| code.get(i)).is_some_and(is_branch);
            if self.live[b] && !reached[b] && back && jumps {
                ends.push(b);
                let more = self.reaching(&[b]);
                reached.iter_mut().zip(more).for_each(|(r, m)| *r |= m);
            }
        }
        ends.sort_unstable();
    }

    /// Immediate post-dominators for these ends; `NONE` for a block that reaches no end, or that has only the end as a
    /// post-dominator.
    fn post_dominators(&self, ends: &[usize]) -> Vec<usize> {
        let blocks = self.starts.len();
        let root = blocks;
        let (order, number) = self.postorder(ends);
        let mut dominator = vec![NONE; blocks + 1];
        dominator[root] = root;
        let is_end = |b: usize| ends.binary_search(&b).is_ok();
        let mut changed = true;
        while changed {
            changed = false;
            // From the ends backwards.
            for &b in order.iter().rev() {
                let mut best = if is_end(b) { root } else { NONE };
                for &s in self.next[b].iter().filter(|&&s| dominator[s] != NONE) {
                    best = if best == NONE { s } else { common(&dominator, &number, best, s) };
                }
                if best != dominator[b] {
                    dominator[b] = best;
                    changed = true;
                }
            }
        }
        dominator.truncate(blocks);
        dominator.iter().map(|&d| if d == root { NONE } else { d }).collect()
    }

    /// Blocks in postorder of the reversed graph from its root, and the number of each; the root comes last.
    fn postorder(&self, ends: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let blocks = self.starts.len();
        let mut number = vec![NONE; blocks + 1];
        let mut seen = vec![false; blocks];
        let mut order = Vec::with_capacity(blocks);
        for &end in ends {
            let mut stack = vec![(end, 0usize)];
            if std::mem::replace(&mut seen[end], true) {
                continue;
            }
            while let Some((b, i)) = stack.pop() {
                let Some(&p) = self.previous[b].get(i) else {
                    number[b] = order.len();
                    order.push(b);
                    continue;
                };
                stack.push((b, i + 1));
                if self.live[p] && !std::mem::replace(&mut seen[p], true) {
                    stack.push((p, 0));
                }
            }
        }
        number[blocks] = order.len();
        (order, number)
    }
}

/// The nearest common dominator of two blocks.
fn common(dominator: &[usize], number: &[usize], mut a: usize, mut b: usize) -> usize {
    while a != b {
        while number[a] < number[b] {
            a = dominator[a];
        }
        while number[b] < number[a] {
            b = dominator[b];
        }
    }
    a
}
