//! Loops: their bounds, the values that they carry, and the values that may not leave them.

use crate::carried::{combined, stands_past_the_end};
use crate::check::Checker;
use crate::check_memory::not_one_i32;
use crate::symbolic::{Coordinate, Edge, Elem, Number, Size, Ty, broadcasts_to, list};
use crate::tree::{Expr, ExprKind, Loop, Range};
use atlas_vocabulary::{DType, number};

impl<'a> Checker<'a> {
    /// `acc += dot(a, b)`, which accumulates in place.
    pub(crate) fn accumulate(&mut self, local: usize, dot: &Expr) -> Ty {
        let (old, product) = (self.vars[local].clone(), self.expr(dot));
        let name = self.local_name(local);
        let (Some(a), Some(b)) = (&old.shape, &product.shape) else { return product };
        if old.is_literal() || (a.is_empty() && old.elem.agrees(&product.elem)) {
            let zeros = format!("let mut {name} = zeros::<{}>({})", product.elem, list(b));
            return self.mistake(
                105,
                dot.place,
                format!("`{name}` is a number, but accumulates a dot {product}; start with `{zeros}`"),
            );
        }
        if !old.elem.agrees(&product.elem) {
            let (sum, elem) = (&product.elem, &old.elem);
            let message = format!(
                "dot accumulates {sum}, but `{name}` is {old}; make it {sum} where it begins, as in `let mut {name} = zeros::<{sum}>({})`, and convert the sum at its end, by `{name}.cast::<{elem}>()`",
                list(b)
            );
            return self.mistake(105, dot.place, message);
        }
        if a.len() != b.len() || !a.iter().zip(b).all(|(x, y)| x.agrees(y)) {
            let (a, b, sum) = (list(a), list(b), &product.elem);
            let message =
                format!("a dot {b} is added to `{name}` {a}; start with `let mut {name} = zeros::<{sum}>({b})`");
            return self.mistake(107, dot.place, message);
        }
        Ty { depth: self.depth, ..old }.with_edges_of(&[&product])
    }

    pub(crate) fn for_loop(&mut self, l: &'a Loop) {
        let mut index = Ty::scalar(Elem::Fixed(DType::I32));
        index.number = self.local_number(l.index);
        match &l.range {
            Range::Tiles { dim, size, .. } => {
                let name = self.local_name(l.index);
                let tile = Some(Size::of(size, Some(self.kernel)));
                index.coordinate = Some(Coordinate { name, dim: *dim, axis: None, tile });
            }
            Range::Between { lo, hi } => {
                for bound in [lo, hi] {
                    let ty = self.expr(bound);
                    let whole = !matches!(ty.elem, Elem::Literal(Some(x)) if x.fract() != 0.0);
                    let is_tile = ty.shape.as_ref().is_some_and(|s| !s.is_empty());
                    if !whole || !ty.elem.agrees(&Elem::Fixed(DType::I32)) || is_tile {
                        let cure = if is_tile { String::new() } else { not_one_i32(&ty) };
                        self.error(112, bound.place, format!("a loop bound is a scalar i32, found {ty}{cure}"));
                    }
                }
                self.counts_upwards(lo, hi);
                if let (ExprKind::Literal { value, .. }, ExprKind::Size(dim)) = (&lo.kind, &hi.kind)
                    && *value >= 0.0
                {
                    self.counted.push((index.number.clone(), *dim));
                }
            }
        }
        index.depth = self.depth + 1;
        self.vars[l.index] = index;
        let starts: Vec<Elem> = l.carried.iter().map(|&c| self.vars[c].elem.clone()).collect();
        let mut entered: Vec<Ty> = l.carried.iter().map(|&c| carried_in(&self.vars[c], self.depth + 1)).collect();
        // Edges go around the loop until there are no new ones.
        loop {
            for (&c, ty) in l.carried.iter().zip(&entered) {
                self.vars[c] = ty.clone();
            }
            self.depth += 1;
            self.statements(&l.body);
            self.depth -= 1;
            if !self.carry_edges(l, &mut entered) {
                break;
            }
        }
        for ((&c, want), start) in l.carried.iter().zip(entered).zip(starts) {
            let left = self.vars[c].clone();
            let mut is_mistaken = left.shape.is_none();
            if let (Some(a), Some(b)) = (&left.shape, &want.shape)
                && !(left.elem.agrees(&want.elem) && (left.is_literal() || is_same(a, b)))
            {
                let name = self.local_name(c);
                let mend = if left.elem.agrees(&want.elem) && broadcasts_to(a, b) {
                    format!(": write `broadcast(.., {})` where the body assigns it", list(b))
                } else if left.elem.agrees(&want.elem) && broadcasts_to(b, a) {
                    let (elem, wide) = (&left.elem, list(a));
                    let begin = match start {
                        Elem::Literal(Some(0.0)) => format!("zeros::<{elem}>({wide})`"),
                        Elem::Literal(_) => format!("full::<{elem}>({wide}, ..)` with the number that it begins with"),
                        _ => format!("broadcast(.., {wide})` of what it begins with"),
                    };
                    format!(": begin with all of its elements, as in `let mut {name} = {begin}")
                } else {
                    String::new()
                };
                let message = format!(
                    "the loop carries `{name}` as {want}, but its body leaves it {left}; a carried name keeps its type{mend}"
                );
                self.error(116, l.place, message);
                is_mistaken = true;
            }
            let (of_numbers, counts) = (want.of_numbers && left.of_numbers, want.counts && left.counts);
            // A mistake in the body is not reported again after it.
            let ty = if is_mistaken { Ty::unknown() } else { Ty { of_numbers, counts, ..want } };
            self.vars[c] = Ty { depth: self.depth, coordinate: None, number: Number::Unknown, ..ty };
        }
    }

