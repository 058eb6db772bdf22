//! Classes of problems: a specialization without the facts of usual tensors, as a value and as text.
//!
//! A tensor is usual if it is contiguous and aligned to 16 bytes. A kernel that was compiled for one class serves every
//! problem for which all assumptions of the class hold.

use atlas_dsl::def::{DTypeRef, ParamDef};
use atlas_dsl::specialization::{DimFact, StrideFact, TensorFacts, largest_class};
use atlas_dsl::{DType, KernelDef, Specialization};
use std::fmt::Write;

/// The alignment of a tensor unless the class names another one, in bytes.
const USUAL_ALIGN: u32 = 16;
/// The most axes of a tensor that a text may name.
const MOST_AXES: usize = 64;

/// The tensors of a kernel by name, with the facts of their dims.
fn tensors<'a>(
    def: &'a KernelDef,
    spec: &'a Specialization,
) -> impl Iterator<Item = (&'static str, Vec<DimFact>)> + 'a {
    def.params.iter().filter_map(|param| match param {
        ParamDef::Scalar { .. } => None,
        ParamDef::Tensor { name, dims, .. } => {
            let fact = |&d: &usize| spec.dims.get(def.dims[d].name).copied().unwrap_or(DimFact::Dynamic(1));
            Some((*name, dims.iter().map(fact).collect()))
        }
    })
}

fn is_usual(facts: &TensorFacts, dims: &[DimFact]) -> bool {
    facts.align >= USUAL_ALIGN && facts.strides == Specialization::contiguous_strides(dims)
}

/// A specialization without the facts of usual tensors.
pub(crate) fn canonical(def: &KernelDef, spec: &Specialization) -> Specialization {
    let mut canonical = spec.clone();
    for (name, dims) in tensors(def, spec) {
        if spec.tensors.get(name).is_some_and(|facts| is_usual(facts, &dims)) {
            canonical.tensors.remove(name);
        }
    }
    canonical
}

/// The specialization of a launch with the types, dims and views of a class. Strides are those of a contiguous tensor,
/// 1, or known up to a power of two of at most 128. Addresses are known up to 16 bytes. The stride of an axis of one
/// element is that of a contiguous tensor. A class that a launch can have is returned unchanged, except for usual
/// tensors, which it does not name. Dims without a size are taken to have several elements.
pub fn of_launch(def: &KernelDef, class: &Specialization, sizes: &[u64]) -> Specialization {
    let mut spec = class.clone();
    for (name, dims) in tensors(def, class) {
        let Some(facts) = spec.tensors.get_mut(name) else { continue };
        let axes = sizes_of(def, name, sizes);
        let stride = |((given, usual), size): ((&StrideFact, StrideFact), u64)| match *given {
            _ if size <= 1 => usual,
            given if given == usual => usual,
            StrideFact::Const(1) => StrideFact::Const(1),
            StrideFact::Const(n) => StrideFact::Dynamic(largest_class(n.unsigned_abs())),
            StrideFact::Dynamic(divisor) => StrideFact::Dynamic(largest_class(u64::from(divisor))),
        };
        let usual = Specialization::contiguous_strides(&dims);
        facts.strides = facts.strides.iter().zip(usual).zip(axes).map(stride).collect();
        facts.align = facts.align.min(USUAL_ALIGN).max(element_bytes(def, class, name));
    }
    canonical(def, &spec)
}

/// Bytes per element of a tensor.
fn element_bytes(def: &KernelDef, spec: &Specialization, tensor: &str) -> u32 {
    let dtype = def.params.iter().find_map(|param| match param {
        ParamDef::Tensor { name, dtype, .. } if *name == tensor => Some(*dtype),
        _ => None,
    });
    match dtype {
        Some(DTypeRef::Fixed(dtype)) => dtype.bytes(),
        Some(DTypeRef::Generic(at)) => def.types.get(at).and_then(|t| spec.types.get(t.name)).map_or(1, |t| t.bytes()),
        None => 1,
    }
}

/// The element types of a specialization as text, `T=bf16`, and the text of its tensors that are not contiguous or not
/// aligned to 16 bytes, `x=4:*8,1`: the alignment in bytes, then the strides in elements, where `*8` is any multiple of
/// 8.
pub fn class_text(def: &KernelDef, spec: &Specialization) -> (String, String) {
    let types = def.types.iter().filter_map(|t| spec.types.get(t.name).map(|d| format!("{}={d}", t.name)));
    let types = types.collect::<Vec<_>>().join(" ");
    let mut unusual = Vec::new();
    for (name, dims) in tensors(def, spec) {
        let Some(facts) = spec.tensors.get(name).filter(|facts| !is_usual(facts, &dims)) else { continue };
        let mut text = format!("{name}={}:", facts.align);
        for (i, stride) in facts.strides.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            // Writing to a string does not fail.
            let _ = match stride {
                StrideFact::Const(n) => write!(text, "{comma}{n}"),
                StrideFact::Dynamic(divisor) => write!(text, "{comma}*{divisor}"),
            };
        }
        unusual.push(text);
    }
    (types, unusual.join(" "))
}

