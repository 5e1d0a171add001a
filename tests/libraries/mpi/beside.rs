//! In front of MPICH 5.0.2, with its own ABI and with the standard one.

use std::path::PathBuf;

use hydrant_tests::peers::{Peer, clients_dir, intel_lib, python};
use hydrant_tests::{Folder, Job, nodes};

use super::programs::{Against, include_dir, library};

/// Two programs of one job, each in the communicator of its own set.
fn coupled(against: Against, options: &str, env: &[(&str, PathBuf)]) {
    let model = against.program("mpi_ocean", false);
    let mut job = Job::hydrant(&format!("--mpi-psets {options} -n 2 --pset ocean")).arg(&model);
    for (name, value) in env {
        job = job.env(name, value);
    }
    let outcome = job.words("ocean : -n 3 --pset atmos").arg(&model).arg("atmos").run();
    outcome.code(0);
    let wanted = [
        "atmos: rank 0 of 3, 3 counted",
        "atmos: rank 1 of 3, 3 counted",
        "atmos: rank 2 of 3, 3 counted",
        "ocean: rank 0 of 2, 2 counted",
        "ocean: rank 1 of 2, 2 counted",
    ];
    assert_eq!(outcome.lines(), wanted, "{against:?}");
}

#[test]
fn a_coupled_model_of_stock_programs() {
    if !Peer::Mpich5.there() {
        return;
    }
    for against in Against::LIBRARIES {
        coupled(against, "", &[]);
        coupled(against, "--pmi-port", &[]);
        // A set that the program is not in is as unknown as with the library alone.
        let model = against.program("mpi_ocean", false);
        let wrong = Job::hydrant("--mpi-psets -n 2 --pset ocean").arg(&model).arg("atmos").run();
        assert!(!wrong.status.success(), "{wrong}");
        wrong.warns("Fatal error in internal_Group_from_session_pset");
    }
}

#[test]
fn the_same_program_on_intel_mpi() {
    if Peer::Mpich5.there() && Peer::Intel.there() {
        let intel = [("LD_LIBRARY_PATH", intel_lib()), ("I_MPI_FABRICS", PathBuf::from("shm"))];
        coupled(Against::Mpich, "", &intel);
    }
}

// Shows: MPI Sessions, Process sets | `MPI_Session_get_nth_pset` `pset_len` | the required size with NUL, after each
// call | done: also for sets of MPICH 5.0.2, which leaves it unchanged
// Shows: MPI Sessions, Process sets | queries by a name that was returned | give the same information again | done:
// until a member dies
// Shows: MPI Sessions, Process sets | `MPI_Group_from_session_pset` | a group of the set's processes | done: also
// without an MPI library, with the local operations on groups
// Also: libraries `mpi::alone::groups_of_process_sets`
#[test]
fn every_rule_holds_for_every_set() {
    if !Peer::Mpich5.there() {
        return;
    }
    for against in Against::LIBRARIES {
        let program = against.program("mpi_psets", true);
        let job = Job::hydrant("--mpi-psets -n 2 --pset ocean").arg(&program);
        let outcome = job.words(": -n 3 --pset atmos").arg(&program).run();
        outcome.code(0).quiet();
        outcome.says("set 0 is mpi://WORLD of 5", 5).says("set 1 is mpi://SELF of 1", 5);
        outcome.says("set 4 is app://ocean of 2", 2).says("set 4 is app://atmos of 3", 3);
        outcome.says("communicator of app://ocean: 0 1", 2).says("communicator of app://atmos: 2 3 4", 3);
        outcome.says("communicator of hydrant://app/1: 2 3 4", 3);
        outcome.says("defined app://even of 3 as number 5", 3).says("communicator of app://even: 0 2 4", 3);
    }
}

#[test]
fn sets_are_made_of_others() {
    if !Peer::Mpich5.there() {
        return;
    }
    for against in Against::LIBRARIES {
        let sets = against.program("mpi_pset_operations", true);
        let job = Job::hydrant("--mpi-psets -n 2").arg(&sets).words(": -n 3").arg(&sets);
        job.run().code(0).quiet().says("sets are well", 5);
    }
}

#[test]
fn retired_sets_are_pruned() {
    if !Peer::Mpich5.there() {
        return;
    }
    for against in Against::LIBRARIES {
        let program = against.program("mpi_pset_prune", true);
        let job = Job::hydrant("--mpi-psets --limit psets=16 -n 3").arg(program);
        job.run().code(0).quiet().says("pruned well", 3);
    }
}

/// The library's own groups pass the exported functions unchanged.
#[test]
fn groups_are_the_library_s() {
    if !Peer::Mpich5.there() {
        return;
    }
    for against in Against::LIBRARIES {
        let groups = against.program("mpi_groups", false);
        let job = Job::hydrant("--mpi-psets -n 2 --pset ocean").arg(&groups);
        job.words(": -n 3 --pset atmos").arg(&groups).run().code(0).quiet().says("groups are well", 5);
    }
}

