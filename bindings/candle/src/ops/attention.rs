//! Attention over a window of the last keys.

use super::{exactly, launch_chain};
use crate::apply3;
use crate::error::refuse;
use crate::operation::{Backward, Operation, run};
use atlas::args;
use atlas::device::Stream;
use atlas::kernel::{DType, Launch};
use candle_core::{Result, Tensor};

/// What [`windowed_attention`] may be given beside queries, keys and values.
#[derive(Clone, Debug, Default)]
pub struct Attention {
    /// The factor of the logits; `1 / sqrt(D)` if it is left out.
    pub scale: Option<f32>,
    /// Keys and values that every query sees, `[J, S, D]`. No gradient goes to them here.
    pub prefix: Option<(Tensor, Tensor)>,
    /// The first key that a query may see, `[B, M]` in i32.
    pub first: Option<Tensor>,
}

/// Causal attention over the last `window` keys, the query's own among them: `q` `[B, M, H, D]`, `k` and `v` `[B, N, J, D]`, where `J`
/// divides `H`. The last query stands at the last key. Gives the result and its log-sum-exp, `[B, H, M]` in f32, through which no
/// gradient goes.
///
/// # Errors
/// As a launch of [`atlas::ops::windowed_attention`].
pub fn windowed_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    window: usize,
    with: &Attention,
) -> Result<(Tensor, Tensor)> {
    let sizes = |name, of: &Tensor| {
        of.dims4().map_err(|_| {
            let found = of.dims();
            refuse(
                603,
                format_args!(
                    "`{name}` of `windowed_attention` has dims [B, N, H, D], but a tensor of shape {found:?} is given"
                ),
            )
        })
    };
    let (sequences, queries, _, width) = sizes("q", q)?;
    let (_, _, heads, _) = sizes("k", k)?;
    let (pk, pv) = match &with.prefix {
        Some(prefix) => prefix.clone(),
        None => {
            // No row of one: the driver of a GPU allocates no zero bytes.
            let none = Tensor::zeros((heads, 1, width), q.dtype(), q.device())?.narrow(1, 0, 0)?;
            (none.clone(), none)
        }
    };
    let first = match &with.first {
        Some(first) => first.clone(),
        // One element, which all tokens share.
        None => Tensor::zeros((1, 1), candle_core::DType::I32, q.device())?.broadcast_as((sequences, queries))?,
    };
    let Ok(window) = i32::try_from(window) else {
        return Err(refuse(607, format_args!("`window` of `windowed_attention` is an i32, and {window} is given")));
    };
    let scale = with.scale.unwrap_or_else(|| 1.0 / (width.max(1) as f32).sqrt());
    let (o, more) = apply3(WindowedAttention { pk, pv, first, window, scale }, [q, k, v])?;
    let [lse] = exactly(more)?;
    Ok((o, lse))
}

#[derive(Clone)]
struct WindowedAttention {
    pk: Tensor,
    pv: Tensor,
    first: Tensor,
    window: i32,
    scale: f32,
}

// SAFETY: it launches a kernel that writes its results.
unsafe impl Operation<3> for WindowedAttention {
    fn name(&self) -> &'static str {
        "windowed_attention"
    }

    fn beside(&self) -> Vec<(&'static str, &Tensor)> {
        vec![("pk", &self.pk), ("pv", &self.pv), ("first", &self.first)]
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        let q = &reads[0];
        let of = |axis: usize| q.shape().get(axis).copied().unwrap_or(0);
        Ok(vec![(q.dtype(), q.shape().to_vec()), (DType::F32, vec![of(0), of(2), of(1)])])
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        let ([q, k, v, pk, pv, first], [o, lse]) = (reads, writes) else { return Ok(()) };
        let args = args!(q, k, v, pk, pv, first, self.window, self.scale, &mut *o, &mut *lse);
        atlas::ops::windowed_attention.launch_on(stream, args)
    }

    fn gradients(&self, of: Backward<'_, 3>) -> Result<[Option<Tensor>; 3]> {
        let ([q, k, v], [lse]) = (of.args, exactly(of.more.to_vec())?);
        let grads = run(&WindowedAttentionGrad(self.clone()), [q, k, v, of.result, &lse, of.grad])?;
        let [dq, dk, dv, _, _] = exactly(grads)?;
        Ok([dq, dk, dv].map(Some))
    }
}

struct WindowedAttentionGrad(WindowedAttention);

// SAFETY: it launches a chain that writes its results.
unsafe impl Operation<6> for WindowedAttentionGrad {
    fn name(&self) -> &'static str {
        "windowed_attention_grad"
    }

    fn beside(&self) -> Vec<(&'static str, &Tensor)> {
        self.0.beside()
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        let like = |i: usize| reads[i].shape().to_vec();
        let of_tokens = [0, 1, 2].map(|i| (reads[i].dtype(), like(i)));
        Ok(of_tokens.into_iter().chain([6, 7].map(|i| (DType::F32, like(i)))).collect())
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        let ([q, k, v, o, lse, dout, pk, pv, first], [dq, dk, dv, dpk, dpv]) = (reads, writes) else { return Ok(()) };
        let WindowedAttention { window, scale, .. } = self.0;
        let mut args = args!(
            q, k, v, pk, pv, first, window, scale, o, lse, dout, &mut *dq, &mut *dk, &mut *dv, &mut *dpk, &mut *dpv
        );
        launch_chain(&atlas::ops::training::WINDOWED_ATTENTION_GRAD, stream, &mut args, &[])
    }
}
