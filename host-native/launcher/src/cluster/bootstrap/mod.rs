//! Start of the daemons of a node's children, and what each daemon is told over its standard input.

mod process;
mod record;

pub(super) use process::Process;
pub(crate) use record::{Record, RecordError, Settings};
