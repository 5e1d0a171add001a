//! `--preload-files`: hosts receive files for the ranks.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hydrant_tests::{Folder, Job, nodes};
use rustix::process::{Signal, kill_process};

/// Longest wait for a guardian.
const PATIENCE: Duration = Duration::from_secs(20);

/// A working directory with files, and a folder for temporary files.
struct Place(Folder);

impl Place {
    fn new(name: &str) -> Place {
        let folder = Folder::new(name);
        for part in ["work/tables", "temporary"] {
            fs::create_dir_all(folder.path(part)).expect("the folder is new");
        }
        folder.file("work/data", "data of the job\n");
        folder.file("work/tables/same", "data of the job\n");
        folder.file("work/empty", "");
        folder.executable("work/tables/tool", "#!/bin/sh\necho tool of $PMI_RANK\n");
        Place(folder)
    }

    /// A job on these hosts with files and a script.
    fn job(&self, hosts: &str, files: &str, script: &str) -> Job {
        let job = Job::hydrant(hosts).env("TMPDIR", self.0.path("temporary")).dir(self.0.path("work"));
        job.words(files).args(["sh", "-c", script])
    }

    /// What has been left in the folder for temporary files.
    fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.path("temporary")).expect("the folder is there");
        let paths = entries.map(|entry| entry.expect("it can be read").path());
        paths.filter(|path| path.to_string_lossy().contains("hydrant-files-")).collect()
    }

    fn await_nothing_left(&self) {
        let start = Instant::now();
        while !self.left().is_empty() {
            assert!(start.elapsed() < PATIENCE, "left: {:?}", self.left());
            std::thread::yield_now();
        }
    }
}

const FILES: &str = "--preload-files data,./tables/same,empty --preload-files tables/tool";
const READ: &str = "cd $OMPI_FILE_LOCATION && cat data tables/same empty && tables/tool && ls -ld . && pwd";

#[test]
fn each_host_has_the_files_in_a_folder_of_its_own() {
    let place = Place::new("files");
    let outcome = place.job(&format!("{} -n 4", nodes(4, 1, 2)), FILES, READ).run();
    outcome.code(0).quiet().says("data of the job\n", 8).says("tool of ", 4).says("drwx------ ", 4);
    let mut folders: Vec<_> =
        outcome.stdout.lines().filter(|line| line.contains("/hydrant-files-")).collect();
    folders.sort_unstable();
    folders.dedup();
    assert_eq!(folders.len(), 4, "{outcome}");
    assert!(place.left().is_empty(), "{:?}", place.left());
    // On this machine alone.
    place.job("-n 2", FILES, READ).run().code(0).quiet().says("data of the job\n", 4).says("tool of ", 2);
    assert!(place.left().is_empty(), "{:?}", place.left());
    place.job("-n 1", "", "echo ${OMPI_FILE_LOCATION-none}").run().code(0).stdout_is("none\n");
}

#[test]
fn nothing_is_left_by_jobs_that_fail_or_are_killed() {
    let place = Place::new("files-left");
    let hosts = format!("{} -n 2", nodes(2, 1, 2));
    place.job(&hosts, FILES, "exit 3").run().code(3);
    place.job(&hosts, "--timeout 0.5 --preload-files data", "sleep 1000").run().code(124);
    assert!(place.left().is_empty(), "{:?}", place.left());
    for hosts in [&*hosts, "-n 2"] {
        let run = place.job(hosts, FILES, "echo up; exec sleep 1000").start();
        run.await_stdout("up\n", 2);
        assert!(!place.left().is_empty());
        run.signal(Signal::KILL);
        run.wait().signaled(Signal::KILL);
        place.await_nothing_left();
    }
    // A daemon whose guardian outlives it.
    let run = place.job(&hosts, FILES, "echo up; exec sleep 1000").start();
    run.await_stdout("up\n", 2);
    kill_process(run.children()[0], Signal::KILL).expect("the daemon runs");
    run.wait().code(1).warns("its daemon is lost");
    place.await_nothing_left();
}

#[test]
fn files_that_cannot_be_sent_are_named() {
    let place = Place::new("files-refused");
    let refused = |files: &str, code: i32, why: &str| {
        place
            .job("-n 1", &format!("--preload-files {files}"), "echo started")
            .run()
            .code(code)
            .stdout_is("")
            .warns(why);
    };
    let outside = "expected a path in the working directory";
    refused(
        "/etc/hosts",
        2,
        "invalid value '/etc/hosts' for --preload-files: expected a path in the working directory: a file",
    );
    refused("data,../work/data", 2, outside);
    refused("tables/../data", 2, outside);
    refused("none", 1, "cannot send none to the hosts: No such file or directory");
    refused("tables", 1, "cannot send tables to the hosts: it is no regular file");
    place.0.fifo("work/pipe");
    refused("pipe", 1, "cannot send pipe to the hosts: it is no regular file");
    let large = fs::File::create(place.0.path("work/large")).expect("the folder is writable");
    large.set_len((512 << 20) + 1).expect("a sparse file is small");
    refused("data,large", 1, "cannot send large to the hosts: it has 536870913 bytes");
    for (options, why) in [
        ("--on default", "daemons that run already get no files"),
        ("-hosts a --elastic 1:4", "hosts that join later get no program files"),
    ] {
        Job::command("run").words(options).words("--preload-files data true").run().code(2).warns(why);
    }
}
