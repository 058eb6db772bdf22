//! `cargo xtask wheel`: builds the Python package with the C library inside, and the step `python`, which tests it.

mod bundle;

use self::bundle::BundleParts;
use crate::command;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The arguments of the task.
#[derive(clap::Args)]
pub(crate) struct WheelArgs {
    /// The library that goes in. Without it, one is built for release.
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Build the library with LLVM linked in, so that it compiles kernels on their first launch.
    #[arg(long, conflicts_with = "library")]
    compiler: bool,
    /// Compile the kernels of the package for these targets into a bundle inside, such as "sm_80,sm_90a:NVIDIA H200": the records of the
    /// GPU with this name choose configurations.
    #[arg(long, value_name = "ARCH[:GPU],..")]
    bundle: Option<String>,
    /// The program `atlas` that compiles them. Without it, one is built for release, which takes LLVM.
    #[arg(long, value_name = "FILE", requires = "bundle")]
    atlas: Option<PathBuf>,
    /// The folder for the wheel. `target/wheel` without it.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// What Python needs to build the package and to call the library.
const PACKAGES: [&str; 3] = ["numpy", "apache-tvm-ffi>=0.1.15,<0.2", "setuptools>=77"];

/// The name of the library in the package.
const LIBRARY: &str = "libatlas_c.so";

/// The least version of glibc that the wheel's tag names: older systems have no pip that knows such tags.
const LEAST_GLIBC: u32 = 28;

/// Builds the wheel.
pub(crate) fn run(root: &Path, args: &WheelArgs) -> Result<()> {
    let target = command::target_dir(root)?;
    let library = match &args.library {
        Some(library) => library.clone(),
        None => {
            let mut build = command::cargo(root);
            build.args(["build", "--release", "-p", "atlas-gpu-c"]);
            if args.compiler {
                build.args(["--features", "static-llvm"]);
            }
            command::run(&mut build)?;
            target.join("release").join(LIBRARY)
        }
    };
    let Some(python) = environment(&target)? else {
        bail!("python3 with the module venv, and {}, are needed and cannot be had", PACKAGES.join(", "));
    };
    let bundle = match &args.bundle {
        Some(archs) => {
            Some(BundleParts { atlas: compiler(root, &target, args.atlas.as_deref())?, archs, kernels: &[] })
        }
        None => None,
    };
    let out = args.out.clone().unwrap_or_else(|| target.join("wheel"));
    let wheel = build(root, &target, &python, &library, bundle.as_ref(), &out)?;
    let bytes = std::fs::metadata(&wheel).map_or(0, |m| m.len());
    println!("the wheel is {}, {:.1} MB", wheel.display(), bytes as f64 / 1e6);
    Ok(())
}

/// The program that makes bundles.
fn compiler(root: &Path, target: &Path, given: Option<&Path>) -> Result<PathBuf> {
    if let Some(atlas) = given {
        return Ok(atlas.to_owned());
    }
    command::run(command::cargo(root).args(["build", "--release", "-p", "atlas-gpu-cli", "--features", "jit"]))?;
    Ok(target.join("release/atlas"))
}

/// Tests the C library without LLVM from Python, alone and in the wheel. The wheel has a bundle of one kernel where a step with
/// LLVM has built the program that makes it. Returns why the test was skipped, in whole or in part.
pub(crate) fn test(root: &Path) -> Result<Option<String>> {
    let target = command::target_dir(root)?;
    // The step `without-llvm` has built the same.
    command::run(command::cargo(root).args(["build", "--quiet"]).args(command::WITHOUT_LLVM))?;
    let library = target.join("debug").join(LIBRARY);
    let Some(python) = environment(&target)? else {
        return Ok(Some(format!("python3 with the module venv, or {}, cannot be had", PACKAGES.join(", "))));
    };
    let bindings = root.join("bindings");
    command::run(Command::new(&python).arg(bindings.join("c/tests/python.py")).arg(&library))?;
    let atlas = target.join("debug/atlas");
    let compiles = command::succeeds(Command::new(&atlas).args(["compile", "softmax", "--arch", "sm_80"]));
    let bundle = compiles.then(|| BundleParts { atlas: atlas.clone(), archs: "sm_80", kernels: &["log_sum_exp"] });
    let wheel = build(root, &target, &python, &library, bundle.as_ref(), &target.join("wheel"))?;
    command::run(pip(&python, "install").args(["--force-reinstall", "--no-deps"]).arg(wheel))?;
    // Away from the sources, which are no package without the library.
    let script = |name: &str| {
        let mut script = Command::new(&python);
        script.current_dir(&target).arg(bindings.join("python").join(name));
        script
    };
    command::run(script("tests/check_numpy.py").args(compiles.then_some("--bundle")))?;
    command::run(script("record_sizes.py").arg("--check").arg("--library").arg(&library))?;
    if atlas.exists() {
        own(&python, &atlas, &library, &target.join("wheel"), script("tests/check_own_wheel.py"))?;
    }
    Ok((!compiles).then(|| "without a bundle in the wheel: no step has built `atlas` with LLVM".to_owned()))
}

/// Tests a package that `atlas wheel` makes: of the C library, which has kernels and their functions as a library of one's own does.
fn own(python: &Path, atlas: &Path, library: &Path, folder: &Path, mut script: Command) -> Result<()> {
    let folder = folder.join("own");
    // What an earlier build left has another tag, perhaps.
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    command::run(Command::new(atlas).arg("wheel").arg(library).args(["--name", "own", "--out-dir"]).arg(&folder))?;
    let mut install = pip(python, "install");
    install.args(["--force-reinstall", "--no-deps", "--no-index", "--find-links"]).arg(&folder).arg("own");
    command::run(&mut install)?;
    command::run(&mut script)
}

/// Python of an environment with the packages. `None` if it cannot be made.
fn environment(target: &Path) -> Result<Option<PathBuf>> {
    let environment = target.join("python");
    if !command::succeeds(Command::new("python3").args(["-m", "venv"]).arg(&environment)) {
        return Ok(None);
    }
    let python = environment.join("bin/python");
    Ok(command::succeeds(pip(&python, "install").args(PACKAGES)).then_some(python))
}

fn pip(python: &Path, verb: &str) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", verb, "--quiet", "--disable-pip-version-check"]);
    pip
}

