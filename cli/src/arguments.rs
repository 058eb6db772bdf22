//! Arguments for a kernel of which only the signature is known: small numbers that differ within a tensor and between
//! tensors.

use anyhow::{Context, Result, bail};
use atlas_dsl::def::{DTypeRef, ParamDef};
use atlas_dsl::ir::{Access, ParamKind};
use atlas_dsl::op::{Op, Update};
use atlas_dsl::specialization::{StrideFact, TensorFacts};
use atlas_dsl::{DType, Kernel, KernelDef, Param};
use atlas_runtime::{Arg, Device, Element, Tensor};
use atlas_tile_interp::{self as interpreted, Mode, Scalar, TensorView, TensorViewMut};
use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use std::collections::BTreeMap;

/// The range of the numbers in tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Values {
    /// Between -1/2 and 1/2.
    #[default]
    Signed,
    /// Above 0, for kernels that take roots or logarithms of their inputs.
    Positive,
}

/// The initial content of a tensor that a kernel writes and never reads: a NaN, or an invalid index.
const UNWRITTEN: (f32, i32) = (f32::NAN, i32::MIN + 12_345);
/// The largest whole number that is passed by value: a few iterations of a loop, or a valid index in all but the
/// smallest dims.
const MOST_SCALAR: u64 = 7;

/// The most elements that a view spans.
const MOST_MEMORY: usize = 1 << 36;

/// The values that a kernel wrote to one tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Output {
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Floats.
    Real(Vec<f64>),
}

impl Output {
    /// The number of elements.
    pub(super) fn len(&self) -> usize {
        match self {
            Output::Whole(values) => values.len(),
            Output::Real(values) => values.len(),
        }
    }
}

/// Tensors and numbers for each parameter of a kernel.
pub(super) struct Arguments {
    def: &'static KernelDef,
    tensors: Vec<Held>,
    values: Values,
    /// One more than the largest index.
    indices: u64,
    /// Numbers that the user gave by name.
    scalars: BTreeMap<String, f64>,
}

/// A view, and the tensor that is all of its memory.
struct Held {
    name: &'static str,
    access: Access,
    memory: Tensor,
    tensor: Tensor,
}

impl Arguments {
    /// Makes tensors of the given element types and sizes, with a class's facts for those that are not contiguous or
    /// not aligned.
    ///
    /// # Errors
    /// If there is not enough memory for them, or if no tensor can have the facts of the class.
    pub(super) fn new(
        def: &'static KernelDef,
        types: &[DType],
        dims: &[u64],
        unusual: &BTreeMap<String, TensorFacts>,
        scalars: &BTreeMap<String, f64>,
        device: &Device,
    ) -> Result<Arguments> {
        let mut tensors: Vec<Held> = Vec::new();
        let indices = indices(def, dims);
        for param in def.params {
            if let ParamDef::Tensor { name, dtype: of, dims: axes, access } = param {
                let of = match of {
                    DTypeRef::Fixed(fixed) => *fixed,
                    DTypeRef::Generic(at) => types[*at],
                };
                let shape: Vec<usize> = axes.iter().map(|&d| dims[d] as usize).collect();
                let (mut memory, tensor) = match unusual.get(*name) {
                    None => {
                        let tensor = Tensor::empty(device, of, &shape)?;
                        (tensor.clone(), tensor)
                    }
                    Some(facts) => view(device, of, &shape, facts).with_context(|| format!("tensor `{name}`"))?,
                };
                fill(&mut memory, tensors.len(), indices, Some(Values::default()))?;
                tensors.push(Held { name, access: *access, memory, tensor });
            }
        }
        Ok(Arguments { def, tensors, values: Values::default(), indices, scalars: scalars.clone() })
    }

