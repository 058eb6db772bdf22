//! How the parts of a fusion are linked: which part makes which tensor, and which dims and element types are the same.
//!
//! A part reads the output of the part before it as its first tensor, unless names say otherwise. An input is an earlier part's
//! tensor if both have the same name after renaming and one of them was renamed. Parameters of the same name that no part makes
//! are one parameter. Dims are only identified through tensors: the `N` of two kernels is the same dim only if they share a
//! tensor that has it. A kernel of rows can also take its rows from a tensor of higher rank. It is then *lifted* over the
//! leading axes.

use super::Fusion;
use crate::def::{DTypeRef, KernelDef, ParamDef};
use crate::diag::{Diagnostic, Diagnostics};
use crate::ir::{Access, Kernel, Loc};
use crate::op::Op;
use crate::types::DType;

/// What a parameter of a part is in the fused kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A parameter of the fused kernel, by its name there.
    Outside(String),
    /// The tensor that a parameter of another part holds; both are given by number.
    Made { part: usize, param: usize },
    /// A tensor that is written for another part.
    Passed,
}

/// A part and the meaning of its names.
pub(super) struct Linked {
    pub(super) def: &'static KernelDef,
    /// The name of its kernel, with a number if an earlier part has the same kernel.
    pub(super) label: String,
    pub(super) params: Vec<Meaning>,
    /// The classes of its dims and of its type parameters.
    pub(super) dims: Vec<usize>,
    pub(super) types: Vec<usize>,
    /// Classes of the axes that are prepended to tensors that begin with the dim `over`.
    pub(super) lift: Vec<usize>,
    pub(super) over: Option<usize>,
}

/// A set of dims that are the same.
pub(super) struct DimClass {
    pub(super) name: String,
    pub(super) whole: bool,
}

/// A set of type parameters that are the same.
pub(super) struct TypeClass {
    pub(super) name: String,
    pub(super) fixed: Option<DType>,
    pub(super) allowed: Vec<DType>,
}

/// All parts.
pub(super) struct Links {
    pub(super) parts: Vec<Linked>,
    pub(super) dims: Vec<DimClass>,
    pub(super) types: Vec<TypeClass>,
}

impl Linked {
    /// True if a tensor has the axes of `lift` before its own.
    pub(super) fn is_lifted(&self, param: usize) -> bool {
        matches!(&self.def.params[param], ParamDef::Tensor { dims, .. } if self.over.is_some() && dims.first() == self.over.as_ref())
    }

    /// The classes of a tensor's dims in the fused kernel.
    pub(super) fn dims_of(&self, param: usize) -> Vec<usize> {
        let ParamDef::Tensor { dims, .. } = &self.def.params[param] else { return Vec::new() };
        let lift = if self.is_lifted(param) { &self.lift[..] } else { &[] };
        lift.iter().copied().chain(dims.iter().map(|&d| self.dims[d])).collect()
    }
}

/// A mistake in a fusion's signature.
pub(super) fn refuse(message: impl Into<String>) -> Diagnostics {
    Diagnostic::new(230, Loc::default(), message).into()
}

pub(super) fn is_output(p: &ParamDef) -> bool {
    matches!(p, ParamDef::Tensor { access: Access::Out, .. })
}

fn is_input(p: &ParamDef) -> bool {
    matches!(p, ParamDef::Tensor { access: Access::In, .. })
}

/// Links the parts of a fusion.
pub(super) fn link(fusion: &Fusion) -> Result<Links, Diagnostics> {
    let mut parts: Vec<Linked> = Vec::new();
    let (mut dim_count, mut type_count) = (0, 0);
    for part in fusion.parts {
        let def = part.kernel.declared();
        if let Some(why) = def.refused {
            return Err(why.clone());
        }
        let before = parts.iter().filter(|p| p.def.name == def.name).count();
        let label = if before == 0 { def.name.to_owned() } else { format!("{}_{}", def.name, before + 1) };
        let (dims, types) = (def.dims.len(), def.types.len());
        parts.push(Linked {
            def,
            label,
            params: Vec::new(),
            dims: (dim_count..dim_count + dims).collect(),
            types: (type_count..type_count + types).collect(),
            lift: Vec::new(),
            over: None,
        });
        (dim_count, type_count) = (dim_count + dims, type_count + types);
    }
    if parts.len() < 2 {
        return Err(refuse(format!("`{}` is made of {} kernel; there is nothing to fuse", fusion.name, parts.len())));
    }
    name_params(fusion, &mut parts)?;
    lift(&mut parts)?;
    unify(fusion, parts, dim_count, type_count)
}

