//! Resident CTAs: starts the next cluster when one ends, and places the variables of the module.

use super::Execution;
use super::cta::{Cluster, Cta};
use super::warp::Coordinates;
use crate::fault::{Fault, FaultKind, Result};
use crate::memory::{Permission, Shared};
use crate::syntax::ast::Space;

/// Constant memory of a module, in bytes.
const MOST_CONSTANTS: u64 = 1 << 20;

impl Execution<'_> {
    /// Starts the first clusters.
    pub(super) fn fill(&mut self) -> Result<()> {
        let size = self.at.cluster.iter().product::<u32>() as usize;
        let window = (u64::from(self.at.slots) / size as u64).min(self.total);
        let rows = u64::from(self.program.regs) * 256 + u64::from(self.program.local_bytes) * 64;
        let cta = rows * self.warps as u64 + u64::from(self.at.static_shared + self.at.dynamic_shared) * 8;
        let need = cta.saturating_mul(window * size as u64);
        if need > self.options.memory_limit {
            let message = format!("{need} bytes for resident CTAs: the limit is {}", self.options.memory_limit);
            return Err(Fault::new(FaultKind::Budget, message));
        }
        for _ in 0..window {
            let first = self.ctas.len();
            self.clusters.push(Cluster { first, size, ..Cluster::default() });
            self.start(self.clusters.len() - 1);
        }
        Ok(())
    }

    /// Starts the next cluster of the grid, if there is one, in place of one that has ended.
    pub(super) fn start(&mut self, cluster: usize) {
        if self.started == self.total {
            return;
        }
        let index = self.schedule.start(self.started, self.total);
        self.started += 1;
        let Some(Cluster { first, size, .. }) = self.clusters.get(cluster) else { return };
        let (first, size) = (*first, *size);
        let shape = self.at.cluster;
        let [x, y, _] = std::array::from_fn(|k| u64::from(self.at.grid[k] / shape[k].max(1)));
        let corner = [index % x, index / x % y, index / (x * y)];
        let threads = self.launch.block.iter().product();
        for rank in 0..size as u32 {
            let within = [rank % shape[0], rank / shape[0] % shape[1], rank / (shape[0] * shape[1])];
            let ctaid: [u32; 3] = std::array::from_fn(|k| corner[k] as u32 * shape[k] + within[k]);
            let [gx, gy, _] = self.at.grid;
            let index = ctaid[0] + gx * (ctaid[1] + gy * ctaid[2]);
            let slot = first + rank as usize;
            let at = Coordinates { ctaid, rank, slot: slot as u32, ..self.at };
            let shared = Shared::new(index, self.at.static_shared + self.at.dynamic_shared);
            let cta = Cta::new(self.program, at, [index, threads], cluster, shared);
            match self.ctas.get_mut(slot) {
                Some(old) => *old = cta,
                None => self.ctas.push(cta),
            }
        }
        if let Some(of) = self.clusters.get_mut(cluster) {
            *of = Cluster { first, size, live: size, ..Cluster::default() };
        }
    }

    /// Puts the module's variables into memory.
    pub(super) fn define_variables(&mut self) -> Result<()> {
        for v in &self.program.globals {
            // A launch begins with the module freshly loaded.
            if !self.global.define(v.address, v.bytes.clone(), Permission::ReadWrite) {
                self.global.free(v.address);
                if !self.global.define(v.address, v.bytes.clone(), Permission::ReadWrite) {
                    let message = format!("variable {} at {:#x} meets other memory", v.name, v.address);
                    return Err(Fault::new(FaultKind::Launch, message));
                }
            }
        }
        for v in self.program.constants.iter().filter(|v| v.space == Space::Const) {
            let end = v.address.saturating_add(v.bytes.len() as u64);
            if end > MOST_CONSTANTS {
                return Err(Fault::new(FaultKind::Launch, format!("constant {} ends at {end:#x}", v.name)));
            }
            if self.constants.len() < end as usize {
                self.constants.resize(end as usize, 0);
            }
            if let Some(to) = self.constants.get_mut(v.address as usize..end as usize) {
                to.copy_from_slice(&v.bytes);
            }
        }
        Ok(())
    }
}
