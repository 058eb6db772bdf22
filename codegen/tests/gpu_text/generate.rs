//! Random GPU kernels whose text is well formed. They need not keep the verifier's rules.

use atlas_codegen::gpu::atom::MmaAtom;
use atlas_codegen::gpu::{
    AccessKind, Accuracy, At, Block, BlockData, Buffer, BufferData, Cache, CopyAtom, Direction, Domain, FenceKind,
    IndexMap, Kernel, Mover, Op, Operand, Owner, Reach, Ring, RingData, RoleData, Scope, SharedRef, Side, Slice,
    TensorMap, Type, UnsignedOp, Valid, Value, WarpGrid,
};
use atlas_codegen::layout::{Fragment, Mode, SharedLayout, Swizzle};
use atlas_codegen::{MapAxis, Target, TensorMapData};
use atlas_dsl::ir::{Access, DimData, DimSize, GridExtent, Loc, ParamData, ParamKind, Stride, TableData};
use atlas_dsl::op::{BinaryOp, LoopKind, Predicate, ReduceOp, UnaryOp, Update};
use atlas_dsl::{DType, Dim, Param, Table};
use cranelift_entity::EntityRef;

pub(crate) struct Generator {
    state: u64,
    k: Kernel,
    layouts: Vec<Fragment>,
    values: Vec<Value>,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Generator {
        Generator {
            state: seed,
            k: Kernel::new("k", Target { sm: 80, specific: false }, 128),
            layouts: Vec::new(),
            values: Vec::new(),
        }
    }

