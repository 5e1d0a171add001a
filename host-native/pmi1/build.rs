//! Gives the library the name that programs linked with `-lpmi` look for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpmi.so.0");
}
