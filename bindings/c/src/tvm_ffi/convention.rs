//! The calling convention: values, the library of tvm-ffi, and exceptions.

use crate::calls::{Callee, Given};
use crate::device::stream_of;
use crate::dlpack::{DLDevice, DLTensor};
use crate::status::{Failure, Result, guarded};
use atlas::Device;
use atlas::device::Stream;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// `TVMFFIAny`: a value, and what it is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TvmFfiAny {
    type_index: i32,
    small_len: u32,
    value: TvmFfiValue,
}

#[repr(C)]
#[derive(Clone, Copy)]
union TvmFfiValue {
    whole: i64,
    real: f64,
    tensor: *const DLTensor,
    object: *const u8,
}

/// `TVMFFITypeIndex`, as far as kernels take such values.
mod kind {
    pub(super) const NONE: i32 = 0;
    pub(super) const INT: i32 = 1;
    pub(super) const BOOL: i32 = 2;
    pub(super) const FLOAT: i32 = 3;
    pub(super) const DL_TENSOR: i32 = 7;
    pub(super) const TENSOR: i32 = 70;
}

/// The bytes of `TVMFFIObject`, after which the `DLTensor` of a tensor object stands.
const OBJECT_BYTES: usize = 24;

/// The functions of tvm-ffi's library.
struct Runtime {
    raise: unsafe extern "C" fn(*const c_char, *const c_char),
    stream: unsafe extern "C" fn(i32, i32) -> *mut c_void,
}

/// tvm-ffi's library, if this process has loaded it.
fn runtime() -> Option<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            let library = loaded_library()?;
            // SAFETY: the signatures are those of tvm-ffi's C header.
            let runtime = unsafe {
                Runtime {
                    raise: *library.get(b"TVMFFIErrorSetRaisedFromCStr").ok()?,
                    stream: *library.get(b"TVMFFIEnvGetStream").ok()?,
                }
            };
            // It stays loaded: it is in use.
            std::mem::forget(library);
            Some(runtime)
        })
        .as_ref()
}

#[cfg(unix)]
fn loaded_library() -> Option<libloading::Library> {
    use libloading::os::unix::{Library, RTLD_LAZY};
    /// `RTLD_NOLOAD`: Python loads extension modules out of sight of each other, so a plain look-up does not find it.
    const RTLD_NOLOAD: c_int = if cfg!(target_os = "macos") { 0x10 } else { 4 };
    let names = ["libtvm_ffi.so", "libtvm_ffi.dylib"];
    // SAFETY: the library is loaded already, or this fails.
    names.iter().find_map(|name| unsafe { Library::open(Some(*name), RTLD_LAZY | RTLD_NOLOAD) }.ok()).map(Into::into)
}

#[cfg(windows)]
fn loaded_library() -> Option<libloading::Library> {
    libloading::os::windows::Library::open_already_loaded("tvm_ffi.dll").ok().map(Into::into)
}

/// Calls `f` for tvm-ffi. A failure becomes an exception.
///
/// # Safety
/// `result` is null or a place for a value.
pub(crate) unsafe fn answer(result: *mut TvmFfiAny, f: impl FnOnce() -> Result<()>) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { give(result, || f().map(|()| (kind::NONE, 0))) }
}

/// The same of what gives a number.
///
/// # Safety
/// As [`answer`].
pub(crate) unsafe fn answer_whole(result: *mut TvmFfiAny, f: impl FnOnce() -> Result<i64>) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { give(result, || f().map(|whole| (kind::INT, whole))) }
}

/// # Safety
/// As [`answer`].
unsafe fn give(result: *mut TvmFfiAny, f: impl FnOnce() -> Result<(i32, i64)>) -> c_int {
    let failure = match guarded(f) {
        Ok((type_index, whole)) => {
            if !result.is_null() {
                // SAFETY: the caller's promise.
                unsafe { result.write(TvmFfiAny { type_index, small_len: 0, value: TvmFfiValue { whole } }) };
            }
            return 0;
        }
        Err(failure) => failure,
    };
    if let Some(runtime) = runtime() {
        let text = CString::new(failure.text().replace('\0', " ")).unwrap_or_default();
        // SAFETY: two strings that end with a zero byte; tvm-ffi copies them.
        unsafe { (runtime.raise)(failure.python_exception().as_ptr(), text.as_ptr()) };
    }
    -1
}

