//! Links the unwinder of GCC into the command where it is available as a static library.
//!
//! The standard library takes it from `libgcc_s.so.1`, which the command needs for nothing else. A daemon starts on every
//! host, and loading this library is a fifth of the processor time until its `main`.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    if let Some(library) = unwinder() {
        println!("cargo::rerun-if-changed={}", library.display());
        println!("cargo::rustc-link-search=native={}", library.with_file_name("").display());
        // As a whole, because it comes before the standard library that calls it.
        println!("cargo::rustc-link-lib=static:+whole-archive,-bundle=gcc_eh");
    }
}

/// Returns the path of the static unwinder of the target, if the linker is a compiler that has one.
fn unwinder() -> Option<PathBuf> {
    let variable = |name| env::var(name).unwrap_or_default();
    let is_linux = variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    let is_static = variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == "crt-static");
    let linker = match env::var("RUSTC_LINKER") {
        Ok(linker) => linker,
        Err(_) if variable("HOST") == variable("TARGET") => "cc".to_owned(),
        Err(_) => return None,
    };
    if !is_linux || is_static {
        return None;
    }
    let output = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    // A compiler without the file prints its name alone.
    (path.is_absolute() && path.is_file()).then_some(path)
}
