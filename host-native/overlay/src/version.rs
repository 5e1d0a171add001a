//! Version that all nodes of a run have in common.

/// Version of this crate, with the data model unless that is 64-bit little-endian. A daemon refuses a launcher of another
/// version, so all hosts of a run have one data model, as the attribute `isHeterogeneous` of pmi2.h says.
pub(crate) const VERSION: &str = VERSION_OF_MODEL;

#[cfg(all(target_pointer_width = "64", target_endian = "little"))]
const VERSION_OF_MODEL: &str = env!("CARGO_PKG_VERSION");
#[cfg(all(target_pointer_width = "64", target_endian = "big"))]
const VERSION_OF_MODEL: &str = concat!(env!("CARGO_PKG_VERSION"), " (64-bit, big-endian)");
#[cfg(all(target_pointer_width = "32", target_endian = "little"))]
const VERSION_OF_MODEL: &str = concat!(env!("CARGO_PKG_VERSION"), " (32-bit)");
#[cfg(all(target_pointer_width = "32", target_endian = "big"))]
const VERSION_OF_MODEL: &str = concat!(env!("CARGO_PKG_VERSION"), " (32-bit, big-endian)");
