//! Inline PTX, and intrinsics named by their purpose: copies, barriers, exchanges between lanes, accesses of global memory.

use super::{Emitter, R, struct_of};
use crate::error::CompileError;
use crate::gpu::Cache;
use crate::gpu::atom::WARPGROUP;
use inkwell::InlineAsmDialect;
use inkwell::attributes::AttributeLoc;
use inkwell::module::Module;
use inkwell::types::{BasicMetadataTypeEnum, BasicType, BasicTypeEnum, FunctionType};
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, CallSiteValue, FunctionValue, IntValue, PointerValue};

/// One access of global memory, in words.
pub(super) struct WordAccess {
    /// 1, 2 or 4.
    pub words: u32,
    /// Bytes of a word: 4, or 1 or 2 of a single word. The result of a load of 1 byte has 16 bits, of which the upper ones are 0.
    pub bytes: u32,
    /// Bytes past the address.
    pub offset: i64,
    /// True if nothing writes the tensor during the launch.
    pub read_only: bool,
    /// What the L2 cache does with the lines.
    pub cache: Cache,
}

/// An intrinsic by name. LLVM adds its attributes.
pub(super) fn declare<'c>(module: &Module<'c>, name: &str, ty: FunctionType<'c>) -> FunctionValue<'c> {
    module.get_function(name).unwrap_or_else(|| module.add_function(name, ty, None))
}

