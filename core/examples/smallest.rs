//! Smallest host: a job of two ranks whose requests come from memory, without sockets, threads, clock or allocator.
//!
//! On a microcontroller the requests would come from a UART or a network stack, and [`print`] would send the replies.

use hydrant_core::storage::FixedStorage;
use hydrant_core::{ConnId, Fault, Input, JobId, JobSpec, Limits, Output, Rank, Server, Time, fixed_storage};

const LIMITS: Limits = Limits { jobs: 1, ranks: 2, conns: 2, keys: 16, kvs_bytes: 1024, ..Limits::NONE };
const JOB: JobId = JobId(0);

/// Requests of both ranks, in the order in which they arrive.
const REQUESTS: [(u32, &[u8]); 9] = [
    (0, b"cmd=init pmi_version=1 pmi_subversion=1\n"),
    (1, b"cmd=init pmi_version=1 pmi_subversion=1\n"),
    (0, b"cmd=put kvsname=job key=address value=10.0.0.7\n"),
    // The reply to the first rank comes when the second one has arrived.
    (0, b"cmd=barrier_in\n"),
    (1, b"cmd=barrier_in\n"),
    (1, b"cmd=get kvsname=job key=address\n"),
    (1, b"cmd=get kvsname=job key=port\n"),
    (0, b"cmd=finalize\n"),
    (1, b"cmd=finalize\n"),
];

/// Serves the job.
pub(crate) fn main() -> Result<(), Fault> {
    let mut storage: fixed_storage!(LIMITS) = FixedStorage::new();
    let mut server = Server::new(LIMITS, storage.lend(), 1)?;
    // A host without timeouts needs no clock.
    let now = Time(0);
    server.handle(now, Input::RegisterJob(JobSpec::new(JOB, "job", LIMITS.ranks)))?;
    for rank in 0..LIMITS.ranks {
        server.handle(now, Input::Opened { conn: ConnId(rank), job: JOB, rank: Some(Rank(rank)) })?;
    }
    let mut buffer = [0; LIMITS.output_max()];
    for (rank, bytes) in REQUESTS {
        server.handle(now, Input::Bytes { conn: ConnId(rank), bytes, full: false })?;
        while let Some(output) = server.poll(&mut buffer)? {
            match output {
                Output::Bytes { conn, bytes } => print(conn, bytes),
                Output::AbortJob { cause, .. } => println!("the job ends: {cause}"),
                _ => {}
            }
        }
    }
    Ok(())
}

fn print(conn: ConnId, reply: &[u8]) {
    print!("to rank {conn}: {}", reply.escape_ascii().to_string().replace("\\n", "\n"));
}
