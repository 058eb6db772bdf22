//! One layer of an ATLAS model but for its projections: a memory that is trained by an Omega rule while it is read, attention
//! over a sliding window, and what combines them, on sequences that come in pieces of any lengths.
//!
//! ```text
//! m = M(phi(q))        the memory is trained on phi(k), v                        any OmegaRule and FeatureMap
//! a = attention of (aq, ak, av) over a window and a prefix
//! alone      y = norm(m, wm)                                                     OmegaNet, Atlas, Titans' LMM
//! gate       y = norm(a, wa) * sigmoid(norm(m, wm))                              MAG
//! sequence   y = attention of (n, n, n), n = norm(m, wm)                         MAL
//! context    the attention sees what the memory recalls, and the memory is
//!            trained on what the attention gives: see Combine::Context            MAC
//! ```
//!
//! Sources: ATLAS (arXiv 2505.23735) for the memory; Titans (arXiv 2501.00663) Eq. 21 to 25, 28, 30 and 31 for the ways to combine
//! it. `norm` is an RMS norm of a head's row. The state of a layer does not grow: weights and momenta of its memory, the tokens of a
//! chunk, and the keys of a window or of a segment.
//!
//! What a layer gives does not depend on how its sequences are cut, as long as all numbers are finite. One that is infinite or NaN
//! also reaches tokens before it that are computed with it, of its chunk or of a tile of
//! [`windowed_attention`](crate::windowed_attention), but no other sequence.

#[cfg(feature = "verify")]
pub(crate) mod cases;
mod context;
#[cfg(feature = "verify")]
mod context_reference;
mod features;
#[cfg(feature = "verify")]
mod host;
mod kernels;
mod past;
#[cfg(feature = "verify")]
mod plan_sizes;
#[cfg(feature = "verify")]
mod plans;
#[cfg(feature = "verify")]
pub mod reference;
mod run;
mod shapes;
#[cfg(feature = "verify")]
mod step_plans;

pub use context::ContextWeights;
pub use features::FeatureMap;
pub use kernels::{layer_combine, layer_features, layer_gate, layer_norm};
pub use run::AtlasLayer;

use crate::omega::OmegaRule;
use atlas_dsl::DType;
use atlas_runtime::{LaunchError, Result, Tensor};

/// How memory and attention are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// There is no attention.
    Alone,
    /// The memory gates the attention (MAG).
    Gate,
    /// The attention reads what the memory gives (MAL).
    Sequence,
    /// The memory is a context of the attention (MAC). The sequence is cut into segments. Each token asks the memory as it was
    /// before the segment, what that recalls stands beside the token in the attention, and the memory is trained on what the
    /// attention gives:
    ///
    /// ```text
    /// h_i = M0(phi(q_i))                                 M0 is the memory before the segment          Eq. 21
    /// y_i = attention of aq_i over the prefix and, for all j <= i of the segment,                     Eq. 22, 23
    ///       the keys Wrk h_j with values Wrv h_j, and the keys ak_j with values av_j
    /// m_i = M_i(phi(Wq y_i))                             M is trained on phi(Wk y), Wv y              Eq. 24
    /// o_i = norm(y_i, wa) * sigmoid(norm(m_i, wm))                                                    Eq. 25
    /// ```
    ///
    /// The matrices are those of [`ContextWeights`]. Equations are those of Titans, which leave open what a token may know of later
    /// tokens of its segment. Here it is nothing, in two places:
    ///
    /// - A token sees what is recalled for itself and for earlier tokens. The mask of the paper's Figure 3a has all of a segment's
    ///   `h` before the segment, so that its first token sees what is recalled for the queries of its last one.
    /// - `o_i` reads the memory as it is at its own token, by the rule's [`Read`](crate::omega::Read). `M_t` of Eq. 25 has been
    ///   trained on the whole segment.
    ///
    /// A model that predicts its next token learns to copy the future through either, and cannot be run token by token.
    Context {
        /// Tokens of a segment, a multiple of the tokens of a chunk. Segments are counted from the first token of a sequence.
        segment: usize,
    },
}

/// What is added to what a memory makes of a key or a query: the `r` of [`MemoryForm`](crate::omega::MemoryForm).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// The key or query itself.
    Raw,
    /// Its features, of which there are as many as it has numbers.
    Features,
    /// Nothing: the memory has to learn values, and not their differences from keys.
    None,
}