impl<'c> Emitter<'c, '_> {
    /// Calls an intrinsic of one result.
    pub(super) fn call(
        &self,
        name: &str,
        result: BasicTypeEnum<'c>,
        args: &[BasicValueEnum<'c>],
    ) -> R<BasicValueEnum<'c>> {
        self.note_convergence(name);
        let types: Vec<BasicMetadataTypeEnum<'c>> = args.iter().map(|a| a.get_type().into()).collect();
        let f = declare(self.module, name, result.fn_type(&types, false));
        let args: Vec<BasicMetadataValueEnum<'c>> = args.iter().map(|&a| a.into()).collect();
        Ok(self.b.build_call(f, &args, "")?.try_as_basic_value().unwrap_basic())
    }

    /// Calls an intrinsic without result.
    pub(super) fn call_void(&self, name: &str, args: &[BasicValueEnum<'c>]) -> R<()> {
        self.note_convergence(name);
        let types: Vec<BasicMetadataTypeEnum<'c>> = args.iter().map(|a| a.get_type().into()).collect();
        let f = declare(self.module, name, self.cx.void_type().fn_type(&types, false));
        let args: Vec<BasicMetadataValueEnum<'c>> = args.iter().map(|&a| a.into()).collect();
        self.b.build_call(f, &args, "")?;
        Ok(())
    }

    /// Notes an intrinsic that all threads of a warp call together.
    fn note_convergence(&self, name: &str) {
        if name.contains(".sync.") {
            self.is_convergent.set(true);
        }
    }

    /// The fields of a struct result.
    pub(super) fn fields(&self, v: BasicValueEnum<'c>, n: u32) -> R<Vec<BasicValueEnum<'c>>> {
        (0..n).map(|i| Ok(self.b.build_extract_value(v.into_struct_value(), i, "")?)).collect()
    }

    pub(super) fn barrier(&self) -> R<()> {
        self.call_void("llvm.nvvm.barrier.cta.sync.aligned.all", &[self.i32(0).into()])
    }

    /// Numbers of barriers from 1 on are the warpgroups'; 0 is that of all threads.
    pub(super) fn warpgroup_barrier(&mut self) -> R<()> {
        let warpgroup = self.warpgroup()?;
        let number = self.b.build_int_add(warpgroup, self.i32(1), "")?;
        let threads = self.i32(i64::from(32 * WARPGROUP));
        self.call_void("llvm.nvvm.barrier.cta.sync.aligned.count", &[number.into(), threads.into()])
    }

    pub(super) fn commit_group(&self) -> R<()> {
        self.call_void("llvm.nvvm.cp.async.commit.group", &[])
    }

    pub(super) fn wait_group(&self, pending: u32) -> R<()> {
        self.call_void("llvm.nvvm.cp.async.wait.group", &[self.i32(i64::from(pending)).into()])
    }

    /// Copies `bytes` (4, 8 or 16) from global to shared memory. The first `real` come from memory, and the rest are zero.
    pub(super) fn cp_async(
        &self,
        bytes: u32,
        to: PointerValue<'c>,
        from: PointerValue<'c>,
        real: Option<IntValue<'c>>,
    ) -> R<()> {
        let cache = if bytes == 16 { "cg" } else { "ca" };
        let name = format!("llvm.nvvm.cp.async.{cache}.shared.global.{bytes}");
        match real {
            None => self.call_void(&name, &[to.into(), from.into()]),
            Some(n) => self.call_void(&format!("{name}.s"), &[to.into(), from.into(), n.into()]),
        }
    }

    /// `ldmatrix` of four 8x8 matrices of 16-bit elements; one 32-bit register per matrix.
    pub(super) fn ldmatrix_x4(&self, from: PointerValue<'c>, transposed: bool) -> R<Vec<IntValue<'c>>> {
        let trans = if transposed { ".trans" } else { "" };
        let name = format!("llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{trans}.b16.p3");
        let ty = struct_of(self.cx, self.i32_type(), 4);
        let r = self.call(&name, ty.into(), &[from.into()])?;
        Ok(self.fields(r, 4)?.into_iter().map(BasicValueEnum::into_int_value).collect())
    }

    /// `stmatrix` of four 8x8 matrices of 16-bit elements.
    pub(super) fn stmatrix_x4(&self, to: PointerValue<'c>, values: &[IntValue<'c>]) -> R<()> {
        let mut args: Vec<BasicValueEnum<'c>> = vec![to.into()];
        args.extend(values.iter().map(|&v| BasicValueEnum::from(v)));
        self.call_void("llvm.nvvm.stmatrix.sync.aligned.m8n8.x4.b16.p3", &args)
    }

    /// The value of the lane whose number differs in the bits of `mask`.
    pub(super) fn shuffle_xor(&self, v: BasicValueEnum<'c>, mask: u32) -> R<BasicValueEnum<'c>> {
        let all = self.i32(-1).into();
        let clamp = self.i32(31).into();
        let mask = self.i32(i64::from(mask)).into();
        let i32t = self.i32_type();
        match v {
            BasicValueEnum::FloatValue(f) if f.get_type() == self.cx.f32_type() => {
                self.call("llvm.nvvm.shfl.sync.bfly.f32", self.cx.f32_type().into(), &[all, v, mask, clamp])
            }
            BasicValueEnum::IntValue(i) if i.get_type() == i32t => {
                self.call("llvm.nvvm.shfl.sync.bfly.i32", i32t.into(), &[all, v, mask, clamp])
            }
            // 64-bit values travel as two halves.
            _ => {
                let pair = i32t.vec_type(2);
                let halves = self.b.build_bit_cast(v, pair, "")?.into_vector_value();
                let mut out = pair.get_undef();
                for i in 0..2 {
                    let at = self.i32(i);
                    let h = self.b.build_extract_element(halves, at, "")?;
                    let h = self.call("llvm.nvvm.shfl.sync.bfly.i32", i32t.into(), &[all, h, mask, clamp])?;
                    out = self.b.build_insert_element(out, h, at, "")?;
                }
                Ok(self.b.build_bit_cast(out, v.get_type(), "")?)
            }
        }
    }

    /// The same number, opaque to the optimiser, so that values that depend on it stay where they are.
    pub(super) fn opaque(&self, x: IntValue<'c>) -> R<IntValue<'c>> {
        let i32t = self.i32_type();
        let ty = i32t.fn_type(&[i32t.into()], false);
        let asm = self.cx.create_inline_asm(
            ty,
            "mov.b32 $0, $1;".to_owned(),
            "=r,r".to_owned(),
            true,
            false,
            Some(InlineAsmDialect::ATT),
            false,
        );
        Ok(self.b.build_indirect_call(ty, asm, &[x.into()], "")?.try_as_basic_value().unwrap_basic().into_int_value())
    }

    /// An L2 policy, created once at the kernel's entry.
    pub(super) fn cache_policy(&mut self, cache: Cache) -> R<IntValue<'c>> {
        if let Some((_, policy)) = self.policies.iter().find(|(c, _)| *c == cache) {
            return Ok(*policy);
        }
        let name = match cache {
            Cache::Normal => "evict_normal",
            Cache::EvictLast => "evict_last",
            Cache::EvictFirst => "evict_first",
        };
        let here = self.b.get_insert_block();
        self.b.position_at_end(self.entry);
        let ty = self.cx.i64_type().fn_type(&[], false);
        let text = format!("createpolicy.fractional.L2::{name}.b64 $0, 1.0;");
        let asm =
            self.cx.create_inline_asm(ty, text, "=l".to_owned(), false, false, Some(InlineAsmDialect::ATT), false);
        let call = self.b.build_indirect_call(ty, asm, &[], name)?;
        let policy = call.try_as_basic_value().unwrap_basic().into_int_value();
        if let Some(block) = here {
            self.b.position_at_end(block);
        }
        self.policies.push((cache, policy));
        Ok(policy)
    }

    /// Loads the words of one access of global memory by inline PTX, because LLVM has no load with a predicate or an L2 policy.
    /// Where the predicate is false, nothing is read and the words are 0. A load from a substitute address could race with
    /// another thread's store, or hit unmapped memory.
    ///
    /// A load that evicts its lines first stays where it is. Its purpose is to read a value again that registers would
    /// otherwise have to hold.
    pub(super) fn load_words(
        &mut self,
        at: PointerValue<'c>,
        access: &WordAccess,
        real: Option<IntValue<'c>>,
    ) -> R<Vec<IntValue<'c>>> {
        let WordAccess { words, bytes, offset, read_only, cache } = *access;
        let policy = match cache {
            Cache::Normal => None,
            _ => Some(self.cache_policy(cache)?),
        };
        let (ty, suffix, width, reg) = match bytes {
            // No register has 8 bits.
            1 => (self.cx.i16_type(), "b8", "b16", "h"),
            2 => (self.cx.i16_type(), "b16", "b16", "h"),
            _ => (self.i32_type(), "b32", "b32", "r"),
        };
        let n = words as usize;
        let list = (0..n).map(|i| format!("${i}")).collect::<Vec<_>>();
        let (vector, data) = match words {
            1 => (String::new(), list[0].clone()),
            _ => (format!(".v{words}"), format!("{{{}}}", list.join(", "))),
        };
        let nc = if read_only { ".nc" } else { "" };
        let hint = if policy.is_some() { ".L2::cache_hint" } else { "" };
        let mut next = n + 1;
        let mut operand = || {
            next += 1;
            format!("${}", next - 1)
        };
        let hinted = policy.map_or(String::new(), |_| format!(", {}", operand()));
        let load = format!("ld.global{nc}{hint}{vector}.{suffix} {data}, [${n}+{offset}]{hinted};");
        let text = match real {
            None => load,
            Some(_) => {
                let zeros: String = list.iter().map(|r| format!("mov.{width} {r}, 0; ")).collect();
                format!("{zeros}@{} {load}", operand())
            }
        };
        // What is zeroed before the address is read must not share its register.
        let out = if real.is_some() { format!("=&{reg},") } else { format!("={reg},") };
        let mut constraints = format!("{}l", out.repeat(n));
        let mut args: Vec<BasicMetadataValueEnum<'c>> = vec![at.into()];
        let mut types: Vec<BasicMetadataTypeEnum<'c>> = vec![at.get_type().into()];
        for (v, constraint) in policy.into_iter().map(|p| (p, ",l")).chain(real.map(|p| (p, ",b"))) {
            constraints.push_str(constraint);
            args.push(v.into());
            types.push(v.get_type().into());
        }
        if !read_only {
            constraints.push_str(",~{memory}");
        }
        let fixed = cache == Cache::EvictFirst || !read_only;
        let ty = match words {
            1 => ty.fn_type(&types, false),
            _ => self.cx.struct_type(&vec![ty.into(); n], false).fn_type(&types, false),
        };
        let asm = self.cx.create_inline_asm(ty, text, constraints, fixed, false, Some(InlineAsmDialect::ATT), false);
        let call = self.b.build_indirect_call(ty, asm, &args, "")?;
        self.never_unwinds(call);
        let result = call.try_as_basic_value().unwrap_basic();
        if words == 1 {
            return Ok(vec![result.into_int_value()]);
        }
        (0..words)
            .map(|i| Ok(self.b.build_extract_value(result.into_struct_value(), i, "")?.into_int_value()))
            .collect()
    }

    pub(super) fn never_unwinds(&self, call: CallSiteValue<'c>) {
        let nounwind = inkwell::attributes::Attribute::get_named_enum_kind_id("nounwind");
        call.add_attribute(AttributeLoc::Function, self.cx.create_enum_attribute(nounwind, 0));
    }

    /// Stores so many bytes of 32-bit words (or of one 16-bit word) where the predicate holds.
    pub(super) fn store_if(
        &self,
        p: IntValue<'c>,
        space: &str,
        to: PointerValue<'c>,
        (words, bytes): (&[IntValue<'c>], u32),
    ) -> R<()> {
        let (suffix, reg) = match (words.len(), bytes) {
            (1, 1) => ("b8", "h"),
            (1, 2) => ("b16", "h"),
            (1, 4) => ("b32", "r"),
            (2, 8) => ("v2.b32", "r"),
            (4, 16) => ("v4.b32", "r"),
            (n, b) => return Err(CompileError::bug(format!("a store of {b} bytes in {n} words"))),
        };
        let address = if space == "shared" { "r" } else { "l" };
        self.write(&format!("st.{space}.{suffix}"), [address, reg], to, words, Some(p))
    }

    /// An instruction of inline PTX that writes words to an address, where a predicate holds if there is one. `registers` are the kinds
    /// of registers of the address and of the words.
    pub(super) fn write(
        &self,
        instruction: &str,
        [address, register]: [&str; 2],
        to: PointerValue<'c>,
        words: &[IntValue<'c>],
        real: Option<IntValue<'c>>,
    ) -> R<()> {
        let (guard, at) = if real.is_some() { ("@$0 ", 1) } else { ("", 0) };
        let list: Vec<String> = (0..words.len()).map(|i| format!("${}", at + 1 + i)).collect();
        let data = if words.len() == 1 { list[0].clone() } else { format!("{{{}}}", list.join(", ")) };
        let text = format!("{guard}{instruction} [${at}], {data};");
        let kinds = real.map(|_| "b").into_iter().chain([address]).chain(words.iter().map(|_| register));
        let constraints = format!("{},~{{memory}}", kinds.collect::<Vec<_>>().join(","));
        let mut types: Vec<BasicMetadataTypeEnum<'c>> = real.iter().map(|p| p.get_type().into()).collect();
        types.push(to.get_type().into());
        types.extend(words.iter().map(|w| BasicMetadataTypeEnum::from(w.get_type())));
        let ty = self.cx.void_type().fn_type(&types, false);
        let asm = self.cx.create_inline_asm(ty, text, constraints, true, false, Some(InlineAsmDialect::ATT), false);
        let mut args: Vec<BasicMetadataValueEnum<'c>> = real.into_iter().map(Into::into).collect();
        args.push(to.into());
        args.extend(words.iter().map(|&w| BasicMetadataValueEnum::from(w)));
        let call = self.b.build_indirect_call(ty, asm, &args, "")?;
        self.never_unwinds(call);
        Ok(())
    }
}
