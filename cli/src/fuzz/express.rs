//! Draws random expressions of a given type.

use super::generator::{Generator, Scope, Type};
use super::recipe::{Cut, Expr, Ext, Fill, Name, ONE, ParamRecipe};
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Precision, Predicate, UnaryOp};

/// Constants for arithmetic. The last ones expose differences in rounding to 16 bits.
const CONSTANTS: [f64; 10] = [1.0, -1.0, 0.5, 0.75, 2.0, -0.25, 3.0, 1.0, 256.0, -258.0];

impl Generator {
    /// An expression of a type, with at most `depth` levels.
    pub(super) fn express(&mut self, scope: &Scope, ty: &Type, depth: usize) -> Expr {
        if depth == 0 || self.budget == 0 {
            return self.leaf(scope, ty);
        }
        self.budget -= 1;
        match self.rng.below(100) {
            0..12 => self.leaf(scope, ty),
            12..26 => self.function(scope, ty, depth),
            26..42 => self.arithmetic(scope, ty, depth),
            42..48 => self.select(scope, ty, depth),
            48..57 => self.cast(scope, ty, depth),
            57..66 => self.broadcast(scope, ty, depth),
            66..70 if !ty.shape.is_empty() => {
                let x = self.number_of(ty.dtype);
                Expr::Other(x, Box::new(self.express(scope, ty, depth - 1)))
            }
            66..80 => self.reduce(scope, ty, depth),
            80..92 if ty.shape.len() == 2 && !ty.shape.contains(&ONE) && ty.dtype.is_float() => {
                let product = self.dot(scope, &ty.shape, None);
                if ty.dtype == DType::F32 { product } else { Expr::cast(ty.dtype, product) }
            }
            92..95 if ty.shape.len() == 2 => {
                let turned = Type { dtype: ty.dtype, shape: vec![ty.shape[1], ty.shape[0]] };
                Expr::Transpose(Box::new(self.express(scope, &turned, depth - 1)))
            }
            95..98 if !ty.shape.is_empty() && ty.dtype != DType::Bool => self.scan(scope, ty, depth),
            _ => self.adapted(scope, ty).unwrap_or_else(|| self.arithmetic(scope, ty, depth)),
        }
    }

    fn leaf(&mut self, scope: &Scope, ty: &Type) -> Expr {
        let known: Vec<Name> = scope.values.iter().filter(|(_, t)| t == ty).map(|(name, _)| *name).collect();
        match self.rng.below(100) {
            0..50 if !known.is_empty() => Expr::Var(self.rng.of(&known)),
            0..88 if !ty.shape.is_empty() || self.rng.percent(30) => {
                self.load(scope, ty).unwrap_or_else(|| self.constant(scope, ty))
            }
            _ => self.constant(scope, ty),
        }
    }

    fn constant(&mut self, scope: &Scope, ty: &Type) -> Expr {
        match self.rng.below(10) {
            0..2 if !ty.shape.is_empty() => {
                let axis = self.rng.below(ty.shape.len()) as u8;
                self.as_type(Expr::Iota(ty.shape.clone(), axis), ty.dtype)
            }
            2..4 if ty.dtype.is_float() => {
                let scalar = self.scalar(ty.dtype);
                self.spread(scalar, ty)
            }
            4 if ty.dtype == DType::F32 && !scope.counts.is_empty() => {
                let i = Expr::Var(self.rng.of(&scope.counts));
                self.spread(Expr::Table(Box::new(i)), ty)
            }
            5 if ty.dtype == DType::I32 => {
                let of = self.rng.below(self.recipe.dims.len());
                let e = if self.rng.percent(50) { Expr::Size(of) } else { Expr::Tiles(of) };
                self.spread(e, ty)
            }
            _ => self.number(ty),
        }
    }

    fn number(&mut self, ty: &Type) -> Expr {
        Expr::Splat(self.number_of(ty.dtype), ty.dtype, ty.shape.clone())
    }

    fn number_of(&mut self, dtype: DType) -> f64 {
        let x = self.rng.of(&CONSTANTS);
        if dtype.is_float() { x } else { x.trunc() }
    }