    /// Initialises the tensors for a run, in their own memory. Those that the kernel writes whole and never reads
    /// get values that it cannot have written.
    ///
    /// # Errors
    /// Driver errors.
    pub(super) fn renew(&mut self, kernel: &Kernel, values: Values) -> Result<()> {
        let is_read = |name: &str| {
            kernel.insts.values().any(|op| match op {
                Op::Load { param, .. } => kernel.params[*param].name == name,
                Op::Store { param, update, .. } => update.is_free() && kernel.params[*param].name == name,
                _ => false,
            })
        };
        // Places that are loaded may not meet: no number occurs twice then, and those past the end store nothing.
        let apart = kernel.insts.values().any(|op| matches!(op, Op::Store { update: Update::Disjoint, .. }));
        let is_renumbered = apart && self.indices != MOST_INDICES;
        if apart {
            self.indices = MOST_INDICES;
        }
        for (at, held) in self.tensors.iter_mut().enumerate() {
            match held.access {
                Access::In if values == self.values && !is_renumbered => {}
                Access::Out if !is_read(held.name) => fill(&mut held.memory, at, self.indices, None)?,
                _ => fill(&mut held.memory, at, self.indices, Some(values))?,
            }
        }
        self.values = values;
        Ok(())
    }

    /// The arguments in the order of the parameters.
    pub(super) fn args(&mut self) -> Vec<Arg<'_>> {
        let numbers: BTreeMap<&str, f64> = self.def.params.iter().map(|p| (p.name(), self.number_of(p))).collect();
        let given = |name: &str| numbers.get(name).copied().unwrap_or_default();
        let mut rest = self.tensors.iter_mut();
        let mut args = Vec::new();
        for param in self.def.params {
            match param {
                ParamDef::Tensor { access, .. } => args.extend(rest.next().map(|held| match access {
                    Access::In => Arg::In(&held.tensor),
                    Access::Out => Arg::Out(&mut held.tensor),
                })),
                ParamDef::Scalar { name, dtype: DTypeRef::Fixed(DType::I32) } => {
                    args.push(Arg::I32(given(name) as i32));
                }
                ParamDef::Scalar { name, dtype: DTypeRef::Fixed(DType::I64) } => {
                    args.push(Arg::I64(given(name) as i64));
                }
                ParamDef::Scalar { name, .. } => args.push(Arg::F64(given(name))),
            }
        }
        args
    }

    /// The outputs of a kernel in the interpreter, if that takes at most `most` operations. The tensors are not
    /// changed.
    pub(super) fn interpret(&self, kernel: &Kernel, dims: &[u64], mode: Mode, most: u64) -> Result<Vec<Output>> {
        let mut copies = self.tensors.iter().map(|held| bytes(&held.tensor)).collect::<Result<Vec<Vec<u8>>>>()?;
        let mut tensors = self.tensors.iter().zip(&mut copies);
        let mut args = Vec::new();
        for (at, param) in self.def.params.iter().enumerate() {
            let dtype = match kernel.params[Param::from_u32(at as u32)].kind {
                ParamKind::Scalar { dtype } | ParamKind::Tensor { dtype, .. } => dtype,
            };
            args.push(match param {
                ParamDef::Scalar { name, .. } => interpreted::Arg::Scalar(match (self.number(name, dtype), dtype) {
                    (x, DType::I32) => Scalar::I32(x as i32),
                    (x, DType::I64) => Scalar::I64(x as i64),
                    (x, DType::F64) => Scalar::F64(x),
                    (x, DType::F16) => Scalar::F32(f16::from_f64(x).to_f32()),
                    (x, DType::Bf16) => Scalar::F32(bf16::from_f64(x).to_f32()),
                    (x, _) => Scalar::F32(x as f32),
                }),
                ParamDef::Tensor { access, .. } => {
                    let (held, bytes) = tensors.next().context("a tensor is missing")?;
                    let shape: Vec<u64> = held.tensor.shape().iter().map(|&n| n as u64).collect();
                    match access {
                        Access::In => interpreted::Arg::In(TensorView::contiguous(dtype, bytes, &shape)?),
                        Access::Out => interpreted::Arg::Out(TensorViewMut::contiguous(dtype, bytes, &shape)?),
                    }
                }
            });
        }
        interpreted::run_within(kernel, dims, args, mode, most)?;
        let written = self.tensors.iter().zip(&copies).filter(|(held, _)| held.access == Access::Out);
        Ok(written.map(|(held, bytes)| output(held.tensor.dtype(), bytes)).collect())
    }

    /// The value of a parameter that is passed by value.
    fn number(&self, name: &str, dtype: DType) -> f64 {
        let whole = self.indices.saturating_sub(1).clamp(1, MOST_SCALAR) as f64;
        let usual = if matches!(dtype, DType::I32 | DType::I64) { whole } else { 0.5 };
        self.scalars.get(name).copied().unwrap_or(usual)
    }

    fn number_of(&self, param: &ParamDef) -> f64 {
        match param {
            ParamDef::Scalar { name, dtype: DTypeRef::Fixed(dtype) } => self.number(name, *dtype),
            param => self.number(param.name(), DType::F32),
        }
    }

    /// The size of the tensors in bytes.
    pub(super) fn bytes(&self) -> f64 {
        self.tensors.iter().map(|t| t.tensor.len() as f64 * f64::from(t.tensor.dtype().bytes())).sum()
    }

    /// The written values, at most `most` elements of each tensor: from its beginning and from its end.
    pub(super) fn outputs(&self, most: usize) -> Result<Vec<Output>> {
        let written = self.tensors.iter().filter(|held| held.access == Access::Out);
        let one = |held: &Held| -> Result<Output> {
            let mut parts = Vec::new();
            ends(&held.tensor, 0, most, &mut parts)?;
            Ok(match held.tensor.dtype() {
                DType::I32 => {
                    Output::Whole(all(&parts, |t| Ok(t.to_vec::<i32>()?.into_iter().map(i64::from).collect()))?)
                }
                DType::I64 => Output::Whole(all(&parts, |t| Ok(t.to_vec::<i64>()?))?),
                dtype if dtype.is_whole() => {
                    Output::Whole(all(&parts, |t| Ok(t.to_f64_vec()?.into_iter().map(|x| x as i64).collect()))?)
                }
                _ => Output::Real(all(&parts, |t| Ok(t.to_f64_vec()?))?),
            })
        };
        written.map(one).collect()
    }
}

