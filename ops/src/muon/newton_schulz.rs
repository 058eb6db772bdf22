//! Newton-Schulz iterations on matrices of any size, in launches of products.

use super::coefficients::{POLAR_EXPRESS, POLAR_EXPRESS_MODDED_NANOGPT, YOU};
use super::kernels::{ns_apply, ns_gram, ns_normalise, ns_product, ns_squares};
use crate::newton_schulz_small::{CLASSIC, EPS};
use crate::pass::Pass;
use atlas_dsl::DType;
use atlas_runtime::{LaunchError, Result, Stream, Tensor, args};

/// What an iteration works on. Both compute the same polynomial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `X` itself: `X <- p(X X^T) X`.
    Standard,
    /// `R = X X^T` and the product `Q` of the polynomials, `X <- Q X` at the end (Gram Newton-Schulz of Dao-AILab). Rounding
    /// grows with the spread of the singular values, so `X` and `R` are computed anew after the step `restart`, and matrices
    /// that are less than four times as wide as high (or high as wide) take the standard form.
    ///
    /// Errors, relative, of five steps on matrices of random numbers: 1e-5 in f32, 1e-2 in f16, 8e-2 in bf16. So take f16: what is
    /// iterated is normalised. Of more steps they grow, for there is one restart: of nine steps, on 32 rows, five times.
    Gram {
        /// Steps before the restart.
        restart: usize,
    },
}

/// What keeps the norm that a matrix is divided by away from 0. The matrix `g` has the norm `|g|` of Frobenius.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NormEps {
    /// `stretch |g| + eps`: Jordan's Muon, Moonshot's, modded-nanogpt, LaCT and the paper of Polar Express. A matrix of norm `eps`
    /// is half as long as a large one.
    Added(f32),
    /// `max(stretch |g|, eps)`: `torch.optim.Muon`, as `torch.nn.functional.normalize` has it.
    AtLeast(f32),
}

/// A Newton-Schulz iteration: `X = g / (stretch |g| + eps)`, then `X <- (a + b X X^T + c (X X^T)^2) X` for each step's `a`, `b`, `c`.
#[derive(Clone, Debug, PartialEq)]
pub struct NewtonSchulz {
    /// The coefficients of each step.
    pub steps: Vec<[f64; 3]>,
    /// The number that each step's product is taken about.
    pub centres: Vec<f64>,
    /// What the norm is multiplied by.
    pub stretch: f32,
    /// What keeps it away from 0.
    pub eps: NormEps,
    /// What it works on.
    pub form: Form,
    /// Take `eps` of the matrix divided by its greatest element, so that scaling the matrix changes nothing.
    pub scale_safe: bool,
}

impl NewtonSchulz {
    fn new(steps: Vec<[f64; 3]>, stretch: f32, eps: NormEps) -> NewtonSchulz {
        // The mean eigenvalue after the first steps, of Gaussian matrices.
        let centres = [0.0, 0.25, 1.0, 0.75, 0.75];
        let centres = (0..steps.len()).map(|i| centres[i.min(4)]).collect();
        NewtonSchulz { steps, centres, stretch, eps, form: Form::Standard, scale_safe: false }
    }

    /// The same in the form of Gram, with a restart after two steps.
    #[must_use]
    pub fn gram(self) -> NewtonSchulz {
        NewtonSchulz { form: Form::Gram { restart: 2 }, ..self }
    }

    /// Five steps of `(3.4445, -4.7750, 2.0315)` from `g / (|g| + 1e-7)`: Jordan's Muon and Moonshot's (Moonlight).
    pub fn classic() -> NewtonSchulz {
        NewtonSchulz::new(vec![CLASSIC; 5], 1.0, NormEps::Added(EPS))
    }

    /// Five steps of the same from `g / max(|g|, 1e-7)`: `torch.optim.Muon`.
    pub fn torch() -> NewtonSchulz {
        NewtonSchulz { eps: NormEps::AtLeast(EPS), ..NewtonSchulz::classic() }
    }

    /// Five steps of [`YOU`] from `g / (|g| + 1e-7)`: LaCT, and the Muon of Microsoft's dion (with an `eps` of 1e-8).
    pub fn you() -> NewtonSchulz {
        NewtonSchulz::new(YOU.to_vec(), 1.0, NormEps::Added(EPS))
    }

    /// Five steps of [`POLAR_EXPRESS`] from `g / (1.01 |g| + 1e-7)`: the paper of Polar Express, algorithm 1.
    pub fn polar_express() -> NewtonSchulz {
        NewtonSchulz::polar_express_steps(5)
    }

    /// The same with another number of steps. Those past [`POLAR_EXPRESS`] repeat its last one.
    pub fn polar_express_steps(count: usize) -> NewtonSchulz {
        let steps = (0..count).map(|i| POLAR_EXPRESS[i.min(POLAR_EXPRESS.len() - 1)]).collect();
        NewtonSchulz::new(steps, 1.01, NormEps::Added(EPS))
    }

