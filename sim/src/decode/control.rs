//! Bodies: statements in order, branches to their labels.

use super::cursor::{Context, Cursor};
use super::layout::Layout;
use super::names::Names;
use super::targets::InstructionSet;
use super::{family, flow};
use crate::alu::Arithmetic;
use crate::fault::{Fault, Result};
use crate::program::{Instr, Op, PredSrc, Program, SourceLoc};
use crate::syntax::ast::{Function, Instruction, Module, Operand, Space, Statement, Type};

/// A jump whose targets are not known yet.
struct Jump {
    at: usize,
    scope: usize,
    name: String,
    line: u32,
}

/// A body while it is decoded.
struct Body {
    target: InstructionSet,
    cx: Context,
    layout: Layout,
    code: Vec<Instr>,
    locs: Vec<Option<SourceLoc>>,
    loc: Option<SourceLoc>,
    jumps: Vec<Jump>,
}

/// Decodes an entry.
pub(super) fn program(module: &Module, entry: &Function, arithmetic: Arithmetic) -> Result<Program> {
    let target = InstructionSet::new(module)?;
    target.check_entry(entry)?;
    let mut names = Names::new();
    let layout = Layout::new(module, entry, &mut names)?;
    let cx = Context { names, arithmetic, grain: 4, before: Vec::new() };
    let mut body = Body { target, cx, layout, code: Vec::new(), locs: Vec::new(), loc: None, jumps: Vec::new() };
    body.block(entry.body.as_deref().unwrap_or_default())?;
    // Running off the end of a body is a return.
    let guard = None;
    body.code.push(Instr { guard, op: Op::Exit, line: body.code.last().map_or(entry.line, |i| i.line) });
    body.locs.push(body.loc);
    body.link()?;
    let (reg_bits, preds) = body.cx.names.rows();
    let (shared_bytes, shared_align, local_bytes, param_bytes) = body.layout.sizes();
    let triple = |name: &str| {
        let numbers = &entry.directives.iter().find(|d| d.0 == name)?.1;
        let axis = |i: usize| numbers.get(i).copied().unwrap_or(1);
        (!numbers.is_empty()).then(|| [axis(0), axis(1), axis(2)])
    };
    Ok(Program {
        name: entry.name.clone(),
        target: module.target.clone(),
        arithmetic,
        params: body.layout.params,
        param_bytes,
        regs: reg_bits.len() as u32,
        reg_bits,
        preds,
        reconverge: flow::reconverge(&body.code),
        code: body.code,
        locs: body.locs,
        files: module.files.clone(),
        shared_bytes,
        shared_align,
        local_bytes,
        globals: body.layout.globals,
        constants: body.layout.constants,
        required_threads: triple("reqntid"),
        max_threads: triple("maxntid"),
        cluster: triple("reqnctapercluster"),
        grain: u8::try_from(body.cx.grain).unwrap_or(4),
    })
}

impl Body {
    fn block(&mut self, statements: &[Statement]) -> Result<()> {
        for statement in statements {
            match statement {
                Statement::Label { name, line } => {
                    let at = u32::try_from(self.code.len()).unwrap_or(u32::MAX);
                    self.cx.names.label(name, at, *line)?;
                }
                Statement::Registers { ty, name, count, line } => {
                    self.cx.names.registers(*ty, name, *count, *line)?;
                }
                // Parameters of calls, which are refused where they are made.
                Statement::Variable(v) if v.space == Space::Param => {}
                Statement::Variable(v) => self.layout.variable(v, &mut self.cx.names)?,
                Statement::Instruction(ins) => self.instruction(ins)?,
                Statement::Loc { file, line, column } => {
                    self.loc = Some(SourceLoc { file: *file, line: *line, column: *column });
                }
                Statement::Block(inner) => {
                    let outer = self.cx.names.scope();
                    self.cx.names.open();
                    self.block(inner)?;
                    self.cx.names.back_to(outer);
                }
                Statement::BranchTargets { name, targets, line } => self.cx.names.table(name, targets, *line)?,
            }
        }
        Ok(())
    }

    fn instruction(&mut self, ins: &Instruction) -> Result<()> {
        let mut cursor = Cursor::new(ins, &mut self.cx);
        self.target.check(ins, &cursor)?;
        let guard = match &ins.guard {
            None => None,
            Some((name, negated)) => {
                let pred = cursor.pred_of(&Operand::Name(name.clone()))?;
                Some(PredSrc { pred, negated: *negated })
            }
        };
        let op = match ins.opcode.as_str() {
            "bra" | "brx" => {
                let (op, name) = jump(&mut cursor)?;
                let (at, scope) = (self.code.len(), cursor.cx.names.scope());
                self.jumps.push(Jump { at, scope, name, line: ins.line });
                op
            }
            opcode => family(opcode, &ins.modifiers)(&mut cursor)?,
        };
        cursor.finish()?;
        for op in std::mem::take(&mut self.cx.before).into_iter().chain([op]) {
            self.code.push(Instr { guard, op, line: ins.line });
            self.locs.push(self.loc);
        }
        Ok(())
    }

    /// Gives all jumps their targets.
    fn link(&mut self) -> Result<()> {
        for jump in &self.jumps {
            let Some(instr) = self.code.get_mut(jump.at) else { continue };
            match &mut instr.op {
                Op::Branch { target, .. } => *target = self.cx.names.target(jump.scope, &jump.name, jump.line)?,
                Op::BranchIndex { targets, .. } => {
                    *targets = self.cx.names.targets(jump.scope, &jump.name, jump.line)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// `bra`, `brx.idx`, and the name of the label or of the list of labels.
fn jump(c: &mut Cursor<'_>) -> Result<(Op, String)> {
    let indexed = c.ins.opcode == "brx";
    if indexed {
        c.need("idx")?;
    }
    let uniform = c.take("uni");
    let op = if indexed {
        Op::BranchIndex { index: c.src(Type::U32)?, targets: Vec::new(), uniform }
    } else {
        Op::Branch { target: 0, uniform }
    };
    match c.next()? {
        Operand::Name(name) => Ok((op, name.clone())),
        _ => Err(c.error("a label is wanted")),
    }
}

/// `ret`, `exit`.
pub(super) fn exit(c: &mut Cursor<'_>) -> Result<Op> {
    if c.ins.opcode == "ret" {
        c.take("uni");
    }
    Ok(Op::Exit)
}

/// `trap`, `brkpt`.
pub(super) fn trap(_: &mut Cursor<'_>) -> Result<Op> {
    Ok(Op::Trap)
}

/// `call` is refused.
pub(super) fn call(c: &mut Cursor<'_>) -> Result<Op> {
    Err(Fault::syntax(c.ins.line, "`call` is not supported: functions must be inlined"))
}

/// `wmma` is refused.
pub(super) fn wmma(c: &mut Cursor<'_>) -> Result<Op> {
    Err(c.error("`wmma` is not supported: its layouts are the hardware's own; `mma.sync` is"))
}
