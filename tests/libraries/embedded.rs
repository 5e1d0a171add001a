//! The examples of `hydrant-host`: launchers in Rust on the library, with real MPI libraries.

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Running, example};

const PEERS: [Peer; 4] = [Peer::Mpich5, Peer::OpenMpi5, Peer::OpenMpi4, Peer::OpenMpi4Pmix3];

/// The libraries that are there, each with a folder for its files and its variables.
fn peers() -> impl Iterator<Item = (Peer, Folder)> {
    PEERS.into_iter().filter(|peer| peer.there()).map(|peer| (peer, Folder::new(peer.name())))
}

fn job(name: &str, peer: Peer, folder: &Folder) -> Job {
    let variables = peer.variables(&folder.0);
    let job = Job::new(example("hydrant-host", name));
    variables.into_iter().fold(job, |job, (name, value)| job.env(name, value))
}

/// Address at which the first node listens.
fn address_of(first: &Running) -> String {
    let said = first.await_stderr("\n").stderr();
    said.trim_end().rsplit(' ').next().expect("a line has words").to_owned()
}

#[test]
fn four_ranks_of_one_machine() {
    for (peer, folder) in peers() {
        let outcome = job("four_ranks", peer, &folder).arg(peer.program("mpi_allreduce")).run();
        outcome.code(0).quiet().says("allreduce of 4: 0 wrong\n", 1);
    }
}

/// The exit code is that of `hydrant run`.
#[test]
fn failures_of_four_ranks_have_the_exit_code_of_hydrant() {
    for (peer, folder) in peers() {
        for (end, code, why) in
            [("abort 5", 5, "rank 1 aborted it with code 5"), ("kill", 137, "rank 1 died by SIGKILL")]
        {
            let program = peer.program("mpi_end");
            job("four_ranks", peer, &folder).arg(program).words(end).run().code(code).warns(why);
        }
    }
}

#[test]
fn two_nodes_over_tcp() {
    for (peer, folder) in peers() {
        let program = peer.program("mpi_allreduce");
        let node = |number: &str, address: &str| {
            let job = job("two_nodes", peer, &folder).args([number, address, "2"]).arg(&program);
            // Both nodes are this machine, and Open MPI 4 names segments by a rank's number on its node.
            let segments = folder.0.join(number);
            std::fs::create_dir(&segments).expect("the folder is new");
            job.env("OMPI_MCA_btl_vader_backing_directory", segments)
        };
        let first = node("0", "127.0.0.1:0").start();
        let second = node("1", &address_of(&first)).run();
        let first = first.wait();
        first.code(0).says("allreduce of 4: 0 wrong\n", 1);
        second.code(0).quiet();
    }
}

// Fault: A rank aborts under `examples/two_nodes.rs`
// Outcome: the ranks of both nodes are killed; a message of the rank's node has the reason; exit code 1 on both
// Guarantee: No rank of another node waits for one that has aborted
#[test]
fn an_abort_ends_both_nodes() {
    let (peer, folder) = (Peer::Mpich5, Folder::new("abort"));
    if !peer.there() {
        return;
    }
    let program = peer.program("mpi_end");
    let node = |number: &str, address: &str| {
        let job = job("two_nodes", peer, &folder).args([number, address, "2"]);
        job.arg(&program).words("abort 5")
    };
    let first = node("0", "127.0.0.1:0").start();
    let second = node("1", &address_of(&first)).run();
    first.wait().code(1).warns("rank 1 aborted it with code 5");
    second.code(1).warns("the other node is lost");
}