/// What a layer is for.
#[derive(Clone, Copy, Debug)]
pub struct LayerSizes {
    /// Sequences that are read at once.
    pub sequences: usize,
    /// Heads: 1 or more.
    pub heads: usize,
    /// Elements of a head: 1 or more.
    pub width: usize,
    /// Hidden elements of a memory; a linear one has none.
    pub hidden: usize,
    /// Keys that a query of the attention sees, its own among them: 1 or more. [`Combine::Alone`] has no attention, and
    /// [`Combine::Context`] has segments instead.
    pub window: usize,
    /// The longest piece that is computed at once, 1 or more; longer ones are cut.
    pub piece: usize,
    /// The element type of tokens.
    pub dtype: DType,
}

/// What a layer computes.
#[derive(Clone, Debug)]
pub struct LayerRule {
    /// How memory and attention are one.
    pub combine: Combine,
    /// The memory.
    pub memory: OmegaRule,
    /// The features of keys and queries.
    pub features: FeatureMap,
    /// What is added to what the memory makes of them.
    pub residual: Residual,
    /// Added to a mean square before its root, in the norms of what memory and attention give. 1e-6 is usual.
    pub eps: f32,
}

/// Weights of a layer, in its element type.
#[derive(Clone, Debug)]
pub struct LayerWeights {
    /// Keys that every query sees `[H, S, D]`.
    pub prefix_keys: Tensor,
    /// Their values `[H, S, D]`.
    pub prefix_values: Tensor,
    /// Of the norm of what the memory gives `[H, D]`.
    pub memory_norm: Tensor,
    /// Of the norm of what the attention gives `[H, D]`.
    pub attention_norm: Tensor,
    /// Of the norm inside the memory `[H, D]`, of [`MemoryForm::Normed`](crate::omega::MemoryForm::Normed) alone.
    pub inner_norm: Option<Tensor>,
    /// Projections between memory and attention, of [`Combine::Context`] alone.
    pub context: Option<ContextWeights>,
}

impl LayerWeights {
    /// All of them, by name.
    fn named(&self) -> impl Iterator<Item = (&'static str, &Tensor)> {
        let own = [
            ("prefix_keys", &self.prefix_keys),
            ("prefix_values", &self.prefix_values),
            ("memory_norm", &self.memory_norm),
            ("attention_norm", &self.attention_norm),
        ];
        let context = self.context.iter().flat_map(ContextWeights::named);
        own.into_iter().chain(self.inner_norm.iter().map(|w| ("inner_norm", w))).chain(context)
    }
}

/// The name in errors.
const LAYER: &str = "atlas_layer";

/// A piece of the sequences, `T` tokens each.
#[derive(Clone, Copy, Debug)]
pub struct LayerTokens<'t> {
    /// Queries, keys and values of the memory `[B, T, H, D]`. [`Combine::Context`] reads the queries alone: what the memory is
    /// trained on, it makes itself.
    pub memory: [&'t Tensor; 3],
    /// Queries, keys and values of the attention `[B, T, H, D]`; read by [`Combine::Gate`] and [`Combine::Context`] alone.
    pub attention: [&'t Tensor; 3],
    /// What is kept of the memory (`alpha`), what of the momentum (`theta`), and steps (`eta`): `[B, T, H]`, f32.
    pub gates: [&'t Tensor; 3],
    /// Weights in the memory's window `[B, T, H, W]`, f32, the oldest token first.
    pub gamma: &'t Tensor,
}

/// The first tokens of what is held for a piece.
fn part_of(t: &Tensor, count: usize) -> Result<Tensor> {
    t.slice(1, 0..count)
}

/// The error for a weight that the rule of a layer needs.
fn missing(param: &'static str) -> LaunchError {
    LaunchError::MissingTensor { kernel: LAYER, param, mend: "give it as the field of that name of `LayerWeights`" }
}

crate::records::shipped! {
    "nvidia-h100-80gb-hbm3":
    "layer_combine" "layer_gate" "layer_norm" "omega_copy_tokens"
}
crate::records::shipped! { "nvidia-h200": "layer_combine" "layer_gate" "layer_norm" "omega_copy_gates" "omega_copy_tokens" }
