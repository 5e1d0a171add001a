//! `hydrant probe`, alone and as the ranks of a job.

use hydrant_tests::{Job, Outcome, hydrant_bin};

/// A job of probes.
fn probe(options: &str, args: &str) -> Outcome {
    Job::hydrant(options).arg(hydrant_bin()).arg("probe").words(args).run()
}

#[test]
fn every_way_to_join_gives_the_table() {
    for way in ["-n 4", "--pmi-port -n 4"] {
        for protocol in ["--pmi 1", "--pmi 2", "--pmix"] {
            let outcome = probe(way, &format!("{protocol} --keys 3 --bytes 1024 --rounds 2"));
            let lines: Vec<&str> = outcome.code(0).quiet().stdout.lines().collect();
            assert_eq!(lines.len(), 6, "{outcome}");
            for word in ["init", "put", "fence", "get"] {
                assert!(outcome.stdout.contains(word), "{word} in {outcome}");
            }
            for (rank, line) in lines[1..5].iter().enumerate() {
                let cells: Vec<&str> = line.split_whitespace().collect();
                assert_eq!(cells.len(), 7, "{outcome}");
                assert_eq!(cells[0], rank.to_string(), "{outcome}");
                assert!(cells[2..].iter().all(|cell| cell.parse::<u64>().is_ok()), "{outcome}");
            }
            let summary = "4 ranks on 1 host exchanged 32 cards and 96 values of 1024 bytes, all right";
            assert_eq!(lines[5], summary, "{outcome}");
        }
    }
}

#[test]
fn one_rank_is_a_job_too() {
    let outcome = probe("", "");
    let line = outcome.code(0).quiet().stdout.lines().nth(2);
    let expected = "1 rank on 1 host exchanged 1 card and 1 value of 64 bytes, all right";
    assert_eq!(line, Some(expected), "{outcome}");
}

#[test]
fn a_limit_that_is_used_up_names_itself_and_ends_the_job() {
    probe("-n 2 --limit keys=8", "--keys 100").code(1).warns("keys");
}
