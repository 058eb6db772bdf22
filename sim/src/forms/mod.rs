//! One program per instruction form, for differential runs against hardware.
//!
//! A program has one thread for each element. It loads one value from each input, applies the instruction, and stores the
//! result. Its parameters are the addresses of the output and of each input, and the number of elements. The entry is
//! [`ENTRY`]. Its target is `sm_90`: pairs of singles and mixed sums, which later ones have, are not among the forms.
//!
//! # Results on hardware
//!
//! All 1581 programs ran on an H200 with driver 13.0. At first, 1478 gave the expected bits, 87 were within the ISA's bounds,
//! and 16 disagreed. The arithmetic was then changed to match the hardware. That run settled:
//!
//! | Form | Result |
//! |---|---|
//! | `cvt.f32.bf16` of a NaN, any rounding | Its bits moved up; with `.ftz` the usual NaN. |
//! | `cvt.ftz.f16.f32` | Flushes nothing: `.rm` and `.rp` make numbers of subnormal ones. |
//! | `cvt.rn`, `.rz` to `tf32` of a NaN | `0x7fffe000`. |
//! | `cvt.rna` to `tf32` of a NaN | The low 13 bits cleared, an infinity if no others are set. |
//! | `cvt.rna.satfinite` to `tf32` | The same less one step, of an infinity and of NaNs too. |
//! | `testp.normal` of zeros | True. |
//! | `f64` arithmetic of a NaN | That NaN, quiet; negation leaves its sign. A new one is `0xfff8000000000000`. |
//! | `cvt` of a NaN from or to `f64` | Keeps the sign and the payload's top; from a flushed single the usual NaN. |
//! | `cvt.f16.f16`, `cvt.bf16.bf16` of a NaN | The usual NaN. |
//! | `rcp`, `rsqrt.approx.ftz.f64` to a NaN | `0x7fffffff00000000`. |
//!
//! The two rows on `.rna` also follow from the instructions that the assembler emits for them. It is open which of two
//! different NaNs `f64` arithmetic keeps, because no case has two, and what signaling NaNs become.
//!
//! The `.approx` and `.full` forms of `div`, `rcp`, `sqrt`, `rsqrt`, `sin`, `cos`, `lg2`, `ex2` and `tanh` agree within the
//! ISA's bound, but not to the bit. There the simulator rounds the exact result to nearest. On hardware, `sin` of `1e-30` is
//! zero, and `ex2` and `tanh` of 16-bit floats are often one step closer to zero.

mod agreement;
mod families;
mod inputs;
mod sequences;
mod text;

pub use agreement::Agreement;
pub use text::ENTRY;

use crate::alu::{self, Arithmetic, compare, testp};
use crate::program::{AluFn, CompareFn};
use crate::syntax::ast::Type;

/// Values of one operand, one for each element.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Bytes of an element in memory.
    pub bytes: u32,
    /// The elements, zero above their width.
    pub values: Vec<u64>,
}

impl Input {
    /// The buffer, little-endian.
    pub fn buffer(&self) -> Vec<u8> {
        let element = |value: &u64| value.to_le_bytes().into_iter().take(self.bytes as usize);
        self.values.iter().flat_map(element).collect()
    }
}

/// A program, its inputs, and its expected results.
#[derive(Clone, Debug)]
pub struct Case {
    /// The instruction, with its immediate if it has one: `add.rn.f32`, `lop3.b32 0x96`.
    pub name: String,
    /// The module.
    pub ptx: String,
    /// Inputs in the order of the parameters, all of one length.
    pub inputs: Vec<Input>,
    /// Bytes of an element of the output.
    pub result_bytes: u32,
    /// The result of the simulator's arithmetic for each element.
    pub expected: Vec<u64>,
    /// How close a result must be to that.
    pub agreement: Agreement,
}

impl Case {
    /// The number of elements, and so of threads.
    pub fn count(&self) -> usize {
        self.expected.len()
    }

    /// The elements of an output buffer that do not agree: index, expected, found. Elements that a short buffer does not have
    /// disagree too.
    pub fn disagreements(&self, output: &[u8]) -> Vec<(usize, u64, Option<u64>)> {
        let mut elements = output
            .chunks_exact(self.result_bytes.max(1) as usize)
            .map(|chunk| chunk.iter().rev().fold(0u64, |value, byte| (value << 8) | u64::from(*byte)));
        let found = self.expected.iter().map(|expected| (*expected, elements.next()));
        let disagrees =
            |(expected, found): (u64, Option<u64>)| !found.is_some_and(|f| self.agreement.holds(expected, f));
        found.enumerate().filter(|(_, pair)| disagrees(*pair)).map(|(i, (e, f))| (i, e, f)).collect()
    }
}

