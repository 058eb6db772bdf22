//! Any text, parameters and launch give a result or a fault within the budgets, and never a panic.

use atlas_sim::alu::Arithmetic;
use atlas_sim::fault::{Fault, FaultKind};
use atlas_sim::launch::{Launch, Options, Policy, Report, run};
use atlas_sim::memory::{Global, Permission};
use atlas_sim::program::Program;
use atlas_sim::{decode, syntax};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Warp instructions of a run, and the number by which a run may exceed them before the budget is checked.
const BUDGET: u64 = 1500;
const QUANTUM: u64 = 4096;
/// The longest time for a single text, on a machine that also does other work.
const PATIENCE: Duration = Duration::from_secs(20);
const POLICIES: [Policy; 3] = [Policy::RoundRobin, Policy::Adversarial, Policy::Random];

const HEAD: &str = ".version 8.3\n.target sm_90a\n.address_size 64\n";
const REGISTERS: &str = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<40>; .reg .f32 %f<40>;";

/// The kernels of Atlas and of other compilers.
static CORPUS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for folder in ["tests/ptx", "tests/planted", "../snapshots/ptx/sm_80", "../snapshots/ptx/sm_90"] {
        let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        paths.extend(entries.map(|e| e.path()).filter(|path| is_text(path)));
    }
    paths.sort();
    let text = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        text[text.find(".version").unwrap()..].to_owned()
    };
    let texts: Vec<String> = paths.iter().map(text).collect();
    assert!(texts.len() > 30, "{} texts", texts.len());
    texts
});

fn is_text(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "ptx" || e == "snap")
}

/// Decodes the first entry of a text.
fn compile(text: &str) -> Result<Program, Fault> {
    let module = syntax::parse(text)?;
    let entry = module.functions.iter().find(|f| f.entry && f.body.is_some()).map(|f| f.name.as_str());
    decode::compile(&module, entry, Arithmetic::Ieee)
}

/// Launches with parameters that are addresses, small numbers or noise.
fn launch(program: &Program, random: &mut StdRng) -> Result<Report, Fault> {
    let mut memory = Global::new();
    let permissions = [Permission::ReadWrite, Permission::ReadWrite, Permission::ReadOnly];
    let buffers = permissions.map(|p| memory.alloc(vec![random.random(); 1 << 14], p));
    let mut params = vec![0u8; program.param_bytes as usize];
    for slot in &program.params {
        let value: u64 = match random.random_range(0..8) {
            0 => random.random(),
            1 => 0,
            _ if slot.bytes == 8 => buffers[random.random_range(0..buffers.len())],
            _ => random.random_range(0..200),
        };
        let to = params.iter_mut().skip(slot.offset as usize).take(slot.bytes as usize);
        to.zip(value.to_le_bytes().into_iter().cycle()).for_each(|(to, from)| *to = from);
    }
    let block = program.required_threads.unwrap_or([random.random_range(1..200), 1, 1]);
    let launch = Launch {
        program,
        grid: [random.random_range(1..5) * program.cluster.map_or(1, |c| c[0].clamp(1, 16)), 1, 1],
        block,
        cluster: None,
        shared_bytes: [0, 4096, 98304][random.random_range(0..3)],
        params: &params,
    };
    let policy = POLICIES[random.random_range(0..POLICIES.len())];
    let options = Options {
        policy,
        seed: random.random(),
        budget: BUDGET,
        resident_ctas: 2,
        memory_limit: 64 << 20,
        ..Options::default()
    };
    run(&launch, &mut memory, &options)
}

/// Runs a text within the budgets. Returns whether it ended, or its fault.
fn attempt(text: &str, random: &mut StdRng) -> Result<(), FaultKind> {
    let start = Instant::now();
    let result = compile(text).and_then(|program| launch(&program, random));
    assert!(start.elapsed() < PATIENCE, "{:?}\n{text}", start.elapsed());
    let report = result.map_err(|fault| fault.kind)?;
    assert!(report.warp_instructions <= BUDGET + QUANTUM, "{}", report.warp_instructions);
    Ok(())
}

/// The words of a text with the marks that end them.
fn words(text: &str) -> Vec<&str> {
    text.split_inclusive([' ', '\t', '\n', ',', '.', ';', '[', ']', '{', '}', '<', '>', '@', '|', '+']).collect()
}

