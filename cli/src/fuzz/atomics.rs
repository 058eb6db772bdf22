//! Turns some stores of a recipe into atomic ones, at tiles or at places, or into stores at places that do not meet.
//!
//! It draws from a stream of its own, so that recipes in which nothing is atomic stay as they are.

use super::recipe::{Cut, Expr, Ext, ParamRecipe, Recipe, Rng, Stmt, visit_exprs};
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Update};

/// How often an output that is only stored to is combined with.
const PERCENT: usize = 12;

/// How often an output with one store, which nothing else is done with, is stored to at places.
const DISJOINT_PERCENT: usize = 10;

/// Draws for each output whether the kernel combines with it, or stores to it at places. Sums of 16-bit floats are left out: how
/// they round depends on the order by more than the bounds allow.
pub(super) fn combine(recipe: &mut Recipe) {
    let mut rng = Rng::new(recipe.seed ^ 0xa70);
    for param in 0..recipe.params.len() {
        let &ParamRecipe::Tensor { dtype, out: true, .. } = &recipe.params[param] else { continue };
        let [combines, places] = [PERCENT, DISJOINT_PERCENT].map(|percent| rng.percent(percent));
        if is_loaded(recipe, param) {
            continue;
        }
        if !combines {
            if places {
                turn_around(&mut recipe.body, param);
            }
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

/// Makes the only store to an output one at places: those of one tile of its index, from the last to the first.
fn turn_around(body: &mut [Stmt], param: usize) {
    let mut count = 0;
    stores(body, param, &mut |_, _, _| count += 1);
    // An iteration of a loop may store where the one before did.
    let only = body.iter_mut().find_map(|stmt| match stmt {
        Stmt::Store(how, p, cuts, value) if *p == param => Some((how, cuts, value)),
        _ => None,
    });
    let Some((how, cuts, value)) = only.filter(|_| count == 1) else { return };
    *how = Update::Disjoint;
    for cut in cuts {
        let Cut::Tile(index, e) = cut else { continue };
        let [each, index] = [Expr::Extent(*e), index.clone()];
        let end = Expr::binary(BinaryOp::Add, Expr::binary(BinaryOp::Mul, index, each.clone()), each);
        let end = Expr::Broadcast(Box::new(Expr::Reshape(Box::new(end), vec![None])), vec![*e]);
        let before = Expr::binary(BinaryOp::Add, Expr::Iota(vec![*e], 0), Expr::Splat(1.0, DType::I32, vec![*e]));
        *cut = Cut::Gather(Expr::binary(BinaryOp::Sub, end, before));
        let inner = std::mem::replace(value, Expr::int(0));
        *value = Expr::Other(0.0, Box::new(inner));
        return;
    }
}
