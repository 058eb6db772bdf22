//! Arguments for a kernel of which nothing is known but its signature: small numbers that differ, and from tensor to tensor.

use anyhow::{Context, Result, bail};
use atlas_dsl::def::{DTypeRef, ParamDef};
use atlas_dsl::ir::{Access, ParamKind};
use atlas_dsl::op::Op;
use atlas_dsl::specialization::{StrideFact, TensorFacts};
use atlas_dsl::{DType, Kernel, KernelDef, Param};
use atlas_runtime::{Arg, Device, Tensor};
use atlas_tile_interp::{self as interpreted, Mode, Scalar, TensorView, TensorViewMut};
use half::{bf16, f16};
use std::collections::BTreeMap;

/// What the numbers of tensors are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Values {
    /// Between -1/2 and 1/2.
    #[default]
    Signed,
    /// Above 0: for kernels that take roots or logarithms of what they are given.
    Positive,
}

/// What a tensor written by a kernel that never reads it holds before: no number, and no index.
const UNWRITTEN: (f32, i32) = (f32::NAN, i32::MIN + 12_345);
/// The largest whole number that is passed by value: a few steps of a loop, a place in all but the smallest dims.
const MOST_SCALAR: u64 = 7;

/// Elements that a view spans, at most.
const MOST_MEMORY: usize = 1 << 36;

/// What a kernel wrote to one tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Output {
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Others.
    Real(Vec<f64>),
}

impl Output {
    /// Elements.
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
    /// Numbers that the user gave.
    scalars: BTreeMap<String, f64>,
}

/// A tensor, and all of its memory.
struct Held {
    name: &'static str,
    access: Access,
    memory: Tensor,
    tensor: Tensor,
}

impl Arguments {
    /// Tensors of the element types and sizes, and of the facts that a class has of those that are not contiguous or not
    /// aligned.
    ///
    /// # Errors
    /// If there is no memory for them, or a class asks for what no tensor has.
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

    /// Makes the tensors as they are before a kernel runs, in their own memory: those that it writes and never reads hold
    /// nothing that it could have written.
    ///
    /// # Errors
    /// Those of the driver.
    pub(super) fn renew(&mut self, kernel: &Kernel, values: Values) -> Result<()> {
        let is_read = |name: &str| {
            kernel.insts.values().any(|op| matches!(op, Op::Load { param, .. } if kernel.params[*param].name == name))
        };
        for (at, held) in self.tensors.iter_mut().enumerate() {
            match held.access {
                Access::In if values == self.values => {}
                Access::Out if !is_read(held.name) => fill(&mut held.memory, at, self.indices, None)?,
                _ => fill(&mut held.memory, at, self.indices, Some(values))?,
            }
        }
        self.values = values;
        Ok(())
    }

    /// In the order of the parameters.
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

    /// What a kernel writes by the interpreter, as long as that takes no more than so many operations. The tensors stay as they are.
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

    /// The number of a parameter that is given by value.
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

    /// Bytes of the tensors.
    pub(super) fn bytes(&self) -> f64 {
        self.tensors.iter().map(|t| t.tensor.len() as f64 * f64::from(t.tensor.dtype().bytes())).sum()
    }

    /// What is written, `most` elements of each tensor at most: of its beginning and of its end.
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
        // No tensor holds it.
        DType::Bool => Vec::new(),
    })
}

/// The inverse, as numbers.
fn output(dtype: DType, bytes: &[u8]) -> Output {
    fn each<const N: usize, T>(bytes: &[u8], of: impl Fn([u8; N]) -> T) -> Vec<T> {
        bytes.as_chunks::<N>().0.iter().map(|&b| of(b)).collect()
    }
    match dtype {
        DType::I32 => Output::Whole(each(bytes, |b| i64::from(i32::from_ne_bytes(b)))),
        DType::I64 => Output::Whole(each(bytes, i64::from_ne_bytes)),
        DType::F16 => Output::Real(each(bytes, |b| f16::from_ne_bytes(b).to_f64())),
        DType::Bf16 => Output::Real(each(bytes, |b| bf16::from_ne_bytes(b).to_f64())),
        DType::F64 => Output::Real(each(bytes, f64::from_ne_bytes)),
        _ => Output::Real(each(bytes, |b| f64::from(f32::from_ne_bytes(b)))),
    }
}

fn all<T>(parts: &[Tensor], of: impl Fn(&Tensor) -> Result<Vec<T>>) -> Result<Vec<T>> {
    Ok(parts.iter().map(of).collect::<Result<Vec<Vec<T>>>>()?.into_iter().flatten().collect())
}

