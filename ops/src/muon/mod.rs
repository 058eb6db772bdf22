//! Muon on matrices of any size: momentum, a Newton-Schulz iteration in launches of products, and the step.
//!
//! ```text
//! buf <- mu buf + g,           u = g + mu buf              Momentum::Sum
//! buf <- mu buf + (1 - mu) g,  u = (1 - mu) g + mu buf     Momentum::Mean
//! X = u / (stretch |u| + eps)                              NormEps::Added
//! X = u / max(stretch |u|, eps)                            NormEps::AtLeast
//! X <- (a + b X X^T + c (X X^T)^2) X, for each step's a, b, c
//! W <- (1 - lr wd) W - lr scale X
//! ```
//!
//! Public code differs in all of these. [`Muon::torch`], [`Muon::jordan`] and [`Muon::moonshot`] have what each of them has, and
//! so have [`NewtonSchulz::classic`] and the other iterations by name.
//!
//! Sources: Muon (Keller Jordan) and its use in ATLAS (arXiv 2505.23735) Eq. 32; Moonlight (arXiv 2502.16982); the coefficients of
//! Polar Express (arXiv 2505.16932) and those of LaCT (arXiv 2505.23884). What is right is the same polynomial in f64, not the
//! polar factor, which five steps do not reach.
//!
//! In 16 bits most of the error comes from rounding `X X^T` and its polynomial, so both are taken about a number near the middle
//! of the spectrum, as [`newton_schulz_small`](crate::newton_schulz_small) explains. Matrices of up to 128 x 512 are faster there.
//!
//! Symmetric products are computed once a pair of tiles. FLOPs of a step of the iteration, for `M <= N`: `B (3 M^2 N + M^3)`. A
//! tall matrix is iterated as its transpose. [`Form::Gram`] iterates on `X X^T` and its polynomials, and meets `X` itself at the
//! start, at a restart and at the end: `B (6 M^2 N + 14 M^3)` for all five steps, 0.58 of the others' for `N = 4 M`.

#[cfg(feature = "verify")]
pub(crate) mod cases;
mod coefficients;
mod kernels;
mod newton_schulz;
#[cfg(feature = "verify")]
mod plans;
#[cfg(feature = "verify")]
pub mod reference;

pub use coefficients::{POLAR_EXPRESS, POLAR_EXPRESS_MODDED_NANOGPT, YOU};
pub use kernels::{muon_apply, muon_momentum, ns_apply, ns_gram, ns_normalise, ns_product, ns_squares};
pub use newton_schulz::{Form, MuonSpace, NewtonSchulz, NormEps};

use crate::pass::{Pass, check_apart};
use atlas_dsl::DType;
use atlas_runtime::{Device, Launch, Result, Stream, Tensor, args};

/// How the momentum takes a gradient up, and how it looks ahead.
///
/// From zeros on, a sum is `1 / (1 - mu)` times as long as a mean, and so is `u`. The division by the norm takes that out again, so
/// both make the same steps where `|u|` is far above `eps`. But a buffer that was kept as a sum has to be multiplied by `1 - mu`
/// before it goes on as a mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Momentum {
    /// `buf <- mu buf + g`, with `u = g + mu buf` ahead: Moonshot's Muon (Moonlight), Microsoft's dion, and Jordan's article, as
    /// `torch.optim.SGD` has it.
    Sum,
    /// `buf <- mu buf + (1 - mu) g`, with `u = (1 - mu) g + mu buf` ahead: `torch.optim.Muon` (its code; its documentation has the
    /// sum), Jordan's `muon.py`, and modded-nanogpt.
    Mean,
}

/// The length of a step, from the number of rows (outputs) and columns (inputs) of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepScale {
    /// `1`.
    One,
    /// `sqrt(max(1, rows / cols))`: Jordan's; `adjust_lr_fn="original"` of `torch.optim.Muon`.
    Tall,
    /// `sqrt(rows / cols)`: Bernstein's; `"spectral_unclamped"` of torch, `"spectral_norm"` of dion.
    Aspect,
    /// `0.2 sqrt(max(rows, cols))`: Moonshot's; `"match_rms_adamw"` of torch, `"rms_norm"` of dion.
    Size,
}

