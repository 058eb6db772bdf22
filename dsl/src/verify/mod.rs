//! The rules of a well-formed Tile IR kernel. [`verify`] reports every violation, and only it can make a [`Verified`].
//!
//! | code | invariant |
//! |---|---|
//! | 1xx | every operation keeps the typing rules of [`crate::infer`] |
//! | 201 | every id refers to something that exists |
//! | 202 | every value is defined once, where its data says |
//! | 203 | an operation's results have the types that follow from its operands |
//! | 204 | an operand is defined earlier in its block or in a block around it |
//! | 205 | a block is the body of one loop, and an instruction has one place |
//! | 206 | a loop's body ends in `yield` |
//! | 207 | `yield` gives one value per carried value, of its type |
//! | 208 | `yield` is nowhere else |
//! | 209 | the parameters of a loop's body are an i32 index and the carried values, of their types |
//! | 210 | stores go to `out` parameters alone |
//! | 211 | a load of an `out` parameter uses each grid coordinate on the axis where all its stores use it |
//! | 212 | every `out` parameter is stored to |
//! | 213 | a store uses every grid coordinate as an element or a tile index of its own, so programs write disjoint regions; that of a cluster may be left out if all its programs store the same |
//! | 214 | the stores to one parameter have a grid coordinate on one axis, in the same slice |
//! | 215 | names of parameters, of dims and of tables are unique |
//! | 216 | names are words |
//! | 217 | the grid has an axis |
//! | 218 | divisors and constant sizes of dims are at least 1 |
//! | 219 | a table has as many values as its extents say, which are at least 1 |
//! | 220 | extents of tiles and sizes of slices are at least 1 |
//! | 221 | a tile has at most 2^20 elements and 64 axes |
//! | 222 | a tile slice at a grid coordinate that counts tiles has the size of these tiles |
//! | 223 | no parameter is bool |
//! | 224 | a tensor has one stride per dim, of at most 2^40 elements; an `out` tensor has stride 0 on dims of one element alone |
//! | 225 | alignments are powers of two, and at least an element |
//! | 226 | which elements of a carried value are valid does not depend on values of its loop's body |
//! | 227 | everything that a store writes is valid, except what its own slices leave out |
//! | 228 | loops are nested at most 64 deep |
//! | 229 | `cluster_sum` stands in a kernel whose grid has a cluster; a cluster goes along a dim that is a constant, and not along pairs |
//! | 233 | all programs of a cluster run a `cluster_sum` equally often |
//! | 234 | which elements `cluster_sum` adds up does not depend on the program |
//!
//! Unused values are allowed. A loop may store to one region in every iteration, because the order of iterations is defined.

mod clusters;
mod differing;
mod edges;
mod ids;
mod regions;
mod signature;

use crate::diag::{Diagnostic, Diagnostics};
use crate::entity::{Block, Inst, Value};
use crate::infer::infer;
use crate::ir::{Kernel, Loc, ValueDef};
use crate::op::Op;
use crate::types::{DType, TileType};
use cranelift_entity::EntitySet;
use differing::Differing;
use regions::TileAccess;
use std::fmt;
use std::ops::Deref;

/// The most elements that a tile may have.
pub const MAX_TILE_ELEMENTS: u64 = 1 << 20;

/// The deepest nesting of loops. Readers of a kernel walk loops by recursion.
pub(crate) const MAX_LOOPS: usize = 64;

/// The most axes of a tile. Numbers of axes are stored as bytes.
const MAX_RANK: usize = 64;

/// An IR whose rules can be checked.
pub trait Invariants {
    /// Every violation of the rules, in the order of the text.
    fn violations(&self) -> Vec<Diagnostic>;
}

/// A kernel that keeps every rule of its IR. Made by [`verify`] alone, and immutable.
#[derive(Clone, Debug)]
pub struct Verified<K>(K);

impl<K> Verified<K> {
    /// Gives the kernel back for changes. It has to be verified again.
    pub fn into_inner(self) -> K {
        self.0
    }
}

impl<K> Deref for Verified<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K: fmt::Display> fmt::Display for Verified<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Checks every rule. Returns the kernel, or everything that is wrong with it.
pub fn verify<K: Invariants>(kernel: K) -> Result<Verified<K>, Diagnostics> {
    let errors = kernel.violations();
    if errors.is_empty() { Ok(Verified(kernel)) } else { Err(Diagnostics(errors)) }
}

impl Invariants for Kernel {
    fn violations(&self) -> Vec<Diagnostic> {
        let mut v =
            Verifier { kernel: self, differing: Differing::default(), errors: Vec::new(), accesses: Vec::new() };
        v.ids();
        // The other rules read through ids and recurse into bodies.
        if v.errors.is_empty() {
            v.signature();
            v.differing = Differing::of(self);
            let mut visible = EntitySet::new();
            for (i, axis) in self.grid.iter().enumerate() {
                v.definition(axis.coord, ValueDef::Grid(i as u32), Loc::default());
                visible.insert(axis.coord);
            }
            v.block(self.body, None, &mut visible);
            v.stores();
            v.clusters();
            // What is valid follows from the types.
            if v.errors.is_empty() {
                v.edges();
            }
        }
        v.errors
    }
}

struct Verifier<'k> {
    kernel: &'k Kernel,
    differing: Differing,
    errors: Vec<Diagnostic>,
    accesses: Vec<TileAccess<'k>>,
}

/// The loop whose body is being checked.
struct Around<'k> {
    inits: &'k [Value],
    loc: Loc,
}

