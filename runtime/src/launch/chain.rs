//! Chains: several kernels that are launched one after the other on tensors that they share by name.
//!
//! Parameters with the same name are the same tensor, or the same number. Tensors that the kernels only pass to each
//! other are *workspace*: they are declared by name, allocated by the caller once, and given to each launch, which
//! allocates nothing and waits for nothing.
//!
//! All checks come before the first kernel runs: the arguments of all kernels are checked, including numbers, and all
//! kernels are compiled and loaded. A refused launch has written nothing. Only faults of running kernels, and refusals
//! by the driver at launch time, can come later.
//!
//! ```text
//! static STEP: Chain = Chain::new("step", &[&mix, &update], &["weights"]);
//!
//! let mut space = STEP.workspace(&device, &[], &[("N", 2048), ("K", 80)])?;
//! STEP.launch(&device, args!(gates, x, &mut state), &mut space)?;      // without `weights`
//! ```

use super::args::Arg;
use super::bind::refuse_aliasing;
use super::chain_facts::{ChainFacts, ChainLists, of_kernel};
use super::prepared::PreparedLaunch;
use super::request::{LaunchRequest, PlanFound};
use super::workspace::Workspace;
use crate::device::{Device, Stream};
use crate::error::{LaunchError, Result, RuntimeError};
use crate::tensor::Tensor;
use atlas_dsl::def::{DTypeRef, Declared, ParamDef};
use atlas_dsl::{DType, KernelDef};
use smallvec::SmallVec;
use std::ops::Range;

/// Kernels that run one after the other.
#[derive(Debug)]
#[non_exhaustive]
pub struct Chain {
    /// The name of the chain.
    pub name: &'static str,
    /// The kernels in order. Parameters, dims and type parameters with the same name are the same.
    pub kernels: &'static [&'static dyn Declared],
    /// The names of tensors that the kernels pass to each other, which the caller does not pass.
    pub workspace: &'static [&'static str],
    /// The kernels that run many times, for a recurrence whose steps are launches; none of a chain whose kernels all run once.
    pub repeated: Option<Repeated>,
    /// The names of parameters in the order in which a caller passes them; those that are left out follow, in order of first appearance.
    pub order: &'static [&'static str],
}

/// Kernels of a chain that run in order once for each index of a dim, from 0 on.
#[derive(Clone, Copy, Debug)]
pub struct Repeated {
    /// The place in the chain of the first of them.
    pub first: usize,
    /// The place behind the last of them. The kernels from there on run once, at the end, or as [`segment`](Repeated::segment) says.
    pub end: usize,
    /// The dim, by name. Its size says how often they run.
    pub dim: &'static str,
    /// The parameter of type `i32` that is the index. The chain passes it, and not the caller.
    pub index: &'static str,
    /// A dim, by name, whose size is a number of indices. The kernels behind the repeated ones run after each segment of that
    /// many indices, and after the last one; their index is the first of the segment.
    pub segment: Option<&'static str>,
}

impl Repeated {
    /// The launches of a chain of `kernels` kernels, in order: the place of a kernel and its index. There are `count` indices, in segments
    /// of `length`.
    fn launches(self, kernels: usize, count: usize, length: usize) -> impl Iterator<Item = (usize, usize)> {
        let segments = (0..count).step_by(length.max(1));
        let in_segment = move |from: usize| {
            let repeated = (from..count.min(from.saturating_add(length)))
                .flat_map(move |index| (self.first..self.end).map(move |i| (i, index)));
            let behind = if self.segment.is_some() { self.end..kernels } else { 0..0 };
            repeated.chain(behind.map(move |i| (i, from)))
        };
        let at_the_end = if self.segment.is_some() { 0..0 } else { self.end..kernels };
        let once = |i| (i, 0);
        (0..self.first).map(once).chain(segments.flat_map(in_segment)).chain(at_the_end.map(once))
    }
}

/// The resolved launches of a chain for one exact problem.
#[derive(Clone)]
pub struct PreparedChain {
    chain: &'static Chain,
    launches: Vec<PreparedLaunch>,
}

