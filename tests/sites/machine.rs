//! Machines that lack something: `/dev/null`, or processors by a control group.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use hydrant_tests::{Job, hydrant_bin, nodes, tell};
use rustix::process::geteuid;

/// A shell script that gets `hydrant run` with options as its arguments.
fn launcher(job: Job, script: &str, options: &str) -> Job {
    job.words("sh -ec").arg(script).arg("sh").arg(hydrant_bin()).arg("run").words(options)
}

#[test]
fn a_job_runs_without_dev_null() {
    if !geteuid().is_root() {
        return;
    }
    for options in ["".to_owned(), "--pmi-port -l".to_owned(), nodes(2, 1, 2)] {
        let script = "mount -t tmpfs none /dev; test ! -e /dev/null; exec \"$@\"";
        let job = launcher(Job::new("unshare").arg("--mount"), script, &format!("{options} -n 2 sh -c"));
        job.arg("echo here; cat").run().code(0).quiet().says("here\n", 2);
    }
}

/// A control group that may use the time of one processor.
struct Quota(PathBuf);

impl Quota {
    /// `None` if there is no control group for processors that could be made.
    fn new() -> Option<Quota> {
        let versions = [("cpu", "cpu.cfs_quota_us", "100000"), ("", "cpu.max", "100000 100000")];
        versions.into_iter().find_map(|(folder, file, quota)| {
            let folder = Path::new("/sys/fs/cgroup").join(folder);
            let group = folder.join(format!("hydrant-tests-{}", std::process::id()));
            fs::create_dir(&group).ok()?;
            let group = Quota(group);
            let is_limited = group.0.join(file).exists() && fs::write(group.0.join(file), quota).is_ok();
            is_limited.then_some(group)
        })
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Its processes have ended.
        drop(fs::remove_dir(&self.0));
    }
}

/// The ranks of Open MPI 4 learn by a variable that they exceed their processors.
#[test]
fn a_quota_counts_as_processors() {
    let several = available_parallelism().is_ok_and(|processors| processors.get() > 1);
    let Some(quota) = Quota::new().filter(|_| several) else {
        return tell(
            "SKIPPED: there is no control group for processors that could be made, or one processor",
        );
    };
    for (ranks, yields) in [("1", "no"), ("2", "1")] {
        let script = format!("echo $$ >{}/cgroup.procs; exec \"$@\"", quota.0.display());
        let job = launcher(Job::new("env"), &script, &format!("-n {ranks} sh -c"));
        let outcome = job.arg("echo yields: ${OMPI_MCA_mpi_oversubscribe:-no}").run();
        outcome.code(0).says(&format!("yields: {yields}\n"), ranks.parse().expect("it is a number"));
    }
    Job::hydrant("-n 2 sh -c")
        .arg("echo yields: ${OMPI_MCA_mpi_oversubscribe:-no}")
        .run()
        .says("yields: no\n", 2);
}
