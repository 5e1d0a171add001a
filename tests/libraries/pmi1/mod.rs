//! libpmi.so.0: the same programs over this library and over Slurm's, under every process manager that speaks PMI-1 and
//! under none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use hydrant_tests::peers::{Peer, clients_dir, intel_bin, intel_lib};
use hydrant_tests::slurm::Cluster;
use hydrant_tests::{Job, target_dir};

use crate::pmi2::header::{Folder, compare_headers, exports};
use crate::pmi2::support::{HYDRA_4, HYDRA_5, HYDRANT, Launcher, SRUN, install, succeed};

const SLURM_LIBPMI: &str = "/usr/lib/x86_64-linux-gnu/libpmi.so.0";

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("libraries/pmi1")
}

/// Where the library is installed, once a run of the tests.
fn prefix() -> &'static Path {
    static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| {
        let prefix = target_dir().join("libraries/pmi1/prefix");
        install("pmi1", &prefix);
        prefix
    });
    &PREFIX
}

fn lib() -> PathBuf {
    prefix().join("lib")
}

/// A program built against the installed header, once a run of the tests.
fn codes() -> &'static Path {
    static CODES: LazyLock<PathBuf> = LazyLock::new(|| {
        let program = prefix().with_file_name("codes");
        let mut command = Command::new("cc");
        command.args(["-O1", "-Wall", "-Wno-unused-function", "-o"]).arg(&program);
        command.arg("-I").arg(prefix().join("include")).arg(sources().join("codes.c"));
        succeed(command.arg("-L").arg(lib()).args(["-lpmi", "-lpthread"]));
        program
    });
    &CODES
}

/// A program built against Slurm's header, once a run of the tests. Both are in the packages of Slurm's libpmi2.
fn kvs() -> Option<&'static Path> {
    static KVS: LazyLock<PathBuf> = LazyLock::new(|| {
        let program = prefix().with_file_name("kvs");
        let mut command = Command::new("cc");
        command.args(["-O1", "-Wall", "-o"]).arg(&program).arg(clients_dir().join("pmi1_kvs.c"));
        succeed(command.arg("-lpmi"));
        program
    });
    Peer::SlurmPmi2.there().then(|| KVS.as_path())
}

fn exchange(launcher: Launcher, size: u32, library: Option<&Path>) {
    let Some(job) = kvs().and_then(|kvs| launcher.job_of(size, kvs, library)) else { return };
    let outcome = job.words("4 900 3").run();
    outcome.code(0).quiet().says(&format!("pmi1 size={size} errs=0\n"), 1);
}

// Shows: pmi.h | `PMI_Barrier`, `PMI_KVS_Put`, `PMI_KVS_Get` | what was put before a barrier is seen after it | done
// Also: libraries `pmi1::exchanges_under_hydra`, `pmi1::exchanges_under_srun`
#[test]
fn exchanges_under_hydrant() {
    for launcher in HYDRANT {
        exchange(launcher, 5, Some(&lib()));
    }
    exchange(HYDRANT[0], 32, Some(&lib()));
}

#[test]
fn exchanges_under_hydra() {
    for launcher in HYDRA_4.into_iter().chain(HYDRA_5) {
        exchange(launcher, 4, Some(&lib()));
    }
}

/// Slurm's PMI-2 plugin speaks PMI-1 too. Slurm's own libpmi asks srun instead, with any plugin.
#[test]
fn exchanges_under_srun() {
    let Some(_cluster) = Cluster::running() else { return };
    exchange(SRUN, 4, Some(&lib()));
    exchange(SRUN, 4, None);
    exchange(Launcher::Srun("-p four -N 4"), 8, Some(&lib()));
}

/// Every call with the code that it has to give, a spawn among them.
#[test]
fn every_code_where_it_belongs() {
    for launcher in HYDRANT {
        for size in [1, 3] {
            let job = launcher.job_of(size, codes(), Some(&lib())).expect("hydrant is there");
            let outcome = job.run();
            outcome.code(0).says(&format!(" of {size} are right\n"), size as usize).says("child ", 3);
        }
    }
}

#[test]
fn every_code_alone() {
    let outcome = Job::new(codes()).arg("alone").env("LD_LIBRARY_PATH", lib()).run();
    outcome.code(0).says("codes of rank 0 of 1 are right\n", 1);
}

// Shows: pmi.h | `PMI_Abort` | ends the job with a code and a message | done
#[test]
fn aborts() {
    for launcher in HYDRANT {
        let job = launcher.job_of(3, codes(), Some(&lib())).expect("hydrant is there");
        job.words("abort").run().code(37).says("survived", 0).warns("the last rank; stops");
        let long = "m".repeat(1020) + "END!";
        for (said, printed) in [(&*long, &*long), ("café: one\ntwo", r"café: one\ntwo")] {
            let job = launcher.job_of(2, codes(), Some(&lib())).expect("hydrant is there");
            let outcome = job.words("abort").arg(said).run();
            outcome.code(37).warns(&format!("rank 1 aborted the job with code 37: {printed}\n"));
        }
    }
    let outcome = Job::new(codes()).arg("abort").env("LD_LIBRARY_PATH", lib()).run();
    outcome.code(37).says("survived", 0).warns("PMI_Abort: the last rank; stops\n");
}

