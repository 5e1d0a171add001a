//! Atomic types of the log and of its readers. `tests/loom` compiles both with those of loom instead.

pub(crate) use core::sync::atomic::{AtomicU32, Ordering, fence};
