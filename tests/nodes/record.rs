//! Recordings of all nodes of a job, one file for each.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use hydrant_tests::Job;
use hydrant_tests::{Outcome, hydrant_bin, nodes};

use crate::RAW;

/// A folder that is removed with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("hydrant-tests-record-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the system has a folder for such things");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays harms no other test.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn replayed(file: &str, folder: &Folder) -> Outcome {
    Job::new(hydrant_bin()).arg("replay").arg(folder.0.join(file)).run()
}

#[test]
fn every_node_has_a_recording_that_shows_what_the_others_told_it() {
    let folder = Folder::new("all");
    // A path that daemons cannot take for theirs: they start somewhere else.
    let job = Job::new(hydrant_bin()).dir(&folder.0).arg("run").words(&nodes(3, 1, 2));
    let job = job.words("--record job.rec -n 3").arg(RAW);
    let steps = "init1\nonly 2\nsend cmd=put kvsname=%j key=k%r value=v%r\\n\nexpect cmd=put_result rc=0\nall\nfence1\nend1\n\
                 only 1\nexit 3";
    job.steps(steps).run().code(3);
    let mut files: Vec<String> = fs::read_dir(&folder.0)
        .expect("it is there")
        .map(|file| file.expect("it can be read").file_name().to_string_lossy().into_owned())
        .collect();
    files.sort_unstable();
    assert_eq!(files, ["job.rec", "job.rec.n1", "job.rec.n2", "job.rec.n3"]);
    for file in &files {
        let mode = fs::metadata(folder.0.join(file)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
        replayed(file, &folder).code(0).quiet().says(" outputs, all the same", 1);
    }
    // Node 1 has node 2 below it. Rank 2 is on node 3, whose parent is the head.
    let told = replayed("job.rec.n1", &folder);
    told.says("+ node 1 of 4, tree of radix 2", 1);
    told.says("    0     - + from node 0: 1 pair put\n", 1).says("    0     2 +   k2=v2\n", 1);
    told.says("    0     - ! to node 2: 1 pair put\n", 1).says("    0     2 !   k2=v2\n", 1);
    told.says("+ from node 2: subtree has arrived at the fence of job 0", 1);
    told.says("! to node 2: all ranks have arrived at the fence of job 0", 1);
    told.says("    0     1 + from node 2: exited with code 3", 1);
    // On one clock: each daemon has sent and received messages.
    let all =
        Job::new(hydrant_bin()).words("replay --summary").args(files.iter().map(|file| folder.0.join(file)));
    let summary = all.run();
    summary
        .code(0)
        .quiet()
        .says(": 3 ranks on 3 hosts, PMI-1\n", 1)
        .says("times are on the clock of job.rec\n", 1);
    summary.says("error at most", 3).says("fence 1              3 ", 1);
}

#[test]
fn where_a_node_cannot_be_recorded_nothing_starts() {
    let folder = Folder::new("none");
    fs::create_dir(folder.0.join("job.rec.n2")).expect("the folder was just made");
    let job = Job::new(hydrant_bin()).arg("run").words(&nodes(3, 1, 2)).arg("--record");
    let outcome = job.arg(folder.0.join("job.rec")).words("-n 3 echo started").run();
    outcome.code(1).says("started", 0);
    outcome
        .warns("the job was not started: host n2 (node 2): cannot record to ")
        .warns("job.rec.n2: Is a directory");
}
