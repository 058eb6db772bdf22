//! Generates a random recipe from a seed: the dims, the grid, the statements and the schedule. `express` draws
//! expressions.

use super::generator::{Generator, Scope, Type};
use super::recipe::{
    Carried, Cut, DimRecipe, Expr, Ext, Fill, GridRecipe, Loop, Name, ONE, ParamRecipe, Recipe, Rng, Stmt, View,
};
use super::state;
use super::{atomics, small};
use atlas_dsl::config::{Order, WarpGrid};
use atlas_dsl::op::{BinaryOp, Precision, ReduceOp, Update};
use atlas_dsl::{DType, Schedule};

/// A tensor that is written, and the position of the store.
struct OutputParam {
    param: usize,
    cuts: Vec<Cut>,
    shape: Vec<Ext>,
}

/// The recipe of a seed. Each `attempt` gives another recipe, because some are not well formed.
pub(super) fn generate(seed: u64, attempt: u64) -> Recipe {
    let mut rng = Rng::new(seed.wrapping_mul(64).wrapping_add(attempt));
    let dtype = rng.of(&[DType::F32, DType::F32, DType::F16, DType::Bf16, DType::Bf16]);
    let (matrices, states, wild) = (rng.percent(55), rng.percent(15), rng.percent(8));
    let recipe = Recipe {
        extents: vec![1],
        dims: Vec::new(),
        params: Vec::new(),
        grid: Vec::new(),
        body: Vec::new(),
        schedule: Schedule::default(),
        seed: rng.next(),
    };
    let of_places = Some(Rng::new(recipe.seed ^ 0x9a7));
    let mut g = Generator {
        recipe,
        rng,
        of_places,
        dtype,
        names: 0,
        budget: 0,
        matrices,
        states,
        shown: None,
        sums: Vec::new(),
        wild,
    };
    g.schedule();
    g.splits();
    let mut scope = g.grid();
    g.extra_dims();
    let body = g.body(&mut scope);
    g.recipe.body = body;
    g.decisions();
    atomics::combine(&mut g.recipe);
    small::shrink_elements(&mut g.recipe);
    g.recipe
}

impl Generator {
    fn schedule(&mut self) {
        self.recipe.schedule = Schedule {
            stages: 1 + self.rng.below(4) as u32,
            warps: self.rng.of(&[1, 1, 2, 4, 4, 8, 3]),
            occupancy: self.rng.of(&[1, 1, 1, 2]),
            ..Schedule::default()
        };
    }

    /// Draws decisions that the compiler would otherwise make.
    fn decisions(&mut self) {
        let warps = self.recipe.schedule.warps;
        let rows = self.rng.of(&[1, 2, 3, 4, 8]);
        if warps.is_multiple_of(rows) && self.rng.below(3) == 0 {
            self.recipe.schedule.warp_grid = Some(WarpGrid { rows, cols: warps / rows });
        }
        if self.recipe.grid.len() > 1 {
            let pairs = matches!(self.recipe.grid.last(), Some(GridRecipe::UpTo(_)));
            let third = if pairs { Order::Linear } else { Order::Groups(3) };
            self.recipe.schedule.order = self.rng.of(&[None, Some(Order::Linear), Some(third)]);
        }
    }

    pub(super) fn name(&mut self) -> Name {
        self.names += 1;
        self.names - 1
    }

    // ----- dims -----

    fn extent(&mut self) -> Ext {
        let of_matrices = [8, 16, 16, 24, 32, 32, 40, 48, 64, 64];
        let of_rows = [1, 2, 4, 8, 8, 16, 24, 32, 40, 64];
        let e = match self.matrices {
            _ if self.states => self.rng.of(&state::EXTENTS),
            true => self.rng.of(&of_matrices),
            false => self.rng.of(&of_rows),
        };
        self.extent_of(e)
    }

    /// The row of an extent in the table. Squares and equal shapes use the same row.
    pub(super) fn extent_of(&mut self, e: u32) -> Ext {
        let known = self.recipe.extents.iter().skip(1).position(|&k| k == e);
        if let Some(at) = known {
            return at + 1;
        }
        self.recipe.extents.push(e);
        self.recipe.extents.len() - 1
    }

