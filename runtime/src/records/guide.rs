//! What the records say about a problem: the config that was chosen for its sizes, and a correction of the cost model.

use super::merged::Merged;
use super::record::{TunedSize, ir_hash, is_of_target, short_hash};
use super::residual::{At, Fit, MOST_SIZES, MeasuredSize};
use crate::compile::build_kernel;
use crate::compile::specialization_class::{class_text, parse_class};
use crate::cost::MODEL;
use atlas_dsl::def::ParamDef;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, KernelDef, Specialization};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The most rows to check in order to find [`MOST_SIZES`] that match the current kernel.
const MOST_JUDGED: usize = 4 * MOST_SIZES;

/// What the records say about one problem.
#[derive(Debug, Default)]
pub(crate) struct Guide {
    /// The config that was chosen for exactly these sizes, and its measurement.
    pub(crate) exact: Option<(Config, TunedSize)>,
    /// Why the record, or its row for these sizes, is not followed.
    pub(crate) stale: Option<String>,
    nearby: Option<Nearby>,
}

/// What the records say about sizes near a problem's. It is computed on demand: if a row for exactly these sizes
/// decides, it is not needed.
#[derive(Debug)]
struct Nearby {
    known: Arc<Merged>,
    fits: Fits,
    def: &'static KernelDef,
    spec: Specialization,
    target: String,
    types: String,
    place: MeasuredSize,
    found: OnceCell<(At, Vec<String>)>,
}

/// Data derived from a record and kept for the process: one fit per list of element types.
#[derive(Clone, Debug, Default)]
pub(super) struct Fits(Arc<Mutex<ByTypes>>);

/// By a kernel's declaration, which is static, and its element types: another kernel may have its name. Only who makes a fit, and
/// who needs that one, waits for it.
type ByTypes = HashMap<(usize, String, String), Arc<OnceLock<Arc<Fit>>>>;

impl Fits {
    fn of(
        &self,
        known: &Merged,
        def: &'static KernelDef,
        spec: &Specialization,
        (types, target): (&str, &str),
    ) -> Arc<Fit> {
        let key = (std::ptr::from_ref(def).addr(), types.to_owned(), target.to_owned());
        let fit = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        fit.get_or_init(|| Fits::make(known, def, spec, (types, target))).clone()
    }

    fn make(known: &Merged, def: &'static KernelDef, spec: &Specialization, (types, target): (&str, &str)) -> Arc<Fit> {
        // What another cost model said tells nothing of how this one errs.
        let mut of_model: Vec<&TunedSize> = known.rows().filter(|s| s.types == types && s.model == MODEL).collect();
        if of_model.len() > MOST_SIZES {
            // Rows are sorted by their sizes, so a regular sample of them might be of one kind only.
            of_model.sort_by_cached_key(|s| short_hash(&format!("{} {}", s.tensors, s.dims)));
        }
        let is_current = |s: &&TunedSize| outdated(def, spec, s, target, None).is_none();
        let place = |s| Some((place_of(def, s)?, s));
        let mut seen = HashSet::new();
        // The check builds kernels, so only some of many rows are used.
        let some = of_model.into_iter().take(MOST_JUDGED);
        let current = some.filter(is_current).filter(|s| seen.insert((&s.tensors, &s.dims)));
        let sizes: Vec<(MeasuredSize, &TunedSize)> = current.filter_map(place).take(MOST_SIZES).collect();
        Arc::new(Fit::new(def, &sizes))
    }
}

/// The position of a measured size; `None` if it belongs to a kernel with other dims.
fn place_of(def: &KernelDef, size: &TunedSize) -> Option<MeasuredSize> {
    let pairs = size.dim_sizes()?;
    let of = |name: &str| pairs.iter().find(|p| p.0 == name).map(|p| p.1);
    let dims: Vec<u64> = def.dims.iter().map(|d| of(d.name)).collect::<Option<_>>()?;
    (dims.len() == pairs.len()).then(|| MeasuredSize { dims, tensors: size.tensors.clone() })
}

