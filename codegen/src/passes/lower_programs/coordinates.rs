//! The coordinates of a program, from its number.

use crate::gpu::{BlockData, Domain, IndexMap, Inst, Kernel, Op, Type, UnsignedOp, Value};
use atlas_dsl::DType;
use atlas_dsl::ir::{GridExtent, Loc};
use atlas_dsl::op::{BinaryOp, LoopKind, Predicate};

/// Bits of a row's number in a triangle.
const ROW_BITS: u32 = 16;

/// Computes coordinates by instructions at the end of a list.
pub(in crate::passes) struct ProgramCoordinates<'k> {
    pub(in crate::passes) k: &'k mut Kernel,
    map: IndexMap,
    loc: Loc,
    /// The instructions so far.
    pub(in crate::passes) out: Vec<Inst>,
    /// Counts of axes, as far as they are computed.
    counts: Vec<(GridExtent, Value)>,
}

impl ProgramCoordinates<'_> {
    pub(in crate::passes) fn new(k: &mut Kernel, loc: Loc) -> ProgramCoordinates<'_> {
        let map = k.index_map.clone();
        ProgramCoordinates { k, map, loc, out: Vec::new(), counts: Vec::new() }
    }

    /// The coordinates of the program with a number, each known to be one of its axis.
    pub(in crate::passes) fn of(&mut self, program: Value) -> Vec<Value> {
        let found = self.unbounded(program);
        let axes = self.map.axes.clone();
        found.into_iter().zip(axes).map(|(at, axis)| self.int(Op::Coordinate(at, axis))).collect()
    }

    /// The number of programs. It counts all axes, here, for the coordinates that are asked for from here on.
    pub(in crate::passes) fn programs(&mut self) -> Value {
        let axes = self.map.axes.clone();
        let counts: Vec<Value> = axes.into_iter().map(|axis| self.count(axis)).collect();
        let (others, rows) = match self.map.domain {
            Domain::Box => (&counts[..], None),
            Domain::Triangle => (&counts[..counts.len().saturating_sub(2)], counts.last().copied()),
        };
        let rows = rows.map(|rows| self.before_row(rows));
        let all = others.iter().copied().chain(rows).reduce(|a, b| self.binary(BinaryOp::Mul, a, b));
        all.unwrap_or_else(|| self.constant(1))
    }

    fn unbounded(&mut self, program: Value) -> Vec<Value> {
        let axes = self.map.axes.clone();
        if self.map.domain == Domain::Triangle {
            return self.in_triangle(program, &axes);
        }
        let mut at = self.split(program, &axes);
        if let (Some(width), [.., row, column], [.., rows, columns]) = (self.map.group, &mut at[..], &axes[..]) {
            (*row, *column) = self.in_group(width, (*row, *column), (*rows, *columns));
        }
        at
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
        let (row, column) = match self.map.group {
            Some(width) => self.in_group_of_triangle(place, width, last[0]),
            None => self.in_rows_of_triangle(place),
        };
        found.extend([row, column]);
        found
    }

    /// Row and column in a triangle that is counted row by row.
    fn in_rows_of_triangle(&mut self, place: Value) -> (Value, Value) {
        let row = self.row_of(place);
        let before = self.before_row(row);
        (row, self.binary(BinaryOp::Sub, place, before))
    }

    /// Row and column in a triangle that is counted in groups of rows: of each the rectangle before the diagonal, column by column,
    /// then the triangle on it, row by row.
    fn in_group_of_triangle(&mut self, place: Value, width: u32, rows: GridExtent) -> (Value, Value) {
        let (rows, width) = (self.count(rows), self.constant(width));
        let row = self.row_of(place);
        let group = self.unsigned(UnsignedOp::Div, row, width);
        let first = self.binary(BinaryOp::Mul, group, width);
        let before = self.before_row(first);
        let inside = self.binary(BinaryOp::Sub, place, before);
        let rest = self.binary(BinaryOp::Sub, rows, first);
        let height = self.unsigned(UnsignedOp::Min, rest, width);
        let rectangle = self.binary(BinaryOp::Mul, first, height);
        let (column, into) = self.divide(inside, height);
        let is_before = self.less(inside, rectangle);
        let (beyond, zero) = (self.binary(BinaryOp::Sub, inside, rectangle), self.constant(0));
        let beyond = self.int(Op::Select(is_before, zero, beyond));
        let (down, across) = self.in_rows_of_triangle(beyond);
        let across = self.binary(BinaryOp::Add, first, across);
        let column = self.int(Op::Select(is_before, column, across));
        let down = self.int(Op::Select(is_before, into, down));
        (self.binary(BinaryOp::Add, first, down), column)
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

    /// Coordinates of an axis.
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

    pub(in crate::passes) fn constant(&mut self, x: u32) -> Value {
        self.int(Op::Const(f64::from(x)))
    }

    pub(in crate::passes) fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        self.int(Op::binary(op, a, b))
    }

    pub(in crate::passes) fn less(&mut self, a: Value, b: Value) -> Value {
        let bool = self.k.scalar_type(DType::Bool);
        self.push(Op::Compare(Predicate::Lt, a, b), bool)
    }

    pub(in crate::passes) fn unsigned(&mut self, op: UnsignedOp, a: Value, b: Value) -> Value {
        self.int(Op::Unsigned(op, a, b))
    }

    pub(in crate::passes) fn int(&mut self, op: Op) -> Value {
        let int = self.k.scalar_type(DType::I32);
        self.push(op, int)
    }

    pub(in crate::passes) fn push(&mut self, op: Op, ty: Type) -> Value {
        let inst = self.k.new_inst(op, vec![ty], self.loc);
        self.out.push(inst);
        self.k.results[inst][0]
    }
}
