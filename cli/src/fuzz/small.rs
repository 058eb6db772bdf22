//! Makes some tensors of a recipe hold integers below 32 bits or floats of 8 bits, which are converted where they are loaded and stored.
//!
//! It draws from streams of its own, so that recipes in which no tensor changes stay as they are.

use super::recipe::{Expr, ParamRecipe, Recipe, Rng, Stmt};
use atlas_dsl::DType;
use atlas_dsl::op::Update;

/// How often a tensor holds small integers, and how often one of floats holds those of 8 bits.
const PERCENT: usize = 5;
const PERCENT_OF_FLOATS: usize = 3;

/// Draws for each tensor whether it holds small elements. A loaded tile is converted to the type that the tensor had. Atomic stores
/// take no small elements, and integers do not convert to floats of 8 bits.
pub(super) fn shrink_elements(recipe: &mut Recipe) {
    let mut rng = Rng::new(recipe.seed ^ 0x5a11);
    let mut of_floats = Rng::new(recipe.seed ^ 0xf8);
    for param in 0..recipe.params.len() {
        let whole = rng.of(&[DType::I8, DType::U8, DType::I8, DType::U8, DType::I16, DType::U16]);
        let is_whole = rng.percent(PERCENT);
        let float = of_floats.of(&[DType::F8E4M3, DType::F8E5M2]);
        let is_float = of_floats.percent(PERCENT_OF_FLOATS);
        let is_drawn = (is_whole || is_float) && !is_combined(&recipe.body, param);
        let ParamRecipe::Tensor { dtype, .. } = &mut recipe.params[param] else { continue };
        if is_drawn && (is_whole || dtype.is_float()) {
            let small = if is_whole { whole } else { float };
            let wide = std::mem::replace(dtype, small);
            convert(&mut recipe.body, param, small, wide);
        }
    }
}

fn is_combined(body: &[Stmt], param: usize) -> bool {
    body.iter().any(|stmt| match stmt {
        Stmt::Store(update, p, ..) => *p == param && *update != Update::Replace,
        Stmt::Loop(l) => is_combined(&l.body, param),
        Stmt::Let(..) => false,
    })
}

fn convert(body: &mut [Stmt], param: usize, small: DType, wide: DType) {
    for stmt in body {
        stmt.exprs_mut().into_iter().for_each(|e| widen(e, param, wide));
        match stmt {
            Stmt::Store(_, p, _, value) if *p == param => wrap(value, small),
            Stmt::Loop(l) => convert(&mut l.body, param, small, wide),
            Stmt::Store(..) | Stmt::Let(..) => {}
        }
    }
}

/// Converts each load of a parameter in an expression.
fn widen(e: &mut Expr, param: usize, wide: DType) {
    e.children_mut().into_iter().for_each(|child| widen(child, param, wide));
    if matches!(e, Expr::Load(p, _) if *p == param) {
        wrap(e, wide);
    }
}

fn wrap(e: &mut Expr, to: DType) {
    let inner = std::mem::replace(e, Expr::int(0));
    *e = Expr::cast(to, inner);
}
