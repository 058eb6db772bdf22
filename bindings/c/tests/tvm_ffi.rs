//! The kernels as functions of tvm-ffi, called as its runtime calls them.

use atlas_c::DLTensor;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};

/// `TVMFFIAny`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Any {
    kind: i32,
    len: u32,
    value: u64,
}

// SAFETY: the library exports it with this signature.
unsafe extern "C" {
    fn __tvm_ffi_softmax(library: *mut c_void, args: *const Any, count: i32, result: *mut Any) -> c_int;
    fn __tvm_ffi_omega_stream_open(library: *mut c_void, args: *const Any, count: i32, result: *mut Any) -> c_int;
    fn __tvm_ffi_omega_stream_bytes(library: *mut c_void, args: *const Any, count: i32, result: *mut Any) -> c_int;
    fn __tvm_ffi_omega_stream_close(library: *mut c_void, args: *const Any, count: i32, result: *mut Any) -> c_int;
}

const INT: i32 = 1;
const FLOAT: i32 = 3;
const DL_TENSOR: i32 = 7;
const TENSOR_OBJECT: i32 = 70;

fn tensor(data: &mut [f32], shape: &mut [i64; 2]) -> DLTensor {
    DLTensor {
        data: data.as_mut_ptr().cast(),
        device: atlas_c::DLDevice { device_type: 1, device_id: 0 },
        ndim: 2,
        dtype: atlas_c::DLDataType { code: 2, bits: 32, lanes: 1 },
        shape: shape.as_mut_ptr(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    }
}

fn any<T>(kind: i32, at: *const T) -> Any {
    Any { kind, len: 0, value: at.expose_provenance() as u64 }
}

/// An object of tvm-ffi: 24 bytes of header, and the tensor.
#[repr(C)]
struct Object {
    header: [u64; 3],
    tensor: DLTensor,
}

#[test]
fn a_function_of_tvm_ffi_is_a_launch() {
    let (mut x, mut y, mut shape) = ([0.0_f32, 1.0, 2.0, 3.0, 3.0, 3.0], [0.0_f32; 6], [2_i64, 3]);
    let input = tensor(&mut x, &mut shape);
    let output = Object { header: [0; 3], tensor: tensor(&mut y, &mut shape) };
    let args = [any(DL_TENSOR, &input), any(TENSOR_OBJECT, &output)];
    let mut result = Any { kind: -1, len: 7, value: 7 };
    // SAFETY: the values are as tvm-ffi makes them.
    let status = unsafe { __tvm_ffi_softmax(std::ptr::null_mut(), args.as_ptr(), 2, &mut result) };
    assert_eq!((status, result.kind, result.len), (0, 0, 0));
    let total: f32 = y[..3].iter().sum();
    assert!((total - 1.0).abs() < 1e-6 && (y[3] - 1.0 / 3.0).abs() < 1e-6, "{y:?}");
}

#[test]
fn a_mistake_is_a_status() {
    let (mut x, mut shape) = ([1.0_f32; 6], [2_i64, 3]);
    let input = tensor(&mut x, &mut shape);
    let mut result = Any { kind: 0, len: 0, value: 0 };
    let mut called = |args: &[Any]| {
        // SAFETY: the values are as tvm-ffi makes them.
        unsafe { __tvm_ffi_softmax(std::ptr::null_mut(), args.as_ptr(), args.len() as i32, &mut result) }
    };
    let text = any(8, c"text".as_ptr());
    assert_eq!(called(&[any(DL_TENSOR, &input), any(DL_TENSOR, &input)]), -1);
    assert_eq!(called(&[any(DL_TENSOR, &input)]), -1);
    assert_eq!(called(&[any(DL_TENSOR, &input), text]), -1);
    assert_eq!(called(&[text, text]), -1);
    assert_eq!(called(&[]), -1);
    assert_eq!(x, [1.0; 6]);
}

/// What `python.py` computes with. A stream is a number, and of no use once it is closed.
#[test]
fn a_stream_of_tokens_is_a_number() {
    let (mut data, mut shape) = ([0.0_f32; 6], [1_i64, 1, 2, 3]);
    let q = DLTensor { ndim: 4, shape: shape.as_mut_ptr(), ..tensor(&mut data, &mut [0, 0]) };
    let whole = |value: u64| Any { kind: INT, len: 0, value };
    let real = |value: f64| Any { kind: FLOAT, len: 0, value: value.to_bits() };
    // A linear memory by descent: chunks of 4 tokens, windows of 2, pieces of 8.
    let numbers = [0, 0, 4, 2, 8, 0, 1].map(whole);
    let rule = [&numbers[..], &[real(2.0), real(0.0), whole(0)], &[any(DL_TENSOR, &q); 2]].concat();
    let mut result = Any { kind: -1, len: 7, value: 7 };
    let mut called = |of: unsafe extern "C" fn(*mut c_void, *const Any, i32, *mut Any) -> c_int, args: &[Any]| {
        // SAFETY: the values are as tvm-ffi makes them.
        let status = unsafe { of(std::ptr::null_mut(), args.as_ptr(), args.len() as i32, &mut result) };
        (status, result)
    };
    let (status, number) = called(__tvm_ffi_omega_stream_open, &rule);
    assert_eq!((status, number.kind, number.len), (0, INT, 0));
    let (status, bytes) = called(__tvm_ffi_omega_stream_bytes, &[number]);
    assert!(status == 0 && bytes.kind == INT && bytes.value > 0);
    assert_eq!(called(__tvm_ffi_omega_stream_close, &[number]).0, 0);
    assert_eq!(called(__tvm_ffi_omega_stream_bytes, &[number]).0, -1);
    assert_eq!(called(__tvm_ffi_omega_stream_close, &[number, number]).0, -1);
    // A device comes from a tensor.
    assert_eq!(called(__tvm_ffi_omega_stream_open, &rule[..10]).0, -1);
}

/// Each kernel of the public interface, and no other, is a function.
#[test]
fn every_public_kernel_is_a_function() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut public = BTreeSet::new();
    for file in std::fs::read_dir(root.join("src/ops")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        // `pub use atlas_ops::softmax::softmax;` or `pub use atlas_ops::rotary::{rotary_halves, rotary_interleaved};`
        let items = text.split("\npub use ").skip(1).filter_map(|item| item.split(';').next()?.rsplit_once("::"));
        for (_, names) in items {
            public.extend(names.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned));
        }
    }
    let kernels = atlas_dsl::def::registry();
    let shipped = std::fs::read_to_string(root.join("bindings/c/src/calls/shipped.rs")).unwrap();
    let (chains, exported): (BTreeSet<&str>, BTreeSet<&str>) = shipped
        .lines()
        .filter_map(|l| Some(l.trim().strip_suffix(',')?.rsplit_once("::")?.1))
        .partition(|name| is_chain(name));
    let wanted: BTreeSet<&str> = kernels.iter().map(|k| k.name).filter(|name| public.contains(*name)).collect();
    assert_eq!(exported, wanted);
    assert_eq!(chains, public.iter().map(String::as_str).filter(|name| is_chain(name)).collect());
}

/// A chain is a static, so its name is in upper case. `OmegaRule` is none.
fn is_chain(name: &str) -> bool {
    name.len() > 2 && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// A chain has one name in C, and that in upper case in Rust and in tvm-ffi.
#[test]
fn chains_have_the_names_of_their_statics() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/calls/shipped.rs");
    let shipped = std::fs::read_to_string(root).unwrap();
    let lines = shipped.lines().filter_map(|l| Some(l.trim().strip_suffix(',')?.rsplit_once("::")?.1));
    let statics: BTreeSet<String> = lines.filter(|name| is_chain(name)).map(str::to_lowercase).collect();
    let name = |i| {
        let name = atlas_c::atlas_chain_name(i);
        // SAFETY: names stay, and end with a zero byte.
        unsafe { std::ffi::CStr::from_ptr(name) }.to_str().unwrap().to_owned()
    };
    let names: BTreeSet<String> = (0..atlas_c::atlas_chain_count()).map(name).collect();
    assert_eq!(names, statics);
}
