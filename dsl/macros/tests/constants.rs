//! Numbers, tables and extents that come from Rust consts: each is the const that was named.
#![forbid(unsafe_code)]

use atlas_dsl::op::Op;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, Kernel, KernelDef, Specialization};
use atlas_macros::atlas_kernel;

mod a {
    pub(crate) const COEFFS: [f32; 2] = [1.0, 2.0];
    pub(crate) const SIGNS: [f32; 1] = [0.0];
}
mod b {
    pub(crate) const COEFFS: [f32; 2] = [1.0, 20.0];
    pub(crate) const SIGNS: [f32; 1] = [-0.0];
}
const LEAST: f32 = f32::NEG_INFINITY;
const NONE: f64 = f64::NAN;
const BELOW: f32 = -0.0;
const COUNT: u64 = 7;
const LARGE: u64 = u64::MAX;
const SMALL: u8 = 8;
const WIDE: usize = 32;
const TINY: u8 = 200;
const SHORT: i16 = -300;
const PLACE: isize = -5;
const HALF: half::f16 = half::f16::from_f32_const(0.1);
const BRAIN: half::bf16 = half::bf16::from_f32_const(0.1);
const EXACT: [f64; 3] = [0.5, f64::INFINITY, f64::NAN];
const TENTHS: [[f64; 2]; 2] = [[1.0, 0.5], [0.25, 0.1]];
const BEYOND: [f64; 2] = [0.5, 1e300];
const NEGATIVE: i32 = -2;
const HUGE: i64 = 1 << 40;

atlas_kernel! {
    kernel tables(y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 32)) {
            store(y[n], full::<f32>([32], a::COEFFS[1] + b::COEFFS[1] + a::COEFFS[0] + a::SIGNS[0] / b::SIGNS[0]));
        }
    }

    kernel numbers(x: &Tensor<f32, [N]>, i: &Tensor<i64, [N]>, y: &mut Tensor<f32, [N]>, j: &mut Tensor<i64, [N]>) {
        for n in grid(tiles(N, 32)) {
            let zeros = load(x[n]) * -0.0 + BELOW;
            let rest = max(zeros, LEAST) * NONE + -(0.0) + 0x1F + 1_000 + LARGE;
            store(y[n], rest);
            store(j[n], load(i[n]) * COUNT);
        }
    }

    kernel kinds(x: &Tensor<f32, [N]>, i: &Tensor<i64, [N]>, y: &mut Tensor<f32, [N]>, j: &mut Tensor<i64, [N]>) {
        for n in grid(tiles(N, 32)) {
            store(y[n], load(x[n]) * TINY + SHORT + PLACE + HALF + BRAIN);
            store(j[n], load(i[n]) * TINY + SHORT + PLACE);
        }
    }

    kernel exact(y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 32)) { store(y[n], full::<f32>([32], EXACT[0] + EXACT[1])); }
    }

    kernel tenths(y: &mut Tensor<f64, [N]>) {
        for n in grid(tiles(N, 32)) { store(y[n], full::<f64>([32], TENTHS[0][0].cast::<f64>())); }
    }

    kernel beyond(y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 32)) { store(y[n], full::<f32>([32], BEYOND[1])); }
    }

    kernel folded(y: &mut Tensor<f32, [F, N]>) {
        for n in grid(tiles(N, 32)) {
            store(y[0, n], max(-0.0, 0.0));
            store(y[1, n], max(0.0, -0.0));
            store(y[2, n], min(-0.0, 0.0));
            store(y[3, n], min(0.0, -0.0));
            store(y[4, n], 0.0 * -1.0);
            store(y[5, n], floor(-0.0));
            store(y[6, n], round(-0.25));
            store(y[7, n], 1.0 - 1.0);
        }
    }

    kernel extents(y: &mut Tensor<f32, [N]>)
    tune { BN: [64, 96], BM: [16] }
    {
        for n in grid(tiles(N, BN)) {
            let part = full::<f32>([BN / 3, WIDE / SMALL, (BN - WIDE) / BM], 1.0);
            store(y[n], full::<f32>([BN], sum(part)));
        }
    }

    kernel negative(y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 32)) { store(y[n], full::<f32>([32], sum(zeros::<f32>([NEGATIVE])))); }
    }

    kernel huge(y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 32)) { store(y[n], full::<f32>([32], sum(zeros::<f32>([HUGE])))); }
    }

    kernel nothing(y: &mut Tensor<f32, [N]>)
    tune { BN: [32, 64] }
    {
        for n in grid(tiles(N, BN)) { store(y[n], full::<f32>([BN], sum(zeros::<f32>([BN - 64])))); }
    }

}

