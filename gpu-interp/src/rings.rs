//! Rings: the state of each slot, and copies in flight, in groups. A violation of the protocol is a fault, and not a wrong
//! number.

use crate::memory::{Cut, StageRect};
use atlas_codegen::gpu::{At, Buffer, Kernel, Op, Ring, Role};
use atlas_dsl::Param;
use std::collections::BTreeSet;

/// The right that a role has to a slot, until the slot is given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) ring: Ring,
    pub(crate) slot: u32,
    /// The number of times that the slot had been acquired.
    generation: u32,
    /// True if it was waited for, false if it was acquired.
    pub(crate) awaited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Filling,
    Filled,
}

#[derive(Clone, Debug)]
struct Slot {
    state: State,
    generation: u32,
    /// The iteration for which it was acquired, if that was by number.
    iteration: Option<i64>,
    /// The roles that waited for it, and those that released it.
    awaited: BTreeSet<Role>,
    released: BTreeSet<Role>,
}

/// Why an instruction does not continue: it breaks the protocol, or it has to wait for another role.
#[derive(Debug)]
pub(crate) enum Stop {
    Fault(String),
    Blocked(String),
}

impl From<String> for Stop {
    fn from(message: String) -> Stop {
        Stop::Fault(message)
    }
}

/// The slots of all rings.
pub(crate) struct Rings {
    slots: Vec<Vec<Slot>>,
    /// Commits of each ring that ended no filling and that nothing waited for yet.
    empty: Vec<u32>,
    /// True for each ring if some role waits for its slots. The others are read by the copy engine only, whose copies say
    /// whether a slot is in use.
    has_readers: Vec<bool>,
}

impl Rings {
    pub(crate) fn new(k: &Kernel) -> Rings {
        let free = Slot {
            state: State::Free,
            generation: 0,
            iteration: None,
            awaited: BTreeSet::new(),
            released: BTreeSet::new(),
        };
        let standing = || k.blocks.values().flat_map(|b| &b.insts).map(|&i| &k.insts[i]);
        let has_readers =
            k.rings.keys().map(|ring| standing().any(|op| matches!(op, Op::Wait(r, _) if *r == ring))).collect();
        Rings {
            slots: k.rings.values().map(|r| vec![free.clone(); r.stages as usize]).collect(),
            has_readers,
            empty: vec![0; k.rings.len()],
        }
    }

    fn slot(&mut self, ring: Ring, slot: u32) -> &mut Slot {
        &mut self.slots[ring.as_u32() as usize][slot as usize]
    }

    /// Checks the phase of a slot that is acquired or waited for with one: the parity of its rounds before this one.
    fn phase(&self, ring: Ring, slot: u32, rounds: u32, phase: i64) -> Result<(), String> {
        match phase == i64::from(rounds % 2) {
            true => Ok(()),
            false => Err(format!("slot {slot} of {ring} in phase {phase}, after {rounds} rounds")),
        }
    }

    /// The slot that is named, and its iteration if that is given.
    fn find(&self, ring: Ring, at: At, n: i64) -> Result<(u32, Option<i64>), String> {
        let stages = self.slots[ring.as_u32() as usize].len() as i64;
        match at {
            At::Iteration(_) if n < 0 => Err(format!("iteration {n} of a ring")),
            At::Iteration(_) => Ok(((n % stages) as u32, Some(n))),
            At::Slot(_) | At::Cursor { .. } if (0..stages).contains(&n) => Ok((n as u32, None)),
            At::Slot(_) | At::Cursor { .. } => Err(format!("slot {n} of a ring of {stages}")),
        }
    }

    /// Gives the right to fill a slot, which has to be free.
    pub(crate) fn acquire(&mut self, ring: Ring, at: At, n: i64, phase: Option<i64>) -> Result<Token, Stop> {
        let (slot, iteration) = self.find(ring, at, n)?;
        if let Some(phase) = phase {
            let rounds = self.slot(ring, slot).generation;
            self.phase(ring, slot, rounds, phase)?;
        }
        let s = self.slot(ring, slot);
        match s.state {
            State::Free => {}
            State::Filling => return Err(Stop::Blocked(format!("slot {slot} is acquired and was never committed"))),
            State::Filled => return Err(Stop::Blocked(format!("slot {slot} is filled and was never released"))),
        }
        s.state = State::Filling;
        s.generation += 1;
        s.iteration = iteration;
        s.awaited.clear();
        s.released.clear();
        Ok(Token { ring, slot, generation: s.generation, awaited: false })
    }

    /// Ends the filling of a token's slot, or of the slot of a ring that is being filled. An empty commit ends none.
    pub(crate) fn commit(&mut self, ring: Ring, token: Option<Token>) -> Result<(), String> {
        if let Some(token) = token {
            self.writable(token)?;
        }
        let done = if self.has_readers[ring.as_u32() as usize] { State::Filled } else { State::Free };
        let slots = self.slots[ring.as_u32() as usize].iter_mut().enumerate();
        let mut filling: Vec<&mut Slot> = slots
            .filter(|(i, s)| s.state == State::Filling && token.is_none_or(|t| t.slot == *i as u32))
            .map(|(_, s)| s)
            .collect();
        if filling.len() > 1 {
            return Err(format!("ends the filling of {} slots at once; a commit before it is missing", filling.len()));
        }
        filling.iter_mut().for_each(|s| s.state = done);
        if filling.is_empty() {
            self.empty[ring.as_u32() as usize] += 1;
        }
        Ok(())
    }

