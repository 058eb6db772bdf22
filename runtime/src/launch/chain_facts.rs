//! What a chain says of every launch, found once: its parameters, where each kernel's arguments are, and its workspaces for the sizes of
//! the last launches.

use super::args::Arg;
use super::bind::is_written;
use super::workspace::with_implied;
use crate::tensor::Tensor;
use atlas_dsl::def::{DTypeRef, Declared, ParamDef};
use atlas_dsl::{DType, KernelDef};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The facts of a chain.
pub(super) struct ChainFacts {
    /// What a caller passes: `Chain::params`.
    pub(super) params: Vec<&'static ParamDef>,
    /// The names of the parameters, and then of the workspace.
    pub(super) names: Vec<&'static str>,
    pub(super) kernels: Vec<KernelFacts>,
    /// The names of dims and of type parameters, in the order in which the kernels name them.
    pub(super) dims: Vec<&'static str>,
    pub(super) types: Vec<&'static str>,
    /// The tensors of the caller as the kernels have them: the place of a parameter, and the number of each axis's dim.
    pub(super) axes: Vec<(usize, Vec<usize>)>,
    /// What decides a type: the place of a tensor or a number, and the number of the type.
    pub(super) deciders: Vec<(usize, usize)>,
    /// `Chain::open_dims`.
    pub(super) open: Vec<&'static str>,
    layouts: Mutex<HashMap<Box<[u64]>, Arc<SpaceLayout>>>,
}

/// A kernel, and where each of its arguments is among the names; `None` for the index of what is repeated.
pub(super) struct KernelFacts {
    pub(super) def: &'static KernelDef,
    pub(super) places: Vec<Option<usize>>,
}

/// A workspace that is not allocated yet.
pub(super) struct SpaceLayout {
    pub(super) sizes: Vec<(String, usize)>,
    /// Of each tensor its type and its shape.
    pub(super) tensors: Vec<(DType, Vec<usize>)>,
    /// The names of its dims.
    pub(super) dims: Vec<Vec<&'static str>>,
}

/// The lists that a chain is declared with. They live as long as the process, so their addresses say which ones they are.
#[derive(Clone, Copy)]
pub(super) struct ChainLists {
    pub(super) kernels: &'static [&'static dyn Declared],
    pub(super) workspace: &'static [&'static str],
    pub(super) order: &'static [&'static str],
    /// The parameter that is the index of what is repeated.
    pub(super) index: Option<&'static str>,
}

type Key = [usize; 7];

/// The most layouts that are kept of a chain.
const MOST: usize = 64;

impl ChainLists {
    /// The facts of its chain.
    pub(super) fn facts(self) -> &'static ChainFacts {
        static ALL: RwLock<Option<HashMap<Key, &'static ChainFacts>>> = RwLock::new(None);
        let key = [
            self.kernels.as_ptr().addr(),
            self.kernels.len(),
            self.workspace.as_ptr().addr(),
            self.workspace.len(),
            self.order.as_ptr().addr(),
            self.order.len(),
            self.index.map_or(0, |index| index.as_ptr().addr()),
        ];
        let found = ALL.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|all| all.get(&key).copied());
        found.unwrap_or_else(|| {
            let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
            // Chains are statics, so there are few.
            all.get_or_insert_default().entry(key).or_insert_with(|| Box::leak(Box::new(ChainFacts::new(self))))
        })
    }

    fn defs(self) -> impl Iterator<Item = &'static KernelDef> {
        self.kernels.iter().map(|k| k.declared())
    }

    fn is_index(self, param: &ParamDef) -> bool {
        self.index == Some(param.name())
    }

    fn params(self) -> Vec<&'static ParamDef> {
        let mut found: Vec<&'static ParamDef> = Vec::new();
        let of_caller = |p: &&ParamDef| !self.workspace.contains(&p.name()) && !self.is_index(p);
        for p in self.defs().flat_map(|k| k.params).filter(of_caller) {
            match found.iter_mut().find(|f| f.name() == p.name()) {
                Some(f) if is_written(p) => *f = p,
                Some(_) => {}
                None => found.push(p),
            }
        }
        let place = |p: &&ParamDef| self.order.iter().position(|of| *of == p.name()).unwrap_or(self.order.len());
        found.sort_by_key(place);
        found
    }

    fn open_dims(self) -> Vec<&'static str> {
        let dims = |space: bool| {
            let of_kernel = move |k: &'static KernelDef| {
                let params = k.params.iter().filter(move |p| self.workspace.contains(&p.name()) == space);
                params.flat_map(move |p| axes_of(k, p))
            };
            self.defs().flat_map(of_kernel)
        };
        // What follows from the others does so for any sizes.
        let known = dims(false).map(|dim| (dim.to_owned(), 1)).collect();
        let known = with_implied(self.kernels, known);
        let mut open: Vec<&'static str> = Vec::new();
        for dim in dims(true) {
            if !open.contains(&dim) && !known.iter().any(|(name, _)| name == dim) {
                open.push(dim);
            }
        }
        open
    }
}

