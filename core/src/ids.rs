//! Identifiers: dense indices, which a host may use for its own arrays.

use serde::{Deserialize, Serialize};

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u32);

        #[cfg(feature = "defmt")]
        impl defmt::Format for $name {
            fn format(&self, f: defmt::Formatter<'_>) {
                defmt::write!(f, "{=u32}", self.0);
            }
        }

        impl $name {
            /// Returns the number as a slice index. Every supported target has addresses of at least 32 bits.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index! {
    /// Number of a job: a set of ranks with its own key-value space. The host chooses it, below
    /// [`crate::Limits::jobs`].
    JobId
}
index! {
    /// Number of a process in its job, from 0 to the job's size minus one.
    Rank
}
index! {
    /// Number of an upcall: a request that the host carries out. It is below [`crate::Limits::spawns`].
    UpcallId
}
index! {
    /// Number of a client connection. The host chooses it, below [`crate::Limits::conns`], and may reuse it after the
    /// connection is closed.
    ConnId
}
