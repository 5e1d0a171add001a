//! Jobs of one user that share names by way of `hydrant serve`.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Running, hydrant_bin};
use rustix::process::Signal;

/// A universe at a path of its own, which is served by the time this is there.
fn serve(folder: &Folder) -> (Running, PathBuf) {
    let path = folder.0.join("universe");
    let server = Job::new(hydrant_bin()).args(["serve", "--universe"]).arg(&path).start();
    server.await_stdout(&path.display().to_string(), 1);
    (server, path)
}

/// A job of `mpi_names` in that universe.
fn names(universe: &Path, options: &str, args: &str) -> Option<Job> {
    let peer = Peer::Mpich5;
    let job = || Job::hydrant("--universe").arg(universe).words(options);
    peer.there().then(|| job().arg(peer.program("mpi_names")).words(args))
}

fn end(server: Running) {
    server.signal(Signal::TERM);
    server.wait();
}

#[test]
fn jobs_find_each_other_by_name() {
    let folder = Folder::new("universe-names");
    let (server, universe) = serve(&folder);
    let Some(publisher) = names(&universe, "-n 2", "publish ocean") else { return };
    let publisher = publisher.start();
    publisher.await_stdout("port open\n", 1);
    let Some(client) = names(&universe, "-n 3", "lookup ocean") else { return };
    client.run().code(0).quiet().says("client of 3 met server of 2\n", 1);
    publisher.wait().code(0).quiet().says("server of 2 met client of 3\n", 1);
    let Some(late) = names(&universe, "-n 1", "gone ocean") else { return };
    late.run().code(0).says("lookup: name\n", 1);
    end(server);
}

#[test]
fn a_lookup_waits_for_another_job() {
    let folder = Folder::new("universe-wait");
    let (server, universe) = serve(&folder);
    let Some(client) = names(&universe, "--lookup-wait 100 -n 1", "lookup ocean") else { return };
    let client = client.start();
    let Some(publisher) = names(&universe, "-n 1", "publish ocean") else { return };
    publisher.run().code(0).quiet().says("server of 1 met client of 1\n", 1);
    client.wait().code(0).quiet();
    end(server);
}

#[test]
fn names_of_a_job_that_ended_are_gone() {
    let folder = Folder::new("universe-gone");
    let (server, universe) = serve(&folder);
    for _ in 0..2 {
        let Some(job) = names(&universe, "-n 1", "leave ocean") else { return };
        job.run().code(0).quiet();
        let Some(job) = names(&universe, "-n 1", "gone ocean") else { return };
        job.run().code(0).quiet().says("lookup: name\n", 1);
    }
    end(server);
}

/// Jobs of different universes, and jobs without one, know nothing of each other.
#[test]
fn universes_are_apart() {
    let (one, other) = (Folder::new("universe-one"), Folder::new("universe-other"));
    let ((first, here), (second, there)) = (serve(&one), serve(&other));
    let Some(publisher) = names(&here, "-n 1", "publish ocean") else { return };
    let publisher = publisher.start();
    publisher.await_stdout("port open\n", 1);
    let Some(stranger) = names(&there, "-n 1", "gone ocean") else { return };
    stranger.run().code(0).says("lookup: name\n", 1);
    let alone = Job::hydrant("-n 1").arg(Peer::Mpich5.program("mpi_names")).words("gone ocean");
    alone.run().code(0).says("lookup: name\n", 1);
    let Some(client) = names(&here, "-n 1", "lookup ocean") else { return };
    client.run().code(0);
    publisher.wait().code(0);
    end(first);
    end(second);
}

#[test]
fn the_socket_is_its_users_alone_and_goes_with_its_server() {
    let folder = Folder::new("universe-socket");
    let (server, universe) = serve(&folder);
    let meta = universe.metadata().expect("it is served");
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o077, 0, "{:o}", meta.permissions().mode());
    let second = Job::new(hydrant_bin()).args(["serve", "--universe"]).arg(&universe).run();
    assert_ne!(second.status.code(), Some(0), "{second}");
    second.warns(&universe.display().to_string());
    end(server);
    assert!(!universe.exists());
}

#[test]
fn a_universe_without_a_server_is_an_error() {
    let folder = Folder::new("universe-none");
    let path = folder.0.join("universe");
    let outcome = Job::hydrant("--universe").arg(&path).words("-n 1 echo started").run();
    assert_ne!(outcome.status.code(), Some(0), "{outcome}");
    outcome.says("started", 0).warns(&path.display().to_string()).warns("hydrant serve");
}
