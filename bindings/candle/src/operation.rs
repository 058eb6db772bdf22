//! Operations: what each of them says of itself, and the one way in which all of them run.

use crate::error::{of_atlas, refuse};
use crate::memory::{Operand, OperandMut, Place};
use atlas::device::Stream;
use atlas::kernel::DType;
use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Storage, Tensor};
use std::cell::RefCell;

/// An operation on `N` tensors of candle that launches kernels of Atlas, such as your own.
///
/// [`apply1`](crate::apply1), [`apply2`](crate::apply2) and [`apply3`](crate::apply3) compute it as a part of candle's graph, with the
/// gradients of [`Operation::gradients`]. [`run`] computes it alone, for any `N`.
///
/// # Safety
/// `launch` writes none of the tensors that it reads. It reads and writes by launches on the stream that it is given, and by nothing else.
/// Memory that it allocates is of [`atlas::Tensor::empty_on`] or [`atlas::kernel::Chain::workspace_on`]. It keeps no tensor and no stream.
/// `outputs` keeps no tensor and launches nothing.
pub unsafe trait Operation<const N: usize>: Send + Sync {
    /// Its name, for messages.
    fn name(&self) -> &'static str;

    /// Tensors that it reads beside its arguments, by name. No gradient goes to them: one that tracks gradients is refused.
    fn beside(&self) -> Vec<(&'static str, &Tensor)> {
        Vec::new()
    }

    /// The element types and shapes of its results, of which the first is that of [`apply1`](crate::apply1). It is given the arguments,
    /// and then the tensors beside them.
    ///
    /// # Errors
    /// If it can tell that no kernel takes them.
    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>>;

    /// Launches its kernels. Results are contiguous, except one that a caller gives.
    ///
    /// # Errors
    /// Those of the launches.
    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()>;

    /// The gradients by its arguments.
    ///
    /// # Errors
    /// Without an implementation, that there are none.
    fn gradients(&self, _of: Backward<'_, N>) -> Result<[Option<Tensor>; N]> {
        Err(refuse(651, format_args!("`{}` of atlas_candle has no gradient; detach what goes in", self.name())))
    }
}

/// What gradients are computed from.
#[derive(Clone, Copy)]
pub struct Backward<'a, const N: usize> {
    /// The arguments.
    pub args: [&'a Tensor; N],
    /// The first result.
    pub result: &'a Tensor,
    /// The results behind it.
    pub more: &'a [Tensor],
    /// The gradient by the first result.
    pub grad: &'a Tensor,
}

/// Computes an operation without its gradients, and gives all results. None of them is part of a graph.
///
/// # Errors
/// Those of the operation. Nothing is written then.
pub fn run<const N: usize>(operation: &impl Operation<N>, args: [&Tensor; N]) -> Result<Vec<Tensor>> {
    let beside = operation.beside();
    let all: Vec<&Tensor> = args.into_iter().chain(beside.iter().map(|(_, tensor)| *tensor)).collect();
    let mut results = Vec::new();
    let mut then = |place: &Place, reads: &[atlas::Tensor]| {
        results = compute(operation, place, reads)?;
        Ok(())
    };
    let mut held = Held { name: operation.name(), place: None, tensors: Vec::new(), then: &mut then };
    hold(&all, &mut held)?;
    Ok(results.into_iter().map(as_tensor).collect())
}

/// A result as a tensor of no graph.
pub(crate) fn as_tensor((storage, shape): (Storage, Shape)) -> Tensor {
    Tensor::from_storage(storage, shape, BackpropOp::none(), false)
}

