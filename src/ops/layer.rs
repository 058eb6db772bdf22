//! One layer of an ATLAS model but for its projections, on sequences that come in pieces of any lengths.

pub use atlas_ops::layer::{AtlasLayer, Combine, LayerRule, LayerSizes, LayerTokens, LayerWeights};
