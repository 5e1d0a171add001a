//! Hosts that join by themselves (`hydrant join`), all of them on this machine.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Outcome, Running, free_ports};
use rustix::process::Signal;

use crate::RAW;
use crate::dynamic::spawn;

/// A shell script of a rank that says where it is.
const PLACE: &str = "echo rank $PMI_RANK on $PMI_HOSTNAME";

/// Files with secrets.
struct Secrets(Folder);

impl Secrets {
    fn new() -> Secrets {
        let secrets = Secrets(Folder::new("join"));
        secrets.add("all");
        secrets
    }

    /// A secret that no other file has.
    fn add(&self, name: &str) {
        let path = self.0.file(name, &format!("the secret in the file {name}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is this user's");
    }

    /// A run that waits for hosts, and where it does.
    fn head(&self, secret: &str, options: &str, program: &[&str]) -> (Running, String) {
        let job = Job::hydrant("--bootstrap join --iface lo -v --secret-file").arg(self.0.path(secret));
        let job = job.words(options).args(program).start();
        let address = address_of(&job);
        (job, address)
    }

    /// A host that joins.
    fn host(&self, secret: &str, address: &str, options: &str) -> Job {
        Job::command("join").arg(address).arg("--secret-file").arg(self.0.path(secret)).words(options)
    }
}

/// Where a run waits for hosts, once it does.
fn address_of(head: &Running) -> String {
    head.await_stderr("--secret-file FILE\n");
    let stderr = head.stderr();
    let address = stderr.split_once("hydrant join ").and_then(|(_, words)| words.split(' ').next());
    address.expect("the line names the command").to_owned()
}

/// Waits until a host has joined.
fn joined(head: &Running, host: &str) {
    head.await_stderr(&format!("host {host} has joined from 127.0.0.1"));
}

/// A host none of whose ranks failed.
fn succeeded(host: Running) {
    host.wait().code(0).quiet();
}

/// A host could not join, which it says in one line.
#[track_caller]
fn refused(outcome: &Outcome, why: &str) {
    outcome.code(1).warns(why).stderr_starts("hydrant join: ");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome}");
}

#[test]
fn hosts_are_numbered_by_index_and_then_by_arrival() {
    let secrets = Secrets::new();
    let (head, address) = secrets.head("all", "--expect 4", &["sh", "-c", PLACE]);
    let host = |options: &str| secrets.host("all", &address, options);
    let late = host("--name late -n 1").start();
    joined(&head, "late");
    let last = host("--name last -n 1").env("PMI_RANK", "none").start();
    joined(&head, "last");
    let two = host("--name two -n 2 --index 2").env("SLURM_PROCID", "0").start();
    let none = host("--name none -n 1").env("JOB_COMPLETION_INDEX", "0").start();
    let outcome = head.wait();
    let places = ["rank 0 on none", "rank 1 on late", "rank 2 on two", "rank 3 on two", "rank 4 on last"];
    assert_eq!(outcome.code(0).lines(), places, "{outcome}");
    [late, last, two, none].into_iter().for_each(succeeded);
}

#[test]
fn a_run_waits_for_as_many_slots_as_it_has_ranks() {
    let secrets = Secrets::new();
    let (head, address) = secrets.head("all", "-n 5", &[RAW, "init1", "fence1", "end1"]);
    let hosts = ["a", "b", "c"].map(|name| {
        let host = secrets.host("all", &address, &format!("--name {name} -n 2")).start();
        joined(&head, name);
        host
    });
    head.wait().code(0);
    hosts.into_iter().for_each(succeeded);
}

/// More hosts than the radix: some have others as their parents.
#[test]
fn hosts_form_a_tree() {
    let secrets = Secrets::new();
    let (head, address) = secrets.head("all", "--expect 7 --radix 2", &[RAW, "init1", "fence1", "end1"]);
    let host = |name| secrets.host("all", &address, &format!("--name n{name} -n 2")).start();
    let hosts: Vec<Running> = (0..7).map(host).collect();
    head.wait().code(0);
    hosts.into_iter().for_each(succeeded);
}