impl<'k> Verifier<'k> {
    fn error(&mut self, code: u16, loc: Loc, message: impl Into<String>) {
        self.errors.push(Diagnostic::new(code, loc, message));
    }
    /// 202, 220 and 221 for one value.
    fn definition(&mut self, v: Value, def: ValueDef, loc: Loc) {
        let data = &self.kernel.values[v];
        if data.def != def {
            self.error(202, loc, format!("{v} is defined here, but its data says {:?}", data.def));
        }
        if matches!(def, ValueDef::Grid(_)) && data.ty != TileType::scalar(DType::I32) {
            self.error(203, loc, format!("a grid coordinate is a scalar i32, found {}", data.ty));
        }
        if data.ty.shape.contains(&0) {
            self.error(220, loc, format!("the tile {} has an extent of 0", data.ty));
        }
        if data.ty.shape.len() > MAX_RANK {
            self.error(221, loc, format!("the tile {} has more than {MAX_RANK} axes", data.ty));
        }
        // What is made of a tile is as large: one is enough.
        if elements(&data.ty.shape) > MAX_TILE_ELEMENTS && !self.errors.iter().any(|e| e.code.0 == 221) {
            let message = format!(
                "the tile {} has more than {MAX_TILE_ELEMENTS} elements; smaller tile sizes would help, or fewer dims used whole",
                data.ty
            );
            self.error(221, loc, message);
        }
    }

    /// The rules of one block. `around` is the loop whose body it is.
    fn block(&mut self, block: Block, around: Option<&Around<'k>>, visible: &mut EntitySet<Value>) {
        let k = self.kernel;
        let data = &k.blocks[block];
        let mut defined = Vec::new();
        let place = around.map_or(Loc::default(), |a| a.loc);
        for (i, &v) in data.params.iter().enumerate() {
            self.definition(v, ValueDef::BlockParam(block, i as u32), place);
            defined.push(v);
            visible.insert(v);
        }
        self.body_params(&data.params, around);
        for (at, &inst) in data.insts.iter().enumerate() {
            let (op, loc) = (&k.insts[inst], k.locs[inst]);
            op.visit_operands(|v| {
                if !visible.contains(v) {
                    self.error(204, loc, format!("the operand {v} is not defined at this place"))
                }
            });
            self.types(inst, op, loc);
            match op {
                Op::Loop { inits, body, .. } => self.block(*body, Some(&Around { inits, loc }), visible),
                Op::Yield(values) => match around {
                    None => self.error(208, loc, "`yield` in the kernel's body; it ends the body of a loop"),
                    Some(_) if at + 1 != data.insts.len() => {
                        self.error(208, loc, "`yield` before the end of the loop's body")
                    }
                    Some(around) => self.yield_(values, around, loc),
                },
                Op::Load { param, slices } => {
                    self.access(TileAccess { inst, param: *param, slices, loc, update: None, is_of_all: false });
                }
                Op::Store { param, slices, update, .. } => {
                    let mut is_of_all = !self.differing.is_apart(inst);
                    op.visit_operands(|v| is_of_all &= !self.differing.value(v));
                    self.access(TileAccess { inst, param: *param, slices, loc, update: Some(*update), is_of_all });
                }
                Op::DimTiles { dim, size: 0 } => {
                    self.error(220, loc, format!("tiles of 0 elements of `{}`", k.dims[*dim].name));
                }
                _ => {}
            }
            for (i, &v) in k.results[inst].iter().enumerate() {
                self.definition(v, ValueDef::Result(inst, i as u32), loc);
                defined.push(v);
                visible.insert(v);
            }
        }
        if let Some(around) = around
            && !data.insts.last().is_some_and(|&i| matches!(k.insts[i], Op::Yield(_)))
        {
            self.error(206, around.loc, "the loop's body does not end in `yield`");
        }
        for v in defined {
            visible.remove(v);
        }
    }

    /// 209.
    fn body_params(&mut self, params: &[Value], around: Option<&Around<'k>>) {
        let k = self.kernel;
        let types = |vs: &[Value]| vs.iter().map(|&v| k.ty(v).clone()).collect::<Vec<_>>();
        match around {
            None if params.is_empty() => {}
            None => self.error(209, Loc::default(), "the kernel's body has parameters"),
            Some(around) => {
                let mut want = vec![TileType::scalar(DType::I32)];
                want.extend(types(around.inits));
                if types(params) != want {
                    let message = format!("the loop's body wants {}, but has {}", list(&want), list(&types(params)));
                    self.error(209, around.loc, message);
                }
            }
        }
    }

    /// 1xx and 203.
    fn types(&mut self, inst: Inst, op: &Op, loc: Loc) {
        let found: Vec<TileType> = self.kernel.results[inst].iter().map(|&v| self.kernel.ty(v).clone()).collect();
        match infer(self.kernel, op, loc) {
            Err(d) => self.errors.push(d),
            Ok(want) if want != found => {
                self.error(
                    203,
                    loc,
                    format!("the operation gives {}, but its results are {}", list(&want), list(&found)),
                );
            }
            Ok(_) => {}
        }
    }

    /// 207.
    fn yield_(&mut self, values: &[Value], around: &Around<'k>, loc: Loc) {
        if values.len() != around.inits.len() {
            let message = format!("the loop carries {} values, but `yield` gives {}", around.inits.len(), values.len());
            return self.error(207, loc, message);
        }
        for (i, (&v, &init)) in values.iter().zip(around.inits).enumerate() {
            let (found, want) = (self.kernel.ty(v), self.kernel.ty(init));
            if found != want {
                self.error(207, loc, format!("the carried value {i} is {want}, but `yield` gives {found}"));
            }
        }
    }
}

fn list(types: &[TileType]) -> String {
    let texts: Vec<String> = types.iter().map(TileType::to_string).collect();
    if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") }
}

/// The product of extents, saturated.
fn elements(shape: &[u32]) -> u64 {
    shape.iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e)))
}