    /// A new dim with tiles of an extent. If it is used whole, it is a constant of the size of one tile.
    fn dim(&mut self, tile: Ext, whole: bool) -> usize {
        let e = u64::from(self.recipe.extents[tile]);
        let ragged = [1, e + 1, e.saturating_sub(1).max(1), 2 * e - e / 2 + 1, 13, 2 * e + 3, 29];
        let size = match self.rng.below(100) {
            10.. if self.states && self.rng.percent(60) => e,
            0..5 => 0,
            5..30 => e * (1 + self.rng.below(3) as u64),
            _ => self.rng.of(&ragged),
        };
        self.recipe.dims.push(DimRecipe { size: size.min(3 * e + 7), whole, tile });
        self.recipe.dims.len() - 1
    }

    /// A dim with tiles of an extent that is not in the grid: an existing one, or a new one.
    pub(super) fn dim_of(&mut self, tile: Ext) -> usize {
        let gridded = |d: usize| self.recipe.grid.iter().any(|g| g.dim() == d);
        let all: Vec<usize> =
            (0..self.recipe.dims.len()).filter(|&d| self.recipe.dims[d].tile == tile && !gridded(d)).collect();
        if all.is_empty() || (all.len() < 2 && self.rng.percent(15)) {
            let whole = self.rng.percent(50);
            return self.dim(tile, whole);
        }
        self.rng.of(&all)
    }

    fn grid(&mut self) -> Scope {
        let axes: &[bool] = match self.rng.below(10) {
            0..6 if self.states => &[false],
            _ if self.states => &[true],
            0..4 => &[true],
            4..7 => &[false, true],
            7..8 => &[false],
            _ => &[true, true],
        };
        let mut scope = Scope::default();
        for &tiles in axes {
            let coord = self.name();
            let axis = if tiles {
                let e = self.extent();
                let d = self.dim(e, false);
                scope.tiles.push((coord, d));
                GridRecipe::Tiles(d)
            } else {
                self.recipe.dims.push(DimRecipe { size: 1 + self.rng.below(3) as u64, whole: false, tile: ONE });
                let d = self.recipe.dims.len() - 1;
                scope.points.push((coord, d));
                GridRecipe::Points(d)
            };
            scope.counts.push(coord);
            self.recipe.grid.push(axis);
        }
        if let ([.., true], Some(&GridRecipe::Tiles(d)), false) = (axes, self.recipe.grid.last(), self.states)
            // Drawn from a separate random stream, so that kernels without pairs do not change.
            && self.recipe.seed.is_multiple_of(8)
            && axes != [true, true]
        {
            let coord = self.name();
            scope.tiles.push((coord, d));
            scope.counts.push(coord);
            self.recipe.grid.push(GridRecipe::UpTo(d));
        }
        scope
    }

    fn extra_dims(&mut self) {
        for _ in 0..1 + self.rng.below(2) {
            let e = self.extent();
            let whole = self.rng.percent(50);
            self.dim(e, whole);
        }
    }

    /// A random extent.
    pub(super) fn any_extent(&mut self) -> Ext {
        if self.recipe.extents.len() < 3 || (self.recipe.extents.len() < 5 && self.rng.percent(10)) {
            return self.extent();
        }
        1 + self.rng.below(self.recipe.extents.len() - 1)
    }

    // ----- parameters -----

    pub(super) fn tensor(&mut self, dtype: DType, dims: Vec<usize>, out: bool) -> usize {
        let mut view = View::default();
        if self.rng.percent(30) {
            view.offset = self.rng.of(&[0, 1, 2, 4, 8]);
            view.pad = self.rng.of(&[0, 0, 1, 3, 8]);
            view.spread = self.rng.percent(15);
            view.reversed = self.rng.percent(15);
            view.expanded = !out && self.rng.percent(10);
        }
        let fills = [Fill::Quarters, Fill::Quarters, Fill::Uniform, Fill::Positive];
        let fill = if self.wild && !self.states && self.rng.percent(60) { Fill::Wild } else { self.rng.of(&fills) };
        self.recipe.params.push(ParamRecipe::Tensor { dtype, dims, out, view, fill });
        self.recipe.params.len() - 1
    }

