//! Copies a kernel and keeps only what its stores need.

use crate::entity::{Block, Inst, Value};
use crate::ir::{BlockData, Kernel, ValueDef};
use crate::op::{Effect, Op};
use crate::validity::yields;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntitySet, SecondaryMap};

/// The same kernel without operations whose results are not needed, and without carried values that nothing reads.
pub fn compact(kernel: &Kernel) -> Kernel {
    let mut loops = SecondaryMap::new();
    for (inst, op) in kernel.insts.iter() {
        if let Op::Loop { body, .. } = op {
            loops[*body] = PackedOption::from(inst);
        }
    }
    let mut needs = Needs { kernel, values: EntitySet::new(), insts: EntitySet::new(), loops, waiting: Vec::new() };
    needs.effects(kernel.body);
    needs.settle();
    let mut out = Kernel::new(kernel.name.clone());
    out.source_file.clone_from(&kernel.source_file);
    out.remark.clone_from(&kernel.remark);
    out.dims = kernel.dims.clone();
    out.params = kernel.params.clone();
    out.tables = kernel.tables.clone();
    out.cluster = kernel.cluster;
    let mut values = SecondaryMap::new();
    for axis in &kernel.grid {
        values[axis.coord] = PackedOption::from(out.push_grid_axis(axis.extent));
    }
    let body = out.body;
    Writer { kernel, needs: &needs, values, out: &mut out }.block(kernel.body, body);
    out
}

/// Collects what stores need, from the last to the first.
struct Needs<'k> {
    kernel: &'k Kernel,
    values: EntitySet<Value>,
    insts: EntitySet<Inst>,
    /// The loop whose body a block is.
    loops: SecondaryMap<Block, PackedOption<Inst>>,
    waiting: Vec<Value>,
}

impl Needs<'_> {
    /// Marks the stores of a block, and the loops that contain some. True if there are any.
    fn effects(&mut self, block: Block) -> bool {
        let mut any = false;
        for &inst in &self.kernel.blocks[block].insts {
            let op = &self.kernel.insts[inst];
            let has = match op {
                Op::Loop { body, .. } => self.effects(*body),
                op => op.kind().effect() == Effect::Writes,
            };
            if has {
                self.inst(inst);
                any = true;
            }
        }
        any
    }

    fn inst(&mut self, inst: Inst) {
        if !self.insts.insert(inst) {
            return;
        }
        match &self.kernel.insts[inst] {
            // What it carries is needed where its parameter or its result is.
            Op::Loop { lo, hi, .. } => self.waiting.extend([*lo, *hi]),
            op => op.visit_operands(|v| self.waiting.push(v)),
        }
    }

    /// Marks what the waiting values need. Uses a list, because chains may be long.
    fn settle(&mut self) {
        while let Some(v) = self.waiting.pop() {
            if !self.values.insert(v) {
                continue;
            }
            match self.kernel.values[v].def {
                ValueDef::Grid(_) => {}
                ValueDef::Result(inst, at) => {
                    self.inst(inst);
                    if let Op::Loop { body, .. } = self.kernel.insts[inst] {
                        self.carried(inst, body, at as usize);
                    }
                }
                ValueDef::BlockParam(block, at) => {
                    if let (Some(inst), Some(at)) = (self.loops[block].expand(), (at as usize).checked_sub(1)) {
                        self.carried(inst, block, at);
                    }
                }
            }
        }
    }

    /// Everything that belongs to one carried value: its start, the parameter, what the body leaves, the result.
    fn carried(&mut self, inst: Inst, body: Block, at: usize) {
        let Op::Loop { inits, .. } = &self.kernel.insts[inst] else { return };
        self.inst(inst);
        let left = yields(self.kernel, body).get(at).copied();
        let of = [inits.get(at).copied(), left, self.kernel.blocks[body].params.get(at + 1).copied()];
        self.waiting.extend(of.into_iter().flatten().chain(self.kernel.results[inst].get(at).copied()));
    }
}

struct Writer<'k> {
    kernel: &'k Kernel,
    needs: &'k Needs<'k>,
    values: SecondaryMap<Value, PackedOption<Value>>,
    out: &'k mut Kernel,
}

impl Writer<'_> {
    fn block(&mut self, from: Block, to: Block) {
        for &inst in &self.kernel.blocks[from].insts {
            let op = &self.kernel.insts[inst];
            if !self.needs.insts.contains(inst) && !matches!(op, Op::Yield(_)) {
                continue;
            }
            let (op, results) = match op {
                Op::Loop { kind, lo, hi, inits, body } => {
                    let kept: Vec<usize> = (0..inits.len())
                        .filter(|&i| self.needs.values.contains(self.kernel.results[inst][i]))
                        .collect();
                    let inits = kept.iter().map(|&i| self.now(inits[i])).collect();
                    let (lo, hi) = (self.now(*lo), self.now(*hi));
                    let inner = self.out.blocks.push(BlockData::default());
                    let params = &self.kernel.blocks[*body].params;
                    for &p in params.iter().take(1).chain(kept.iter().map(|&i| &params[i + 1])) {
                        self.values[p] = self.out.push_block_param(inner, self.kernel.ty(p).clone()).into();
                    }
                    self.block(*body, inner);
                    let results = kept.iter().map(|&i| self.kernel.results[inst][i]).collect();
                    (Op::Loop { kind: *kind, lo, hi, inits, body: inner }, results)
                }
                Op::Yield(values) => {
                    let params = self.params_of(from);
                    let kept =
                        values.iter().zip(params.iter().skip(1)).filter(|(_, p)| self.needs.values.contains(**p));
                    (Op::Yield(kept.map(|(&v, _)| self.now(v)).collect()), Vec::new())
                }
                op => (op.clone().map_operands(|v| self.now(v)), self.kernel.results[inst].clone()),
            };
            let types: Vec<_> = results.iter().map(|&v: &Value| self.kernel.ty(v).clone()).collect();
            let made = self.out.push_inst(to, op, &types, self.kernel.locs[inst]);
            for (old, new) in results.into_iter().zip(self.out.results[made].clone()) {
                self.values[old] = new.into();
            }
        }
    }

    fn params_of(&self, block: Block) -> &[Value] {
        &self.kernel.blocks[block].params
    }

    /// Operands are written before the operations that read them. A kernel that breaks that rule stays as broken as it was.
    fn now(&self, v: Value) -> Value {
        self.values[v].expand().unwrap_or(v)
    }
}
