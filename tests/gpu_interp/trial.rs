//! A kernel after every pass, executed and compared with the interpreter.

use crate::kernels::Bits;
use atlas_codegen::gpu::{self, Constructs};
use atlas_codegen::{CompileError, Target, passes, pipeline};
use atlas_dsl::ir::{Access, DimSize, ParamKind};
use atlas_dsl::{DType, Kernel, Schedule, Verified};
use atlas_gpu_interp::{Arithmetic, Fault, Landing, Launch, Manner, Order, Tensor, execute};
use atlas_tile_interp::{Arg, Mode, Scalar, TensorView, TensorViewMut, check_ring, run};
use half::f16;

/// The largest numbers that arguments are drawn from. Recurrences of many tokens overflow with the first, and then which sums are
/// infinite depends on their order.
const LARGEST: [f64; 3] = [2.0, 0.5, 0.125];

impl Bits {
    /// A random element of a type: any bits in the ring, else a number from minus a half of the largest to the largest.
    fn element(&mut self, dtype: DType, arithmetic: Arithmetic, largest: f64) -> u64 {
        let bits = self.next();
        match (dtype, arithmetic) {
            (DType::I32 | DType::I64, _) => (bits % 17) as i64 as u64,
            // Codes of numbers.
            (dtype, _) if dtype.is_fp8() => bits & 0xf7,
            (dtype, _) if dtype.is_small() => dtype.low_bits(bits as i64) as u64,
            (DType::F32, Arithmetic::Ring) => bits & 0xffff_ffff,
            (_, Arithmetic::Ring) => bits & 0xffff_0000,
            _ => (((bits >> 11) as f64 / (1u64 << 53) as f64 * 1.5 - 0.5) * largest).to_bits(),
        }
    }
}

/// A kernel at some sizes, with arguments and their expected content afterwards.
pub(crate) struct Trial<'k> {
    kernel: &'k Verified<Kernel>,
    launch: Launch,
    before: Vec<Option<Tensor>>,
    after: Vec<Option<Tensor>>,
}

