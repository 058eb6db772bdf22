//! What the operations compute, of candle's operations.

use candle_core::{D, DType, Device, Result, Tensor};

pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let scale = (x.sqr()?.mean_keepdim(D::Minus1)? + eps)?.sqrt()?;
    x.broadcast_div(&scale)?.broadcast_mul(weight)
}

pub(crate) fn softmax(x: &Tensor) -> Result<Tensor> {
    let e = x.broadcast_sub(&x.max_keepdim(D::Minus1)?.detach())?.exp()?;
    e.broadcast_div(&e.sum_keepdim(D::Minus1)?)
}

pub(crate) fn log_sum_exp(x: &Tensor) -> Result<Tensor> {
    x.exp()?.sum(D::Minus1)?.log()
}

/// `x` `[.., N, H, 2 D]`, `cos` and `sin` `[.., N, D]`.
pub(crate) fn rotary(x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Result<Tensor> {
    let d = x.dim(D::Minus1)? / 2;
    let mut shape = x.dims().to_vec();
    shape.pop();
    let (cos, sin) = (cos.unsqueeze(D::Minus2)?, sin.unsqueeze(D::Minus2)?);
    let (axis, pairs) = if interleaved { (shape.len() + 1, [d, 2]) } else { (shape.len(), [2, d]) };
    shape.extend(pairs);
    let x = x.reshape(shape)?;
    let (a, b) = (x.narrow(axis, 0, 1)?.squeeze(axis)?, x.narrow(axis, 1, 1)?.squeeze(axis)?);
    let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let second = (a.broadcast_mul(&sin)? + b.broadcast_mul(&cos)?)?;
    Tensor::stack(&[first, second], axis)?.flatten_from(D::Minus2)
}

/// `q` `[B, M, H, D]`, `k` and `v` `[B, N, J, D]`, `prefix` `[J, S, D]`, `first` `[B][M]`.
pub(crate) fn windowed_attention(
    [q, k, v]: [&Tensor; 3],
    prefix: Option<(&Tensor, &Tensor)>,
    first: Option<&[Vec<i32>]>,
    window: usize,
    scale: f64,
) -> Result<(Tensor, Tensor)> {
    let ((b, m, h, d), (_, n, j, _)) = (q.dims4()?, k.dims4()?);
    let per_head = |x: &Tensor, prefix: Option<&Tensor>| -> Result<Tensor> {
        let x = x.transpose(1, 2)?;
        let x = match prefix {
            Some(prefix) => Tensor::cat(
                &[&prefix.unsqueeze(0)?.broadcast_as((b, j, prefix.dim(1)?, d))?.contiguous()?, &x.contiguous()?],
                2,
            )?,
            None => x,
        };
        let len = x.dim(2)?;
        x.unsqueeze(2)?.broadcast_as((b, j, h / j, len, d))?.reshape((b, h, len, d))
    };
    let (k, v) = (per_head(k, prefix.map(|p| p.0))?, per_head(v, prefix.map(|p| p.1))?);
    let s = prefix.map_or(Ok(0), |p| p.0.dim(1))?;
    let mut mask = Vec::new();
    for sequence in 0..b {
        for query in 0..m {
            let at = n - m + query;
            let from = first.map_or(0, |first| first[sequence][query] as usize);
            let sees = |key: usize| key <= at && key + window > at && key >= from;
            mask.extend((0..s + n).map(|key| if key < s || sees(key - s) { 0.0 } else { f32::NEG_INFINITY }));
        }
    }
    let mask = Tensor::from_vec(mask, (b, 1, m, s + n), &Device::Cpu)?.to_dtype(q.dtype())?;
    let q = q.transpose(1, 2)?.contiguous()?;
    let logits = (q.matmul(&k.t()?.contiguous()?)? * scale)?.broadcast_add(&mask)?;
    let o = softmax(&logits)?.matmul(&v.contiguous()?)?.transpose(1, 2)?;
    Ok((o, log_sum_exp(&logits)?))
}

pub(crate) fn memory_read(x: &Tensor, w2: &Tensor, w1: &Tensor) -> Result<Tensor> {
    x.matmul(&w2.t()?)?.gelu_erf()?.matmul(&w1.t()?)
}

/// Of matrices `[B, M, N]`, with the norm at least `eps`.
pub(crate) fn newton_schulz(g: &Tensor, steps: &[[f64; 3]], eps: f64) -> Result<Tensor> {
    let norm = g.sqr()?.sum_keepdim((1, 2))?.sqrt()?.maximum(eps)?;
    let mut x = g.broadcast_div(&norm)?;
    for [a, b, c] in steps {
        let gram = x.matmul(&x.t()?)?;
        let poly = ((&gram * *b)? + (gram.matmul(&gram)? * *c)?)?;
        x = ((&x * *a)? + poly.matmul(&x)?)?;
    }
    Ok(x)
}

/// The element types that kernels take, with what a result of them may differ by from one of f32: its own rounding, and a few inside.
pub(crate) const HALVES: [(DType, f64); 2] = [(DType::F16, 2e-3), (DType::BF16, 1.6e-2)];