/// The Muon optimiser's numbers. A name of public code gives its defaults: `Muon { rate: 0.02, ..Muon::torch() }`.
#[derive(Clone, Debug, PartialEq)]
pub struct Muon {
    /// The iteration.
    pub iteration: NewtonSchulz,
    /// The learning rate.
    pub rate: f32,
    /// `mu`, what is kept of the momentum.
    pub momentum: f32,
    /// How the momentum takes a gradient up.
    pub buffer: Momentum,
    /// Look ahead: make `u` orthogonal as [`Momentum`] has it, and not `buf`.
    pub nesterov: bool,
    /// What each step takes off the weights, times the rate (without [`Muon::scale`]), before the update.
    pub decay: f32,
    /// How long a step is.
    pub scale: StepScale,
    /// The element type of the iteration. What it begins with is kept in f32 where this is f16, so that a matrix may be of any
    /// size before its norm is taken.
    pub dtype: DType,
}

/// One matrix of a model: `w`, `buf` and `g` are `[M, N]`, f32. `w` and `buf` are written.
#[derive(Debug)]
pub struct MuonMatrix<'m> {
    /// The weights.
    pub w: &'m mut Tensor,
    /// The momentum.
    pub buf: &'m mut Tensor,
    /// The gradient.
    pub g: &'m Tensor,
}

/// What steps on matrices of one shape need: their updates side by side, what the iteration makes of them, and its workspace.
#[derive(Debug)]
struct Batch {
    shape: [usize; 2],
    update: Tensor,
    /// `None` where it overwrites the updates.
    along: Option<Tensor>,
    space: MuonSpace,
}

impl Batch {
    fn new(stream: &Stream, of: &Muon, count: usize, [rows, cols]: [usize; 2]) -> Result<Batch> {
        let make = |dtype: DType| Tensor::empty(stream.device(), dtype, [count, rows, cols]);
        Ok(Batch {
            shape: [rows, cols],
            update: make(of.update_dtype())?,
            along: if of.leaves_updates() { Some(make(of.dtype)?) } else { None },
            space: MuonSpace::new(stream, &of.iteration, of.dtype, count, rows, cols)?,
        })
    }

    /// Whether steps on so many matrices of a shape can use it.
    fn is_for(&self, device: &Device, of: &Muon, count: usize, shape: [usize; 2]) -> bool {
        if self.update.device() != device {
            return false;
        }
        let [rows, cols] = shape;
        let is_gram = of.iteration.form_for(rows.min(cols), rows.max(cols)) != Form::Standard;
        let types = [self.update.dtype(), self.space.x.dtype()] == [of.update_dtype(), of.dtype];
        self.shape == shape
            && self.update.shape()[0] == count
            && types
            && self.along.is_some() == of.leaves_updates()
            && self.space.products.is_some() == is_gram
    }
}

/// Workspaces of steps, allocated when a list of matrices is seen for the first time. Of each shape it keeps those of the last
/// four kinds of lists: other numbers of matrices, element types, forms, or devices.
#[derive(Debug, Default)]
pub struct MuonSpaces {
    /// Those of one shape in the order of their last use.
    batches: Vec<Batch>,
}

/// Workspaces that are kept of matrices of one shape.
const MOST_OF_A_SHAPE: usize = 4;

impl MuonSpaces {
    /// The workspace of a list of matrices of one shape.
    fn of(&mut self, stream: &Stream, of: &Muon, count: usize, shape: [usize; 2]) -> Result<&mut Batch> {
        let known = self.batches.iter().position(|b| b.is_for(stream.device(), of, count, shape));
        let batch = match known {
            Some(at) => self.batches.remove(at),
            None => {
                let same = |batch: &&Batch| batch.shape == shape;
                let oldest = self.batches.iter().position(|b| b.shape == shape);
                if let Some(at) = oldest
                    && self.batches.iter().filter(same).count() >= MOST_OF_A_SHAPE
                {
                    self.batches.remove(at);
                }
                Batch::new(stream, of, count, shape)?
            }
        };
        self.batches.push(batch);
        let last = self.batches.len() - 1;
        Ok(&mut self.batches[last])
    }

