//! Random well-typed kernels that use every operation.

use atlas_dsl::infer::infer;
use atlas_dsl::ir::{Access, BlockData, DimData, DimSize, GridExtent, Loc, ParamData, ParamKind, Stride, TableData};
use atlas_dsl::op::{BinaryOp, LoopKind, Op, Precision, Predicate, ReduceOp, Slice, UnaryOp, Update};
use atlas_dsl::validity::Validity;
use atlas_dsl::{Block, DType, Dim, Kernel, Param, Table, TileType, Value};

/// A random well-typed kernel, decided by a list of numbers so that failures shrink.
pub(crate) struct Generator<'a> {
    kernel: Kernel,
    choices: std::iter::Cycle<std::slice::Iter<'a, u32>>,
    /// Values that may be used at this place.
    scope: Vec<Value>,
    budget: usize,
}

const G: u32 = 0;
const N: u32 = 1;
const D: u32 = 2;
const X: u32 = 0;
const Y: u32 = 1;

impl Generator<'_> {
    pub(crate) fn generate(choices: &[u32]) -> Kernel {
        let kernel = Kernel::new("random");
        let mut g =
            Generator { kernel, choices: choices.iter().cycle(), scope: Vec::new(), budget: choices.len().min(60) };
        g.signature();
        let body = g.kernel.body;
        g.statements(body, 0);
        g.store(body);
        g.kernel
    }

    fn pick(&mut self, n: usize) -> usize {
        *self.choices.next().unwrap() as usize % n
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.pick(all.len())]
    }

    fn float(&mut self) -> f64 {
        let bits = (u64::from(*self.choices.next().unwrap()) << 32) | u64::from(*self.choices.next().unwrap());
        let values =
            [0.0, -0.0, 1.5, -3.0, 0.1, 1e-7, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MIN_POSITIVE];
        let i = self.pick(values.len() + 3);
        values.get(i).copied().unwrap_or(f64::from_bits(bits))
    }

    /// A number that the type holds.
    fn number(&mut self, dtype: DType) -> f64 {
        match dtype {
            _ if dtype.is_int() => self.one_of(&[0.0, 1.0, -3.0, 2147483647.0, -2147483648.0]),
            _ if dtype.is_small() => self.one_of(&[0.0, 1.0, 127.0]),
            _ => self.float(),
        }
    }

    fn signature(&mut self) {
        let d = self.one_of(&[4u64, 8, 16]);
        let divisor = self.one_of(&[1, 2, 16]);
        self.kernel.cluster = self.pick(3) == 0;
        let n = if self.kernel.cluster { DimSize::Const(24) } else { DimSize::Dynamic { divisor } };
        for (name, size) in [("G", DimSize::Dynamic { divisor: 1 }), ("N", n), ("D", DimSize::Const(d))] {
            self.kernel.dims.push(DimData { name: name.to_owned(), size });
        }
        let stride = self.one_of(&[Stride::Const(4), Stride::Const(-64), Stride::Dynamic { divisor: 8 }]);
        let align = self.one_of(&[16, 128]);
        for (name, access) in [("x", Access::In), ("y", Access::Out)] {
            let dtype =
                if access == Access::Out { DType::F32 } else { self.one_of(&[DType::Bf16, DType::F16, DType::F32]) };
            let dims = [G, N, D].map(Dim::from_u32).to_vec();
            let strides = vec![Stride::Dynamic { divisor: 4 }, stride, Stride::Const(1)];
            let kind = ParamKind::Tensor { dtype, dims, strides, axes: vec![], align, access };
            self.kernel.params.push(ParamData { name: name.to_owned(), kind });
        }
        for (name, dtype) in [("eps", DType::F32), ("w", DType::I32)] {
            self.kernel.params.push(ParamData { name: name.to_owned(), kind: ParamKind::Scalar { dtype } });
        }
        let values = (0..6).map(|_| self.float() as f32).collect();
        self.kernel.tables.push(TableData { name: "COEF".to_owned(), shape: vec![2, 3], values });
        for extent in [GridExtent::Points(Dim::from_u32(G)), GridExtent::Tiles { dim: Dim::from_u32(N), size: 8 }] {
            let coord = self.kernel.push_grid_axis(extent);
            self.scope.push(coord);
        }
    }

    /// Appends `op` if it is well typed and of modest size.
    fn push(&mut self, block: Block, op: Op) -> Option<Value> {
        let types = infer(&self.kernel, &op, Loc::default()).ok()?;
        if types.iter().any(|t| t.elements() > 4096) {
            return None;
        }
        let inst = self.kernel.push_inst(block, op, &types, Loc::default());
        let results = self.kernel.results[inst].clone();
        self.scope.extend(&results);
        results.first().copied()
    }

    /// A value in scope that `fits`.
    fn find(&mut self, fits: impl Fn(&TileType) -> bool) -> Option<Value> {
        let found: Vec<Value> = self.scope.iter().copied().filter(|&v| fits(self.kernel.ty(v))).collect();
        if found.is_empty() { None } else { Some(self.one_of(&found)) }
    }

    fn index(&mut self) -> Value {
        self.find(|t| *t == TileType::scalar(DType::I32)).unwrap()
    }

    fn like(&mut self, v: Value) -> Value {
        let ty = self.kernel.ty(v).clone();
        self.find(|t| *t == ty).unwrap_or(v)
    }

    fn shape(&mut self) -> Vec<u32> {
        let d = match self.kernel.dims[Dim::from_u32(D)].size {
            DimSize::Const(n) => n as u32,
            DimSize::Dynamic { .. } => 1,
        };
        self.one_of::<&[u32]>(&[&[], &[8, d], &[d, 8], &[8, 1], &[4, 4], &[3], &[2, 1, 4]]).to_vec()
    }

    fn out_slices(&self) -> Vec<Slice> {
        let [g, n] = [self.kernel.grid[0].coord, self.kernel.grid[1].coord];
        vec![Slice::At(g), Slice::Tile { index: n, size: 8 }, Slice::Whole]
    }

    fn store(&mut self, block: Block) {
        let slices = self.out_slices();
        let ty = infer(&self.kernel, &Op::Load { param: Param::from_u32(Y), slices: slices.clone() }, Loc::default())
            .unwrap()
            .remove(0);
        let found = self.find(|t| *t == ty);
        // What is loaded may reach outside of its tensor where the store does not.
        let found = match found {
            Some(value) if ty.rank() > 0 => {
                let (other, axes) = (self.number(ty.dtype), (0..ty.rank() as u8).collect());
                self.push(block, Op::Other { value, other, axes })
            }
            found => found,
        };
        let value =
            found.or_else(|| self.push(block, Op::Splat { value: 0.5, dtype: ty.dtype, shape: ty.shape.clone() }));
        self.push(
            block,
            Op::Store { param: Param::from_u32(Y), slices, value: value.unwrap(), update: Update::Replace },
        );
    }

    fn statements(&mut self, block: Block, depth: usize) {
        for _ in 0..2 + self.pick(12) {
            if self.budget == 0 {
                return;
            }
            self.budget -= 1;
            self.statement(block, depth);
        }
    }

    fn statement(&mut self, block: Block, depth: usize) {
        let any = self.find(|_| true).unwrap();
        let ty = self.kernel.ty(any).clone();
        let op = match self.pick(23) {
            0 | 1 => {
                let dtype = self.one_of(&DType::ALL);
                Op::Splat { value: self.number(dtype), dtype, shape: self.shape() }
            }
            2 => Op::Iota { shape: self.shape(), axis: self.pick(2) as u8 },
            3 => Op::DimSize(Dim::from_u32(self.pick(3) as u32)),
            4 => Op::DimTiles { dim: Dim::from_u32(self.pick(3) as u32), size: 1 + self.pick(64) as u32 },
            5 => Op::ScalarParam(Param::from_u32(2 + self.pick(2) as u32)),
            6 => Op::TableGet { table: Table::from_u32(0), indices: vec![self.index(), self.index()] },
            7 | 8 => Op::Unary(self.one_of(UnaryOp::ALL), any),
            9 | 10 => Op::Binary(self.one_of(BinaryOp::ALL), any, self.like(any)),
            11 => Op::Compare(self.one_of(Predicate::ALL), any, self.like(any)),
            12 => {
                let x = self.find(|t| t.dtype != DType::Bool).unwrap();
                let cond = Op::Compare(Predicate::Lt, x, self.like(x));
                let Some(cond) = self.push(block, cond) else { return };
                let shape = self.kernel.ty(cond).shape.clone();
                let Some(on_true) = self.find(|t| t.shape == shape) else { return };
                Op::Select { cond, on_true, on_false: self.like(on_true) }
            }
            13 if self.pick(2) == 0 => {
                let x = self.find(|t| t.dtype.is_float()).unwrap_or(any);
                Op::Fma(x, self.like(x), self.like(x))
            }
            13 => Op::Cast(self.one_of(&DType::ALL), any),
            14 => Op::Broadcast { value: any, shape: [&[2][..], &ty.shape].concat() },
            15 => {
                let all = (0..ty.rank() as u8).map(Some);
                let axes = match self.pick(3) {
                    0 => all.chain([None]).collect(),
                    1 => [None].into_iter().chain(all).collect(),
                    _ => all.filter(|a| a.is_some_and(|a| ty.shape[usize::from(a)] != 1)).collect(),
                };
                Op::Reshape { value: any, axes }
            }
            16 if self.kernel.cluster && depth == 0 && self.pick(2) == 0 => {
                // What is valid everywhere, outside of loops: rules 233 and 234.
                let Some(v) = self.find(|t| matches!(t.dtype, DType::F32 | DType::F64)) else { return };
                if !Validity::by_source(&self.kernel).constraints(v).is_empty() {
                    return;
                }
                Op::ClusterSum(v)
            }
            16 => {
                let Some(v) = self.find(|t| t.rank() == 2) else { return };
                Op::Transpose(v)
            }
            17 => {
                let Some(value) = self.find(|t| t.rank() > 0 && t.dtype != DType::Bool) else { return };
                let rank = self.kernel.ty(value).rank() as u8;
                if self.pick(3) == 0 {
                    let axis = self.pick(usize::from(rank)) as u8;
                    let op = Op::Scan { op: self.one_of(ReduceOp::ALL), value, axis, reverse: self.pick(2) == 0 };
                    self.push(block, op);
                    return;
                }
                let axes =
                    if self.pick(3) == 0 { (0..rank).collect() } else { vec![self.pick(usize::from(rank)) as u8] };
                Op::Reduce { op: self.one_of(ReduceOp::ALL), value, axes }
            }
            18 => {
                let Some(a) = self.find(|t| t.rank() == 2 && t.dtype.is_float()) else { return };
                let ta = self.kernel.ty(a).clone();
                let found = self.find(|t| t.dtype == ta.dtype && t.rank() == 2 && t.shape[0] == ta.shape[1]);
                let Some(b) = found.or_else(|| self.push(block, Op::Transpose(a))) else { return };
                let out = TileType::new(ta.dtype.accumulator(), [ta.shape[0], self.kernel.ty(b).shape[1]]);
                let acc = self.find(|t| *t == out);
                let precision = match ta.dtype {
                    DType::F32 => self.one_of(Precision::ALL),
                    _ => Precision::Default,
                };
                Op::Dot { a, b, acc, precision }
            }
            19 => {
                let slices = if self.pick(3) == 0 {
                    self.push(block, Op::Load { param: Param::from_u32(Y), slices: self.out_slices() });
                    return;
                } else {
                    let n = self.kernel.grid[1].coord;
                    let [a, b, c] = [self.index(), self.index(), self.index()];
                    let first = self.one_of(&[Slice::At(a), Slice::Span { start: a, len: 3 }]);
                    let mut seconds =
                        vec![Slice::At(b), Slice::Tile { index: n, size: 8 }, Slice::Span { start: b, len: 8 }];
                    seconds.extend(self.find(|t| t.dtype == DType::I32 && t.rank() == 1).map(Slice::Gather));
                    let second = self.one_of(&seconds);
                    let third = self.one_of(&[Slice::Whole, Slice::Whole, Slice::At(c)]);
                    vec![first, second, third]
                };
                Op::Load { param: Param::from_u32(X), slices }
            }
            20 => return self.store(block),
            21 => {
                let axes = (0..ty.rank() as u8).filter(|_| self.pick(3) > 0).collect();
                Op::Other { value: any, other: self.number(ty.dtype), axes }
            }
            _ if depth < 3 => return self.for_loop(block, depth),
            _ => return,
        };
        self.push(block, op);
    }

    fn for_loop(&mut self, outer: Block, depth: usize) {
        let kind = self.one_of(LoopKind::ALL);
        let (lo, hi) = (self.index(), self.index());
        let inits: Vec<Value> = (0..self.pick(4)).map(|_| self.find(|_| true).unwrap()).collect();
        let body = self.kernel.blocks.push(BlockData::default());
        let outside = self.scope.len();
        let index = self.kernel.push_block_param(body, TileType::scalar(DType::I32));
        self.scope.push(index);
        let mut carried = Vec::new();
        for &init in &inits {
            let ty = self.kernel.ty(init).clone();
            carried.push(self.kernel.push_block_param(body, ty));
        }
        self.scope.extend(&carried);
        self.statements(body, depth + 1);
        // What leaves a loop has no edge of the loop's own.
        let next = carried.into_iter().map(|v| {
            let next = self.like(v);
            let ty = self.kernel.ty(next).clone();
            let (other, axes) = (self.number(ty.dtype), (0..ty.rank() as u8).collect());
            if ty.rank() == 0 { next } else { self.push(body, Op::Other { value: next, other, axes }).unwrap_or(v) }
        });
        let next = next.collect();
        self.push(body, Op::Yield(next));
        self.scope.truncate(outside);
        self.push(outer, Op::Loop { kind, lo, hi, inits, body });
    }
}
