//! One layer of an ATLAS model without its projections, on sequences that arrive in pieces of any length.

pub use atlas_ops::layer::{
    AtlasLayer, Combine, FeatureMap, LayerRule, LayerSizes, LayerTokens, LayerWeights, Residual,
};
