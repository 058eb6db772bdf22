//! Which standard streams were closed when the process began: Rust's runtime opens `/dev/null` in their place before `main`.
//!
//! # Promise
//! [`was_closed`] is true of a stream that nobody gave this process. What is written to such a stream is lost without an error.
//!
//! # Argument
//! The loader calls the functions of `.init_array` before Rust's runtime begins. Later nothing tells an opened `/dev/null` from
//! one that a parent gave: some parents open theirs for reading too.
//!
//! # Breaks it
//! - tests/output.rs: `a_closed_stdout_is_told_and_fails`.

use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each closed stream.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Whether a standard stream was closed when the process began: 0, 1 or 2. False where that is not known.
pub fn was_closed(stream: u8) -> bool {
    stream < 3 && CLOSED.load(Ordering::Relaxed) & (1 << stream) != 0
}

#[cfg(target_os = "linux")]
mod before_main {
    use super::{CLOSED, Ordering};

    extern "C" fn look() {
        for stream in 0..3 {
            // SAFETY: to ask for the flags of a number that is no open file changes nothing, and fails.
            if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
                CLOSED.fetch_or(1 << stream, Ordering::Relaxed);
            }
        }
    }

    // SAFETY: the section holds pointers to functions of C that take nothing they need; `look` calls the C library, which is
    // ready by then, and sets an atomic number.
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
