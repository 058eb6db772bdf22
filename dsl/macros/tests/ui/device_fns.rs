//! Mistakes with device fns: in what they are given, in what they hold, and in how they are called.
use atlas_macros::atlas_kernel;

mod walks {
    use atlas_macros::atlas_kernel;

    const ROWS: u32 = 16;
    const HALF: f32 = 0.5;

    atlas_kernel! {
        pub(crate) device fn copied(x, y, n, D, BD) {
            for d in tiles(D, BD) {
                store(y[n, d], load(x[n, d]));
            }
        }
        pub(crate) device fn halves(x, y, n) { store(y[n, 0], HALF * load(x[n, 0])); }
        pub(crate) device fn rows(y, n) { for i in 0..2 { store(y[n, i], sum(zeros::<f32>([ROWS]))); } }
        pub(crate) device fn mixed(x, y, n) { store(y[n, 0], load(x[n, 0]) * load(x[n, ..]).cast::<f16>()); }
    }
}

atlas_kernel! {
    tile fn calls(x, y) { own(x, y); x }
    device fn own(x, y, n) { store(y[n, 0], load(x[n, 0])); }
    device fn typed(x, y, n) { store(y[n, ..], load(x[n, ..]).cast::<T>()); }
    device fn sees(x, y, n) { store(y[n, ..], load(x[n, ..]) + load(z[n, ..]) + by); for d in tiles(D, BD) {} }
    device fn unused(x, y, n, D, BD) { let w = 1.0; store(y[n, 0], load(x[n, 0])); }
    device fn again(x, y, n) { again(x, y, n); }
    device fn first(x, n, n) { load(x[n, 0]) }
    device fn two(x, n) { (load(x[n, 0]), load(x[n, 1])) }
    device fn assigns(x, n) { n += 1; load(x[n, 0]) }
    #[cfg(any())]
    device fn conditional(x, n) { load(x[n, 0]) }
    device fn typed_result(x, n) -> f32 { load(x[n, 0]) }

    kernel rows<T: Float>(x: &Tensor<f32, [N, D]>, z: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>, by: f32)
    tune { BD: [64] }
    {
        for n in grid(N) {
            walks::copied(x, y, n, D);
            walks::copied(x, y, n, x, BD);
            walks::copied(x, y, n, BD, D);
            walks::copied(z, x, n, D, BD);
            walks::copied(x, y, n + 1, D, BD);
            walks::halves(x, y, n);
            walks::rows(y, n);
            walks::mixed(x, y, n);
            own(x, y, n, 3);
            typed(x, y, n);
            sees(x, y, n);
            unused(x, y, n, D, BD);
            again(x, y, n);
            let (a, b, c) = two(x, n);
            let d = two(x, n);
            let e = own(x, y, n);
            two(x, n);
            store(y[n, 0], two(x, n) + grad(two)(x, n) + assigns(x, n) + by);
            let f = assigns(x, n);
            store(y[n, 1], a + b + c + d + e + f + calls(load(x[n, 0]), 1.0) + sum(load(z[n, ..])));
        }
    }
}

/// A mistake of a device fn is reported once, and nothing is said of the kernels that call it.
mod once {
    use atlas_macros::atlas_kernel;

    atlas_kernel! {
        device fn unused(x, n, D) { load(x[n]) }
        device fn unknown(x, y, n) { store(y[n], foo(load(x[n]))); }

        kernel without(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
            for n in grid(N) { let a = unused(x, n, N); store(y[n], a); }
        }
        kernel first(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) { for n in grid(N) { unknown(x, y, n) } }
        kernel second(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) { for n in grid(N) { unknown(x, y, n) } }
    }
}

mod given {
    use atlas_macros::atlas_kernel;

    const TABLE: [f32; 2] = [1.0, 2.0];

