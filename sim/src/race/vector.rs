//! A vector clock: for each agent, its latest known time. Agents of unknown CTAs take no memory.

use std::rc::Rc;

/// Knowledge that can be summed: clocks, and what other proxies see of them.
pub(super) trait Summand: Clone + Default {
    /// A single time that is known.
    type Point: Clone;

    /// What either knows; shares `a` or `b` if one knows as much as both.
    fn join(a: &Rc<Self>, b: &Rc<Self>) -> Rc<Self>;

    /// Adds times.
    fn raise(&mut self, points: &[Self::Point]);
}

/// Times of agents, in blocks: a block holds the threads of one CTA, or a few other agents of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Vector {
    /// Sorted by block. Blocks are shared between clocks until they differ.
    blocks: Vec<(u32, Rc<[u32]>)>,
}

/// The position of an agent's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) block: u32,
    pub(super) slot: u32,
    /// Slots of the block.
    pub(super) size: u32,
}

impl Vector {
    /// The times of a block; empty if nothing is known of it.
    #[inline]
    pub(super) fn block(&self, block: u32) -> &[u32] {
        match self.blocks.as_slice() {
            [(only, times)] if *only == block => times,
            blocks => match blocks.binary_search_by_key(&block, |b| b.0) {
                Ok(at) => blocks.get(at).map_or(&[], |b| &b.1),
                Err(_) => &[],
            },
        }
    }

    /// The known time of an agent, or 0.
    pub(super) fn get(&self, seat: Seat) -> u32 {
        self.block(seat.block).get(seat.slot as usize).copied().unwrap_or(0)
    }

    /// Raises the times known of agents.
    pub(super) fn raise(&mut self, points: &[(Seat, u32)]) {
        for points in points.chunk_by(|a, b| a.0.block == b.0.block) {
            let Some(&(Seat { block, size, .. }, _)) = points.first() else { continue };
            let at = match self.blocks.binary_search_by_key(&block, |b| b.0) {
                Ok(at) => at,
                Err(at) => {
                    self.blocks.insert(at, (block, vec![0; size as usize].into()));
                    at
                }
            };
            let Some((_, times)) = self.blocks.get_mut(at) else { continue };
            let times = Rc::make_mut(times);
            for &(seat, time) in points {
                if let Some(known) = times.get_mut(seat.slot as usize) {
                    *known = time.max(*known);
                }
            }
        }
    }

    /// True if two clocks know the same.
    pub(super) fn same(a: &Rc<Vector>, b: &Rc<Vector>) -> bool {
        Rc::ptr_eq(a, b) || a.blocks == b.blocks
    }

    /// True if this clock knows everything that `other` knows.
    fn covers(&self, other: &Vector) -> bool {
        other.blocks.iter().all(|(block, theirs)| {
            let ours = self.block(*block);
            std::ptr::eq(ours, &**theirs)
                || (ours.len() == theirs.len() && ours.iter().zip(theirs.iter()).all(|(a, b)| a >= b))
        })
    }

    /// What either of them knows; shares `a` or `b` if one covers the other.
    pub(super) fn join(a: &Rc<Vector>, b: &Rc<Vector>) -> Rc<Vector> {
        if Rc::ptr_eq(a, b) || a.covers(b) {
            return a.clone();
        }
        if b.covers(a) {
            return b.clone();
        }
        let mut out = Vec::with_capacity(a.blocks.len().max(b.blocks.len()));
        let (mut left, mut right) = (a.blocks.iter().peekable(), b.blocks.iter().peekable());
        loop {
            let next = match (left.peek(), right.peek()) {
                (Some(x), Some(y)) if x.0 == y.0 => {
                    let merged = merge(&x.1, &y.1);
                    let block = x.0;
                    left.next();
                    right.next();
                    (block, merged)
                }
                (Some(x), Some(y)) => {
                    let from_left = x.0 < y.0;
                    let Some(one) = (if from_left { left.next() } else { right.next() }) else { break };
                    one.clone()
                }
                _ => break,
            };
            out.push(next);
        }
        out.extend(left.cloned());
        out.extend(right.cloned());
        Rc::new(Vector { blocks: out })
    }
}

impl Summand for Vector {
    type Point = (Seat, u32);

    fn join(a: &Rc<Vector>, b: &Rc<Vector>) -> Rc<Vector> {
        Vector::join(a, b)
    }

    fn raise(&mut self, points: &[(Seat, u32)]) {
        Vector::raise(self, points);
    }
}

fn merge(a: &Rc<[u32]>, b: &Rc<[u32]>) -> Rc<[u32]> {
    if Rc::ptr_eq(a, b) {
        return a.clone();
    }
    a.iter().zip(b.iter()).map(|(&x, &y)| x.max(y)).collect()
}
