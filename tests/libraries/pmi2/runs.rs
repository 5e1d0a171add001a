//! Jobs of two runs that share a name service: each reads the other's key-value space.

use std::path::Path;

use hydrant_tests::peers::{Peer, clients_dir};
use hydrant_tests::{Folder, Job};
use rustix::process::Signal;

use super::support::{BOTH, Whose, prefix, program};

/// A job that runs one mode of `pmi2_jobs.c` with that library.
fn job(names: &Path, options: &str, library: Whose, mode: &str) -> Job {
    let job = Job::hydrant("--lookup-wait 100 -n 1 --name-server").arg(names).words(options);
    let job = job.arg(program(library, &clients_dir().join("pmi2_jobs.c"))).arg(mode);
    if library == Whose::Own { job.env("LD_LIBRARY_PATH", prefix().join("lib")) } else { job }
}

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
