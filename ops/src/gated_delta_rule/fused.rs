//! The rule chunk by chunk, outputs and all, by one program for each tile of values: for many heads.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// Reads and trains a memory over a sequence. It is carried with its values in rows, so that it is the left operand of all products
    /// and stays in registers.
    pub kernel delta_rule<T: Float>(
        q: &Tensor<T, [B, N, J, D]>,
        k: &Tensor<T, [B, N, J, D]>,
        v: &Tensor<T, [B, N, H, E]>,
        t: &Tensor<T, [B, H, C, L, L]>,
        p: &Tensor<T, [B, H, C, L, L]>,
        reach: &Tensor<f32, [B, H, C, L]>,
        tail: &Tensor<f32, [B, H, C, L]>,
        s: &mut Tensor<f32, [B, H, D, E]>,
        o: &mut Tensor<T, [B, N, H, E]>,
        scale: f32,
    )
    tune { BE: [32, 64, 16], stages: [2, 1, 3], warps: [8, 4], warp_grid: [2x4, 4x1] }
    require { H % J == 0, C * L >= N }
    {
        for (b, h, e) in grid(B, H, tiles(E, BE)) {
            let j = h / (size(H) / size(J));
            let mut se = load(s[b, h, .., e]).t();
            for c in pipeline(0..size(C)) {
                let first = c * size(L);
                let kc = load(k[b, span(first, L), j, ..]);
                let qc = load(q[b, span(first, L), j, ..]);
                let vc = load(v[b, span(first, L), h, e]);
                let tc = load(t[b, h, c, .., ..]);
                let left = load(reach[b, h, c, ..]);
                let held = se.cast::<T>();
                let seen = (-(left * dot(held, kc.t()))).cast::<T>();
                let mut step = dot(vc.t(), tc.t());
                step += dot(seen, tc.t());
                let kept = (step * load(tail[b, h, c, ..])).cast::<T>();
                let mut out = left * dot(held, qc.t());
                out += dot(step.cast::<T>(), load(p[b, h, c, .., ..]).t());
                store(o[b, span(first, L), h, e], (scale * out).cast::<T>().t());
                se = load(reach[b, h, c, size(L) - 1]) * se;
                se += dot(kept, kc);
            }
            store(s[b, h, .., e], se.t());
        }
    }
}
