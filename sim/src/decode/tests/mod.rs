//! Tests of the decoder: for each family, a table of instructions and the operations that they become.

mod arith;
mod errors;
mod families;
mod flow;
mod hostile;
mod layout;
mod rows;
mod targets;

use crate::alu::Arithmetic;
use crate::fault::Result;
use crate::program::{Op, Program};
use crate::syntax::parse;

const HEAD: &str = ".version 9.0\n.target sm_90a\n.address_size 64\n";
const DECLARED: &str = ".reg .pred p<8>; .reg .b16 h<8>; .reg .b32 r<140>; .reg .b64 d<16>;";

/// Compiles an entry of this body, whose first line is line 5 of the text.
fn compile(body: &str) -> Result<Program> {
    compile_module("", body)
}

fn compile_module(variables: &str, body: &str) -> Result<Program> {
    compile_with(HEAD, variables, body)
}

/// True of what sm_90a lacks and later targets have.
fn is_later(instruction: &str) -> bool {
    [".v8.", ".f32x2 ", ".rn.f32.bf16 "].iter().any(|word| instruction.contains(word))
}

fn compile_with(head: &str, variables: &str, body: &str) -> Result<Program> {
    let text = format!(
        "{head}{variables}.visible .entry k(.param .u64 a, .param .align 64 .b8 b[128]) {{ {DECLARED}\n{body}\n}}"
    );
    super::decode(&parse(&text)?, None, Arithmetic::Ieee)
}

/// The operation of one instruction: the last one that it becomes.
fn op(instruction: &str) -> Op {
    let head = if is_later(instruction) { HEAD.replace("sm_90a", "sm_100a") } else { HEAD.to_owned() };
    let program = compile_with(&head, "", instruction).unwrap_or_else(|e| panic!("{e}"));
    program.code[program.code.len() - 2].op.clone()
}

/// An operation as words, with abbreviated rows and addresses: `r0`, `p0`, `[r0+4]`.
fn short(op: &Op) -> String {
    let mut text = format!("{op:?}");
    for row in 0..140 {
        text = text.replace(&format!("Reg(Reg({row}))"), &format!("r{row}"));
        text = text
            .replace(&format!("Pred({row})"), &format!("p{row}"))
            .replace(&format!("Reg({row})"), &format!("r{row}"));
    }
    while let Some((before, rest)) = text.split_once("Addr { base: ") {
        let (base, rest) = rest.split_once(", offset: ").unwrap();
        let (offset, rest) = rest.split_once(" }").unwrap();
        text = format!("{before}[{base}+{offset}]{rest}");
    }
    text
}

/// The message of the fault in an entry of this body.
fn error(body: &str) -> String {
    compile(body).map(|p| format!("{:?}", p.code)).unwrap_err().message
}