#[test]
fn a_host_may_come_before_the_run() {
    let secrets = Secrets::new();
    let [port] = free_ports();
    let host = secrets.host("all", &format!("127.0.0.1:{port}"), "--name a -n 1").start();
    let (head, _) = secrets.head("all", &format!("--expect 1 --join-port {port}"), &["sh", "-c", PLACE]);
    head.wait().code(0).stdout_is("rank 0 on a\n");
    succeeded(host);
}

/// The environment and the working directory are those of the host.
#[test]
fn hosts_may_bring_the_program() {
    let secrets = Secrets::new();
    let (head, address) = secrets.head("all", "--expect 2 -genv OF head", &[]);
    let script = "echo rank $PMI_RANK of $PMI_SIZE in $PWD with $WHERE of $OF; exit $WHERE";
    let host = |index: u32| {
        let folder = secrets.0.path(&format!("folder{index}"));
        fs::create_dir(&folder).expect("the folder is new");
        let options = format!("--name n{index} --index {index} -n 2 -- sh -c");
        let job = secrets.host("all", &address, &options).arg(script);
        (job.env("WHERE", format!("{index}")).dir(&folder).start(), folder)
    };
    let [(first, of_first), (second, of_second)] = [0, 1].map(host);
    let outcome = head.wait();
    let of = |rank, folder: &str, host| format!("rank {rank} of 4 in {folder} with {host} of head");
    let lines = [of(0, &of_first, 0), of(1, &of_first, 0), of(2, &of_second, 1), of(3, &of_second, 1)];
    assert_eq!(outcome.code(1).lines(), lines, "{outcome}");
    succeeded(first);
    second.wait().code(1).quiet();
}

/// Each program is one of the job, on the hosts that bring it.
#[test]
fn hosts_may_bring_different_programs() {
    let secrets = Secrets::new();
    let (head, address) = secrets.head("all", "--expect 3", &[]);
    let host = |index: u32, text| {
        let options = format!("--name n{index} --index {index} -n {} -- sh -c", index + 1);
        secrets.host("all", &address, &options).arg(format!("{PLACE}: {text}")).start()
    };
    let hosts = [host(0, "master"), host(2, "worker"), host(1, "worker")];
    let outcome = head.wait();
    let lines = [
        "rank 0 on n0: master",
        "rank 1 on n1: worker",
        "rank 2 on n1: worker",
        "rank 3 on n2: worker",
        "rank 4 on n2: worker",
        "rank 5 on n2: worker",
    ];
    assert_eq!(outcome.code(0).lines(), lines, "{outcome}");
    hosts.into_iter().for_each(succeeded);
    let (head, address) = secrets.head("all", "--expect 2 -n 2", &[]);
    let host = |index: u32| {
        let options = format!("--name n{index} --index {index} -n 1 -- sh -c");
        secrets.host("all", &address, &options).arg(format!("exit {index}")).start()
    };
    let hosts = [0, 1].map(host);
    head.wait().code(2).warns("leave out -n");
    hosts.into_iter().for_each(|host| refused(&host.wait(), "leave out -n"));
}

#[test]
fn a_host_that_does_not_fit_is_refused_and_told_why() {
    let secrets = Secrets::new();
    secrets.add("other");
    let (head, address) = secrets.head("all", "--expect 3", &["sh", "-c", PLACE]);
    let host = |options: &str| secrets.host("all", &address, options);
    let first = host("--name a -n 1 --index 0").start();
    joined(&head, "a");
    let again = |options: &str, why: &str| refused(&host(options).run(), why);
    again("--name a -n 1", "a host a has joined already, from 127.0.0.1: join with another --name");
    again("--name b -n 1 --index 0", "host a has index 0 already");
    again("--name b -n 1 --index 3", "it has index 3, and the run has 3 hosts, from 0 on");
    again("--name b/c -n 1", "join with --name");
    again("--name b -n 1 -- true", "the run has a program: join without one");
    refused(&secrets.host("other", &address, "--name b -n 1").run(), "has another secret");
    head.await_stderr("a host at 127.0.0.1 cannot join: it has another secret\n");
    let others = ["b", "c"].map(|name| host(&format!("--name {name} -n 1")).start());
    head.wait().code(0).says("rank ", 3);
    succeeded(first);
    others.into_iter().for_each(succeeded);
}

