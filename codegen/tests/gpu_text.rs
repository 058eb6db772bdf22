//! The text form of GPU IR and its verifier: the case files, generated kernels and damaged text.
//!
//! A case is one kernel. `// error[ATL420]: part of the message` on a line expects that error there; an
//! error without a place is expected on any line. A case without such marks verifies, and prints to text
//! that reads back as the same kernel.

#[path = "gpu_text/generate.rs"]
mod generate;

use atlas_codegen::gpu::atom::MmaAtom;
use atlas_codegen::gpu::{
    Block, Effects, Inst, Kernel, Mention, Op, Ring, Type, Value, ValueDef, parse_gpu, verify_gpu, warp_grid_of,
};
use atlas_codegen::{Target, gpu_ops, pipeline};
use atlas_dsl::{Diagnostic, Schedule};
use cranelift_entity::EntityRef;
use generate::Generator;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/gpu")
}

/// An error that a case expects.
#[derive(Debug)]
struct Mark {
    line: u32,
    code: String,
    part: String,
}

fn marks(src: &str) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (i, line) in src.lines().enumerate() {
        for mark in line.split("// error[").skip(1) {
            let (code, part) = mark.split_once("]: ").unwrap_or((mark, ""));
            marks.push(Mark { line: i as u32 + 1, code: code.to_owned(), part: part.trim().to_owned() });
        }
    }
    marks
}

fn errors(src: &str) -> Vec<Diagnostic> {
    match parse_gpu(src) {
        Err(e) => e.0,
        Ok(kernel) => verify_gpu(&kernel).err().map(|e| e.0).unwrap_or_default(),
    }
}

/// What is wrong with a case; `None` if it behaves as its marks say.
fn check(src: &str) -> Result<(), String> {
    let mut expected = marks(src);
    let is_error_case = !expected.is_empty();
    for d in errors(src) {
        let fits = |m: &Mark| {
            m.code == d.code.to_string() && d.message.contains(&m.part) && (d.loc.line == 0 || d.loc.line == m.line)
        };
        match expected.iter().position(fits) {
            Some(at) => drop(expected.remove(at)),
            None => return Err(format!("nothing expects: {d}")),
        }
    }
    if !expected.is_empty() {
        return Err(format!("did not happen: {expected:?}"));
    }
    if !is_error_case {
        round_trip(&parse_gpu(src).map_err(|e| e.to_string())?)?;
    }
    Ok(())
}

/// Everything of a kernel except source locations. Ids are included, because the parser numbers in text order.
fn structure(k: &Kernel) -> String {
    let results: Vec<_> = k.insts.keys().map(|i| &k.results[i]).collect();
    let head = (&k.name, k.target, k.threads, k.cluster);
    let memory = (&k.buffers, &k.rings, &k.roles, &k.index_map, &k.coords);
    let forms: Vec<_> = k.insts.keys().map(|i| &k.access_kinds[i]).collect();
    let code = (&k.values, &k.insts, results, forms, &k.blocks);
    format!("{head:#?}{:#?}{memory:#?}{code:#?}", (&k.dims, &k.params, &k.tables))
}

fn round_trip(k: &Kernel) -> Result<(), String> {
    let text = k.to_string();
    let again = parse_gpu(&text).map_err(|e| format!("{e}\n{text}"))?;
    if structure(k) != structure(&again) {
        return Err(format!("another kernel came back from\n{text}"));
    }
    if again.to_string() != text {
        return Err(format!("other text came back from\n{text}\n{again}"));
    }
    Ok(())
}

fn read(name: &str) -> String {
    std::fs::read_to_string(cases().join(name)).expect("a case file")
}