/// The elements of a tensor, row-major.
fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    Ok(match tensor.dtype() {
        DType::F16 => tensor.to_vec::<f16>()?.into_iter().flat_map(f16::to_ne_bytes).collect(),
        DType::Bf16 => tensor.to_vec::<bf16>()?.into_iter().flat_map(bf16::to_ne_bytes).collect(),
        DType::F32 => tensor.to_vec::<f32>()?.into_iter().flat_map(f32::to_ne_bytes).collect(),
        DType::F64 => tensor.to_vec::<f64>()?.into_iter().flat_map(f64::to_ne_bytes).collect(),
        DType::I32 => tensor.to_vec::<i32>()?.into_iter().flat_map(i32::to_ne_bytes).collect(),
        DType::I64 => tensor.to_vec::<i64>()?.into_iter().flat_map(i64::to_ne_bytes).collect(),
        DType::I8 => tensor.to_vec::<i8>()?.into_iter().flat_map(i8::to_ne_bytes).collect(),
        DType::U8 => tensor.to_vec::<u8>()?,
        DType::I16 => tensor.to_vec::<i16>()?.into_iter().flat_map(i16::to_ne_bytes).collect(),
        DType::U16 => tensor.to_vec::<u16>()?.into_iter().flat_map(u16::to_ne_bytes).collect(),
        DType::F8E4M3 => tensor.to_vec::<F8E4M3>()?.iter().map(F8E4M3::to_bits).collect(),
        DType::F8E5M2 => tensor.to_vec::<F8E5M2>()?.iter().map(F8E5M2::to_bits).collect(),
        // No tensor has this element type.
        DType::Bool => Vec::new(),
    })
}

