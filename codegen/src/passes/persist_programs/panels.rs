//! The stage of a tile that the engine stores becomes a ring of panels.

use crate::gpu::atom::{WARPGROUP, WARPGROUP_ROWS};
use crate::gpu::slices::is_scalar;
use crate::gpu::{At, Block, CopyAtom, Inst, Kernel, Mover, Op, Ring, SharedRef, Type, Value, ValueDef, slice_layout};
use crate::layout::SharedLayout;
use crate::passes::lower_rings::scalars::int;

/// Stages of a ring of panels: one is written while the engine stores the other.
const STAGES: u32 = 2;

/// Splits the stages of a block that the engine stores whole. One stays whole if its panels are not written one after the other
/// by all threads, or if they are not a multiple of the stages: the next program has to begin with the stage that follows.
pub(super) fn store_by_panels(k: &mut Kernel, body: Block) {
    let rings: Vec<Ring> = k.rings.keys().filter(|&r| k.rings[r].read_by == Mover::Engine).collect();
    for ring in rings {
        let Some(layout) = panel_of(k, ring) else { continue };
        let by_warpgroups = have_own_rows(k, body, ring);
        let height = if by_warpgroups { WARPGROUP_ROWS } else { layout.rows };
        let (width, out) = (layout.cols, Vec::new());
        let mut split = PanelSplit { k, ring, width, height, out, panels: 0, stored: None };
        let is_split = split.block(body).is_some() && split.panels.is_multiple_of(STAGES);
        let PanelSplit { out, .. } = split;
        if is_split {
            k.blocks[body].insts = out;
            k.rings[ring].stages = STAGES;
            k.rings[ring].by_warpgroups = by_warpgroups;
            let buffer = k.rings[ring].buffers[0];
            let data = &mut k.buffers[buffer];
            (data.stages, data.layout) = (STAGES, layout);
        }
    }
}

/// True if there are several warpgroups, and each writes its own rows of every tile that a ring stores. Then a warpgroup need not
/// wait for the others, which may still multiply.
fn have_own_rows(k: &Kernel, body: Block, ring: Ring) -> bool {
    let writes = |&i: &Inst| {
        let Op::StoreShared { to, value } = k.insts[i] else { return None };
        k.rings[ring].buffers.contains(&to.buffer).then_some((to, value))
    };
    let is_own =
        |(to, value): (SharedRef, Value)| to.origin.0 == 0 && k.tile(value).1.warpgroups_have_rows(WARPGROUP_ROWS);
    k.threads > 32 * WARPGROUP && k.blocks[body].insts.iter().filter_map(writes).all(is_own)
}

/// The layout of one panel of a ring's stage.
fn panel_of(k: &Kernel, ring: Ring) -> Option<SharedLayout> {
    let (&[buffer], 1) = (&k.rings[ring].buffers[..], k.rings[ring].stages) else { return None };
    let data = &k.buffers[buffer];
    let panel = data.layout.engine_box(data.dtype.bytes())?;
    SharedLayout::for_engine_stores(&[data.layout.rows, panel.cols], data.dtype.bytes())
}

/// A tile that is being stored.
struct StoredTile {
    /// Its token, and what its panels are stored by.
    token: Value,
    copies: Vec<Inst>,
    /// The panel that is being written, with its token.
    panel: Option<(u32, Value)>,
}

struct PanelSplit<'k> {
    k: &'k mut Kernel,
    ring: Ring,
    /// Columns of a panel, and rows of a box.
    width: u32,
    height: u32,
    /// The block so far.
    out: Vec<Inst>,
    /// Panels so far.
    panels: u32,
    stored: Option<StoredTile>,
}