// Shows: pmi.h | `PMI_KVS_Get` | a value of the own job | done: from shared memory, without a message
#[test]
fn gets_of_shared_values_take_no_message() {
    let job = HYDRANT[0].job_of(4, codes(), Some(&lib())).expect("hydrant is there");
    job.words("messages").run().code(0).quiet().says("read rank ", 4);
}

#[test]
fn errors_of_the_environment_name_the_variable() {
    let wrong = [
        (&[("PMI_FD", "0"), ("PMI_RANK", "0")][..], "environment variable PMI_SIZE is not set"),
        (&[("PMI_FD", "987"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")], "PMI_FD=987"),
        (&[("PMI_PORT", "127.0.0.1:1")], "environment variable PMI_ID is not set"),
    ];
    for (variables, message) in wrong {
        let job = Job::new(codes()).arg("alone").env("LD_LIBRARY_PATH", lib());
        let job = variables.iter().fold(job, |job, (key, value)| job.env(key, value));
        job.run().code(97).warns(&format!("hydrant-pmi1: PMI_Init: {message}"));
    }
}

/// Intel MPI's own PMI-1 client steps aside for a library that is named to it.
#[test]
fn intel_mpi_uses_it() {
    if !Peer::Intel.there() {
        return;
    }
    let job = Job::hydrant("-n 4").arg(intel_bin().join("IMB-MPI1")).words("Barrier -iter 10");
    let job = job.env("LD_LIBRARY_PATH", intel_lib()).env("I_MPI_FABRICS", "shm").env("I_MPI_DEBUG", "5");
    let library = lib().join("libpmi.so.0");
    let outcome = job.env("I_MPI_PMI_LIBRARY", &library).run();
    outcome.code(0).says("# #processes = 4", 1).says("All processes entering MPI_Finalize", 1);
    outcome.says(&format!("I_MPI_PMI_LIBRARY={}\n", library.display()), 1);
}

/// Every constant, structure and function has the same value, layout and type in both headers.
// Shows: pmi.h | all constants, structures, prototypes | equal values, layouts and types | done: 58 compared with
// Slurm's header
#[test]
fn both_headers_say_the_same() {
    if !Peer::SlurmPmi2.there() {
        return;
    }
    let said = compare_headers("pmi", &sources().join("layout.c"), prefix());
    assert_eq!(said, "58 compared, 0 wrong\n");
}

/// Slurm's functions, and that of PMI 1.2.
// Shows: pmi.h | all functions | the 33 symbols of Slurm's library | done, and `PMI_Barrier_group`
#[test]
fn the_interface_and_nothing_else_is_exported() {
    let mut own = exports(&lib().join("libpmi.so.0"));
    assert!(own.remove("PMI_Barrier_group") && own.len() == 33, "{own:?}");
    if Peer::SlurmPmi2.there() {
        let theirs = exports(Path::new(SLURM_LIBPMI)).into_iter().filter(|name| name.starts_with("PMI_"));
        assert_eq!(own, theirs.collect());
    }
}

/// A program that knows the installed library by pkg-config alone, in C99 and in C++.
#[test]
fn installing_takes_one_command() {
    let folder = Folder::new("pmi1-install");
    let said = install("pmi1", &folder.0);
    assert!(said.contains("libpmi.so.0, pmi.h and pmi.pc"), "{said}");
    let flags = succeed(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "pmi"])
            .env("PKG_CONFIG_PATH", folder.0.join("lib/pkgconfig")),
    );
    let (source, program) = (folder.0.join("program.c"), folder.0.join("program"));
    let text = "#include <pmi.h>\nint main(void) { int n; return PMI_Init(&n) || PMI_Finalize(); }\n";
    fs::write(&source, text).expect("the folder was made for this");
    for (compiler, language) in [("cc", &["-x", "c", "-std=c99"][..]), ("c++", &["-x", "c++"])] {
        if Command::new(compiler).arg("--version").output().is_err() {
            hydrant_tests::tell(&format!("SKIPPED: there is no {compiler}"));
            continue;
        }
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-pedantic", "-Werror"]).args(language);
        command.arg(&source).args(["-x", "none"]);
        succeed(command.args(flags.split_whitespace()).arg("-o").arg(&program));
        succeed(Command::new(&program).env("LD_LIBRARY_PATH", folder.0.join("lib")));
    }
}
