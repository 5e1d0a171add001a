//! Version that all nodes of a run have in common.

/// Version of this crate. A daemon refuses a launcher of another version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
