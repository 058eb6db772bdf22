//! Derivatives of random functions over ragged tiles: valid where the function is, and there the numbers of dual arithmetic.

use crate::support::noise;
use atlas_dsl::builder::Index;
use atlas_dsl::def::{DTypeRef, DimDef, ParamDef};
use atlas_dsl::ir::{Access, Loc};
use atlas_dsl::op::{BinaryOp, LoopKind, Predicate, ReduceOp, UnaryOp};
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Builder, Config, DType, Diagnostics, KernelDef, Operand, Specialization, verify};
use atlas_tile_interp::{Arg, Mode, TensorView, TensorViewMut, run};

/// The arguments: a tile, one that begins elsewhere and so ends elsewhere, a row and a column.
const ARGS: usize = 4;
const SHIFT: usize = 3;

/// A function of the arguments, element by element.
#[derive(Clone, Debug)]
enum Tree {
    Arg(usize),
    Number(f64),
    Unary(UnaryOp, Box<Tree>),
    Binary(BinaryOp, Box<[Tree; 2]>),
    /// `select(a < b, c, d)`
    Choose(Box<[Tree; 4]>),
    Narrow(Box<Tree>),
    Or(f64, Box<Tree>),
    /// The partial derivative by an argument.
    Partial(usize, Box<Tree>),
    /// The derivative along 0.5 in one argument, and along another argument itself.
    Along(usize, usize, Box<Tree>),
}

fn random(seed: &mut u64, depth: u32, derivatives: u32) -> Tree {
    let mut below = |n: u64| {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        (*seed >> 20) % n
    };
    if depth == 0 {
        return match below(7) {
            0 => Tree::Number(below(9) as f64 / 4.0 - 1.0),
            i => Tree::Arg(i as usize % ARGS),
        };
    }
    let kind = below(12);
    let (pick, which, other) = (below(6) as usize, below(ARGS as u64) as usize, below(ARGS as u64) as usize);
    let mut next = |derivatives| random(seed, depth - 1, derivatives);
    match kind {
        0 | 1 => {
            let ops = [UnaryOp::Neg, UnaryOp::Sin, UnaryOp::Tanh, UnaryOp::Abs, UnaryOp::Floor, UnaryOp::Sigmoid];
            let others =
                [UnaryOp::Softplus, UnaryOp::Silu, UnaryOp::Erfc, UnaryOp::Ceil, UnaryOp::Trunc, UnaryOp::Silu];
            Tree::Unary(if kind == 0 { ops[pick] } else { others[pick] }, Box::new(next(derivatives)))
        }
        2..=5 => {
            let ops = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Min];
            Tree::Binary(ops[pick], Box::new([next(derivatives), next(derivatives)]))
        }
        6 => {
            // Nowhere divided by 0.
            let square = Box::new([next(derivatives), Tree::Number(0.0)]);
            let size = Tree::Unary(UnaryOp::Abs, Box::new(Tree::Binary(BinaryOp::Add, square)));
            let over = Tree::Binary(BinaryOp::Add, Box::new([size, Tree::Number(1.5)]));
            Tree::Binary(BinaryOp::Div, Box::new([next(derivatives), over]))
        }
        7 => Tree::Choose(Box::new([(); 4].map(|()| next(derivatives)))),
        8 => Tree::Narrow(Box::new(next(derivatives))),
        9 => Tree::Or(pick as f64 - 2.0, Box::new(next(derivatives))),
        _ if derivatives == 0 => next(0),
        10 => Tree::Partial(which, Box::new(next(derivatives - 1))),
        _ => Tree::Along(which, other, Box::new(next(derivatives - 1))),
    }
}

