//! Checks at the end of a body: unused names, a missing grid loop, a missing store.

use crate::ast::{ExprSyntaxKind, KernelSyntax, ParamSyntaxKind, RangeSyntax, StmtSyntax};
use crate::resolve::Resolver;
use crate::signature::is_upper;
use crate::tree::{Axis, LocalId, LocalKind, ParamKind};
use atlas_vocabulary::ScheduleKey;

impl Resolver<'_> {
    /// Reports names that nothing reads.
    pub(crate) fn report_unused(&mut self) {
        for (id, local) in self.locals.iter().enumerate() {
            let (name, span) = (&local.name, local.name.span());
            let message = match local.kind {
                // A coordinate that no store mentions is reported by `check`.
                LocalKind::Coordinate => continue,
                _ if !local.used => match (local.kind, local.hides) {
                    (LocalKind::Let { .. }, Some(outer)) => {
                        let is_mut = self.locals[outer].kind == LocalKind::Let { mutable: true };
                        let before = if is_mut { "" } else { " here, and `let mut` before the loop" };
                        format!(
                            "this `{name}` is a new value in each iteration, which nothing reads, and the `{name}` before the loop stays as it is; to carry it through the loop write `{name} = ..` without `let`{before}"
                        )
                    }
                    (LocalKind::Let { .. }, None) if local.assigned => {
                        format!("`{name}` is assigned, but nothing reads it")
                    }
                    (LocalKind::LoopIndex, _) => {
                        format!("loop index `{name}` is never used; write `_` if the loop only repeats")
                    }
                    (LocalKind::FnParam, _) => format!("parameter `{name}` is never used"),
                    _ => format!("`{name}` is never used; remove it"),
                },
                LocalKind::Let { mutable: true } if !local.assigned => match self.hidden(id) {
                    Some(inner) if !self.locals[inner].used => continue,
                    Some(_) => format!(
                        "`{name}` is `mut`, but never assigned: the `let {name}` in the loop is a new value in each iteration; write `{name} = ..` there to carry it, or remove the `mut`"
                    ),
                    None => format!("`{name}` is `mut`, but never assigned; remove the `mut`"),
                },
                _ => continue,
            };
            self.errors.push(24, span, message);
        }
        let Some(kernel) = self.kernel else { return };
        for (param, used) in self.params.iter().zip(&self.param_used) {
            let (name, span) = (&param.name, param.name.span());
            match param.kind {
                ParamKind::Tensor { writable: true, .. } => {}
                _ if *used => {}
                ParamKind::Tensor { .. } => {
                    self.errors.push(24, span, format!("tensor `{name}` is never loaded; remove it"))
                }
                ParamKind::Scalar => self.errors.push(24, span, format!("parameter `{name}` is never used; remove it")),
            }
        }
        for (knob, used) in kernel.tune.iter().zip(&self.knob_used) {
            let name = &knob.name;
            if !used && ScheduleKey::named(&name.to_string()).is_none() {
                self.errors.push(
                    24,
                    name.span(),
                    format!("knob `{name}` is never used; remove it, or tile a dim with it"),
                );
            }
        }
    }

    /// A local that hides this one in a loop. The last one counts, because the body ends with it.
    fn hidden(&self, id: LocalId) -> Option<LocalId> {
        self.locals.iter().rposition(|l| l.hides == Some(id))
    }

    /// Reports a body without a grid loop, and suggests one.
    pub(crate) fn report_no_grid(&mut self, kernel: &KernelSyntax) {
        let looped = kernel.body.iter().find_map(|s| match s {
            StmtSyntax::Loop { index, range: RangeSyntax::Tiles { dim, size, .. }, .. } => Some((index, dim, size)),
            _ => None,
        });
        let stored = self.params.iter().find_map(|p| match &p.kind {
            ParamKind::Tensor { writable: true, dims } => dims.first(),
            _ => None,
        });
        let knob = kernel.tune.iter().find(|k| is_upper(&k.name));
        let example = match (looped, stored.map(|&d| &self.dims[d].name)) {
            (Some((index, dim, size)), _) => {
                let size = match &size.kind {
                    ExprSyntaxKind::Literal { value, .. } => value.to_string(),
                    ExprSyntaxKind::Name(name) => name.to_string(),
                    _ => "..".to_owned(),
                };
                format!("for {index} in grid(tiles({dim}, {size})) {{ .. }}")
            }
            (None, Some(dim)) => {
                let axis = knob.map_or(dim.to_string(), |k| format!("tiles({dim}, {})", k.name));
                format!("for {} in grid({axis}) {{ .. }}", dim.to_string().to_lowercase())
            }
            (None, None) => "for .. in grid(..) { .. }".to_owned(),
        };
        let message =
            format!("kernel `{}` has no grid loop: its whole body stands in one, as in `{example}`", kernel.name);
        self.errors.push(26, kernel.name.span(), message);
    }

    /// Reports a body that stores nothing, and suggests a store.
    pub(crate) fn report_no_store(&mut self, kernel: &KernelSyntax, axes: &[Axis]) {
        let place = |name: &str, dims: &[usize]| {
            let index = |d: &usize| {
                let axis = axes.iter().find(|a| a.dim == *d);
                axis.map_or("..".to_owned(), |a| self.locals[a.coord].name.to_string())
            };
            format!("`store({name}[{}], value)`", dims.iter().map(index).collect::<Vec<_>>().join(", "))
        };
        let tensors = self.params.iter().filter_map(|p| match &p.kind {
            ParamKind::Tensor { writable, dims } => Some((p, *writable, dims)),
            ParamKind::Scalar => None,
        });
        let name = &kernel.name;
        let message = match tensors.clone().find(|t| t.1).or_else(|| tensors.clone().next()) {
            Some((p, true, dims)) => {
                format!("kernel `{name}` stores nothing; end the grid loop with {}", place(&p.name.to_string(), dims))
            }
            Some((p, false, dims)) => {
                let written = kernel.params.iter().find(|q| q.name == p.name).map(|q| &q.kind);
                let elem = match written {
                    Some(ParamSyntaxKind::Tensor { dtype, .. }) => dtype.to_string(),
                    _ => "f32".to_owned(),
                };
                let list: Vec<String> = dims.iter().map(|&d| self.dims[d].name.to_string()).collect();
                let out = ["y", "out", "result"].into_iter().find(|n| kernel.params.iter().all(|p| p.name != n));
                let out = out.unwrap_or("written");
                format!(
                    "kernel `{name}` writes nothing; declare an output, as in `{out}: &mut Tensor<{elem}, [{}]>`, and end the grid loop with {}",
                    list.join(", "),
                    place(out, dims)
                )
            }
            None => format!(
                "kernel `{name}` writes nothing; declare an output, as in `y: &mut Tensor<f32, [N]>`, and store to it"
            ),
        };
        self.errors.push(212, kernel.name.span(), message);
    }
}
