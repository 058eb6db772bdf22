//! Muon on matrices of any size: momentum, a Newton-Schulz iteration in launches of products, and the step.
//!
//! ```text
//! buf <- mu buf + g,           u = g + mu buf
//! buf <- mu buf + (1 - mu) g,  u = (1 - mu) g + mu buf     as a mean
//! X = u / (stretch |u| + eps);  X <- (a + b X X^T + c (X X^T)^2) X, for each step's a, b, c
//! W <- (1 - lr wd) W - lr scale X
//! ```
//!
//! Sources: Muon (Keller Jordan) and its use in ATLAS (arXiv 2505.23735) Eq. 32; the coefficients of Polar Express
//! (arXiv 2505.16932) and those of LaCT (arXiv 2505.23884). What is right is the same polynomial in f64, not the polar factor,
//! which none of them reaches.
//!
//! In 16 bits most of the error comes from rounding `X X^T` and its polynomial, so both are taken about a number near the middle
//! of the spectrum, as [`newton_schulz_small`](crate::newton_schulz_small) explains. Matrices of up to 128 x 512 are faster there.
//!
//! Symmetric products are computed once a pair of tiles. FLOPs of a step of the iteration, for `M <= N`: `B (3 M^2 N + M^3)`. A
//! tall matrix is iterated as its transpose. [`Form::Gram`] iterates on `X X^T` and its polynomials, and meets `X` itself at the
//! start, at a restart and at the end: `B (6 M^2 N + 14 M^3)` for all five steps, 0.58 of the others' for `N = 4 M`.

#[cfg(feature = "verify")]
pub(crate) mod cases;
mod kernels;
#[cfg(feature = "verify")]
mod plans;
#[cfg(feature = "verify")]
pub mod reference;

pub use kernels::{muon_apply, muon_momentum, ns_apply, ns_gram, ns_normalise, ns_product, ns_squares};

use crate::newton_schulz_small::CLASSIC;
use crate::pass::{Pass, check_apart};
use atlas_dsl::DType;
use atlas_runtime::{Device, Launch, Result, Stream, Tensor, args};

/// The coefficients `(a, b, c)` that LaCT and others use, of Jiacheng You.
pub const YOU: [[f64; 3]; 5] = [
    [4.0848, -6.8946, 2.9270],
    [3.9505, -6.3029, 2.6377],
    [3.7418, -5.5913, 2.3037],
    [2.8769, -3.1427, 1.2046],
    [2.8366, -3.0525, 1.2012],
];

/// Those of Polar Express with its safety of 2 % and a cushion, for norms that are stretched by 1.02.
pub const POLAR_EXPRESS: [[f64; 3]; 5] = [
    [8.156_554_524_902_461, -22.483_292_925_577_95, 15.878_769_915_207_462],
    [4.042_929_935_166_739, -2.808_917_465_908_714, 0.500_017_845_105_131_6],
    [3.891_667_802_292_660_7, -2.772_484_153_217_685, 0.506_064_817_850_339_3],
    [3.285_753_657_755_655, -2.368_129_493_342_537_6, 0.464_490_242_330_031_06],
    [2.346_541_325_859_637_7, -1.709_782_838_268_708_1, 0.423_235_511_693_053_23],
];

/// What an iteration works on. Both compute the same polynomial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `X` itself: `X <- p(X X^T) X`.
    Standard,
    /// `R = X X^T` and the product `Q` of the polynomials, `X <- Q X` at the end (Gram Newton-Schulz of Dao-AILab). Rounding
    /// grows with the spread of the singular values, so `X` and `R` are computed anew after the step `restart`, and matrices
    /// that are less than four times as wide as high (or high as wide) take the standard form.
    ///
    /// Errors, relative, of matrices of random numbers: 1e-5 in f32, 1e-2 in f16, 8e-2 in bf16. So take f16: what is iterated
    /// is normalised.
    Gram {
        /// Steps before the restart.
        restart: usize,
    },
}

/// A Newton-Schulz iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct NewtonSchulz {
    /// The coefficients of each step.
    pub steps: Vec<[f64; 3]>,
    /// The number that each step's product is taken about.
    pub centres: Vec<f64>,
    /// What the norm is multiplied by.
    pub stretch: f32,
    /// What is added to it.
    pub eps: f32,
    /// What it works on.
    pub form: Form,
    /// Take `eps` of the matrix divided by its greatest element, so that scaling the matrix changes nothing.
    pub scale_safe: bool,
}

impl NewtonSchulz {
    fn new(steps: Vec<[f64; 3]>, stretch: f32) -> NewtonSchulz {
        // The mean eigenvalue after the first steps, of Gaussian matrices.
        let centres = [0.0, 0.25, 1.0, 0.75, 0.75];
        let centres = (0..steps.len()).map(|i| centres[i.min(4)]).collect();
        NewtonSchulz { steps, centres, stretch, eps: 1e-7, form: Form::Standard, scale_safe: false }
    }

    /// The same in the form of Gram, with a restart after two steps.
    #[must_use]
    pub fn gram(self) -> NewtonSchulz {
        NewtonSchulz { form: Form::Gram { restart: 2 }, ..self }
    }

    /// Five steps of the classic coefficients.
    pub fn classic() -> NewtonSchulz {
        NewtonSchulz::new(vec![CLASSIC; 5], 1.0)
    }

