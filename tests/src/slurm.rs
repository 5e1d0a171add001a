//! A Slurm of four virtual nodes on this machine, up for as long as a test needs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::peers::Peer;
use crate::ports::free_ports;
use crate::{Job, reset_signals};

/// A running one. Dropping it ends it.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
}

fn script(name: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm").join(name));
    reset_signals(command.stdin(Stdio::null()));
    command
}

impl Cluster {
    /// The one that runs, or else a new one; `None` where Slurm may be missing.
    pub fn running() -> Option<Arc<Cluster>> {
        Peer::Slurm.there().then(Cluster::shared)
    }

    fn shared() -> Arc<Cluster> {
        static CLUSTER: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.upgrade().unwrap_or_else(|| {
            let started = Arc::new(Cluster::new().started());
            *cluster = Arc::downgrade(&started);
            started
        })
    }

    /// A new one with files in its folder, and with lines in plugstack.conf, where `%d` is the folder. `None` where Slurm may
    /// be missing.
    pub fn with_plugins(lines: &str, files: &[&Path]) -> Option<Cluster> {
        Some(Cluster::prepared(lines, files)?.started())
    }

    fn prepared(lines: &str, files: &[&Path]) -> Option<Cluster> {
        if !Peer::Slurm.there() {
            return None;
        }
        let cluster = Cluster::new();
        for file in files {
            cluster.add(file);
        }
        let lines = lines.replace("%d", &cluster.dir.display().to_string());
        fs::write(cluster.dir.join("plugstack.conf"), lines).expect("the folder was just made");
        Some(cluster)
    }

    /// One whose node `without` has no plugins, as if its plugstack.conf had been forgotten. See [`Cluster::with_plugins`].
    pub fn with_plugins_except(without: &str, lines: &str, files: &[&Path]) -> Option<Cluster> {
        let cluster = Cluster::prepared(lines, files)?;
        fs::write(cluster.dir.join(format!("plugstack.{without}.conf")), "")
            .expect("the folder was just made");
        Some(cluster.started())
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.dir
    }

    /// Copies a file to its folder, which every user can read. Returns the copy's path.
    pub fn add(&self, file: &Path) -> PathBuf {
        let copy = self.dir.join(file.file_name().expect("a file has a name"));
        fs::copy(file, &copy).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        copy
    }

    /// One that has a folder and does not run.
    fn new() -> Cluster {
        // A short path: that of munge's socket must fit 108 bytes.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("hydrant-slurm-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        Cluster { dir }
    }

    /// Starts it. A start that fails is cleaned up.
    fn started(self) -> Cluster {
        let ports = free_ports::<5>().map(|port| port.to_string());
        // Into a file: daemons would hold a pipe open.
        let log = self.dir.with_extension("log");
        let file = fs::File::create(&log).unwrap_or_else(|e| panic!("{}: {e}", log.display()));
        let mut start = script("start");
        start.arg(&self.dir).args(ports).stdout(Stdio::null()).stderr(file);
        let status = start.status().unwrap_or_else(|e| panic!("{start:?}: {e}"));
        let said = fs::read_to_string(&log).unwrap_or_default();
        assert!(status.success(), "{start:?}: {status}\n{said}");
        self
    }

    /// One of its commands, for example `srun`.
    pub fn command(&self, name: &str) -> Job {
        Job::new(name).env("SLURM_CONF", self.dir.join("slurm.conf"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let stopped = script("stop").arg(&self.dir).status();
        if !stopped.as_ref().is_ok_and(|status| status.success()) {
            crate::tell(&format!("stopping Slurm in {}: {stopped:?}", self.dir.display()));
        }
        // What cannot be removed lies in the folder for temporary files.
        drop(fs::remove_dir_all(&self.dir));
        drop(fs::remove_file(self.dir.with_extension("log")));
    }
}
