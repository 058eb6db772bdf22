//! From GPU IR to an LLVM module. A fragment becomes flat SSA scalars, one per register.

mod atomics;
mod cluster;
mod control;
mod coords;
mod copy;
mod elementwise;
mod engine;
mod fma;
mod fp8;
mod global;
mod intrinsics;
mod lines;
mod math;
mod matrix_load;
mod mma;
mod reduce;
mod remat;
mod runs;
mod scan;
mod shared;
mod splits;
mod start;
mod wgmma;
mod words;

use crate::error::CompileError;
use crate::gpu::analysis::{InRun, Runs};
use crate::gpu::{
    self, AccessKind, At, Cache, CopyAtom, Effects, FenceKind, Kernel, Lowered, Mover, Op, Ring, TensorMap, ValueDef,
    VerifiedKernel,
};
use crate::gpu_ops;
use crate::image::AbiParam;
use crate::mutation::{Mutation, is_planted};
use atlas_dsl::ir::{Access, DimSize, ParamKind, Stride};
use atlas_dsl::{DType, Dim, Param, Table};
use coords::ThreadCoords;
use cranelift_entity::SecondaryMap;
use inkwell::AddressSpace;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::basic_block::BasicBlock;
use inkwell::builder::Builder;
use inkwell::context::Context;
use inkwell::module::{Linkage, Module};
use inkwell::types::{BasicMetadataTypeEnum, BasicType, BasicTypeEnum, IntType};
use inkwell::values::{BasicValueEnum, FunctionValue, IntValue, PointerValue};
use lines::Lines;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use remat::rematerialize;
pub(crate) use start::start;

/// The result of emission, or why it failed.
type R<T> = Result<T, CompileError>;

impl From<inkwell::builder::BuilderError> for CompileError {
    #[track_caller]
    fn from(e: inkwell::builder::BuilderError) -> CompileError {
        CompileError::bug(format!("LLVM builder at {}: {e}", std::panic::Location::caller()))
    }
}

const GENERIC: u16 = 0;
const GLOBAL: u16 = 1;
const SHARED: u16 = 3;
const CONSTANT: u16 = 4;

/// The registers of a value.
type Regs<'c> = Vec<BasicValueEnum<'c>>;

