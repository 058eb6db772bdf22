//! PyTorch's stable C interface, looked up in the libraries that a process has loaded.
//!
//! The declarations are those of `torch/csrc/inductor/aoti_torch/c/shim.h` and `torch/csrc/stable/c/shim.h`. Nothing is linked: a program
//! without PyTorch has none of it.

use crate::dlpack::DLDataType;
use crate::status::{Failure, Result};
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// A tensor of PyTorch: `AtenTensorHandle`.
pub(super) type Handle = *mut c_void;
/// `StableIValue`: a number, or the address of what does not fit.
pub(super) type Word = u64;
/// A kernel that takes its arguments from an array of words, and leaves what it gives in it. It may throw.
pub(super) type Boxed = unsafe extern "C-unwind" fn(*mut Word, u64, u64);

/// The versions (`TORCH_ABI_VERSION`: a byte each for major, minor and patch) whose headers were read and whose exceptions were tried, from
/// this one on ..
const OLDEST: (u64, u64) = (2, 11);
/// .. to this one. Version 2.15 runs the kernels too, but makes every exception of C++ a `RuntimeError`.
const NEWEST: (u64, u64) = (2, 11);
/// The version that kernels are written for. Later ones of PyTorch convert for it.
const WRITTEN_FOR: (u64, u64) = (2, 11);

macro_rules! symbols {
    ($(#[$doc:meta])* $name:ident in $($library:literal)|+ { $($symbol:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "symbols of C++ have such names")]
        pub(super) struct $name { $(pub(super) $symbol: $ty,)* }

        impl $name {
            fn open() -> std::result::Result<$name, String> {
                let libraries = [$($library),+];
                let library = libraries.iter().find_map(|name| loaded(name));
                let library = library.ok_or_else(|| format!("{} is not loaded", libraries.join(" or ")))?;
                let found = $name {
                    $($symbol: {
                        let name = concat!(stringify!($symbol), "\0").as_bytes();
                        // SAFETY: the type is that of the header.
                        let found = unsafe { library.get::<$ty>(name) };
                        *found.map_err(|_| format!("{} has no {}", libraries.join(" or "), stringify!($symbol)))?
                    },)*
                };
                // It stays loaded: it is in use.
                std::mem::forget(library);
                Ok(found)
            }
        }
    };
}

type Get<T> = unsafe extern "C" fn(Handle, *mut T) -> i32;
type Constant = unsafe extern "C" fn() -> i32;

symbols! {
    /// What every device needs.
    Shim in "libtorch_cpu.so" {
        aoti_torch_abi_version: unsafe extern "C" fn() -> u64,
        aoti_torch_device_type_cpu: Constant,
        aoti_torch_device_type_cuda: Constant,
        aoti_torch_dtype_float64: Constant,
        aoti_torch_dtype_float32: Constant,
        aoti_torch_dtype_float16: Constant,
        aoti_torch_dtype_bfloat16: Constant,
        aoti_torch_dtype_int64: Constant,
        aoti_torch_dtype_int32: Constant,
        aoti_torch_dtype_int16: Constant,
        aoti_torch_dtype_int8: Constant,
        aoti_torch_dtype_uint8: Constant,
        aoti_torch_dtype_bool: Constant,
        aoti_torch_dtype_complex64: Constant,
        aoti_torch_get_data_ptr: Get<*mut c_void>,
        aoti_torch_get_dim: Get<i64>,
        aoti_torch_get_sizes: Get<*mut i64>,
        aoti_torch_get_strides: Get<*mut i64>,
        aoti_torch_get_dtype: Get<i32>,
        aoti_torch_get_device_type: Get<i32>,
        aoti_torch_get_device_index: Get<i32>,
        aoti_torch_delete_tensor_object: unsafe extern "C" fn(Handle) -> i32,
        aoti_torch_empty_strided:
            unsafe extern "C" fn(i64, *const i64, *const i64, i32, i32, i32, *mut Handle) -> i32,
        aoti_torch_new_tensor_handle: unsafe extern "C" fn(Handle, *mut Handle) -> i32,
        torch_call_dispatcher: unsafe extern "C" fn(*const c_char, *const c_char, *mut Word, u64) -> i32,
        aoti_torch_copy_: unsafe extern "C" fn(Handle, Handle, i32) -> i32,
        aoti_torch_library_init_impl:
            unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, u32, *mut *mut c_void) -> i32,
        torch_library_impl: unsafe extern "C" fn(*mut c_void, *const c_char, Boxed, u64) -> i32,
        torch_new_list_reserve_size: unsafe extern "C" fn(usize, *mut *mut c_void) -> i32,
        torch_list_size: unsafe extern "C" fn(*mut c_void, *mut usize) -> i32,
        torch_list_get_item: unsafe extern "C" fn(*mut c_void, usize, *mut Word) -> i32,
        torch_list_push_back: unsafe extern "C" fn(*mut c_void, Word) -> i32,
        torch_delete_list: unsafe extern "C" fn(*mut c_void) -> i32,
        torch_string_length: unsafe extern "C" fn(*mut c_void, *mut usize) -> i32,
        torch_string_c_str: unsafe extern "C" fn(*mut c_void, *mut *const c_char) -> i32,
        torch_delete_string: unsafe extern "C" fn(*mut c_void) -> i32,
    }
}

