//! Makes a table of choices: evaluates the cost model, corrected by tuning records, at the middle of every cell.
//!
//! Few variants should serve all cells, since each is a compiled kernel. The configs that records chose for their own
//! sizes are always among them. The others are added one by one. Each time, the config is added that brings the
//! predicted times closest to the best ones, until none improves them by `WORTH`.

use super::table::{MOST_CELLS, Table};
use crate::cost::{Space, Terms};
use crate::records::Records;
use crate::select::{ConfigSource, choose_with};
use atlas_codegen::Machine;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, KernelDef, Specialization};
use std::collections::HashMap;

/// Octaves by which regions extend beyond the sizes that were asked for, on either side.
const MARGIN: f64 = 4.0;
/// The most cells of a table, which bounds how finely a dim is cut.
const CELLS: usize = MOST_CELLS / 4;
const FINEST: f64 = 0.5;
/// The weight of all sizes that were asked for together. All cells together weigh 1.
const ASKED: f64 = 3.0;
/// The share of the time that a further variant has to save on average.
const WORTH: f64 = 0.004;

/// The chosen configs, and the table that names them by their index.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// The variants to compile.
    pub configs: Vec<Config>,
    /// Which of them runs which sizes.
    pub table: Table,
}

/// The predicted cycles of each legal config for one set of sizes, and the config that a record has for it.
struct PredictedRow {
    cycles: Vec<f64>,
    recorded: Option<usize>,
    weight: f64,
}

/// Chooses the configs of a kernel that serve the problems of a class on a machine, and the sizes for each of them.
/// Each of `sizes` gets a row of its own. `most` bounds the configs besides those that records chose. `refused` configs
/// are left out.
///
/// # Errors
/// Why no config is legal, as text.
pub fn regions(
    def: &'static KernelDef,
    spec: &Specialization,
    sizes: &[Vec<u64>],
    machine: Machine,
    records: &Records,
    most: usize,
    refused: &[Config],
) -> Result<Choices, String> {
    let space = Space::explored(def, spec.clone(), Some(machine));
    let bounds = bounds(def, spec, sizes);
    let cells = cells(def, spec, &bounds, sizes);
    let mut points: Vec<usize> = Vec::new();
    let mut rows = Vec::new();
    for dims in &cells {
        rows.push(row(&space, dims, machine, records, 1.0 / cells.len() as f64, refused, &mut points));
    }
    for dims in sizes {
        let weight = ASKED / sizes.len() as f64;
        let mut row = row(&space, dims, machine, records, weight, refused, &mut points);
        let selection = choose_with(def, spec, dims, machine, records);
        if selection.source == ConfigSource::Record
            && let Some(first) = selection.candidates.first()
        {
            row.recorded = points.iter().position(|&p| space.points[p].config == first.config);
        }
        rows.push(row);
    }
    if points.is_empty() {
        let why = choose_with(def, spec, &sizes.first().cloned().unwrap_or_default(), machine, records);
        let why: Vec<String> = why.refused().take(3).map(|(c, why)| format!("`{c}`: {why}")).collect();
        return Err(format!("no config is legal for {machine}: {}", why.join("; ")));
    }
    let kept = cover(&rows, points.len(), most.max(1));
    let best = |row: &PredictedRow| {
        row.recorded.and_then(|r| kept.iter().position(|&k| k == r)).unwrap_or_else(|| least(row, &kept))
    };
    let chosen: Vec<u16> = rows.iter().map(|row| best(row) as u16).collect();
    let (of_cells, of_sizes) = chosen.split_at(cells.len());
    let mut exact: Vec<(Vec<u64>, u16)> = sizes.iter().cloned().zip(of_sizes.iter().copied()).collect();
    exact.sort();
    exact.dedup_by(|a, b| a.0 == b.0);
    let mut order: Vec<u16> = (0..kept.len() as u16).collect();
    let share = |v: u16| -> f64 { rows.iter().zip(&chosen).filter(|(_, c)| **c == v).map(|(r, _)| r.weight).sum() };
    order.sort_by(|a, b| share(*b).total_cmp(&share(*a)));
    let has_record = records.of_kernel(def.name).is_some();
    let machine = if has_record { records.gpu().to_owned() } else { machine.to_string() };
    let configs = kept.iter().map(|&k| space.points[points[k]].config.clone()).collect();
    Ok(Choices { configs, table: Table { machine, exact, bounds, cells: of_cells.to_vec(), order } })
}

