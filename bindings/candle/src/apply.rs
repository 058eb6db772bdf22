//! Operations of Atlas as operations of candle: `CustomOp1` to `CustomOp3`, `InplaceOp2` and `InplaceOp3`.

use crate::memory::{Operand, OperandMut};
use crate::operation::{Backward, Operation, as_tensor, forward, forward_into};
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, InplaceOp2, InplaceOp3, Layout, Result, Shape, Storage, Tensor,
};
use std::sync::{Arc, OnceLock};

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;

/// An operation, as candle calls it, once.
struct Applied<O> {
    operation: O,
    /// The results behind the first one, which candle has no place for.
    more: Arc<OnceLock<Vec<Tensor>>>,
}

impl<O> Applied<O> {
    fn new(operation: O) -> Applied<O> {
        Applied { operation, more: Arc::default() }
    }

    fn more(&self) -> &[Tensor] {
        self.more.get().map_or(&[], Vec::as_slice)
    }

    fn first<const N: usize>(&self, args: [(Operand<'_>, &Layout); N]) -> Result<(Storage, Shape)>
    where
        O: Operation<N>,
    {
        let mut results = forward(&self.operation, args)?.into_iter();
        let Some(first) = results.next() else {
            return Err(crate::error::refuse(601, format_args!("`{}` has no result", self.operation.name())));
        };
        // Candle calls this once, because nobody else has the value.
        let _ = self.more.set(results.map(as_tensor).collect());
        Ok(first)
    }
}

fn on_cpu((storage, shape): (Storage, Shape)) -> Result<(CpuStorage, Shape)> {
    match storage {
        Storage::Cpu(storage) => Ok((storage, shape)),
        _ => Err(candle_core::Error::msg("a result of the CPU is elsewhere").bt()),
    }
}

#[cfg(feature = "cuda")]
fn on_cuda((storage, shape): (Storage, Shape)) -> Result<(CudaStorage, Shape)> {
    match storage {
        Storage::Cuda(storage) => Ok((storage, shape)),
        _ => Err(candle_core::Error::msg("a result of a GPU is elsewhere").bt()),
    }
}

macro_rules! custom_op {
    ($custom:ident, $count:literal, ($(($storage:ident, $layout:ident, $arg:ident)),+) => $gradients:ty) => {
        impl<O: Operation<$count>> $custom for Applied<O> {
            fn name(&self) -> &'static str {
                self.operation.name()
            }

            fn cpu_fwd(&self, $($storage: &CpuStorage, $layout: &Layout),+) -> Result<(CpuStorage, Shape)> {
                on_cpu(self.first([$((Operand::Cpu($storage), $layout)),+])?)
            }

            #[cfg(feature = "cuda")]
            fn cuda_fwd(&self, $($storage: &CudaStorage, $layout: &Layout),+) -> Result<(CudaStorage, Shape)> {
                on_cuda(self.first([$((Operand::Cuda($storage), $layout)),+])?)
            }

            fn bwd(&self, $($arg: &Tensor,)+ result: &Tensor, grad: &Tensor) -> Result<$gradients> {
                let backward = Backward { args: [$($arg),+], result, more: self.more(), grad };
                let [$($arg),+] = self.operation.gradients(backward)?;
                Ok(($($arg),+))
            }
        }
    };
}
custom_op!(CustomOp1, 1, ((s1, l1, a1)) => Option<Tensor>);
custom_op!(CustomOp2, 2, ((s1, l1, a1), (s2, l2, a2)) => (Option<Tensor>, Option<Tensor>));
custom_op!(CustomOp3, 3, ((s1, l1, a1), (s2, l2, a2), (s3, l3, a3)) => (Option<Tensor>, Option<Tensor>, Option<Tensor>));

/// An operation that writes its result to a tensor that is there.
struct Into<'o, O>(&'o O);

macro_rules! inplace_op {
    ($custom:ident, $count:literal, $(($storage:ident, $layout:ident)),+) => {
        impl<O: Operation<$count>> $custom for Into<'_, O> {
            fn name(&self) -> &'static str {
                self.0.name()
            }

            fn cpu_fwd(
                &self, into: &mut CpuStorage, layout: &Layout, $($storage: &CpuStorage, $layout: &Layout),+
            ) -> Result<()> {
                forward_into(self.0, OperandMut::Cpu(into), layout, [$((Operand::Cpu($storage), $layout)),+])
            }

            #[cfg(feature = "cuda")]
            fn cuda_fwd(
                &self, into: &mut CudaStorage, layout: &Layout, $($storage: &CudaStorage, $layout: &Layout),+
            ) -> Result<()> {
                forward_into(self.0, OperandMut::Cuda(into), layout, [$((Operand::Cuda($storage), $layout)),+])
            }
        }
    };
}
inplace_op!(InplaceOp2, 1, (s1, l1));
inplace_op!(InplaceOp3, 2, (s1, l1), (s2, l2));

/// Computes an operation of one tensor as a part of candle's graph.
///
/// # Errors
/// Those of the operation.
pub fn apply1(operation: impl Operation<1> + 'static, x: &Tensor) -> Result<Tensor> {
    x.apply_op1(Applied::new(operation))
}

/// Computes an operation of two tensors as a part of candle's graph.
///
/// # Errors
/// Those of the operation.
pub fn apply2(operation: impl Operation<2> + 'static, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    x.apply_op2(y, Applied::new(operation))
}

/// Computes an operation of three tensors as a part of candle's graph. Gives the results behind the first one, too, which are not part
/// of it.
///
/// # Errors
/// Those of the operation.
pub fn apply3(operation: impl Operation<3> + 'static, [x, y, z]: [&Tensor; 3]) -> Result<(Tensor, Vec<Tensor>)> {
    let applied = Applied::new(operation);
    let more = applied.more.clone();
    let first = x.apply_op3(y, z, applied)?;
    Ok((first, more.get().cloned().unwrap_or_default()))
}

/// Computes an operation of one tensor into `into`, which may be any view. There is no gradient.
///
/// # Errors
/// Those of the operation; if `into` has another shape or element type than the result; if it shares memory with `x`.
pub fn apply1_into(operation: &impl Operation<1>, into: &Tensor, x: &Tensor) -> Result<()> {
    into.inplace_op2(x, &Into(operation))
}

/// Computes an operation of two tensors into `into`, which may be any view. There is no gradient.
///
/// # Errors
/// Those of the operation; if `into` has another shape or element type than the result; if it shares memory with an argument.
pub fn apply2_into(operation: &impl Operation<2>, into: &Tensor, x: &Tensor, y: &Tensor) -> Result<()> {
    into.inplace_op3(x, y, &Into(operation))
}
