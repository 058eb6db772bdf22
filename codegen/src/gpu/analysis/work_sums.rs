//! The work of sums over several CTAs.

use super::work::{Counts, WorkWalk};
use crate::gpu::Value;

/// What a byte of a partial tile counts as bytes of tensors, and the waits for memory around an arrival: for the stores, the
/// count, and the loads. Fitted on an H200, to products whose programs two, four and eight CTAs share.
const PARTIAL_TRAFFIC: f64 = 2.0;
const ARRIVAL_WAITS: f64 = 4.0;

/// The waits for memory of a sum over a cluster: for its barriers, and for each CTA's memory. On an H200, sums of 64 x 64 f32 take 0.8 us in
/// clusters of two CTAs, 1.4 to 2 us of four and 2.5 us of eight.
const MEETING_WAITS: f64 = 1.0;
const PEER_WAITS: f64 = 0.25;

impl WorkWalk<'_> {
    /// A CTA stores its partial tiles, and the last one loads those of all. The work is that of the last one, for which the launch
    /// waits.
    pub(super) fn sum_splits(&self, values: &[Value], fixed: &mut Counts) {
        let registers: u32 = values.iter().map(|&v| self.k.tile(v).1.reg_count()).sum();
        let elements = f64::from(registers * self.k.threads);
        let tiles = 1.0 + f64::from(self.k.index_map.splits);
        fixed.element_wise += tiles * elements;
        fixed.global += PARTIAL_TRAFFIC * tiles * 4.0 * elements;
        fixed.barriers += 2.0;
        fixed.latency_waits += ARRIVAL_WAITS;
    }

    /// Each element is stored, loaded by the CTA that adds it up, stored to all CTAs, and loaded.
    pub(super) fn sum_cluster(&self, value: Value, counts: &mut Counts) {
        let (dtype, layout) = self.k.tile(value);
        let held = f64::from(self.k.threads * layout.reg_count());
        let ctas = f64::from(self.k.cluster.0 * self.k.cluster.1);
        counts.element_wise += held * 2.0;
        counts.shared += 4.0 * held * f64::from(dtype.bytes());
        counts.barriers += 2.0;
        counts.latency_waits += MEETING_WAITS + PEER_WAITS * ctas;
    }
}
