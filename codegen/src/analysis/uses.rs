//! Where each Tile IR value is used, and in which block each value is defined.

use atlas_dsl::ir::ValueDef;
use atlas_dsl::{Block, Inst, Kernel, Op, Value};
use cranelift_entity::SecondaryMap;

/// One use of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The using instruction.
    pub inst: Inst,
    /// The block it stands in.
    pub block: Block,
}

/// All uses, and the nesting of blocks.
#[derive(Clone, Debug)]
pub struct Uses {
    uses: SecondaryMap<Value, Vec<Use>>,
    parent: SecondaryMap<Block, Option<Inst>>,
    block_of: SecondaryMap<Inst, Option<Block>>,
}

impl Uses {
    /// Collects the uses of a kernel.
    pub fn of(kernel: &Kernel) -> Uses {
        let mut u = Uses { uses: SecondaryMap::new(), parent: SecondaryMap::new(), block_of: SecondaryMap::new() };
        u.walk(kernel, kernel.body);
        u
    }

    fn walk(&mut self, kernel: &Kernel, block: Block) {
        for &inst in &kernel.blocks[block].insts {
            self.block_of[inst] = Some(block);
            let op = &kernel.insts[inst];
            op.visit_operands(|v| self.uses[v].push(Use { inst, block }));
            if let Op::Loop { body, .. } = op {
                self.parent[*body] = Some(inst);
                self.walk(kernel, *body);
            }
        }
    }

    /// The uses of a value in program order.
    pub fn get(&self, v: Value) -> &[Use] {
        &self.uses[v]
    }

    /// The loop whose body a block is.
    pub fn loop_of(&self, block: Block) -> Option<Inst> {
        self.parent[block]
    }

    /// The block that an instruction stands in.
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