/// Edge values.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "3",
    "31",
    "32",
    "255",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "0x8000000000000000",
    "99999999999999999999999999999999",
];

/// A text with some of its words changed: replaced by words of this or another text or by other numbers, left out, or doubled.
fn mutated(text: &str, other: &str, random: &mut StdRng) -> String {
    let mut words = words(text);
    let donors: Vec<&str> = self::words(other);
    // Most changes where the instructions are: what does not parse does not run.
    let body = words.iter().position(|w| w.contains('{')).unwrap_or(0).min(words.len() - 1);
    for _ in 0..random.random_range(1..5) {
        let first = if random.random_range(0..4) == 0 { 0 } else { body };
        let (to, from) = (random.random_range(first..words.len()), random.random_range(first..words.len()));
        match random.random_range(0..8) {
            0 | 1 => words[to] = words[from],
            2 => words.swap(to, from),
            3 => words[to] = donors[random.random_range(0..donors.len())],
            4 => words[to] = "",
            5 => words.insert(to, words[from]),
            _ => {
                let numbers: Vec<usize> =
                    (first..words.len()).filter(|&i| words[i].starts_with(|c: char| c.is_ascii_digit())).collect();
                if let Some(&at) = numbers.get(random.random_range(0..numbers.len().max(1))) {
                    words[at] = NUMBERS[random.random_range(0..NUMBERS.len())];
                    words.insert(at + 1, if to % 4 == 0 { " " } else { ";" });
                }
            }
        }
    }
    words.concat()
}

/// Lines of a body in another order, or left out: most of it still decodes.
fn shuffled(text: &str, random: &mut StdRng) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let movable: Vec<usize> = (0..lines.len())
        .filter(|&i| lines[i].trim_end().ends_with(';') && !lines[i].contains(".reg") && !lines[i].contains(".shared"))
        .collect();
    for _ in 0..random.random_range(1..6) {
        let mut pick = || movable[random.random_range(0..movable.len())];
        let (a, b) = (pick(), pick());
        match random.random_range(0..3) {
            0 => lines.swap(a, b),
            1 => lines[a] = "",
            _ => lines[a] = lines[b],
        }
    }
    lines.join("\n")
}

#[test]
fn damaged_kernels_with_made_up_parameters() {
    let kinds: Vec<Result<(), FaultKind>> = (0..3000u64)
        .into_par_iter()
        .map(|seed| {
            let random = &mut StdRng::seed_from_u64(seed);
            let text = &CORPUS[random.random_range(0..CORPUS.len())];
            let other = &CORPUS[random.random_range(0..CORPUS.len())];
            let text = match seed % 3 {
                0 => mutated(text, other, random),
                1 => shuffled(text, random),
                _ => shuffled(&mutated(text, other, random), random),
            };
            attempt(&text, random)
        })
        .collect();
    // Of no use if all were refused by the parser.
    let ran = kinds.iter().filter(|k| !matches!(k, Err(FaultKind::Syntax))).count();
    assert!(ran > 1000, "{ran} texts got as far as to be launched");
    for kind in [FaultKind::Budget, FaultKind::OutOfBounds, FaultKind::Race, FaultKind::Launch] {
        assert!(kinds.contains(&Err(kind)), "none ends with {kind:?}");
    }
    assert!(kinds.contains(&Ok(())));
}

#[test]
fn truncated_kernels() {
    (0..CORPUS.len()).into_par_iter().for_each(|i| {
        let random = &mut StdRng::seed_from_u64(i as u64);
        for _ in 0..10 {
            let cut = random.random_range(0..CORPUS[i].len());
            // Closed by force, so that the part before runs.
            let part = CORPUS[i].get(..cut).unwrap_or_default();
            let whole = part.rfind('\n').map_or("", |end| &part[..end]);
            let _ = attempt(part, random);
            let _ = attempt(&format!("{whole}\n}}"), random);
        }
    });
}

/// A kernel of statements.
fn kernel(statements: &str) -> String {
    format!("{HEAD}.visible .entry k(.param .u64 a) {{ {REGISTERS} {statements} }}")
}

