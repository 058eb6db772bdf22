//! Names of an entry: registers, variables and labels, by scope.

use crate::fault::{Fault, Result};
use crate::program::{Pred, Reg};
use crate::syntax::ast::{Space, Type};
use std::collections::BTreeMap;

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entity {
    /// A register and its width in bits.
    Reg(Reg, u32),
    Pred(Pred),
    /// An address in a space.
    Variable(Space, u64),
    /// A variable of another module.
    External,
}

/// A `{ .. }`.
#[derive(Debug, Default)]
struct NameScope {
    parent: Option<usize>,
    names: BTreeMap<String, Entity>,
    /// `%r<10>`: prefix, count, type.
    ranges: Vec<(String, u32, Type)>,
    labels: BTreeMap<String, u32>,
    tables: BTreeMap<String, Vec<String>>,
}

/// All scopes of an entry, and the current one.
#[derive(Debug)]
pub(super) struct Names {
    scopes: Vec<NameScope>,
    current: usize,
    /// Bits of each row of the register file.
    regs: Vec<u8>,
    preds: u32,
}

impl Names {
    pub(super) fn new() -> Names {
        Names { scopes: vec![NameScope::default()], current: 0, regs: Vec::new(), preds: 0 }
    }

    /// Bits of the used rows of the register file, and the number of rows of the predicate file.
    pub(super) fn rows(&self) -> (Vec<u8>, u32) {
        (self.regs.clone(), self.preds)
    }

    /// The current scope.
    pub(super) fn scope(&self) -> usize {
        self.current
    }

    /// Opens a scope inside the current one.
    pub(super) fn open(&mut self) {
        self.scopes.push(NameScope { parent: Some(self.current), ..NameScope::default() });
        self.current = self.scopes.len() - 1;
    }

    /// Returns to an earlier scope.
    pub(super) fn back_to(&mut self, scope: usize) {
        self.current = scope;
    }

    fn here(&mut self) -> &mut NameScope {
        &mut self.scopes[self.current]
    }

    fn entity(&mut self, ty: Type) -> Entity {
        if ty == Type::Pred { Entity::Pred(self.temporary_pred()) } else { Entity::Reg(self.row(ty.bits()), ty.bits()) }
    }

    fn row(&mut self, bits: u32) -> Reg {
        let row = self.regs.len();
        self.regs.push(bits as u8);
        Reg(row as u32)
    }

    /// A row without a name.
    pub(super) fn temporary(&mut self) -> Reg {
        self.row(64)
    }

    /// A predicate without a name.
    pub(super) fn temporary_pred(&mut self) -> Pred {
        let row = self.preds;
        self.preds = self.preds.saturating_add(1);
        Pred(row)
    }

    /// Declares one register, or a range of them.
    pub(super) fn registers(&mut self, ty: Type, name: &str, count: Option<u32>, line: u32) -> Result<()> {
        if ty.bits() > 64 {
            return Err(Fault::syntax(line, format!("registers of .{} are not supported", ty.suffix())));
        }
        match count {
            Some(count) => {
                let twice = self.here().ranges.iter().any(|range| range.0 == name);
                if twice {
                    return Err(Fault::syntax(line, format!("`{name}` is declared twice")));
                }
                self.here().ranges.push((name.to_owned(), count, ty));
                Ok(())
            }
            None => {
                let entity = self.entity(ty);
                self.declare(name, entity, line)
            }
        }
    }

    /// Gives a name a meaning in the current scope.
    pub(super) fn declare(&mut self, name: &str, entity: Entity, line: u32) -> Result<()> {
        match self.here().names.insert(name.to_owned(), entity) {
            None => Ok(()),
            Some(_) => Err(Fault::syntax(line, format!("`{name}` is declared twice"))),
        }
    }

    /// The meaning of a name here. Rows of a range are allocated when they are first named.
    pub(super) fn find(&mut self, name: &str) -> Option<Entity> {
        let mut at = Some(self.current);
        while let Some(scope) = at.and_then(|i| self.scopes.get(i)) {
            if let Some(&entity) = scope.names.get(name) {
                return Some(entity);
            }
            if let Some(ty) = scope.ranges.iter().find_map(|range| in_range(range, name)) {
                let entity = self.entity(ty);
                if let Some(scope) = at.and_then(|i| self.scopes.get_mut(i)) {
                    scope.names.insert(name.to_owned(), entity);
                }
                return Some(entity);
            }
            at = scope.parent;
        }
        None
    }

    /// A label of the current scope.
    pub(super) fn label(&mut self, name: &str, at: u32, line: u32) -> Result<()> {
        match self.here().labels.insert(name.to_owned(), at) {
            None => Ok(()),
            Some(_) => Err(Fault::syntax(line, format!("label `{name}` is declared twice"))),
        }
    }

    /// A list of branch targets of the current scope.
    pub(super) fn table(&mut self, name: &str, targets: &[String], line: u32) -> Result<()> {
        match self.here().tables.insert(name.to_owned(), targets.to_vec()) {
            None => Ok(()),
            Some(_) => Err(Fault::syntax(line, format!("`{name}` is declared twice"))),
        }
    }

    /// The instruction that a label marks, as seen from a scope.
    pub(super) fn target(&self, scope: usize, name: &str, line: u32) -> Result<u32> {
        self.outward(scope, |s| s.labels.get(name))
            .copied()
            .ok_or_else(|| Fault::syntax(line, format!("there is no label `{name}` here")))
    }

    /// The targets of a list, as seen from a scope.
    pub(super) fn targets(&self, scope: usize, name: &str, line: u32) -> Result<Vec<u32>> {
        let list = self.outward(scope, |s| s.tables.get(name));
        let list = list.ok_or_else(|| Fault::syntax(line, format!("there are no branch targets `{name}` here")))?;
        list.iter().map(|label| self.target(scope, label, line)).collect()
    }

    fn outward<'n, T>(&'n self, scope: usize, get: impl Fn(&'n NameScope) -> Option<&'n T>) -> Option<&'n T> {
        let mut at = self.scopes.get(scope);
        while let Some(scope) = at {
            if let Some(found) = get(scope) {
                return Some(found);
            }
            at = scope.parent.and_then(|i| self.scopes.get(i));
        }
        None
    }
}

fn in_range((prefix, count, ty): &(String, u32, Type), name: &str) -> Option<Type> {
    let digits = name.strip_prefix(prefix.as_str())?;
    let canonical = digits == "0" || !digits.starts_with('0');
    let plain = canonical && digits.bytes().all(|b| b.is_ascii_digit());
    let index: u32 = if plain { digits.parse().ok()? } else { return None };
    (index < *count).then_some(*ty)
}