symbols! {
    /// What GPUs need besides.
    CudaShim in "libtorch_cuda.so" {
        aoti_torch_get_current_cuda_stream: unsafe extern "C" fn(i32, *mut *mut c_void) -> i32,
    }
}

symbols! {
    /// What throws for a kernel: libstdc++ exports these for its own headers, since its first version of this ABI, and frees what `new` made.
    Cpp in "libstdc++.so.6" {
        _ZSt24__throw_invalid_argumentPKc: unsafe extern "C-unwind" fn(*const c_char) -> !,
        _ZSt21__throw_runtime_errorPKc: unsafe extern "C-unwind" fn(*const c_char) -> !,
        _ZdlPv: unsafe extern "C" fn(*mut c_void),
    }
}

/// A library of that name, if this process has loaded it.
#[cfg(target_os = "linux")]
fn loaded(name: &str) -> Option<libloading::Library> {
    use libloading::os::unix::{Library, RTLD_LAZY};
    /// `RTLD_NOLOAD`: Python loads extension modules out of sight of each other, so a plain look-up does not find it.
    const RTLD_NOLOAD: c_int = 4;
    // SAFETY: the library is loaded already, or this fails.
    unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_NOLOAD) }.ok().map(Into::into)
}

/// Elsewhere, libraries of C++ export other symbols.
#[cfg(not(target_os = "linux"))]
fn loaded(_name: &str) -> Option<libloading::Library> {
    None
}

/// Everything that a kernel needs, and the numbers of PyTorch's constants.
pub(super) struct Torch {
    pub(super) shim: Shim,
    pub(super) cpp: Cpp,
    cuda: std::result::Result<CudaShim, String>,
    dtypes: [(i32, DLDataType); 11],
    pub(super) cpu: i32,
    pub(super) gpu: i32,
}

/// PyTorch, if it is loaded and known.
pub(super) fn torch() -> Result<&'static Torch> {
    static TORCH: OnceLock<std::result::Result<Torch, String>> = OnceLock::new();
    TORCH
        .get_or_init(open)
        .as_ref()
        .map_err(|why| Failure::misuse(format_args!("PyTorch's C interface is not used: {why}")))
}

fn open() -> std::result::Result<Torch, String> {
    let shim = Shim::open()?;
    // SAFETY: as the header says.
    let version = unsafe { (shim.aoti_torch_abi_version)() };
    check_version(version)?;
    let of = |code, bits| DLDataType { code, bits, lanes: 1 };
    let s = &shim;
    let all: [(Constant, DLDataType); 11] = [
        (s.aoti_torch_dtype_float64, of(2, 64)),
        (s.aoti_torch_dtype_float32, of(2, 32)),
        (s.aoti_torch_dtype_float16, of(2, 16)),
        (s.aoti_torch_dtype_bfloat16, of(4, 16)),
        (s.aoti_torch_dtype_int64, of(0, 64)),
        (s.aoti_torch_dtype_int32, of(0, 32)),
        (s.aoti_torch_dtype_int16, of(0, 16)),
        (s.aoti_torch_dtype_int8, of(0, 8)),
        (s.aoti_torch_dtype_uint8, of(1, 8)),
        (s.aoti_torch_dtype_bool, of(6, 8)),
        (s.aoti_torch_dtype_complex64, of(5, 64)),
    ];
    // SAFETY: as the header says, here and below.
    let dtypes = all.map(|(number, dtype)| (unsafe { number() }, dtype));
    // SAFETY: as above.
    let (cpu, gpu) = unsafe { ((shim.aoti_torch_device_type_cpu)(), (shim.aoti_torch_device_type_cuda)()) };
    Ok(Torch { shim, cpp: Cpp::open()?, cuda: CudaShim::open(), dtypes, cpu, gpu })
}

