//! Known mistakes, which tests plant in the compiler and must notice.
//!
//! A test that finds nothing may be correct or blind. Each mistake that the compiler once made has a [`Mutation`]. The code
//! that fixes it asks `is_planted`, and if so behaves as before the fix. Without the feature `mutations`, the answer is a
//! constant and the mistake is not compiled. A build without debug assertions refuses the feature, so no release has it. To add
//! a mistake, add a variant here and ask for it at the fix.

#[cfg(all(feature = "mutations", not(debug_assertions)))]
compile_error!("the feature `mutations` plants mistakes in the compiler; it is for builds with debug assertions alone");

macro_rules! mutations {
    ($($(#[$m:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// A mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutation { $($(#[$m])* $name),+ }

        impl Mutation {
            /// Every mistake, by name.
            pub const ALL: &'static [Mutation] = &[$(Mutation::$name),+];

            /// The name on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Mutation::$name => $text),+ }
            }

            /// The inverse of `name`.
            pub fn from_name(name: &str) -> Option<Mutation> {
                Mutation::ALL.iter().copied().find(|m| m.name() == name)
            }
        }
    };
}

mutations! {
    /// Invalid elements are contracted as they are, without the neutral element.
    FillForgotten = "fill-forgotten",
    /// A tile of extent 1, broadcast and then contracted, counts one of its columns only.
    BroadcastOfOne = "broadcast-of-one",
    /// A NaN that functions make from a fill is dropped by `max` and `min`.
    FillThroughFunctions = "fill-through-functions",
    /// The result of operations on a fill is computed in f64, without their roundings.
    FillUnrounded = "fill-unrounded",
    /// A loop of no iterations leaves its carried values unset, or runs.
    LoopOfNone = "loop-of-none",
    /// Tiles carried in shared memory are replaced one after the other.
    CarriedInTurn = "carried-in-turn",
    /// No barrier between the last store of a carried tile and its use after the loop.
    CarriedUnordered = "carried-unordered",
    /// Lanes outside a tensor load its first element.
    MaskedLoadsFirst = "masked-loads-first",
    /// A place that is not valid is the first one of its dim.
    PlacesPastTheEdge = "places-past-the-edge",
    /// A place outside of a tensor is read.
    PlacesAnywhere = "places-anywhere",
    /// An atomic store is made by every thread that has the element.
    AtomicByEveryCopy = "atomic-by-every-copy",
    /// Carried tiles of different widths are replaced by the column ranges of one of them.
    CarriedByOneWidth = "carried-by-one-width",
    /// A carried tile takes the buffer of its initial tile, although that tile is used again.
    InitTaken = "init-taken",
    /// A span of one element at a counted position is taken for the first element of its dim.
    CountedIsFirst = "counted-is-first",
    /// The errors of exponentials, roots and quotients are ignored, whatever magnifies them.
    RoundingsForgotten = "roundings-forgotten",
    /// An unsigned integer below 32 bits is widened as if it had a sign.
    SignOfUnsigned = "sign-of-unsigned",
    /// A number is rounded toward zero where it becomes a float of 8 bits.
    Fp8TowardZero = "fp8-toward-zero",
}

#[cfg(feature = "mutations")]
mod planted {
    use super::Mutation;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Restores the earlier planted mistakes when it is dropped, also on a panic.
    struct Restore(Option<Mutation>);

    impl Drop for Restore {
        fn drop(&mut self) {
            PLANTED.set(self.0);
        }
    }

    /// Runs `f` with a mistake planted in every kernel that this thread compiles meanwhile.
    pub fn with<T>(mutation: Mutation, f: impl FnOnce() -> T) -> T {
        let _restore = Restore(PLANTED.replace(Some(mutation)));
        f()
    }

    /// The same work for another thread, with this thread's planted mistakes.
    #[cfg(feature = "llvm")]
    pub(crate) fn carried<T>(f: impl FnOnce() -> T) -> impl FnOnce() -> T {
        let planted = PLANTED.get();
        move || {
            let _restore = Restore(PLANTED.replace(planted));
            f()
        }
    }

    /// True if the compiler has to make this mistake.
    pub(crate) fn is_planted(mutation: Mutation) -> bool {
        PLANTED.get() == Some(mutation)
    }
}

#[cfg(all(feature = "mutations", feature = "llvm"))]
pub(crate) use planted::carried;
#[cfg(feature = "mutations")]
pub(crate) use planted::is_planted;
#[cfg(feature = "mutations")]
pub use planted::with;

/// True if the compiler has to make this mistake: never.
#[cfg(not(feature = "mutations"))]
pub(crate) const fn is_planted(_: Mutation) -> bool {
    false
}

/// The same work for another thread.
#[cfg(all(feature = "llvm", not(feature = "mutations")))]
pub(crate) fn carried<T>(f: impl FnOnce() -> T) -> impl FnOnce() -> T {
    f
}
