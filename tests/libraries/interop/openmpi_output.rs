//! Options for the output of ranks, beside Open MPI's own launchers.

use std::fs;
use std::path::{Path, PathBuf};

use hydrant_tests::peers::{Peer, peers_dir};
use hydrant_tests::{Folder, Job};

/// The launcher of an Open MPI.
fn launcher(peer: Peer) -> PathBuf {
    match peer {
        Peer::OpenMpi4 => peers_dir().join("openmpi4/usr/bin/orterun"),
        _ => peers_dir().join("openmpi/bin/mpirun"),
    }
}

/// Lines in alphabetical order: Open MPI 5 does not keep the order of two streams that it merges.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The files below a folder, if it is there, with their lines. The part of a path that names the job is replaced.
fn files(folder: &Path) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        let name = match name.rsplitn(3, '.').collect::<Vec<_>>()[..] {
            [stream, rank, _] => format!("f.JOB.{rank}.{stream}"),
            _ if ["0", "1"].contains(&&*name) => "JOB".to_owned(),
            _ => name,
        };
        match path.is_dir() {
            true => {
                found.extend(files(&path).into_iter().map(|(below, text)| (format!("{name}/{below}"), text)))
            }
            false => found.push((name, sorted(&fs::read_to_string(&path).expect("it was written")))),
        }
    }
    found.sort();
    found
}

/// Names of options and qualifiers mean what they mean to the real launchers: which files there are, what is in them, and
/// what is printed.
#[test]
fn output_goes_where_it_goes_with_open_mpi() {
    for (peer, options) in [
        (Peer::OpenMpi4, "--output-filename out"),
        (Peer::OpenMpi4, "--output-filename out:nocopy"),
        (Peer::OpenMpi4, "--output-filename out:nojobid"),
        (Peer::OpenMpi4, "--output-filename out:nojobid,nocopy"),
        // `dir=` of Open MPI 5.0.11 loses output.
        (Peer::OpenMpi5, "--output file=out/f"),
        (Peer::OpenMpi5, "--output file=out/f:nocopy"),
        (Peer::OpenMpi5, "--output merge-stderr-to-stdout,file=out/f"),
        (Peer::OpenMpi5, "--output merge-stderr-to-stdout"),
        (Peer::OpenMpi4, "--merge-stderr-to-stdout --output-filename out:nocopy"),
    ] {
        if !peer.there() {
            continue;
        }
        let run = |job: Job, name: &str| {
            let (folder, temporary) = (Folder::new(name), Folder::new(&format!("{name}-tmp")));
            let job = job.words(options).words("-n 1 sh -c").arg("echo out; echo err >&2").dir(&folder.0);
            let root =
                ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1".into()));
            let variables = peer.variables(&temporary.0).into_iter().chain(root);
            let outcome = variables.fold(job, |job, (name, value)| job.env(name, value)).run();
            outcome.code(0);
            // Unpacked, Open MPI 4 misses a help file and says so.
            let errors = outcome.stderr.lines().filter(|line| *line == "err").count();
            (files(&folder.0.join("out")), sorted(&outcome.stdout), errors)
        };
        let theirs = run(Job::new(launcher(peer)), "output-theirs");
        assert_eq!(run(Job::hydrant(""), "output-ours"), theirs, "{peer:?} {options}");
    }
}