    fn scalar(&mut self, dtype: DType) -> Expr {
        let is = |p: &ParamRecipe| matches!(p, ParamRecipe::Scalar { dtype: d, .. } if *d == dtype);
        if let Some(at) = self.recipe.params.iter().position(is) {
            return Expr::Scalar(at);
        }
        let value = self.rng.of(&[0.5, -1.5, 2.0]);
        self.recipe.params.push(ParamRecipe::Scalar { dtype, value });
        Expr::Scalar(self.recipe.params.len() - 1)
    }

    fn spread(&self, scalar: Expr, ty: &Type) -> Expr {
        if ty.shape.is_empty() { scalar } else { Expr::Broadcast(Box::new(scalar), ty.shape.clone()) }
    }

    fn as_type(&self, e: Expr, dtype: DType) -> Expr {
        if dtype == DType::I32 { e } else { Expr::cast(dtype, e) }
    }

    fn function(&mut self, scope: &Scope, ty: &Type, depth: usize) -> Expr {
        let of = |g: &mut Generator| g.express(scope, ty, depth - 1);
        let functions: Vec<UnaryOp> =
            UnaryOp::ALL.iter().copied().filter(|op| op.row().takes.holds(ty.dtype)).collect();
        let op = self.rng.of(&functions);
        let x = of(self);
        let x = match op {
            UnaryOp::Sqrt if self.rng.percent(25) => {
                let one = Expr::Splat(-1.0, ty.dtype, ty.shape.clone());
                let root = Expr::unary(op, Expr::binary(BinaryOp::Add, x, one));
                return Expr::binary(BinaryOp::Max, root, Expr::Splat(0.0, ty.dtype, ty.shape.clone()));
            }
            UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Log1p | UnaryOp::Sqrt | UnaryOp::Rsqrt if self.rng.percent(85) => {
                let half = Expr::Splat(0.5, ty.dtype, ty.shape.clone());
                Expr::binary(BinaryOp::Add, Expr::unary(UnaryOp::Abs, x), half)
            }
            UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Expm1 | UnaryOp::Sinh | UnaryOp::Cosh if self.rng.percent(70) => {
                let four = Expr::Splat(4.0, ty.dtype, ty.shape.clone());
                Expr::binary(BinaryOp::Min, x, four)
            }
            _ => x,
        };
        Expr::unary(op, x)
    }

