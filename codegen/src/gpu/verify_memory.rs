//! The rules of what a kernel declares: its signature, shared memory, rings and roles (404 to 417).

use super::verify::{Verifier, index_map_error};
use super::{BufferData, CopyAtom, Kernel, MBARRIER_BYTES, MOST_CTAS_OF_CLUSTER, Mover, Op, Role, RoleData, Scope};
use crate::arch::{Capability, Machine};
use crate::gpu_ops;
use atlas_dsl::DType;
use atlas_dsl::ir::{DimSize, GridExtent, Loc, ParamKind, Stride};
use std::collections::BTreeSet;

/// Shared memory that any target has, in bytes; the bound on what layouts may ask for.
const MAX_SHARED: u64 = 1 << 20;

impl Kernel {
    /// First warp and number of warps of a role.
    pub fn role_warps(&self, role: Role) -> (u32, u32) {
        let RoleData { scope, units: (first, last), .. } = self.roles[role];
        let count = last.saturating_sub(first).saturating_add(1);
        match scope {
            Scope::Cta | Scope::Cluster => (0, self.threads / 32),
            Scope::Warpgroup => (first.saturating_mul(4), count.saturating_mul(4)),
            Scope::Thread | Scope::Warp => (first, count),
        }
    }

    /// Number of threads that run a role's body: one for a role of scope thread, whatever its warps.
    pub fn role_threads(&self, role: Role) -> u32 {
        match self.roles[role].scope {
            Scope::Thread => 1,
            Scope::Cta | Scope::Cluster => self.threads,
            Scope::Warp | Scope::Warpgroup => self.role_warps(role).1.saturating_mul(32),
        }
    }
}

/// Bytes of all stages, if that is a sane number.
fn bytes(b: &BufferData) -> Option<u32> {
    let one = u64::from(b.layout.rows).checked_mul(b.layout.pitch.into())?;
    let panels = u64::from(b.layout.cols.div_ceil(b.layout.panel));
    let all = one.checked_add(1024)?.checked_mul(panels)?.checked_mul(b.stages.into())?;
    (all <= MAX_SHARED).then(|| b.bytes())
}

