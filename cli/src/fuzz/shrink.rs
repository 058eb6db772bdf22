//! Shrinks a failing recipe for as long as it fails in the same way.

use super::emit::emit;
use super::recipe::{DimRecipe, Expr, Fill, Loop, ParamRecipe, Recipe, Stmt, View, visit_exprs};
use super::trial::{Trial, TrialFailure};
use atlas_dsl::{DType, Schedule, TileType};
use std::time::{Duration, Instant};

/// The most kernels to try for one failure, and the time limit.
const TRIES: usize = 600;
const TIME: Duration = Duration::from_secs(60);

/// A kernel that fails, and how.
pub(super) struct Shrunk {
    pub(super) recipe: Recipe,
    pub(super) failure: TrialFailure,
}

/// The smallest recipe found that fails in the same way.
pub(super) fn shrink(recipe: Recipe, failure: TrialFailure) -> Shrunk {
    let mut best = Shrinker { best: Shrunk { recipe, failure }, tries: 0, until: Instant::now() + TIME };
    loop {
        let before = best.best.recipe.clone();
        best.statements();
        best.tables();
        best.expressions();
        best.params();
        if best.best.recipe == before || best.is_spent() {
            break;
        }
    }
    best.best
}

struct Shrinker {
    best: Shrunk,
    tries: usize,
    until: Instant,
}

impl Shrinker {
    fn is_spent(&self) -> bool {
        self.tries >= TRIES || Instant::now() >= self.until
    }

    /// Accepts a smaller recipe if it fails in the same way.
    fn take(&mut self, recipe: Recipe) -> bool {
        if recipe == self.best.recipe || self.is_spent() {
            return false;
        }
        let Ok(mut trial) = Trial::new(&recipe) else { return false };
        self.tries += 1;
        let known = &self.best.failure;
        let schedules = [known.schedule.unwrap_or_default()];
        match trial.run(known.target, &schedules, None) {
            Err(failure) if failure.kind == known.kind => {
                self.best = Shrunk { recipe, failure };
                true
            }
            _ => false,
        }
    }

    fn edited(&mut self, edit: impl FnOnce(&mut Recipe)) -> bool {
        let mut recipe = self.best.recipe.clone();
        edit(&mut recipe);
        self.take(recipe)
    }

    /// Removes statements, loops around statements, and carried values, the last ones first.
    fn statements(&mut self) {
        for simplify in [without, without_loop, without_carried] {
            for at in (0..2 * count(&self.best.recipe.body)).rev() {
                self.edited(|r| {
                    simplify(&mut r.body, &mut { at });
                });
            }
        }
    }

    /// Tries smaller extents and dims, and the default schedule.
    fn tables(&mut self) {
        self.edited(|r| r.schedule = Schedule { stages: 1, warps: 1, ..Schedule::default() });
        self.edited(|r| r.schedule.occupancy = 1);
        self.edited(|r| r.schedule.order = None);
        self.edited(|r| r.schedule.warp_grid = None);
        for splits in [1, 2] {
            self.edited(|r| r.schedule.split_k = r.schedule.split_k.min(splits));
        }
        for stages in [1, 2] {
            self.edited(|r| r.schedule.stages = r.schedule.stages.min(stages));
        }
        for warps in [1, 2, 4] {
            self.edited(|r| r.schedule.warps = r.schedule.warps.min(warps));
        }
        for at in 1..self.best.recipe.extents.len() {
            for e in [1, 8, 16, 24, 32] {
                if e < self.best.recipe.extents[at] && self.edited(|r| r.extents[at] = e) {
                    break;
                }
            }
        }
        for at in 0..self.best.recipe.dims.len() {
            let DimRecipe { size, tile, whole } = self.best.recipe.dims[at];
            if whole {
                continue;
            }
            let tile = u64::from(self.best.recipe.extents[tile]);
            for smaller in [tile, 1, 0, size / 2, size.saturating_sub(1)] {
                if smaller < size && self.edited(|r| r.dims[at].size = smaller) {
                    break;
                }
            }
        }
    }

