//! A small engine that rewrites Tile IR by rules, until none applies.
//!
//! # Promise
//! [`simplify`] leaves a kernel that computes the same elements, bit by bit except for the payload of NaNs, and that keeps the
//! rules it kept before. It terminates: each rule removes an operation or replaces it by a simpler one. The number of rounds is
//! bounded too.
//!
//! # Argument
//! - A rule sees one operation and its operands. It returns another value that equals the result (`Same`), or a simpler
//!   operation. Each rule's algebra is in its row.
//! - Values that are equal element by element may still differ in which elements are *valid*, and reductions, products and
//!   stores depend on that. So a value replaces another only if both have the same constraints ([`Validity`]).
//! - An operation without effects, or a load of a tensor that is not written, may be computed once for all places that its
//!   block dominates, or not at all.
//!
//! # Breaks it
//! - A rule whose algebra does not hold: tests/rewrite.rs, on random kernels and on a case of each rule. Wrong rules are among
//!   its negative controls.
//! - A value that would lose its edges: tests/cases/rewrite/select_same.tile keeps such a value.
//!
//! | file | holds |
//! |---|---|
//! | `rules` | the rules, as data |
//! | `compact` | removes what nothing needs |

mod compact;
mod rules;

pub use compact::compact;
pub use rules::{RULES, Rewrite, RewriteRule};

use crate::entity::{Block, Inst, Value};
use crate::ir::Kernel;
use crate::op::{Effect, Op};
use crate::validity::Validity;
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use std::collections::{BTreeMap, HashMap};

/// Rounds after which a kernel is left as it is. Kernels take far fewer; each round goes over all operations.
const MOST_ROUNDS: usize = 32;

/// How often each rule was applied, by name.
pub type Applied = BTreeMap<&'static str, usize>;

/// Rewrites by all rules.
pub fn simplify(kernel: &mut Kernel) -> Applied {
    rewrite(kernel, &RULES)
}

/// Rewrites by the given rules.
pub fn rewrite(kernel: &mut Kernel, rules: &[RewriteRule]) -> Applied {
    let mut applied = Applied::new();
    for _ in 0..MOST_ROUNDS {
        let mut round = Round {
            validity: Validity::by_source(kernel),
            same: SecondaryMap::new(),
            seen: HashMap::new(),
            order: Vec::new(),
            rules,
            applied: &mut applied,
            changed: false,
        };
        round.block(kernel, kernel.body);
        round.settle(kernel);
        let changed = round.changed;
        let before = kernel.insts.len();
        *kernel = compact(kernel);
        if kernel.insts.len() < before {
            *applied.entry("unused").or_default() += before - kernel.insts.len();
        }
        if !changed {
            break;
        }
    }
    applied
}

/// True if two operations give the same bits. Equal numbers may differ in the sign of a zero.
fn is_again(a: &Op, b: &Op) -> bool {
    match (a, b) {
        (Op::Splat { value: x, .. }, Op::Splat { value: y, .. })
        | (Op::Other { other: x, .. }, Op::Other { other: y, .. }) => a == b && x.to_bits() == y.to_bits(),
        _ => a == b,
    }
}

/// A key that equal operations share: their kind and their first operands.
type Key = (std::mem::Discriminant<Op>, [Option<Value>; 2]);

fn key(op: &Op) -> Key {
    let mut first = [None; 2];
    let mut count = 0;
    op.visit_operands(|v| {
        if let Some(place) = first.get_mut(count) {
            *place = Some(v);
        }
        count += 1;
    });
    (std::mem::discriminant(op), first)
}

/// One walk over all operations.
struct Round<'r> {
    validity: Validity,
    /// The value that replaces a value.
    same: SecondaryMap<Value, PackedOption<Value>>,
    /// Operations in this block and in those around it that an equal operation may refer to, with their results.
    seen: HashMap<Key, Vec<Inst>>,
    /// The entries of `seen` in the order of the text.
    order: Vec<Key>,
    rules: &'r [RewriteRule],
    applied: &'r mut Applied,
    changed: bool,
}