impl Verifier<'_> {
    /// 412, as far as other rules compute with it.
    pub(super) fn buffer_size(&mut self, b: &BufferData) {
        let s = b.layout.swizzle;
        let high = u64::from(s.bits) + u64::from(s.base) + u64::from(s.shift);
        let wrong = if b.layout.rows == 0 || b.layout.cols == 0 || b.stages == 0 {
            Some("has an extent of 0".to_owned())
        } else if b.layout.panel == 0 || !b.layout.cols.is_multiple_of(b.layout.panel) {
            Some(format!("has panels of {} columns, which do not make up {}", b.layout.panel, b.layout.cols))
        } else if high > 20 || s.base < 4 || (s.bits > 0 && s.shift < s.bits) {
            Some(format!("has the swizzle {s}, which does not keep 16 bytes together or mixes a bit into itself"))
        } else if u64::from(b.layout.panel) * u64::from(b.dtype.bytes()) > b.layout.pitch.into() {
            Some(format!("has a pitch of {} bytes for {} columns of {}", b.layout.pitch, b.layout.panel, b.dtype))
        } else if !b.layout.pitch.is_multiple_of(16) && (b.layout.pitch > 16 || !b.layout.pitch.is_power_of_two()) {
            Some(format!("has a pitch of {} bytes, no multiple of 16 and no power of two below", b.layout.pitch))
        } else if bytes(b).is_none() {
            Some("is larger than any shared memory".to_owned())
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.error(412, Loc::default(), format!("the buffer `{}` {wrong}", b.name));
        }
    }

    /// Names, parameters, dims, tables, the target and the grid: 404 to 408.
    pub(super) fn signature(&mut self) {
        let (k, at) = (self.kernel, Loc::default());
        self.names("parameter", k.params.values().map(|p| &p.name));
        self.names("dim", k.dims.values().map(|d| &d.name));
        self.names("table", k.tables.values().map(|t| &t.name));
        self.names("role", k.roles.values().map(|r| &r.name));
        self.names("kernel", [&k.name]);
        for d in k.dims.values() {
            if matches!(d.size, DimSize::Const(0) | DimSize::Dynamic { divisor: 0 }) {
                self.error(405, at, format!("dim `{}` has no elements, or divisor 0", d.name));
            }
        }
        for p in k.params.values() {
            let (ParamKind::Scalar { dtype } | ParamKind::Tensor { dtype, .. }) = &p.kind;
            if *dtype == DType::Bool {
                self.error(405, at, format!("parameter `{}` is bool", p.name));
            }
            let ParamKind::Tensor { dims, strides, align, .. } = &p.kind else { continue };
            if p.kind.has_faulty_axes() {
                self.error(405, at, format!("`{}` has axes that are not each of its {} once", p.name, dims.len()));
            }
            if strides.len() != dims.len() || strides.contains(&Stride::Dynamic { divisor: 0 }) {
                let message = format!("`{}` has rank {}, but strides {strides:?}", p.name, dims.len());
                self.error(405, at, message);
            }
            if !align.is_power_of_two() || *align < dtype.bytes() {
                self.error(405, at, format!("`{}` has alignment {align}", p.name));
            }
        }
        for t in k.tables.values() {
            let elements = t.shape.iter().fold(1u64, |n, &e| n.saturating_mul(e.into()));
            if t.shape.contains(&0) || elements != t.values.len() as u64 {
                let message = format!("table `{}` of extents {:?} has {} values", t.name, t.shape, t.values.len());
                self.error(405, at, message);
            }
        }
        for axis in &k.index_map.axes {
            if let GridExtent::Tiles { dim, size: 0 } = *axis {
                self.error(405, at, format!("the grid has tiles of 0 elements of `{}`", k.dims[dim].name));
            }
        }
        if let Some(wrong) = index_map_error(&k.index_map, k.coords.len()) {
            self.error(408, at, wrong);
        }
        if !k.target.is_known() {
            self.error(406, at, format!("the compiler does not lower for {}", k.target));
        }
        let held = Machine::most_threads(k.target);
        if k.occupancy == 0 || k.occupancy.saturating_mul(k.threads) > held {
            let message =
                format!("an occupancy of {} CTAs of {} threads; a multiprocessor holds {held}", k.occupancy, k.threads);
            self.error(407, at, message);
        }
        if k.threads == 0 || k.threads > 1024 || !k.threads.is_multiple_of(32) {
            self.error(407, at, format!("{} threads; wanted whole warps, at most 32 of them", k.threads));
        }
        let (x, y) = k.cluster;
        let ctas = u64::from(x) * u64::from(y);
        if ctas == 0 || ctas > u64::from(MOST_CTAS_OF_CLUSTER) {
            self.error(407, at, format!("a cluster of ({x}, {y}) CTAs"));
        } else if ctas > 1 && !k.target.has(Capability::Clusters) {
            self.error(407, at, format!("{} has no clusters", k.target));
        }
    }

    fn names<'n>(&mut self, what: &str, names: impl IntoIterator<Item = &'n String>) {
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name) {
                self.error(404, Loc::default(), format!("two {what}s are called `{name}`"));
            }
            let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            if !starts || name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                self.error(404, Loc::default(), format!("the {what} name `{name}` is not a word"));
            }
        }
    }

    /// Buffers and rings: 412, 413, 416 and 417.
    pub(super) fn memory(&mut self) {
        let (k, at) = (self.kernel, Loc::default());
        for (b, data) in &k.buffers {
            let rings: Vec<_> = k.rings.iter().filter(|(_, r)| r.buffers.contains(&b)).map(|(r, _)| r).collect();
            if rings.len() > 1 {
                self.error(416, at, format!("the buffer `{}` is in {} rings", data.name, rings.len()));
            }
            if data.stages > 1 && rings.is_empty() {
                self.error(
                    416,
                    at,
                    format!("the buffer `{}` has {} stages, but is in no ring", data.name, data.stages),
                );
            }
            let Some(offset) = data.offset else { continue };
            if !offset.is_multiple_of(data.layout.alignment()) {
                let wanted = data.layout.alignment();
                self.error(412, at, format!("the buffer `{}` at {offset} is not aligned to {wanted} bytes", data.name));
            }
            let end = offset.saturating_add(data.bytes());
            let has = Machine::most_shared_bytes(k.target);
            if end > has {
                self.error(412, at, format!("the buffer `{}` ends at byte {end} of {has} on {}", data.name, k.target));
            }
        }
        for (r, ring) in &k.rings {
            if ring.stages == 0 {
                self.error(416, at, format!("{r} has no stages"));
            }
            for &b in &ring.buffers {
                let data = &k.buffers[b];
                if data.stages != ring.stages {
                    let message = format!("{r} has {} stages, its buffer `{}` {}", ring.stages, data.name, data.stages);
                    self.error(416, at, message);
                }
            }
            self.filling(r, at);
            self.mbarriers(r, at);
        }
    }

    /// 417: the engine fills a ring that says so, and threads the others.
    fn filling(&mut self, r: super::Ring, at: Loc) {
        let k = self.kernel;
        let ring = &k.rings[r];
        let (mut by_engine, mut by_threads, mut to_engine) = (BTreeSet::new(), false, false);
        for (inst, op) in &k.insts {
            if self.place[inst].is_none() {
                continue;
            }
            match op {
                Op::Copy { atom, to, .. } if ring.buffers.contains(&to.buffer) => match atom {
                    CopyAtom::Tma(..) | CopyAtom::TmaMulticast(_) => _ = by_engine.insert(to.buffer),
                    CopyAtom::TmaStore(_) => to_engine = true,
                    // Not settled yet: it may become either.
                    CopyAtom::Open => {}
                    CopyAtom::CpAsync(_) | CopyAtom::Direct => by_threads = true,
                },
                Op::StoreShared { to, .. } => by_threads |= ring.buffers.contains(&to.buffer),
                Op::ZeroShared(buffer) | Op::SumCluster(_, buffer) => by_threads |= ring.buffers.contains(buffer),
                Op::Copy { .. } | Op::LoadGlobal { .. } | Op::StoreGlobal { .. } => {}
                Op::LoadShared(_) | Op::LoadMatrix { .. } => {}
                gpu_ops!(sources elementwise views fragments products rings orders control) => {}
            }
        }
        let message = match ring.filled_by {
            Mover::Engine if by_threads => format!("threads fill {r}, which is `from engine`"),
            Mover::Threads if !by_engine.is_empty() => format!("the copy engine fills {r}, which is not `from engine`"),
            Mover::Engine | Mover::Threads if to_engine != (ring.read_by == Mover::Engine) && to_engine => {
                format!("the copy engine reads {r}, which is not `to engine`")
            }
            Mover::Engine | Mover::Threads if ring.by_warpgroups && ring.read_by == Mover::Threads => {
                format!("warpgroups have {r} stored, which is not `to engine`")
            }
            Mover::Engine | Mover::Threads => return,
        };
        self.error(417, at, message);
    }

    /// 412 for the mbarriers of a ring.
    fn mbarriers(&mut self, r: super::Ring, at: Loc) {
        let k = self.kernel;
        let ring = &k.rings[r];
        let Some(first) = ring.mbarriers else { return };
        if ring.filled_by != Mover::Engine {
            self.error(417, at, format!("{r} has mbarriers, but threads fill it"));
        }
        let end = first.saturating_add(ring.mbarrier_bytes());
        let has = Machine::most_shared_bytes(k.target);
        if !first.is_multiple_of(MBARRIER_BYTES) || end > has {
            let message =
                format!("the mbarriers of {r} at {first} are not aligned, or end past byte {has} on {}", k.target);
            self.error(412, at, message);
        }
        let meets = |b: &BufferData| b.offset.is_some_and(|o| o < end && first < o.saturating_add(b.bytes()));
        if let Some(b) = k.buffers.values().find(|b| meets(b)) {
            self.error(413, at, format!("the mbarriers of {r} lie in the buffer `{}`", b.name));
        }
        let others = k.rings.iter().filter(|(other, _)| *other != r);
        let lies_in = |data: &super::RingData| {
            data.mbarriers.is_some_and(|o| o < end && first < o.saturating_add(data.mbarrier_bytes()))
        };
        if others.into_iter().any(|(_, data)| lies_in(data)) {
            self.error(413, at, format!("the mbarriers of {r} are another ring's too"));
        }
    }

    /// 414 and 415.
    pub(super) fn roles(&mut self) {
        let (k, at) = (self.kernel, Loc::default());
        let mut taken: Vec<(u32, u32, &str)> = Vec::new();
        let mut registers = 0u64;
        for (r, role) in &k.roles {
            let (first, count) = k.role_warps(r);
            if role.scope == Scope::Cluster || role.units.1 < role.units.0 {
                self.error(414, at, format!("the role `{}` has no warps of a CTA", role.name));
            }
            taken.push((first, first.saturating_add(count), &role.name));
            let Some(n) = role.registers else { continue };
            registers += u64::from(n) * u64::from(count) * 32;
            if !n.is_multiple_of(8) || !(24..=256).contains(&n) {
                let message = format!("the role `{}` has {n} registers; wanted a multiple of 8 in 24..=256", role.name);
                self.error(415, at, message);
            }
            if !first.is_multiple_of(4) || !count.is_multiple_of(4) {
                let message = format!("the role `{}` sets registers, but is not of whole warpgroups", role.name);
                self.error(415, at, message);
            }
            if !k.target.has(Capability::SetMaxNReg) {
                self.error(415, at, format!("the role `{}` sets registers, which {} cannot", role.name, k.target));
            }
        }
        if registers > 65536 {
            self.error(415, at, format!("the roles ask for {registers} registers of 65536"));
        }
        taken.sort_unstable();
        let mut next = 0;
        for &(first, end, name) in &taken {
            if first < next {
                self.error(414, at, format!("the role `{name}` starts at warp {first}, which another role has"));
            } else if first > next {
                self.error(414, at, format!("no role has warp {next}"));
            }
            next = next.max(end);
        }
        if next != k.threads / 32 {
            self.error(414, at, format!("the roles have {next} warps, the CTA {}", k.threads / 32));
        }
    }
}
