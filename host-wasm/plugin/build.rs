//! Linker arguments: the module's memory maximum and its stack.

fn main() {
    const MAX: &str = "HYDRANT_PLUGIN_MEMORY_MAX";
    println!("cargo::rerun-if-env-changed={MAX}");
    // 1 GiB is enough for 15,000 ranks with the default limits.
    let max = std::env::var(MAX).unwrap_or_else(|_| (1u32 << 30).to_string());
    println!("cargo::rustc-cdylib-link-arg=--max-memory={max}");
    // With the stack at the lowest addresses, an overflow traps instead of overwriting data.
    println!("cargo::rustc-cdylib-link-arg=--stack-first");
    println!("cargo::rustc-cdylib-link-arg=-zstack-size={}", 256 << 10);
}
