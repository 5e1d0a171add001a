//! Modules of the core's store, with loom's atomic types.

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the core uses the rest")]
#[path = "../../../core/src/store/log.rs"]
pub(crate) mod log;
