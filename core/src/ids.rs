//! Identifiers. All are dense indices that a host may use for its own arrays.

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
            /// The number as a slice index. Every supported target has at least 32-bit addresses.
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
    /// A job: a set of ranks with a key-value space of their own. Chosen by the host, below [`crate::Limits::jobs`].
    JobId
}
index! {
    /// A process's number in its job, from 0 to the job's size less one.
    Rank
}
index! {
    /// A request that the host carries out, below [`crate::Limits::spawns`].
    UpcallId
}
index! {
    /// A client connection. Chosen by the host, below [`crate::Limits::conns`]; free for reuse once closed.
    ConnId
}
