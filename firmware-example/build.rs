//! Tells the linker where the board's memory is, and writes the secret of the build.

use std::env;
use std::fs;
use std::path::PathBuf;

mod build_secret;

/// A board's cargo feature, and its flash and RAM: where they start, and their KiB.
const BOARDS: &[(&str, (u32, u32), (u32, u32))] =
    &[("LM3S6965EVB", (0, 256), (0x2000_0000, 64)), ("MPS2_AN386", (0, 4096), (0x2000_0000, 4096))];

fn main() {
    let chosen = |board: &&(&str, _, _)| env::var_os(format!("CARGO_FEATURE_{}", board.0)).is_some();
    let Some((_, flash, ram)) = BOARDS.iter().find(chosen) else {
        println!("cargo::error=choose a board: --features lm3s6965evb, or --features mps2-an386");
        return;
    };
    let line = |name: &str, (start, kib): (u32, u32)| {
        format!("  {name} : ORIGIN = {start:#010x}, LENGTH = {kib}K\n")
    };
    let text = format!("MEMORY\n{{\n{}{}}}\n", line("FLASH", *flash), line("RAM", *ram));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it for build scripts"));
    fs::write(out.join("memory.x"), text).expect("cargo made the folder");
    build_secret::write(&out);
    println!("cargo::rustc-link-search={}", out.display());
    for arg in ["--nmagic", "-Tlink.x", "-Tdefmt.x"] {
        println!("cargo::rustc-link-arg-bins={arg}");
    }
    println!("cargo::rerun-if-env-changed=HYDRANT_RANKS");
    println!("cargo::rerun-if-env-changed=HYDRANT_CLIENTS");
    for script in ["build.rs", "build_secret.rs"] {
        println!("cargo::rerun-if-changed={script}");
    }
}
