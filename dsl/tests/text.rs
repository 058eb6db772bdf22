//! The text form: printed text reads back as the same kernel, and no text makes the parser panic.

#[path = "text/generate.rs"]
mod generate;

use atlas_dsl::ir::Loc;
use atlas_dsl::op::{BinaryOp, Op, Precision, Predicate, ReduceOp, UnaryOp};
use atlas_dsl::{DType, Kernel, TileType, diag, parse_kernel, same_kernel, verify};
use generate::Generator;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn choices() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(any::<u32>(), 8..200)
}

/// Verifies text that parses. No result causes a panic.
fn digest(text: &str) {
    match parse_kernel(text).and_then(verify) {
        Ok(kernel) => {
            let again = parse_kernel(&kernel.to_string()).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
            assert!(same_kernel(&kernel, &again), "{}\n{again}", *kernel);
        }
        Err(errors) => {
            assert!(!errors.0.is_empty());
            assert!(diag::render(&errors, "random.tile", text).contains(&errors.0[0].code.to_string()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_printed_reads_back_and_verifies(choices in choices()) {
        let kernel = Generator::generate(&choices);
        let text = kernel.to_string();
        let again = parse_kernel(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert!(same_kernel(&kernel, &again), "{text}\n{again}");
        prop_assert_eq!(&text, &again.to_string());
        if let Err(e) = verify(kernel) {
            return Err(TestCaseError::fail(format!("{e}\n{text}")));
        }
        if let Err(e) = verify(again) {
            return Err(TestCaseError::fail(format!("{e}\n{text}")));
        }
    }

    #[test]
    fn names_of_values_and_comments_do_not_matter(choices in choices(), shift in 1u32..1000) {
        let kernel = Generator::generate(&choices);
        let mut renamed = String::new();
        let mut rest = &*kernel.to_string();
        while let Some((before, after)) = rest.split_once('%') {
            let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            renamed.push_str(before);
            renamed.push('%');
            if digits > 0 {
                renamed.push_str(&format!("v{}_", after[..digits].parse::<u32>().unwrap() ^ shift));
            }
            rest = &after[digits..];
        }
        renamed.push_str(rest);
        let renamed = renamed.replace('\n', " // %0 = kernel {\n\n");
        let again = parse_kernel(&renamed).map_err(|e| TestCaseError::fail(format!("{e}\n{renamed}")))?;
        prop_assert!(same_kernel(&kernel, &again));
    }

    #[test]
    fn another_kernel_is_not_the_same(a in choices(), b in choices()) {
        let (a, b) = (Generator::generate(&a), Generator::generate(&b));
        prop_assert_eq!(same_kernel(&a, &b), a.to_string() == b.to_string());
    }

    #[test]
    fn broken_text_never_panics(
        choices in choices(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), any::<char>()), 1..6),
    ) {
        let mut text: Vec<char> = Generator::generate(&choices).to_string().chars().collect();
        for (at, kind, c) in edits {
            if text.is_empty() {
                break;
            }
            let at = at.index(text.len());
            let other = text[kind as usize % text.len()];
            match kind % 8 {
                0 => text.truncate(at),
                1 => drop(text.remove(at)),
                2 => text[at] = c,
                3 => text.insert(at, c),
                4 => text[at] = other,
                5 => text.insert(at, other),
                6 => text[at] = b"0179%@[]{}(),:=.?-"[kind as usize / 8 % 18] as char,
                _ => text.swap(at, kind as usize / 8 % at.max(1)),
            }
        }
        digest(&text.into_iter().collect::<String>());
    }

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,200}") {
        digest(&text);
    }

    #[test]
    fn numbers_round_trip(bits in any::<u64>(), bits32 in any::<u32>()) {
        let x = f64::from_bits(bits);
        let y: f64 = atlas_dsl::text::Cursor::new(&atlas_dsl::text::float_text(x)).float().unwrap();
        prop_assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan());
        let x = f32::from_bits(bits32);
        let y: f32 = atlas_dsl::text::Cursor::new(&atlas_dsl::text::float_text(x)).float().unwrap();
        prop_assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan());
    }
}

