//! How many CTAs a cluster has, and what a schedule may not ask for beside one.
//!
//! # Promise
//! The CTAs of a cluster run the programs of one cluster of the grid, each the program whose coordinate is the CTA's rank.
//!
//! # Argument
//! The programs of a cluster differ in the last axis of the grid alone, which has as many coordinates as the cluster has CTAs. In
//! linear order the CTA `n` runs the program `n`, whose last coordinate is `n` modulo that number. Clusters are made of consecutive
//! CTAs, so that is the rank. Groups of rows, persistent programs and CTAs that share a program number programs otherwise.
//!
//! # Breaks it
//! tests/agreement/clusters.rs.

use crate::arch::{Capability, Target};
use crate::error::CompileError;
use crate::gpu::MOST_CTAS_OF_CLUSTER;
use atlas_dsl::config::{Order, Programs};
use atlas_dsl::ir::DimSize;
use atlas_dsl::{Kernel, Schedule};

/// The number of CTAs of a cluster; 1 if the grid has none.
///
/// # Errors
/// Refuses clusters that the target does not have, or that the schedule cannot order.
pub fn cluster_size(kernel: &Kernel, schedule: &Schedule, target: Target) -> Result<u32, CompileError> {
    let Some(axis) = kernel.grid.last().filter(|_| kernel.cluster) else { return Ok(1) };
    let dim = &kernel.dims[axis.extent.dim()];
    let DimSize::Const(extent) = dim.size else { return Err(CompileError::bug("a cluster along a dim of any size")) };
    let programs = extent.div_ceil(u64::from(axis.extent.tile().unwrap_or(1)));
    let refused = |why: String| {
        Err(CompileError::refusal(format!("a cluster of {programs} programs along `{}`: {why}", dim.name)))
    };
    if programs == 1 {
        return Ok(1);
    }
    if !target.has(Capability::Clusters) {
        return refused(format!("{target} has no clusters"));
    }
    if programs > u64::from(MOST_CTAS_OF_CLUSTER) {
        let mend = if axis.extent.tile().is_some() { "; larger tiles would help" } else { "" };
        return refused(format!("a GPU runs at most {MOST_CTAS_OF_CLUSTER} together{mend}"));
    }
    if schedule.split_k != 1 {
        return refused(format!("split_k={} has other CTAs share a program; use split_k=1", schedule.split_k));
    }
    if schedule.programs == Some(Programs::Persistent) {
        return refused("they begin and end together; use programs=single".to_owned());
    }
    match schedule.order {
        None | Some(Order::Linear) => Ok(programs as u32),
        Some(order) => refused(format!("order={order} takes their neighbours apart; use order=linear")),
    }
}
