//! The axes of tiles along which their elements may differ.

use crate::gpu::{Block, Kernel, Op, Value};
use cranelift_entity::SecondaryMap;

/// For each tile, the axes along which its elements may differ.
#[derive(Clone, Debug, Default)]
pub(super) struct Varying {
    axes: SecondaryMap<Value, Option<Vec<bool>>>,
}

impl Varying {
    pub(super) fn of(k: &Kernel) -> Varying {
        let mut varying = Varying::default();
        for role in k.roles.values() {
            varying.block(k, role.body);
        }
        varying
    }

    fn block(&mut self, k: &Kernel, block: Block) {
        for &inst in &k.blocks[block].insts {
            if let (Some(axes), Some(&v)) =
                (self.axes_of(k, &k.insts[inst], k.results[inst].first()), k.results[inst].first())
            {
                self.axes[v] = Some(axes);
            }
            if let Some(body) = k.insts[inst].body() {
                self.block(k, body);
            }
        }
    }

    /// The axes of what an operation gives, if they are known.
    fn axes_of(&self, k: &Kernel, op: &Op, result: Option<&Value>) -> Option<Vec<bool>> {
        let shape = &k.values[*result?].ty.tile()?.1.shape;
        let mut axes = vec![false; shape.len()];
        if let Op::Const(_) = op {
            return Some(axes);
        }
        if let Op::Iota { axis, .. } = op {
            *axes.get_mut(usize::from(*axis))? = true;
        } else if let Op::Broadcast(a) = op {
            let from = &k.tile(*a).1.shape;
            let lead = shape.len() - from.len();
            let of = self.axes[*a].as_deref();
            for (i, &extent) in from.iter().enumerate() {
                axes[lead + i] = extent != 1 && of.is_none_or(|of| of[i]);
            }
        } else if op.is_elementwise() {
            let mut is_known = true;
            op.visit_operands(|v| match &self.axes[v] {
                Some(of) if of.len() == axes.len() => axes.iter_mut().zip(of).for_each(|(axis, &of)| *axis |= of),
                _ => is_known = false,
            });
            return is_known.then_some(axes);
        } else {
            return None;
        }
        Some(axes)
    }

    /// How many registers of a thread may differ.
    pub(super) fn registers(&self, k: &Kernel, v: Value) -> u32 {
        let Some((_, layout)) = k.values[v].ty.tile() else { return 1 };
        let of = self.axes[v].as_deref();
        let differs = |axis: u8| of.is_none_or(|of| of[usize::from(axis)]);
        layout.regs.iter().filter(|mode| mode.axis.is_some_and(differs)).map(|mode| mode.extent).product()
    }
}
