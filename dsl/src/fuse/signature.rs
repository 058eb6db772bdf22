//! The declaration of a fused kernel: parameters, dims, knobs and grid, from those of its parts.
//!
//! Knobs. If a knob gives the tile size of the grid of any kernel but the last, it is dropped, because the cover determines it.
//! If the grid of the last kernel counts the same dim, its knob takes the values that both allow. If there are none, it takes
//! those of the kernel with the larger tiles. All other knobs stay. They get the name of their kernel as a prefix if their name
//! is taken. Keys of the schedule take the values that all kernels with the key allow, and if there are none, those of the last
//! kernel.

use super::Fusion;
use super::links::{Links, Meaning, free_name, is_output, link};
use crate::config::{Schedule, Setting};
use crate::def::{DTypeRef, DimDef, GridDef, GridSize, KernelDef, ParamDef, TuneDef, TypeParamDef};
use crate::diag::Diagnostics;
use crate::require::Requirement;

/// What a knob of a part is in the fused kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KnobUse {
    /// A knob, by its name there.
    Own(String),
    /// Determined by the cover.
    Covered,
}

/// Everything that is needed to build a fused kernel.
pub(super) struct Plan {
    pub(super) fusion: Fusion,
    pub(super) links: Links,
    /// The tile sizes of each part, in the order of its knobs.
    pub(super) knobs: Vec<Vec<KnobUse>>,
    /// The declaration, without the function that builds.
    pub(super) head: KernelDef,
}

/// A knob of the fused kernel in the making.
struct Knob {
    name: String,
    values: Vec<Setting>,
}

/// Declares a fused kernel.
///
/// # Errors
/// Why the kernels cannot be brought together.
pub(super) fn plan(fusion: Fusion) -> Result<&'static Plan, Diagnostics> {
    let links = link(&fusion)?;
    let (knobs, tune) = knobs(&links);
    let tune: Vec<TuneDef> =
        tune.into_iter().map(|k| TuneDef { name: k.name.leak(), values: k.values.leak() }).collect();
    let dims: Vec<DimDef> = links.dims.iter().map(|c| DimDef { name: c.name.clone().leak(), whole: c.whole }).collect();
    let types: Vec<TypeParamDef> = links
        .types
        .iter()
        .filter(|c| c.fixed.is_none())
        .map(|c| TypeParamDef { name: c.name.clone().leak(), allowed: c.allowed.clone().leak() })
        .collect();
    let grid = grid(&links, &knobs, &tune);
    let head = KernelDef {
        types: types.leak(),
        dims: dims.leak(),
        params: params(&links).leak(),
        tune: tune.leak(),
        grid: grid.leak(),
        requires: requires(&links).leak(),
        ..nothing(fusion)
    };
    Ok(leak(Plan { fusion, links, knobs, head }))
}

/// The declaration of a fusion that is not possible.
pub(super) fn refused(fusion: Fusion, why: Diagnostics) -> KernelDef {
    KernelDef { refused: Some(leak(why)), ..nothing(fusion) }
}

pub(super) fn nothing(fusion: Fusion) -> KernelDef {
    KernelDef {
        name: fusion.name,
        doc: fusion.doc,
        file: fusion.file,
        types: &[],
        dims: &[],
        params: &[],
        tune: &[],
        grid: &[],
        requires: &[],
        build: &|_, _| Err(Diagnostics::default()),
        refused: None,
    }
}

/// Leaks it on purpose: a declaration lives as long as the process.
pub(super) fn leak<T>(x: T) -> &'static T {
    Box::leak(Box::new(x))
}

/// What a part's type parameter or fixed type is in the fused kernel.
pub(super) fn dtype_ref(links: &Links, part: usize, dtype: DTypeRef) -> DTypeRef {
    let DTypeRef::Generic(i) = dtype else { return dtype };
    let class = links.parts[part].types[i];
    match links.types[class].fixed {
        Some(fixed) => DTypeRef::Fixed(fixed),
        None => DTypeRef::Generic(links.types[..class].iter().filter(|c| c.fixed.is_none()).count()),
    }
}

