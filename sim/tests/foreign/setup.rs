//! The arguments of a launch, and the expected memory after it.

use crate::data::{Format, words};
use std::collections::BTreeMap;

/// The expected content of a buffer after the launch.
pub(crate) enum Expect {
    /// These bytes from the start on.
    Exact(Vec<u8>),
    /// Numbers within a bound of each.
    Close { format: Format, want: Vec<f64>, bound: Vec<f64> },
    /// These 32-bit words in any order, from the start on.
    AnyOrder(Vec<u32>),
}

/// A range of global memory.
pub(crate) struct Buffer {
    pub(crate) bytes: usize,
    /// Its initial content; `None` for a pure output.
    pub(crate) initial: Option<Vec<u8>>,
    pub(crate) writable: bool,
    pub(crate) expect: Option<Expect>,
}

/// A matrix behind a tensor map.
#[derive(Clone)]
pub(crate) struct Matrix {
    pub(crate) format: Format,
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    /// Innermost first.
    pub(crate) tile: [u32; 2],
    /// 0, 32, 64 or 128.
    pub(crate) swizzle_bytes: u32,
}

/// The value of a parameter.
pub(crate) enum Value {
    Bytes(Vec<u8>),
    /// The address of the buffer of the parameter's name.
    Pointer,
    /// A tensor map on the buffer of the parameter's name.
    Map(Matrix),
}

/// A launch: the kernel's file, its grid, buffers and values by name of the parameter.
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) grid: [u32; 3],
    pub(crate) buffers: BTreeMap<String, Buffer>,
    pub(crate) values: BTreeMap<String, Value>,
}

impl Setup {
    pub(crate) fn new(name: &'static str, grid: [u32; 3]) -> Setup {
        Setup { name, grid, buffers: BTreeMap::new(), values: BTreeMap::new() }
    }

    fn buffer(mut self, name: &str, buffer: Buffer) -> Setup {
        self.buffers.insert(name.to_owned(), buffer);
        self.value(name, Value::Pointer)
    }

    pub(crate) fn value(mut self, name: &str, value: Value) -> Setup {
        self.values.insert(name.to_owned(), value);
        self
    }

    /// Bytes that the kernel may only read.
    pub(crate) fn read(self, name: &str, bytes: Vec<u8>) -> Setup {
        let buffer = Buffer { bytes: bytes.len(), initial: Some(bytes), writable: false, expect: None };
        self.buffer(name, buffer)
    }

    /// Numbers that the kernel may only read.
    pub(crate) fn input(self, name: &str, format: Format, values: &[f64]) -> Setup {
        self.read(name, format.encode(values))
    }

    /// Memory with contents that the kernel changes.
    pub(crate) fn update(self, name: &str, initial: Vec<u8>, expect: Expect) -> Setup {
        let buffer = Buffer { bytes: initial.len(), initial: Some(initial), writable: true, expect: Some(expect) };
        self.buffer(name, buffer)
    }

    /// Uninitialised memory that is not compared in the end.
    pub(crate) fn scratch(self, name: &str, bytes: usize) -> Setup {
        self.buffer(name, Buffer { bytes, initial: None, writable: true, expect: None })
    }

    /// Uninitialised memory of this many bytes.
    pub(crate) fn output(self, name: &str, bytes: usize, expect: Expect) -> Setup {
        self.buffer(name, Buffer { bytes, initial: None, writable: true, expect: Some(expect) })
    }

    /// An output of exactly these bytes.
    pub(crate) fn exact(self, name: &str, bytes: Vec<u8>) -> Setup {
        self.output(name, bytes.len(), Expect::Exact(bytes))
    }

    /// An output of numbers, each with its bound; the rounding to the format is added to the bounds.
    pub(crate) fn close(self, name: &str, format: Format, want: &[f64], bound: &[f64]) -> Setup {
        let expect = close(format, want, bound);
        self.output(name, want.len() * format.bytes(), expect)
    }

    /// An integer of 32 bits.
    pub(crate) fn int(self, name: &str, value: usize) -> Setup {
        self.value(name, Value::Bytes(words([value as u32])))
    }

    /// An f32.
    pub(crate) fn float(self, name: &str, value: f32) -> Setup {
        self.value(name, Value::Bytes(value.to_le_bytes().to_vec()))
    }

    /// The buffer of this name is passed as a tensor map, with the shape and the strides that Triton adds.
    pub(crate) fn map(self, name: &str, matrix: Matrix) -> Setup {
        let shape = [matrix.rows as usize, matrix.columns as usize];
        let mut setup = self.value(name, Value::Map(matrix));
        for (axis, stride) in [(0, shape[1]), (1, 1)] {
            setup = setup.int(&format!("{name}.shape{axis}"), shape[axis]);
            setup = setup.value(&format!("{name}.stride{axis}"), Value::Bytes((stride as u64).to_le_bytes().to_vec()));
        }
        setup
    }
}

/// Numbers within bounds, to which the rounding to the format is added.
pub(crate) fn close(format: Format, want: &[f64], bound: &[f64]) -> Expect {
    assert_eq!(want.len(), bound.len());
    let bound = want.iter().zip(bound).map(|(w, b)| b + w.abs() * format.epsilon()).collect();
    Expect::Close { format, want: want.to_vec(), bound }
}

impl Expect {
    /// The difference from the expected bytes.
    pub(crate) fn compare(&self, got: &[u8]) -> Result<(), String> {
        match self {
            Expect::Exact(want) => {
                let wrong = got.iter().zip(want).position(|(g, w)| g != w);
                wrong.map_or(Ok(()), |i| Err(format!("byte {i} is {:#x}, not {:#x}", got[i], want[i])))
            }
            Expect::AnyOrder(want) => {
                let mut got: Vec<u32> =
                    got.chunks_exact(4).take(want.len()).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
                let mut want = want.clone();
                got.sort_unstable();
                want.sort_unstable();
                if got == want { Ok(()) } else { Err("other words than expected".to_owned()) }
            }
            Expect::Close { format, want, bound } => {
                let got = format.decode(got);
                assert_eq!(got.len(), want.len());
                for (i, (g, (w, b))) in got.iter().zip(want.iter().zip(bound)).enumerate() {
                    let rounded = format.decode(&format.encode(&[*w]))[0];
                    if !(*g == rounded || (g - w).abs() <= *b) {
                        return Err(format!("element {i} is {g}, not {w} within {b:e}"));
                    }
                }
                Ok(())
            }
        }
    }
}

#[test]
fn a_comparison_can_fail() {
    let expect = close(Format::F32, &[1.0, 2.0], &[1e-3, 1e-3]);
    assert!(expect.compare(&Format::F32.encode(&[1.0005, 2.0])).is_ok());
    assert!(expect.compare(&Format::F32.encode(&[1.0005, 2.002])).is_err());
    assert!(expect.compare(&Format::F32.encode(&[f64::NAN, 2.0])).is_err());
    assert!(Expect::Exact(vec![1, 2]).compare(&[1, 3]).is_err());
    assert!(Expect::AnyOrder(vec![1, 2]).compare(&words([2, 1, 9])).is_ok());
    assert!(Expect::AnyOrder(vec![1, 2]).compare(&words([2, 2])).is_err());
}
