//! Fortran programs: alone, and in front of the Fortran libraries of MPICH and Intel MPI.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use hydrant_tests::peers::{Peer, clients_dir, intel_lib, peers_dir};
use hydrant_tests::{Folder, Job};

use super::programs::{include_dir, library};

/// What a program is built against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    /// `libhydrant_mpi` and nothing else.
    Hydrant,
    /// MPICH 4.0.2, before it `libhydrant_mpi`.
    Mpich,
    /// Intel MPI, before it `libhydrant_mpi`. Its modules are for other compilers.
    Intel,
}

/// How a program declares what it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// Module `mpi_f08`.
    F08,
    /// `mpif.h`.
    Mpif,
}

const STYLES: [Style; 2] = [Style::F08, Style::Mpif];

/// Builds `tests/clients/NAME.F90` in a folder, with `STOCK` defined where another library is behind.
fn build(name: &str, against: Against, style: Style, folder: &Folder) -> PathBuf {
    let program = folder.0.join(name);
    let lib = library().parent().expect("a file lies in a folder");
    let stock = against != Against::Hydrant;
    let mut command = Command::new(if against == Against::Mpich { "mpifort.mpich" } else { "gfortran" });
    // Other files of the compiler go beside the program. Calls without a declaration have arguments of several types.
    command.current_dir(&folder.0).env_remove("LD_LIBRARY_PATH").args([
        "-O1",
        "-fallow-argument-mismatch",
        "-o",
    ]);
    command.arg(&program).arg("-I").arg(include_dir());
    if stock {
        command.arg("-DSTOCK").args(["-I", "/usr/include/x86_64-linux-gnu/mpich"]);
    } else {
        command.args(["-Wall", "-Werror"]);
    }
    match style {
        Style::Mpif => _ = command.arg("-DMPIF"),
        Style::F08 if stock => {}
        Style::F08 => _ = command.arg(include_dir().join("hydrant_mpi_f08.f90")),
    }
    command.arg(clients_dir().join(format!("{name}.F90"))).arg("-L").arg(lib).arg("-lhydrant_mpi");
    command.arg(format!("-Wl,-rpath,{}", lib.display()));
    if against == Against::Intel {
        let intel = intel_lib();
        command.args([intel.join("libmpifort.so.12"), intel.join("libmpi.so.12")]);
        command.arg(format!("-Wl,-rpath-link,{}", intel.display()));
    }
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Variables by which MPICH 5.0.2 is behind the Fortran library of MPICH 4.0.2: the wheel has none, and the ABI is the same.
fn mpich5_behind(folder: &Folder) -> [(&'static str, String); 1] {
    let lib = peers_dir().join("mpich/lib");
    let lib = fs::canonicalize(&lib).unwrap_or_else(|e| panic!("{}: {e}", lib.display()));
    symlink(lib.join("libmpi.so.12"), folder.0.join("libmpich.so.12")).expect("the folder is new");
    // Its own libraries, which it finds beside its file's name only.
    [("LD_LIBRARY_PATH", format!("{}:{}", folder.0.display(), lib.join("mpich").display()))]
}

/// A job of two programs, each with a process set and its name as argument.
fn coupled(program: &PathBuf, env: &[(&str, String)]) -> Job {
    let job = Job::hydrant("--mpi-psets -n 2 --pset ocean").arg(program).words("ocean : -n 3 --pset atmos");
    env.iter().fold(job.arg(program).arg("atmos"), |job, (name, value)| job.env(name, value))
}

// Shows: MPI Info, Objects | Fortran bindings | `INTEGER` handles, `CHARACTER*(*)`, `LOGICAL`, `IERROR` | done: for
// gfortran, also those of `mpi_f08`; a handle has the same value in C
// Also: libraries `mpi::fortran::every_rule_in_front_of_mpich`
#[test]
fn every_rule_of_the_bindings() {
    if !Peer::Gfortran.there() {
        return;
    }
    for style in STYLES {
        let folder = Folder::new(&format!("fortran-rules-{style:?}"));
        let program = build("mpi_fortran", Against::Hydrant, style, &folder);
        let returns = ("HYDRANT_MPI_INITIAL_ERRHANDLER", "mpi_errors_return");
        let alone = Job::new(&program).env(returns.0, returns.1).run();
        alone.code(0).quiet();
        let sets = ["set 0 is mpi://WORLD of 1", "set 1 is mpi://SELF of 1"];
        assert_eq!(alone.lines(), ["fortran is well", sets[0], sets[1]], "{style:?}");
        let outcome = coupled(&program, &[]).env(returns.0, returns.1).run();
        outcome.code(0).quiet().says("fortran is well", 5);
        outcome.says("set 4 is app://ocean of 2", 2).says("set 4 is app://atmos of 3", 3);
    }
}

#[test]
fn every_rule_in_front_of_mpich() {
    if !(Peer::Gfortran.there() && Peer::Mpich4.there() && Peer::Mpich5.there()) {
        return;
    }
    for style in STYLES {
        let folder = Folder::new(&format!("fortran-mpich-{style:?}"));
        let program = build("mpi_fortran", Against::Mpich, style, &folder);
        // It communicates in no other set than its own two.
        let mpich4 = Job::hydrant("--mpi-psets -n 2 --pset ocean").arg(&program).run();
        mpich4.code(0).quiet().says("set 4 is app://ocean of 2", 2).says("fortran is well", 2);
        let mpich5 = coupled(&program, &mpich5_behind(&folder)).run();
        mpich5.code(0).quiet().says("ocean has communicated", 2).says("atmos has communicated", 3);
        mpich5.says("set 4 is app://ocean of 2", 2).says("fortran is well", 5);
    }
}

#[test]
fn every_rule_in_front_of_intel_mpi() {
    if !(Peer::Gfortran.there() && Peer::Mpich4.there() && Peer::Intel.there()) {
        return;
    }
    let folder = Folder::new("fortran-intel");
    let program = build("mpi_fortran", Against::Intel, Style::Mpif, &folder);
    let variables =
        [("LD_LIBRARY_PATH", intel_lib().display().to_string()), ("I_MPI_FABRICS", "shm".to_owned())];
    let outcome = coupled(&program, &variables).run();
    outcome.code(0).says("ocean has communicated", 2).says("atmos has communicated", 3);
    outcome.says("set 4 is app://ocean of 2", 2).says("fortran is well", 5);
}

/// Lines of the processes of a coupled model, sorted.
const MODEL: [&str; 5] = [
    "app://atmos: rank 0 of 3, columns 1 to 4, coupled with rank 0",
    "app://atmos: rank 1 of 3, columns 5 to 8, coupled with rank 0",
    "app://atmos: rank 2 of 3, columns 9 to 12, coupled with rank 0",
    "app://ocean: rank 0 of 2, columns 1 to 6, coupled with rank 2",
    "app://ocean: rank 1 of 2, columns 7 to 12, coupled with rank 2",
];

#[test]
fn a_climate_without_an_mpi_library() {
    if !Peer::Gfortran.there() {
        return;
    }
    let folder = Folder::new("fortran-climate");
    let outcome = coupled(&build("mpi_ocean", Against::Hydrant, Style::F08, &folder), &[]).run();
    assert_eq!(outcome.code(0).quiet().lines(), MODEL);
}

#[test]
fn a_climate_on_mpich() {
    if !(Peer::Gfortran.there() && Peer::Mpich4.there() && Peer::Mpich5.there()) {
        return;
    }
    let folder = Folder::new("fortran-climate-mpich");
    let program = build("mpi_ocean", Against::Mpich, Style::F08, &folder);
    let outcome = coupled(&program, &mpich5_behind(&folder)).run();
    outcome.code(0).quiet();
    let heat =
        ["app://atmos: 6.0 degrees in each of 12 columns", "app://ocean: 10.0 degrees in each of 12 columns"];
    let mut wanted = [&MODEL[..], &heat].concat();
    wanted.sort_unstable();
    assert_eq!(outcome.lines(), wanted);
}
