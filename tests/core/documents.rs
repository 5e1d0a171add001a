//! The exchanges in docs/protocol.md are what the core says.

use hydrant_core::server::{Input, JobSpec};
use hydrant_core::{JobId, Limits, Rank};
use hydrant_driver::MappedStorage;
use hydrant_tests::host::{Host, JOB};

const SIZE: u32 = 4;
const LIMITS: Limits = Limits {
    jobs: 2,
    ranks: 8,
    conns: SIZE,
    keys: 64,
    kvs_bytes: 8192,
    groups: 2,
    names: 2,
    spawns: 1,
    spawn_bytes: 1024,
    psets: 4,
    links: 0,
    commit_bytes: 0,
};

/// The blocks of the document that hold an exchange, as (whether the client speaks, what).
fn exchanges() -> Vec<Vec<(bool, String)>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/protocol.md");
    let text = std::fs::read_to_string(path).expect("the document is part of the project");
    let blocks = text.split("```").skip(1).step_by(2);
    let line = |line: &str| {
        let (who, what) = line.split_at_checked(3)?;
        // PMI-2 messages stand as they are, except for the bytes of an escape; lines show their ends.
        Some((who == "C> ", what.replace("\\n", "\n").replace("\\x01", "\x01").replace("\\x02", "\x02")))
            .filter(|_| matches!(who, "C> " | "S> "))
    };
    blocks
        .map(|block| block.lines().filter_map(line).collect())
        .filter(|block: &Vec<_>| !block.is_empty())
        .collect()
}

/// Rank 1 of a job of four, before or after PMI-2's handshake.
fn start(host: &mut Host<'_>, joined: bool) {
    host.job("kvs_77_0_node", SIZE).expect("there is room");
    let ocean = Input::Pset { job: JOB, name: "app://ocean", first: Rank(0), count: 2 };
    host.tell(ocean).expect("there is room");
    for rank in 0..SIZE {
        host.open(rank, Some(rank)).expect("there is room");
    }
    if joined {
        host.ask(1, b"cmd=init pmi_version=2 pmi_subversion=0\n");
        host.ask(1, b"    13cmd=fullinit;");
    }
}

/// The other ranks do what a fence of all needs.
fn others_fence(host: &mut Host<'_>) {
    for rank in [0, 2, 3] {
        host.ask(rank, b"cmd=init pmi_version=1 pmi_subversion=1\n");
        host.arrive(rank, b"cmd=barrier_in\n").expect("the connection is open");
    }
}

/// The host starts what a client has asked it to.
fn launch(host: &mut Host<'_>) {
    for spawn in std::mem::take(&mut host.spawns) {
        let size = spawn.ranks.iter().sum();
        let job = JobSpec { spawn: Some(spawn.spawn), ..JobSpec::new(JobId(1), "kvs_77_1_node", size) };
        host.tell(Input::RegisterJob(job)).expect("there is room");
        let codes = vec![0; spawn.ranks.len()];
        host.tell(Input::SpawnComplete { spawn: spawn.spawn, started: true, full: None, codes: &codes })
            .expect("it is asked for");
    }
}

// Shows: pmi2.h, Messages | `FULLINIT_CMD` to `RINGRESP_CMD` | 16 requests, and replies named after them | done: all
// but `abort` have a reply
// Also: core `replay::every_exchange_gets_the_right_replies`
#[test]
fn documented_exchanges_are_true() {
    let exchanges = exchanges();
    assert!(exchanges.len() >= 5, "the document shows {} exchanges", exchanges.len());
    for exchange in exchanges {
        let mut memory = MappedStorage::new(&LIMITS);
        let mut host = Host::new(LIMITS, &mut memory).expect("the memory is as large as the limits say");
        let is_handshake = exchange[0].1.starts_with("cmd=init");
        start(&mut host, !is_handshake && !exchange[0].1.starts_with("mcmd="));
        if exchange[0].1.starts_with("mcmd=") {
            host.ask(1, b"cmd=init pmi_version=1 pmi_subversion=1\n");
        }
        for (asks, text) in &exchange {
            if *asks {
                host.arrive(1, text.as_bytes()).expect("the connection is open");
                if text.starts_with("cmd=barrier_in\n") {
                    others_fence(&mut host);
                }
                launch(&mut host);
            } else {
                let said = host.take(1).concat();
                assert_eq!(String::from_utf8_lossy(&said), *text, "in {exchange:#?}");
            }
        }
        assert!(host.take(1).is_empty(), "{exchange:#?}");
    }
}
