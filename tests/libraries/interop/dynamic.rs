//! Spawning, names, ports and sessions by MPICH 5.0.2 and mpi4py. (MPICH 4.0.2 as Debian builds it refuses to spawn
//! before it sends a request.)

use hydrant_tests::peers::{Peer, clients_dir, python};
use hydrant_tests::{Fleet, Folder, Job, nodes};

const WAYS: [&str; 2] = ["", "--pmi-port"];

/// A job of `tests/clients/NAME.c`, where there is an MPICH to build it with.
fn job(options: &str, name: &str, args: &str) -> Option<Job> {
    let peer = Peer::Mpich5;
    peer.there().then(|| Job::hydrant(options).arg(peer.program(name)).words(args))
}

#[test]
fn all_ranks_spawn_together() {
    for way in WAYS {
        let Some(job) = job(&format!("{way} -usize 9 -n 2"), "mpi_spawn", "world 3") else { return };
        let outcome = job.run();
        outcome.code(0).quiet().says(" of 2 done, universe 9\n", 2);
        for rank in 0..3 {
            outcome.says(&format!("child {rank} of 3\n"), 1);
        }
    }
}

#[test]
fn all_ranks_spawn_at_once() {
    for way in WAYS {
        let Some(job) = job(&format!("{way} -n 4"), "mpi_spawn", "self 2") else { return };
        let outcome = job.run();
        outcome.code(0).quiet().says(" of 4 done", 4).says("child 0 of 2\n", 4).says("child 1 of 2\n", 4);
    }
}

#[test]
fn one_child_after_the_other() {
    let Some(job) = job("-n 2", "mpi_spawn", "again 5") else { return };
    job.run().code(0).quiet().says("child 0 of 1\n", 5).says(" of 2 done", 2);
}

#[test]
fn children_have_children() {
    for way in WAYS {
        let Some(job) = job(&format!("{way} -n 1"), "mpi_spawn", "nested 3") else { return };
        let outcome = job.run();
        outcome.code(0).quiet().says("child 0 of 1\n", 4).says(" of 1 done", 1);
        for depth in 0..3 {
            outcome.says(&format!("depth {depth} below\n"), 1);
        }
    }
}

/// Arguments that are empty or hold what protocols and shells give a meaning.
#[test]
fn arguments_arrive_as_they_are() {
    let Some(job) = job("-n 1", "mpi_spawn", "args") else { return };
    let outcome = job.run();
    outcome.code(0).quiet().says(" with 10:[][a  b ][;x;;y][][k=v][100%][\\n]['\"`$][é][] env=-\n", 1);
}

// Shows: MPI Info, Objects | reserved keys | have the meaning of the standard where they are used | done: those of
// spawn, of sessions and of `MPI_INFO_ENV`
// Also: libraries `mpi::alone::sessions_hints_and_error_handlers`, `mpi::alone::info_objects`
#[test]
fn programs_with_info() {
    let folder = Folder::new("wdir");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let Some(job) = job("-n 2", "mpi_spawn", "multiple") else { return };
    let here = std::env::current_dir().expect("a test has a folder");
    let outcome = job.arg(&folder.0).arg(host).run();
    outcome.code(0).quiet().says(" of 2 done", 2);
    let wdir = folder.0.display();
    for rank in 0..2 {
        let line = format!("child {rank} of 3 program 0 in {wdir} with 3:[a b][x=y][\"q\"] env=from-info\n");
        outcome.says(&line, 1);
    }
    outcome.says(&format!("child 2 of 3 program 1 in {} with 0: env=-\n", here.display()), 1);
}

/// An error for the one who asked, and the job goes on as before.
#[test]
fn a_missing_program_is_an_error() {
    for way in WAYS {
        let Some(job) = job(&format!("{way} -n 2"), "mpi_spawn", "missing") else { return };
        let outcome = job.run();
        outcome.code(0).says("refused: class other codes other other\n", 2);
        outcome.says("child 0 of 1\n", 1).says(" of 2 done", 2);
    }
}

#[test]
fn what_was_started_in_part_is_undone() {
    let Some(job) = job("-n 1", "mpi_spawn", "partly") else { return };
    // Waiting also sees that nothing is left running.
    let outcome = job.run();
    outcome.code(0).says("refused: ", 1).says("child", 0).says(" of 1 done", 1);
}

#[test]
fn a_child_outlives_its_parent() {
    let folder = Folder::new("outlives");
    let Some(job) = job("-n 1", "mpi_spawn", "outlives") else { return };
    let outcome = job.arg(folder.0.join("pipe")).run();
    outcome.code(0).quiet().says("child outlived its parent\n", 1).says(" of 1 done", 1);
}

#[test]
fn the_exit_code_counts_children() {
    let Some(job) = job("-n 2", "mpi_spawn", "fails 5") else { return };
    job.run().code(5).says(" of 2 done", 2).warns("5");
}

#[test]
fn a_parent_ends_with_its_child() {
    for options in [String::new(), "--pmi-port".to_owned(), nodes(2, 2, 2)] {
        for (how, code) in [("exit", 3), ("abort", 7), ("signal", 134)] {
            let folder = Folder::new("dies");
            let Some(job) = job(&format!("{options} -n 2"), "mpi_spawn", &format!("dies {how}")) else {
                return;
            };
            let outcome = job.arg(folder.0.join("pipe")).run();
            outcome.code(code).warns("the first job was ended because rank 0 of spawned job 1 ");
        }
    }
}

