//! The inputs of the kernels whose passes over a chunk are launches, as their references read them.

use crate::problem::{Inputs, Problem};

/// The inputs of a problem, and its sizes by name.
pub(super) struct Given<'p> {
    pub(super) problem: &'p Problem,
    pub(super) inputs: &'p Inputs,
}

/// A sequence, a head and a chunk.
pub(super) type ChunkPlace = [usize; 3];

/// One row for each key or token.
pub(super) type RowsOfChunk = Vec<Vec<f64>>;

impl Given<'_> {
    pub(super) fn dim(&self, name: &str) -> usize {
        self.problem.dim(name)
    }

    /// Rows of tokens `[B, tokens, H, width]` from one on; zeros where there is no token.
    pub(super) fn tokens(&self, name: &str, [b, h, _]: ChunkPlace, first: i64, rows: usize) -> RowsOfChunk {
        let x = self.inputs.get(name);
        let heads = self.dim("H");
        let tokens = self.dim(if ["q", "rq"].contains(&name) { "N" } else { "P" });
        let width = x.len() / (self.dim("B") * tokens * heads).max(1);
        let row = |t: i64| match usize::try_from(t) {
            Ok(t) if t < tokens => x[((b * tokens + t) * heads + h) * width..][..width].to_vec(),
            _ => vec![0.0; width],
        };
        (first..first + rows as i64).map(row).collect()
    }

    /// A row `[B, H, C, len]`, of one number if the tensor has no such axis.
    pub(super) fn row(&self, name: &str, [b, h, c]: ChunkPlace, len: usize) -> Vec<f64> {
        let at = (b * self.dim("H") + h) * self.dim("C") + c;
        self.inputs.get(name)[at * len..][..len].to_vec()
    }

    /// A matrix `[B, H, rows, width]`.
    pub(super) fn matrix(&self, name: &str, [b, h, _]: ChunkPlace, [rows, width]: [usize; 2]) -> RowsOfChunk {
        let at = (b * self.dim("H") + h) * rows * width;
        self.inputs.get(name)[at..][..rows * width].chunks(width).map(<[f64]>::to_vec).collect()
    }

    /// A matrix `[B, H, R, rows, width]` at a place among those that are kept.
    pub(super) fn kept(&self, name: &str, [b, h, slot]: ChunkPlace, [rows, width]: [usize; 2]) -> RowsOfChunk {
        let at = ((b * self.dim("H") + h) * self.dim("R") + slot) * rows * width;
        self.inputs.get(name)[at..][..rows * width].chunks(width).map(<[f64]>::to_vec).collect()
    }

    /// What is written for a chunk, where as many are kept. The others are not written.
    pub(super) fn to_keep(&self, chunk: usize, written: &[f64]) -> Vec<f64> {
        let slots = self.dim("R");
        let mut out = vec![f64::NAN; slots * written.len()];
        out[chunk % slots * written.len()..][..written.len()].copy_from_slice(written);
        out
    }

    /// The keys of a chunk that some token weighs, or their values; zeros for the others.
    pub(super) fn alive(&self, name: &str, place: ChunkPlace, first: i64) -> RowsOfChunk {
        let k = self.dim("K");
        let live = self.row("live", place, k);
        let mut rows = self.tokens(name, place, first, k);
        rows.iter_mut().zip(live).filter(|(_, live)| *live <= 0.0).for_each(|(row, _)| row.fill(0.0));
        rows
    }

    /// The first key of a chunk.
    pub(super) fn oldest(&self, place: ChunkPlace) -> i64 {
        if self.problem.kernel.name == "omega_split_mixed" {
            let [n, p, l, k] = ["N", "P", "L", "K"].map(|dim| self.dim(dim) as i64);
            return place[2] as i64 * l + p - n + l - k;
        }
        self.row("oldest", place, 1)[0] as i64
    }
}

pub(super) fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

pub(super) fn column(m: &RowsOfChunk, i: usize) -> Vec<f64> {
    m.iter().map(|row| row[i]).collect()
}
