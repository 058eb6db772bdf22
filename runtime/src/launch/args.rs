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
    /// A tensor behind a `&mut` of the caller's: the kernel may write it, or read it, also as several arguments.
    Lent(&'a &'a mut Tensor),
    /// A number.
    F32(f32),
    /// A number; a literal with a point. Becomes an f32, f16 or bf16 where the kernel takes one, rounded.
    F64(f64),
    /// A whole number; a literal without a point.
    I32(i32),
    /// A whole number.
    I64(i64),
}

impl Arg<'_> {
    /// The tensor, if it is one.
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

/// What [`args!`](crate::args) accepts without `&mut`: tensors, which are borrowed, and numbers.
///
/// An argument that another macro passes on is one token to [`args!`](crate::args), which sees no `&mut` in it: its type says it.
pub trait IntoArg<'a> {
    /// The argument.
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
/// A tensor that is read is named alone, one that is written has `&mut`, and a number is a number. A variable that holds a
/// `&mut Tensor` is named alone either way.
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
