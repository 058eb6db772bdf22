//! The expected outputs of a kernel by the interpreter, and how far a correct device may differ from them.
//!
//! The interpreter in its native mode is the reference: the language defines where f16 and bf16 round. A device may add
//! in another order, and its functions may be some ulp off. The effect on the outputs is measured: the interpreter runs
//! kernels in which every such operation is slightly off ([`super::emit::Noise`]), in pairs of opposite signs. An
//! element that is an infinity or a NaN in some runs and not in others is not judged, and neither is one that changes
//! discontinuously. Kernels without inexact operations must match exactly.

use super::emit::{Noise, emit_judged};
use super::recipe::Recipe;
use super::values::Argument;
use atlas_dsl::{DType, Kernel};
use atlas_tile_interp::{Arg, InterpError, Mode, Scalar, TensorView, TensorViewMut, run};

/// Runs with noise. Half of them have the opposite signs of the other half.
const NOISY: u64 = 6;
/// A device may differ by this factor times the effect of the noise.
const SLACK: f64 = 4.0;

/// The expected content of one output.
pub(super) struct Expected {
    /// Index of the parameter.
    pub(super) param: usize,
    pub(super) values: Vec<f64>,
    /// The largest difference of each element; infinite for an element that is not judged.
    pub(super) bounds: Vec<f64>,
}

/// Runs a kernel. Returns the buffers afterwards, with empty ones for numbers.
pub(super) fn interpret(
    kernel: &Kernel,
    dims: &[u64],
    arguments: &[Argument],
    mode: Mode,
) -> Result<Vec<Vec<u8>>, InterpError> {
    let mut buffers: Vec<Vec<u8>> = arguments.iter().map(Argument::bytes).collect();
    let mut args = Vec::new();
    for (argument, bytes) in arguments.iter().zip(&mut buffers) {
        args.push(match argument {
            Argument::Scalar { dtype, value, .. } if dtype.is_int() => Arg::Scalar(Scalar::I32(*value as i32)),
            Argument::Scalar { value, .. } => Arg::Scalar(Scalar::F32(*value as f32)),
            Argument::Tensor { placed: p, out, .. } => {
                let (offset, dims, strides) = (p.offset as i64, &p.dims, &p.strides);
                if *out {
                    Arg::Out(TensorViewMut::new(p.dtype, bytes, offset, dims, strides)?)
                } else {
                    Arg::In(TensorView::new(p.dtype, bytes, offset, dims, strides)?)
                }
            }
        });
    }
    run(kernel, dims, args, mode)?;
    Ok(buffers)
}

/// The expected outputs of a recipe's kernel.
pub(super) fn expected(recipe: &Recipe, dims: &[u64], arguments: &[Argument]) -> Result<Vec<Expected>, String> {
    let mut all = Vec::new();
    for halves in [false, true] {
        all.extend(expected_of(recipe, dims, arguments, halves)?);
    }
    all.sort_by_key(|e| e.param);
    Ok(all)
}

/// The same for only the outputs of 16 bits, or only the others.
fn expected_of(recipe: &Recipe, dims: &[u64], arguments: &[Argument], halves: bool) -> Result<Vec<Expected>, String> {
    let is_judged =
        |a: &Argument| matches!(a, Argument::Tensor { placed, out: true, .. } if placed.dtype.is_half() == halves);
    if !arguments.iter().any(is_judged) {
        return Ok(Vec::new());
    }
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let plain = emit_judged(recipe, None, halves).map_err(|e| text(&e))?;
    let after = interpret(&plain.kernel, dims, arguments, Mode::Native).map_err(|e| text(&e))?;
    let mut outputs = Vec::new();
    for (param, argument) in arguments.iter().enumerate() {
        if let Argument::Tensor { placed, .. } = argument
            && is_judged(argument)
        {
            let values = placed.read(&after[param]);
            outputs.push(NoisyOutput {
                param,
                dtype: placed.dtype,
                exact: !plain.inexact[param],
                values,
                noisy: Vec::new(),
            });
        }
    }
    if outputs.iter().any(|o| !o.exact) {
        for run in 0..NOISY {
            let noise = Noise { seed: recipe.seed ^ (run / 2), sign: if run % 2 == 0 { 1.0 } else { -1.0 } };
            let kernel = emit_judged(recipe, Some(noise), halves).map_err(|e| text(&e))?.kernel;
            let after = interpret(&kernel, dims, arguments, Mode::Native).map_err(|e| text(&e))?;
            for output in &mut outputs {
                if let Argument::Tensor { placed, .. } = &arguments[output.param] {
                    output.noisy.push(placed.read(&after[output.param]));
                }
            }
        }
    }
    Ok(outputs.into_iter().map(NoisyOutput::bounded).collect())
}

/// An output, and how it comes out with noise in each rounding.
struct NoisyOutput {
    param: usize,
    dtype: DType,
    exact: bool,
    values: Vec<f64>,
    noisy: Vec<Vec<f64>>,
}

impl NoisyOutput {
    fn bounded(self) -> Expected {
        let bounds = if self.exact { vec![0.0; self.values.len()] } else { self.bounds() };
        Expected { param: self.param, values: self.values, bounds }
    }

    fn bounds(&self) -> Vec<f64> {
        let moved: Vec<f64> = (0..self.values.len()).map(|i| self.moved(i)).collect();
        // A single element may be unaffected by chance while its neighbours change.
        let mut finite: Vec<f64> = moved.iter().copied().filter(|m| m.is_finite()).collect();
        finite.sort_unstable_by(f64::total_cmp);
        let usual = finite.get(finite.len() * 4 / 5).copied().unwrap_or(0.0);
        let (ulp, least) = match self.dtype {
            DType::F16 => (1.0 / 1024.0, 1.2e-7),
            DType::Bf16 => (1.0 / 128.0, 1e-37),
            DType::F32 => (1.0 / f64::from(1 << 21), 1e-37),
            _ => (0.0, 0.0),
        };
        let bound = |(&moved, &value): (&f64, &f64)| {
            if (self.dtype.is_whole() || self.dtype.is_fp8()) && moved == 0.0 {
                return 0.0;
            }
            SLACK * (moved + usual) + if value.is_finite() { ulp * value.abs() + least } else { 0.0 }
        };
        moved.iter().zip(&self.values).map(bound).collect()
    }

    /// How far an element moves in the runs with noise; infinite if it is not a number in one of them.
    fn moved(&self, i: usize) -> f64 {
        let value = self.values[i];
        let distance = |noisy: &Vec<f64>| match (value, noisy[i]) {
            (a, b) if a.is_nan() && b.is_nan() => 0.0,
            (a, b) if a == b => 0.0,
            (a, b) if a.is_finite() && b.is_finite() => (a - b).abs(),
            _ => f64::INFINITY,
        };
        self.noisy.iter().map(distance).fold(0.0, f64::max)
    }
}

impl Argument {
    /// The initial content of the argument's buffer; empty for a number.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Argument::Tensor { bytes, .. } => bytes.clone(),
            Argument::Scalar { .. } => Vec::new(),
        }
    }
}
