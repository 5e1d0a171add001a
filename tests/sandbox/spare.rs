//! `--spare native`: the built-in server takes the place of a plugin that fails.

use std::fs;
use std::path::Path;

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job};

use crate::faulty::{ALTERS, BABBLES, LOOPS, TRAPS, TRAPS_LATER, faulty};
use crate::{bin, sandboxed};

/// Two puts, a fence, and gets. The second value of rank 1 brings the fault on.
const EXCHANGE: &str = r#"
    ask() { printf '%s\n' "$1" >&"$PMI_FD"; read -r reply <&"$PMI_FD"; }
    ask 'cmd=init pmi_version=1 pmi_subversion=1'
    ask 'cmd=get_my_kvsname'
    kvs=${reply##*kvsname=}
    for key in a b; do ask "cmd=put kvsname=$kvs key=$key$PMI_RANK value=$key-$PMI_RANK-value"; done
    ask 'cmd=barrier_in'
    for rank in $(seq 0 $((PMI_SIZE - 1))); do
        for key in a b; do
            ask "cmd=get kvsname=$kvs key=$key$rank"
            echo "$PMI_RANK: ${reply##*value=}"
        done
    done
    ask 'cmd=finalize'
"#;
const WORD: &[u8; 8] = b"ue=b-1-v";
const TAKEN: &str = "; the built-in server has taken its place";

fn spared(file: &Path, options: &str) -> Job {
    sandboxed(file, "--spare native").words(options)
}

/// All recordings of a job replay on the built-in server.
fn replays(folder: &Folder) {
    for entry in fs::read_dir(folder.path(".")).expect("the folder is there") {
        let file = entry.expect("the folder is there").path();
        Job::new(bin()).words("replay --quiet").arg(&file).run().code(0).says("all the same", 1);
    }
}

/// A job goes on behind a fault, and the fault is reported.
#[track_caller]
fn goes_on(file: &Path, options: &str, ranks: usize, why: &str) {
    let folder = Folder::new("spare");
    let job = spared(file, options).arg("--record").arg(folder.path("run.rec"));
    let outcome = job.words("bash -c").arg(r#"eval "$EXCHANGE""#).env("EXCHANGE", EXCHANGE).run();
    outcome.code(0).warns(&format!("plugin {}{why}", file.display())).warns(TAKEN);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    for rank in 0..ranks {
        for key in ["a", "b"] {
            outcome.says(&format!(": {key}-{rank}-value\n"), ranks);
        }
    }
    replays(&folder);
}

// Fault: A plugin fails in a job that has `--spare native`
// Outcome: the job goes on; a warning names plugin and failure
// Guarantee: The built-in server has the inputs that the plugin has taken, and the same outputs, before it takes its
// place
// Also: sandbox `spare::a_plugin_that_has_answered_otherwise_is_not_replaced`
#[test]
fn ranks_do_not_notice_a_plugin_that_fails() {
    for (name, fault, why) in [
        ("traps", TRAPS, ": trapped: "),
        ("traps-later", TRAPS_LATER, ": trapped: "),
        ("loops", LOOPS, ": no response within 5 s"),
        ("babbles", BABBLES, ": "),
    ] {
        goes_on(&faulty(name, &[(WORD, fault)]), "-n 3", 3, why);
    }
}

/// Only the host of rank 1 has the fault: its spare goes on with the plugins of the others.
#[test]
fn a_node_goes_on_with_the_plugins_of_the_others() {
    let file = faulty("traps-node", &[(WORD, TRAPS)]);
    goes_on(&file, "-hosts n[1-4]:1 --bootstrap local --radix 2 -n 4", 4, ": trapped: ");
}

#[test]
fn all_nodes_go_on_without_plugins() {
    let file = faulty("traps-all", &[(b"barrier_", TRAPS)]);
    let job = spared(&file, "-hosts n[1-4]:2 --bootstrap local --radix 2 -n 8 bash -c")
        .arg(r#"eval "$EXCHANGE""#)
        .env("EXCHANGE", EXCHANGE);
    let outcome = job.run();
    outcome.code(0).says(": a-7-value\n", 8);
    for node in 1..=4 {
        outcome.warns(&format!("host n{node} (node {node}): warning: plugin "));
    }
    assert_eq!(outcome.stderr.matches(TAKEN).count(), 4, "{}", outcome.stderr);
}

/// Two ranks put so much that spares catch up several times, and get the other's values.
const LONG: &str = r#"
    ask() { printf '%s\n' "$1" >&"$PMI_FD"; read -r reply <&"$PMI_FD"; }
    ask 'cmd=init pmi_version=1 pmi_subversion=1'
    ask 'cmd=get_my_kvsname'
    kvs=${reply##*kvsname=}
    long=$(printf '%0900d' 7)
    for key in $(seq 1000); do ask "cmd=put kvsname=$kvs key=k$PMI_RANK.$key value=$long$key"; done
    ask 'cmd=barrier_in'
    for key in $(seq 1000); do
        ask "cmd=get kvsname=$kvs key=k$((1 - PMI_RANK)).$key"
        [ "${reply##*value=}" = "$long$key" ] && echo right
    done
    ask 'cmd=finalize'
"#;

#[test]
fn the_spare_of_a_long_job_knows_all_values() {
    let file = faulty("traps-late", &[(b"barrier_", TRAPS)]);
    let outcome = spared(&file, "-n 2 bash -c").arg(LONG).run();
    outcome.code(0).says("right\n", 2000).warns(TAKEN);
}

/// Its plugin answers otherwise, and does not fail.
#[test]
fn a_spare_that_cannot_follow_is_reported() {
    let file = faulty("adrift", &[(b"lue=0000", ALTERS)]);
    let outcome = spared(&file, "-n 2 bash -c").arg(LONG).run();
    outcome.code(0).warns("warning: the plugin goes on without its spare, which differs from it: ");
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
}

/// MPICH's ranks exchange addresses and spawn.
#[test]
fn mpich_does_not_notice() {
    if !Peer::Mpich5.there() {
        return;
    }
    for (name, word, program, args, said) in [
        ("mpich-hello", b"barrier_", "mpi_hello", "", "MPICH 5.0.2"),
        ("mpich-spawn", b"mcmd=spa", "mpi_spawn", "self 2", " of 4 done"),
    ] {
        let file = faulty(name, &[(word, TRAPS)]);
        for hosts in ["", "-hosts n[1-2]:2 --bootstrap local"] {
            let job = spared(&file, hosts).words("-n 4").arg(Peer::Mpich5.program(program)).words(args);
            job.run().code(0).says(said, 4).warns(TAKEN);
        }
    }
}

/// Clients have seen what such a plugin has answered, so the built-in server cannot go on from there.
#[test]
fn a_plugin_that_has_answered_otherwise_is_not_replaced() {
    let file = faulty("otherwise", &[(WORD, ALTERS), (b"finalize", TRAPS)]);
    let outcome = spared(&file, "-n 2 bash -c").arg(r#"eval "$EXCHANGE""#).env("EXCHANGE", EXCHANGE).run();
    outcome.code(1).warns(&format!("plugin {}: trapped: ", file.display()));
    outcome.warns("; its spare cannot take its place: it differs from it: ");
    outcome.warns("value=b-1-xalue").warns("value=b-1-value");
}

#[test]
fn a_spare_needs_a_plugin_or_boards() {
    for command in ["run --spare native -n 1 true", "run --sandbox --spare other -n 1 true"] {
        Job::new(bin()).words(command).run().code(2).warns("--spare");
    }
}