impl Round<'_> {
    fn block(&mut self, kernel: &mut Kernel, block: Block) {
        let outside = self.order.len();
        for inst in kernel.blocks[block].insts.clone() {
            let op = kernel.insts[inst].clone().map_operands(|v| self.now(v));
            kernel.insts[inst] = op.clone();
            if let Op::Loop { body, .. } = op {
                self.block(kernel, body);
            }
            self.operation(kernel, inst);
        }
        for key in self.order.drain(outside..) {
            if let Some(alike) = self.seen.get_mut(&key) {
                alike.pop();
            }
        }
    }

    fn operation(&mut self, kernel: &mut Kernel, inst: Inst) {
        for rule in self.rules {
            let Some(rewrite) = (rule.apply)(kernel, &self.validity, inst) else { continue };
            let done = match rewrite {
                Rewrite::Same(pairs) => {
                    let fits = |&(old, new): &(Value, Value)| {
                        kernel.ty(old) == kernel.ty(new) && old != new && self.alike(kernel, old, new)
                    };
                    let pairs: Vec<_> = pairs.into_iter().filter(fits).collect();
                    pairs.iter().for_each(|&(old, new)| self.same[old] = new.into());
                    !pairs.is_empty()
                }
                Rewrite::Op(op) => {
                    let fits = kernel.insts[inst] != op;
                    if fits {
                        kernel.insts[inst] = op;
                    }
                    fits
                }
            };
            if done {
                self.changed = true;
                *self.applied.entry(rule.name).or_default() += 1;
            }
        }
        self.again(kernel, inst);
    }

    /// Operations that were read before their replacement was known.
    fn settle(&self, kernel: &mut Kernel) {
        for op in kernel.insts.values_mut() {
            *op = op.clone().map_operands(|v| self.now(v));
        }
    }

    /// Merges equal operations.
    fn again(&mut self, kernel: &Kernel, inst: Inst) {
        let op = &kernel.insts[inst];
        let repeatable = match op {
            Op::Load { param, .. } => kernel.params[*param].kind.is_read_only(),
            op => op.kind().effect() == Effect::None,
        };
        let Some(&result) = kernel.results[inst].first().filter(|_| repeatable) else { return };
        if self.same[result].is_some() {
            return;
        }
        let key = key(op);
        let alike = self.seen.entry(key).or_default();
        match alike.iter().find(|&&seen| is_again(&kernel.insts[seen], op)) {
            Some(&first) => {
                self.same[result] = kernel.results[first][0].into();
                self.changed = true;
                *self.applied.entry("again").or_default() += 1;
            }
            None => {
                alike.push(inst);
                self.order.push(key);
            }
        }
    }

    /// The value that replaces a value.
    fn now(&self, v: Value) -> Value {
        let mut v = v;
        while let Some(w) = self.same[v].expand() {
            v = w;
        }
        v
    }

    /// True if the same elements of two tiles are valid.
    fn alike(&self, kernel: &Kernel, v: Value, w: Value) -> bool {
        let (a, b) = (self.validity.constraints(v), self.validity.constraints(w));
        // The verifier looks behind the reshape of what is stored, and behind nothing else.
        let stands_bare = !self.hides(kernel, w) || self.hides(kernel, v);
        stands_bare && a.len() == b.len() && a.iter().all(|c| b.iter().any(|d| c.same(d, kernel)))
    }

    /// True for the reshape of a tile with edges along axes that it drops.
    fn hides(&self, kernel: &Kernel, v: Value) -> bool {
        let mut v = v;
        while let Some((_, Op::Reshape { value, axes })) = kernel.def_op(v) {
            if self.validity.constraints(*value).iter().any(|c| !axes.contains(&Some(c.axis))) {
                return true;
            }
            v = *value;
        }
        false
    }
}
