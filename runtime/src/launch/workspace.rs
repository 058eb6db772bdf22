//! Workspaces of chains: the tensors that the kernels of a chain pass to each other, and their sizes.

use crate::error::{LaunchError, Result};
use crate::tensor::Tensor;
use atlas_dsl::def::Declared;

/// The tensors that a chain's kernels pass to each other, for one set of sizes.
///
/// It serves one run of the chain at a time: two runs that share it on two streams race unless an event orders them.
#[derive(Debug)]
pub struct Workspace {
    pub(super) chain: &'static str,
    pub(super) kernels: &'static [&'static dyn Declared],
    /// The sizes of dims for which it is, by name.
    pub(super) sizes: Vec<(String, usize)>,
    pub(super) spaces: Vec<WorkspaceTensor>,
}

/// One tensor of a workspace.
#[derive(Debug)]
pub(super) struct WorkspaceTensor {
    pub(super) name: &'static str,
    /// The names of its dims.
    pub(super) dims: Vec<&'static str>,
    /// A view of the first elements of its memory, which has one axis.
    pub(super) tensor: Tensor,
    pub(super) memory: Tensor,
}

impl WorkspaceTensor {
    /// A tensor for these sizes, in the memory that is given if that is large enough.
    fn new(like: &WorkspaceTensor, sizes: &[usize]) -> Result<WorkspaceTensor> {
        let len = sizes.iter().try_fold(1usize, |len, &size| len.checked_mul(size)).unwrap_or(usize::MAX);
        let memory = if len <= like.memory.len() {
            like.memory.clone()
        } else {
            Tensor::empty(like.memory.device(), like.memory.dtype(), [len])?
        };
        let tensor = memory.slice(0, 0..len)?.reshape(sizes)?;
        Ok(WorkspaceTensor { name: like.name, dims: like.dims.clone(), tensor, memory })
    }
}

impl Workspace {
    /// Bytes that it takes on its device.
    pub fn bytes(&self) -> u64 {
        self.spaces.iter().map(|s| s.memory.len() as u64 * u64::from(s.memory.dtype().bytes())).sum()
    }

    /// Its tensors by name, for kernels of the chain that are launched one by one.
    pub fn tensors(&self) -> impl Iterator<Item = (&'static str, &Tensor)> {
        self.spaces.iter().map(|s| (s.name, &s.tensor))
    }

    /// Makes it one for other sizes of some dims, by name; those that are left out stay. It allocates only what is larger than the
    /// tensor ever was. What stands in it is lost.
    ///
    /// # Errors
    /// [`LaunchError::WorkspaceUnknown`] for a dim for which it was not allocated; those of [`Tensor::empty`]. It is as it was then.
    pub fn resize(&mut self, dims: &[(&str, usize)]) -> Result<()> {
        let mut sizes = self.sizes.clone();
        for (name, size) in dims {
            let Some(known) = sizes.iter_mut().find(|(of, _)| of == name) else {
                let known = sizes.iter().map(|(of, _)| of.as_str()).collect::<Vec<_>>().join(", ");
                let name = (*name).to_owned();
                return Err(LaunchError::WorkspaceUnknown { chain: self.chain, name, known }.into());
            };
            known.1 = *size;
        }
        if sizes == self.sizes {
            return Ok(());
        }
        let all = with_implied(self.kernels, sizes.clone());
        let size = |dim: &&'static str| all.iter().find(|(of, _)| of == dim).map_or(0, |(_, size)| *size);
        let resized = |s: &WorkspaceTensor| WorkspaceTensor::new(s, &s.dims.iter().map(size).collect::<Vec<usize>>());
        let spaces = self.spaces.iter().map(resized).collect::<Result<_>>()?;
        (self.sizes, self.spaces) = (sizes, spaces);
        Ok(())
    }
}

/// These sizes of dims, and those that follow from them by what the kernels require.
pub(super) fn with_implied(
    kernels: &'static [&'static dyn Declared],
    mut sizes: Vec<(String, usize)>,
) -> Vec<(String, usize)> {
    loop {
        let before = sizes.len();
        for def in kernels.iter().map(|k| k.declared()) {
            let known = |name: &str| sizes.iter().find(|(of, _)| of == name).map(|(_, size)| *size as u64);
            let dims: Vec<Option<u64>> = def.dims.iter().map(|d| known(d.name)).collect();
            let all = def.with_implied(dims.clone());
            let new = def.dims.iter().zip(dims.into_iter().zip(all)).filter(|(_, (before, _))| before.is_none());
            sizes.extend(new.filter_map(|(dim, (_, size))| Some((dim.name.to_owned(), size? as usize))));
        }
        if sizes.len() == before {
            return sizes;
        }
    }
}
