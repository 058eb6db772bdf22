//! Which targets have which instructions, and which version of PTX knows them.

use super::cursor::Cursor;
use crate::fault::{Fault, Result};
use crate::syntax::ast::{Function, Instruction, Module, Operand};

/// The targets that have an instruction.
#[derive(Clone, Copy, Debug)]
enum Has {
    /// This capability and later ones.
    From(u32),
    /// The targets of these capabilities alone: `sm_90a`, from 100 on also those of their families, `sm_100f`.
    Only(&'static [u32]),
}

/// Instructions that some targets lack.
#[derive(Debug)]
struct Requirement {
    /// Dotted words that all have to be in the instruction: `shared::cluster`. The first ones are at its beginning: `cp.async`.
    words: &'static [&'static str],
    has: Has,
    /// The first version of PTX that knows the instruction.
    version: (u32, u32),
}

const fn row(words: &'static [&'static str], has: Has, version: (u32, u32)) -> Requirement {
    Requirement { words, has, version }
}

use Has::{From, Only};

/// The target notes of instructions in PTX ISA 9.0, as ptxas 13.0 keeps them. An instruction needs all the rows that it matches.
const ROWS: &[Requirement] = &[
    // Copies.
    row(&["cp.async"], From(80), (7, 0)),
    row(&["cp.async", "L2::cache_hint"], From(80), (7, 4)),
    row(&["cp.async", "L2::64B"], From(80), (7, 4)),
    row(&["cp.async", "L2::128B"], From(80), (7, 4)),
    row(&["cp.async", "L2::256B"], From(80), (7, 4)),
    row(&["cp.async.bulk"], From(90), (8, 0)),
    row(&["cp.reduce.async.bulk"], From(90), (8, 0)),
    row(&["cp.async.bulk", "shared::cta.global"], From(90), (8, 6)),
    row(&["cp", "cta_group::1"], Only(&[100, 101, 103, 110]), (8, 6)),
    row(&["prefetch.tensormap"], From(90), (8, 0)),
    row(&["prefetch.param.tensormap"], From(90), (8, 0)),
    row(&["prefetch.const.tensormap"], From(90), (8, 0)),
    // Products.
    row(&["mma"], From(70), (6, 4)),
    row(&["mma", "m8n8k16"], From(75), (6, 5)),
    row(&["mma", "m16n8k4"], From(80), (7, 0)),
    row(&["mma", "m16n8k8"], From(75), (6, 5)),
    row(&["mma", "m16n8k16"], From(80), (7, 0)),
    row(&["mma", "m16n8k32"], From(80), (7, 0)),
    row(&["mma", "bf16"], From(80), (7, 0)),
    row(&["mma", "tf32"], From(80), (7, 0)),
    row(&["mma", "f64"], From(80), (7, 0)),
    row(&["mma", "m16n8k4", "f64"], From(90), (7, 8)),
    row(&["mma", "m16n8k8", "f64"], From(90), (7, 8)),
    row(&["mma", "m16n8k16", "f64"], From(90), (7, 8)),
    row(&["mma", "e4m3"], From(89), (8, 4)),
    row(&["mma", "e5m2"], From(89), (8, 4)),
    row(&["mma", "row.col.f16.e4m3"], From(89), (8, 7)),
    row(&["mma", "row.col.f16.e5m2"], From(89), (8, 7)),
    row(&["mma", "m16n8k16", "e4m3"], From(89), (8, 7)),
    row(&["mma", "m16n8k16", "e5m2"], From(89), (8, 7)),
    row(&["wgmma"], Only(&[90]), (8, 0)),
    row(&["ldmatrix"], From(75), (6, 5)),
    row(&["ldmatrix", "shared::cta"], From(75), (7, 8)),
    row(&["stmatrix"], From(90), (7, 8)),
    row(&["movmatrix"], From(75), (7, 8)),
    row(&["setmaxnreg"], Only(&[90, 100, 101, 103, 110, 120, 121]), (8, 0)),
    // Barriers and fences.
    row(&["mbarrier"], From(80), (7, 0)),
    row(&["mbarrier", "shared::cta"], From(80), (7, 8)),
    row(&["mbarrier.arrive", "release"], From(80), (8, 0)),
    row(&["mbarrier.arrive", "relaxed"], From(90), (8, 6)),
    row(&["mbarrier.test_wait.parity"], From(80), (7, 1)),
    row(&["mbarrier.try_wait"], From(90), (7, 8)),
    row(&["mbarrier.try_wait", "acquire"], From(90), (8, 0)),
    row(&["mbarrier.try_wait", "relaxed"], From(90), (8, 6)),
    row(&["mbarrier", "expect_tx"], From(90), (8, 0)),
    row(&["mbarrier.complete_tx"], From(90), (8, 0)),
    row(&["mbarrier", "cluster"], From(90), (8, 0)),
    row(&["mbarrier", "shared::cluster"], From(90), (8, 0)),
    row(&["fence"], From(70), (6, 0)),
    row(&["fence", "cluster"], From(90), (7, 8)),
    row(&["fence.mbarrier_init"], From(90), (8, 0)),
    row(&["fence.proxy"], From(70), (7, 5)),
    row(&["fence.proxy.async"], From(90), (8, 0)),
    row(&["fence.proxy.tensormap::generic"], From(90), (8, 3)),
    row(&["membar.proxy"], From(70), (7, 5)),
    row(&["barrier.cta"], From(70), (7, 8)),
    row(&["barrier.cluster"], From(90), (7, 8)),
    row(&["barrier.cluster", "release"], From(90), (8, 0)),
    row(&["barrier.cluster", "relaxed"], From(90), (8, 0)),
    row(&["barrier.cluster", "acquire"], From(90), (8, 0)),
    row(&["griddepcontrol"], From(90), (7, 8)),
    row(&["nanosleep"], From(70), (6, 3)),
    // Lanes of a warp.
    row(&["match"], From(70), (6, 0)),
    row(&["redux"], From(80), (7, 0)),
    row(&["elect"], From(90), (8, 0)),
    // Memory.
    row(&["mapa"], From(90), (7, 8)),
    row(&["cvta", "shared::cluster"], From(90), (7, 8)),
    row(&["isspacep", "shared::cluster"], From(90), (7, 8)),
    row(&["ld", "cluster"], From(90), (7, 8)),
    row(&["ld", "shared::cluster"], From(90), (7, 8)),
    row(&["ld", "shared::cta"], From(70), (7, 8)),
    row(&["ld", "L1::no_allocate"], From(70), (7, 4)),
    row(&["ld", "L1::evict_first"], From(70), (7, 4)),
    row(&["ld", "L1::evict_last"], From(70), (7, 4)),
    row(&["ld", "L2::64B"], From(75), (7, 4)),
    row(&["ld", "L2::128B"], From(75), (7, 4)),
    row(&["ld", "L2::256B"], From(80), (7, 4)),
    row(&["ld", "v8"], From(100), (8, 8)),
    row(&["ld", "v4.b64"], From(100), (8, 8)),
    row(&["ld", "L2::cache_hint"], From(80), (7, 4)),
    row(&["st", "cluster"], From(90), (7, 8)),
    row(&["st", "shared::cluster"], From(90), (7, 8)),
    row(&["st", "shared::cta"], From(70), (7, 8)),
    row(&["st", "L1::no_allocate"], From(70), (7, 4)),
    row(&["st", "L1::evict_first"], From(70), (7, 4)),
    row(&["st", "L1::evict_last"], From(70), (7, 4)),
    row(&["st", "v8"], From(100), (8, 8)),
    row(&["st", "v4.b64"], From(100), (8, 8)),
    row(&["st", "L2::cache_hint"], From(80), (7, 4)),
    row(&["atom", "cluster"], From(90), (7, 8)),
    row(&["atom", "shared::cluster"], From(90), (7, 8)),
    row(&["atom", "shared::cta"], From(70), (7, 8)),
    row(&["atom", "bf16"], From(90), (7, 8)),
    row(&["atom", "bf16x2"], From(90), (7, 8)),
    row(&["atom", "v2"], From(90), (8, 1)),
    row(&["atom", "v4"], From(90), (8, 1)),
    row(&["red", "cluster"], From(90), (7, 8)),
    row(&["red", "shared::cluster"], From(90), (7, 8)),
    row(&["red", "shared::cta"], From(70), (7, 8)),
    row(&["red", "bf16"], From(90), (7, 8)),
    row(&["red", "bf16x2"], From(90), (7, 8)),
    row(&["red", "v2"], From(90), (8, 1)),
    row(&["red", "v4"], From(90), (8, 1)),
    row(&["createpolicy"], From(80), (7, 4)),
    row(&["applypriority"], From(80), (7, 4)),
    row(&["discard"], From(80), (7, 4)),
    // Arithmetic.
    row(&["fma", "f32x2"], From(100), (8, 6)),
    row(&["add", "f32x2"], From(100), (8, 6)),
    row(&["sub", "f32x2"], From(100), (8, 6)),
    row(&["mul", "f32x2"], From(100), (8, 6)),
    row(&["fma", "f32.f16"], From(100), (8, 6)),
    row(&["fma", "f32.bf16"], From(100), (8, 6)),
    row(&["add", "f32.f16"], From(100), (8, 6)),
    row(&["add", "f32.bf16"], From(100), (8, 6)),
    row(&["sub", "f32.f16"], From(100), (8, 6)),
    row(&["sub", "f32.bf16"], From(100), (8, 6)),
    row(&["fma", "relu"], From(80), (7, 0)),
    row(&["fma", "bf16"], From(80), (7, 0)),
    row(&["fma", "bf16x2"], From(80), (7, 0)),
    row(&["add", "bf16"], From(90), (7, 8)),
    row(&["add", "bf16x2"], From(90), (7, 8)),
    row(&["sub", "bf16"], From(90), (7, 8)),
    row(&["sub", "bf16x2"], From(90), (7, 8)),
    row(&["mul", "bf16"], From(90), (7, 8)),
    row(&["mul", "bf16x2"], From(90), (7, 8)),
    row(&["setp", "bf16"], From(90), (7, 8)),
    row(&["min", "f16"], From(80), (7, 0)),
    row(&["min", "f16x2"], From(80), (7, 0)),
    row(&["min", "bf16"], From(80), (7, 0)),
    row(&["min", "bf16x2"], From(80), (7, 0)),
    row(&["min", "NaN"], From(80), (7, 0)),
    row(&["min", "xorsign"], From(86), (7, 2)),
    row(&["max", "f16"], From(80), (7, 0)),
    row(&["max", "f16x2"], From(80), (7, 0)),
    row(&["max", "bf16"], From(80), (7, 0)),
    row(&["max", "bf16x2"], From(80), (7, 0)),
    row(&["max", "NaN"], From(80), (7, 0)),
    row(&["max", "xorsign"], From(86), (7, 2)),
    row(&["abs", "bf16"], From(80), (7, 0)),
    row(&["abs", "bf16x2"], From(80), (7, 0)),
    row(&["neg", "bf16"], From(80), (7, 0)),
    row(&["neg", "bf16x2"], From(80), (7, 0)),
    row(&["tanh"], From(75), (7, 0)),
    row(&["tanh", "bf16"], From(90), (7, 8)),
    row(&["tanh", "bf16x2"], From(90), (7, 8)),
    row(&["ex2", "f16"], From(75), (7, 0)),
    row(&["ex2", "f16x2"], From(75), (7, 0)),
    row(&["ex2", "bf16"], From(90), (7, 8)),
    row(&["ex2", "bf16x2"], From(90), (7, 8)),
    row(&["cvt", "bf16x2.f32"], From(80), (7, 0)),
    row(&["cvt", "bf16.f32"], From(80), (7, 0)),
    row(&["cvt", "f16x2.f32"], From(80), (7, 0)),
    row(&["cvt", "f32.bf16"], From(80), (7, 1)),
    row(&["cvt", "bf16.f16"], From(90), (7, 8)),
    row(&["cvt", "f16.bf16"], From(90), (7, 8)),
    row(&["cvt", "bf16.f64"], From(90), (7, 8)),
    row(&["cvt", "f64.bf16"], From(90), (7, 8)),
    row(&["cvt", "bf16.s8"], From(90), (7, 8)),
    row(&["cvt", "s8.bf16"], From(90), (7, 8)),
    row(&["cvt", "bf16.u8"], From(90), (7, 8)),
    row(&["cvt", "u8.bf16"], From(90), (7, 8)),
    row(&["cvt", "bf16.s16"], From(90), (7, 8)),
    row(&["cvt", "s16.bf16"], From(90), (7, 8)),
    row(&["cvt", "bf16.u16"], From(90), (7, 8)),
    row(&["cvt", "u16.bf16"], From(90), (7, 8)),
    row(&["cvt", "bf16.s32"], From(90), (7, 8)),
    row(&["cvt", "s32.bf16"], From(90), (7, 8)),
    row(&["cvt", "bf16.u32"], From(90), (7, 8)),
    row(&["cvt", "u32.bf16"], From(90), (7, 8)),
    row(&["cvt", "bf16.s64"], From(90), (7, 8)),
    row(&["cvt", "s64.bf16"], From(90), (7, 8)),
    row(&["cvt", "bf16.u64"], From(90), (7, 8)),
    row(&["cvt", "u64.bf16"], From(90), (7, 8)),
    row(&["cvt", "tf32"], From(80), (7, 0)),
    row(&["cvt.rn", "tf32"], From(90), (7, 8)),
    row(&["cvt.rz", "tf32"], From(90), (7, 8)),
    row(&["cvt.rna", "satfinite.tf32"], From(80), (8, 1)),
    row(&["szext"], From(70), (7, 6)),
    row(&["bmsk"], From(70), (7, 6)),
    row(&["cvt", "e4m3x2"], From(89), (7, 8)),
    row(&["cvt", "e5m2x2"], From(89), (7, 8)),
];

