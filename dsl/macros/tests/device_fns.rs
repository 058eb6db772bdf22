//! Device fns: a kernel that calls them is the one in which their bodies are written out.
#![forbid(unsafe_code)]
#![deny(warnings)]

use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, DType, Kernel, KernelDef, Specialization};
use atlas_macros::atlas_kernel;

mod walks {
    use atlas_macros::atlas_kernel;

    const HALF: f32 = 0.5;

    atlas_kernel! {
        tile fn halved(x) { HALF * x }

        /// `out` = half of `x xᵀ` of one group, and its sum. Upper-case parameters are dims and tile sizes of the kernel.
        pub(crate) device fn gram(x, out, g, R, Q, BR, BQ) {
            let mut total = zeros::<f32>([BR, BR]);
            for r in tiles(R, BR) {
                for c in tiles(R, BR) {
                    let mut product = zeros::<f32>([BR, BR]);
                    for q in pipeline(tiles(Q, BQ)) {
                        product += dot(load(x[g, r, q]), load(x[g, c, q]).t());
                    }
                    let half = halved(product);
                    store(out[g, r, c], half);
                    total += half.or(0.0);
                }
            }
            sum(total)
        }

        /// Calls another one, with its own parameters in another order, and gives two tiles.
        pub(crate) device fn scaled(Q, R, x, out, at, BQ, BR, count) {
            let mut steps = 0.0;
            let mut total = gram(x, out, at, R, Q, BR, BQ);
            for _ in 0..count {
                total = gram(x, out, at, R, Q, BR, BQ);
                total *= 2.0;
                steps += 1.0;
            }
            (total, steps)
        }

        pub(crate) device fn bounded(y, n, v, T) { store(y[n], max(v, f32::NEG_INFINITY) * T[1]); }

        pub(crate) device fn fill(out, g, C, BR, N) {
            for r in tiles(C, BR) { store(out[g, r], zeros::<f32>([BR]) + N + size(C).cast::<f32>() + BR) }
        }
    }
}

/// The same kernel, whatever computes its parts.
macro_rules! kernel {
    ([$($items:tt)*] $($body:tt)*) => {
        atlas_kernel! {
            $($items)*

            pub(crate) kernel grams<T: Float>(
                x: &Tensor<T, [G, M, D]>,
                out: &mut Tensor<f32, [G, M, M]>,
                sums: &mut Tensor<f32, [G, M]>,
                times: i32,
            )
            tune { BM: [16, 32], BD: [32, 64], stages: [2, 3] }
            {
                $($body)*
            }
        }
    };
}

mod called {
    use super::walks;
    use atlas_macros::atlas_kernel;

    kernel! {
        [use walks::{fill, scaled};]
        for g in grid(G) {
            fill(sums, g, M, BM, 3);
            let (mut total, steps) = scaled(D, M, x, out, g, BD, BM, times + 1);
            let again = walks::gram(x, out, g, M, D, BM, BD);
            let mut c = 1.0;
            (total, c) = scaled(D, M, x, out, g, BD, BM, 2);
            for m in tiles(M, BM) {
                store(sums[g, m], load(sums[g, m]) + (total + again + steps + c));
            }
        }
    }
}

mod written {
    use atlas_macros::atlas_kernel;

    const HALF: f32 = 0.5;

