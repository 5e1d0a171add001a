//! Finds the version of Slurm, which loads plugins of its own version only, and keeps the library loaded.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=HYDRANT_SLURM_INCLUDE");
    let include = env::var_os("HYDRANT_SLURM_INCLUDE").map_or("/usr/include".into(), PathBuf::from);
    let header = include.join("slurm/slurm_version.h");
    println!("cargo::rerun-if-changed={}", header.display());
    // Slurm refuses version 0, which lets the workspace be built without Slurm.
    let number = fs::read_to_string(header).ok().and_then(|text| version(&text)).unwrap_or(0);
    println!("cargo::rustc-env=HYDRANT_SLURM_VERSION={number}");
    // Threads of the library may run when Slurm unloads its plugins.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

/// Returns the number in `#define SLURM_VERSION_NUMBER 0x160508`.
fn version(text: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("#define SLURM_VERSION_NUMBER"))?;
    u32::from_str_radix(line.trim().strip_prefix("0x")?, 16).ok()
}