/// Refuses a version whose header nobody has read.
fn check_version(version: u64) -> std::result::Result<(), String> {
    let found = (version >> 56, version >> 48 & 0xff);
    if (OLDEST..=NEWEST).contains(&found) && version & 0xffff_ffff == 0 {
        return Ok(());
    }
    let ((a, b), (c, d)) = (OLDEST, NEWEST);
    let known = match OLDEST == NEWEST {
        true => format!("version {a}.{b} is known"),
        false => format!("versions {a}.{b} to {c}.{d} are known"),
    };
    Err(format!("it has version {}.{} ({version:#018x}); {known}", found.0, found.1))
}

impl Torch {
    /// What an implementation is registered with.
    pub(super) const BUILT_FOR: u64 = WRITTEN_FOR.0 << 56 | WRITTEN_FOR.1 << 48;

    /// The element type of a number of PyTorch's; a type that Atlas has not for one that DLPack has no name for here.
    pub(super) fn dtype(&self, number: i32) -> DLDataType {
        let unknown = DLDataType { code: u8::MAX, bits: 0, lanes: 1 };
        self.dtypes.iter().find(|(of, _)| *of == number).map_or(unknown, |(_, dtype)| *dtype)
    }

    /// PyTorch's number of an element type.
    pub(super) fn number(&self, dtype: DLDataType) -> Option<i32> {
        self.dtypes.iter().find(|(_, of)| *of == dtype).map(|(number, _)| *number)
    }

    /// Refuses a PyTorch without GPUs.
    pub(super) fn check_gpu(&self) -> Result<()> {
        self.cuda.as_ref().map(|_| ()).map_err(|why| Failure::misuse(format_args!("PyTorch has no CUDA: {why}")))
    }
}

/// PyTorch's current stream of a GPU.
pub(super) fn current_stream(gpu: i32) -> *mut c_void {
    let mut stream = std::ptr::null_mut();
    if let Some(cuda) = torch().ok().and_then(|torch| torch.cuda.as_ref().ok()) {
        // SAFETY: a place for a stream.
        unsafe { (cuda.aoti_torch_get_current_cuda_stream)(gpu, &raw mut stream) };
    }
    stream
}

/// Refuses what PyTorch's interface reports. It has written why to its log.
pub(super) fn done(status: i32, what: &str) -> Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(Failure::other(format_args!("PyTorch could not {what}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::{check_version, done, torch};

    #[test]
    fn what_pytorch_reports_is_an_error_of_nobodys_arguments() {
        assert!(done(0, "allocate a tensor").is_ok());
        let failure = done(1, "allocate a tensor").err();
        let failure = failure.unwrap_or_else(|| unreachable!());
        assert_eq!(failure.text(), "error[ATL698]: PyTorch could not allocate a tensor");
        assert!(!failure.is_of_arguments());
    }

    #[test]
    fn a_version_that_nobody_has_read_is_refused() {
        let version = |major: u64, minor: u64, rest: u64| check_version(major << 56 | minor << 48 | rest);
        assert_eq!(version(2, 11, 0), Ok(()));
        assert_eq!(version(2, 11, 3 << 40), Ok(()));
        for (major, minor, rest) in [(2, 10, 0), (2, 12, 0), (3, 11, 0), (0, 0, 0), (2, 11, 1)] {
            assert!(version(major, minor, rest).is_err_and(|why| why.contains("version 2.11 is known")));
        }
    }

    #[test]
    fn a_program_without_pytorch_says_so() {
        let why = torch().err().map(|failure| failure.text().to_owned()).unwrap_or_default();
        assert_eq!(why, "error[ATL696]: PyTorch's C interface is not used: libtorch_cpu.so is not loaded");
    }
}