/// Decides what each parameter is.
fn name_params(fusion: &Fusion, parts: &mut [Linked]) -> Result<(), Diagnostics> {
    let last = parts.len() - 1;
    // What was made and waits for a reader: part, parameter, name, whether it was renamed, whether it was read.
    let mut made: Vec<(usize, usize, &str, bool, bool)> = Vec::new();
    for (at, part) in parts.iter_mut().enumerate() {
        let def = part.def;
        let names = fusion.parts[at].names;
        let known = || def.params.iter().map(ParamDef::name).chain(def.types.iter().map(|t| t.name));
        if let Some((old, _)) = names.iter().find(|(old, _)| !known().any(|n| n == *old)) {
            let known: Vec<&str> = known().collect();
            let message = format!("`{}` has no parameter `{old}`; its parameters are {}", def.name, known.join(", "));
            return Err(refuse(message));
        }
        let renamed = |p: &ParamDef| names.iter().find(|(old, _)| *old == p.name()).map(|(_, new)| *new);
        let name = |p: &'static ParamDef| renamed(p).unwrap_or_else(|| p.name());
        let mut meanings: Vec<Option<Meaning>> = vec![None; def.params.len()];
        for (i, p) in def.params.iter().enumerate().filter(|(_, p)| is_input(p)) {
            let by_name = |m: &&mut (usize, usize, &str, bool, bool)| m.2 == name(p) && (m.3 || renamed(p).is_some());
            if let Some(m) = made.iter_mut().rev().find(by_name) {
                m.4 = true;
                meanings[i] = Some(Meaning::Made { part: m.0, param: m.1 });
            }
        }
        let first = def.params.iter().enumerate().position(|(i, p)| is_input(p) && meanings[i].is_none());
        if let Some(m) = made.iter_mut().find(|m| m.0 + 1 == at && !m.3 && !m.4) {
            let Some(first) = first else {
                return Err(refuse(format!("`{}` reads no tensor that `{}` could be", part.label, m.2)));
            };
            m.4 = true;
            meanings[first] = Some(Meaning::Made { part: m.0, param: m.1 });
        }
        for (i, p) in def.params.iter().enumerate() {
            if is_output(p) && at < last {
                meanings[i] = Some(Meaning::Passed);
                made.push((at, i, name(p), renamed(p).is_some(), false));
            }
        }
        let rest = meanings.into_iter().zip(def.params);
        part.params = rest.map(|(m, p)| m.unwrap_or_else(|| Meaning::Outside(name(p).to_owned()))).collect();
    }
    for &(at, _, name, is_renamed, _) in &made {
        let is_taken = |part: &Linked| part.params.iter().any(|m| *m == Meaning::Outside(name.to_owned()));
        if is_renamed && parts[..=at].iter().any(is_taken) {
            let message = format!("what `{}` makes is called `{name}`, but another tensor is, too", parts[at].label);
            return Err(refuse(message));
        }
    }
    match made.iter().find(|m| !m.4) {
        Some(m) => Err(refuse(format!(
            "nobody reads `{}` of `{}`; of a fusion, the last kernel's outputs alone are left",
            m.2, parts[m.0].label
        ))),
        None => Ok(()),
    }
}

/// Pairs of a read and a write: reader, its parameter, maker, its parameter.
fn edges(parts: &[Linked]) -> Vec<[usize; 4]> {
    let of = |(at, part): (usize, &Linked)| {
        let made = part.params.iter().enumerate().filter_map(move |(i, m)| match *m {
            Meaning::Made { part, param } => Some([at, i, part, param]),
            _ => None,
        });
        made.collect::<Vec<_>>()
    };
    parts.iter().enumerate().flat_map(of).collect()
}

