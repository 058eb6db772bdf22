//! Compiled kernels against the interpreter in a finite ring, where the order of a sum has no effect on the bits. A
//! lost, doubled or misplaced term is therefore exactly wrong, whatever the tolerance.

use crate::kernels::{
    Bits, CASES, ELEMENTS, Executed, SPLIT_ELEMENTS, Sizes, build, case, case_names, exact_case, product_targets,
    shipped, target,
};
use atlas_codegen::{AbiParam, KernelImage, compile};
use atlas_dsl::config::Copies;
use atlas_dsl::ir::{Access, DimSize, ParamKind};
use atlas_dsl::{DType, Kernel, Schedule, Verified, registry};
use atlas_ops::{Problem, cases};
use atlas_runtime::{BoundMap, SimScratch, programs};
use atlas_sim::alu::Arithmetic;
use atlas_sim::launch::{Launch, Options};
use atlas_sim::memory::{Global, Permission};
use atlas_sim::program::Program;
use atlas_sim::{decode, launch, syntax};
use atlas_tile_interp::{Arg, Mode, Scalar, TensorView, TensorViewMut, check_ring, run};
use std::collections::HashMap;

impl Bits {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.next().to_le_bytes()).flatten().take(count).collect()
    }
}

/// A kernel at some sizes, with random bits in all arguments except those of i32, which are small.
pub(crate) struct ExactTrial<'k> {
    kernel: &'k Verified<Kernel>,
    pub(crate) dims: Vec<u64>,
    /// The bytes of each argument, including scalars.
    args: Vec<Vec<u8>>,
}