    /// Replaces expressions by their operands, or by a number.
    fn expressions(&mut self) {
        let mut at = 0;
        while let Some(ty) = self.type_of(at) {
            if self.is_spent() {
                return;
            }
            let mut smaller = false;
            for child in 0..4 {
                smaller = smaller || self.edited(|r| replace(r, at, |e| child_of(e, child)));
            }
            for number in [1.0, 0.0] {
                smaller = smaller || self.number(at, &ty, number);
            }
            if !smaller {
                at += 1;
            }
        }
    }

    fn number(&mut self, at: usize, ty: &TileType, x: f64) -> bool {
        // Extents are compared by value: each is in some table.
        let of = |extents: &[u32], e: u32| extents.iter().position(|&known| known == e);
        let shape: Option<Vec<usize>> = ty.shape.iter().map(|&e| of(&self.best.recipe.extents, e)).collect();
        let Some(shape) = shape else { return false };
        if ty.dtype == DType::Bool {
            return false;
        }
        let dtype = ty.dtype;
        self.edited(|r| {
            replace(r, at, |e| {
                let plain = matches!(e, Expr::Splat(..) | Expr::Var(_));
                (!plain).then_some(Expr::Splat(x, dtype, shape))
            });
        })
    }

    fn type_of(&self, at: usize) -> Option<TileType> {
        emit(&self.best.recipe, None).ok()?.types.get(at).cloned()
    }

    /// Tries plain views and values and f32 parameters, and removes unused parameters.
    fn params(&mut self) {
        self.edited(|r| {
            r.params.iter_mut().for_each(|p| {
                if let ParamRecipe::Tensor { view, .. } = p {
                    *view = View::default();
                }
            });
        });
        for at in (0..self.best.recipe.params.len()).rev() {
            let gone = |r: &mut Recipe| {
                remove_stores(&mut r.body, at);
                remove_param(r, at);
            };
            if self.edited(gone) {
                continue;
            }
            let ParamRecipe::Tensor { view, .. } = self.best.recipe.params[at] else { continue };
            let simpler =
                [View::default(), View { offset: 0, ..view }, View { pad: 0, ..view }, View { spread: false, ..view }];
            for simpler in simpler {
                self.edited(|r| set_view(r, at, simpler));
            }
            for simpler in [Fill::Ones, Fill::Quarters] {
                if self.edited(|r| set_fill(r, at, simpler)) {
                    break;
                }
            }
        }
        self.edited(|r| retype(r, DType::F32));
        self.edited(compact);
    }
}

fn set_view(r: &mut Recipe, at: usize, to: View) {
    if let ParamRecipe::Tensor { view, .. } = &mut r.params[at] {
        *view = to;
    }
}

fn set_fill(r: &mut Recipe, at: usize, to: Fill) {
    if let ParamRecipe::Tensor { fill, .. } = &mut r.params[at] {
        *fill = to;
    }
}

/// Replaces every 16-bit type by another type.
fn retype(r: &mut Recipe, to: DType) {
    let set = |d: &mut DType| {
        if d.is_half() {
            *d = to;
        }
    };
    for p in &mut r.params {
        let (ParamRecipe::Tensor { dtype, .. } | ParamRecipe::Scalar { dtype, .. }) = p;
        set(dtype);
    }
    visit_exprs(&mut r.body, &mut |e| {
        if let Expr::Splat(_, dtype, _) | Expr::Cast(dtype, _) = e {
            set(dtype);
        }
    });
}

/// The number of statements, including nested ones.
fn count(body: &[Stmt]) -> usize {
    let inside = |s: &Stmt| if let Stmt::Loop(l) = s { count(&l.body) } else { 0 };
    body.iter().map(|s| 1 + inside(s)).sum()
}

/// Finds a statement by its number and edits it in place.
fn edit_at(body: &mut Vec<Stmt>, at: &mut usize, edit: &mut impl FnMut(&mut Vec<Stmt>, usize)) -> bool {
    let mut i = 0;
    while i < body.len() {
        if *at == 0 {
            edit(body, i);
            return true;
        }
        *at -= 1;
        if let Stmt::Loop(l) = &mut body[i]
            && edit_at(&mut l.body, at, edit)
        {
            return true;
        }
        i += 1;
    }
    false
}

