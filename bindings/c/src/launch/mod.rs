//! Launches from C.
//!
//! | file | holds |
//! |---|---|
//! | `kernel` | launches of kernels, by name or prepared |
//! | `chain` | workspaces of chains, and launches with them |

mod chain;
mod kernel;

pub use chain::{
    AtlasPreparedChain, AtlasSize, AtlasWorkspace, atlas_chain_launch, atlas_chain_prepare, atlas_chain_workspace,
    atlas_prepared_chain_close, atlas_prepared_chain_launch, atlas_workspace_bytes, atlas_workspace_close,
};
pub use kernel::{AtlasPrepared, atlas_launch, atlas_prepare, atlas_prepared_close, atlas_prepared_launch};
