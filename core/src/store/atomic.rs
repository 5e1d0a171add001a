//! Atomic types of the log. `tests/loom` compiles it with those of loom instead.

pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