/// The inverse of `bytes`, as numbers.
fn output(dtype: DType, bytes: &[u8]) -> Output {
    fn each<const N: usize, T>(bytes: &[u8], of: impl Fn([u8; N]) -> T) -> Vec<T> {
        bytes.as_chunks::<N>().0.iter().map(|&b| of(b)).collect()
    }
    match dtype {
        DType::I32 => Output::Whole(each(bytes, |b| i64::from(i32::from_ne_bytes(b)))),
        DType::I64 => Output::Whole(each(bytes, i64::from_ne_bytes)),
        DType::I8 => Output::Whole(each(bytes, |b| i8::from_ne_bytes(b).into())),
        DType::U8 => Output::Whole(each(bytes, |b| u8::from_ne_bytes(b).into())),
        DType::I16 => Output::Whole(each(bytes, |b| i16::from_ne_bytes(b).into())),
        DType::U16 => Output::Whole(each(bytes, |b| u16::from_ne_bytes(b).into())),
        DType::F16 => Output::Real(each(bytes, |b| f16::from_ne_bytes(b).to_f64())),
        DType::Bf16 => Output::Real(each(bytes, |b| bf16::from_ne_bytes(b).to_f64())),
        DType::F64 => Output::Real(each(bytes, f64::from_ne_bytes)),
        DType::F8E4M3 => Output::Real(each(bytes, |[b]| Element::to_f64(F8E4M3::from_bits(b)))),
        DType::F8E5M2 => Output::Real(each(bytes, |[b]| Element::to_f64(F8E5M2::from_bits(b)))),
        _ => Output::Real(each(bytes, |b| f64::from(f32::from_ne_bytes(b)))),
    }
}

fn all<T>(parts: &[Tensor], of: impl Fn(&Tensor) -> Result<Vec<T>>) -> Result<Vec<T>> {
    Ok(parts.iter().map(of).collect::<Result<Vec<Vec<T>>>>()?.into_iter().flatten().collect())
}

/// Views of a tensor's first and last elements, `most` together, or of all elements if there are no more.
fn ends(t: &Tensor, axis: usize, most: usize, parts: &mut Vec<Tensor>) -> Result<()> {
    if t.len() <= most.max(1) || axis == t.rank() {
        parts.push(t.clone());
        return Ok(());
    }
    // The axes before this one have one element.
    let rows = t.shape()[axis];
    let part = most / 2 / (t.len() / rows).max(1);
    if rows == 1 {
        return ends(t, axis + 1, most, parts);
    }
    if part > 0 {
        parts.extend([t.slice(axis, 0..part)?, t.slice(axis, rows - part..rows)?]);
        return Ok(());
    }
    ends(&t.slice(axis, 0..1)?, axis + 1, most / 2, parts)?;
    ends(&t.slice(axis, rows - 1..rows)?, axis + 1, most / 2, parts)
}

/// More whole numbers than that are never told apart.
const MOST_INDICES: u64 = 1 << 30;

/// The number of whole numbers that are valid indices into every dim. Dims that a kernel uses whole do not count,
/// because nothing indexes them, and neither do dims of one element.
fn indices(def: &KernelDef, dims: &[u64]) -> u64 {
    let least = |whole: bool| {
        let sizes = def.dims.iter().zip(dims).filter(|(d, n)| (whole || !d.whole) && **n > 1);
        sizes.map(|(_, n)| *n).min()
    };
    least(false).or_else(|| least(true)).unwrap_or(1).min(MOST_INDICES)
}

