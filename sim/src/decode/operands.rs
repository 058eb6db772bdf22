//! Operands as rows, constants and addresses, with their widths checked.

use super::cursor::Cursor;
use super::immediate::immediate;
use super::names::Entity;
use crate::fault::Result;
use crate::program::{Addr, Pred, PredOrImm, PredSrc, Reg, Src};
use crate::syntax::ast::{Operand, Space, Type};

/// How the width of a register may differ from that of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Exact,
    /// Also wider registers, as `ld`, `st` and `cvt` allow.
    Wider,
}

/// An operand in the words of a message.
fn show(operand: &Operand) -> String {
    match operand {
        Operand::Name(name) => format!("`{name}`"),
        Operand::Not(name) => format!("`!{name}`"),
        Operand::Int(_) | Operand::F32(_) | Operand::F64(_) => "a constant".to_owned(),
        Operand::Offset(..) => "an address".to_owned(),
        Operand::Vector(_) => "a vector".to_owned(),
        Operand::Pair(..) => "a pair".to_owned(),
        Operand::Sink => "`_`".to_owned(),
        Operand::Address { .. } | Operand::TensorAddress { .. } => "an address".to_owned(),
    }
}

impl<'a> Cursor<'a> {
    /// The register of a name, after a check of its width; returns also its own width in bits.
    pub(super) fn register(&mut self, name: &str, bits: u32, width: Width) -> Result<(Reg, u32)> {
        match self.find(name)? {
            Entity::Reg(reg, found) if found == bits || (width == Width::Wider && found > bits) => Ok((reg, found)),
            Entity::Reg(_, found) => {
                Err(self.error(format!("register `{name}` has {found} bits, and {bits} are wanted")))
            }
            _ => Err(self.error(format!("`{name}` is no register of {bits} bits"))),
        }
    }

    /// An operand that is a register of this many bits.
    pub(super) fn reg_of(&mut self, operand: &Operand, bits: u32) -> Result<Reg> {
        match operand {
            Operand::Name(name) => Ok(self.register(name, bits, Width::Exact)?.0),
            other => Err(self.error(format!("a register is wanted, found {}", show(other)))),
        }
    }

    /// The same, or `_`.
    pub(super) fn reg_or_sink(&mut self, operand: &Operand, bits: u32) -> Result<Option<Reg>> {
        if *operand == Operand::Sink { Ok(None) } else { self.reg_of(operand, bits).map(Some) }
    }

    /// The next operand, a register of this many bits.
    pub(super) fn dst(&mut self, bits: u32) -> Result<Reg> {
        let operand = self.next()?;
        self.reg_of(operand, bits)
    }

    /// An operand as a source of this type.
    pub(super) fn src_of(&mut self, operand: &Operand, ty: Type, width: Width) -> Result<Src> {
        match operand {
            Operand::Name(name) if name == "WARP_SZ" => Ok(Src::Imm(32)),
            Operand::Name(name) => match self.find(name)? {
                Entity::Variable(_, address) if address_type(ty) => Ok(Src::Imm(address)),
                _ => Ok(Src::Reg(self.register(name, ty.bits(), width)?.0)),
            },
            Operand::Offset(name, offset) if address_type(ty) => match self.find(name)? {
                Entity::Variable(_, address) => Ok(Src::Imm(address.wrapping_add_signed(*offset))),
                _ => Err(self.error(format!("`{name}` is no variable"))),
            },
            constant @ (Operand::Int(_) | Operand::F32(_) | Operand::F64(_)) => {
                let bits = immediate(constant, ty);
                bits.map(Src::Imm).ok_or_else(|| self.error(format!("the constant does not fit .{}", ty.suffix())))
            }
            other => Err(self.error(format!("a value is wanted, found {}", show(other)))),
        }
    }

    /// The next operand as a source of this type.
    pub(super) fn src(&mut self, ty: Type) -> Result<Src> {
        let operand = self.next()?;
        self.src_of(operand, ty, Width::Exact)
    }

    /// The next operand, a constant of at most 32 bits.
    pub(super) fn constant(&mut self) -> Result<u32> {
        match self.next()? {
            Operand::Int(value) => {
                u32::try_from(*value).map_err(|_| self.error(format!("the constant {value} is too large")))
            }
            other => Err(self.error(format!("an integer constant is wanted, found {}", show(other)))),
        }
    }

    /// An operand that is a predicate to be written.
    pub(super) fn pred_of(&mut self, operand: &Operand) -> Result<Pred> {
        match operand {
            Operand::Name(name) => match self.find(name)? {
                Entity::Pred(pred) => Ok(pred),
                _ => Err(self.error(format!("`{name}` is no predicate"))),
            },
            other => Err(self.error(format!("a predicate is wanted, found {}", show(other)))),
        }
    }

    /// An operand that is a predicate, or `_`.
    pub(super) fn pred_or_sink(&mut self, operand: &Operand) -> Result<Option<Pred>> {
        if *operand == Operand::Sink { Ok(None) } else { self.pred_of(operand).map(Some) }
    }

