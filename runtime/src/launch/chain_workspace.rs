//! How a chain's workspace is made: of sizes, or of arguments.

use super::args::Arg;
use super::bind::is_written;
use super::chain::Chain;
use super::chain_facts::{SpaceLayout, axes_of};
use super::workspace::{Workspace, WorkspaceTensor, with_implied};
use crate::device::{Device, Stream};
use crate::error::{LaunchError, Result};
use crate::tensor::Tensor;
use atlas_dsl::DType;
use atlas_dsl::def::{DTypeRef, ParamDef};

impl Chain {
    /// Allocates the workspace for these element types and sizes of dims, by name. It needs those that its tensors have, but for those
    /// that follow: of a kernel with `require { R == min(D, E) }`, `R` follows from `D` and `E`.
    /// A dim that is given besides is remembered: a launch with another size of it is refused.
    ///
    /// # Errors
    /// [`LaunchError::WorkspaceDim`] if a dim or an element type is missing, [`LaunchError::WorkspaceUnknown`] if one
    /// is given that no kernel of the chain has; [`LaunchError::NoSuchWorkspace`], [`LaunchError::WorkspaceReadFirst`],
    /// [`LaunchError::NoSuchParameter`] and [`LaunchError::NoSuchIndex`] if a list of the chain is wrong; those of [`Tensor::empty`].
    pub fn workspace(&self, device: &Device, types: &[(&str, DType)], dims: &[(&str, usize)]) -> Result<Workspace> {
        self.check_known(types, dims)?;
        let sizes: Vec<(String, usize)> = dims.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
        self.workspace_of(&self.layout_of(types, sizes)?, &mut |dtype, shape| Tensor::empty(device, dtype, shape))
    }

