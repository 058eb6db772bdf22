//! `atlas fuzz --configs`: random kernels whose meaning does not depend on tile sizes, each compared in several
//! configs.
//!
//! An axis is counted by the grid or by a loop, in tiles whose size the config chooses, or it is used whole. Values
//! have named axes. Tiles along axes of the grid are stored at the position where they are counted, and tiles along the
//! loop's axis are reduced. Slices that do not start at a tile give their start in terms of the tile size. So each
//! output element is the same sum in any config, in another order. Tiles of one element are always among the configs.

use super::recipe::{
    Carried, Cut, DimRecipe, Expr, Ext, Fill, GridRecipe, Loop, Name, ONE, ParamRecipe, Recipe, Rng, Stmt, View,
};
use super::sums::splits;
use super::trial::{Kind, Passed, SCHEDULES, Trial, TrialFailure};
use atlas_codegen::Target;
use atlas_dsl::op::{BinaryOp, Precision, Predicate, ReduceOp, UnaryOp, Update};
use atlas_dsl::{DType, Schedule};

/// Extents: tiles of the grid's axes, tiles of the loop's axis, and the whole axis.
const BN: Ext = 1;
const BM: Ext = 2;
const BK: Ext = 3;
const W: Ext = 4;
/// The dims of these extents, and a dim that the grid counts element by element.
const N: usize = 0;
const M: usize = 1;
const K: usize = 2;
const WHOLE: usize = 3;
const G: usize = 4;
/// The tile sizes that a config may have.
const SIZES: [u32; 8] = [1, 2, 3, 4, 5, 8, 16, 7];
/// The most tensors that are read.
const MOST_INPUTS: usize = 6;

/// Draws a kernel, in one config.
pub(super) fn draw(seed: u64, attempt: u64) -> Recipe {
    let mut rng = Rng::new(seed.wrapping_mul(64).wrapping_add(attempt) ^ 0x5151);
    let whole = rng.of(&[1, 2, 4, 8, 8]);
    let tile = |rng: &mut Rng| rng.of(&SIZES);
    let extents = vec![1, tile(&mut rng), tile(&mut rng), tile(&mut rng), whole];
    let size = |rng: &mut Rng| 1 + rng.below(19) as u64;
    let dim = |size: u64, tile: Ext| DimRecipe { size, whole: tile == W, tile };
    let dims = vec![
        dim(size(&mut rng), BN),
        dim(size(&mut rng), BM),
        dim(size(&mut rng), BK),
        dim(0, W),
        dim(1 + rng.below(3) as u64, ONE),
    ];
    let mut grid = vec![GridRecipe::Tiles(N)];
    if rng.percent(40) {
        grid.push(GridRecipe::Tiles(M));
    }
    if rng.percent(35) {
        grid.insert(0, GridRecipe::Points(G));
    }
    let schedule = Schedule { stages: 1 + rng.below(3) as u32, warps: rng.of(&[1, 1, 2, 4]), ..Schedule::default() };
    let (names, seed) = (grid.len(), rng.next());
    let recipe = Recipe { extents, dims, params: Vec::new(), grid, body: Vec::new(), schedule, seed };
    let mut g = InvariantGenerator { recipe, rng, names, index: None, budget: 24 };
    g.body();
    if carries_one_sum(&g.recipe.body) {
        g.recipe.schedule.split_k = splits(g.recipe.seed);
    }
    g.recipe
}

/// True if a body has one loop, which carries a sum.
fn carries_one_sum(body: &[Stmt]) -> bool {
    let is_sum = |c: &Carried| matches!(c.next, Expr::Dot { .. } | Expr::Binary(BinaryOp::Add, _));
    let mut loops = body.iter().filter_map(|s| if let Stmt::Loop(l) = s { Some(l) } else { None });
    loops.next().is_some_and(|l| l.carried.iter().all(is_sum)) && loops.next().is_none()
}

/// The same kernel in other configs: with all tiles of one element, with those of a single axis of one element, and
/// some others.
pub(super) fn others(recipe: &Recipe) -> Vec<Recipe> {
    let mut rng = Rng::new(recipe.seed);
    let with = |sizes: &[(Ext, u32)]| {
        let mut other = recipe.clone();
        sizes.iter().for_each(|&(e, size)| other.extents[e] = size);
        other
    };
    let mut drawn = || [BN, BM, BK].map(|e| (e, rng.of(&SIZES)));
    let large = [(BN, 16), (BM, 16), (BK, 16)];
    let ones = [(BN, 1), (BM, 1), (BK, 1)];
    let mut all = vec![with(&ones), with(&large), with(&drawn())];
    all.extend(ones.iter().map(|&one| with(&[one])));
    let mut kept: Vec<Recipe> = Vec::new();
    for other in all {
        if other != *recipe && !kept.contains(&other) {
            kept.push(other);
        }
    }
    kept
}