// Shows: MPI Sessions, Process sets | a group of such a set | may succeed, because it is local | free: an error
#[test]
fn a_set_with_a_dead_member_stays_and_is_an_error() {
    if !Peer::Mpich5.there() {
        return;
    }
    for against in Against::LIBRARIES {
        let program = against.program("mpi_pset_dead", false);
        for how in ["", "exit"] {
            let job =
                Job::hydrant("--mpi-psets --disable-auto-cleanup -n 2 --pset pair").arg(&program).words(how);
            job.run().says("pair is number 4 and dead", 1);
        }
    }
}

/// All calls of this program are in `libhydrant_mpi` too, so a linker that drops what is not needed drops the library behind.
#[test]
fn linking_keeps_the_library_behind() {
    const SOURCE: &str = "#include <mpi.h>\n#include <hydrant_mpi.h>\n\
        int main(void) { MPI_Session s; MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &s);\n\
        return MPI_Session_finalize(&s); }\n";
    if !Peer::Mpich5.there() {
        return;
    }
    let folder = Folder::new("as-needed");
    let (source, program) = (folder.path("sessions.c"), folder.path("sessions"));
    std::fs::write(&source, SOURCE).expect("the folder is writable");
    for against in Against::LIBRARIES {
        let mut command = std::process::Command::new(against.compiler());
        command.env_remove("LD_LIBRARY_PATH").arg("-Wl,--as-needed").arg("-I").arg(include_dir());
        command.arg(&source).args(pkg_config_libs()).arg("-o").arg(&program);
        let linked = command.status().expect("the compiler starts");
        assert!(linked.success(), "{command:?}");
        let needed = Job::new("readelf").arg("-d").arg(&program).run();
        let behind = if against == Against::Mpich { "libmpi.so.12" } else { "libmpi_abi.so." };
        needed.code(0).says("[libhydrant_mpi.so]", 1).says(behind, 1);
    }
}

/// What pkg-config says of the library where it was built.
fn pkg_config_libs() -> Vec<String> {
    let library = library();
    let folder = library.parent().expect("a file lies in a folder");
    let file = include_str!("../../../host-native/mpi/hydrant_mpi.pc.in");
    let libs =
        file.lines().find_map(|line| line.strip_prefix("Libs: ")).expect("the file names the libraries");
    libs.replace("${libdir}", &folder.display().to_string()).split(' ').map(str::to_owned).collect()
}

#[test]
fn everything_else_is_the_library_s() {
    if !Peer::Mpich5.there() {
        return;
    }
    for against in Against::LIBRARIES {
        let info = against.program("mpi_info", false);
        // It needs the library and does not initialize it, which is worth a line.
        let outcome = Job::hydrant("--mpi-psets -n 2").arg(info).run();
        outcome.code(0).says("info is well", 2).stderr_starts("hydrant: no rank has joined the job");
        // Sessions that come and go. One thread each: MPICH by itself may hang when those of several threads overlap, since
        // it begins and ends with the first and the last of them, which need not be the same in every process.
        let sessions = against.program("mpi_sessions", false);
        let psets = "psets: mpi://world mpi://self hydrant://node/";
        let folder = Folder::new("sessions");
        let job = Job::hydrant("--mpi-psets -n 3").arg(sessions).words("1 3").arg(&folder.0).run();
        job.code(0).quiet().says("of 1 threads: size 3", 9).says(psets, 9);
        // Without a hydrant that answers, there is nothing to add.
        let sessions = against.program("mpi_sessions", false);
        let job = Job::hydrant("-n 2 -env LD_PRELOAD").arg(library()).arg(sessions).words("1 1").run();
        job.code(0).quiet().says("psets: mpi://world mpi://self\n", 2);
    }
    let hello = Peer::Mpich5.program("mpi_hello");
    let (with, without) =
        (Job::hydrant("--mpi-psets -n 2").arg(&hello).run(), Job::hydrant("-n 2").arg(&hello).run());
    assert_eq!(with.code(0).lines(), without.code(0).lines());
}

#[test]
fn an_interpreter_loads_its_library_late() {
    if !Peer::Mpich5.there() {
        return;
    }
    let script = clients_dir().join("mpi_psets.py");
    let job = Job::hydrant("--mpi-psets -n 2 --pset ocean").arg(python()).arg(script).run();
    job.code(0).quiet().says("ocean of 2: 0 1\n", 2);
}

#[test]
fn spawned_jobs_have_their_own() {
    if !Peer::Mpich5.there() {
        return;
    }
    let script = clients_dir().join("mpi_psets_spawn.py");
    let job = Job::hydrant("--mpi-psets -n 1 --pset ocean").arg(python()).arg(script).run();
    job.code(0).quiet().says("a job of two\n", 2);
}

#[test]
fn sets_hold_ranks_of_parent_and_child() {
    if !Peer::Mpich5.there() {
        return;
    }
    for options in [String::new(), nodes(4, 2, 2) + " -ppn 1"] {
        let job = Job::hydrant(&options).words("--mpi-psets -n 2");
        let job = job.arg(Against::Mpich.program("mpi_psets_jobs", true));
        job.run().code(0).quiet().says("sets of both jobs are well", 5);
    }
}
