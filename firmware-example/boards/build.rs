//! Tells the linker where the board's memory is, and writes the settings of the build.

use std::env;
use std::fmt::Debug;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

#[path = "../build_secret.rs"]
mod build_secret;

/// A board: its cargo feature, its memory if the chip's crate does not know it, and arguments of the linker.
struct Board {
    feature: &'static str,
    memory: &'static str,
    linker: &'static [&'static str],
}

const BOARDS: &[Board] = &[
    Board {
        feature: "W5500_EVB_PICO",
        // The chip's loader reads 256 bytes, which set up the flash.
        memory: "MEMORY
{
  BOOT2 : ORIGIN = 0x10000000, LENGTH = 0x100
  FLASH : ORIGIN = 0x10000100, LENGTH = 2048K - 0x100
  RAM : ORIGIN = 0x20000000, LENGTH = 264K
}
",
        linker: &["--nmagic", "-Tlink.x", "-Tlink-rp.x", "-Tdefmt.x"],
    },
    Board {
        feature: "NUCLEO_H743ZI",
        // The Ethernet's DMA reaches the RAM of the AXI bus, and not that beside the core (DTCM), which has the stack alone:
        // one that overflows is a fault.
        memory: "MEMORY
{
  FLASH : ORIGIN = 0x08000000, LENGTH = 2048K
  RAM : ORIGIN = 0x24000000, LENGTH = 512K
  DTCM : ORIGIN = 0x20000000, LENGTH = 128K
}
_stack_start = ORIGIN(DTCM) + LENGTH(DTCM);
_stack_end = ORIGIN(DTCM);
",
        linker: &["--nmagic", "-Tlink.x", "-Tdefmt.x"],
    },
    Board { feature: "ESP32_C6", memory: "", linker: &["-Tdefmt.x", "-Tlinkall.x"] },
];

/// Returns a setting of the build, if there is one.
fn setting<T>(name: &str, what: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    println!("cargo::rerun-if-env-changed={name}");
    let text = env::var(name).ok().filter(|text| !text.is_empty())?;
    let value = read(&text);
    if value.is_none() {
        println!("cargo::error={name}={text}: {what}");
    }
    value
}

/// Reads `192.168.1.20/24`.
fn network(text: &str) -> Option<([u8; 4], u8)> {
    let (address, bits) = text.split_once('/')?;
    Some((address.parse::<Ipv4Addr>().ok()?.octets(), bits.parse().ok().filter(|&bits| bits <= 32)?))
}

/// Writes a constant.
fn constant(name: &str, kind: &str, value: impl Debug) -> String {
    format!("pub(crate) const {name}: Option<{kind}> = {value:?};\n")
}

fn main() {
    let mut chosen =
        BOARDS.iter().filter(|board| env::var_os(format!("CARGO_FEATURE_{}", board.feature)).is_some());
    let (Some(board), None) = (chosen.next(), chosen.next()) else {
        let names: Vec<_> =
            BOARDS.iter().map(|board| board.feature.to_lowercase().replace('_', "-")).collect();
        println!("cargo::error=choose one board: --features {}", names.join(", or --features "));
        return;
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it for build scripts"));
    let ranks = setting("HYDRANT_RANKS", "a number of ranks", |text| text.parse::<u32>().ok());
    let address = setting("HYDRANT_ADDRESS", "an address such as 192.168.1.20/24", network);
    let gateway = setting("HYDRANT_GATEWAY", "an IPv4 address", |text| text.parse::<Ipv4Addr>().ok());
    let settings = [
        constant("RANKS", "u32", ranks),
        constant("ADDRESS", "([u8; 4], u8)", address),
        constant("GATEWAY", "[u8; 4]", gateway.map(|gateway| gateway.octets())),
    ];
    fs::write(out.join("settings.rs"), settings.concat()).expect("cargo made the folder");
    build_secret::write(&out);
    if !board.memory.is_empty() {
        fs::write(out.join("memory.x"), board.memory).expect("cargo made the folder");
        println!("cargo::rustc-link-search={}", out.display());
    }
    for argument in board.linker {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    for script in ["build.rs", "../build_secret.rs"] {
        println!("cargo::rerun-if-changed={script}");
    }
}