/// Directives of entries that some targets lack.
const DIRECTIVES: &[Requirement] = &[
    row(&["reqnctapercluster"], From(90), (7, 8)),
    row(&["explicitcluster"], From(90), (7, 8)),
    row(&["maxclusterrank"], From(90), (7, 8)),
];

/// Special registers of clusters.
const CLUSTER: Requirement = row(&["%cluster"], From(90), (7, 8));

/// An arrival of a number of threads at once.
const COUNT: Requirement = row(&["mbarrier.arrive"], From(90), (7, 8));

/// A conversion of two floats of 8 bits on sm_89, which PTX knows later than on sm_90.
const PAIRS_ON_ADA: Requirement = row(&["cvt"], From(89), (8, 1));

/// The first versions of PTX that know a target, by its capability.
const TARGETS: &[(u32, (u32, u32))] = &[
    (70, (6, 0)),
    (72, (6, 1)),
    (75, (6, 3)),
    (80, (7, 0)),
    (86, (7, 1)),
    (87, (7, 4)),
    (88, (9, 0)),
    (89, (7, 8)),
    (90, (7, 8)),
    (100, (8, 6)),
    (101, (8, 6)),
    (103, (8, 8)),
    (110, (9, 0)),
    (120, (8, 7)),
    (121, (8, 8)),
];