    kernel! {
        []
        for g in grid(G) {
            for r in tiles(M, BM) { store(sums[g, r], zeros::<f32>([BM]) + 3 + size(M).cast::<f32>() + BM); }

            let count = times + 1;
            let mut steps = 0.0;
            let mut first = zeros::<f32>([BM, BM]);
            for r in tiles(M, BM) {
                for c in tiles(M, BM) {
                    let mut product = zeros::<f32>([BM, BM]);
                    for q in pipeline(tiles(D, BD)) { product += dot(load(x[g, r, q]), load(x[g, c, q]).t()); }
                    let half = HALF * product;
                    store(out[g, r, c], half);
                    first += half.or(0.0);
                }
            }
            let mut total = sum(first);
            for _ in 0..count {
                let mut next = zeros::<f32>([BM, BM]);
                for r in tiles(M, BM) {
                    for c in tiles(M, BM) {
                        let mut product = zeros::<f32>([BM, BM]);
                        for q in pipeline(tiles(D, BD)) { product += dot(load(x[g, r, q]), load(x[g, c, q]).t()); }
                        let half = HALF * product;
                        store(out[g, r, c], half);
                        next += half.or(0.0);
                    }
                }
                total = sum(next);
                total *= 2.0;
                steps += 1.0;
            }

            let mut third = zeros::<f32>([BM, BM]);
            for r in tiles(M, BM) {
                for c in tiles(M, BM) {
                    let mut product = zeros::<f32>([BM, BM]);
                    for q in pipeline(tiles(D, BD)) { product += dot(load(x[g, r, q]), load(x[g, c, q]).t()); }
                    let half = HALF * product;
                    store(out[g, r, c], half);
                    third += half.or(0.0);
                }
            }
            let again = sum(third);

            let mut c = 0.0;
            let mut fourth = zeros::<f32>([BM, BM]);
            for r in tiles(M, BM) {
                for c in tiles(M, BM) {
                    let mut product = zeros::<f32>([BM, BM]);
                    for q in pipeline(tiles(D, BD)) { product += dot(load(x[g, r, q]), load(x[g, c, q]).t()); }
                    let half = HALF * product;
                    store(out[g, r, c], half);
                    fourth += half.or(0.0);
                }
            }
            total = sum(fourth);
            for _ in 0..2 {
                let mut next = zeros::<f32>([BM, BM]);
                for r in tiles(M, BM) {
                    for c in tiles(M, BM) {
                        let mut product = zeros::<f32>([BM, BM]);
                        for q in pipeline(tiles(D, BD)) { product += dot(load(x[g, r, q]), load(x[g, c, q]).t()); }
                        let half = HALF * product;
                        store(out[g, r, c], half);
                        next += half.or(0.0);
                    }
                }
                total = sum(next);
                total *= 2.0;
                c += 1.0;
            }
            for m in tiles(M, BM) {
                store(sums[g, m], load(sums[g, m]) + (total + again + steps + c));
            }
        }
    }
}

atlas_kernel! {
    /// Beside the kernel: its own parameters hide nothing of the kernel's, and its names none of the kernel's.
    device fn shifted(y, by, n, x) {
        let g = load(y[n]) + by;
        store(x[n], g);
        g * 2.0
    }

    kernel crossed(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, z: &mut Tensor<f32, [N]>, by: f32)
    tune { BN: [16] }
    {
        for g in grid(tiles(N, BN)) {
            let n = by + 1.0;
            let mut twice = shifted(x, n, g, y);
            twice += shifted(x, n, g, y);
            store(z[g], twice * n);
        }
    }

    kernel uncrossed(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, z: &mut Tensor<f32, [N]>, by: f32)
    tune { BN: [16] }
    {
        for g in grid(tiles(N, BN)) {
            let n = by + 1.0;
            let a = load(x[g]) + n;
            store(y[g], a);
            let mut twice = a * 2.0;
            let b = load(x[g]) + n;
            store(y[g], b);
            twice += b * 2.0;
            store(z[g], twice * n);
        }
    }
}

/// A body and an argument that a macro of the user's is given.
macro_rules! ending_in {
    ($body:block, $by:expr, $($kernel:tt)*) => {
        atlas_kernel! {
            tile fn pair(x, by) { (x * by, x + by) }
            device fn both(x, n) { pair(load(x[n]), $by) }
            device fn ends(x, n) $body
            device fn passed(n, x) { ends(x, n) }
            $($kernel)*
        }
    };
}

mod of_a_macro {
    use atlas_macros::atlas_kernel;

    ending_in! { { let (a, b) = both(x, n); (b, a) }, 2.0 + 1.0,
        pub(crate) kernel called(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) tune { BN: [16] } {
            for n in grid(tiles(N, BN)) {
                let (a, b) = passed(n, x);
                store(y[n], a - b);
            }
        }

        pub(crate) kernel written(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) tune { BN: [16] } {
            for n in grid(tiles(N, BN)) {
                let v = load(x[n]);
                let (product, total) = pair(v, 3.0);
                store(y[n], total - product);
            }
        }
    }
}

/// What a call gives: an extent that is computed, a table, a name that only the kernel has, a product that is accumulated.
mod given {
    use super::walks;
    use atlas_macros::atlas_kernel;

    const STEPS: [f32; 2] = [1.0, 2.0];
    /// A parameter of this name is another one.
    #[allow(dead_code, reason = "it would be read if the parameter were not")]
    const W: f32 = 99.0;

