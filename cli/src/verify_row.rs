//! A row in the results of `atlas verify`: one problem, and the difference of its result from the reference.

use atlas_ops::{Comparison, Problem};
use serde_json::{Value, json};

/// A problem's row, initially not passed.
pub(super) fn row_of(p: &Problem) -> Value {
    let mut row = row(p.op.name);
    row["kernel"] = json!(p.kernel.name);
    row["dtype"] = json!(p.dtype.name());
    row["shape"] = json!(p.shape());
    row["note"] = json!(p.note);
    row["tolerance"] = json!(p.bound());
    row
}

/// Sets the difference from the reference in a problem's row.
pub(super) fn fill(row: &mut Value, p: &Problem, c: &Comparison) {
    row["rel_f"] = json!(c.rel_f);
    row["max_error"] = json!(c.max_error);
    row["non_finite"] = json!(c.non_finite);
    row["pass"] = json!(c.passes(p.bound()));
}

/// A row, initially not passed.
pub(super) fn row(op: &str) -> Value {
    json!({
        "op": op, "kernel": null, "dtype": null, "shape": null, "note": "", "rel_f": null, "max_error": null,
        "non_finite": null, "tolerance": null, "pass": false, "error": null,
    })
}
