//! The launchers of `host-wasm/examples`: other languages, the same core, real MPI jobs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use hydrant_abi::ABI_VERSION;
use hydrant_tests::peers::{Peer, node, python};
use hydrant_tests::{Folder, Job};
use hydrant_tests::{hydrant_bin, plugin};
use rustix::process::Signal;

use super::faulty::{TRAPS, faulty};
use super::hosts::{c_launcher, c_libraries};
use super::made::hostile;
use super::packages::{host_wasm, package, python_with};

/// A client that says what it is told.
const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");

/// Language of a launcher.
#[derive(Clone, Copy)]
enum Language {
    Python,
    JavaScript,
    /// With `libhydrant_host`, whose server is built in or in the sandbox.
    C {
        sandbox: bool,
    },
}

/// A language, and where its launcher is.
#[derive(Clone, Copy)]
struct Launcher {
    language: Language,
    file: &'static str,
}

const PYTHON: Launcher = Launcher { language: Language::Python, file: "launch.py" };
const ASYNCIO: Launcher = Launcher { language: Language::Python, file: "launch_asyncio.py" };
const NODE: Launcher = Launcher { language: Language::JavaScript, file: "launch.mjs" };
const C: Launcher = Launcher { language: Language::C { sandbox: false }, file: "launch.c" };
const C_SANDBOX: Launcher = Launcher { language: Language::C { sandbox: true }, file: "launch.c" };

impl Launcher {
    fn path(self) -> PathBuf {
        host_wasm("examples").join(self.file)
    }

    /// A job of so many ranks of that program; nothing where the language or MPICH is missing and may be.
    fn job(self, ranks: u32, program: impl AsRef<Path>) -> Option<Job> {
        self.job_with(plugin(), ranks, program)
    }

    /// The same with another plugin, unless the language is C.
    fn job_with(self, plugin: &Path, ranks: u32, program: impl AsRef<Path>) -> Option<Job> {
        let (there, launcher): (bool, &dyn Fn() -> Job) = match self.language {
            Language::Python => {
                (Peer::Wasmtime.there(), &|| python_with(&package("python")).arg(self.path()).arg(plugin))
            }
            Language::JavaScript => (Peer::Node.there(), &|| {
                // The launcher finds it beside its own folder.
                package("js");
                Job::new(node()).arg(self.path()).arg(plugin)
            }),
            Language::C { sandbox } => (true, &move || c_launcher(sandbox)),
        };
        let there = there && Peer::Mpich5.there();
        there.then(|| launcher().arg(ranks.to_string()).arg(program.as_ref()))
    }

    fn hello_and_allreduce(self) {
        let Some(hello) = self.job(4, Peer::Mpich5.program("mpi_hello")) else { return };
        let outcome = hello.run();
        let lines: Vec<String> =
            (0..4).map(|rank| format!("rank {rank} of 4, program 0, universe -1, MPICH 5.0.2")).collect();
        assert_eq!(outcome.code(0).quiet().lines(), lines, "{outcome}");
        let Some(allreduce) = self.job(4, Peer::Mpich5.program("mpi_allreduce")) else { return };
        allreduce.run().code(0).quiet().says("allreduce of 4: 0 wrong\n", 1);
    }

