//! Modules of the core's store, with loom's atomic types.

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}
#[path = "../../../core/src/store/entry.rs"]
mod entry;
#[allow(dead_code, unreachable_pub, reason = "the core uses the rest")]
#[path = "../../../core/src/store/log.rs"]
pub(crate) mod log;
#[allow(dead_code, unreachable_pub, reason = "the core uses the rest")]
#[path = "../../../core/src/store/view.rs"]
pub(crate) mod view;