#[test]
fn a_host_without_the_program_that_the_run_lacks_is_refused() {
    let secrets = Secrets::new();
    let (head, address) = secrets.head("all", "--expect 1", &[]);
    refused(&secrets.host("all", &address, "-n 1").run(), "the run has no program: join with -- PROGRAM");
    let host = secrets.host("all", &address, "--name a -n 1 -- sh -c").arg(PLACE).start();
    head.wait().code(0).stdout_is("rank 0 on a\n");
    succeeded(host);
}

/// A host that has joined or that was taken over cannot say that it is another.
#[test]
fn with_a_secret_for_each_host_nobody_is_another() {
    let secrets = Secrets::new();
    fs::create_dir(secrets.0.path("each")).expect("the folder is new");
    ["each/0", "each/1"].iter().for_each(|name| secrets.add(name));
    let (head, address) = secrets.head("each", "--expect 3", &["sh", "-c", PLACE]);
    let host = |secret: &str, options: &str| secrets.host(secret, &address, options);
    refused(&host("each/1", "--index 0").run(), "has another secret");
    refused(&host("each/1", "").run(), "has a secret for each host, by its index: say --index");
    refused(&host("each/1", "--index 2").run(), "has no secret for index 2");
    head.await_stderr("cannot join: index 2: cannot read ");
    secrets.add("each/2");
    let of = |index: u32| host(&format!("each/{index}"), &format!("--index {index} --name n{index} -n 1"));
    let hosts = [2, 0, 1].map(|index| of(index).start());
    assert_eq!(head.wait().code(0).lines(), ["rank 0 on n0", "rank 1 on n1", "rank 2 on n2"]);
    hosts.into_iter().for_each(succeeded);
}

#[test]
fn a_host_that_leaves_before_the_run_begins_may_come_again() {
    let secrets = Secrets::new();
    let (head, address) = secrets.head("all", "--expect 2", &["sh", "-c", PLACE]);
    let host = |name: &str| secrets.host("all", &address, &format!("--name {name} -n 1")).start();
    let gone = host("a");
    joined(&head, "a");
    gone.signal(Signal::TERM);
    gone.wait().code(143).warns("ended by SIGTERM");
    head.await_stderr("host a has left before the run began\n");
    let hosts = [host("a"), host("b")];
    head.wait().code(0).says("rank ", 2);
    hosts.into_iter().for_each(succeeded);
}

#[test]
fn hosts_that_do_not_come_are_counted() {
    let secrets = Secrets::new();
    let (head, address) = secrets.head("all", "--expect 3 --bootstrap-timeout 3", &["true"]);
    let host = secrets.host("all", &address, "--name a -n 1").start();
    joined(&head, "a");
    let why = "one host has joined (a) within 3 s (--bootstrap-timeout), and the run waits for 3 hosts\n";
    head.wait().code(1).warns(why);
    refused(&host.wait(), why);
}

#[test]
fn a_job_that_is_larger_than_its_hosts_is_refused() {
    let secrets = Secrets::new();
    let (head, address) = secrets.head("all", "--expect 2 -n 5", &["true"]);
    let hosts = ["a", "b"].map(|name| secrets.host("all", &address, &format!("--name {name} -n 2")).start());
    let why = "5 ranks, and the 2 hosts that have joined have 4 slots";
    head.wait().code(2).warns(why);
    hosts.into_iter().for_each(|host| refused(&host.wait(), why));
}

#[test]
fn a_run_that_does_not_answer_is_waited_for_in_bounds() {
    let secrets = Secrets::new();
    let [port] = free_ports();
    let host = secrets.host("all", &format!("127.0.0.1:{port}"), "--bootstrap-timeout 0.5").run();
    refused(&host, "within 0.5 s (--bootstrap-timeout): Connection refused");
}

