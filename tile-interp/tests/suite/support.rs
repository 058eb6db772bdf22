//! Buffers, kernels from text and comparisons.

use atlas_dsl::{DType, Kernel, parse_kernel, verify};
use atlas_tile_interp::{Arg, InterpError, Mode, TensorView, TensorViewMut, run};
use half::{bf16, f16};

/// Elements in memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Buffer {
    pub(crate) dtype: DType,
    pub(crate) bytes: Vec<u8>,
}

impl Buffer {
    /// The values, rounded to `dtype` from f32.
    pub(crate) fn new(dtype: DType, values: &[f64]) -> Buffer {
        let mut bytes = Vec::new();
        for &x in values {
            match dtype {
                DType::F16 => bytes.extend(f16::from_f32(x as f32).to_ne_bytes()),
                DType::Bf16 => bytes.extend(bf16::from_f32(x as f32).to_ne_bytes()),
                DType::F32 => bytes.extend((x as f32).to_ne_bytes()),
                DType::F64 => bytes.extend(x.to_ne_bytes()),
                DType::I32 => bytes.extend((x as i32).to_ne_bytes()),
                DType::I64 => bytes.extend((x as i64).to_ne_bytes()),
                DType::I8 => bytes.extend((x as i8).to_ne_bytes()),
                DType::U8 => bytes.push(x as u8),
                DType::F8E4M3 | DType::F8E5M2 => bytes.push(dtype.fp8().unwrap().encode(x)),
                DType::I16 => bytes.extend((x as i16).to_ne_bytes()),
                DType::U16 => bytes.extend((x as u16).to_ne_bytes()),
                DType::Bool => panic!("bool is not in memory"),
            }
        }
        Buffer { dtype, bytes }
    }

    /// So many NaN (or -1).
    pub(crate) fn poison(dtype: DType, count: usize) -> Buffer {
        Buffer::new(dtype, &vec![if dtype.is_float() { f64::NAN } else { -1.0 }; count])
    }

    pub(crate) fn values(&self) -> Vec<f64> {
        let size = self.dtype.bytes() as usize;
        self.bytes
            .chunks_exact(size)
            .map(|b| match self.dtype {
                DType::F16 => f16::from_ne_bytes(b.try_into().unwrap()).to_f64(),
                DType::Bf16 => bf16::from_ne_bytes(b.try_into().unwrap()).to_f64(),
                DType::F32 => f64::from(f32::from_ne_bytes(b.try_into().unwrap())),
                DType::F64 => f64::from_ne_bytes(b.try_into().unwrap()),
                DType::I32 => f64::from(i32::from_ne_bytes(b.try_into().unwrap())),
                DType::I64 => i64::from_ne_bytes(b.try_into().unwrap()) as f64,
                DType::I8 => i8::from_ne_bytes(b.try_into().unwrap()).into(),
                DType::U8 => b[0].into(),
                DType::F8E4M3 | DType::F8E5M2 => self.dtype.fp8().unwrap().decode(b[0]),
                DType::I16 => i16::from_ne_bytes(b.try_into().unwrap()).into(),
                DType::U16 => u16::from_ne_bytes(b.try_into().unwrap()).into(),
                DType::Bool => panic!("bool is not in memory"),
            })
            .collect()
    }

    pub(crate) fn view(&self, dims: &[u64]) -> TensorView<'_> {
        TensorView::contiguous(self.dtype, &self.bytes, dims).unwrap()
    }

    pub(crate) fn view_mut(&mut self, dims: &[u64]) -> TensorViewMut<'_> {
        TensorViewMut::contiguous(self.dtype, &mut self.bytes, dims).unwrap()
    }
}

/// A verified kernel from text.
pub(crate) fn kernel(text: &str) -> Kernel {
    let kernel = parse_kernel(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(kernel).unwrap_or_else(|e| panic!("{e}\n{text}")).into_inner()
}

/// Runs a kernel of text whose parameters are inputs and then one output, all contiguous.
pub(crate) fn run_text(
    text: &str,
    sizes: &[u64],
    inputs: &[(&Buffer, &[u64])],
    output: (DType, &[u64]),
    mode: Mode,
) -> Result<Buffer, InterpError> {
    let mut out = Buffer::poison(output.0, output.1.iter().product::<u64>() as usize);
    let mut args: Vec<Arg<'_>> = inputs.iter().map(|(b, dims)| Arg::In(b.view(dims))).collect();
    args.push(Arg::Out(out.view_mut(output.1)));
    run(&kernel(text), sizes, args, mode)?;
    Ok(out)
}

/// `y = expr(x)` over tiles of 16: `body` defines `%r` from `%a`.
pub(crate) fn map_text(from: DType, to: DType, body: &str) -> String {
    format!(
        "kernel @map(%x: {from}[N], %y: out {to}[N])
         dims N: ?1
         grid (%n) = (tiles(N, 16)) {{
           %a = load %x[%n : 16] : {from}[16]
           {body}
           store %y[%n : 16], %r
         }}"
    )
}

/// Runs [`map_text`] on values.
pub(crate) fn run_map(from: DType, to: DType, body: &str, x: &[f64], mode: Mode) -> Buffer {
    let n = x.len() as u64;
    let x = Buffer::new(from, x);
    let to_memory = if mode == Mode::F64 && to.is_float() { DType::F64 } else { to };
    run_text(&map_text(from, to, body), &[n], &[(&x, &[n])], (to_memory, &[n]), mode).unwrap()
}

/// A small reproducible series in [-1, 1).
pub(crate) fn noise(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Fails unless every element is within `relative` of the reference's size or `absolute`.
#[track_caller]
pub(crate) fn assert_close(got: &[f64], want: &[f64], relative: f64, absolute: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        let same = g == w || (g.is_nan() && w.is_nan());
        let error = (g - w).abs();
        assert!(same || error <= relative * w.abs() + absolute, "element {i}: got {g}, want {w}");
    }
}
