//! Launch arguments: tensors and numbers, and the macro that lists them.

use crate::tensor::Tensor;
use atlas_dsl::DType;

/// One argument of a launch.
#[derive(Debug)]
pub enum Arg<'a> {
    /// A tensor that the kernel reads.
    In(&'a Tensor),
    /// A tensor that the kernel writes.
    Out(&'a mut Tensor),
    /// A tensor behind the caller's `&mut`: the kernel may write it or read it, and it may be several arguments.
    Lent(&'a &'a mut Tensor),
    /// A number.
    F32(f32),
    /// A number, from a literal with a point. It is rounded to f32, f16 or bf16 if the kernel takes one.
    F64(f64),
    /// A whole number, from a literal without a point.
    I32(i32),
    /// A whole number.
    I64(i64),
}

impl Arg<'_> {
    /// The tensor, if it is a tensor.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Arg::In(t) => Some(t),
            Arg::Out(t) => Some(t),
            Arg::Lent(t) => Some(t),
            _ => None,
        }
    }

    /// The type of a number.
    pub(crate) fn scalar_dtype(&self) -> Option<DType> {
        match self {
            Arg::In(_) | Arg::Out(_) | Arg::Lent(_) => None,
            Arg::F32(_) => Some(DType::F32),
            Arg::F64(_) => Some(DType::F64),
            Arg::I32(_) => Some(DType::I32),
            Arg::I64(_) => Some(DType::I64),
        }
    }
}

/// The types that [`args!`](crate::args) accepts without `&mut`: tensors, which are borrowed, and numbers.
///
/// If another macro passes an argument on, [`args!`](crate::args) gets it as one token and cannot see a `&mut` in it.
/// Its type decides then.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument of a launch",
    note = "arguments are tensors and numbers of `i32`, `i64`, `f32` and `f64`: a seed of `u64` is given as `seed as i64`, a size as `n as i32`"
)]
pub trait IntoArg<'a> {
    /// Converts to an argument.
    fn into_arg(self) -> Arg<'a>;
}

impl<'a> IntoArg<'a> for &'a Tensor {
    fn into_arg(self) -> Arg<'a> {
        Arg::In(self)
    }
}

impl<'a> IntoArg<'a> for &&'a Tensor {
    fn into_arg(self) -> Arg<'a> {
        Arg::In(self)
    }
}

impl<'a> IntoArg<'a> for &'a &mut Tensor {
    fn into_arg(self) -> Arg<'a> {
        Arg::Lent(self)
    }
}

macro_rules! numbers {
    ($($ty:ty = $variant:ident),+) => {$(
        impl<'a> IntoArg<'a> for &$ty {
            fn into_arg(self) -> Arg<'a> {
                Arg::$variant(*self)
            }
        }
        impl From<$ty> for Arg<'_> {
            fn from(x: $ty) -> Self {
                Arg::$variant(x)
            }
        }
    )+};
}
numbers!(f32 = F32, f64 = F64, i32 = I32, i64 = I64);

impl<'a> From<&'a Tensor> for Arg<'a> {
    fn from(t: &'a Tensor) -> Arg<'a> {
        Arg::In(t)
    }
}

impl<'a> From<&'a mut Tensor> for Arg<'a> {
    fn from(t: &'a mut Tensor) -> Arg<'a> {
        Arg::Out(t)
    }
}

/// The arguments of a launch in the order of the kernel's parameters: `args!(x, w, &mut y, 1e-6)`.
///
/// A tensor that the kernel reads is given by name, one that it writes has `&mut`, and a number is given as is. A
/// variable that holds a `&mut Tensor` is given by name in either case.
#[macro_export]
macro_rules! args {
    (@list [$($done:tt)*]) => { [$($done)*] };
    (@list [$($done:tt)*] &mut $e:expr $(, $($rest:tt)*)?) => {
        $crate::args!(@list [$($done)* $crate::Arg::Out(&mut $e),] $($($rest)*)?)
    };
    (@list [$($done:tt)*] $e:expr $(, $($rest:tt)*)?) => {
        $crate::args!(@list [$($done)* $crate::IntoArg::into_arg(&$e),] $($($rest)*)?)
    };
    ($($list:tt)*) => { $crate::args!(@list [] $($list)*) };
}
