//! Without another MPI library.

use hydrant_tests::peers::Peer;
use hydrant_tests::{Job, nodes};
use rustix::process::Signal;

use super::programs::{Against, library};

const RETURN: (&str, &str) = ("HYDRANT_MPI_INITIAL_ERRHANDLER", "mpi_errors_return");

fn program(name: &str) -> Job {
    Job::new(Against::Hydrant.program(name, true)).env(RETURN.0, RETURN.1)
}

// Shows: MPI Info, Objects | a handle of type `MPI_Info` | opaque | done: as in the standard ABI; a freed handle is
// not used again before all others
// Also: hydrant-mpi `handles_are_not_reused`
// Shows: MPI Sessions, Process sets | `MPI_MAX_PSET_NAME_LEN` | at least 63 | done: 1,024; hydrant's names have up to
// 127 characters
#[test]
fn the_header_is_the_standard_abi_s() {
    if !Peer::Mpich5.there() {
        return;
    }
    let ours = program("mpi_abi").run();
    let theirs = Job::new(Against::Standard.program("mpi_abi", false)).run();
    assert_eq!(ours.code(0).stdout, theirs.code(0).stdout);
    assert!(ours.lines().len() > 25, "{ours}");
}

#[test]
fn info_objects() {
    program("mpi_info").run().code(0).quiet().says("info is well", 1);
    program("mpi_info").arg("argument").run().code(0).quiet().says("info is well", 1);
    let info = Against::Hydrant.program("mpi_info", true);
    // maxprocs is the number of processes of the own program, or of the job if the programs are unknown.
    let job = Job::hydrant("--mpi-psets -n 2 -env PROCESSES 2").env(RETURN.0, RETURN.1).arg(&info);
    job.words(": -n 1 -env PROCESSES 1").arg(&info).run().code(0).quiet().says("info is well", 3);
    let job = Job::hydrant("-n 2 -env PROCESSES 2").env(RETURN.0, RETURN.1).arg(&info);
    job.run().code(0).says("info is well", 2);
}

#[test]
fn sessions_hints_and_error_handlers() {
    program("mpi_own_sessions").run().code(0).quiet().says("sessions are well", 1);
    let job = Job::hydrant("--mpi-psets -n 3").env(RETURN.0, RETURN.1);
    let job = job.arg(Against::Hydrant.program("mpi_own_sessions", true));
    job.run().code(0).quiet().says("sessions are well", 3);
}

#[test]
fn sets_are_made_of_others() {
    program("mpi_pset_operations").run().code(0).quiet().says("sets are well", 1);
    let sets = Against::Hydrant.program("mpi_pset_operations", true);
    let job = Job::hydrant("--mpi-psets -n 2").arg(&sets).words(": -n 3").arg(&sets);
    job.run().code(0).quiet().says("sets are well", 5);
}

// Shows: MPI Forum | `MPI_Session_prune_psets` | a later function that removes sets | done: `hydrant_pset_retire` and
// `hydrant_pset_prune`
// Also: libraries `mpi::beside::retired_sets_are_pruned`, nodes `dynamic::a_process_set_leaves_all_nodes`
#[test]
fn retired_sets_are_pruned() {
    program("mpi_pset_prune").run().code(0).quiet().says("pruned well", 1);
    let job = Job::hydrant("--mpi-psets --limit psets=16 -n 3");
    let job = job.arg(Against::Hydrant.program("mpi_pset_prune", true));
    job.run().code(0).quiet().says("pruned well", 3);
}

// Shows: MPI Sessions, Creation and end | objects of a session | are not freed by finalize | done: groups remain;
// others are the library's
#[test]
fn groups_of_process_sets() {
    program("mpi_groups").run().code(0).quiet().says("groups are well", 1);
    let job = Job::hydrant("--mpi-psets -n 2 --pset ocean").env(RETURN.0, RETURN.1);
    let job = job.arg(Against::Hydrant.program("mpi_groups", true)).words(": -n 3 --pset atmos");
    job.arg(Against::Hydrant.program("mpi_groups", true)).run().code(0).quiet().says("groups are well", 5);
}

