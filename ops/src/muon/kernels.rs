//! The launches of a Muon step on matrices of any size, `B` of one shape at a time.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// The greatest magnitude of each row, and the sum of the squares of the row divided by it: a norm that neither overflows
    /// nor vanishes.
    pub kernel ns_squares<T: Float>(
        g: &Tensor<T, [B, M, N]>,
        largest: &mut Tensor<f32, [B, M]>,
        squares: &mut Tensor<f32, [B, M]>,
    )
    tune { BM: [4, 1, 16], BN: [512, 256, 64], warps: [4, 2] }
    {
        for (b, m) in grid(B, tiles(M, BM)) {
            let mut top = zeros::<f32>([BM, 1]);
            for n in tiles(N, BN) {
                top = max(top, max(abs(load(g[b, m, n]).cast::<f32>()), axis = 1));
            }
            let unit = select(top == 0.0, 1.0, top);
            let mut total = zeros::<f32>([BM, 1]);
            for n in tiles(N, BN) {
                let x = load(g[b, m, n]).cast::<f32>() / unit;
                total += sum(x * x, axis = 1);
            }
            store(largest[b, m], top);
            store(squares[b, m], total);
        }
    }

    /// x = g / max(stretch |g| + eps, least) with the norm of Frobenius. With `safe` above 0, `eps` and `least` are taken of `g` divided
    /// by its greatest magnitude, so that the result does not change with the scale of `g`. `g` has an element type of its own: what
    /// f16 cannot hold before it is normalised, it holds afterwards.
    ///
    /// Epsilon: `eps` is added to the norm, as by Jordan's Muon, or the norm is at least `least`, as by `torch.optim.Muon`.
    pub kernel ns_normalise<T: Float, S: Float>(
        g: &Tensor<S, [B, M, N]>,
        largest: &Tensor<f32, [B, M]>,
        squares: &Tensor<f32, [B, M]>,
        x: &mut Tensor<T, [B, M, N]>,
        stretch: f32,
        eps: f32,
        least: f32,
        safe: i32,
    )
    tune { BM: [16, 4, 32], BN: [64, 128, 256], warps: [4, 2] }
    {
        for (b, m, n) in grid(B, tiles(M, BM), tiles(N, BN)) {
            let tops = load(largest[b, ..]);
            let top = max(tops);
            let unit = select(top == 0.0, 1.0, top);
            let parts = tops / unit;
            let root = sqrt(sum(parts * parts * load(squares[b, ..])));
            let added = select(safe > 0, eps, eps / unit);
            let lowest = select(safe > 0, least, least / unit);
            let by = max(stretch * root + added, lowest);
            store(x[b, m, n], (load(g[b, m, n]).cast::<f32>() / unit / by).cast::<T>());
        }
    }

    /// e = x xᵀ - centre I, each product of two tiles once
    pub kernel ns_gram<T: Float>(x: &Tensor<T, [B, M, N]>, e: &mut Tensor<T, [B, M, M]>, centre: f32)
    tune { BI: [64, 128, 32], BK: [32, 64, 128], stages: [2, 3, 4, 6, 8], warps: [4, 8] }
    {
        for (b, i, j) in grid(B, pairs(tiles(M, BI))) {
            let on_diagonal = i * BI + iota([BI, BI], 0) == j * BI + iota([BI, BI], 1);
            let mut acc = select(on_diagonal, -centre, 0.0);
            for k in pipeline(tiles(N, BK)) {
                acc += dot(load(x[b, i, k]), load(x[b, j, k]).t());
            }
            let es = acc.cast::<T>();
            store(e[b, j, i], es.t());
            store(e[b, i, j], es);
        }
    }

    /// r = first I + second q + third p q of symmetric matrices that commute, such as polynomials of one matrix: so the result
    /// is symmetric, of which each tile below the diagonal is computed.
    pub kernel ns_product<T: Float>(
        p: &Tensor<T, [B, M, M]>,
        q: &Tensor<T, [B, M, M]>,
        r: &mut Tensor<T, [B, M, M]>,
        first: f32,
        second: f32,
        third: f32,
    )
    tune { BI: [64, 128, 32], BK: [32, 64, 128], stages: [2, 3, 4, 6, 8], warps: [4, 8] }
    {
        for (b, i, j) in grid(B, pairs(tiles(M, BI))) {
            let mut acc = zeros::<f32>([BI, BI]);
            for k in pipeline(tiles(M, BK)) {
                acc += dot(load(p[b, i, k]), load(q[b, j, k]).t());
            }
            let on_diagonal = i * BI + iota([BI, BI], 0) == j * BI + iota([BI, BI], 1);
            let linear = third * acc + second * load(q[b, i, j]).cast::<f32>();
            let rs = select(on_diagonal, linear + first, linear).cast::<T>();
            store(r[b, j, i], rs.t());
            store(r[b, i, j], rs);
        }
    }

    /// y = p x
    pub kernel ns_apply<T: Float>(
        p: &Tensor<T, [B, M, M]>,
        x: &Tensor<T, [B, M, N]>,
        y: &mut Tensor<T, [B, M, N]>,
    )
    tune { BM: [64, 128, 32], BN: [64, 128, 32, 256], BK: [32, 64, 128], stages: [2, 3, 4, 6, 8], warps: [4, 8] }
    {
        for (b, m, n) in grid(B, tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(M, BK)) {
                acc += dot(load(p[b, m, k]), load(x[b, k, n]));
            }
            store(y[b, m, n], acc.cast::<T>());
        }
    }

    /// buf = mu buf + fresh g; u = ahead g + momentum buf, which is what is made orthogonal.
    pub kernel muon_momentum<T: Float>(
        g: &Tensor<f32, [M, N]>,
        buf: &mut Tensor<f32, [M, N]>,
        u: &mut Tensor<T, [M, N]>,
        mu: f32,
        fresh: f32,
        ahead: f32,
        momentum: f32,
    )
    tune { BM: [4, 16, 1], BN: [256, 512, 128], warps: [4, 8] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let gs = load(g[m, n]);
            let now = mu * load(buf[m, n]) + fresh * gs;
            store(buf[m, n], now);
            store(u[m, n], (ahead * gs + momentum * now).cast::<T>());
        }
    }

    /// w = keep w - step o
    pub kernel muon_apply<T: Float>(
        w: &mut Tensor<f32, [M, N]>,
        o: &Tensor<T, [M, N]>,
        keep: f32,
        step: f32,
    )
    tune { BM: [4, 16, 1], BN: [256, 512, 128], warps: [4, 8] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            store(w[m, n], keep * load(w[m, n]) - step * load(o[m, n]).cast::<f32>());
        }
    }
}