// Fault: A host joins a run that has all its hosts
// Outcome: it tries again, for another run may follow at the address, and then says so; the run does not notice
// Guarantee: A host is told whether a run is full or has ended
#[test]
fn a_host_that_comes_too_late_is_told_that_the_run_is_full() {
    let secrets = Secrets::new();
    let steps = [RAW, "init1", "fence1", "say", "up", "only", "0", "count", "all", "fence1", "end1"];
    let job =
        Job::hydrant("--bootstrap join --iface lo -v --expect 2 --secret-file").arg(secrets.0.path("all"));
    let mut head = job.args(steps).hold_input().start();
    let address = &*address_of(&head);
    let hosts = ["a", "b"].map(|name| secrets.host("all", address, &format!("--name {name} -n 1")).start());
    head.await_stdout("up", 2);
    let late = || secrets.host("all", address, "--name c -n 1 --bootstrap-timeout 1").run();
    let why = "has all its hosts, and no other one has answered there within 1 s (--bootstrap-timeout)";
    refused(&late(), why);
    head.end_input();
    head.wait().code(0);
    hosts.into_iter().for_each(succeeded);
    refused(&late(), "no run has answered at");
}

/// A run that more hosts may join while it runs. Its ranks, one on each of the hosts a and b, wait for input behind the line `up`.
fn open_run(secrets: &Secrets, secret: &str, options: &str, steps: &str) -> (Running, String, [Running; 2]) {
    let job = Job::hydrant("--bootstrap join --iface lo -v --expect 2 --prepend-pattern").arg("%h ");
    let job = job.words(options).arg("--secret-file").arg(secrets.0.path(secret));
    let steps = format!("init2\nfence2\nsay up\nonly 0\ncount\nall\nfence2\n{steps}\nend2");
    let head = job.arg(RAW).steps(&steps).hold_input().start();
    let address = address_of(&head);
    let host = |(index, name)| {
        let of_host = if secret == "all" { "all".to_owned() } else { format!("{secret}/{index}") };
        secrets.host(&of_host, &address, &format!("--name {name} -n 1 --index {index}")).start()
    };
    let hosts = [(0, "a"), (1, "b")].map(host);
    head.await_stdout("up", 2);
    (head, address, hosts)
}

/// Ranks spawn on a host that has joined the run meanwhile.
#[test]
fn a_host_may_join_a_run_that_has_begun() {
    let secrets = Secrets::new();
    let on_c = spawn(2, &format!("exec {RAW} init2 fence2 end2 say child"), "c");
    let steps = format!("only 0\n{on_c}\nexpect cmd=spawn-response;rc=0;\nall\nfence2");
    let (mut head, address, hosts) = open_run(&secrets, "all", "--elastic 3", &steps);
    let late = secrets.host("all", &address, "--name c -n 2").start();
    head.await_stderr("host c (node 3) has joined\n");
    let more = secrets.host("all", &address, "--name d -n 1").run();
    refused(&more, "refuses this host: host d: the run may have 3 hosts, and has had them");
    head.end_input();
    head.wait().code(0).says("c child\n", 2).warns("a host that asks to join is refused: host d: ");
    hosts.into_iter().chain([late]).for_each(succeeded);
}

/// A host that comes while the first ones still start waits for the run to begin.
#[test]
fn a_host_that_is_one_more_than_expected_joins_too() {
    let secrets = Secrets::new();
    let steps = [RAW, "init1", "fence1", "say", "up", "only", "0", "count", "all", "fence1", "end1"];
    let job = Job::hydrant("--bootstrap join --iface lo -v --expect 2 --elastic 3 --secret-file");
    let mut head = job.arg(secrets.0.path("all")).args(steps).hold_input().start();
    let address = &*address_of(&head);
    let host = |name: &str| secrets.host("all", address, &format!("--name {name} -n 1")).start();
    let hosts = ["a", "b", "c"].map(host);
    head.await_stderr("(node 3) has joined\n");
    head.await_stdout("up", 2);
    head.end_input();
    head.wait().code(0);
    hosts.into_iter().for_each(succeeded);
}