/// The least and the greatest size of a dim that was asked for.
fn asked(sizes: &[Vec<u64>], d: usize) -> (f64, f64) {
    let of = sizes.iter().map(|s| s[d].max(1));
    (of.clone().min().unwrap_or(64) as f64, of.max().unwrap_or(4096) as f64)
}

/// The range that the regions of a dim cover, as logarithms.
fn span(sizes: &[Vec<u64>], d: usize) -> (f64, f64) {
    let (low, high) = asked(sizes, d);
    ((low.log2() - MARGIN).max(0.0), high.log2() + MARGIN)
}

/// The bounds of each dim: at equal steps of its logarithm around the sizes asked for, as fine as the number of cells
/// allows.
fn bounds(def: &KernelDef, spec: &Specialization, sizes: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let is_free = |d: usize| !matches!(spec.dims.get(def.dims[d].name), Some(DimFact::Const(_)));
    let cut = |d: usize, step: f64| -> Vec<u64> {
        if !is_free(d) {
            return Vec::new();
        }
        let (low, high) = span(sizes, d);
        let count = ((high - low) / step).round() as usize;
        let mut bounds: Vec<u64> = (1..count).map(|i| (low + i as f64 * step).exp2().round() as u64).collect();
        bounds.dedup();
        bounds
    };
    let mut step = FINEST;
    loop {
        let bounds: Vec<Vec<u64>> = (0..def.dims.len()).map(|d| cut(d, step)).collect();
        let cells = bounds.iter().try_fold(1_usize, |n, b| n.checked_mul(b.len() + 1));
        if cells.is_some_and(|n| n <= CELLS) || bounds.iter().all(Vec::is_empty) {
            return bounds;
        }
        step *= 1.25;
    }
}

/// The middles of all cells, the last dim fastest.
fn cells(def: &KernelDef, spec: &Specialization, bounds: &[Vec<u64>], sizes: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let mut cells = vec![Vec::new()];
    for (d, bounds) in bounds.iter().enumerate() {
        let multiples_of = |divisor: u32| middles(bounds, divisor.into(), asked(sizes, d), span(sizes, d));
        let middles = match spec.dims.get(def.dims[d].name) {
            Some(DimFact::Const(n)) => vec![*n],
            Some(DimFact::Dynamic(divisor)) => multiples_of(*divisor),
            None => multiples_of(1),
        };
        cells = cells.iter().flat_map(|cell| middles.iter().map(|&m| [cell.as_slice(), &[m]].concat())).collect();
    }
    cells
}

/// The sizes at which the cells of a dim are evaluated: the middle of each cell on a logarithmic scale, over the whole
/// span. A dim that is not cut is evaluated in the middle of the sizes asked for.
fn middles(bounds: &[u64], divisor: u64, asked: (f64, f64), (low, high): (f64, f64)) -> Vec<u64> {
    let between = |a: f64, b: f64| (((a * b).sqrt() / divisor as f64).round() as u64).max(1) * divisor;
    if bounds.is_empty() {
        return vec![between(asked.0, asked.1)];
    }
    let inner = bounds.iter().map(|&b| b as f64);
    let edges: Vec<f64> = std::iter::once(low.exp2()).chain(inner).chain([high.exp2()]).collect();
    edges.windows(2).map(|w| between(w[0], w[1])).collect()
}