    /// Five steps of [`YOU`].
    pub fn you() -> NewtonSchulz {
        NewtonSchulz::new(YOU.to_vec(), 1.0)
    }

    /// Five steps of [`POLAR_EXPRESS`].
    pub fn polar_express() -> NewtonSchulz {
        NewtonSchulz::new(POLAR_EXPRESS.to_vec(), 1.02)
    }
}

/// What an iteration on `B` matrices of `M x N` needs besides them, allocated once.
#[derive(Debug)]
pub struct MuonSpace {
    x: Tensor,
    y: Tensor,
    gram: Tensor,
    poly: Tensor,
    /// Of the form of Gram.
    products: Option<[Tensor; 2]>,
    largest: Tensor,
    squares: Tensor,
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
        let (m, n) = (rows.min(cols), rows.max(cols));
        let device = stream.device();
        let make = |dtype: DType, shape: &[usize]| Tensor::empty(device, dtype, shape);
        let products = match of.form_for(m, n) {
            Form::Standard => None,
            Form::Gram { .. } => Some([make(dtype, &[count, m, m])?, make(dtype, &[count, m, m])?]),
        };
        Ok(MuonSpace {
            x: make(dtype, &[count, m, n])?,
            y: make(dtype, &[count, m, n])?,
            gram: make(dtype, &[count, m, m])?,
            poly: make(dtype, &[count, m, m])?,
            products,
            largest: make(DType::F32, &[count, m])?,
            squares: make(DType::F32, &[count, m])?,
        })
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
    fn form_for(&self, m: usize, n: usize) -> Form {
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
    /// As [`Launch::launch`]; `out` has not changed then.
    pub fn launch(&self, stream: &Stream, g: &Tensor, out: &mut Tensor, space: &mut MuonSpace) -> Result<()> {
        Pass::BOTH.into_iter().try_for_each(|pass| self.pass(pass, stream, g, out, space))
    }

    /// Goes over the launches.
    fn pass(&self, pass: Pass, stream: &Stream, g: &Tensor, out: &mut Tensor, space: &mut MuonSpace) -> Result<()> {
        let tall = g.rank() == 3 && g.shape()[1] > g.shape()[2];
        let g = if tall { g.transpose(1, 2)? } else { g.clone() };
        let mut out = if tall { out.transpose(1, 2)? } else { out.clone() };
        let MuonSpace { x, largest, squares, .. } = space;
        pass.launch_on(&ns_squares, stream, args!(g, &mut *largest, &mut *squares))?;
        let (stretch, eps, safe) = (self.stretch, self.eps, i32::from(self.scale_safe));
        if self.steps.is_empty() {
            return pass.launch_on(&ns_normalise, stream, args!(g, largest, squares, &mut out, stretch, eps, safe));
        }
        pass.launch_on(&ns_normalise, stream, args!(g, largest, squares, &mut *x, stretch, eps, safe))?;
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

/// How long a step is for a matrix of so many rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepScale {
    /// `1`.
    One,
    /// `sqrt(max(1, rows / cols))` (Jordan).
    Tall,
    /// `0.2 sqrt(max(rows, cols))` (Moonshot).
    Size,
}

/// The Muon optimiser's numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Muon {
    /// The iteration.
    pub iteration: NewtonSchulz,
    /// The learning rate.
    pub rate: f32,
    /// What is kept of the momentum.
    pub momentum: f32,
    /// Look ahead: make `g + mu buf` orthogonal, and not `buf`.
    pub nesterov: bool,
    /// The momentum is a mean, `buf <- mu buf + (1 - mu) g`, and looks ahead as one.
    pub mean: bool,
    /// What each step takes off the weights, times the rate.
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
    /// The element type of what is made orthogonal, before it is normalised: one with the range of f32.
    fn update_dtype(&self) -> DType {
        if self.dtype == DType::F16 { DType::F32 } else { self.dtype }
    }

    /// Whether the iteration writes elsewhere than where its updates are: of another type, or, without a step, normalised,
    /// which cannot be done in place.
    fn leaves_updates(&self) -> bool {
        self.update_dtype() != self.dtype || self.iteration.steps.is_empty()
    }

    /// One step on a list of matrices. With [`Muon::mean`], [`Muon::nesterov`] and [`StepScale::Tall`] the momentum, the step's
    /// scale and the decay are those of `torch.optim.Muon` with `adjust_lr_fn="original"`, and with [`StepScale::Size`] those of
    /// `"match_rms_adamw"`: `buf.lerp_(g, 1 - mu)`, `u = g.lerp(buf, mu)`. Two things differ. The optimiser of torch divides `u`
    /// by `max(|u|, eps)`, and this one by `stretch |u| + eps`: for [`NewtonSchulz::classic`], whose coefficients it has, results
    /// agree where `|u|` is far above `eps`, and a `u` of norm `eps` comes out half as long here. And it rounds `u` to bf16
    /// before the norm is taken; here `u` is rounded to [`Muon::dtype`], to f16 behind its norm. Without [`Muon::mean`] `u` is
    /// `1 / (1 - mu)` times as long from a `buf` of zeros on, which the division takes out again.
    ///
    /// Matrices of one shape share the launches of the iteration; momentum and weights take two
    /// launches a matrix, for each is a tensor of its own.
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
        let fresh = if self.mean { 1.0 - mu } else { 1.0 };
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
