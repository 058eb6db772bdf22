//! Two rooms that take turns: what is kept of a sequence lies in one of them, and what is kept next is written to the other.
//!
//! A copy within one room would read what it has written. Whose turn it is belongs to the place in the sequence, which a pass that only
//! prepares goes back to, and which a recorded graph is replayed from.

use atlas_runtime::{Result, Tensor};

/// Two tensors of one shape.
pub(crate) struct TwoRooms([Tensor; 2]);

/// Which of two rooms has what is kept now. At the start of a sequence it is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Turn {
    is_second: bool,
}

impl Turn {
    /// The turn after what is kept next was written, or after nothing was.
    #[must_use]
    pub(crate) fn after(self, is_written: bool) -> Turn {
        Turn { is_second: self.is_second != is_written }
    }
}

impl TwoRooms {
    pub(crate) fn new(make: impl Fn() -> Result<Tensor>) -> Result<TwoRooms> {
        Ok(TwoRooms([make()?, make()?]))
    }

    /// What is kept now, and the room for what is kept next.
    pub(crate) fn now_and_next(&self, turn: Turn) -> [&Tensor; 2] {
        let [first, second] = &self.0;
        if turn.is_second { [second, first] } else { [first, second] }
    }

    pub(crate) fn tensors(&self) -> &[Tensor; 2] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Turn, TwoRooms};
    use atlas_dsl::DType;
    use atlas_runtime::{Device, Tensor};

    #[test]
    fn rooms_change_places_only_where_the_next_one_was_written() {
        let device = Device::cpu();
        let rooms = TwoRooms::new(|| Tensor::zeros(&device, DType::F32, [4])).unwrap();
        let places = |turn: Turn| rooms.now_and_next(turn).map(Tensor::address);
        let start = Turn::default();
        let [now, next] = places(start);
        assert_ne!(now, next);
        assert_eq!(places(start.after(false)), [now, next]);
        assert_eq!(places(start.after(true)), [next, now]);
        assert_eq!(start.after(true).after(false).after(true), start);
    }
}
