//! Roles as coroutines: bodies, loops and branches are a stack of frames. This file also decides which role runs next.

use crate::cta::{Cta, Frame, Held, Kind, Manner, Order, Partial, Share};
use crate::evaluate::Launch;
use crate::fault::Fault;
use crate::memory::Tensor;
use crate::operations::Next;
use crate::rings::Stop;
use crate::tile::Tile;
use atlas_codegen::gpu::{Block, Domain, Inst, Kernel};
use atlas_dsl::ir::{GridExtent, ParamKind};
use std::rc::Rc;

/// The most instructions of one role and program. The longest kernels need a thousandth of that.
const BUDGET: u32 = 1 << 20;

/// Runs every program of a kernel. `tensors` has one tensor for each parameter that is not a scalar.
///
/// # Errors
/// The first fault that an instruction commits.
pub fn execute(k: &Kernel, launch: &Launch, manner: Manner, tensors: &mut [Option<Tensor>]) -> Result<(), Fault> {
    let programs = programs(k, &launch.dims);
    // CTAs that take several programs are two.
    let splits = k.index_map.splits as usize;
    let count = if k.index_map.persistent { 2 } else { programs.len() * splits };
    let cluster = (k.cluster.0 * k.cluster.1) as usize;
    let mut partials = Vec::new();
    reorder(k, tensors, |order| order.to_vec());
    let mut moved: Vec<Option<Tensor>> = tensors.iter_mut().map(Option::take).collect();
    let outcome = (0..count).step_by(cluster).try_for_each(|place| {
        let numbers = (place..count.min(place + cluster)).map(|place| manner.order.cta_at(place, splits));
        let ctas = numbers.map(|number| {
            let programs = programs.iter().skip(number / splits).step_by(count).cloned().collect();
            let partials = std::mem::take(&mut partials);
            Cta::new(k, launch, manner, Share { number, count, programs, partials, part: None, sum: None })
        });
        partials = run_together(ctas.collect(), &mut moved)?;
        Ok(())
    });
    tensors.iter_mut().zip(moved).for_each(|(tensor, moved)| *tensor = moved);
    // Back: the axis that is the n-th of the argument.
    reorder(k, tensors, |order| (0..order.len()).filter_map(|axis| order.iter().position(|&of| of == axis)).collect());
    outcome
}

/// Runs the CTAs of a cluster, each until all have to meet. Gives the partial tiles that the last of them leaves.
fn run_together(mut ctas: Vec<Cta<'_>>, tensors: &mut Vec<Option<Tensor>>) -> Result<Vec<Partial>, Fault> {
    loop {
        let mut meeting = Vec::new();
        for cta in &mut ctas {
            std::mem::swap(&mut cta.tensors, tensors);
            let outcome = cta.run();
            std::mem::swap(&mut cta.tensors, tensors);
            meeting.extend(outcome?);
        }
        let Some(&(r, inst)) = meeting.first() else {
            return Ok(ctas.pop().map_or_else(Vec::new, |cta| cta.share.partials));
        };
        let parts: Vec<Rc<Tile>> = ctas.iter_mut().filter_map(|cta| cta.share.part.take()).collect();
        let sum = match meeting.iter().all(|m| *m == (r, inst)) && parts.len() == ctas.len() {
            true => ctas[0].sum_of(parts),
            false => Err("not all CTAs of the cluster come to this sum".to_owned()),
        };
        let sum = sum.map_err(|message| ctas[0].fault(r, inst, message))?;
        ctas.iter_mut().for_each(|cta| cta.share.sum = Some(Rc::clone(&sum)));
    }
}

/// Puts the axes of each tensor whose dims have another order than the argument's axes into an order that follows from it.
fn reorder(k: &Kernel, tensors: &mut [Option<Tensor>], of: impl Fn(&[usize]) -> Vec<usize>) {
    for (param, tensor) in k.params.values().zip(tensors) {
        if let (ParamKind::Tensor { axes, .. }, Some(tensor)) = (&param.kind, tensor)
            && !axes.is_empty()
        {
            let order: Vec<usize> = axes.iter().map(|&axis| usize::from(axis)).collect();
            *tensor = tensor.reordered(&of(&order));
        }
    }
}

/// The coordinates of all programs.
fn programs(k: &Kernel, dims: &[u64]) -> Vec<Vec<i64>> {
    let mut all = vec![Vec::new()];
    for axis in &k.index_map.axes {
        let n = GridExtent::count(*axis, dims) as i64;
        all = all.into_iter().flat_map(|p: Vec<i64>| (0..n).map(move |i| [&p[..], &[i]].concat())).collect();
    }
    if k.index_map.domain == Domain::Triangle {
        all.retain(|p| matches!(p[..], [.., i, j] if i >= j));
    }
    all
}

