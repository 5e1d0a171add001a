//! The same over several daemons on this machine: every node runs the launcher's plugin.

use std::fs;
use std::path::{Path, PathBuf};

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job};
use hydrant_tests::{hydrant_bin, target_dir};
use rustix::process::Pid;

use crate::made::{BYTES, HANDLED, hostile_on, says, says_once};
use crate::{bin, plugin, sandboxed};

/// Four hosts of two slots: the head starts the daemons of n1, with n2's below, and of n3, with n4's below.
const NODES: &str = "-hosts n[1-4]:2 --bootstrap local --radix 2";
/// The number of the input of a job that comes.
const JOB: u32 = 1;

/// What ranks do that send the beginning of a message, and then wait. A plugin that consumes nothing of it does nothing wrong.
const WAITING: &str = "printf 'cmd=init pmi_version=1' >&$PMI_FD; exec sleep 1000";

fn on_nodes(file: &Path, options: &str) -> Job {
    sandboxed(file, NODES).words(options)
}

/// A program of MPICH 5.0.2's, where there is an MPICH to build it with.
fn mpich(options: &str, program: &str, args: &str) -> Option<Job> {
    let peer = Peer::Mpich5;
    peer.there().then(|| on_nodes(plugin(), options).arg(peer.program(program)).words(args))
}

#[test]
fn the_probe_finds_everything_right() {
    for way in ["", "--pmi-port"] {
        let outcome = on_nodes(plugin(), way).words("-n 8").arg(bin()).arg("probe").run();
        outcome.code(0).quiet().says("exchanged 64 cards and 64 values", 1);
    }
}

/// The plugin's clock is a thread, and the guardian is a copy of a process with one.
#[test]
fn the_guardian_of_the_head_comes_before_the_plugin() {
    let mut job = on_nodes(plugin(), "-n 2 sh -c").arg("echo up; read line || :").hold_input().start();
    job.await_stdout("up\n", 2);
    let command = |pid: Pid| fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap();
    assert_eq!(command(job.children()[0]), command(job.pid()), "the first child is a copy");
    job.end_input();
    job.wait().code(0).quiet();
}

#[test]
fn no_rank_reads_what_only_the_plugin_has() {
    let outcome = on_nodes(plugin(), "-n 4 sh -c").arg("echo kvs=$HYDRANT_KVS").run();
    outcome.code(0).quiet().says("kvs=\n", 4);
}

#[test]
fn mpich_says_hello_and_spawns() {
    let Some(hello) = mpich("-n 8", "mpi_hello", "") else { return };
    hello.run().code(0).quiet().says("MPICH 5.0.2", 8);
    let Some(spawn) = mpich("-n 4", "mpi_spawn", "self 2") else { return };
    let outcome = spawn.run();
    outcome.code(0).quiet().says(" of 4 done", 4).says("child 0 of 2\n", 4).says("child 1 of 2\n", 4);
    let Some(names) = mpich("-ppn 1 -n 3", "mpi_names", "inside") else { return };
    names.run().code(0).quiet().says("rank 0: published success", 1);
}

/// What the servers of nodes say, with messages for their neighbours, is the same wherever they run.
#[test]
fn recordings_of_all_nodes_play_natively_and_in_it() {
    let dir = target_dir().join("recordings");
    fs::create_dir_all(&dir).expect("the build directory can be written to");
    let pmix = Peer::OpenMpi5.there().then(|| Peer::OpenMpi5.program("mpi_ring"));
    // So much that it takes several messages, and PMIx.
    let probe = ["probe", "--keys", "40", "--bytes", "1000"];
    let programs = [(bin(), &probe[..])].into_iter().chain(pmix.as_deref().map(|ring| (ring, &[][..])));
    for ((name, native), (program, args)) in
        programs.flat_map(|program| [("native", true), ("sandboxed", false)].map(|way| (way, program)))
    {
        let folder = Folder::new("nodes");
        let file = dir.join(format!("nodes-{name}-{}", std::process::id()));
        let job = match native {
            true => Job::new(bin()).arg("run").words(NODES),
            false => on_nodes(plugin(), ""),
        };
        let variables = Peer::OpenMpi5.variables(&folder.0).into_iter();
        let job = variables.fold(job, |job, (name, value)| job.args(["-genv", name]).arg(value));
        let job = job.arg("--record").arg(&file).words("-n 8").arg(program).args(args);
        let outcome = job.run();
        outcome.code(0).quiet();
        if args.is_empty() {
            outcome.says("ring of 8: 140\n", 1);
        }
        let of = |node: u32| PathBuf::from(format!("{}.n{node}", file.display()));
        for file in (1..=4).map(of).chain([file.clone()]) {
            let replay = Job::new(bin()).words("replay --quiet").arg(&file);
            replay.run().code(0).says(" outputs, all the same", 1);
            let cache = target_dir().join("hydrant-cache");
            let replay = Job::new(bin()).env("XDG_CACHE_HOME", cache).words("replay --quiet");
            let replay = replay.arg(format!("--sandbox={}", plugin().display())).arg(&file);
            replay.run().code(0).says(" outputs, all the same", 1);
            fs::remove_file(&file).expect("it was just read");
        }
    }
}