    /// Bytes that they take on their device.
    pub fn bytes(&self) -> u64 {
        let of = |t: &Tensor| t.len() as u64 * u64::from(t.dtype().bytes());
        self.batches.iter().map(|b| of(&b.update) + b.along.as_ref().map_or(0, of) + b.space.bytes()).sum()
    }
}

impl Muon {
    /// `torch.optim.Muon` with its defaults (as of PyTorch 2.15), and `adjust_lr_fn="original"`:
    ///
    /// ```text
    /// buf <- 0.95 buf + 0.05 g,  u = 0.05 g + 0.95 buf
    /// X = u / max(|u|, 1e-7), then five steps of (3.4445, -4.7750, 2.0315)
    /// W <- (1 - 1e-3 * 0.1) W - 1e-3 sqrt(max(1, rows / cols)) X
    /// ```
    ///
    /// Two roundings differ: torch takes the norm in bf16, and this step in f32; torch rounds each product of a step to bf16, and
    /// this step rounds what is left of it about a centre.
    pub fn torch() -> Muon {
        Muon {
            iteration: NewtonSchulz::torch(),
            rate: 1e-3,
            momentum: 0.95,
            buffer: Momentum::Mean,
            nesterov: true,
            decay: 0.1,
            scale: StepScale::Tall,
            dtype: DType::Bf16,
        }
    }

    /// Keller Jordan's `muon.py` with its defaults, as [`Muon::torch`] but for the rate, no decay, and `X = u / (|u| + 1e-7)`:
    ///
    /// ```text
    /// buf <- 0.95 buf + 0.05 g,  u = 0.05 g + 0.95 buf
    /// W <- W - 0.02 sqrt(max(1, rows / cols)) X
    /// ```
    pub fn jordan() -> Muon {
        Muon { iteration: NewtonSchulz::classic(), rate: 0.02, decay: 0.0, ..Muon::torch() }
    }

    /// Moonshot's Muon (Moonlight, arXiv 2502.16982) with its defaults: a momentum that is a sum, `X = u / (|u| + 1e-7)`, and steps
    /// as long as those of AdamW:
    ///
    /// ```text
    /// buf <- 0.95 buf + g,  u = g + 0.95 buf
    /// W <- (1 - 1e-3 * 0.1) W - 1e-3 * 0.2 sqrt(max(rows, cols)) X
    /// ```
    pub fn moonshot() -> Muon {
        let (iteration, scale) = (NewtonSchulz::classic(), StepScale::Size);
        Muon { iteration, buffer: Momentum::Sum, scale, ..Muon::torch() }
    }

    /// The element type of what is made orthogonal, before it is normalised: one with the range of f32.
    fn update_dtype(&self) -> DType {
        if self.dtype == DType::F16 { DType::F32 } else { self.dtype }
    }

    /// Whether the iteration writes elsewhere than where its updates are: of another type, or, without a step, normalised,
    /// which cannot be done in place.
    fn leaves_updates(&self) -> bool {
        self.update_dtype() != self.dtype || self.iteration.steps.is_empty()
    }