/// A kernel with the given launch. Its parameters are zeros.
fn outcome(text: &str, (grid, block): ([u32; 3], [u32; 3]), policy: Policy) -> Result<Report, Fault> {
    let program = compile(text)?;
    let params = vec![0; program.param_bytes as usize];
    let launch = Launch { program: &program, grid, block, cluster: None, shared_bytes: 0, params: &params };
    let options = Options { policy, budget: 20_000, memory_limit: 64 << 20, ..Options::default() };
    run(&launch, &mut Global::new(), &options)
}

/// The results of a text under every policy, within the time limit.
fn ends_with(text: &str, shape: ([u32; 3], [u32; 3]), kinds: &[FaultKind]) {
    let shown = text.get(..text.len().min(400)).unwrap_or_default();
    for policy in POLICIES {
        let start = Instant::now();
        match outcome(text, shape, policy) {
            Err(fault) => assert!(kinds.contains(&fault.kind), "{policy:?}: {fault}\n{shown}"),
            Ok(_) => assert!(kinds.is_empty(), "{policy:?}: no fault\n{shown}"),
        }
        assert!(start.elapsed() < PATIENCE, "{policy:?}: {:?}\n{shown}", start.elapsed());
    }
}

const ONE: ([u32; 3], [u32; 3]) = ([1; 3], [32, 1, 1]);

#[test]
fn sizes_that_no_memory_holds_are_refused() {
    let module = |declaration: &str| format!("{HEAD}{declaration}\n.visible .entry k() {{ ret; }}");
    let mut texts = Vec::new();
    for size in ["4294967295", "1099511627776", "9223372036854775808", "18446744073709551615", "18446744073709551616"] {
        for space in [".shared", ".local"] {
            texts.push(kernel(&format!("{space} .b8 s[{size}]; st{space}.u8 [s], %h1; ret;")));
            texts.push(kernel(&format!("{space} .b64 s[{size}]; st{space}.u8 [s], %h1; ret;")));
            texts.push(kernel(&format!("{space} .b64 s[{size}][{size}]; st{space}.u8 [s], %h1; ret;")));
        }
        for space in [".global", ".const"] {
            texts.push(module(&format!("{space} .b8 g[{size}];")));
            texts.push(module(&format!("{space} .b8 g[{size}] = {{1}};")));
            texts.push(module(&format!("{space} .b8 g[2][{size}] = {{{{1}}, {{2}}}};")));
            texts.push(module(&format!("{space} .b8 g[][{size}] = {{{{1}}, {{2}}}};")));
        }
        texts.push(format!("{HEAD}.visible .entry k(.param .b8 a[{size}]) {{ ret; }}"));
        texts.push(format!("{HEAD}.visible .entry k(.param .align {size} .b8 a[4]) {{ ret; }}"));
    }
    let rows = |space: &str| {
        let rows = (0..64).map(|i| format!("{space} .b8 g{i}[2][200000000] = {{{{1}}, {{2}}}};"));
        module(&rows.collect::<String>())
    };
    texts.extend([rows(".global"), rows(".const")]);
    for text in &texts {
        ends_with(text, ONE, &[FaultKind::Syntax]);
    }
    // Allowed by the ISA, but more than the launch may have.
    let local = ".local .b8 s[524288]; st.local.u8 [s], %h1; ret;";
    ends_with(&kernel(local), ([4, 1, 1], [1024, 1, 1]), &[FaultKind::Budget]);
    let many: String = (0..200_000).map(|i| format!(".reg .b64 %x{i}; ")).collect();
    let read: String = (0..20_000).map(|i| format!("add.u64 %d1, %d1, %x{i}; ")).collect();
    ends_with(&kernel(&format!("{many} {read} ret;")), ([4, 1, 1], [1024, 1, 1]), &[FaultKind::Budget]);
    // Registers that no instruction names take no room.
    ends_with(&kernel(&format!("{many} ret;")), ([4, 1, 1], [1024, 1, 1]), &[]);
    ends_with(&kernel(".shared .b8 s[1000000]; st.shared.u8 [s], %h1; ret;"), ONE, &[FaultKind::Launch]);
    // A range of registers takes room only for those that are named.
    ends_with(&kernel(".reg .b64 %y<4294967295>; mov.u64 %y4294967294, 1; ret;"), ONE, &[]);
    ends_with(&kernel(".reg .b64 %y<4294967296>; ret;"), ONE, &[FaultKind::Syntax]);
    ends_with(&kernel("mov.u64 %d1, 18446744073709551616; ret;"), ONE, &[FaultKind::Syntax]);
    ends_with(
        &kernel("ld.global.u32 %r1, [%d1+18446744073709551615]; ret;"),
        ONE,
        &[FaultKind::OutOfBounds, FaultKind::Misaligned],
    );
}

