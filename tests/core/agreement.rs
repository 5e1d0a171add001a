//! The server and the model agree on random sequences, at large and at small limits.
//!
//! `HYDRANT_MODEL_CASES` says how many sequences; a failure prints the shortest one that was found.

use hydrant_core::Limits;
use proptest::test_runner::{Config, TestRunner};

use crate::model;
use crate::model::commands::{self, Setup, Step};

/// Cases of an ordinary run.
const CASES: u32 = 300;

fn limits(setup: &Setup) -> Limits {
    let room = Limits {
        jobs: 4,
        // With more rank slots than ranks, members of process sets are shorter as runs.
        ranks: if setup.sizes[0].is_multiple_of(2) { 16 } else { 160 },
        conns: 20,
        keys: 512,
        kvs_bytes: 1 << 16,
        groups: 12,
        names: 12,
        spawns: 6,
        spawn_bytes: 2048,
        psets: 12,
        links: 0,
        commit_bytes: 0,
    };
    if !setup.small {
        return room;
    }
    let [jobs, ranks, conns, keys, kvs, groups, names, spawns, request, psets] = setup.sizes.map(u32::from);
    Limits {
        jobs: 1 + jobs % 3,
        ranks: 1 + ranks % 8,
        conns: 1 + conns % 10,
        keys: keys % 24,
        kvs_bytes: kvs * 13,
        groups: groups % 3,
        names: names % 3,
        spawns: spawns % 3,
        spawn_bytes: request * 4,
        psets: psets % 4,
        links: 0,
        commit_bytes: 0,
    }
}

fn run(setup: &Setup, steps: &[Step]) {
    let limits = limits(setup);
    let (tape, end) = model::play(limits, setup, steps);
    for split in [false, true] {
        tape.replay(limits, &end, split);
    }
    tape.relay(limits, &end);
}

#[test]
fn the_server_agrees_with_the_model() {
    let cases =
        std::env::var("HYDRANT_MODEL_CASES").ok().map(|cases| cases.parse().expect("a number of cases"));
    let config = Config {
        cases: cases.unwrap_or(CASES),
        failure_persistence: None,
        max_shrink_iters: 4_000,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&commands::case(), |(setup, steps)| {
        run(&setup, &steps);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
