//! The part of `atlas explain` about tensors that fusion removed.

use atlas_dsl::def::Removed;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The removed tensors as JSON.
pub(super) fn rows(removed: &[Removed], dims: &BTreeMap<String, u64>) -> Vec<Value> {
    let row = |(at, r): (usize, &Removed)| {
        json!({
            "tensor": r.tensor, "dims": r.dims, "dtype": r.dtype.name(), "maker": r.maker, "reader": r.reader,
            "rule": r.rule.0, "algebra": r.rule.1, "loops": r.loops, "again": r.again, "bytes_saved": saved(removed, at, dims),
        })
    };
    removed.iter().enumerate().map(row).collect()
}

/// A heading, and a line for each removed tensor.
pub(super) fn text(removed: &[Removed], dims: &BTreeMap<String, u64>) -> String {
    let makers: BTreeSet<&str> = removed.iter().map(|r| r.maker.as_str()).collect();
    let line = |(at, r): (usize, &Removed)| {
        let saved = saved(removed, at, dims).map_or_else(|| "?".to_owned(), |n| n.to_string());
        let again =
            if r.again.is_empty() { String::new() } else { format!(", made again along {}", r.again.join(", ")) };
        let looped = if r.loops == 0 { "" } else { ", in a loop" };
        let (tensor, shape) = (&r.tensor, r.dims.join(", "));
        format!(
            "\n         {tensor} {}[{shape}] of {} for {} ({}: {}){looped}{again}: {saved} bytes less",
            r.dtype, r.maker, r.reader, r.rule.0, r.rule.1
        )
    };
    let lines: String = removed.iter().enumerate().map(line).collect();
    format!("fused    1 launch for {}{lines}", makers.len() + 1)
}

/// The bytes saved by removing a tensor: it is not read, and, at its first occurrence, not written either.
fn saved(removed: &[Removed], at: usize, dims: &BTreeMap<String, u64>) -> Option<u64> {
    let r = &removed[at];
    let elements = r.dims.iter().try_fold(1, |n, d| dims.get(d).map(|size| n * size));
    let known = removed[..at].iter().any(|o| (&o.maker, &o.tensor) == (&r.maker, &r.tensor));
    elements.map(|n| if known { 1 } else { 2 } * n * u64::from(r.dtype.bytes()))
}
