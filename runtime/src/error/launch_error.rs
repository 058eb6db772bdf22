//! Launch errors: what is wrong with the arguments, in terms of the kernel's signature.

use atlas_dsl::DType;
use atlas_dsl::diag::Code;
use std::fmt;

errors! {
    /// Why the arguments of a launch do not fit the kernel.
    LaunchError {
        /// The number of arguments is wrong.
        WrongArgumentCount {
            /// The kernel.
            kernel: &'static str,
            /// Arguments given.
            found: usize,
            /// Parameters of the kernel.
            wanted: usize,
            /// The parameters' names in order.
            names: String,
        } = 601, "`{kernel}` takes {wanted} arguments ({names}), but is given {found}";
        /// A tensor that is given beside the others is missing.
        MissingTensor {
            /// The kernel.
            kernel: &'static str,
            /// The parameter.
            param: &'static str,
            /// How it is given.
            mend: &'static str,
        } = 601, "`{kernel}` takes a tensor `{param}`, but none is given; {mend}";
        /// A tensor is given beside the others, and the kernel takes none.
        UnknownTensor {
            /// The kernel.
            kernel: &'static str,
            /// What it was given as.
            param: &'static str,
        } = 601, "a tensor `{param}` is given, but `{kernel}` takes none";
        /// A tensor was passed for a scalar, or a scalar for a tensor.
        WrongKind {
            /// The kernel.
            kernel: &'static str,
            /// The parameter.
            param: &'static str,
            /// What was given.
            found: &'static str,
            /// What the kernel takes.
            wanted: &'static str,
        } = 602, "`{param}` of `{kernel}` is {wanted}, but {found} is given in its place; arguments stand in the order of the parameters";
        /// A tensor has the wrong rank.
        WrongRank {
            /// The kernel.
            kernel: &'static str,
            /// The parameter.
            param: &'static str,
            /// The tensor's shape.
            shape: Vec<usize>,
            /// The parameter's dims.
            dims: String,
        } = 603, "`{param}` of `{kernel}` has dims {dims}, but a tensor of shape {shape:?} is given";
        /// One dim has two sizes.
        DimConflict {
            /// The kernel.
            kernel: &'static str,
            /// The dim.
            dim: &'static str,
            /// The parameter that first set its size.
            first: &'static str,
            /// That parameter's axis.
            first_axis: usize,
            /// That axis's size.
            first_size: usize,
            /// The parameter that disagrees.
            second: &'static str,
            /// That parameter's axis.
            second_axis: usize,
            /// That axis's size.
            second_size: usize,
        } = 604, "dim `{dim}` of `{kernel}` is {first_size} on axis {first_axis} of `{first}`, but {second_size} on axis {second_axis} of `{second}`";
        /// A tensor of an op of several launches has another shape than the sizes of the op give it.
        WrongShape {
            /// The op.
            kernel: &'static str,
            /// The tensor.
            param: &'static str,
            /// Its shape.
            shape: Vec<usize>,
            /// Its dims by name.
            dims: &'static str,
            /// The sizes of these dims.
            wanted: Vec<usize>,
        } = 604, "`{param}` of `{kernel}` has shape {shape:?}, but {dims} is {wanted:?} here; pass a tensor of that shape";
        /// A tensor's element type differs from the signature's.
        WrongDType {
            /// The kernel.
            kernel: &'static str,
            /// The parameter.
            param: &'static str,
            /// The tensor's element type.
            found: DType,
            /// The parameter's element type.
            wanted: DType,
        } = 605, "`{param}` of `{kernel}` holds {wanted}, but a tensor of {found} is given";
        /// One type parameter has two element types.
        TypeConflict {
            /// The kernel.
            kernel: &'static str,
            /// The type parameter.
            name: &'static str,
            /// The parameter that first set it.
            first: &'static str,
            /// The element type of that parameter.
            first_dtype: DType,
            /// The parameter that disagrees.
            second: &'static str,
            /// Its type.
            second_dtype: DType,
        } = 606, "type `{name}` of `{kernel}` is {first_dtype} in `{first}`, but {second_dtype} in `{second}`";
        /// A type parameter was set to a type outside its bound.
        TypeNotAllowed {
            /// The kernel.
            kernel: &'static str,
            /// The type parameter.
            name: &'static str,
            /// The parameter that set it.
            param: &'static str,
            /// The element type that was given.
            found: DType,
            /// The types allowed.
            allowed: String,
        } = 606, "type `{name}` of `{kernel}` may be {allowed}, but `{param}` makes it {found}";
        /// A scalar's type does not convert to the parameter's.
        WrongScalar {
            /// The kernel.
            kernel: &'static str,
            /// The parameter.
            param: &'static str,
            /// The scalar's type.
            found: DType,
            /// The parameter's type.
            wanted: DType,
        } = 607, "`{param}` of `{kernel}` is a number of type {wanted}, but a number of type {found} is given; write the number as {wanted}";
        /// A whole number does not fit the parameter.
        ScalarOutOfRange {
            /// The kernel.
            kernel: &'static str,
            /// The parameter.
            param: &'static str,
            /// The number.
            value: i64,
        } = 607, "`{param}` of `{kernel}` is an i32, and {value} does not fit it";
        /// The parameter's type rounds a finite number to an infinity.
        ScalarTooLarge {
            /// The kernel.
            kernel: &'static str,
            /// The parameter.
            param: &'static str,
            /// The parameter's type.
            wanted: DType,
            /// The number.
            value: String,
            /// The range of its type.
            why: String,
        } = 607, "`{param}` of `{kernel}` is a number of type {wanted}, and {value} {why}";
        /// `&` was passed where the kernel writes.
        NotMutable {
            /// The kernel.
            kernel: &'static str,
            /// The parameter.
            param: &'static str,
        } = 608, "`{kernel}` writes `{param}`, but it is given as `&{param}`, which may only be read; pass `&mut {param}`";
        /// An output shares memory with another argument.
        Overlap {
            /// The kernel.
            kernel: &'static str,
            /// The output.
            output: &'static str,
            /// The other parameter.
            other: &'static str,
        } = 609, "`{output}` and `{other}` of `{kernel}` share memory, and `{output}` is written; pass a tensor of its own";
        /// Two elements of an output have the same address.
        SelfOverlap {
            /// The kernel.
            kernel: &'static str,
            /// The output.
            output: &'static str,
            /// Its shape.
            shape: Vec<usize>,
            /// Its strides, in elements.
            strides: Vec<i64>,
        } = 610, "`{kernel}` writes `{output}`, but elements of that view (shape {shape:?}, strides {strides:?}) share memory; pass a view without repeats";
        /// A tensor lives on another device than that of the launch.
        WrongDevice {
            /// The kernel.
            kernel: &'static str,
            /// The parameter.
            param: &'static str,
            /// Where it lives.
            found: String,
            /// The device of the launch, in words that differ from `found`.
            wanted: String,
        } = 611, "`{param}` of `{kernel}` is on {found}, but the launch is on {wanted}; copy it with `to_device`";
        /// A dim of 2^31 or more.
        DimTooLarge {
            /// The kernel.
            kernel: &'static str,
            /// The dim.
            dim: &'static str,
            /// The parameter.
            param: &'static str,
            /// The axis.
            axis: usize,
            /// Its size.
            size: usize,
        } = 612, "dim `{dim}` of `{kernel}` is {size} on axis {axis} of `{param}`; one dim may have at most 2147483647 elements";
        /// A dim occurs in no tensor parameter.
        UnboundDim {
            /// The kernel.
            kernel: &'static str,
            /// The dim.
            dim: &'static str,
        } = 613, "dim `{dim}` of `{kernel}` stands in no tensor parameter, so no argument gives its size";
        /// The sizes of the dims do not meet a requirement of the kernel.
        Unmet {
            /// The kernel.
            kernel: &'static str,
            /// The requirement, as in the kernel's source.
            requirement: String,
            /// The sizes of the dims in it.
            sizes: String,
        } = 648, "`{kernel}` requires {requirement}, but {sizes}";
        /// A sequence that comes in pieces, or documents that are packed, would be read from what later tokens teach.
        NotCausal {
            /// The kernel or chain.
            kernel: &'static str,
            /// Tokens of a chunk.
            chunk: usize,
        } = 652, "`{kernel}` takes one step for each chunk of {chunk} tokens, and reads a chunk after its step: what is read would depend on later tokens, and on where a sequence ends; read before the step, use chunks of one token, or take a step for each token";
        /// The stream belongs to another device.
        WrongStream {
            /// The stream's device.
            found: String,
            /// The launch's device, in words that differ from `found`.
            wanted: String,
        } = 614, "the stream belongs to {found}, but the launch is on {wanted}";
        /// A prepared launch got arguments of another problem.
        NotPrepared {
            /// The kernel.
            kernel: &'static str,
        } = 615, "these arguments of `{kernel}` differ from the prepared ones in shape, strides, type or alignment; prepare again";
        /// A text is no config.
        UnreadableConfig {
            /// What is wrong with it.
            why: String,
        } = 616, "this is no config: {why}; write its keys and values as in `BN=64 stages=2 warps=4`";
        /// A config has a key that the kernel does not have.
        UnknownKnob {
            /// The kernel.
            kernel: &'static str,
            /// The key.
            key: String,
            /// The kernel's knobs.
            known: String,
        } = 616, "config key `{key}` is no knob of `{kernel}`; it has {known}";
        /// No machine can run the schedule.
        ImpossibleSchedule {
            /// The kernel's name.
            kernel: &'static str,
            /// The key, its value and the allowed values.
            why: String,
        } = 642, "the schedule given for `{kernel}` runs on no device: {why}";
        /// One dim of a chain has two sizes.
        ChainDims {
            /// The chain.
            chain: &'static str,
            /// The dim.
            dim: &'static str,
            /// The parameter that first set its size.
            first: &'static str,
            /// Its size there.
            first_size: usize,
            /// The parameter that disagrees.
            second: &'static str,
            /// Its size there.
            size: usize,
        } = 643, "dim `{dim}` of the chain `{chain}` is {first_size} in `{first}`, but {size} in `{second}`; pass tensors that have one size of `{dim}`";
        /// A dim has another size than the workspace was allocated for.
        WorkspaceSize {
            /// The chain.
            chain: &'static str,
            /// The dim.
            dim: &'static str,
            /// The parameter that has another size.
            param: &'static str,
            /// Its size there.
            found: usize,
            /// The size that the workspace is for.
            wanted: usize,
        } = 643, "dim `{dim}` of the chain `{chain}` is {found} in `{param}`, but its workspace was allocated for {wanted}; allocate one for the sizes of this launch";
        /// One type parameter of a chain has two types.
        ChainTypes {
            /// The chain.
            chain: &'static str,
            /// The type parameter.
            name: &'static str,
            /// The parameter that first set it.
            first: &'static str,
            /// Its type there.
            first_type: DType,
            /// The parameter that disagrees.
            second: &'static str,
            /// Its type there.
            dtype: DType,
        } = 643, "type parameter `{name}` of the chain `{chain}` is {first_type} in `{first}`, but {dtype} in `{second}`; it is one type in all kernels of a chain";
        /// The workspace belongs to another chain.
        NoWorkspace {
            /// The chain.
            chain: &'static str,
            /// The tensors of the chain's workspace.
            name: String,
        } = 644, "the workspace given is not that of the chain `{chain}`: {name}; allocate it by the chain's own `workspace`";
        /// The list of a chain's workspace has a name that is no kernel's tensor.
        NoSuchWorkspace {
            /// The chain.
            chain: &'static str,
            /// The name.
            name: String,
            /// The tensors of its kernels.
            names: String,
        } = 646, "no kernel of the chain `{chain}` has a tensor `{name}`, which it lists as workspace; they have {names}";
        /// The order of a chain's parameters names one that its caller does not pass, or one twice.
        NoSuchParameter {
            /// The chain.
            chain: &'static str,
            /// The name.
            name: String,
            /// The parameters that a caller passes.
            names: String,
        } = 646, "`ordered` of the chain `{chain}` names `{name}`, but each name has to be one of the parameters that its caller passes, once: {names}";
        /// No kernel that a chain repeats has the parameter that is to be the index, as a number of type i32.
        NoSuchIndex {
            /// The chain.
            chain: &'static str,
            /// The name.
            name: String,
            /// What there is of that name, or that there is nothing.
            found: String,
        } = 646, "the chain `{chain}` repeats kernels with `{name}` as their index, but {found}; it has to be a parameter `{name}: i32` of one that is repeated";
        /// A workspace tensor is read before any kernel has written it.
        WorkspaceReadFirst {
            /// The chain.
            chain: &'static str,
            /// The tensor.
            name: String,
            /// The first kernel that uses it.
            kernel: &'static str,
        } = 647, "`{kernel}` reads `{name}`, workspace of the chain `{chain}`, before a kernel has written it; put the kernel that makes it first";
        /// A dim or a type that the workspace needs was not given.
        WorkspaceDim {
            /// The chain.
            chain: &'static str,
            /// The tensor.
            name: String,
            /// The dim or the type parameter.
            dim: &'static str,
            /// The argument of [`Chain::workspace`](crate::Chain::workspace) that lacks it.
            list: &'static str,
        } = 645, "`{name}`, workspace of the chain `{chain}`, needs `{dim}`; add it to the `{list}` that `workspace` is given";
        /// The dim of [`Chain::after_each`](crate::Chain::after_each) is 0, so that no index would be in a segment.
        EmptySegment {
            /// The chain.
            chain: &'static str,
            /// The dim.
            dim: &'static str,
        } = 645, "the chain `{chain}` repeats kernels in segments of `{dim}` indices, and `{dim}` is 0; make it 1 or more, in the `dims` that `workspace` is given or in the tensors that have it";
        /// A dim or a type was given for a workspace, but no kernel of the chain has it.
        WorkspaceUnknown {
            /// The chain.
            chain: &'static str,
            /// The name that is given.
            name: String,
            /// The names that may be given.
            known: String,
        } = 645, "no kernel of the chain `{chain}` has a dim or a type parameter `{name}`; known are {known}";
        /// The grid has more programs than one launch may have.
        GridTooLarge {
            /// The kernel.
            kernel: &'static str,
            /// The number of programs.
            programs: u64,
        } = 617, "`{kernel}` needs {programs} programs for this problem; one launch has at most 2147483647: use larger tiles";
        /// The programs are few enough for one launch, but not the CTAs that share them.
        TooManyCtas {
            /// The kernel.
            kernel: &'static str,
            /// The number of CTAs.
            ctas: u64,
            /// The number of CTAs that share each program.
            splits: u32,
            /// The number of programs.
            programs: u64,
        } = 617, "`{kernel}` needs {ctas} CTAs for this problem, {splits} for each of {programs} programs; one launch has at most 2147483647: use larger tiles or a smaller `split_k`";
        /// The driver is too old for the kernel's PTX.
        PtxTooNew {
            /// The kernel.
            kernel: String,
            /// The PTX version it declares.
            ptx: String,
            /// The driver's CUDA version.
            driver: String,
            /// The highest PTX version the driver takes.
            highest: String,
            /// The lowest CUDA version whose driver accepts the PTX.
            mend: String,
        } = 618, "`{kernel}` is PTX {ptx}, but this driver (CUDA {driver}) takes PTX up to {highest}; update the driver to one for CUDA {mend} or later";
        /// A dim that the kernel uses whole, or as the axis of a cluster, has no elements.
        EmptyDim {
            /// The kernel.
            kernel: &'static str,
            /// The dim.
            dim: &'static str,
        } = 629, "dim `{dim}` of `{kernel}` is 0, but the kernel uses it whole or as the axis of a cluster, and needs at least one element of it; launch only where `{dim}` is 1 or more";
        /// A choice that an op of several launches does not offer.
        Choice {
            /// The op.
            op: &'static str,
            /// What was chosen.
            found: String,
            /// What to choose instead.
            mend: &'static str,
        } = 651, "`{op}`: {found}; {mend}";
        /// A stream that records is given a launch that nothing has prepared.
        RecordedUnprepared {
            /// The kernel.
            kernel: &'static str,
        } = 656, "`{kernel}` was not prepared for these sizes, types and layouts, and recording a launch does not prepare it, on any device; call `prepare`, of the chain if one launches it, with these arguments before, or launch it once before the recording";
        /// A launch beside the recording, of the thread that records.
        NotRecorded {
            /// The kernel.
            kernel: &'static str,
        } = 657, "`{kernel}` is launched on another stream while this thread records a graph, so the graph, or the block of `run_if` or `run_while` that is being recorded, would lack it; launch it on the stream that the innermost closure is given, or outside of that closure";
        /// A launch on a stream that recorded a graph.
        RecordingEnded {
            /// The kernel.
            kernel: &'static str,
        } = 658, "`{kernel}` is launched on the stream of a recording, or of a block, that has ended; launch it on the stream that was captured, or that its own closure is given";
        /// A recording that moves the state of an op on the host.
        NotRepeatable {
            /// The op.
            op: &'static str,
        } = 660, "one run of the graph would leave `{op}` elsewhere than it found it: at other tokens of a chunk, with fewer tokens before them, or with its two buffers in the other order; record an even number of pushes of whole chunks, after as many tokens as its windows reach, or call `restart` first in the closure";
        /// A condition outside of a recording.
        NoRecording {
            /// The method that was called.
            call: &'static str,
        } = 661, "`{call}` records launches behind a condition, and this stream does not record; call it on the stream that the closure of `capture` is given. Outside of a graph, read the number and launch, or do not";
        /// A condition that is not one number.
        WrongCondition {
            /// The method that was called.
            call: &'static str,
            /// What it was given.
            found: String,
            /// Where the graph runs.
            device: String,
        } = 662, "the condition of `{call}` is a tensor of one i32 on {device}, and {found} is given";
        /// A graph with conditions, on a stream that another library records.
        GraphRecorded {} = 663, "this graph has conditions, and another library records what is queued on this stream, which cannot take them; launch the graph outside of that recording, or on a stream of its own";
        /// A loop that nothing ends.
        EndlessLoop {} = 664, "no launch of this `run_while` writes its condition, so it would never end; have one of them write a 0 there, which means no";
        /// Stores that should not meet, met. Only the CPU looks.
        StoresMeet {
            /// The kernel.
            kernel: String,
            /// The tensor.
            tensor: String,
            /// The coordinates of an element with two stores.
            element: Vec<u64>,
        } = 665, "`store_disjoint` of `{kernel}` stores the element {element:?} of `{tensor}` twice in this launch, and which of the two stays is not defined; give places that differ, or combine what meets by `atomic_add`, `atomic_max` or `atomic_min`";
        /// A size for which there is no bucket.
        NoBucket {
            /// The size.
            size: usize,
            /// The sizes of the buckets.
            sizes: Vec<usize>,
        } = 659, "no bucket holds size {size}: there are {sizes:?}; add a larger one, or launch this size without a graph";
        /// A compiled kernel's parameters do not fit its signature.
        WrongAbi {
            /// The kernel.
            kernel: String,
        } = 619, "the compiled kernel `{kernel}` does not fit its signature; this is a bug of Atlas";
    }
}
