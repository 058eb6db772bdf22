//! Ops, and one problem of an op: a kernel, an element type, dims, and how its inputs are made.
//!
//! Inputs are reproducible: a problem's text and a parameter's name seed the generator. Values are already
//! rounded to the element type, so the reference and the kernel start from equal numbers.

use crate::plan::Plan;
use crate::tolerance::ToleranceClass;
use atlas_dsl::def::{DTypeRef, Declared, ParamDef};
use atlas_dsl::ir::Access;
use atlas_dsl::{DType, KernelDef};
use half::{bf16, f16};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Normal};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fmt;

/// The element types that ops are verified in, unless their rows name others.
pub const DTYPES: [DType; 3] = [DType::Bf16, DType::F16, DType::F32];

/// An op: what all that checks and measures kernels knows of it. Its folder has it, as `cases::OP`.
#[derive(Clone, Copy)]
pub struct Op {
    /// Its name: that of its folder, but where a family of ops has one.
    pub name: &'static str,
    /// Its kernels, of which [`Op::kernel`] gives one.
    pub kernels: &'static [&'static dyn Declared],
    /// Which bound it must meet.
    pub class: ToleranceClass,
    /// The element types that it is verified in.
    pub dtypes: &'static [DType],
    /// The dim whose indices are independent of each other; a reference may be taken of some of them.
    pub batch: &'static str,
    /// Values of the scalar arguments.
    pub scalars: &'static [(&'static str, f32)],
    /// Parameters that the kernels write and read first.
    pub state: &'static [&'static str],
    /// Tensors that are written, whose contents no one reads afterwards: they have no reference.
    pub scratch: &'static [&'static str],
    /// How an input, or a state, is made unless a problem says otherwise.
    pub fill: fn(&Problem, &str) -> Fill,
    /// The f64 reference: what each written tensor is afterwards, in the kernel's order.
    pub reference: fn(&Problem, &Inputs) -> Vec<Vec<f64>>,
    /// The same with the roundings of the kernel, of one that magnifies them.
    pub rounded: fn(&Problem, &Inputs) -> Option<Vec<Vec<f64>>>,
    /// Floating-point operations of a problem.
    pub flops: fn(&Problem) -> f64,
    /// Problems in one element type that together reach its edges; small, so that a CPU solves them in a moment.
    pub verification: fn(&'static Op, DType) -> Vec<Problem>,
    /// The same for the simulator.
    pub simulation: fn(&'static Op, DType) -> Vec<Problem>,
    /// Problems whose numbers are far from 1, of an op that takes a norm.
    pub far_from_one: fn(&'static Op, DType) -> Vec<Problem>,
    /// Problems at the sizes of a model, to demonstrate.
    pub demo: fn(&'static Op) -> Vec<Problem>,
    /// A problem with inputs as a model has them.
    pub as_in_a_model: fn(Problem) -> Problem,
    /// The problems that are measured. The first of a kernel has the dims for which it is usually compiled.
    pub measured: &'static [Measured],
    /// Of several launches: what is measured as one.
    pub plans: &'static [Plan],
}

/// What the row of every op says; each is as in [`Op`]. A row without one of these does not compile.
pub(crate) struct Required {
    pub(crate) name: &'static str,
    pub(crate) kernels: &'static [&'static dyn Declared],
    pub(crate) class: ToleranceClass,
    pub(crate) batch: &'static str,
    pub(crate) reference: fn(&Problem, &Inputs) -> Vec<Vec<f64>>,
    pub(crate) flops: fn(&Problem) -> f64,
    pub(crate) verification: fn(&'static Op, DType) -> Vec<Problem>,
    pub(crate) simulation: fn(&'static Op, DType) -> Vec<Problem>,
    pub(crate) measured: &'static [Measured],
}

/// A problem to measure.
pub struct Measured {
    /// The name under which its result is kept.
    pub name: &'static str,
    /// The kernel's name.
    pub kernel: &'static str,
    /// The element type.
    pub dtype: DType,
    /// Sizes of the kernel's dims.
    pub dims: &'static [u64],
    /// Tensors that are not contiguous.
    pub layouts: &'static [(&'static str, Layout)],
}

impl Measured {
    pub(crate) const fn bf16(name: &'static str, kernel: &'static str, dims: &'static [u64]) -> Measured {
        Measured { name, kernel, dtype: DType::Bf16, dims, layouts: &[] }
    }

    pub(crate) const fn f32(name: &'static str, kernel: &'static str, dims: &'static [u64]) -> Measured {
        Measured { name, kernel, dtype: DType::F32, dims, layouts: &[] }
    }

    /// The same with tensors that are not contiguous.
    pub(crate) const fn layouts(self, layouts: &'static [(&'static str, Layout)]) -> Measured {
        Measured { layouts, ..self }
    }
}

