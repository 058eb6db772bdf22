//! Which elements of each tile are real, and what the others hold.
//!
//! A tile cut at the end of a dim is *ragged*: some of its elements lie outside the tensor. Layouts
//! add *padding* beyond the tile's own extents. Loads put 0 in both; element-wise operations map that
//! constant along. A contraction needs its neutral there and gets it by a refill unless this analysis
//! proves that it is there already.

use super::{Uses, reach};
use crate::gpu::Reach;
use atlas_dsl::fold::{self, Known};
use atlas_dsl::op::Slice;
use atlas_dsl::{Block, Dim, Kernel, Op, Value};
use cranelift_entity::SecondaryMap;

/// Elements of a tile along `axis` are real where the sliced coordinate lies inside `dim`; all of them, or none, if the
/// slice is one element, repeated along the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Tile axis.
    pub axis: u8,
    /// What the axis is in the tensor.
    pub slice: Slice,
    /// The dim.
    pub dim: Dim,
}

/// What is known of one value.
#[derive(Clone, Debug, Default, PartialEq)]
struct Info {
    constraints: Vec<Constraint>,
    /// What is known of every element outside the tensor, and of all padding.
    fill: Option<Known>,
    /// The same holds of every element, real ones included.
    uniform: bool,
}

/// The raggedness of every value of a kernel.
#[derive(Clone, Debug)]
pub struct Extents {
    uses: Uses,
    info: SecondaryMap<Value, Info>,
    escapes: bool,
}

impl Extents {
    /// Analyses a kernel.
    pub fn of(kernel: &Kernel, uses: &Uses) -> Extents {
        let mut e = Extents { uses: uses.clone(), info: SecondaryMap::new(), escapes: false };
        e.block(kernel, kernel.body);
        e
    }

    /// The axes along which a tile may be ragged.
    pub fn constraints(&self, v: Value) -> &[Constraint] {
        &self.info[v].constraints
    }

    /// What is known of elements outside the tensor, and of padding.
    pub fn fill(&self, v: Value) -> Option<Known> {
        self.info[v].fill
    }

    /// True if a loop carries out a tile whose ragged end depends on the loop's index. Which elements are
    /// real is then a matter of the last iterate, which masks cannot say.
    pub fn ragged_tile_leaves_its_loop(&self) -> bool {
        self.escapes
    }

    /// Whether a contraction of `axes` needs its neutral put in first. `padded`: the layout adds
    /// padding along those axes.
    pub fn needs_refill(&self, v: Value, axes: &[u8], neutral: f64, padded: bool) -> bool {
        let info = &self.info[v];
        let ragged = info.constraints.iter().any(|c| axes.contains(&c.axis));
        (ragged || padded) && info.fill != Some(Known::Exact(neutral))
    }

    fn block(&mut self, kernel: &Kernel, block: Block) {
        for &inst in &kernel.blocks[block].insts {
            let op = &kernel.insts[inst];
            let results = kernel.results[inst].clone();
            if let Op::Loop { inits, body, .. } = op {
                let params = kernel.blocks[*body].params.clone();
                let mut carried: Vec<Info> = inits.iter().map(|&v| self.info[v].clone()).collect();
                loop {
                    for (p, info) in params[1..].iter().zip(&carried) {
                        self.info[*p] = info.clone();
                    }
                    self.block(kernel, *body);
                    let next: Vec<Info> = match kernel.blocks[*body].insts.last().map(|&i| &kernel.insts[i]) {
                        Some(Op::Yield(vs)) => {
                            let outside: Vec<Info> = vs.iter().map(|&v| self.outside(kernel, v, *body)).collect();
                            self.escapes |= vs
                                .iter()
                                .zip(&outside)
                                .any(|(&v, o)| self.info[v].constraints.len() != o.constraints.len());
                            carried.iter().zip(&outside).map(|(c, o)| join(c, o)).collect()
                        }
                        _ => carried.clone(),
                    };
                    if next == carried {
                        break;
                    }
                    carried = next;
                }
                for (r, info) in results.iter().zip(carried) {
                    self.info[*r] = info;
                }
            } else if let [result] = results[..] {
                self.info[result] = self.transfer(kernel, op);
            }
        }
    }

    /// A value's facts as seen outside a loop: constraints on what only the loop defines are dropped.
    fn outside(&self, kernel: &Kernel, v: Value, body: Block) -> Info {
        let mut info = self.info[v].clone();
        let inside = |v: Value| match kernel.values[v].def {
            atlas_dsl::ir::ValueDef::BlockParam(b, _) => b == body,
            atlas_dsl::ir::ValueDef::Result(i, _) => kernel.blocks[body].insts.contains(&i),
            atlas_dsl::ir::ValueDef::Grid(_) => false,
        };
        info.constraints.retain(|c| match c.slice {
            Slice::At(v) | Slice::Tile { index: v, .. } | Slice::Span { start: v, .. } => !inside(v),
            Slice::Whole => true,
        });
        info
    }

