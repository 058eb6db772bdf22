//! Loops that carry matrices through products: tiles that are passed on, swapped, squared, started from a common tile,
//! in several widths, and read again after the loop.

use super::generator::{Generator, Scope, Type};
use super::recipe::{Carried, Expr, Ext, Loop, Name, ONE, Stmt};
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Precision, ReduceOp};

/// Extents of matrices that loops carry.
pub(super) const EXTENTS: [u32; 8] = [16, 16, 32, 32, 32, 48, 64, 64];
/// An extent that makes the fragments of one warp too large to hold at once.
const WIDE: u32 = 128;
/// The factor that products are scaled by, so that powers stay small.
const SCALE: f64 = 1.0 / 16.0;

/// A variable that holds a matrix.
type Matrix = (Name, Type);

impl Generator {
    /// A loop that carries matrices of `shape`, and the statements before it.
    pub(super) fn state(&mut self, scope: &mut Scope, shape: [Ext; 2]) -> Vec<Stmt> {
        let mut made = Vec::new();
        let dtype = match self.rng.percent(80) {
            true if self.dtype.is_half() => self.dtype,
            true => self.rng.of(&[DType::F16, DType::Bf16]),
            false => DType::F32,
        };
        let of = |rows: Ext, cols: Ext| Type { dtype, shape: vec![rows, cols] };
        let left = self.bound(scope, &of(shape[0], shape[0]), &mut made);
        let right = self.bound(scope, &of(shape[1], shape[1]), &mut made);
        let first = self.started(scope, &of(shape[0], shape[1]), &mut made);
        let (mut carried, mut states): (Vec<Carried>, Vec<Matrix>) = (Vec::new(), Vec::new());
        for i in 0..self.rng.of(&[1, 2, 2, 2, 3]) {
            let ty = if i == 0 || self.rng.percent(70) { first.1.clone() } else { of(shape[0], self.other_width()) };
            let init = match self.rng.below(10) {
                0..7 if ty == first.1 => Expr::Var(first.0),
                0..9 => self.load(scope, &ty).unwrap_or_else(|| Expr::Splat(0.5, dtype, ty.shape.clone())),
                _ => Expr::Splat(0.5, dtype, ty.shape.clone()),
            };
            let (inner, outer) = (self.name(), self.name());
            carried.push(Carried { inner, outer, init, next: Expr::Var(inner) });
            states.push((inner, ty));
        }
        for (i, c) in carried.iter_mut().enumerate() {
            c.next = self.next_state(&states, i, left.0, right.0);
        }
        scope.values.extend(carried.iter().zip(&states).map(|(c, s)| (c.outer, s.1.clone())));
        let index = self.name();
        let hi = Expr::int(self.rng.of(&[1, 2, 2, 2, 3, 3, 0]));
        let pipeline = self.rng.percent(40);
        let (ends, body): (Vec<Name>, _) = (carried.iter().map(|c| c.outer).collect(), Vec::new());
        made.push(Stmt::Loop(Box::new(Loop { pipeline, lo: Expr::int(0), hi, index, carried, body })));
        // The results are read by products and element-wise, so all of them affect the output.
        let mut all: Option<Expr> = None;
        for (outer, (_, ty)) in ends.into_iter().zip(states) {
            let mut read = self.read_state(outer, &ty, left.0, first.0, first.1 == ty);
            if ty.shape[1] != shape[1] {
                let sum = Expr::Reduce(ReduceOp::Sum, Box::new(read), vec![1]);
                read = Expr::Broadcast(Box::new(sum), shape.to_vec());
            }
            all = Some(match all {
                None => read,
                Some(sum) => Expr::binary(BinaryOp::Sub, sum, read),
            });
        }
        if let Some(e) = all {
            let ty = Type { dtype: DType::F32, shape: shape.to_vec() };
            self.shown = Some(self.let_(scope, &ty, e, &mut made).0);
        }
        made
    }