/// All programs, in a fixed order and with fixed inputs.
pub fn programs() -> Vec<Case> {
    let arithmetic = families::spellings().into_iter().filter_map(|s| arithmetic_case(&s));
    let comparisons = families::comparisons().into_iter().filter_map(|c| comparison_case(&c));
    let tests = families::tests().into_iter().filter_map(|(kind, ty)| test_case(kind, ty));
    let sequences = sequences::SEQUENCES.iter().map(sequence_case);
    arithmetic.flatten().chain(comparisons).chain(tests).chain(sequences).collect()
}

/// The function that computes a case's expected elements.
#[derive(Clone, Copy)]
enum FormFunction {
    Value(AluFn),
    Truth(CompareFn),
}

impl FormFunction {
    fn call(self, operands: [u64; 4]) -> u64 {
        let [a, b, c, d] = operands;
        match self {
            FormFunction::Value(f) => f(a, b, c, d),
            FormFunction::Truth(f) => u64::from(f(a, b)),
        }
    }
}

/// A case of an instruction: the types of its register operands, and an immediate after them.
struct Plan<'a> {
    name: String,
    body: String,
    opcode: &'a str,
    sources: &'a [Type],
    immediate: Option<u64>,
    dst: Type,
    function: FormFunction,
    agreement: Agreement,
}

impl Plan<'_> {
    fn case(self) -> Case {
        let inputs = inputs::for_operands(self.opcode, &self.name, self.sources);
        let count = inputs.first().map_or(0, Vec::len);
        let element = |i: usize| {
            let mut operands = [0; 4];
            let values = inputs.iter().map(|column| column[i]).chain(self.immediate);
            for (operand, value) in operands.iter_mut().zip(values) {
                *operand = value;
            }
            self.function.call(operands)
        };
        let expected = (0..count).map(element).collect();
        let ptx = text::module(&self.body, self.sources, self.dst);
        let columns = inputs.into_iter().zip(self.sources);
        let inputs = columns.map(|(values, ty)| Input { bytes: text::bytes(*ty), values }).collect();
        let result_bytes = text::bytes(self.dst);
        Case { name: self.name, ptx, inputs, result_bytes, expected, agreement: self.agreement }
    }
}

/// The cases of a spelling: one, except for the instruction with a truth table, whose tables are immediates.
fn arithmetic_case(spelling: &str) -> Option<Vec<Case>> {
    let mut words = spelling.split('.');
    let opcode = words.next()?;
    let modifiers: Vec<&str> = words.collect();
    let form = alu::lookup(opcode, &modifiers, Arithmetic::Ieee)?;
    let sources = &form.src[..usize::from(form.sources)];
    let agreement = agreement::of(opcode, &modifiers, form.dst, sources);
    let plan = |immediate: Option<u64>| {
        let registers = if immediate.is_some() { &sources[..sources.len() - 1] } else { sources };
        let suffix = immediate.map(|i| format!("{i:#x}"));
        let name = suffix.iter().fold(spelling.to_owned(), |name, suffix| format!("{name} {suffix}"));
        let body = text::instruction(spelling, registers.len(), suffix.as_deref());
        let function = FormFunction::Value(form.f);
        Plan { name, body, opcode, sources: registers, immediate, dst: form.dst, function, agreement }.case()
    };
    Some(match opcode {
        "lop3" => [0x96, 0xe8, 0xca, 0x3c, 0x1b, 0x80, 0xfe, 0x00].map(|table| plan(Some(table))).into(),
        _ => vec![plan(None)],
    })
}

fn comparison_case(comparison: &families::Comparison) -> Option<Case> {
    let families::Comparison { cmp, ftz, ty, word } = comparison;
    let function = FormFunction::Truth(compare(cmp, *ty, *ftz)?);
    let spelling = format!("setp.{cmp}{}.{word}", if *ftz { ".ftz" } else { "" });
    let body = format!("{spelling} %p, %a, %b;\n    selp.u32 %d, 1, 0, %p;");
    let (sources, dst, agreement) = (&[*ty, *ty], Type::U32, Agreement::Bits);
    Some(Plan { name: spelling, body, opcode: "setp", sources, immediate: None, dst, function, agreement }.case())
}

fn test_case(kind: &str, ty: Type) -> Option<Case> {
    let function = FormFunction::Truth(testp(kind, ty)?);
    let spelling = format!("testp.{kind}.{}", if ty == Type::F32 { "f32" } else { "f64" });
    let body = format!("{spelling} %p, %a;\n    selp.u32 %d, 1, 0, %p;");
    let (sources, dst, agreement) = (&[ty], Type::U32, Agreement::Bits);
    Some(Plan { name: spelling, body, opcode: "testp", sources, immediate: None, dst, function, agreement }.case())
}

fn sequence_case(sequence: &sequences::Sequence) -> Case {
    let sequences::Sequence { name, body, sources, dst, f } = *sequence;
    let (function, agreement) = (FormFunction::Value(f), Agreement::Bits);
    let (name, body) = (name.to_owned(), body.to_owned());
    Plan { name, body, opcode: "", sources, immediate: None, dst, function, agreement }.case()
}