    fn transfer(&self, kernel: &Kernel, op: &Op) -> Info {
        let get = |v: &Value| &self.info[*v];
        match op {
            Op::Splat { value, dtype, .. } => {
                let fill = Known::constant(*dtype, *value);
                Info { constraints: vec![], fill, uniform: fill.is_some() }
            }
            Op::Load { param, slices } => {
                let atlas_dsl::ir::ParamKind::Tensor { dims, .. } = &kernel.params[*param].kind else {
                    return Info::default();
                };
                let mut constraints = Vec::new();
                let mut axis = 0;
                for (slice, &dim) in slices.iter().zip(dims) {
                    if matches!(slice, Slice::At(_)) {
                        continue;
                    }
                    if reach(kernel, &self.uses, *slice, dim) != Reach::Inside {
                        constraints.push(Constraint { axis, slice: *slice, dim });
                    }
                    axis += 1;
                }
                Info { constraints, fill: Some(Known::Exact(0.0)), uniform: false }
            }
            Op::Unary(op, v) => {
                let i = get(v);
                i.with(i.fill.and_then(|x| fold::unary(*op, kernel.ty(*v).dtype, x)))
            }
            Op::Cast(to, v) => {
                let i = get(v);
                i.with(i.fill.and_then(|x| fold::cast(kernel.ty(*v).dtype, *to, x)))
            }
            Op::Binary(op, a, b) => merge([get(a), get(b)], |[x, y]| fold::binary(*op, kernel.ty(*a).dtype, x, y)),
            Op::Compare(p, a, b) => merge([get(a), get(b)], |[x, y]| fold::compare(*p, kernel.ty(*a).dtype, x, y)),
            Op::Select { cond, on_true, on_false } => {
                merge([get(cond), get(on_true), get(on_false)], |[c, x, y]| fold::select(Some(c), Some(x), Some(y)))
            }
            Op::Broadcast { value, shape } => {
                let i = get(value);
                let from = &kernel.ty(*value).shape;
                let lead = (shape.len() - from.len()) as u8;
                let wider = |axis: u8| from[usize::from(axis)] != shape[usize::from(axis + lead)];
                let stretch = |c: &Constraint| Constraint {
                    axis: c.axis + lead,
                    slice: if wider(c.axis) { one_element(c.slice) } else { c.slice },
                    ..*c
                };
                let constraints = i.constraints.iter().map(stretch).collect();
                // Padding along the axis repeats what is real.
                Info { constraints, fill: if i.uniform { i.fill } else { None }, uniform: i.uniform }
            }
            Op::Reshape { value, shape } => {
                let i = get(value);
                let from = &kernel.ty(*value).shape;
                let real = |s: &[u32]| (0..s.len()).filter(|&k| s[k] != 1).collect::<Vec<_>>();
                let (old, new) = (real(from), real(shape));
                let constraints = i
                    .constraints
                    .iter()
                    .filter_map(|c| {
                        let k = old.iter().position(|&a| a == usize::from(c.axis))?;
                        Some(Constraint { axis: new[k] as u8, ..*c })
                    })
                    .collect();
                Info { constraints, ..i.clone() }
            }
            Op::Transpose(v) => {
                let i = get(v);
                let constraints = i.constraints.iter().map(|c| Constraint { axis: 1 - c.axis, ..*c }).collect();
                Info { constraints, ..i.clone() }
            }
            Op::Reduce { value, axes, .. } => {
                let constraints = get(value).constraints.iter().filter(|c| !axes.contains(&c.axis)).copied().collect();
                Info { constraints, fill: None, uniform: false }
            }
            Op::Dot { a, b, acc, .. } => {
                let rows = get(a).constraints.iter().filter(|c| c.axis == 0);
                let cols = get(b).constraints.iter().filter(|c| c.axis == 1);
                let mut constraints: Vec<Constraint> = rows.chain(cols).copied().collect();
                if let Some(c) = acc {
                    add(&mut constraints, &get(c).constraints);
                }
                Info { constraints, fill: None, uniform: false }
            }
            Op::Iota { .. }
            | Op::DimSize(_)
            | Op::DimTiles { .. }
            | Op::ScalarParam(_)
            | Op::TableGet { .. }
            | Op::Store { .. }
            | Op::Loop { .. }
            | Op::Yield(_) => Info::default(),
        }
    }
}

/// The one element that a slice of extent 1 is: what is repeated along an axis is real where that element is.
fn one_element(slice: Slice) -> Slice {
    match slice {
        Slice::Tile { index: v, .. } | Slice::Span { start: v, .. } => Slice::At(v),
        Slice::At(_) | Slice::Whole => slice,
    }
}

fn add(into: &mut Vec<Constraint>, more: &[Constraint]) {
    for c in more {
        if !into.contains(c) {
            into.push(*c);
        }
    }
}

impl Info {
    /// The facts of an element-wise function of one value, which maps the fill to this.
    fn with(&self, fill: Option<Known>) -> Info {
        Info { constraints: self.constraints.clone(), fill, uniform: self.uniform && fill.is_some() }
    }
}

/// Facts of an element-wise operation. Its fill is that of its operands' fills if all of them hold on one and the same
/// set of elements.
fn merge<const N: usize>(operands: [&Info; N], f: impl FnOnce([Known; N]) -> Option<Known>) -> Info {
    let mut constraints = Vec::new();
    for o in operands {
        add(&mut constraints, &o.constraints);
    }
    let same_set = operands.iter().all(|o| o.uniform || o.constraints.len() == constraints.len());
    let fills: Option<Vec<Known>> = operands.iter().map(|o| o.fill).collect();
    let fill = fills.filter(|_| same_set).and_then(|f| <[Known; N]>::try_from(f).ok()).and_then(f);
    Info { constraints, fill, uniform: operands.iter().all(|o| o.uniform) && fill.is_some() }
}

/// Facts that hold of either value.
fn join(a: &Info, b: &Info) -> Info {
    let mut constraints = a.constraints.clone();
    add(&mut constraints, &b.constraints);
    let same_set = |i: &Info| i.uniform || i.constraints.len() == constraints.len();
    let fill = if a.fill == b.fill && same_set(a) && same_set(b) { a.fill } else { None };
    Info { uniform: a.uniform && b.uniform && fill.is_some(), constraints, fill }
}
