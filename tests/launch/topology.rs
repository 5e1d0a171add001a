//! Topology file, which MPICH asks for as the attribute `PMI_hwloc_xmlfile`.

use hydrant_tests::{Folder, Job};

use crate::ASK;

/// A job whose ranks print the topology file, with a program in place of hwloc's that does this script.
fn job(folder: &Folder, options: &str, program: &str) -> Job {
    folder.executable("lstopo-no-graphics", &format!("#!/bin/sh\n{program}\n"));
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").unwrap_or_default());
    let rank = format!(
        r#"{ASK} init
        ask "cmd=get kvsname=$PMI_JOBID key=PMI_hwloc_xmlfile"
        case $reply in *rc=0*) cat "${{reply##*value=}}" ;; *) echo none ;; esac
        ask 'cmd=finalize'"#
    );
    Job::hydrant(options).args(["bash", "-c"]).arg(&rank).env("PATH", &path)
}

#[test]
fn hwloc_writes_it_once_on_each_host() {
    let folder = Folder::new("topology");
    let log = folder.path("log");
    let program = format!("echo $* >>{log}; echo '<topology></topology>'");
    for (options, hosts) in [("-n 8", 1), ("-hosts n[1-2]:8 --bootstrap local -n 16", 2)] {
        let outcome = job(&folder, options, &program).run();
        outcome.code(0).stdout_is(&"<topology></topology>\n".repeat(8 * hosts));
        assert_eq!(folder.read("log"), "--of xml --whole-io\n".repeat(hosts));
        std::fs::remove_file(&log).expect("the program has run");
    }
}

#[test]
fn few_ranks_scan_the_machine_and_the_user_may_name_a_file() {
    let folder = Folder::new("no-topology");
    let log = folder.path("log");
    let program = format!(": >{log}; echo '</topology>'");
    job(&folder, "-n 7", &program).run().code(0).stdout_is(&"none\n".repeat(7));
    let file = folder.file("mine", "mine\n");
    let options = format!("--job-attr PMI_hwloc_xmlfile={file} -n 8");
    job(&folder, &options, &program).run().code(0).stdout_is(&"mine\n".repeat(8));
    assert!(!folder.0.join("log").exists());
}

#[test]
fn it_is_empty_if_hwloc_fails() {
    let folder = Folder::new("bad-topology");
    job(&folder, "-n 8", "echo '<topology>'; exit 1").run().code(0).stdout_is("");
}
