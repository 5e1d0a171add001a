//! The queries themselves, and the option that has them answered.

use hydrant_tests::{Job, hydrant_path};

use super::programs::{Against, library};

#[test]
fn the_library_is_where_one_says_or_the_job_does_not_start() {
    let job = Job::hydrant("--mpi-psets -n 1 echo started").env("HYDRANT_MPI_LIB", "/nowhere/lib.so").run();
    job.code(1).says("started", 0).warns("cannot find libhydrant_mpi.so").warns("as /nowhere/lib.so");
    let job =
        Job::hydrant("--mpi-psets -n 1 sh -c").arg("echo $LD_PRELOAD").env("HYDRANT_MPI_LIB", library());
    job.env("LD_PRELOAD", "").run().code(0).says(&format!("{}\n", library().display()), 1);
}

#[test]
fn what_was_to_be_preloaded_still_is() {
    let job = Job::hydrant("--mpi-psets -n 1 -env LD_PRELOAD libm.so.6 sh -c").arg("echo $LD_PRELOAD").run();
    job.code(0).says(&format!("{}:libm.so.6\n", library().display()), 1);
}

#[test]
fn nothing_is_told_without_the_option() {
    // Nor passed on from a hydrant around this one.
    let job =
        Job::hydrant("-n 2 sh -c").arg("echo q=$HYDRANT_QUERY p=$LD_PRELOAD").env("HYDRANT_QUERY", "@outer");
    job.run().code(0).says("q= p=\n", 2);
    let job = Job::hydrant("-n 1 -env HYDRANT_QUERY @mine true").run();
    assert!(!job.status.success(), "{job}");
    job.warns("HYDRANT_QUERY");
}

#[test]
fn a_query_without_a_server_is_an_error() {
    let program = Against::Hydrant.program("mpi_psets", true);
    let job =
        Job::new(program).env("HYDRANT_QUERY", "@hydrant/gone").env("PMI_RANK", "0").env("PMI_SIZE", "1");
    job.run().code(97).warns("not so");
}

#[test]
fn shells_between_hydrant_and_the_program_are_no_matter() {
    let program = Against::Hydrant.program("mpi_psets", true);
    let job = Job::hydrant("--mpi-psets -n 2 sh -c").arg(format!("{}; exit $?", program.display())).run();
    job.code(0).quiet().says("set 0 is mpi://WORLD of 2", 2);
}

/// Client that connects as often as its second argument says, as another user if there is a third one. It keeps its
/// connections until its input ends.
const FLOOD: &str = "
import os, socket, sys
if len(sys.argv) > 3:
    os.setgid(65534), os.setuid(65534)
connections = []
for _ in range(int(sys.argv[2])):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(0)
    try:
        client.connect('\\0' + sys.argv[1][1:])
    except BlockingIOError:
        client.settimeout(60)
        client.connect('\\0' + sys.argv[1][1:])
    connections.append(client)
print('connected', flush=True)
sys.stdin.read()
";

/// Ranks query through a flood of connections to their query socket, in a launcher that may open few files.
fn answered_through_a_flood(flood: &str) {
    let program = Against::Hydrant.program("mpi_psets", true);
    let rank = format!("echo $HYDRANT_QUERY; read line; exec {}", program.display());
    let limited = format!("ulimit -n 256; exec {} run --mpi-psets -n 1 sh -c '{rank}'", hydrant_path());
    let mut job =
        Job::new("sh").arg("-c").arg(limited).env("HYDRANT_MPI_LIB", library()).hold_input().start();
    let address = job.line();
    let mut stranger =
        Job::new("python3").arg("-c").arg(FLOOD).arg(address).words(flood).hold_input().start();
    assert_eq!(stranger.line(), "connected");
    job.send(b"\n").expect("the script reads");
    job.wait().code(0).says("set 0 is mpi://WORLD of 1", 1);
    stranger.end_input();
    stranger.wait().code(0);
}

/// Another user's connections are closed. Needs root to become another user.
// Fault: Connections to the query socket of `--mpi-psets` without end
// Outcome: those of another user are closed; ranks' queries are answered
// Guarantee: The oldest connection without a request makes room
// Also: libraries `mpi::queries::a_flood_that_takes_all_descriptors_keeps_no_query_out`
#[test]
fn a_flood_from_another_user_keeps_no_query_out() {
    if rustix::process::geteuid().is_root() {
        answered_through_a_flood("3000 other");
    }
}

#[test]
fn a_flood_that_takes_all_descriptors_keeps_no_query_out() {
    answered_through_a_flood("600");
}
