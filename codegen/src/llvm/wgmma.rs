//! Asynchronous products of a warpgroup: `wgmma`, which reads shared memory by descriptors.
//!
//! LLVM has no intrinsic for the product itself, so it is inline assembly whose accumulators are both results and operands,
//! and so is the wait, since an intrinsic would not tie the accumulators to it.

use super::{Emitter, R, Regs, struct_of};
use crate::error::CompileError;
use crate::gpu::atom::{MmaAtom, Side, WARPGROUP};
use crate::gpu::{Operand, SharedRef, Value, WarpGrid, warp_grid_of};
use crate::layout::MatrixDescriptor;
use atlas_dsl::DType;
use inkwell::InlineAsmDialect;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, IntValue};

/// An operand of a warpgroup's products.
enum WarpgroupOperand<'c> {
    /// By a descriptor: that of the warpgroup's part of the buffer, and the operand's place in the buffer.
    Shared { first: IntValue<'c>, how: MatrixDescriptor, from: SharedRef },
    /// Words of two elements, four for each step of a block.
    Registers(Regs<'c>),
}

impl<'c> Emitter<'c, '_> {
    /// Starts a tile of products: each block of 64 rows of the warpgroup by all its columns, step by step along K.
    pub(super) fn wgmma(
        &mut self,
        (a, b): (&Operand, &Operand),
        acc: Option<Value>,
        atom: MmaAtom,
        depth: u32,
        result: Option<Value>,
    ) -> R<Regs<'c>> {
        let result = result.ok_or_else(|| CompileError::bug("a product without a result"))?;
        let layout = self.k.tile(result).1.clone();
        let grid = warp_grid_of(&layout);
        let columns = layout.shape[1] / grid.cols;
        // A thread has half as many registers of a block of 64 rows as there are columns.
        let held = columns as usize / 2;
        let blocks = layout.shape[0] / (16 * grid.rows);
        let step_depth = atom.row().shape.2;
        let steps = depth / step_depth;
        let left = self.source(a, Side::Left, grid, 0)?;
        let right = self.source(b, Side::Right, grid, columns)?;
        let start = acc.map(|v| self.regs(v).cloned()).transpose()?;
        self.wgmma_fence(&left)?;
        let mut out = Vec::with_capacity(layout.reg_count() as usize);
        for block in 0..blocks {
            let at = block as usize * held;
            let mut sum = start.as_ref().map(|s| s[at..at + held].to_vec());
            for step in 0..steps {
                let inner = step * step_depth;
                let a = self.operand_at(&left, (block * 16 * grid.rows, inner), (block * steps + step) as usize)?;
                let b = self.operand_at(&right, (0, inner), step as usize)?;
                let turned =
                    [&left, &right].map(|s| matches!(s, WarpgroupOperand::Shared { how, .. } if how.is_transposed));
                sum = Some(self.wgmma_step(atom, columns, (&a, &b), sum, turned)?);
            }
            out.extend(sum.ok_or_else(|| CompileError::bug("a product over nothing"))?);
        }
        self.call_void("llvm.nvvm.wgmma.commit_group.sync.aligned", &[])?;
        Ok(out)
    }

    /// Orders what wrote the registers of a product before it. LLVM knows nothing of that order, and moves what computes a left
    /// operand down to the product: the fence takes its words, so that they are computed before.
    fn wgmma_fence(&mut self, left: &WarpgroupOperand<'c>) -> R<()> {
        let WarpgroupOperand::Registers(words) = left else {
            return self.call_void("llvm.nvvm.wgmma.fence.sync.aligned", &[]);
        };
        let (text, constraints) = ("wgmma.fence.sync.aligned;".to_owned(), vec!["r"; words.len()].join(","));
        self.warpgroup_asm(text, format!("{constraints},~{{memory}}"), words, 0)?;
        Ok(())
    }

    /// Makes the accumulators of products readable once at most `pending` younger groups are in flight.
    pub(super) fn wgmma_wait(&mut self, value: Value, pending: u32) -> R<Regs<'c>> {
        let regs = self.regs(value)?.clone();
        let (outputs, ties) = ties(regs.len(), "f");
        let text = format!("wgmma.wait_group.sync.aligned {pending};");
        self.warpgroup_asm(text, format!("{outputs},{ties},~{{memory}}"), &regs, regs.len())
    }

    /// How a warpgroup reads an operand; of the right one so many columns.
    fn source(&mut self, operand: &Operand, side: Side, grid: WarpGrid, columns: u32) -> R<WarpgroupOperand<'c>> {
        let from = match operand {
            Operand::Shared(from) => from,
            Operand::Fragment(v) => return Ok(WarpgroupOperand::Registers(self.operand_words(*v)?)),
        };
        let buffer = &self.k.buffers[from.buffer];
        let (layout, element) = (buffer.layout, buffer.dtype.bytes());
        let along_k = (side == Side::Left) != from.transposed;
        let how = layout
            .matrix_descriptor(along_k, element)
            .ok_or_else(|| CompileError::bug(format!("a buffer that wgmma does not read: {layout}")))?;
        // Rows or columns of the product that lie before this warpgroup's first one.
        let (apart, number, count) = match side {
            Side::Left => (64, GridAxis::Row, grid.rows / WARPGROUP),
            Side::Right => (columns, GridAxis::Column, grid.cols),
        };
        // Along K a part begins with eight rows, which the swizzle repeats after, and along M or N with a panel.
        let (row, col) = from.origin;
        let (outer, inner, unit) = if along_k { (row, col, 8) } else { (col, row, layout.panel) };
        let begins = outer.is_multiple_of(unit) && (count == 1 || apart.is_multiple_of(unit));
        if !begins || !inner.is_multiple_of(8) {
            return Err(CompileError::bug("an operand of wgmma that begins within a panel"));
        }
        let mut at = self.shared_start(from)?;
        if count > 1 {
            let number = self.warpgroup_along(number, grid)?;
            let (row, col) = if along_k { (apart, 0) } else { (0, apart) };
            let apart = layout.linear_offset(row, col, element);
            let offset = self.b.build_int_mul(number, self.i32(i64::from(apart)), "")?;
            at = self.b.build_int_add(at, offset, "")?;
        }
        let i64t = self.cx.i64_type();
        let chunk = self.b.build_right_shift(at, self.i32(4), false, "")?;
        let wide = self.b.build_int_z_extend(chunk, i64t, "")?;
        let mut first = self.b.build_or(wide, i64t.const_int(how.bits, false), "")?;
        if let Some(stage) = self.stage(from)? {
            let stage = self.b.build_right_shift(stage, self.i32(4), false, "")?;
            let stage = self.b.build_int_z_extend(stage, i64t, "")?;
            first = self.b.build_int_add(first, stage, "")?;
        }
        Ok(WarpgroupOperand::Shared { first, how, from: *from })
    }

    /// The number of this thread's warpgroup. All lanes compute it from lane 0's, so that the assembler knows that it is the same
    /// for all of them.
    pub(super) fn warpgroup(&mut self) -> R<IntValue<'c>> {
        let here = self.b.get_insert_block();
        self.b.position_at_end(self.coords.block);
        let own = self.b.build_right_shift(self.coords.tid, self.i32(7), false, "")?;
        let number = self.of_first_lane(own)?;
        if let Some(block) = here {
            self.b.position_at_end(block);
        }
        Ok(number)
    }

    /// The number of this thread's warpgroup along an axis of the grid.
    fn warpgroup_along(&mut self, part: GridAxis, grid: WarpGrid) -> R<IntValue<'c>> {
        let number = self.warpgroup()?;
        let here = self.b.get_insert_block();
        self.b.position_at_end(self.coords.block);
        let rows = grid.rows / WARPGROUP;
        let number = match part {
            GridAxis::Row if self.k.threads / 128 == rows => number,
            GridAxis::Row => self.b.build_int_unsigned_rem(number, self.i32(i64::from(rows)), "")?,
            GridAxis::Column => {
                let below = self.b.build_int_unsigned_div(number, self.i32(i64::from(rows)), "")?;
                self.b.build_int_unsigned_rem(below, self.i32(i64::from(grid.cols)), "")?
            }
        };
        if let Some(block) = here {
            self.b.position_at_end(block);
        }
        Ok(number)
    }

    /// What an instruction takes for a block that begins at `outer` along M or N, and at `inner` along K.
    fn operand_at(
        &self,
        source: &WarpgroupOperand<'c>,
        (outer, inner): (u32, u32),
        word: usize,
    ) -> R<Vec<BasicValueEnum<'c>>> {
        Ok(match source {
            WarpgroupOperand::Registers(words) => words[4 * word..4 * word + 4].to_vec(),
            WarpgroupOperand::Shared { first, how, from } => {
                let buffer = &self.k.buffers[from.buffer];
                let (row, col) = if how.is_transposed { (inner, outer) } else { (outer, inner) };
                let (row, col) = (from.origin.0 + row, from.origin.1 + col);
                let bytes = buffer.layout.linear_offset(row, col, buffer.dtype.bytes());
                let further = self.cx.i64_type().const_int(u64::from(bytes >> 4), false);
                vec![self.b.build_int_add(*first, further, "")?.into()]
            }
        })
    }

    /// One instruction: 64 rows by so many columns by one step.
    fn wgmma_step(
        &self,
        atom: MmaAtom,
        columns: u32,
        (a, b): (&[BasicValueEnum<'c>], &[BasicValueEnum<'c>]),
        acc: Option<Regs<'c>>,
        turned: [bool; 2],
    ) -> R<Regs<'c>> {
        let held = columns as usize / 2;
        let ty = match atom.row().operand {
            DType::Bf16 => "bf16",
            DType::F16 => "f16",
            DType::F32 => "tf32",
            other => return Err(CompileError::bug(format!("wgmma of {other}"))),
        };
        let depth = atom.row().shape.2;
        let (outputs, tied) = ties(held, "f");
        let mut constraints = vec![outputs];
        let mut args = Vec::new();
        if let Some(acc) = &acc {
            constraints.push(tied);
            args.extend(acc.iter().copied());
        }
        let first = held + args.len();
        let place = |i: usize| format!("${}", first + i);
        let left = match a.len() {
            1 => place(0),
            n => format!("{{{}}}", (0..n).map(place).collect::<Vec<_>>().join(", ")),
        };
        constraints.extend(a.iter().map(|_| if a.len() == 1 { "l" } else { "r" }.to_owned()));
        constraints.push("l".to_owned());
        let right = place(a.len());
        let list = (0..held).map(|i| format!("${i}")).collect::<Vec<_>>().join(", ");
        // Whether an operand runs along M or N; one in registers never does, and none of other elements than 16-bit ones.
        let turns = match a.len() {
            _ if atom.reads_along_k_alone() => String::new(),
            1 => format!(", {}, {}", u8::from(turned[0]), u8::from(turned[1])),
            _ => format!(", {}", u8::from(turned[1])),
        };
        let text = format!(
            "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{ty}.{ty} {{{list}}}, {left}, {right}, {}, 1, 1{turns};",
            u8::from(acc.is_some())
        );
        args.extend(a.iter().chain(b).copied());
        self.warpgroup_asm(text, constraints.join(","), &args, held)
    }

    /// Assembly that a whole warpgroup executes and that gives so many f32.
    fn warpgroup_asm(
        &self,
        text: String,
        constraints: String,
        args: &[BasicValueEnum<'c>],
        results: usize,
    ) -> R<Regs<'c>> {
        let types: Vec<BasicMetadataTypeEnum<'c>> = args.iter().map(|a| a.get_type().into()).collect();
        let ty = match results {
            0 => self.cx.void_type().fn_type(&types, false),
            _ => struct_of(self.cx, self.cx.f32_type(), results).fn_type(&types, false),
        };
        let asm = self.cx.create_inline_asm(ty, text, constraints, true, false, Some(InlineAsmDialect::ATT), false);
        let args: Vec<BasicMetadataValueEnum<'c>> = args.iter().map(|&a| a.into()).collect();
        let call = self.b.build_indirect_call(ty, asm, &args, "")?;
        for name in ["convergent", "nounwind"] {
            let kind = Attribute::get_named_enum_kind_id(name);
            call.add_attribute(AttributeLoc::Function, self.cx.create_enum_attribute(kind, 0));
        }
        match results {
            0 => Ok(vec![]),
            _ => self.fields(call.try_as_basic_value().unwrap_basic(), results as u32),
        }
    }
}

/// An axis of the grid of warpgroups.
#[derive(Clone, Copy)]
enum GridAxis {
    Row,
    Column,
}

/// The constraints of results in registers, and of operands that are the same registers.
fn ties(n: usize, register: &str) -> (String, String) {
    let outputs = vec![format!("={register}"); n].join(",");
    let tied = (0..n).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    (outputs, tied)
}
