//! `hydrant offload` at `hydrant serve --manage`, on this machine's processor and on a DPU's.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;

use hydrant_tests::offload::{self, Target, script, spawn_request};
use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Running};
use hydrant_tests::{free_ports, hydrant_bin, target_dir};
use rustix::process::Signal;

use super::{Machine, RAW, aarch64_bin};

/// A server that hosts manage.
pub(crate) fn managed(machine: Machine, options: &str) -> (Running, Target) {
    let job = match machine {
        Machine::Here => Job::new(hydrant_bin()),
        Machine::Aarch64 => Job::new("qemu-aarch64-static").arg(aarch64_bin()),
    };
    let mut running = job.words(&format!("serve --manage=127.0.0.1:0 {options}")).start();
    let address = running.managed_address();
    (running, Target { address, ports: String::new(), raw: RAW })
}

#[test]
fn everything_that_a_board_does() {
    for machine in [Machine::Here, Machine::Aarch64] {
        let (server, target) = managed(machine, "--limit ranks=20");
        target.real_clients(&[4]);
        target.open_mpi(Peer::OpenMpi5, 4, "");
        target.open_mpi(Peer::OpenMpi4, 4, "");
        target.ranks_of_this_machine();
        target.failures();
        target.status();
        target.refusals(20);
        target.recordings();
        let outcome = target.offload("--record /dev/null/file -n 1 true").run();
        outcome.code(1).warns("cannot record to /dev/null/file: ");
        server.signal(Signal::TERM);
        server.wait().code(0).quiet();
    }
}

// Fault: A spawned job of `hydrant offload` aborts, is killed, or ends without finalizing
// Outcome: the run ends; the exit code is its own
// Guarantee: A board is the launcher's own server in another place
// Also: devices `board::offload::ranks_of_a_small_board_that_serves_nodes_spawn`
#[test]
fn ranks_of_a_server_spawn() {
    let (server, target) = managed(Machine::Here, "");
    target.spawns();
    target.repeated_spawns();
    target.open_mpi_spawns();
    target.open_mpi_recordings();
    target.spawned_failures();
    server.signal(Signal::TERM);
    server.wait().code(0).quiet();
}

/// The line of the board comes before the failure of the client that was refused.
#[test]
fn a_limit_of_the_board_that_is_used_up_is_named() {
    if !Peer::SlurmPmi2.there() {
        return;
    }
    let (server, target) = managed(Machine::Here, "--limit kvs-bytes=16384");
    let folder = Folder::new("offload-full");
    for options in ["-n 8".to_owned(), format!("-n 8 --record {}", folder.path("run.rec"))] {
        let full = target.offload(&options).arg(Peer::SlurmPmi2.program("pmi2_kvs"));
        let full = full.words("-k 8 -v 900").run();
        full.warns("the board refused a client: limit kvs-bytes (16384) is used up there\n");
        assert!(!full.status.success(), "{full}");
    }
    server.signal(Signal::TERM);
    server.wait().code(0).warns("limit kvs-bytes (16384) is used up");
}

// Fault: `hydrant serve --manage --record`
// Outcome: each job's recording replays
// Guarantee: A recording begins when a job opens while there is no other. Together they have at most 1 GiB
// Also: hydrant-serve `each_job_alone_and_jobs_that_overlap_have_a_recording_that_replays`
#[test]
fn recorded_jobs_of_a_server_replay() {
    let file = target_dir().join(format!("served-{}.rec", std::process::id()));
    let recording = |number: u32| PathBuf::from(format!("{}.{number}", file.display()));
    let (server, target) = managed(Machine::Here, &format!("--record {}", file.display()));
    for (args, code) in [("-n 4", 0), ("-n 2", 0)] {
        target.offload(args).arg(hydrant_bin()).arg("probe").run().code(code);
    }
    let folder = Folder::new("offload-recorded");
    let spawn = spawn_request(&script(&folder, RAW, "child", "init2\nfence2\nend2\nsay met"), 2);
    let steps = format!("init2\nonly 0\n{spawn}\nexpect cmd=spawn-response;rc=0;\nall\nfence2\nend2");
    target.raw("-n 2", &steps).run().code(0).quiet().says("met\n", 2);
    target.offload("-n 2 sh -c").arg("exit 3").run().code(3);
    server.signal(Signal::TERM);
    server.wait().code(0).quiet();
    for (number, ranks, jobs) in [(1, 4, 1), (2, 2, 1), (3, 2, 2), (4, 2, 1)] {
        let replay = Job::new(hydrant_bin()).words("replay").arg(recording(number)).run();
        replay.code(0).says(" outputs, all the same", 1).says(&format!("of {ranks} ranks"), jobs);
        std::fs::remove_file(recording(number)).expect("it was just read");
    }
    assert!(!recording(5).exists());
}