// Fault: A host is lost in a run that goes on after failures and whose hosts join by themselves
// Outcome: another host joins under the same name, and ranks spawn on it
// Guarantee: A lost host can be replaced without a shell on any host
#[test]
fn a_lost_host_is_replaced_by_one_that_joins() {
    let secrets = Secrets::new();
    fs::create_dir(secrets.0.path("each")).expect("the folder is new");
    for index in ["0", "1", "2"] {
        secrets.add(&format!("each/{index}"));
    }
    let on_b = spawn(2, &format!("exec {RAW} init2 fence2 end2 say child"), "b");
    let steps = format!("only 0\n{on_b}\nexpect cmd=spawn-response;rc=0;\nall");
    let options = "--elastic 3 -disable-auto-cleanup";
    let (mut head, address, [a, b]) = open_run(&secrets, "each", options, &steps);
    b.signal(Signal::KILL);
    head.await_stderr("host b (node 2): its daemon is lost");
    let other = secrets.host("each/1", &address, "--name b -n 2 --index 2").run();
    refused(&other, "has another secret");
    let nobody = secrets.host("each/1", &address, "--name b -n 2 --index 7").run();
    refused(&nobody, "has no secret for index 7");
    let b2 = secrets.host("each/1", &address, "--name b -n 2 --index 1").start();
    head.await_stderr("host b (node 3) has joined\n");
    let twice = secrets.host("each/2", &address, "--name b -n 2 --index 2").run();
    refused(&twice, "refuses this host: host b is in the run already");
    head.end_input();
    let outcome = head.wait();
    outcome.says("b child\n", 2).warns("a host at 127.0.0.1 cannot join: it has another secret (index 2)");
    [a, b2].into_iter().for_each(succeeded);
    b.wait().signaled(Signal::KILL);
}

/// Hosts that join by themselves give a fleet room.
#[test]
fn hosts_join_a_fleet_by_themselves() {
    let secrets = Secrets::new();
    let name = format!("test-join-{}", std::process::id());
    let up =
        Job::command("up --foreground --bootstrap join --iface lo --expect 1 --elastic 2 --name").arg(&name);
    let up = up.arg("--secret-file").arg(secrets.0.path("all")).start();
    let address = address_of(&up);
    let a = secrets.host("all", &address, "--name a -n 1").start();
    up.await_stdout("is ready: 1 host, 1 slot\n", 1);
    let job =
        |options: &str| Job::command("run --on").arg(&name).words(options).args(["sh", "-c", PLACE]).run();
    job("-n 1").code(0).stdout_is("rank 0 on a\n");
    let b = secrets.host("all", &address, "--name b -n 2").start();
    let has_joined = || {
        let outcome = job("-n 3");
        let ran = outcome.status.success();
        assert!(ran || outcome.stderr.contains("the job has 3 ranks, and the fleet has 1 slot"), "{outcome}");
        assert!(!ran || outcome.lines() == ["rank 0 on a", "rank 1 on b", "rank 2 on b"], "{outcome}");
        ran
    };
    assert!((0..1000).any(|_| has_joined()));
    Job::command("down").arg(&name).run().code(0).quiet();
    up.wait().code(0);
    [a, b].into_iter().for_each(succeeded);
}

/// MPICH's and Open MPI's ranks spawn, and exchange messages with children on the host that has joined meanwhile.
#[test]
fn mpi_programs_spawn_on_a_host_that_joins_by_itself() {
    for peer in [Peer::Mpich5, Peer::OpenMpi5].into_iter().filter(|peer| peer.there()) {
        let (secrets, folder) = (Secrets::new(), Folder::new("join-mpi"));
        let job = Job::hydrant("--bootstrap join --iface lo -v --expect 1 --elastic 2 -n 2 --secret-file");
        let job = job.arg(secrets.0.path("all")).assign(peer.variables(folder.path("").as_ref()));
        let script = "echo up; [ ${PMI_RANK:-$PMIX_RANK} != 0 ] || read line; exec \"$0\" world 4";
        let job = job.args(["--prepend-pattern", "%h ", "bash", "-c", script]).arg(peer.program("mpi_spawn"));
        let mut job = job.hold_input().start();
        let address = address_of(&job);
        let a = secrets.host("all", &address, "--name a -n 2").start();
        job.await_stdout("a up\n", 2);
        let c = secrets.host("all", &address, "--name c -n 4").start();
        job.await_stderr("host c (node 2) has joined\n");
        job.end_input();
        job.wait().code(0).says("c child ", 4).says(" of 2 done", 2);
        [a, c].into_iter().for_each(succeeded);
    }
}

