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

// Shows: pmi2.h, Constants and types | `MPID_Info.key`, `.value` | pairs of info | done
// Shows: pmi2.h, Constants and types | `MPID_Info.next` | a linked list | free: PMI2_Job_Spawn passes arrays, so
// `next` is ignored, as in Slurm's library
// Shows: pmi2.h, Joining and leaving | `PMI2_Init` `spawned` | nonzero if, and only if, the job has a parent | done
// Shows: pmi2.h, Spawn | `count`, `cmds` | programs | done
// Shows: pmi2.h, Spawn | `maxprocs` | most processes of each program | done
// Shows: pmi2.h, Spawn | info key `soft` | acceptable numbers of processes; fewer than `maxprocs` may start | done:
// the largest that is acceptable
// Also: hydrant-start `the_largest_acceptable_number_is_used`
// Shows: pmi2.h, Spawn | `preput_keyval_size`, `_vector` | pairs that are in the new space before its processes start
// | done
// Also: libraries `pmi2::peers::spawns_under_hydrant`
// Shows: pmi2.h, Spawn | `jobId`, `jobIdSize` | the new job's id | done: truncated with `PMI2_ERR_NOMEM`
// Also: libraries `pmi2::spawn::long_info_and_a_short_buffer`
// Shows: pmi2.h, Spawn | a failure | an error code | done: nothing has started then
// Also: launch `spawn::what_cannot_be_started_is_an_error_and_nothing_starts`
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
// Shows: pmi2.h, Constants and types | `MPID_Info` | keys of 32 to 255 characters, values without a mandated limit |
// done: any length up to one request (64 KiB)
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