fn built(tree: &Tree, b: &mut Builder, args: [Operand; ARGS]) -> Operand {
    let loc = Loc::default();
    let tile = |b: &mut Builder, x: Operand| match x.number() {
        Some(x) => b.splat(loc, x, DType::F32, &[]),
        None => x,
    };
    match tree {
        Tree::Arg(i) => args[*i],
        Tree::Number(x) => (*x).into(),
        Tree::Unary(op, x) => {
            let x = built(x, b, args);
            let x = tile(b, x);
            b.unary(loc, *op, x)
        }
        Tree::Binary(op, sides) => {
            let [x, y] = [0, 1].map(|i| built(&sides[i], b, args));
            b.binary(loc, *op, x, y)
        }
        Tree::Choose(parts) => {
            let [x, y, yes, no] = [0, 1, 2, 3].map(|i| built(&parts[i], b, args));
            let cond = b.compare(loc, Predicate::Lt, x, y);
            b.select(loc, cond, yes, no)
        }
        Tree::Narrow(x) => {
            let x = built(x, b, args);
            let x = tile(b, x);
            let narrow = b.cast(loc, DType::F16, x);
            b.cast(loc, DType::F32, narrow)
        }
        Tree::Or(v, x) => {
            let x = built(x, b, args);
            let x = tile(b, x);
            b.other(loc, x, *v)
        }
        Tree::Partial(i, f) => b.gradient(loc, args, |b, args| traced(f, b, args))[*i],
        Tree::Along(i, j, f) => {
            let mut tangents = [Operand::from(0.0); ARGS];
            tangents[*i] = 0.5.into();
            tangents[*j] = args[*j];
            b.jvp(loc, args, tangents, |b, args| traced(f, b, args))
        }
    }
}

/// A function that gives a tile, as every function does that is differentiated.
fn traced(f: &Tree, b: &mut Builder, args: [Operand; ARGS]) -> Operand {
    let result = built(f, b, args);
    match result.number() {
        Some(x) => b.splat(Loc::default(), x, DType::F32, &[1, 1]),
        None => result,
    }
}

/// A number with two infinitesimals: the value, the coefficients of each, and that of both.
type Jet = [f64; 4];

fn mul(x: Jet, y: Jet) -> Jet {
    [
        x[0] * y[0],
        x[0] * y[1] + x[1] * y[0],
        x[0] * y[2] + x[2] * y[0],
        x[0] * y[3] + x[3] * y[0] + x[1] * y[2] + x[2] * y[1],
    ]
}

fn apply(x: Jet, [f, slope, bend]: [f64; 3]) -> Jet {
    [f, slope * x[1], slope * x[2], slope * x[3] + bend * x[1] * x[2]]
}

fn unary(op: UnaryOp, x: Jet) -> Jet {
    let v = x[0];
    apply(
        x,
        match op {
            UnaryOp::Neg => [-v, -1.0, 0.0],
            UnaryOp::Sin => [v.sin(), v.cos(), -v.sin()],
            UnaryOp::Tanh => {
                let t = v.tanh();
                [t, 1.0 - t * t, -2.0 * t * (1.0 - t * t)]
            }
            UnaryOp::Abs => [v.abs(), if v == 0.0 { 0.0 } else { v.signum() }, 0.0],
            UnaryOp::Floor => [v.floor(), 0.0, 0.0],
            UnaryOp::Ceil => [v.ceil(), 0.0, 0.0],
            UnaryOp::Trunc => [v.trunc(), 0.0, 0.0],
            UnaryOp::Softplus => {
                let s = 1.0 / (1.0 + (-v).exp());
                [v.max(0.0) + (-v.abs()).exp().ln_1p(), s, s * (1.0 - s)]
            }
            UnaryOp::Silu => {
                let s = 1.0 / (1.0 + (-v).exp());
                let rest = v * (1.0 - s);
                [v * s, s * (1.0 + rest), s * (1.0 - s) * (2.0 + v * (1.0 - 2.0 * s))]
            }
            UnaryOp::Erfc => {
                let slope = -std::f64::consts::FRAC_2_SQRT_PI * (-v * v).exp();
                [libm::erfc(v), slope, -2.0 * v * slope]
            }
            UnaryOp::Sigmoid => {
                let s = 1.0 / (1.0 + (-v).exp());
                let slope = s * (1.0 - s);
                [s, slope, slope * (1.0 - 2.0 * s)]
            }
            op => panic!("no reference of {}", op.name()),
        },
    )
}