impl Op {
    /// One of its kernels.
    pub fn kernel(&self, at: usize) -> &'static KernelDef {
        self.kernels[at].declared()
    }

    /// All of its kernels.
    pub fn defs(&self) -> impl Iterator<Item = &'static KernelDef> {
        self.kernels.iter().map(|k| k.declared())
    }
}

/// How the elements of an input are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Normal, with mean 0 and this standard deviation.
    Normal(f64),
    /// Symmetric circulant matrices, any two of which commute: element `(i, j)` is as `(0, min(|i - j|, M - |i - j|))`, which
    /// is normal with mean 0 and this standard deviation.
    Circulant(f64),
    /// Normal, but every element with this index along the first axis is NaN.
    NanAt(u64),
    /// Normal, but every element with this index along the first axis is 0.
    ZeroAt(u64),
    /// Normal, but every element with this index along the second axis, that of tokens, is this number.
    TokenIs(u64, f32),
    /// Normal with this standard deviation around this mean.
    Around(f64, f64),
    /// The index along the last axis, rounded down to a multiple of this number: where the documents of so many tokens start.
    Starts(u64),
    /// The index along the last axis, and 1.
    Ordinals,
    /// The indices along the last axis from the last one down.
    Down,
    /// The index along the last axis times the first number, and the second: where documents of one length start or end.
    Every(u64, u64),
}

/// How an input lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Row-major without gaps.
    Contiguous,
    /// Eight elements that belong to nobody follow each row.
    Padded,
    /// The first two axes are swapped in memory, as heads and tokens are in `[B, T, H, d]`.
    Swapped,
    /// The last two axes are swapped in memory: each matrix lies by its columns.
    Transposed,
    /// One copy for all indices of the first axis: stride 0.
    Shared,
}

/// A problem.
#[derive(Clone)]
pub struct Problem {
    /// The op.
    pub op: &'static Op,
    /// The kernel that solves it.
    pub kernel: &'static KernelDef,
    /// Element type of every tensor for which the kernel names none.
    pub dtype: DType,
    /// Size of each of the kernel's dims, in its order.
    pub dims: Vec<u64>,
    /// Fills that differ from the op's own.
    pub fills: BTreeMap<&'static str, Fill>,
    /// Scalar arguments that differ from the op's own.
    pub scalars: BTreeMap<&'static str, f32>,
    /// Layouts that are not contiguous.
    pub layouts: BTreeMap<&'static str, Layout>,
    /// What is special, in a word or two.
    pub note: &'static str,
}

impl Problem {
    /// A problem with the op's usual inputs. `dims` are in the kernel's order. The last ones may be left out if they follow from what
    /// the kernel requires.
    pub fn new(op: &'static Op, kernel: &'static KernelDef, dtype: DType, dims: &[u64]) -> Problem {
        let mut known: Vec<Option<u64>> = dims.iter().copied().map(Some).collect();
        known.resize(kernel.dims.len().max(dims.len()), None);
        let dims: Vec<u64> = kernel.with_implied(known).into_iter().flatten().collect();
        assert_eq!(dims.len(), kernel.dims.len(), "`{}` has {} dims", kernel.name, kernel.dims.len());
        Problem {
            op,
            kernel,
            dtype,
            dims,
            fills: BTreeMap::new(),
            scalars: BTreeMap::new(),
            layouts: BTreeMap::new(),
            note: "",
        }
    }

    /// Sets what is special about the problem.
    #[must_use]
    pub fn note(mut self, note: &'static str) -> Problem {
        self.note = note;
        self
    }

    /// Sets how an input is made.
    #[must_use]
    pub fn fill(mut self, param: &'static str, fill: Fill) -> Problem {
        self.fills.insert(param, fill);
        self
    }

