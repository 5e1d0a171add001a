//! Structures of `hydrant_host.h`.

use std::ffi::c_char;
use std::ptr;

use hydrant_core::trace::{Cause, Closing, Exit};
use hydrant_core::{Limits, Malformed, Output};

use super::error::number;
use crate::{CloseReason, Event};

/// Number that stands for none: `HYDRANT_NONE`.
pub(crate) const NONE: u32 = u32::MAX;

/// Kind of an output about a socket of the library that it has closed: `HYDRANT_OUTPUT_DISCONNECTED`. Numbers from here on are
/// those of the library, below are those of the plugin's ABI.
pub(crate) const DISCONNECTED: u32 = 64;
/// Reason of the library for closing a connection: `HYDRANT_CLOSING_NO_HANDSHAKE`.
pub(crate) const NO_HANDSHAKE: u32 = 64;
/// The same: `HYDRANT_CLOSING_OVERRUN`.
pub(crate) const OVERRUN: u32 = 65;

/// Defines structures, and the lists of their fields for the comparison with the header.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident as $c:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }
        )*

        /// Each structure's name in C, with the names and types of its fields.
        #[cfg(test)]
        pub(crate) const STRUCTURES: &[(&str, &[(&str, &str)])] =
            &[$(($c, &[$((stringify!($field), stringify!($type))),*])),*];
    };
}

structures! {
    /// Capacities of a server, `hydrant_limits`: [`Limits`].
    #[allow(missing_docs, reason = "documented in Limits, under the same names")]
    HostLimits as "hydrant_limits" {
        jobs: u32,
        ranks: u32,
        conns: u32,
        keys: u32,
        kvs_bytes: u32,
        groups: u32,
        names: u32,
        spawns: u32,
        spawn_bytes: u32,
        psets: u32,
        links: u32,
        commit_bytes: u32,
    }

    /// Settings of a host, `hydrant_settings`.
    HostSettings as "hydrant_settings" {
        /// Version of the ABI that the caller was built with.
        abi_version: u32,
        /// How long one call of a plugin may take, in milliseconds.
        call_ms: u32,
        /// File of the plugin, or NULL for the built-in server.
        plugin: *const c_char,
        /// Folder for compiled plugins, or NULL for none.
        cache: *const c_char,
        /// Capacities of the server.
        limits: HostLimits,
    }

    /// Description of a job, `hydrant_job`: [`JobSpec`](hydrant_core::JobSpec).
    HostJob as "hydrant_job" {
        /// Its number.
        job: u32,
        /// Number of ranks.
        size: u32,
        /// Its name, the job id of PMI.
        name: *const c_char,
        /// Name of the job that spawned it, or NULL.
        spawner: *const c_char,
        /// Number of the spawn, or `HYDRANT_NONE`.
        spawn: u32,
        /// Maximum number of processes in total, or 0 if it is not known.
        universe_size: u32,
        /// Whether a rank that fails ends the job.
        cleanup: u32,
        /// PMI-1 subversion.
        pmi1_subversion: u32,
        /// Milliseconds that a look-up waits for a name.
        lookup_wait: u64,
        /// Milliseconds after which a fence is reported, or 0.
        fence_warning: u64,
        /// Whether the host has the name service.
        remote_names: u32,
        /// Pairs that travel with fences: variant number of the [`FenceMode`](hydrant_core::server::FenceMode).
        fence: u32,
    }

    /// Output of a server, `hydrant_output`: [`Output`]. Fields that a kind of output does not have are 0.
    HostOutput as "hydrant_output" {
        /// Variant number of the [`Output`].
        kind: u32,
        /// Connection.
        conn: u32,
        /// Job.
        job: u32,
        /// Rank.
        rank: u32,
        /// Number of the upcall or spawn.
        upcall: u32,
        /// Protocol of a request.
        protocol: u32,
        /// Neighbour.
        node: u32,
        /// Reason for closing.
        closing: u32,
        /// Defect in the bytes of the client, if that is the reason.
        malformed: u32,
        /// Cause of an abort.
        cause: u32,
        /// Whether the rank requested an exit code.
        code_given: u32,
        /// That exit code.
        code: i32,
        /// End of the process that is the cause.
        exit: u32,
        /// Its exit code or signal.
        exit_number: u32,
        /// Exit code of the launcher for this abort, or for the rank to kill.
        exit_code: u32,
        /// Ranks that have arrived.
        arrived: u32,
        /// Ranks that must arrive.
        size: u32,
        /// Standard output or standard error.
        stream: u32,
        /// The other of two jobs.
        other: u32,
        /// Whether the two are connected.
        connected: u32,
        /// Reply, request, message, paths or text: `len` bytes.
        bytes: *const u8,
        /// Number of bytes.
        len: usize,
    }
}

impl From<Limits> for HostLimits {
    fn from(limits: Limits) -> HostLimits {
        HostLimits {
            jobs: limits.jobs,
            ranks: limits.ranks,
            conns: limits.conns,
            keys: limits.keys,
            kvs_bytes: limits.kvs_bytes,
            groups: limits.groups,
            names: limits.names,
            spawns: limits.spawns,
            spawn_bytes: limits.spawn_bytes,
            psets: limits.psets,
            links: limits.links,
            commit_bytes: limits.commit_bytes,
        }
    }
}

impl From<HostLimits> for Limits {
    fn from(limits: HostLimits) -> Limits {
        Limits {
            jobs: limits.jobs,
            ranks: limits.ranks,
            conns: limits.conns,
            keys: limits.keys,
            kvs_bytes: limits.kvs_bytes,
            groups: limits.groups,
            names: limits.names,
            spawns: limits.spawns,
            spawn_bytes: limits.spawn_bytes,
            psets: limits.psets,
            links: limits.links,
            commit_bytes: limits.commit_bytes,
        }
    }
}

