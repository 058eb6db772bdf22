//! The words of a problem: the key by which a device finds the plan of a launch without rebuilding anything.
//!
//! They are the kernel, the caller's config if there is one, and each argument's kind, type, shape, strides and
//! alignment: a few dozen words, hashed and compared without allocation. They contain everything that the checks of a
//! launch depend on, except addresses: two arguments may alias in one launch and not in the next.

use super::args::Arg;
use super::bind::is_written;
use super::problem::alignment;
use atlas_dsl::{Config, KernelDef};

/// The words of a problem, on the stack unless there are many.
pub(crate) struct ProblemWords {
    length: usize,
    inline: [u64; ProblemWords::INLINE],
    rest: Vec<u64>,
}

impl ProblemWords {
    const INLINE: usize = 96;

    /// The words of a launch. The arguments need not match the parameters yet.
    pub(crate) fn new(def: &'static KernelDef, config: Option<&Config>, args: &[Arg<'_>]) -> ProblemWords {
        let mut words = ProblemWords { length: 0, inline: [0; ProblemWords::INLINE], rest: Vec::new() };
        words.push(std::ptr::from_ref(def) as usize as u64);
        match config {
            None => words.push(0),
            Some(config) => {
                words.push(1 + config.tile.len() as u64);
                for knob in def.tune {
                    words.push(config.tile.get(knob.name).map_or(u64::MAX, |&v| u64::from(v)));
                }
                config.schedule.words().into_iter().for_each(|word| words.push(word));
            }
        }
        for (i, arg) in args.iter().enumerate() {
            // `&mut` for a tensor that the kernel only reads counts as `&`.
            let written = def.params.get(i).is_some_and(is_written);
            let kind = match arg {
                Arg::Out(_) | Arg::Lent(_) if written => 2,
                Arg::In(_) | Arg::Out(_) | Arg::Lent(_) => 1,
                Arg::F32(_) => 3,
                Arg::F64(_) => 4,
                Arg::I32(_) => 5,
                Arg::I64(_) => 6,
            };
            match arg.tensor() {
                None => words.push(kind),
                Some(t) => {
                    let class = u64::from(alignment(t));
                    words.push(kind | (t.dtype() as u64) << 8 | class << 16 | (t.rank() as u64) << 32);
                    t.shape().iter().for_each(|&n| words.push(n as u64));
                    t.strides().iter().for_each(|&s| words.push(s as u64));
                }
            }
        }
        words
    }

    fn push(&mut self, word: u64) {
        match self.inline.get_mut(self.length) {
            Some(place) => *place = word,
            None => {
                if self.rest.is_empty() {
                    self.rest.extend_from_slice(&self.inline);
                }
                self.rest.push(word);
            }
        }
        self.length += 1;
    }

    pub(crate) fn as_slice(&self) -> &[u64] {
        if self.rest.is_empty() { &self.inline[..self.length] } else { &self.rest }
    }
}
