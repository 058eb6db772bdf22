//! Notes on the decisions of the pass: products, loads, tiles in shared memory, functions.

use super::Lower;
use crate::analysis::{Home, Path, StagingReason, StorePath, Verdict};
use crate::arch::Capability;
use crate::gpu::atom::MmaAtom;
use crate::gpu::{Op as GpuOp, Operand, WarpGrid, warp_grid_of};
use crate::notes::{Notes, place};
use atlas_dsl::config::Copies;
use atlas_dsl::ir::{Loc, ParamData, ParamKind, ValueDef};
use atlas_dsl::{Inst, Op};
use std::collections::HashSet;

impl Lower<'_> {
    /// Records all notes, once the kernel is complete.
    pub(super) fn note_decisions(&self, notes: &mut Notes) {
        if !notes.are_kept() {
            return;
        }
        let at_once = self.schedule.occupancy;
        notes.push("frame", Loc::default(), || {
            (format!("{} warps, occupancy {at_once}", self.schedule.warps), "the config".to_owned())
        });
        if let Some(width) = self.k.index_map.group {
            notes.push("order", Loc::default(), || {
                let because = match self.schedule.order {
                    Some(_) => "the config",
                    None => "rows and columns of the grid read different tensors",
                };
                (format!("groups of {width} rows"), because.to_owned())
            });
        }
        for inst in self.tile.insts.keys().filter(|&i| self.uses.is_live(i)) {
            match self.tile.insts[inst] {
                Op::Dot { .. } => self.note_product(inst, notes),
                Op::Load { .. } => self.note_load(inst, notes),
                Op::Store { .. } => self.note_store(inst, notes),
                _ => {}
            }
        }
        self.note_tiles(notes);
        self.note_functions(notes);
    }

    /// The form that computes each function. Functions at one location with the same form give one note.
    fn note_functions(&self, notes: &mut Notes) {
        // Looked up, never iterated.
        let mut said = HashSet::new();
        for inst in self.tile.insts.keys() {
            let Some(verdict) = self.approximations.verdict(inst) else { continue };
            let (name, loc) = (self.operation(inst), self.tile.locs[inst]);
            if !said.insert((name, loc, verdict)) {
                continue;
            }
            notes.push(name, loc, || match verdict {
                Verdict::Approximate => (
                    "approximate".to_owned(),
                    "all that depends on it is rounded to 16 bits, nothing magnifies its error".to_owned(),
                ),
                Verdict::Reaches(param) => {
                    let ParamData { name, kind: ParamKind::Tensor { dtype, .. } | ParamKind::Scalar { dtype } } =
                        &self.tile.params[param];
                    ("precise".to_owned(), format!("`{name}` of {dtype} depends on it"))
                }
                Verdict::Magnified(by) => {
                    let at = place(self.tile.locs[by]);
                    let at = if at.is_empty() { at } else { format!(" at {at}") };
                    ("precise".to_owned(), format!("`{}`{at} would magnify its error", self.operation(by)))
                }
            });
        }
    }

    /// An operation's name in the text form.
    fn operation(&self, inst: Inst) -> &'static str {
        match &self.tile.insts[inst] {
            Op::Unary(op, _) => op.name(),
            Op::Binary(op, ..) => op.name(),
            Op::Compare(p, ..) => p.name(),
            op => op.kind().name(),
        }
    }

    /// A product's atom, its warps and the sources of its operands.
    fn note_product(&self, dot: Inst, notes: &mut Notes) {
        let loc = self.tile.locs[dot];
        let Some(atom) = self.placement.product(dot) else { return };
        let Op::Dot { a, precision, .. } = self.tile.insts[dot] else { return };
        let made = self.k.insts.iter().find_map(|(i, op)| {
            let GpuOp::Mma { a, shape, .. } = op else { return None };
            (self.k.locs[i] == loc).then_some((i, *a, *shape))
        });
        let Some((inst, left, (m, n, k))) = made else { return };
        let Some((_, layout)) = self.k.values[self.k.results[inst][0]].ty.tile() else { return };
        notes.push("product", loc, || {
            let WarpGrid { rows, cols } = warp_grid_of(layout);
            let (left, why) = match left {
                Operand::Fragment(_) => ("registers", "A is computed in the operand's layout"),
                Operand::Shared(_) => ("shared memory", "A is not computed in the operand's layout"),
            };
            let pinned = if self.schedule.warp_grid.is_some() { " (the config)" } else { "" };
            let what = format!("{m}x{n}x{k} by {}, warps {rows}x{cols}{pinned}, A from {left}", atom.row().name);
            let dtype = self.tile.ty(a).dtype;
            let synchronous = self.placement.why_synchronous(dot);
            let by_warpgroups = MmaAtom::select_asynchronous(dtype, precision, self.k.target);
            let because = match synchronous.filter(|_| by_warpgroups.is_some()) {
                Some(why) => why.text().to_owned(),
                None => format!("{dtype} operands on {}; {why}", self.k.target),
            };
            (what, because)
        });
    }

    /// The path of a load.
    fn note_load(&self, load: Inst, notes: &mut Notes) {
        let (v, loc) = (self.tile.results[load][0], self.tile.locs[load]);
        let Op::Load { param, .. } = &self.tile.insts[load] else { return };
        let home = self.placement.home(v);
        if self.uses.get(v).is_empty() {
            return;
        }
        notes.push(format!("load {}", self.tile.params[*param].name), loc, || {
            let (how, because) = match home {
                Home::Copied(StagingReason::Operand) => match self.paths.get(load) {
                    Some(Path::Engine) => ("staged by the copy engine", "a product reads it in shared memory"),
                    Some(Path::Threads(why))
                        if self.k.target.has(Capability::Tma) || self.schedule.copies == Some(Copies::Engine) =>
                    {
                        ("staged by threads", why.text())
                    }
                    _ => ("staged", "a product reads it in shared memory"),
                },
                Home::Copied(StagingReason::Coalescing) => match self.paths.get(load) {
                    Some(Path::Engine) => ("staged by the copy engine", "an accumulator of wgmma meets it"),
                    _ => ("staged", "its layout would read less than 32 bytes in a row"),
                },
                Home::Copied(StagingReason::Ahead) => ("staged", "a pipelined loop's loads run ahead of it"),
                Home::Copied(StagingReason::Transposed) => ("staged", "it is used transposed"),
                Home::Stored if self.tile.insts[load].gathers() => {
                    ("to registers, then stored", "it lies at the places of a tile")
                }
                Home::Stored => ("to registers, then stored", "the kernel writes the tensor too"),
                _ => ("to registers", "nothing reads it in shared memory"),
            };
            (how.to_owned(), because.to_owned())
        });
    }

    /// The path of a store, where the engine was asked for, and how an atomic one is made.
    fn note_store(&self, store: Inst, notes: &mut Notes) {
        let Op::Store { param, value, update, .. } = self.tile.insts[store] else { return };
        if let Some(op) = update.combine() {
            let dtype = self.tile.ty(value).dtype;
            let what = format!("{} {}", update.statement(), self.tile.params[param].name);
            notes.push(what, self.tile.locs[store], || {
                let how = match self.k.target.combined_at_once(op, dtype) {
                    Some(1) => "an instruction for each element",
                    Some(_) => "an instruction for each vector",
                    None => "a loop of compare-and-swap for each element",
                };
                let because = match update.depends_on_order(dtype) {
                    true => "programs have no order, so the last bits may differ from launch to launch",
                    false => "the result is the same in any order",
                };
                (how.to_owned(), because.to_owned())
            });
        }
        if self.schedule.stores != Some(Copies::Engine) {
            return;
        }
        notes.push(format!("store {}", self.tile.params[param].name), self.tile.locs[store], || {
            let (how, because) = match self.paths.of_store(store) {
                Some(StorePath::Threads(why)) => ("by threads", why.text()),
                Some(StorePath::Engine) | None => ("by the copy engine", "its tile and its tensor fit it"),
            };
            (how.to_owned(), because.to_owned())
        });
    }

    /// Computed tiles that live in shared memory.
    fn note_tiles(&self, notes: &mut Notes) {
        for v in self.tile.values.keys().filter(|&v| !self.uses.get(v).is_empty()) {
            let Some(held) = self.residents[v] else { continue };
            let name = &self.k.buffers[held.buffer].name;
            match (self.placement.home(v), self.tile.values[v].def) {
                (Home::Stored, ValueDef::Result(inst, _)) if !matches!(self.tile.insts[inst], Op::Load { .. }) => {
                    notes.push("tile", self.tile.locs[inst], || {
                        (format!("{name} in shared memory"), "a product or a transpose reads it there".to_owned())
                    });
                }
                (Home::Carried, ValueDef::BlockParam(block, _)) => {
                    let loc = self.uses.loop_of(block).map_or(Loc::default(), |l| self.tile.locs[l]);
                    notes.push("tile", loc, || {
                        (
                            format!("{name} in one buffer, updated in place"),
                            "a loop carries it and reads it in shared memory".to_owned(),
                        )
                    });
                }
                _ => {}
            }
        }
    }
}
