//! Jobs of two runs that share a name service: each reads the other's key-value space.

use std::path::Path;

use hydrant_tests::peers::{Peer, clients_dir};
use hydrant_tests::{Folder, Job, Running};
use rustix::process::Signal;

use super::support::{BOTH, Whose, prefix, program};

/// A job that runs one mode of `pmi2_jobs.c` with that library. Its last rank talks to the other job.
fn job(names: &Path, options: &str, library: Whose, mode: &str) -> Job {
    let job = Job::hydrant("--lookup-wait 100 -n 1 --name-server").arg(names).words(options);
    let job = job.arg(program(library, &clients_dir().join("pmi2_jobs.c"))).arg(mode);
    if library == Whose::Own { job.env("LD_LIBRARY_PATH", prefix().join("lib")) } else { job }
}

// Shows: pmi2.h, Job | `PMI2_Job_Connect` `jobid` | makes the other job's space readable | done: of the same run, or
// of a run of the same user that shares the name server (`--name-server`)
// Also: libraries `pmi2::runs::two_runs_whose_boards_are_linked_read_each_other`, launch
// `runs::spaces_of_two_runs_are_readable_both_ways_until_they_disconnect`, libraries
// `pmi2::nodes::connecting_and_disconnecting`, `interop::functions::connecting_and_disconnecting`
#[test]
fn two_runs_read_each_other() {
    for library in BOTH {
        if library == Whose::Slurm && !Peer::SlurmPmi2.there() {
            continue;
        }
        for options in ["", "-hosts n[1-2]:1 --bootstrap local"] {
            let folder = Folder::new("pmi2-runs");
            let names = folder.0.join("names");
            let mut service = Job::command("serve --name-server").arg(&names).start();
            assert_eq!(service.line(), format!("hydrant serve: listening at {}", names.display()));
            let mut second = job(&names, options, library, "second").hold_input().start();
            job(&names, "", Whose::Own, "first").run().code(0).quiet().says("first\n", 1);
            second.end_input();
            second.wait().code(0).quiet().says("second\n", 1);
            service.signal(Signal::TERM);
            service.wait().code(0).quiet();
        }
    }
}

/// A board, and its address.
fn board() -> (Running, String) {
    let mut board = Job::command("serve --manage=127.0.0.1:0").start();
    let address = board.managed_address();
    (board, address)
}

/// Fences are released by the board of the first host. The other run reads at the launcher.
#[test]
fn two_runs_whose_boards_are_linked_read_each_other() {
    let folder = Folder::new("pmi2-boards");
    let names = folder.0.join("names");
    let mut service = Job::command("serve --name-server").arg(&names).start();
    assert_eq!(service.line(), format!("hydrant serve: listening at {}", names.display()));
    let boards = [board(), board()];
    let file = folder.file("boards", &format!("n1 {}\nn2 {}\n", boards[0].1, boards[1].1));
    for (library, fence) in [(Whose::Own, "collect"), (Whose::Own, "lazy"), (Whose::Slurm, "collect")] {
        if library == Whose::Slurm && !Peer::SlurmPmi2.there() {
            continue;
        }
        let options = format!(
            "-v -n 4 --stdin 3 --fence {fence} -hosts n[1-2]:2 --bootstrap local --offload-file {file}"
        );
        let mut second = job(&names, &options, library, "second").hold_input().start();
        let first = job(&names, &options, Whose::Own, "first").run();
        first.code(0).says("first\n", 1).warns("hydrant: boards exchange messages directly\n");
        second.end_input();
        second.wait().code(0).says("second\n", 1).warns("hydrant: boards exchange messages directly\n");
    }
    for running in boards.into_iter().map(|(board, _)| board).chain([service]) {
        running.signal(Signal::TERM);
        running.wait().code(0).quiet();
    }
}