    /// One step on a list of matrices. `u` is rounded to [`Muon::dtype`] before its norm is taken, but to f16 behind it.
    ///
    /// Matrices of one shape share the launches of the iteration; momentum and weights take two launches a matrix, for each is a
    /// tensor of its own.
    ///
    /// The workspaces are for one stream at a time: two steps that share them must not run beside each other.
    ///
    /// All launches are made ready before the first one runs. No `w` and no `buf` shares memory with another tensor of the list.
    ///
    /// # Errors
    /// As [`Launch::launch`]; no matrix has changed then.
    pub fn step(&self, stream: &Stream, list: &mut [MuonMatrix<'_>], spaces: &mut MuonSpaces) -> Result<()> {
        for m in list.iter_mut() {
            // Matrices of f32 and one shape, all three.
            let device = stream.device();
            muon_apply.bind(device, args!(&mut m.g.clone(), &*m.buf, 1.0, 0.0))?;
            muon_apply.bind(device, args!(&mut *m.buf, m.g, 1.0, 0.0))?;
            muon_apply.bind(device, args!(&mut *m.w, m.g, 1.0, 0.0))?;
        }
        check_all_apart(list)?;
        let mut shapes: Vec<[usize; 2]> = Vec::new();
        for m in list.iter() {
            let shape = [m.g.shape()[0], m.g.shape()[m.g.rank() - 1]];
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
        for pass in Pass::BOTH {
            for &shape in &shapes {
                let mut of_shape: Vec<&mut MuonMatrix<'_>> = list.iter_mut().filter(|m| m.g.shape() == shape).collect();
                self.step_alike(pass, stream, shape, &mut of_shape, spaces)?;
            }
        }
        Ok(())
    }

    fn step_alike(
        &self,
        pass: Pass,
        stream: &Stream,
        shape: [usize; 2],
        list: &mut [&mut MuonMatrix<'_>],
        spaces: &mut MuonSpaces,
    ) -> Result<()> {
        let [rows, cols] = shape;
        let (count, mu) = (list.len(), self.momentum);
        let Batch { update, along, space, .. } = spaces.of(stream, self, count, shape)?;
        let fresh = match self.buffer {
            Momentum::Sum => 1.0,
            Momentum::Mean => 1.0 - mu,
        };
        let (ahead, held) = if self.nesterov { (fresh, mu) } else { (0.0, 1.0) };
        for (i, m) in list.iter_mut().enumerate() {
            let mut u = update.slice(0, i..i + 1)?.reshape([rows, cols])?;
            pass.launch_on(&muon_momentum, stream, args!(m.g, &mut *m.buf, &mut u, mu, fresh, ahead, held))?;
        }
        let mut along = along.as_ref().unwrap_or(update).slice(0, 0..count)?;
        self.iteration.pass(pass, stream, update, &mut along, space)?;
        let scale = match self.scale {
            StepScale::One => 1.0,
            StepScale::Tall => (rows as f32 / cols as f32).max(1.0).sqrt(),
            StepScale::Aspect => (rows as f32 / cols as f32).sqrt(),
            StepScale::Size => 0.2 * (rows.max(cols) as f32).sqrt(),
        };
        for (i, m) in list.iter_mut().enumerate() {
            let o = along.slice(0, i..i + 1)?.reshape([rows, cols])?;
            let (keep, step) = (1.0 - self.rate * self.decay, self.rate * scale);
            pass.launch_on(&muon_apply, stream, args!(&mut *m.w, o, keep, step))?;
        }
        Ok(())
    }
}

/// Fails if what a step writes shares memory with another tensor of its list, which no launch alone can see.
fn check_all_apart(list: &[MuonMatrix<'_>]) -> Result<()> {
    let mut all: Vec<(&'static str, &Tensor)> = Vec::new();
    for m in list {
        all.extend([("w", &*m.w), ("buf", &*m.buf), ("g", m.g)]);
    }
    // In the order of addresses only neighbours can meet.
    all.sort_by_key(|(_, t)| t.address());
    for (at, one) in all.iter().enumerate() {
        let end = one.1.address_range().end;
        for other in all[at + 1..].iter().take_while(|other| other.1.address() < end) {
            let (written, beside) = if one.0 == "g" { (other, one) } else { (one, other) };
            if written.0 != "g" {
                check_apart("muon_step", *written, *beside)?;
            }
        }
    }
    Ok(())
}

crate::records::shipped! {
    "nvidia-h100-80gb-hbm3":
    "muon_apply" "muon_momentum" "ns_apply" "ns_gram" "ns_normalise" "ns_product" "ns_squares"
}
crate::records::shipped! { "nvidia-h200": "muon_apply" "muon_momentum" "ns_apply" "ns_gram" "ns_normalise" "ns_product" "ns_squares" }
