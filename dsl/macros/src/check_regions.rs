//! The rule that no program touches what another one writes, and what stands beside stores that may have any index.

use crate::check::Checker;
use crate::symbolic::{Access, Size};
use atlas_vocabulary::Update;
use std::collections::{BTreeMap, BTreeSet};

impl Checker<'_> {
    /// Programs write disjoint regions if all stores have each grid coordinate on one common axis. A load that has it there too
    /// sees what its own program writes.
    pub(crate) fn regions(&mut self) {
        let accesses = self.beside_free();
        for (param, axis) in
            (0..self.kernel.params.len()).flat_map(|p| (0..self.kernel.axes.len()).map(move |a| (p, a)))
        {
            let (stores, loads): (Vec<&Access>, Vec<&Access>) =
                accesses.iter().filter(|a| a.param == param).partition(|a| a.is_store());
            let Some((first, rest)) = stores.split_first() else { continue };
            if self.apart_in_pairs(axis, &stores, &loads) {
                continue;
            }
            let mut common = first.places(axis);
            let name = &self.kernel.params[param].name;
            let coord = self.local_name(self.kernel.axes[axis].coord);
            for store in rest {
                let (before, places) = (common.clone(), store.places(axis));
                common.retain(|a| places.contains(a));
                // Without the coordinate: reported by the store itself.
                if common.is_empty() && !before.is_empty() && !places.is_empty() {
                    let message = format!(
                        "this store to `{name}` has the grid coordinate `{coord}` on axis {}, but the stores before have it on axis {}: programs would write the same elements{}",
                        places[0],
                        before[0],
                        self.once_a_pair()
                    );
                    self.error(214, store.place, message);
                }
            }
            if common.is_empty() {
                continue;
            }
            for load in loads.iter().filter(|l| !l.places(axis).iter().any(|a| common.contains(a))) {
                let message = format!(
                    "`{name}` is stored to with `{coord}` on axis {axis}, but this load has another index there, and would read what other programs write; load at `{coord}` on axis {axis}, or read another tensor than `{name}`",
                    axis = common[0]
                );
                self.error(211, load.place, message);
            }
        }
    }
}

impl Checker<'_> {
    /// The accesses without those to tensors whose stores may have any index, which have nothing else. Reports what they have.
    fn beside_free(&mut self) -> Vec<Access> {
        let (mut rest, mut reported) = (std::mem::take(&mut self.accesses), BTreeSet::new());
        let is_free = |a: &Access| a.update.is_some_and(Update::is_free);
        let free: BTreeMap<usize, Option<Update>> =
            rest.iter().rev().filter(|a| is_free(a)).map(|a| (a.param, a.update)).collect();
        rest.retain(|access| {
            let Some(update) = free.get(&access.param) else { return true };
            if access.update != *update && reported.insert((access.param, access.update)) {
                let name = &self.kernel.params[access.param].name;
                let [kept, other] = [*update, access.update].map(|u| u.map_or("load", Update::statement));
                let mend = match access.update {
                    None => "load from another tensor, or in another kernel, after this one",
                    Some(Update::Replace) => "what it holds before is stored by the host, or by a kernel before this one",
                    Some(_) => "give each a tensor of its own, or a kernel of its own",
                };
                let message = format!(
                    "`{name}` has `{kept}` in this kernel, so what this `{other}` finds there depends on which program runs first: {mend}"
                );
                self.error(236, access.place, message);
            }
            false
        });
        rest
    }

    /// True if an axis belongs to a grid of pairs, and all stores use both coordinates of a pair on two common axes, in either
    /// order. Loads that do not are reported.
    fn apart_in_pairs(&mut self, axis: usize, stores: &[&Access], loads: &[&Access]) -> bool {
        let axes = &self.kernel.axes;
        let Some(last) = axes.len().checked_sub(1).filter(|&last| axes[last].up_to && axis + 1 >= last) else {
            return false;
        };
        let places = |access: &Access| access.pair_places([last - 1, last]);
        let Some((first, rest)) = stores.split_first() else { return false };
        let mut common = places(first);
        rest.iter().for_each(|access| common.retain(|p| places(access).contains(p)));
        let Some([p, q]) = common.first().copied() else { return false };
        let [i, j] = [last - 1, last].map(|a| self.local_name(axes[a].coord));
        for load in loads.iter().filter(|l| axis == last && !places(l).iter().any(|at| common.contains(at))) {
            let name = &self.kernel.params[load.param].name;
            let message = format!(
                "`{name}` is stored to with `{i}` and `{j}` on axes {p} and {q}, but this load has other indices there, and would read what other programs write; load at `{i}` and `{j}` there, or read another tensor than `{name}`"
            );
            self.error(211, load.place, message);
        }
        true
    }

    /// What to write if stores mirror each other and the grid counts each pair twice.
    fn once_a_pair(&self) -> String {
        let [.., a, b] = &self.kernel.axes[..] else { return String::new() };
        match (&a.size, &b.size) {
            (Some(size), Some(other)) if a.dim == b.dim && !b.up_to => {
                let [size, other] = [size, other].map(|s| Size::of(s, Some(self.kernel)));
                if size != other {
                    return String::new();
                }
                let dim = &self.kernel.dims[a.dim].name;
                format!("; `pairs(tiles({dim}, {size}))` counts each pair of tiles once, whose program may store both")
            }
            _ => String::new(),
        }
    }
}