/// The values of a call.
///
/// # Safety
/// `args` has `count` values of tvm-ffi.
pub(crate) unsafe fn values<'a>(args: *const TvmFfiAny, count: i32) -> &'a [TvmFfiAny] {
    let count = usize::try_from(count).unwrap_or(0);
    match args.is_null() || count == 0 {
        true => &[],
        // SAFETY: the caller's promise.
        false => unsafe { std::slice::from_raw_parts(args, count) },
    }
}

impl TvmFfiAny {
    /// A whole number.
    pub(crate) fn whole(whole: i64) -> TvmFfiAny {
        TvmFfiAny { type_index: kind::INT, small_len: 0, value: TvmFfiValue { whole } }
    }

    /// A number.
    pub(crate) fn real(real: f64) -> TvmFfiAny {
        TvmFfiAny { type_index: kind::FLOAT, small_len: 0, value: TvmFfiValue { real } }
    }

    /// A tensor, which has to live as long as this is used.
    pub(crate) fn tensor(tensor: &DLTensor) -> TvmFfiAny {
        TvmFfiAny { type_index: kind::DL_TENSOR, small_len: 0, value: TvmFfiValue { tensor } }
    }

    /// It as the argument `number` of what is called.
    ///
    /// # Safety
    /// It is a value of tvm-ffi that lives as long as the result.
    pub(crate) unsafe fn given<'a>(&self, of: &dyn Callee, number: usize) -> Result<Given<'a>> {
        // SAFETY: the kind says which value it is.
        unsafe {
            match self.type_index {
                kind::DL_TENSOR if !self.value.tensor.is_null() => Ok(Given::Tensor(&*self.value.tensor)),
                kind::TENSOR => Ok(Given::Tensor(&*self.value.object.add(OBJECT_BYTES).cast::<DLTensor>())),
                kind::INT | kind::BOOL => Ok(Given::Whole(self.value.whole)),
                kind::FLOAT => Ok(Given::Real(self.value.real)),
                _ => Err(Failure::wrong_kind(format_args!(
                    "`{}` of `{}` is neither a tensor nor a number; its signature is {}",
                    of.param(number).map_or("an argument too many", |param| param.name),
                    of.name(),
                    of.signature()
                ))),
            }
        }
    }
}

/// Gives the current stream of a GPU, by its number, in the library that a call comes from. Null is the default stream.
pub(crate) type CurrentStream = fn(i32) -> *mut c_void;

/// tvm-ffi's current stream of a GPU.
pub(crate) fn current_stream(gpu: i32) -> *mut c_void {
    match runtime() {
        // SAFETY: a device of DLPack. Its kind is that of streams, for managed memory too.
        Some(runtime) => unsafe { (runtime.stream)(DLDevice::CUDA, gpu) },
        None => std::ptr::null_mut(),
    }
}

/// Where a call runs: the device of its first tensor, and the current stream there.
///
/// # Safety
/// They are values of tvm-ffi. The stream lives during the call, and is one of the GPU that it is asked of.
pub(crate) unsafe fn place(of: &dyn Callee, args: &[TvmFfiAny], streams: CurrentStream) -> Result<(Device, Stream)> {
    // SAFETY: the caller's promise.
    let first = args.iter().enumerate().map(|(i, arg)| unsafe { arg.given(of, i) }).find_map(|given| match given {
        Ok(Given::Tensor(tensor)) => Some(tensor.device),
        _ => None,
    });
    let Some(at) = first else {
        return Err(Failure::wrong_kind(format_args!("no argument is a tensor; the signature is {}", of.signature())));
    };
    let device = at.open()?;
    let handle = if device.is_cpu() { std::ptr::null_mut() } else { streams(at.device_id) };
    // SAFETY: the caller's promise.
    let stream = unsafe { stream_of(&device, handle) };
    Ok((device, stream))
}
