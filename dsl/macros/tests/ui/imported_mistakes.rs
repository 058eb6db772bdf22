//! Mistakes with tile fns of other modules: they are shown where the function is named or called.
use atlas_macros::atlas_kernel;

mod math {
    use atlas_macros::atlas_kernel;

    atlas_kernel! {
        pub tile fn normalize(z) { z / total(z) }
        tile fn total(z) { sum(z, axis = 1) }
        pub tile fn both(x) { (x + 1.0, x * 2.0) }
        pub tile fn mixed(x, y) { x.cast::<f32>() + y }
        pub tile fn broken(x) { nothing(x) }
        pub tile fn broken_too(x) { broken(x) + broken_too(x) }
    }
}

atlas_kernel! {
    use math::{both, broken, broken_too, normalize};

    kernel rows(x: &Tensor<f32, [N]>, h: &Tensor<f16, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            let (a, b, c) = both(xs);
            store(y[n], normalize(xs) + normalize(xs, xs) + both(xs) + normalize::<f32>(xs) + a + b + c);
            store(y[n], math::mixed(xs, load(h[n])) + grad(normalize)(xs) + normalise(xs) + broken(xs) + broken_too(xs));
        }
    }
}

atlas_kernel! {
    use math::*;
    use math::normalize as sum;
    use math::both;
    use math::normalize;
    pub use math::normalize as passed_on;
    #[allow(unused)]
    use math::mixed;
    tile fn mixed(x) { x + f32::sqrt(x) + std::convert::identity(x) }
    tile fn both(x) { x }

    kernel uses(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 16)) { store(y[n], mixed(both(passed_on(load(x[n])))) + math::normalize); }
    }
}

fn main() {}