impl ExactTrial<'_> {
    pub(crate) fn new<'k>(kernel: &'k Verified<Kernel>, sizes: &[(&str, u64)]) -> ExactTrial<'k> {
        let size = |name: &str| sizes.iter().find(|(n, _)| *n == name).map_or(1, |(_, size)| *size);
        let of_dim = |d: &atlas_dsl::ir::DimData| match d.size {
            DimSize::Const(n) => n,
            DimSize::Dynamic { .. } => size(&d.name),
        };
        let dims: Vec<u64> = kernel.dims.values().map(of_dim).collect();
        let mut bits = Bits(kernel.to_string().len() as u64);
        let mut args = Vec::new();
        for param in kernel.params.values() {
            let (dtype, count) = match &param.kind {
                ParamKind::Scalar { dtype } => (*dtype, 1),
                ParamKind::Tensor { dtype, dims: of, .. } => {
                    (*dtype, of.iter().map(|d| dims[d.as_u32() as usize] as usize).product::<usize>())
                }
            };
            // A whole number is a count or an index, so it is small.
            args.push(match dtype {
                DType::I32 => (0..count).flat_map(|i| (3 + i as i32 % 5).to_le_bytes()).collect(),
                _ => bits.bytes(count * dtype.bytes() as usize),
            });
        }
        ExactTrial { kernel, dims, args }
    }

    fn shape(&self, param: usize) -> Option<(DType, Vec<u64>, Access)> {
        match &self.kernel.params.values().nth(param)?.kind {
            ParamKind::Scalar { .. } => None,
            ParamKind::Tensor { dtype, dims, access, .. } => {
                Some((*dtype, dims.iter().map(|d| self.dims[d.as_u32() as usize]).collect(), *access))
            }
        }
    }

    fn bits(&self, param: usize) -> u64 {
        self.args[param].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// The content of the arguments afterwards, by the interpreter.
    pub(crate) fn reference(&self) -> Result<Vec<Vec<u8>>, String> {
        let mut after = self.args.clone();
        let mut args = Vec::new();
        for (i, bytes) in after.iter_mut().enumerate() {
            args.push(match self.shape(i) {
                None => Arg::Scalar(match self.kernel.params.values().nth(i).map(|p| &p.kind) {
                    Some(ParamKind::Scalar { dtype: DType::I32 }) => Scalar::I32(self.bits(i) as i32),
                    _ => Scalar::F32(f32::from_bits(self.bits(i) as u32)),
                }),
                Some((dtype, dims, Access::In)) => {
                    Arg::In(TensorView::contiguous(dtype, bytes, &dims).map_err(|e| e.to_string())?)
                }
                Some((dtype, dims, Access::Out)) => {
                    Arg::Out(TensorViewMut::contiguous(dtype, bytes, &dims).map_err(|e| e.to_string())?)
                }
            });
        }
        run(self.kernel, &self.dims, args, Mode::Ring).map_err(|e| e.to_string())?;
        Ok(after)
    }

    /// The value of a parameter of the `.entry`.
    fn value(&self, image: &KernelImage, param: AbiParam, addresses: &[u64], dims: &[u64]) -> u64 {
        match param {
            AbiParam::TensorMap(_) | AbiParam::Arrivals | AbiParam::Partials => 0,
            AbiParam::Ptr(p) => addresses[p.as_u32() as usize],
            AbiParam::Scalar(p) => self.bits(p.as_u32() as usize),
            AbiParam::Dim(d) => dims[d.as_u32() as usize],
            AbiParam::GridCount(axis) => image.grid[usize::from(axis)].count(&self.dims),
            AbiParam::Stride(p, axis) => {
                let shape = self.shape(p.as_u32() as usize).map_or(Vec::new(), |(_, shape, _)| shape);
                shape[usize::from(axis) + 1..].iter().product()
            }
        }
    }

    /// A tensor map as the simulator encodes it.
    fn map(&self, image: &KernelImage, n: u8, addresses: &[u64]) -> [u8; 128] {
        let map = &image.maps[usize::from(n)];
        let at = map.param.as_u32() as usize;
        let (dtype, shape, _) = self.shape(at).expect("a map of a tensor");
        let strides: Vec<i64> = (1..=shape.len()).map(|axis| shape[axis..].iter().product::<u64>() as i64).collect();
        BoundMap::new(map, dtype, &shape, &strides).expect("a tensor that the engine takes").simulated(addresses[at])
    }

    /// The content of the arguments afterwards, by the simulator. `dims` are the sizes that the kernel gets.
    pub(crate) fn simulate(&self, image: &KernelImage, dims: &[u64]) -> Result<Vec<Vec<u8>>, String> {
        let program = read(image)?;
        let mut memory = Global::new();
        let place = |(i, bytes): (usize, &Vec<u8>)| {
            let is_read = matches!(self.shape(i), Some((_, _, Access::In)));
            memory.alloc(bytes.clone(), if is_read { Permission::ReadOnly } else { Permission::ReadWrite })
        };
        let addresses: Vec<u64> = self.args.iter().enumerate().map(place).collect();
        let ctas = image.ctas(programs(&image.grid, &self.dims), None) as u32;
        let scratch = SimScratch::new(&mut memory, image, ctas).map_err(|e| e.to_string())?;
        let mut params = vec![0; program.param_bytes as usize];
        for (slot, &param) in program.params.iter().zip(&image.params) {
            if let AbiParam::TensorMap(n) = param {
                params[slot.offset as usize..][..128].copy_from_slice(&self.map(image, n, &addresses));
                continue;
            }
            let bits = match param {
                AbiParam::Arrivals => scratch.addresses().arrivals,
                AbiParam::Partials => scratch.addresses().partials,
                _ => self.value(image, param, &addresses, dims),
            };
            let bits = bits.to_le_bytes();
            params[slot.offset as usize..][..slot.bytes as usize].copy_from_slice(&bits[..slot.bytes as usize]);
        }
        let launch = Launch {
            program: &program,
            grid: [ctas, 1, 1],
            block: [image.threads, 1, 1],
            cluster: None,
            shared_bytes: image.shared_bytes,
            params: &params,
        };
        launch::run(&launch, &mut memory, &Options::default()).map_err(|e| e.to_string())?;
        scratch.end(&mut memory).map_err(|e| e.to_string())?;
        let after = addresses.iter().zip(&self.args).map(|(&at, bytes)| memory.read(at, bytes.len() as u64));
        after.map(|bytes| bytes.map(<[u8]>::to_vec).map_err(|e| e.to_string())).collect()
    }
}

