//! The least data and arithmetic of a launch, whatever its tensors contain. The roofline is computed from it.
//!
//! Bytes are counted by element, not by access. Each element that a launch reads counts once, and each that it writes counts
//! once, however often programs access it and whichever cache holds it. Products count as the config computes them, including
//! padding of tiles. Loops and conditions may depend on data in memory or on a number from the caller. They count for what they
//! do in any case, which may be nothing. The same holds for elements whose address depends on such values, or on an index that
//! is not understood. Two tensors count as two, although a caller may pass one for both.

use super::expected::Expected;
use super::formula::{Formula, Numbers};
use super::guards::{EnclosingLoop, Guard, share_of_trips};
use super::sample_points::{SamplePoints, programs};
use super::work::WorkWalk;
use crate::gpu::{Block, Buffer, Inst, Kernel, Op, Slice, Value, ValueDef};
use crate::gpu_ops;
use atlas_dsl::ir::{GridExtent, ParamKind, Stride};
use atlas_dsl::op::BinaryOp;
use atlas_dsl::{DType, Param};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The most operations in an index. Nothing is known about longer ones.
const MOST_DEEP: u32 = 200;

/// The least work of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compulsory {
    /// Bytes of the elements that are read, each once.
    pub read: f64,
    /// Bytes of the elements that are written, each once.
    pub written: f64,
    /// Multiply-adds on tensor cores, without f64, in units of 16-bit operands.
    pub tensor: f64,
    /// Multiply-adds on tensor cores of f64.
    pub tensor_f64: f64,
    /// Multiply-adds of products without tensor cores, without f64.
    pub fma: f64,
    /// The same for f64.
    pub fma_f64: f64,
    /// All of these multiply-adds, each as one.
    pub products: f64,
    /// True if data, numbers from the caller, or indices that are not understood decide how much more it is.
    pub is_open: bool,
}

impl Compulsory {
    /// Bytes of the elements that are read or written.
    pub fn bytes(&self) -> f64 {
        self.read + self.written
    }
}

/// The least work of a launch of a lowered kernel, for these sizes of its dims.
pub fn compulsory(k: &Kernel, dims: &[u64]) -> Compulsory {
    let mut count = CompulsoryCounter {
        k,
        walk: WorkWalk::new(k, Expected::certain(k)),
        accesses: Vec::new(),
        products: Vec::new(),
        open: false,
        places: BTreeMap::new(),
        own: BTreeSet::new(),
        depth: 0,
    };
    let roles: Vec<Vec<WorkStep>> = k.roles.values().map(|role| count.block(role.body, None)).collect();
    let launched = GridExtent::programs(&k.index_map.grid(), dims) as f64;
    let CompulsoryCounter { walk, accesses, products, open, .. } = count;
    let formulas = &walk.formulas;
    let (mut moved, mut made) = (vec![0.0; accesses.len()], vec![0.0; products.len()]);
    let mut reach = vec![0.0; accesses.len()];
    let places: Vec<Vec<Vec<f64>>> = programs(SamplePoints::of(formulas.variables()))
        .map(|trips| trips.map(|place| formulas.values(dims, place)).collect())
        .collect();
    for trips in &places {
        let share = launched / (places.len() * trips.len()) as f64;
        for values in trips {
            let mut run = SampledProgram { values, share, moved: &mut moved, made: &mut made };
            roles.iter().for_each(|role| run.steps(role, 1.0, 1.0));
        }
    }
    if let Some(values) = places.first().and_then(|trips| trips.first()) {
        for (at, access) in accesses.iter().enumerate() {
            reach[at] = values[access.reach as usize];
        }
    }
    let mut all = Compulsory { is_open: open, ..Compulsory::default() };
    for (bytes, written) in elements(&accesses, |at| moved[at].min(reach[at]).max(0.0)) {
        *if written { &mut all.written } else { &mut all.read } += bytes;
    }
    for (product, times) in products.iter().zip(made) {
        let to = match (product.is_tensor_core, product.is_f64) {
            (true, true) => &mut all.tensor_f64,
            (true, false) => &mut all.tensor,
            (false, true) => &mut all.fma_f64,
            (false, false) => &mut all.fma,
        };
        *to += times * product.each * product.time;
        all.products += times * product.each;
    }
    all
}

