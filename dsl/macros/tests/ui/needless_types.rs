//! Element types given to what takes none.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    tile fn f(x) { x }
    tile fn two(x) { (x, x) }

    pub kernel k(x: &Tensor<f16, [N, D]>, y: &mut Tensor<f16, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let a = load::<f32>(x[n, ..]);
            let b = sum::<f32>(load(x[n, ..]), axis = 1);
            let c = f::<f64>(load(x[n, ..]));
            let d = load(x[n, ..]).exp::<f32>();
            let e = load(x[n, ..]).or::<f32>(0.0).t::<f16>();
            let (g, h) = two::<f32>(a);
            let i = grad::<f32>(f)(a);
            let j = load(x[n, span::<i32>(0, 8)]);
            let k = dot::<f32>(d, e).precision::<f32>(tf32);
            let l = f16::exp(d) + ::exp(d) + <f32>::exp(d);
            store::<f16>(y[n], b);
        }
    }

    pub kernel loops(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles::<u32>(N, 64)) {
            let mut a = load(x[n]);
            for i in pipeline::<u32>(tiles(N, 64)) { a += 1.0; }
            store(y[n], a);
        }
    }
}

fn main() {}