    /// A loaded matrix with a name.
    fn bound(&mut self, scope: &mut Scope, ty: &Type, made: &mut Vec<Stmt>) -> Matrix {
        let e = self.load(scope, ty).unwrap_or_else(|| Expr::Splat(0.5, ty.dtype, ty.shape.clone()));
        self.let_(scope, ty, e, made)
    }

    /// The initial value of a loop: a loaded matrix, or an element-wise function of one.
    fn started(&mut self, scope: &mut Scope, ty: &Type, made: &mut Vec<Stmt>) -> Matrix {
        let mut e = self.load(scope, ty).unwrap_or_else(|| Expr::Splat(0.5, ty.dtype, ty.shape.clone()));
        if self.rng.percent(75) {
            e = scaled(e, 0.5, ty);
        }
        self.let_(scope, ty, e, made)
    }

    fn let_(&mut self, scope: &mut Scope, ty: &Type, e: Expr, made: &mut Vec<Stmt>) -> Matrix {
        let name = self.name();
        made.push(Stmt::Let(name, e));
        scope.values.push((name, ty.clone()));
        (name, ty.clone())
    }

    fn other_width(&mut self) -> Ext {
        if self.rng.percent(50) {
            self.recipe.schedule.warps = 1;
            return self.extent_of(WIDE);
        }
        let e = self.rng.of(&EXTENTS);
        self.extent_of(e)
    }

    /// The next value of a state: a product, or another state unchanged.
    fn next_state(&mut self, states: &[Matrix], i: usize, left: Name, right: Name) -> Expr {
        let (me, ty) = (states[i].0, &states[i].1);
        let same: Vec<Name> = states.iter().filter(|(n, t)| t == ty && *n != me).map(|(n, _)| *n).collect();
        let twin = if same.is_empty() || self.rng.percent(40) { me } else { self.rng.of(&same) };
        let square = ty.shape[0] == ty.shape[1];
        match self.rng.below(100) {
            0..30 if !same.is_empty() => Expr::Var(self.rng.of(&same)),
            0..65 => product([left, twin], ty),
            65..75 if ty.shape == states[0].1.shape => product([twin, right], ty),
            75..85 if square => product([twin, me], ty),
            85..95 => Expr::binary(BinaryOp::Add, scaled(Expr::Var(me), 0.5, ty), product([left, twin], ty)),
            _ => Expr::binary(BinaryOp::Sub, Expr::Var(me), scaled(Expr::Var(twin), 0.5, ty)),
        }
    }

    /// A value computed from a state after its loop, in f32.
    fn read_state(&mut self, state: Name, ty: &Type, left: Name, first: Name, like_first: bool) -> Expr {
        let wide = |name: Name| Expr::cast(DType::F32, Expr::Var(name));
        let state_and = |e: Expr| Expr::binary(BinaryOp::Add, wide(state), e);
        match self.rng.below(10) {
            0..3 => Expr::Dot {
                factors: Box::new([Expr::Var(left), Expr::Var(state)]),
                acc: None,
                precision: Precision::Default,
            },
            3..6 if like_first => state_and(wide(first)),
            6..7 if ty.shape[1] != ONE => Expr::Dot {
                factors: Box::new([Expr::Var(left), Expr::Var(state)]),
                acc: Some(Box::new(wide(state))),
                precision: Precision::Default,
            },
            _ => state_and(Expr::Splat(1.0, DType::F32, ty.shape.clone())),
        }
    }
}

fn scaled(e: Expr, by: f64, ty: &Type) -> Expr {
    Expr::binary(BinaryOp::Mul, e, Expr::Splat(by, ty.dtype, ty.shape.clone()))
}

/// A scaled product in the type of the state.
fn product(factors: [Name; 2], ty: &Type) -> Expr {
    let factors = Box::new(factors.map(Expr::Var));
    let product = Expr::Dot { factors, acc: None, precision: Precision::Default };
    let scaled = Expr::binary(BinaryOp::Mul, product, Expr::Splat(SCALE, DType::F32, ty.shape.clone()));
    Expr::cast(ty.dtype, scaled)
}
