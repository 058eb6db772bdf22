//! The programs of a cluster meet at every `cluster_sum`, and each has the same elements there.

use super::Verifier;
use super::regions::{TileAccess, axis_text};
use crate::diag::Diagnostic;
use crate::ir::{DimSize, GridAxis, GridExtent, Loc};
use crate::op::{Op, Slice};
use crate::validity::{Constraint, Validity};

impl Verifier<'_> {
    /// 229, 233 and 234, and 213 of stores that leave the cluster's coordinate out.
    pub(super) fn clusters(&mut self) {
        let k = self.kernel;
        let sums =
            || k.insts.iter().filter_map(|(inst, op)| if let Op::ClusterSum(v) = op { Some((inst, *v)) } else { None });
        if !k.cluster {
            for (inst, _) in sums() {
                let message = "`cluster_sum` adds up what the programs of a cluster have, but the grid has no cluster";
                let note = "make the programs that share the sum a cluster: `grid(B, cluster(tiles(N, BN)))`";
                self.errors.push(Diagnostic::new(229, k.locs[inst], message).note(note));
            }
            return;
        }
        let validity = Validity::by_source(k);
        for (inst, v) in sums() {
            if self.differing.is_apart(inst) {
                let message = "not all programs of the cluster come to this `cluster_sum` equally often";
                let note = "the bounds of the loops around it must not depend on the coordinate of the cluster";
                self.errors.push(Diagnostic::new(233, k.locs[inst], message).note(note));
            }
            let apart = |c: &Constraint| c.coordinate().is_some_and(|at| self.differing.value(at));
            if let Some(edge) = validity.constraints(v).iter().find(|c| apart(c)) {
                let dim = &k.dims[edge.dim].name;
                let message = format!(
                    "the programs of the cluster add up different elements: those of one program may lie outside of `{dim}`"
                );
                // Around a load alone, `exp` of the number would be added.
                let note =
                    "put `.or(0.0)` around all that is added, not around the load in it: `cluster_sum((..).or(0.0))`";
                self.errors.push(Diagnostic::new(234, k.locs[inst], message).note(note));
            }
        }
    }

    /// 213 of a store without the cluster's coordinate that not all programs make with one value at one place.
    pub(super) fn store_differs(&mut self, access: &TileAccess<'_>, axis: &GridAxis) {
        let k = self.kernel;
        let (name, of) = (&k.params[access.param].name, axis_text(k, axis.extent));
        let mut values = Vec::new();
        k.insts[access.inst].visit_operands(|v| values.push(v));
        let picks = |slice: &Slice| slice.coordinate().is_some_and(|v| self.differing.value(v));
        let (message, note) = if self.differing.is_apart(access.inst) {
            (
                format!("not all programs of the cluster come to this store to `{name}` equally often"),
                "move the store out of the loop whose bounds depend on the coordinate of the cluster".to_owned(),
            )
        } else if access.slices.iter().any(picks) {
            (
                format!("the programs of the cluster store to places of `{name}` that may overlap"),
                format!("give `{name}` an axis for the coordinate of {of}, and use the coordinate itself as its index"),
            )
        } else {
            let load = values.iter().find_map(|&v| self.differing.load(k, v));
            let from = match load {
                Some(param) => format!(
                    "what they store comes from a load of `{}`, of which each has its own part",
                    k.params[param].name
                ),
                None => "what they store is computed from the coordinate".to_owned(),
            };
            (
                format!(
                    "the programs of the cluster along {of} store different values to the same elements of `{name}`: {from}"
                ),
                format!(
                    "store what all have, as `cluster_sum` gives it, or give `{name}` an axis for the coordinate, and use it as an index of the store"
                ),
            )
        };
        self.errors.push(Diagnostic::new(213, access.loc, message).note(note));
    }

    /// 229 of the last axis.
    pub(super) fn cluster_axis(&mut self) {
        let k = self.kernel;
        let Some(axis) = k.grid.last().filter(|_| k.cluster) else { return };
        let dim = &k.dims[axis.extent.dim()];
        if matches!(axis.extent, GridExtent::UpTo { .. }) {
            self.error(229, Loc::default(), "a cluster is of tiles or elements, not of pairs of tiles");
        }
        if !matches!(dim.size, DimSize::Const(_)) {
            let message =
                format!("a cluster goes along `{}`, which must be a constant of the specialization", dim.name);
            self.error(229, Loc::default(), message);
        }
    }
}
