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
    let tiles = [("BN", 16)];
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
