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
//! 1, n)` iterations. In any other map, it runs the program with its own number, or, if S CTAs share each program, with that number divided by S. Quotients and remainders by the extents of the
//! axes, last axis first, give each number its own coordinates.
//!
//! *Groups.* A group is `width` rows, starting at a multiple of `width`, or the remaining rows. It has the same numbers as its
//! rows have one after the other, but within the group they go down the rows first. Both orders count each of its programs
//! once.
//!
//! *Triangles.* Number t is in row i if i (i + 1) / 2 <= t < (i + 1) (i + 2) / 2. The bits of i are found from the highest
//! down. There are fewer than 2^31 programs, so i has 16 bits and i (i + 1) fits an unsigned word. In groups, the rows from
//! `first` on have the programs from first (first + 1) / 2 on. Their columns before `first` are a rectangle, counted column by
//! column; what remains is a triangle of its own, counted row by row.
//!
//! # Breaks it
//! - Groups of fewer rows: tests/agreement/pipelines.rs::programs_of_a_grid_in_groups, tests/agreement/pairs.rs.
//! - Loops over programs, and triangles: tests/gpu_interp/hand_written.rs::programs_become_loops_and_scalars.

mod coordinates;

pub(super) use coordinates::ProgramCoordinates;

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Block, Inst, Kernel, Op, UnsignedOp, Value};
use atlas_dsl::DType;
use atlas_dsl::ir::Loc;
use atlas_dsl::op::{BinaryOp, LoopKind};
use std::collections::BTreeMap;

/// Makes every role compute its programs.
pub fn lower_programs(k: &mut Kernel, _: &mut Cx<'_>) -> Result<(), CompileError> {
    let coords = std::mem::take(&mut k.coords);
    let bodies: Vec<Block> = k.roles.values().map(|r| r.body).collect();
    for body in bodies {
        let insts = std::mem::take(&mut k.blocks[body].insts);
        let loc = insts.first().map_or(Loc::default(), |&i| k.locs[i]);
        let mut walk = ProgramLowering { at: ProgramCoordinates::new(k, loc), loc, values: BTreeMap::new() };
        walk.role(insts, &coords);
        let ProgramLowering { at, values, .. } = walk;
        k.blocks[body].insts = at.out;
        replace(k, body, &values);
    }
    Ok(())
}

/// Replaces operands, also in the bodies of operations.
pub(super) fn replace(k: &mut Kernel, block: Block, values: &BTreeMap<Value, Value>) {
    for inst in k.blocks[block].insts.clone() {
        k.insts[inst].replace_operands(|v| values.get(&v).copied().unwrap_or(v));
        if let Some(body) = k.insts[inst].body() {
            replace(k, body, values);
        }
    }
}

/// The programs of one CTA in a persistent grid: every n-th, from its own number on.
pub(super) struct CtaPrograms {
    /// The number of this CTA, and the number of CTAs.
    number: Value,
    pub(super) ctas: Value,
    /// The bounds of the loop over them: 0 and their number.
    pub(super) first: Value,
    pub(super) count: Value,
}

impl CtaPrograms {
    /// Computes them before the loop.
    pub(super) fn new(at: &mut ProgramCoordinates<'_>) -> CtaPrograms {
        let number = at.int(Op::CtaNumber);
        let programs = at.programs();
        let (ctas, first) = (at.int(Op::CtaCount), at.constant(0));
        let one = at.constant(1);
        let left = at.binary(BinaryOp::Sub, programs, number);
        let others = at.binary(BinaryOp::Sub, ctas, one);
        let up = at.binary(BinaryOp::Add, left, others);
        let count = at.unsigned(UnsignedOp::Div, up, ctas);
        CtaPrograms { number, ctas, first, count }
    }

    /// Adds the index to the loop's body. Gives it, and the number of the program, which is computed in the body.
    pub(super) fn enter(&self, at: &mut ProgramCoordinates<'_>, body: Block) -> (Value, Value) {
        let int = at.k.scalar_type(DType::I32);
        let index = at.k.push_block_param(body, int);
        let on = at.binary(BinaryOp::Mul, index, self.ctas);
        (index, at.binary(BinaryOp::Add, self.number, on))
    }

    /// The loop.
    pub(super) fn to_loop(&self, body: Block) -> Op {
        Op::Loop { kind: LoopKind::Carried, lo: self.first, hi: self.count, inits: vec![], body }
    }
}

struct ProgramLowering<'k> {
    /// Where coordinates are computed: the block so far.
    at: ProgramCoordinates<'k>,
    loc: Loc,
    /// The values that replace coordinates.
    values: BTreeMap<Value, Value>,
}

impl ProgramLowering<'_> {
    fn role(&mut self, insts: Vec<Inst>, coords: &[Value]) {
        if !coords.is_empty() {
            let number = self.own_program();
            self.stand_in(coords, number);
        }
        for inst in insts {
            if let Op::Programs(body) = self.at.k.insts[inst] {
                self.programs(inst, body);
            } else {
                self.at.out.push(inst);
            }
        }
    }

    /// The number of the program of a CTA that has only one.
    fn own_program(&mut self) -> Value {
        let number = self.at.int(Op::CtaNumber);
        match self.at.k.index_map.splits {
            1 => number,
            splits => {
                let splits = self.at.constant(splits);
                self.at.unsigned(UnsignedOp::Div, number, splits)
            }
        }
    }

    /// Maps the coordinates of one program to these values, from here on.
    fn stand_in(&mut self, coords: &[Value], program: Value) {
        let found = self.at.of(program);
        self.values.extend(coords.iter().copied().zip(found));
    }

    /// Replaces `programs` by its body, or by a loop over it.
    fn programs(&mut self, inst: Inst, body: Block) {
        let params = std::mem::take(&mut self.at.k.blocks[body].params);
        let (coords, turn) = params.split_at(self.at.k.index_map.axes.len().min(params.len()));
        let insts = std::mem::take(&mut self.at.k.blocks[body].insts);
        if !self.at.k.index_map.persistent {
            let number = self.own_program();
            self.stand_in(coords, number);
            let first = self.at.constant(0);
            self.values.extend(turn.iter().map(|&v| (v, first)));
            self.at.out.extend(insts);
            return;
        }
        let of_cta = CtaPrograms::new(&mut self.at);
        let before = std::mem::take(&mut self.at.out);
        let (index, program) = of_cta.enter(&mut self.at, body);
        self.stand_in(coords, program);
        self.values.extend(turn.iter().map(|&v| (v, index)));
        self.at.out.extend(insts);
        let end = self.at.k.new_inst(Op::Yield(vec![]), vec![], self.loc);
        self.at.out.push(end);
        self.at.k.blocks[body].insts = std::mem::replace(&mut self.at.out, before);
        self.at.k.insts[inst] = of_cta.to_loop(body);
        self.at.out.push(inst);
    }
}
