//! Tokens and weights of a layer on the host, in f64, and the features of its keys and queries.

use super::FeatureMap;
use super::features::Side;
use crate::random_features::Feature;

/// A layer's tokens and weights on the host, shaped as the layer's own.
#[derive(Clone, Debug, Default)]
pub struct HostLayer {
    /// Queries, keys and values of the memory.
    pub memory: [Vec<f64>; 3],
    /// Queries, keys and values of the attention.
    pub attention: [Vec<f64>; 3],
    /// What is kept of the memory, what of the momentum, and steps.
    pub gates: [Vec<f64>; 3],
    /// Weights in the memory's window.
    pub gamma: Vec<f64>,
    /// Keys and values of the prefix.
    pub prefix: [Vec<f64>; 2],
    /// Weights of the norms of memory and attention.
    pub norms: [Vec<f64>; 2],
    /// The matrices of the memory.
    pub weights: Vec<Vec<f64>>,
    /// The weight of the norm inside the memory; empty if it has none.
    pub inner: Vec<f64>,
    /// Projections between memory and attention; read by [`Combine::Context`](super::Combine::Context) alone.
    pub context: HostContext,
}

/// Projections of [`ContextWeights`](super::ContextWeights) on the host.
#[derive(Clone, Debug, Default)]
pub struct HostContext {
    /// Of what is recalled: keys and values of the attention.
    pub recalled: [Vec<f64>; 2],
    /// Of what the attention gives: queries, keys and values of the memory.
    pub memory: [Vec<f64>; 3],
    /// Weights of the norms of these queries and keys, if they have any.
    pub norms: Option<[Vec<f64>; 2]>,
}

/// The features of one row, as their definition has them: all monomials by index, and not in the order of a kernel.
pub(super) fn features(map: &FeatureMap, side: Side, x: &[f64]) -> Vec<f64> {
    match map {
        FeatureMap::None => x.to_vec(),
        FeatureMap::Elementwise(a) => {
            let [a1, a2, a3] = a.map(f64::from);
            x.iter().map(|x| a1 * x + a2 * x * x + a3 * x * x * x).collect()
        }
        FeatureMap::Favor { projections } => {
            let w = projections.to_f64_vec().unwrap_or_else(|e| panic!("projections: {e}"));
            let scale = (x.len() as f64).powf(-0.25);
            let features = projections.shape()[0];
            crate::random_features::reference(x, &w, &Feature::Favor(scale, 0.0), [x.len(), features])
        }
        FeatureMap::Polynomial(_) | FeatureMap::ExpTaylor { .. } => {
            let of = |a: &f32| {
                let sign = if side == Side::Keys { f64::from(a.signum()) } else { 1.0 };
                sign * f64::from(a.abs()).sqrt()
            };
            let c: Vec<f64> = map.coefficients().iter().map(of).collect();
            crate::monomials::reference(x, x.len(), map.features(x.len()), &c, false)
        }
    }
}
