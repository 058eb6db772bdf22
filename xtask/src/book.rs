//! `cargo xtask book`: renders the book in `docs/`.

use crate::command;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// Renders the book, or says how to install mdbook.
pub(crate) fn run(root: &Path) -> Result<()> {
    if !command::works("mdbook", &["--version"]) {
        bail!(
            "mdbook is not installed; `cargo install mdbook --locked` installs it. Every page also reads well as it is: start with docs/src/SUMMARY.md"
        );
    }
    command::run(Command::new("mdbook").current_dir(root).args(["build", "docs"]))?;
    println!("the book is in target/book/index.html");
    Ok(())
}