/// Puts the package and a library together in a folder, and makes a wheel of that.
fn build(
    root: &Path,
    target: &Path,
    python: &Path,
    library: &Path,
    bundle: Option<&BundleParts<'_>>,
    out: &Path,
) -> Result<PathBuf> {
    let (sources, stage) = (root.join("bindings/python"), target.join("wheel/stage"));
    check_version(&sources.join("pyproject.toml"))?;
    let fails = |what: &Path| format!("cannot write {}", what.display());
    if stage.exists() {
        std::fs::remove_dir_all(&stage).with_context(|| fails(&stage))?;
    }
    let package = stage.join("atlas_gpu");
    std::fs::create_dir_all(&package).with_context(|| fails(&package))?;
    for name in ["pyproject.toml", "README.md"] {
        std::fs::copy(sources.join(name), stage.join(name)).with_context(|| fails(&stage.join(name)))?;
    }
    for file in std::fs::read_dir(sources.join("atlas_gpu")).context("cannot read bindings/python/atlas_gpu")? {
        let file = file?.path();
        if let Some(name) = file.file_name().filter(|_| file.is_file()) {
            std::fs::copy(&file, package.join(name)).with_context(|| fails(&package))?;
        }
    }
    let inside = package.join(LIBRARY);
    std::fs::copy(library, &inside).with_context(|| format!("cannot copy {}", library.display()))?;
    // Debug information is most of a library of a debug build, and nothing that a package is for.
    command::run(Command::new("strip").arg("--strip-debug").arg(&inside))?;
    if let Some(bundle) = bundle {
        bundle.make(root, &package.join(bundle::NAME))?;
    }
    let needed = command::output(Command::new("readelf").arg("--version-info").arg("--wide").arg(&inside))?;
    let tag = format!("manylinux_2_{}_{}", glibc(&needed), std::env::consts::ARCH);
    let option = format!("--config-settings=--build-option=--plat-name={tag}");
    let mut wheel = pip(python, "wheel");
    wheel.args(["--no-build-isolation", "--no-deps", &option, "--wheel-dir"]).arg(out).arg(&stage);
    command::run(&mut wheel)?;
    let name = format!("atlas_gpu-{}-py3-none-{tag}.whl", env!("CARGO_PKG_VERSION"));
    let made = out.join(&name);
    if !made.exists() {
        bail!("pip made no {name} in {}", out.display());
    }
    Ok(made)
}

/// Refuses a package of another version than the workspace has.
fn check_version(manifest: &Path) -> Result<()> {
    let text = std::fs::read_to_string(manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let value: toml::Table = text.parse().with_context(|| format!("{} is no TOML", manifest.display()))?;
    let found = value.get("project").and_then(|p| p.get("version")).and_then(toml::Value::as_str).unwrap_or_default();
    let wanted = env!("CARGO_PKG_VERSION");
    if found != wanted {
        bail!("{} has version {found}, but the workspace has {wanted}", manifest.display());
    }
    Ok(())
}

/// The minor version of glibc 2 that a library needs, from what readelf says of the versions of its symbols.
fn glibc(versions: &str) -> u32 {
    let minor = |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    let needed = versions.split("GLIBC_2.").skip(1).filter_map(minor);
    needed.max().unwrap_or(LEAST_GLIBC).max(LEAST_GLIBC)
}

#[cfg(test)]
mod tests {
    use super::{check_version, glibc};
    use crate::command;

    #[test]
    fn a_wheel_is_tagged_with_the_newest_symbol_of_its_library() {
        assert_eq!(glibc("Name: GLIBC_2.2.5  Flags: none\n Name: GLIBC_2.34  Flags\n Name: GCC_3.0\n GLIBC_2.9"), 34);
        assert_eq!(glibc("Name: GLIBC_2.2.5"), 28);
        assert_eq!(glibc(""), 28);
    }

    #[test]
    fn the_package_has_the_version_of_the_workspace() {
        let manifest = command::root().join("bindings/python/pyproject.toml");
        check_version(&manifest).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("pyproject.toml");
        std::fs::write(&other, "[project]\nversion = \"99.0.0\"\n").unwrap();
        assert!(check_version(&other).unwrap_err().to_string().contains("99.0.0"));
    }
}
