//! A CTA while it runs: its memory, its rings, and the values of its roles.

use crate::evaluate::Launch;
use crate::memory::{Shared, Tensor};
use crate::rings::{Groups, Rings, Token};
use crate::tile::Tile;
use atlas_codegen::gpu::{Block, Inst, Kernel, Role, RoleData, SharedRef, Value};
use std::rc::Rc;

/// When the data of a copy arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// When the copy is issued. A product in flight also reads its operands then.
    AtOnce,
    /// When the copy is waited for.
    AtTheWait,
}

/// Which of the roles that can continue runs next, and of the CTAs that share a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each in turn.
    Fair,
    /// The first one, as long as it can.
    FirstRole,
    /// The last one, as long as it can.
    LastRole,
}

/// How a kernel is executed.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// When copies arrive.
    pub landing: Landing,
    /// Which role runs next.
    pub order: Order,
    /// True if a `wait` of a ring also waits for its copies, as it has to before `insert_barriers`.
    pub waits_for_copies: bool,
}

/// An operand of a product that may still be running.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    Shared(SharedRef, Option<Token>),
    Tile(Rc<Tile>),
}

/// A product that was started.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    /// The number of products that its role had started before.
    pub(crate) number: u64,
    pub(crate) inst: Inst,
    pub(crate) sides: [Side; 2],
    pub(crate) acc: Option<Rc<Tile>>,
    /// The sum, if the operands were read when it was started.
    pub(crate) done: Option<Rc<Tile>>,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    Tile(Rc<Tile>),
    /// A result that must not be read before `wait.mma`.
    Flight(Rc<Flight>),
    Token(Token),
}

/// The owner of a block.
pub(crate) enum Kind {
    /// The body of a role.
    Once,
    /// The body of a branch, which may yield its results.
    Branch(Inst),
    Loop {
        inst: Inst,
        index: i64,
        hi: i64,
    },
    /// The programs of a CTA, and the number of those that are done.
    Programs(usize),
}

/// A block that a role executes, and the next instruction there.
pub(crate) struct Frame {
    pub(crate) block: Block,
    pub(crate) at: usize,
    pub(crate) kind: Kind,
}

/// A role of a CTA.
pub(crate) struct Running {
    pub(crate) role: Role,
    pub(crate) frames: Vec<Frame>,
    values: Vec<Option<Held>>,
    pub(crate) groups: Groups,
    /// Stores by the copy engine.
    pub(crate) stores: Groups,
    /// The products that it started.
    pub(crate) products: u64,
    /// The number of instructions that it executed.
    pub(crate) steps: u32,
}

/// The number of a CTA among those that share its program, and the tiles that it leaves.
pub(crate) type Partial = (usize, Vec<Rc<Tile>>);

/// A CTA's share of a launch.
pub(crate) struct Share {
    /// Its number.
    pub(crate) number: usize,
    /// CTAs of the launch.
    pub(crate) count: usize,
    /// The coordinates of its programs, if the kernel does not compute them.
    pub(crate) programs: Vec<Vec<i64>>,
    /// What the CTAs before it that share its program have left to be added.
    pub(crate) partials: Vec<Partial>,
    /// What it waits to have added over its cluster.
    pub(crate) part: Option<Rc<Tile>>,
    /// The sum over its cluster, once all have come to it.
    pub(crate) sum: Option<Rc<Tile>>,
}

/// A CTA while it runs.
pub(crate) struct Cta<'a> {
    pub(crate) k: &'a Kernel,
    pub(crate) launch: &'a Launch,
    pub(crate) manner: Manner,
    /// All tensors, while it runs.
    pub(crate) tensors: Vec<Option<Tensor>>,
    pub(crate) shared: Shared<'a>,
    pub(crate) rings: Rings,
    pub(crate) share: Share,
    pub(crate) roles: Vec<Running>,
}

impl Order {
    /// The number of the CTA that runs at a place, where `splits` CTAs share each program. None waits for another one, so they may
    /// arrive in any order.
    pub(crate) fn cta_at(self, place: usize, splits: usize) -> usize {
        let (program, at) = (place / splits, place % splits);
        let number = match self {
            // Another one is the last of each program.
            Order::Fair => (program + 1 + at) % splits,
            Order::FirstRole => at,
            Order::LastRole => splits - 1 - at,
        };
        program * splits + number
    }
}

impl<'a> Cta<'a> {
    /// A CTA before it runs, once for each of its programs.
    pub(crate) fn new(k: &'a Kernel, launch: &'a Launch, manner: Manner, share: Share) -> Cta<'a> {
        let role = |(role, data): (Role, &RoleData)| Running {
            role,
            frames: vec![Frame { block: data.body, at: 0, kind: Kind::Once }],
            values: vec![None; k.values.len()],
            groups: Groups::default(),
            stores: Groups::default(),
            products: 0,
            steps: 0,
        };
        let roles = k.roles.iter().map(role).collect();
        let (shared, rings) = (Shared::new(k), Rings::new(k));
        let mut cta = Cta { k, launch, manner, tensors: Vec::new(), shared, rings, share, roles };
        for r in 0..cta.roles.len() {
            for (i, &coord) in k.coords.iter().enumerate() {
                let at = cta.share.programs.first().map_or(0, |p| p[i]);
                cta.set(r, coord, Held::Tile(Rc::new(Tile::int(at))));
            }
        }
        cta
    }

    /// Checks that a tile has the type of its value.
    pub(crate) fn check_type(&self, v: Value, held: &Held) -> Result<(), String> {
        let ty = &self.k.values[v].ty;
        match (ty.tile(), held) {
            (Some((dtype, layout)), Held::Tile(tile)) if dtype != tile.dtype || layout.shape != tile.shape => {
                Err(format!("makes {}{:?} of a value of {dtype}{layout}", tile.dtype, tile.shape))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn set(&mut self, r: usize, v: Value, held: Held) {
        self.roles[r].values[v.as_u32() as usize] = Some(held);
    }

    pub(crate) fn held(&self, r: usize, v: Value) -> Result<&Held, String> {
        let held = self.roles[r].values.get(v.as_u32() as usize).and_then(Option::as_ref);
        held.ok_or_else(|| format!("{v} is used before it is made"))
    }

    pub(crate) fn tile(&self, r: usize, v: Value) -> Result<Rc<Tile>, String> {
        match self.held(r, v)? {
            Held::Tile(tile) => Ok(Rc::clone(tile)),
            Held::Flight(_) => Err(format!("{v} is in flight, and nothing waited for it")),
            Held::Token(_) => Err(format!("{v} is a token")),
        }
    }

    pub(crate) fn token(&self, r: usize, v: Value) -> Result<Token, String> {
        match self.held(r, v)? {
            Held::Token(token) => Ok(*token),
            _ => Err(format!("{v} is no token")),
        }
    }

    /// The value of an integer scalar.
    pub(crate) fn int(&self, r: usize, v: Value) -> Result<i64, String> {
        let tile = self.tile(r, v)?;
        match tile.data[..] {
            [x] => Ok(x as i64),
            _ => Err(format!("{v} is {:?}, not a scalar", tile.shape)),
        }
    }
}