#[test]
fn mpi4py_spawns() {
    if !Peer::Mpich5.there() {
        return;
    }
    for way in WAYS {
        let job = Job::hydrant(&format!("{way} -n 1")).arg(python());
        let outcome = job.arg(clients_dir().join("mpi_spawn.py")).run();
        assert_eq!(outcome.code(0).quiet().lines(), ["gathered [0, 7, 14]"], "{outcome}");
    }
}

/// Both of the protocol's names for right and wrong; a look-up waits only if the program requests it.
#[test]
fn names_in_one_job() {
    for peer in [Peer::Mpich5, Peer::Mpich4] {
        for way in WAYS {
            if !peer.there() {
                return;
            }
            let outcome =
                Job::hydrant(&format!("{way} -n 3")).arg(peer.program("mpi_names")).arg("inside").run();
            let wrong = "unknown name, unpublished again";
            let first = format!("rank 0: published success, again name, {wrong} service, after name");
            let other = [1, 2]
                .map(|rank| format!("rank {rank}: published none, again none, {wrong} none, after name"));
            assert_eq!(outcome.code(0).quiet().lines(), [&first, &other[0], &other[1]], "{outcome}");
        }
    }
}

/// Jobs that know each other by a port alone need nothing from their launchers.
#[test]
fn jobs_meet_at_a_port() {
    let folder = Folder::new("port");
    let file = folder.0.join("port");
    let Some(server) = job("-n 2", "mpi_names", "accept") else { return };
    let server = server.arg(&file).start();
    server.await_stdout("port open\n", 1);
    let Some(client) = job("-n 3", "mpi_names", "connect") else { return };
    client.arg(&file).run().code(0).quiet().says("client of 3 met server of 2\n", 1);
    server.wait().code(0).quiet().says("server of 2 met client of 3\n", 1);
}

#[test]
fn jobs_of_a_fleet_meet_by_a_published_name() {
    let fleet = Fleet::new("-n 5");
    for peer in [Peer::Mpich5, Peer::OpenMpi5, Peer::OpenMpi4] {
        if !peer.there() {
            return;
        }
        let folder = Folder::new(&format!("fleet-names-{}", peer.name()));
        let job = |ranks, part| {
            let job = fleet.job(&format!("-n {ranks}")).assign(peer.variables(&folder.0));
            job.arg(peer.program("mpi_names")).words(part)
        };
        let server = job(2, "publish door").start();
        server.await_stdout("port open\n", 1);
        job(3, "lookup door").run().code(0).says("client of 3 met server of 2\n", 1);
        server.wait().code(0).says("server of 2 met client of 3\n", 1);
        job(1, "gone door").run().code(0);
    }
    fleet.end();
}

#[test]
fn tasks_of_an_array_are_worlds_of_their_own() {
    let fleet = Fleet::new("-n 4");
    for peer in [Peer::Mpich5, Peer::OpenMpi5] {
        if !peer.there() {
            return;
        }
        let folder = Folder::new(&format!("array-{}", peer.name()));
        let job = fleet.job("-n 2 --array 1-8%3 -l").assign(peer.variables(&folder.0));
        let outcome = job.arg(peer.program("mpi_hello")).run();
        outcome.code(0).quiet().says(" of 2, program 0", 16);
        for (task, rank) in (1..9).flat_map(|task| [(task, 0), (task, 1)]) {
            outcome.says(&format!("[{task}.{rank}] rank {rank} of 2"), 1);
        }
    }
    fleet.end();
}

// Shows: MPI Sessions, Creation and end | sessions one after another | may begin and end any number of times | done
// Also: libraries `interop::dynamic::sessions_over_the_port_come_again`
#[test]
fn sessions_again_and_again() {
    let folder = Folder::new("sessions");
    let Some(job) = job("-n 3", "mpi_sessions", "1 3") else { return };
    let outcome = job.arg(&folder.0).run();
    outcome.code(0).quiet().says("psets: mpi://world mpi://self", 9);
    for round in 0..3 {
        outcome.says(&format!("round {round} of 1 threads: size 3\n"), 3);
    }
}

/// Over the port MPICH connects anew for each round and leaves the connection before as it is.
// Fault: MPICH opens a session again over `--pmi-port`, over another connection
// Outcome: it is let in
// Guarantee: A connection replaces the rank's idle one if both ends are on this machine
// Also: launch `port::a_rank_that_introduces_itself_again_is_let_in`
#[test]
fn sessions_over_the_port_come_again() {
    let folder = Folder::new("port-sessions");
    let Some(job) = job("--pmi-port -n 3", "mpi_sessions", "1 3") else { return };
    let outcome = job.arg(&folder.0).run();
    outcome.code(0).quiet();
    for round in 0..3 {
        outcome.says(&format!("round {round} of 1 threads: size 3\n"), 3);
    }
}

#[test]
fn sessions_from_several_threads() {
    let folder = Folder::new("threads");
    let Some(job) = job("-n 3", "mpi_sessions", "4 3") else { return };
    let outcome = job.arg(&folder.0).run();
    outcome.code(0).quiet();
    for round in 0..3 {
        outcome.says(&format!("round {round} of 4 threads: size 3\n"), 3);
    }
}
