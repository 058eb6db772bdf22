//! The kernel whose products read workspaces.

use super::Workspace;
use super::wanted::{Kind, Wanted};
use atlas_dsl::op::BinaryOp;
use atlas_dsl::rewrite::compact;
use atlas_dsl::{Block, Inst, Kernel, Op, Param, Value};
use std::collections::BTreeMap;

/// The kernel with loads of workspaces for the loads that are wanted, and with three products for each product of split numbers.
pub(super) fn with_workspaces(
    kernel: &Kernel,
    signature: &Kernel,
    wanted: &[Wanted],
    workspaces: &[Vec<Workspace>],
) -> Kernel {
    let mut k = kernel.clone();
    k.params = signature.params.clone();
    let mut of_load = BTreeMap::new();
    for (w, made) in wanted.iter().zip(workspaces) {
        let params: Vec<Param> = made.iter().map(|w| w.param).collect();
        w.loads.iter().for_each(|&load| drop(of_load.insert(load, (w.kind, params.clone()))));
    }
    let body = k.body;
    Rewriter { k: &mut k, of_load, parts: BTreeMap::new() }.block(body);
    compact(&k)
}

struct Rewriter<'k> {
    k: &'k mut Kernel,
    of_load: BTreeMap<Inst, (Kind, Vec<Param>)>,
    /// The two parts of each tile of split numbers, the larger one first.
    parts: BTreeMap<Value, (Kind, [Value; 2])>,
}

impl Rewriter<'_> {
    fn block(&mut self, block: Block) {
        let insts = std::mem::take(&mut self.k.blocks[block].insts);
        for inst in insts {
            match self.k.insts[inst].clone() {
                Op::Loop { body, .. } => {
                    self.k.blocks[block].insts.push(inst);
                    self.block(body);
                }
                Op::Dot { a, b, .. } if self.parts.contains_key(&a) && self.parts.contains_key(&b) => {
                    self.products(block, inst);
                    self.k.blocks[block].insts.push(inst);
                }
                Op::Load { slices, .. } => {
                    self.k.blocks[block].insts.push(inst);
                    let Some((kind, params)) = self.of_load.get(&inst).cloned() else { continue };
                    match *params {
                        [high, low] => {
                            self.part(block, inst, kind, |n| Op::Load { param: [high, low][n], slices: slices.clone() })
                        }
                        [copy, ..] => self.k.insts[inst] = Op::Load { param: copy, slices },
                        [] => {}
                    }
                }
                Op::Transpose(v) => {
                    self.k.blocks[block].insts.push(inst);
                    if let Some(&(kind, parts)) = self.parts.get(&v) {
                        self.part(block, inst, kind, |n| Op::Transpose(parts[n]));
                    }
                }
                _ => self.k.blocks[block].insts.push(inst),
            }
        }
    }

    /// Appends the two parts of an operation's result.
    fn part(&mut self, block: Block, inst: Inst, kind: Kind, op: impl Fn(usize) -> Op) {
        let v = self.k.results[inst][0];
        let (dtype, loc) = (kind.parts()[0].dtype, self.k.locs[inst]);
        let ty = self.k.ty(v).with_dtype(dtype);
        let parts = [0, 1].map(|n| {
            let made = self.k.push_inst(block, op(n), std::slice::from_ref(&ty), loc);
            self.k.results[made][0]
        });
        self.parts.insert(v, (kind, parts));
    }

    /// Turns a product of split numbers into three, the smallest first. The product of both rests is left out.
    ///
    /// Tensor cores truncate sums. Over a loop of thousands of products that would be more than splitting leaves. So the three have
    /// a sum of their own, which is added to the accumulator with rounding.
    fn products(&mut self, block: Block, inst: Inst) {
        let Op::Dot { a, b, acc, precision } = self.k.insts[inst] else { return };
        let ((kind, a), (of_right, b)) = (self.parts[&a], self.parts[&b]);
        // Another product of the same tiles keeps its own precision, and reads the tensors themselves.
        if Kind::splitting(precision) != Some(kind) || kind != of_right {
            return;
        }
        let (_, precision) = kind.product(precision);
        let (ty, loc) = (self.k.ty(self.k.results[inst][0]).clone(), self.k.locs[inst]);
        let product = |k: &mut Kernel, a, b, acc| {
            let made = k.push_inst(block, Op::Dot { a, b, acc, precision }, std::slice::from_ref(&ty), loc);
            k.results[made][0]
        };
        let sum = product(self.k, a[1], b[0], None);
        let sum = product(self.k, a[0], b[1], Some(sum));
        self.k.insts[inst] = match acc {
            Some(acc) => Op::Binary(BinaryOp::Add, acc, product(self.k, a[0], b[0], Some(sum))),
            None => Op::Dot { a: a[0], b: b[0], acc: Some(sum), precision },
        };
    }
}
