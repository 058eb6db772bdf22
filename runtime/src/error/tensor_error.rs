//! Tensor errors: why a tensor cannot be made, viewed or read.

use atlas_dsl::DType;
use atlas_dsl::diag::Code;
use std::fmt;

errors! {
    /// Why a tensor cannot be made, viewed or read.
    TensorError {
        /// The number of elements and the shape disagree.
        WrongLength {
            /// Elements given.
            found: usize,
            /// The shape.
            shape: Vec<usize>,
        } = 630, "the number of elements given for a tensor of shape {shape:?} is {found}";
        /// A range of an axis lies outside it, or is reversed.
        SliceOutOfRange {
            /// The axis.
            axis: usize,
            /// First element.
            start: usize,
            /// One past the last element.
            end: usize,
            /// The size of the axis.
            size: usize,
        } = 631, "slice {start}..{end} of axis {axis}, which has size {size}";
        /// A view with the given strides reaches beyond its tensor.
        BeyondTensor {
            /// The shape asked for.
            shape: Vec<usize>,
            /// The strides asked for, in elements.
            strides: Vec<usize>,
            /// The index of the first element.
            offset: usize,
            /// The number of elements of the tensor.
            len: usize,
        } = 631, "a view of shape {shape:?} with strides {strides:?} from element {offset} does not lie within {len} elements";
        /// There is no such axis.
        NoSuchAxis {
            /// The axis.
            axis: usize,
            /// The tensor's rank.
            rank: usize,
        } = 632, "axis {axis} of a tensor of rank {rank}";
        /// The axes given to `permute` do not name each axis exactly once.
        NotAPermutation {
            /// The axes given.
            axes: Vec<usize>,
            /// The tensor's rank.
            rank: usize,
        } = 633, "{axes:?} does not name each axis of a tensor of rank {rank} once";
        /// Only axes of size 1 expand.
        CannotExpand {
            /// The tensor's shape.
            from: Vec<usize>,
            /// The shape asked for.
            to: Vec<usize>,
        } = 634, "a tensor of shape {from:?} does not expand to {to:?}: an axis keeps its size, or has size 1";
        /// The new shape has a different number of elements.
        CannotReshape {
            /// The tensor's shape.
            from: Vec<usize>,
            /// The shape asked for.
            to: Vec<usize>,
        } = 635, "a tensor of shape {from:?} has another number of elements than {to:?}";
        /// An axis is no multiple of the size that its second part would have.
        UnevenSplit {
            /// The axis.
            axis: usize,
            /// Its size.
            size: usize,
            /// The size asked for.
            by: usize,
        } = 635, "axis {axis} has size {size}, which is no multiple of {by}: `split(axis, size)` makes an axis of whole parts and, behind it, one of `size` elements";
        /// The view is not row-major without gaps.
        NotContiguous {
            /// The tensor's shape.
            shape: Vec<usize>,
            /// Its strides, in elements.
            strides: Vec<i64>,
        } = 635, "a view of shape {shape:?} with strides {strides:?} is not contiguous; copy it first with `contiguous()`";
        /// The host type does not match the tensor's element type.
        WrongElement {
            /// The host type's element type.
            found: DType,
            /// The tensor's element type.
            wanted: DType,
        } = 636, "the tensor holds {wanted}, but it is read or written as {found}";
        /// The size in bytes exceeds 2^63.
        TooLarge {
            /// The shape.
            shape: Vec<usize>,
        } = 637, "a tensor of shape {shape:?} has more bytes than an address space";
        /// Out of memory.
        OutOfMemory {
            /// Bytes asked for.
            bytes: u64,
            /// The device.
            device: String,
        } = 638, "{device} has no {bytes} bytes of free memory; drop tensors, or use a smaller problem";
        /// The element type exists only inside kernels.
        NoHostType {
            /// The element type.
            dtype: DType,
        } = 639, "a tensor cannot hold {dtype}: it exists only inside kernels; make it u8";
        /// Sizes, strides and address make no tensor in memory of another library.
        ForeignLayout {
            /// The sizes.
            shape: Vec<usize>,
            /// The strides, in elements.
            strides: Vec<i64>,
            /// What has to hold.
            reason: &'static str,
        } = 653, "no tensor of another library has sizes {shape:?} and strides {strides:?} here: {reason}";
        /// The address is no multiple of the size of an element.
        Misaligned {
            /// The address.
            address: u64,
            /// The element type.
            dtype: DType,
        } = 654, "an element of type {dtype} cannot begin at address {address:#x}, which is no multiple of its size; copy the tensor";
        /// The bytes are not memory of the device.
        NotOfDevice {
            /// The address of the first one.
            address: u64,
            /// Their number.
            bytes: u64,
            /// The device.
            device: String,
            /// What is there.
            found: String,
        } = 655, "{bytes} bytes at {address:#x} are not memory of {device}: {found}; copy the tensor to {device}, or name its device";
    }
}
