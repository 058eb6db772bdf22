//! What a layer makes of keys and queries before its memory sees them.

use super::LAYER;
use super::kernels::layer_features;
use crate::monomials::{count, monomials2, monomials3};
use crate::omega::copy_tokens;
use crate::pass::{Pass, check_tensor};
use crate::random_features::favor_features;
use atlas_dsl::DType;
use atlas_runtime::{Device, LaunchError, Result, RuntimeError, Tensor, args};

/// A map from the `d` numbers of a head's key or query to the `D` numbers that its memory takes.
#[derive(Clone, Debug)]
pub enum FeatureMap {
    /// `phi(x) = x`.
    None,
    /// `phi(x) = a1 x + a2 x^2 + a3 x^3`, number by number, `D = d`. It has no products of different numbers.
    Elementwise([f32; 3]),
    /// All monomials up to degree 2 or 3: `phi(q) . phi(k) = sum over j of a_j (q . k)^j` (ATLAS Eq. 22), for three or four
    /// coefficients `a_j`, from `a_0` on. Both sides have the factor `sqrt |a_j|`, and keys the sign of `a_j`. `D` is the number
    /// of monomials, `C(d + p, p)`, in the next multiple of 8; the columns behind them are 0. Heads of up to 4 elements have as many
    /// columns as monomials where the multiple would add `d` columns or more.
    Polynomial(Vec<f32>),
    /// [`Polynomial`](FeatureMap::Polynomial) with `a_j = 1/j!`: `phi(q) . phi(k)` is the Taylor series of `exp(q . k)` up to
    /// degree 2 or 3 (ATLAS Eq. 5).
    ExpTaylor {
        /// 2 or 3.
        degree: usize,
    },
    /// Positive random features (FAVOR+, arXiv 2009.14794): `exp(w x' - |x'|^2 / 2) / sqrt(D)` of `x' = d^(-1/4) x`, for the
    /// kernel `exp(q . k / sqrt(d))`.
    Favor {
        /// The projections `[D, d]`, the same for all heads, in the element type of tokens.
        projections: Tensor,
    },
}

/// Which of the two a map is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Keys,
    Queries,
}

impl FeatureMap {
    /// Features of `d` numbers.
    pub fn features(&self, d: usize) -> usize {
        match self {
            FeatureMap::None | FeatureMap::Elementwise(_) => d,
            FeatureMap::Favor { projections } => projections.shape().first().copied().unwrap_or(0),
            FeatureMap::Polynomial(a) => columns(d, a.len().saturating_sub(1)),
            FeatureMap::ExpTaylor { degree } => columns(d, *degree),
        }
    }

    /// The coefficients `a_j` of a polynomial.
    pub(super) fn coefficients(&self) -> Vec<f32> {
        match self {
            FeatureMap::Polynomial(a) => a.clone(),
            FeatureMap::ExpTaylor { degree } => std::iter::once(1.0)
                .chain((1..=*degree).scan(1.0, |a, j| {
                    *a /= j as f32;
                    Some(*a)
                }))
                .collect(),
            _ => vec![],
        }
    }

    /// Fails for a polynomial of another degree than there are kernels for, and for projections that do not take rows of `width` numbers.
    pub(super) fn check(&self, device: &Device, width: usize, dtype: DType) -> Result<()> {
        match self {
            FeatureMap::Polynomial(a) if !(3..=4).contains(&a.len()) => Err(wrong_degree(a.len())),
            FeatureMap::ExpTaylor { degree } if !(2..=3).contains(degree) => {
                let found = format!("`FeatureMap::ExpTaylor` of degree {degree}");
                Err(LaunchError::Choice { op: LAYER, found, mend: "give a degree of 2 or 3" }.into())
            }
            FeatureMap::Favor { projections } => {
                let features = projections.shape().first().copied().unwrap_or(0);
                check_tensor(LAYER, ("projections", projections), (device, dtype), ("[D, d]", &[features, width]))
            }
            _ => Ok(()),
        }
    }

