//! The arithmetic of a lane, form by form.

mod approx;
mod atomics;
mod bits;
mod blackwell;
mod compare;
mod convert;
mod exact;
mod float;
mod half_floats;
mod integer;
mod minmax;
mod refusals;

use atlas_sim::alu::{AluForm, Arithmetic, lookup};

/// The form of an instruction word such as `add.rn.f32`.
fn form(spelling: &str) -> Option<AluForm> {
    form_in(spelling, Arithmetic::Ieee)
}

fn form_in(spelling: &str, arithmetic: Arithmetic) -> Option<AluForm> {
    let mut words = spelling.split('.');
    let opcode = words.next()?;
    lookup(opcode, &words.collect::<Vec<_>>(), arithmetic)
}

/// The result of an instruction.
fn eval(spelling: &str, operands: &[u64]) -> u64 {
    let form = form(spelling).unwrap_or_else(|| panic!("no form {spelling}"));
    assert_eq!(usize::from(form.sources), operands.len(), "operands of {spelling}");
    call(&form, operands)
}

fn call(form: &AluForm, operands: &[u64]) -> u64 {
    let at = |i: usize| operands.get(i).copied().unwrap_or(0);
    (form.f)(at(0), at(1), at(2), at(3))
}

/// A row of a table of known values: instruction, operands, result.
type Known = (&'static str, &'static [u64], u64);

fn check(table: &[Known]) {
    for (spelling, operands, expected) in table {
        let got = eval(spelling, operands);
        assert_eq!(got, *expected, "{spelling} of {operands:#x?}: {got:#x}, not {expected:#x}");
    }
}

fn f32_bits(x: f32) -> u64 {
    u64::from(x.to_bits())
}

fn to_f32(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}