/// Runs a kernel in all its configs. Each must agree with the interpreter, and all with each other. The error has the
/// failing config.
pub(super) fn run(recipe: &Recipe, target: Target) -> Result<Vec<Passed>, Box<(Recipe, TrialFailure)>> {
    let fail = |config: &Recipe, message: String| {
        let failure = TrialFailure { kind: Kind::Config, target, schedule: None, message };
        Box::new((config.clone(), failure))
    };
    let all: Vec<Recipe> = std::iter::once(recipe.clone()).chain(others(recipe)).collect();
    let mut passed = Vec::new();
    let mut first: Option<Trial<'_>> = None;
    for config in &all {
        let mut trial = Trial::new(config)
            .map_err(|e| fail(config, format!("in this config the verifier refuses what it takes in others: {e}")))?;
        let ran = trial.run(target, &SCHEDULES[..1], None);
        passed.push(ran.map_err(|failure| Box::new((config.clone(), failure)))?);
        trial.expected().map_err(|why| fail(config, why))?;
        if let Some(why) = first.as_ref().and_then(|first| trial.differs(first)) {
            return Err(fail(config, format!("{why} with tiles of {:?} and of {:?}", config.extents, all[0].extents)));
        }
        first.get_or_insert(trial);
    }
    Ok(passed)
}

/// Draws a recipe whose meaning does not depend on the size of its tiles.
struct InvariantGenerator {
    recipe: Recipe,
    rng: Rng,
    names: Name,
    /// The variable that counts tiles of the loop's axis, in the loop.
    index: Option<Name>,
    budget: usize,
}

impl InvariantGenerator {
    fn name(&mut self) -> Name {
        self.names += 1;
        self.names - 1
    }

    /// The variable that counts a dim.
    fn coordinate(&self, dim: usize) -> Option<Name> {
        if dim == K { self.index } else { self.recipe.grid.iter().position(|g| g.dim() == dim) }
    }

