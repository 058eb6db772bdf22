//! Which elements of each tile are real, and what the others hold.
//!
//! A tile cut at the end of a dim is *ragged*: some of its elements lie outside the tensor. Layouts
//! add *padding* beyond the tile's own extents. Loads put 0 in both; element-wise operations map that
//! constant along. A contraction needs its neutral there and gets it by a refill unless this analysis
//! proves that it is there already.

use atlas_dsl::builder::{fold_binary, fold_unary};
use atlas_dsl::op::{Predicate, Slice};
use atlas_dsl::{Block, Dim, Kernel, Op, Value};
use cranelift_entity::SecondaryMap;

/// Elements of a tile along `axis` are real where the sliced coordinate lies inside `dim`.
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
    /// What every element outside the tensor, and all padding, holds.
    fill: Option<f64>,
    /// The same constant everywhere, real elements included.
    uniform: bool,
}

/// The raggedness of every value of a kernel.
#[derive(Clone, Debug)]
pub struct Extents {
    info: SecondaryMap<Value, Info>,
    escapes: bool,
}

impl Extents {
    /// Analyses a kernel.
    pub fn of(kernel: &Kernel) -> Extents {
        let mut e = Extents { info: SecondaryMap::new(), escapes: false };
        e.block(kernel, kernel.body);
        e
    }

    /// The axes along which a tile may be ragged.
    pub fn constraints(&self, v: Value) -> &[Constraint] {
        &self.info[v].constraints
    }

    /// What elements outside the tensor, and padding, hold; `None` if it varies.
    pub fn fill(&self, v: Value) -> Option<f64> {
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
        (ragged || padded) && info.fill != Some(neutral)
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
            Op::Splat { value, .. } => Info { constraints: vec![], fill: Some(*value), uniform: true },
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
                    if !is_full(kernel, *slice, dim) {
                        constraints.push(Constraint { axis, slice: *slice, dim });
                    }
                    axis += 1;
                }
                Info { constraints, fill: Some(0.0), uniform: false }
            }
            Op::Unary(op, v) => {
                let i = get(v);
                Info { fill: i.fill.and_then(|x| fold_unary(*op, x)), ..i.clone() }
            }
            Op::Cast(_, v) => get(v).clone(),
            // Only where nothing is put in is it known what padding holds.
            Op::Other { value, .. } => match get(value) {
                i if i.constraints.is_empty() => i.clone(),
                _ => Info::default(),
            },
            Op::Binary(op, a, b) => {
                let mut out = merge(&[get(a), get(b)]);
                out.fill = match (out.fill.is_some(), get(a).fill, get(b).fill) {
                    (true, Some(x), Some(y)) => fold_binary(*op, x, y),
                    _ => None,
                };
                out
            }
            Op::Compare(p, a, b) => {
                let mut out = merge(&[get(a), get(b)]);
                out.fill = match (out.fill.is_some(), get(a).fill, get(b).fill) {
                    (true, Some(x), Some(y)) => Some(f64::from(u8::from(compare(*p, x, y)))),
                    _ => None,
                };
                out
            }
            Op::Select { cond, on_true, on_false } => {
                let mut out = merge(&[get(cond), get(on_true), get(on_false)]);
                out.fill = match (out.fill.is_some(), get(cond).fill) {
                    (true, Some(c)) if c != 0.0 => get(on_true).fill,
                    (true, Some(_)) => get(on_false).fill,
                    _ => None,
                };
                out
            }
            Op::Broadcast { value, shape } => {
                let i = get(value);
                let lead = (shape.len() - kernel.ty(*value).rank()) as u8;
                let constraints = i.constraints.iter().map(|c| Constraint { axis: c.axis + lead, ..*c }).collect();
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

/// True if a slice never reaches past its dim.
fn is_full(kernel: &Kernel, slice: Slice, dim: Dim) -> bool {
    match slice {
        Slice::At(_) | Slice::Whole => true,
        Slice::Span { .. } => false,
        Slice::Tile { size, .. } => kernel.dims[dim].size.divisor().is_multiple_of(u64::from(size)),
    }
}

fn add(into: &mut Vec<Constraint>, more: &[Constraint]) {
    for c in more {
        if !into.contains(c) {
            into.push(*c);
        }
    }
}

/// Facts of an element-wise operation but for the fill's value: the fill is `Some` if all operands'
/// fills hold on one and the same set of elements.
fn merge(operands: &[&Info]) -> Info {
    let mut constraints = Vec::new();
    for o in operands {
        add(&mut constraints, &o.constraints);
    }
    let same_set = operands.iter().all(|o| o.uniform || o.constraints.len() == constraints.len());
    let known = operands.iter().all(|o| o.fill.is_some());
    Info { constraints, fill: (same_set && known).then_some(0.0), uniform: operands.iter().all(|o| o.uniform) }
}

/// Facts that hold of either value.
fn join(a: &Info, b: &Info) -> Info {
    let mut constraints = a.constraints.clone();
    add(&mut constraints, &b.constraints);
    let same_set = |i: &Info| i.uniform || i.constraints.len() == constraints.len();
    let fill = if a.fill == b.fill && same_set(a) && same_set(b) { a.fill } else { None };
    Info { uniform: a.uniform && b.uniform && fill.is_some(), constraints, fill }
}

fn compare(p: Predicate, x: f64, y: f64) -> bool {
    match p {
        Predicate::Eq => x == y,
        Predicate::Ne => x != y,
        Predicate::Lt => x < y,
        Predicate::Le => x <= y,
        Predicate::Gt => x > y,
        Predicate::Ge => x >= y,
    }
}