fn without(body: &mut Vec<Stmt>, at: &mut usize) {
    edit_at(body, at, &mut |body, i| drop(body.remove(i)));
}

/// Replaces a loop by one iteration, or by its initial values.
fn without_loop(body: &mut Vec<Stmt>, at: &mut usize) {
    let empty = !at.is_multiple_of(2);
    *at /= 2;
    edit_at(body, at, &mut |body, i| {
        let Stmt::Loop(l) = body[i].clone() else { return };
        let Loop { lo, index, carried, body: inside, .. } = *l;
        let mut flat = Vec::new();
        if empty {
            flat.extend(carried.iter().map(|c| Stmt::Let(c.outer, c.init.clone())));
        } else {
            flat.push(Stmt::Let(index, lo));
            flat.extend(carried.iter().map(|c| Stmt::Let(c.inner, c.init.clone())));
            flat.extend(inside);
            flat.extend(carried.iter().map(|c| Stmt::Let(c.outer, c.next.clone())));
        }
        body.splice(i..=i, flat);
    });
}

/// Removes one carried value from a loop. It keeps its initial value.
fn without_carried(body: &mut Vec<Stmt>, at: &mut usize) {
    let which = *at % 2;
    *at /= 2;
    edit_at(body, at, &mut |body, i| {
        let Stmt::Loop(l) = &mut body[i] else { return };
        if which >= l.carried.len() {
            return;
        }
        let c = l.carried.remove(which);
        body.insert(i, Stmt::Let(c.inner, c.init));
        body.insert(i + 2, Stmt::Let(c.outer, Expr::Var(c.inner)));
    });
}

/// Replaces an expression, if `by` gives a replacement.
fn replace(r: &mut Recipe, at: usize, by: impl FnOnce(&mut Expr) -> Option<Expr>) {
    let (mut i, mut by) = (0, Some(by));
    visit_exprs(&mut r.body, &mut |e| {
        if i == at
            && let Some(by) = by.take()
            && let Some(new) = by(e)
        {
            *e = new;
        }
        i += 1;
    });
}

fn child_of(e: &mut Expr, child: usize) -> Option<Expr> {
    e.children_mut().into_iter().nth(child).cloned()
}

/// Removes a parameter that nothing uses.
fn remove_param(r: &mut Recipe, at: usize) {
    let mut used = false;
    visit_params(&mut r.body, &mut |p| used |= *p == at);
    if used {
        return;
    }
    r.params.remove(at);
    visit_params(&mut r.body, &mut |p| *p -= usize::from(*p > at));
}

fn remove_stores(body: &mut Vec<Stmt>, param: usize) {
    body.retain(|s| !matches!(s, Stmt::Store(_, p, ..) if *p == param));
    for s in body {
        if let Stmt::Loop(l) = s {
            remove_stores(&mut l.body, param);
        }
    }
}

fn visit_params(body: &mut [Stmt], f: &mut impl FnMut(&mut usize)) {
    visit_exprs(body, &mut |e| {
        if let Expr::Load(p, _) | Expr::Scalar(p) = e {
            f(p);
        }
    });
    visit_stores(body, f);
}

fn visit_stores(body: &mut [Stmt], f: &mut impl FnMut(&mut usize)) {
    for s in body {
        match s {
            Stmt::Store(_, p, ..) => f(p),
            Stmt::Loop(l) => visit_stores(&mut l.body, f),
            Stmt::Let(..) => {}
        }
    }
}

/// Drops the dims that are not used, starting with the last.
fn compact(r: &mut Recipe) {
    let mut used = vec![false; r.dims.len()];
    for p in &r.params {
        if let ParamRecipe::Tensor { dims, .. } = p {
            dims.iter().for_each(|&d| used[d] = true);
        }
    }
    for g in &r.grid {
        used[g.dim()] = true;
    }
    visit_exprs(&mut r.body, &mut |e| {
        if let Expr::Size(d) | Expr::Tiles(d) = e {
            used[*d] = true;
        }
    });
    while used.last() == Some(&false) {
        used.pop();
        r.dims.pop();
    }
}
