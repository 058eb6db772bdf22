//! The Newton-Schulz iteration of Muon, on matrices of any size.

use crate::device::{AtlasDevice, AtlasStream, stream_on};
use crate::dlpack::{self, DLTensor};
use crate::status::{AtlasStatus, Failure, Result, handle, status};
use atlas::device::Stream;
use atlas::kernel::DType;
use atlas::ops::muon::{Form, MuonSpace, NewtonSchulz, NormEps};
use atlas::{Device, Tensor};

/// One step of an iteration: `X <- (a + b X X^T + c (X X^T)^2) X`. The product is taken about `centre`, which changes nothing but the
/// rounding: the mean eigenvalue of `X X^T` before the step is a good one, and 0 an allowed one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AtlasIterationStep {
    /// The coefficient of `X`.
    pub a: f64,
    /// The coefficient of `X X^T X`.
    pub b: f64,
    /// The coefficient of `(X X^T)^2 X`.
    pub c: f64,
    /// The number that the product is taken about.
    pub centre: f64,
}

/// An iteration, which begins with `X = g / (stretch |g| + eps)`, or with `X = g / max(stretch |g|, eps)`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AtlasIteration {
    /// Its steps.
    pub steps: *const AtlasIterationStep,
    /// How many they are.
    pub step_count: usize,
    /// What the norm is multiplied by.
    pub stretch: f32,
    /// What keeps it away from 0.
    pub eps: f32,
    /// 0 if `eps` is added to the norm; 1 if the norm is at least that, as by `torch.optim.Muon`.
    pub eps_is_least: u32,
    /// 0 for the plain form; else the iteration goes on with `X X^T`, which is faster for matrices that are four times as long as wide,
    /// and starts again after so many steps.
    pub restart: u32,
}

/// Writes the iteration of each matrix of `g` to `out`, both `[B, M, N]`, on a stream of `atlas_stream_open`, or on the device's default
/// stream if that is null. What it needs besides is allocated and freed in the order of the stream. The iteration has the element type
/// of `out`. If something does not fit, nothing is written.
///
/// # Safety
/// As `atlas_launch`; `iteration` has as many steps as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_newton_schulz(
    device: *const AtlasDevice,
    stream: *const AtlasStream,
    g: *const DLTensor,
    out: *const DLTensor,
    iteration: *const AtlasIteration,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise, here and below.
        let (device, of) = unsafe { (&handle("device", device)?.0, handle("iteration", iteration)?) };
        let steps = match (of.steps.is_null(), of.step_count) {
            (_, 0) => &[][..],
            (true, _) => return Err(Failure::misuse("the steps of the iteration are null")),
            // SAFETY: as above.
            (false, count) => unsafe { std::slice::from_raw_parts(of.steps, count) },
        };
        // SAFETY: as above.
        let stream = unsafe { stream_on(device, stream) }?;
        let eps = if of.eps_is_least == 0 { NormEps::Added(of.eps) } else { NormEps::AtLeast(of.eps) };
        let iteration = iteration_of(steps, of.stretch, eps, of.restart as usize);
        // SAFETY: as above.
        unsafe { run(device, &stream, handle("tensor `g`", g)?, handle("tensor `out`", out)?, &iteration) }
    })
}

/// An iteration of these steps.
pub(crate) fn iteration_of(steps: &[AtlasIterationStep], stretch: f32, eps: NormEps, restart: usize) -> NewtonSchulz {
    let form = if restart == 0 { Form::Standard } else { Form::Gram { restart } };
    let (centres, steps) = (steps.iter().map(|s| s.centre).collect(), steps.iter().map(|s| [s.a, s.b, s.c]).collect());
    NewtonSchulz { steps, centres, stretch, eps, form, scale_safe: false }
}

/// Runs an iteration on a stream.
///
/// # Safety
/// The tensors are as `atlas_launch` says.
pub(crate) unsafe fn run(
    device: &Device,
    stream: &Stream,
    g: &DLTensor,
    out: &DLTensor,
    iteration: &NewtonSchulz,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let (g, mut out) = unsafe { (dlpack::borrow(device, &"g", g)?, dlpack::borrow(device, &"out", out)?) };
    let ([count, rows, cols], true) = (shape_of(&g)?, g.shape() == out.shape()) else {
        let (found, wanted) = (out.shape(), g.shape());
        return Err(Failure::misuse(format_args!(
            "`out` has shape {found:?}, but `g` has {wanted:?}; they have one shape"
        )));
    };
    if !matches!(out.dtype(), DType::F32 | DType::F16 | DType::Bf16) {
        return Err(Failure::misuse(format_args!("`out` holds {}; an iteration takes f32, f16 and bf16", out.dtype())));
    }
    if g.is_empty() {
        return Ok(());
    }
    let tensors = MuonSpace::tensors(iteration, out.dtype(), count, rows, cols);
    // SAFETY: the launches below are on this stream. Its memory is freed there behind them, before this returns.
    let made = unsafe { Tensor::empty_on(stream, &tensors) }?;
    let mut space = MuonSpace::of(made.into_iter().map(Ok))?;
    Ok(iteration.launch(stream, &g, &mut out, &mut space)?)
}

fn shape_of(g: &Tensor) -> Result<[usize; 3]> {
    let shape = g.shape();
    shape.try_into().map_err(|_| Failure::misuse(format_args!("`g` has shape {shape:?}; an iteration takes [B, M, N]")))
}
