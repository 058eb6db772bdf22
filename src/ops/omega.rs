//! The Omega rule: a memory that is trained while its sequence is read, on the tokens of a sliding window.
//!
//! There are `B` sequences of `N` tokens and `H` heads. Queries and keys have `D` elements, values and residuals have
//! `E`, and the memory has `M` hidden elements. Keys, values and their residuals have `P` tokens: those of the
//! sequence, preceded by any that windows of the first chunk reach. [`Chunking::dims`] gives the dims of the workspace.
//! The workspaces of [`OMEGA_MUON_TOKENS`] and its kin need other dims: `B`, `H`, `K` and `E` and, unless the memory is linear, `M`
//! and the element type `T`. Those of [`OMEGA_MLP_WIDE`], [`OMEGA_GATED_WIDE`] and [`OMEGA_NORMED_WIDE`] need `E`, `M` and `T` besides,
//! and so does that of [`OMEGA_MLP_SPLIT`], with `R`, the number of chunks that are trained on before their tokens are read, 16 for example.
//! It computes what [`OMEGA_MLP`] does, with two launches for each chunk and three for each `R` chunks: on a GPU it is faster
//! where sequences times heads are at most half of the multiprocessors, and [`OmegaStream`] and [`OmegaPacked`] take it there for chunks of 32
//! tokens at least. [`OMEGA_MLP_CLUSTER`] takes its place on GPUs with clusters of programs (compute capability 9.0 and later), for tokens of
//! 16 bits whose width is a multiple of 8 and at most 64, at most 80 keys of a chunk, and 65 to 512 hidden elements: it has four launches for each `R` chunks.
//! With Muon, wide chains need `D`, `E`, `T` and, unless the memory is linear, `M` besides. `K` is [`Chunking::keys`] of the chunk and
//! window that a launch is given. `chunk` of [`OMEGA_MUON_TOKENS`] and its kin is a number, so a launch cannot compare it with `K`: a
//! workspace of fewer keys gives other numbers, and no error. [`OmegaStream`] and [`OmegaPacked`] allocate what they need.
//! [`OmegaRule::chain_for`] says which chain takes rows, and with Muon matrices, of which width.
//!
//! [`OmegaTraining`] is for layers that are trained: its forward pass keeps the state of the memory here and there, and
//! its backward pass has the gradients of everything that goes in, those by the weight of a memory's norm among them. It takes
//! every memory and every loss: by descent, read before or after a token's step, and with Muon by chunk, read before a chunk's step.
//! Other rules are refused (ATL651).
//!
//! | parameter | meaning |
//! |---|---|
//! | `alpha`, `theta` | the factors by which a token decays the memory, and the momentum |
//! | `eta` | the step size of a token |
//! | `gamma` | the weights of the `W` tokens in its window, oldest first |
//! | `before` | if above 0, a token is read before its own step; with one step for each chunk, a chunk before that |
//! | `commit` | how many chunks change the memory, counted from the first |
//! | `chunk` | tokens per chunk |
//! | `rq`, `rk` | residuals, which are added to the memory's outputs for queries and keys |
//! | `norm`, `eps` | the weight of the norm inside the memory, which is not trained, and what is added to its variance |
//! | `s1`, `s2`, `s3`, `s` | the momentum of `w1`, `w2`, `w3` and `w` |
//! | `scale` | the factor of the error `M(k) - v` in a gradient, [`Loss::factor`] |
//! | `predicts` | if 0, the error is `-scale v`: the loss is `-scale <M(k), v>`, and what the memory makes of the key does not matter |
//!
//! ```text
//! OMEGA_MLP
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps
//! OMEGA_LINEAR
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w, s: &mut Tensor<f32, [B, H, E, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps
//! OMEGA_GATED
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2, w3: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2, s3: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps
//! OMEGA_NORMED
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     norm: &Tensor<T, [H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     eps: f32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps
//! OMEGA_MLP_WIDE
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps, errors, act, delta, hidden
//! OMEGA_MLP_SPLIT
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps, mixed, oldest, rows, slopes, errors, act, change, w1_before, w2_before, s1_before, s2_before, hidden, reads
//! OMEGA_MLP_CLUSTER
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps, mixed, oldest, errors, act, change, w1_before, w2_before, s1_before, s2_before, hidden, reads
//! OMEGA_LINEAR_WIDE
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w, s: &mut Tensor<f32, [B, H, E, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps
//! OMEGA_GATED_WIDE
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2, w3: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2, s3: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps, errors, act, delta, delta3, hidden, hidden3
//! OMEGA_NORMED_WIDE
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     norm: &Tensor<T, [H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     eps: f32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps, errors, act, delta, hidden, outs
//! OMEGA_MUON
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps
//! OMEGA_MUON_WIDE
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps, errors, act, delta, hidden, t1, t2, iterates1, gram1, poly1, iterates2, gram2, poly2
//! OMEGA_MUON_GATED
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2, w3: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2, s3: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps
//! OMEGA_MUON_GATED_WIDE
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2, w3: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2, s3: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps, errors, act, delta, delta3, hidden, t1, t2, t3, iterates1, gram1, poly1, iterates2, gram2, poly2
//! OMEGA_MUON_LINEAR
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w, s: &mut Tensor<f32, [B, H, E, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps
//! OMEGA_MUON_LINEAR_WIDE
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     w, s: &mut Tensor<f32, [B, H, E, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps, errors, t, iterates, gram, poly
//! OMEGA_MUON_NORMED
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     norm: &Tensor<T, [H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     eps: f32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps
//! OMEGA_MUON_NORMED_WIDE
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     before, commit: i32
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     norm: &Tensor<T, [H, E]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     predicts: i32
//!     eps: f32
//!     workspace: psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps, errors, act, delta, hidden, t1, t2, iterates1, gram1, poly1, iterates2, gram2, poly2
//! OMEGA_MUON_TOKENS
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     chunk, before: i32
//!     scale: f32
//!     predicts: i32
//!     workspace: errors, act, delta
//! OMEGA_MUON_TOKENS_WIDE
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     chunk, before: i32
//!     scale: f32
//!     predicts: i32
//!     workspace: errors, act, delta, hidden, t1, t2, iterates1, gram1, poly1, iterates2, gram2, poly2
//! OMEGA_MUON_TOKENS_GATED
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2, w3: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2, s3: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     chunk, before: i32
//!     scale: f32
//!     predicts: i32
//!     workspace: errors, act, delta, delta3
//! OMEGA_MUON_TOKENS_GATED_WIDE
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2, w3: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2, s3: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     chunk, before: i32
//!     scale: f32
//!     predicts: i32
//!     workspace: errors, act, delta, delta3, hidden, t1, t2, t3, iterates1, gram1, poly1, iterates2, gram2, poly2
//! OMEGA_MUON_TOKENS_LINEAR
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     w, s: &mut Tensor<f32, [B, H, E, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     chunk, before: i32
//!     scale: f32
//!     predicts: i32
//!     workspace: errors
//! OMEGA_MUON_TOKENS_LINEAR_WIDE
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     w, s: &mut Tensor<f32, [B, H, E, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     chunk, before: i32
//!     scale: f32
//!     predicts: i32
//!     workspace: errors, t, iterates, gram, poly
//! OMEGA_MUON_TOKENS_NORMED
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     norm: &Tensor<T, [H, E]>
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     chunk, before: i32
//!     scale: f32
//!     predicts: i32
//!     eps: f32
//!     workspace: errors, act, delta
//! OMEGA_MUON_TOKENS_NORMED_WIDE
//!     q: &Tensor<T, [B, N, H, D]>
//!     k: &Tensor<T, [B, P, H, D]>
//!     v: &Tensor<T, [B, P, H, E]>
//!     rq: &Tensor<T, [B, N, H, E]>
//!     rk: &Tensor<T, [B, P, H, E]>
//!     norm: &Tensor<T, [H, E]>
//!     alpha, theta, eta: &Tensor<f32, [B, N, H]>
//!     gamma: &Tensor<f32, [B, N, H, W]>
//!     w1: &mut Tensor<f32, [B, H, E, M]>
//!     w2: &mut Tensor<f32, [B, H, M, D]>
//!     s1: &mut Tensor<f32, [B, H, E, M]>
//!     s2: &mut Tensor<f32, [B, H, M, D]>
//!     y: &mut Tensor<T, [B, N, H, E]>
//!     chunk, before: i32
//!     scale: f32
//!     predicts: i32
//!     eps: f32
//!     workspace: errors, act, delta, hidden, t1, t2, iterates1, gram1, poly1, iterates2, gram2, poly2
//! ```

pub use atlas_ops::omega::backward::{OmegaGradients, OmegaKept, OmegaTraining, TrainingSizes};
pub use atlas_ops::omega::{
    Chunking, Loss, MemoryForm, OMEGA_GATED, OMEGA_GATED_WIDE, OMEGA_LINEAR, OMEGA_LINEAR_WIDE, OMEGA_MLP,
    OMEGA_MLP_CLUSTER, OMEGA_MLP_SPLIT, OMEGA_MLP_WIDE, OMEGA_MUON, OMEGA_MUON_GATED, OMEGA_MUON_GATED_WIDE,
    OMEGA_MUON_LINEAR, OMEGA_MUON_LINEAR_WIDE, OMEGA_MUON_NORMED, OMEGA_MUON_NORMED_WIDE, OMEGA_MUON_TOKENS,
    OMEGA_MUON_TOKENS_GATED, OMEGA_MUON_TOKENS_GATED_WIDE, OMEGA_MUON_TOKENS_LINEAR, OMEGA_MUON_TOKENS_LINEAR_WIDE,
    OMEGA_MUON_TOKENS_NORMED, OMEGA_MUON_TOKENS_NORMED_WIDE, OMEGA_MUON_TOKENS_WIDE, OMEGA_MUON_WIDE, OMEGA_NORMED,
    OMEGA_NORMED_WIDE, OmegaPacked, OmegaRule, OmegaStream, Read, Step, StreamSizes, Tokens, omega_decay_gates,
    omega_token_gates,
};
