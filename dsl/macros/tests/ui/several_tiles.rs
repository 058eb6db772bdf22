//! Functions that give several tiles, and too few or too many names for them.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    tile fn both(x) { (x + 1.0, x * 2.0) }
    tile fn grown(x) { x = x + 1.0; x }

    pub kernel split(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            let a = both(xs);
            let (b, c, d) = both(xs);
            let (e, f) = xs;
            let (g, h) = (xs, xs);
            let mut k = xs;
            (k, k) = both(xs);
            (y, k) = both(xs);
            let (l, (m, o)) = both(xs);
            store(y[n], a + b + c + d + e + f + g + h + k + l + m + o + grown(xs));
        }
    }
}

fn main() {}
