//! Chains of kernels that read their rows several times: a maker's operations that are the same for all tiles are
//! emitted once.

use super::refusals::has;
use atlas::prelude::*;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{KernelDef, Specialization};

atlas_kernel! {
    /// Reads its row three times: in two loops, and as a tile.
    kernel streamed(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [4], BD: [8], BC: [8], warps: [1] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let mut s = zeros::<f32>([BN, 1]);
            for c in tiles(D, BC) { s += sum(load(x[n, c]), axis = 1); }
            let mut q = full::<f32>([BN, 1], 0.5);
            for c in tiles(D, BC) { let v = load(x[n, c]) - s; q += sum(v * v, axis = 1); }
            store(y[n, d], (load(x[n, d]) - s) * rsqrt(q));
        }
    }

    /// Each row is computed from sums over all rows: a loop moves everything that is read, so nothing can be shared.
    kernel mixed(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [4], BM: [4], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let v = load(x[n, ..]);
            let mut a = zeros::<f32>([1, D]);
            for m in tiles(N, BM) { a += sum(load(x[m, ..]), axis = 0); }
            let mut b = zeros::<f32>([1, D]);
            for m in tiles(N, BM) { b += sum(load(x[span(m * BM, BM), ..]) * a, axis = 0); }
            store(y[n, ..], v + a * 0.125 + b * 0.0625);
        }
    }

    /// Each row is computed from its products with all rows: a loop moves what it reads, and no two tiles share
    /// anything.
    kernel attended(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [4], BM: [4], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let v = load(x[n, ..]);
            let mut a = zeros::<f32>([BN, 1]);
            for m in tiles(N, BM) { a += sum(dot(v, load(x[m, ..]).t()), axis = 1); }
            let mut b = zeros::<f32>([BN, 1]);
            for m in tiles(N, BM) { b += sum(dot(v, load(x[m, ..]).t()) * a, axis = 1); }
            store(y[n, ..], v + a * 0.125 + b * 0.0625);
        }
    }
}

fuse! {
    kernel two = streamed >> streamed;
    kernel three = streamed >> streamed >> streamed;
    kernel six = streamed >> streamed >> streamed >> streamed >> streamed >> streamed;
    kernel twelve = streamed >> streamed >> streamed >> streamed >> streamed >> streamed >> streamed >> streamed >> streamed
        >> streamed >> streamed >> streamed;
    kernel attended_twice = attended >> attended;
    kernel attended_often = attended >> attended >> attended >> attended >> attended >> attended >> attended >> attended
        >> attended >> attended >> attended >> attended;
    kernel mixes = mixed >> mixed >> mixed;
}

fn operations(kernel: &'static KernelDef) -> usize {
    let spec = Specialization::default().with_dim("N", DimFact::Dynamic(1)).with_dim("D", DimFact::Dynamic(1));
    (kernel.build)(&spec, &kernel.default_config()).unwrap_or_else(|e| panic!("{}: {e}", kernel.name)).insts.len()
}

/// On the CPU, a chain launched kernel by kernel and as one fused kernel.
fn agrees(one: &'static KernelDef, times: usize, fused: &'static KernelDef, n: usize, d: usize) {
    let cpu = Device::cpu();
    let x: Vec<f32> = (0..n * d).map(|i| ((i * 37 + 11) % 64) as f32 / 64.0 - 0.5).collect();
    let mut before = cpu.tensor_from(&x, [n, d]).unwrap();
    let mut y = Tensor::zeros(&cpu, DType::F32, [n, d]).unwrap();
    fused.launch(&cpu, args!(&before, &mut y)).unwrap_or_else(|e| panic!("{e}"));
    for _ in 0..times {
        let mut after = Tensor::zeros(&cpu, DType::F32, [n, d]).unwrap();
        one.launch(&cpu, args!(&before, &mut after)).unwrap();
        before = after;
    }
    let (found, wanted) = (y.to_vec::<f32>().unwrap(), before.to_vec::<f32>().unwrap());
    for (i, (f, w)) in found.iter().zip(&wanted).enumerate() {
        assert!((f - w).abs() <= 1e-5 * w.abs().max(1.0), "{} at {i}: {f} for {w}", fused.name);
    }
}

#[test]
fn what_tiles_of_a_row_have_in_common_is_written_once() {
    let counts = [&two, &three, &six, &twelve].map(|k| operations(k));
    // Otherwise each further kernel would triple the number.
    assert!(counts[3] < 20 * counts[1], "{counts:?}");
    agrees(&streamed, 3, &three, 5, 19);
    agrees(&streamed, 6, &six, 5, 19);
    agrees(&streamed, 12, &twelve, 3, 9);
    agrees(&mixed, 3, &mixes, 9, 5);
}

#[test]
fn what_grows_beyond_bounds_is_refused_and_says_where_to_split() {
    agrees(&attended, 2, &attended_twice, 5, 3);
    let cpu = Device::cpu();
    let x = Tensor::zeros(&cpu, DType::F32, [4, 4]).unwrap();
    let mut y = Tensor::zeros(&cpu, DType::F32, [4, 4]).unwrap();
    let said = attended_often.launch(&cpu, args!(&x, &mut y)).unwrap_err().to_string();
    has(&said, "ATL231", &["more than 16384 operations", "`attended` would be written", "split the chain"]);
    has(&said, "ATL641", &["launch them one after the other, or fuse fewer"]);
}