/// The predicted cycles of each legal config. Adds configs that no earlier row had to `points`.
fn row(
    space: &Space,
    dims: &[u64],
    machine: Machine,
    records: &Records,
    weight: f64,
    refused: &[Config],
    points: &mut Vec<usize>,
) -> PredictedRow {
    let guide = records.guide(space.def, space.spec(), dims, Some(&machine));
    let corrected = |(p, t): (usize, Terms)| (p, t.corrected(guide.factor(&space.points[p].config)));
    let terms = space.terms(dims, &machine).map(corrected);
    let is_kept = |config: &Config| !refused.contains(config);
    let terms: Vec<(usize, Terms)> = terms.filter(|(p, _)| is_kept(&space.points[*p].config)).collect();
    let cost: HashMap<usize, f64> = terms.iter().map(|(p, t)| (*p, t.cycles())).collect();
    if points.is_empty() {
        points.extend((0..space.points.len()).filter(|p| cost.contains_key(p)));
    }
    let cycles = points.iter().map(|p| cost.get(p).copied().unwrap_or(f64::INFINITY)).collect();
    PredictedRow { cycles, recorded: None, weight }
}

/// The index in `kept` of the best config of a row. The first one wins a tie.
fn least(row: &PredictedRow, kept: &[usize]) -> usize {
    let places = 0..kept.len();
    places.min_by(|a, b| row.cycles[kept[*a]].total_cmp(&row.cycles[kept[*b]])).unwrap_or(0)
}

/// The configs to compile.
fn cover(rows: &[PredictedRow], configs: usize, most: usize) -> Vec<usize> {
    let mut kept: Vec<usize> = rows.iter().filter_map(|r| r.recorded).collect();
    kept.sort_unstable();
    kept.dedup();
    let best: Vec<f64> = rows.iter().map(|r| r.cycles.iter().copied().fold(f64::INFINITY, f64::min)).collect();
    let mut now: Vec<f64> =
        rows.iter().map(|r| kept.iter().map(|&k| r.cycles[k]).fold(f64::INFINITY, f64::min)).collect();
    let total: f64 = rows.iter().map(|r| r.weight).sum();
    let loss = |now: &[f64], with: Option<usize>| -> f64 {
        let of = |((row, now), best): ((&PredictedRow, &f64), &f64)| {
            let with = with.map_or(f64::INFINITY, |k| row.cycles[k]);
            let ratio = now.min(with) / best;
            row.weight * if ratio.is_finite() { ratio.ln() } else { 100.0 }
        };
        rows.iter().zip(now).zip(&best).map(of).sum::<f64>() / total
    };
    for _ in 0..most {
        let before = loss(&now, None);
        let next = (0..configs).map(|k| (k, loss(&now, Some(k)))).min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((k, after)) = next.filter(|(_, after)| kept.is_empty() || before - after > WORTH) else { break };
        debug_assert!(after <= before);
        kept.push(k);
        now.iter_mut().zip(rows).for_each(|(now, row)| *now = now.min(row.cycles[k]));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::middles;

    /// The first region begins at one end of the span and the last ends at the other, however many there are.
    #[test]
    fn regions_are_judged_in_their_middles() {
        let span = (4.0, 12.0);
        assert_eq!(middles(&[64, 256, 1024], 1, (256.0, 256.0), span), [32, 128, 512, 2048]);
        assert_eq!(middles(&[256], 1, (256.0, 256.0), span), [64, 1024]);
        assert_eq!(middles(&[256], 16, (256.0, 256.0), (0.0, 8.0)), [16, 256]);
    }

    /// A dim that is not cut is evaluated at the size that was asked for.
    #[test]
    fn one_region_is_judged_where_it_was_asked_for() {
        assert_eq!(middles(&[], 1, (1.0, 1.0), (0.0, 4.0)), [1]);
        assert_eq!(middles(&[], 8, (1000.0, 4000.0), (6.0, 16.0)), [2000]);
    }
}