/// Fills contiguous memory with numbers that depend on the place in the signature, or with the unwritten value. Whole
/// numbers are mostly indices and the starts of rows, so they ascend by one and start again at the size of the smallest
/// dim.
fn fill(tensor: &mut Tensor, place: usize, indices: u64, values: Option<Values>) -> Result<()> {
    let len = tensor.len();
    let real = move |i: usize| match values {
        None => UNWRITTEN.0,
        Some(Values::Signed) => fraction(place, i) - 0.5,
        Some(Values::Positive) => fraction(place, i),
    };
    let whole = move |i: usize| match values {
        None => UNWRITTEN.1,
        Some(_) => ((i + place) as u64 % indices) as i32,
    };
    // Quantized numbers use all of their range. The one that is not written is among them: there is no other.
    let small = move |i: usize| match values {
        None => UNWRITTEN.1,
        Some(_) => scattered((place as u64) << 48 ^ i as u64) as i32,
    };
    match tensor.dtype() {
        DType::F16 => tensor.copy_from(&(0..len).map(|i| f16::from_f32(real(i))).collect::<Vec<_>>())?,
        DType::Bf16 => tensor.copy_from(&(0..len).map(|i| bf16::from_f32(real(i))).collect::<Vec<_>>())?,
        DType::F32 => tensor.copy_from(&(0..len).map(real).collect::<Vec<_>>())?,
        DType::F64 => tensor.copy_from(&(0..len).map(|i| f64::from(real(i))).collect::<Vec<_>>())?,
        DType::I32 => tensor.copy_from(&(0..len).map(whole).collect::<Vec<_>>())?,
        DType::I64 => tensor.copy_from(&(0..len).map(|i| i64::from(whole(i))).collect::<Vec<_>>())?,
        DType::I8 => tensor.copy_from(&(0..len).map(|i| small(i) as i8).collect::<Vec<_>>())?,
        DType::U8 => tensor.copy_from(&(0..len).map(|i| small(i) as u8).collect::<Vec<_>>())?,
        DType::I16 => tensor.copy_from(&(0..len).map(|i| small(i) as i16).collect::<Vec<_>>())?,
        DType::U16 => tensor.copy_from(&(0..len).map(|i| small(i) as u16).collect::<Vec<_>>())?,
        DType::F8E4M3 => {
            tensor.copy_from(&(0..len).map(|i| <F8E4M3 as Element>::from_f64(real(i).into())).collect::<Vec<_>>())?
        }
        DType::F8E5M2 => {
            tensor.copy_from(&(0..len).map(|i| <F8E5M2 as Element>::from_f64(real(i).into())).collect::<Vec<_>>())?
        }
        // No tensor has this element type.
        DType::Bool => {}
    }
    Ok(())
}

/// A pseudo-random number between 0 and 1 for each element of each tensor, without a period. So no two rows are equal.
/// If they were, a distance would be 0 and rounding would decide. Elements at one index of tensors that are neighbours
/// in the signature differ in bf16 too: each of them gets one of every four steps of 1/256, plus a fraction of a step.
fn fraction(place: usize, i: usize) -> f32 {
    let chance = scattered((place as u64) << 48 ^ i as u64);
    let (step, part) = ((chance >> 58) * 4 + place as u64 % 4, (chance >> 38) & 0xf_ffff);
    let part = (1.0 + part as f64) / f64::from((1 << 20) + 1) / 512.0;
    (step as f64 / 256.0 + part) as f32
}