struct Emitter<'c, 'k> {
    cx: &'c Context,
    module: &'k Module<'c>,
    b: Builder<'c>,
    k: &'k Kernel,
    function: FunctionValue<'c>,
    /// What is emitted register by register.
    runs: &'k Runs,
    values: SecondaryMap<gpu::Value, Option<Regs<'c>>>,
    pointers: BTreeMap<Param, PointerValue<'c>>,
    scalars: BTreeMap<Param, BasicValueEnum<'c>>,
    dims: BTreeMap<Dim, IntValue<'c>>,
    strides: BTreeMap<(Param, u8), IntValue<'c>>,
    tables: BTreeMap<Table, PointerValue<'c>>,
    maps: BTreeMap<TensorMap, PointerValue<'c>>,
    /// The first block, where policies are created.
    entry: BasicBlock<'c>,
    shared_base: PointerValue<'c>,
    coords: ThreadCoords<'c>,
    /// Memory of the CTAs that share a program: their arrivals and their partial tiles.
    arrivals: Option<PointerValue<'c>>,
    partials: Option<PointerValue<'c>>,
    /// The L2 policies created so far.
    policies: Vec<(Cache, IntValue<'c>)>,
    lines: Option<Lines<'c>>,
    /// True once the operation at hand has called an intrinsic that all threads of a warp call together.
    is_convergent: Cell<bool>,
    /// Number of loops around the insertion point.
    loops: u32,
    /// The stages of rings of the copy engine that were filled outside of loops so far.
    filled: BTreeSet<(Ring, u64)>,
    /// In a long loop: the scalars from outside of it.
    numbers: Option<Vec<gpu::Value>>,
}

/// Bytes of a tensor map, and what its address is a multiple of.
const MAP_BYTES: u32 = 128;
const MAP_ALIGN: u64 = 64;

/// The calling convention of a kernel, in order: pointers, scalars, dynamic dims, dynamic strides, the memory of CTAs that share a
/// program, and tensor maps.
pub(crate) fn abi(k: &Kernel) -> Vec<AbiParam> {
    let mut out = Vec::new();
    for (p, data) in k.params.iter() {
        out.push(match data.kind {
            ParamKind::Tensor { .. } => AbiParam::Ptr(p),
            ParamKind::Scalar { .. } => AbiParam::Scalar(p),
        });
    }
    for (d, data) in k.dims.iter() {
        if matches!(data.size, DimSize::Dynamic { .. }) {
            out.push(AbiParam::Dim(d));
        }
    }
    for (p, data) in k.params.iter() {
        if let ParamKind::Tensor { strides, .. } = &data.kind {
            for (axis, s) in strides.iter().enumerate() {
                if matches!(s, Stride::Dynamic { .. }) {
                    out.push(AbiParam::Stride(p, axis as u8));
                }
            }
        }
    }
    if k.index_map.splits > 1 {
        out.extend([AbiParam::Arrivals, AbiParam::Partials]);
    }
    out.extend(k.maps.keys().map(|map| AbiParam::TensorMap(map.as_u32() as u8)));
    out
}

/// Emits a kernel into a module. With the name of its source file, emits the source locations of its instructions too.
pub(crate) fn emit<'c>(
    cx: &'c Context,
    module: &Module<'c>,
    k: &VerifiedKernel<Lowered>,
    source: Option<&str>,
) -> R<()> {
    let k: &Kernel = k;
    let (abi, runs) = (abi(k), Runs::of(k));
    let i32t = cx.i32_type();
    let ptr = |space| BasicTypeEnum::from(cx.ptr_type(AddressSpace::from(space)));
    let types: Vec<BasicMetadataTypeEnum<'c>> = abi
        .iter()
        .map(|p| match *p {
            AbiParam::Ptr(_) | AbiParam::Arrivals | AbiParam::Partials => ptr(GLOBAL).into(),
            AbiParam::Scalar(s) => match k.params[s].kind {
                ParamKind::Scalar { dtype } | ParamKind::Tensor { dtype, .. } => element(cx, dtype).into(),
            },
            AbiParam::Stride(..) => cx.i64_type().into(),
            AbiParam::Dim(_) | AbiParam::GridCount(_) => i32t.into(),
            AbiParam::TensorMap(_) => ptr(GENERIC).into(),
        })
        .collect();
    let function = module.add_function(&k.name, cx.void_type().fn_type(&types, false), None);
    // llvm::CallingConv::PTX_Kernel.
    function.set_call_conventions(71);
    for (key, value) in [("nvvm.reqntid", format!("{}", k.threads)), ("nvvm.minctasm", format!("{}", k.occupancy))] {
        function.add_attribute(AttributeLoc::Function, cx.create_string_attribute(key, &value));
    }
    if k.cluster != (1, 1) {
        let ctas = format!("{},{},1", k.cluster.0, k.cluster.1);
        function.add_attribute(AttributeLoc::Function, cx.create_string_attribute("nvvm.cluster_dim", &ctas));
    }
    let shared = module.add_global(cx.i8_type().array_type(0), Some(AddressSpace::from(SHARED)), "shared");
    shared.set_alignment(1024);
    shared.set_linkage(Linkage::External);

    let entry = cx.append_basic_block(function, "entry");
    let body = cx.append_basic_block(function, "body");
    let b = cx.create_builder();
    b.position_at_end(entry);
    let tid_fn = intrinsics::declare(module, "llvm.nvvm.read.ptx.sreg.tid.x", i32t.fn_type(&[], false));
    let tid = b.build_call(tid_fn, &[], "tid")?.try_as_basic_value().unwrap_basic().into_int_value();
    let mut e = Emitter {
        cx,
        module,
        b,
        k,
        function,
        runs: &runs,
        values: SecondaryMap::new(),
        pointers: BTreeMap::new(),
        scalars: BTreeMap::new(),
        dims: BTreeMap::new(),
        strides: BTreeMap::new(),
        tables: BTreeMap::new(),
        maps: BTreeMap::new(),
        entry,
        shared_base: shared.as_pointer_value(),
        coords: ThreadCoords::new(entry, tid),
        arrivals: None,
        partials: None,
        policies: Vec::new(),
        lines: source.map(|file| Lines::new(module, function, file)),
        is_convergent: Cell::new(false),
        loops: 0,
        filled: BTreeSet::new(),
        numbers: None,
    };
    for (i, p) in abi.iter().enumerate() {
        e.bind_param(i as u32, *p)?;
    }
    e.b.position_at_end(body);
    e.prefetch_maps_of_stores()?;
    // One role: the whole CTA runs it.
    for role in k.roles.values() {
        e.block(role.body)?;
    }
    e.b.build_return(None)?;
    e.b.position_at_end(entry);
    e.b.build_unconditional_branch(body)?;
    Ok(())
}

