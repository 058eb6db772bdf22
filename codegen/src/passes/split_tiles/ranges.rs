//! One range of columns of a tree.

use super::Plan;
use super::trees::is_column;
use crate::gpu::{Inst, Kernel, Op, Operand, SharedRef, Slice, Type, Valid, Value, ValueDef};
use crate::layout::Fragment;
use atlas_dsl::DType;
use std::collections::BTreeMap;

/// Computes columns of values.
pub(super) struct Ranges<'k> {
    k: &'k mut Kernel,
    plan: &'k Plan,
    /// First column, and number of columns.
    first: u32,
    len: u32,
    out: &'k mut Vec<Inst>,
    made: BTreeMap<Value, Value>,
}

impl<'k> Ranges<'k> {
    pub(super) fn new(k: &'k mut Kernel, plan: &'k Plan, first: u32, len: u32, out: &'k mut Vec<Inst>) -> Ranges<'k> {
        Ranges { k, plan, first, len, out, made: BTreeMap::new() }
    }

    /// Computes columns of a root's tile and does the root's operation with them. A reduction adds the earlier ranges and
    /// returns the sum.
    pub(super) fn root(&mut self, root: Inst, before: Option<Value>) -> Option<Value> {
        let mut op = self.k.insts[root].clone();
        if let Op::StoreGlobal { slices, value, .. } = &mut op {
            *value = self.columns(*value);
            for slice in slices.iter_mut() {
                if let Slice::Gather { places, .. } = slice {
                    *places = self.columns(*places);
                }
            }
            self.narrow(slices);
        } else if let Op::StoreShared { to, value } = &mut op {
            *value = self.without_new_padding(*value);
            *to = to.further(0, self.first);
        } else if let Op::Reduce { value, .. } = &mut op {
            *value = self.columns(*value);
        }
        let combine = if let Op::Reduce { op, .. } = op { Some(op.combine()) } else { None };
        let types = self.k.results[root].iter().map(|&v| self.k.values[v].ty.clone()).collect::<Vec<_>>();
        let inst = self.k.new_inst(op, types.clone(), self.k.locs[root]);
        self.out.push(inst);
        let part = self.k.results[inst].first().copied()?;
        let (Some(before), Some(combine)) = (before, combine) else { return Some(part) };
        let inst = self.k.new_inst(Op::binary(combine, before, part), types, self.k.locs[root]);
        self.out.push(inst);
        self.k.results[inst].first().copied()
    }

    /// Restricts a rectangle of a tensor to the range's columns.
    fn narrow(&self, slices: &mut [Slice]) {
        if let Some(last) = slices.iter_mut().rev().find(|s| s.len().is_some()) {
            *last = last.part(self.first, self.len);
        }
    }

    /// The range's columns of a value, with 0 in padding that the whole does not have.
    fn without_new_padding(&mut self, v: Value) -> Value {
        let made = self.columns(v);
        let (whole, cut) = (self.k.tile(v).1, self.k.tile(made).1);
        if !(0..cut.shape.len() as u8).any(|axis| cut.is_padded(axis) && !whole.is_padded(axis)) {
            return made;
        }
        let ValueDef::Result(inst, _) = self.k.values[made].def else { return made };
        self.push(Op::MaskInvalid { value: made, neutral: 0.0, valid: vec![] }, self.k.values[made].ty.clone(), inst)
    }

    /// The range's columns of a value. Its operands come first. A list is used, because chains may be as long as a kernel.
    fn columns(&mut self, v: Value) -> Value {
        let mut open = vec![v];
        while let Some(&v) = open.last() {
            let next = match self.made.contains_key(&v) {
                true => None,
                false => self.operands(v).into_iter().find(|o| self.is_open(*o)),
            };
            match next {
                Some(operand) => open.push(operand),
                None => {
                    if self.is_open(v) {
                        self.make(v);
                    }
                    open.pop();
                }
            }
        }
        self.made_of(v)
    }

    /// True if columns of a value are still to be computed.
    fn is_open(&self, v: Value) -> bool {
        matches!(self.k.values[v].def, ValueDef::Result(..)) && !self.made.contains_key(&v)
    }

    /// Columns that were computed, or a value that is not a tile of the tree.
    fn made_of(&self, v: Value) -> Value {
        self.made.get(&v).copied().unwrap_or(v)
    }

    /// The operands of which columns are read, in the order in which they are computed.
    fn operands(&self, v: Value) -> Vec<Value> {
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return Vec::new() };
        match &self.k.insts[inst] {
            Op::LoadShared(_) => vec![],
            Op::LoadGlobal { slices, .. } => slices.iter().filter_map(|s| s.gathered()).collect(),
            op if op.leaves_registers() => vec![],
            Op::Broadcast(a) if is_column(self.k, *a) => vec![],
            Op::ConvertLayout(a) if self.shared(*a).is_some() => vec![],
            Op::MaskInvalid { value, .. } => vec![*value],
            Op::Mma { acc, .. } => acc.iter().copied().collect(),
            op => {
                let mut operands = Vec::new();
                op.visit_operands(|o| operands.push(o));
                operands
            }
        }
    }

