//! Scratch memory of launches: the arrivals and the partial tiles that the CTAs of a split program share, and the workspaces of packed
//! operands.
//!
//! The launches of one stream follow each other, so they share the stream's scratch memory. Each leaves its arrivals zero, as it
//! finds them, and reads no partial tile and no workspace of an earlier one. Launches that may run at the same time have scratch memory of their
//! own: those of other streams, and those of graphs.

use super::context::Context;
use super::current::Handle;
use crate::error::{DeviceError, Result, TensorError};
use atlas_codegen::{ARRIVAL_BYTES, KernelImage};
use std::sync::{Mutex, PoisonError};

/// `CU_STREAM_PER_THREAD`: another stream in each thread.
const PER_THREAD: usize = 2;

/// Partial tiles and workspaces begin at a multiple of this many bytes.
pub(crate) const SCRATCH_ALIGN: u64 = 256;

/// The scratch memory that one launch needs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScratchBytes {
    /// Of its arrivals, which are zero before and after the launch.
    pub arrivals: u64,
    /// Of its partial tiles, which hold anything.
    pub partials: u64,
    /// Of its workspaces, which hold anything.
    pub workspaces: u64,
}

/// The addresses of the scratch memory of one launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScratchAddresses {
    /// Of its arrivals.
    pub arrivals: u64,
    /// Of its partial tiles.
    pub partials: u64,
    /// Of its workspaces.
    pub workspaces: u64,
}

impl ScratchBytes {
    /// What a launch of this many CTAs needs; `None` if each CTA has its own program.
    #[inline]
    pub fn of(image: &KernelImage, ctas: u32) -> Option<ScratchBytes> {
        if image.splits <= 1 {
            return None;
        }
        Some(ScratchBytes::of_programs(u64::from(ctas / image.splits), image.partial_bytes))
    }

    /// What a launch of this many programs needs, if the CTAs of each leave this many bytes for each other.
    #[inline]
    pub fn of_programs(programs: u64, partial_bytes: u64) -> ScratchBytes {
        ScratchBytes {
            arrivals: ARRIVAL_BYTES.saturating_mul(programs),
            partials: partial_bytes.saturating_mul(programs),
            workspaces: 0,
        }
    }

    /// These bytes, and workspaces of `workspaces` bytes.
    #[must_use]
    pub fn with_workspaces(self, workspaces: u64) -> ScratchBytes {
        ScratchBytes { workspaces, ..self }
    }

    /// Where the workspaces begin in an allocation.
    fn workspaces_at(self) -> u64 {
        self.arrivals
            .next_multiple_of(SCRATCH_ALIGN)
            .saturating_add(self.partials.checked_next_multiple_of(SCRATCH_ALIGN).unwrap_or(u64::MAX))
    }

    /// The bytes of all.
    pub(crate) fn total(self) -> u64 {
        match self.workspaces {
            0 => self.arrivals.next_multiple_of(SCRATCH_ALIGN).saturating_add(self.partials),
            bytes => self.workspaces_at().saturating_add(bytes),
        }
    }

    /// The addresses in an allocation of [`ScratchBytes::total`] bytes.
    pub(crate) fn at(self, address: u64) -> ScratchAddresses {
        let partials = address + self.arrivals.next_multiple_of(SCRATCH_ALIGN);
        ScratchAddresses { arrivals: address, partials, workspaces: address.saturating_add(self.workspaces_at()) }
    }

    /// What serves both.
    pub(crate) fn most(self, other: ScratchBytes) -> ScratchBytes {
        ScratchBytes {
            arrivals: self.arrivals.max(other.arrivals),
            partials: self.partials.max(other.partials),
            workspaces: self.workspaces.max(other.workspaces),
        }
    }

    fn holds(self, other: ScratchBytes) -> bool {
        self.arrivals >= other.arrivals && self.partials >= other.partials && self.workspaces >= other.workspaces
    }
}

/// Allocated scratch memory; nothing if it has no bytes.
#[derive(Default)]
pub(crate) struct Scratch {
    address: u64,
    bytes: ScratchBytes,
}

impl Scratch {
    /// Allocates scratch memory for later launches on a stream.
    pub(crate) fn alloc(context: &Context, stream: Handle, bytes: ScratchBytes) -> Result<Scratch> {
        let total = bytes.total();
        if total > context.memory_bytes {
            return Err(TensorError::OutOfMemory { bytes: total, device: context.label.clone() }.into());
        }
        let mut scratch = Scratch { address: context.alloc(total, stream)?, bytes };
        match context.zero(scratch.address, bytes.arrivals, stream) {
            Ok(()) => Ok(scratch),
            Err(e) => {
                scratch.free(context, stream);
                Err(e)
            }
        }
    }