#[test]
fn nesting_does_not_overflow_the_stack() {
    const DEEP: usize = 200_000;
    let twice = |open: &str, close: &str| format!("{}{}", open.repeat(DEEP), close.repeat(DEEP));
    for statement in [
        twice("{", "}"),
        format!("mov.u32 %r1, {};", twice("{", "}")),
        format!("mov.u32 %r1, {};", twice("(", ")")),
        format!("ld.global.u32 %r1, {};", twice("[", "]")),
        format!("mov.u32 %r1, {}1;", "-".repeat(DEEP)),
        format!("not.pred %p1, {}%p1;", "!".repeat(DEEP)),
        format!("setp.eq.u32 %p1{}, 1, 2;", "|%p1".repeat(DEEP)),
        "@%p1 ".repeat(DEEP),
    ] {
        ends_with(&kernel(&statement), ONE, &[FaultKind::Syntax]);
    }
    ends_with(&format!("{HEAD}.global .b8 g[4] = {};", twice("{", "}")), ONE, &[FaultKind::Syntax]);
    let dimensions = "[2]".repeat(DEEP);
    ends_with(&format!("{HEAD}.global .b8 g{dimensions} = {};", twice("{", "}")), ONE, &[FaultKind::Syntax]);
    // Long is not deep.
    let sum = "+0".repeat(DEEP);
    ends_with(&kernel(&format!("mov.u32 %r1, 1; ld.param.u64 %d1, [a{sum}]; ret;")), ONE, &[]);
}

#[test]
fn kernels_without_end_spend_the_budget() {
    let start = "mov.u32 %r1, %laneid; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0;";
    let barrier = ".shared .align 8 .b64 m; mbarrier.init.shared.b64 [m], 1;";
    let ends = [FaultKind::Budget, FaultKind::Deadlock];
    for body in [
        "L: bra L;".to_owned(),
        format!("{start} L: @%p1 bra M; bra L; M: bra L;"),
        format!("{start} L: @%p1 bra L; @!%p1 bra L; bra L;"),
        "L: bar.sync 0; bra L;".to_owned(),
        "L: nanosleep.u32 1000000; bra L;".to_owned(),
        "L: bar.warp.sync 0xffffffff; bra L;".to_owned(),
        "L: barrier.cluster.arrive; barrier.cluster.wait; bra L;".to_owned(),
        format!("{start} @!%p1 exit; L: bar.sync 0; bra L;"),
        "L: cp.async.commit_group; cp.async.wait_group 0; bra L;".to_owned(),
        "T: .branchtargets L; L: mov.u32 %r3, 0; brx.idx %r3, T;".to_owned(),
    ] {
        ends_with(&kernel(&body), ONE, &ends);
        ends_with(&kernel(&body), ([3, 2, 1], [64, 2, 1]), &ends);
    }
    let wait = format!("{barrier} L: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra L; ret;");
    ends_with(&kernel(&wait), ([1; 3], [1, 1, 1]), &ends);
    let wait = wait.replace("try_wait", "test_wait");
    ends_with(&kernel(&wait), ([1; 3], [1, 1, 1]), &ends);
}

