//! The error of a loss, which all forms of a memory share.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// The gradient of a loss with respect to what the memory has read of a key: `scale (read - wanted)`, and `-scale wanted` of a
    /// loss that predicts nothing, where `predicts` is 0. Such a loss leaves out `read` also where it is infinite or no number.
    pub(crate) tile fn loss_error(read, wanted, scale, predicts) {
        scale * (select(predicts > 0, read, 0.0) - wanted)
    }
}
