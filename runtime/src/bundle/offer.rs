//! The variants of bundles that serve a problem, best first.

use super::entry::{ClassEntry, MachineTable, Variant, VariantCode};
use super::known::Known;
use super::{Bundle, Bundles};
use crate::compile::KernelKey;
use crate::compile::specialization_class::canonical;
use crate::select::ConfigSource;
use atlas_codegen::Machine;
use atlas_codegen::toolchain::toolchain_id;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, KernelDef, Specialization};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A variant that serves a problem.
#[derive(Clone)]
pub(crate) struct Offer {
    pub(crate) def: &'static KernelDef,
    pub(crate) bundle: Arc<Bundle>,
    known: Arc<Known>,
    class: usize,
    variant: usize,
    pub(crate) config: Config,
    pub(crate) source: ConfigSource,
}

impl Offer {
    /// The variant.
    pub(crate) fn variant(&self) -> &Variant {
        &self.known.entry.classes[self.class].variants[self.variant]
    }

    /// The specialization that it was compiled for.
    pub(crate) fn spec(&self) -> &Specialization {
        &self.known.specs[self.class]
    }

    /// The key, among the kernels that a device has loaded or refused, of the compiled kernel at a place of the variant's
    /// launch. It identifies this kernel of the program, because another kernel may have the same name, and this bundle,
    /// because the copy in another bundle may be intact.
    pub(crate) fn key(&self, place: usize, code: VariantCode) -> KernelKey {
        let variant = self.variant();
        let (def, id) = (std::ptr::from_ref(self.def).addr().to_string(), self.bundle.id.to_string());
        let place = place.to_string();
        let mut hash = Sha256::new();
        for part in ["atlas bundle 4", &def, &id, &place, self.bundle.image_hash(code), &variant.tile_ir] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        KernelKey(hash.finalize().into())
    }
}

/// Why bundles have nothing for a problem, one reason per bundle.
pub(crate) type Lack = Vec<String>;

/// A query to the bundles.
pub(crate) struct Asked<'a> {
    pub(crate) def: &'static KernelDef,
    pub(crate) spec: &'a Specialization,
    pub(crate) dims: &'a [u64],
    pub(crate) machine: Machine,
    /// The GPU's name.
    pub(crate) gpu: &'a str,
    /// The caller's config.
    pub(crate) config: Option<&'a Config>,
    /// True where the device can compile kernels itself. Then only kernels count that were compiled for exactly the
    /// problem's class, by this code generator, and for the best target that the GPU runs, unless these exact sizes
    /// were asked for.
    pub(crate) only_exact: bool,
}

/// How many classes a message lists if none serves a problem.
const LISTED: usize = 4;

/// The classes that the bundle has instead of the problem's, those of its element types first, and how to read them.
fn listed(known: &Known, here: &Specialization) -> String {
    let mut all: Vec<(&ClassEntry, &Specialization)> = known.entry.classes.iter().zip(&known.specs).collect();
    all.sort_by_key(|(_, spec)| (spec.types != here.types, spec.tensors != here.tensors));
    let some: Vec<String> = all.iter().map(|(class, _)| format!("`{}`", class.text())).take(LISTED).collect();
    let more = if all.len() > LISTED { ", .." } else { "" };
    let mut text = format!("{}{more} (`*8` is any multiple of 8", some.join(", "));
    if here.dims.values().any(|fact| matches!(fact, DimFact::Const(_))) {
        text += "; a dim that is a number is used whole, and each size of it needs kernels of its own";
    }
    if !here.tensors.is_empty() || all.iter().take(LISTED).any(|(_, spec)| !spec.tensors.is_empty()) {
        text += "; `x=4:*8,1` is a view, aligned to 4 bytes and with these strides, which needs kernels of its own";
    }
    text + ")"
}

/// The classes of one bundle that serve a problem.
struct Serving {
    bundle: Arc<Bundle>,
    known: Arc<Known>,
    /// The index of the class, and whether it is the problem's own.
    class: usize,
    is_own: bool,
}

impl Bundles {
    /// The offers of all bundles, those for the problem's own class first, or why there are none.
    pub(crate) fn offers<'a>(&'a self, asked: &'a Asked<'a>) -> Result<impl Iterator<Item = Offer> + 'a, Lack> {
        let mut lack: Lack = self.problems.iter().map(ToString::to_string).collect();
        let mut serving = Vec::new();
        for bundle in self.shared() {
            match bundle.serving(asked) {
                Ok(classes) => serving.extend(classes),
                Err(why) => lack.push(format!("the bundle {} {why}", bundle.origin())),
            }
        }
        if serving.is_empty() {
            return Err(lack);
        }
        serving.sort_by_key(|s| !s.is_own);
        Ok(serving.into_iter().flat_map(|s| s.offers(asked)))
    }
}