    fn body(&mut self) {
        let shapes: &[&[Ext]] = match self.coordinate(M) {
            Some(_) => &[&[BN, BM], &[BM, BN]],
            None => &[&[BN, W], &[BN, W], &[W, BN], &[BN]],
        };
        let shape = self.rng.of(shapes).to_vec();
        let mut body = Vec::new();
        let mut found = Vec::new();
        for _ in 0..self.rng.of(&[0, 1, 1, 2]) {
            let (stmt, made) = self.fold_in_loop(&shape);
            body.push(stmt);
            found.push(made);
        }
        let mut value = self.express(&shape, 3);
        for made in found {
            value = Expr::binary(self.rng.of(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Max]), value, made);
        }
        let dtype = self.dtype();
        let (mut dims, mut cuts) = (Vec::new(), Vec::new());
        if let Some(g) = self.coordinate(G) {
            dims.push(G);
            cuts.push(Cut::At(Expr::Var(g)));
        }
        for &e in &shape {
            dims.push(dim_of(e));
            cuts.push(match self.coordinate(dim_of(e)) {
                Some(v) => Cut::Tile(Expr::Var(v), e),
                None => Cut::Whole,
            });
        }
        let out = self.tensor(dtype, dims, true);
        body.push(Stmt::Store(Update::Replace, out, cuts, Expr::cast(dtype, value)));
        self.recipe.body = body;
    }

    fn dtype(&mut self) -> DType {
        self.rng.of(&[DType::F32, DType::F32, DType::F32, DType::Bf16, DType::F16])
    }

    fn tensor(&mut self, dtype: DType, dims: Vec<usize>, out: bool) -> usize {
        let fill = self.rng.of(&[Fill::Quarters, Fill::Quarters, Fill::Uniform]);
        self.recipe.params.push(ParamRecipe::Tensor { dtype, dims, out, view: View::default(), fill });
        self.recipe.params.len() - 1
    }

    /// A loop over the tiles of an axis, and its result, with the extents of `shape`.
    fn fold_in_loop(&mut self, shape: &[Ext]) -> (Stmt, Expr) {
        let (index, inner, outer) = (self.name(), self.name(), self.name());
        self.index = Some(index);
        let me = Expr::Var(inner);
        let axis = self.rng.below(shape.len());
        let product = shape.len() == 2 && self.rng.percent(35);
        let (carried, init, next) = if product {
            let factors = Box::new([self.anchored(&[shape[0], BK]), self.anchored(&[BK, shape[1]])]);
            (shape.to_vec(), 0.0, Expr::Dot { factors, acc: Some(Box::new(me)), precision: Precision::Default })
        } else {
            // The reduced axis comes before the axis of the shape, or after it.
            let (tile, folded) = match self.rng.percent(50) {
                true => ([shape[axis], BK], 1),
                false => ([BK, shape[axis]], 0),
            };
            let (op, fold, init) = self.rng.of(&[
                (BinaryOp::Add, ReduceOp::Sum, 0.0),
                (BinaryOp::Add, ReduceOp::Sum, 0.0),
                (BinaryOp::Max, ReduceOp::Max, -1000.0),
                (BinaryOp::Min, ReduceOp::Min, 1000.0),
            ]);
            let mut carried = tile.to_vec();
            carried[folded] = ONE;
            let tile = Expr::Reduce(fold, Box::new(self.anchored(&tile)), vec![folded as u8]);
            (carried, init, Expr::binary(op, me, tile))
        };
        self.index = None;
        let init = Expr::Splat(init, DType::F32, carried.clone());
        let carries = vec![Carried { inner, outer, init, next }];
        let (lo, hi) = (Expr::int(0), Expr::Tiles(K));
        let body = Loop { pipeline: self.rng.percent(50), lo, hi, index, carried: carries, body: Vec::new() };
        let made = Expr::Var(outer);
        let made = match (product, carried.iter().position(|&e| e == ONE)) {
            (false, Some(folded)) => {
                let line = Expr::Reshape(Box::new(made), vec![Some(1 - folded as u8)]);
                self.along(line, shape, axis)
            }
            _ => made,
        };
        (Stmt::Loop(Box::new(body)), made)
    }

    /// A one-dimensional tile as an axis of a shape, repeated along the other axis.
    fn along(&mut self, line: Expr, shape: &[Ext], axis: usize) -> Expr {
        if shape.len() == 1 {
            return line;
        }
        let axes = if axis == 0 { vec![Some(0), None] } else { vec![None, Some(0)] };
        let mut line = Expr::Reshape(Box::new(line), axes);
        if self.rng.percent(40) {
            line = Expr::Other(self.rng.of(&[5.0, -1.0, 0.0]), Box::new(line));
        }
        Expr::Broadcast(Box::new(line), shape.to_vec())
    }

    /// A value that is valid only where tiles of the loop's axis are. Otherwise elements past the end of the axis would
    /// count.
    fn anchored(&mut self, shape: &[Ext]) -> Expr {
        let (dims, cuts) = shape.iter().map(|&e| (dim_of(e), self.cut(e, false))).unzip();
        let tile = self.loaded(dims, cuts);
        let op = self.rng.of(&[BinaryOp::Add, BinaryOp::Mul, BinaryOp::Sub, BinaryOp::Max]);
        match self.rng.percent(30) {
            true => tile,
            false => Expr::binary(op, tile, self.express(shape, 2)),
        }
    }

    /// A cut of an axis, at the counted tile or shifted.
    fn cut(&mut self, e: Ext, moved: bool) -> Cut {
        let by = Expr::int(self.rng.of(&[-1, 1, -2, 3]));
        match (self.coordinate(dim_of(e)), moved) {
            (Some(v), false) => Cut::Tile(Expr::Var(v), e),
            (Some(v), true) => {
                let first = Expr::binary(BinaryOp::Mul, Expr::Var(v), Expr::Extent(e));
                Cut::Span(Expr::binary(BinaryOp::Add, first, by), e)
            }
            (None, true) => Cut::Span(by, e),
            (None, false) => Cut::Whole,
        }
    }

    fn loaded(&mut self, mut dims: Vec<usize>, mut cuts: Vec<Cut>) -> Expr {
        if let (Some(g), true) = (self.coordinate(G), self.rng.percent(40)) {
            dims.insert(0, G);
            cuts.insert(0, Cut::At(Expr::Var(g)));
        }
        let known = self
            .recipe
            .params
            .iter()
            .position(|p| matches!(p, ParamRecipe::Tensor { dims: of, out: false, .. } if *of == dims));
        let param = match known {
            Some(at) if self.rng.percent(60) || self.recipe.params.len() >= MOST_INPUTS => at,
            _ => {
                let dtype = self.dtype();
                self.tensor(dtype, dims, false)
            }
        };
        match self.recipe.params[param] {
            ParamRecipe::Tensor { dtype: DType::F32, .. } => Expr::Load(param, cuts),
            _ => Expr::cast(DType::F32, Expr::Load(param, cuts)),
        }
    }

    fn load(&mut self, shape: &[Ext]) -> Expr {
        let (mut dims, mut cuts, mut moves) = (Vec::new(), Vec::new(), false);
        for &e in shape {
            if e == ONE {
                // The counted element, the next one, or a constant one.
                let (dim, at) = match self.coordinate(G) {
                    Some(g) if self.rng.percent(60) => {
                        let by = Expr::int(self.rng.of(&[0, 1, -1]));
                        (G, Expr::binary(BinaryOp::Add, Expr::Var(g), by))
                    }
                    _ => (WHOLE, Expr::int(self.rng.of(&[0, 1, -1, 7]))),
                };
                dims.push(dim);
                cuts.push(Cut::Span(at, ONE));
                moves = true;
                continue;
            }
            let moved = self.rng.percent(35);
            moves |= moved;
            dims.push(dim_of(e));
            cuts.push(self.cut(e, moved));
        }
        let tile = self.loaded(dims, cuts);
        // In a loop, an index that is computed there counts as moved by the loop.
        match moves && (self.index.is_some() || self.rng.percent(50)) {
            true => Expr::Other(self.rng.of(&[0.0, 5.0, -2.0]), Box::new(tile)),
            false => tile,
        }
    }

    /// A value with some extents, in f32.
    fn express(&mut self, shape: &[Ext], depth: usize) -> Expr {
        if depth == 0 || self.budget == 0 {
            return match self.rng.percent(85) {
                true => self.load(shape),
                false => Expr::Splat(self.rng.of(&[0.5, -1.0, 3.0]), DType::F32, shape.to_vec()),
            };
        }
        self.budget -= 1;
        let less = depth - 1;
        match (self.rng.below(100), shape) {
            (0..12, _) => self.load(shape),
            (12..22, _) => {
                let f = self.rng.of(&[UnaryOp::Sigmoid, UnaryOp::Cos, UnaryOp::Abs, UnaryOp::Neg, UnaryOp::Exp2]);
                Expr::unary(f, self.express(shape, less))
            }
            (22..30, _) => Expr::Other(self.rng.of(&[0.0, 5.0, -2.0]), Box::new(self.express(shape, less))),
            (30..36, _) => {
                let half = Expr::Splat(0.25, DType::F32, shape.to_vec());
                let cond = Expr::Compare(Predicate::Lt, Box::new([self.load(shape), half]));
                Expr::Select(Box::new([cond, self.express(shape, less), self.express(shape, less)]))
            }
            (36..58, &[a, b]) => {
                let axis = self.rng.below(2);
                let line = self.express(&[[a, b][axis]], less);
                self.along(line, shape, axis)
            }
            (58..64, &[a, b]) => {
                let thin = if self.rng.percent(50) { [a, ONE] } else { [ONE, b] };
                Expr::Broadcast(Box::new(self.express(&thin, less)), shape.to_vec())
            }
            (64..76, _) => {
                let axis = self.rng.below(shape.len());
                let fold = self.rng.of(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min]);
                let (wide, folded) = match self.rng.percent(50) {
                    true => ([shape[axis], W], 1),
                    false => ([W, shape[axis]], 0),
                };
                let tile = Expr::Reduce(fold, Box::new(self.express(&wide, less)), vec![folded]);
                let line = Expr::Reshape(Box::new(tile), vec![Some(1 - folded)]);
                self.along(line, shape, axis)
            }
            (76..80, &[a, b]) => Expr::Transpose(Box::new(self.express(&[b, a], less))),
            (80..86, &[a, b]) => {
                let factors = Box::new([self.express(&[a, W], less), self.express(&[W, b], less)]);
                Expr::Dot { factors, acc: None, precision: Precision::Default }
            }
            (86..90, _) => {
                let axis = self.rng.below(shape.len());
                let counted = Expr::Iota(shape.to_vec(), axis as u8);
                let counted = match self.coordinate(dim_of(shape[axis])).filter(|_| shape[axis] != ONE) {
                    Some(v) => {
                        let first = Expr::binary(BinaryOp::Mul, Expr::Var(v), Expr::Extent(shape[axis]));
                        Expr::binary(BinaryOp::Add, Expr::Broadcast(Box::new(first), shape.to_vec()), counted)
                    }
                    None => counted,
                };
                Expr::cast(DType::F32, counted)
            }
            _ => {
                let op = self.rng.of(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Min]);
                Expr::binary(op, self.express(shape, less), self.express(shape, less))
            }
        }
    }
}

/// The dim of an extent.
fn dim_of(e: Ext) -> usize {
    match e {
        BN => N,
        BM => M,
        BK => K,
        _ => WHOLE,
    }
}