impl HostOutput {
    /// No output. As a kind, it is that of no variant.
    pub(crate) const NONE: HostOutput = HostOutput {
        kind: NONE,
        conn: 0,
        job: 0,
        rank: 0,
        upcall: 0,
        protocol: 0,
        node: 0,
        closing: 0,
        malformed: 0,
        cause: 0,
        code_given: 0,
        code: 0,
        exit: 0,
        exit_number: 0,
        exit_code: 0,
        arrived: 0,
        size: 0,
        stream: 0,
        other: 0,
        connected: 0,
        bytes: ptr::null(),
        len: 0,
    };

    fn with_bytes(self, bytes: &[u8]) -> HostOutput {
        HostOutput { bytes: bytes.as_ptr(), len: bytes.len(), ..self }
    }

    fn with_code(self, code: Option<i32>) -> HostOutput {
        HostOutput { code_given: code.is_some().into(), code: code.unwrap_or(0), ..self }
    }

    fn with_exit(self, exit: Exit) -> HostOutput {
        let exit_number = match exit {
            Exit::Code(number) | Exit::Signal(number) => number.into(),
            Exit::Lost => 0,
        };
        HostOutput { exit: number(&exit), exit_number, ..self }
    }

    fn with_closing(self, why: Closing) -> HostOutput {
        let malformed = if let Closing::Malformed(defect) = why { number(&defect) } else { 0 };
        HostOutput { closing: number(&why), malformed, ..self }
    }

    /// Converts an output of the server. The result points to the output's bytes.
    pub(crate) fn of_output(output: Output<'_>) -> HostOutput {
        let of = |kind, job: u32, rank: u32| HostOutput { kind, job, rank, ..HostOutput::NONE };
        match output {
            Output::Bytes { conn, bytes } => HostOutput { conn: conn.0, ..of(0, 0, 0) }.with_bytes(bytes),
            Output::Close { conn, why } => HostOutput { conn: conn.0, ..of(1, 0, 0) }.with_closing(why),
            Output::Joined { conn, job, rank } => HostOutput { conn: conn.0, ..of(2, job.0, rank.0) },
            Output::Spawn { spawn, job, rank, protocol, request } => {
                let upcall = HostOutput { upcall: spawn.0, ..of(3, job.0, rank.0) };
                HostOutput { protocol: number(&protocol), ..upcall }.with_bytes(request)
            }
            Output::Upcall { upcall, job, rank, protocol, request } => {
                let upcall = HostOutput { upcall: upcall.0, ..of(4, job.0, rank.0) };
                HostOutput { protocol: number(&protocol), ..upcall }.with_bytes(request)
            }
            Output::KillRank { job, rank, code, message } => {
                let exit_code = Exit::of_killed(code).exit_code().into();
                let kill = HostOutput { exit_code, ..of(5, job.0, rank.0) };
                kill.with_code(code).with_bytes(message.as_bytes())
            }
            Output::AbortJob { job, cause, message } => {
                let (exit_code, number) = (cause.exit_code().into(), number(&cause));
                let abort = HostOutput { cause: number, exit_code, ..of(6, job.0, cause.rank().0) };
                let abort = abort.with_bytes(message.as_bytes());
                match cause {
                    Cause::Abort { code, .. } => abort.with_code(code),
                    Cause::NoFinalize { exit, .. }
                    | Cause::Died { exit, .. }
                    | Cause::Absent { exit, .. } => abort.with_exit(exit),
                }
            }
            Output::Peer { node, bytes } => HostOutput { node, ..of(7, 0, 0) }.with_bytes(bytes),
            Output::StalledFence { job, arrived, size, missing } => {
                HostOutput { arrived, size, ..of(8, job.0, 0) }.with_bytes(missing.as_bytes())
            }
            Output::RemoveFiles { job, rank, paths } => of(9, job.0, rank.0).with_bytes(paths),
            Output::Log { job, rank, stream, text } => {
                HostOutput { stream: number(&stream), ..of(10, job.0, rank.0) }.with_bytes(text)
            }
            Output::Connected { job, other, connected } => {
                HostOutput { other: other.0, connected: connected.into(), ..of(11, job.0, 0) }
            }
        }
    }

    /// Converts an event, none if its host has nothing to do. The result points to the event's bytes.
    pub(crate) fn of_event(event: &Event) -> Option<HostOutput> {
        Some(match *event {
            Event::Output(ref output) => HostOutput::of_output(output.view()),
            // The functions watch no processes.
            Event::Exited { .. } => return None,
            Event::Closed { conn, job, rank, why } => {
                let rank = rank.map_or(NONE, |rank| rank.0);
                let closed =
                    HostOutput { kind: DISCONNECTED, conn: conn.0, job: job.0, rank, ..HostOutput::NONE };
                match why {
                    CloseReason::Ended | CloseReason::Backend(Closing::JobOver | Closing::Replaced) => {
                        return None;
                    }
                    CloseReason::Backend(why) => closed.with_closing(why),
                    CloseReason::TooLong(_) => closed.with_closing(Closing::Malformed(Malformed::TooLong)),
                    CloseReason::OtherProtocol(_) => {
                        closed.with_closing(Closing::Malformed(Malformed::Handshake))
                    }
                    CloseReason::NoHandshake => HostOutput { closing: NO_HANDSHAKE, ..closed },
                    CloseReason::Overrun => HostOutput { closing: OVERRUN, ..closed },
                }
            }
        })
    }
}
