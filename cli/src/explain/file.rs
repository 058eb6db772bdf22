//! `atlas explain FILE.tile`: a kernel whose tile sizes and element types are written in its file.

use super::page::Page;
use super::{ExplainArgs, assembled, grid, ptx_if_possible};
use crate::{input, sizes, stages};
use anyhow::{Result, bail};
use atlas_codegen::Platform;
use std::path::Path;

/// Explains the kernel of a file.
pub(super) fn explain(path: &Path, args: &ExplainArgs, on: Platform) -> Result<Page> {
    for (option, is_given) in [("--sweep", args.sweep.is_some()), ("--simulate", args.simulate)] {
        if is_given {
            bail!("{option} does not apply to a .tile file: no kernel of this program belongs to it");
        }
    }
    let config = input::file_config(&args.problem)?;
    let kernel = stages::read(path)?;
    let dims = sizes::of_file(&kernel, args.problem.dims.as_deref())?;
    let texts = stages::texts(&kernel, &config.schedule, on, ptx_if_possible())?;
    let why = match args.problem.config {
        Some(_) => "the schedule given by --config, and the tile sizes of the file",
        None => "the default schedule, and the tile sizes of the file",
    };
    Ok(Page {
        kernel: kernel.name.clone(),
        dtype: String::new(),
        on,
        why: why.to_owned(),
        grid: grid(&kernel, &dims),
        removed: Vec::new(),
        resources: assembled(&texts, on)?,
        time: None,
        sweep: (String::new(), Vec::new()),
        ranking: None,
        loops: stages::loops(&kernel, &config.schedule, on, &dims)?,
        placement: stages::placement(&kernel, &config.schedule, on)?,
        counted: None,
        config,
        dims,
    })
}