/// What a message is bounded by is not only what a client's request is.
#[test]
fn messages_between_nodes_may_be_longer_than_requests() {
    let job = on_nodes(plugin(), "--limit spawn-bytes=64 -n 8").arg(bin());
    let outcome = job.words("probe --keys 8 --bytes 1000").run();
    outcome.code(0).says("all right", 1);
}

/// The job is over, and what is said names host and plugin and says this. Nothing is left anywhere: waiting for a job
/// sees to that.
#[track_caller]
fn ended(options: &str, file: &Path, host: &str, why: &str) {
    let outcome = on_nodes(file, options).words("-n 8 bash -c").arg(WAITING).run();
    outcome.code(1).warns(&format!("host {host}: plugin {}{why}", file.display()));
}

#[test]
fn one_that_breaks_off_on_one_node_is_ended_on_all() {
    let file = hostile_on("trap-n3", 3, BYTES, "(unreachable)", "(i32.const 0)");
    ended("", &file, "n3 (node 3)", ": trapped: ");
    let file = hostile_on("trap-early", 3, JOB, "(unreachable)", "(i32.const 0)");
    ended("", &file, "n3 (node 3)", ": trapped: ");
}

// Fault: The plugin of one host traps in a job that goes on after failures
// Outcome: one line names it; the ranks there end, and the others go on
// Guarantee: A node without a server is lost, and its daemon ends
// Also: hydrant-control `a_run_goes_on_without_a_node_whose_backend_has_failed`
#[test]
fn one_that_breaks_off_takes_only_its_host_along() {
    let file = hostile_on("trap-alone", 3, BYTES, "(unreachable)", "(i32.const 0)");
    let script = format!("case $PMI_RANK in 0) read line && echo on;; [45]) {WAITING};; esac");
    let job = on_nodes(&file, "-disable-auto-cleanup -n 8 bash -c").arg(script);
    let mut job = job.hold_input().start();
    job.await_stderr("2 ranks were running there, the other ranks go on\n");
    job.send(b"line\n").expect("rank 0 reads");
    job.end_input();
    let outcome = job.wait();
    outcome.says("on\n", 1).warns(&format!("host n3 (node 3): plugin {}: trapped: ", file.display()));
}

#[test]
fn one_that_never_answers_is_told_from_a_host_that_is_lost() {
    let endless = "(loop $again (br $again)) (unreachable)";
    let file = hostile_on("endless-n2", 2, BYTES, endless, "(i32.const 0)");
    ended("--heartbeat 8", &file, "n2 (node 2)", ": no response within 4 s");
}

#[test]
fn one_that_speaks_for_other_nodes_is_ended() {
    // Joined: connection 0 is job 0's rank 0, which is n1's.
    let file = hostile_on("elsewhere", 2, BYTES, HANDLED, &says(0x0000_0002, 4));
    ended("", &file, "n2 (node 2)", ": invalid output: rank 0 of job 0 is on another node");
    // For node 4, to which node 2 has no link.
    let file = hostile_on("far", 2, BYTES, HANDLED, &says(0x7801_0407, 4));
    ended("", &file, "n2 (node 2)", ": invalid output: node 4 is not a neighbour");
}

#[test]
fn one_that_sends_a_neighbour_invalid_messages_is_ended() {
    // Peer: for node 2, from node 1, that all above have come to job 0's fence.
    let file = hostile_on("babble", 1, BYTES, HANDLED, &says_once(0x0205_0207, 8));
    ended(
        "",
        &file,
        "n1 (node 1)",
        " sent host n2 (node 2) an invalid message: the message contradicts the state",
    );
    // And for the head, which is no host of the job.
    let file = hostile_on("babble-up", 1, BYTES, HANDLED, &says_once(0x0105_0007, 8));
    let said = format!("plugin {} sent host ", file.display());
    let outcome = on_nodes(&file, "-n 8 bash -c").arg(WAITING).run();
    outcome.code(1).warns(&format!("host n1 (node 1): {said}")).warns(" (node 0) an invalid message: ");
}

#[test]
fn one_that_fails_at_the_launcher_is_ended_everywhere() {
    let file = hostile_on("trap-head", 0, JOB, "(unreachable)", "(i32.const 0)");
    let outcome = on_nodes(&file, "-n 8 bash -c").arg(WAITING).run();
    outcome.code(1).warns(&format!("(node 0): plugin {}: trapped: ", file.display()));
}

#[test]
fn a_daemon_built_without_it_says_so_and_nothing_starts() {
    if hydrant_bin() == bin() {
        return;
    }
    let job = sandboxed(plugin(), "-hosts n1,n2 --iface lo --bootstrap").arg("exec:sh -c 'exec {args}'");
    let outcome = job.arg("--remote-hydrant").arg(hydrant_bin()).words("-n 2 echo started").run();
    outcome.code(1).says("started", 0).warns("the job was not started: host n");
    outcome.warns("this hydrant was built without the sandbox").warns("--features sandbox");
}