impl Cta<'_> {
    /// Runs all roles to their end, or until the CTA has to meet those of its cluster: then gives the role and the instruction.
    fn run(&mut self) -> Result<Option<(usize, Inst)>, Fault> {
        let mut turn = 0;
        loop {
            let count = self.roles.len();
            let mut blocked = None;
            let mut went_on = false;
            for i in 0..count {
                let r = match self.manner.order {
                    Order::Fair => (turn + i) % count,
                    Order::FirstRole => i,
                    Order::LastRole => count - 1 - i,
                };
                let Some(inst) = self.ready(r) else { continue };
                match self.step(r, inst) {
                    Ok(()) => {
                        went_on = true;
                        turn = r + 1;
                        break;
                    }
                    Err(Stop::Fault(message)) => return Err(self.fault(r, inst, message)),
                    Err(Stop::Blocked(message)) => blocked = Some((r, inst, message)),
                }
            }
            match blocked {
                _ if went_on => {}
                None => return Ok(None),
                Some((r, inst, _)) if self.share.part.is_some() => return Ok(Some((r, inst))),
                Some((r, inst, message)) => return Err(self.fault(r, inst, message)),
            }
        }
    }

    fn fault(&self, r: usize, inst: Inst, message: String) -> Fault {
        let done = |f: &Frame| if let Kind::Programs(done) = f.kind { Some(done) } else { None };
        let done = self.roles[r].frames.iter().find_map(done);
        let at = match self.share.programs.get(done.unwrap_or(0)) {
            Some(at) if done.is_some() || !self.k.coords.is_empty() => at.clone(),
            // The kernel computes them.
            _ => vec![self.share.number as i64],
        };
        Fault::at(self.k, inst, &self.k.roles[self.roles[r].role].name, &at, message)
    }

    /// The next instruction of a role; `None` at its end.
    fn ready(&mut self, r: usize) -> Option<Inst> {
        loop {
            let frame = self.roles[r].frames.last_mut()?;
            if let Some(&inst) = self.k.blocks[frame.block].insts.get(frame.at) {
                return Some(inst);
            }
            // Bodies of loops end in `yield`.
            match frame.kind {
                Kind::Programs(done) if done + 1 < self.share.programs.len() => {
                    (frame.at, frame.kind) = (0, Kind::Programs(done + 1));
                    let block = frame.block;
                    self.enter_program(r, block, done + 1);
                }
                _ => {
                    self.roles[r].frames.pop();
                }
            }
        }
    }

    /// Executes an instruction. One that has to wait is tried again.
    fn step(&mut self, r: usize, inst: Inst) -> Result<(), Stop> {
        self.roles[r].steps += 1;
        if self.roles[r].steps > BUDGET {
            return Err(Stop::Fault("the role does not come to its end".to_owned()));
        }
        let k = self.k;
        let next = self.operation(r, inst)?;
        match next {
            Next::On(results) => {
                let count = k.results[inst].len();
                if results.len() != count {
                    return Err(Stop::Fault(format!("{} results of an instruction of {count}", results.len())));
                }
                for (&v, held) in k.results[inst].iter().zip(results) {
                    self.check_type(v, &held)?;
                    self.set(r, v, held);
                }
                self.advance(r);
            }
            Next::Enter(block) => {
                self.advance(r);
                self.roles[r].frames.push(Frame { block, at: 0, kind: Kind::Branch(inst) });
            }
            Next::Loop { lo, hi, inits, body } => {
                self.advance(r);
                if lo < hi {
                    self.roles[r].frames.push(Frame { block: body, at: 0, kind: Kind::Loop { inst, index: lo, hi } });
                    self.enter_iterate(r, body, lo, inits);
                } else {
                    k.results[inst].iter().zip(inits).for_each(|(&v, held)| self.set(r, v, held));
                }
            }
            Next::Programs(block) => {
                self.advance(r);
                if !self.share.programs.is_empty() {
                    self.roles[r].frames.push(Frame { block, at: 0, kind: Kind::Programs(0) });
                    self.enter_program(r, block, 0);
                }
            }
            Next::End => self.roles[r].frames.clear(),
            Next::Yield(values) => self.end_iterate(r, values)?,
        }
        Ok(())
    }

    fn advance(&mut self, r: usize) {
        if let Some(frame) = self.roles[r].frames.last_mut() {
            frame.at += 1;
        }
    }

    fn enter_iterate(&mut self, r: usize, body: Block, index: i64, carried: Vec<Held>) {
        let params = &self.k.blocks[body].params;
        let index = Held::Tile(Rc::new(Tile::int(index)));
        params.iter().zip(std::iter::once(index).chain(carried)).for_each(|(&v, held)| self.set(r, v, held));
    }

    fn end_iterate(&mut self, r: usize, values: Vec<Held>) -> Result<(), String> {
        if let Some(&Frame { kind: Kind::Branch(inst), .. }) = self.roles[r].frames.last() {
            self.roles[r].frames.pop();
            self.k.results[inst].iter().zip(values).for_each(|(&v, held)| self.set(r, v, held));
            return Ok(());
        }
        let Some(Frame { block, at, kind: Kind::Loop { inst, index, hi } }) = self.roles[r].frames.last_mut() else {
            return Err("`yield` outside a loop or a branch".to_owned());
        };
        let (block, inst) = (*block, *inst);
        *index += 1;
        *at = 0;
        if *index < *hi {
            let index = *index;
            self.enter_iterate(r, block, index, values);
        } else {
            self.roles[r].frames.pop();
            self.k.results[inst].iter().zip(values).for_each(|(&v, held)| self.set(r, v, held));
        }
        Ok(())
    }

    fn enter_program(&mut self, r: usize, block: Block, number: usize) {
        let at = self.share.programs[number].iter().copied().chain([number as i64]);
        let all: Vec<Held> = at.map(|x| Held::Tile(Rc::new(Tile::int(x)))).collect();
        self.k.blocks[block].params.iter().zip(all).for_each(|(&v, held)| self.set(r, v, held));
    }
}