impl PanelSplit<'_> {
    /// Splits the stages of a block. `None` if one cannot be split.
    fn block(&mut self, body: Block) -> Option<()> {
        let insts = self.k.blocks[body].insts.clone();
        for (at, &inst) in insts.iter().enumerate() {
            let token = self.stored.as_ref().map(|s| s.token);
            let is_of_tile = |to: &SharedRef| token.is_some() && to.token == token;
            if let Op::Acquire(ring, At::Iteration(_)) = self.k.insts[inst]
                && ring == self.ring
            {
                self.begin(&insts[at..], inst)?;
            } else if let Op::StoreShared { to, value } = self.k.insts[inst]
                && is_of_tile(&to)
            {
                self.write(inst, to, value)?;
            } else if let Op::Commit(ring, _) = self.k.insts[inst]
                && ring == self.ring
            {
                self.end_panel(inst)?;
                if !self.stored.take()?.copies.is_empty() {
                    return None;
                }
            } else if self.is_inside(inst) {
                return None;
            } else if !matches!(&self.k.insts[inst], Op::Copy { to, .. } if is_of_tile(to)) {
                // A copy of the tile follows its panel.
                self.out.push(inst);
            }
        }
        Some(())
    }

    /// True if a stage of the ring is used in the blocks of an instruction.
    fn is_inside(&self, inst: Inst) -> bool {
        let uses = |i: Inst| {
            let of_ring = matches!(self.k.insts[i], Op::Acquire(r, _) | Op::Commit(r, _) if r == self.ring);
            of_ring || self.is_inside(i)
        };
        self.k.insts[inst].body().is_some_and(|body| self.k.blocks[body].insts.iter().any(|&i| uses(i)))
    }

    /// Begins a tile whose acquire is the first of these instructions.
    fn begin(&mut self, insts: &[Inst], acquire: Inst) -> Option<()> {
        let token = self.k.results[acquire][0];
        let stores = |&i: &Inst| matches!(self.k.insts[i], Op::Copy { to, .. } if to.token == Some(token));
        let copies: Vec<Inst> = insts.iter().copied().filter(stores).collect();
        // A panel is stored before the next one is computed: its place is known by then.
        let is_later = |v: Value| {
            matches!(self.k.values[v].def, ValueDef::Result(by, _) if insts.contains(&by)) && is_scalar(self.k, v)
        };
        let mut is_known = self.stored.is_none();
        copies.iter().for_each(|&i| self.k.insts[i].visit_operands(|v| is_known &= v == token || !is_later(v)));
        self.stored = Some(StoredTile { token, copies, panel: None });
        is_known.then_some(())
    }

    /// Writes a part of a tile, which may be several panels.
    fn write(&mut self, like: Inst, to: SharedRef, value: Value) -> Option<()> {
        let (dtype, layout) = self.k.tile(value);
        let (cols, layout) = (*layout.shape.get(1)?, layout.clone());
        let (row, first) = to.origin;
        if to.transposed {
            return None;
        }
        let mut col = 0;
        while col < cols {
            let at = first + col;
            let len = (self.width - at % self.width).min(cols - col);
            let part = if len == cols {
                value
            } else {
                let ty = Type::fragment(dtype, slice_layout(&layout, 1, col, len)?);
                self.push(Op::ExtractSlice { value, axis: 1, offset: col }, ty, like)
            };
            let token = self.panel(at / self.width, like)?;
            let to = SharedRef { token: Some(token), origin: (row, at % self.width), ..to };
            let loc = self.k.locs[like];
            self.out.push(self.k.new_inst(Op::StoreShared { to, value: part }, vec![], loc));
            col += len;
        }
        Some(())
    }

    /// The token of a panel. Another one that was written before is stored first.
    fn panel(&mut self, panel: u32, like: Inst) -> Option<Value> {
        match self.stored.as_ref()?.panel {
            Some((open, token)) if open == panel => return Some(token),
            Some(_) => self.end_panel(like)?,
            None => {}
        }
        let number = int(self.k, self.panels, like, &mut self.out);
        self.panels += 1;
        let token = self.push(Op::Acquire(self.ring, At::Iteration(number)), Type::Token(self.ring), like);
        self.stored.as_mut()?.panel = Some((panel, token));
        Some(token)
    }

    /// Has the engine store the panel that was written last.
    fn end_panel(&mut self, like: Inst) -> Option<()> {
        let stored = self.stored.as_mut()?;
        let (panel, token) = stored.panel.take()?;
        let is_of_panel =
            |i: &mut Inst| matches!(self.k.insts[*i], Op::Copy { to, .. } if to.origin.1 / self.width == panel);
        let copies: Vec<Inst> = stored.copies.extract_if(.., is_of_panel).collect();
        // A panel without a copy left has been stored before.
        let [copy] = copies[..] else { return None };
        let Op::Copy { param, slices, to, .. } = self.k.insts[copy].clone() else { return None };
        let (loc, layout) = (self.k.locs[like], self.k.buffers[to.buffer].layout);
        let span = layout.engine_box(self.k.buffers[to.buffer].dtype.bytes())?.span;
        for row in (0..layout.rows).step_by(self.height as usize) {
            let mut slices = slices.clone();
            if self.height < layout.rows {
                let rows = slices.iter_mut().rev().filter(|s| s.len().is_some()).nth(1)?;
                *rows = rows.part(row, self.height);
            }
            let atom = CopyAtom::TmaStore(self.k.map_of_box(param, &slices, span));
            let to = SharedRef { token: Some(token), origin: (row, 0), ..to };
            self.out.push(self.k.new_inst(Op::Copy { atom, param, slices, to }, vec![], loc));
        }
        self.out.push(self.k.new_inst(Op::Commit(self.ring, Some(token)), vec![], loc));
        Some(())
    }

    fn push(&mut self, op: Op, ty: Type, like: Inst) -> Value {
        let loc = self.k.locs[like];
        let inst = self.k.new_inst(op, vec![ty], loc);
        self.out.push(inst);
        self.k.results[inst][0]
    }
}
