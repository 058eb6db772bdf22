//! Instructions that touch only the registers of a warp.

use super::address;
use super::warp::{ALL, Coordinates, LANES, Warp, lanes};
use crate::program::{AluFn, BoolOp, CarryOp, CompareFn, Instr, Op, PredSrc, Reg, Special, Src};
use crate::tensor::WarpRegister;

/// Room to spread a constant operand over the lanes.
type Room = Option<WarpRegister>;
const EMPTY: Room = None;
static NOTHING: WarpRegister = [0; LANES];

/// A Boolean operation on all lanes.
pub(crate) fn combine(op: BoolOp, a: u32, b: u32) -> u32 {
    match op {
        BoolOp::And => a & b,
        BoolOp::Or => a | b,
        BoolOp::Xor => a ^ b,
    }
}

/// A mask with the bits of a width.
pub(crate) fn low_bits(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

impl Warp {
    /// Runs an instruction in the lanes of `exec`, if it only touches registers. `ahead` instructions ran since the clock was
    /// set.
    pub(crate) fn local(&mut self, instr: &Instr, exec: u32, ahead: u64) -> bool {
        match &instr.op {
            Op::Alu { f, dst, src } => self.alu(*f, *dst, src, exec),
            Op::Approximate { f, inexact, dst, src } => {
                let (a, b) = (self.row(src[0]), self.row(src[1]));
                let Coordinates { approximation, seed, .. } = self.at;
                let mut values = [0; LANES];
                for l in lanes(exec) {
                    values[l] = inexact.result(f(a[l], b[l], 0, 0), [a[l], b[l]], approximation, seed);
                }
                self.write(*dst, exec, &values);
            }
            Op::Setp { f, a, b, dst, complement, combine: with } => {
                let holds = self.compare(*f, *a, *b, exec);
                let (yes, no) = (self.combined(holds, *with), self.combined(!holds, *with));
                if let Some(dst) = dst {
                    self.write_pred(*dst, exec, yes);
                }
                if let Some(dst) = complement {
                    self.write_pred(*dst, exec, no);
                }
            }
            Op::Set { f, a, b, dst, yes, combine: with } => {
                let holds = self.compare(*f, *a, *b, exec);
                let holds = self.combined(holds, *with);
                let values = std::array::from_fn(|l| if holds >> l & 1 == 1 { *yes } else { 0 });
                self.write(*dst, exec, &values);
            }
            Op::Selp { dst, a, b, pred } => {
                let (a, b, p) = (self.row(*a), self.row(*b), self.pred(*pred));
                let values = std::array::from_fn(|l| if p >> l & 1 == 1 { a[l] } else { b[l] });
                self.write(*dst, exec, &values);
            }
            Op::PredLogic { dst, a, op, b } => {
                let bits = combine(*op, self.truth(*a), self.truth(*b));
                self.write_pred(*dst, exec, bits);
            }
            Op::Carry { dst, a, b, c, op, bits, reads, writes } => {
                let carries = [*reads, *writes];
                self.carry(*op, *dst, [*a, *b, *c], u32::from(*bits), carries, exec);
            }
            Op::MovSpecial { dst, special } => {
                let values = self.special(*special, self.clock + ahead);
                self.write(*dst, exec, &values);
            }
            Op::Pack { dst, parts, bits } => {
                let mut values = [0; LANES];
                for (i, part) in parts.iter().enumerate() {
                    let row = self.row(*part);
                    for (value, part) in values.iter_mut().zip(row) {
                        let at = (i as u32) * u32::from(*bits);
                        *value |= (part & low_bits(u32::from(*bits))).checked_shl(at).unwrap_or(0);
                    }
                }
                self.write(*dst, exec, &values);
            }
            Op::Unpack { dst, src, bits } => {
                let row = self.row(*src);
                for (i, dst) in dst.iter().enumerate() {
                    let at = (i as u32) * u32::from(*bits);
                    if let Some(dst) = dst {
                        let part = |v: u64| v.checked_shr(at).unwrap_or(0) & low_bits(u32::from(*bits));
                        self.write(*dst, exec, &row.map(part));
                    }
                }
            }
            Op::ActiveMask { dst } => self.write(*dst, exec, &[u64::from(exec); LANES]),
            Op::IsSpace { dst, src, space } => {
                let row = self.row(*src);
                let bits =
                    (0..LANES).fold(0, |bits, l| bits | u32::from(address::is_in(*space, row[l], self.at.rank)) << l);
                self.write_pred(*dst, exec, bits);
            }
            Op::Mapa { dst, src, rank, generic } => {
                let (row, rank) = (self.row(*src), self.row(*rank));
                let values = std::array::from_fn(|l| address::mapa(row[l], rank[l] & 0xff, *generic));
                self.write(*dst, exec, &values);
            }
            Op::Cvta { dst, src, space, to_generic } => {
                let convert = if *to_generic { address::to_generic } else { address::from_generic };
                let values = self.row(*src).map(|a| convert(*space, a));
                self.write(*dst, exec, &values);
            }
            Op::BulkPrefetch { map: None } | Op::Hint => {}
            _ => return false,
        }
        true
    }

    #[inline]
    fn alu(&mut self, f: AluFn, dst: Reg, src: &[Src; 4], exec: u32) {
        let (mut w, mut x, mut y, mut z) = (EMPTY, EMPTY, EMPTY, EMPTY);
        let a = self.source(src[0], &mut w);
        let b = self.source(src[1], &mut x);
        let c = self.source(src[2], &mut y);
        let d = self.source(src[3], &mut z);
        let mut out = [0; LANES];
        if exec == ALL {
            for l in 0..LANES {
                out[l] = f(a[l], b[l], c[l], d[l]);
            }
        } else {
            for l in lanes(exec) {
                out[l] = f(a[l], b[l], c[l], d[l]);
            }
        }
        self.write(dst, exec, &out);
    }

    fn compare(&self, f: CompareFn, a: Src, b: Src, exec: u32) -> u32 {
        let (mut x, mut y) = (EMPTY, EMPTY);
        let (a, b) = (self.source(a, &mut x), self.source(b, &mut y));
        if exec == ALL {
            return (0..LANES).fold(0, |bits, l| bits | u32::from(f(a[l], b[l])) << l);
        }
        lanes(exec).fold(0, |bits, l| bits | u32::from(f(a[l], b[l])) << l)
    }

    /// A source without a copy: registers in place, constants in `room`.
    #[inline]
    fn source<'r>(&'r self, src: Src, room: &'r mut Room) -> &'r WarpRegister {
        match src {
            Src::Reg(r) => self.regs.get(r.0 as usize).unwrap_or(&NOTHING),
            Src::Imm(0) => &NOTHING,
            Src::Imm(v) => room.insert([v; LANES]),
        }
    }

    fn combined(&self, holds: u32, with: Option<(BoolOp, PredSrc)>) -> u32 {
        with.map_or(holds, |(op, p)| combine(op, holds, self.pred(p)))
    }

    /// Extended-precision arithmetic: `carries` says whether the carry is read and written.
    fn carry(&mut self, op: CarryOp, dst: Reg, src: [Src; 3], bits: u32, carries: [bool; 2], exec: u32) {
        let [a, b, c] = src.map(|s| self.row(s));
        let ones = u128::from(low_bits(bits));
        let (mut values, mut out) = ([0; LANES], 0u32);
        for l in lanes(exec) {
            let carry = u128::from(carries[0] && self.carry >> l & 1 == 1);
            let [x, y, z] = [a[l], b[l], c[l]].map(|v| u128::from(v) & ones);
            let full = match op {
                CarryOp::Add => x + y + carry,
                // The borrow shows above the width, as a carry does.
                CarryOp::Sub => x.wrapping_sub(y).wrapping_sub(carry),
                CarryOp::MadLo => ((x * y) & ones) + z + carry,
                CarryOp::MadHi => ((x * y) >> bits) + z + carry,
            };
            values[l] = (full & ones) as u64;
            out |= u32::from(full >> bits & 1 == 1) << l;
        }
        self.write(dst, exec, &values);
        if carries[1] {
            self.carry = (self.carry & !exec) | out;
        }
    }

    fn special(&self, special: Special, clock: u64) -> WarpRegister {
        let at = &self.at;
        let axis = |v: &[u32; 3], i: u8| u64::from(v.get(usize::from(i)).copied().unwrap_or(0));
        let count = |v: &[u32; 3]| v.iter().map(|&n| u64::from(n)).product::<u64>();
        // The fourth component of a vector register is zero, and 1 where it counts.
        let uniform = match special {
            Special::Tid(i) => {
                let [x, y, _] = at.block.map(|n| u64::from(n.max(1)));
                let first = u64::from(at.warp) * LANES as u64;
                return std::array::from_fn(|l| {
                    let t = first + l as u64;
                    [t % x, t / x % y, t / (x * y)].get(usize::from(i)).copied().unwrap_or(0)
                });
            }
            Special::LaneId => return std::array::from_fn(|l| l as u64),
            Special::LaneMaskEq => return std::array::from_fn(|l| 1 << l),
            Special::LaneMaskLe => return std::array::from_fn(|l| (2 << l) - 1),
            Special::LaneMaskLt => return std::array::from_fn(|l| (1 << l) - 1),
            Special::LaneMaskGe => return std::array::from_fn(|l| 0xffff_ffff & !((1 << l) - 1)),
            Special::LaneMaskGt => return std::array::from_fn(|l| 0xffff_ffff & !((2u64 << l) - 1)),
            Special::Ntid(i) => axis(&at.block, i),
            Special::Ctaid(i) => axis(&at.ctaid, i),
            Special::Nctaid(i) => axis(&at.grid, i),
            Special::WarpId => u64::from(at.warp),
            Special::NwarpId => count(&at.block).div_ceil(LANES as u64),
            Special::SmId => u64::from(at.slot),
            Special::NsmId => u64::from(at.slots),
            Special::GridId => 1,
            Special::Clock => clock & 0xffff_ffff,
            Special::Clock64 | Special::GlobalTimer => clock,
            Special::ClusterId(i) => axis(&std::array::from_fn(|k| at.ctaid[k] / at.cluster[k].max(1)), i),
            Special::NclusterId(i) => axis(&std::array::from_fn(|k| at.grid[k] / at.cluster[k].max(1)), i),
            Special::ClusterCtaid(i) => axis(&std::array::from_fn(|k| at.ctaid[k] % at.cluster[k].max(1)), i),
            Special::ClusterNctaid(i) => axis(&at.cluster, i),
            Special::ClusterCtarank => u64::from(at.rank),
            Special::ClusterNctarank => count(&at.cluster),
            Special::IsExplicitCluster => u64::from(at.explicit_cluster),
            Special::DynamicSmemSize => u64::from(at.dynamic_shared),
            Special::TotalSmemSize => u64::from(at.dynamic_shared) + u64::from(at.static_shared),
        };
        [uniform; LANES]
    }
}