/// The properties above cover every operation only if the generator creates every operation.
#[test]
fn the_generator_makes_every_operation() {
    let mut seed = 1u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed >> 8
    };
    let mut seen = BTreeSet::new();
    for _ in 0..900 {
        let choices: Vec<u32> = (0..150).map(|_| next()).collect();
        for op in Generator::generate(&choices).insts.values() {
            let name = format!("{op:?}");
            seen.insert(name.split([' ', '(']).next().unwrap().to_owned());
            match op {
                Op::Unary(op, _) => seen.insert(format!("unary {}", op.name())),
                Op::Binary(op, ..) => seen.insert(format!("binary {}", op.name())),
                Op::Compare(p, ..) => seen.insert(format!("compare {}", p.name())),
                Op::Reduce { op, .. } => seen.insert(format!("reduce {}", op.name())),
                Op::Dot { precision, acc, .. } => seen.insert(format!("dot {} {}", precision.name(), acc.is_some())),
                Op::Loop { kind, inits, .. } => seen.insert(format!("{} {}", kind.name(), inits.len())),
                Op::Load { slices, .. } => slices.iter().all(|s| {
                    seen.insert(format!("slice {}", format!("{s:?}").split([' ', '(']).next().unwrap()));
                    true
                }),
                _ => true,
            };
        }
    }
    let operations = 24;
    let mnemonics = UnaryOp::ALL.len() + BinaryOp::ALL.len() + Predicate::ALL.len() + ReduceOp::ALL.len();
    let (dots, loops, slices) = (2 * Precision::ALL.len(), 8, 5);
    assert_eq!(seen.len(), operations + mnemonics + dots + loops + slices, "{seen:#?}");
}

#[test]
fn canonical_text() {
    let source =
        "kernel @k(%x: bf16[G, N, D], %y: out f32[N], %eps: f32) // the `strides` are those of contiguous tensors
dims G: ?1, N: ?16, D = 64
table @COEF: f32[2] = [1, -inf]
grid (%g, %n) = (G, tiles(N, 16)) {
  %zero = splat 0 : i32
  %steps = tiles(N, 32)
  %nan = splat nan : f32[16]
  %a, %b = pipeline %i in %zero..%steps carry (%c = %nan, %d: i32 = %g) {
    %t = load %x[%g, %n : 16, %i ..+ 8]
    yield %c, %d
  }
  %x = get @COEF[%b] // a value may be called as a parameter is
  %r = reduce max %a axes [0]
  store %y[%n : 16], %a
}";
    let want = "kernel @k(
  %x: bf16[G, N, D] strides [?128, 64, 1] align 16,
  %y: out f32[N] strides [1] align 16,
  %eps: f32,
)
dims G: ?1, N: ?16, D = 64
table @COEF: f32[2] = [1.0, -inf]
grid (%0, %1) = (G, tiles(N, 16)) {
  %2 = splat 0 : i32
  %3 = tiles(N, 32) : i32
  %4 = splat nan : f32[16]
  %9, %10 = pipeline %5 in %2..%3 carry (%6: f32[16] = %4, %7: i32 = %0) {
    %8 = load %x[%0, %1 : 16, %5 ..+ 8] : bf16[16, 8]
    yield %6, %7
  }
  %11 = get @COEF[%10] : f32
  %12 = reduce max %9 axes [0] : f32[1]
  store %y[%1 : 16], %9
}
";
    let kernel = parse_kernel(source).unwrap();
    assert_eq!(kernel.to_string(), want);
    let locs: Vec<(u32, u32)> = kernel.insts.keys().map(|i| (kernel.locs[i].line, kernel.locs[i].column)).collect();
    assert_eq!(locs, [(5, 3), (6, 3), (7, 3), (9, 5), (10, 5), (8, 3), (12, 3), (13, 3), (14, 3)]);
}