/// The parameters in order of first appearance. One that the last kernel writes is an output.
fn params(links: &Links) -> Vec<ParamDef> {
    let mut params: Vec<ParamDef> = Vec::new();
    for (at, part) in links.parts.iter().enumerate() {
        for (i, (p, meaning)) in part.def.params.iter().zip(&part.params).enumerate() {
            let Meaning::Outside(name) = meaning else { continue };
            let known = params.iter().position(|p| p.name() == name);
            if known.is_some() && !is_output(p) {
                continue;
            }
            let name = known.map_or_else(|| &*name.clone().leak(), |known| params[known].name());
            let made = match p {
                ParamDef::Scalar { dtype, .. } => ParamDef::Scalar { name, dtype: dtype_ref(links, at, *dtype) },
                ParamDef::Tensor { dtype, access, .. } => {
                    let (dtype, dims) = (dtype_ref(links, at, *dtype), part.dims_of(i).leak());
                    ParamDef::Tensor { name, dtype, dims, access: *access }
                }
            };
            match known {
                Some(known) => params[known] = made,
                None => params.push(made),
            }
        }
    }
    params
}

/// The requirements of the parts on the remaining dims, each once.
fn requires(links: &Links) -> Vec<Requirement> {
    let mut all: Vec<Requirement> = Vec::new();
    for part in &links.parts {
        for demand in part.def.requires {
            let demand = demand.renumbered(&part.dims);
            if !all.contains(&demand) {
                all.push(demand);
            }
        }
    }
    all
}

/// The grid of the last kernel, after the axes over which it is lifted.
fn grid(links: &Links, knobs: &[Vec<KnobUse>], tune: &[TuneDef]) -> Vec<GridDef> {
    let Some((root, knobs)) = links.parts.last().zip(knobs.last()) else { return Vec::new() };
    let lifted = root.lift.iter().map(|&dim| GridDef { dim, size: GridSize::Point });
    let own = root.def.grid.iter().map(|axis| {
        let size = match axis.size {
            GridSize::Knob(k) => match &knobs[k] {
                KnobUse::Own(name) => tune.iter().position(|t| t.name == name).map_or(GridSize::Other, GridSize::Knob),
                KnobUse::Covered => GridSize::Other,
            },
            size => size,
        };
        GridDef { dim: root.dims[axis.dim], size }
    });
    lifted.chain(own).collect()
}

/// What becomes of each part's knobs, and the knobs of the fused kernel: the last kernel's first.
fn knobs(links: &Links) -> (Vec<Vec<KnobUse>>, Vec<Knob>) {
    let last = links.parts.len() - 1;
    let mut tune: Vec<Knob> = Vec::new();
    let mut uses: Vec<Vec<KnobUse>> = vec![Vec::new(); links.parts.len()];
    for at in std::iter::once(last).chain(0..last) {
        let part = &links.parts[at];
        for (k, knob) in part.def.tune.iter().enumerate() {
            let values = knob.values.to_vec();
            let is_key = Schedule::KEYS.contains(&knob.name);
            let covered = at < last && part.def.grid.iter().any(|axis| axis.size == GridSize::Knob(k));
            uses[at].push(match is_key || !covered {
                true => {
                    let known = tune.iter_mut().find(|t| is_key && t.name == knob.name);
                    let name = match known {
                        Some(known) => {
                            let both: Vec<Setting> =
                                known.values.iter().copied().filter(|v| values.contains(v)).collect();
                            if !both.is_empty() {
                                known.values = both;
                            }
                            knob.name.to_owned()
                        }
                        None => {
                            let taken: Vec<String> = tune.iter().map(|t| t.name.clone()).collect();
                            let name = free_name(knob.name, &part.label, &taken);
                            tune.push(Knob { name: name.clone(), values });
                            name
                        }
                    };
                    KnobUse::Own(name)
                }
                false => {
                    tie(links, at, k, &mut tune);
                    KnobUse::Covered
                }
            });
        }
    }
    (uses, tune)
}

/// Restricts the last kernel's knob for a dim to what the grid of an earlier kernel allows.
fn tie(links: &Links, at: usize, knob: usize, tune: &mut [Knob]) {
    let (part, last) = (&links.parts[at], &links.parts[links.parts.len() - 1]);
    let values = part.def.tune[knob].values;
    for axis in part.def.grid.iter().filter(|axis| axis.size == GridSize::Knob(knob)) {
        for own in last.def.grid.iter().filter(|own| last.dims[own.dim] == part.dims[axis.dim]) {
            let GridSize::Knob(k) = own.size else { continue };
            let Some(tied) = tune.iter_mut().find(|t| t.name == last.def.tune[k].name) else { continue };
            let both: Vec<Setting> = tied.values.iter().copied().filter(|v| values.contains(v)).collect();
            let largest = |values: &[Setting]| values.iter().filter_map(|v| number(*v)).max();
            if !both.is_empty() {
                tied.values = both;
            } else if largest(values) > largest(&tied.values) {
                tied.values = values.to_vec();
            }
        }
    }
}

pub(super) fn number(value: Setting) -> Option<u32> {
    match value {
        Setting::Number(n) => Some(n),
        _ => None,
    }
}
