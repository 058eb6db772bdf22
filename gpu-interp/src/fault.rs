//! A fault of a kernel during execution: the instruction, its location, and the rule that it breaks.

use atlas_codegen::gpu::{Block, Inst, Kernel, Op};
use atlas_dsl::ir::Loc;
use std::collections::BTreeMap;
use std::fmt;

/// A fault of an execution.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What is wrong.
    message: String,
    /// The instruction in the text form, and its location in the user's source.
    at: Option<(String, Loc)>,
    /// The role that executed it.
    role: String,
    /// The coordinates of the program, or the number of the CTA if the kernel computes them.
    program: Vec<i64>,
}

impl Fault {
    /// A fault of an instruction during some program.
    pub(crate) fn at(k: &Kernel, inst: Inst, role: &str, program: &[i64], message: String) -> Fault {
        let text = texts(k).remove(&inst).unwrap_or_else(|| format!("{:?}", k.insts[inst]));
        Fault { message, at: Some((text, k.locs[inst])), role: role.to_owned(), program: program.to_vec() }
    }
}

impl From<String> for Fault {
    /// A fault that belongs to no instruction.
    fn from(message: String) -> Fault {
        Fault { message, at: None, role: String::new(), program: Vec::new() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((text, loc)) = &self.at else { return f.write_str(&self.message) };
        let Fault { role, program, message, .. } = self;
        write!(f, "`{text}` ({}:{}, role `{role}`, program {program:?}): {message}", loc.line, loc.column)
    }
}

/// The line of each instruction in the text form.
fn texts(k: &Kernel) -> BTreeMap<Inst, String> {
    let text = k.to_string();
    let mut lines = text.lines().skip_while(|l| !l.starts_with("role ")).map(str::trim);
    let mut found = BTreeMap::new();
    for role in k.roles.values() {
        insts(k, role.body, &mut |inst| {
            let line = lines.find(|l| !l.starts_with('}') && !l.starts_with("role ") && !l.is_empty());
            found.extend(line.map(|line| (inst, line.to_owned())));
        });
    }
    found
}

/// Calls `f` on each instruction in the order of the text.
fn insts(k: &Kernel, block: Block, f: &mut impl FnMut(Inst)) {
    for &inst in &k.blocks[block].insts {
        f(inst);
        if let Op::Loop { body, .. } | Op::Programs(body) | Op::If(_, body, _) | Op::Once(body) = k.insts[inst] {
            insts(k, body, f);
        }
    }
}
