//! Tells the linker how much memory the module has.

fn main() {
    const MAX: &str = "HYDRANT_PLUGIN_MEMORY_MAX";
    println!("cargo::rerun-if-env-changed={MAX}");
    // 1 GiB, which is enough for 15,000 ranks with the usual limits.
    let max = std::env::var(MAX).unwrap_or_else(|_| (1u32 << 30).to_string());
    println!("cargo::rustc-cdylib-link-arg=--max-memory={max}");
    // The stack lies below everything else, so that one that overflows traps and overwrites nothing.
    println!("cargo::rustc-cdylib-link-arg=--stack-first");
    println!("cargo::rustc-cdylib-link-arg=-zstack-size={}", 256 << 10);
}