/// A recorded run has a server of its own. The first jobs of all hosts have the same number, and would have the same port.
// Fault: Hosts record their runs (`hydrant offload --record`) while others have jobs at the same board
// Outcome: each recording has the jobs of its own run
// Guarantee: A recorded run has a server of its own
// Also: hydrant-serve `a_port_in_use_is_passed_over`
#[test]
fn a_recording_of_a_host_has_no_jobs_of_others() {
    let [port] = free_ports();
    let (server, target) = managed(Machine::Here, &format!("--pmi-port 127.0.0.1:{port}"));
    let folder = Folder::new("offload-recorded-alone");
    let waiting = "ack1\ninit1\nonly 0\nsay here\ncat\nall\nfence1\nend1";
    let mut others =
        [format!("-n 5 --record {}", folder.path("other.rec")), "-n 3".to_owned()].map(|options| {
            let job = target.raw(&options, waiting).hold_input().start();
            job.await_stdout("here", 1);
            job
        });
    let file = folder.path("run.rec");
    target.raw(&format!("-n 2 --record {file}"), "init2\nfence2\nend2").run().code(0).quiet();
    for job in &mut others {
        job.end_input();
    }
    for job in others {
        job.wait().code(0).quiet();
    }
    for (file, ranks) in [(file, 2), (folder.path("other.rec"), 5)] {
        let replay = Job::new(hydrant_bin()).args(["replay", &file]).run();
        replay.code(0).says(" outputs, all the same", 1).says("+ job kvs_", 1);
        replay.says(&format!("of {ranks} ranks"), 1);
    }
    server.signal(Signal::TERM);
    server.wait().code(0).quiet();
}

/// Its recording has what came before.
#[test]
fn a_recorded_board_that_is_lost_ends_the_ranks() {
    let (server, target) = managed(Machine::Here, "");
    let folder = Folder::new("offload-recorded-lost");
    let file = folder.path("run.rec");
    let job = target.raw(&format!("-n 2 --record {file}"), "init2\nfence2\nsay here\nforever").start();
    job.await_stdout("here", 2);
    server.signal(Signal::KILL);
    job.wait().code(1).warns(&format!("the board at {} is lost: ", target.address));
    let replay = Job::new(hydrant_bin()).args(["replay", &file]).run();
    replay.code(0).says(" outputs, all the same", 1).says("! joined", 2);
    assert!(!server.wait().status.success());
}

/// A rank of PMI-1 that puts until its server is gone.
const FLOOD: &str = "
import os, socket
host, port = os.environ['PMI_PORT'].rsplit(':', 1)
server = socket.create_connection((host, int(port))).makefile('rw')
def ask(line, replies=1):
    server.write(line + chr(10))
    server.flush()
    return [server.readline() for _ in range(replies)]
ask('cmd=initack pmiid=' + os.environ['PMI_ID'], 4)
ask('cmd=init pmi_version=1 pmi_subversion=1')
print('up', flush=True)
try:
    while ask('cmd=put kvsname=none key=k value=' + 1000 * 'v')[0]: pass
except OSError: pass
";

/// The board waits for the host of a recorded run, but not without end. Other hosts are served.
// Fault: The host of a recorded run at `hydrant serve --manage` is stopped or gone
// Outcome: clients wait; after `--heartbeat` seconds the board gives it up
// Guarantee: Others are served
#[test]
fn a_host_that_does_not_read_its_recording_is_given_up() {
    let (server, target) = managed(Machine::Here, "--heartbeat 1");
    let folder = Folder::new("offload-unread");
    let job =
        target.offload(&format!("-n 1 --record {} python3 -c", folder.path("run.rec"))).arg(FLOOD).start();
    job.await_stdout("up\n", 1);
    job.signal(Signal::STOP);
    server.await_stderr("node 0: closed the connection of its host: ");
    target.raw("-n 2", "ack1\ninit1\nfence1\nend1").run().code(0).quiet();
    job.signal(Signal::CONT);
    job.wait().code(1).warns(&format!("the board at {} is lost: ", target.address));
    server.signal(Signal::TERM);
    server.wait().code(0);
}

#[test]
fn several_hosts_at_the_same_time() {
    let (server, target) = managed(Machine::Here, "");
    let waiting = "ack1\ninit1\nonly 0\nsay here\ncat\nall\nfence1\nend1";
    let mut first = target.raw("-n 2", waiting).hold_input().start();
    let mut second = target.raw("-n 3", waiting).hold_input().start();
    first.await_stdout("here", 1);
    second.await_stdout("here", 1);
    second.end_input();
    second.wait().code(0).quiet();
    first.end_input();
    first.wait().code(0).quiet();
    server.signal(Signal::TERM);
    server.wait().code(0);
}

