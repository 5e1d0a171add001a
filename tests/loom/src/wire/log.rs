//! Modules of hydrant-wire about the format of a log, with loom's atomic types.

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}
#[path = "../../../../core/wire/src/log/entry.rs"]
mod entry;
#[path = "../../../../core/wire/src/log/record.rs"]
mod record;
#[path = "../../../../core/wire/src/log/view.rs"]
mod view;

pub(crate) use entry::Entries;
pub(crate) use record::{HEADER, Header, Key, hash, record_len};
pub(crate) use view::LogView;