#[test]
fn huge_grids_end_early() {
    let most = i32::MAX as u32;
    for body in ["ret;", "bar.sync 0; ret;", "membar.gl; ret;", "L: bra L;"] {
        for grid in [[most, 1, 1], [most, 65535, 65535], [65535, 65535, 1], [1 << 20, 1000, 1], [1 << 21, 1, 1]] {
            for block in [[1, 1, 1], [1024, 1, 1]] {
                ends_with(&kernel(body), (grid, block), &[FaultKind::Budget]);
            }
        }
    }
    for shape in [([u32::MAX; 3], [1; 3]), ([0; 3], [1; 3]), ([1; 3], [u32::MAX; 3]), ([1; 3], [0; 3])] {
        ends_with(&kernel("ret;"), shape, &[FaultKind::Launch]);
    }
    for directive in [".maxntid 4294967295, 4294967295, 4294967295", ".reqntid 0, 0, 0", ".maxntid 0"] {
        let text = kernel("ret;").replace(" {", &format!(" {directive} {{"));
        for policy in POLICIES {
            let _ = outcome(&text, ONE, policy);
        }
    }
    for size in ["0", "4294967295", "4294967295, 4294967295, 4294967295", "17"] {
        let text = kernel("ret;").replace(" {", &format!(" .reqnctapercluster {size} {{"));
        ends_with(&text, ONE, &[FaultKind::Launch]);
    }
}

#[test]
fn graphs_of_jumps_take_no_longer_than_the_text() {
    const JUMPS: usize = 3000;
    let list = |f: &dyn Fn(usize) -> String| (0..JUMPS).map(f).collect::<String>();
    let texts = [
        list(&|i| format!("L{i}: @%p{} bra L{};\n", i % 9, (i * 7919 + 13) % JUMPS)),
        list(&|i| format!("L{i}: @%p{} bra L{};\n", i % 9, JUMPS - 1 - i)),
        list(&|i| format!("@%p{} bra M{i}; L{i}: bra L{i}; M{i}:\n", i % 9)),
        list(&|i| format!("L{i}: @%p{} exit;\n", i % 9)),
        list(&|i| format!("L{i}: @%p{} bra L{}; @%p1 bra L{};\n", i % 9, i / 2, (i + JUMPS) / 2 % JUMPS)),
    ];
    let all = list(&|i| format!("L{i}, ")) + "L0";
    let table = format!("mov.u32 %r1, 7; T: .branchtargets {all};\n{}", list(&|i| format!("L{i}: brx.idx %r1, T;\n")));
    let ends = [FaultKind::Budget, FaultKind::Deadlock, FaultKind::Syntax];
    for text in texts.iter().chain([&table]) {
        let start = Instant::now();
        if let Err(fault) = outcome(&kernel(text), ONE, Policy::RoundRobin) {
            assert!(ends.contains(&fault.kind), "{fault}");
        }
        assert!(start.elapsed() < PATIENCE, "{:?}\n{}", start.elapsed(), &text[..200]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn any_instruction_with_any_operands_is_safe(
        donors in prop::collection::vec((any::<u32>(), any::<u32>()), 1..12),
        values in prop::collection::vec(prop::sample::select(NUMBERS.to_vec()), 6),
        seed in any::<u64>(),
    ) {
        // Instructions of the whole corpus on registers that hold what breaks things.
        let mut body = String::new();
        for (i, value) in values.iter().enumerate() {
            body += &format!("mov.b64 %d{i}, {}; cvt.u32.u64 %r{i}, %d{i};\n", value.trim_start_matches('-'));
        }
        for (text, line) in donors {
            let text = &CORPUS[text as usize % CORPUS.len()];
            let lines: Vec<&str> = text.lines().filter(|l| l.trim_end().ends_with(';')).collect();
            let line = lines[line as usize % lines.len()];
            body += &renamed(line, seed);
            body += "\n";
        }
        let _ = attempt(&kernel(&format!("{body} ret;")), &mut StdRng::seed_from_u64(seed));
    }
}

/// A line with the registers of another kernel renamed to those of `kernel`.
fn renamed(line: &str, seed: u64) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('%') {
        out += &rest[..at];
        let tail = &rest[at + 1..];
        let end = tail.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(tail.len());
        let name = &tail[..end];
        let digits = name.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let number = digits.parse::<u64>().map_or(0, |n| (n ^ seed) % 9);
        out += &match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "p" => format!("%p{number}"),
            "rs" | "h" => format!("%h{number}"),
            "r" => format!("%r{number}"),
            "rd" | "d" => format!("%d{number}"),
            "f" => format!("%f{number}"),
            _ => format!("%{name}"),
        };
        rest = &tail[end..];
    }
    out + rest
}
