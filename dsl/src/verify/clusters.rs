//! The programs of a cluster meet at every `cluster_sum`, and each has the same elements there.

use super::Verifier;
use crate::diag::Diagnostic;
use crate::ir::{DimSize, GridExtent, Loc};
use crate::op::Op;
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
            let differs = validity.constraints(v).iter().any(apart);
            if differs {
                let message = "the programs of the cluster have other elements that are not valid here";
                let note = "say what stands past the edge, `load(..).or(0.0)`";
                self.errors.push(Diagnostic::new(234, k.locs[inst], message).note(note));
            }
        }
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
