//! Arguments and results of a kernel of PyTorch, and its tensors as those of DLPack.

use super::shim::{Handle, Torch, Word, done};
use crate::dlpack::{DLDataType, DLDevice, DLTensor};
use crate::status::{Failure, Result};
use smallvec::SmallVec;
use std::ffi::c_void;

/// The sizes of axes.
pub(super) type Axes = SmallVec<[i64; 8]>;

/// A tensor of PyTorch, of which this holds a reference.
pub(super) struct Tensor {
    torch: &'static Torch,
    handle: Handle,
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: the reference is this one's own.
        unsafe { (self.torch.shim.aoti_torch_delete_tensor_object)(self.handle) };
    }
}

impl Tensor {
    /// A tensor without gaps, whose elements are not set.
    pub(super) fn empty(torch: &'static Torch, at: (i32, i32), sizes: &[i64], dtype: i32) -> Result<Tensor> {
        let strides = contiguous(sizes);
        let mut handle = std::ptr::null_mut();
        // SAFETY: there is one size and one stride for each axis.
        let status = unsafe {
            let (rank, sizes, strides) = (sizes.len() as i64, sizes.as_ptr(), strides.as_ptr());
            (torch.shim.aoti_torch_empty_strided)(rank, sizes, strides, dtype, at.0, at.1, &raw mut handle)
        };
        if status != 0 {
            let bytes = sizes.iter().fold(u128::from(torch.dtype(dtype).bits / 8), |bytes, &n| {
                bytes.saturating_mul(u128::try_from(n).unwrap_or(0))
            });
            done(status, &format!("allocate a tensor of shape {}, {bytes} bytes", tuple(sizes)))?;
        }
        Ok(Tensor { torch, handle })
    }

    /// Its elements without gaps, in memory of their own.
    pub(super) fn copy(&self) -> Result<Tensor> {
        self.copy_as(self.sizes()?)
    }

    /// The same, repeated to these sizes.
    pub(super) fn copy_as(&self, sizes: &[i64]) -> Result<Tensor> {
        let facts = self.facts()?;
        let copy = Tensor::empty(self.torch, facts.place, sizes, facts.number)?;
        // SAFETY: two tensors. The copy is ordered with the current stream.
        done(unsafe { (self.torch.shim.aoti_torch_copy_)(copy.handle, self.handle, 0) }, "copy a tensor")?;
        Ok(copy)
    }

    /// A tensor of one element, 1, of the same kind and on the same device.
    pub(super) fn one(&self, axes: usize) -> Result<Tensor> {
        let (torch, mut list, mut held) = (self.torch, std::ptr::null_mut(), std::ptr::null_mut());
        let shim = &torch.shim;
        // SAFETY: places for what is made, here and below.
        unsafe {
            done((shim.torch_new_list_reserve_size)(axes, &raw mut list), "make a list")?;
            for _ in 0..axes {
                done((shim.torch_list_push_back)(list, 1), "fill a list")?;
            }
            done((shim.aoti_torch_new_tensor_handle)(self.handle, &raw mut held), "hold a tensor")?;
        }
        // `new_ones(Tensor self, SymInt[] size, *, ScalarType? dtype, Layout? layout, Device? device, bool? pin_memory)`
        let mut stack = [held.expose_provenance() as Word, list.expose_provenance() as Word, 0, 0, 0, 0];
        let (name, overload) = (c"aten::new_ones".as_ptr(), c"".as_ptr());
        // SAFETY: the stack has a word for each argument, which the call takes over.
        let status = unsafe { (shim.torch_call_dispatcher)(name, overload, stack.as_mut_ptr(), Torch::BUILT_FOR) };
        done(status, "fill a tensor")?;
        Ok(Tensor { torch, handle: address(stack[0]) })
    }

    /// The sizes of its axes.
    pub(super) fn sizes(&self) -> Result<&[i64]> {
        // SAFETY: the result is used no longer than this one lives.
        Ok(unsafe { self.facts()?.axes() }.0)
    }