/// The LLVM type of an element.
fn element(cx: &Context, dtype: DType) -> BasicTypeEnum<'_> {
    match dtype {
        DType::Bool => cx.bool_type().into(),
        // LLVM has no floats of 8 bits: here their codes are.
        DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => cx.i8_type().into(),
        DType::I16 | DType::U16 => cx.i16_type().into(),
        DType::I32 => cx.i32_type().into(),
        DType::I64 => cx.i64_type().into(),
        DType::F16 => cx.f16_type().into(),
        DType::Bf16 => cx.bf16_type().into(),
        DType::F32 => cx.f32_type().into(),
        DType::F64 => cx.f64_type().into(),
    }
}

impl<'c> Emitter<'c, '_> {
    fn bind_param(&mut self, index: u32, p: AbiParam) -> R<()> {
        let value = self.function.get_nth_param(index).ok_or_else(|| CompileError::bug("a missing parameter"))?;
        let at = AttributeLoc::Param(index);
        let attribute =
            |name: &str, value: u64| self.cx.create_enum_attribute(Attribute::get_named_enum_kind_id(name), value);
        match p {
            AbiParam::Ptr(p) => {
                if let ParamKind::Tensor { access, align, .. } = self.k.params[p].kind {
                    // LLVM would move accesses of a noalias pointer over the barriers by which threads exchange data.
                    let exchanged = access == Access::Out && self.is_loaded(p);
                    if !exchanged {
                        self.function.add_attribute(at, attribute("noalias", 0));
                    }
                    self.function.add_attribute(at, attribute("align", u64::from(align)));
                    if access == Access::In {
                        self.function.add_attribute(at, attribute("readonly", 0));
                    }
                }
                self.pointers.insert(p, value.into_pointer_value());
            }
            AbiParam::Scalar(p) => {
                self.scalars.insert(p, value);
            }
            AbiParam::Dim(d) => {
                self.dims.insert(d, value.into_int_value());
            }
            AbiParam::Stride(p, axis) => {
                self.strides.insert((p, axis), value.into_int_value());
            }
            AbiParam::GridCount(_) => {}
            AbiParam::Arrivals => self.arrivals = Some(value.into_pointer_value()),
            AbiParam::Partials => {
                self.function.add_attribute(at, attribute("align", 16));
                self.partials = Some(value.into_pointer_value());
            }
            AbiParam::TensorMap(n) => {
                // In the parameters themselves, where the engine reads it: without `grid_constant` LLVM copies it.
                let bytes = self.cx.i8_type().array_type(MAP_BYTES);
                let byval = Attribute::get_named_enum_kind_id("byval");
                self.function.add_attribute(at, self.cx.create_type_attribute(byval, bytes.into()));
                self.function.add_attribute(at, attribute("align", MAP_ALIGN));
                self.function.add_attribute(at, self.cx.create_string_attribute("nvvm.grid_constant", ""));
                self.maps.insert(TensorMap::from_u32(n.into()), value.into_pointer_value());
            }
        }
        Ok(())
    }

    /// True if the kernel loads tiles of a tensor.
    fn is_loaded(&self, p: Param) -> bool {
        self.k.insts.values().any(|op| matches!(op, Op::LoadGlobal { param, .. } if *param == p))
    }

    fn dim_size(&self, d: Dim) -> R<IntValue<'c>> {
        Ok(match self.k.dims[d].size {
            DimSize::Const(n) => self.cx.i32_type().const_int(n, false),
            DimSize::Dynamic { .. } => {
                *self.dims.get(&d).ok_or_else(|| CompileError::bug("a dim without a parameter"))?
            }
        })
    }

    fn dim_tiles(&self, d: Dim, size: u32) -> R<IntValue<'c>> {
        let n = self.dim_size(d)?;
        let i32t = self.cx.i32_type();
        if is_planted(Mutation::LoopOfNone) {
            let less = self.b.build_int_sub(n, i32t.const_int(1, false), "")?;
            let q = self.b.build_int_unsigned_div(less, i32t.const_int(u64::from(size), false), "")?;
            return Ok(self.b.build_int_add(q, i32t.const_int(1, false), "")?);
        }
        // ceil(n / size), also of 0. Unsigned, the sum cannot overflow: n < 2^31 and size <= 2^20.
        let up = self.b.build_int_add(n, i32t.const_int(u64::from(size - 1), false), "")?;
        Ok(self.b.build_int_unsigned_div(up, i32t.const_int(u64::from(size), false), "")?)
    }

    fn i32(&self, x: i64) -> IntValue<'c> {
        self.cx.i32_type().const_int(x as u64, true)
    }

    fn i32_type(&self) -> IntType<'c> {
        self.cx.i32_type()
    }

    fn regs(&self, v: gpu::Value) -> R<&Regs<'c>> {
        self.values[v].as_ref().ok_or_else(|| CompileError::bug(format!("{v} is used before it is emitted")))
    }

    fn scalar(&self, v: gpu::Value) -> R<BasicValueEnum<'c>> {
        self.regs(v)?.first().copied().ok_or_else(|| CompileError::bug("an empty scalar"))
    }

    fn int(&self, v: gpu::Value) -> R<IntValue<'c>> {
        Ok(self.scalar(v)?.into_int_value())
    }

    fn zero(&self, dtype: DType) -> BasicValueEnum<'c> {
        element(self.cx, dtype).const_zero()
    }

    /// True for what an asynchronous product gives.
    fn is_asynchronous(&self, v: gpu::Value) -> bool {
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return false };
        self.k.insts[inst].is_asynchronous()
    }

    /// Emits a block's instructions up to its yield. Returns the yielded values.
    fn block(&mut self, block: gpu::Block) -> R<Vec<Regs<'c>>> {
        for &inst in &self.k.blocks[block].insts {
            self.locate(inst);
            if let Op::Yield(values) = &self.k.insts[inst] {
                return values.iter().map(|&v| self.regs(v).cloned()).collect();
            }
            self.is_convergent.set(false);
            match self.runs.at(inst) {
                InRun::No => self.inst(inst)?,
                InRun::Before => {}
                InRun::Last(run) => self.elementwise_run(run)?,
            }
            self.converges_as_it_says(inst)?;
        }
        Ok(vec![])
    }

    /// What is emitted next is of the source of this operation.
    fn locate(&self, inst: gpu::Inst) {
        if let Some(lines) = &self.lines {
            lines.at(self.cx, &self.b, self.k.locs[inst].line, self.k.locs[inst].column);
        }
    }

    /// The row of an operation says whether all threads of a warp run it together; an access by matrix always is of that kind.
    fn converges_as_it_says(&self, inst: gpu::Inst) -> R<()> {
        let op = &self.k.insts[inst];
        let by_matrix = self.k.access_kinds[inst] == Some(AccessKind::Matrix);
        let says = by_matrix || op.effects().any(Effects::CONVERGENT.and(Effects::CONTROL));
        if says || !self.is_convergent.get() {
            Ok(())
        } else {
            Err(CompileError::bug("a convergent operation does not say so"))
        }
    }

    fn inst(&mut self, inst: gpu::Inst) -> R<()> {
        let k = self.k;
        let result = k.results[inst].first().copied();
        let form = || k.access_kinds[inst].as_ref().ok_or_else(|| CompileError::bug("an access without a form"));
        let regs = match &k.insts[inst] {
            Op::Loop { .. } => return self.emit_loop(inst),
            Op::If(cond, body, others) => return self.emit_if(*cond, *body, others, &k.results[inst]),
            Op::LoadGlobal { param, slices, cache } => self.load_global(*param, slices, *cache, form()?, result)?,
            Op::StoreGlobal { param, slices, value, update } => {
                return self.store_global(*update, (*param, slices), *value, form()?);
            }
            Op::Copy { atom: CopyAtom::TmaStore(map), param, slices, to } => {
                return self.engine_store(*map, *param, slices, to);
            }
            Op::Copy { atom, param, slices, to } if atom.map().is_some() => {
                return self.engine_copy(*atom, *param, slices, to);
            }
            Op::Copy { atom, param, slices, to } => return self.copy(*atom, *param, slices, to),
            Op::LoadShared(from) => self.load_shared(from, form()?, result)?,
            Op::LoadMatrix { side, from, further } => self.load_matrix(*side, from, *further, form()?, result)?,
            Op::StoreShared { to, value } => return self.store_shared(to, *value, form()?),
            Op::ZeroShared(buffer) => return self.zero_shared(*buffer),
            Op::SumCluster(value, buffer) => return self.sum_cluster(inst, *value, *buffer),
            Op::Mma { a, b, acc, atom, shape, accumulate: None } if atom.row().asynchronous => {
                self.wgmma((a, b), *acc, *atom, shape.2, result)?
            }
            Op::Mma { a, b, acc, atom, shape, accumulate: None } => self.mma((a, b), *acc, *atom, *shape, result)?,
            Op::WaitMma(v, pending) if self.is_asynchronous(*v) => self.wgmma_wait(*v, *pending)?,
            // These products are over when they are issued.
            Op::WaitMma(v, 0) => self.regs(*v)?.clone(),
            Op::Reduce { op, value, axes } => {
                let regs = self.reduce(*op, *value, axes, result)?;
                self.uniform_where_products_need_it(result, regs)?
            }
            Op::Scan { op, direction, value, axis } => self.scan(*op, *direction, *value, *axis)?,
            Op::Acquire(_, At::Slot(slot)) | Op::Wait(_, At::Slot(slot)) => vec![self.int(*slot)?.into()],
            Op::Acquire(ring, At::Cursor { slot, phase }) => self.acquire_stage(*ring, *slot, *phase)?,
            Op::Wait(ring, At::Cursor { slot, phase }) => self.wait_stage(*ring, *slot, *phase)?,
            Op::InitRing(ring) => return self.init_ring(*ring),
            Op::Once(body) => return self.once(*body),
            // The bytes complete the stage.
            Op::Commit(ring, _) if k.rings[*ring].filled_by == Mover::Engine => return Ok(()),
            Op::Commit(ring, _) if k.rings[*ring].read_by == Mover::Engine => return self.commit_stores(),
            // A group is the thread's own, whatever ring it fills; `insert_barriers` counts them.
            Op::Commit(_, _) => return self.commit_group(),
            Op::CopyWait(n) => return self.wait_group(*n),
            Op::StoreWait(n) => return self.wait_stores(*n, ".read"),
            Op::Drain(ring) if k.rings[*ring].read_by == Mover::Engine => return self.wait_stores(0, ""),
            // Barriers free the stages of a ring that threads fill.
            Op::Release(token) => match self.k.ring_of_engine(*token) {
                Some(ring) => return self.release_stage(ring, *token),
                None => return Ok(()),
            },
            Op::SumSplits(values) => return self.sum_splits(inst, values),
            Op::Barrier => return self.barrier(),
            Op::WarpgroupBarrier => return self.warpgroup_barrier(),
            Op::Fence(FenceKind::ProxyAsync) => {
                return self.call_void("llvm.nvvm.fence.proxy.async.shared_cta", &[]);
            }
            Op::Fence(FenceKind::MbarrierInit) => {
                return self.call_void("llvm.nvvm.fence.mbarrier_init.release.cluster", &[]);
            }
            Op::ConvertLayout(_)
            | Op::Programs(_)
            | Op::Yield(_)
            | Op::Drain(_)
            | Op::WaitMma(..)
            | Op::Acquire(..)
            | Op::Wait(..)
            | Op::Mma { accumulate: Some(_), .. } => {
                return Err(CompileError::bug("an operation that a pass should have lowered"));
            }
            op @ gpu_ops!(sources elementwise views) | op @ Op::MaskInvalid { .. } => {
                let v = result.ok_or_else(|| CompileError::bug("an element-wise operation without a result"))?;
                self.elementwise(op, v)?
            }
        };
        if let Some(v) = result {
            // What matrix instructions take is held in words of two elements of 16 bits.
            let paired = |dtype: DType| u32::from(dtype.is_half() && matches!(k.insts[inst], Op::LoadMatrix { .. }));
            if let Some((dtype, layout)) = k.values[v].ty.tile()
                && (layout.reg_count() >> paired(dtype)) as usize != regs.len()
            {
                return Err(CompileError::bug(format!("{} registers for {layout}", regs.len())));
            }
            self.values[v] = Some(regs);
        }
        Ok(())
    }
}

/// Checks that a struct type is the expected one. Keeps `BasicType` in scope for helpers.
fn struct_of<'c>(cx: &'c Context, field: impl BasicType<'c>, n: usize) -> inkwell::types::StructType<'c> {
    cx.struct_type(&vec![field.as_basic_type_enum(); n], false)
}