/// Lifts parts until makers and readers agree on ranks.
fn lift(parts: &mut [Linked]) -> Result<(), Diagnostics> {
    // Each round lifts one part by an axis at least.
    for _ in 0..parts.len() * 8 {
        let uneven = edges(parts).into_iter().find_map(|[reader, at, maker, out]| {
            let (read, made) = (parts[reader].dims_of(at), parts[maker].dims_of(out));
            match read.len().cmp(&made.len()) {
                std::cmp::Ordering::Less => Some((reader, at, made)),
                std::cmp::Ordering::Greater => Some((maker, out, read)),
                std::cmp::Ordering::Equal => None,
            }
        });
        let Some((part, param, wanted)) = uneven else { return Ok(()) };
        lift_part(&mut parts[part], param, &wanted)?;
    }
    Err(refuse("the ranks of the tensors between the kernels cannot be brought together"))
}

/// Lifts a part so that a tensor has the wanted rank.
fn lift_part(part: &mut Linked, param: usize, wanted: &[usize]) -> Result<(), Diagnostics> {
    let ParamDef::Tensor { name, dims, .. } = &part.def.params[param] else { return Ok(()) };
    let Some(&over) = dims.first() else { return Ok(()) };
    let label = &part.label;
    if part.over.is_some_and(|o| o != over) {
        return Err(refuse(format!(
            "`{label}` would be repeated along axes before `{name}` and before another tensor"
        )));
    }
    let axes = wanted.len().saturating_sub(dims.len());
    let dim = part.def.dims[over].name;
    for p in part.def.params {
        let ParamDef::Tensor { name: other, dims, access, .. } = p else { continue };
        let at = dims.iter().position(|&d| d == over);
        if at.is_some_and(|at| at > 0) || dims.iter().filter(|&&d| d == over).count() > 1 {
            let message = format!(
                "`{name}` of `{label}` has {axes} axes fewer than the tensor it is joined to, and `{label}` cannot be repeated \
                 along them: `{other}` has the dim `{dim}` behind another"
            );
            return Err(refuse(message));
        }
        if *access == Access::Out && at.is_none() {
            let message =
                format!("`{label}` cannot be repeated along axes before `{name}`: `{other}` has no dim `{dim}`");
            return Err(refuse(message));
        }
    }
    part.over = Some(over);
    part.lift = wanted[..axes].to_vec();
    Ok(())
}

/// Disjoint sets of numbers.
struct Sets(Vec<usize>);

impl Sets {
    fn of(&self, mut x: usize) -> usize {
        while self.0[x] != x {
            x = self.0[x];
        }
        x
    }

