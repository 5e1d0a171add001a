//! Many jobs and many spawns: descriptors, processes, memory and files before and after.
//!
//! `HYDRANT_SOAK` is the number of rounds, 40 if it is not set. By hand: `HYDRANT_SOAK=10000 tests/run launch -- soak::`.

use std::collections::BTreeSet;
use std::path::Path;

use hydrant_tests::{Folder, Job};

use crate::{ASK, shell};

fn rounds() -> u32 {
    let rounds = std::env::var("HYDRANT_SOAK").ok();
    rounds.map_or(40, |rounds| rounds.parse().expect("HYDRANT_SOAK is a number"))
}

/// Files of hydrant in a folder.
fn files(folder: &Path) -> BTreeSet<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A job that spawns again and again, one job after the other.
///
/// The launcher is the rank's parent. Descriptors and children are counted when the last spawned process has ended, which
/// the rank waits for by asking the server: each answer gives the launcher a turn.
#[test]
fn spawns_leave_nothing_in_the_launcher() {
    let script = format!(
        r#"{ASK}
        files() {{ set -- /proc/$PPID/fd/*; files=$#; }}
        children() {{ read -r children < /proc/$PPID/task/$PPID/children; set -- $children; children=$#; }}
        memory() {{ while read -r name kib unit; do test "$name" != VmRSS: || memory=$kib; done < /proc/$PPID/status; }}
        settle() {{
            while files; children; test $files -gt $files_before || test $children -gt $children_before; do ask cmd=get_maxes; done
        }}
        spawn() {{
            ask "mcmd=spawn
nprocs=2
execname=true
totspawns=1
spawnssofar=1
argcnt=0
preput_num=0
info_num=0
endcmd"
            case $reply in *rc=0*) done=$((done + 1)) ;; *) ask cmd=get_maxes ;; esac
        }}
        init; files; children; files_before=$files; children_before=$children; done=0
        while test $done -lt 20; do spawn; done
        settle; memory; memory_before=$memory
        while test $done -lt $((20 + {rounds})); do spawn; done
        settle; memory
        ask cmd=finalize
        echo "spawned $done files $((files - files_before)) children $((children - children_before))"
        test $memory -lt $((memory_before + 2048)) || echo "memory $memory_before $memory""#,
        rounds = rounds()
    );
    let expected = format!("spawned {} files 0 children 0\n", 20 + rounds());
    shell("-n 1", &script).run().code(0).stdout_is(&expected).quiet();
}

/// Jobs one after the other, with a port, a shared segment and a name, leave no file. The harness checks their processes.
#[test]
fn jobs_leave_no_files() {
    let folder = Folder::new("soak");
    let temporary = Path::new(&folder.path("")).to_owned();
    let shared = Path::new("/dev/shm");
    let before = files(shared);
    for round in 0..rounds() {
        let options = if round % 2 == 0 { "-n 2" } else { "-n 2 --pmi-port" };
        let job = Job::command("run").words(options).env("TMPDIR", &temporary).arg("true");
        job.run().code(0).quiet().stdout_is("");
    }
    assert_eq!(files(&temporary), BTreeSet::new(), "files in TMPDIR");
    let left: Vec<_> =
        files(shared).difference(&before).filter(|name| name.contains("hydrant")).cloned().collect();
    assert_eq!(left, Vec::<String>::new(), "segments in /dev/shm");
}
