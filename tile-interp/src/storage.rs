//! Conversion between elements in memory and elements of a tile at run time.

use crate::ring::Word;
use crate::rounding::{to_bf16, to_f16};
use half::{bf16, f16};

/// An element type in memory from which a tile of `T` is loaded and to which it is stored.
pub(crate) trait MemoryElement<T> {
    /// Bytes of one element.
    const BYTES: usize;
    /// Reads an element from exactly this many bytes.
    fn get(bytes: &[u8]) -> T;
    /// Writes an element, rounded to nearest even, to exactly this many bytes.
    fn put(bytes: &mut [u8], x: T);
}

macro_rules! stored {
    ($memory:ty, $bytes:literal as $tile:ty, |$m:ident| $get:expr, |$x:ident| $put:expr) => {
        impl MemoryElement<$tile> for $memory {
            const BYTES: usize = $bytes;
            #[inline(always)]
            fn get(bytes: &[u8]) -> $tile {
                let mut raw = [0; $bytes];
                raw.copy_from_slice(bytes);
                let $m = <$memory>::from_ne_bytes(raw);
                $get
            }
            #[inline(always)]
            fn put(bytes: &mut [u8], $x: $tile) {
                let m: $memory = $put;
                bytes.copy_from_slice(&m.to_ne_bytes());
            }
        }
    };
}

stored!(f16, 2 as f32, |m| m.to_f32(), |x| f16::from_f32(x));
stored!(bf16, 2 as f32, |m| m.to_f32(), |x| bf16::from_f32(x));
stored!(f32, 4 as f32, |m| m, |x| x);
stored!(f16, 2 as f64, |m| m.to_f64(), |x| to_f16(x));
stored!(bf16, 2 as f64, |m| m.to_f64(), |x| to_bf16(x));
stored!(f32, 4 as f64, |m| f64::from(m), |x| x as f32);
stored!(f64, 8 as f64, |m| m, |x| x);
stored!(u16, 2 as Word, |m| Word(u32::from(m) << 16), |x| (x.0 >> 16) as u16);
stored!(u32, 4 as Word, |m| Word(m), |x| x.0);
stored!(i8, 1 as i32, |m| i32::from(m), |x| x as i8);
stored!(u8, 1 as i32, |m| i32::from(m), |x| x as u8);
stored!(i16, 2 as i32, |m| i32::from(m), |x| x as i16);
stored!(u16, 2 as i32, |m| i32::from(m), |x| x as u16);
stored!(i32, 4 as i32, |m| m, |x| x);
stored!(i64, 8 as i64, |m| m, |x| x);