#[test]
fn every_case_behaves_as_it_says() {
    let mut seen = 0;
    let mut failures = Vec::new();
    for entry in std::fs::read_dir(cases()).expect("the folder of cases") {
        let path = entry.expect("a case").path();
        if path.extension().is_some_and(|e| e == "gpu") {
            seen += 1;
            let src = std::fs::read_to_string(&path).expect("a case file");
            if let Err(e) = check(&src) {
                failures.push(format!("{}: {e}", path.display()));
            }
        }
    }
    assert!(seen > 20, "only {seen} cases");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The kernels of the cases without errors.
fn valid_cases() -> Vec<Kernel> {
    let files = std::fs::read_dir(cases()).expect("the folder of cases");
    let texts = files.map(|entry| std::fs::read_to_string(entry.expect("a case").path()).expect("a case file"));
    texts.filter(|text| marks(text).is_empty()).map(|text| parse_gpu(&text).expect("a case that parses")).collect()
}

#[test]
fn every_operation_is_in_a_case() {
    let cases = valid_cases();
    let found: BTreeSet<&str> = cases.iter().flat_map(|k| k.insts.values()).map(Op::name).collect();
    let missing: Vec<_> = Op::NAMES.iter().filter(|name| !found.contains(*name)).collect();
    assert!(missing.is_empty(), "no case of tests/cases/gpu without errors has {missing:?}");
}

/// The effects that each operation of a group may have, and those of which it has one at least.
fn effects_of_group(op: &Op) -> (Effects, Effects) {
    let global = Effects::READS_GLOBAL.and(Effects::WRITES_GLOBAL);
    let shared = Effects::READS_SHARED.and(Effects::WRITES_SHARED);
    let of_copies = global.and(shared).and(Effects::ASYNC).and(Effects::ENGINE);
    match op {
        gpu_ops!(sources elementwise views) => (Effects::NONE, Effects::NONE),
        gpu_ops!(fragments) => (Effects::CONVERGENT, Effects::NONE),
        gpu_ops!(global) => (of_copies, global),
        gpu_ops!(shared clusters) => (shared.and(Effects::CONVERGENT), shared),
        Op::WaitMma(..) => (Effects::ORDERS.and(Effects::CONVERGENT), Effects::ORDERS),
        gpu_ops!(products) => (Effects::READS_SHARED.and(Effects::ASYNC).and(Effects::CONVERGENT), Effects::ASYNC),
        gpu_ops!(rings orders) => (Effects::ORDERS.and(Effects::CONVERGENT), Effects::ORDERS),
        gpu_ops!(control) => (Effects::CONTROL.and(Effects::CONVERGENT), Effects::CONTROL),
    }
}

#[test]
fn effects_are_those_of_the_group() {
    for k in valid_cases() {
        for op in k.insts.values() {
            let (may, must) = effects_of_group(op);
            let has = op.effects();
            assert!(may.all(has), "{op:?} does more than its group");
            assert!(must == Effects::NONE || has.any(must), "{op:?} does less than its group");
            let (reads, writes) = (has.any(Effects::READS_SHARED), has.any(Effects::WRITES_SHARED));
            let mut buffers = false;
            op.mentions(&mut |mention| buffers |= matches!(mention, Mention::Buffer(_)));
            assert!(!buffers || reads || writes, "{op:?} names a buffer, and neither reads nor writes it");
        }
    }
}

#[test]
fn every_code_of_the_verifier_that_text_can_reach_has_a_case() {
    let header = include_str!("../src/gpu/verify.rs");
    let codes = header.lines().filter_map(|l| l.strip_prefix("//! | ")?.split(' ').next()?.parse::<u32>().ok());
    let mut all = String::new();
    for entry in std::fs::read_dir(cases()).expect("the folder of cases") {
        all += &std::fs::read_to_string(entry.expect("a case").path()).expect("a case file");
    }
    // Text cannot name what does not exist nor define a value twice; the rest is as in Tile IR.
    let unreachable = [401, 402, 403];
    for code in codes.filter(|c| !unreachable.contains(c)) {
        assert!(all.contains(&format!("error[ATL{code}]")), "no case expects ATL{code}");
    }
}

#[test]
fn the_runner_notices_a_case_that_lies() {
    let good = read("canonical.gpu");
    assert_eq!(check(&good), Ok(()));
    let unexpected = good.replace("lt %1, %2", "lt %1, %9");
    assert!(check(&unexpected).is_err_and(|e| e.contains("nothing expects")));
    let missing = good.replace("barrier", "barrier // error[ATL452]: in a role of one thread");
    assert!(check(&missing).is_err_and(|e| e.contains("did not happen")));
    let wrong_line = unexpected.replace("barrier", "barrier // error[ATL420]: operands of one type");
    assert!(check(&wrong_line).is_err_and(|e| e.contains("nothing expects")));
}

#[test]
fn canonical_text_prints_as_it_is() {
    let src = read("canonical.gpu");
    assert_eq!(parse_gpu(&src).expect("a kernel").to_string(), src);
}

/// Accumulators in the case files have the layouts of the atoms, or at least hold every element once.
#[test]
fn accumulators_of_cases_hold_every_element_once() {
    let mut made = 0;
    for name in
        ["gemm_sm80.gpu", "gemm_sm90a.gpu", "gemm_pingpong_sm90a.gpu", "newton_schulz_sm80.gpu", "attention_sm80.gpu"]
    {
        let k = parse_gpu(&read(name)).expect("a kernel");
        for data in k.values.values() {
            let Type::InFlight { layout, .. } = &data.ty else { continue };
            let (m, n) = (layout.shape[0], layout.shape[1]);
            let mut times = vec![0; (m * n) as usize];
            for thread in 0..layout.thread_count() {
                for reg in 0..layout.reg_count() {
                    let c = layout.coord(thread, reg);
                    times[(c[0] * n + c[1]) as usize] += 1;
                }
            }
            assert!(times.iter().all(|&t| t == 1), "{name}: {layout}");
            let (grid, warps) = (warp_grid_of(layout), layout.thread_count() / 32);
            made += u32::from(**layout == MmaAtom::M16N8K16Bf16.accumulator(m, n, grid, warps));
        }
    }
    assert!(made >= 6);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_kernels_come_back(seed: u64) {
        let kernel = Generator::new(seed).kernel();
        prop_assert_eq!(round_trip(&kernel), Ok(()));
        // Such kernels break rules; the verifier must say so and not fall over.
        let _ = verify_gpu(&kernel);
    }

    #[test]
    fn damaged_text_is_an_error_and_nothing_worse(pick: prop::sample::Index, at: prop::sample::Index, byte: u8, cut: bool) {
        let names = ["canonical.gpu", "gemm_sm90a.gpu", "newton_schulz_sm80.gpu", "attention_overlap_sm90a.gpu"];
        let mut bytes = read(names[pick.index(names.len())]).into_bytes();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(kernel) = parse_gpu(&text) {
            let _ = verify_gpu(&kernel);
            prop_assert_eq!(round_trip(&kernel), Ok(()));
        }
    }
}

#[test]
fn numbers_at_the_edge_do_not_overflow_the_verifier() {
    let src = read("newton_schulz_sm80.gpu");
    let digits = |s: &str| s.starts_with(|c: char| c.is_ascii_digit());
    for (at, _) in src.char_indices().filter(|&(i, _)| digits(&src[i..]) && !digits(&src[i - 1..])) {
        let end = at + src[at..].find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
        for number in ["0", "4294967295", "65536"] {
            let text = format!("{}{number}{}", &src[..at], &src[end..]);
            if let Ok(kernel) = parse_gpu(&text) {
                let _ = verify_gpu(&kernel);
            }
        }
    }
}

/// The results of the passes verify and read back.
#[test]
fn lowered_kernels_come_back() {
    let mut kernels = 0;
    for entry in std::fs::read_dir(cases().join("../tile")).expect("the folder of cases") {
        let path = entry.expect("a case").path();
        let src = std::fs::read_to_string(&path).expect("a case file");
        let Ok(tile) = atlas_dsl::parse_kernel(&src).and_then(atlas_dsl::verify) else { continue };
        for (warps, stages) in [(4, 1), (4, 2), (8, 3)] {
            for target in Target::all().into_iter().chain(Target::specific().take(1)) {
                let watch = |pass: &str, k: &Kernel| {
                    kernels += 1;
                    assert_eq!(verify_gpu(k), Ok(()), "{} after {pass}", path.display());
                    let text = k.to_string();
                    let again =
                        parse_gpu(&text).unwrap_or_else(|e| panic!("{} after {pass}: {e}\n{text}", path.display()));
                    assert_eq!(again.to_string(), text, "{} after {pass}", path.display());
                };
                let schedule = Schedule { stages, warps, ..Schedule::default() };
                if let Err(e) = pipeline::run(&tile, &schedule, target, watch) {
                    assert!(e.is_refusal(), "{} {schedule:?} {target}: {e}", path.display());
                }
            }
        }
    }
    assert!(kernels > 0);
}

/// A code, and a change of a kernel (at a block and its first instruction) that provokes it.
type Break = (&'static str, fn(&mut Kernel, Block, Inst));

/// Faults that text cannot express: ids that name nothing, values with two definitions, bodies in two places.
#[test]
fn broken_graphs_are_reported_and_still_print() {
    let codes = |k: &Kernel| -> Vec<String> {
        assert!(!k.to_string().is_empty());
        verify_gpu(k).err().map(|e| e.0.iter().map(|d| d.code.to_string()).collect()).unwrap_or_default()
    };
    let good = parse_gpu(&read("canonical.gpu")).expect("a kernel");
    assert_eq!(codes(&good), [""; 0]);
    let body = good.roles.values().next().expect("a role").body;
    let first = good.blocks[body].insts[0];
    let breaks: [Break; 5] = [
        ("ATL401", |k, _, i| k.insts[i] = Op::Drain(Ring::new(9))),
        ("ATL401", |k, _, i| k.insts[i] = Op::Cast(Value::new(999))),
        ("ATL402", |k, b, _| k.values[k.coords[0]].def = ValueDef::BlockParam(b, 0)),
        ("ATL403", |k, b, i| k.blocks[b].insts.push(i)),
        ("ATL403", |k, b, i| k.insts[i] = Op::Programs(b)),
    ];
    for (wanted, change) in breaks {
        let mut k = good.clone();
        change(&mut k, body, first);
        assert!(codes(&k).first().is_some_and(|code| code == wanted), "{wanted}: {:?}", codes(&k));
    }
}

#[test]
fn deep_nesting_is_refused() {
    let open = "if %c {\n".repeat(100);
    let close = "}\n".repeat(100);
    let src = format!(
        "gpu @deep sm_80 threads 32 ()\ndims N: ?1\nprograms (%n) = linear (N)\nrole all scope cta {{\n%c: bool = const 1.0\n{open}{close}}}\n"
    );
    assert!(errors(&src).iter().any(|d| d.code.to_string() == "ATL006"));
}