    /// What PyTorch says of it.
    pub(super) fn facts(&self) -> Result<TensorFacts> {
        let (shim, of) = (&self.torch.shim, self.handle);
        let (mut data, mut rank, mut number) = (std::ptr::null_mut(), 0_i64, 0_i32);
        let (mut sizes, mut strides) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut place = (0_i32, 0_i32);
        // SAFETY: places for what is asked.
        let status = unsafe {
            (shim.aoti_torch_get_data_ptr)(of, &raw mut data)
                | (shim.aoti_torch_get_dim)(of, &raw mut rank)
                | (shim.aoti_torch_get_sizes)(of, &raw mut sizes)
                | (shim.aoti_torch_get_strides)(of, &raw mut strides)
                | (shim.aoti_torch_get_dtype)(of, &raw mut number)
                | (shim.aoti_torch_get_device_type)(of, &raw mut place.0)
                | (shim.aoti_torch_get_device_index)(of, &raw mut place.1)
        };
        done(status, "say where a tensor is")?;
        let kind = match place.0 {
            kind if kind == self.torch.cpu => 1,
            kind if kind == self.torch.gpu => DLDevice::CUDA,
            // No kind of DLPack's: it is refused by this name.
            kind => 1000 + kind,
        };
        let tensor = DLTensor {
            data,
            device: DLDevice { device_type: kind, device_id: place.1.max(0) },
            ndim: i32::try_from(rank).unwrap_or(i32::MAX),
            dtype: self.torch.dtype(number),
            shape: sizes,
            strides,
            byte_offset: 0,
        };
        Ok(TensorFacts { tensor, place, number })
    }

    /// Gives the reference away.
    fn into_word(self) -> Word {
        let word = self.handle.expose_provenance() as Word;
        std::mem::forget(self);
        word
    }
}

/// What PyTorch says of a tensor. Sizes and strides are those of the tensor, as long as somebody holds it.
#[derive(Clone, Copy)]
pub(super) struct TensorFacts {
    pub(super) tensor: DLTensor,
    /// ValueKind and number of its device.
    pub(super) place: (i32, i32),
    /// PyTorch's number of its element type.
    pub(super) number: i32,
}

impl TensorFacts {
    /// Its sizes and its strides.
    ///
    /// # Safety
    /// Somebody holds the tensor as long as the result is used.
    pub(super) unsafe fn axes<'a>(&self) -> (&'a [i64], &'a [i64]) {
        let DLTensor { ndim, shape, strides, .. } = self.tensor;
        match usize::try_from(ndim) {
            // SAFETY: PyTorch has one number for each axis, and the caller's promise.
            Ok(rank) if rank > 0 => unsafe {
                (std::slice::from_raw_parts(shape, rank), std::slice::from_raw_parts(strides, rank))
            },
            _ => (&[], &[]),
        }
    }
}

/// The strides of a tensor without gaps.
pub(super) fn contiguous(sizes: &[i64]) -> Axes {
    let mut strides: Axes = SmallVec::from_elem(1, sizes.len());
    for axis in (1..sizes.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(sizes[axis].max(1));
    }
    strides
}

/// One argument.
pub(super) enum Value {
    Tensor(Tensor),
    Maybe(Option<Tensor>),
    Tensors(Vec<Tensor>),
    Real(f64),
    Whole(i64),
    Reals(Vec<f64>),
    Text(String),
}

/// The kinds of arguments, by their names in a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Tensor,
    Maybe,
    Tensors,
    Real,
    Whole,
    Truth,
    Reals,
    Text,
}

impl ValueKind {
    /// The kind of a name.
    pub(super) fn named(name: &str) -> Option<ValueKind> {
        Some(match name {
            "Tensor" => ValueKind::Tensor,
            "Tensor?" => ValueKind::Maybe,
            "Tensor[]" => ValueKind::Tensors,
            "float" => ValueKind::Real,
            "int" => ValueKind::Whole,
            "bool" => ValueKind::Truth,
            "float[]" => ValueKind::Reals,
            "str" => ValueKind::Text,
            _ => return None,
        })
    }
}

/// The address in a word.
fn address(word: Word) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(word as usize)
}

