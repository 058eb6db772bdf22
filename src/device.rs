//! Types that belong to [`Device`](crate::Device) and [`Tensor`](crate::Tensor): names of devices, memory, streams and
//! events.

pub use atlas_runtime::{CacheDir, DeviceId, DeviceMemory, DeviceStats, Element, Event, Machine, Stream, Target};
