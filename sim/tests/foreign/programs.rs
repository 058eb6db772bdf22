//! Kernels of control flow and atomics: an interpreter, a lock, lanes that act as one group.

use crate::data::Format::{F32, F64};
use crate::data::{Data, longs, words};
use crate::kernels;
use crate::setup::{Expect, Setup};

kernels!(atomics, interpreter, coalesced);

pub(crate) fn atomics() -> Setup {
    let n = 100;
    let x: Vec<i32> = Data::new(60).words(n).into_iter().map(|v| v as i32).collect();
    let initial = [i32::MAX, i32::MIN, -1, 0, 0x1234, 7, 0, 5];
    let fold = |start: i32, f: fn(i32, i32) -> i32| x.iter().copied().fold(start, f);
    let ints = [
        fold(i32::MAX, i32::min),
        fold(i32::MIN, i32::max),
        fold(-1, |a, v| a & v),
        fold(0, |a, v| a | v),
        fold(0x1234, |a, v| a ^ v),
        fold(7, i32::wrapping_sub),
        fold(0, |a, v| (a as u32).max(v as u32) as i32),
        50,
    ];
    let sum = x.iter().fold(0u64, |a, &v| a.wrapping_add(i64::from(v) as u64));
    let most = x.iter().map(|&v| u64::from(v as u32) << 20).max().unwrap();
    let chain = (0..n).fold(1, |g, _| g * 3 % 1009 + 1);
    let bytes = |v: &[i32]| words(v.iter().map(|&v| v as u32));
    let guarded = [chain, 2 + x.iter().map(|v| v & 15).sum::<i32>()];
    Setup::new("atomics", [2, 1, 1])
        .read("x", bytes(&x))
        .update("ints", bytes(&initial), Expect::Exact(bytes(&ints)))
        .update("longs", longs([0, 0]), Expect::Exact(longs([sum, most])))
        .update("floats", F32.encode(&[1.0]), Expect::Exact(F32.encode(&[1.0 + 0.25 * n as f64])))
        .update("doubles", F64.encode(&[1.0]), Expect::Exact(F64.encode(&[1.0 + 0.5 * n as f64])))
        .update("lock", words([0]), Expect::Exact(words([0])))
        .update("guarded", words([1, 2]), Expect::Exact(bytes(&guarded)))
        .int("n", n)
}

fn interpret(code: &[u8], i: i32) -> i32 {
    const PRIMES: [i32; 8] = [2, 3, 5, 7, 11, 13, 17, 19];
    let (mut stack, mut top, mut acc, mut pc) = ([0; 16], 0usize, i, 0);
    while pc < code.len() {
        let argument = i32::from(code[pc] >> 4);
        match code[pc] & 15 {
            0 => acc = acc.wrapping_add(argument),
            1 => acc = acc.wrapping_mul(PRIMES[argument as usize & 7]),
            2 => {
                stack[top & 15] = acc;
                top += 1;
            }
            3 if top > 0 => {
                top -= 1;
                acc = i32::wrapping_sub(stack[top & 15], acc);
            }
            3 => {}
            4 => acc ^= acc >> (argument + 1),
            5 => pc += if acc & 1 == 1 { argument as usize & 3 } else { 0 },
            6 => acc = acc.wrapping_neg(),
            7 => acc %= argument + 3,
            8 => acc = acc.rotate_left(7),
            9 => acc = acc.count_ones() as i32 * argument,
            other => acc = acc.wrapping_mul(31).wrapping_add(other.into()),
        }
        pc += 1;
    }
    acc
}

pub(crate) fn interpreter() -> Setup {
    let (n, length, block) = (150, 24, 64);
    let code: Vec<u8> = Data::new(61).below(n * length, 256).into_iter().map(|v| v as u8).collect();
    let results = code.chunks(length).enumerate().map(|(i, c)| interpret(c, i as i32) as u32);
    let blocks = n.div_ceil(block) as u32;
    // The kernel's own counter starts at 5.
    let serial = (5..5 + blocks).collect();
    Setup::new("interpreter", [blocks, 1, 1])
        .exact("results", words(results))
        .output("serial", 4 * blocks as usize, Expect::AnyOrder(serial))
        .read("code", code)
        .int("length", length)
        .int("n", n)
}

fn coalesced() -> Setup {
    let n = 150;
    let values = Data::new(62).words(n);
    let kept: Vec<u32> = values.iter().copied().filter(|&v| v as i32 > 0).collect();
    Setup::new("coalesced", [3, 1, 1])
        .read("in", words(values))
        .update("kept", words([0]), Expect::Exact(words([kept.len() as u32])))
        .output("out", 4 * kept.len(), Expect::AnyOrder(kept))
        .int("n", n)
}
