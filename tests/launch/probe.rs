//! A probe under hydrant itself, by each way to join.

use std::process::{Command, Stdio};

use hydrant_tests::plain::hydrant_path;

/// The lines that a job of probes prints.
fn probe(options: &[&str], probe: &[&str]) -> Vec<String> {
    let output = Command::new(hydrant_path())
        .arg("run")
        .args(options)
        .args([hydrant_path(), "probe"])
        .args(probe)
        .stdin(Stdio::null())
        .output()
        .expect("hydrant starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), error.as_ref()), (Some(0), ""), "{options:?} {probe:?}");
    String::from_utf8(output.stdout).expect("hydrant writes UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn every_way_to_join_gives_the_table() {
    for join in [&["-n", "4"][..], &["--pmi-port", "-n", "4"]] {
        for pmi in ["1", "2"] {
            let lines = probe(join, &["--pmi", pmi, "--keys", "3", "--bytes", "1024", "--rounds", "2"]);
            assert_eq!(lines.len(), 6, "{lines:?}");
            for (rank, line) in lines[1..5].iter().enumerate() {
                let cells: Vec<&str> = line.split_whitespace().collect();
                assert_eq!(cells.len(), 7, "{line}");
                assert_eq!(cells[0], rank.to_string());
                assert!(cells[2..].iter().all(|cell| cell.parse::<u64>().is_ok()), "{line}");
            }
            let summary = "4 ranks on 1 host exchanged 32 cards and 96 values of 1024 bytes, all right";
            assert_eq!(lines[5], summary);
        }
    }
}

#[test]
fn one_rank_is_a_job_too() {
    let lines = probe(&[], &[]);
    assert_eq!(lines[2], "1 rank on 1 host exchanged 1 card and 1 value of 64 bytes, all right");
}

#[test]
fn a_limit_that_is_used_up_names_itself_and_ends_the_job() {
    let output = Command::new(hydrant_path())
        .args(["run", "-n", "2", "--limit", "keys=8", hydrant_path(), "probe", "--keys", "100"])
        .stdin(Stdio::null())
        .output()
        .expect("hydrant starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("keys"), "{error}");
}
