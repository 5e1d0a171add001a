//! PMIx clients of a host that starts no processes.

use hydrant_core::limits::{Limits, SPAWN_BYTES_MIN};
use hydrant_core::server::Input;
use hydrant_core::wire::pmix::{kind, status};
use hydrant_core::{ConnId, Rank};
use hydrant_driver::MappedStorage;
use hydrant_tests::host::{Host, JOB};
use hydrant_tests::pmix::{hello, message};

/// Status of a reply, which is small and not negative in its folded form.
fn status_of(reply: &[u8]) -> i32 {
    let folded = i32::from(reply[17]);
    if folded & 1 == 0 { folded / 2 } else { -(folded + 1) / 2 }
}

#[test]
fn files_are_passed_on_and_spawns_are_refused() {
    let limits = Limits { spawn_bytes: SPAWN_BYTES_MIN - 1, ..Limits::for_ranks(2) };
    let mut memory = MappedStorage::try_new(&limits).expect("there is memory");
    let mut host = Host::new(limits, &mut memory).expect("the memory suffices");
    host.job("board", 2).expect("the job is valid");
    host.open(0, None).expect("the number is free");
    host.ask(0, &hello("board", 1));
    let cleanup = message(101, 18, |writer| {
        writer.array(0);
        writer.array(1);
        writer.info(b"pmix.reg.cleanup", kind::STRING);
        writer.string(b"/dev/shm/segment");
    });
    assert_eq!(status_of(&host.ask(0, &cleanup)), status::SUCCESS);
    let [removal] = &host.events[..] else { panic!("{:?}", host.events) };
    assert!(removal.starts_with("RemoveFiles { job: JobId(0), rank: Rank(1)"), "{removal}");
    // A PMI client of the same job.
    host.open(1, Some(0)).expect("the number is free");
    host.ask(1, b"cmd=init pmi_version=1 pmi_subversion=1\n");
    let spawn = b"mcmd=spawn\nnprocs=1\nexecname=true\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";
    let reply = String::from_utf8(host.ask(1, spawn)).expect("it is text");
    assert!(reply.contains("this_host_starts_no_processes"), "{reply}");
}

#[test]
fn a_pmix_connection_counts_in_reports() {
    let limits = Limits::for_ranks(2);
    let mut memory = MappedStorage::try_new(&limits).expect("there is memory");
    let mut host = Host::new(limits, &mut memory).expect("the memory suffices");
    host.job("board", 2).expect("the job is valid");
    host.open(7, None).expect("the number is free");
    host.ask(7, &hello("board", 1));
    assert_eq!(host.server.job_report(JOB).expect("the job is there").connected, 1);
    let rank = host.server.rank_report(JOB, Rank(1)).expect("the rank is there");
    assert_eq!((rank.conn, rank.initialized), (Some(ConnId(7)), true));
    host.tell(Input::Closed { conn: ConnId(7) }).expect("it is open");
    assert_eq!(host.server.job_report(JOB).expect("the job is there").connected, 0);
}
