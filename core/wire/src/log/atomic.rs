//! Atomic types of the readers of a log. `tests/loom` compiles readers and writer with those of loom instead.

pub(super) use core::sync::atomic::{AtomicU32, Ordering, fence};
