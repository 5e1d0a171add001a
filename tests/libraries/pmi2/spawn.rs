//! Spawning under each process manager, over either library: as much as that process manager can do. The program and
//! what it spawns check what they get.
//!
//! What the others cannot do, whichever library asks:
//! - Slurm refuses preputs with semicolons or without a value, and takes words apart where there are several programs.
//!   A step that spawns has to be one that others may overlap, or the new one waits for its processors for ever.
//! - hydra 4.0.2 hands neither on as it is, or ends the job. Where other ranks fence during the spawn they wait for ever
//!   in one of ten runs, so that here a single rank spawns.
//! - hydra 5.0.2 ends the job over either and gives the new job no name. Over its port, preputs come too late or never in
//!   every third run.
//! - All of them say that a program was spawned which is not there.

use std::fs;
use std::path::{Path, PathBuf};

use hydrant_tests::slurm::Cluster;
use hydrant_tests::{Outcome, target_dir};

use super::support::{BOTH, HYDRA_4, HYDRA_5, HYDRANT, Launcher, Whose, sources};

const SRUN: Launcher = Launcher::Srun("-p one --overlap");

/// What Slurm's srun leaves for each spawn of several programs: `/tmp/PID.XXXXXX` with their command lines. Dropping it removes
/// them.
struct MultiProgFiles;

impl Drop for MultiProgFiles {
    fn drop(&mut self) {
        let own = target_dir().display().to_string();
        let is_of_process = |path: &Path| {
            path.file_stem().is_some_and(|pid| pid.as_encoded_bytes().iter().all(u8::is_ascii_digit))
        };
        let paths = fs::read_dir("/tmp").into_iter().flatten().flatten().map(|entry| entry.path());
        for path in paths.filter(|path| path.is_file() && is_of_process(path)) {
            if fs::read_to_string(&path).is_ok_and(|text| text.contains(&own)) {
                drop(fs::remove_file(&path));
            }
        }
    }
}

fn source() -> PathBuf {
    sources().join("spawn.c")
}

fn spawn(launcher: Launcher, library: Whose, test: &str) -> Option<Outcome> {
    let size = if matches!(launcher, Launcher::Hydra4(_) | Launcher::Hydra5(_)) { 1 } else { 3 };
    Some(launcher.job(size, library, library, &source())?.words(test).run())
}

/// Runs what all of them can do. `job` is what the spawner knows of the new job.
fn spawns(launcher: Launcher, library: Whose, job: &str) {
    let words = "[plain][two words]";
    let Some(outcome) = spawn(launcher, library, "one") else { return };
    outcome.code(0).quiet().says(&format!("spawn one: 0, {job}, first code 0\n"), 1);
    for rank in 0..2 {
        outcome.says(&format!("child {rank} of 2 in here with {words}\n"), 1);
    }
    let Some(outcome) = spawn(launcher, library, "info") else { return };
    outcome.code(0).quiet().says(&format!(" of 2 in / with {words}\n"), 2);
    let Some(outcome) = spawn(launcher, library, "two") else { return };
    outcome.code(0).quiet().says(&format!("spawn two: 0, {job}, first code 0\n"), 1);
    outcome.says(" of 3 in here with [plain][two", 2).says("child 2 of 3 in here with [second]\n", 1);
}

#[test]
fn under_hydrant() {
    for (launcher, library) in
        HYDRANT.into_iter().flat_map(|launcher| BOTH.map(|library| (launcher, library)))
    {
        spawns(launcher, library, "a job");
        let Some(outcome) = spawn(launcher, library, "odd") else { return };
        outcome.code(0).quiet().says(" of 2 in here with [][two words]\n", 2);
        let Some(outcome) = spawn(launcher, library, "missing") else { return };
        outcome.code(0).says("spawn missing: 14, no job, first code ", 1);
        let Some(outcome) = spawn(launcher, library, "soft") else { return };
        outcome.code(0).quiet().says("spawn soft: 0, a job, first code 0\n", 1);
        outcome.says(" of 2 in here with [plain][two words]\n", 2);
    }
}

/// Slurm's library refuses such info itself. A job whose id is truncated runs all the same.
#[test]
fn long_info_and_a_short_buffer() {
    for launcher in HYDRANT {
        for (test, code) in [("long", 0), ("short", 2)] {
            let Some(outcome) = spawn(launcher, Whose::Own, test) else { return };
            outcome.code(0).quiet().says(&format!("spawn {test}: {code}, a job, first code 0\n"), 1);
            outcome.says(" of 2 in here with [plain][two words]\n", 2);
        }
    }
}

#[test]
fn under_srun() {
    let Some(_cluster) = Cluster::running() else { return };
    let _files = MultiProgFiles;
    for library in BOTH {
        spawns(SRUN, library, "a job");
    }
    let Some(outcome) = spawn(SRUN, Whose::Own, "odd") else { return };
    // A refusal is an error, and the job goes on.
    outcome.code(0).says("spawn odd: 10, no job, first code ", 1).warns("'ppkey1' expected");
}

#[test]
fn under_hydra_4() {
    for library in BOTH {
        spawns(HYDRA_4[0], library, "a job");
    }
    spawns(HYDRA_4[1], Whose::Own, "a job");
}

#[test]
fn under_hydra_5() {
    spawns(HYDRA_5[0], Whose::Own, "no job");
}