impl Trial<'_> {
    /// Draws arguments and runs the interpreter. Kernels that are meaningful in the ring are executed there, others with the largest
    /// numbers of which no result overflows.
    pub(crate) fn new<'k>(kernel: &'k Verified<Kernel>, sizes: &[(&str, u64)]) -> Trial<'k> {
        let mut best = Trial::drawn(kernel, sizes, LARGEST[0]);
        for largest in &LARGEST[1..] {
            let (elements, judged) = best.judged();
            if judged == elements {
                break;
            }
            let smaller = Trial::drawn(kernel, sizes, *largest);
            if smaller.judged().1 > judged {
                best = smaller;
            }
        }
        best
    }

    fn drawn<'k>(kernel: &'k Verified<Kernel>, sizes: &[(&str, u64)], largest: f64) -> Trial<'k> {
        let size = |name: &str| sizes.iter().find(|(n, _)| *n == name).map_or(1, |(_, size)| *size);
        let dims = kernel.dims.values().map(|d| match d.size {
            DimSize::Const(n) => n,
            DimSize::Dynamic { .. } => size(&d.name),
        });
        let dims: Vec<u64> = dims.collect();
        let arithmetic = if check_ring(kernel).is_ok() { Arithmetic::Ring } else { Arithmetic::Real };
        let mut bits = Bits(kernel.to_string().len() as u64);
        let (mut before, mut scalars) = (Vec::new(), Vec::new());
        for param in kernel.params.values() {
            match &param.kind {
                ParamKind::Scalar { dtype } => {
                    before.push(None);
                    // The interpreter gets numbers, and for 16-bit floats only finite ones.
                    let whole = if dtype.is_half() && arithmetic == Arithmetic::Ring { 0x3fff_0000 } else { u64::MAX };
                    scalars.push(Some(bits.element(*dtype, arithmetic, largest) & whole));
                }
                ParamKind::Tensor { dtype, dims: of, .. } => {
                    let dims: Vec<u64> = of.iter().map(|d| dims[d.as_u32() as usize]).collect();
                    let data = (0..dims.iter().product()).map(|_| bits.element(*dtype, arithmetic, largest)).collect();
                    before.push(Some(Tensor { dtype: *dtype, dims, data }));
                    scalars.push(None);
                }
            }
        }
        let launch = Launch { arithmetic, dims, scalars };
        let mut trial = Trial { kernel, launch, after: before.clone(), before };
        trial.interpret();
        trial
    }

    /// The type in which the interpreter holds elements of a tensor.
    fn stored(&self, dtype: DType) -> DType {
        if self.launch.arithmetic == Arithmetic::Real && dtype.is_float() { DType::F64 } else { dtype }
    }

    fn interpret(&mut self) {
        let real = self.launch.arithmetic == Arithmetic::Real;
        let mut bytes: Vec<Vec<u8>> = self.before.iter().map(|t| self.bytes(t.as_ref())).collect();
        let mut args = Vec::new();
        for ((param, tensor), (bytes, scalar)) in
            self.kernel.params.values().zip(&self.before).zip(bytes.iter_mut().zip(&self.launch.scalars))
        {
            args.push(match (&param.kind, tensor) {
                (ParamKind::Tensor { dtype, access, .. }, Some(t)) => {
                    let dtype = if real && dtype.is_float() { DType::F64 } else { *dtype };
                    match access {
                        Access::In => TensorView::contiguous(dtype, bytes, &t.dims).map(Arg::In),
                        Access::Out => TensorViewMut::contiguous(dtype, bytes, &t.dims).map(Arg::Out),
                    }
                    .unwrap_or_else(|e| panic!("{e}"))
                }
                (ParamKind::Scalar { dtype }, _) => {
                    let x = scalar.unwrap_or_default();
                    Arg::Scalar(match dtype {
                        dtype if dtype.is_int() => Scalar::I32(x as i32),
                        _ if real => Scalar::F64(f64::from_bits(x)),
                        DType::F16 => Scalar::F32(f16::from_bits((x >> 16) as u16).to_f32()),
                        _ => Scalar::F32(f32::from_bits(x as u32)),
                    })
                }
                (ParamKind::Tensor { .. }, None) => unreachable!("a tensor without elements"),
            });
        }
        let mode = if real { Mode::F64 } else { Mode::Ring };
        run(self.kernel, &self.launch.dims, args, mode).unwrap_or_else(|e| panic!("{}: {e}", self.kernel.name));
        for (i, bytes) in bytes.iter().enumerate() {
            let stored = self.before[i].as_ref().map(|t| self.stored(t.dtype));
            if let (Some(t), Some(stored)) = (&mut self.after[i], stored) {
                let whole = bytes.chunks_exact(stored.bytes() as usize);
                t.data = whole.map(|x| from_bytes(stored, x)).collect();
            }
        }
    }

    fn bytes(&self, tensor: Option<&Tensor>) -> Vec<u8> {
        let Some(t) = tensor else { return Vec::new() };
        let stored = self.stored(t.dtype);
        let of = |x: u64| (if stored.is_half() { x >> 16 } else { x }).to_le_bytes();
        t.data.iter().flat_map(|&x| of(x)[..stored.bytes() as usize].to_vec()).collect()
    }

    /// Executes a kernel in some manner. The error is a difference from the interpreter.
    pub(crate) fn execute(&self, k: &gpu::Kernel, manner: Manner) -> Result<(), Fault> {
        let mut found = self.before.clone();
        execute(k, &self.launch, manner, &mut found)?;
        for (param, (found, wanted)) in self.kernel.params.values().zip(found.iter().zip(&self.after)) {
            let (Some(found), Some(wanted)) = (found, wanted) else { continue };
            let bounds = self.bounds(wanted);
            let agrees = |&i: &usize| self.agrees(wanted.dtype, found.data[i], wanted.data[i], bounds[i]);
            let wrong: Vec<usize> = (0..found.data.len()).filter(|i| !agrees(i)).collect();
            if let Some(&first) = wrong.first() {
                let (n, of) = (wrong.len(), found.data.len());
                let (is, wanted) =
                    (self.shown(wanted.dtype, found.data[first]), self.shown(wanted.dtype, wanted.data[first]));
                let message = format!(
                    "{n} of {of} elements of `{}` are wrong; element {first} is {is}, not {wanted}",
                    param.name
                );
                return Err(Fault::from(message));
            }
        }
        Ok(())
    }

    /// The number of elements in the outputs, and how many of them are finite.
    fn judged(&self) -> (usize, usize) {
        let real = self.launch.arithmetic == Arithmetic::Real;
        let number = |t: &Tensor, x: u64| !real || !t.dtype.is_float() || f64::from_bits(x).is_finite();
        let outputs = self.kernel.params.values().zip(&self.after).filter(|(p, _)| !p.kind.is_read_only());
        outputs.filter_map(|(_, t)| t.as_ref()).fold((0, 0), |(elements, judged), t| {
            (elements + t.data.len(), judged + t.data.iter().filter(|&&x| number(t, x)).count())
        })
    }

    fn shown(&self, dtype: DType, x: u64) -> String {
        match (dtype.is_float(), self.launch.arithmetic) {
            (true, Arithmetic::Real) => format!("{:e}", f64::from_bits(x)),
            (true, Arithmetic::Ring) => format!("{x:08x}"),
            _ => format!("{}", x as i64),
        }
    }

    /// The bound for each element if the order of sums may differ: a fraction of the largest element of its row, and at least what
    /// rounding leaves of numbers that cancel. Those are not seen in an output that is a difference of two equal sums.
    fn bounds(&self, t: &Tensor) -> Vec<f64> {
        if self.launch.arithmetic == Arithmetic::Ring || !t.dtype.is_float() {
            return vec![0.0; t.data.len()];
        }
        let rows = t.data.chunks(t.dims.last().map_or(1, |&n| n.max(1) as usize));
        let finite = |&x: &u64| Some(f64::from_bits(x).abs()).filter(|x| x.is_finite());
        // Sums of a few thousand products of arguments, which are near 1, have errors of some 1e-13.
        const CANCELLED: f64 = 1e-12;
        let bound = |row: &[u64]| (1e-9 * row.iter().filter_map(finite).fold(0.0, f64::max)).max(CANCELLED);
        rows.flat_map(|row| std::iter::repeat_n(bound(row), row.len())).collect()
    }

    /// Compares bits in the ring, and numbers within `bound` in f64, where only the order of sums differs.
    fn agrees(&self, dtype: DType, found: u64, wanted: u64, bound: f64) -> bool {
        if found == wanted {
            return true;
        }
        if self.launch.arithmetic == Arithmetic::Ring || !dtype.is_float() {
            return false;
        }
        let (a, b) = (f64::from_bits(found), f64::from_bits(wanted));
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= bound
    }
}

