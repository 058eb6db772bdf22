//! Conditional nodes of CUDA graphs: work that a graph repeats or leaves out, as a number in memory says when it runs.

use super::recorded::{THREAD_LOCAL, end_capture};
use crate::error::Result;
use crate::gpu::context::Context;
use crate::gpu::current::Handle;
use crate::gpu::loaded_kernel::DriverModule;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

/// What happens with work behind a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conditional {
    /// It runs once if the number is not 0.
    If,
    /// It runs as long as the number is not 0.
    While,
}

/// `CUgraphNodeParams` with the member for conditional nodes.
#[repr(C)]
struct NodeParams {
    /// `CU_GRAPH_NODE_TYPE_CONDITIONAL`
    of: c_int,
    reserved0: [c_int; 3],
    /// `CUDA_CONDITIONAL_NODE_PARAMS` from here ..
    condition: u64,
    kind: c_int,
    size: c_uint,
    bodies: *mut Handle,
    context: Handle,
    /// .. and what the largest member has besides.
    rest: [u64; 25],
    reserved2: i64,
}

const _: () = assert!(size_of::<NodeParams>() == 16 + 29 * 8 + 8);

/// A kernel of one thread that makes a number in memory the condition of a node. The driver has the function that it calls, whose
/// declaration is `cudaGraphSetConditional` of `cuda_device_runtime_api.h`.
const SETTER: &[u8] = b".version 7.0
.target sm_80
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 condition, .param .b32 value);
.visible .entry atlas_set_condition(.param .u64 condition, .param .u64 number)
{
  .reg .pred %is_set;
  .reg .b32 %value;
  .reg .b64 %condition, %number;
  ld.param.u64 %condition, [condition];
  ld.param.u64 %number, [number];
  cvta.to.global.u64 %number, %number;
  ld.global.u32 %value, [%number];
  setp.ne.s32 %is_set, %value, 0;
  selp.u32 %value, 1, 0, %is_set;
  {
    .param .b64 to;
    .param .b32 what;
    st.param.b64 [to], %condition;
    st.param.b32 [what], %value;
    call.uni cudaGraphSetConditional, (to, what);
  }
  ret;
}
\0";

/// What sets conditions. It is loaded once in each context, and stays: unloading code would wait for the device.
pub(crate) struct ConditionSetter;

impl ConditionSetter {
    /// Loads it, and says whether the driver has conditional nodes.
    pub(crate) fn is_there(context: &Arc<Context>) -> Result<bool> {
        Ok(context.enter()?.conditional.is_some() && !ConditionSetter::function(context)?.is_null())
    }

    fn function(context: &Arc<Context>) -> Result<Handle> {
        context.condition_setter(|| {
            let module = DriverModule::load(context, "atlas_set_condition", SETTER)?;
            let function = module.function;
            std::mem::forget(module);
            Ok(function)
        })
    }

    /// Queues that a number becomes a condition.
    fn queue(context: &Arc<Context>, stream: Handle, mut condition: u64, mut number: u64) -> Result<()> {
        let function = ConditionSetter::function(context)?;
        let api = context.enter()?;
        let mut params: [*mut c_void; 2] = [(&raw mut condition).cast(), (&raw mut number).cast()];
        let none = std::ptr::null_mut();
        // SAFETY: a live function that takes two numbers of 64 bits, and a live stream.
        let status = unsafe { (api.launch)(function, 1, 1, 1, 1, 1, 1, 0, stream, params.as_mut_ptr(), none) };
        context.check("cuLaunchKernel", status)
    }

    /// Adds a node to the graph that a stream records: what `work` queues on `inner`, another stream that records nothing, behind a
    /// condition. The condition is the 32-bit number at an address, when the graph comes to the node, and before each repetition.
    ///
    /// The thread has begun the recording, both streams are of the context, and [`ConditionSetter::is_there`] has said yes.
    pub(crate) fn record(
        context: &Arc<Context>,
        (stream, inner): (Handle, Handle),
        (kind, number): (Conditional, u64),
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let api = context.enter()?;
        let Some(conditional) = &api.conditional else { return Ok(()) };
        let (graph, _) = context.recorded_so_far(stream)?;
        let mut condition = 0;
        // SAFETY: an out-pointer to a live number; the graph is being recorded; no flags, so that the condition is what the setter made it.
        let status = unsafe { (conditional.create)(&mut condition, graph, context.raw(), 0, 0) };
        context.check("cuGraphConditionalHandleCreate", status)?;
        ConditionSetter::queue(context, stream, condition, number)?;
        let (graph, before) = context.recorded_so_far(stream)?;
        let mut params = NodeParams {
            of: 13,
            reserved0: [0; 3],
            condition,
            kind: match kind {
                Conditional::If => 0,
                Conditional::While => 1,
            },
            size: 1,
            bodies: std::ptr::null_mut(),
            context: context.raw(),
            rest: [0; 25],
            reserved2: 0,
        };
        let mut node = std::ptr::null_mut();
        // SAFETY: out-pointers to live values; the nodes before are of the graph.
        let status =
            unsafe { (conditional.add)(&mut node, graph, before.as_ptr(), before.len(), (&raw mut params).cast()) };
        context.check("cuGraphAddNode", status)?;
        // SAFETY: the driver has made a list of one graph, which lives as long as the node.
        let body = unsafe { *params.bodies };
        // SAFETY: a live stream that records nothing, and a live graph without nodes.
        let status = unsafe { (conditional.begin)(inner, body, std::ptr::null(), std::ptr::null(), 0, THREAD_LOCAL) };
        context.check("cuStreamBeginCaptureToGraph", status)?;
        let worked = work().and_then(|()| match kind {
            Conditional::If => Ok(()),
            Conditional::While => ConditionSetter::queue(context, inner, condition, number),
        });
        // The graph that this gives is the body, which belongs to the node.
        let ended = end_capture(context, inner).map(drop);
        worked.and(ended)?;
        /// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`: what follows stands behind these nodes alone.
        const SET: c_uint = 1;
        // SAFETY: the stream records, and the node is of its graph.
        let status = unsafe { (conditional.follow)(stream, &mut node, 1, SET) };
        context.check("cuStreamUpdateCaptureDependencies", status)
    }
}
