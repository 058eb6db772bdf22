//! A cursor over the modifiers and operands of an instruction. A word that is left over is an error.

use super::names::{Entity, Names};
use crate::alu::Arithmetic;
use crate::fault::{Fault, Result};
use crate::program::Op;
use crate::syntax::ast::{Instruction, Operand, Space, Type};

/// The state that decoding an instruction may change.
pub(super) struct Context {
    pub(super) names: Names,
    pub(super) arithmetic: Arithmetic,
    /// Bytes of the narrowest access of shared or global memory.
    pub(super) grain: u32,
    /// Operations to execute before the decoded one.
    pub(super) before: Vec<Op>,
}

/// An instruction while it is read.
pub(super) struct Cursor<'a> {
    pub(super) ins: &'a Instruction,
    pub(super) cx: &'a mut Context,
    used: Vec<bool>,
    operand: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(ins: &'a Instruction, cx: &'a mut Context) -> Cursor<'a> {
        Cursor { used: vec![false; ins.modifiers.len()], ins, cx, operand: 0 }
    }

    /// The opcode with its modifiers.
    pub(super) fn text(&self) -> String {
        let mut text = self.ins.opcode.clone();
        for modifier in &self.ins.modifiers {
            text.push('.');
            text.push_str(modifier);
        }
        text
    }

    /// A fault of this instruction.
    pub(super) fn error(&self, message: impl std::fmt::Display) -> Fault {
        Fault::syntax(self.ins.line, format!("`{}`: {message}", self.text()))
    }

    /// The fault that the instruction is not known.
    pub(super) fn unknown(&self) -> Fault {
        Fault::syntax(self.ins.line, format!("unknown instruction `{}`", self.text()))
    }

    /// The first modifier not consumed yet.
    fn first(&self) -> Option<(usize, &'a str)> {
        let at = self.used.iter().position(|&used| !used)?;
        Some((at, self.ins.modifiers.get(at)?.as_str()))
    }

    fn mark(&mut self, at: usize) {
        if let Some(used) = self.used.get_mut(at) {
            *used = true;
        }
    }

    /// Consumes this modifier, wherever it stands.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let at = self.ins.modifiers.iter().zip(&self.used).position(|(m, &used)| !used && m == word);
        if let Some(at) = at {
            self.mark(at);
        }
        at.is_some()
    }

    /// Consumes this modifier, or fails.
    pub(super) fn need(&mut self, word: &str) -> Result<()> {
        if self.take(word) { Ok(()) } else { Err(self.error(format!("modifier `.{word}` is missing"))) }
    }

    /// Consumes these modifiers, or fails.
    pub(super) fn need_all(&mut self, words: &[&str]) -> Result<()> {
        words.iter().try_for_each(|word| self.need(word))
    }

    /// Consumes the first of these that is there.
    pub(super) fn one_of<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        table.iter().find_map(|&(word, value)| self.take(word).then_some(value))
    }

    /// Consumes one of these, or fails.
    pub(super) fn choice<T: Copy>(&mut self, what: &str, table: &[(&str, T)]) -> Result<T> {
        self.one_of(table).ok_or_else(|| self.error(format!("{what} is missing")))
    }

    /// Consumes the next modifier in order.
    pub(super) fn word(&mut self, what: &str) -> Result<&'a str> {
        let (at, word) = self.first().ok_or_else(|| self.error(format!("{what} is missing")))?;
        self.mark(at);
        Ok(word)
    }

    /// Consumes the next modifier in order, which must be this one.
    pub(super) fn next_is(&mut self, word: &str) -> bool {
        let Some((at, found)) = self.first() else { return false };
        if found == word {
            self.mark(at);
        }
        found == word
    }

    /// Consumes the next modifier in order if it is of a kind.
    pub(super) fn word_if(&mut self, kind: impl Fn(&str) -> bool) -> bool {
        let found = self.first().filter(|(_, word)| kind(word));
        if let Some((at, _)) = found {
            self.mark(at);
        }
        found.is_some()
    }

    /// Consumes the first modifier that is a type.
    pub(super) fn ty(&mut self) -> Result<Type> {
        let find = |(m, &used): (&String, &bool)| if used { None } else { Type::from_suffix(m) };
        let mut pairs = self.ins.modifiers.iter().zip(&self.used).map(find);
        let at = pairs.position(|ty| ty.is_some());
        let ty = at.and_then(|at| self.ins.modifiers.get(at)).and_then(|m| Type::from_suffix(m));
        match (at, ty) {
            (Some(at), Some(ty)) => {
                self.mark(at);
                Ok(ty)
            }
            _ => Err(self.error("the type is missing")),
        }
    }

    /// Consumes the first modifier that is a type, which must be one of these.
    pub(super) fn ty_of(&mut self, allowed: &[Type]) -> Result<Type> {
        let ty = self.ty()?;
        if allowed.contains(&ty) { Ok(ty) } else { Err(self.error(format!("type `.{}` is not allowed", ty.suffix()))) }
    }

    /// Consumes the first modifier that is a state space; generic without one.
    pub(super) fn space(&mut self) -> Space {
        let at = self.ins.modifiers.iter().zip(&self.used).position(|(m, &used)| !used && space_of(m).is_some());
        let Some(at) = at else { return Space::Generic };
        self.mark(at);
        self.ins.modifiers.get(at).and_then(|m| space_of(m)).unwrap_or(Space::Generic)
    }

    /// Consumes all modifiers.
    pub(super) fn take_all(&mut self) {
        self.used.fill(true);
    }

    /// The number of operands that are not read yet.
    pub(super) fn remaining(&self) -> usize {
        self.ins.operands.len().saturating_sub(self.operand)
    }

    /// The next operand, without consuming it.
    pub(super) fn peek(&self) -> Option<&'a Operand> {
        self.ins.operands.get(self.operand)
    }

    /// The next operand.
    pub(super) fn next(&mut self) -> Result<&'a Operand> {
        let operand = self.peek().ok_or_else(|| self.error("an operand is missing"))?;
        self.operand += 1;
        Ok(operand)
    }

    /// The meaning of a name.
    pub(super) fn find(&mut self, name: &str) -> Result<Entity> {
        match self.cx.names.find(name) {
            Some(Entity::External) => Err(self.error(format!("`{name}` is defined in another module"))),
            Some(entity) => Ok(entity),
            None => Err(self.error(format!("`{name}` is not declared"))),
        }
    }

    /// Fails if a modifier or an operand is left over.
    pub(super) fn finish(&self) -> Result<()> {
        if let Some((_, word)) = self.first() {
            return Err(self.error(format!("modifier `.{word}` is not supported here")));
        }
        match self.remaining() {
            0 => Ok(()),
            n => Err(self.error(format!("{n} operands too many"))),
        }
    }
}

/// The state space of a modifier.
fn space_of(word: &str) -> Option<Space> {
    Some(match word {
        "global" => Space::Global,
        "shared" | "shared::cta" => Space::Shared,
        "shared::cluster" => Space::SharedCluster,
        "const" => Space::Const,
        "local" => Space::Local,
        "param" | "param::entry" => Space::Param,
        _ => return None,
    })
}
