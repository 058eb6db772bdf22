//! One layer of an ATLAS or Titans model on sequences that arrive in pieces of any length, without the projections around it: a
//! memory alone, or combined with attention as MAG ([`Combine::Gate`]), MAL ([`Combine::Sequence`]) or MAC ([`Combine::Context`]).

pub use atlas_ops::layer::{
    AtlasLayer, Combine, ContextWeights, FeatureMap, LayerRule, LayerSizes, LayerTokens, LayerWeights, Residual,
};
