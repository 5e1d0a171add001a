//! Jobs whose ranks another launcher starts: `hydrant serve --size N`, on this machine's processor and on a DPU's.

mod clients;
mod fleet;
pub(crate) mod links;
pub(crate) mod names;
pub(crate) mod offload;
mod pods;
mod recordings;
mod spares;
mod strangers;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hydrant_tests::{Job, Outcome, Running};
use hydrant_tests::{cross, hydrant_bin};

/// A PMI client that does what its arguments say; see its source for the steps.
const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");

/// Which machine serves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Machine {
    /// This one.
    Here,
    /// An aarch64 one, as the cores of DPUs are, by qemu's emulation of it.
    Aarch64,
}

/// A server of a job of so many ranks, which the test starts.
struct Server {
    running: Running,
    port: String,
    size: u32,
}

impl Machine {
    /// Starts `hydrant serve --size SIZE OPTIONS` on it.
    fn serve(self, size: u32, options: &str) -> Server {
        let job = match self {
            Machine::Here => Job::new(hydrant_bin()),
            Machine::Aarch64 => Job::new("qemu-aarch64-static").arg(aarch64_bin()),
        };
        let job = job.words(&format!("serve --size {size} --jobid {JOBID} {options}"));
        let running = job.start();
        let said = running.await_stdout("\n", 1).stdout();
        let port = said.trim_end().strip_prefix("PMI_PORT=").unwrap_or_else(|| panic!("no port in {said:?}"));
        Server { port: port.to_owned(), running, size }
    }
}

/// What the jobs are called here.
const JOBID: &str = "job-of-the-test";

impl Server {
    /// Rank `rank` of its job as that program, to be started.
    fn rank(&self, rank: u32, program: impl AsRef<Path>) -> Job {
        let job = Job::new(program.as_ref()).env("PMI_PORT", &self.port).env("PMI_ID", rank.to_string());
        // What only the raw client looks at.
        job.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", self.size.to_string()).env("PMI_JOBID", JOBID)
    }

    /// All its ranks as that program, started and then awaited.
    fn ranks(&self, program: impl AsRef<Path>, with: impl Fn(Job) -> Job) -> Vec<Outcome> {
        let start = |rank| with(self.rank(rank, &program)).start();
        let running: Vec<Running> = (0..self.size).map(start).collect();
        running.into_iter().map(Running::wait).collect()
    }

    /// Its end.
    fn wait(self) -> Outcome {
        self.running.wait()
    }
}

/// Asserts that all have ended well.
fn succeed(ranks: &[Outcome]) {
    for rank in ranks {
        rank.code(0);
    }
}

/// The `hydrant` command for aarch64, built once.
fn aarch64_bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let built = cross(
            "aarch64-unknown-linux-gnu",
            &workspace,
            &["build", "--package", "hydrant", "--bin", "hydrant"],
        );
        built.join("debug/hydrant")
    })
}
