//! The cost of a launch: instructions by class, bytes by kind, sectors of global requests, conflicts of shared banks.

mod banks;
mod class;
mod sectors;

pub use class::InstructionClass;

use banks::wavefronts;
use sectors::sectors;
use std::fmt;

/// Bytes that an asynchronous operation takes from shared memory, or puts there, as one.
const CHUNK: u32 = 16;
/// Such chunks in a pass over the banks.
const PASS: usize = 8;

/// Counts of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    classes: [Mix; InstructionClass::ALL.len()],
    /// By line of PTX.
    lines: Vec<LineCounts>,
}

/// Instructions executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// By warps.
    pub warps: u64,
    /// By lanes that were active.
    pub lanes: u64,
}

/// The bytes that one line of PTX moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Executions by warps.
    pub executed: u64,
    /// Loads and stores of shared memory, and what asynchronous operations read and write there.
    pub shared: SharedCounts,
    /// Loads of global memory.
    pub loads: GlobalCounts,
    /// Stores and atomics of global memory.
    pub stores: GlobalCounts,
    /// Bytes that bulk and tensor copies moved.
    pub bulk_bytes: u64,
}

/// Accesses of shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCounts {
    /// By warps, and of asynchronous operations one for each operand.
    pub requests: u64,
    /// Of all lanes together.
    pub bytes: u64,
    /// Passes over the banks.
    pub wavefronts: u64,
    /// Passes beyond those that the width alone needs.
    pub conflicts: u64,
}

/// Accesses of global memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalCounts {
    /// By warps.
    pub requests: u64,
    /// Of all lanes together.
    pub bytes: u64,
    /// Sectors of 32 bytes touched, summed over requests.
    pub sectors: u64,
}

/// Sums over all lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Instructions executed by warps.
    pub warp_instructions: u64,
    /// And by their active lanes.
    pub lane_instructions: u64,
    /// Shared memory.
    pub shared: SharedCounts,
    /// Loads of global memory.
    pub loads: GlobalCounts,
    /// Stores and atomics of global memory.
    pub stores: GlobalCounts,
    /// Bulk and tensor copies.
    pub bulk_bytes: u64,
}

impl Counters {
    /// Nothing counted.
    pub fn new() -> Counters {
        Counters::default()
    }

    /// A warp executes an instruction in this many lanes.
    #[inline]
    pub fn instruction(&mut self, line: u32, class: InstructionClass, lanes: u32) {
        if let Some(mix) = self.classes.get_mut(class as usize) {
            mix.warps += 1;
            mix.lanes += u64::from(lanes);
        }
        self.at(line).executed += 1;
    }

    /// A warp accesses shared memory: the offset of each active lane, and the bytes of each lane. The rows of `ldmatrix` and
    /// `stmatrix` count as lanes of 16 bytes.
    pub fn shared_access(&mut self, line: u32, offsets: &[Option<u32>; 32], bytes: u32) {
        let active = offsets.iter().flatten().count() as u64;
        if active == 0 {
            return;
        }
        let (needed, taken) = wavefronts(offsets, bytes);
        let shared = &mut self.at(line).shared;
        shared.requests += 1;
        shared.bytes += active * u64::from(bytes);
        shared.wavefronts += u64::from(taken);
        shared.conflicts += u64::from(taken - needed);
    }

    /// An asynchronous operation accesses shared memory: the offsets of its chunks of 16 bytes, of which a pass takes eight.
    pub fn shared_chunks(&mut self, line: u32, chunks: &[u32]) {
        if chunks.is_empty() {
            return;
        }
        let shared = &mut self.at(line).shared;
        shared.requests += 1;
        shared.bytes += u64::from(CHUNK) * chunks.len() as u64;
        for pass in chunks.chunks(PASS) {
            let mut offsets = [None; 32];
            offsets.iter_mut().zip(pass).for_each(|(offset, &chunk)| *offset = Some(chunk));
            let (needed, taken) = wavefronts(&offsets, CHUNK);
            shared.wavefronts += u64::from(taken);
            shared.conflicts += u64::from(taken - needed);
        }
    }

