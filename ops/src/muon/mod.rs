//! Muon on matrices of any size: momentum, a Newton-Schulz iteration in launches of products, and the step.
//!
//! ```text
//! buf <- mu buf + g,  u = g + mu buf                       (or as a mean: buf <- mu buf + (1 - mu) g)
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
//! FLOPs of a step of the iteration: `B (4 M^2 N + 2 M^3)` for `M <= N`. A tall matrix is iterated as its transpose.

mod kernels;
#[cfg(feature = "verify")]
pub mod reference;

pub use kernels::{muon_apply, muon_momentum, ns_apply, ns_gram, ns_normalise, ns_polynomial, ns_squares};

use crate::newton_schulz_small::CLASSIC;
use atlas_dsl::DType;
use atlas_runtime::{Launch, Result, Stream, Tensor, args};

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
    /// Take `eps` of the matrix divided by its greatest element, so that scaling the matrix changes nothing.
    pub scale_safe: bool,
}

impl NewtonSchulz {
    fn new(steps: Vec<[f64; 3]>, stretch: f32) -> NewtonSchulz {
        // The mean eigenvalue after the first steps, of Gaussian matrices.
        let centres = [0.0, 0.25, 1.0, 0.75, 0.75];
        let centres = (0..steps.len()).map(|i| centres[i.min(4)]).collect();
        NewtonSchulz { steps, centres, stretch, eps: 1e-7, scale_safe: false }
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
    largest: Tensor,
    squares: Tensor,
}

impl MuonSpace {
    /// For `count` matrices of `rows x cols`, lying wide or tall.
    ///
    /// # Errors
    /// Those of [`Tensor::empty`].
    pub fn new(stream: &Stream, dtype: DType, count: usize, rows: usize, cols: usize) -> Result<MuonSpace> {
        let (m, n) = (rows.min(cols), rows.max(cols));
        let device = stream.device();
        let of = |dtype: DType, shape: &[usize]| Tensor::empty(device, dtype, shape);
        Ok(MuonSpace {
            x: of(dtype, &[count, m, n])?,
            y: of(dtype, &[count, m, n])?,
            gram: of(dtype, &[count, m, m])?,
            poly: of(dtype, &[count, m, m])?,
            largest: of(DType::F32, &[count, m])?,
            squares: of(DType::F32, &[count, m])?,
        })
    }

