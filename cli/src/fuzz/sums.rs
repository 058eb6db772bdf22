//! Loops that carry sums, whose iterations several CTAs may share (`split_k`).

use super::generator::{Generator, Scope, Type};
use super::recipe::{Carried, Expr, Ext, Loop, ONE, Stmt};
use atlas_dsl::DType;
use atlas_dsl::op::BinaryOp;

/// How many CTAs share each program: mostly one. The recipe's own seed decides, so that the kernels in which each CTA has a program of
/// its own stay as they are.
pub(super) fn splits(seed: u64) -> u32 {
    match (seed >> 8) % 12 {
        n @ 0..3 => 2 + n as u32,
        _ => 1,
    }
}

impl Generator {
    /// Draws how many CTAs share each program.
    pub(super) fn splits(&mut self) {
        if !self.states {
            self.recipe.schedule.split_k = splits(self.recipe.seed);
        }
    }

    /// A loop that carries sums in f32. Each iteration adds terms to them that do not depend on them.
    pub(super) fn sums(&mut self, scope: &mut Scope, shape: &[Ext]) -> Stmt {
        let mut inside = scope.clone();
        let index = self.name();
        let (lo, hi, counted) = self.bounds(&mut inside, index);
        let mut body = Vec::new();
        self.lets(&mut inside, &mut body);
        let (mut carried, mut types): (Vec<Carried>, Vec<Type>) = (Vec::new(), Vec::new());
        for _ in 0..self.rng.of(&[1, 1, 2, 3]) {
            let ty = Type { dtype: DType::F32, ..self.carried_type(shape, counted, types.last()) };
            let (inner, outer) = (self.name(), self.name());
            self.budget = 5;
            let init = self.start(scope, &ty);
            let mut next = Expr::Var(inner);
            for _ in 0..self.rng.of(&[1, 1, 2]) {
                next = self.with_term(&inside, next, &ty);
            }
            carried.push(Carried { inner, outer, init, next });
            types.push(ty);
        }
        self.sums = carried.iter().map(|c| c.outer).zip(types).collect();
        scope.values.extend(self.sums.iter().cloned());
        Stmt::Loop(Box::new(Loop { pipeline: self.rng.percent(60), lo, hi, index, carried, body }))
    }

    /// A sum and one more term: a product that is added to it, or any value.
    fn with_term(&mut self, inside: &Scope, sum: Expr, ty: &Type) -> Expr {
        let is_matrix = ty.shape.len() == 2 && ty.shape[1] != ONE;
        self.budget = 8;
        match self.rng.below(10) {
            0..5 if is_matrix => self.dot(inside, &ty.shape, Some(sum)),
            0..7 => Expr::binary(BinaryOp::Add, sum, self.express(inside, ty, 3)),
            7..8 => Expr::binary(BinaryOp::Add, self.express(inside, ty, 3), sum),
            _ => Expr::binary(BinaryOp::Sub, sum, self.express(inside, ty, 3)),
        }
    }
}