fn from_bytes(dtype: DType, bytes: &[u8]) -> u64 {
    let bits = bytes.iter().rev().fold(0, |bits: u64, &byte| bits << 8 | u64::from(byte));
    match dtype {
        DType::F16 | DType::Bf16 => bits << 16,
        dtype if dtype.is_whole() => dtype.low_bits(bits as i64) as u64,
        _ => bits,
    }
}

/// The output of a pass, and the constructs that it may contain.
pub(crate) struct Passed {
    pub(crate) pass: &'static str,
    pub(crate) kernel: gpu::Kernel,
    pub(crate) constructs: Constructs,
    /// False if the pass changed nothing but hints, which do not affect the meaning.
    pub(crate) changed: bool,
}

/// The kernel after each pass; empty if the config is refused. An error is a defect that the compiler reports itself.
pub(crate) fn passes(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    target: Target,
) -> Result<Vec<Passed>, CompileError> {
    let rest = [passes::PLACE, passes::SCHEDULE, passes::LOWER].into_iter().flatten();
    let page: Vec<&passes::Pass> = rest.collect();
    let mut constructs = passes::MADE;
    let mut all: Vec<Passed> = Vec::new();
    let mut text = String::new();
    let done = pipeline::run(kernel, schedule, target, |name, k| {
        constructs = page.iter().find(|p| p.name == name).map_or(constructs, |p| p.after(constructs));
        let now = k.to_string().replace("load.global.evict_last", "load.global");
        let changed = now != text;
        all.push(Passed { pass: name, kernel: k.clone(), constructs, changed });
        text = now;
    });
    match done {
        Ok(_) => Ok(all),
        Err(e) if e.is_refusal() => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// The manners in which a kernel is executed: both landings of copies, and every order of several roles, and of several CTAs that share
/// a program.
pub(crate) fn manners(k: &gpu::Kernel, constructs: Constructs) -> Vec<Manner> {
    let all = [Order::Fair, Order::FirstRole, Order::LastRole];
    let orders = if k.roles.len() > 1 || k.index_map.splits > 1 { &all[..] } else { &all[..1] };
    let waits_for_copies = constructs.has(Constructs::BARE_WAITS);
    let landings = [Landing::AtOnce, Landing::AtTheWait];
    // A kernel without copies and products in flight has only one landing.
    let lands = k.insts.values().any(|op| matches!(op, gpu::Op::Copy { .. } | gpu::Op::Mma { .. }));
    let landings = if lands { &landings[..] } else { &landings[..1] };
    orders
        .iter()
        .flat_map(|&order| landings.iter().map(move |&landing| Manner { landing, order, waits_for_copies }))
        .collect()
}

/// The number of executed kernels, passes and manners.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kernels: usize,
    pub(crate) in_ring: usize,
    pub(crate) runs: usize,
    pub(crate) refused: usize,
    /// The number of elements in outputs, and how many of them are numbers that a mistake would change.
    pub(crate) elements: usize,
    pub(crate) judged: usize,
}

/// Executes a kernel after each pass. The error is that of the first pass that breaks it.
pub(crate) fn tried(
    name: &str,
    trial: &Trial<'_>,
    schedule: &Schedule,
    target: Target,
    tally: &mut Tally,
) -> Result<(), String> {
    let passes = passes(trial.kernel, schedule, target).map_err(|e| format!("{name} {target}: {e}"))?;
    if passes.is_empty() {
        tally.refused += 1;
        return Ok(());
    }
    tally.kernels += 1;
    tally.in_ring += usize::from(trial.launch.arithmetic == Arithmetic::Ring);
    let (elements, judged) = trial.judged();
    (tally.elements, tally.judged) = (tally.elements + elements, tally.judged + judged);
    for Passed { pass, kernel, constructs, .. } in passes.into_iter().filter(|p| p.changed) {
        for manner in manners(&kernel, constructs) {
            tally.runs += 1;
            trial.execute(&kernel, manner).map_err(|fault| {
                let Manner { landing, order, .. } = manner;
                let Schedule { stages, warps, split_k, .. } = schedule;
                format!("{name} {target} stages={stages} warps={warps} split_k={split_k} after {pass}, {landing:?}, {order:?}: {fault}")
            })?;
        }
    }
    Ok(())
}