    /// Five steps of [`POLAR_EXPRESS_MODDED_NANOGPT`] from `g / (1.02 |g| + 1e-6)`: modded-nanogpt, nanochat, and the Polar Express
    /// of Microsoft's dion.
    pub fn modded_nanogpt() -> NewtonSchulz {
        NewtonSchulz::new(POLAR_EXPRESS_MODDED_NANOGPT.to_vec(), 1.02, NormEps::Added(1e-6))
    }
}

/// What an iteration on `B` matrices of `M x N` needs besides them, allocated once.
#[derive(Debug)]
pub struct MuonSpace {
    pub(super) x: Tensor,
    y: Tensor,
    gram: Tensor,
    poly: Tensor,
    /// Of the form of Gram.
    pub(super) products: Option<[Tensor; 2]>,
    largest: Tensor,
    squares: Tensor,
}

/// The error for a tensor of a [`MuonSpace`] that is not given.
fn missing(param: &'static str) -> LaunchError {
    LaunchError::MissingTensor {
        kernel: "newton_schulz",
        param,
        mend: "give those of `MuonSpace::tensors`, in that order",
    }
}

impl MuonSpace {
    /// For an iteration of `count` matrices of `rows x cols`, lying wide or tall.
    ///
    /// # Errors
    /// Those of [`Tensor::empty`].
    pub fn new(
        stream: &Stream,
        of: &NewtonSchulz,
        dtype: DType,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Result<MuonSpace> {
        let device = stream.device();
        let made = MuonSpace::tensors(of, dtype, count, rows, cols);
        MuonSpace::of(made.into_iter().map(|(dtype, shape)| Tensor::empty(device, dtype, shape)))
    }

    /// The types and shapes of its tensors, for [`MuonSpace::of`].
    pub fn tensors(
        of: &NewtonSchulz,
        dtype: DType,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Vec<(DType, Vec<usize>)> {
        let (m, n) = (rows.min(cols), rows.max(cols));
        let (whole, square) = ((dtype, vec![count, m, n]), (dtype, vec![count, m, m]));
        let rows = (DType::F32, vec![count, m]);
        let mut all = vec![whole.clone(), whole, square.clone(), square.clone(), rows.clone(), rows];
        if of.form_for(m, n) != Form::Standard {
            all.extend([square.clone(), square]);
        }
        all
    }

    /// It in tensors that are allocated elsewhere, those of [`MuonSpace::tensors`] in that order.
    ///
    /// # Errors
    /// The first error among the tensors; [`LaunchError::MissingTensor`] if there are too few.
    pub fn of(tensors: impl IntoIterator<Item = Result<Tensor>>) -> Result<MuonSpace> {
        let mut tensors = tensors.into_iter();
        let mut next = |param| tensors.next().unwrap_or_else(|| Err(missing(param).into()));
        let (x, y, gram, poly) = (next("x")?, next("y")?, next("gram")?, next("poly")?);
        let (largest, squares) = (next("largest")?, next("squares")?);
        let products = match tensors.next() {
            None => None,
            Some(first) => {
                let second = tensors.next().unwrap_or_else(|| Err(missing("products").into()));
                Some([first?, second?])
            }
        };
        Ok(MuonSpace { x, y, gram, poly, products, largest, squares })
    }

    /// Bytes that it takes on its device.
    pub fn bytes(&self) -> u64 {
        let all = [&self.x, &self.y, &self.gram, &self.poly, &self.largest, &self.squares];
        let all = all.into_iter().chain(self.products.iter().flatten());
        all.map(|t| t.len() as u64 * u64::from(t.dtype().bytes())).sum()
    }
}

impl NewtonSchulz {
    /// The form in which matrices of `m <= n` are iterated.
    pub(super) fn form_for(&self, m: usize, n: usize) -> Form {
        match self.form {
            Form::Gram { restart } if 4 * m <= n => Form::Gram { restart: restart.max(1) },
            _ => Form::Standard,
        }
    }

    /// The number that a step's product is taken about.
    fn centre(&self, step: usize) -> f64 {
        self.centres.get(step).copied().unwrap_or(0.0)
    }

    /// The polynomial of a step about its centre: with E = A - s, `a + b A + c A A` as one of E.
    fn about_centre(&self, step: usize) -> [f32; 3] {
        let ([a, b, c], s) = (self.steps[step], self.centre(step));
        [a + b * s + c * s * s, b + 2.0 * c * s, c].map(|x| x as f32)
    }

    /// Writes the iteration of `g` to `out`, both `[B, M, N]`. The workspace is for these sizes and this iteration, and `out` has
    /// its element type; `g` may have another one, as f16 holds no gradient that is far from 1. They may be one tensor, if there
    /// is a step. `2 + 3 steps` launches; in the form of Gram, 20 for five steps. All are made ready before the first one runs.
    ///
    /// # Errors
    /// As [`Launch::launch`](atlas_runtime::Launch::launch); `out` has not changed then.
    pub fn launch(&self, stream: &Stream, g: &Tensor, out: &mut Tensor, space: &mut MuonSpace) -> Result<()> {
        Pass::BOTH.into_iter().try_for_each(|pass| self.pass(pass, stream, g, out, space))
    }

    /// Goes over the launches.
    pub(super) fn pass(
        &self,
        pass: Pass,
        stream: &Stream,
        g: &Tensor,
        out: &mut Tensor,
        space: &mut MuonSpace,
    ) -> Result<()> {
        let tall = g.rank() == 3 && g.shape()[1] > g.shape()[2];
        let g = if tall { g.transpose(1, 2)? } else { g.clone() };
        let mut out = if tall { out.transpose(1, 2)? } else { out.clone() };
        let MuonSpace { x, largest, squares, .. } = space;
        pass.launch_on(&ns_squares, stream, args!(g, &mut *largest, &mut *squares))?;
        let (stretch, safe) = (self.stretch, i32::from(self.scale_safe));
        let (eps, least) = match self.eps {
            NormEps::Added(eps) => (eps, 0.0),
            NormEps::AtLeast(eps) => (0.0, eps),
        };
        let to = if self.steps.is_empty() { &mut out } else { &mut *x };
        pass.launch_on(&ns_normalise, stream, args!(g, largest, squares, to, stretch, eps, least, safe))?;
        if self.steps.is_empty() {
            return Ok(());
        }
        let (m, n) = (x.shape()[1], x.shape()[2]);
        match self.form_for(m, n) {
            Form::Standard => self.standard(pass, stream, &mut out, space),
            Form::Gram { restart } => self.by_gram(pass, stream, &mut out, space, restart),
        }
    }

    fn standard(&self, pass: Pass, stream: &Stream, out: &mut Tensor, space: &mut MuonSpace) -> Result<()> {
        let MuonSpace { x, y, gram, poly, .. } = space;
        let last = self.steps.len() - 1;
        for step in 0..=last {
            let [first, second, third] = self.about_centre(step);
            pass.launch_on(&ns_gram, stream, args!(&*x, &mut *gram, self.centre(step) as f32))?;
            pass.launch_on(&ns_product, stream, args!(&*gram, &*gram, &mut *poly, first, second, third))?;
            if step == last {
                pass.launch_on(&ns_apply, stream, args!(&*poly, &*x, &mut *out))?;
            } else {
                pass.launch_on(&ns_apply, stream, args!(&*poly, &*x, &mut *y))?;
                std::mem::swap(x, y);
            }
        }
        Ok(())
    }

    /// With `E = R - s`, `P` the step's polynomial and `Q` the product of those since the last restart: `Q <- P Q`,
    /// `T = R P = E P + s P`, and `R <- T P`. All are symmetric and commute.
    fn by_gram(
        &self,
        pass: Pass,
        stream: &Stream,
        out: &mut Tensor,
        space: &mut MuonSpace,
        restart: usize,
    ) -> Result<()> {
        let MuonSpace { x, y, gram: e, poly: p, products, .. } = space;
        let Some([q, t]) = products else { return self.standard(pass, stream, out, space) };
        let last = self.steps.len() - 1;
        for step in 0..=last {
            let starts = step == 0 || step == restart;
            let ends = step == last || step + 1 == restart;
            if starts {
                pass.launch_on(&ns_gram, stream, args!(&*x, &mut *e, self.centre(step) as f32))?;
            }
            let [first, second, third] = self.about_centre(step);
            pass.launch_on(&ns_product, stream, args!(&*e, &*e, &mut *p, first, second, third))?;
            if !ends {
                let (s, next) = (self.centre(step) as f32, self.centre(step + 1) as f32);
                pass.launch_on(&ns_product, stream, args!(&*e, &*p, &mut *t, 0.0, s, 1.0))?;
                pass.launch_on(&ns_product, stream, args!(&*t, &*p, &mut *e, -next, 0.0, 1.0))?;
            }
            if starts {
                std::mem::swap(p, q);
            } else {
                pass.launch_on(&ns_product, stream, args!(&*p, &*q, &mut *t, 0.0, 0.0, 1.0))?;
                std::mem::swap(q, t);
            }
            if ends && step == last {
                pass.launch_on(&ns_apply, stream, args!(&*q, &*x, &mut *out))?;
            } else if ends {
                pass.launch_on(&ns_apply, stream, args!(&*q, &*x, &mut *y))?;
                std::mem::swap(x, y);
            }
        }
        Ok(())
    }
}
