//! Gradients of what is no element-wise function, and by what is no tile of floats.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    tile fn layer(x, w) { gelu(dot(x, w)) }
    tile fn norm(x) { x * rsqrt(sum(x * x, axis = 1)) }
    tile fn swish(x, b) { x * sigmoid(b * x) }
    tile fn pair(x) { (x, x + 1.0) }

    pub kernel slopes(x: &Tensor<f32, [N, D]>, i: &Tensor<i32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            let (a, b) = grad(layer)(rows, rows.t());
            let c = grad(norm)(rows);
            let d = grad(swish)(rows, 2.0);
            let e = grad(gelu)(load(i[n, ..]));
            let f = grad(gelou)(rows);
            let (g, h, k) = grad(swish)(rows, rows);
            let l = grad(pair)(rows);
            let m = grad(gelu);
            let o = grad(swish)(rows);
            let (p, q) = grad(swish)(rows, 0.5);
            let r = jvp(swish)(rows, rows, 1.0);
            let s = jvp(swish)(rows, rows, load(i[n, ..]), 0.0);
            let t = jvp(norm)(rows, rows);
            let u = jvp(gelu);
            store(y[n, ..], r + s + t + u);
            store(y[n, ..], a + b + c + d + e + f + g + h + k + l + m + o + p + q);
        }
    }
}

fn main() {}