impl Bundle {
    /// The classes that serve a problem and have a variant for the query, those that assume most first.
    fn serving(self: &Arc<Bundle>, asked: &Asked<'_>) -> Result<Vec<Serving>, String> {
        let def = asked.def;
        let known = match self.known(def) {
            None => return Err(format!("has no kernel `{}`", def.name)),
            Some(Err(e)) => return Err(format!("cannot be used: {}", e.message)),
            Some(Ok(known)) => known,
        };
        if asked.only_exact && !self.made_by().contains(&toolchain_id()) {
            return Err("was made by another code generator than this program has".to_owned());
        }
        let here = canonical(def, asked.spec);
        let classes = known.serving(def, &here, asked.dims, asked.only_exact);
        let wanted = || ClassEntry::new(def, asked.spec).text();
        if classes.is_empty() {
            return Err(format!("has no kernel for `{}`, only for {}", wanted(), listed(&known, &here)));
        }
        let of = |at: &usize| &known.entry.classes[*at];
        if !classes.iter().any(|at| tables(of(at), asked).next().is_some()) {
            let targets = classes.iter().flat_map(|at| &of(at).tables).map(|t| t.target.clone());
            let mut targets: Vec<String> = targets.collect();
            targets.sort();
            targets.dedup();
            return Err(format!("has kernels for {}, which {} does not run", targets.join(", "), asked.machine));
        }
        let has = |at: &usize, config: &Config| {
            let text = config.to_string();
            tables(of(at), asked).flat_map(|t| &t.table.order).any(|&v| of(at).variants[usize::from(v)].config == text)
        };
        match asked.config {
            Some(config) if !classes.iter().any(|at| has(at, config)) => {
                return Err(format!("has no kernel with the config `{config}`"));
            }
            _ => {}
        }
        let serving = |class: usize| {
            let is_own = known.specs[class] == here;
            Serving { bundle: self.clone(), known: known.clone(), class, is_own }
        };
        Ok(classes.into_iter().map(serving).collect())
    }
}

impl Serving {
    /// The variants of a class for the machine: the chosen one first, and those of lower targets after those of higher
    /// ones.
    fn offers<'a>(self, asked: &'a Asked<'a>) -> impl Iterator<Item = Offer> + 'a {
        let class = &self.known.entry.classes[self.class];
        let mut places: Vec<(usize, ConfigSource)> = Vec::new();
        for MachineTable { target, table } in tables(class, asked) {
            let chosen = table.choose(asked.dims);
            let source =
                if chosen.is_some_and(|(_, exact)| exact) { ConfigSource::Bundle } else { ConfigSource::Region };
            let all = chosen.map(|(at, _)| (at, source)).into_iter();
            let all = all.chain(table.order.iter().map(|&at| (at, ConfigSource::Region)));
            // This device would compile for the best target, which beats code for a lower target that is chosen by
            // region only.
            let own = asked.machine.target();
            let is_own = *target == own.to_string() || height(target) > own.sm;
            let is_best = !asked.only_exact || is_own;
            for (at, source) in all.filter(|(_, source)| is_best || *source == ConfigSource::Bundle) {
                if !places.iter().any(|(known, _)| *known == usize::from(at)) {
                    places.push((usize::from(at), source));
                }
            }
        }
        places.into_iter().filter_map(move |(variant, source)| {
            // `KernelEntry::parse` has parsed it before.
            let config: Config = self.known.entry.classes[self.class].variants[variant].config.parse().ok()?;
            let source = match asked.config {
                None => source,
                Some(given) if *given == config => ConfigSource::Given,
                Some(_) => return None,
            };
            let (bundle, known) = (self.bundle.clone(), self.known.clone());
            Some(Offer { def: asked.def, bundle, known, class: self.class, variant, config, source })
        })
    }
}

/// The tables whose code a machine runs: first that of this GPU by name, then that of its arch, then by target, the
/// highest first.
fn tables<'a>(class: &'a ClassEntry, asked: &Asked<'_>) -> impl Iterator<Item = &'a MachineTable> {
    let (own, sm) = (asked.machine.target(), asked.machine.sm);
    // A table of a machine has the machine's arch, whichever target its code is for.
    let archs = [asked.machine.to_string(), format!("sm_{sm}")];
    let runs = |t: &&MachineTable| {
        let text = t.target.strip_prefix("sm_").unwrap_or_default();
        match text.strip_suffix('a') {
            Some(exact) => exact.parse() == Ok(sm),
            None => text.parse().is_ok_and(|of: u32| of <= sm),
        }
    };
    let rank = |t: &MachineTable| {
        // Code with instructions of this GPU alone is faster than a better choice among other code.
        let is_own = own.specific && t.target == own.to_string();
        let of_machine = (t.table.machine == asked.gpu, archs.contains(&t.table.machine));
        (is_own, of_machine, height(&t.target), t.target.ends_with('a'))
    };
    let mut all: Vec<&MachineTable> = class.tables.iter().filter(runs).collect();
    all.sort_by_key(|t| std::cmp::Reverse(rank(t)));
    all.into_iter()
}

/// 90 for `sm_90` and for `sm_90a`.
fn height(target: &str) -> u32 {
    let digits: String = target.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}