/// What code for a target may say, in a version of PTX.
#[derive(Clone, Debug)]
pub(super) struct InstructionSet {
    name: String,
    /// 90 for `sm_90a`.
    capability: u32,
    /// The letter after the number: `a` for one capability alone, `f` for a family.
    suffix: Option<char>,
    version: (u32, u32),
}

impl InstructionSet {
    /// The target of a module, which its version of PTX has to know.
    pub(super) fn new(module: &Module) -> Result<InstructionSet> {
        let name = module.target.clone();
        let number = name.strip_prefix("sm_").unwrap_or_default();
        let suffix = number.chars().last().filter(|c| !c.is_ascii_digit());
        let capability = number.trim_end_matches(char::is_alphabetic).parse().unwrap_or(0);
        let target = InstructionSet { name, capability, suffix, version: module.version };
        let known = TARGETS.iter().find(|row| row.0 == capability).map(|row| row.1);
        // Targets of one capability came with PTX 8.0, those of a family with 8.8.
        let least = known.map(|known| match suffix {
            Some('a') => known.max((8, 0)),
            Some(_) => known.max((8, 8)),
            None => known,
        });
        match least {
            Some((major, minor)) if target.version < (major, minor) => {
                let (has_major, has_minor) = target.version;
                let message = format!(
                    "`.target {}` is known from PTX {major}.{minor} on, and this is {has_major}.{has_minor}",
                    target.name
                );
                Err(Fault::new(crate::fault::FaultKind::Syntax, message))
            }
            _ => Ok(target),
        }
    }