/// A load or a store.
struct GlobalAccess {
    param: Param,
    written: bool,
    /// The buffer that it fills. Accesses of one tensor that fill the same buffer touch different elements each time.
    to: Option<Buffer>,
    /// Bytes of the part of the tensor in which its elements lie.
    reach: Formula,
    /// The elements that it touches along each axis, as far as that distinguishes it from others.
    parts: Vec<Region>,
}

/// Elements along an axis.
#[derive(Clone, PartialEq, Eq)]
enum Region {
    /// Always these elements.
    Always(Range<u64>),
    /// These elements of some tile; the number is the extent of a tile.
    OfTiles(u32, Range<u64>),
    Any,
}

impl Region {
    /// Elements that include both, if they begin together or are the same.
    fn joined(&self, other: &Region) -> Region {
        let longer = |a: &Range<u64>, b: &Range<u64>| a.start..a.end.max(b.end);
        match (self, other) {
            (Region::Always(a), Region::Always(b)) if a.start == b.start => Region::Always(longer(a, b)),
            (Region::OfTiles(m, a), Region::OfTiles(n, b)) if m == n && a.start == b.start => {
                Region::OfTiles(*m, longer(a, b))
            }
            _ => Region::Any,
        }
    }
}

impl GlobalAccess {
    /// True if two accesses may touch the same element.
    fn meets(&self, other: &GlobalAccess) -> bool {
        let is_apart = |(a, b): (&Region, &Region)| match (a, b) {
            (Region::OfTiles(m, _), Region::OfTiles(n, _)) if m != n => false,
            (Region::Always(a), Region::Always(b)) | (Region::OfTiles(_, a), Region::OfTiles(_, b)) => {
                a.end <= b.start || b.end <= a.start
            }
            _ => false,
        };
        (self.param, self.written) == (other.param, other.written) && !self.parts.iter().zip(&other.parts).any(is_apart)
    }
}

/// The slices of a copy to a panel that begins at a column, and of the panels before it: what one copy to all of them has.
fn back_to_first_panel(slices: &[Slice], col: u32) -> Vec<Slice> {
    let mut all = slices.to_vec();
    if let Some(last) = all.last_mut() {
        match last {
            Slice::Tile { offset, len, .. } | Slice::Span { offset, len, .. } | Slice::Whole { offset, len } => {
                *offset = offset.saturating_sub(col);
                *len += col;
            }
            Slice::At { .. } | Slice::Gather { .. } => {}
        }
    }
    all
}

/// The touched bytes, and whether they are written. Of accesses that may touch the same elements, the one that touches most
/// counts.
fn elements(accesses: &[GlobalAccess], touched: impl Fn(usize) -> f64) -> Vec<(f64, bool)> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, access) in accesses.iter().enumerate() {
        let (met, apart): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|group| group.iter().any(|&other| accesses[other].meets(access)));
        groups = apart;
        groups.push(met.into_iter().flatten().chain([at]).collect());
    }
    let most = |group: &Vec<usize>| group.iter().map(|&at| touched(at)).fold(0.0, f64::max);
    groups.iter().map(|group| (most(group), accesses[group[0]].written)).collect()
}

/// A product of tiles.
struct ProductWork {
    /// Multiply-adds of all threads.
    each: f64,
    /// The number of 16-bit ones that take as long as one.
    time: f64,
    is_tensor_core: bool,
    is_f64: bool,
}

/// The work of a program, as far as it depends on sizes.
enum WorkStep {
    Access(usize, Formula),
    Product(usize),
    Loop(Option<(Formula, Formula)>, Vec<WorkStep>),
    If { but_last: Option<f64>, condition: Option<Formula>, body: Vec<WorkStep> },
}