/// SplitMix64's finalizer: each bit of the result depends on each bit of the number.
fn scattered(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Memory and a view of it for which exactly these facts hold. The strides are odd multiples of their known divisors,
/// and as small as possible such that no two elements overlap.
fn view(device: &Device, dtype: DType, shape: &[usize], facts: &TensorFacts) -> Result<(Tensor, Tensor)> {
    let fixed = |axis: usize| match facts.strides[axis] {
        StrideFact::Const(n) => usize::try_from(n).ok(),
        StrideFact::Dynamic(_) => None,
    };
    let last = |axis: usize, stride: usize| shape[axis].saturating_sub(1).saturating_mul(stride);
    let mut strides: Vec<usize> = (0..shape.len()).map(|axis| fixed(axis).unwrap_or(0)).collect();
    let mut reach: usize = (0..shape.len()).map(|axis| last(axis, strides[axis])).fold(0, usize::saturating_add);
    for axis in (0..shape.len()).rev() {
        if let StrideFact::Dynamic(divisor) = facts.strides[axis] {
            let divisor = divisor as usize;
            strides[axis] = (reach.saturating_add(1).div_ceil(divisor) | 1).saturating_mul(divisor);
            reach = reach.saturating_add(last(axis, strides[axis]));
        }
    }
    // An address with exactly this alignment, if that is less than the alignment of all memory.
    let offset = if facts.align < 16 { (facts.align / dtype.bytes()) as usize } else { 0 };
    let len = reach.saturating_add(offset).saturating_add(1);
    if len > MOST_MEMORY {
        bail!("a view of these strides spans {len} elements, which is more than any GPU holds");
    }
    let memory = Tensor::empty(device, dtype, [len])?;
    let view = memory.as_strided(shape, strides, offset)?;
    Ok((memory, view))
}

/// The largest difference between the results of two configs of a kernel, relative to their size, because they sum in
/// different orders. A result is no more precise than the roundings of its type; whole numbers have none. A float of 8 bits is off by
/// up to a step, of an eighth or a quarter, where it is next to a tie.
pub(super) fn bound(kernel: &Kernel) -> f64 {
    let of = |t: DType| match t {
        DType::F8E5M2 => 1.3e-1,
        DType::F8E4M3 => 7e-2,
        DType::Bf16 => 3e-2,
        DType::F16 => 5e-3,
        DType::F32 => 1e-4,
        _ => 1e-10,
    };
    kernel.values.values().map(|v| of(v.ty.dtype)).fold(1e-10, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(dtype: DType, place: usize, indices: u64, values: Option<Values>) -> Vec<f64> {
        let mut tensor = Tensor::empty(&Device::cpu(), dtype, [200]).unwrap();
        fill(&mut tensor, place, indices, values).unwrap();
        tensor.to_f64_vec().unwrap()
    }

    #[test]
    fn whole_numbers_are_starts_of_rows_and_indices() {
        let starts = filled(DType::I32, 0, 64, Some(Values::Signed));
        assert!(starts[..64].windows(2).all(|w| w[1] == w[0] + 1.0), "each row has an element");
        assert!(starts.iter().all(|n| (0.0..64.0).contains(n)));
        assert_eq!(filled(DType::I64, 0, 64, Some(Values::Positive)), starts);
    }

    #[test]
    fn tensors_differ_from_each_other_and_from_what_is_not_written() {
        for dtype in [DType::I32, DType::I64, DType::F32, DType::F64, DType::Bf16, DType::F16] {
            for values in [Values::Signed, Values::Positive] {
                let (a, b) = (filled(dtype, 0, 64, Some(values)), filled(dtype, 1, 64, Some(values)));
                let unwritten = filled(dtype, 0, 64, None);
                assert!(a.iter().zip(&b).all(|(x, y)| x != y), "{dtype}");
                assert!(a.iter().zip(&unwritten).all(|(x, y)| x != y), "{dtype}");
            }
            let is_whole = matches!(dtype, DType::I32 | DType::I64);
            assert!(is_whole || filled(dtype, 3, 64, Some(Values::Positive)).iter().all(|&x| x > 0.0));
        }
    }

    /// If two rows were equal, a distance would be 0 and its nearest neighbour a matter of rounding.
    #[test]
    fn no_two_rows_are_alike() {
        for dtype in [DType::F32, DType::Bf16] {
            for columns in [1, 8, 101] {
                let mut rows: Vec<Vec<u64>> = Vec::new();
                for place in 0..2 {
                    let mut tensor = Tensor::empty(&Device::cpu(), dtype, [101 * 40]).unwrap();
                    fill(&mut tensor, place, 64, Some(Values::Signed)).unwrap();
                    let bits: Vec<u64> = tensor.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect();
                    rows.extend(bits.chunks_exact(columns).map(<[u64]>::to_vec));
                }
                let count = rows.len();
                rows.sort();
                rows.dedup();
                // Single numbers repeat: in 8 bits most of them, in 24 bits some in a thousand.
                let alike = count - rows.len();
                assert!(alike == 0 || (columns == 1 && (dtype == DType::Bf16 || alike < count / 100)), "{alike}");
            }
        }
    }

    /// A batch of one is common, and must not cause all of it to be read.
    #[test]
    fn no_more_of_a_tensor_is_read_than_was_asked_for() {
        for shape in [&[1, 100, 100][..], &[10_000], &[2, 5000], &[1, 1, 10_000], &[3, 1, 7, 500], &[64, 2]] {
            let t = Tensor::zeros(&Device::cpu(), DType::F32, shape).unwrap();
            let mut parts = Vec::new();
            ends(&t, 0, 128, &mut parts).unwrap();
            let read: usize = parts.iter().map(Tensor::len).sum();
            assert!(read <= 128 && 2 * read >= 128.min(t.len()) / 2, "{shape:?}: {read}");
            // Including the last element.
            assert!(parts.last().unwrap().address_range().end == t.address_range().end, "{shape:?}");
        }
    }
}