impl Guide {
    /// The guide if there are only records of other tune spaces.
    pub(super) fn of_other_tune() -> Guide {
        let stale = Some("the record is of another tune space; measure it again".to_owned());
        Guide { stale, ..Guide::default() }
    }

    /// The guide from the records of the kernel's tune space.
    pub(super) fn new(
        known: &Arc<Merged>,
        fits: &Fits,
        def: &'static KernelDef,
        spec: &Specialization,
        dims: &[u64],
        target: &str,
    ) -> Guide {
        let (types, tensors) = class_text(def, spec);
        let mut guide = Guide::default();
        let here = def.dims_text(dims);
        for size in known.at(&types, &tensors, &here) {
            match outdated(def, spec, size, target, Some(spec)) {
                None => {
                    guide.exact = size.chosen().config.parse().ok().zip(Some(size.clone()));
                    guide.stale = None;
                    break;
                }
                why => guide.stale = guide.stale.or(why),
            }
        }
        let place = MeasuredSize { dims: dims.to_vec(), tensors };
        let (known, fits, spec) = (known.clone(), fits.clone(), spec.clone());
        guide.nearby =
            Some(Nearby { known, fits, def, spec, target: target.to_owned(), types, place, found: OnceCell::new() });
        guide
    }

    /// The factor on the model's cycles of a config.
    pub(crate) fn factor(&self, config: &Config) -> f64 {
        self.nearby.as_ref().map_or(1.0, |nearby| nearby.found().0.of(config).exp())
    }

    /// The measured sizes nearby, nearest first.
    pub(crate) fn asked(&self) -> &[String] {
        self.nearby.as_ref().map_or(&[], |nearby| &nearby.found().1)
    }
}

impl Nearby {
    fn found(&self) -> &(At, Vec<String>) {
        self.found.get_or_init(|| {
            let Nearby { known, fits, def, spec, target, types, place, .. } = self;
            let fit = fits.of(known, def, spec, (types, target));
            let near = fit.near(def, place);
            let asked = near.into_iter().map(|p| def.dims_text(&p.dims)).collect();
            (fit.at(def, place), asked)
        })
    }
}

/// True if a kernel has the tensors that a specialization has facts of, with the same numbers of axes.
fn has_tensors(def: &KernelDef, spec: &Specialization) -> bool {
    let rank = |of: &str| {
        def.params.iter().find_map(|p| match p {
            ParamDef::Tensor { name, dims, .. } if *name == of => Some(dims.len()),
            _ => None,
        })
    };
    spec.tensors.iter().all(|(name, facts)| rank(name) == Some(facts.strides.len()))
}

/// Why a measured size is not of this kernel's code for a target: its chosen config gives other Tile IR than it did, or the code
/// was for another target. `here` is its own
/// specialization where that is known; else it is made of the element types of `types` and the size's dims.
fn outdated(
    def: &'static KernelDef,
    types: &Specialization,
    size: &TunedSize,
    target: &str,
    here: Option<&Specialization>,
) -> Option<String> {
    let config: Config = size.chosen().config.parse().ok()?;
    if !def.has_config(&config) {
        return Some(format!("the record's config `{config}` is none of the tune space; measure it again"));
    }
    let then = match here {
        Some(spec) => spec.clone(),
        None => {
            let Some(class) = parse_class("", "", &size.tensors).filter(|class| has_tensors(def, class)) else {
                return Some(format!("the record's tensors `{}` are none of this kernel", size.tensors));
            };
            let mut then = Specialization { types: types.types.clone(), ..class };
            for (d, n) in def.dims.iter().zip(place_of(def, size)?.dims) {
                then = then.with_dim(d.name, DimFact::of(d.whole, n));
            }
            then
        }
    };
    match build_kernel(def, &then, &config) {
        Ok(kernel) if ir_hash(&kernel) == size.ir => {
            let other = if size.target.is_empty() { "another target" } else { &size.target };
            (!is_of_target(&kernel, size, target))
                .then(|| format!("the record is of code for {other}; measure it again"))
        }
        Ok(_) => Some("the kernel has changed since the record was made; measure it again".to_owned()),
        Err(e) => Some(format!("the record's config `{config}` is none of this kernel: {e}")),
    }
}
