//! The rule of forms, 445: the instructions that an access names can move its fragment.

use super::access::{accessed, moves_by_matrix, widest};
use super::verify::Verifier;
use super::{AccessKind, Inst, Op, SharedRef};
use crate::layout::Fragment;
use atlas_dsl::DType;
use atlas_dsl::ir::Loc;

impl Verifier<'_> {
    /// 445 for one instruction.
    pub(super) fn form(&mut self, inst: Inst, loc: Loc) {
        let k = self.kernel;
        let Some(form) = &k.access_kinds[inst] else { return };
        let tile = accessed(k, inst).and_then(|v| self.fragment(v));
        let wrong = match (tile, form) {
            (None, _) => Some("a form of what neither loads nor stores a fragment".to_owned()),
            (Some((_, layout)), AccessKind::Matrix) => {
                (!moves_by_matrix(k, inst)).then(|| format!("matrix instructions do not move {layout} there"))
            }
            (Some(tile), AccessKind::Vector { bytes, within }) => {
                self.vector(inst, tile, *bytes).or_else(|| self.within(inst, tile, *bytes, within.as_deref()))
            }
        };
        if let Some(message) = wrong {
            self.error(445, loc, message);
        }
    }

    /// What is wrong with the width of vectors.
    fn vector(&self, inst: Inst, (dtype, _): (DType, &Fragment), bytes: u32) -> Option<String> {
        let k = self.kernel;
        if matches!(k.insts[inst], Op::LoadMatrix { .. }) && dtype.is_half() {
            return Some(format!("operands of {dtype} are loaded by matrix instructions"));
        }
        let most = widest(k, inst)?;
        let fits = bytes <= most && bytes >= dtype.bytes() && bytes.is_power_of_two();
        (!fits).then(|| format!("{dtype} by {bytes} bytes at once; it has to be {} to {most}", dtype.bytes()))
    }

    /// What is wrong with where the elements end that there are.
    fn within(
        &self,
        inst: Inst,
        (dtype, layout): (DType, &Fragment),
        bytes: u32,
        within: Option<&[u32]>,
    ) -> Option<String> {
        let (Op::LoadShared(at) | Op::StoreShared { to: at, .. }) = &self.kernel.insts[inst] else {
            return within.map(|extents| format!("elements within {extents:?} where nothing is left out"));
        };
        let room = self.room(at, layout);
        let extents = within.unwrap_or(&room);
        if extents.len() != room.len() || !(0..room.len()).all(|a| (layout.shape[a]..=room[a]).contains(&extents[a])) {
            return Some(format!("elements of {:?} within {extents:?}; there is room for {room:?}", layout.shape));
        }
        let past = |axis: &usize| layout.cover(*axis as u8) > extents[*axis];
        if within.is_none() && (0..room.len()).any(|axis| past(&axis)) {
            return Some(format!("{layout} reaches past {room:?}, and the form does not say within what"));
        }
        let along = if at.transposed { 0 } else { room.len().saturating_sub(1) };
        let run = bytes / dtype.bytes();
        let cut = room.get(along).is_some() && past(&along) && !extents[along].is_multiple_of(run);
        cut.then(|| format!("vectors of {run} elements within {extents:?}, which cuts one"))
    }

    /// Elements that there is room for from an access's origin on: tiles of rank 2 may be padded.
    fn room(&self, at: &SharedRef, layout: &Fragment) -> Vec<u32> {
        let buffer = &self.kernel.buffers[at.buffer].layout;
        let (rows, cols) = (buffer.rows.saturating_sub(at.origin.0), buffer.cols.saturating_sub(at.origin.1));
        match layout.shape.len() {
            2 if at.transposed => vec![cols, rows],
            2 => vec![rows, cols],
            _ => layout.shape.clone(),
        }
    }
}
