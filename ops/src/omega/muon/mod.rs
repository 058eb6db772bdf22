//! The Omega rule with Muon: a memory steps along its orthogonalised momentum, once for each chunk or once for each token.
//!
//! **By chunk.** The gradients of a chunk are taken at the memory before it, and the chunk takes one step,
//!
//! ```text
//! S <- beta S + grad diag(Phi_end),   W <- lam W - step NS(S)
//! ```
//!
//! for each matrix by itself, with `beta`, `lam`, `Phi_end` and `steps` of [`omega_mix`](super::mix): `step` is the last gate `eta`
//! of the chunk. A chunk is read before its step or after it.
//!
//! **By token.** Each token takes a step of its own,
//!
//! ```text
//! S_t = theta_t S_(t-1) + sum of gamma[t, o] grad l(M_a(t); k_(t-o), v_(t-o)),   M_t = alpha_t M_(t-1) - eta_t NS(S_t)
//! ```
//!
//! The gradients of a chunk are taken at the memory before it here, too. What they are made of, `errors`, `act` and `delta`, is
//! computed once per chunk and kept in a workspace, and each token adds a few of them to its momentum. A chunk of one token is
//! the rule word for word. Tokens follow each other, five products of matrices each: where a step per chunk is enough, that is
//! faster by the length of the chunk.
//!
//! A gradient has no higher rank than it has keys. Where these are fewer than the rows of a matrix, `NS(S)` is ill-conditioned:
//! in the directions that no key trains, `S` holds what is left of its start and of roundings, and five steps multiply what is
//! small against the rest by up to 485. With a bf16 gradient of 26 keys and 55 rows, a memory is then some 0.09 of its size
//! from the one of exact arithmetic, while the momentum is within 1e-2. Windows of as many keys as there are rows, f16 or f32
//! bring it near. The results are those of f64 with the roundings of the kernel, which is what tests hold it to.
//!
//! A step of length 0 takes no iteration and leaves what is held, whatever the momentum is: so chunks that are not committed, and
//! tokens behind the end of a packed document, cost little.
//!
//! The kernels hold whole matrices on chip, which bounds their sizes. Those whose names end in `_wide` compute the same on matrices in
//! global memory, of any size. A copy of each in the element type of products is read where the memory is read. A workspace holds the
//! iteration, on whichever side of a matrix is shorter. [`OmegaRule::chain_for`](super::OmegaRule::chain_for) says which are taken.
//!
//! Source: ATLAS (arXiv 2505.23735) Eq. 32 and 33; by chunks as LaCT (arXiv 2505.23884) applies it. The iteration is that of
//! [`newton_schulz_small`](crate::newton_schulz_small). Of whole matrices it is on the side on which a matrix of a usual memory is small:
//! the rows of `W1`, and of a linear memory's `W`; the columns of `W2` and `W3`.

pub mod chunk_gated;
pub mod chunk_gated_wide;
pub mod chunk_linear;
pub mod chunk_linear_wide;
pub mod chunk_mlp;
pub mod chunk_mlp_wide;
pub mod chunk_normed;
pub mod chunk_normed_wide;
pub(crate) mod forms;
pub(crate) mod iteration;
#[cfg(feature = "verify")]
pub(crate) mod muon_cases;
mod orthogonal;
#[cfg(feature = "verify")]
pub mod problem;
pub mod token_gated;
pub mod token_gated_wide;
pub mod token_linear;
pub mod token_linear_wide;
pub mod token_mlp;
pub mod token_mlp_wide;
pub mod token_normed;
pub mod token_normed_wide;
mod wide;
pub mod window;

pub use chunk_gated::omega_muon_gated;
pub use chunk_gated_wide::omega_muon_gated_wide;
pub use chunk_linear::omega_muon_linear;
pub use chunk_linear_wide::omega_muon_linear_wide;
pub use chunk_mlp::omega_muon;
pub use chunk_mlp_wide::omega_muon_wide;
pub use chunk_normed::omega_muon_normed;
pub use chunk_normed_wide::omega_muon_normed_wide;
pub use token_gated::omega_muon_tokens_gated;
pub use token_gated_wide::omega_muon_tokens_gated_wide;
pub use token_linear::omega_muon_tokens_linear;
pub use token_linear_wide::omega_muon_tokens_linear_wide;
pub use token_mlp::omega_muon_tokens;
pub use token_mlp_wide::omega_muon_tokens_wide;
pub use token_normed::omega_muon_tokens_normed;
pub use token_normed_wide::omega_muon_tokens_normed_wide;
pub use window::{fused_descent, fused_optimization};
