//! Hashes the sources of this crate: part of the key of every compiled kernel.

fn main() -> std::io::Result<()> {
    atlas_source_hash::emit()
}
