//! Text of `--version`: features, protocols, formats and target of this build.

use std::sync::LazyLock;

use hydrant_core::manage;

/// Version of the package, for `-V`.
pub(super) const SHORT: &str = env!("CARGO_PKG_VERSION");

/// Versions of libpmix whose clients are served.
const LIBPMIX: &str = "3 to 6";

/// Version of the package, and a line for each property of the build.
pub(super) fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let features = if cfg!(feature = "sandbox") { "sandbox" } else { "none" };
        format!(
            "{SHORT}\n\
             features:     {features}\n\
             clients:      PMI 1.1, 1.2 and 2.0; PMIx of libpmix {LIBPMIX}\n\
             recordings:   version {}\n\
             management:   version {}\n\
             target:       {}",
            hydrant_record::VERSION,
            manage::VERSION,
            target(),
        )
    });
    &TEXT
}

/// Architecture, system and C library that the program was built for.
fn target() -> String {
    let library = match () {
        () if cfg!(target_env = "gnu") => "-gnu",
        () if cfg!(target_env = "musl") => "-musl",
        () => "",
    };
    let linking = if cfg!(target_feature = "crt-static") { ", static" } else { "" };
    format!("{}-{}{library}{linking}", std::env::consts::ARCH, std::env::consts::OS)
}
