//! The error of the cost model as a function of the config and the size: Gaussian process regression on the
//! measurements.
//!
//! At a measured size, the residual of a config is `ln(time / cycles)`, minus the mean over the configs measured there.
//! It is treated as a sample of a Gaussian process over pairs of a size `s` and a config `c`, with mean 0 and
//! covariance
//!
//! ```text
//! k = exp(-|c - c'|² / CONFIGS²) · (LOCAL² exp(-|s - s'|² / SIZES²) + GLOBAL²)  + [s = s'] SIZE_MEAN²  + [same] NOISE²
//! ```
//!
//! where distances are between base-2 logarithms of the dims and of the knobs. The expected residual at another size
//! corrects the model there. Far from all measured sizes, the correction tends to the part that all sizes have in
//! common, and for dissimilar configs to none. The constants were chosen by leave-one-size-out validation on records of
//! an H200 (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2.2).

use super::record::TunedSize;
use atlas_dsl::config::Setting;
use atlas_dsl::specialization::largest_class;
use atlas_dsl::{Config, KernelDef, Schedule};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

const SIZES: f64 = 2.0;
const CONFIGS: f64 = 2.0;
const LOCAL: f64 = 0.2;
const GLOBAL: f64 = 0.1;
const NOISE: f64 = 0.15;
/// The mean at a size is unknown; this variance leaves it free.
const SIZE_MEAN: f64 = 1.0;
/// The contribution to the squared distance of two sizes of one step of a dim's divisor class, and of tensors with
/// another layout.
const CLASS: f64 = 0.15;
const OTHER_LAYOUT: f64 = 1.0;
/// The weight below which a size is ignored.
const FAINT: f64 = 0.02;
/// The most measurements that the process uses, with equally many of each size.
const MOST: usize = 384;
/// The most sizes.
pub(super) const MOST_SIZES: usize = MOST / 3;
/// The largest residual that is believed: the measured time is seven times the model's.
const LARGEST: f64 = 2.0;

/// The squared distance between two sizes of a kernel's dims, in octaves.
fn apart(def: &KernelDef, a: &[u64], b: &[u64]) -> f64 {
    let class = |n: u64| f64::from(largest_class(n)).log2();
    let dim = |((d, &n), &m): ((&atlas_dsl::def::DimDef, &u64), &u64)| {
        let octaves = (n.max(1) as f64 / m.max(1) as f64).log2();
        octaves * octaves + if d.whole { 0.0 } else { CLASS * (class(n) - class(m)).abs() }
    };
    def.dims.iter().zip(a).zip(b).map(dim).sum()
}

/// A config's knobs as numbers: logarithms for sizes, plain values for others.
#[derive(Clone, Debug, PartialEq)]
struct Knobs(Vec<(String, Setting)>);

impl Knobs {
    fn new(config: &Config) -> Knobs {
        let tiles = config.tile.iter().map(|(k, &v)| (k.clone(), Setting::Number(v)));
        let keys = Schedule::KEYS.iter().filter_map(|k| Some(((*k).to_owned(), config.schedule.get(k)?)));
        Knobs(tiles.chain(keys).collect())
    }

    /// The squared distance to other knobs.
    fn apart(&self, other: &Knobs) -> f64 {
        let knob = |((_, a), (_, b)): (&(String, Setting), &(String, Setting))| match (a, b) {
            (Setting::Number(a), Setting::Number(b)) => {
                (f64::from((*a).max(1)) / f64::from((*b).max(1))).log2().powi(2)
            }
            (a, b) if a == b => 0.0,
            _ => 1.0,
        };
        self.0.iter().zip(&other.0).map(knob).sum()
    }
}

/// A measured size: the dims in the signature's order, and the layout of its tensors.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MeasuredSize {
    pub(super) dims: Vec<u64>,
    pub(super) tensors: String,
}

impl MeasuredSize {
    /// The squared distance between two sizes.
    fn apart(&self, def: &KernelDef, other: &MeasuredSize) -> f64 {
        apart(def, &self.dims, &other.dims) + if self.tensors == other.tensors { 0.0 } else { OTHER_LAYOUT }
    }
}

/// The process, conditioned on all measurements of a record for one list of element types.
#[derive(Debug, Default)]
pub(super) struct Fit {
    places: Vec<MeasuredSize>,
    /// All configs that were measured.
    configs: Vec<Knobs>,
    /// The size, the config and the weight of each measurement, by index.
    points: Vec<(usize, usize, f64)>,
    /// The covariances of requested configs with `configs`.
    rows: Mutex<HashMap<Config, Arc<[f64]>>>,
}

/// The process at one size.
#[derive(Clone, Debug, Default)]
pub(super) struct At {
    fit: Arc<Fit>,
    /// Covariances with the sizes of the fit.
    places: Vec<f64>,
}