    /// Reports a range that is written downwards, which has no iterations. Equal bounds may come from a user's macro.
    fn counts_upwards(&mut self, lo: &Expr, hi: &Expr) {
        // What counts from below the greater bound down to the smaller one, and what from the greater bound on.
        let (low, high, below, from) = match (&lo.kind, &hi.kind) {
            (ExprKind::Literal { value: low, .. }, ExprKind::Literal { value: high, .. }) if low > high => {
                (number(*low), number(*high), format!("{} - i", number(low + high - 1.0)), number(low + high))
            }
            (ExprKind::Size(dim), ExprKind::Literal { value: 0.0, .. }) => {
                let size = format!("size({})", self.kernel.dims[*dim].name);
                (size.clone(), "0".to_owned(), format!("{size} - 1 - i"), size)
            }
            _ => return,
        };
        let message = format!(
            "the loop `{low}..{high}` never runs, because a loop counts upwards: write `for i in {high}..{low}`, and in its body `{below}`, or `{from} - i` to begin with {low}"
        );
        self.error(112, lo.place, message);
    }

    /// Adds the edges that the body leaves to those of the carried names. True if there are new ones. Edges that the loop moves
    /// are mistakes.
    fn carry_edges(&mut self, l: &Loop, entered: &mut [Ty]) -> bool {
        let mut grown = false;
        let mut leaving = Vec::new();
        for (&c, want) in l.carried.iter().zip(entered) {
            let (moved, still): (Vec<Edge>, Vec<Edge>) =
                self.vars[c].edges.clone().into_iter().partition(|e| e.depth > self.depth);
            let (how, name) = (combined(&l.body, c), self.local_name(c));
            leaving.extend(moved.into_iter().filter(|e| !e.filled).map(|edge| {
                let stands = stands_past_the_end(how, &edge, &want.elem, &name);
                Leaving { edge, name: name.clone(), stands }
            }));
            let before = want.edges.len();
            let left = Ty { edges: still, ..self.vars[c].clone() };
            *want = std::mem::replace(want, Ty::unknown()).with_edges_of(&[&left]);
            grown |= want.edges.len() > before;
        }
        self.report_leaving(leaving);
        grown
    }

    /// Reports tiles with edges that a loop moves. A tile that several names carry is reported once: each may need another
    /// number, so that one `.or` of the tile would be wrong for some.
    fn report_leaving(&mut self, leaving: Vec<Leaving>) {
        let place = |l: &Leaving| format!("{:?} {:?}", l.edge.place.start, l.edge.place.end);
        for (i, first) in leaving.iter().enumerate() {
            if leaving[..i].iter().any(|l| place(l) == place(first)) {
                continue;
            }
            let mut names: Vec<&str> = Vec::new();
            let mut stands: Vec<&str> = Vec::new();
            for l in leaving.iter().filter(|l| place(l) == place(first)) {
                if !names.contains(&l.name.as_str()) {
                    names.push(&l.name);
                    stands.push(&l.stands);
                }
            }
            stands.dedup();
            let carries = if names.len() == 1 { "carries" } else { "carry" };
            let names = names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(" and ");
            let (dim, stands) = (&first.edge.cut.dim_name, stands.join(", and "));
            let message = match first.edge.contracted.as_ref().filter(|other| *other != dim) {
                Some(other) => format!(
                    "the `dot` contracts {other} of this tile and leaves {dim}, along which the loop moves: is a `.t()` missing, or one too many? If not, {names} {carries} it out of the loop: say what stands past the end of {dim}: {stands}"
                ),
                None => format!(
                    "{names} {carries} this tile out of the loop, but how many of its elements lie past the end of {dim} may differ between iterations; reduce {dim} inside the loop, or, if it must stay an axis, say what its elements past the end are: {stands}"
                ),
            };
            self.error(226, first.edge.place, message);
        }
    }
}

/// A tile that a name carries out of a loop, with an edge that the loop moves.
struct Leaving {
    edge: Edge,
    name: String,
    /// What to write past the edge.
    stands: String,
}

/// True if the extents of two tiles are the same.
fn is_same(a: &[Size], b: &[Size]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.agrees(y))
}

/// The type, at the start of a loop's body, of a name that the body assigns.
fn carried_in(before: &Ty, depth: usize) -> Ty {
    let mut ty = Ty { coordinate: None, number: Number::Unknown, spells_tile: None, depth, ..before.clone() };
    // A number carried in is an f32 scalar.
    if ty.is_literal() {
        ty.elem = Elem::Fixed(DType::F32);
        ty.of_numbers = true;
    }
    ty
}
