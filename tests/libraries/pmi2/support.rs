//! The library as its install script leaves it, and programs built against it or against Slurm's.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use hydrant_tests::peers::{MPIEXEC_4, Peer, clients_dir, mpiexec_5};
use hydrant_tests::slurm::Cluster;
use hydrant_tests::target_dir;
use hydrant_tests::{Job, Running};

/// Whose header a program is built against, or whose library it runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    Own,
    Slurm,
}

pub(crate) const BOTH: [Whose; 2] = [Whose::Own, Whose::Slurm];

/// The folder of this test's C sources.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("libraries/pmi2")
}

fn work_dir() -> PathBuf {
    target_dir().join("libraries/pmi2")
}

/// Runs a command to its end, which has to be a success; its standard output.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout
}

/// Where the library is installed, once a run of the tests.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| {
        let prefix = work_dir().join("prefix");
        install("pmi2", &prefix);
        // Programs of this folder include the header by the name that Slurm gives it.
        let beside = work_dir().join("include/slurm");
        fs::create_dir_all(&beside).unwrap_or_else(|e| panic!("{}: {e}", beside.display()));
        fs::copy(prefix.join("include/pmi2.h"), beside.join("pmi2.h")).expect("the header was installed");
        prefix
    });
    &PREFIX
}

/// Runs the install script of a library as a user would, but for the profile that the tests have built already.
pub(crate) fn install(library: &str, prefix: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host-native").join(library).join("install");
    let mut command = Command::new(script);
    command.args(["--profile", "dev", "--prefix"]).arg(prefix).env("CARGO_TARGET_DIR", target_dir());
    succeed(&mut command)
}

/// The program of `source`, built against that header once a run of the tests.
pub(crate) fn program(header: Whose, source: &Path) -> PathBuf {
    type Built = HashMap<(Whose, PathBuf), PathBuf>;
    static BUILT: LazyLock<Mutex<Built>> = LazyLock::new(Mutex::default);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    built.entry((header, source.to_owned())).or_insert_with(|| build(header, source)).clone()
}

fn build(header: Whose, source: &Path) -> PathBuf {
    let dir = work_dir().join(format!("{header:?}").to_lowercase());
    fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let program = dir.join(source.file_stem().expect("a source has a name"));
    let mut command = Command::new("cc");
    command.args(["-O1", "-Wall", "-Wno-unused-function", "-o"]).arg(&program).arg(source);
    command.arg("-I").arg(clients_dir());
    if header == Whose::Own {
        command.arg("-I").arg(prefix().with_file_name("include")).arg("-L").arg(prefix().join("lib"));
    }
    succeed(command.args(["-lpmi2", "-lpthread"]));
    program
}

/// Who starts the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// `hydrant run` with these options.
    Hydrant(&'static str),
    /// hydra 4.0.2 with these.
    Hydra4(&'static str),
    /// hydra 5.0.2 with these.
    Hydra5(&'static str),
    /// `srun` with these.
    Srun(&'static str),
}

pub(crate) const HYDRANT: [Launcher; 2] = [Launcher::Hydrant(""), Launcher::Hydrant("--pmi-port")];
pub(crate) const HYDRA_4: [Launcher; 2] = [Launcher::Hydra4(""), Launcher::Hydra4("-pmi-port")];
pub(crate) const HYDRA_5: [Launcher; 2] = [Launcher::Hydra5(""), Launcher::Hydra5("-pmi-port")];
pub(crate) const SRUN: Launcher = Launcher::Srun("-p one");

/// A job to be, and the Slurm that it needs.
pub(crate) struct Ready {
    job: Job,
    _cluster: Option<Arc<Cluster>>,
}

impl Launcher {
    /// A job of `size` processes of a program, where the launcher is there; `None` where it may be missing.
    pub(crate) fn job(self, size: u32, header: Whose, library: Whose, source: &Path) -> Option<Ready> {
        let slurm_there = Peer::SlurmPmi2.there();
        if !slurm_there && (header == Whose::Slurm || library == Whose::Slurm) {
            return None;
        }
        let library = (library == Whose::Own).then(|| prefix().join("lib"));
        self.job_of(size, &program(header, source), library.as_deref())
    }

    /// A job of `size` processes of a built program, with libraries of that folder or the system's.
    pub(crate) fn job_of(self, size: u32, program: &Path, library: Option<&Path>) -> Option<Ready> {
        let mut cluster = None;
        let job = match self {
            // The programs check the universe size, which is unset by default.
            Launcher::Hydrant(options) => Job::hydrant(&format!("-usize {size} {options}")),
            Launcher::Hydra4(options) => Peer::Mpich4.there().then(|| Job::new(MPIEXEC_4).words(options))?,
            Launcher::Hydra5(options) => {
                Peer::Mpich5.there().then(|| Job::new(mpiexec_5()).words(options))?
            }
            Launcher::Srun(options) => {
                let running = Cluster::running()?;
                let job = running.command("srun").words("--quiet --mpi=pmi2").words(options);
                cluster = Some(running);
                job
            }
        };
        let mut job = job.arg("-n").arg(size.to_string()).arg(program);
        if let Some(library) = library {
            job = job.env("LD_LIBRARY_PATH", library);
        }
        Some(Ready { job, _cluster: cluster })
    }
}

impl Ready {
    /// Starts the job, with an input that the test ends.
    pub(crate) fn start(self) -> Running {
        self.job.hold_input().start()
    }

    /// Adds the blank-separated words of `args`.
    pub(crate) fn words(mut self, args: &str) -> Ready {
        self.job = self.job.words(args);
        self
    }

    /// Adds one argument.
    pub(crate) fn arg(mut self, arg: &str) -> Ready {
        self.job = self.job.arg(arg);
        self
    }

    /// Adds the path of a program.
    pub(crate) fn program(mut self, header: Whose, source: &Path) -> Ready {
        self.job = self.job.arg(program(header, source));
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, key: &str, value: &str) -> Ready {
        self.job = self.job.env(key, value);
        self
    }

    /// Has the ranks of `outer` start it.
    pub(crate) fn inside(mut self, outer: Job) -> Ready {
        self.job = outer.args(self.job.command_line());
        self
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> hydrant_tests::Outcome {
        self.job.run()
    }
}

/// A program over this library without any launcher.
pub(crate) fn alone(header: Whose, source: &Path) -> Job {
    Job::new(program(header, source)).env("LD_LIBRARY_PATH", prefix().join("lib"))
}
