//! `lower_programs`: the order of programs becomes a loop and scalars.
//!
//! Needs: nothing. Establishes: each role computes the coordinates of its programs from the number of its CTA; no `programs` is
//! left. Never: changes the set of programs. Refuses: nothing. Constructs: removes programs; adds nothing.
//!
//! # Promise
//! Every program of the index map is run once, by one CTA.
//!
//! # Argument
//! Programs are numbered. In a persistent map, CTA c of n runs the programs c, c + n, .. in a loop of `udiv(programs - c + n -
//! 1, n)` iterations. In any other map, it runs the program with its own number. Quotients and remainders by the extents of the
//! axes, last axis first, give each number its own coordinates.
//!
//! *Groups.* A group is `width` rows, starting at a multiple of `width`, or the remaining rows. It has the same numbers as its
//! rows have one after the other, but within the group they go down the rows first. Both orders count each of its programs
//! once.
//!
//! *Triangles.* Number t is in row i if i (i + 1) / 2 <= t < (i + 1) (i + 2) / 2. The bits of i are found from the highest
//! down. There are fewer than 2^31 programs, so i has 16 bits and i (i + 1) fits an unsigned word.
//!
//! # Breaks it
//! - Groups of fewer rows: tests/agreement/pipelines.rs::programs_of_a_grid_in_groups.
//! - Loops over programs, and triangles: tests/gpu_interp/hand_written.rs::programs_become_loops_and_scalars.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Block, BlockData, IndexMap, Inst, Kernel, Op, Type, UnsignedOp, Value};
use atlas_dsl::DType;
use atlas_dsl::ir::{GridExtent, Loc};
use atlas_dsl::op::{BinaryOp, LoopKind, Predicate};
use std::collections::BTreeMap;

/// Bits of a row's number in a triangle.
const ROW_BITS: u32 = 16;

/// Makes every role compute its programs.
pub fn lower_programs(k: &mut Kernel, _: &mut Cx<'_>) -> Result<(), CompileError> {
    let coords = std::mem::take(&mut k.coords);
    let bodies: Vec<Block> = k.roles.values().map(|r| r.body).collect();
    for body in bodies {
        let insts = std::mem::take(&mut k.blocks[body].insts);
        let loc = insts.first().map_or(Loc::default(), |&i| k.locs[i]);
        let map = k.index_map.clone();
        let mut walk = ProgramLowering { k, map, loc, out: Vec::new(), counts: Vec::new(), values: BTreeMap::new() };
        walk.role(insts, &coords);
        let ProgramLowering { out, values, .. } = walk;
        k.blocks[body].insts = out;
        replace(k, body, &values);
    }
    Ok(())
}

/// Replaces operands, also in the bodies of operations.
fn replace(k: &mut Kernel, block: Block, values: &BTreeMap<Value, Value>) {
    for inst in k.blocks[block].insts.clone() {
        k.insts[inst].replace_operands(|v| values.get(&v).copied().unwrap_or(v));
        if let Some(body) = k.insts[inst].body() {
            replace(k, body, values);
        }
    }
}

struct ProgramLowering<'k> {
    k: &'k mut Kernel,
    map: IndexMap,
    loc: Loc,
    /// The block so far.
    out: Vec<Inst>,
    /// Coordinates of axes, as far as they are counted.
    counts: Vec<(GridExtent, Value)>,
    /// The values that replace coordinates.
    values: BTreeMap<Value, Value>,
}