#[test]
fn syntax_errors_say_where_what_and_what_instead() {
    for (source, want) in [
        ("", "error[ATL001]: found the end of the text, wanted `kernel` (line 1, column 1)"),
        ("kernel @k(%x f32)", "error[ATL001]: found `f32`, wanted `:` (line 1, column 14)"),
        ("kernel @k()\ngrid () = () {\n  $", "error[ATL001]: found `$`, wanted a statement or `}` (line 3, column 3)"),
        ("kernel @é", "error[ATL001]: found `@`, wanted a `@name` (line 1, column 8)"),
        ("kernel @k(%x: f31)", "error[ATL001]: found `f31`, wanted an element type (line 1, column 15)"),
        (
            "kernel @k() dims N = 99999999999999999999",
            "error[ATL002]: the number `99999999999999999999` is out of range (line 1, column 22)",
        ),
        ("kernel @k(%x: f32[M]) grid () = () {}", "error[ATL003]: no dim is called `M` (line 1, column 19)"),
        (
            "kernel @k() grid () = () { %a = splat 0 : f32 %a = splat 1 : f32 }",
            "error[ATL004]: `%a` is defined twice (line 1, column 47)",
        ),
        (
            "kernel @k() grid () = () { %a = splat 0 : f32 %b = foo %a }",
            "error[ATL005]: there is no operation `foo` (line 1, column 52)",
        ),
        (
            "kernel @k() grid () = () { %a, %b = splat 0 : f32 }",
            "error[ATL007]: the operation has 1 results, but 2 are named (line 1, column 28)",
        ),
        (
            "kernel @k() grid () = () { %a = splat 0 : f32 %b = exp %a : f64 }",
            "error[ATL118]: the operation gives f32, but f64 is written (line 1, column 47)",
        ),
    ] {
        assert_eq!(parse_kernel(source).unwrap_err().to_string(), want, "{source}");
    }
    let deep = format!(
        "kernel @k() grid () = () {{ %z = splat 0 : i32 {}",
        (0..70).map(|i| format!("loop %i{i} in %z..%z {{ ")).collect::<String>()
    );
    assert!(parse_kernel(&deep).unwrap_err().to_string().contains("ATL006"));
}

#[test]
fn diagnostics_render_with_their_line() {
    let source = "kernel @k(%x: f32[N])\ndims N: ?1\ngrid (%n) = (N) {\n  %é = splat 0 : f32\n}";
    let errors = parse_kernel(source).unwrap_err();
    let want = "error[ATL001]: found `%`, wanted a statement or `}`
 --> k.tile:4:3
  |
4 |   %é = splat 0 : f32
  |   ^^
";
    assert_eq!(diag::render(&errors, "k.tile", source), want);
    let nowhere = diag::Diagnostic::new(212, Loc { line: 77, column: 1 }, "no such line").note("a note");
    assert_eq!(diag::render(&nowhere.into(), "k.tile", source), "error[ATL212]: no such line\n |\n = note: a note\n");
}

#[test]
fn dotted_words() {
    let mut text = atlas_dsl::text::Cursor::new("mma.m16n8k16.bf16 ldmatrix.x4.16x256b %a");
    assert_eq!(text.dotted().unwrap(), "mma.m16n8k16.bf16");
    assert_eq!(text.dotted().unwrap(), "ldmatrix.x4.16x256b");
    assert_eq!(text.dotted().unwrap_err().to_string(), "error[ATL001]: found `%a`, wanted a word (line 1, column 39)");
}

#[test]
fn equal_text_is_not_enough() {
    let splat = |dtype, value: f64, result: DType| {
        let mut k = Kernel::new("k");
        k.push_inst(k.body, Op::Splat { value, dtype, shape: vec![] }, &[TileType::scalar(result)], Loc::default());
        k
    };
    let (a, b) = (splat(DType::F32, 1.0, DType::F64), splat(DType::F64, 1.0, DType::F64));
    assert_eq!(a.to_string(), b.to_string());
    assert!(!same_kernel(&a, &b));
    // Numbers compare by their bits, but every NaN is one number.
    assert!(!same_kernel(&splat(DType::F32, 0.0, DType::F32), &splat(DType::F32, -0.0, DType::F32)));
    let nan = f64::from_bits(f64::NAN.to_bits() | 1);
    assert!(same_kernel(&splat(DType::F32, f64::NAN, DType::F32), &splat(DType::F32, nan, DType::F32)));
}