/// The parts of a tensor at its two ends that have `most` elements together, or all of it if it has no more.
fn ends(t: &Tensor, axis: usize, most: usize, parts: &mut Vec<Tensor>) -> Result<()> {
    if t.len() <= most.max(1) || axis == t.rank() {
        parts.push(t.clone());
        return Ok(());
    }
    // The axes before have one element.
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

/// How many whole numbers there are that index every dim but those that a kernel uses whole, which nothing indexes, and those
/// of one element.
fn indices(def: &KernelDef, dims: &[u64]) -> u64 {
    let least = |whole: bool| {
        let sizes = def.dims.iter().zip(dims).filter(|(d, n)| (whole || !d.whole) && **n > 1);
        sizes.map(|(_, n)| *n).min()
    };
    least(false).or_else(|| least(true)).unwrap_or(1).min(1 << 30)
}

/// Fills contiguous memory with numbers, other ones for each place in the signature, or with what no kernel writes. Whole
/// numbers are mostly indices and the starts of rows: they rise by one, and begin anew at the end of the smallest dim.
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
    match tensor.dtype() {
        DType::F16 => tensor.copy_from(&(0..len).map(|i| f16::from_f32(real(i))).collect::<Vec<_>>())?,
        DType::Bf16 => tensor.copy_from(&(0..len).map(|i| bf16::from_f32(real(i))).collect::<Vec<_>>())?,
        DType::F32 => tensor.copy_from(&(0..len).map(real).collect::<Vec<_>>())?,
        DType::F64 => tensor.copy_from(&(0..len).map(|i| f64::from(real(i))).collect::<Vec<_>>())?,
        DType::I32 => tensor.copy_from(&(0..len).map(whole).collect::<Vec<_>>())?,
        DType::I64 => tensor.copy_from(&(0..len).map(|i| i64::from(whole(i))).collect::<Vec<_>>())?,
        // No tensor holds it.
        DType::Bool => {}
    }
    Ok(())
}

/// A number between 0 and 1 for each element of each tensor, by chance and with no period: rows are alike nowhere, as they
/// would be where a distance is 0 and rounding decides. Of neighbours in a signature, elements at one index differ in bf16 too:
/// of each four steps of 1/256 each has one, and a part of the step beside.
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

/// Memory, and a view of it of which these facts hold and no more: strides are odd multiples of what divides them, as small as lets no two
/// elements meet.
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
    // An address of the alignment and of none above it, if that is less than what all memory has.
    let offset = if facts.align < 16 { (facts.align / dtype.bytes()) as usize } else { 0 };
    let len = reach.saturating_add(offset).saturating_add(1);
    if len > MOST_MEMORY {
        bail!("a view of these strides spans {len} elements, which is more than any GPU holds");
    }
    let memory = Tensor::empty(device, dtype, [len])?;
    let view = memory.as_strided(shape, strides, offset)?;
    Ok((memory, view))
}

/// How far the results of a kernel with one config may lie from those with another, relative to their size: they sum in other
/// orders. What is computed in a type is no nearer than its roundings; whole numbers have none.
pub(super) fn bound(kernel: &Kernel) -> f64 {
    let of = |t: DType| match t {
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

    /// Where two rows were alike, a distance would be 0 and its nearest neighbour a matter of rounding.
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
                // Of numbers alone some are alike: of 8 bits most, of 24 some in a thousand.
                let alike = count - rows.len();
                assert!(alike == 0 || (columns == 1 && (dtype == DType::Bf16 || alike < count / 100)), "{alike}");
            }
        }
    }

    /// A batch of one is the usual case, and no reason to read all of it.
    #[test]
    fn no_more_of_a_tensor_is_read_than_was_asked_for() {
        for shape in [&[1, 100, 100][..], &[10_000], &[2, 5000], &[1, 1, 10_000], &[3, 1, 7, 500], &[64, 2]] {
            let t = Tensor::zeros(&Device::cpu(), DType::F32, shape).unwrap();
            let mut parts = Vec::new();
            ends(&t, 0, 128, &mut parts).unwrap();
            let read: usize = parts.iter().map(Tensor::len).sum();
            assert!(read <= 128 && 2 * read >= 128.min(t.len()) / 2, "{shape:?}: {read}");
            // Of the last element too.
            assert!(parts.last().unwrap().address_range().end == t.address_range().end, "{shape:?}");
        }
    }
}