/// The value of a tree where the arguments are these, `None` where it is not valid.
fn value(tree: &Tree, args: &[Option<Jet>; ARGS], depth: usize) -> Option<Jet> {
    let of = |t: &Tree| value(t, args, depth);
    // The derivative with each argument moving by its tangent.
    let moved = |tangents: [Jet; ARGS], f: &Tree| {
        let bit = 1 << depth;
        let seeded = std::array::from_fn(|i| {
            args[i].map(|x| {
                let mut x = x;
                (0..4).filter(|k| k & bit == 0).for_each(|k| x[k | bit] += tangents[i][k]);
                x
            })
        });
        value(f, &seeded, depth + 1).map(|y| {
            let mut slope = [0.0; 4];
            (0..4).filter(|k| k & bit == 0).for_each(|k| slope[k] = y[k | bit]);
            slope
        })
    };
    match tree {
        Tree::Arg(i) => args[*i],
        Tree::Number(x) => Some([*x, 0.0, 0.0, 0.0]),
        Tree::Unary(op, x) => of(x).map(|x| unary(*op, x)),
        Tree::Narrow(x) => of(x),
        Tree::Binary(op, sides) => {
            let (x, y) = (of(&sides[0])?, of(&sides[1])?);
            let zip = |f: fn(f64, f64) -> f64| std::array::from_fn(|k| f(x[k], y[k]));
            Some(match op {
                BinaryOp::Add => zip(|x, y| x + y),
                BinaryOp::Sub => zip(|x, y| x - y),
                BinaryOp::Mul => mul(x, y),
                BinaryOp::Max => {
                    if x[0] > y[0] {
                        x
                    } else {
                        y
                    }
                }
                BinaryOp::Min => {
                    if x[0] < y[0] {
                        x
                    } else {
                        y
                    }
                }
                _ => mul(x, apply(y, [1.0 / y[0], -1.0 / y[0].powi(2), 2.0 / y[0].powi(3)])),
            })
        }
        Tree::Choose(parts) => {
            let [x, y, yes, no] = [0, 1, 2, 3].map(|i| of(&parts[i]));
            let (x, y, yes, no) = (x?, y?, yes?, no?);
            Some(if x[0] < y[0] { yes } else { no })
        }
        Tree::Or(v, x) => Some(of(x).unwrap_or([*v, 0.0, 0.0, 0.0])),
        Tree::Partial(i, f) => {
            let mut tangents = [[0.0; 4]; ARGS];
            tangents[*i][0] = 1.0;
            moved(tangents, f)
        }
        Tree::Along(i, j, f) => {
            let mut tangents = [[0.0; 4]; ARGS];
            tangents[*i][0] = 0.5;
            // Where the argument is not valid, only an `or` can make the derivative so, and then it is flat.
            tangents[*j] = args[*j].unwrap_or([0.0; 4]);
            moved(tangents, f)
        }
    }
}

static SUMS: KernelDef = KernelDef {
    name: "sums",
    doc: "",
    file: "",
    types: &[],
    dims: &[DimDef { name: "M", whole: false }, DimDef { name: "N", whole: false }],
    params: &[
        ParamDef::Tensor { name: "x", dtype: DTypeRef::Fixed(DType::F32), dims: &[0, 1], access: Access::In },
        ParamDef::Tensor { name: "z", dtype: DTypeRef::Fixed(DType::F32), dims: &[1], access: Access::In },
        ParamDef::Tensor { name: "v", dtype: DTypeRef::Fixed(DType::F32), dims: &[0], access: Access::In },
        ParamDef::Tensor { name: "total", dtype: DTypeRef::Fixed(DType::F32), dims: &[0], access: Access::Out },
        ParamDef::Tensor { name: "count", dtype: DTypeRef::Fixed(DType::F32), dims: &[0], access: Access::Out },
    ],
    tune: &[],
    grid: &[],
    requires: &[],
    build: &|_, _| Err(Diagnostics::default()),
    refused: None,
};

