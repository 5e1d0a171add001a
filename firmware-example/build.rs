//! Tells the linker where the board's memory is, and writes the secret of the build.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// A board's cargo feature, and its flash and RAM: where they start, and their KiB.
const BOARDS: &[(&str, (u32, u32), (u32, u32))] =
    &[("LM3S6965EVB", (0, 256), (0x2000_0000, 64)), ("MPS2_AN386", (0, 4096), (0x2000_0000, 4096))];

/// Fewest bytes of a secret.
const SECRET_MIN: usize = 16;

/// Writes the text of the file that `HYDRANT_SECRET_FILE` names as a constant. A board without one has no secret.
fn write_secret(out: &Path) {
    println!("cargo::rerun-if-env-changed=HYDRANT_SECRET_FILE");
    let text = env::var_os("HYDRANT_SECRET_FILE").filter(|path| !path.is_empty()).and_then(|path| {
        println!("cargo::rerun-if-changed={}", Path::new(&path).display());
        match fs::read(&path) {
            Ok(text) if text.trim_ascii().len() >= SECRET_MIN => Some(text.trim_ascii().to_vec()),
            Ok(_) => {
                println!("cargo::error=HYDRANT_SECRET_FILE: a secret has at least {SECRET_MIN} bytes");
                None
            }
            Err(why) => {
                println!("cargo::error=HYDRANT_SECRET_FILE: {why}");
                None
            }
        }
    });
    let text = text.map_or_else(|| "None".to_owned(), |text| format!("Some(&{text:?})"));
    fs::write(out.join("secret.rs"), text).expect("cargo made the folder");
}

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
    write_secret(&out);
    println!("cargo::rustc-link-search={}", out.display());
    for arg in ["--nmagic", "-Tlink.x", "-Tdefmt.x"] {
        println!("cargo::rustc-link-arg-bins={arg}");
    }
    println!("cargo::rerun-if-env-changed=HYDRANT_RANKS");
    println!("cargo::rerun-if-env-changed=HYDRANT_CLIENTS");
    println!("cargo::rerun-if-changed=build.rs");
}