    /// The place in shared memory from which a value is read, if there is one.
    fn shared(&self, v: Value) -> Option<SharedRef> {
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return None };
        if let Op::LoadShared(from) = self.k.insts[inst] { Some(from) } else { None }
    }

    /// Computes the range's columns of a value from those of its operands.
    fn make(&mut self, v: Value) {
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return };
        let (dtype, whole) = self.k.tile(v);
        let (last, layout) = (whole.shape.len() as u8 - 1, self.plan.layouts.get(whole).unwrap_or(whole).clone());
        let mut op = self.k.insts[inst].clone();
        match &mut op {
            Op::Iota { axis, offset } if *axis == last => *offset += self.first,
            Op::LoadShared(from) => *from = from.further(0, self.first),
            Op::LoadGlobal { slices, .. } => {
                self.narrow(slices);
                for slice in slices {
                    if let Slice::Gather { places, .. } = slice {
                        *places = self.made_of(*places);
                    }
                }
            }
            op if op.leaves_registers() => *op = Op::ExtractSlice { value: v, axis: last, offset: self.first },
            Op::Broadcast(a) => {
                let a = if is_column(self.k, *a) { *a } else { self.made_of(*a) };
                let from = layout.broadcast_source(&self.k.tile(a).1.shape);
                op = Op::Broadcast(self.in_layout(a, &from));
            }
            Op::ConvertLayout(a) => {
                let made = self.moved(*a, dtype, &layout);
                self.made.insert(v, made);
                return;
            }
            Op::MaskInvalid { value, valid, .. } => {
                *value = self.made_of(*value);
                let (first, len) = (self.first, self.len);
                let narrow = |v: &mut Valid| {
                    if v.axis == last {
                        v.slice = v.slice.part(first, len)
                    }
                };
                valid.iter_mut().for_each(narrow);
            }
            Op::Mma { b, acc, shape, .. } => {
                if let Operand::Shared(b) = b {
                    *b = b.further(0, self.first);
                }
                *acc = acc.map(|c| self.made_of(c));
                shape.1 = self.len;
            }
            op => op.replace_operands(|a| self.made_of(a)),
        }
        let ty = match self.k.values[v].ty {
            Type::InFlight { .. } => Type::in_flight(dtype, layout),
            _ => Type::fragment(dtype, layout),
        };
        let made = self.push(op, ty, inst);
        self.made.insert(v, made);
    }

    /// Columns of a value in a layout other than its own. They are read in that layout, if they are read.
    fn moved(&mut self, v: Value, dtype: DType, layout: &Fragment) -> Value {
        if let ValueDef::Result(inst, _) = self.k.values[v].def
            && let Some(from) = self.shared(v)
        {
            let from = from.further(0, self.first);
            return self.push(Op::LoadShared(from), Type::fragment(dtype, layout.clone()), inst);
        }
        let made = self.made_of(v);
        self.in_layout(made, layout)
    }

    /// The same tile in a layout.
    fn in_layout(&mut self, v: Value, layout: &Fragment) -> Value {
        let (dtype, from) = self.k.tile(v);
        if from.same_map(layout) {
            return v;
        }
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return v };
        if let Op::ConvertLayout(before) = self.k.insts[inst] {
            return self.in_layout(before, layout);
        }
        self.push(Op::ConvertLayout(v), Type::fragment(dtype, layout.clone()), inst)
    }

    fn push(&mut self, op: Op, ty: Type, like: Inst) -> Value {
        let inst = self.k.new_inst(op, vec![ty], self.k.locs[like]);
        self.out.push(inst);
        self.k.results[inst][0]
    }
}
