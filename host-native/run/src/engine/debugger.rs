//! Table of processes for debuggers (MPIR).

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::mpir::Process;
use hydrant_control::Job;
use hydrant_control::protocol::Program;
use hydrant_core::JobId;

use super::{Engine, Head};

impl Head {
    /// Shows debuggers the ranks of the job of the command line, once all of them have been started.
    pub(super) fn show_debuggers(&mut self, engine: &mut Engine<'_>, id: JobId) {
        let job = self.control.jobs().get(id).filter(|job| is_complete(job));
        let Some(job) = job.filter(|_| !self.debuggers_informed) else { return };
        self.debuggers_informed = true;
        if crate::mpir::is_awaited() {
            // The debugger stops this process, which then sends no heartbeats.
            engine.announce_pause();
        }
        let hosts: Vec<&str> = self.control.hosts().iter().map(|host| host.name.as_str()).collect();
        publish(job, &hosts, |rank| job.run.node(rank).saturating_sub(1));
    }
}

/// Returns whether this is the job of the command line and all of its ranks have been started.
fn is_complete<R>(job: &Job<R>) -> bool {
    job.is_of_command_line() && job.started() >= job.size()
}

/// Publishes the ranks of a job. `host` returns the index of a rank's host.
fn publish<R>(job: &Job<R>, hosts: &[&str], host: impl Fn(u32) -> u32) {
    let hosts: Vec<CString> = hosts.iter().map(|host| text(host.as_bytes())).collect();
    let programs: Vec<CString> = job.programs.iter().map(path).collect();
    let of_ranks = programs
        .iter()
        .zip(&*job.programs)
        .flat_map(|(path, program)| std::iter::repeat_n(path.as_c_str(), program.ranks as usize));
    let process = |(rank, program)| {
        let host = hosts.get(host(rank) as usize).map_or(c"", CString::as_c_str);
        Process { host, program, pid: job.pid(rank).unwrap_or(0) }
    };
    let processes: Vec<Process<'_>> = (0..).zip(of_ranks).map(process).collect();
    crate::mpir::publish(&processes);
}

/// Path of a program. A name without a slash is in the PATH of its host.
fn path(program: &Program) -> CString {
    let command = program.command.as_os_str();
    if !command.as_bytes().contains(&b'/') {
        return text(command.as_bytes());
    }
    let here = std::env::current_dir().unwrap_or_default();
    let wdir = program.wdir.as_deref().unwrap_or(Path::new(""));
    text(here.join(wdir).join(command).as_os_str().as_bytes())
}

/// A text for the table. Command lines and host names hold no zero byte.
fn text(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_default()
}