// Fault: A host that is to join a run in progress brings a program, or is to be started by the run
// Outcome: one line says why, and the job goes on
// Guarantee: What is refused changes nothing
#[test]
fn hosts_that_cannot_join_a_run_in_progress_are_told_why() {
    let secrets = Secrets::new();
    let (mut head, address, hosts) = open_run(&secrets, "all", "--elastic 3", "fence2");
    let brings = secrets.host("all", &address, "--name c -n 1 -- true").run();
    refused(&brings, "refuses this host: the run has its program: join without one");
    let slots = secrets.host("all", &address, "--name c -n 4097").run();
    slots.code(2).warns("4097");
    let grow = Job::command("grow -hosts c").arg(head.pid().to_string()).run();
    grow.code(1)
        .warns("host c: hosts of this run join by themselves (--bootstrap join): start 'hydrant join' there");
    head.end_input();
    head.wait().code(0);
    hosts.into_iter().for_each(succeeded);
}

/// First bytes of what a host says, and of what the run says to it, with their version.
fn versioned<const LEN: usize>(first: &[u8], version: &str) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..first.len()].copy_from_slice(first);
    bytes[first.len()..first.len() + version.len()].copy_from_slice(version.as_bytes());
    bytes
}

// Fault: A host joins a run of another version
// Outcome: both sides say so, and the run waits on
// Guarantee: Hosts of different versions do not form a run
#[test]
fn hosts_and_runs_of_other_versions_are_named() {
    let secrets = Secrets::new();
    let (head, address) = secrets.head("all", "--expect 1", &["sh", "-c", PLACE]);
    let mut other = TcpStream::connect(&*address).expect("the run listens");
    let mut hello: [u8; 108] = versioned(b"hydrant\x03", "9.8.7");
    hello[48..56].copy_from_slice(b"hydrant\x01");
    other.write_all(&hello).expect("it reads");
    head.await_stderr("a host at 127.0.0.1 cannot join: its hydrant is 9.8.7\n");
    succeeded(secrets.host("all", &address, "--name a -n 1").start());
    head.wait().code(0);

    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address").to_string();
    let host = secrets.host("all", &address, "--name a -n 1").start();
    let (mut stream, _) = listener.accept().expect("the host connects");
    stream.read_exact(&mut [0; 108]).expect("it says what it is");
    stream.write_all(&versioned::<89>(&[1], "9.8.7")).expect("it reads");
    let run = format!("and that of the run at {address} is 9.8.7: install the same version on all hosts");
    refused(&host.wait(), &run);
}

#[test]
fn a_host_that_is_lost_is_named_and_ends_the_job() {
    let secrets = Secrets::new();
    let steps = [RAW, "init1", "fence1", "say", "up", "forever"];
    let (head, address) = secrets.head("all", "--expect 3 --radix 2", &steps);
    let host = |name: &str| secrets.host("all", &address, &format!("--name {name} -n 2")).start();
    let [a, b, c] = ["a", "b", "c"].map(host);
    head.await_stdout("up", 6);
    b.signal(Signal::KILL);
    head.wait().code(1).warns("host b (node ").warns("its daemon is lost: its connection was closed");
    b.wait().signaled(Signal::KILL);
    for host in [a, c] {
        assert!(!host.wait().status.success());
    }
}

#[test]
fn a_run_that_is_killed_ends_its_hosts() {
    let secrets = Secrets::new();
    let steps = [RAW, "init1", "fence1", "say", "up", "forever"];
    let (head, address) = secrets.head("all", "--expect 2", &steps);
    let hosts = ["a", "b"].map(|name| secrets.host("all", &address, &format!("--name {name} -n 1")).start());
    head.await_stdout("up", 2);
    head.signal(Signal::KILL);
    head.wait().signaled(Signal::KILL);
    hosts.into_iter().for_each(|host| refused(&host.wait(), "is lost: its connection was closed"));
}