    /// Refuses an instruction that the target or the version of PTX lacks.
    pub(super) fn check(&self, ins: &Instruction, c: &Cursor<'_>) -> Result<()> {
        let text = c.text();
        let rows = ROWS.iter().filter(|row| {
            let (first, others) = row.words.split_first().unwrap_or((&"", &[]));
            begins(&text, first) && others.iter().all(|words| has_words(&text, words))
        });
        let cluster = ins.operands.iter().any(names_cluster).then_some(&CLUSTER);
        let plain = !has_words(&text, "noComplete") && !has_words(&text, "expect_tx");
        let count = (begins(&text, "mbarrier.arrive") && plain && ins.operands.len() > 2).then_some(&COUNT);
        let pairs = ["e4m3x2", "e5m2x2"].iter().any(|pair| has_words(&text, pair));
        let ada = (self.capability == 89 && begins(&text, "cvt") && pairs).then_some(&PAIRS_ON_ADA);
        { rows }.chain(cluster).chain(count).chain(ada).try_for_each(|row| self.allow(row, ins.line, &text))
    }

    /// Refuses directives of an entry that the target lacks.
    pub(super) fn check_entry(&self, entry: &Function) -> Result<()> {
        entry.directives.iter().try_for_each(|(name, _)| {
            let rows = DIRECTIVES.iter().filter(|row| row.words.contains(&name.as_str()));
            { rows }.try_for_each(|row| self.allow(row, entry.line, &format!(".{name}")))
        })
    }

