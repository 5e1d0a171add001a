//! Child processes: looking up a program, starting one, and killing process groups after the end of this process.

mod fork;
mod group;
mod guardian;
mod helper;
mod lookup;
mod spawn;
mod stat;
mod tree;

use std::io;

pub use fork::{can_fork, fork};
pub use group::{group_of, leads_session, own_group};
pub use guardian::{Guardian, MARK};
pub use helper::{HelperError, start_helper};
pub use lookup::{DEFAULT_PATH, check_executable, find_in_path};
pub use spawn::{Attributes, Request, spawn};
pub use stat::{Stat, stat};
pub use tree::{
    Process, below, children, had_helpers, has_default_action, helper_collected, helpers, processes,
    stdin_pipe,
};
use tree::{forget_helpers, helper_started};

use crate::sys;

/// Detaches this process from the life of its parent: the system does not kill it when its parent ends.
///
/// # Errors
/// The system refuses.
pub fn outlive_parent() -> io::Result<()> {
    sys::outlive_parent()
}

/// Makes this process the parent of the children that its child processes leave behind. Does nothing on macOS, which has no
/// such setting.
///
/// # Errors
/// The system refuses.
pub fn adopt_orphans() -> io::Result<()> {
    sys::adopt_orphans()
}

/// Gives the calling thread, and those and processes that it starts later, the policy `SCHED_BATCH` (`sched(7)`): when one of them
/// wakes up, it preempts no other process. Leaves another policy than the default one, which the user has chosen, and does nothing
/// except on Linux.
pub fn schedule_as_batch() {
    sys::schedule_as_batch();
}

/// Shows `program` and `args` as the arguments of this process, as if it had been started with them, and the last part of
/// `program` as its name. Arguments that are longer than those that it was started with are not shown. Does nothing except
/// on Linux.
pub fn set_title(program: &[u8], args: &[&[u8]]) {
    sys::set_title(program, args);
}
