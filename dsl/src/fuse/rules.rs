//! The rules of fusion by name: data, each with its algebra.
//!
//! They differ in what the maker of a tile does last, and in what its reader does with the tile. The rewriting (`graft`) and
//! the condition (`cover`) are the same for all. The names say what is gained.

use crate::entity::Value;
use crate::ir::Kernel;
use crate::op::Op;
use std::collections::BTreeSet;
use std::fmt;

/// How a tile is made, or how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Element by element.
    Map,
    /// By reducing an axis.
    Reduce,
    /// By a product.
    Dot,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Map => "map",
            Role::Reduce => "reduce",
            Role::Dot => "dot",
        })
    }
}

/// A rule of fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FusionRule {
    /// The name, such as `prologue`.
    pub name: &'static str,
    /// How the tile is made.
    pub maker: Role,
    /// How the tile is used.
    pub reader: Role,
    /// The equality.
    pub algebra: &'static str,
}

/// Every rule. `t` is the eliminated tensor, and `[i]` one tile of it.
pub const RULES: [FusionRule; 9] = [
    // g(t)[i] where t[i] = f(x[i]): one pass over x, and t is neither written nor read.
    FusionRule { name: "map_map", maker: Role::Map, reader: Role::Map, algebra: "g(f(x))[i] = (g . f)(x[i])" },
    // A product's operand is made where it is read: feature maps, casts, gathers.
    FusionRule {
        name: "prologue",
        maker: Role::Map,
        reader: Role::Dot,
        algebra: "sum_k f(x)[i,k] w[k] = sum_k f(x[i,k]) w[k]",
    },
    // What follows a product is done to its accumulator: bias, activation, residual.
    FusionRule {
        name: "epilogue",
        maker: Role::Dot,
        reader: Role::Map,
        algebra: "g(x w)[i,j] = g(sum_k x[i,k] w[k,j])",
    },
    // A reduction of computed elements: the norm of features, the loss of a read-out.
    FusionRule {
        name: "map_reduce",
        maker: Role::Map,
        reader: Role::Reduce,
        algebra: "fold_k f(x)[i,k] = fold_k f(x[i,k])",
    },
    // Rows that a reduction scaled go on in registers: a norm before a gate.
    FusionRule {
        name: "reduce_map",
        maker: Role::Reduce,
        reader: Role::Map,
        algebra: "g(x / |x|)[i] = g(x[i] / |x[i]|)",
    },
    // A norm before a product.
    FusionRule {
        name: "reduce_dot",
        maker: Role::Reduce,
        reader: Role::Dot,
        algebra: "(x / |x|)[i] w = (x[i] / |x[i]|) w",
    },
    // A norm behind a product: whole rows of the accumulator.
    FusionRule {
        name: "dot_reduce",
        maker: Role::Dot,
        reader: Role::Reduce,
        algebra: "fold_j (x w)[i,j] = fold_j sum_k x[i,k] w[k,j]",
    },
    // Two norms, a softmax of a norm.
    FusionRule {
        name: "reduce_reduce",
        maker: Role::Reduce,
        reader: Role::Reduce,
        algebra: "reduce (reduce x)[i] = reduce (reduce x[i])",
    },
    // Two products with what lies between: a layer and the next, whose hidden tile never leaves the program.
    FusionRule {
        name: "dot_map_dot",
        maker: Role::Dot,
        reader: Role::Dot,
        algebra: "f(x v)[i] w = f(sum_k x[i,k] v[k]) w",
    },
];

/// The rule for how a tile is made and how it is used.
pub(super) fn rule(maker: Role, reader: Role) -> &'static FusionRule {
    RULES.iter().find(|r| (r.maker, r.reader) == (maker, reader)).unwrap_or(&RULES[0])
}

/// How a value is made: by a product if there is one behind it, otherwise by a reduction if there is one.
pub(super) fn made_by(kernel: &Kernel, value: Value) -> Role {
    let (mut seen, mut left, mut role) = (BTreeSet::new(), vec![value], Role::Map);
    while let Some(v) = left.pop() {
        if !seen.insert(v) {
            continue;
        }
        let sources: Vec<Value> = match kernel.values[v].def {
            crate::ir::ValueDef::Result(inst, at) => {
                let op = &kernel.insts[inst];
                match op {
                    Op::Dot { .. } => return Role::Dot,
                    Op::Reduce { .. } | Op::Scan { .. } => role = Role::Reduce,
                    _ => {}
                }
                let mut sources = Vec::new();
                op.visit_operands(|v| sources.push(v));
                if let Op::Loop { body, .. } = op {
                    sources.extend(crate::validity::yields(kernel, *body).get(at as usize));
                }
                sources
            }
            _ => Vec::new(),
        };
        left.extend(sources);
    }
    role
}

/// How a value is used: as a product's operand if it becomes one, otherwise as a reduction's if it becomes one.
pub(super) fn used_by(kernel: &Kernel, value: Value) -> Role {
    let mut reached = BTreeSet::from([value]);
    let mut role = Role::Map;
    loop {
        let before = reached.len();
        for (inst, op) in kernel.insts.iter() {
            let mut takes = false;
            op.visit_operands(|v| takes |= reached.contains(&v));
            if !takes {
                continue;
            }
            match op {
                Op::Dot { a, b, .. } if reached.contains(a) || reached.contains(b) => return Role::Dot,
                Op::Reduce { .. } | Op::Scan { .. } => role = Role::Reduce,
                Op::Loop { inits, body, .. } => {
                    let carried = inits.iter().zip(kernel.blocks[*body].params.iter().skip(1));
                    let entered: Vec<Value> = carried.filter(|(i, _)| reached.contains(i)).map(|(_, &p)| p).collect();
                    reached.extend(entered);
                }
                _ => {}
            }
            // What a product adds to, or a reduction gave, is no longer the tile itself.
            if op.is_elementwise()
                || matches!(op, Op::Reshape { .. } | Op::Broadcast { .. } | Op::Transpose(_) | Op::Other { .. })
            {
                reached.extend(kernel.results[inst].iter().copied());
            }
        }
        if reached.len() == before {
            return role;
        }
    }
}