    /// The smaller number represents both.
    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.of(a), self.of(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// The element types that the fusion states, as in `first(T = f32)`.
fn told_types(fusion: &Fusion, parts: &[Linked]) -> Result<Vec<(usize, DType)>, Diagnostics> {
    let mut told = Vec::new();
    for (part, names) in parts.iter().zip(fusion.parts.iter().map(|p| p.names)) {
        for (old, new) in names {
            let Some(i) = part.def.types.iter().position(|t| t.name == *old) else { continue };
            let no_type = || refuse(format!("`{new}`, which `{old}` of `{}` is to be, is no element type", part.label));
            let dtype = DType::from_name(new).ok_or_else(no_type)?;
            told.push((part.types[i], dtype));
        }
    }
    Ok(told)
}

/// Merges the dims and the element types of tensors that are the same.
fn unify(fusion: &Fusion, mut parts: Vec<Linked>, dim_count: usize, type_count: usize) -> Result<Links, Diagnostics> {
    let (mut dims, mut types) = (Sets((0..dim_count).collect()), Sets((0..type_count).collect()));
    let mut fixed: Vec<(usize, DType)> = told_types(fusion, &parts)?;
    let mut pairs: Vec<[usize; 4]> = edges(&parts);
    let mut first: Vec<(String, usize, usize)> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        for (i, meaning) in part.params.iter().enumerate() {
            let Meaning::Outside(name) = meaning else { continue };
            match first.iter().find(|f| f.0 == *name) {
                Some(&(_, p, q)) => pairs.push([at, i, p, q]),
                None => first.push((name.clone(), at, i)),
            }
        }
    }
    for [a, i, b, k] in pairs {
        let (p, q) = (&parts[a].def.params[i], &parts[b].def.params[k]);
        let both = || format!("`{}` of `{}` and `{}` of `{}`", q.name(), parts[b].label, p.name(), parts[a].label);
        let (from, to) = match (p, q) {
            (ParamDef::Tensor { dtype: p, .. }, ParamDef::Tensor { dtype: q, .. })
            | (ParamDef::Scalar { dtype: p, .. }, ParamDef::Scalar { dtype: q, .. }) => (*p, *q),
            _ => return Err(refuse(format!("{} are one parameter, but one is a tensor and one a number", both()))),
        };
        match (from, to) {
            (DTypeRef::Fixed(x), DTypeRef::Fixed(y)) if x == y => {}
            (DTypeRef::Fixed(x), DTypeRef::Fixed(y)) => {
                return Err(refuse(format!("{} are one, but have the element types {y} and {x}", both())));
            }
            (DTypeRef::Generic(x), DTypeRef::Generic(y)) => types.join(parts[a].types[x], parts[b].types[y]),
            (DTypeRef::Generic(x), DTypeRef::Fixed(t)) => fixed.push((parts[a].types[x], t)),
            (DTypeRef::Fixed(t), DTypeRef::Generic(y)) => fixed.push((parts[b].types[y], t)),
        }
        let (x, y) = (parts[a].dims_of(i), parts[b].dims_of(k));
        if x.len() != y.len() {
            return Err(refuse(format!("{} are one, but have {} and {} axes", both(), y.len(), x.len())));
        }
        x.iter().zip(&y).for_each(|(&x, &y)| dims.join(x, y));
    }
    all_are_known(&parts, &dims, &types, &fixed)?;
    let order = in_order(&parts, &dims);
    let dim_classes = dim_classes(&parts, &dims, &order);
    let type_classes = type_classes(fusion, &parts, &types, &fixed)?;
    let dim = |d: usize| order.iter().position(|&c| c == dims.of(d)).unwrap_or(0);
    let ty = |x: usize| (0..x).filter(|&i| types.of(i) == i && i < types.of(x)).count();
    for part in &mut parts {
        part.dims.iter_mut().chain(&mut part.lift).for_each(|d| *d = dim(*d));
        part.types.iter_mut().for_each(|t| *t = ty(*t));
    }
    Ok(Links { parts, dims: dim_classes, types: type_classes })
}

/// Checks that each dim and each type parameter belongs to a remaining parameter, so that arguments determine it.
fn all_are_known(parts: &[Linked], dims: &Sets, types: &Sets, fixed: &[(usize, DType)]) -> Result<(), Diagnostics> {
    let outside = |part: &Linked| {
        let left = part.params.iter().enumerate().filter(|(_, m)| matches!(m, Meaning::Outside(_)));
        left.map(|(i, _)| i).collect::<Vec<_>>()
    };
    let with_left = || parts.iter().flat_map(|p| outside(p).into_iter().map(move |i| (p, i)));
    let known_dims: Vec<usize> = with_left().flat_map(|(p, i)| p.dims_of(i)).map(|d| dims.of(d)).collect();
    let of_type = |(p, i): (&Linked, usize)| match p.def.params[i] {
        ParamDef::Tensor { dtype: DTypeRef::Generic(t), .. } | ParamDef::Scalar { dtype: DTypeRef::Generic(t), .. } => {
            Some(types.of(p.types[t]))
        }
        _ => None,
    };
    let known_types: Vec<usize> = with_left().filter_map(of_type).chain(fixed.iter().map(|f| types.of(f.0))).collect();
    for part in parts {
        let lost = |known: &[usize], own: usize| !known.contains(&own);
        if let Some(at) = part.dims.iter().position(|&d| lost(&known_dims, dims.of(d))) {
            let (dim, label) = (part.def.dims[at].name, &part.label);
            return Err(refuse(format!("no tensor that is left says what the dim `{dim}` of `{label}` is")));
        }
        if let Some(at) = part.types.iter().position(|&t| lost(&known_types, types.of(t))) {
            let (ty, label) = (part.def.types[at].name, &part.label);
            let message = format!("no tensor that is left says what `{ty}` of `{label}` is");
            return Err(Diagnostic::new(230, Loc::default(), message)
                .note(format!("say it: `{label}({ty} = f32)`"))
                .into());
        }
    }
    Ok(())
}

/// A name that is not taken: the plain one, or one with the name of its kernel.
pub(super) fn free_name(name: &str, label: &str, taken: &[String]) -> String {
    let is_free = |n: &String| !taken.contains(n);
    let candidates = std::iter::once(name.to_owned()).chain(std::iter::once(format!("{label}_{name}")));
    let numbered = (2..).map(|i| format!("{label}_{name}_{i}"));
    candidates.chain(numbered).find(is_free).unwrap_or_default()
}

/// The sets of dims, ordered by first appearance in the remaining parameters.
fn in_order(parts: &[Linked], sets: &Sets) -> Vec<usize> {
    let mut order = Vec::new();
    for part in parts {
        let left = part.params.iter().enumerate().filter(|(_, m)| matches!(m, Meaning::Outside(_)));
        for class in left.flat_map(|(i, _)| part.dims_of(i)).map(|d| sets.of(d)) {
            if !order.contains(&class) {
                order.push(class);
            }
        }
    }
    order
}

fn dim_classes(parts: &[Linked], sets: &Sets, order: &[usize]) -> Vec<DimClass> {
    let all = || parts.iter().flat_map(|p| p.dims.iter().zip(p.def.dims).map(move |(&id, d)| (id, d, &p.label)));
    let mut classes: Vec<DimClass> = Vec::new();
    for &class in order {
        let taken: Vec<String> = classes.iter().map(|c| c.name.clone()).collect();
        let members = || all().filter(|(id, ..)| sets.of(*id) == class);
        let name = members().next().map(|(_, d, label)| free_name(d.name, label, &taken)).unwrap_or_default();
        classes.push(DimClass { name, whole: members().any(|(_, d, _)| d.whole) });
    }
    classes
}

fn type_classes(
    fusion: &Fusion,
    parts: &[Linked],
    sets: &Sets,
    fixed: &[(usize, DType)],
) -> Result<Vec<TypeClass>, Diagnostics> {
    let all = || parts.iter().flat_map(|p| p.types.iter().zip(p.def.types).map(move |(&id, t)| (id, t, &p.label)));
    let mut classes: Vec<TypeClass> = Vec::new();
    for (id, t, label) in all().filter(|(id, ..)| sets.of(*id) == *id) {
        let taken: Vec<String> = classes.iter().map(|c| c.name.clone()).collect();
        let members = || all().filter(|(other, ..)| sets.of(*other) == id);
        let mut allowed = t.allowed.to_vec();
        members().for_each(|(_, t, _)| allowed.retain(|d| t.allowed.contains(d)));
        let wanted: Vec<DType> = fixed.iter().filter(|(other, _)| sets.of(*other) == id).map(|f| f.1).collect();
        let one = wanted.first().copied();
        let fits = |d: DType| wanted.iter().all(|&w| w == d) && allowed.contains(&d);
        if allowed.is_empty() || one.is_some_and(|d| !fits(d)) {
            let message =
                format!("no element type of `{}` fits all that `{}` of `{label}` is joined to", fusion.name, t.name);
            return Err(refuse(message));
        }
        classes.push(TypeClass { name: free_name(t.name, label, &taken), fixed: one, allowed });
    }
    Ok(classes)
}

/// Why a tensor between two parts cannot be eliminated.
pub(super) fn refusal(
    links: &Links,
    reader: usize,
    (part, param): (usize, usize),
    code: u16,
    why: &str,
    loc: Loc,
) -> Diagnostics {
    let (maker, reader) = (&links.parts[part], &links.parts[reader]);
    let name = maker.def.params[param].name();
    let message = format!("`{name}` of `{}` cannot become tiles of `{}`: {why}", maker.label, reader.label);
    Diagnostic::new(code, loc, message).into()
}

/// True if a part stores, in a loop, to the parameter of that name in the fused kernel.
pub(super) fn stores_in_loop(kernel: &Kernel, name: &str, part: &Linked) -> bool {
    kernel.insts.iter().any(|(inst, op)| match op {
        Op::Store { param, .. } => {
            part.params[param.as_u32() as usize] == Meaning::Outside(name.to_owned())
                && !kernel.blocks[kernel.body].insts.contains(&inst)
        }
        _ => false,
    })
}

pub(super) fn rank(p: &ParamDef) -> usize {
    match p {
        ParamDef::Tensor { dims, .. } => dims.len(),
        ParamDef::Scalar { .. } => 0,
    }
}
