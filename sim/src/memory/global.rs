//! The global address space. Allocations are far apart, so that a stray address never hits another allocation.

use super::{Permission, Region};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

const FIRST: u64 = 0x7f00_0000_0000;
const ALIGN: u64 = 256;
/// At least this many bytes after an allocation belong to no allocation.
const GUARD: u64 = 4096;

/// Global memory of the device, over many launches.
#[derive(Clone, Debug, Default)]
pub struct Global {
    slots: Vec<Slot>,
    /// Index of the slot that begins at an address.
    starts: BTreeMap<u64, usize>,
    /// Slots of freed allocations, for reuse. Their addresses are not reused.
    free: Vec<usize>,
    /// Address after the last allocation and its guard.
    next: u64,
    /// The slot of the latest access.
    last: usize,
}

#[derive(Clone, Debug)]
struct Slot {
    address: u64,
    region: Region,
    /// The default permission of launches.
    permission: Permission,
}

/// An access to no allocation, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfBounds {
    /// First byte of the access.
    pub address: u64,
    /// Bytes of the access.
    pub len: u64,
    /// Address and bytes of the nearest allocation below, or else above.
    pub near: Option<(u64, u64)>,
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x} are ", self.len, self.address)?;
        let Some((start, size)) = self.near else { return f.write_str("in no allocation: there is none") };
        let whole = format_args!("the allocation of {size} bytes at {start:#x}");
        if self.address < start {
            write!(f, "{} bytes before {whole}", start - self.address)
        } else if self.address < start + size {
            write!(f, "partly past the end of {whole}: offset {}", self.address - start)
        } else {
            write!(f, "{} bytes past the end of {whole}", self.address - start - size)
        }
    }
}

impl std::error::Error for OutOfBounds {}

impl Global {
    /// A memory without allocations.
    pub fn new() -> Global {
        Global { next: FIRST, ..Global::default() }
    }

    /// Allocates memory with these bytes.
    pub fn alloc(&mut self, bytes: Vec<u8>, permission: Permission) -> u64 {
        let address = self.next.max(FIRST);
        self.place(address, Region::new(address, bytes, permission), permission);
        address
    }

    /// Allocates memory that is uninitialised until it is written.
    pub fn alloc_uninitialized(&mut self, len: usize) -> u64 {
        let address = self.next.max(FIRST);
        self.place(address, Region::uninitialized(address, len), Permission::ReadWrite);
        address
    }

    /// Places a variable of a module at its address; false if the address is taken.
    pub fn define(&mut self, address: u64, bytes: Vec<u8>, permission: Permission) -> bool {
        let len = bytes.len() as u64;
        let Some(end) = address.checked_add(len) else { return false };
        if self.slot_below(end.saturating_sub(1)).is_some_and(|s| s.address + s.region.len() > address) {
            return false;
        }
        self.place(address, Region::new(address, bytes, permission), permission)
    }

    /// Frees an allocation by its address; false if there is none. The address is not used again.
    pub fn free(&mut self, address: u64) -> bool {
        let Some(slot) = self.starts.remove(&address) else { return false };
        if let Some(s) = self.slots.get_mut(slot) {
            s.region = Region::new(0, Vec::new(), Permission::ReadOnly);
        }
        self.free.push(slot);
        true
    }

    /// The region that holds a range, and the offset of the range in it.
    #[inline]
    pub fn region_at(&mut self, address: u64, len: u64) -> Result<(&mut Region, u64), OutOfBounds> {
        let hit = |s: &Slot| {
            let offset = address.wrapping_sub(s.address);
            offset <= s.region.len() && len <= s.region.len() - offset && !s.region.is_empty()
        };
        if !self.slots.get(self.last).is_some_and(hit) {
            let found = self.starts.range(..=address).next_back().map(|(_, &slot)| slot);
            match found {
                Some(slot) if self.slots.get(slot).is_some_and(hit) => self.last = slot,
                _ => return Err(self.out_of_bounds(address, len)),
            }
        }
        let error = OutOfBounds { address, len, near: None };
        self.slots.get_mut(self.last).map(|s| (&mut s.region, address - s.address)).ok_or(error)
    }

    /// Bytes, as the host copies them.
    pub fn read(&self, address: u64, len: u64) -> Result<&[u8], OutOfBounds> {
        let bytes = self.slot_below(address).and_then(|s| s.region.read_raw(address - s.address, len));
        bytes.ok_or_else(|| self.out_of_bounds(address, len))
    }

    /// Sets bytes, as the host copies them.
    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<(), OutOfBounds> {
        let (region, offset) = self.region_at(address, data.len() as u64)?;
        region.write_raw(offset, data);
        Ok(())
    }

    /// Forgets accesses of earlier launches. Bytes in `read_only` (address and length) may not be written in this one.
    pub fn begin_launch(&mut self, read_only: &[(u64, u64)]) {
        for &slot in self.starts.values() {
            let Some(Slot { address, region, permission }) = self.slots.get_mut(slot) else { continue };
            region.reset();
            region.permission = *permission;
            for &(start, len) in read_only {
                let end = start.saturating_add(len).min(*address + region.len());
                let start = start.max(*address);
                if start >= end {
                    continue;
                }
                if start == *address && end == *address + region.len() {
                    region.permission = Permission::ReadOnly;
                } else {
                    region.read_only.push(start - *address..end - *address);
                }
            }
        }
    }

    fn place(&mut self, address: u64, region: Region, permission: Permission) -> bool {
        let end = address.saturating_add(region.len());
        self.next = self.next.max(end.saturating_add(GUARD + ALIGN - 1) & !(ALIGN - 1));
        let slot = Slot { address, region, permission };
        let index = match self.free.pop() {
            Some(index) => {
                if let Some(old) = self.slots.get_mut(index) {
                    *old = slot;
                }
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.starts.insert(address, index);
        true
    }

    fn slot_below(&self, address: u64) -> Option<&Slot> {
        self.starts.range(..=address).next_back().and_then(|(_, &slot)| self.slots.get(slot))
    }

    #[cold]
    fn out_of_bounds(&self, address: u64, len: u64) -> OutOfBounds {
        let above = || self.starts.range(address..).next().and_then(|(_, &slot)| self.slots.get(slot));
        let near = self.slot_below(address).or_else(above);
        OutOfBounds { address, len, near: near.map(|s| (s.address, s.region.len())) }
    }

    /// The allocations: address and bytes, in order.
    pub fn allocations(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.starts.values().filter_map(|&slot| self.slots.get(slot)).map(|s| s.address..s.address + s.region.len())
    }
}