struct CompulsoryCounter<'a> {
    k: &'a Kernel,
    walk: WorkWalk<'a>,
    accesses: Vec<GlobalAccess>,
    products: Vec<ProductWork>,
    open: bool,
    places: BTreeMap<Value, Option<Spread>>,
    /// Conditions that tell a fill of this program from one of the next, which counts for that one.
    own: BTreeSet<Value>,
    /// The depth of the walk into an index.
    depth: u32,
}

impl CompulsoryCounter<'_> {
    fn block(&mut self, block: Block, around: Option<EnclosingLoop>) -> Vec<WorkStep> {
        let k = self.k;
        let mut steps = Vec::new();
        for &inst in &k.blocks[block].insts {
            match &k.insts[inst] {
                Op::Loop { lo, hi, body, .. } => {
                    let walk = &mut self.walk;
                    self.open |= walk.expected.is_open(*lo) || walk.expected.is_open(*hi);
                    let bounds = walk.expected.bounds(&mut walk.formulas, *lo, *hi);
                    let around = EnclosingLoop { ahead: None, index: k.blocks[*body].params[0], hi: *hi };
                    steps.push(WorkStep::Loop(bounds, self.block(*body, Some(around))));
                }
                Op::If(condition, body, _) => {
                    let Guard { but_last, own, other } = Guard::of(k, *condition, around);
                    self.own.extend(own);
                    let walk = &mut self.walk;
                    self.open |= other.is_some_and(|v| walk.expected.is_open(v));
                    let condition = other.and_then(|v| walk.expected.condition(&mut walk.formulas, v));
                    steps.push(WorkStep::If { but_last, condition, body: self.block(*body, around) });
                }
                Op::Once(body) => steps.extend(self.block(*body, around)),
                Op::LoadGlobal { param, slices, .. } => steps.push(self.access(*param, slices, false, None)),
                Op::Copy { atom, param, slices, .. } if atom.is_store() => {
                    steps.push(self.access(*param, slices, true, None));
                }
                Op::Copy { param, slices, to, .. } => {
                    let amount = self.walk.global_bytes(*param, slices);
                    let slices = back_to_first_panel(slices, to.origin.1);
                    steps.push(self.access_of(*param, &slices, false, Some(to.buffer), amount));
                }
                Op::StoreGlobal { param, slices, .. } => steps.push(self.access(*param, slices, true, None)),
                Op::Mma { .. } => steps.extend(self.product(inst)),
                Op::WaitMma(..) | Op::Programs(_) | Op::Yield(_) => {}
                gpu_ops!(sources elementwise views fragments shared clusters rings orders) => {}
            }
        }
        steps
    }

    fn access(&mut self, param: Param, slices: &[Slice], written: bool, to: Option<Buffer>) -> WorkStep {
        let amount = self.walk.global_bytes(param, slices);
        self.access_of(param, slices, written, to, amount)
    }

    /// An access within slices, which touches so many bytes.
    fn access_of(
        &mut self,
        param: Param,
        slices: &[Slice],
        written: bool,
        to: Option<Buffer>,
        amount: Formula,
    ) -> WorkStep {
        let (reach, parts) = self.reach(param, slices);
        // A ring is filled before its loop and inside.
        let same = |a: &GlobalAccess| to.is_some() && (a.param, a.to) == (param, to);
        if let Some(at) = self.accesses.iter().position(same) {
            let known = &mut self.accesses[at];
            known.reach = self.walk.formulas.binary(BinaryOp::Max, Numbers::Real, known.reach, reach);
            for (part, other) in known.parts.iter_mut().zip(parts) {
                *part = part.joined(&other);
            }
            return WorkStep::Access(at, amount);
        }
        self.accesses.push(GlobalAccess { param, written, to, reach, parts });
        WorkStep::Access(self.accesses.len() - 1, amount)
    }

    /// Bytes of the part of a tensor that an access touches in a launch, and the elements along each axis.
    fn reach(&mut self, param: Param, slices: &[Slice]) -> (Formula, Vec<Region>) {
        let ParamKind::Tensor { dtype, dims, strides, .. } = &self.k.params[param].kind else {
            return (self.walk.formulas.constant(0.0), Vec::new());
        };
        let mut parts = Vec::new();
        let mut factors = vec![self.walk.formulas.constant(f64::from(dtype.bytes()))];
        for (axis, (slice, &dim)) in slices.iter().zip(dims).enumerate() {
            let (start, times, offset, len) = match *slice {
                Slice::At { coord, .. } => (Some(coord), 1, 0, 1),
                Slice::Tile { index, size, offset, len, .. } => (Some(index), size, offset, len),
                Slice::Span { start, offset, len } => (Some(start), 1, offset, len),
                Slice::Whole { offset, len } => (None, 1, offset, len),
                Slice::Gather { len, .. } => {
                    // Data say where, and may say the same each time.
                    self.open = true;
                    parts.push(Region::Any);
                    factors.push(self.walk.formulas.at_most(dim, len));
                    continue;
                }
            };
            let from = |first: u64| first..first + u64::from(len);
            let known = start.map_or(Some(0.0), |v| self.constant(v)).filter(|x| *x >= 0.0);
            parts.push(match (known, slice) {
                (Some(x), _) => Region::Always(from(x as u64 * u64::from(times) + u64::from(offset))),
                (None, Slice::Tile { size, .. }) => Region::OfTiles(*size, from(u64::from(offset))),
                (None, _) => Region::Any,
            });
            let places = start.map_or(Some(Spread::One), |v| self.places(v));
            let f = &mut self.walk.formulas;
            // An axis of stride 0 repeats one element.
            let repeats = strides.get(axis).is_some_and(|s| *s == Stride::Const(0));
            factors.push(match places {
                _ if repeats => f.constant(1.0),
                Some(Spread::One) => f.at_most(dim, len),
                Some(Spread::Many(_)) => f.size(dim),
                Some(Spread::Some { count, step }) => {
                    let each = f64::from(len).min(step * f64::from(times));
                    let (each, all) = (f.constant(each), f.size(dim));
                    let places = f.binary(BinaryOp::Mul, Numbers::Real, count, each);
                    f.binary(BinaryOp::Min, Numbers::Real, places, all)
                }
                // Data say where, or an index that is not understood: it may be the same elements each time.
                None => {
                    self.open = true;
                    f.at_most(dim, len)
                }
            });
        }
        (self.walk.formulas.product(factors), parts)
    }

    fn constant(&self, v: Value) -> Option<f64> {
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return None };
        let op = &self.k.insts[inst];
        if let Op::Const(x) = op {
            return Some(*x);
        }
        if let Op::Cast(x) | Op::Broadcast(x) | Op::Reshape(x) = op { self.constant(*x) } else { None }
    }

    /// The number of values of an index over a launch. `None` if it depends on data, or if it is neither a sum of multiples of
    /// coordinates and loop indices nor one part of a coordinate.
    fn places(&mut self, v: Value) -> Option<Spread> {
        if let Some(known) = self.places.get(&v) {
            return known.clone();
        }
        // By many ways one comes to the same index, and an index may be as long as a kernel.
        if self.depth == MOST_DEEP {
            return None;
        }
        self.depth += 1;
        let made = if self.walk.expected.is_open(v) { None } else { self.make_places(v) };
        self.depth -= 1;
        self.places.insert(v, made.clone());
        made
    }

    fn is_one_place(&mut self, v: Value) -> bool {
        matches!(self.places(v), Some(Spread::One))
    }

    fn make_places(&mut self, v: Value) -> Option<Spread> {
        if self.constant(v).is_some() {
            return Some(Spread::One);
        }
        let k = self.k;
        let inst = match k.values[v].def {
            ValueDef::Result(inst, _) => inst,
            ValueDef::BlockParam(_, 0) => return Some(Spread::Many([(IndexSource::Index(v), 1.0)].into())),
            // What a loop carries may be the same in every iteration.
            _ => return None,
        };
        match k.insts[inst] {
            // Of the CTAs that share a program, this is about the first one.
            Op::DimSize(_) | Op::DimTiles(..) | Op::SplitNumber | Op::SplitCount => Some(Spread::One),
            Op::Coordinate(..) => {
                let axis = self.walk.expected.axis_of(inst).map_or(IndexSource::Index(v), IndexSource::Axis);
                Some(Spread::Many([(axis, 1.0)].into()))
            }
            // Different numbers may have the same low bits.
            Op::Cast(_) if k.tile(v).0.is_small() => None,
            Op::Cast(x) | Op::Broadcast(x) | Op::Reshape(x) | Op::Rematerialize(x) => self.places(x),
            Op::Select(condition, own, _) if self.own.contains(&condition) => self.places(own),
            Op::Select(condition, a, b) if [condition, a, b].iter().all(|&v| self.is_one_place(v)) => Some(Spread::One),
            Op::Compare(_, a, b) if self.is_one_place(a) && self.is_one_place(b) => Some(Spread::One),
            Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), _, a, b) => {
                let sign = if op == BinaryOp::Sub { -1.0 } else { 1.0 };
                match (self.places(a)?, self.places(b)?) {
                    (a, Spread::One) => Some(a),
                    (Spread::One, b) => Some(b.times(sign)),
                    (Spread::Many(mut all), Spread::Many(others)) => {
                        for (source, step) in others {
                            *all.entry(source).or_default() += sign * step;
                        }
                        all.retain(|_, step| *step != 0.0);
                        Some(if all.is_empty() { Spread::One } else { Spread::Many(all) })
                    }
                    // Parts of the same coordinate may make up for each other.
                    _ => None,
                }
            }
            Op::Binary(BinaryOp::Mul, _, a, b) => match (self.constant(a), self.constant(b)) {
                (Some(by), _) => self.places(b).map(|s| s.times(by)),
                (_, Some(by)) => self.places(a).map(|s| s.times(by)),
                _ => match (self.places(a)?, self.places(b)?) {
                    (Spread::One, Spread::One) => Some(Spread::One),
                    (other, Spread::One) if self.is_size(b) => Some(other),
                    (Spread::One, other) if self.is_size(a) => Some(other),
                    _ => None,
                },
            },
            Op::Binary(op @ (BinaryOp::Div | BinaryOp::Rem | BinaryOp::Min | BinaryOp::Max), _, a, b) => {
                if let (Some(Spread::One), Some(Spread::One)) = (self.places(a), self.places(b)) {
                    return Some(Spread::One);
                }
                let by = self.constant(b).filter(|by| *by >= 1.0)?;
                let extent = self.coordinate(a)?;
                let f = &mut self.walk.formulas;
                let (count, most) = (f.count(extent), f.constant(by));
                let count = match op {
                    BinaryOp::Div => {
                        let rest = f.constant(by - 1.0);
                        let up = f.binary(BinaryOp::Add, Numbers::Real, count, rest);
                        f.binary(BinaryOp::Div, Numbers::I64, up, most)
                    }
                    BinaryOp::Rem => f.binary(BinaryOp::Min, Numbers::Real, count, most),
                    BinaryOp::Min => {
                        let most = f.constant(by + 1.0);
                        f.binary(BinaryOp::Min, Numbers::Real, count, most)
                    }
                    _ => return None,
                };
                Some(Spread::Some { count, step: 1.0 })
            }
            Op::Const(_) | Op::Iota { .. } | Op::ScalarParam(_) | Op::TableGet(..) => None,
            Op::CtaNumber | Op::CtaCount | Op::Unsigned(..) => None,
            Op::Unary(..) | Op::Binary(..) | Op::Compare(..) | Op::Select(..) | Op::Fma(..) => None,
            Op::Transpose(_) | Op::ExtractSlice { .. } => None,
            gpu_ops!(fragments global shared clusters products rings orders control) => None,
        }
    }

    /// The size of a dim. It is not 0 if anything runs.
    fn is_size(&self, v: Value) -> bool {
        self.root(v).is_some_and(|op| matches!(op, Op::DimSize(_) | Op::DimTiles(..)))
    }

    /// What a coordinate counts.
    fn coordinate(&self, v: Value) -> Option<GridExtent> {
        if let Op::Coordinate(_, extent) = self.root(v)? { Some(*extent) } else { None }
    }

    /// The operation that computes a number, before changes of its type.
    fn root(&self, mut v: Value) -> Option<&Op> {
        loop {
            let ValueDef::Result(inst, _) = self.k.values[v].def else { return None };
            match &self.k.insts[inst] {
                op @ Op::Cast(_) if self.k.tile(v).0.is_small() => return Some(op),
                Op::Cast(x) | Op::Broadcast(x) | Op::Reshape(x) | Op::Rematerialize(x) => v = *x,
                op => return Some(op),
            }
        }
    }

    fn product(&mut self, inst: Inst) -> Option<WorkStep> {
        let k = self.k;
        let Op::Mma { atom, shape, .. } = &k.insts[inst] else { return None };
        let (_, layout) = k.results[inst].first().and_then(|&v| k.values[v].ty.tile())?;
        let (info, is_tensor_core) = (atom.row(), atom.is_tensor_core());
        let is_f64 = info.operand == DType::F64;
        let time = if is_tensor_core && !is_f64 { f64::from(info.time) } else { 1.0 };
        let elements = f64::from(k.threads) * f64::from(layout.reg_count());
        let depth = f64::from(shape.2.next_multiple_of(info.shape.2));
        self.products.push(ProductWork { each: elements * depth, time, is_tensor_core, is_f64 });
        Some(WorkStep::Product(self.products.len() - 1))
    }
}

