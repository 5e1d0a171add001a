//! Jobs inside parallel jobs of a real Grid Engine over three hosts, whose qrsh starts the daemons.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use hydrant_tests::hydrant_bin;
use hydrant_tests::peers::{Peer, peers_dir};
use hydrant_tests::{Job, Running};
use rustix::process::{Pid, Signal, kill_process};

use crate::RAW;
use crate::namespaces::{DOMAIN, HOSTS, LOGIN, Site};

/// A Grid Engine whose master is on the first of the hosts.
struct Grid {
    site: Site,
}

/// The one of this run of the tests, for one test at a time.
struct Shared(MutexGuard<'static, Option<Grid>>);

impl std::ops::Deref for Shared {
    type Target = Grid;

    fn deref(&self) -> &Grid {
        self.0.as_ref().expect("only a Grid Engine that was started is handed out")
    }
}

#[track_caller]
fn succeed(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
}

impl Grid {
    /// The one that all tests share; `None` where it may be missing.
    fn shared() -> Option<Shared> {
        // Never dropped: it ends when this process does.
        static GRID: LazyLock<Mutex<Option<Grid>>> = LazyLock::new(|| Mutex::new(Grid::start()));
        let grid = GRID.lock().unwrap_or_else(PoisonError::into_inner);
        grid.is_some().then_some(Shared(grid))
    }

    fn start() -> Option<Grid> {
        if !Peer::Sge.there() {
            return None;
        }
        let mut grid = Grid { site: Site::start()? };
        // Debian builds Grid Engine for one place, where the packages are not installed.
        let programs = format!("lowerdir={}:/usr", peers_dir().join("gridengine/usr").display());
        for machine in HOSTS.iter().chain([&LOGIN]) {
            let mut mount = grid.site.inside(machine, "mount");
            succeed(mount.args(["-t", "overlay", "overlay", "-o", &programs, "/usr"]));
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("sge/start");
        let mut start = grid.site.inside(HOSTS[0], "sh");
        succeed(start.arg(script).arg(grid.root()).args([DOMAIN, LOGIN]).args(HOSTS));
        for host in HOSTS {
            let mut daemon = grid.site.inside(host, "/usr/lib/gridengine/sge_execd");
            succeed(daemon.envs(grid.variables()).stdout(Stdio::null()));
        }
        // Grid Engine offers nothing to wait for that.
        let up = "until [ \"$(/usr/lib/gridengine/qhost | grep -c ' lx-')\" = 3 ]; do sleep 0.05; done";
        let mut wait = grid.site.inside(HOSTS[0], "timeout");
        succeed(wait.args(["30", "sh", "-c", up]).envs(grid.variables()));
        grid.site.settle();
        Some(grid)
    }

    fn root(&self) -> PathBuf {
        self.site.dir().join("sge")
    }

    fn variables(&self) -> [(&'static str, String); 3] {
        let root = self.root().display().to_string();
        [("SGE_ROOT", root), ("SGE_QMASTER_PORT", "6444".to_owned()), ("SGE_EXECD_PORT", "6445".to_owned())]
    }

    /// One of its commands on the login machine.
    fn command(&self, name: &str) -> Job {
        let command = self.site.on_login(Path::new("/usr/lib/gridengine").join(name));
        self.variables().into_iter().fold(command, |command, (name, value)| command.env(name, value))
    }

    /// `hydrant run ARGS` in a job of its own, with those slots of a parallel environment.
    fn job(&self, slots: &str, args: &str) -> Job {
        let job = self.command("qrsh").words("-now no -N test -pe").words(slots);
        job.arg(hydrant_bin()).arg("run").words(args)
    }

    /// Two ranks on each host, which stay.
    fn staying(&self) -> Running {
        let job = self.job("mpi 6", "-n 6").args([RAW, "init1", "fence1", "say", "up", "forever"]).start();
        job.await_stdout("up", 6);
        job
    }
}

#[test]
fn the_hosts_of_a_job_are_found_and_reached() {
    let Some(grid) = Grid::shared() else { return };
    for radix in ["16", "2"] {
        let job = grid.job("mpi 6", "-n 6 -radix").arg(radix).arg(hydrant_bin()).arg("probe");
        job.run().code(0).says("6 ranks on 3 hosts exchanged 36 cards", 1);
        grid.site.is_idle();
    }
    if Peer::Mpich5.there() {
        let outcome = grid.job("mpi 6", "-n 6").arg(Peer::Mpich5.program("mpi_nodes")).run();
        outcome.code(0);
        for host in HOSTS {
            outcome
                .says(&format!(" of 6 on {host}: 0 of 2 "), 1)
                .says(&format!(" of 6 on {host}: 1 of 2 "), 1);
        }
    }
}

#[test]
fn the_only_slot_of_a_host_is_taken_by_the_launcher() {
    let Some(grid) = Grid::shared() else { return };
    let outcome = grid.job("alone 3", "--dry-run -n 3 true").run();
    outcome.code(0).says("hosts: 3, of this SGE job\n", 1).says("/qrsh -inherit ", 2);
    let outcome = grid.job("alone 3", "-n 3").arg(hydrant_bin()).arg("probe").run();
    outcome.code(0).says("3 ranks on 3 hosts exchanged 9 cards", 1);
    grid.site.is_idle();
}

#[test]
fn a_parallel_environment_without_tasks_takes_ssh() {
    let Some(grid) = Grid::shared() else { return };
    let outcome = grid.job("loose 6", "-n 6 true").run();
    outcome.code(1).warns("qrsh ended with exit code 1").warns("didn't accept task");
    let outcome = grid.job("loose 6", "-bootstrap ssh -n 6").arg(hydrant_bin()).arg("probe").run();
    outcome.code(0).says("6 ranks on 3 hosts exchanged 36 cards", 1);
    grid.site.is_idle();
}

#[test]
fn exit_codes_and_output_come_through() {
    let Some(grid) = Grid::shared() else { return };
    // All ranks have printed it when the first one exits.
    let outcome = grid.job("mpi 6", "-l -n 6").arg(RAW).words("init1 say here fence1 exit 7").run();
    outcome.code(7).says("here", 6);
    grid.site.is_idle();
}

#[test]
fn a_job_that_is_deleted_leaves_nothing() {
    let Some(grid) = Grid::shared() else { return };
    let job = grid.staying();
    grid.command("qdel").arg("test").run().code(0);
    let outcome = job.wait();
    assert!(!outcome.status.success(), "{outcome}");
    grid.site.is_idle();
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing_in_its_job() {
    let Some(grid) = Grid::shared() else { return };
    let job = grid.staying();
    let launcher = format!("{} run ", hydrant_bin().display());
    let guests = HOSTS.iter().flat_map(|host| grid.site.guests(host));
    let (pid, _) = guests.into_iter().find(|(_, line)| line.starts_with(&launcher)).expect("it runs");
    let pid = Pid::from_raw(pid as i32).expect("a process has a number");
    kill_process(pid, Signal::KILL).expect("it runs");
    let outcome = job.wait();
    assert!(!outcome.status.success(), "{outcome}");
    grid.site.is_idle();
}