fn build(def: &'static KernelDef, tiles: &[(&str, u32)]) -> Result<Kernel, String> {
    let mut config = Config::default();
    config.tile.extend(tiles.iter().map(|&(name, size)| (name.to_owned(), size)));
    let spec = def.dims.iter().fold(Specialization::default(), |s, d| s.with_dim(d.name, DimFact::Dynamic(1)));
    (def.build)(&spec, &config).map_err(|e| e.0.iter().map(|d| format!("{}: {}", d.code, d.message)).collect())
}

fn splats(k: &Kernel) -> Vec<f64> {
    let of = |op: &Op| if let Op::Splat { value, .. } = op { Some(*value) } else { None };
    k.insts.values().filter_map(of).collect()
}

#[test]
fn consts_of_one_name_are_tables_of_their_own() {
    let k = build(&tables, &[]).unwrap();
    let found: Vec<(&str, &[f32])> = k.tables.values().map(|t| (t.name.as_str(), &t.values[..])).collect();
    let want: [(&str, &[f32]); 4] =
        [("COEFFS", &[1.0, 2.0]), ("COEFFS_2", &[1.0, 20.0]), ("SIGNS", &[0.0]), ("SIGNS_2", &[-0.0])];
    assert_eq!(found, want);
    let again = atlas_dsl::parse_kernel(&k.to_string()).unwrap();
    assert!(atlas_dsl::same_kernel(&k, &again));
}

#[test]
fn numbers_keep_their_signs_and_kinds() {
    let k = build(&numbers, &[]).unwrap();
    let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let found = splats(&k);
    let want = [-0.0, -0.0, f64::NEG_INFINITY, f64::NAN, -0.0, 31.0, 1000.0, 18446744073709551616.0, 7.0];
    assert_eq!(bits(&found), bits(&want), "{found:?}");
    let again = atlas_dsl::parse_kernel(&k.to_string()).unwrap();
    assert_eq!(bits(&splats(&again)), bits(&want), "{k}");
    let found = splats(&build(&folded, &[]).unwrap());
    let zeros: Vec<f64> = found.iter().copied().filter(|x| x.to_bits() << 1 == 0).collect();
    let floats = [0.0, 0.0, -0.0, -0.0, -0.0, -0.0, -0.0, 0.0];
    // The index of the first row is a zero too.
    assert_eq!(bits(&zeros), bits(&[&[0.0, 0.0], &floats[1..]].concat()), "{found:?}");
}

#[test]
fn consts_of_every_type_are_numbers() {
    let (tenth, brain) = (f64::from(HALF), f64::from(BRAIN));
    assert_eq!(splats(&build(&kinds, &[]).unwrap()), [200.0, -300.0, -5.0, tenth, brain, 200.0, -300.0, -5.0]);
}

#[test]
fn elements_of_tables_are_not_rounded() {
    let k = build(&exact, &[]).unwrap();
    let found: Vec<u32> = k.tables.values().flat_map(|t| &t.values).map(|x| x.to_bits()).collect();
    assert_eq!(found, [0.5, f32::INFINITY, f32::NAN].map(f32::to_bits));
    assert_eq!(
        build(&tenths, &[]).unwrap_err(),
        "ATL117: `TENTHS` has the element 0.1, but elements of a table are f32, of which the nearest is 0.10000000149011612; declare the const as an array of `f32`"
    );
    let message = build(&beyond, &[]).unwrap_err();
    assert!(message.contains("ATL117") && message.contains("the nearest is inf"), "{message}");
}

#[test]
fn extents_are_whole_and_above_0() {
    let k = build(&extents, &[("BN", 96), ("BM", 16)]).unwrap();
    assert!(k.insts.values().any(|op| matches!(op, Op::Splat { shape, .. } if shape[..] == [32, 4, 4])));
    for (def, tiles, want) in [
        (&extents, &[("BN", 64), ("BM", 16)][..], "ATL117: the extent `BN / 3` is 64 / 3, which is not a whole number"),
        (
            &extents,
            &[("BN", 99), ("BM", 16)],
            "ATL117: the extent `(BN - WIDE) / BM` is 67 / 16, which is not a whole number",
        ),
        (&negative, &[], "ATL220: the extent `NEGATIVE` is -2; a tile has at least one element"),
        (&huge, &[], "ATL220: the extent `HUGE` is 1099511627776; a tile has at most 4294967295 elements"),
        (&nothing, &[("BN", 64)], "ATL220: the extent `BN - 64` is 0; a tile has at least one element"),
        (&nothing, &[("BN", 32)], "ATL220: the extent `BN - 64` is -32; a tile has at least one element"),
    ] {
        assert_eq!(build(def, tiles).unwrap_err(), want);
    }
}