    fn allow(&self, row: &Requirement, line: u32, text: &str) -> Result<()> {
        let has = match row.has {
            From(least) => self.capability >= least,
            Only(capabilities) => {
                let family = self.suffix == Some('f') && self.capability >= 100;
                let alone = self.suffix == Some('a') || family;
                alone && capabilities.contains(&self.capability)
            }
        };
        if !has {
            let who = match row.has {
                From(least) => format!("sm_{least} and later have it"),
                Only(capabilities) => {
                    let names: Vec<String> = capabilities.iter().map(|n| format!("sm_{n}a")).collect();
                    format!("only {} have it", names.join(", "))
                }
            };
            return Err(Fault::syntax(line, format!("`{text}`: target {} lacks it; {who}", self.name)));
        }
        if self.version < row.version {
            let ((major, minor), (from_major, from_minor)) = (self.version, row.version);
            let message = format!("`{text}`: PTX {major}.{minor} does not know it; {from_major}.{from_minor} does");
            return Err(Fault::syntax(line, message));
        }
        Ok(())
    }
}

/// True if the text of an instruction begins with these dotted words.
fn begins(text: &str, words: &str) -> bool {
    text.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// True if they are anywhere in it.
fn has_words(text: &str, words: &str) -> bool {
    let rests = text.match_indices('.').filter_map(|(at, _)| text.get(at + 1..));
    { rests }.any(|rest| begins(rest, words))
}

fn names_cluster(operand: &Operand) -> bool {
    let starts = |name: &str| ["%cluster", "%nclusterid", "%is_explicit_cluster"].iter().any(|p| name.starts_with(p));
    matches!(operand, Operand::Name(name) if starts(name))
}