/// Sums a function, and counts its elements, along `N`.
fn kernel(tree: &Tree) -> Result<atlas_dsl::Kernel, Diagnostics> {
    let loc = Loc::default();
    let spec = Specialization::default().with_dim("M", DimFact::Dynamic(1)).with_dim("N", DimFact::Dynamic(1));
    let mut b = Builder::new(&SUMS, &spec, &Config::default());
    let (dm, dn) = (b.dim(0), b.dim(1));
    let [x, z, v, total, count] = [0, 1, 2, 3, 4].map(|i| b.param(i));
    let m = b.grid_tiles(dm, 8);
    let zeros = b.zeros(loc, DType::F32, &[8, 1]);
    let tiles = b.tiles(loc, dn, 16);
    let sums = b.for_loop(loc, LoopKind::Carried, 0.into(), tiles, Some(16), &[zeros, zeros], |b, n, carried| {
        let first = b.binary(loc, BinaryOp::Mul, n, 16);
        let shifted = b.binary(loc, BinaryOp::Add, first, SHIFT as i32);
        let column = b.load(loc, v, &[Index::At(m)]);
        let args = [
            b.load(loc, x, &[Index::At(m), Index::At(n)]),
            b.load(loc, x, &[Index::At(m), Index::Span(shifted, 16)]),
            b.load(loc, z, &[Index::At(n)]),
            b.transpose(loc, column),
        ];
        let f = traced(tree, b, args);
        let all = b.broadcast(loc, f, &[8, 16]);
        let none = b.binary(loc, BinaryOp::Mul, all, 0.0);
        let ones = b.binary(loc, BinaryOp::Add, none, 1.0);
        [all, ones]
            .into_iter()
            .zip(carried)
            .map(|(tile, &before)| {
                let sum = b.reduce(loc, ReduceOp::Sum, tile, 1);
                b.binary(loc, BinaryOp::Add, before, sum)
            })
            .collect()
    });
    for (param, sum) in [total, count].into_iter().zip(sums) {
        let sum = b.other(loc, sum, 0.0);
        b.store(loc, param, &[Index::At(m)], sum);
    }
    b.finish()
}

#[test]
fn random_functions_over_ragged_tiles() {
    let (m, n) = (11, 21);
    let (x, z, v) = (noise(5, m * n), noise(6, n), noise(7, m));
    let single = |v: &[f64]| v.iter().map(|&x| f64::from(x as f32)).collect::<Vec<f64>>();
    let (x, z, v) = (single(&x), single(&z), single(&v));
    let bytes = |v: &[f64]| v.iter().flat_map(|&x| (x as f32).to_ne_bytes()).collect::<Vec<u8>>();
    let (xb, zb, vb) = (bytes(&x), bytes(&z), bytes(&v));
    let mut seed = 0x1234_5678_9abc_def1;
    for case in 0..1500 {
        let tree = random(&mut seed, 1 + case % 5, 2);
        let built = kernel(&tree).unwrap_or_else(|e| panic!("{e}\n{tree:?}"));
        let built = verify(built).unwrap_or_else(|e| panic!("{e}\n{tree:?}")).into_inner();
        let mut outputs = [vec![0u8; m * 8], vec![0u8; m * 8]];
        let [total, count] = &mut outputs;
        let (dm, dn) = (m as u64, n as u64);
        let args = vec![
            Arg::In(TensorView::contiguous(DType::F32, &xb, &[dm, dn]).unwrap()),
            Arg::In(TensorView::contiguous(DType::F32, &zb, &[dn]).unwrap()),
            Arg::In(TensorView::contiguous(DType::F32, &vb, &[dm]).unwrap()),
            Arg::Out(TensorViewMut::contiguous(DType::F64, total, &[dm]).unwrap()),
            Arg::Out(TensorViewMut::contiguous(DType::F64, count, &[dm]).unwrap()),
        ];
        run(&built, &[dm, dn], args, Mode::F64).unwrap_or_else(|e| panic!("{e}\n{tree:?}"));
        let found =
            outputs.map(|o| o.chunks_exact(8).map(|b| f64::from_ne_bytes(b.try_into().unwrap())).collect::<Vec<_>>());
        let mut wanted = [vec![0.0; m], vec![0.0; m]];
        let [totals, counts] = &mut wanted;
        for (i, (total, count)) in totals.iter_mut().zip(counts).enumerate() {
            // The last tile has 16 elements, though the dim ends before.
            for j in 0..n.next_multiple_of(16) {
                let at = |v: &[f64], row: usize, inside: bool| inside.then(|| [v[row], 0.0, 0.0, 0.0]);
                let args = [
                    at(&x, i * n + j, j < n),
                    at(&x, i * n + j + SHIFT, j + SHIFT < n),
                    at(&z, j, j < n),
                    at(&v, i, true),
                ];
                if let Some(y) = value(&tree, &args, 0) {
                    *total += y[0];
                    *count += 1.0;
                }
            }
        }
        assert_eq!(found[1], wanted[1], "elements that are valid of case {case}: {tree:?}");
        let scale = wanted[0].iter().fold(1.0f64, |a, b| a.max(b.abs()));
        for (f, w) in found[0].iter().zip(&wanted[0]) {
            assert!((f - w).abs() <= 1e-9 * scale, "case {case}: got {f}, want {w}: {tree:?}");
        }
    }
}
