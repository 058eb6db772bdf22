//! Stores that resemble a forgotten `.t()` and are right: each kernel builds.
#![forbid(unsafe_code)]

use atlas_dsl::Specialization;
use atlas_dsl::specialization::DimFact;
use atlas_macros::atlas_kernel;

atlas_kernel! {
    kernel both_of_a_pair(x: &Tensor<f32, [M, K]>, y: &mut Tensor<f32, [M, M]>)
    tune { BM: [32], BK: [32] }
    {
        for (i, j) in grid(pairs(tiles(M, BM))) {
            let mut acc = zeros::<f32>([BM, BM]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[i, k]).or(0.0), load(x[j, k]).or(0.0).t());
            }
            store(y[i, j], acc);
            store(y[j, i], acc.t());
        }
    }

    kernel sums_of_both(x: &Tensor<f32, [M, M]>, y: &mut Tensor<f32, [M, M]>)
    tune { BM: [32] }
    {
        for (i, j) in grid(pairs(tiles(M, BM))) {
            let below = load(x[i, j]).or(0.0);
            let above = load(x[j, i]).or(0.0);
            store(y[i, j], below + above.t());
            store(y[j, i], below.t() + above);
        }
    }

    kernel rows_and_columns(x: &Tensor<f32, [M]>, y: &mut Tensor<f32, [M, M]>)
    tune { BM: [32] }
    {
        for (i, j) in grid(tiles(M, BM), tiles(M, BM)) {
            store(y[j, i], load(x[j]).or(0.0).t() - broadcast(load(x[i]).or(0.0), [1, BM]));
        }
    }

    /// Blocks that are meant to stay as they are.
    kernel blocks(x: &Tensor<f32, [M, N]>, y: &mut Tensor<f32, [N, M]>)
    tune { B: [32] }
    {
        for (m, n) in grid(tiles(M, B), tiles(N, B)) {
            store(y[n, m], load(x[span(m * B, B), span(n * B, B)]).or(0.0));
        }
    }

    kernel elements(x: &Tensor<f32, [M, N]>, y: &mut Tensor<f32, [N, M]>)
    tune { B: [1] }
    {
        for (m, n) in grid(tiles(M, B), tiles(N, B)) {
            store(y[n, m], load(x[m, n]).or(0.0));
        }
    }

    /// The loop moves a filled tile, which says nothing of what it carries.
    kernel columns(x: &Tensor<f32, [M, K]>, y: &mut Tensor<f32, [M, K]>)
    tune { B: [32] }
    {
        for (m, k) in grid(tiles(M, B), tiles(K, B)) {
            let mut total = zeros::<f32>([B, B]);
            for l in pipeline(tiles(K, B)) {
                total += load(x[m, l]).or(0.0);
            }
            store(y[m, k], total);
        }
    }
}

#[test]
fn what_is_right_is_accepted() {
    for def in [&both_of_a_pair, &sums_of_both, &rows_and_columns, &blocks, &elements, &columns] {
        let dims = def.dims.iter().map(|d| d.name);
        let spec = dims.fold(Specialization::default(), |spec, dim| spec.with_dim(dim, DimFact::Dynamic(1)));
        let built = (def.build)(&spec, &def.default_config()).and_then(atlas_dsl::verify);
        assert!(built.is_ok(), "{}: {:?}", def.name, built.err());
    }
}
