//! Fusion: makes one kernel of several that run one after the other. The tensors between them become tiles.
//!
//! # What it does
//! The last kernel keeps its operations and its grid. Where it loads a tile of a tensor that an earlier kernel makes, the
//! operations of that kernel replace the load, for just that tile. The same is done for the loads of that kernel, and so on
//! backwards. A tensor can be eliminated if each tile that is read of it is one tile of its maker, and the maker can be told to
//! make that one. The *cover* says which one (`cover`).
//!
//! ```text
//! maker    for n in tiles(N, B): store(t[n, ..], f(load(x[n, ..])))
//! reader   for m in tiles(N, B): .. load(t[m, ..]) ..
//! fused    for m in tiles(N, B): .. f(load(x[m, ..])) ..
//! ```
//!
//! # Promise
//! The fused kernel computes, element by element, what the kernels compute one after the other: the same operations on the same
//! tiles in the same order. The rounding to the type of an eliminated tensor is kept, unless `keep_f32` says otherwise.
//!
//! # Why that holds
//! - A load gives what one store of the maker wrote, in the program that the cover names, or zeros past the edge. The tile in
//!   the program differs from memory only where it is not valid. By rule 227, everything that a store writes is valid, with two
//!   exceptions. The first is what its slices leave out, and those slices make the load's result invalid too. The second is
//!   what the sizes of dims alone decide. There the store writes 0, which is a number to the reader, and `or` puts it into the
//!   tile. A maker whose tile has no edge where the tensor has one is refused (232). So is one whose tile has both the edge of
//!   the tensor and stored zeros along one axis.
//! - A kernel has no effects other than its stores, so it may be computed anywhere and any number of times. The maker's tile is
//!   made as far outside of loops as its coordinates allow, and once for each place that needs it. What two tiles of one maker
//!   have in common is computed once, where both may read it.
//! - A maker that reads what it writes is refused. So is one that would read what the last kernel has already written.
//!
//! | file | does |
//! |---|---|
//! | `links` | which kernel makes which tensor; which dims and element types are the same |
//! | `signature` | the fused kernel's declaration |
//! | `build` | builds each part's kernel for its dims and knobs |
//! | `cover` | which tile of its maker a load wants |
//! | `maker` | what a kernel stores, its edges, and which elements were stored as 0 |
//! | `fit`, `narrow`, `widen` | rewrites a maker of whole rows, or of single rows, to one of tiles |
//! | `graft` | the operations of all kernels in one |
//! | `share` | reuses operations that were written before, and bounds how many there may be |
//! | `rules` | the rules by name, and which one applies to an edge |

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

pub use rules::{FusionRule, RULES, Role};

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
    /// New names of its parameters, as pairs of old and new.
    pub names: &'static [(&'static str, &'static str)],
}

/// Kernels to be fused. The last one writes the remaining tensors.
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
    /// Skips the rounding to the element type of an eliminated tensor, if its reader converts back to f32.
    pub keep_f32: bool,
}

/// A kernel made from others, as `fuse!` declares it. It is used like any [`KernelDef`].
pub struct Fused {
    fusion: Fusion,
    made: OnceLock<(&'static KernelDef, Option<&'static Plan>)>,
}

impl Fused {
    /// Makes a kernel from others.
    pub const fn new(fusion: Fusion) -> Fused {
        Fused { fusion, made: OnceLock::new() }
    }

    /// The declaration, which lives as long as the program. [`KernelDef::refused`] says why there is no kernel, if so.
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
