//! [`Arith`] on the CPU.

use super::Arith;
use std::cmp::Ordering;

/// f32 arithmetic with the meaning that [`Arith`] states. Approximate instructions are as inaccurate as their bounds allow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// The fraction of the documented error that the approximate instructions make, with its sign: -1 to 1. 0 rounds exactly.
    pub error: f64,
    /// True if the sign changes from one such instruction to the next.
    pub alternating: bool,
}

/// 2^-22: two ulp of f32.
const ULP2: f64 = 1.0 / 4_194_304.0;

/// Denormals to zeros of the same sign.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

impl Host {
    /// The error of the next approximate instruction, whose bound is `bound`.
    fn next_error(&mut self, bound: f64) -> f64 {
        let error = self.error * bound;
        if self.alternating {
            self.error = -self.error;
        }
        error
    }

    /// `exact` with a relative error of up to `bound`, rounded and flushed.
    fn off(&mut self, exact: f64, bound: f64) -> f32 {
        flush((exact * (1.0 + self.next_error(bound))) as f32)
    }
}

impl Arith for Host {
    type F = f32;
    type I = i32;
    type B = bool;

    fn f(&mut self, x: f32) -> f32 {
        x
    }
    fn i(&mut self, x: i32) -> i32 {
        x
    }
    fn add(&mut self, x: f32, y: f32) -> f32 {
        x + y
    }
    fn sub(&mut self, x: f32, y: f32) -> f32 {
        x - y
    }
    fn mul(&mut self, x: f32, y: f32) -> f32 {
        x * y
    }
    fn fma(&mut self, x: f32, y: f32, z: f32) -> f32 {
        x.mul_add(y, z)
    }
    fn div(&mut self, x: f32, y: f32) -> f32 {
        x / y
    }
    fn sqrt(&mut self, x: f32) -> f32 {
        x.sqrt()
    }
    fn neg(&mut self, x: f32) -> f32 {
        -x
    }
    fn abs(&mut self, x: f32) -> f32 {
        x.abs()
    }
    fn copysign(&mut self, x: f32, sign: f32) -> f32 {
        x.copysign(sign)
    }
    // Of two zeros `f32::min` and `f32::max` give either, as the optimiser likes; -0 is the lesser one on a GPU.
    fn minimum(&mut self, x: f32, y: f32) -> f32 {
        match x.partial_cmp(&y) {
            None => f32::NAN,
            Some(Ordering::Equal) => {
                if x.is_sign_negative() {
                    x
                } else {
                    y
                }
            }
            Some(Ordering::Less) => x,
            Some(Ordering::Greater) => y,
        }
    }
    fn maximum(&mut self, x: f32, y: f32) -> f32 {
        match x.partial_cmp(&y) {
            None => f32::NAN,
            Some(Ordering::Equal) => {
                if x.is_sign_negative() {
                    y
                } else {
                    x
                }
            }
            Some(Ordering::Less) => y,
            Some(Ordering::Greater) => x,
        }
    }
    fn lt(&mut self, x: f32, y: f32) -> bool {
        x < y
    }
    fn eq(&mut self, x: f32, y: f32) -> bool {
        x == y
    }
    fn select(&mut self, c: bool, x: f32, y: f32) -> f32 {
        if c { x } else { y }
    }
    fn bits(&mut self, x: f32) -> i32 {
        x.to_bits() as i32
    }
    fn from_bits(&mut self, x: i32) -> f32 {
        f32::from_bits(x as u32)
    }
    fn iadd(&mut self, x: i32, y: i32) -> i32 {
        x.wrapping_add(y)
    }
    fn isub(&mut self, x: i32, y: i32) -> i32 {
        x.wrapping_sub(y)
    }
    fn ixor(&mut self, x: i32, y: i32) -> i32 {
        x ^ y
    }
    fn shl(&mut self, x: i32, by: u32) -> i32 {
        x << by
    }
    fn ashr(&mut self, x: i32, by: u32) -> i32 {
        x >> by
    }
    fn approx_ex2(&mut self, x: f32) -> f32 {
        self.off(f64::from(flush(x)).exp2(), ULP2)
    }
    fn approx_rcp(&mut self, x: f32) -> f32 {
        self.off(1.0 / f64::from(flush(x)), ULP2 / 2.0)
    }
    fn approx_rsqrt(&mut self, x: f32) -> f32 {
        self.off(1.0 / f64::from(flush(x)).sqrt(), ULP2)
    }
    fn approx_sqrt(&mut self, x: f32) -> f32 {
        self.off(f64::from(flush(x)).sqrt(), ULP2)
    }
}
