//! Programs in C and C++ that call the library, compiled by the system's compilers.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with the library that cargo built beside this test.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    // The library itself is in `deps` or above it.
    [folder, folder.parent().unwrap()].into_iter().find(|f| f.join("libatlas_c.so").exists()).unwrap().to_owned()
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?} ended with {}:\n{text}", out.status);
    text
}

/// Compiles a program of this folder. All warnings are errors.
fn compile(compiler: &[&str], source: &str, link: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"]);
    command.arg("-I").arg(here.join("include")).arg(here.join("tests").join(source)).arg("-o").arg(&program);
    run(command.args(link));
    (folder, program)
}

/// Runs a program with the shared library, and returns what it printed.
fn shared(compiler: &[&str], source: &str) -> String {
    let library = built();
    let folder = library.display().to_string();
    let rpath = format!("-Wl,-rpath,{folder}");
    let (_kept, program) = compile(compiler, source, &["-L", &folder, "-latlas_c", &rpath, "-lm", "-lpthread"]);
    run(&mut Command::new(program))
}

#[test]
fn a_c_program() {
    let text = shared(&["cc", "-std=c11"], "program.c");
    assert!(text.ends_with("all right\n"), "{text}");
}

/// It takes a GPU to run.
#[test]
fn the_program_that_times_calls_compiles() {
    let folder = built().display().to_string();
    compile(&["cc", "-std=c11"], "host_time.c", &["-L", &folder, "-latlas_c", "-ldl"]);
}

#[test]
fn chains_from_c() {
    let text = shared(&["cc", "-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"], "chains.c");
    assert!(text.ends_with("all right\n"), "{text}");
}

#[test]
fn omega_rules_from_c() {
    let text = shared(&["cc", "-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"], "omega.c");
    assert!(text.ends_with("all right\n"), "{text}");
}

#[test]
fn a_cpp_program() {
    let text = shared(&["c++", "-std=c++17"], "program.cpp");
    assert!(text.ends_with("all right\n"), "{text}");
}

/// The kernels are in the static library too, though no symbol of most of them is named by a program.
#[test]
fn a_c_program_with_the_static_library() {
    let library = built().join("libatlas_c.a").display().to_string();
    let (_kept, program) = compile(&["cc", "-std=c11"], "program.c", &[&library, "-lm", "-lpthread", "-ldl"]);
    let text = run(&mut Command::new(program));
    assert!(text.ends_with("all right\n"), "{text}");
}

/// Address sanitizer in the C program sees the library's reads and writes through the allocator that it replaces.
#[test]
fn a_c_program_with_the_address_sanitizer() {
    let text = shared(&["cc", "-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"], "program.c");
    assert!(text.ends_with("all right\n"), "{text}");
}

/// What the library needs at run time: nothing of CUDA, LLVM or Rust.
#[test]
fn the_library_needs_the_c_library_alone() {
    let text = run(Command::new("readelf").arg("-d").arg(built().join("libatlas_c.so")));
    let needed: Vec<&str> =
        text.lines().filter_map(|l| l.split_once("Shared library: [")?.1.strip_suffix(']')).collect();
    let allowed = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
    assert!(!needed.is_empty() && needed.iter().all(|n| allowed.contains(n)), "{needed:?}");
}
