//! Computes shifted arguments again where they are used, in a kernel that has many of them.

use super::R;
use inkwell::basic_block::BasicBlock;
use inkwell::module::Module;
use inkwell::values::{
    BasicValueEnum, FunctionValue, InstructionOpcode, InstructionValue, IntValue, Operand, PhiValue,
};
use std::collections::{BTreeMap, BTreeSet};

/// How many shifted arguments a kernel may hold: 32 registers, an eighth of what a thread may have.
const MOST_HELD: usize = 16;

/// Computes shifted arguments again in each block that uses them, in a kernel with more than [`MOST_HELD`] of them.
///
/// The distance between two rows of a thread is a stride, which is an argument, times a power of two. LICM moves that shift
/// before the outermost loop, and ptxas holds its result in two registers for the whole kernel, while an argument takes none. In
/// the backward passes with forty tensors, these are a quarter of the registers of a thread.
pub(crate) fn rematerialize(module: &Module<'_>) -> R<()> {
    module.get_functions().try_for_each(|function| {
        let shifts = shifted_arguments(function);
        // Most kernels have few, whose uses need no search.
        if shifts.len() <= MOST_HELD {
            return Ok(());
        }
        let uses = uses_elsewhere(function, &shifts);
        let held: BTreeSet<usize> = uses.iter().map(|u| u.shift).collect();
        if held.len() > MOST_HELD { compute_again(module, &shifts, &uses) } else { Ok(()) }
    })
}

/// A shift of an argument by a constant.
struct Shift<'c> {
    inst: InstructionValue<'c>,
    result: IntValue<'c>,
    argument: IntValue<'c>,
    bits: IntValue<'c>,
}

/// A use of a shift in another block than its own.
struct ShiftUse<'c> {
    shift: usize,
    user: InstructionValue<'c>,
    operand: u32,
    /// The number of the block that computes the shift again: the user's, or for a `phi` the one that it comes from.
    block: usize,
    /// The instruction before which it is computed.
    before: InstructionValue<'c>,
    is_phi: bool,
}

fn value(inst: InstructionValue<'_>, operand: u32) -> Option<BasicValueEnum<'_>> {
    inst.get_operand(operand).and_then(Operand::value)
}

fn shifted_arguments<'c>(function: FunctionValue<'c>) -> Vec<Shift<'c>> {
    let arguments = function.get_params();
    let shift = |inst: InstructionValue<'c>| {
        if inst.get_opcode() != InstructionOpcode::Shl {
            return None;
        }
        // Vectors are shifted too, but never addresses.
        let [Some(BasicValueEnum::IntValue(argument)), Some(BasicValueEnum::IntValue(bits))] =
            [0, 1].map(|i| value(inst, i))
        else {
            return None;
        };
        let is_one = bits.is_const() && arguments.contains(&argument.into());
        is_one.then_some(Shift { inst, result: IntValue::try_from(inst).ok()?, argument, bits })
    };
    function.get_basic_block_iter().flat_map(BasicBlock::get_instructions).filter_map(shift).collect()
}

fn uses_elsewhere<'c>(function: FunctionValue<'c>, shifts: &[Shift<'c>]) -> Vec<ShiftUse<'c>> {
    let blocks = function.get_basic_blocks();
    let mut uses = Vec::new();
    for (n, block) in blocks.iter().enumerate() {
        for user in block.get_instructions() {
            for operand in 0..user.get_num_operands() {
                let Some(BasicValueEnum::IntValue(used)) = value(user, operand) else { continue };
                let Some(shift) = shifts.iter().position(|shift| shift.result == used) else { continue };
                let from = PhiValue::try_from(user).ok().and_then(|phi| Some(phi.get_incoming(operand)?.1));
                let block = from.map_or(Some(n), |from| blocks.iter().position(|&b| b == from));
                let before = from.map_or(Some(user), BasicBlock::get_terminator);
                let (Some(block), Some(before)) = (block, before) else { continue };
                if Some(blocks[block]) != shifts[shift].inst.get_parent() {
                    uses.push(ShiftUse { shift, user, operand, block, before, is_phi: from.is_some() });
                }
            }
        }
    }
    uses
}

fn compute_again<'c>(module: &Module<'c>, shifts: &[Shift<'c>], uses: &[ShiftUse<'c>]) -> R<()> {
    let b = module.get_context().create_builder();
    let mut again: BTreeMap<(usize, usize, bool), IntValue<'c>> = BTreeMap::new();
    for of in uses {
        let (key, shift) = ((of.shift, of.block, of.is_phi), &shifts[of.shift]);
        let result = match again.get(&key) {
            Some(result) => *result,
            None => {
                b.position_before(&of.before);
                *again.entry(key).or_insert(b.build_left_shift(shift.argument, shift.bits, "")?)
            }
        };
        of.user.set_operand(of.operand, result);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkwell::context::Context;
    use inkwell::memory_buffer::MemoryBuffer;

    /// A loop that uses `n` shifted arguments, the first of them also as what it begins with, and after it once more.
    fn kernel(n: usize) -> String {
        let text = |line: &dyn Fn(usize) -> String| (0..n).map(line).collect::<String>();
        let arguments: Vec<String> = (0..n).map(|i| format!("i64 %a{i}")).collect();
        let shifts = text(&|i| format!("  %s{i} = shl i64 %a{i}, 5\n"));
        let sums = text(&|i| format!("  %x{} = add i64 %x{i}, %s{i}\n", i + 1));
        format!(
            "define i64 @f({}) {{\nentry:\n{shifts}  br label %loop\nloop:\n  %x0 = phi i64 [ %s0, %entry ], [ %x{n}, %loop ]\n{sums}  \
             %more = icmp ult i64 %x{n}, 1000\n  br i1 %more, label %loop, label %end\nend:\n  \
             %out = phi i64 [ %s0, %loop ]\n  %sum = add i64 %out, %x{n}\n  ret i64 %sum\n}}\n",
            arguments.join(", ")
        )
    }

    fn after(n: usize) -> String {
        let cx = Context::create();
        let text = MemoryBuffer::create_from_memory_range_copy(format!("{}\0", kernel(n)).as_bytes(), "kernel");
        let module = cx.create_module_from_ir(text).unwrap();
        rematerialize(&module).unwrap();
        module.verify().unwrap();
        module.print_to_string().to_string()
    }

    #[test]
    fn many_shifted_arguments_are_computed_in_the_loop_that_uses_them() {
        let text = after(MOST_HELD + 1);
        let body = text.split_once("loop:").unwrap().1;
        assert_eq!(body.matches("shl i64").count(), MOST_HELD + 2, "{text}");
        // The block of a shift uses the shift that it has, also in what it hands on.
        assert!(
            body.contains("phi i64 [ %s0, %entry ]") && body.matches("%s").count() == 1 + body.matches("%sum").count()
        );
    }

    #[test]
    fn a_shift_of_a_vector_stays() {
        let cx = Context::create();
        let text = "define <2 x i32> @f(<2 x i32> %a) {\nentry:\n  %s = shl <2 x i32> %a, splat (i32 5)\n  br label %end\n\
                    end:\n  ret <2 x i32> %s\n}\n\0";
        let text = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "kernel");
        let module = cx.create_module_from_ir(text).unwrap();
        assert!(module.get_functions().all(|f| shifted_arguments(f).is_empty()));
    }

    #[test]
    fn few_shifted_arguments_stay_before_the_loop() {
        let text = after(MOST_HELD);
        assert_eq!(text.split_once("loop:").unwrap().1.matches("shl i64").count(), 0, "{text}");
    }
}