    atlas_kernel! {
        device fn put(y, n, K, T) { store(y[n], T[0] * K); }
        device fn sum(y) { y }
        #[cfg_attr(any(), doc = "no cfg")]
        device fn zero(y, n) { store(y[n], 0.0); }
        device fn to(x, y, n) { store(y[n], load(x[n])); }

        kernel k(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
            for n in grid(N) {
                put(y, n, 1.5, TABLE);
                put(y, n, n, TABLE);
                put(y, n, 2, 3);
                zero(y, n);
                to(load(x[n]), y, n);
            }
        }
    }
}

/// A message names what stands in the body, and what the call gives for it.
mod called {
    use atlas_macros::atlas_kernel;

    atlas_kernel! {
        device fn outer(p, q, n, D, BD) { edge(p, q, n, D, BD); elsewhere(q, 0); }
        device fn edge(x, y, m, D, BD) {
            let mut a = zeros::<f32>([BD]);
            for i in tiles(D, BD) { a += load(x[i]); }
            store(y[m], sum(a));
        }
        device fn elsewhere(y, n) { store(y[n], 1.0); }

        kernel k(given: &Tensor<f32, [D]>, y: &mut Tensor<f32, [N]>) tune { BN: [16] } {
            for n in grid(N) { outer(given, y, n, D, BN) }
        }
    }
}

/// What calls itself in a circle ends in a call; nothing is said of what it gives.
mod circle {
    use atlas_macros::atlas_kernel;

    atlas_kernel! {
        device fn a(y, n) { b(y, n) }
        device fn b(y, n) { a(y, n) }

        kernel k(y: &mut Tensor<f32, [N]>) { for n in grid(N) { a(y, n); } }
    }
}

/// Ten thousand stores.
mod many {
    use atlas_macros::atlas_kernel;

    atlas_kernel! {
        device fn a(y, n) { b(y, n); b(y, n); b(y, n); b(y, n); b(y, n); b(y, n); b(y, n); b(y, n); b(y, n); b(y, n) }
        device fn b(y, n) { c(y, n); c(y, n); c(y, n); c(y, n); c(y, n); c(y, n); c(y, n); c(y, n); c(y, n); c(y, n) }
        device fn c(y, n) { d(y, n); d(y, n); d(y, n); d(y, n); d(y, n); d(y, n); d(y, n); d(y, n); d(y, n); d(y, n) }
        device fn d(y, n) { e(y, n); e(y, n); e(y, n); e(y, n); e(y, n); e(y, n); e(y, n); e(y, n); e(y, n); e(y, n) }
        device fn e(y, n) { store(y[n], 1.0); }

        kernel k(y: &mut Tensor<f32, [N]>) { for n in grid(N) { a(y, n); } }
    }
}

mod results {
    use atlas_macros::atlas_kernel;

    atlas_kernel! {
        tile fn ends(x, n) { one(x, n) }
        device fn one(x, n) { load(x[n]) }
        device fn two(x, n) { (load(x[n]), 1.0) }
        device fn added(acc, x, n) { acc + load(x[n]) }
        device fn lower(x, n, m, b) { let mut a = 0.0; for i in tiles(m, b) { a += sum(load(x[i])); } a + size(m) + n }

        kernel k(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) tune { BN: [16] } {
            for n in grid(N) {
                let mut a = 0.0;
                (a, a) = two(x, n);
                let b = one::<f32>(x, n);
                let c = lower(x, n, 1, BN);
                store(y[n], a + b + c);
            }
        }
        kernel carried(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
            for n in grid(N) {
                let mut acc = 0.0;
                for i in 0..size(N) { let acc = added(acc, x, i); }
                store(y[n], acc);
            }
        }
        kernel whole(x: &Tensor<f32, [N]>, y: &mut Tensor<i32, [N]>) {
            for n in grid(N) {
                let mut a = 0.cast::<i32>();
                a += one(x, n);
                store(y[n], a);
            }
        }
    }
}

fn main() {}
