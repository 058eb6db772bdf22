//! Turns some stores of a recipe into atomic ones, at tiles or at places.
//!
//! It draws from a stream of its own, so that recipes in which nothing is atomic stay as they are.

use super::recipe::{Cut, Expr, Ext, ParamRecipe, Recipe, Rng, Stmt, visit_exprs};
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Update};

/// How often an output that is only stored to is combined with.
const PERCENT: usize = 12;

/// Draws for each output whether the kernel combines with it. Sums of 16-bit floats are left out: how they round depends on the
/// order by more than the bounds allow.
pub(super) fn combine(recipe: &mut Recipe) {
    let mut rng = Rng::new(recipe.seed ^ 0xa70);
    for param in 0..recipe.params.len() {
        let &ParamRecipe::Tensor { dtype, out: true, .. } = &recipe.params[param] else { continue };
        if !rng.percent(PERCENT) || is_loaded(recipe, param) {
            continue;
        }
        let update = match dtype {
            DType::F16 | DType::Bf16 => rng.of(&[Update::Max, Update::Min]),
            _ => rng.of(&[Update::Add, Update::Add, Update::Max, Update::Min]),
        };
        let mut body = std::mem::take(&mut recipe.body);
        stores(&mut body, param, &mut |how, cuts, value| {
            *how = update;
            if rng.percent(50) {
                at_places(&mut rng, cuts, value);
            }
        });
        recipe.body = body;
    }
}

fn is_loaded(recipe: &mut Recipe, param: usize) -> bool {
    let mut found = false;
    visit_exprs(&mut recipe.body, &mut |e| found |= matches!(e, Expr::Load(p, _) if *p == param));
    found
}

fn stores(body: &mut [Stmt], param: usize, f: &mut impl FnMut(&mut Update, &mut [Cut], &mut Expr)) {
    for stmt in body {
        match stmt {
            Stmt::Store(how, p, cuts, value) if *p == param => f(how, cuts, value),
            Stmt::Loop(l) => stores(&mut l.body, param, f),
            Stmt::Store(..) | Stmt::Let(..) => {}
        }
    }
}

/// Replaces one tile of an index by places, some of which are outside of the tensor, and some the same.
fn at_places(rng: &mut Rng, cuts: &mut [Cut], value: &mut Expr) {
    let tiles: Vec<(usize, Ext)> = cuts
        .iter()
        .enumerate()
        .filter_map(|(at, c)| if let Cut::Tile(_, e) = c { Some((at, *e)) } else { None })
        .collect();
    if tiles.is_empty() {
        return;
    }
    let (at, e) = rng.of(&tiles);
    let number = |x: f64| Expr::Splat(x, DType::I32, vec![e]);
    let (step, most) = (rng.of(&[1.0, 3.0, 5.0]), rng.of(&[2.0, 7.0, 40.0]));
    let counted = Expr::binary(BinaryOp::Mul, Expr::Iota(vec![e], 0), number(step));
    let places = Expr::binary(BinaryOp::Rem, counted, number(most));
    cuts[at] = Cut::Gather(Expr::binary(BinaryOp::Add, places, number(rng.of(&[0.0, -1.0]))));
    // What the tile's index left out has no place that leaves it out.
    let inner = std::mem::replace(value, Expr::int(0));
    *value = Expr::Other(rng.of(&[0.0, 1.0]), Box::new(inner));
}
