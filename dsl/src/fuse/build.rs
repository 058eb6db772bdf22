//! Builds the kernels of a fusion's parts, each for the dims and knobs that it has in the fused kernel.

use super::cover::wanted_size;
use super::graft::{Graft, Grafted};
use super::maker::the_store;
use super::signature::KnobUse;
use crate::config::{Config, Schedule};
use crate::def::{GridSize, ParamDef};
use crate::diag::Diagnostic;
use crate::entity::Dim;
use crate::ir::{DimSize, Kernel};
use crate::op::Slice;
use crate::specialization::{DimFact, Specialization};
use std::rc::Rc;

impl Graft<'_> {
    /// The dim of the fused kernel that a part's own dim becomes.
    pub(super) fn dim(&self, part: usize, dim: Dim) -> Dim {
        Dim::from_u32(self.links().parts[part].dims[dim.as_u32() as usize] as u32)
    }

    /// The part's config: the values of its own knobs, as far as the fused kernel's knobs give them.
    pub(super) fn own_config(&self, part: usize) -> Config {
        let mut config = Config { schedule: self.config.schedule, ..Config::default() };
        for (knob, used) in self.links().parts[part].def.tune.iter().zip(&self.plan.knobs[part]) {
            if let (KnobUse::Own(name), false) = (used, Schedule::KEYS.contains(&knob.name))
                && let Some(value) = self.config.get(name)
            {
                config.set(knob.name, value);
            }
        }
        config
    }

    /// Builds a part, once for each config.
    pub(super) fn build(&mut self, part: usize, config: Config) -> Grafted<Rc<Kernel>> {
        if let Some((.., known)) = self.built.iter().find(|b| b.0 == part && b.1 == config) {
            return Ok(known.clone());
        }
        let links = self.links();
        let linked = &links.parts[part];
        let mut spec = Specialization::default();
        for (t, &class) in linked.def.types.iter().zip(&linked.types) {
            let class = &links.types[class];
            if let Some(dtype) = class.fixed.or_else(|| self.spec.types.get(&class.name).copied()) {
                spec = spec.with_type(t.name, dtype);
            }
        }
        for (d, &class) in linked.def.dims.iter().zip(&linked.dims) {
            let fact = match self.kernel.dims[Dim::from_u32(class as u32)].size {
                DimSize::Const(n) => DimFact::Const(n),
                DimSize::Dynamic { divisor } => DimFact::Dynamic(divisor),
            };
            spec = spec.with_dim(d.name, fact);
        }
        let kernel = Rc::new((linked.def.build)(&spec, &config)?);
        if kernel.cluster {
            let message = format!("`{}` has a cluster of programs, and such a kernel cannot be fused", linked.def.name);
            return Err(Diagnostic::new(231, crate::ir::Loc::default(), message).into());
        }
        self.built.push((part, config, kernel.clone()));
        Ok(kernel)
    }

    /// The config of a maker: its own knobs, and its grid with the tiles that the load wants.
    pub(super) fn covered_config(
        &mut self,
        part: usize,
        param: usize,
        slices: &[Slice],
        dims: &[Dim],
    ) -> Grafted<Config> {
        let linked = &self.links().parts[part];
        let mut config = self.own_config(part);
        let ParamDef::Tensor { dims: own, .. } = &linked.def.params[param] else { return Ok(config) };
        // Of a tensor that has a dim twice, the store says which axis a coordinate of the grid is of.
        let twice = own.iter().enumerate().any(|(i, d)| own[..i].contains(d));
        let probe = if twice { Some(self.build(part, linked.def.default_config())?) } else { None };
        let stored = probe.as_ref().and_then(|k| Some((k, the_store(k, param).ok()?.1)));
        for (number, axis) in linked.def.grid.iter().enumerate() {
            let GridSize::Knob(knob) = axis.size else { continue };
            let at = match stored {
                Some((k, stored)) => stored.iter().position(|s| s.coordinate() == Some(k.grid[number].coord)),
                None => own.iter().position(|&d| d == axis.dim),
            };
            let wanted = at.and_then(|at| wanted_size(slices[at], self.kernel.dims[dims[at]].size).or(Some(1)));
            if let Some(size) = wanted {
                config.set(linked.def.tune[knob].name, size);
            }
        }
        Ok(config)
    }
}