/// The facts of a specialization's dims as text, `N=*8 D=64`: `*8` is any multiple of 8.
pub(crate) fn dims_text(def: &KernelDef, spec: &Specialization) -> String {
    let fact = |d: &atlas_dsl::def::DimDef| {
        spec.dims.get(d.name).map(|fact| match fact {
            DimFact::Const(n) => format!("{}={n}", d.name),
            DimFact::Dynamic(divisor) => format!("{}=*{divisor}", d.name),
        })
    };
    def.dims.iter().filter_map(fact).collect::<Vec<_>>().join(" ")
}

/// A specialization from the texts of its types, dims and unusual tensors. `None` if a text does not parse.
pub fn parse_class(types: &str, dims: &str, tensors: &str) -> Option<Specialization> {
    let mut spec = Specialization::default();
    for pair in types.split_whitespace() {
        let (name, dtype) = pair.split_once('=')?;
        spec.types.insert(name.to_owned(), DType::from_name(dtype)?);
    }
    for pair in dims.split_whitespace() {
        let (name, fact) = pair.split_once('=')?;
        let fact = match fact.strip_prefix('*') {
            Some(divisor) => DimFact::Dynamic(divisor_of(divisor)?),
            None => DimFact::Const(fact.parse().ok()?),
        };
        spec.dims.insert(name.to_owned(), fact);
    }
    for pair in tensors.split_whitespace() {
        let (name, facts) = pair.split_once('=')?;
        let (align, strides) = facts.split_once(':')?;
        let stride = |text: &str| match text.strip_prefix('*') {
            Some(divisor) => divisor_of(divisor).map(StrideFact::Dynamic),
            None => text.parse().ok().map(StrideFact::Const),
        };
        let strides: Vec<StrideFact> = match strides {
            "" => Vec::new(),
            some => some.split(',').map(stride).collect::<Option<_>>()?,
        };
        if strides.len() > MOST_AXES {
            return None;
        }
        spec.tensors.insert(name.to_owned(), TensorFacts { align: divisor_of(align)?, strides });
    }
    Some(spec)
}

fn divisor_of(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n: &u32| n.is_power_of_two())
}

/// True if a kernel that was compiled for the class `wide` serves a problem of these sizes and of the class `here`.
/// Both classes are canonical. The stride of an axis of one element is never used, so any assumption about it holds.
pub(crate) fn serves(def: &KernelDef, wide: &Specialization, here: &Specialization, sizes: &[u64]) -> bool {
    let dim = |name: &str| match (wide.dims.get(name), here.dims.get(name)) {
        (Some(DimFact::Const(a)), Some(DimFact::Const(b))) => a == b,
        (Some(DimFact::Dynamic(a)), Some(DimFact::Const(b))) => b % u64::from(*a) == 0,
        (Some(DimFact::Dynamic(a)), Some(DimFact::Dynamic(b))) => b % a == 0,
        _ => false,
    };
    let stride = |(a, b): (&StrideFact, &StrideFact)| match (a, b) {
        (StrideFact::Const(a), StrideFact::Const(b)) => a == b,
        (StrideFact::Dynamic(a), StrideFact::Const(b)) => b % i64::from(*a) == 0,
        (StrideFact::Dynamic(a), StrideFact::Dynamic(b)) => b % a == 0,
        (StrideFact::Const(_), StrideFact::Dynamic(_)) => false,
    };
    wide.types == here.types
        && def.dims.iter().all(|d| dim(d.name))
        && tensors(def, wide).zip(tensors(def, here)).all(|((name, a), (_, b))| {
            let (a, b) = (facts(wide, name, &a), facts(here, name, &b));
            let axes = sizes_of(def, name, sizes);
            a.align <= b.align
                && a.strides.len() == b.strides.len()
                && a.strides.iter().zip(&b.strides).zip(axes).all(|(strides, size)| size <= 1 || stride(strides))
        })
}

/// The sizes of a tensor's axes.
fn sizes_of(def: &KernelDef, tensor: &str, sizes: &[u64]) -> Vec<u64> {
    let axes = def.params.iter().find_map(|param| match param {
        ParamDef::Tensor { name, dims, .. } if *name == tensor => Some(*dims),
        _ => None,
    });
    axes.unwrap_or_default().iter().map(|&d| sizes.get(d).copied().unwrap_or(u64::MAX)).collect()
}

/// How much a class assumes. If two classes serve a problem, the one that assumes more has the faster kernel.
pub(crate) fn assumed(def: &KernelDef, spec: &Specialization) -> u32 {
    let of_dims = spec.dims.values().map(|fact| match fact {
        DimFact::Const(_) => 16,
        DimFact::Dynamic(divisor) => divisor.trailing_zeros(),
    });
    let stride = |s: &StrideFact| match s {
        StrideFact::Const(_) => 16,
        StrideFact::Dynamic(divisor) => divisor.trailing_zeros(),
    };
    let of_tensors = tensors(def, spec).map(|(name, dims)| {
        let facts = facts(spec, name, &dims);
        facts.align.trailing_zeros() + facts.strides.iter().map(stride).sum::<u32>()
    });
    of_dims.sum::<u32>() + of_tensors.sum::<u32>()
}

/// The facts of a tensor: those that the specialization names, else the usual ones.
fn facts(spec: &Specialization, name: &str, dims: &[DimFact]) -> TensorFacts {
    let usual = || TensorFacts { align: USUAL_ALIGN, strides: Specialization::contiguous_strides(dims) };
    spec.tensors.get(name).cloned().unwrap_or_else(usual)
}
