//! Gives the library the name that programs linked with `-lhydrant_host` look for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libhydrant_host.so.0");
}
