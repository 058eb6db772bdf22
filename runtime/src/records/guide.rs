//! What a record says of a problem: the config that was chosen at its sizes, and how the cost model is corrected.

use super::record::{Record, TunedSize, ir_hash, tune_hash};
use super::residual::{At, Fit, Place};
use crate::class::class_text;
use crate::compile::build_kernel;
use atlas_dsl::specialization::{DimFact, largest_class};
use atlas_dsl::{Config, KernelDef, Specialization};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How many measured sizes the model's own doubt is worth.
const PRIOR: f64 = 0.1;

/// What a record says of one problem.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guide {
    /// The config that was chosen at these very sizes, and what was measured.
    pub(crate) exact: Option<(Config, TunedSize)>,
    corrections: At,
    /// The weight of all sizes nearby.
    weight: f64,
    /// Sizes nearby, the nearest first.
    pub(crate) asked: Vec<String>,
    /// Why the record, or its row of these sizes, is not followed.
    pub(crate) stale: Option<String>,
}

/// What follows from a record, kept for the process: a fit for each list of element types.
#[derive(Clone, Debug, Default)]
pub(super) struct Fits(Arc<Mutex<ByTypes>>);

/// By a kernel's name and its element types.
type ByTypes = HashMap<(String, String), Arc<Fit>>;

impl Fits {
    fn of(&self, record: &Record, def: &'static KernelDef, spec: &Specialization, types: &str) -> Arc<Fit> {
        let key = (record.kernel.clone(), types.to_owned());
        let mut fits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fit) = fits.get(&key) {
            return fit.clone();
        }
        let is_current = |s: &&TunedSize| s.types == types && outdated(def, spec, s, None).is_none();
        let place = |s| Some((place_of(def, s)?, s));
        let sizes: Vec<(Place, &TunedSize)> = record.sizes.iter().filter(is_current).filter_map(place).collect();
        let fit = Arc::new(Fit::new(def, &sizes));
        fits.insert(key, fit.clone());
        fit
    }
}

/// Where a measured size stands; `None` if it is of a kernel with other dims.
fn place_of(def: &KernelDef, size: &TunedSize) -> Option<Place> {
    let pairs = size.dim_sizes()?;
    let is_same = pairs.len() == def.dims.len() && pairs.iter().zip(def.dims).all(|(p, d)| p.0 == d.name);
    let dims = pairs.iter().map(|p| p.1).collect();
    is_same.then(|| Place { dims, tensors: size.tensors.clone() })
}

impl Guide {
    pub(super) fn new(
        record: &Record,
        fits: &Fits,
        def: &'static KernelDef,
        spec: &Specialization,
        dims: &[u64],
    ) -> Guide {
        if record.tune != tune_hash(def) {
            let stale = Some("the record is of another tune space; measure it again".to_owned());
            return Guide { stale, ..Guide::default() };
        }
        let (types, tensors) = class_text(def, spec);
        let mut guide = Guide::default();
        let here = def.dims.iter().zip(dims).map(|(d, n)| format!("{}={n}", d.name)).collect::<Vec<_>>().join(" ");
        if let Some(size) = record.at(&types, &tensors, &here) {
            guide.stale = outdated(def, spec, size, Some(spec));
            let config = size.chosen().config.parse().ok().filter(|_| guide.stale.is_none());
            guide.exact = config.zip(Some(size.clone()));
        }
        let (fit, place) = (fits.of(record, def, spec, &types), Place { dims: dims.to_vec(), tensors });
        let (near, weight) = fit.near(def, &place);
        let text = |p: &Place| def.dims.iter().zip(&p.dims).map(|(d, n)| format!("{}={n}", d.name)).collect::<Vec<_>>();
        guide.asked = near.into_iter().map(|p| text(p).join(" ")).collect();
        guide.weight = weight;
        guide.corrections = fit.at(def, &place);
        guide
    }

    /// What the model's cycles of a config are multiplied by.
    pub(crate) fn factor(&self, config: &Config) -> f64 {
        self.corrections.of(config).exp()
    }

    /// What part of the model's doubt is left, from 1 without records to nearly 0 beside one.
    pub(crate) fn doubt(&self) -> f64 {
        PRIOR / (self.weight + PRIOR)
    }
}

/// Why a measured size is no longer of this kernel: its chosen config gives other Tile IR than it did. `here` is its own
/// specialization where that is known; else it is made of the element types of `types` and the size's dims.
fn outdated(
    def: &'static KernelDef,
    types: &Specialization,
    size: &TunedSize,
    here: Option<&Specialization>,
) -> Option<String> {
    let config: Config = size.chosen().config.parse().ok()?;
    let then = match here {
        Some(spec) => spec.clone(),
        // How its tensors lay is known as text alone.
        None if !size.tensors.is_empty() => return None,
        None => {
            let mut then = Specialization { types: types.types.clone(), ..Specialization::default() };
            for (d, (name, n)) in def.dims.iter().zip(size.dim_sizes()?) {
                then =
                    then.with_dim(name, if d.whole { DimFact::Const(n) } else { DimFact::Dynamic(largest_class(n)) });
            }
            then
        }
    };
    match build_kernel(def, &then, &config) {
        Ok(kernel) if ir_hash(&kernel) == size.ir => None,
        Ok(_) => Some("the kernel has changed since the record was made; measure it again".to_owned()),
        Err(e) => Some(format!("the record's config `{config}` is none of this kernel: {e}")),
    }
}
