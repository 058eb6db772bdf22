//! Operators, statements and loops of other languages: tests/agreement/advice_elsewhere.rs has what to write.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel operators(x: &Tensor<f32, [N, D]>, i: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let mut a = load(x[n, ..]);
            let b = a @ a;
            let c = a > 0.0 ? a : 0.0;
            let mut d = a > 0.0 and a < 1.0 or a > 2.0;
            d &&= a > 3.0;
            d ||= a > 4.0;
            let g = a?;
            let h = not d;
            let e = n as usize + load(i[n]) as f32;
            y[n, ..] += a;
            y[n, ..] = b;
            y += c;
            (y[n, ..], a) = e;
            store(y[n, ..], select(d && h, a + g, np.pi));
        }
    }

    pub kernel branches(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let mut a = load(x[n, ..]);
            if n > 0 { store(y[n, ..], a); }
            if n > 0 { a += 1.0; } else { a = 0.0; }
            if n > 0 { return; }
            for k in 0..4 { break; }
            for k in 0..4 { continue; }
            while n < 4 { a += 1.0; }
            return a;
        }
    }

    pub kernel loops(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            for k in (0..16).step_by(4) { store(y[n, ..], 0.0); }
            for k in (0..size(N)).step_by(BN) { store(y[n, ..], 0.0); }
            for k in (0..16).rev() { store(y[n, ..], 0.0); }
            for k in 0..=16 { store(y[n, ..], 0.0); }
            for k in ..16 { store(y[n, ..], 0.0); }
            for k in 16 { store(y[n, ..], 0.0); }
            for k in n { store(y[n, ..], 0.0); }
            for k in D { store(y[n, ..], 0.0); }
            for k in range(4) { store(y[n, ..], 0.0); }
            for k in tl::static_range(2, 4) { store(y[n, ..], 0.0); }
            for k in range(0, 16, 4) { store(y[n, ..], 0.0); }
            store(y[n, ..], load(x[n, ..]));
        }
    }

    pub kernel ranks(x: &Tensor<f32, [B, N, D]>, v: &Tensor<f32, [N]>, y: &mut Tensor<f32, [B, N, D]>)
    tune { BN: [64, 128] }
    {
        for (b, n) in grid(B, tiles(N, BN)) {
            let t = load(x[b, n]) + load(x[n]) + load(x[0]) + load(x[b][n][..]) + load(x) + x[b, n, ..];
            let u = load(v[b, n, ..]) + load(v[n, ..]) + load(x[b, n, ..]);
            store(y[b, n], t + u);
        }
    }
}

fn main() {}
