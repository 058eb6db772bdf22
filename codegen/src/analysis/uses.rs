//! The uses of each Tile IR value, and the block in which it is defined.
//!
//! # Promise
//! [`Uses::get`] lists the uses by live operations, in program order. An operation is live if a stored value depends on it. An
//! operation that is not [`Uses::is_live`] may be left out of the code.
//!
//! # Argument
//! It is the smallest set that contains every store and is closed under three rules. An operation that computes an operand of a
//! live operation is live. The loop around a live operation is live. The `yield` of a live loop is live, and with it the bounds
//! and all carried values, because the next iteration may need them. A store is the only operation with an effect, so
//! operations outside the set have no visible effect. Sets only grow, so the walk terminates.
//!
//! # Breaks it
//! - A loop whose carried tile is not read after the loop, but by the next iteration's store:
//!   tests/agreement/exchanges.rs::threads_exchange_data_through_a_tensor and every running total.
//! - A copy for a tile that only dead code reads, so that nothing waits for the copy: the simulator reports it
//!   (tests/random.rs).

use atlas_dsl::ir::ValueDef;
use atlas_dsl::op::Effect;
use atlas_dsl::{Block, Inst, Kernel, Op, Value};
use cranelift_entity::SecondaryMap;

/// One use of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The using instruction.
    pub inst: Inst,
    /// The block of that instruction.
    pub block: Block,
}

/// All uses, and the nesting of blocks.
#[derive(Clone, Debug)]
pub struct Uses {
    uses: SecondaryMap<Value, Vec<Use>>,
    parent: SecondaryMap<Block, Option<Inst>>,
    block_of: SecondaryMap<Inst, Option<Block>>,
    live: SecondaryMap<Inst, bool>,
}

impl Uses {
    /// Collects the uses of a kernel.
    pub fn of(kernel: &Kernel) -> Uses {
        let mut u = Uses {
            uses: SecondaryMap::new(),
            parent: SecondaryMap::new(),
            block_of: SecondaryMap::new(),
            live: SecondaryMap::new(),
        };
        u.place(kernel, kernel.body);
        for (inst, op) in kernel.insts.iter() {
            if op.kind().effect() == Effect::Writes && u.block_of[inst].is_some() {
                u.enliven(kernel, inst);
            }
        }
        u.walk(kernel, kernel.body);
        u
    }

    fn place(&mut self, kernel: &Kernel, block: Block) {
        for &inst in &kernel.blocks[block].insts {
            self.block_of[inst] = Some(block);
            if let Op::Loop { body, .. } = kernel.insts[inst] {
                self.parent[body] = Some(inst);
                self.place(kernel, body);
            }
        }
    }

    /// Marks an operation and everything on which it depends.
    fn enliven(&mut self, kernel: &Kernel, inst: Inst) {
        let mut open = vec![inst];
        while let Some(inst) = open.pop() {
            if std::mem::replace(&mut self.live[inst], true) {
                continue;
            }
            kernel.insts[inst].visit_operands(|v| match kernel.values[v].def {
                ValueDef::Result(def, _) => open.push(def),
                ValueDef::BlockParam(body, _) => open.extend(self.parent[body]),
                ValueDef::Grid(_) => {}
            });
            if let Op::Loop { body, .. } = kernel.insts[inst] {
                open.extend(kernel.blocks[body].insts.last());
            }
            open.extend(self.block_of[inst].and_then(|b| self.parent[b]));
        }
    }

    fn walk(&mut self, kernel: &Kernel, block: Block) {
        for &inst in &kernel.blocks[block].insts {
            if !self.live[inst] {
                continue;
            }
            let op = &kernel.insts[inst];
            op.visit_operands(|v| self.uses[v].push(Use { inst, block }));
            if let Op::Loop { body, .. } = op {
                self.walk(kernel, *body);
            }
        }
    }

    /// True if a stored value depends on an operation.
    pub fn is_live(&self, inst: Inst) -> bool {
        self.live[inst]
    }

    /// The uses of a value in program order.
    pub fn get(&self, v: Value) -> &[Use] {
        &self.uses[v]
    }

    /// The loop whose body a block is.
    pub fn loop_of(&self, block: Block) -> Option<Inst> {
        self.parent[block]
    }

    /// The block of an instruction.
    pub fn block_of(&self, inst: Inst) -> Option<Block> {
        self.block_of[inst]
    }

    /// The block in which a value is defined.
    pub fn def_block(&self, kernel: &Kernel, v: Value) -> Block {
        match kernel.values[v].def {
            ValueDef::Grid(_) => kernel.body,
            ValueDef::BlockParam(block, _) => block,
            ValueDef::Result(inst, _) => self.block_of[inst].unwrap_or(kernel.body),
        }
    }

    /// True if `inner` is `outer` or nested in it.
    pub fn is_within(&self, mut inner: Block, outer: Block) -> bool {
        loop {
            if inner == outer {
                return true;
            }
            match self.parent[inner].and_then(|l| self.block_of[l]) {
                Some(next) => inner = next,
                None => return false,
            }
        }
    }
}
