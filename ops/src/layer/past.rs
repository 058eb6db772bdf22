//! Attention of a piece to itself and to the tokens of its windows before.

use super::{LAYER, LayerSizes, part_of};
use crate::omega::copy_tokens;
use crate::omega::two_rooms::{Turn, TwoRooms};
use crate::pass::Pass;
use crate::windowed_attention::windowed_attention;
use atlas_dsl::DType;
use atlas_runtime::{Device, HostState, Result, Tensor, args};

/// Where in its sequence the attention is.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct Seen {
    /// Tokens that are kept.
    count: usize,
    /// Which rooms have what is kept.
    turn: Turn,
}

/// Keys and values that windows may reach.
pub(super) struct Past {
    sizes: LayerSizes,
    /// Keys and values, each with room for those of a piece, and with room for what is kept next.
    held: [TwoRooms; 2],
    seen: HostState<Seen>,
    lse: Tensor,
    documents: Tensor,
}

impl Past {
    pub(super) fn new(device: &Device, sizes: LayerSizes) -> Result<Past> {
        let LayerSizes { sequences, heads, width, window, piece, dtype, .. } = sizes;
        let rows = || Tensor::zeros(device, dtype, [sequences, (window - 1).saturating_add(piece), heads, width]);
        Ok(Past {
            sizes,
            held: [TwoRooms::new(rows)?, TwoRooms::new(rows)?],
            seen: HostState::default(),
            lse: Tensor::zeros(device, DType::F32, [sequences, heads, piece])?,
            documents: Tensor::zeros(device, DType::I32, [sequences, piece])?,
        })
    }

    /// All that it holds on its device.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.held.iter().flat_map(TwoRooms::tensors).chain([&self.lse, &self.documents])
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.get()
    }

    /// Goes back to where it was before a pass that only prepared.
    pub(super) fn go_back(&mut self, seen: Seen) {
        self.seen.set(self.lse.device(), LAYER, seen);
    }

    /// Forgets the tokens so far.
    pub(super) fn restart(&mut self) {
        self.seen.restart(self.lse.device(), LAYER, Seen::default());
    }

    /// Attention of queries, keys and values of the tokens that come next, with prefix keys and values before them.
    pub(super) fn attend(
        &mut self,
        pass: Pass,
        device: &Device,
        [q, k, v]: [&Tensor; 3],
        [prefix_keys, prefix_values]: [&Tensor; 2],
        o: &mut Tensor,
    ) -> Result<()> {
        let count = q.shape()[1];
        let seen = self.seen.get();
        let end = seen.count + count;
        let [[keys, next_keys], [values, next_values]] = self.held.each_ref().map(|held| held.now_and_next(seen.turn));
        copy_tokens(pass, device, k, &mut keys.slice(1, seen.count..end)?)?;
        copy_tokens(pass, device, v, &mut values.slice(1, seen.count..end)?)?;
        let (ks, vs) = (keys.slice(1, 0..end)?, values.slice(1, 0..end)?);
        let scale = (self.sizes.width as f32).sqrt().recip();
        // A window of more tokens than there can be sees all of them.
        let window = i32::try_from(self.sizes.window).unwrap_or(i32::MAX);
        let documents = part_of(&self.documents, count)?;
        let mut lse = self.lse.slice(2, 0..count)?;
        pass.launch(
            &windowed_attention,
            device,
            args!(q, ks, vs, prefix_keys, prefix_values, documents, window, scale, &mut *o, &mut lse),
        )?;
        let kept = end.min(self.sizes.window - 1);
        let turn = seen.turn.after(end > kept);
        if end > kept {
            for (now, next) in [(keys, next_keys), (values, next_values)] {
                copy_tokens(pass, device, &now.slice(1, end - kept..end)?, &mut part_of(next, kept)?)?;
            }
        }
        self.seen.set(device, LAYER, Seen { count: kept, turn });
        Ok(())
    }
}