    /// Gives the right to read a slot, which has to be filled. Gives none if an empty commit stands for its filling.
    pub(crate) fn wait(
        &mut self,
        ring: Ring,
        at: At,
        (n, phase): (i64, Option<i64>),
        role: Role,
    ) -> Result<Token, Stop> {
        let (slot, iteration) = self.find(ring, at, n)?;
        if let Some(phase) = phase {
            // The round that fills it has begun.
            let rounds = self.slot(ring, slot).generation;
            self.phase(ring, slot, rounds.wrapping_sub(1), phase)?;
        }
        let empty = &mut self.empty[ring.as_u32() as usize];
        let s = &mut self.slots[ring.as_u32() as usize][slot as usize];
        if s.state == State::Free && *empty > 0 {
            // An iteration that is not there: its commit is waited for, but there is nothing to read.
            *empty -= 1;
            return Ok(Token { ring, slot, generation: s.generation, awaited: true });
        }
        if s.state != State::Filled {
            return Err(Stop::Blocked(format!("slot {slot} was never committed")));
        }
        if let (Some(wanted), Some(held)) = (iteration, s.iteration)
            && wanted != held
        {
            return Err(Stop::Blocked(format!("slot {slot} holds iteration {held}, not {wanted}")));
        }
        s.awaited.insert(role);
        Ok(Token { ring, slot, generation: s.generation, awaited: true })
    }

    /// Ends the reading of a slot by a role. The slot is free when all roles that waited for it are done.
    pub(crate) fn release(&mut self, token: Token, role: Role) -> Result<(), String> {
        self.readable(token)?;
        let s = self.slot(token.ring, token.slot);
        if !s.released.insert(role) {
            return Err(format!("releases slot {} twice", token.slot));
        }
        if s.released.is_superset(&s.awaited) {
            s.state = State::Free;
        }
        Ok(())
    }

    /// True if every slot of a ring is free.
    pub(crate) fn is_drained(&self, ring: Ring) -> bool {
        self.slots[ring.as_u32() as usize].iter().all(|s| s.state == State::Free)
    }

    /// Checks that a token gives the right to write now.
    pub(crate) fn writable(&mut self, token: Token) -> Result<(), String> {
        self.holds(token, State::Filling, if token.awaited { "was waited for, not acquired" } else { "is committed" })
    }

    /// Checks that a token gives the right to read now.
    pub(crate) fn readable(&mut self, token: Token) -> Result<(), String> {
        self.holds(token, State::Filled, if token.awaited { "is released" } else { "was acquired, not waited for" })
    }

    fn holds(&mut self, token: Token, state: State, else_it: &str) -> Result<(), String> {
        let s = self.slot(token.ring, token.slot);
        match s.generation == token.generation {
            false => Err(format!("slot {} was handed out again since its token was got", token.slot)),
            true if s.state == state && token.awaited == (state == State::Filled) => Ok(()),
            true => Err(format!("slot {} {else_it}", token.slot)),
        }
    }
}

/// A copy that was issued and not yet waited for.
#[derive(Clone, Debug)]
pub(crate) struct Flying {
    pub(crate) param: Param,
    pub(crate) cuts: Vec<Cut>,
    pub(crate) to: StageRect,
    /// The data of the copy, as if it had arrived at once.
    pub(crate) landed: bool,
}

/// The copies that a role issued, in groups by its commits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    open: Vec<Flying>,
    closed: Vec<Vec<Flying>>,
}

impl Groups {
    pub(crate) fn issue(&mut self, copy: Flying) {
        self.open.push(copy);
    }

    pub(crate) fn commit(&mut self) {
        self.closed.push(std::mem::take(&mut self.open));
    }

    /// Removes and returns the copies of all groups except the `pending` newest.
    pub(crate) fn wait(&mut self, pending: u32) -> Vec<Flying> {
        let done = self.closed.len().saturating_sub(pending as usize);
        self.closed.drain(..done).flatten().collect()
    }

    /// True if a copy from or to a stage of some buffers is under way.
    pub(crate) fn touches(&self, buffers: &[Buffer], stage: u32) -> bool {
        self.closed.iter().flatten().any(|c| buffers.contains(&c.to.buffer) && c.to.stage == stage)
    }

    /// Removes and returns the copies to a stage of some buffers, of any group.
    pub(crate) fn wait_for(&mut self, buffers: &[Buffer], stage: u32) -> Vec<Flying> {
        let mut done = Vec::new();
        for group in self.closed.iter_mut() {
            done.extend(group.extract_if(.., |c| buffers.contains(&c.to.buffer) && c.to.stage == stage));
        }
        done
    }
}
