//! Names the library in itself, so that what is linked with it finds it by that name and not by a path.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libhydrant_mpi.so");
    println!("cargo::rerun-if-changed=build.rs");
}