    /// Sets a scalar argument.
    #[must_use]
    pub fn with_scalar(mut self, name: &'static str, value: f32) -> Problem {
        self.scalars.insert(name, value);
        self
    }

    /// Sets how a tensor lies in memory.
    #[must_use]
    pub fn layout(mut self, param: &'static str, layout: Layout) -> Problem {
        self.layouts.insert(param, layout);
        self
    }

    /// The size of a dim by name; 1 if the kernel has no such dim.
    pub fn dim(&self, name: &str) -> usize {
        let at = self.kernel.dims.iter().position(|d| d.name == name);
        at.map_or(1, |i| self.dims[i] as usize)
    }

    /// A scalar argument by name.
    pub fn scalar(&self, name: &str) -> f32 {
        let usual = || self.op.scalars.iter().find(|(n, _)| *n == name).map_or(0.0, |(_, v)| *v);
        self.scalars.get(name).copied().unwrap_or_else(usual)
    }

    /// The bound on the relative error.
    pub fn bound(&self) -> f64 {
        crate::tolerance::bound(self.op.class, self.dtype).unwrap_or(0.0)
    }

    /// `G16 N2000 D48 H192`.
    pub fn shape(&self) -> String {
        let parts: Vec<String> =
            self.kernel.dims.iter().zip(&self.dims).map(|(d, n)| format!("{}{n}", d.name)).collect();
        parts.join(" ")
    }

    /// The tensor parameters.
    pub fn tensors(&self) -> Vec<TensorParam> {
        let sizes = |dims: &[usize]| dims.iter().map(|&i| self.dims[i] as usize).collect();
        let tensor = |p: &ParamDef| match *p {
            ParamDef::Tensor { name, dtype, dims, access, .. } => {
                Some(TensorParam { name, sizes: sizes(dims), dtype: self.dtype_of(dtype), access })
            }
            ParamDef::Scalar { .. } => None,
        };
        self.kernel.params.iter().filter_map(tensor).collect()
    }

    /// The element type of a parameter.
    pub fn dtype_of(&self, dtype: DTypeRef) -> DType {
        match dtype {
            DTypeRef::Fixed(d) => d,
            DTypeRef::Generic(_) => self.dtype,
        }
    }

    /// How a tensor lies in memory.
    pub fn layout_of(&self, param: &str) -> Layout {
        self.layouts.get(param).copied().unwrap_or(Layout::Contiguous)
    }

    /// Makes the inputs, and what stands before the launch in tensors that are written and read.
    pub fn inputs(&self) -> Inputs {
        let reads = self.tensors().into_iter().filter(|t| self.reads(t));
        Inputs(reads.map(|t| (t.name, self.make(t))).collect())
    }

    /// True if the kernel reads what stands in a tensor before the launch.
    pub fn reads(&self, tensor: &TensorParam) -> bool {
        tensor.access == Access::In || self.op.state.contains(&tensor.name)
    }

    /// True if the kernel writes it, and its contents are a result.
    pub fn has_reference(&self, tensor: &TensorParam) -> bool {
        tensor.access == Access::Out && !self.op.scratch.contains(&tensor.name)
    }

    /// True if a launch changes what the next one reads.
    pub fn updates_in_place(&self) -> bool {
        self.tensors().iter().any(|t| t.access == Access::Out && self.reads(t))
    }

