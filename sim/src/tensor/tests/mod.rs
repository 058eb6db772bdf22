//! Tests of the tensor-core functions against the ISA's own formulas and against plain triple loops.

mod fragment;
mod layout;
mod matrix_load;
mod mma;
mod wgmma;

use crate::program::{Mma, MmaType, PredOrImm, Reg, Src, Wgmma, WgmmaA};
use crate::tensor::{WarpRegister, mma as instruction};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A generator with the same numbers in every run.
fn random(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// An instruction with as many registers as its shape needs.
fn mma_spec((m, n, k): (u16, u16, u16), types: [MmaType; 4]) -> Mma {
    let [d_type, a_type, b_type, c_type] = types;
    let mut spec =
        Mma { m, n, k, a_type, b_type, c_type, d_type, saturate: false, d: vec![], a: vec![], b: vec![], c: vec![] };
    let [a, b, c, d] = instruction::fragments(&spec).map(|f| f.registers());
    (spec.a, spec.b, spec.c) = (vec![Src::Imm(0); a], vec![Src::Imm(0); b], vec![Src::Imm(0); c]);
    spec.d = vec![Reg(0); d];
    spec
}

/// An instruction on descriptors, or with A in registers.
fn wgmma_spec(n: u16, k: u16, [d_type, a_type, b_type]: [MmaType; 3], registers: bool) -> Wgmma {
    let a = match registers {
        true => WgmmaA::Registers(vec![Src::Imm(0); 4]),
        false => WgmmaA::Descriptor { desc: Src::Imm(0), transposed: false },
    };
    let mut spec = Wgmma {
        n,
        k,
        a_type,
        b_type,
        d_type,
        d: vec![],
        a,
        b: Src::Imm(0),
        b_transposed: false,
        scale_d: PredOrImm::Imm(true),
        negate_a: false,
        negate_b: false,
    };
    spec.d = vec![Reg(0); crate::tensor::wgmma::accumulator(&spec).registers()];
    spec
}

/// Random bits of finite numbers of moderate size, whose sums of products are exact in f32.
fn small(rng: &mut StdRng, ty: MmaType) -> u64 {
    let value: i32 = rng.random_range(-8..=8);
    match ty {
        MmaType::F16 => half::f16::from_f32(value as f32).to_bits().into(),
        MmaType::Bf16 => half::bf16::from_f32(value as f32).to_bits().into(),
        MmaType::Tf32 | MmaType::F32 => (value as f32).to_bits().into(),
        MmaType::F64 => f64::from(value).to_bits(),
        MmaType::S8 => u64::from(value as u8),
        MmaType::U8 => rng.random_range(0..=255),
        MmaType::S32 => u64::from(value as u32),
        // 1, 2 or 4, of either sign.
        MmaType::E4m3 => rng.random_range(7..10u64) << 3 | rng.random_range(0..2u64) << 7,
        MmaType::E5m2 => rng.random_range(15..18u64) << 2 | rng.random_range(0..2u64) << 7,
    }
}

/// A matrix of elements' bits.
fn matrix(rng: &mut StdRng, rows: usize, columns: usize, ty: MmaType) -> Vec<Vec<u64>> {
    (0..rows).map(|_| (0..columns).map(|_| small(rng, ty)).collect()).collect()
}

/// The registers that hold a matrix.
fn spread(fragment: &crate::tensor::fragment::Fragment, matrix: &[Vec<u64>]) -> Vec<WarpRegister> {
    let columns = matrix[0].len();
    fragment.gather((columns, 1), |index| matrix[index / columns][index % columns])
}