/// The names of a tensor's dims.
pub(super) fn axes_of(kernel: &'static KernelDef, param: &'static ParamDef) -> impl Iterator<Item = &'static str> {
    let axes: &'static [usize] = match *param {
        ParamDef::Tensor { dims, .. } => dims,
        ParamDef::Scalar { .. } => &[],
    };
    axes.iter().map(|&axis| kernel.dims[axis].name)
}

/// The number of a name, which is added if it is not there.
fn number(of: &'static str, all: &mut Vec<&'static str>) -> usize {
    all.iter().position(|known| *known == of).unwrap_or_else(|| {
        all.push(of);
        all.len() - 1
    })
}

fn add<T: PartialEq>(to: &mut Vec<T>, new: T) {
    if !to.contains(&new) {
        to.push(new);
    }
}

impl ChainFacts {
    fn new(chain: ChainLists) -> ChainFacts {
        let params = chain.params();
        let names: Vec<&str> = params.iter().map(|p| p.name()).chain(chain.workspace.iter().copied()).collect();
        let place = |p: &ParamDef| names.iter().position(|&n| n == p.name());
        let kernel = |def: &'static KernelDef| KernelFacts {
            def,
            places: def.params.iter().map(|p| if chain.is_index(p) { None } else { place(p) }).collect(),
        };
        let kernels: Vec<KernelFacts> = chain.defs().map(kernel).collect();
        let (mut dims, mut types, mut axes, mut deciders) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for KernelFacts { def, places } in &kernels {
            let is_of_tensor = |i: usize| {
                def.params
                    .iter()
                    .any(|p| matches!(p, ParamDef::Tensor { dtype: DTypeRef::Generic(of), .. } if *of == i))
            };
            for (param, at) in def.params.iter().zip(places) {
                let Some(at) = *at else { continue };
                match *param {
                    ParamDef::Tensor { dims: of, dtype, .. } => {
                        if at < params.len() {
                            add(&mut axes, (at, of.iter().map(|&d| number(def.dims[d].name, &mut dims)).collect()));
                        }
                        if let DTypeRef::Generic(i) = dtype {
                            add(&mut deciders, (at, number(def.types[i].name, &mut types)));
                        }
                    }
                    // Numbers decide a type if no tensor of their kernel does.
                    ParamDef::Scalar { dtype: DTypeRef::Generic(i), .. } if !is_of_tensor(i) => {
                        add(&mut deciders, (at, number(def.types[i].name, &mut types)));
                    }
                    ParamDef::Scalar { .. } => {}
                }
            }
        }
        let open = chain.open_dims();
        ChainFacts { params, names, kernels, dims, types, axes, deciders, open, layouts: Mutex::default() }
    }

    /// The layout of the workspace for such arguments and these sizes of the open dims, as it was made before, or as `make` makes it.
    pub(super) fn layout<E>(
        &self,
        args: &[Arg<'_>],
        sizes: &[(&str, usize)],
        make: impl FnOnce() -> Result<SpaceLayout, E>,
    ) -> Result<Arc<SpaceLayout>, E> {
        // Other names are for what asks once.
        if !sizes.iter().map(|(name, _)| *name).eq(self.open.iter().copied()) {
            return make().map(Arc::new);
        }
        let mut key: smallvec::SmallVec<[u64; 128]> = sizes.iter().map(|(_, size)| *size as u64).collect();
        for arg in args {
            match arg.tensor() {
                Some(tensor) => {
                    key.push(1 | (tensor.dtype() as u64) << 8 | (tensor.rank() as u64) << 32);
                    key.extend(tensor.shape().iter().map(|&size| size as u64));
                }
                None => key.push(0),
            }
        }
        let lock = || self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().get(&key[..]) {
            return Ok(found.clone());
        }
        let made = Arc::new(make()?);
        let mut kept = lock();
        if kept.len() >= MOST {
            kept.clear();
        }
        kept.insert(key[..].into(), made.clone());
        Ok(made)
    }
}

/// The arguments of a kernel among those of its chain, and its workspace.
pub(super) fn of_kernel<'s>(
    kernel: &KernelFacts,
    args: &'s [Arg<'_>],
    spaces: &'s [&'s mut Tensor],
    index: usize,
) -> smallvec::SmallVec<[Arg<'s>; 24]> {
    let pairs = kernel.def.params.iter().zip(&kernel.places);
    let lent = |param: &ParamDef, tensor: &'s &'s mut Tensor| {
        // A kernel may only read what another kernel writes.
        if is_written(param) { Arg::Lent(tensor) } else { Arg::In(tensor) }
    };
    pairs
        .map(|(param, at)| match at.map(|at| (args.get(at), at)) {
            None => Arg::I32(index as i32),
            Some((None, at)) => lent(param, &spaces[at - args.len()]),
            Some((Some(arg), _)) => match arg {
                Arg::Out(tensor) => lent(param, tensor),
                Arg::Lent(tensor) => lent(param, tensor),
                Arg::In(tensor) => Arg::In(tensor),
                Arg::F32(x) => Arg::F32(*x),
                Arg::F64(x) => Arg::F64(*x),
                Arg::I32(x) => Arg::I32(*x),
                Arg::I64(x) => Arg::I64(*x),
            },
        })
        .collect()
}