    fn make(&self, TensorParam { name, sizes, dtype, .. }: TensorParam) -> HostTensor {
        let len: usize = sizes.iter().product();
        let rest: usize = sizes.iter().skip(1).product();
        let usual = (self.op.fill)(self, name);
        let fill = self.fills.get(name).copied().unwrap_or(usual);
        let spread = |fill: Fill| match fill {
            Fill::Normal(scale) | Fill::Circulant(scale) => Some((0.0, scale)),
            Fill::Around(mean, scale) => Some((mean, scale)),
            _ => None,
        };
        let (mean, scale) = spread(fill).or_else(|| spread(usual)).unwrap_or((0.0, 1.0));
        let shared = self.layout_of(name) == Layout::Shared;
        let distinct = if shared { rest } else { len };
        let mut values =
            normal(&format!("{} {} {} {name}", self.kernel.name, self.dtype, self.shape()), mean, scale, distinct);
        values.par_iter_mut().for_each(|v| *v = round(*v, dtype));
        if shared {
            values = values.repeat(sizes.first().copied().unwrap_or(1));
        }
        if let (Fill::Circulant(_), Some(&m)) = (fill, sizes.last()) {
            for matrix in values.chunks_mut((m * m).max(1)) {
                for (i, j) in (1..m).flat_map(|i| (0..m).map(move |j| (i, j))) {
                    matrix[i * m + j] = matrix[i.abs_diff(j).min(m - i.abs_diff(j))];
                }
                for j in m / 2 + 1..m {
                    matrix[j] = matrix[m - j];
                }
            }
        }
        let last = sizes.last().copied().unwrap_or(1).max(1) as u64;
        let by_index: Option<Box<dyn Fn(u64) -> u64>> = match fill {
            Fill::Starts(every) => Some(Box::new(move |i| i / every.max(1) * every.max(1))),
            Fill::Every(step, first) => Some(Box::new(move |i| i * step + first)),
            Fill::Ordinals => Some(Box::new(|i| i + 1)),
            Fill::Down => Some(Box::new(move |i| last - 1 - i)),
            _ => None,
        };
        if let Some(of) = by_index {
            values.iter_mut().enumerate().for_each(|(i, v)| *v = of(i as u64 % last) as f32);
        }
        let special = match fill {
            Fill::NanAt(at) => Some((at, f32::NAN)),
            Fill::ZeroAt(at) => Some((at, 0.0)),
            _ => None,
        };
        if let Some((at, v)) = special {
            values[at as usize * rest..][..rest].fill(v);
        }
        if let (Fill::TokenIs(at, v), [_, tokens, width @ ..]) = (fill, &sizes[..]) {
            let width: usize = width.iter().product();
            for sequence in values.chunks_mut((tokens * width).max(1)) {
                sequence[at as usize * width..][..width].fill(v);
            }
        }
        HostTensor { sizes, values }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kernel.name, self.dtype, self.shape())?;
        if !self.note.is_empty() {
            write!(f, " ({})", self.note)?;
        }
        Ok(())
    }
}

/// A tensor that a kernel of a problem takes.
#[derive(Clone, Debug)]
pub struct TensorParam {
    /// Its name in the signature.
    pub name: &'static str,
    /// Extents, outermost first.
    pub sizes: Vec<usize>,
    /// Type of its elements.
    pub dtype: DType,
    /// Whether the kernel reads or writes it.
    pub access: Access,
}

impl TensorParam {
    /// Bytes of its elements.
    pub fn bytes(&self) -> f64 {
        self.sizes.iter().product::<usize>() as f64 * f64::from(self.dtype.bytes())
    }
}

/// A tensor's elements in row-major order, exact in f32.
#[derive(Clone, Debug)]
pub struct HostTensor {
    /// Extents, outermost first.
    pub sizes: Vec<usize>,
    /// The elements.
    pub values: Vec<f32>,
}

/// The inputs of a problem by parameter name.
#[derive(Clone, Debug)]
pub struct Inputs(pub BTreeMap<&'static str, HostTensor>);

impl Inputs {
    /// An input's elements in f64.
    pub fn get(&self, name: &str) -> Vec<f64> {
        self.0.get(name).map(|t| t.values.par_iter().map(|&v| f64::from(v)).collect()).unwrap_or_default()
    }
}

/// The nearest value of an element type.
pub fn round(x: f32, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => f16::from_f32(x).to_f32(),
        DType::Bf16 => bf16::from_f32(x).to_f32(),
        DType::I32 | DType::I64 => x.round(),
        _ => x,
    }
}

/// Normal numbers, the same for the same seed text, however many cores make them.
pub(crate) fn normal(seed: &str, mean: f64, scale: f64, len: usize) -> Vec<f32> {
    const CHUNK: usize = 1 << 14;
    let hash = seed.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let Ok(dist) = Normal::new(mean as f32, scale as f32) else { return vec![0.0; len] };
    let mut values = vec![0.0; len];
    values.par_chunks_mut(CHUNK).enumerate().for_each(|(i, chunk)| {
        let mut rng = StdRng::seed_from_u64(hash.wrapping_add(i as u64));
        chunk.iter_mut().for_each(|v| *v = dist.sample(&mut rng));
    });
    values
}
