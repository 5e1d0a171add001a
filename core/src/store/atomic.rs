//! Atomic types of the log. `tests/loom` compiles it with those of loom instead.

#[cfg(feature = "cluster")]
pub(crate) use core::sync::atomic::fence;
pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
