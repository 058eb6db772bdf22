//! From a syntax tree to a program: resolves names, and turns opcodes into operations. Anything unknown is an error and is
//! never skipped.

mod arith;
mod bulk;
mod control;
mod cursor;
mod flow;
mod immediate;
mod layout;
mod matrix;
mod mbarrier;
mod memory;
mod names;
mod operands;
mod predicate;
pub(crate) mod registers;
mod rows;
mod special;
mod sync;
mod targets;
#[cfg(test)]
mod tests;
mod video;
mod warp;
mod wgmma;

use crate::alu::Arithmetic;
use crate::fault::{Fault, FaultKind, Result};
use crate::program::{Op, Program};
use crate::syntax::ast::{Function, Module};
use cursor::Cursor;

/// Decodes an entry of a module: the named one, or the only one. Registers whose values are never needed at once share a row.
pub fn compile(module: &Module, entry: Option<&str>, arithmetic: Arithmetic) -> Result<Program> {
    decode(module, entry, arithmetic).map(rows::share)
}

/// The same, with a row for each register.
fn decode(module: &Module, entry: Option<&str>, arithmetic: Arithmetic) -> Result<Program> {
    if module.address_size != 64 {
        return Err(Fault::new(
            FaultKind::Syntax,
            format!("addresses of {} bits are not supported", module.address_size),
        ));
    }
    control::program(module, select(module, entry)?, arithmetic)
}

fn select<'m>(module: &'m Module, entry: Option<&str>) -> Result<&'m Function> {
    let mut entries = module.functions.iter().filter(|f| f.entry && f.body.is_some());
    match entry {
        Some(name) => entries
            .find(|f| f.name == name)
            .ok_or_else(|| Fault::new(FaultKind::Syntax, format!("the module has no entry `{name}`"))),
        None => match (entries.next(), entries.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(Fault::new(FaultKind::Syntax, "the module has no entry")),
            _ => Err(Fault::new(FaultKind::Syntax, "the module has several entries; name one")),
        },
    }
}

/// Decodes one family of instructions.
type FamilyDecoder = fn(&mut Cursor<'_>) -> Result<Op>;

/// Families by their opcode.
const FAMILIES: &[(&str, FamilyDecoder)] = &[
    ("mov", arith::mov),
    ("addc", arith::carry),
    ("subc", arith::carry),
    ("madc", arith::carry),
    ("setp", predicate::setp),
    ("set", predicate::set),
    ("selp", predicate::selp),
    ("testp", predicate::testp),
    ("ld", memory::load),
    ("ldu", memory::load),
    ("st", memory::store),
    ("atom", memory::atom),
    ("red", memory::atom),
    ("prefetch", memory::prefetch),
    ("prefetchu", memory::prefetch),
    ("applypriority", memory::prefetch),
    ("discard", memory::prefetch),
    ("createpolicy", memory::createpolicy),
    ("isspacep", memory::isspacep),
    ("cvta", memory::cvta),
    ("mapa", memory::mapa),
    ("shfl", warp::shfl),
    ("vote", warp::vote),
    ("match", warp::matching),
    ("redux", warp::redux),
    ("elect", warp::elect),
    ("activemask", warp::activemask),
    ("bar", sync::bar),
    ("barrier", sync::bar),
    ("membar", sync::membar),
    ("fence", sync::fence),
    ("nanosleep", sync::hint),
    ("griddepcontrol", sync::hint),
    ("pmevent", sync::hint),
    ("setmaxnreg", sync::setmaxnreg),
    ("mbarrier", mbarrier::mbarrier),
    ("mma", matrix::mma),
    ("ldmatrix", matrix::ldmatrix),
    ("stmatrix", matrix::stmatrix),
    ("wgmma", wgmma::wgmma),
    ("ret", control::exit),
    ("exit", control::exit),
    ("trap", control::trap),
    ("brkpt", control::trap),
    ("call", control::call),
    ("wmma", control::wmma),
    ("vabsdiff4", video::vabsdiff4),
];

/// The family of an instruction.
fn family(opcode: &str, modifiers: &[String]) -> FamilyDecoder {
    let has = |word: &str| modifiers.iter().any(|m| m == word);
    match opcode {
        "mov" | "and" | "or" | "xor" | "not" if has("pred") => predicate::logic,
        "add" | "sub" | "mad" if has("cc") => arith::carry,
        "cp" if has("reduce") => bulk::reduce,
        "cp" if has("bulk") => bulk::copy,
        "cp" => sync::cp_async,
        _ => FAMILIES.iter().find(|row| row.0 == opcode).map_or(arith::table, |row| row.1),
    }
}