/// The program of a kernel, in exact arithmetic.
fn read(image: &KernelImage) -> Result<Program, String> {
    let module = syntax::parse(&image.ptx).map_err(|e| e.to_string())?;
    decode::compile(&module, Some(&image.entry), Arithmetic::Exact).map_err(|e| e.to_string())
}

/// Kernels by text, schedule and target, each compiled once, whatever the sizes are; `None` where the config is refused.
#[derive(Default)]
struct Compiled(HashMap<(String, Schedule, &'static str), Option<KernelImage>>);

impl Compiled {
    /// A kernel in one schedule for one target. `text` is the kernel's.
    fn image(
        &mut self,
        text: &str,
        kernel: &Verified<Kernel>,
        schedule: Schedule,
        arch: &'static str,
    ) -> Option<&KernelImage> {
        let compiled = || match compile(kernel, &schedule, target(arch)) {
            Ok(image) => Some(image),
            Err(e) if e.is_refusal() => None,
            Err(e) => panic!("{}: {e}", kernel.name),
        };
        self.0.entry((text.to_owned(), schedule, arch)).or_insert_with(compiled).as_ref()
    }
}

/// Stages and warps.
const SCHEDULES: [(u32, u32); 5] = [(1, 4), (2, 1), (2, 4), (3, 2), (4, 8)];

/// Lists the differences from the reference in each schedule on each target. Counts the runs.
fn disagreements(
    name: &str,
    kernel: &Verified<Kernel>,
    sizes: &[(&str, u64)],
    schedules: &[(u32, u32)],
    compiled: &mut Compiled,
    ran: &mut usize,
) -> Vec<String> {
    let trial = ExactTrial::new(kernel, sizes);
    let text = kernel.to_string();
    let expected = trial.reference().unwrap_or_else(|e| panic!("{name}: {e}"));
    let (mut wrong, mut executed) = (Vec::new(), Executed::default());
    for &(stages, warps) in schedules {
        for (arch, copies) in product_targets(kernel).into_iter().flat_map(by_threads_and_engine) {
            let schedule = Schedule { stages, warps, copies, stores: copies, ..Schedule::default() };
            let Some(image) = compiled.image(&text, kernel, schedule, arch) else { continue };
            *ran += 1;
            if executed.has((), image) {
                read(image).unwrap_or_else(|e| panic!("{name} {arch} {schedule}: {e}"));
                continue;
            }
            let at = format!("{name} {sizes:?} {arch} {schedule}");
            match trial.simulate(image, &trial.dims) {
                Err(fault) => wrong.push(format!("{at}: {fault}")),
                Ok(found) if found != expected => wrong.push(format!("{at}: {} bytes", differing(&found, &expected))),
                Ok(_) => {}
            }
        }
    }
    wrong
}

/// A target, and on one whose products the copy engine can serve, both ways to copy their operands.
fn by_threads_and_engine(arch: &str) -> Vec<(&str, Option<Copies>)> {
    if arch != "sm_90a" {
        return vec![(arch, None)];
    }
    [Copies::Threads, Copies::Engine].map(|copies| (arch, Some(copies))).to_vec()
}

fn differing(found: &[Vec<u8>], expected: &[Vec<u8>]) -> usize {
    let pairs = found.iter().flatten().zip(expected.iter().flatten());
    pairs.filter(|(a, b)| a != b).count()
}

#[track_caller]
fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn products_and_sums_are_exact() {
    let (mut wrong, mut ran, mut refused, mut compiled) = (Vec::new(), 0, Vec::new(), Compiled::default());
    for (name, sizes) in CASES {
        for element in ELEMENTS {
            let kernel = exact_case(name, element);
            if check_ring(&kernel).is_err() {
                refused.push((name, element));
                continue;
            }
            for sizes in sizes {
                wrong.extend(disagreements(
                    &format!("{name} {element}"),
                    &kernel,
                    sizes,
                    &SCHEDULES,
                    &mut compiled,
                    &mut ran,
                ));
            }
        }
    }
    none(&wrong);
    assert_eq!(refused, [("elementwise", "bf16")]);
    assert!(ran > 200, "{ran}");
}

/// The compiler's case files that are meaningful in the ring, selected by a rule and not by name.
#[test]
fn case_files_are_exact() {
    let (mut wrong, mut ran, mut names, mut compiled) = (Vec::new(), 0, Vec::new(), Compiled::default());
    for name in case_names() {
        let kernel = case(&name);
        if check_ring(&kernel).is_ok() {
            let sizes = [("M", 136), ("N", 48), ("K", 200)];
            wrong.extend(disagreements(&name, &kernel, &sizes, &SCHEDULES, &mut compiled, &mut ran));
            names.push(name);
        }
    }
    none(&wrong);
    assert!(["gemm", "gemm_tf32"].iter().all(|n| names.iter().any(|name| name == n)), "{names:?}");
    assert!(ran >= 10, "{ran}");
}

/// The shipped kernels that are meaningful in the ring, selected by a rule and not by name. Their sizes take two schedules each,
/// in turn, so that three sizes take all.
#[test]
fn shipped_kernels_are_exact() {
    let (mut wrong, mut ran, mut names, mut compiled) = (Vec::new(), 0, Vec::new(), Compiled::default());
    let verified = cases::verification();
    let smallest = |kernel: &str, dtype| {
        let all = verified.iter().filter(|p| p.kernel.name == kernel && p.dtype == dtype && !p.dims.contains(&0));
        let mut all: Vec<Problem> = all.cloned().collect();
        let points = |p: &Problem| p.dims.iter().map(|&dim| dim as f64).product::<f64>();
        all.sort_by(|a, b| points(a).total_cmp(&points(b)));
        all.truncate(3);
        all
    };
    for def in registry() {
        let mut first = 0;
        for dtype in cases::DTYPES {
            for p in smallest(def.name, dtype) {
                let kernel = build(&p, &p.kernel.default_config());
                if check_ring(&kernel).is_err() {
                    continue;
                }
                let sizes: Vec<(&str, u64)> =
                    p.kernel.dims.iter().map(|d| d.name).zip(p.dims.iter().copied()).collect();
                let in_turn = [first, first + 1].map(|turn| SCHEDULES[turn % SCHEDULES.len()]);
                first += in_turn.len();
                wrong.extend(disagreements(&p.to_string(), &kernel, &sizes, &in_turn, &mut compiled, &mut ran));
                names.push(p.kernel.name);
            }
        }
    }
    none(&wrong);
    assert!(names.contains(&"poly1") && names.contains(&"poly4"), "{names:?}");
    assert!(!names.contains(&"softmax") && !names.contains(&"memory_read"), "{names:?}");
    assert!(ran >= 36, "{ran}");
}

#[test]
fn what_has_no_meaning_in_the_ring_is_refused() {
    let refusal = |name, dims: &[u64]| {
        let (kernel, _) = shipped(name, DType::F32, dims, "warps=4");
        check_ring(&kernel).map_err(|e| e.to_string()).expect_err(name)
    };
    assert!(refusal("softmax", &[4, 64]).contains("`max` of floats has no meaning in the ring"));
    assert!(refusal("rms_norm", &[4, 64]).contains("no meaning in the ring"));
    let (kernel, _) = shipped("softmax", DType::F32, &[4, 64], "warps=4");
    assert!(ExactTrial::new(&kernel, &[("N", 4)]).reference().is_err());
    assert!(SPLIT_ELEMENTS.iter().all(|element| check_ring(&exact_case("warpgroup", element)).is_err()));
}

/// A product over several tiles of K with a ragged tail, and its PTX.
fn gemm() -> (Verified<Kernel>, KernelImage) {
    let kernel = exact_case("batched", "bf16");
    let schedule = Schedule { stages: 3, warps: 2, ..Schedule::default() };
    let image = compile(&kernel, &schedule, target("sm_80")).unwrap_or_else(|e| panic!("{e}"));
    (kernel, image)
}

const GEMM: Sizes = &[("G", 1), ("M", 32), ("N", 16), ("K", 104)];

/// Edits the statements of the PTX, and expects that it still runs and gives a wrong result.
#[track_caller]
fn shows(edit: impl FnOnce(&[String]) -> Vec<String>) {
    let (kernel, mut image) = gemm();
    let trial = ExactTrial::new(&kernel, GEMM);
    let expected = trial.reference().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(trial.simulate(&image, &trial.dims).as_ref(), Ok(&expected));
    // A statement over several lines continues with two tabs.
    let statements: Vec<String> = image.ptx.replace("\n\t\t", " ").lines().map(str::to_owned).collect();
    image.ptx = edit(&statements).join("\n");
    let found = trial.simulate(&image, &trial.dims).unwrap_or_else(|fault| panic!("does not run: {fault}"));
    assert!(differing(&found, &expected) > 0, "the mistake does not show");
}

/// The indices of the statements whose instruction begins with `opcode`.
fn statements(lines: &[String], opcode: &str) -> Vec<usize> {
    (0..lines.len()).filter(|&i| lines[i].trim_start().starts_with(opcode)).collect()
}

/// The first matrix product, its results and its sums.
fn product(lines: &[String]) -> (usize, String, String) {
    let at = statements(lines, "mma.sync")[0];
    let groups: Vec<&str> = lines[at].split('{').skip(1).filter_map(|part| part.split('}').next()).collect();
    let [results, .., sums] = groups[..] else { panic!("{}", lines[at]) };
    (at, results.to_owned(), sums.to_owned())
}

#[test]
fn a_product_left_out_is_exactly_wrong() {
    shows(|lines| {
        let (at, results, sums) = product(lines);
        let moves = results.split(',').zip(sums.split(',')).map(|(d, c)| format!("mov.b32 {d}, {c};"));
        [&lines[..at], &[moves.collect::<String>()], &lines[at + 1..]].concat()
    });
}

#[test]
fn a_product_done_twice_is_exactly_wrong() {
    shows(|lines| {
        let (at, results, sums) = product(lines);
        let again = lines[at].replace(&sums, &results);
        [&lines[..=at], &[again], &lines[at + 1..]].concat()
    });
}

#[test]
fn stages_exchanged_are_exactly_wrong() {
    shows(|lines| {
        // The first copies of the two stages that are filled before the loop. Their offsets distinguish the stages.
        let copies = statements(lines, "cp.async.c");
        let place = |i: usize| lines[i].split(['[', ']']).nth(1).unwrap_or_default().to_owned();
        let split = |i: usize| match place(i).split_once('+') {
            Some((base, offset)) => (base.to_owned(), format!("+{offset}")),
            None => (place(i), String::new()),
        };
        let committed = statements(lines, "cp.async.commit_group");
        let second = copies.iter().copied().find(|&c| committed.first().is_some_and(|&first| c > first));
        let (Some(&first), Some(second)) = (copies.first(), second) else { panic!("no copies to two stages") };
        let mut edited = lines.to_vec();
        for (i, j) in [(first, second), (second, first)] {
            edited[i] = lines[i].replacen(&format!("[{}]", place(i)), &format!("[{}{}]", split(i).0, split(j).1), 1);
        }
        // Only the order is wrong: no data are read while they are copied.
        for i in statements(lines, "cp.async.wait_group") {
            edited[i] = "cp.async.wait_group 0;".to_owned();
        }
        edited
    });
}

#[test]
fn a_tail_left_out_is_exactly_wrong() {
    let (kernel, image) = gemm();
    let trial = ExactTrial::new(&kernel, GEMM);
    let expected = trial.reference().unwrap_or_else(|e| panic!("{e}"));
    let told: Vec<u64> = trial.dims.iter().map(|&n| if n == 104 { 96 } else { n }).collect();
    let found = trial.simulate(&image, &told).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(differing(&found, &expected) > 0);
}