    fn arithmetic(&mut self, scope: &Scope, ty: &Type, depth: usize) -> Expr {
        let a = self.express(scope, ty, depth - 1);
        if self.rng.percent(35) {
            let op = self.rng.of(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul]);
            return Expr::binary(op, a, self.number(ty));
        }
        let b = self.express(scope, ty, depth - 1);
        if ty.dtype.is_int() && self.rng.percent(15) {
            let bits = [BinaryOp::BitAnd, BinaryOp::BitOr, BinaryOp::BitXor];
            return match self.rng.percent(50) {
                true => Expr::binary(self.rng.of(&bits), a, b),
                // Counts that are out of range too.
                false => {
                    let others = [BinaryOp::Shl, BinaryOp::Shr, BinaryOp::ShrLogical, BinaryOp::MulHi];
                    Expr::binary(self.rng.of(&others), a, b)
                }
            };
        }
        if ty.dtype.is_float() && self.rng.percent(12) {
            return self.float_function(ty, a, b);
        }
        let common = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Mul, BinaryOp::Min, BinaryOp::Max];
        let op = match self.rng.below(10) {
            0 if ty.dtype.is_int() => {
                // Division by 0 gives 0; the least number divided by -1 does not fit the type.
                let by = match self.rng.percent(50) {
                    true => Expr::unary(UnaryOp::Abs, b),
                    false => Expr::Splat(3.0, ty.dtype, ty.shape.clone()),
                };
                return Expr::binary(self.rng.of(&[BinaryOp::Div, BinaryOp::Rem]), a, by);
            }
            0 => BinaryOp::Div,
            _ => self.rng.of(&common),
        };
        Expr::binary(op, a, b)
    }

    /// A function of two or three floats. A base is above 0 and a point right of the axis of y: beside their other ends an error
    /// of an operand becomes a leap.
    fn float_function(&mut self, ty: &Type, a: Expr, b: Expr) -> Expr {
        let number = |x: f64| Expr::Splat(x, ty.dtype, ty.shape.clone());
        let (half, four, minus) = (number(0.5), number(4.0), number(-4.0));
        let above = |x| Expr::binary(BinaryOp::Add, Expr::unary(UnaryOp::Abs, x), half);
        match self.rng.below(3) {
            0 => {
                let exponent = Expr::binary(BinaryOp::Max, Expr::binary(BinaryOp::Min, b, four), minus);
                Expr::binary(BinaryOp::Pow, above(a), exponent)
            }
            1 => Expr::binary(BinaryOp::Atan2, a, above(b)),
            _ => Expr::Fma(Box::new([a.clone(), b, a])),
        }
    }

    fn select(&mut self, scope: &Scope, ty: &Type, depth: usize) -> Expr {
        let cond = self.condition(scope, &ty.shape, depth - 1);
        let (a, b) = (self.express(scope, ty, depth - 1), self.leaf(scope, ty));
        Expr::Select(Box::new([cond, a, b]))
    }

    fn condition(&mut self, scope: &Scope, shape: &[Ext], depth: usize) -> Expr {
        let p = self.rng.of(Predicate::ALL);
        let one = match self.rng.below(10) {
            0..4 if !shape.is_empty() => {
                let axis = self.rng.below(shape.len()) as u8;
                let limit = Expr::Splat(self.rng.below(20) as f64, DType::I32, shape.to_vec());
                Expr::Compare(p, Box::new([Expr::Iota(shape.to_vec(), axis), limit]))
            }
            9 => {
                // The one comparison of a tile with itself that has a meaning: `is_nan`.
                let ty = Type { dtype: self.rng.of(&[self.dtype, DType::F32]), shape: shape.to_vec() };
                let x = self.express(scope, &ty, depth.min(1));
                Expr::Compare(Predicate::Ne, Box::new([x.clone(), x]))
            }
            _ => {
                let ty = Type { dtype: self.rng.of(&[self.dtype, DType::F32, DType::I32]), shape: shape.to_vec() };
                let pair = [self.express(scope, &ty, depth.min(1)), self.leaf(scope, &ty)];
                Expr::Compare(p, Box::new(pair))
            }
        };
        match self.rng.below(10) {
            0 => Expr::unary(UnaryOp::Not, one),
            1 if depth > 0 => {
                let other = self.condition(scope, shape, 0);
                let ops = [BinaryOp::And, BinaryOp::Or, BinaryOp::BitAnd, BinaryOp::BitOr, BinaryOp::BitXor];
                Expr::binary(self.rng.of(&ops), one, other)
            }
            _ => one,
        }
    }

    fn cast(&mut self, scope: &Scope, ty: &Type, depth: usize) -> Expr {
        let from = [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64, DType::Bool];
        let from = self.rng.of(&from);
        let inner = if from == DType::Bool {
            self.condition(scope, &ty.shape, depth - 1)
        } else if from == ty.dtype || self.rng.percent(30) {
            // To a narrow type and back, which loses precision.
            let between = self.rng.of(&[DType::I32, DType::F16, DType::Bf16, DType::I64]);
            Expr::cast(between, self.express(scope, ty, depth - 1))
        } else {
            self.express(scope, &Type { dtype: from, shape: ty.shape.clone() }, depth - 1)
        };
        Expr::cast(ty.dtype, inner)
    }

    fn broadcast(&mut self, scope: &Scope, ty: &Type, depth: usize) -> Expr {
        if ty.shape.is_empty() {
            return self.leaf(scope, ty);
        }
        let mut shape = ty.shape.clone();
        if self.rng.percent(30) {
            shape.remove(0);
        } else {
            let axis = self.rng.below(shape.len());
            shape[axis] = ONE;
        }
        let narrow = self.express(scope, &Type { dtype: ty.dtype, shape }, depth - 1);
        let wide = Expr::Broadcast(Box::new(narrow), ty.shape.clone());
        if self.rng.percent(40) {
            return wide;
        }
        let op = self.rng.of(&[BinaryOp::Mul, BinaryOp::Add, BinaryOp::Sub]);
        Expr::binary(op, self.express(scope, ty, depth - 1), wide)
    }

    /// A reduction of a larger tile: along an axis of extent 1, otherwise along any axis followed by a broadcast.
    fn reduce(&mut self, scope: &Scope, ty: &Type, depth: usize) -> Expr {
        let op = self.fold_op();
        if ty.shape.is_empty() {
            let rank = 1 + self.rng.below(2);
            let shape: Vec<Ext> = (0..rank).map(|_| self.any_extent()).collect();
            let tile = self.express(scope, &Type { dtype: ty.dtype, shape }, depth - 1);
            let folded = Expr::Reduce(op, Box::new(tile), (0..rank as u8).collect());
            return Expr::Reshape(Box::new(folded), Vec::new());
        }
        let ones: Vec<usize> = (0..ty.shape.len()).filter(|&i| ty.shape[i] == ONE).collect();
        let mut wide = ty.shape.clone();
        let axis = if ones.is_empty() {
            self.rng.below(wide.len())
        } else {
            let axis = self.rng.of(&ones);
            wide[axis] = self.any_extent();
            axis
        };
        let tile = self.folded_tile(scope, &Type { dtype: ty.dtype, shape: wide }, depth - 1);
        let folded = Expr::Reduce(op, Box::new(tile), vec![axis as u8]);
        if ones.is_empty() { Expr::Broadcast(Box::new(folded), ty.shape.clone()) } else { folded }
    }

    /// A scan along any axis.
    fn scan(&mut self, scope: &Scope, ty: &Type, depth: usize) -> Expr {
        let (op, axis, reverse) = (self.fold_op(), self.rng.below(ty.shape.len()) as u8, self.rng.percent(40));
        Expr::Scan { op, of: Box::new(self.folded_tile(scope, ty, depth - 1)), axis, reverse }
    }

    /// The operand of a reduction: often a ragged tile whose zeros are changed by a few operations.
    fn folded_tile(&mut self, scope: &Scope, ty: &Type, depth: usize) -> Expr {
        if self.rng.percent(45) {
            return self.express(scope, ty, depth);
        }
        let mut e = self.load(scope, ty).unwrap_or_else(|| self.constant(scope, ty));
        if ty.dtype.is_float() && self.rng.percent(35) {
            return self.cancelled(e, ty);
        }
        let known = [Expr::Splat(0.75, ty.dtype, ty.shape.clone()), Expr::Splat(256.0, ty.dtype, ty.shape.clone())];
        for _ in 0..1 + self.rng.below(3) {
            e = match self.rng.below(6) {
                0 | 1 if ty.dtype.is_float() => {
                    let number = known[self.rng.below(2)].clone();
                    Expr::binary(self.rng.of(&[BinaryOp::Add, BinaryOp::Sub]), e, number)
                }
                2 if ty.dtype.is_float() => {
                    let between = self.rng.of(&[DType::I32, DType::F16, DType::Bf16, DType::I64]);
                    Expr::cast(ty.dtype, Expr::cast(between, e))
                }
                3 if ty.dtype.is_float() => {
                    Expr::unary(self.rng.of(&[UnaryOp::Exp, UnaryOp::Cos, UnaryOp::Sigmoid]), e)
                }
                4 if ty.dtype.is_float() => {
                    let less = Expr::binary(BinaryOp::Sub, e, Expr::Splat(1.0, ty.dtype, ty.shape.clone()));
                    let none = Expr::Splat(0.0, ty.dtype, ty.shape.clone());
                    Expr::binary(BinaryOp::Max, Expr::unary(UnaryOp::Sqrt, less), none)
                }
                _ => {
                    let other = self.leaf(scope, ty);
                    Expr::binary(self.rng.of(&[BinaryOp::Mul, BinaryOp::Add]), e, other)
                }
            };
        }
        e
    }

    /// Operations that seem to leave a 0 unchanged, but do not, because functions have domains and types round.
    pub(super) fn cancelled(&mut self, e: Expr, ty: &Type) -> Expr {
        let number = |x| Expr::Splat(x, ty.dtype, ty.shape.clone());
        let add = |e, x| Expr::binary(BinaryOp::Add, e, number(x));
        match self.rng.below(4) {
            0 | 1 => {
                // For numbers above 1 this is defined; for invalid elements it is a NaN.
                if let Expr::Load(p, _) = e
                    && let Some(ParamRecipe::Tensor { fill, .. }) = self.recipe.params.get_mut(p)
                {
                    *fill = Fill::Large;
                }
                let root = Expr::unary(UnaryOp::Sqrt, add(e, -1.0));
                Expr::binary(BinaryOp::Max, root, number(0.0))
            }
            2 => {
                let whole = Expr::cast(self.rng.of(&[DType::I32, DType::I64]), add(e, 0.75));
                add(Expr::cast(ty.dtype, whole), -0.75)
            }
            // If the type does not have 257, the rounding error depends on the order.
            _ => add(add(add(add(e, 256.0), 1.0), 1.0), -258.0),
        }
    }

    /// A product in f32, with operands of some type.
    pub(super) fn dot(&mut self, scope: &Scope, shape: &[Ext], acc: Option<Expr>) -> Expr {
        let counted: Vec<Ext> = scope.tiles.iter().map(|&(_, d)| self.recipe.dims[d].tile).collect();
        let k = if !counted.is_empty() && self.rng.percent(50) { self.rng.of(&counted) } else { self.any_extent() };
        let dtype = if self.rng.percent(75) { self.dtype } else { self.rng.of(&[DType::F32, DType::F16, DType::Bf16]) };
        let precision = match dtype {
            DType::F32 => self.rng.of(Precision::ALL),
            _ => Precision::Default,
        };
        let mut factor = |rows: Ext, cols: Ext| {
            let depth = if self.rng.percent(60) { 0 } else { 2 };
            if self.rng.percent(40) {
                let ty = Type { dtype, shape: vec![cols, rows] };
                return Expr::Transpose(Box::new(self.express(scope, &ty, depth)));
            }
            self.express(scope, &Type { dtype, shape: vec![rows, cols] }, depth)
        };
        let factors = [factor(shape[0], k), factor(k, shape[1])];
        Expr::Dot { factors: Box::new(factors), acc: acc.map(Box::new), precision }
    }

    /// A value in scope converted to a type: cast, reduced, broadcast, transposed.
    pub(super) fn adapted(&mut self, scope: &Scope, ty: &Type) -> Option<Expr> {
        if scope.values.is_empty() {
            return None;
        }
        // Later values are preferred, because they depend on earlier ones.
        let at = scope.values.len() - 1 - self.rng.below(scope.values.len()).min(self.rng.below(scope.values.len()));
        let (name, from) = scope.values[at].clone();
        let (mut e, mut shape) = (Expr::Var(name), from.shape);
        if shape.len() == 2 && ty.shape.len() == 2 && shape != ty.shape && shape[0] == ty.shape[1] {
            e = Expr::Transpose(Box::new(e));
            shape.swap(0, 1);
        }
        while shape.len() > ty.shape.len() {
            let op = self.fold_op();
            e = Expr::Reduce(op, Box::new(e), vec![0]);
            shape.remove(0);
            e = Expr::Reshape(Box::new(e), (1..=shape.len() as u8).map(Some).collect());
        }
        let lead = ty.shape.len() - shape.len();
        let op = self.fold_op();
        for (axis, mine) in shape.iter_mut().enumerate() {
            if *mine != ty.shape[axis + lead] && *mine != ONE {
                e = Expr::Reduce(op, Box::new(e), vec![axis as u8]);
                *mine = ONE;
            }
        }
        if from.dtype != ty.dtype {
            e = Expr::cast(ty.dtype, e);
        }
        if shape != ty.shape {
            e = Expr::Broadcast(Box::new(e), ty.shape.clone());
        }
        Some(e)
    }

    /// A load of a type, from an existing parameter or from a new one. `None` if there are too many.
    pub(super) fn load(&mut self, scope: &Scope, ty: &Type) -> Option<Expr> {
        let mut dims = Vec::new();
        let mut cuts = Vec::new();
        if let Some(&(coord, d)) = scope.points.first()
            && self.rng.percent(60)
        {
            dims.push(d);
            cuts.push(Cut::At(Expr::Var(coord)));
        } else if self.rng.percent(6) {
            // An element of another dim, possibly out of range.
            let e = self.any_extent();
            let d = self.dim_of(e);
            let at = self.rng.of(&[0, 1, -1, self.recipe.size(d) as i64]);
            dims.push(d);
            cuts.push(Cut::At(Expr::int(at)));
        }
        for &e in &ty.shape {
            let (d, cut) = self.axis(scope, e);
            dims.push(d);
            cuts.push(cut);
        }
        if dims.is_empty() {
            return None;
        }
        self.gather(scope, ty, &mut cuts);
        let same = |p: &ParamRecipe| match p {
            ParamRecipe::Tensor { dtype, dims: of, out: false, .. } => *dtype == ty.dtype && *of == dims,
            _ => false,
        };
        let param = match self.recipe.params.iter().position(same) {
            Some(at) if self.rng.percent(75) => at,
            _ if self.recipe.params.len() < 7 => self.tensor(ty.dtype, dims, false),
            Some(at) => at,
            None => return None,
        };
        Some(Expr::Load(param, cuts))
    }

    /// Some loads have a tile of places on an axis.
    fn gather(&mut self, scope: &Scope, ty: &Type, cuts: &mut [Cut]) {
        let Some(of_places) = self.of_places.take() else { return };
        let before = std::mem::replace(&mut self.rng, of_places);
        if !ty.shape.is_empty() && self.rng.percent(8) {
            let axis = self.rng.below(ty.shape.len());
            let places = Type { dtype: DType::I32, shape: vec![ty.shape[axis]] };
            let counted = || Expr::Iota(places.shape.clone(), 0);
            let places = match self.rng.below(4) {
                0 => {
                    let number = |x: f64| Expr::Splat(x, DType::I32, places.shape.clone());
                    let (step, by) = (self.rng.of(&[1.0, -1.0, 2.0, 5.0]), self.rng.of(&[0.0, 3.0, -2.0]));
                    let steps = Expr::binary(BinaryOp::Mul, counted(), number(step));
                    Some(Expr::binary(BinaryOp::Add, steps, number(by)))
                }
                _ => self.load(scope, &places),
            };
            let first = cuts.len() - ty.shape.len();
            cuts[first + axis] = Cut::Gather(places.unwrap_or_else(counted));
        }
        self.of_places = Some(std::mem::replace(&mut self.rng, before));
    }

    /// A dim and a cut of it with extent `e`.
    pub(super) fn axis(&mut self, scope: &Scope, e: Ext) -> (usize, Cut) {
        let counted: Vec<(Name, usize)> =
            scope.tiles.iter().copied().filter(|&(_, d)| self.recipe.dims[d].tile == e).collect();
        if !counted.is_empty() && self.rng.percent(80) {
            let (coord, d) = self.rng.of(&counted);
            if self.rng.percent(85) {
                return (d, Cut::Tile(Expr::Var(coord), e));
            }
            // The tile, shifted.
            let len = i64::from(self.recipe.extents[e]);
            let start = Expr::binary(BinaryOp::Mul, Expr::Var(coord), Expr::int(len));
            let by = self.rng.of(&[0, 1, -3, len / 2, -len]);
            return (d, Cut::Span(Expr::binary(BinaryOp::Add, start, Expr::int(by)), e));
        }
        if e == ONE && !scope.points.is_empty() && self.rng.percent(40) {
            // The counted element, or the next one.
            let (coord, d) = self.rng.of(&scope.points);
            let at = match self.rng.of(&[0, 0, 0, 1, -1]) {
                0 => Expr::Var(coord),
                by => Expr::binary(BinaryOp::Add, Expr::Var(coord), Expr::int(by)),
            };
            return (d, Cut::Span(at, ONE));
        }
        let of = if e == ONE { self.any_extent() } else { e };
        let d = self.dim_of(of);
        (d, self.free_cut(d, e))
    }
}
