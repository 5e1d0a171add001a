//! Requests of PMIx clients that a host carries out by itself: looks at files that are monitored, and texts for the log of the
//! system.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use hydrant_control::Upcall;
use hydrant_core::wire::pmix::{Command, HostCall, Integers, Proc, Writer, event, keys, kind, status};
use hydrant_core::{Input, JobId, Rank, Refusal, Time, UpcallId};

use super::status::Asker;
use super::{Engine, Head};
use crate::error::RunError;

/// Sockets of the log of Linux, macOS and FreeBSD.
const SYSLOG: [&str; 3] = ["/dev/log", "/var/run/syslog", "/var/run/log"];
/// Facility of messages of user programs.
const FACILITY: u8 = 1;

/// Returns whether the host of a rank carries out a request, and not that of the head.
pub(super) fn is_local(request: &[u8]) -> bool {
    matches!(HostCall::read(request), Some(HostCall::File(_) | HostCall::Syslog { global: false, .. }))
}

impl Engine<'_> {
    /// Carries out a request of a rank of this node.
    pub(super) fn take_host_call(
        &mut self,
        upcall: UpcallId,
        (job, rank): (JobId, Rank),
        request: &[u8],
    ) -> Result<(), RunError> {
        let name = self.jobs.get(job).map_or("", |job| &job.name);
        let (rc, text) = match HostCall::read(request) {
            Some(HostCall::File(path)) => {
                return self.ask_for_look(upcall, Path::new(OsStr::from_bytes(path)).to_owned());
            }
            Some(call) => carry_out(name, rank, call),
            None => (Refusal::Unsupported.rc(), Vec::new()),
        };
        let now = Time(self.now());
        Ok(self.core.handle(now, Input::UpcallComplete { upcall, rc, text: &text })?)
    }
}

impl Head {
    /// Carries out a request of a client of any node, and answers it.
    pub(super) fn take_host_call(
        &mut self,
        engine: &mut Engine<'_>,
        asker: Asker,
        upcall: Upcall,
    ) -> Result<(), RunError> {
        let (rc, text) = match HostCall::read(&upcall.request) {
            Some(HostCall::Query(_)) => return self.answer_pmix_query(engine, asker, upcall),
            Some(HostCall::Command { integers, command: Command::Spawn { infos, apps } })
                if matches!(asker, Asker::Tool(_)) =>
            {
                return self.spawn_for_tool(engine, (upcall.id, upcall.job), integers, (&infos, &apps));
            }
            Some(HostCall::Command { integers, command: Command::Notify { event, infos, .. } }) => {
                if event == event::DEBUGGER_RELEASE {
                    self.release_first_job(engine, upcall.job, &infos)?;
                    self.note_release(&infos);
                }
                (0, reply_body(integers, |writer| writer.status(status::SUCCESS)))
            }
            Some(HostCall::Waits { integers }) => {
                self.note_waiting(engine, (upcall.job, upcall.rank), integers);
                (0, Vec::new())
            }
            Some(HostCall::Command { integers, command: Command::Get { proc, .. } }) => {
                let job = self.control.jobs().named(proc.namespace);
                let pid = job.filter(|job| proc.rank < job.size()).and_then(|job| job.pid(proc.rank));
                (0, process_id(integers, proc, pid))
            }
            Some(HostCall::Command { integers, command: Command::Allocate { directive, infos } }) => {
                return self.allocate(engine, asker, integers, (directive, &infos));
            }
            Some(HostCall::Command { integers, command }) => {
                match self.obey_pmix_command(engine, asker, upcall.job, integers, command)? {
                    Some(body) => (0, body),
                    None => return Ok(()),
                }
            }
            Some(HostCall::Help { integers, text }) => {
                self.take_help_text(engine, (upcall.job, upcall.rank), &text);
                (0, reply_body(integers, |writer| writer.status(status::SUCCESS)))
            }
            Some(call) => {
                let name = self.control.jobs().get(upcall.job).map_or("", |job| &job.name);
                carry_out(name, upcall.rank, call)
            }
            None => (Refusal::Unsupported.rc(), Vec::new()),
        };
        self.answer_asker(engine, asker, rc, text)
    }
}

/// Carries out a request of a rank that concerns one host. Returns the result code and the answer.
fn carry_out(job: &str, rank: Rank, call: HostCall<'_>) -> (i32, Vec<u8>) {
    match call {
        HostCall::Syslog { integers, priority, text, .. } => {
            let line = line(priority, job, rank, text);
            let logged = SYSLOG.iter().any(|path| log(Path::new(path), &line).is_ok());
            let code = if logged { status::SUCCESS } else { status::NOT_AVAILABLE };
            (0, reply_body(integers, |writer| writer.status(code)))
        }
        HostCall::File(_)
        | HostCall::Query(_)
        | HostCall::Command { .. }
        | HostCall::Help { .. }
        | HostCall::Waits { .. } => (Refusal::Unsupported.rc(), Vec::new()),
    }
}

/// Returns the body of the reply to a get of the process id of a rank.
fn process_id(integers: Integers, proc: Proc<'_>, pid: Option<u32>) -> Vec<u8> {
    reply_body(integers, |writer| {
        let Some(pid) = pid else { return writer.status(status::NOT_FOUND) };
        writer.status(status::SUCCESS);
        writer.single();
        writer.blob_of(|writer| {
            writer.single();
            writer.proc(proc.namespace, proc.rank);
            writer.key(keys::PROC_PID, kind::PID);
            writer.pid(pid);
        });
    })
}

/// Returns the body of a reply to a client.
pub(super) fn reply_body(integers: Integers, write: impl Fn(&mut Writer<'_>)) -> Vec<u8> {
    let mut measured = Writer::new(integers, &mut []);
    write(&mut measured);
    let mut body = vec![0; measured.len()];
    write(&mut Writer::new(integers, &mut body));
    body
}

/// Returns a message for the log of the system (RFC 3164 without a time, which the log adds).
fn line(priority: u8, job: &str, rank: Rank, text: &[u8]) -> Vec<u8> {
    let head =
        format!("<{}>hydrant[{}]: {job} rank {rank}: ", FACILITY << 3 | priority & 7, std::process::id());
    [head.as_bytes(), text.trim_ascii_end()].concat()
}

/// Sends a message to the socket of a log, which never waits.
fn log(path: &Path, line: &[u8]) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to(line, path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_reaches_the_log_of_the_system() {
        let path = std::env::temp_dir().join(format!("hydrant-log-{}", std::process::id()));
        let there = UnixDatagram::bind(&path).unwrap();
        log(&path, &line(3, "run.1", Rank(2), b"disk full\n")).unwrap();
        let mut bytes = [0; 100];
        let len = there.recv(&mut bytes).unwrap();
        let expected = format!("<11>hydrant[{}]: run.1 rank 2: disk full", std::process::id());
        assert_eq!(String::from_utf8_lossy(&bytes[..len]), expected);
        std::fs::remove_file(&path).unwrap();
        assert!(log(&path, b"nobody reads").is_err());
    }
}