    atlas_kernel! {
        device fn product(x, n, d) { dot(load(x[n, d]), load(x[n, d]).t()) }
        /// Ends in a call, as the next one does in one that gives nothing.
        device fn passed(x, d, n) { product(x, n, d) }
        device fn put(y, n, v) { store_bounded(y, n, v, STEPS) }
        device fn store_bounded(y, n, v, T) { walks::bounded(y, n, v, T) }
        device fn two(a, b, W) { (b * W + zeros::<f32>([W / 2, 1]), a) }

        pub(crate) kernel called(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
        tune { BN: [16, 32], BD: [32, 64] }
        {
            for n in grid(tiles(N, BN)) {
                let _given = 7.0;
                let mut a = zeros::<f32>([BN, BN]);
                for d in tiles(D, BD) {
                    a += passed(x, d, n);
                    a -= product(x, n, d);
                }
                let mut b = sum(a, axis = 1);
                let mut c = b + 1.0;
                for _ in 0..3 { (b, c) = two(b, c, 2 * BN); }
                put(y, n, b - c + _given);
            }
        }

        pub(crate) kernel written(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
        tune { BN: [16, 32], BD: [32, 64] }
        {
            for n in grid(tiles(N, BN)) {
                let mut a = zeros::<f32>([BN, BN]);
                for d in tiles(D, BD) {
                    a += dot(load(x[n, d]), load(x[n, d]).t());
                    a -= dot(load(x[n, d]), load(x[n, d]).t());
                }
                let mut b = sum(a, axis = 1);
                let mut c = b + 1.0;
                for _ in 0..3 {
                    let next = c * (2 * BN) + zeros::<f32>([2 * BN / 2, 1]);
                    let before = b;
                    b = next;
                    c = before;
                }
                store(y[n], max(b - c + 7.0, f32::NEG_INFINITY) * STEPS[1]);
            }
        }
    }
}

fn built(def: &'static KernelDef, tiles: &[(&str, u32)]) -> Kernel {
    let mut config = Config::default();
    config.tile.extend(tiles.iter().map(|&(name, size)| (name.to_owned(), size)));
    let spec = def.dims.iter().fold(Specialization::default(), |s, d| s.with_dim(d.name, DimFact::Const(64)));
    let spec = def.types.iter().fold(spec, |s, t| s.with_type(t.name, DType::Bf16));
    (def.build)(&spec, &config).unwrap_or_else(|e| panic!("{}: {e}", def.name))
}

/// Tile IR but for the kernel's name.
fn text(def: &'static KernelDef, tiles: &[(&str, u32)]) -> String {
    built(def, tiles).to_string().replace(def.name, "kernel")
}

#[test]
fn a_device_fn_is_what_its_body_is_in_the_kernel() {
    for tiles in [[("BM", 16), ("BD", 32)], [("BM", 32), ("BD", 64)]] {
        assert_eq!(text(&called::grams, &tiles), text(&written::grams, &tiles));
    }
    for tiles in [[("BN", 16), ("BD", 32)], [("BN", 32), ("BD", 64)]] {
        assert_eq!(text(&given::called, &tiles), text(&given::written, &tiles));
    }
    let tiles = [("BN", 16)];
    assert_eq!(text(&of_a_macro::called, &tiles), text(&of_a_macro::written, &tiles));
    assert_eq!(text(&crossed, &tiles), text(&uncrossed, &tiles));
    // Two kernels that differ.
    assert_ne!(text(&called::grams, &[("BM", 16), ("BD", 32)]), text(&written::grams, &[("BM", 32), ("BD", 32)]));
}

#[test]
fn what_a_device_fn_of_another_module_computes_stands_where_it_is_called() {
    let first = line!() + 12;
    let inside = || {
        mod here {
            atlas_macros::atlas_kernel! {
                pub(crate) device fn noted(x, y, n) {
                    store(y[n], load(x[n]) + 5.0);
                }
            }
        }
        atlas_kernel! {
            use here::noted;
            kernel calls(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
                for n in grid(tiles(N, 16)) { noted(x, y, n) }
            }
        }
        &calls
    };
    let kernel = built(inside(), &[]);
    let lines: Vec<u32> = kernel.insts.keys().map(|inst| kernel.locs[inst].line).collect();
    assert!(lines.iter().all(|&line| line == lines[0] && line.abs_diff(first) < 6), "{lines:?} {first}");
}
