//! A program over Slurm's libpmi2 that puts, fences, gets, and checks every value.

use hydrant_tests::peers::Peer;
use hydrant_tests::{Job, Outcome};

fn exchange(options: &str, size: u32, args: &str) -> Option<Outcome> {
    if !Peer::SlurmPmi2.there() {
        return None;
    }
    let program = Peer::SlurmPmi2.program("pmi2_kvs");
    let outcome = Job::hydrant(&format!("{options} -n {size}")).arg(program).words(args).run();
    outcome.code(0).says(&format!("pmi2 size={size} "), 1).says(" errs=0 ", 1);
    Some(outcome)
}

#[test]
fn all_ranks_get_all_values() {
    for size in [2, 16, 64] {
        exchange("", size, "");
    }
}

#[test]
fn all_ranks_get_all_values_by_port() {
    for size in [2, 16, 64] {
        exchange("--pmi-port", size, "");
    }
}

#[test]
fn many_long_values() {
    for options in ["", "--pmi-port"] {
        for size in [2, 16] {
            exchange(options, size, "-k 8 -v 900");
        }
    }
}

#[test]
fn a_fence_after_the_other() {
    exchange("", 8, "-l 20");
}

#[test]
fn a_missing_key_and_the_attributes() {
    for options in ["", "--pmi-port"] {
        let Some(outcome) = exchange(&format!("{options} -usize 5"), 2, "missing") else { return };
        outcome.warns("get of missing key: rc=").warns("rank 1/2 appnum=0 spawned=0 ");
        outcome.warns("mapping=(vector,(0,1,2))").warns("rank 0 universeSize=5\n");
        assert!(!outcome.stderr.contains("get of missing key: rc=0"), "{outcome}");
    }
}