    /// Bytes that it takes on its device.
    pub fn bytes(&self) -> u64 {
        let all = [&self.x, &self.y, &self.gram, &self.poly, &self.largest, &self.squares];
        all.into_iter().map(|t| t.len() as u64 * u64::from(t.dtype().bytes())).sum()
    }
}

impl NewtonSchulz {
    /// Writes the iteration of `g` to `out`, both `[B, M, N]` of the workspace's element type. `2 + 3 steps` launches.
    ///
    /// # Errors
    /// As [`Launch::launch`]; the workspace is for these sizes.
    pub fn launch(&self, stream: &Stream, g: &Tensor, out: &mut Tensor, space: &mut MuonSpace) -> Result<()> {
        let tall = g.rank() == 3 && g.shape()[1] > g.shape()[2];
        let g = if tall { g.transpose(1, 2)? } else { g.clone() };
        let mut out = if tall { out.transpose(1, 2)? } else { out.slice(0, 0..out.shape()[0])? };
        let MuonSpace { x, y, gram, poly, largest, squares } = space;
        ns_squares.launch_on(stream, args!(g, &mut *largest, &mut *squares))?;
        let (stretch, eps, safe) = (self.stretch, self.eps, i32::from(self.scale_safe));
        if self.steps.is_empty() {
            return ns_normalise.launch_on(stream, args!(g, largest, squares, &mut out, stretch, eps, safe));
        }
        ns_normalise.launch_on(stream, args!(g, largest, squares, &mut *x, stretch, eps, safe))?;
        let last = self.steps.len() - 1;
        for (i, [a, b, c]) in self.steps.iter().enumerate() {
            let s = self.centres.get(i).copied().unwrap_or(0.0);
            // a + b A + c A A about s: with E = A - s, the same polynomial of E.
            let (first, second, third) = ((a + b * s + c * s * s) as f32, (b + 2.0 * c * s) as f32, *c as f32);
            ns_gram.launch_on(stream, args!(&*x, &mut *gram, s as f32))?;
            ns_polynomial.launch_on(stream, args!(&*gram, &mut *poly, first, second, third))?;
            if i == last {
                ns_apply.launch_on(stream, args!(&*poly, &*x, &mut out))?;
            } else {
                ns_apply.launch_on(stream, args!(&*poly, &*x, &mut *y))?;
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
    /// The element type of the iteration.
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

/// What steps on matrices of one shape need: their updates side by side, and an iteration's.
#[derive(Debug)]
struct Batch {
    shape: [usize; 2],
    update: Tensor,
    space: MuonSpace,
}

/// Workspaces of steps, allocated when a list of matrices is seen for the first time.
#[derive(Debug, Default)]
pub struct MuonSpaces {
    batches: Vec<Batch>,
}

impl MuonSpaces {
    /// Bytes that they take on their device.
    pub fn bytes(&self) -> u64 {
        let of = |t: &Tensor| t.len() as u64 * u64::from(t.dtype().bytes());
        self.batches.iter().map(|b| of(&b.update) + b.space.bytes()).sum()
    }
}

impl Muon {
    /// One step on a list of matrices. Those of one shape share the launches of the iteration; momentum and weights take two
    /// launches a matrix, for each is a tensor of its own.
    ///
    /// The workspaces are for one stream at a time: two steps that share them must not run beside each other.
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
        let mut shapes: Vec<[usize; 2]> = Vec::new();
        for m in list.iter() {
            let shape = [m.g.shape()[0], m.g.shape()[m.g.rank() - 1]];
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
        for shape in shapes {
            let mut of_shape: Vec<&mut MuonMatrix<'_>> = list.iter_mut().filter(|m| m.g.shape() == shape).collect();
            self.step_alike(stream, shape, &mut of_shape, spaces)?;
        }
        Ok(())
    }

    fn step_alike(
        &self,
        stream: &Stream,
        shape: [usize; 2],
        list: &mut [&mut MuonMatrix<'_>],
        spaces: &mut MuonSpaces,
    ) -> Result<()> {
        let [rows, cols] = shape;
        let (count, mu) = (list.len(), self.momentum);
        let known = |b: &Batch| b.shape == shape && b.update.shape()[0] == count && b.update.dtype() == self.dtype;
        let at = match spaces.batches.iter().position(known) {
            Some(at) => at,
            None => {
                let update = Tensor::empty(stream.device(), self.dtype, [count, rows, cols])?;
                let space = MuonSpace::new(stream, self.dtype, count, rows, cols)?;
                spaces.batches.push(Batch { shape, update, space });
                spaces.batches.len() - 1
            }
        };
        let Batch { update, space, .. } = &mut spaces.batches[at];
        let fresh = if self.mean { 1.0 - mu } else { 1.0 };
        let (ahead, held) = if self.nesterov { (fresh, mu) } else { (0.0, 1.0) };
        for (i, m) in list.iter_mut().enumerate() {
            let mut u = update.slice(0, i..i + 1)?.reshape([rows, cols])?;
            muon_momentum.launch_on(stream, args!(m.g, &mut *m.buf, &mut u, mu, fresh, ahead, held))?;
        }
        let mut along = update.slice(0, 0..count)?;
        self.iteration.launch(stream, update, &mut along, space)?;
        let scale = match self.scale {
            StepScale::One => 1.0,
            StepScale::Tall => (rows as f32 / cols as f32).max(1.0).sqrt(),
            StepScale::Size => 0.2 * (rows.max(cols) as f32).sqrt(),
        };
        for (i, m) in list.iter_mut().enumerate() {
            let o = update.slice(0, i..i + 1)?.reshape([rows, cols])?;
            let (keep, step) = (1.0 - self.rate * self.decay, self.rate * scale);
            muon_apply.launch_on(stream, args!(&mut *m.w, o, keep, step))?;
        }
        Ok(())
    }
}
