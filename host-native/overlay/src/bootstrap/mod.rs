//! Start of the daemons of a node's children.

mod guide;
mod host_runs;
mod process;
mod spec;
mod srun_output;

use std::ffi::OsString;

use hydrant_placement::Bootstrap;
use hydrant_reactor::Error;

pub(crate) use guide::{ANSWER_LEN, Guide, QUESTION_LEN, QUESTION_MAGIC, Question, StepSecret};
pub(crate) use process::{BootstrapProcess, may_pass};
pub use spec::{DaemonMain, DaemonSettings, DaemonSpec};
pub(crate) use spec::{StartRecord, StepSpec};
pub(crate) use srun_output::ended_host;

/// Path of the `hydrant` program that daemons run: `remote` if it is given, otherwise the value of `HYDRANT_REMOTE`,
/// otherwise the path of this program. [`Bootstrap::Local`] always uses this program.
///
/// # Errors
/// The path of this program is unknown.
pub fn daemon_program(remote: Option<&OsString>, bootstrap: &Bootstrap) -> Result<OsString, Error> {
    let remote = remote.cloned().or_else(|| std::env::var_os("HYDRANT_REMOTE"));
    match remote.filter(|_| *bootstrap != Bootstrap::Local) {
        Some(remote) => Ok(remote),
        None => std::env::current_exe()
            .map(Into::into)
            .map_err(Error::during("cannot find the path of this program")),
    }
}
