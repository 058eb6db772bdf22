//! Runs the programs of a cluster in step: each up to the next `cluster_sum`, then the sum, then on.
//!
//! Only loops that have a sum inside are run in step. By rule 233 of Tile IR their bounds are the same in all programs.

use crate::error::InterpError;
use crate::eval::{LaunchState, Program};
use crate::memory::PendingStore;
use crate::tile::{Data, Tile, common, mismatch};
use atlas_dsl::{Block, Inst, Kernel, Op, Value};
use std::sync::Arc;

/// What a loop carries, of each program.
type Carried = Vec<Vec<Arc<Tile>>>;

/// Runs the programs at these coordinates, which differ in the last one alone. Returns what they store.
pub(crate) fn run(launch: &LaunchState<'_>, coordinates: &[Vec<i32>]) -> Result<Vec<PendingStore>, InterpError> {
    let mut programs: Vec<Program<'_>> = coordinates.iter().map(|at| Program::at(launch, at)).collect();
    block(&mut programs, launch.kernel.body)?;
    let mut stores = Vec::new();
    for program in programs {
        stores.extend(program.finish()?);
    }
    Ok(stores)
}

/// Runs a block in step. Returns what it yields.
fn block(programs: &mut [Program<'_>], block: Block) -> Result<Carried, InterpError> {
    let Some(kernel) = programs.first().map(|program| program.launch.kernel) else { return Ok(Vec::new()) };
    for &inst in &kernel.blocks[block].insts {
        match &kernel.insts[inst] {
            Op::Yield(values) => {
                return programs.iter().map(|program| values.iter().map(|&v| program.tile(v)).collect()).collect();
            }
            Op::ClusterSum(value) => sum(programs, *value, kernel.results[inst][0]),
            Op::Loop { lo, hi, inits, body, .. } if has_sum(kernel, *body) => {
                run_loop(programs, inst, [*lo, *hi], inits, *body)
            }
            _ => programs.iter_mut().try_for_each(|program| program.inst(inst)),
        }
        .map_err(|e| e.at(kernel.locs[inst]))?;
    }
    Ok(Vec::new())
}

/// True if the programs meet in a block.
fn has_sum(kernel: &Kernel, block: Block) -> bool {
    kernel.blocks[block].insts.iter().any(|&inst| match &kernel.insts[inst] {
        Op::ClusterSum(_) => true,
        Op::Loop { body, .. } => has_sum(kernel, *body),
        _ => false,
    })
}

fn run_loop(
    programs: &mut [Program<'_>],
    inst: Inst,
    bounds: [Value; 2],
    inits: &[Value],
    body: Block,
) -> Result<(), InterpError> {
    let mut loops = Vec::new();
    let mut carried = Vec::new();
    for program in programs.iter() {
        let (begun, first) = program.begin_loop(bounds, inits, body)?;
        loops.push(begun);
        carried.push(first);
    }
    let Some(range) = loops.first().map(|l| l.range.clone()) else { return Ok(()) };
    if loops.iter().any(|l| l.range != range) {
        return Err(InterpError::kernel("the programs of a cluster run a loop with a `cluster_sum` unequally often"));
    }
    for i in range {
        for ((program, begun), carried) in programs.iter_mut().zip(&loops).zip(carried) {
            program.begin_iteration(begun, i, carried)?;
        }
        carried = block(programs, body)?;
        loops.iter().zip(&mut carried).for_each(|(begun, carried)| begun.narrow(carried));
    }
    for (program, carried) in programs.iter_mut().zip(carried) {
        program.end_loop(inst, carried);
    }
    Ok(())
}

/// Gives all programs the sum of their tiles, added one after the other, in the order of their coordinates.
fn sum(programs: &mut [Program<'_>], value: Value, result: Value) -> Result<(), InterpError> {
    let mut total: Option<Tile> = None;
    for program in programs.iter_mut() {
        let tile = program.tile(value)?;
        program.count_elements(value)?;
        total = Some(match total {
            None => Tile::clone(&tile),
            Some(before) => added(before, &tile)?,
        });
    }
    let Some(total) = total.map(Arc::new) else { return Ok(()) };
    programs.iter_mut().for_each(|program| program.set(result, total.clone()));
    Ok(())
}

fn added(mut to: Tile, from: &Tile) -> Result<Tile, InterpError> {
    match (&mut to.data, &from.data) {
        (Data::F32(x), Data::F32(y)) => x.iter_mut().zip(y).for_each(|(x, y)| *x += y),
        (Data::F64(x), Data::F64(y)) => x.iter_mut().zip(y).for_each(|(x, y)| *x += y),
        (Data::Ring(x), Data::Ring(y)) => x.iter_mut().zip(y).for_each(|(x, y)| *x = x.add(*y)),
        _ => return Err(mismatch("cluster_sum")),
    }
    to.valid = common(&to.valid, &from.valid);
    Ok(to)
}