    // ----- statements -----

    fn body(&mut self, scope: &mut Scope) -> Vec<Stmt> {
        let mut body = Vec::new();
        let mut outputs = Vec::new();
        for _ in 0..1 + usize::from(self.rng.percent(25)) {
            outputs.push(self.output(scope));
        }
        self.lets(scope, &mut body);
        if self.rng.percent(30) {
            self.ragged_sum(scope, &mut body);
        }
        let shape = outputs[0].shape.clone();
        if let (true, &[rows, cols]) = (self.states, &shape[..]) {
            let made = self.state(scope, [rows, cols]);
            body.extend(made);
        }
        let loops = if self.states { 0 } else { self.rng.of(&[0, 0, 1, 1, 1, 2]) };
        let splits = self.recipe.schedule.split_k > 1;
        for _ in 0..if splits { 1 } else { loops } {
            match splits {
                true => body.push(self.sums(scope, &shape)),
                false => body.extend(self.loop_(scope, &shape, 1)),
            }
            if self.rng.percent(20) {
                self.lets(scope, &mut body);
            }
        }
        for output in &outputs {
            let again = 1 + usize::from(self.rng.percent(12));
            for _ in 0..again {
                body.push(self.store(scope, output));
            }
        }
        body
    }

    pub(super) fn lets(&mut self, scope: &mut Scope, body: &mut Vec<Stmt>) {
        for _ in 0..self.rng.of(&[0, 0, 1, 1, 2]) {
            let ty = self.value_type();
            self.budget = 8;
            let e = self.express(scope, &ty, 3);
            let name = self.name();
            body.push(Stmt::Let(name, e));
            scope.values.push((name, ty));
        }
    }

    /// A sum of a tile whose zeros past an edge only seem to stay zero.
    fn ragged_sum(&mut self, scope: &mut Scope, body: &mut Vec<Stmt>) {
        let dtype = self.rng.of(&[self.dtype, DType::F32, DType::Bf16]);
        let mut ty = Type { dtype, shape: vec![self.any_extent(), self.any_extent()] };
        if self.recipe.params.len() >= 7 {
            return;
        }
        let axis = self.rng.below(2);
        let (mut dims, mut cuts) = (Vec::new(), Vec::new());
        for (at, &e) in ty.shape.iter().enumerate() {
            if at == axis {
                let size = u64::from(self.recipe.extents[e]) / 2 + 1;
                self.recipe.dims.push(DimRecipe { size, whole: false, tile: e });
                dims.push(self.recipe.dims.len() - 1);
                cuts.push(Cut::Tile(Expr::int(0), e));
            } else {
                let (d, cut) = self.axis(scope, e);
                dims.push(d);
                cuts.push(cut);
            }
        }
        let tile = Expr::Load(self.tensor(dtype, dims, false), cuts);
        let tile = self.cancelled(tile, &ty);
        let (name, sum) = (self.name(), Expr::Reduce(ReduceOp::Sum, Box::new(tile), vec![axis as u8]));
        ty.shape[axis] = ONE;
        body.push(Stmt::Let(name, sum));
        scope.values.push((name, ty));
    }

    fn value_type(&mut self) -> Type {
        let dtype = self.rng.of(&[self.dtype, self.dtype, DType::F32, DType::F32, DType::I32]);
        let rank = self.rng.of(&[2, 2, 2, 2, 1, 0]);
        let mut shape: Vec<Ext> = (0..rank).map(|_| self.any_extent()).collect();
        if rank == 2 && self.rng.percent(25) {
            let axis = self.rng.below(2);
            shape[axis] = ONE;
        }
        Type { dtype, shape }
    }

