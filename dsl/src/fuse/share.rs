//! Finds operations of makers that the fused kernel already has, so that they are reused, and bounds how many may be written.
//!
//! A maker is written for each tile that is read of it. A value that depends on its row only, such as a norm, is the same for
//! all tiles of the row. It is placed outside the loops over them, and written once. Without that, a chain of kernels that read
//! their rows three times each would make the first of them three times for the second, nine times for the third, and so on.
//! Where a loop moves everything that is read, some growth remains. It is bounded.

use super::cover::MakerCoordinate;
use super::fit::{Fit, Fitted, fitted};
use super::links::Links;
use crate::diag::{Diagnostic, Diagnostics};
use crate::entity::{Block, Inst, Value};
use crate::ir::{Kernel, Loc};
use crate::op::Op;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Operations of the largest fused kernel. A kernel of this size compiles in seconds. The shipped ones have a few hundred.
const MOST_OPERATIONS: usize = 1 << 14;

/// The operation and the operands for which an operation of a maker is written.
#[derive(Clone, PartialEq)]
pub(super) enum For {
    /// The operation, with the fused kernel's values.
    Operands(Op),
    /// For a loop: the values that it and its body read, and the places from which they load.
    Reads { reads: Vec<MakerCoordinate>, astray: Vec<Value>, lift: Vec<Value> },
}

/// An operation that was written: its key, its block and its results.
type Entry = (For, Block, Vec<Value>);

/// A maker, which of its tensors was wanted in which way, and the result. Kernels are kept alive so that each has an address of
/// its own.
struct FittedMaker {
    kernel: Rc<Kernel>,
    param: usize,
    fits: Vec<Option<Fit>>,
    made: Fitted,
}

/// The operations of makers that were written.
#[derive(Default)]
pub(super) struct Shared {
    /// By kernel and operation.
    entries: BTreeMap<(usize, Inst), Vec<Entry>>,
    fitted: Vec<FittedMaker>,
    /// The number of tiles for which each part was written.
    tiles: BTreeMap<usize, usize>,
}

impl Shared {
    /// The results of an equal operation in a block that is still open.
    pub(super) fn find(&self, kernel: &Rc<Kernel>, inst: Inst, what: &For, open: &[Block]) -> Option<&[Value]> {
        let entries = self.entries.get(&(address(kernel), inst))?;
        entries.iter().find(|(known, block, _)| open.contains(block) && known == what).map(|e| &e.2[..])
    }

    /// Records an operation that was written.
    pub(super) fn note(&mut self, kernel: &Rc<Kernel>, inst: Inst, what: For, block: Block, results: &[Value]) {
        self.entries.entry((address(kernel), inst)).or_default().push((what, block, results.to_vec()));
    }

    /// A maker that was rewritten to fit, once for each fit, so that operations of one kernel are recognised again.
    pub(super) fn fitted(
        &mut self,
        kernel: Rc<Kernel>,
        param: usize,
        fits: Vec<Option<Fit>>,
    ) -> Result<Fitted, String> {
        let is_it = |f: &&FittedMaker| Rc::ptr_eq(&f.kernel, &kernel) && f.param == param && f.fits == fits;
        if let Some(known) = self.fitted.iter().find(is_it) {
            return Ok(known.made.clone());
        }
        let made = fitted(kernel.clone(), param, &fits)?;
        self.fitted.push(FittedMaker { kernel, param, fits, made: made.clone() });
        Ok(made)
    }

    /// Counts a tile for which a part is written, and reports when a kernel becomes too large.
    pub(super) fn count(&mut self, links: &Links, part: usize, kernel: &Kernel, loc: Loc) -> Result<(), Diagnostics> {
        *self.tiles.entry(part).or_default() += 1;
        if kernel.insts.len() <= MOST_OPERATIONS {
            return Ok(());
        }
        let Some((&most, times)) = self.tiles.iter().max_by_key(|(_, times)| **times) else { return Ok(()) };
        let label = &links.parts[most].label;
        let message = format!(
            "the fused kernel would have more than {MOST_OPERATIONS} operations: `{label}` would be written {times} times, for as \
             many tiles that the kernels after it read in loops"
        );
        Err(Diagnostic::new(231, loc, message)
            .note(format!(
                "split the chain: end one `fuse!` with `{label}` or a kernel after it, which then stores its tensor, and begin \
                 another one with the kernel that reads it"
            ))
            .into())
    }
}

fn address(kernel: &Rc<Kernel>) -> usize {
    Rc::as_ptr(kernel) as usize
}