impl Value {
    /// Takes an argument over.
    ///
    /// # Safety
    /// It is a word of PyTorch's for this kind, which nobody else takes.
    pub(super) unsafe fn take(torch: &'static Torch, kind: ValueKind, word: Word) -> Result<Value> {
        let shim = &torch.shim;
        Ok(match kind {
            ValueKind::Tensor => Value::Tensor(Tensor { torch, handle: address(word) }),
            ValueKind::Maybe if word == 0 => Value::Maybe(None),
            ValueKind::Maybe => {
                let inside = address(word).cast::<Word>();
                // SAFETY: what is there stands in a word that PyTorch made by `new`, for the kernel to delete.
                let handle = unsafe {
                    let handle = address(inside.read());
                    (torch.cpp._ZdlPv)(inside.cast());
                    handle
                };
                Value::Maybe(Some(Tensor { torch, handle }))
            }
            ValueKind::Real => Value::Real(f64::from_bits(word)),
            ValueKind::Whole => Value::Whole(word.cast_signed()),
            // The first byte is the truth.
            ValueKind::Truth => Value::Whole(i64::from(word.to_le_bytes()[0] != 0)),
            // SAFETY: as above.
            ValueKind::Tensors => Value::Tensors(
                unsafe { list(torch, word) }?.into_iter().map(|word| Tensor { torch, handle: address(word) }).collect(),
            ),
            // SAFETY: as above.
            ValueKind::Reals => Value::Reals(unsafe { list(torch, word) }?.into_iter().map(f64::from_bits).collect()),
            ValueKind::Text => {
                let (mut length, mut at, handle) = (0, std::ptr::null(), address(word));
                // SAFETY: as above; the bytes live until the string is deleted.
                unsafe {
                    done((shim.torch_string_length)(handle, &raw mut length), "give a string")?;
                    done((shim.torch_string_c_str)(handle, &raw mut at), "give a string")?;
                    let text = String::from_utf8_lossy(std::slice::from_raw_parts(at.cast(), length)).into_owned();
                    (shim.torch_delete_string)(handle);
                    Value::Text(text)
                }
            }
        })
    }
}

/// The words of a list, which is deleted.
///
/// # Safety
/// It is a list of PyTorch's that nobody else takes.
unsafe fn list(torch: &Torch, word: Word) -> Result<SmallVec<[Word; 16]>> {
    let (shim, handle) = (&torch.shim, address(word));
    let mut length = 0;
    // SAFETY: the caller's promise, here and below.
    done(unsafe { (shim.torch_list_size)(handle, &raw mut length) }, "give a list")?;
    let mut words = SmallVec::with_capacity(length);
    for i in 0..length {
        let mut word = 0;
        // SAFETY: as above.
        done(unsafe { (shim.torch_list_get_item)(handle, i, &raw mut word) }, "give a list")?;
        words.push(word);
    }
    // SAFETY: as above.
    unsafe { (shim.torch_delete_list)(handle) };
    Ok(words)
}

/// What a kernel gives back in one place.
pub(super) enum GivenValue {
    Tensor(Tensor),
    Tensors(Vec<Tensor>),
}

impl GivenValue {
    /// It as PyTorch takes it over.
    pub(super) fn into_word(self, torch: &Torch) -> Result<Word> {
        let tensors = match self {
            GivenValue::Tensor(tensor) => return Ok(tensor.into_word()),
            GivenValue::Tensors(tensors) => tensors,
        };
        let mut list = std::ptr::null_mut();
        // SAFETY: a place for a list, here and below.
        done(unsafe { (torch.shim.torch_new_list_reserve_size)(tensors.len(), &raw mut list) }, "make a list")?;
        for tensor in tensors {
            // SAFETY: as above.
            done(unsafe { (torch.shim.torch_list_push_back)(list, tensor.into_word()) }, "fill a list")?;
        }
        Ok(list.expose_provenance() as Word)
    }
}

/// An element type by its name in PyTorch.
pub(super) fn dtype_named(name: &str) -> Result<DLDataType> {
    let (code, bits) = match name {
        "float32" => (2, 32),
        "float16" => (2, 16),
        "bfloat16" => (4, 16),
        _ => {
            let text = format_args!("`dtype` is one of float32, float16, bfloat16, and {name} is given");
            return Err(Failure::coded(606, text));
        }
    };
    Ok(DLDataType { code, bits, lanes: 1 })
}

/// Python's way to write a shape.
pub(super) fn tuple(sizes: &[i64]) -> String {
    let listed: Vec<String> = sizes.iter().map(i64::to_string).collect();
    if let [one] = &listed[..] { format!("({one},)") } else { format!("({})", listed.join(", ")) }
}