    /// Frees the memory once the earlier work of the stream is done.
    pub(crate) fn free(&mut self, context: &Context, stream: Handle) {
        if std::mem::take(&mut self.bytes) != ScratchBytes::default() {
            context.free(self.address, stream);
        }
    }

    /// The addresses for a launch, if there is room for it.
    pub(crate) fn addresses(&self, need: ScratchBytes) -> Option<ScratchAddresses> {
        self.bytes.holds(need).then(|| self.bytes.at(self.address))
    }
}

/// The scratch memory of one stream. It grows with the launches.
#[derive(Default)]
pub(crate) struct StreamScratch(Mutex<Scratch>);

impl StreamScratch {
    /// Calls `launch`, which queues one launch on the stream, with scratch memory for it.
    ///
    /// The memory is locked until the launch is queued, so that another thread frees it only after that.
    pub(crate) fn with(
        &self,
        context: &Context,
        stream: Handle,
        need: ScratchBytes,
        launch: impl FnOnce(ScratchAddresses) -> Result<()>,
    ) -> Result<()> {
        let records = context.is_recording(stream)?;
        if records && context.pool.is_none() {
            let found =
                "one that allocates no memory in graphs on this GPU, as split programs and packed operands need it";
            return Err(DeviceError::DriverTooOld { found: found.to_owned(), wanted: "11.4".to_owned() }.into());
        }
        if records || stream as usize == PER_THREAD {
            return with_own_scratch(context, stream, need, launch);
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses = match kept.addresses(need) {
            Some(addresses) => addresses,
            None => {
                let had = kept.bytes;
                kept.free(context, stream);
                // Arrivals are few bytes: room for more of them saves later allocations.
                let arrivals = need.arrivals.max(had.arrivals).max(1 << 12).next_power_of_two();
                let (partials, workspaces) = (need.partials.max(had.partials), need.workspaces.max(had.workspaces));
                let bytes = ScratchBytes { arrivals, partials, workspaces };
                *kept = Scratch::alloc(context, stream, bytes)?;
                bytes.at(kept.address)
            }
        };
        launch(addresses)
    }

    /// Frees the memory once the earlier work of the stream is done. While the stream records a graph, which must not free it, the
    /// memory leaks.
    pub(crate) fn free(&self, context: &Context, stream: Handle) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes != ScratchBytes::default() && matches!(context.is_recording(stream), Ok(false)) {
            kept.free(context, stream);
        }
    }
}

/// The same with memory for this launch only, in stream order. A stream that records makes nodes of the graph of all of it, so each run
/// of the graph allocates and frees the memory.
fn with_own_scratch(
    context: &Context,
    stream: Handle,
    need: ScratchBytes,
    launch: impl FnOnce(ScratchAddresses) -> Result<()>,
) -> Result<()> {
    let mut scratch = Scratch::alloc(context, stream, need)?;
    let launched = launch(need.at(scratch.address));
    scratch.free(context, stream);
    launched
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(splits: u32, partial_bytes: u64) -> KernelImage {
        KernelImage { splits, partial_bytes, ..crate::compile::empty_image() }
    }

    #[test]
    fn a_launch_needs_as_much_as_it_has_programs() {
        assert_eq!(ScratchBytes::of(&image(1, 0), 12), None);
        let need = ScratchBytes::of(&image(3, 512), 300).unwrap();
        assert_eq!(need, ScratchBytes { arrivals: 400, partials: 51_200, workspaces: 0 });
        assert_eq!((need.total(), need.at(1 << 20).partials), (512 + 51_200, (1 << 20) + 512));
        let packed = need.with_workspaces(100);
        assert_eq!((packed.total(), packed.at(1 << 20).workspaces), (512 + 51_200 + 100, (1 << 20) + 512 + 51_200));
        // Of a damaged image: more than any device has, instead of a sum that overflows.
        assert_eq!(ScratchBytes::of(&image(2, u64::MAX - 15), 4).unwrap().total(), u64::MAX);
    }

    #[test]
    fn memory_serves_launches_that_need_less_of_both() {
        let bytes = ScratchBytes { arrivals: 4096, partials: 1000, workspaces: 64 };
        let scratch = Scratch { address: 1 << 20, bytes };
        let addresses =
            |arrivals, partials, workspaces| scratch.addresses(ScratchBytes { arrivals, partials, workspaces });
        let (arrivals, partials) = (1 << 20, (1 << 20) + 4096);
        let all = ScratchAddresses { arrivals, partials, workspaces: partials + 1024 };
        assert_eq!(addresses(4, 1000, 64), Some(all));
        assert_eq!((addresses(4100, 16, 0), addresses(4, 1008, 0), addresses(4, 16, 65)), (None, None, None));
        assert_eq!(Scratch::default().addresses(ScratchBytes { arrivals: 4, ..ScratchBytes::default() }), None);
    }
}