#[test]
fn fatal_errors_end_the_job_and_others_the_process() {
    let error = "MPI_Session_get_pset_info: MPI_ERR_ARG: no process set no://such";
    let fatal = program("mpi_own_sessions").arg("fatal").run();
    fatal
        .signaled(Signal::ABORT)
        .warns(error)
        .warns("aborting the job (MPI_ERRORS_ARE_FATAL)")
        .says("came back", 0);
    let abort = program("mpi_own_sessions").arg("abort").run();
    abort.code(13).warns(error).warns("aborting this process (MPI_ERRORS_ABORT)").says("came back", 0);
    let program = Against::Hydrant.program("mpi_own_sessions", true);
    // The other rank waits for something that never comes.
    let job = Job::hydrant("--mpi-psets -n 1").arg(program).arg("fatal").words(": -n 1 sleep 1000").run();
    job.code(128 + Signal::ABORT.as_raw()).warns("rank 0").warns("1 other rank was ended");
    // Errors without a session are fatal, too, unless the program has set another error handler.
    let info = Job::new(Against::Hydrant.program("mpi_info", true)).run();
    info.signaled(Signal::ABORT).warns("MPI_Info_set: MPI_ERR_INFO: MPI_INFO_ENV cannot be changed");
}

#[test]
fn process_sets_of_a_process_alone() {
    let alone = program("mpi_psets").run();
    alone.code(0).quiet();
    assert_eq!(alone.lines(), ["rank 0: set 0 is mpi://WORLD of 1", "rank 0: set 1 is mpi://SELF of 1"]);
    // A launcher that keeps no sets for it.
    let plain = Job::hydrant("-n 2").arg(Against::Hydrant.program("mpi_psets", true)).run();
    plain.code(0).says("is mpi://WORLD of 2", 2).says("is mpi://SELF of 1", 2).says("set", 4);
}

#[test]
fn process_sets_under_hydrant() {
    let program = Against::Hydrant.program("mpi_psets", true);
    let job = Job::hydrant("--mpi-psets -n 2 --pset ocean")
        .arg(&program)
        .words(": -n 3 --pset atmos")
        .arg(&program);
    let outcome = job.run();
    outcome.code(0).quiet();
    outcome.says("set 0 is mpi://WORLD of 5", 5).says("set 1 is mpi://SELF of 1", 5);
    outcome.says("set 4 is app://ocean of 2", 2).says("set 4 is app://atmos of 3", 3);
    outcome.says("defined app://even of 3 as number 5", 3);
}

// Shows: MPI Sessions, Process sets | a set with a dead process | later uses of its name raise an error | done:
// `MPI_ERR_PROC_ABORTED` for its info and its group, also of `mpi://WORLD`. Dead: killed, aborted, without finalize,
// or ended before init with another code than 0
// Also: libraries `mpi::beside::a_set_with_a_dead_member_stays_and_is_an_error`
#[test]
fn a_set_with_a_dead_member_stays_and_is_an_error() {
    let program = Against::Hydrant.program("mpi_pset_dead", true);
    for how in ["", "exit"] {
        let job =
            Job::hydrant("--mpi-psets --disable-auto-cleanup -n 2 --pset pair").arg(&program).words(how);
        job.run().says("pair is number 4 and dead", 1);
    }
}

#[test]
fn the_library_exports_nothing_else() {
    let ours = |name: &String| ["MPI_", "mpi_", "hydrant_pset_"].iter().any(|start| name.starts_with(start));
    let foreign: Vec<String> = exported().into_iter().filter(|name| !ours(name)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

/// The names that the library defines for others.
fn exported() -> Vec<String> {
    use object::{Object, ObjectSymbol};
    let bytes = std::fs::read(library()).expect("it was built");
    let file = object::File::parse(&*bytes).expect("it is a library");
    let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    defined.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect()
}

// Shows: MPI Sessions, Process sets | Fortran bindings | of all functions | done: of all that the C library has, for
// gfortran
// Also: libraries `mpi::fortran::every_rule_of_the_bindings`, `mpi::fortran::every_rule_in_front_of_mpich`,
// `mpi::fortran::every_rule_in_front_of_intel_mpi`, `mpi::fortran::a_climate_on_mpich`,
// `mpi::fortran::a_climate_without_an_mpi_library`
#[test]
fn every_call_has_its_fortran_bindings() {
    let symbols = exported();
    for name in symbols.iter().filter(|name| name.starts_with("MPI_") || name.starts_with("hydrant_")) {
        if name.ends_with('_') {
            continue;
        }
        for binding in ["_", "_f08_"] {
            let binding = name.to_lowercase() + binding;
            assert!(symbols.contains(&binding), "{binding} is missing");
        }
    }
}

// Shows: MPI Sessions, Process sets | `mpi://WORLD`, `mpi://SELF` | the own processes | done: of the own job
#[test]
fn sets_hold_ranks_of_parent_and_child() {
    for options in [String::new(), nodes(4, 2, 2) + " -ppn 1"] {
        let job = Job::hydrant(&options).words("--mpi-psets -n 2");
        let job = job.arg(Against::Hydrant.program("mpi_psets_jobs", true));
        job.run().code(0).quiet().says("sets of both jobs are well", 5);
    }
}