impl Fit {
    /// Fits the sizes of a record, at most [`MOST_SIZES`] of them.
    pub(super) fn new(def: &KernelDef, sizes: &[(MeasuredSize, &TunedSize)]) -> Fit {
        let mut fit = Fit::default();
        let mut known: HashMap<Config, usize> = HashMap::new();
        let mut residuals: Vec<f64> = Vec::new();
        // Each size contributes at least its best config and some slower ones.
        for (place, size) in sizes {
            let all = size.configs.iter().filter_map(|t| Some((t.config.parse::<Config>().ok()?, t.us / t.cycles)));
            let all: Vec<(Config, f64)> =
                all.map(|(config, ratio)| (config, ratio.ln())).filter(|(_, residual)| residual.is_finite()).collect();
            let mean = all.iter().map(|r| r.1).sum::<f64>() / all.len().max(1) as f64;
            let most = (MOST / sizes.len()).max(1);
            // The best, and every `every`-th of the others.
            let every = all.len().div_ceil(most).max(1);
            for (config, residual) in all.into_iter().step_by(every) {
                let knobs = Knobs::new(&config);
                let at = *known.entry(config).or_insert_with(|| {
                    fit.configs.push(knobs);
                    fit.configs.len() - 1
                });
                fit.points.push((fit.places.len(), at, 0.0));
                residuals.push((residual - mean).clamp(-LARGEST, LARGEST));
            }
            fit.places.push(place.clone());
        }
        let of_places: Vec<Vec<f64>> =
            fit.places.iter().map(|a| fit.places.iter().map(|b| of_sizes(a.apart(def, b))).collect()).collect();
        let of_configs: Vec<Vec<f64>> =
            fit.configs.iter().map(|a| fit.configs.iter().map(|b| of_knobs(a, b)).collect()).collect();
        let n = fit.points.len();
        let mut matrix = vec![0.0; n * n];
        for (row, &(i, a, _)) in fit.points.iter().enumerate() {
            for (col, &(j, b, _)) in fit.points.iter().enumerate().take(row + 1) {
                let same_size = if i == j { SIZE_MEAN * SIZE_MEAN } else { 0.0 };
                let same = if row == col { NOISE * NOISE } else { 0.0 };
                matrix[row * n + col] = of_configs[a][b] * of_places[i][j] + same_size + same;
            }
        }
        for (point, weight) in fit.points.iter_mut().zip(solve(matrix, residuals)) {
            point.2 = weight;
        }
        fit
    }

    /// The process at a size.
    pub(super) fn at(self: &Arc<Fit>, def: &KernelDef, place: &MeasuredSize) -> At {
        let places = self.places.iter().map(|p| of_sizes(p.apart(def, place))).collect();
        At { fit: self.clone(), places }
    }

    /// The measured sizes with weight at a size, nearest first.
    pub(super) fn near(&self, def: &KernelDef, place: &MeasuredSize) -> Vec<&MeasuredSize> {
        let weigh = |p: &'_ MeasuredSize| (-p.apart(def, place) / (SIZES * SIZES)).exp();
        let mut near: Vec<(f64, &MeasuredSize)> = self.places.iter().map(|p| (weigh(p), p)).collect();
        near.retain(|n| n.0 >= FAINT);
        near.sort_by(|a, b| b.0.total_cmp(&a.0));
        near.into_iter().map(|n| n.1).collect()
    }

    fn row(&self, config: &Config) -> Arc<[f64]> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = rows.get(config) {
            return row.clone();
        }
        let knobs = Knobs::new(config);
        let row: Arc<[f64]> = self.configs.iter().map(|c| of_knobs(&knobs, c)).collect();
        rows.insert(config.clone(), row.clone());
        row
    }
}

impl At {
    /// The expected residual of a config.
    pub(super) fn of(&self, config: &Config) -> f64 {
        if self.places.is_empty() {
            return 0.0;
        }
        let row = self.fit.row(config);
        self.fit.points.iter().map(|&(place, config, weight)| weight * row[config] * self.places[place]).sum()
    }
}

fn of_knobs(a: &Knobs, b: &Knobs) -> f64 {
    (-a.apart(b) / (CONFIGS * CONFIGS)).exp()
}

fn of_sizes(apart: f64) -> f64 {
    LOCAL * LOCAL * (-apart / (SIZES * SIZES)).exp() + GLOBAL * GLOBAL
}

/// Solves `matrix · x = y` for a positive definite matrix, whose lower half is given, by Cholesky's method.
fn solve(mut matrix: Vec<f64>, mut y: Vec<f64>) -> Vec<f64> {
    let n = y.len();
    for i in 0..n {
        for j in 0..=i {
            let (above, below) = matrix.split_at(i * n);
            let row = &below[..n];
            let other = if i == j { row } else { &above[j * n..][..n] };
            let rest = row[j] - (0..j).map(|k| row[k] * other[k]).sum::<f64>();
            let value = if i == j { rest.max(f64::MIN_POSITIVE).sqrt() } else { rest / other[j] };
            matrix[i * n + j] = value;
        }
    }
    for i in 0..n {
        let known: f64 = (0..i).map(|k| matrix[i * n + k] * y[k]).sum();
        y[i] = (y[i] - known) / matrix[i * n + i];
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| matrix[k * n + i] * y[k]).sum();
        y[i] = (y[i] - known) / matrix[i * n + i];
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved() {
        let matrix = vec![4.0, 0.0, 0.0, 2.0, 5.0, 0.0, 0.5, 1.0, 3.0];
        let x = solve(matrix, vec![4.0 + 4.0 + 1.5, 2.0 + 10.0 + 3.0, 0.5 + 2.0 + 9.0]);
        for (x, want) in x.iter().zip([1.0, 2.0, 3.0]) {
            assert!((x - want).abs() < 1e-12, "{x}");
        }
    }
}