impl ProgramLowering<'_> {
    fn role(&mut self, insts: Vec<Inst>, coords: &[Value]) {
        if !coords.is_empty() {
            let number = self.int(Op::CtaNumber);
            self.stand_in(coords, number);
        }
        for inst in insts {
            if let Op::Programs(body) = self.k.insts[inst] {
                self.programs(inst, body);
            } else {
                self.out.push(inst);
            }
        }
    }

    /// Maps the coordinates of one program to these values, from here on.
    fn stand_in(&mut self, coords: &[Value], program: Value) {
        let found = self.coordinates(program);
        for ((&v, at), axis) in coords.iter().zip(found).zip(self.map.axes().to_vec()) {
            let bounded = self.int(Op::Coordinate(at, axis));
            self.values.insert(v, bounded);
        }
    }

    /// Replaces `programs` by its body, or by a loop over it.
    fn programs(&mut self, inst: Inst, body: Block) {
        let params = std::mem::take(&mut self.k.blocks[body].params);
        let (coords, turn) = params.split_at(self.map.axes().len().min(params.len()));
        let insts = std::mem::take(&mut self.k.blocks[body].insts);
        let number = self.int(Op::CtaNumber);
        if !matches!(self.map, IndexMap::Persistent { .. }) {
            self.stand_in(coords, number);
            let first = self.constant(0);
            self.values.extend(turn.iter().map(|&v| (v, first)));
            self.out.extend(insts);
            return;
        }
        let counts: Vec<Value> = self.map.axes().to_vec().into_iter().map(|axis| self.count(axis)).collect();
        let programs = counts.into_iter().reduce(|a, b| self.binary(BinaryOp::Mul, a, b));
        let programs = programs.unwrap_or_else(|| self.constant(1));
        let (ctas, one) = (self.int(Op::CtaCount), self.constant(1));
        let left = self.binary(BinaryOp::Sub, programs, number);
        let others = self.binary(BinaryOp::Sub, ctas, one);
        let up = self.binary(BinaryOp::Add, left, others);
        let (lo, hi) = (self.constant(0), self.unsigned(UnsignedOp::Div, up, ctas));
        let before = std::mem::take(&mut self.out);
        let int = self.k.scalar_type(DType::I32);
        let index = self.k.push_block_param(body, int);
        let on = self.binary(BinaryOp::Mul, index, ctas);
        let program = self.binary(BinaryOp::Add, number, on);
        self.stand_in(coords, program);
        self.values.extend(turn.iter().map(|&v| (v, index)));
        self.out.extend(insts);
        let end = self.k.new_inst(Op::Yield(vec![]), vec![], self.loc);
        self.out.push(end);
        self.k.blocks[body].insts = std::mem::replace(&mut self.out, before);
        self.k.insts[inst] = Op::Loop { kind: LoopKind::Carried, lo, hi, inits: vec![], body };
        self.out.push(inst);
    }

    /// The coordinates of the program with a number.
    fn coordinates(&mut self, program: Value) -> Vec<Value> {
        match self.map.clone() {
            IndexMap::Linear(axes) => self.split(program, &axes),
            IndexMap::Grouped { width, axes } | IndexMap::Persistent { width, axes } => {
                let mut at = self.split(program, &axes);
                if let ([.., row, column], [.., rows, columns]) = (&mut at[..], &axes[..]) {
                    (*row, *column) = self.in_group(width, (*row, *column), (*rows, *columns));
                }
                at
            }
            IndexMap::Triangular(axes) => self.in_triangle(program, &axes),
        }
    }

    /// The last axis is fastest.
    fn split(&mut self, program: Value, axes: &[GridExtent]) -> Vec<Value> {
        let (mut left, mut found) = (program, Vec::new());
        for &axis in axes.iter().skip(1).rev() {
            let count = self.count(axis);
            let (quotient, rest) = self.divide(left, count);
            found.push(rest);
            left = quotient;
        }
        found.push(left);
        found.reverse();
        found
    }

    /// Row and column of a program in groups of this many rows, from those that it would have without groups.
    fn in_group(
        &mut self,
        width: u32,
        (row, column): (Value, Value),
        (rows, columns): (GridExtent, GridExtent),
    ) -> (Value, Value) {
        let (rows, columns) = (self.count(rows), self.count(columns));
        let width = self.constant(width);
        let group = self.unsigned(UnsignedOp::Div, row, width);
        let first = self.binary(BinaryOp::Mul, group, width);
        // The number of the program within its group: no more than programs, so that nothing overflows.
        let down = self.binary(BinaryOp::Sub, row, first);
        let before = self.binary(BinaryOp::Mul, down, columns);
        let inside = self.binary(BinaryOp::Add, before, column);
        let rest = self.binary(BinaryOp::Sub, rows, first);
        let height = self.unsigned(UnsignedOp::Min, rest, width);
        let (column, into) = self.divide(inside, height);
        (self.binary(BinaryOp::Add, first, into), column)
    }

    /// The coordinates of a program of a triangle, whose programs are counted row by row.
    fn in_triangle(&mut self, program: Value, axes: &[GridExtent]) -> Vec<Value> {
        let (outer, last) = axes.split_at(axes.len().saturating_sub(2));
        let (mut place, mut found) = (program, Vec::new());
        if !outer.is_empty() {
            let rows = self.count(last[0]);
            let programs = self.before_row(rows);
            let (quotient, rest) = self.divide(program, programs);
            found = self.split(quotient, outer);
            place = rest;
        }
        let row = self.row_of(place);
        let before = self.before_row(row);
        let column = self.binary(BinaryOp::Sub, place, before);
        found.extend([row, column]);
        found
    }

    /// `row (row + 1) / 2`.
    fn before_row(&mut self, row: Value) -> Value {
        let (one, two) = (self.constant(1), self.constant(2));
        let next = self.binary(BinaryOp::Add, row, one);
        let pairs = self.binary(BinaryOp::Mul, row, next);
        self.unsigned(UnsignedOp::Div, pairs, two)
    }

    /// The largest row before which there are at most `place` programs, found by a loop over its bits.
    fn row_of(&mut self, place: Value) -> Value {
        let [lo, hi] = [0, ROW_BITS].map(|x| self.constant(x));
        let inits = vec![lo, self.constant(1 << (ROW_BITS - 1))];
        let before = std::mem::take(&mut self.out);
        let int = self.k.scalar_type(DType::I32);
        let body = self.k.blocks.push(BlockData::default());
        let [_, row, bit] = [(); 3].map(|()| self.k.push_block_param(body, int.clone()));
        let larger = self.binary(BinaryOp::Add, row, bit);
        let there = self.before_row(larger);
        let bool = self.k.scalar_type(DType::Bool);
        let fits = self.push(Op::Compare(Predicate::Le, there, place), bool);
        let row = self.int(Op::Select(fits, larger, row));
        let two = self.constant(2);
        let bit = self.unsigned(UnsignedOp::Div, bit, two);
        let end = self.k.new_inst(Op::Yield(vec![row, bit]), vec![], self.loc);
        self.out.push(end);
        self.k.blocks[body].insts = std::mem::replace(&mut self.out, before);
        let op = Op::Loop { kind: LoopKind::Carried, lo, hi, inits, body };
        let inst = self.k.new_inst(op, vec![int.clone(), int], self.loc);
        self.out.push(inst);
        self.k.results[inst][0]
    }

    /// Quotient and remainder.
    fn divide(&mut self, a: Value, b: Value) -> (Value, Value) {
        let quotient = self.unsigned(UnsignedOp::Div, a, b);
        let whole = self.binary(BinaryOp::Mul, quotient, b);
        (quotient, self.binary(BinaryOp::Sub, a, whole))
    }

    /// Coordinates of an axis, counted outside the loop over programs if there is one.
    fn count(&mut self, axis: GridExtent) -> Value {
        if let Some(&(_, count)) = self.counts.iter().find(|c| c.0 == axis) {
            return count;
        }
        let count = self.int(match axis {
            GridExtent::Points(dim) => Op::DimSize(dim),
            GridExtent::Tiles { dim, size } | GridExtent::UpTo { dim, size } => Op::DimTiles(dim, size),
        });
        self.counts.push((axis, count));
        count
    }

    fn constant(&mut self, x: u32) -> Value {
        self.int(Op::Const(f64::from(x)))
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        self.int(Op::binary(op, a, b))
    }

    fn unsigned(&mut self, op: UnsignedOp, a: Value, b: Value) -> Value {
        self.int(Op::Unsigned(op, a, b))
    }

    fn int(&mut self, op: Op) -> Value {
        let int = self.k.scalar_type(DType::I32);
        self.push(op, int)
    }

    fn push(&mut self, op: Op, ty: Type) -> Value {
        let inst = self.k.new_inst(op, vec![ty], self.loc);
        self.out.push(inst);
        self.k.results[inst][0]
    }
}
