//! Which standard streams were closed when the process began: Rust's runtime opens `/dev/null` in their place before
//! `main`.
//!
//! # Promise
//! [`was_closed`] is true for a stream that this process was started without. Output to such a stream is lost without
//! an error.
//!
//! # Argument
//! The loader calls the functions of `.init_array` before Rust's runtime begins. Later, a `/dev/null` that the runtime
//! opened cannot be told from one that a parent passed: some parents open theirs for reading too.
//!
//! # Breaks it
//! - tests/output.rs: `a_closed_stdout_is_told_and_fails`.

use std::sync::atomic::{AtomicU8, Ordering};

/// One bit per closed stream.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Whether standard stream 0, 1 or 2 was closed when the process began. False where that is unknown.
pub fn was_closed(stream: u8) -> bool {
    stream < 3 && CLOSED.load(Ordering::Relaxed) & (1 << stream) != 0
}

#[cfg(target_os = "linux")]
mod before_main {
    use super::{CLOSED, Ordering};

    extern "C" fn look() {
        for stream in 0..3 {
            // SAFETY: reading the flags of a number that is not an open descriptor changes nothing, and fails.
            if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
                CLOSED.fetch_or(1 << stream, Ordering::Relaxed);
            }
        }
    }

    // SAFETY: the section holds pointers to C functions. The loader passes arguments that `look` ignores. `look` calls
    // the C library, which is ready by then, and sets an atomic number.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOOK: extern "C" fn() = look;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_of_a_test_are_open() {
        assert!((0..=u8::MAX).all(|stream| !was_closed(stream)));
    }
}
