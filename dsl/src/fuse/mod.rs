//! Fusion: kernels that follow each other, made one kernel in which the tensors between them are tiles.
//!
//! # What it does
//! The last kernel stands as it is, its grid with it. Where it loads a tile of a tensor that a kernel before it makes, that
//! kernel's own operations stand instead, for just that tile; and so on backwards. So a tensor disappears where each tile
//! that is read of it is one tile of its maker, and the maker can be told to make that one: the *cover* (`cover`).
//!
//! ```text
//! maker    for n in tiles(N, B): store(t[n, ..], f(load(x[n, ..])))
//! reader   for m in tiles(N, B): .. load(t[m, ..]) ..
//! fused    for m in tiles(N, B): .. f(load(x[m, ..])) ..
//! ```
//!
//! # Promise
//! The fused kernel computes, element by element, what the kernels one after the other compute: the same operations on the
//! same tiles in the same order. The rounding of a tensor that disappeared is kept, unless `keep_f32` says otherwise.
//!
//! # Why that holds
//! - A load gives what the maker stored: of one store, in one program, which the cover names, or zeros past the edge. The
//!   tile in the program differs from what was in memory where it is not valid alone. Rule 227 has it that what a store
//!   writes is valid but for what its slices leave out, which are the slices that make the load's result not valid, and for
//!   what the sizes of dims alone decide: there the store writes 0, a number to the reader, and `or` puts it into the tile.
//!   A maker whose tile has no edge where the tensor has one is refused (232), and so is one whose tile has, along one axis,
//!   the edge of the tensor and zeros that were stored.
//! - Kernels without effects but their stores may be computed as often as one likes, and anywhere: the maker's tile is made
//!   as far outside loops as what picks it allows, and once for each place that it is needed in; what two tiles of one maker
//!   have in common is computed once, where both may read it.
//! - A maker that reads what it writes is refused, and so is one that would read what the last kernel has written by then.
//!
//! | file | does |
//! |---|---|
//! | `links` | which tensor is made by whom; dims and element types that are one |
//! | `signature` | the fused kernel's declaration |
//! | `build` | each part's kernel, for what its dims and knobs are |
//! | `cover` | which tile of its maker a load wants |
//! | `maker` | what a kernel stores, its edges, and what was stored as 0 |
//! | `fit`, `narrow`, `widen` | a maker of whole rows, or of single ones, as one of tiles |
//! | `graft` | the operations of all kernels in one |
//! | `share` | what of them stands there already, and how much may |
//! | `rules` | the rules by name, and which of them an edge is |

mod build;
mod cover;
mod fit;
mod graft;
mod links;
mod maker;
mod narrow;
mod rules;
mod share;
mod signature;
mod widen;

pub use rules::{RULES, Role, Rule};

use crate::config::Config;
use crate::def::{Declared, KernelDef, Removed};
use crate::diag::Diagnostics;
use crate::specialization::Specialization;
use graft::graft;
use signature::{Plan, leak, nothing, plan, refused};
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

/// One kernel of a fusion.
#[derive(Clone, Copy)]
pub struct Part {
    /// The kernel.
    pub kernel: &'static dyn Declared,
    /// New names of its parameters: the old one and the new one.
    pub names: &'static [(&'static str, &'static str)],
}

/// Kernels to be made one; the last one writes what is left.
#[derive(Clone, Copy)]
pub struct Fusion {
    /// The fused kernel's name.
    pub name: &'static str,
    /// Its doc comment.
    pub doc: &'static str,
    /// The source file that declares it.
    pub file: &'static str,
    /// The kernels, in order.
    pub parts: &'static [Part],
    /// Do not round to the element type of a tensor that disappears, if its reader widens it to f32 again.
    pub keep_f32: bool,
}

/// A kernel made of others: what `fuse!` declares. It is used like any [`KernelDef`].
pub struct Fused {
    fusion: Fusion,
    made: OnceLock<(&'static KernelDef, Option<&'static Plan>)>,
}

impl Fused {
    /// A kernel made of others.
    pub const fn new(fusion: Fusion) -> Fused {
        Fused { fusion, made: OnceLock::new() }
    }

    /// The declaration; [`KernelDef::refused`] says why there is none. It lives as long as the program.
    pub fn def(&self) -> &'static KernelDef {
        self.made().0
    }

    fn made(&self) -> (&'static KernelDef, Option<&'static Plan>) {
        *self.made.get_or_init(|| {
            let (def, plan) = match plan(self.fusion) {
                Ok(plan) => (declare(plan), Some(plan)),
                Err(why) => (refused(self.fusion, why), None),
            };
            (Box::leak(Box::new(def)), plan)
        })
    }
}

impl Deref for Fused {
    type Target = KernelDef;

    fn deref(&self) -> &KernelDef {
        self.def()
    }
}

impl fmt::Debug for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fused").field(&self.fusion.name).finish()
    }
}

impl Declared for Fused {
    fn declared(&'static self) -> &'static KernelDef {
        self.def()
    }

    fn removed(&'static self, spec: &Specialization, config: &Config) -> Result<Vec<Removed>, Diagnostics> {
        let (def, plan) = self.made();
        match plan {
            Some(plan) => graft(plan, spec, config).map(|made| made.1),
            None => Err(def.refused.cloned().unwrap_or_default()),
        }
    }
}

/// The declaration of a plan's kernel.
fn declare(plan: &'static Plan) -> KernelDef {
    let KernelDef { types, dims, params, tune, grid, requires, .. } = plan.head;
    let build = leak(move |spec: &Specialization, config: &Config| graft(plan, spec, config).map(|made| made.0));
    KernelDef { types, dims, params, tune, grid, requires, build, ..nothing(plan.fusion) }
}
