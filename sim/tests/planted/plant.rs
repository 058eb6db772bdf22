//! Mistakes as edits of a text, and the faults that find them.

use super::good::{BASES, Found, first_failure};
use crate::harness::{self, Failure};
use atlas_sim::fault::FaultKind;
use rayon::prelude::*;
use std::fmt::Write;
use std::path::Path;

/// A replacement of text.
#[derive(Clone, Copy)]
pub(crate) struct Edit {
    find: &'static str,
    replace: &'static str,
    /// Which occurrence, from 0; `None` for the only one.
    nth: Option<usize>,
}

/// Replaces the only occurrence.
pub(crate) const fn swap(find: &'static str, replace: &'static str) -> Edit {
    Edit { find, replace, nth: None }
}

/// Removes the only occurrence.
pub(crate) const fn drop(find: &'static str) -> Edit {
    swap(find, "")
}

impl Edit {
    /// The same for one of several occurrences.
    pub(crate) const fn nth(self, n: usize) -> Edit {
        Edit { nth: Some(n), ..self }
    }

    fn apply(&self, text: &str) -> Result<String, String> {
        let places: Vec<usize> = text.match_indices(self.find).map(|m| m.0).collect();
        let at = match (self.nth, places.len()) {
            (None, 1) => places[0],
            (None, n) => return Err(format!("{:?} is there {n} times, not once", self.find)),
            (Some(i), n) if i < n => places[i],
            (Some(i), n) => return Err(format!("{:?} is there {n} times, and {i} is asked for", self.find)),
        };
        Ok(format!("{}{}{}", &text[..at], self.replace, &text[at + self.find.len()..]))
    }
}

/// A mistake in a kernel: its name, the kernel's name, the edits, and the kinds of fault that report it. Without kinds, the
/// mistake only makes results wrong.
pub(crate) struct Plant(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) &'static [Edit],
    pub(crate) &'static [FaultKind],
);

/// The first fault in a kernel with these edits.
fn first(Plant(_, base, edits, _): &Plant) -> Result<Option<Found>, String> {
    let base = BASES.iter().find(|b| b.name == *base).ok_or_else(|| format!("no kernel {base}"))?;
    let mut kernel = base.kernel();
    for edit in *edits {
        kernel.text = edit.apply(&kernel.text)?;
    }
    let program = harness::compile(&kernel.text, &kernel.entry);
    Ok(first_failure(&(base.setup)(), &kernel, &program))
}

/// The fault that finds a mistake, as text. An error says what was expected instead.
fn found(plant: &Plant) -> Result<String, String> {
    let kinds = plant.3;
    match first(plant)? {
        None => Err(format!("nothing is found instead of one of {kinds:?}")),
        Some((schedule, Failure::Fault(fault))) => {
            let words = fault.message.lines().next().unwrap_or_default();
            let words = format!("{:?} under {schedule:?}: {words}", fault.kind);
            if kinds.contains(&fault.kind) { Ok(words) } else { Err(format!("{words} (not of {kinds:?})\n{fault}")) }
        }
        Some((schedule, Failure::Result(words))) => {
            let words = format!("wrong result under {schedule:?}: {words}");
            if kinds.is_empty() { Ok(words) } else { Err(format!("{words} (not of {kinds:?})")) }
        }
    }
}

/// Nothing may be found.
pub(crate) fn none_found(plants: &[Plant]) {
    let wrong: Vec<String> = plants
        .par_iter()
        .filter_map(|plant| {
            let words = match first(plant) {
                Ok(None) => return None,
                Ok(Some((schedule, failure))) => format!("under {schedule:?}: {failure}"),
                Err(words) => words,
            };
            Some(format!("{}: {}: {words}", plant.1, plant.0))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All must be found, with the messages in the snapshot.
pub(crate) fn all_found(file: &str, plants: &[Plant]) {
    let all: Vec<_> = plants.par_iter().map(found).collect();
    let (mut table, mut wrong) = (String::new(), String::new());
    for (Plant(name, base, ..), found) in plants.iter().zip(all) {
        let (to, words) = match found {
            Ok(words) => (&mut table, words),
            Err(words) => (&mut wrong, words),
        };
        writeln!(to, "{base}: {name}\n    {words}").unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
    snapshot(file, &table);
}

/// Compares with the file of this name beside those of the other tests.
pub(crate) fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(format!("planted_{name}"), text));
}

#[test]
fn edits_that_no_longer_fit_are_noticed() {
    assert_eq!(swap("b", "x").apply("abc").unwrap(), "axc");
    assert_eq!(drop("b").nth(1).apply("abcb").unwrap(), "abc");
    assert!(drop("b").apply("abcb").is_err());
    assert!(drop("d").apply("abc").is_err());
    assert!(drop("b").nth(1).apply("abc").is_err());
    const HARMLESS: Plant = Plant("nothing", "flag", &[swap("mov.u32 %t,", "mov.b32 %t,")], &[FaultKind::Race]);
    assert!(found(&HARMLESS).is_err());
}
