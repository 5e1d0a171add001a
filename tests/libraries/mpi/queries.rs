//! The queries themselves, and the option that has them answered.

use hydrant_tests::Job;

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
