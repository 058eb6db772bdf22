//! From the elements of a storage and a layout of candle to a tensor of Atlas at the same address.

use crate::error::{of_atlas, refuse};
use atlas::kernel::DType;
use candle_core::{Layout, Result};

/// Where the elements of a storage are.
#[derive(Clone, Copy)]
pub(crate) struct Elements {
    pub(crate) dtype: DType,
    pub(crate) address: u64,
    pub(crate) count: usize,
}

/// Calls `$body` with the elements of a storage if Atlas has their type, which is `$dtype` there.
macro_rules! each_type {
    ($of:ident, $storage:expr, |$dtype:ident, $elements:ident| $body:expr) => {
        each_type!(@arms $of, $storage, $dtype, $elements, $body,
            (F32, F32), (F16, F16), (BF16, Bf16), (F64, F64), (I32, I32), (I64, I64),
            (F8E4M3, F8E4M3))
    };
    (@arms $of:ident, $storage:expr, $dtype:ident, $elements:ident, $body:expr, $(($candle:ident, $atlas:ident)),+) => {
        match $storage {
            $($of::$candle($elements) => { let $dtype = DType::$atlas; Some($body) })+
            _ => None,
        }
    };
}
pub(crate) use each_type;

/// An element type that one of the two libraries does not have.
pub(crate) fn unknown(what: &str, found: impl std::fmt::Display) -> candle_core::Error {
    refuse(
        605,
        format_args!(
            "{what} holds {found}, which Atlas does not take; convert to f32, f16, bf16, f64, f8e4m3, i32 or i64 by `to_dtype`"
        ),
    )
}

/// A tensor of Atlas at the elements of a layout.
///
/// # Safety
/// As `Tensor::from_raw_parts`, of all elements.
pub(crate) unsafe fn tensor_at(
    name: &str,
    device: &atlas::Device,
    elements: Option<Elements>,
    kind: &str,
    layout: &Layout,
) -> Result<atlas::Tensor> {
    let Some(Elements { dtype, address, count }) = elements else {
        return Err(unknown(&format!("a tensor of `{name}`"), kind));
    };
    // A layout is made by safe code, so it may reach anywhere.
    let (dims, strides) = (layout.dims(), layout.stride());
    let reach = dims.iter().zip(strides).try_fold(layout.start_offset(), |at, (&size, &stride)| {
        at.checked_add(size.saturating_sub(1).checked_mul(stride)?)
    });
    let is_empty = dims.contains(&0);
    if !is_empty && reach.is_none_or(|last| last >= count) {
        return Err(refuse(
            631,
            format_args!("a tensor of `{name}` has {layout:?}, which reaches outside its storage of {count} elements"),
        ));
    }
    let offset = if is_empty { 0 } else { layout.start_offset() as u64 };
    let strides: Vec<i64> = strides.iter().map(|&stride| i64::try_from(stride).unwrap_or(i64::MAX)).collect();
    let address = address + offset * u64::from(dtype.bytes());
    // SAFETY: the caller's promise; the elements lie inside, as was checked.
    unsafe { atlas::Tensor::from_raw_parts(device, dtype, address, dims, strides) }.map_err(of_atlas)
}