    /// Open MPI, a PMIx client. Its segments of shared memory are removed.
    fn open_mpi(self) {
        if !Peer::OpenMpi5.there() || !Peer::OpenMpi4.there() {
            return;
        }
        let folder = Folder::new(self.file);
        for peer in [Peer::OpenMpi5, Peer::OpenMpi4] {
            let segments = folder.path(peer.name());
            std::fs::create_dir(&segments).expect("the folder is new");
            for (program, said) in [
                ("mpi_hello", " of 4, program 0, universe 4, Open "),
                ("mpi_allreduce", "allreduce of 4: 0 wrong\n"),
            ] {
                let Some(job) = self.job(4, peer.program(program)) else { return };
                let job = job.env("OMPI_MCA_btl_sm_backing_directory", &segments);
                let job = job.env("OMPI_MCA_btl_vader_backing_directory", &segments);
                let variables = peer.variables(&folder.0);
                let job = variables.into_iter().fold(job, |job, (name, value)| match self.language {
                    // The launcher's own library is in this variable, too.
                    Language::C { sandbox } if name == "LD_LIBRARY_PATH" => job.env(
                        name,
                        [value.as_os_str(), c_libraries(sandbox).as_os_str()].join(OsStr::new(":")),
                    ),
                    _ => job.env(name, value),
                });
                let outcome = job.run();
                outcome.code(0).quiet().says(said, if program == "mpi_hello" { 4 } else { 1 });
            }
            let left: Vec<_> = std::fs::read_dir(&segments).expect("it is there").flatten().collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }

    /// The core has the others ended, and the failure is the exit code.
    fn failures(self) {
        for code in [5, 0] {
            let abort = format!(
                "from mpi4py import MPI; w = MPI.COMM_WORLD; w.rank == 2 and w.Abort({code}); w.barrier()"
            );
            let Some(job) = self.job(4, python()) else { return };
            job.args(["-c", &abort]).run().code(code).warns("rank 2 aborted: the other ranks are killed");
        }
        for (steps, code, warning) in [
            ("exit 3", 3, "rank 1 left without finalizing: the other ranks are killed"),
            ("kill 9", 137, "rank 1 died: the other ranks are killed"),
            ("exit 0", 1, "rank 1 left without finalizing: the other ranks are killed"),
        ] {
            let Some(job) = self.job(3, RAW) else { return };
            let outcome = job.words("init1 only 1").words(steps).words("all fence1 end1").run();
            outcome.code(code).warns(warning);
        }
        let missing = Folder::new("no-program").path("program");
        let Some(job) = self.job(2, &missing) else { return };
        job.run().code(127).warns(&missing);
    }

    /// A plugin that traps ends the job, at its start and while ranks wait. A file that is no plugin is named.
    fn plugin_failures(self) {
        // Tests that run at the same time have files of their own.
        let name = |fault: &str| format!("{fault}-{}", self.file);
        let at_once = hostile(&name("at-once"), ABI_VERSION, "(unreachable)", "(i32.const 0)");
        let at_a_fence = faulty(&name("at-a-fence"), &[(b"barrier_", TRAPS)]);
        for file in [at_once, at_a_fence] {
            let Some(job) = self.job_with(&file, 2, RAW) else { return };
            let outcome = job.words("init1 only 1 forever all fence1 end1").run();
            outcome.code(1).warns("the plugin failed: hydrant_handle: ").warns("unreachable");
        }
        let text = host_wasm("examples").join("launch.c");
        // wasmtime alone says of these bytes that they are no UTF-8.
        let folder = Folder::new(&name("no-module"));
        let binary = folder.path("binary");
        std::fs::write(&binary, [0xff; 64]).expect("a file of this test");
        let binary = Path::new(&binary);
        let old = hostile(&name("old"), ABI_VERSION - 1, "(unreachable)", "(i32.const 0)");
        let of_another_version = format!("has ABI version {}, and this package needs", ABI_VERSION - 1);
        for (file, why) in [
            (Path::new("/dev/null/none.wasm"), "/dev/null/none.wasm"),
            (&text, "is no WebAssembly module: "),
            (binary, "00 61 73 6d"),
            (&old, &of_another_version),
        ] {
            let Some(job) = self.job_with(file, 2, RAW) else { return };
            let outcome = job.words("init1 end1").run();
            outcome.code(1).warns(why).warns(&format!("{}: ", self.file));
        }
    }

    /// Ranks that wait for each other, or for nothing, end with their launcher.
    fn ends(self) {
        for (signal, code) in [(Signal::KILL, None), (Signal::TERM, Some(143)), (Signal::INT, Some(130))] {
            let Some(job) = self.job(3, RAW) else { return };
            let job = job.words("init1 say here only 0 forever all fence1 end1").start();
            job.await_stdout("here\n", 3).signal(signal);
            let outcome = job.wait();
            match code {
                None => outcome.signaled(signal),
                Some(code) => outcome.code(code).warns("ended by SIG"),
            };
        }
    }

    /// PMI-2, whose messages are counted, and more than the socket hands over at once.
    fn probe(self) {
        let Some(job) = self.job(4, hydrant_bin()) else { return };
        let outcome = job.words("probe --pmi 2 --keys 40 --bytes 1024").run();
        outcome.code(0).quiet().says("all right", 1);
    }
}

#[test]
fn python_hello_and_allreduce() {
    PYTHON.hello_and_allreduce();
}

#[test]
fn python_open_mpi() {
    PYTHON.open_mpi();
}

#[test]
fn python_failures() {
    PYTHON.failures();
}

// Fault: A plugin traps under `launch.py`, `launch_asyncio.py`, `launch.mjs` or `launch.c`
// Outcome: the ranks are killed; a message has the reason; exit code 1
// Guarantee: A failed plugin is asked for nothing more
// Also: sandbox `launchers::asyncio_plugin_failures`, `launchers::node_plugin_failures`,
// `hosts::a_plugin_that_fails_ends_the_job`
#[test]
fn python_plugin_failures() {
    PYTHON.plugin_failures();
}

// Fault: `launch.py` or `launch.mjs` is killed, or gets SIGTERM or SIGINT
// Outcome: its ranks are killed
// Guarantee: The ranks of the example launchers end with their launcher
// Also: sandbox `launchers::node_ends_its_ranks`
#[test]
fn python_ends_its_ranks() {
    PYTHON.ends();
}

#[test]
fn python_probe() {
    PYTHON.probe();
}

#[test]
fn asyncio_hello_and_allreduce() {
    ASYNCIO.hello_and_allreduce();
}

#[test]
fn asyncio_failures() {
    ASYNCIO.failures();
}

#[test]
fn asyncio_plugin_failures() {
    ASYNCIO.plugin_failures();
}

#[test]
fn asyncio_ends_its_ranks() {
    ASYNCIO.ends();
}

#[test]
fn asyncio_probe() {
    ASYNCIO.probe();
}

#[test]
fn node_hello_and_allreduce() {
    NODE.hello_and_allreduce();
}

#[test]
fn node_open_mpi() {
    NODE.open_mpi();
}

#[test]
fn node_failures() {
    NODE.failures();
}

#[test]
fn node_plugin_failures() {
    NODE.plugin_failures();
}

#[test]
fn node_ends_its_ranks() {
    NODE.ends();
}

#[test]
fn node_probe() {
    NODE.probe();
}

#[test]
fn c_hello_and_allreduce() {
    C.hello_and_allreduce();
    C_SANDBOX.hello_and_allreduce();
}

#[test]
fn c_open_mpi() {
    C.open_mpi();
    C_SANDBOX.open_mpi();
}

#[test]
fn c_failures() {
    C.failures();
    C_SANDBOX.failures();
}

#[test]
fn c_ends_its_ranks() {
    C.ends();
    C_SANDBOX.ends();
}

#[test]
fn c_probe() {
    C.probe();
    C_SANDBOX.probe();
}

/// Each fits on a few pages, which is the point of them.
#[test]
fn they_are_short() {
    const LINES_MAX: usize = 150;
    for launcher in [PYTHON, ASYNCIO, NODE, C] {
        let file = launcher.path();
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
        assert!(lines <= LINES_MAX, "{}: {lines} lines", file.display());
    }
}
