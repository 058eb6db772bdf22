//! Addresses of variables and parameters.

use super::names::{Entity, Names};
use crate::fault::{Fault, Result};
use crate::program::{ModuleVariable, ParamSlot};
use crate::syntax::ast::{Function, Module, Operand, Space, Statement, Variable};
use std::collections::BTreeSet;

/// Where module-scope `.global` variables begin.
const GLOBAL_BASE: u64 = 1 << 32;
/// The most bytes of each space that a module may declare.
const GLOBAL_LIMIT: u64 = 1 << 28;
const SMALL_LIMIT: u64 = 1 << 20;

/// The next free address of a space.
#[derive(Clone, Copy, Debug)]
struct Bump {
    next: u64,
    end: u64,
    align: u32,
}

impl Bump {
    fn new(base: u64, limit: u64) -> Bump {
        Bump { next: base, end: base.saturating_add(limit), align: 1 }
    }

    fn place(&mut self, v: &Variable) -> Result<(u64, u64)> {
        let large = || Fault::syntax(v.line, format!("`{}` is too large", v.name));
        let bytes = v.count.and_then(|n| n.checked_mul(u64::from(v.ty.bytes()))).ok_or_else(large)?;
        let at = self.next.checked_next_multiple_of(u64::from(v.align.max(1))).ok_or_else(large)?;
        self.next = at.checked_add(bytes).filter(|&next| next <= self.end).ok_or_else(large)?;
        self.align = self.align.max(v.align);
        Ok((at, bytes))
    }
}

/// Allocation of all spaces.
#[derive(Debug)]
pub(super) struct Layout {
    shared: Bump,
    local: Bump,
    /// The start of dynamic shared memory: the aligned end of static variables.
    dynamic: u64,
    shared_align: u32,
    pub(super) globals: Vec<ModuleVariable>,
    pub(super) constants: Vec<ModuleVariable>,
    pub(super) params: Vec<ParamSlot>,
    param: Bump,
}

impl Layout {
    /// Places the variables of the module that an entry can see, and its parameters, and declares their names.
    pub(super) fn new(module: &Module, entry: &Function, names: &mut Names) -> Result<Layout> {
        let body = entry.body.as_deref().unwrap_or_default();
        let mut used = BTreeSet::new();
        let mut inner = Vec::new();
        walk(body, &mut used, &mut inner);
        let seen = |v: &&Variable| v.space == Space::Shared && used.contains(v.name.as_str());
        let mut end = Bump::new(0, SMALL_LIMIT);
        let mut dynamic_align = None;
        for v in module.variables.iter().filter(seen).chain(inner) {
            match v.count {
                Some(_) => drop(end.place(v)?),
                None => dynamic_align = dynamic_align.max(Some(v.align)),
            }
        }
        let shared_align = end.align.max(dynamic_align.unwrap_or(1));
        let rounded = if dynamic_align.is_some() { u64::from(shared_align) } else { 1 };
        let dynamic = end.next.next_multiple_of(rounded);
        let mut layout = Layout {
            shared: Bump::new(0, SMALL_LIMIT),
            local: Bump::new(0, SMALL_LIMIT),
            dynamic,
            shared_align,
            globals: Vec::new(),
            constants: Vec::new(),
            params: Vec::new(),
            param: Bump::new(0, SMALL_LIMIT),
        };
        let mut global = Bump::new(GLOBAL_BASE, GLOBAL_LIMIT);
        let mut constant = Bump::new(0, SMALL_LIMIT);
        for v in &module.variables {
            match v.space {
                Space::Shared if used.contains(v.name.as_str()) => layout.variable(v, names)?,
                Space::Global => module_variable(v, &mut global, names, &mut layout.globals)?,
                Space::Const => module_variable(v, &mut constant, names, &mut layout.constants)?,
                _ => {}
            }
        }
        for p in &entry.params {
            let (at, bytes) = layout.param.place(p)?;
            names.declare(&p.name, Entity::Variable(Space::Param, at), p.line)?;
            let (offset, bytes) = (narrow(at, p)?, narrow(bytes, p)?);
            layout.params.push(ParamSlot { name: p.name.clone(), offset, bytes, align: p.align });
        }
        Ok(layout)
    }

    /// Places a variable of a body, or a shared one of the module.
    pub(super) fn variable(&mut self, v: &Variable, names: &mut Names) -> Result<()> {
        let address = match (v.space, v.count) {
            (Space::Shared, None) => self.dynamic,
            (Space::Shared, Some(_)) => self.shared.place(v)?.0,
            (Space::Local, _) => self.local.place(v)?.0,
            _ => return Err(Fault::syntax(v.line, format!("`{}` may not be declared in a body", v.name))),
        };
        names.declare(&v.name, Entity::Variable(v.space, address), v.line)
    }

    /// Bytes of static shared memory, its alignment, bytes of local memory and of parameters.
    pub(super) fn sizes(&self) -> (u32, u32, u32, u32) {
        let narrow = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
        (narrow(self.dynamic), self.shared_align, narrow(self.local.next), narrow(self.param.next))
    }
}

fn narrow(value: u64, v: &Variable) -> Result<u32> {
    u32::try_from(value).map_err(|_| Fault::syntax(v.line, format!("`{}` is too large", v.name)))
}

fn module_variable(v: &Variable, bump: &mut Bump, names: &mut Names, found: &mut Vec<ModuleVariable>) -> Result<()> {
    if v.external {
        return names.declare(&v.name, Entity::External, v.line);
    }
    let (address, size) = bump.place(v)?;
    let mut bytes = v.init.clone().unwrap_or_default();
    let size = usize::try_from(size).map_err(|_| Fault::syntax(v.line, format!("`{}` is too large", v.name)))?;
    bytes.resize(size, 0);
    found.push(ModuleVariable { name: v.name.clone(), space: v.space, address, bytes });
    names.declare(&v.name, Entity::Variable(v.space, address), v.line)
}

/// Collects the names that operands use, and the shared variables of a body.
fn walk<'a>(body: &'a [Statement], used: &mut BTreeSet<&'a str>, shared: &mut Vec<&'a Variable>) {
    for statement in body {
        match statement {
            Statement::Block(inner) => walk(inner, used, shared),
            Statement::Variable(v) if v.space == Space::Shared => shared.push(v),
            Statement::Instruction(i) => i.operands.iter().for_each(|o| mention(o, used)),
            _ => {}
        }
    }
}

fn mention<'a>(operand: &'a Operand, used: &mut BTreeSet<&'a str>) {
    match operand {
        Operand::Name(name) | Operand::Offset(name, _) => drop(used.insert(name)),
        Operand::Address { base, .. } => mention(base, used),
        Operand::Vector(list) => list.iter().for_each(|o| mention(o, used)),
        Operand::TensorAddress { map, .. } => mention(map, used),
        _ => {}
    }
}