/// Computes all results of an operation, from arguments as candle gives them.
pub(crate) fn forward<const N: usize>(
    operation: &impl Operation<N>,
    args: [(Operand<'_>, &Layout); N],
) -> Result<Vec<(Storage, Shape)>> {
    let mut results = Vec::new();
    with_arguments(operation, args, &mut |place, reads| {
        results = compute(operation, place, reads)?;
        Ok(())
    })?;
    Ok(results)
}

/// Computes the result of an operation into a tensor that is there.
pub(crate) fn forward_into<const N: usize>(
    operation: &impl Operation<N>,
    into: OperandMut<'_>,
    layout: &Layout,
    args: [(Operand<'_>, &Layout); N],
) -> Result<()> {
    let name = operation.name();
    // One of them could share memory with the result, which is locked.
    if let Some((beside, _)) = operation.beside().first() {
        return Err(refuse(
            651,
            format_args!(
                "`{name}` reads `{beside}` beside its arguments, so it writes no tensor that is there; compute it by `run`"
            ),
        ));
    }
    let Some(place) = args.first().map(|(memory, _)| memory.place()) else {
        return Err(refuse(601, format_args!("`{name}` is given no tensor")));
    };
    let written = into.borrow(name, layout, &place)?;
    with_arguments(operation, args, &mut |place, reads| {
        let outputs = operation.outputs(reads).map_err(of_atlas)?;
        let [(dtype, shape)] = &outputs[..] else {
            let results = outputs.len();
            return Err(refuse(601, format_args!("`{name}` has {results} results, but one tensor is given for them")));
        };
        if *dtype != written.tensor.dtype() {
            let found = written.tensor.dtype();
            return Err(refuse(
                605,
                format_args!("the result of `{name}` holds {dtype}, but a tensor of {found} is given for it"),
            ));
        }
        if shape != written.tensor.shape() {
            let found = written.tensor.shape();
            return Err(refuse(
                604,
                format_args!("the result of `{name}` has shape {shape:?}, but a tensor of {found:?} is given for it"),
            ));
        }
        operation.launch(&place.stream()?, reads, &mut [written.tensor.clone()]).map_err(of_atlas)
    })
}

/// Calls `then` with the arguments of an operation and the tensors beside them.
fn with_arguments<const N: usize>(
    operation: &impl Operation<N>,
    args: [(Operand<'_>, &Layout); N],
    then: &mut dyn FnMut(&Place, &[atlas::Tensor]) -> Result<()>,
) -> Result<()> {
    let name = operation.name();
    let beside = operation.beside();
    if let Some((tensor, _)) = beside.iter().find(|(_, tensor)| tensor.track_op()) {
        return Err(refuse(651, format_args!("`{name}` has no gradient by `{tensor}`; detach it")));
    }
    // Launches are where the first argument is.
    let place = args.first().map(|(memory, _)| memory.place());
    let mut borrowed = Vec::with_capacity(N);
    if let Some(place) = &place {
        for (memory, layout) in args {
            borrowed.push(memory.borrow(name, layout, place)?);
        }
    }
    let tensors = borrowed.iter().map(|b| b.tensor.clone()).collect();
    let mut held = Held { name, place, tensors, then };
    let beside: Vec<&Tensor> = beside.into_iter().map(|(_, tensor)| tensor).collect();
    hold(&beside, &mut held)
}

/// Allocates the results and launches.
fn compute<const N: usize>(
    operation: &impl Operation<N>,
    place: &Place,
    reads: &[atlas::Tensor],
) -> Result<Vec<(Storage, Shape)>> {
    let outputs = operation.outputs(reads).map_err(of_atlas)?;
    let mut results = Vec::with_capacity(outputs.len());
    for (dtype, shape) in outputs {
        let shape = Shape::from(shape);
        results.push((place.allocate(dtype, shape.elem_count())?, shape));
    }
    let written = results
        .iter_mut()
        .map(|(storage, shape)| {
            OperandMut::of(storage)?.borrow(operation.name(), &Layout::contiguous(shape.clone()), place)
        })
        .collect::<Result<Vec<_>>>()?;
    let mut writes: Vec<atlas::Tensor> = written.iter().map(|b| b.tensor.clone()).collect();
    operation.launch(&place.stream()?, reads, &mut writes).map_err(of_atlas)?;
    drop((writes, written));
    Ok(results)
}

/// Tensors whose storages are locked, and what to do once all of them are.
struct Held<'h> {
    name: &'static str,
    place: Option<Place>,
    tensors: Vec<atlas::Tensor>,
    then: &'h mut dyn FnMut(&Place, &[atlas::Tensor]) -> Result<()>,
}

/// Locks the storages of some more tensors for reading, and goes on.
///
/// candle locks a storage for an operation so that one which is part of another, or of which several arguments are parts, does not wait
/// for itself. Other ways to a storage do not. So each tensor is the argument of an operation, inside the one of the tensor before.
fn hold(tensors: &[&Tensor], held: &mut Held<'_>) -> Result<()> {
    let Some((first, rest)) = tensors.split_first() else {
        let Some(place) = &held.place else {
            return Err(refuse(601, format_args!("`{}` is given no tensor", held.name)));
        };
        return (held.then)(place, &held.tensors);
    };
    first.apply_op1_no_bwd(&Hold { rest, held: RefCell::new(held) })?;
    Ok(())
}

struct Hold<'r, 'c, 'h> {
    rest: &'r [&'r Tensor],
    held: RefCell<&'c mut Held<'h>>,
}

impl Hold<'_, '_, '_> {
    fn go_on(&self, memory: Operand<'_>, layout: &Layout) -> Result<()> {
        let mut held = self.held.borrow_mut();
        let name = held.name;
        let borrowed = memory.borrow(name, layout, held.place.get_or_insert_with(|| memory.place()))?;
        held.tensors.push(borrowed.tensor.clone());
        hold(self.rest, &mut held)
    }
}

impl CustomOp1 for Hold<'_, '_, '_> {
    fn name(&self) -> &'static str {
        self.held.borrow().name
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        self.go_on(Operand::Cpu(storage), layout)?;
        Ok((CpuStorage::F32(Vec::new()), Shape::from(0)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        storage: &candle_core::CudaStorage,
        layout: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        self.go_on(Operand::Cuda(storage), layout)?;
        Ok((crate::cuda::nothing(&storage.device)?, Shape::from(0)))
    }
}
