//! Limits of host lists and jobs.

/// Maximum number of dimensions of a Cartesian network.
pub(crate) const DIMENSIONS_MAX: usize = 8;

/// Maximum length of a host name in bytes, as in DNS.
pub const HOST_NAME_MAX: usize = 253;

/// Maximum number of hosts of a job. A short list reaches it, which would take most of the time of fuzzing.
pub const HOSTS_MAX: usize = if cfg!(fuzzing) { 512 } else { 65_536 };

/// Maximum number of ranks of a job on several hosts.
pub const RANKS_MAX: u32 = 1 << 24;
