//! `hydrant replace`: other PMI servers take the place of those of a running job.

use std::fs;

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Running, target_dir};

use crate::faulty::{TRAPS, faulty};
use crate::{bin, plugin};

/// Rounds of puts, a fence, and gets of the neighbour's values of all rounds so far. In each round rank 0 reads a line before
/// it comes to the fence, where the others wait.
const ROUNDS: &str = r#"
    ask() { printf '%s\n' "$1" >&"$PMI_FD"; read -r reply <&"$PMI_FD"; }
    ask 'cmd=init pmi_version=1 pmi_subversion=1'
    ask 'cmd=get_my_kvsname'
    kvs=${reply##*kvsname=}
    other=$(((PMI_RANK + 1) % PMI_SIZE))
    for round in 1 2 3 4 5; do
        ask "cmd=put kvsname=$kvs key=k$PMI_RANK.$round value=v$PMI_RANK.$round"
        if [ "$PMI_RANK" = 0 ]; then echo "round $round"; read -r line; fi
        ask 'cmd=barrier_in'
        for old in $(seq "$round"); do
            ask "cmd=get kvsname=$kvs key=k$other.$old"
            echo "$PMI_RANK: ${reply##*value=}"
        done
    done
    ask 'cmd=finalize'
"#;

/// Starts a job that is recorded.
fn start(options: &str, folder: &Folder) -> Running {
    let job = Job::new(bin()).env("XDG_CACHE_HOME", target_dir().join("hydrant-cache")).arg("run");
    job.arg("--record")
        .arg(folder.path("run.rec"))
        .words(options)
        .words("bash -c")
        .arg(ROUNDS)
        .hold_input()
        .start()
}

fn replace(job: &Running, by: &str) -> Job {
    let cache = target_dir().join("hydrant-cache");
    Job::new(bin()).env("XDG_CACHE_HOME", cache).arg("replace").arg(by).arg(job.pid().to_string())
}

/// Replaces the servers of a job in the middle of each fence: by a plugin, another plugin, and the built-in server, twice.
fn replaced_in_each_round(options: &str, ranks: usize) {
    let folder = Folder::new("replace");
    let copy = folder.path("copy.wasm");
    fs::copy(plugin(), &copy).expect("the plugin can be read");
    let mut job = start(options, &folder);
    let [first, second] = [plugin(), copy.as_ref()].map(|file| format!("--sandbox={}", file.display()));
    for (round, by) in (1..).zip([&*first, &second, "--built-in", &first, "--built-in"]) {
        job.await_stdout(&format!("round {round}\n"), 1);
        replace(&job, by).run().code(0).quiet();
        job.send(b"go on\n").expect("the job reads");
    }
    job.end_input();
    let outcome = job.wait();
    outcome.code(0).quiet();
    for rank in 0..ranks {
        for round in 1..=5 {
            outcome.says(&format!("{rank}: v{}.{round}\n", (rank + 1) % ranks), 6 - round);
        }
    }
    for entry in fs::read_dir(folder.path(".")).expect("the folder is there") {
        let file = entry.expect("the folder is there").path();
        if file.to_string_lossy().contains(".rec") {
            Job::new(bin()).arg("replay").arg(&file).run().code(0);
        }
    }
}

#[test]
fn ranks_of_one_host_do_not_notice() {
    replaced_in_each_round("-n 3", 3);
}

#[test]
fn ranks_of_several_hosts_do_not_notice() {
    replaced_in_each_round("-hosts n[1-4]:1 --bootstrap local --radix 2 -n 4", 4);
}

/// A plugin is replaced by one that fails later, whose spare is replaced by a plugin.
#[test]
fn a_successor_has_a_spare_too() {
    let failing = faulty("successor", &[(b"k1.4 val", TRAPS)]);
    for (hosts, ranks) in [("-n 3", 3), ("-hosts n[1-4]:1 --bootstrap local --radix 2 -n 4", 4)] {
        let folder = Folder::new("replace-spare");
        let options = format!("--sandbox={} --spare native {hosts}", plugin().display());
        let mut job = start(&options, &folder);
        for (round, by) in (1..).zip([None, Some(&*failing), None, None, Some(plugin())]) {
            job.await_stdout(&format!("round {round}\n"), 1);
            if let Some(file) = by {
                replace(&job, &format!("--sandbox={}", file.display())).run().code(0).quiet();
            }
            job.send(b"go on\n").expect("the job reads");
        }
        job.end_input();
        let outcome = job.wait();
        outcome.code(0).warns(&format!("plugin {}: trapped: ", failing.display()));
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
        for rank in 0..ranks {
            outcome.says(&format!("{rank}: v{}.5\n", (rank + 1) % ranks), 1);
        }
    }
}

#[test]
fn a_plugin_that_cannot_be_loaded_leaves_the_server_as_it_was() {
    let folder = Folder::new("replace-broken");
    let broken = folder.path("broken.wasm");
    fs::write(&broken, "no module").expect("the folder is writable");
    for options in ["-n 2", "-hosts n[1-2]:1 --bootstrap local -n 2"] {
        let mut job = start(options, &folder);
        for round in 1..=5 {
            job.await_stdout(&format!("round {round}\n"), 1);
            for file in [&broken, &folder.path("missing.wasm")] {
                replace(&job, &format!("--sandbox={file}")).run().code(1).warns(file);
            }
            job.send(b"go on\n").expect("the job reads");
        }
        job.end_input();
        job.wait().code(0).quiet().says("0: v1.1\n", 5);
    }
}

/// MPICH's ranks exchange their addresses, spawn, and connect while servers change.
#[test]
fn mpich_does_not_notice() {
    if !Peer::Mpich5.there() {
        return;
    }
    let program = Peer::Mpich5.program("mpi_spawn");
    for hosts in ["", "-hosts n[1-2]:2 --bootstrap local"] {
        let job = Job::new(bin()).env("XDG_CACHE_HOME", target_dir().join("hydrant-cache")).arg("run");
        // The program begins when rank 0 gets a line, so that servers change before, during and after its start.
        let script = "echo here; [ $PMI_RANK != 0 ] || read line; exec \"$0\" self 2";
        let mut job = job.words(hosts).words("-n 4 bash -c").arg(script).arg(&program).hold_input().start();
        job.await_stdout("here\n", 4);
        let by = format!("--sandbox={}", plugin().display());
        replace(&job, &by).run().code(0).quiet();
        job.send(b"go on\n").expect("the job reads");
        // The job may end before.
        for by in ["--built-in", &by, "--built-in"] {
            let _ = replace(&job, by).run();
        }
        job.end_input();
        let outcome = job.wait();
        outcome.code(0).quiet().says(" of 4 done", 4).says("child 0 of 2\n", 4).says("child 1 of 2\n", 4);
    }
}