    /// SplitMix64, below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    fn int(&mut self) -> u32 {
        [0, 1, 2, 7, 8, 64, 4096, u32::MAX][self.below(8)]
    }

    fn small(&mut self) -> u32 {
        self.below(9) as u32
    }

    fn number(&mut self) -> f64 {
        [0.0, -0.0, 1.0, -1e-7, 0.1, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MAX, 1e300][self.below(10)]
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    pub(crate) fn kernel(mut self) -> Kernel {
        let sm = self.pick(&[80, 89, 90, 100]);
        self.k.target = Target { sm, specific: self.coin() };
        self.k.threads = self.pick(&[32, 128, 384]);
        self.k.cluster = if self.coin() { (1, 1) } else { (self.small(), self.small()) };
        self.signature();
        for _ in 0..=self.below(4) {
            let layout = self.layout();
            self.layouts.push(layout);
        }
        self.memory();
        let axes: Vec<GridExtent> = (0..self.below(3)).map(|_| self.extent()).collect();
        let domain = if self.coin() { Domain::Box } else { Domain::Triangle };
        let group = if self.coin() { Some(self.small()) } else { None };
        self.k.index_map = IndexMap { axes, domain, group, persistent: self.coin(), splits: 1 + self.small() };
        for _ in 0..=self.below(3) {
            let v = self.k.push_coord();
            self.k.values[v].ty = self.index_type();
            self.values.push(v);
        }
        for i in 0..=self.below(3) {
            let body = self.k.blocks.push(BlockData::default());
            self.block(body, 0);
            let scope = self.pick(&Scope::ALL);
            let units = if self.coin() { (0, 0) } else { (self.small(), self.small()) };
            let registers = self.coin().then(|| self.int());
            self.k.roles.push(RoleData { name: format!("role_{i}"), scope, units, registers, body });
        }
        self.k
    }

    fn signature(&mut self) {
        for i in 0..=self.below(3) {
            let size =
                if self.coin() { DimSize::Const(self.int().into()) } else { DimSize::Dynamic { divisor: self.int() } };
            self.k.dims.push(DimData { name: format!("D{i}"), size });
        }
        for i in 0..=self.below(3) {
            let dtype = self.pick(&DType::ALL);
            let dims: Vec<Dim> = (0..self.below(4)).map(|_| self.dim()).collect();
            let strides = dims
                .iter()
                .map(|_| match self.coin() {
                    true => Stride::Const(i64::from(self.int()) - 64),
                    false => Stride::Dynamic { divisor: self.int() },
                })
                .collect();
            let axes = if self.coin() { (0..dims.len() as u8).rev().collect() } else { vec![] };
            let access = if self.coin() { Access::In } else { Access::Out };
            let kind = match self.coin() {
                true => ParamKind::Scalar { dtype },
                false => ParamKind::Tensor { dtype, dims, strides, axes, align: self.int(), access },
            };
            self.k.params.push(ParamData { name: format!("p{i}"), kind });
        }
        for i in 0..=self.below(2) {
            let values = (0..self.below(4)).map(|_| self.number() as f32).collect();
            let shape = vec![self.small(), 2];
            self.k.tables.push(TableData { name: format!("t{i}"), shape, values });
        }
    }

    fn memory(&mut self) {
        for _ in 0..=self.below(2) {
            let axes = (0..self.below(3)).map(|_| MapAxis { axis: self.small() as u8, size: self.int() }).collect();
            let map = TensorMapData { param: self.param(), axes, span: self.int() };
            self.k.maps.push(map);
        }
        for i in 0..=self.below(3) {
            let swizzle = Swizzle { bits: self.small(), base: self.small(), shift: self.small() };
            let cols = self.int();
            let panel = if self.coin() { cols } else { self.int() };
            let layout = SharedLayout { rows: self.int(), cols, panel, pitch: self.int(), swizzle };
            let owner = if self.coin() { Owner::Cta } else { Owner::Cluster };
            let offset = self.coin().then(|| self.int());
            let (dtype, stages) = (self.pick(&DType::ALL), self.int());
            self.k.buffers.push(BufferData { name: format!("B{i}"), dtype, stages, layout, owner, offset });
        }
        for _ in 0..=self.below(3) {
            let buffers = (0..self.below(3)).map(|_| self.buffer()).collect();
            let movers = [Mover::Threads, Mover::Engine];
            let (filled_by, read_by) = (self.pick(&movers), self.pick(&movers));
            let (by_warpgroups, mbarriers) = (self.coin(), self.coin().then(|| self.int()));
            let ring = RingData { stages: self.int(), buffers, filled_by, read_by, by_warpgroups, mbarriers };
            self.k.rings.push(ring);
        }
    }

    fn layout(&mut self) -> Fragment {
        let mut modes = |n: usize| -> Vec<Mode> {
            (0..self.below(n))
                .map(|_| match self.coin() {
                    true => Mode::replicated(self.small()),
                    false => Mode::new(self.small(), self.int(), self.below(3) as u8),
                })
                .collect()
        };
        let (threads, regs) = (modes(5), modes(4));
        let shape = (0..self.below(4)).map(|_| self.int()).collect();
        match self.below(3) {
            0 => Fragment::blocked(&[16, 64], 4, 4),
            1 => {
                let atom = MmaAtom::ALL[self.below(MmaAtom::ALL.len())];
                atom.accumulator(64, 32, WarpGrid { rows: 2, cols: 2 }, 4)
            }
            _ => Fragment { shape, threads, regs },
        }
    }

    fn dim(&mut self) -> Dim {
        Dim::new(self.below(self.k.dims.len()))
    }

    fn param(&mut self) -> Param {
        Param::new(self.below(self.k.params.len()))
    }

    fn buffer(&mut self) -> Buffer {
        Buffer::new(self.below(self.k.buffers.len()))
    }

    fn ring(&mut self) -> Ring {
        Ring::new(self.below(self.k.rings.len()))
    }

    fn value(&mut self) -> Value {
        let at = self.below(self.values.len());
        self.values[at]
    }

    fn values(&mut self) -> Vec<Value> {
        (0..self.below(4)).map(|_| self.value()).collect()
    }

    fn extent(&mut self) -> GridExtent {
        let dim = self.dim();
        if self.coin() { GridExtent::Points(dim) } else { GridExtent::Tiles { dim, size: self.int() } }
    }

    fn ty(&mut self) -> Type {
        let dtype = self.pick(&DType::ALL);
        let layout = match self.below(3) {
            0 => Fragment::scalar(self.k.threads, 0),
            _ => {
                let at = self.below(self.layouts.len());
                self.layouts[at].clone()
            }
        };
        match self.below(4) {
            0 => Type::Token(self.ring()),
            1 => Type::in_flight(dtype, layout),
            _ => Type::fragment(dtype, layout),
        }
    }

    fn index_type(&mut self) -> Type {
        if self.below(4) == 0 { self.ty() } else { self.k.scalar_type(DType::I32) }
    }

    fn slice(&mut self) -> Slice {
        let (offset, len) = (self.small(), self.int());
        match self.below(5) {
            0 => Slice::At { coord: self.value(), in_bounds: self.coin() },
            1 => Slice::Tile { index: self.value(), size: self.int(), offset, len, reach: Reach::ALL[self.below(3)] },
            2 => Slice::Span { start: self.value(), offset, len },
            3 => Slice::Gather { places: self.value(), len },
            _ => Slice::Whole { offset, len },
        }
    }

    fn slices(&mut self) -> Vec<Slice> {
        (0..self.below(4)).map(|_| self.slice()).collect()
    }

    fn shared(&mut self) -> SharedRef {
        let token = self.coin().then(|| self.value());
        let origin = (self.small(), self.small());
        SharedRef { buffer: self.buffer(), token, origin, transposed: self.coin() }
    }

    fn operand(&mut self) -> Operand {
        if self.coin() { Operand::Shared(self.shared()) } else { Operand::Fragment(self.value()) }
    }

    fn block(&mut self, block: Block, depth: usize) {
        for _ in 0..self.below(7) {
            let op = self.op(depth);
            let types: Vec<Type> = (0..self.below(3)).map(|_| self.ty()).collect();
            let inst = self.k.push_inst(block, op, types, Loc::default());
            self.k.access_kinds[inst] = self.form();
            self.values.extend(self.k.results[inst].clone());
        }
    }

    fn form(&mut self) -> Option<AccessKind> {
        match self.below(6) {
            0 => Some(AccessKind::Matrix),
            1 => Some(AccessKind::Vector { bytes: self.int(), within: None }),
            2 => {
                let within = Some((0..self.below(3)).map(|_| self.int()).collect());
                Some(AccessKind::Vector { bytes: self.int(), within })
            }
            _ => None,
        }
    }

    fn op(&mut self, depth: usize) -> Op {
        let v = self.value();
        match self.below(if depth < 3 { 34 } else { 31 }) {
            0 => Op::Const(self.number()),
            1 => Op::Iota { axis: self.small() as u8, offset: self.int() },
            2 => Op::DimSize(self.dim()),
            3 if self.coin() => Op::DimTiles(self.dim(), self.int()),
            3 => match self.below(7) {
                0 => Op::CtaNumber,
                1 => Op::CtaCount,
                3 => Op::SplitNumber,
                4 => Op::SplitCount,
                5 => Op::SumSplits(vec![v, self.value()]),
                2 => Op::Unsigned(self.pick(&UnsignedOp::ALL), v, self.value()),
                _ => Op::Coordinate(v, self.extent()),
            },
            4 => Op::ScalarParam(self.param()),
            5 => Op::TableGet(Table::new(self.below(self.k.tables.len())), self.values()),
            6 => Op::Unary(self.pick(UnaryOp::ALL), self.pick(&Accuracy::ALL), v),
            7 => Op::Binary(self.pick(BinaryOp::ALL), self.pick(&Accuracy::ALL), v, self.value()),
            8 => Op::Compare(self.pick(Predicate::ALL), v, self.value()),
            9 if self.below(2) == 0 => Op::Fma(v, self.value(), self.value()),
            9 => Op::Select(v, self.value(), self.value()),
            10 => Op::Cast(v),
            11 => Op::Broadcast(v),
            12 => Op::Reshape(v),
            13 => Op::Transpose(v),
            14 => Op::ConvertLayout(v),
            15 => Op::ExtractSlice { value: v, axis: self.small() as u8, offset: self.int() },
            16 => {
                let neutral = self.number();
                let valid = (0..self.below(3))
                    .map(|_| Valid { axis: self.small() as u8, slice: self.slice(), dim: self.dim() })
                    .collect();
                Op::MaskInvalid { value: v, neutral, valid }
            }
            17 if self.coin() => Op::Scan {
                op: self.pick(ReduceOp::ALL),
                direction: self.pick(&Direction::ALL),
                value: v,
                axis: self.small() as u8,
            },
            17 => {
                let axes = (0..self.below(3)).map(|_| self.small() as u8).collect();
                Op::Reduce { op: self.pick(ReduceOp::ALL), value: v, axes }
            }
            18 => Op::LoadGlobal { param: self.param(), slices: self.slices(), cache: self.pick(&Cache::ALL) },
            19 => {
                Op::StoreGlobal { param: self.param(), slices: self.slices(), value: v, update: self.pick(Update::ALL) }
            }
            20 => {
                let (bytes, map) = (self.int(), TensorMap::new(self.below(self.k.maps.len())));
                let atoms = [
                    CopyAtom::CpAsync(bytes),
                    CopyAtom::Direct,
                    CopyAtom::Tma(map, self.pick(&Cache::ALL)),
                    CopyAtom::TmaMulticast(map),
                    CopyAtom::TmaStore(map),
                ];
                Op::Copy { atom: self.pick(&atoms), param: self.param(), slices: self.slices(), to: self.shared() }
            }
            21 if self.coin() => Op::LoadShared(self.shared()),
            21 => {
                let further = self.coin().then(|| (v, self.int()));
                Op::LoadMatrix { side: self.pick(&Side::ALL), from: self.shared(), further }
            }
            22 => Op::StoreShared { to: self.shared(), value: v },
            23 if self.below(2) == 0 => Op::SumCluster(v, self.buffer()),
            23 => Op::ZeroShared(self.buffer()),
            24 => {
                let (a, b) = (self.operand(), self.operand());
                let acc = self.coin().then(|| self.value());
                let accumulate = self.coin().then(|| self.value());
                let atom = MmaAtom::ALL[self.below(MmaAtom::ALL.len())];
                Op::Mma { a, b, acc, atom, shape: (self.int(), self.int(), self.int()), accumulate }
            }
            25 => Op::WaitMma(v, self.int()),
            26 => Op::Acquire(self.ring(), At::Iteration(v)),
            27 => Op::Commit(self.ring(), self.coin().then_some(v)),
            28 => {
                let at = [At::Slot(v), At::Cursor { slot: v, phase: self.value() }];
                Op::Wait(self.ring(), self.pick(&at))
            }
            29 => {
                let (ring, n) = (self.ring(), self.int());
                let ops = [
                    Op::Release(v),
                    Op::Drain(ring),
                    Op::InitRing(ring),
                    Op::Barrier,
                    Op::WarpgroupBarrier,
                    Op::CopyWait(n),
                    Op::StoreWait(n),
                ];
                ops[self.below(ops.len())].clone()
            }
            30 if self.coin() => Op::Fence(self.pick(&FenceKind::ALL)),
            30 => Op::Yield(self.values()),
            31 => {
                let hi = self.value();
                let inits = self.values();
                let body = self.k.blocks.push(BlockData::default());
                let index = self.index_type();
                let index = self.k.push_block_param(body, index);
                self.values.push(index);
                for _ in &inits {
                    let ty = self.ty();
                    let p = self.k.push_block_param(body, ty);
                    self.values.push(p);
                }
                self.block(body, depth + 1);
                Op::Loop { kind: self.pick(LoopKind::ALL), lo: v, hi, inits, body }
            }
            32 => {
                let body = self.k.blocks.push(BlockData::default());
                for _ in 0..self.below(4) {
                    let ty = self.index_type();
                    let p = self.k.push_block_param(body, ty);
                    self.values.push(p);
                }
                self.block(body, depth + 1);
                Op::Programs(body)
            }
            _ => {
                let body = self.k.blocks.push(BlockData::default());
                self.block(body, depth + 1);
                if self.below(4) == 0 {
                    return Op::Once(body);
                }
                let others = if self.coin() { self.values() } else { Vec::new() };
                Op::If(v, body, others)
            }
        }
    }
}