    /// The dims of its workspace whose sizes neither a caller's tensor has nor what the kernels require: for a launch of the Omega
    /// rule, how many tokens a chunk has. Whoever makes a workspace of arguments says these.
    pub fn open_dims(&self) -> Vec<&'static str> {
        self.facts().open.clone()
    }

    /// Allocates the workspace for launches with such arguments, in the order of [`Chain::params`]. `sizes` has the dims of
    /// [`Chain::open_dims`], and may have others. A launch with another size of any dim is refused.
    ///
    /// # Errors
    /// [`LaunchError::WrongArgumentCount`], [`LaunchError::WrongKind`] and [`LaunchError::WrongRank`] for arguments that are not the
    /// chain's; those of [`Chain::workspace`].
    pub fn workspace_for(&self, device: &Device, args: &[Arg<'_>], sizes: &[(&str, usize)]) -> Result<Workspace> {
        let (types, dims) = self.sizes_of(args, sizes)?;
        self.workspace(device, &types, &dims)
    }

    /// The same in one allocation that is made, and later freed, in the order of a stream. A stream that records a graph makes it
    /// a part of the graph.
    ///
    /// # Errors
    /// As [`Chain::workspace_for`].
    ///
    /// # Safety
    /// It is used by launches on this stream alone, or by work that is ordered with them, and dropped before the stream ends. It
    /// is not resized.
    pub unsafe fn workspace_on(&self, stream: &Stream, args: &[Arg<'_>], sizes: &[(&str, usize)]) -> Result<Workspace> {
        let layout = self.facts().layout(args, sizes, || {
            let (types, dims) = self.sizes_of(args, sizes)?;
            self.check_known(&types, &dims)?;
            let sizes: Vec<(String, usize)> = dims.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
            self.layout_of(&types, sizes)
        })?;
        // SAFETY: the caller's promise.
        let mut made = unsafe { Tensor::empty_on(stream, &layout.tensors) }?.into_iter();
        // As many as are wanted, and in that order.
        let mut next = |dtype: DType, shape: &[usize]| {
            made.next().map_or_else(|| Tensor::empty(stream.device(), dtype, shape), Ok)
        };
        self.workspace_of(&layout, &mut next)
    }

    /// Refuses names that no kernel has.
    fn check_known(&self, types: &[(&str, DType)], dims: &[(&str, usize)]) -> Result<()> {
        let known = |name: &str| {
            self.defs().any(|k| k.dims.iter().any(|d| d.name == name) || k.types.iter().any(|t| t.name == name))
        };
        let given = types.iter().map(|t| t.0).chain(dims.iter().map(|d| d.0));
        if let Some(name) = given.into_iter().find(|name| !known(name)) {
            return Err(self.unknown(name.to_owned()).into());
        }
        Ok(())
    }

    /// The error for a dim or a type that no kernel has.
    pub(super) fn unknown(&self, name: String) -> LaunchError {
        let mut known: Vec<&str> = self.defs().flat_map(|k| k.dims.iter().map(|d| d.name)).collect();
        known.extend(self.defs().flat_map(|k| k.types.iter().map(|t| t.name)));
        known.sort_unstable();
        known.dedup();
        LaunchError::WorkspaceUnknown { chain: self.name, name, known: known.join(", ") }
    }

    /// The types and sizes of dims that arguments have, with the sizes that are given besides.
    fn sizes_of<'n>(
        &self,
        args: &[Arg<'_>],
        sizes: &[(&'n str, usize)],
    ) -> Result<(Facts<'n, DType>, Facts<'n, usize>)> {
        let params = self.params();
        if args.len() != params.len() {
            return Err(self.wrong_count(args.len(), &params));
        }
        let (mut types, mut dims): (Facts<'n, DType>, Facts<'n, usize>) = (Vec::new(), sizes.to_vec());
        for (param, arg) in params.into_iter().zip(args) {
            let ParamDef::Tensor { name, dtype, dims: axes, .. } = *param else { continue };
            let Some(kernel) = self.defs().find(|k| k.params.iter().any(|p| std::ptr::eq(p, param))) else { continue };
            let kind = |found| LaunchError::WrongKind { kernel: self.name, param: name, found, wanted: "a tensor" };
            let tensor = arg.tensor().ok_or_else(|| kind("a number"))?;
            if tensor.rank() != axes.len() {
                let dims = format!("[{}]", axes_of(kernel, param).collect::<Vec<_>>().join(", "));
                let shape = tensor.shape().to_vec();
                return Err(LaunchError::WrongRank { kernel: self.name, param: name, shape, dims }.into());
            }
            for (dim, &size) in axes_of(kernel, param).zip(tensor.shape()) {
                add(&mut dims, dim, size);
            }
            if let DTypeRef::Generic(i) = dtype {
                add(&mut types, kernel.types[i].name, tensor.dtype());
            }
        }
        Ok((types, dims))
    }

    /// The tensors of the workspace for these types and sizes.
    fn layout_of(&self, types: &[(&str, DType)], sizes: Vec<(String, usize)>) -> Result<SpaceLayout> {
        let all = with_implied(self.kernels, sizes.clone());
        let (mut tensors, mut dims) = (Vec::new(), Vec::new());
        for name in self.workspace {
            let (dtype, axes, shape) = self.need(name, types, &all)?;
            tensors.push((dtype, shape));
            dims.push(axes);
        }
        Ok(SpaceLayout { sizes, tensors, dims })
    }

    /// Makes the workspace with what allocates each of its tensors.
    fn workspace_of(
        &self,
        layout: &SpaceLayout,
        allocate: &mut dyn FnMut(DType, &[usize]) -> Result<Tensor>,
    ) -> Result<Workspace> {
        self.check_lists()?;
        let mut spaces = Vec::with_capacity(self.workspace.len());
        for ((&name, (dtype, shape)), dims) in self.workspace.iter().zip(&layout.tensors).zip(&layout.dims) {
            let tensor = allocate(*dtype, shape)?;
            let memory = tensor.reshape([tensor.len()])?;
            spaces.push(WorkspaceTensor { name, dims: dims.clone(), tensor, memory });
        }
        Ok(Workspace { chain: self.name, kernels: self.kernels, sizes: layout.sizes.clone(), spaces })
    }

    /// The element type of a tensor of the workspace, its dims and their sizes.
    fn need(
        &self,
        name: &str,
        types: &[(&str, DType)],
        dims: &[(String, usize)],
    ) -> Result<(DType, Vec<&'static str>, Vec<usize>)> {
        let declared = self.defs().find_map(|k| k.params.iter().find(|p| p.name() == name).map(|p| (k, p)));
        let Some((kernel, param @ &ParamDef::Tensor { dtype, dims: axes, .. })) = declared else {
            let tensors = self.defs().flat_map(|k| k.params).filter(|p| matches!(p, ParamDef::Tensor { .. }));
            let mut names: Vec<&str> = tensors.map(ParamDef::name).collect();
            names.sort_unstable();
            names.dedup();
            let (name, names) = (name.to_owned(), names.join(", "));
            return Err(LaunchError::NoSuchWorkspace { chain: self.name, name, names }.into());
        };
        if !is_written(param) {
            let (name, kernel) = (name.to_owned(), kernel.name);
            return Err(LaunchError::WorkspaceReadFirst { chain: self.name, name, kernel }.into());
        }
        let unbound =
            |dim: &'static str, list| LaunchError::WorkspaceDim { chain: self.name, name: name.to_owned(), dim, list };
        let dtype = match dtype {
            DTypeRef::Fixed(dtype) => dtype,
            DTypeRef::Generic(i) => {
                let wanted = kernel.types[i].name;
                types.iter().find(|(n, _)| *n == wanted).ok_or_else(|| unbound(wanted, "types"))?.1
            }
        };
        let size = |&axis: &usize| {
            let wanted = kernel.dims[axis].name;
            let given = dims.iter().find(|(n, _)| *n == wanted).map(|d| d.1);
            given.ok_or_else(|| unbound(wanted, "dims").into())
        };
        let sizes = axes.iter().map(size).collect::<Result<Vec<usize>>>()?;
        Ok((dtype, axes_of(kernel, param).collect(), sizes))
    }
}

/// Names, and what is known of each.
type Facts<'n, T> = Vec<(&'n str, T)>;

/// Adds what is known of a name, unless something is.
fn add<'n, T>(facts: &mut Facts<'n, T>, name: &'n str, value: T) {
    if !facts.iter().any(|(known, _)| *known == name) {
        facts.push((name, value));
    }
}
