//! `mma`, `ldmatrix`, `stmatrix`.

use super::access::WIDEST;
use super::address;
use super::warp::{ALL, LANES};
use super::{At, Execution, Flow};
use crate::fault::{Fault, FaultKind, Result};
use crate::memory::Actor;
use crate::program::{Addr, Mma, Op, Reg, Src};
use crate::syntax::ast::Space;
use crate::tensor::{WarpRegister, matrix_load, mma, wgmma};

/// Bytes of a row of a matrix.
const ROW: usize = 16;
/// Bytes of a row that one lane stores.
const PIECE: usize = 4;

impl Execution<'_> {
    /// Refuses matrix products that the ISA does not have.
    pub(super) fn check_products(&self) -> Result<()> {
        for instr in &self.program.code {
            let checked = match &instr.op {
                Op::Mma(spec) => mma::check(spec, self.program.arithmetic),
                Op::Wgmma(spec) => wgmma::check(spec, self.program.arithmetic),
                _ => Ok(()),
            };
            checked.map_err(|f| Fault { message: format!("line {}: {}", instr.line, f.message), ..f })?;
        }
        Ok(())
    }

    /// `mma.sync`.
    pub(crate) fn mma(&mut self, at: At, exec: u32, spec: &Mma) -> Result<Flow> {
        self.whole(exec)?;
        let arithmetic = self.program.arithmetic;
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        let rows = |src: &[Src]| src.iter().map(|s| warp.row(*s)).collect::<Vec<WarpRegister>>();
        let d = mma::mma(spec, &rows(&spec.a), &rows(&spec.b), &rows(&spec.c), arithmetic);
        for (reg, row) in spec.d.iter().zip(&d) {
            warp.write(*reg, exec, row);
        }
        Ok(Flow::Next)
    }

    /// Instructions over matrices need a warp of 32 lanes.
    pub(super) fn whole(&self, exec: u32) -> Result<()> {
        if exec.count_ones() == LANES as u32 {
            return Ok(());
        }
        let message = format!("{} lanes execute an instruction that needs 32", exec.count_ones());
        Err(Fault::new(FaultKind::Divergent, message))
    }

    /// The address of each row of this many matrices.
    fn row_places(&mut self, at: At, matrices: usize, addr: &Addr) -> Result<Vec<u64>> {
        let Some(warp) = self.warp(at) else { return Ok(Vec::new()) };
        let bases = warp.row(addr.base);
        let rows = (matrices * matrix_load::ROWS).min(LANES);
        let places: Vec<u64> = bases.iter().take(rows).map(|b| b.wrapping_add_signed(addr.offset)).collect();
        if let Some(lane) = places.iter().position(|a| a % ROW as u64 != 0) {
            let message = format!("row address {:#x} of a matrix is not aligned to 16 bytes", places[lane]);
            return Err(self.blame_lane(at, lane, Fault::new(FaultKind::Misaligned, message)));
        }
        let mut offsets = [None; LANES];
        for (offset, place) in offsets.iter_mut().zip(&places) {
            *offset = Some(*place as u32 & 0xff_ffff);
        }
        let line = self.line(at);
        self.spent.counters.shared_access(line, &offsets, ROW as u32);
        Ok(places)
    }

    /// `ldmatrix`.
    pub(crate) fn ldmatrix(
        &mut self,
        at: At,
        exec: u32,
        dst: &[Reg],
        (addr, space): (&Addr, Space),
        transposed: bool,
    ) -> Result<Flow> {
        self.whole(exec)?;
        let line = self.line(at);
        let places = self.row_places(at, dst.len(), addr)?;
        let mut targets = [None; LANES];
        for (target, &place) in targets.iter_mut().zip(&places) {
            *target = Some(address::target(space, place));
        }
        let some = ALL.checked_shr((LANES - places.len()) as u32).unwrap_or(0);
        let mut data = [[0; WIDEST]; LANES];
        self.load_lanes((at, some), &targets, &Actor::weak(self.thread(at, 0), line), ROW, &mut data)?;
        let head = |bytes: &[u8; WIDEST]| std::array::from_fn(|i| bytes[i]);
        let rows: Vec<[u8; ROW]> = data.iter().take(places.len()).map(head).collect();
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        for (reg, row) in dst.iter().zip(matrix_load::load(&rows, transposed)) {
            warp.write(*reg, exec, &row);
        }
        Ok(Flow::Next)
    }

    /// `stmatrix`.
    pub(crate) fn stmatrix(
        &mut self,
        at: At,
        exec: u32,
        src: &[Src],
        (addr, space): (&Addr, Space),
        transposed: bool,
    ) -> Result<Flow> {
        self.whole(exec)?;
        let line = self.line(at);
        let places = self.row_places(at, src.len(), addr)?;
        let Some(warp) = self.warp(at) else { return Ok(Flow::Moved) };
        let registers: Vec<WarpRegister> = src.iter().map(|s| warp.row(*s)).collect();
        let rows = matrix_load::store(&registers, transposed);
        for (i, (place, row)) in places.into_iter().zip(&rows).enumerate() {
            // A row is stored by the four lanes that hold its pieces, not by the one that says where it goes.
            for (piece, lane) in row.chunks_exact(PIECE).zip(i % matrix_load::ROWS * (ROW / PIECE)..) {
                let by = Actor::weak(self.thread(at, lane), line);
                let place = place + (lane % (ROW / PIECE) * PIECE) as u64;
                self.store_lane(at, lane, address::target(space, place), &by, piece)?;
            }
        }
        Ok(Flow::Next)
    }
}
