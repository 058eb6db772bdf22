//! The result of a call, and the last error of a thread.

use atlas::RuntimeError;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The version of this interface. A library serves programs that were compiled for the same version.
pub const ATLAS_ABI_VERSION: u32 = 1;

/// The result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtlasStatus {
    /// It did what it says.
    Ok = 0,
    /// It did nothing. `atlas_last_error` says why, and what to do about it.
    Error = 1,
    /// It stopped at a fault of the library itself. `atlas_last_error` has the details for a report.
    Panic = 2,
}

/// A mistake in a call.
const MISUSE: u16 = 696;
/// An argument of tvm-ffi of the wrong kind.
const WRONG_KIND: u16 = 697;
/// A failure of the library that calls.
const OUTSIDE: u16 = 698;
/// A fault of the library.
const PANIC: u16 = 699;

/// Why a call failed.
pub(crate) struct Failure {
    code: u16,
    text: String,
    status: AtlasStatus,
    kind: Kind,
}

/// Who can mend it.
#[derive(Clone, Copy)]
enum Kind {
    /// The caller, by other arguments.
    Arguments,
    /// Anybody else.
    Other,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A call that breaks the rules of this interface.
    pub(crate) fn misuse(text: impl fmt::Display) -> Failure {
        Failure {
            code: MISUSE,
            text: format!("error[ATL{MISUSE}]: {text}"),
            status: AtlasStatus::Error,
            kind: Kind::Arguments,
        }
    }

    /// A value of tvm-ffi that no parameter takes.
    pub(crate) fn wrong_kind(text: impl fmt::Display) -> Failure {
        Failure {
            code: WRONG_KIND,
            text: format!("error[ATL{WRONG_KIND}]: {text}"),
            status: AtlasStatus::Error,
            kind: Kind::Arguments,
        }
    }

    /// A mistake in arguments that a kernel would report, too.
    pub(crate) fn coded(code: u16, text: impl fmt::Display) -> Failure {
        Failure { code, text: format!("error[ATL{code}]: {text}"), status: AtlasStatus::Error, kind: Kind::Arguments }
    }

    /// What no other arguments would mend.
    pub(crate) fn other(text: impl fmt::Display) -> Failure {
        let text = format!("error[ATL{OUTSIDE}]: {text}");
        Failure { code: OUTSIDE, text, status: AtlasStatus::Error, kind: Kind::Other }
    }

    /// Whether other arguments would mend it.
    pub(crate) fn is_of_arguments(&self) -> bool {
        self.python_exception() != c"RuntimeError"
    }

    /// The same of an argument.
    pub(crate) fn of(self, argument: &dyn fmt::Display) -> Failure {
        Failure { text: format!("{} (argument `{argument}`)", self.text), ..self }
    }

    /// The message, with its code.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The exception of Python that tells such a mistake.
    pub(crate) fn python_exception(&self) -> &'static CStr {
        match (self.code, self.kind) {
            (WRONG_KIND, _) => c"TypeError",
            (MISUSE, _) | (_, Kind::Arguments) => c"ValueError",
            _ => c"RuntimeError",
        }
    }
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Failure {
        let kind = match error {
            RuntimeError::Launch(_) | RuntimeError::Tensor(_) => Kind::Arguments,
            _ => Kind::Other,
        };
        Failure { code: error.code().0, text: error.to_string(), status: AtlasStatus::Error, kind }
    }
}

/// What the thread's last failed call leaves.
struct LastError {
    code: u16,
    text: CString,
}

thread_local! {
    static LAST: RefCell<LastError> = RefCell::new(LastError { code: 0, text: CString::default() });
}

/// Calls `f`, and keeps what it reports. No panic passes.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        let text = format!("error[ATL{PANIC}]: Atlas has a fault, please report it: {text}");
        Err(Failure { code: PANIC, text, status: AtlasStatus::Panic, kind: Kind::Other })
    })
}

/// Calls `f`; a failure becomes the last error of the thread.
pub(crate) fn status(f: impl FnOnce() -> Result<()>) -> AtlasStatus {
    match guarded(f) {
        Ok(()) => AtlasStatus::Ok,
        Err(failure) => {
            let Failure { code, text, status, .. } = failure;
            // No message has a zero byte, except one that quotes a name which a caller passed.
            let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
            // While a thread ends, its message may be gone before its last call.
            let _ = LAST.try_with(|last| *last.borrow_mut() = LastError { code, text });
            status
        }
    }
}

/// The text at a pointer.
///
/// # Safety
/// It is null, or the address of a string that ends with a zero byte and lives as long as the result.
pub(crate) unsafe fn text<'a>(what: &str, at: *const c_char) -> Result<&'a str> {
    if at.is_null() {
        return Err(Failure::misuse(format_args!("the {what} is null")));
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(at) }.to_str().map_err(|_| Failure::misuse(format_args!("the {what} is not UTF-8")))
}

/// The value of a handle.
///
/// # Safety
/// It is null, or points to a live value that nobody changes.
pub(crate) unsafe fn handle<'a, T>(what: &str, at: *const T) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { at.as_ref() }.ok_or_else(|| Failure::misuse(format_args!("the {what} is null")))
}

/// Puts a new handle where the caller wants it, and null if it cannot be made.
///
/// # Safety
/// `out` is null, or a place for a pointer.
pub(crate) unsafe fn give<T>(out: *mut *mut T, value: impl FnOnce() -> Result<T>) -> Result<()> {
    if out.is_null() {
        return Err(Failure::misuse("the place for the result is null"));
    }
    // SAFETY: the caller's promise. A panic leaves null, too.
    unsafe { out.write(std::ptr::null_mut()) };
    let made = Box::into_raw(Box::new(value()?));
    // SAFETY: as above.
    unsafe { out.write(made) };
    Ok(())
}

/// The version of this interface that the library has, to compare with `ATLAS_ABI_VERSION`.
// SAFETY: no other symbol of a program begins with `atlas_`.
#[unsafe(no_mangle)]
pub extern "C" fn atlas_abi_version() -> u32 {
    ATLAS_ABI_VERSION
}

/// The version of Atlas, such as `0.1.0`.
// SAFETY: no other symbol of a program begins with `atlas_`.
#[unsafe(no_mangle)]
pub extern "C" fn atlas_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}

/// The message of the thread's last failed call, with what to do about it; empty before the first one. Valid until the
/// next failure in this thread.
// SAFETY: no other symbol of a program begins with `atlas_`.
#[unsafe(no_mangle)]
pub extern "C" fn atlas_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The number of the kind of mistake of the thread's last failed call: 611 for `ATL611`. The book explains each. 0
/// before the first one.
// SAFETY: no other symbol of a program begins with `atlas_`.
#[unsafe(no_mangle)]
pub extern "C" fn atlas_last_error_code() -> u32 {
    LAST.try_with(|last| u32::from(last.borrow().code)).unwrap_or(0)
}