/// Each host calls its first job 0 and the spawned one 1. The server tells them apart.
// Fault: Several hosts of `hydrant offload` spawn at the same time
// Outcome: each spawn starts its own job
// Guarantee: A host reaches its own jobs and spawns only
// Also: hydrant-serve `hosts_number_their_jobs_and_reach_no_others`,
// `hosts_complete_their_own_upcalls_and_know_no_other_nodes`
#[test]
fn ranks_of_several_hosts_spawn_at_the_same_time() {
    let (server, target) = managed(Machine::Here, "");
    let folder = Folder::new("offload-hosts");
    let spawn = spawn_request(&script(&folder, RAW, "child", "init2\nfence2\nend2\nsay met"), 2);
    let steps = format!(
        "init2\nonly 0\nsay here\ncat\n{spawn}\nexpect cmd=spawn-response;rc=0;\nall\nfence2\nend2\nsay done"
    );
    let mut jobs = [(); 3].map(|()| target.raw("-n 2", &steps).hold_input().start());
    for job in &jobs {
        job.await_stdout("here", 1);
    }
    for job in jobs.iter_mut().rev() {
        job.end_input();
    }
    for job in jobs {
        job.wait().code(0).quiet().says("met\n", 2).says("done\n", 2);
    }
    server.signal(Signal::TERM);
    server.wait().code(0).quiet();
}

/// The board of the job is asked.
#[test]
fn status_shows_what_ranks_of_both_jobs_wait_for() {
    let (server, target) = managed(Machine::Here, "");
    offload::status_shows_what_ranks_of_both_jobs_wait_for(RAW, target.offload("-n 2"));
    server.signal(Signal::TERM);
    server.wait().code(0);
}

#[test]
fn a_board_that_is_lost_ends_the_ranks() {
    let (server, target) = managed(Machine::Here, "");
    let job = target.raw("-n 2", "ack1\ninit1\nsay here\nforever").start();
    job.await_stdout("here", 2);
    server.signal(Signal::KILL);
    let outcome = job.wait();
    outcome.code(1).warns(&format!("the board at {} is lost: it closed the connection", target.address));
    assert!(!server.wait().status.success());
}

// Fault: A board freezes or is unplugged while ranks wait in a fence
// Outcome: the job ends after `--heartbeat`; board and fence are named
// Guarantee: A silent board is lost
// Also: devices `board::offload::a_board_that_is_frozen_is_named`
#[test]
fn a_board_that_is_frozen_ends_the_ranks() {
    let (server, target) = managed(Machine::Here, "");
    target.frozen(|| {
        server.signal(Signal::STOP);
    });
    server.signal(Signal::CONT);
    target.raw("-n 2", "ack1\ninit1\nfence1\nend1").run().code(0).quiet();
    server.signal(Signal::TERM);
    server.wait().code(0);
}

/// A host that dies takes its job with it, and the board goes on.
#[test]
fn a_host_that_is_lost_ends_its_job() {
    let (server, target) = managed(Machine::Here, "-v --limit jobs=1");
    let job = target.raw("-n 2", "ack1\ninit1\nsay here\nforever").start();
    job.await_stdout("here", 2);
    job.signal(Signal::KILL);
    job.wait();
    server.await_stderr("job 0 is over");
    target.raw("-n 2", "ack1\ninit1\nfence1\nend1").run().code(0).quiet();
    server.signal(Signal::TERM);
    server.wait().code(0);
}

#[test]
fn a_signal_reaches_the_ranks() {
    let (server, target) = managed(Machine::Here, "");
    let job = target.raw("-n 2", "ack1\ninit1\nsay here\nforever").start();
    job.await_stdout("here", 2);
    job.signal(Signal::TERM);
    job.wait().code(143).warns("ended by SIGTERM");
    server.signal(Signal::TERM);
    server.wait().code(0);
}

#[test]
fn what_is_no_board() {
    let refused = |target: &str| {
        let target = Target { address: target.to_owned(), ports: String::new(), raw: RAW };
        target.offload("-n 1 true").run()
    };
    refused("127.0.0.1:1").code(1).warns("cannot connect to a board at 127.0.0.1:1: ");
    refused("127.0.0.1:pmi")
        .code(2)
        .warns("invalid value '127.0.0.1:pmi' for --target: expected a name or an address, ");
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the launcher connects");
        stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").expect("the launcher reads");
    });
    let outcome = refused(&address);
    outcome.code(1).warns(&format!("the board at {address} refuses the handshake: "));
    other.join().expect("it was asked once");
    let outcome = Job::new(hydrant_bin()).words("offload -n 1 true").run();
    outcome
        .code(2)
        .warns("hydrant: missing option --target ")
        .warns("hint: for example: hydrant offload --target ");
    for option in
        ["--pmi-port", "--mpi-psets", "-limit keys=5", "-universe x", "--sandbox", "--remote-hydrant x"]
    {
        let name = option.split(' ').next().unwrap_or_default();
        let outcome = Job::new(hydrant_bin()).words(&format!("offload --target x {option} true")).run();
        outcome.code(2).warns(&format!("{name} does not apply to 'hydrant offload': "));
    }
}
