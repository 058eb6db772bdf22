//! The variants of bundles that serve a problem, best first.

use super::entry::{ClassEntry, MachineTable, Variant};
use super::{Bundle, Bundles};
use crate::class::{assumed, canonical, serves};
use crate::key::KernelKey;
use crate::source::Source;
use atlas_codegen::Machine;
use atlas_dsl::{Config, KernelDef, Specialization};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A variant that serves a problem.
#[derive(Clone)]
pub(crate) struct Offer {
    pub(crate) def: &'static KernelDef,
    pub(crate) bundle: Arc<Bundle>,
    pub(crate) variant: Variant,
    pub(crate) config: Config,
    /// What it was compiled for.
    pub(crate) spec: Specialization,
    pub(crate) source: Source,
}

impl Offer {
    /// The name of the compiled kernel among those that a device has loaded.
    pub(crate) fn key(&self) -> KernelKey {
        let mut hash = Sha256::new();
        for part in ["atlas bundle 1", self.bundle.image_hash(&self.variant), &self.variant.tile_ir] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        KernelKey(hash.finalize().into())
    }
}

/// Why bundles have nothing for a problem, a line each.
pub(crate) type Lack = Vec<String>;

/// What is asked for.
pub(crate) struct Asked<'a> {
    pub(crate) def: &'static KernelDef,
    pub(crate) spec: &'a Specialization,
    pub(crate) dims: &'a [u64],
    pub(crate) machine: Machine,
    /// The GPU's name.
    pub(crate) gpu: &'a str,
    /// The caller's config.
    pub(crate) config: Option<&'a Config>,
    /// Only kernels that were compiled for exactly the problem's class: where others can be compiled.
    pub(crate) only_exact: bool,
}

impl Bundles {
    /// The offers of the first bundle that has some, or why there are none.
    pub(crate) fn offers(&self, asked: &Asked<'_>) -> Result<Vec<Offer>, Lack> {
        let mut lack: Lack = self.problems.iter().map(ToString::to_string).collect();
        for bundle in &self.all {
            match bundle.offers(asked) {
                Ok(offers) => return Ok(offers),
                Err(why) => lack.push(format!("the bundle {} {why}", bundle.origin())),
            }
        }
        Err(lack)
    }
}

impl Bundle {
    fn offers(self: &Arc<Bundle>, asked: &Asked<'_>) -> Result<Vec<Offer>, String> {
        let def = asked.def;
        let entry = match self.entry(def.name) {
            None => return Err(format!("has no kernel `{}`", def.name)),
            Some(Err(e)) => return Err(format!("cannot be used: {}", e.message)),
            Some(Ok(entry)) => entry,
        };
        let here = canonical(def, asked.spec);
        let known = entry.classes.iter().filter_map(|class| Some((class, class.spec(def)?)));
        let mut serving: Vec<(&ClassEntry, Specialization)> =
            known.filter(|(_, spec)| if asked.only_exact { *spec == here } else { serves(def, spec, &here) }).collect();
        serving.sort_by_key(|(_, spec)| (*spec != here, std::cmp::Reverse(assumed(spec))));
        if serving.is_empty() {
            let wanted = ClassEntry::new(def, asked.spec).text();
            let some: Vec<String> = entry.classes.iter().map(|c| format!("`{}`", c.text())).take(4).collect();
            let more = if entry.classes.len() > 4 { ", .." } else { "" };
            return Err(format!("has no kernel for `{wanted}`, only for {}{more}", some.join(", ")));
        }
        let mut offers: Vec<Offer> = Vec::new();
        for (class, spec) in &serving {
            for (variant, config, source) in of_class(class, asked) {
                let (bundle, variant, spec) = (self.clone(), variant.clone(), spec.clone());
                offers.push(Offer { def, bundle, variant, config, spec, source });
            }
        }
        match (offers.is_empty(), asked.config) {
            (false, _) => Ok(offers),
            (true, Some(config)) => Err(format!("has no kernel with the config `{config}`")),
            (true, None) => {
                let targets = serving.iter().flat_map(|(class, _)| &class.tables).map(|t| t.target.clone());
                let mut targets: Vec<String> = targets.collect();
                targets.sort();
                targets.dedup();
                Err(format!("has kernels for {}, which {} does not run", targets.join(", "), asked.machine))
            }
        }
    }
}

/// The variants of a class for the machine, the chosen one first.
fn of_class<'a>(class: &'a ClassEntry, asked: &Asked<'_>) -> Vec<(&'a Variant, Config, Source)> {
    let Some(MachineTable { table, .. }) = best_table(class, asked) else { return Vec::new() };
    let variant = |at: u16, source| {
        let variant = &class.variants[usize::from(at)];
        // `KernelEntry::parse` has read it before.
        Some((variant, variant.config.parse().ok()?, source))
    };
    if let Some(config) = asked.config {
        let all = table.order.iter().filter_map(|&at| variant(at, Source::Given));
        return all.filter(|(_, c, _)| c == config).take(1).collect();
    }
    let chosen = table.choose(asked.dims);
    let source = if chosen.is_some_and(|(_, exact)| exact) { Source::Bundle } else { Source::Region };
    let first = chosen.map(|(at, _)| at);
    let rest = table.order.iter().copied().filter(|at| Some(*at) != first);
    let all = first.into_iter().map(|at| (at, source)).chain(rest.map(|at| (at, Source::Region)));
    all.filter_map(|(at, source)| variant(at, source)).collect()
}

/// The table of this very GPU, else of its arch, else of the highest target below it whose code it runs.
fn best_table<'a>(class: &'a ClassEntry, asked: &Asked<'_>) -> Option<&'a MachineTable> {
    let arch = asked.machine.to_string();
    let sm = asked.machine.sm;
    let runs = |t: &&MachineTable| {
        let text = t.target.strip_prefix("sm_").unwrap_or_default();
        match text.strip_suffix('a') {
            Some(exact) => exact.parse() == Ok(sm),
            None => text.parse().is_ok_and(|of: u32| of <= sm),
        }
    };
    let height = |t: &MachineTable| {
        let digits: String = t.target.chars().filter(char::is_ascii_digit).collect();
        let of: u32 = digits.parse().unwrap_or(0);
        (t.table.machine == asked.gpu, t.table.machine == arch, of, t.target.ends_with('a'))
    };
    class.tables.iter().filter(runs).max_by_key(|t| height(t))
}
