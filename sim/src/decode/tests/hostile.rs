//! No text makes the parser or the decoder panic.

use super::{DECLARED, HEAD, is_later};
use crate::alu::Arithmetic;
use crate::fault::Result;
use crate::program::Program;
use crate::syntax::parse;
use proptest::prelude::*;

const FAMILIES: &str = include_str!("families.txt");

fn run(text: &str) -> Result<Program> {
    super::super::compile(&parse(text)?, None, Arithmetic::Ieee)
}

/// A kernel of all the instructions of the table that one target has.
fn kernel() -> String {
    let lines = FAMILIES.lines().filter(|line| line.ends_with(';') && !is_later(line));
    let body: Vec<_> = lines.collect();
    format!(
        "{HEAD}.visible .entry k(.param .u64 a, .param .align 64 .b8 b[128]) {{ {DECLARED}\n{}\n}}",
        body.join("\n")
    )
}

fn words() -> impl Strategy<Value = String> {
    let known = kernel();
    let mut all: Vec<String> =
        known.split_inclusive(['.', ' ', ',', '[', ']', '{', '}', ';']).map(str::to_owned).collect();
    all.extend(
        ["L: ", "@p0 ", "bra L;", "<", ">", "\"", "/*", "-1", "0x", "+", "|", "!", "_", "\u{e9}"].map(str::to_owned),
    );
    prop::sample::select(all)
}

#[test]
fn the_kernel_of_the_table_compiles() {
    run(&kernel()).unwrap();
}

proptest! {
    #[test]
    fn a_truncated_kernel_is_an_error(cut in 0usize..1 << 20) {
        let text = kernel();
        let cut = cut % text.len();
        prop_assert!(text.get(..cut).is_none_or(|part| run(part).is_err()));
    }

    #[test]
    fn changed_bytes_do_not_panic(changes in prop::collection::vec((0usize..12000, 32u8..127), 1..6)) {
        let mut text = kernel().into_bytes();
        for (at, byte) in changes {
            let at = at % text.len();
            text[at] = byte;
        }
        let _ = run(&String::from_utf8_lossy(&text));
    }

    #[test]
    fn random_statements_do_not_panic(parts in prop::collection::vec(words(), 0..60)) {
        let _ = run(&format!("{HEAD}.entry k() {{ {DECLARED} {} }}", parts.concat()));
        let _ = run(&format!("{HEAD}{}", parts.concat()));
    }

    #[test]
    fn random_text_does_not_panic(text in ".{0,200}") {
        let _ = run(&text);
        let _ = run(&format!("{HEAD}.entry k() {{ {text} }}"));
    }

    #[test]
    fn random_jumps_do_not_panic(jumps in prop::collection::vec((0usize..12, 0u8..5), 1..12)) {
        let mut body = String::new();
        for (at, (target, kind)) in jumps.iter().enumerate() {
            let target = target % jumps.len();
            body += &match kind {
                0 => format!("L{at}: bra L{target};\n"),
                1 => format!("L{at}: @p0 bra L{target};\n"),
                2 => format!("L{at}: @p0 exit;\n"),
                3 => format!("L{at}: trap;\n"),
                _ => format!("L{at}: exit;\n"),
            };
        }
        let program = run(&format!("{HEAD}.entry k() {{ {DECLARED} {body} }}")).unwrap();
        for (at, meet) in program.reconverge.iter().enumerate() {
            let branches = jumps.get(at).is_some_and(|(_, kind)| *kind < 2);
            prop_assert!(meet.is_none_or(|m| branches && (m as usize) < program.code.len()));
        }
    }
}