    /// A warp accesses global memory: the address of each active lane, and the bytes of each lane.
    pub fn global_access(&mut self, line: u32, addresses: &[Option<u64>; 32], bytes: u32, store: bool) {
        let active = addresses.iter().flatten().count() as u64;
        if active == 0 {
            return;
        }
        let sectors = sectors(addresses, bytes);
        let counts = self.at(line);
        let counts = if store { &mut counts.stores } else { &mut counts.loads };
        counts.requests += 1;
        counts.bytes += active * u64::from(bytes);
        counts.sectors += sectors;
    }

    /// A bulk or tensor copy moves bytes.
    pub fn bulk(&mut self, line: u32, bytes: u64) {
        self.at(line).bulk_bytes += bytes;
    }

    /// Instructions of a class.
    pub fn mix(&self, class: InstructionClass) -> Mix {
        self.classes.get(class as usize).copied().unwrap_or_default()
    }

    /// The counts of a line of PTX.
    pub fn line(&self, line: u32) -> LineCounts {
        self.lines.get(line as usize).copied().unwrap_or_default()
    }

    /// Lines that executed or moved anything, in order.
    pub fn lines(&self) -> impl Iterator<Item = (u32, &LineCounts)> {
        (0..).zip(&self.lines).filter(|(_, counts)| **counts != LineCounts::default())
    }

    /// Sums over all lines.
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        for mix in &self.classes {
            sum.warp_instructions += mix.warps;
            sum.lane_instructions += mix.lanes;
        }
        for line in &self.lines {
            sum.shared.add(&line.shared);
            sum.loads.add(&line.loads);
            sum.stores.add(&line.stores);
            sum.bulk_bytes += line.bulk_bytes;
        }
        sum
    }

    /// Adds the counts of another launch of the same text.
    pub fn merge(&mut self, other: &Counters) {
        for (mix, more) in self.classes.iter_mut().zip(&other.classes) {
            mix.warps += more.warps;
            mix.lanes += more.lanes;
        }
        for (line, more) in (0..).zip(&other.lines) {
            let counts = self.at(line);
            counts.executed += more.executed;
            counts.shared.add(&more.shared);
            counts.loads.add(&more.loads);
            counts.stores.add(&more.stores);
            counts.bulk_bytes += more.bulk_bytes;
        }
    }

    fn at(&mut self, line: u32) -> &mut LineCounts {
        let index = line as usize;
        if self.lines.len() <= index {
            self.lines.resize(index + 1, LineCounts::default());
        }
        &mut self.lines[index]
    }
}

impl SharedCounts {
    fn add(&mut self, more: &SharedCounts) {
        self.requests += more.requests;
        self.bytes += more.bytes;
        self.wavefronts += more.wavefronts;
        self.conflicts += more.conflicts;
    }
}

impl GlobalCounts {
    fn add(&mut self, more: &GlobalCounts) {
        self.requests += more.requests;
        self.bytes += more.bytes;
        self.sectors += more.sectors;
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = self.totals();
        writeln!(f, "{} warp instructions, {} lane instructions", sum.warp_instructions, sum.lane_instructions)?;
        for class in InstructionClass::ALL {
            let mix = self.mix(class);
            if mix.warps > 0 {
                writeln!(f, "  {:<12} {:>12} {:>14}", class.name(), mix.warps, mix.lanes)?;
            }
        }
        for (name, global) in [("loads", sum.loads), ("stores", sum.stores)] {
            writeln!(f, "global {name}: {} bytes, {} sectors", global.bytes, global.sectors)?;
        }
        writeln!(f, "bulk copies: {} bytes", sum.bulk_bytes)?;
        writeln!(f, "shared: {} bytes, {} wavefronts", sum.shared.bytes, sum.shared.wavefronts)?;
        for (line, counts) in self.lines().filter(|(_, counts)| counts.shared.conflicts > 0) {
            let SharedCounts { requests, conflicts, .. } = counts.shared;
            writeln!(f, "  line {line}: {conflicts} bank conflicts in {requests} requests")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