impl Chain {
    /// A chain of these kernels, in which each runs once. Its workspace is a list of names.
    pub const fn new(
        name: &'static str,
        kernels: &'static [&'static dyn Declared],
        workspace: &'static [&'static str],
    ) -> Chain {
        Chain { name, kernels, workspace, repeated: None, order: &[] }
    }

    /// The same, where a caller passes the parameters in this order, and then those that are left out.
    #[must_use]
    pub const fn ordered(self, order: &'static [&'static str]) -> Chain {
        Chain { order, ..self }
    }

    /// The same, where the kernels at these places run once for each index of `dim`. Their parameter `index` is of type `i32`. Kernels
    /// behind them run once, after all of these.
    ///
    /// # Panics
    /// If there are no such places, or the chain has no kernels there.
    #[must_use]
    pub const fn repeated(self, at: Range<usize>, dim: &'static str, index: &'static str) -> Chain {
        assert!(at.start < at.end && at.end <= self.kernels.len(), "the chain has no such kernels");
        let repeated = Repeated { first: at.start, end: at.end, dim, index, segment: None };
        Chain { repeated: Some(repeated), ..self }
    }

    /// The same, where the kernels behind the repeated ones run after each `R` indices, if `R` is the size of this dim, and after the last
    /// ones. Their parameter for the index is the first of these indices. So what is kept for them needs room for `R` indices, and not
    /// for all. `R` is 1 at least.
    ///
    /// # Panics
    /// If no kernels are repeated.
    #[must_use]
    pub const fn after_each(self, segment: &'static str) -> Chain {
        match self.repeated {
            Some(repeated) => Chain { repeated: Some(Repeated { segment: Some(segment), ..repeated }), ..self },
            None => panic!("the chain repeats no kernels"),
        }
    }

    /// The same, where the kernels from this place on run once for each segment of `segment` indices of `dim`, where that is the size of
    /// a dim with this name, in order. Their parameter `index`, of type `i32`, is the first index of the segment. The kernels find out how
    /// many indices the last segment has. `segment` is 1 at least.
    ///
    /// # Panics
    /// If the chain has no kernels there.
    #[must_use]
    pub const fn in_segments(
        self,
        from: usize,
        dim: &'static str,
        index: &'static str,
        segment: &'static str,
    ) -> Chain {
        assert!(from < self.kernels.len(), "the chain has no such kernels");
        let repeated = Repeated { first: from, end: from, dim, index, segment: Some(segment) };
        Chain { repeated: Some(repeated), ..self }
    }

    pub(super) fn defs(&self) -> impl Iterator<Item = &'static KernelDef> {
        self.kernels.iter().map(|k| k.declared())
    }

    /// The parameters that a caller passes: those of all kernels, without the workspace and the index of [`Repeated`]. They are in order
    /// of first appearance, unless the chain has an [`order`](Chain::ordered).
    /// A tensor that any kernel writes has to be passed as `&mut`.
    pub fn params(&self) -> Vec<&'static ParamDef> {
        self.facts().params.clone()
    }

    /// What is the same in all launches.
    pub(super) fn facts(&self) -> &'static ChainFacts {
        let index = self.repeated.as_ref().map(|repeated| repeated.index);
        ChainLists { kernels: self.kernels, workspace: self.workspace, order: self.order, index }.facts()
    }

    /// Its signature in the language of kernels, with the parameters of [`Chain::params`] and, behind a semicolon, the dims of
    /// [`Chain::open_dims`]: `attention_decode<T: bf16 | f16 | f32>(q: &Tensor<T, [S, J, R, D]>, .., scale: f32; X)`.
    pub fn signature(&self) -> String {
        let types: Vec<String> = self.defs().flat_map(|k| k.types).fold(Vec::new(), |mut all, t| {
            let allowed: Vec<&str> = t.allowed.iter().map(|d| d.name()).collect();
            let text = format!("{}: {}", t.name, allowed.join(" | "));
            if !all.contains(&text) {
                all.push(text);
            }
            all
        });
        let types = if types.is_empty() { String::new() } else { format!("<{}>", types.join(", ")) };
        let of = |p: &&'static ParamDef| self.defs().find(|k| k.params.iter().any(|q| std::ptr::eq(q, *p)));
        let params: Vec<String> = self.params().iter().filter_map(|p| Some(of(p)?.param_text(p))).collect();
        let open = self.open_dims().join(", ");
        let open = if open.is_empty() { open } else { format!("; {open}") };
        format!("{}{types}({}{open})", self.name, params.join(", "))
    }

    /// A launch with too few arguments or too many.
    pub(super) fn wrong_count(&self, found: usize, params: &[&'static ParamDef]) -> RuntimeError {
        let names = params.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ");
        LaunchError::WrongArgumentCount { kernel: self.name, found, wanted: params.len(), names }.into()
    }

    /// Runs the kernels on a device's default stream. The arguments are in the order of [`Chain::params`].
    ///
    /// # Errors
    /// Those of [`Launch::launch`](super::Launch::launch); [`LaunchError::ChainDims`] if arguments disagree on the size
    /// of a dim, [`LaunchError::EmptySegment`] if that of [`Chain::after_each`] is 0, [`LaunchError::Overlap`] if one that is written shares memory with another, [`LaunchError::WorkspaceSize`] if the workspace is for another one, [`LaunchError::ChainTypes`] if they disagree on a type parameter. None of these writes anything.
    pub fn launch<'a>(
        &self,
        device: &Device,
        mut args: impl AsMut<[Arg<'a>]>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        self.run(device, None, args.as_mut(), workspace)
    }

    /// Runs the kernels on a stream.
    ///
    /// # Errors
    /// As [`Chain::launch`].
    pub fn launch_on<'a>(
        &self,
        stream: &Stream,
        mut args: impl AsMut<[Arg<'a>]>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        self.run(stream.device(), Some(stream), args.as_mut(), workspace)
    }

    /// Checks the arguments of all kernels, prepares the kernels, and then runs them.
    fn run(
        &self,
        device: &Device,
        stream: Option<&Stream>,
        args: &mut [Arg<'_>],
        workspace: &mut Workspace,
    ) -> Result<()> {
        let mut plans: Vec<PlanFound> = Vec::with_capacity(self.kernels.len());
        self.each(Times::Once, args, workspace, |_, def, args| {
            plans.push(LaunchRequest { def, device, config: None, args }.plan(stream)?);
            Ok(())
        })?;
        self.each(Times::All, args, workspace, |i, def, args| {
            LaunchRequest { def, device, config: None, args }.queue(stream, &plans[i])
        })
    }

    /// Compiles the kernels, and keeps everything that launches of this problem need. After this,
    /// [`Stream::capture`] can record launches of this problem.
    ///
    /// # Errors
    /// As [`Chain::launch`].
    pub fn prepare<'a>(
        &'static self,
        device: &Device,
        mut args: impl AsMut<[Arg<'a>]>,
        workspace: &mut Workspace,
    ) -> Result<PreparedChain> {
        let mut launches = Vec::with_capacity(self.kernels.len());
        self.each(Times::Once, args.as_mut(), workspace, |_, kernel, args| {
            launches.push(PreparedLaunch::new(LaunchRequest { def: kernel, device, config: None, args })?);
            Ok(())
        })?;
        Ok(PreparedChain { chain: self, launches })
    }

    /// Calls `run` for each kernel with its arguments, in the order in which they run.
    fn each(
        &self,
        times: Times,
        args: &mut [Arg<'_>],
        workspace: &mut Workspace,
        mut run: impl FnMut(usize, &'static KernelDef, &[Arg<'_>]) -> Result<()>,
    ) -> Result<()> {
        let facts = self.facts();
        let params = &facts.params;
        if args.len() != params.len() {
            return Err(self.wrong_count(args.len(), params));
        }
        if workspace.chain != self.name || workspace.spaces.len() != self.workspace.len() {
            let name = self.workspace.join(", ");
            return Err(LaunchError::NoWorkspace { chain: self.name, name }.into());
        }
        // A pass that runs the kernels comes after one that has checked these arguments.
        if matches!(times, Times::Once) {
            self.check_dims(facts, args, workspace)?;
            self.check_types(facts, args, workspace)?;
            // No kernel may have both, and then no launch would see it.
            refuse_aliasing(self.name, params.iter().copied(), args)?;
        }
        let size_of = |dim: &str| self.size_of(dim, &facts.names, args, workspace);
        let (count, length) = match &self.repeated {
            Some(Repeated { dim, segment: None, .. }) => (size_of(dim)?, usize::MAX),
            Some(Repeated { dim, segment: Some(segment), .. }) => (size_of(dim)?, size_of(segment)?),
            None => (0, 0),
        };
        if let Some(dim) = self.repeated.and_then(|repeated| repeated.segment).filter(|_| length == 0) {
            return Err(LaunchError::EmptySegment { chain: self.name, dim }.into());
        }
        let spaces: Vec<&mut Tensor> = workspace.spaces.iter_mut().map(|s| &mut s.tensor).collect();
        let mut one = |i: usize, index: usize| {
            let kernel = &facts.kernels[i];
            run(i, kernel.def, &of_kernel(kernel, args, &spaces, index))
        };
        let kernels = facts.kernels.len();
        match (&self.repeated, times) {
            (Some(repeated), Times::All) => {
                repeated.launches(kernels, count, length).try_for_each(|(i, index)| one(i, index))
            }
            _ => (0..kernels).try_for_each(|i| one(i, 0)),
        }
    }

    /// Refuses names in the chain's own lists that its kernels do not have: a typing mistake would give arguments to other parameters.
    /// The lists do not depend on arguments, so this is done where a workspace is made, without which nothing is launched.
    pub(super) fn check_lists(&self) -> Result<()> {
        let params = self.params();
        let is_once = |name: &str| self.order.iter().filter(|n| **n == name).count() == 1;
        if let Some(name) = self.order.iter().find(|name| !is_once(name) || !params.iter().any(|p| p.name() == **name))
        {
            let names = params.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ");
            return Err(LaunchError::NoSuchParameter { chain: self.name, name: (*name).to_owned(), names }.into());
        }
        let Some(Repeated { first, index, .. }) = self.repeated else { return Ok(()) };
        let of_index = |k: &'static KernelDef| k.params.iter().filter(|p| p.name() == index).map(move |p| (k, p));
        let named: Vec<_> = self.defs().skip(first).flat_map(of_index).collect();
        let is_index = |p: &ParamDef| matches!(p, ParamDef::Scalar { dtype: DTypeRef::Fixed(DType::I32), .. });
        let found = match named.iter().find(|(_, p)| !is_index(p)) {
            Some((kernel, p)) => format!("`{}` has `{}`", kernel.name, kernel.param_text(p)),
            None if named.is_empty() => "none of them has such a parameter".to_owned(),
            None => return Ok(()),
        };
        Err(LaunchError::NoSuchIndex { chain: self.name, name: index.to_owned(), found }.into())
    }

    /// The size of a dim, which is the same in all tensors.
    fn size_of(&self, dim: &str, names: &[&str], args: &[Arg<'_>], workspace: &Workspace) -> Result<usize> {
        let of = |kernel: &KernelDef, p: &ParamDef| {
            let ParamDef::Tensor { dims, .. } = p else { return None };
            let axis = dims.iter().position(|&d| kernel.dims[d].name == dim)?;
            let at = names.iter().position(|&n| n == p.name())?;
            let own = || workspace.spaces.get(at - args.len()).map(|s| &s.tensor);
            let tensor = if at < args.len() { args[at].tensor() } else { own() };
            tensor?.shape().get(axis).copied()
        };
        let found = self.defs().find_map(|kernel| kernel.params.iter().find_map(|p| of(kernel, p)));
        found.ok_or_else(|| self.unknown(dim.to_owned()).into())
    }

    /// Checks that a dim has one size in all arguments of the chain, and the one for which the workspace was allocated. The
    /// launch of each kernel checks ranks, with a better message.
    fn check_dims(&self, facts: &ChainFacts, args: &[Arg<'_>], workspace: &Workspace) -> Result<()> {
        let mut sizes: SmallVec<[Option<(usize, &'static str)>; 32]> = SmallVec::from_elem(None, facts.dims.len());
        for (at, dims) in &facts.axes {
            let Some(tensor) = args[*at].tensor() else { continue };
            let param = facts.names[*at];
            for (&d, &size) in dims.iter().zip(tensor.shape()) {
                match sizes[d] {
                    None => sizes[d] = Some((size, param)),
                    Some((first_size, first)) if first_size != size => {
                        let (chain, dim, second) = (self.name, facts.dims[d], param);
                        return Err(LaunchError::ChainDims { chain, dim, first, first_size, second, size }.into());
                    }
                    Some(_) => {}
                }
            }
        }
        let sizes =
            facts.dims.iter().zip(sizes).filter_map(|(dim, found)| found.map(|(size, param)| (*dim, size, param)));
        for (dim, found, param) in sizes {
            let wanted = workspace.sizes.iter().find(|(name, _)| name == dim).map(|(_, size)| *size);
            if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
                return Err(LaunchError::WorkspaceSize { chain: self.name, dim, param, found, wanted }.into());
            }
        }
        Ok(())
    }

    /// Checks that a type parameter has one type in all kernels of the chain. Numbers decide it if no tensor of their
    /// kernel does.
    fn check_types(&self, facts: &ChainFacts, args: &[Arg<'_>], workspace: &Workspace) -> Result<()> {
        let mut types: SmallVec<[Option<(DType, usize)>; 8]> = SmallVec::from_elem(None, facts.types.len());
        for &(at, i) in &facts.deciders {
            let found = match args.get(at) {
                Some(arg) => arg.tensor().map(Tensor::dtype).or_else(|| arg.scalar_dtype()),
                None => workspace.spaces.get(at - args.len()).map(|s| s.tensor.dtype()),
            };
            let Some(dtype) = found else { continue };
            match types[i] {
                None => types[i] = Some((dtype, at)),
                Some((first_type, first)) if first_type != dtype => {
                    let (chain, name) = (self.name, facts.types[i]);
                    let (first, second) = (facts.names[first], facts.names[at]);
                    return Err(LaunchError::ChainTypes { chain, name, first, first_type, second, dtype }.into());
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl PreparedChain {
    /// Queues the launches on the device's default stream.
    ///
    /// # Errors
    /// Those of [`PreparedLaunch::launch`].
    pub fn launch<'a>(&self, mut args: impl AsMut<[Arg<'a>]>, workspace: &mut Workspace) -> Result<()> {
        self.check(args.as_mut(), workspace)?;
        self.chain.each(Times::All, args.as_mut(), workspace, |i, _, args| self.launches[i].queue_checked(None, args))
    }

    /// Queues the launches on a stream.
    ///
    /// # Errors
    /// Those of [`PreparedLaunch::launch_on`].
    pub fn launch_on<'a>(
        &self,
        stream: &Stream,
        mut args: impl AsMut<[Arg<'a>]>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        self.launches.iter().try_for_each(|launch| launch.check_stream(stream))?;
        self.check(args.as_mut(), workspace)?;
        self.chain
            .each(Times::All, args.as_mut(), workspace, |i, _, args| self.launches[i].queue_checked(Some(stream), args))
    }

    /// Checks the arguments of all launches, before the first one is queued.
    fn check(&self, args: &mut [Arg<'_>], workspace: &mut Workspace) -> Result<()> {
        self.chain.each(Times::Once, args, workspace, |i, _, args| self.launches[i].check(args))
    }

    /// The launches, in order; those that are repeated once.
    pub fn launches(&self) -> &[PreparedLaunch] {
        &self.launches
    }
}

/// How often kernels that are repeated are gone through.
#[derive(Clone, Copy)]
enum Times {
    /// Once, with an index of 0: what does not depend on numbers.
    Once,
    All,
}