    /// An operand that is a predicate to read, `!` allowed.
    pub(super) fn pred_src_of(&mut self, operand: &Operand) -> Result<PredSrc> {
        match operand {
            Operand::Not(name) => Ok(PredSrc { pred: self.pred_of(&Operand::Name(name.clone()))?, negated: true }),
            other => Ok(PredSrc { pred: self.pred_of(other)?, negated: false }),
        }
    }

    /// The next operand, a predicate to read.
    pub(super) fn pred_src(&mut self) -> Result<PredSrc> {
        let operand = self.next()?;
        self.pred_src_of(operand)
    }

    /// The next operand, a predicate to read or a constant truth value.
    pub(super) fn pred_or_imm(&mut self) -> Result<PredOrImm> {
        match self.next()? {
            Operand::Int(value) => Ok(PredOrImm::Imm(*value != 0)),
            other => Ok(PredOrImm::Pred(self.pred_src_of(other)?)),
        }
    }

    /// True if the next operand is a predicate.
    pub(super) fn is_pred(&mut self) -> bool {
        match self.peek() {
            Some(Operand::Not(_)) => true,
            Some(Operand::Name(name)) => matches!(self.cx.names.find(name), Some(Entity::Pred(_))),
            _ => false,
        }
    }

    /// The next operand as `a|b`, or as `a` alone.
    pub(super) fn pair(&mut self) -> Result<(&'a Operand, Option<&'a Operand>)> {
        Ok(match self.next()? {
            Operand::Pair(a, b) => (a, Some(b)),
            other => (other, None),
        })
    }

    /// The elements of a vector. Any other operand is its own only element.
    pub(super) fn elements(operand: &'a Operand) -> &'a [Operand] {
        match operand {
            Operand::Vector(list) => list,
            other => std::slice::from_ref(other),
        }
    }

    /// The next operand: this many registers of this many bits in braces. Braces may be absent around one.
    pub(super) fn dst_list(&mut self, count: usize, bits: u32) -> Result<Vec<Reg>> {
        let list = Self::elements(self.next()?);
        self.counted(list, count)?;
        list.iter().map(|operand| self.reg_of(operand, bits)).collect()
    }

    /// The next operand: this many values in braces. Braces may be absent around one.
    pub(super) fn src_list(&mut self, count: usize, ty: Type) -> Result<Vec<Src>> {
        let list = Self::elements(self.next()?);
        self.counted(list, count)?;
        list.iter().map(|operand| self.src_of(operand, ty, Width::Exact)).collect()
    }

    fn counted(&self, list: &[Operand], count: usize) -> Result<()> {
        match list.len() {
            n if n == count => Ok(()),
            n => Err(self.error(format!("a vector of {count} is wanted, found {n}"))),
        }
    }

    /// The next operand, an address in a space.
    pub(super) fn addr(&mut self, space: Space) -> Result<Addr> {
        match self.next()? {
            Operand::Address { base, offset } => {
                let base = self.base(base, space)?;
                Ok(Addr { base, offset: *offset })
            }
            other => Err(self.error(format!("an address is wanted, found {}", show(other)))),
        }
    }

    /// The next operand, a tensor map and its coordinates.
    pub(super) fn tensor(&mut self, rank: usize) -> Result<(Addr, Vec<Src>)> {
        match self.next()? {
            Operand::TensorAddress { map, coordinates } => {
                let base = self.base(map, Space::Generic)?;
                self.counted(coordinates, rank)?;
                let list = coordinates.iter().map(|c| self.src_of(c, Type::S32, Width::Exact));
                Ok((Addr { base, offset: 0 }, list.collect::<Result<_>>()?))
            }
            other => Err(self.error(format!("a tensor map is wanted, found {}", show(other)))),
        }
    }

    fn base(&mut self, base: &Operand, space: Space) -> Result<Src> {
        let name = match base {
            Operand::Int(value) => return Ok(Src::Imm(*value)),
            Operand::Name(name) => name,
            other => return Err(self.error(format!("an address is wanted, found {}", show(other)))),
        };
        // Addresses in these windows fit 32 bits, and registers of either width may hold them.
        let narrow = !matches!(space, Space::Generic | Space::Global);
        match self.find(name)? {
            Entity::Reg(reg, 64) => Ok(Src::Reg(reg)),
            Entity::Reg(reg, 32) if narrow => Ok(Src::Reg(reg)),
            Entity::Reg(_, bits) => Err(self.error(format!("register `{name}` of {bits} bits is no address here"))),
            Entity::Variable(found, address) if reaches(space, found) => Ok(Src::Imm(address)),
            Entity::Variable(..) => Err(self.error(format!("`{name}` is a variable of another state space"))),
            _ => Err(self.error(format!("`{name}` is no address"))),
        }
    }
}

fn address_type(ty: Type) -> bool {
    !ty.is_float() && matches!(ty.bits(), 32 | 64)
}

/// True if an access through a space may name a variable of another one: global addresses are generic ones.
fn reaches(space: Space, variable: Space) -> bool {
    space == variable
        || matches!((space, variable), (Space::Generic, Space::Global) | (Space::SharedCluster, Space::Shared))
}