    /// A tensor to write: the dims of the grid and possibly others, in a random order.
    fn output(&mut self, scope: &Scope) -> OutputParam {
        let mut axes: Vec<(usize, Cut, Option<Ext>)> = Vec::new();
        for (coord, axis) in self.recipe.grid.clone().into_iter().enumerate() {
            match axis {
                GridRecipe::Points(d) => axes.push((d, Cut::At(Expr::Var(coord)), None)),
                GridRecipe::Tiles(d) | GridRecipe::UpTo(d) => {
                    let e = self.recipe.dims[d].tile;
                    axes.push((d, Cut::Tile(Expr::Var(coord), e), Some(e)));
                }
            }
        }
        let tiled = scope.tiles.len();
        let wanted = if self.states {
            2 - tiled
        } else if tiled == 2 {
            0
        } else {
            self.rng.of(&[1, 1, 1, 1, 0]).max(usize::from(tiled == 0))
        };
        for _ in 0..wanted {
            let e = if self.rng.percent(12) && !self.states { ONE } else { self.any_extent() };
            let d = if e == ONE { self.dim_of_any() } else { self.dim_of(e) };
            let cut = self.free_cut(d, e);
            axes.push((d, cut, Some(e)));
        }
        if axes.len() > 1 && self.rng.percent(15) {
            let last = axes.len() - 1;
            axes.swap(last - 1, last);
        }
        let dtype = self.rng.of(&[self.dtype, self.dtype, self.dtype, DType::F32, DType::I32, DType::I64]);
        let dtype = if dtype.is_int() && self.rng.percent(60) { self.dtype } else { dtype };
        let param = self.tensor(dtype, axes.iter().map(|a| a.0).collect(), true);
        let shape = axes.iter().filter_map(|a| a.2).collect();
        OutputParam { param, cuts: axes.into_iter().map(|a| a.1).collect(), shape }
    }

    fn dim_of_any(&mut self) -> usize {
        let e = self.any_extent();
        self.dim_of(e)
    }

    /// A cut of a dim whose coordinate belongs to no loop and not to the grid.
    pub(super) fn free_cut(&mut self, d: usize, e: Ext) -> Cut {
        let (whole, tile) = (self.recipe.dims[d].whole, self.recipe.dims[d].tile);
        if whole && tile == e && self.rng.percent(85) {
            return Cut::Whole;
        }
        let (size, len) = (self.recipe.size(d) as i64, i64::from(self.recipe.extents[e]));
        let far = [-1, -5, size - len / 2, size - 1, size + 4, -len, 1 - len];
        let start = if self.rng.percent(if self.states { 5 } else { 30 }) {
            self.rng.of(&far)
        } else {
            self.rng.of(&[0, 0, 0, 3, 8, size - len])
        };
        if start == 0 && tile == e && self.rng.percent(50) {
            return Cut::Tile(Expr::int(0), e);
        }
        Cut::Span(Expr::int(start), e)
    }