    /// Writes the features of tokens `[B, T, H, d]` to `[B, T, H, D]`.
    pub(super) fn launch(&self, pass: Pass, device: &Device, side: Side, x: &Tensor, room: &Features) -> Result<()> {
        match self {
            FeatureMap::None => Ok(()),
            FeatureMap::Elementwise([a1, a2, a3]) => {
                pass.launch(&layer_features, device, args!(x, &mut room.wide(x.shape())?, *a1, *a2, *a3))
            }
            _ => {
                // The maps take rows: those of tokens are laid out one after the other.
                let (rows, wide) = (room.rows(x.shape())?, room.wide(x.shape())?);
                let flat = if x.is_contiguous() {
                    x.reshape(rows.shape())?
                } else {
                    let mut laid = rows.reshape(x.shape())?;
                    copy_tokens(pass, device, x, &mut laid)?;
                    rows
                };
                let [b, t, h, e] = [0, 1, 2, 3].map(|axis| wide.shape()[axis]);
                self.launch_rows(pass, device, side, &flat, &mut wide.reshape([b * t * h, e])?)
            }
        }
    }

    fn launch_rows(&self, pass: Pass, device: &Device, side: Side, x: &Tensor, y: &mut Tensor) -> Result<()> {
        if let FeatureMap::Favor { projections } = self {
            let scale = (x.shape()[1].max(1) as f32).powf(-0.25);
            return pass.launch(&favor_features, device, args!(x, projections, scale, 0.0, &mut *y));
        }
        let sign = |a: f32| if side == Side::Keys { a.signum() } else { 1.0 };
        let c: Vec<f32> = self.coefficients().iter().map(|a| sign(*a) * a.abs().sqrt()).collect();
        match c[..] {
            [c0, c1, c2] => pass.launch(&monomials2, device, args!(x, &mut *y, c0, c1, c2, 0)),
            [c0, c1, c2, c3] => pass.launch(&monomials3, device, args!(x, &mut *y, c0, c1, c2, c3, 0)),
            _ => Err(wrong_degree(c.len())),
        }
    }
}

/// Columns for the monomials of `d` numbers: the next multiple of 8, if the kernels reach it, which write up to `d - 1` zeros.
fn columns(d: usize, degree: usize) -> usize {
    let count = count(d, degree);
    count.checked_next_multiple_of(8).filter(|columns| columns - count < d).unwrap_or(count)
}

fn wrong_degree(coefficients: usize) -> RuntimeError {
    let found = format!("`FeatureMap::Polynomial` of {coefficients} coefficients");
    LaunchError::Choice { op: LAYER, found, mend: "give three or four, for degree 2 or 3" }.into()
}

/// Room for the features of a piece, and for its tokens in rows.
pub(super) struct Features {
    /// As many numbers as the longest piece has.
    rows: Tensor,
    wide: Tensor,
    /// Features of a row; none if the memory is given tokens as they are.
    features: Option<usize>,
}

impl Features {
    /// For pieces of up to so many rows, tokens times heads.
    pub(super) fn new(device: &Device, map: &FeatureMap, dtype: DType, rows: usize, width: usize) -> Result<Features> {
        let features = map.features(width);
        let has_rows = !matches!(map, FeatureMap::None | FeatureMap::Elementwise(_));
        let of = |is_needed: bool, width: usize| {
            Tensor::zeros(device, dtype, [if is_needed { rows.saturating_mul(width) } else { 0 }])
        };
        let has_features = !matches!(map, FeatureMap::None);
        let (rows, wide) = (of(has_rows, width)?, of(has_features, features)?);
        Ok(Features { rows, wide, features: has_features.then_some(features) })
    }

    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> u64 {
        [&self.rows, &self.wide].map(|t| t.len() as u64 * u64::from(t.dtype().bytes())).iter().sum()
    }

    /// Room for tokens `[B, T, H, d]` as rows.
    fn rows(&self, shape: &[usize]) -> Result<Tensor> {
        let [b, t, h, d] = [0, 1, 2, 3].map(|axis| shape[axis]);
        part(&self.rows, &[b * t * h, d])
    }

    /// What the memory is given for tokens: their features, or themselves if there are none.
    pub(super) fn given(&self, x: &Tensor) -> Result<Tensor> {
        if self.features.is_none() { Ok(x.clone()) } else { self.wide(x.shape()) }
    }

    /// The features of tokens of this shape, `[B, T, H, D]`.
    fn wide(&self, shape: &[usize]) -> Result<Tensor> {
        part(&self.wide, &[shape[0], shape[1], shape[2], self.features.unwrap_or(shape[3])])
    }
}

/// The first numbers of a flat tensor in a shape.
fn part(flat: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let count = shape.iter().product::<usize>();
    flat.slice(0, 0..count)?.reshape(shape)
}