/// The positions of an access along an axis.
#[derive(Clone, Debug, PartialEq)]
enum Spread {
    One,
    /// A number of positions, and the distance between neighbours.
    Some {
        count: Formula,
        step: f64,
    },
    /// A sum of multiples of coordinates and loop indices, with the number of values of each.
    Many(BTreeMap<IndexSource, f64>),
}

/// The source of a running number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IndexSource {
    Axis(u32),
    Index(Value),
}

impl Spread {
    fn times(self, by: f64) -> Spread {
        match self {
            _ if by == 0.0 => Spread::One,
            Spread::One => Spread::One,
            Spread::Some { count, step } => Spread::Some { count, step: step * by.abs() },
            Spread::Many(all) => Spread::Many(all.into_iter().map(|(source, step)| (source, step * by)).collect()),
        }
    }
}

/// One program at one place, which stands for some.
struct SampledProgram<'r> {
    values: &'r [f64],
    share: f64,
    moved: &'r mut [f64],
    made: &'r mut [f64],
}

impl SampledProgram<'_> {
    fn steps(&mut self, steps: &[WorkStep], trips: f64, of_loop: f64) {
        let of = |f: Formula| self.values[f as usize];
        for step in steps {
            match step {
                WorkStep::Access(at, amount) => self.moved[*at] += self.share * trips * self.values[*amount as usize],
                WorkStep::Product(at) => self.made[*at] += self.share * trips,
                WorkStep::Loop(bounds, body) => {
                    let known = bounds.map(|(lo, hi)| of(hi) - of(lo)).filter(|n| n.is_finite());
                    let own = known.map_or(0.0, |n| n.max(0.0).ceil());
                    self.steps(body, trips * own, own);
                }
                WorkStep::If { but_last, condition, body } => {
                    let share = share_of_trips(of_loop, *but_last, condition.map(of)).unwrap_or(0.0);
                    self.steps(body, trips * share, of_loop);
                }
            }
        }
    }
}