    fn store(&mut self, scope: &Scope, to: &OutputParam) -> Stmt {
        let dtype = match self.recipe.params[to.param] {
            ParamRecipe::Tensor { dtype, .. } | ParamRecipe::Scalar { dtype, .. } => dtype,
        };
        let ty = Type { dtype, shape: to.shape.clone() };
        self.budget = 14;
        let mut value = match self.rng.below(10) {
            0..6 => self.adapted(scope, &ty).unwrap_or_else(|| self.express(scope, &ty, 4)),
            _ => self.express(scope, &ty, 4),
        };
        if let Some(name) = self.shown.take() {
            // No value derived from states is lost in reductions.
            value = Expr::cast(dtype, Expr::Var(name));
        }
        for sum in std::mem::take(&mut self.sums) {
            let only = Scope { values: vec![sum], ..Scope::default() };
            if let Some(term) = self.adapted(&only, &ty) {
                value = Expr::binary(BinaryOp::Add, value, term);
            }
        }
        if self.rng.percent(15) {
            // An update in place.
            let old = Expr::Load(to.param, to.cuts.clone());
            let op = self.rng.of(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Max]);
            value = Expr::binary(op, value, old);
        }
        Stmt::Store(Update::Replace, to.param, to.cuts.clone(), value)
    }

    // ----- loops -----

    fn loop_(&mut self, scope: &mut Scope, shape: &[Ext], depth: usize) -> Vec<Stmt> {
        let mut made = Vec::new();
        let mut inside = scope.clone();
        let index = self.name();
        let (lo, hi, counted) = self.bounds(&mut inside, index);
        let mut carried = Vec::new();
        let mut types = Vec::new();
        for _ in 0..self.rng.of(&[0, 1, 1, 1, 2, 2, 3]) {
            let ty = self.carried_type(shape, counted, types.last());
            self.budget = 5;
            if self.rng.percent(25) {
                // The initial value of a loop may be used again, in the loop and after it.
                let (name, e) = (self.name(), self.start(scope, &ty));
                made.push(Stmt::Let(name, e));
                scope.values.push((name, ty.clone()));
                inside.values.push((name, ty.clone()));
            }
            let reuse = inside_of(scope, &ty).filter(|_| self.rng.percent(60));
            let init = reuse.map_or_else(|| self.start(scope, &ty), Expr::Var);
            let (inner, outer) = (self.name(), self.name());
            inside.values.push((inner, ty.clone()));
            carried.push(Carried { inner, outer, init, next: Expr::Var(inner) });
            types.push(ty);
        }
        let mut body = Vec::new();
        for _ in 0..self.rng.of(&[0, 1, 1, 2]) {
            let ty = self.rng.below(types.len() + 1);
            let ty = types.get(ty).cloned().unwrap_or_else(|| self.value_type());
            self.budget = 8;
            let e = self.express(&inside, &ty, 3);
            let name = self.name();
            body.push(Stmt::Let(name, e));
            inside.values.push((name, ty));
        }
        if depth < 2 && self.rng.percent(15) {
            let made = self.loop_(&mut inside, shape, depth + 1);
            body.extend(made);
        }
        for i in 0..carried.len() {
            carried[i].next = self.next(&inside, &carried, &types, i);
        }
        if carried.is_empty() || self.rng.percent(10) {
            let output = self.output(scope);
            let stored = self.store(&inside, &output);
            body.push(stored);
        }
        for (c, ty) in carried.iter().zip(types) {
            scope.values.push((c.outer, ty));
        }
        made.push(Stmt::Loop(Box::new(Loop { pipeline: self.rng.percent(60), lo, hi, index, carried, body })));
        made
    }

    /// The bounds of a loop, and the dim whose tiles it counts.
    pub(super) fn bounds(&mut self, inside: &mut Scope, index: Name) -> (Expr, Expr, Option<usize>) {
        if self.rng.percent(65) {
            let e = self.any_extent();
            let d = if self.rng.percent(16) {
                // A dim without tiles.
                self.recipe.dims.push(DimRecipe { size: 0, whole: false, tile: e });
                self.recipe.dims.len() - 1
            } else {
                self.dim_of(e)
            };
            inside.tiles.push((index, d));
            inside.counts.push(index);
            return (Expr::int(0), Expr::Tiles(d), Some(d));
        }
        inside.counts.push(index);
        if self.rng.percent(20) {
            // The elements of a dim, one at a time.
            let size = self.rng.below(4) as u64;
            self.recipe.dims.push(DimRecipe { size, whole: false, tile: ONE });
            let d = self.recipe.dims.len() - 1;
            inside.points.push((index, d));
            return (Expr::int(0), Expr::Tiles(d), None);
        }
        let n = self.rng.of(&[0, 1, 2, 2, 3, 3]);
        let hi = if self.rng.percent(25) {
            let value = f64::from(n);
            self.recipe.params.push(ParamRecipe::Scalar { dtype: DType::I32, value });
            Expr::Scalar(self.recipe.params.len() - 1)
        } else {
            Expr::int(i64::from(n))
        };
        let lo = if self.rng.percent(20) { 1 } else { 0 };
        (Expr::int(lo), hi, None)
    }

    /// The type of a carried value, rarely one with an edge that depends on the loop's index.
    pub(super) fn carried_type(&mut self, shape: &[Ext], counted: Option<usize>, last: Option<&Type>) -> Type {
        if let Some(last) = last
            && self.rng.percent(50)
        {
            return last.clone();
        }
        let dtype = self.rng.of(&[DType::F32, DType::F32, DType::F32, self.dtype, self.dtype]);
        let mut shape = match shape.len() {
            1 | 2 if self.rng.percent(70) => shape.to_vec(),
            _ => self.value_type().shape,
        };
        if shape.len() == 2 {
            match self.rng.below(10) {
                0..2 => shape[1] = ONE,
                2..4 => shape[1] = shape[0],
                4..5 => shape[1] = self.any_extent(),
                _ => {}
            }
        }
        if let Some(d) = counted
            && !self.rng.percent(15)
        {
            let tile = self.recipe.dims[d].tile;
            let other = (1..self.recipe.extents.len()).find(|&e| e != tile).unwrap_or(ONE);
            shape.iter_mut().filter(|e| **e == tile).for_each(|e| *e = other);
        }
        Type { dtype, shape }
    }

    /// The initial value of a loop.
    pub(super) fn start(&mut self, scope: &Scope, ty: &Type) -> Expr {
        match self.rng.below(10) {
            0..4 => Expr::Splat(self.rng.of(&[0.0, 0.0, 1.0, -2.0]), ty.dtype, ty.shape.clone()),
            4..8 => self.load(scope, ty).unwrap_or_else(|| Expr::Splat(0.0, ty.dtype, ty.shape.clone())),
            _ => self.express(scope, ty, 2),
        }
    }

    /// The next value of a carried value: a sum, a product, a reduction, another carried value.
    fn next(&mut self, inside: &Scope, carried: &[Carried], types: &[Type], i: usize) -> Expr {
        let (me, ty) = (Expr::Var(carried[i].inner), &types[i]);
        self.budget = 8;
        let twins: Vec<usize> = (0..types.len()).filter(|&j| j != i && types[j] == *ty).collect();
        let float = ty.dtype.is_float();
        match self.rng.below(100) {
            0..20 if !twins.is_empty() => Expr::Var(carried[self.rng.of(&twins)].inner),
            0..30 if !twins.is_empty() => {
                let other = Expr::Var(carried[self.rng.of(&twins)].inner);
                Expr::binary(BinaryOp::Add, me, other)
            }
            30..36 => inside_of(inside, ty).map_or(me, Expr::Var),
            36..60 if ty.shape.len() == 2 && ty.shape[1] != ONE && ty.dtype == DType::F32 => {
                self.dot(inside, &ty.shape, Some(me))
            }
            60..72 if ty.shape.len() == 2 && ty.shape[1] != ONE && float => {
                // An iteration with a matrix product.
                let (m, n) = (ty.shape[0], ty.shape[1]);
                let (left, shape) = if self.rng.percent(50) { (true, [n, n]) } else { (false, [m, m]) };
                let other = match m == n && self.rng.percent(50) {
                    true => me.clone(),
                    false => self.express(inside, &Type { dtype: ty.dtype, shape: shape.to_vec() }, 1),
                };
                let factors = if left { [me, other] } else { [other, me] };
                let product = Expr::Dot { factors: Box::new(factors), acc: None, precision: Precision::Default };
                let scaled = Expr::binary(BinaryOp::Mul, product, Expr::Splat(0.125, DType::F32, ty.shape.clone()));
                Expr::cast(ty.dtype, scaled)
            }
            72..80 if float => {
                let op = self.rng.of(&[BinaryOp::Max, BinaryOp::Min]);
                Expr::binary(op, me, self.express(inside, ty, 2))
            }
            80..88 => self.express(inside, ty, 3),
            88..92 => me,
            _ => Expr::binary(BinaryOp::Add, me, self.express(inside, ty, 3)),
        }
    }

    /// The operation of a reduction.
    pub(super) fn fold_op(&mut self) -> ReduceOp {
        self.rng.of(&[ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min])
    }
}

/// A value of a type in a scope, preferring later ones.
fn inside_of(scope: &Scope, ty: &Type) -> Option<Name> {
    scope.values.iter().rev().find(|(_, t)| t == ty).map(|(name, _)| *name)
}
