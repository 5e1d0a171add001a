//! `PMI_PORT`: who may come in, and what strangers can do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use hydrant_tests::{Job, Running, hydrant_bin};

use crate::{RAW, raw, shell};

/// Keeps argument 2's number of connections open to the port of argument 1 until its standard input ends, and replaces
/// those that are closed. With argument 3, as another user.
const FLOOD: &str = "
import os, resource, select, socket, sys
host, port = sys.argv[1].rsplit(':', 1)
count = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 64, count + 64))
if len(sys.argv) > 3:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
poller, held = select.poll(), {}
def knock():
    stranger = socket.socket()
    stranger.setblocking(False)
    stranger.connect_ex((host, int(port)))
    held[stranger.fileno()] = stranger
    poller.register(stranger, select.POLLIN)
for _ in range(count): knock()
print('knocking', flush=True)
poller.register(0, select.POLLIN)
while True:
    for fd, _ in poller.poll():
        if fd == 0: sys.exit(0)
        poller.unregister(fd)
        held.pop(fd).close()
        knock()
";

/// A job whose rank 0 says its port and then waits for the end of its input; the others wait in a fence.
fn waiting(options: &str) -> Running {
    // Rank 1 waits in the fence when rank 0 finds its name: both requests come in one piece.
    let steps = r"ack1
        init1
        only 0
        send cmd=lookup_name service=waiting\n
        expect cmd=lookup_result rc=0
        say port=%p.
        count
        only 1
        send cmd=publish_name service=waiting port=p\ncmd=barrier_in\n
        expect cmd=publish_result rc=0
        expect cmd=barrier_out rc=0
        only 0,2
        fence1
        all
        end1
        say done";
    raw(&format!("--pmi-port --lookup-wait 100 {options}"), steps).hold_input().start()
}

fn port_of(job: &Running) -> SocketAddr {
    let said = job.await_stdout("\n", 1).stdout();
    let port = said.split_once("port=").and_then(|(_, rest)| rest.split_once(".\n"));
    let port = port.unwrap_or_else(|| panic!("no port in {said:?}")).0;
    port.parse().unwrap_or_else(|e| panic!("{port}: {e}"))
}

/// Says something to the port, and gives what it answers until it closes the connection.
fn stranger(port: SocketAddr, says: &[u8]) -> String {
    let mut stream = TcpStream::connect(port).expect("the port is open");
    stream.write_all(says).expect("nothing was refused yet");
    let mut heard = Vec::new();
    // A reset is as good an end as any.
    let _ = stream.read_to_end(&mut heard);
    String::from_utf8_lossy(&heard).into_owned()
}

#[test]
fn it_is_on_loopback_unless_asked_otherwise() {
    let mut job = waiting("-n 2");
    assert!(port_of(&job).ip().is_loopback());
    job.end_input();
    job.wait().code(0).says("done", 2).quiet();
}

#[test]
fn the_address_can_be_chosen() {
    let steps = "ack1\ninit1\nsay %p\nend1";
    let outcome = raw("--pmi-port=127.0.0.2:0 -n 2", steps).run();
    outcome.code(0).says("127.0.0.2:", 2).quiet();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let taken = taken.local_addr().map(|addr| (taken, addr)).expect("a listener has an address");
    let outcome = raw(&format!("--pmi-port={} -n 2", taken.1), "say started").run();
    assert_ne!(outcome.status.code(), Some(0), "{outcome}");
    outcome.says("started", 0).warns(&taken.1.to_string());
}

#[test]
fn rubbish_costs_only_its_own_connection() {
    let mut job = waiting("-n 3");
    let port = port_of(&job);
    assert_eq!(stranger(port, b"GET / HTTP/1.1\r\n\r\n"), "");
    assert_eq!(stranger(port, b"cmd=get_maxes\n"), "");
    assert_eq!(stranger(port, &[0xff; 4096]), "");
    assert_eq!(stranger(port, &[b'c'; 100_000]), "");
    job.end_input();
    job.wait().code(0).says("done", 3);
}

// Fault: A client at a port for PMIx speaks PMI, or PMIx at a port for PMI
// Outcome: its connection is closed, and a line says which the port is for
// Guarantee: A port of a job serves the protocol whose variable names it, and no other
// Also: hydrant-host `a_port_accepts_pmix_clients`
#[test]
fn each_port_is_for_its_protocol() {
    let script = "echo pmix ${PMIX_SERVER_URI41#*//}; echo pmi $PMI_PORT; read line";
    let mut job = shell("-v --pmi-port -n 1", script).hold_input().start();
    let said = job.await_stdout("pmi ", 1).stdout();
    let port = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|port| port.trim().parse().ok()).unwrap_or_else(|| panic!("no port for {name}: {said}"))
    };
    assert_eq!(stranger(port("pmix "), b"cmd=initack pmiid=0\n"), "");
    job.await_stderr("it speaks no PMIx\n");
    assert_eq!(stranger(port("pmi "), &[0xff; 64]), "");
    job.await_stderr("it speaks PMIx at a port for PMI-1 and PMI-2\n");
    job.send(b"\n").expect("the script reads");
    job.wait().code(0);
}

// Fault: A client repeats an `init` that is refused, or one that changes nothing, while a rank ends
// Outcome: refused and closed
// Guarantee: A client that has not introduced itself may send 4 KiB and be refused once
// Also: hydrant-driver `a_client_that_has_not_introduced_itself_is_read_in_small_pieces`, hydrant-serve
// `the_end_of_a_rank_does_not_wait_for_a_stranger`
#[test]
fn a_stranger_has_one_attempt_to_introduce_itself() {
    let mut job = waiting("-n 3");
    let port = port_of(&job);
    let reply = stranger(port, b"cmd=init pmi_version=99 pmi_subversion=0\n");
    assert!(reply.contains("only_PMI_versions_1_and_2") && reply.lines().count() == 1, "{reply}");
    job.end_input();
    job.wait().code(0).says("done", 3);
}

#[test]
fn silence_costs_only_its_own_connection() {
    let mut job = waiting("-n 3");
    let port = port_of(&job);
    let silent: Vec<TcpStream> =
        (0..8).map(|_| TcpStream::connect(port).expect("the port is open")).collect();
    let mut half = TcpStream::connect(port).expect("the port is open");
    half.write_all(b"cmd=initack pmi").expect("nothing was refused yet");
    job.end_input();
    job.wait().code(0).quiet().says("done", 3);
    for mut silent in silent {
        let mut told = Vec::new();
        // A reset is as good an end as any.
        let _ = silent.read_to_end(&mut told);
        assert_eq!(told, b"");
    }
    drop(half);
}

#[test]
fn many_silent_connections_keep_no_rank_out() {
    let mut job = shell("--pmi-port -n 1", "echo $PMI_PORT; read line").hold_input().start();
    let address: SocketAddr = job.line().parse().expect("the script prints its port");
    let connect = || TcpStream::connect(address).expect("the port is open");
    let silent: Vec<_> = (0..200).map(|_| connect()).collect();
    let mut rank = BufReader::new(connect());
    rank.get_mut().write_all(b"cmd=initack pmiid=0\n").expect("the server reads");
    let mut line = String::new();
    rank.read_line(&mut line).expect("the server answers");
    assert!(line.starts_with("cmd=initack rc=0"), "{line}");
    drop(silent);
    job.send(b"\n").expect("the script reads");
    job.wait().code(0);
}

#[test]
fn a_rank_is_let_in_once() {
    let mut job = waiting("-n 2");
    let port = port_of(&job).to_string();
    let other = Job::new(RAW).env("PMI_PORT", &port).env("PMI_ID", "1").env("PMI_SIZE", "2");
    let steps = r"send cmd=initack pmiid=1\n
        refused connected already
        eof";
    other.steps(steps).run().code(0);
    let other = Job::new(RAW).env("PMI_PORT", &port).env("PMI_ID", "1");
    let steps = r"send cmd=init pmi_version=2 pmi_subversion=0\n
        expect cmd=response_to_init rc=0 pmi_version=2
        frame cmd=fullinit;pmirank=1;
        refused connected already
        eof";
    other.steps(steps).run().code(0);
    let unknown = Job::new(RAW).env("PMI_PORT", &port).env("PMI_ID", "9");
    unknown.steps("send cmd=initack pmiid=9\\n\nrefused no such rank\neof").run().code(0);
    job.end_input();
    job.wait().code(0).says("done", 2);
}

/// MPICH connects again at each init, and leaves its earlier connection as it is.
#[test]
fn a_rank_that_introduces_itself_again_is_let_in() {
    let steps = "ack1\ninit1\nonly 0\nsay port=%p.\ncount\nexit 0\nall\nfence1\nend1\nsay done";
    let mut job = raw("--pmi-port -n 2", steps).hold_input().start();
    let mut again = BufReader::new(TcpStream::connect(port_of(&job)).expect("the port is open"));
    let mut replies = Vec::new();
    for (line, lines) in [
        ("initack pmiid=0", 4),
        ("init pmi_version=1 pmi_subversion=1", 1),
        ("barrier_in", 1),
        ("finalize", 1),
    ] {
        again.get_mut().write_all(format!("cmd={line}\n").as_bytes()).expect("the server reads");
        for _ in 0..lines {
            let mut reply = String::new();
            again.read_line(&mut reply).expect("the server answers");
            replies.push(reply);
        }
    }
    assert!(replies[0].starts_with("cmd=initack rc=0"), "{replies:?}");
    assert_eq!(replies[5..], ["cmd=barrier_out rc=0\n", "cmd=finalize_ack rc=0\n"], "{replies:?}");
    job.end_input();
    job.wait().code(0).says("done", 1).quiet();
}

#[test]
fn slurms_and_mpichs_ways_to_say_who_one_is() {
    for fields in ["pmirank=%r;", "srcid=%r;threaded=FALSE;", "pmijobid=%j;pmirank=%r;threaded=FALSE;"] {
        let steps = format!(
            "send cmd=init pmi_version=2 pmi_subversion=0\\n
            expect cmd=response_to_init rc=0
            frame cmd=fullinit;{fields}
            expect cmd=fullinit-response;rc=0;rank=%r;size=3;
            fence2
            end2"
        );
        raw("--pmi-port -n 3", &steps).run().code(0).quiet();
    }
}

// Shows: pmi2.h, Messages | `debugged`, `pmiverbose` | whether a debugger runs the job, whether the client is to be
// verbose | done: `TRUE` if a debugger has set `MPIR_being_debugged` before the job starts, or with `--job-attr`
#[test]
fn the_reply_to_fullinit_says_whether_to_be_verbose_and_whether_a_debugger_runs_the_job() {
    for (options, fields) in [
        ("-n 1", "debugged=FALSE;pmiverbose=FALSE;"),
        ("--job-attr pmiverbose=TRUE -n 1", "debugged=FALSE;pmiverbose=TRUE;"),
        ("--job-attr debugged=TRUE -n 1", "debugged=TRUE;pmiverbose=FALSE;"),
    ] {
        let steps = format!(
            "send cmd=init pmi_version=2 pmi_subversion=0\\n
            expect cmd=response_to_init rc=0
            frame cmd=fullinit;pmirank=0;
            expect cmd=fullinit-response;rc=0;{fields}
            end2"
        );
        raw(options, &steps).run().code(0).quiet();
    }
}

/// Another user of the machine cannot connect. Needs root to become another user.
#[test]
fn other_users_are_turned_away() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut job = waiting("-n 2");
    let port = port_of(&job);
    // A copy, because others may not enter where the original lies.
    let copy = std::env::temp_dir().join(format!("pmi-raw-{}", std::process::id()));
    std::fs::copy(RAW, &copy).expect("there is room for a copy");
    let other = Job::new("setpriv").words("--reuid=65534 --regid=65534 --clear-groups").arg(&copy);
    let other = other.dir("/").env("PMI_PORT", port.to_string()).env("PMI_ID", "0");
    let outcome = other.steps("send cmd=initack pmiid=0\\n\neof\nsay closed").run();
    std::fs::remove_file(&copy).expect("the copy is there");
    outcome.code(0).says("closed", 1);
    job.end_input();
    job.wait().code(0).says("done", 2);
}

/// Linux lets a client of 127.0.0.1 have any address of the machine, so the kernel's word on its user decides. Needs root to
/// become another user.
#[test]
fn another_user_is_closed_out_whatever_its_address() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let network = "ip link set lo up; ip addr add 192.0.2.2/32 dev lo
        ip -6 addr add 2001:db8::2/128 dev lo nodad; exec python3 -c \"$@\"";
    let job = Job::new("unshare").words("--net sh -ec").arg(network).arg("sh");
    let outcome = job.arg(include_str!("two_users.py")).arg(hydrant_bin()).run();
    outcome.code(0).says("as it should be", 1).warns("refused hosts of user 65534");
}

/// A rank that connects while thousands of connections wait, in a launcher that may open few files.
fn joins_through_a_flood(options: &str, flood: &str) {
    let hydrant = hydrant_bin().display();
    let rank = format!("echo $PMI_PORT; read line; exec {hydrant} probe");
    let limited = format!("ulimit -n 256; exec {hydrant} run --pmi-port {options} -n 1 sh -c '{rank}'");
    let mut job = Job::new("sh").arg("-c").arg(limited).hold_input().start();
    let port = job.line();
    let stranger = Job::new("python3").arg("-c").arg(FLOOD).arg(port).words(flood);
    let mut stranger = stranger.hold_input().start();
    assert_eq!(stranger.line(), "knocking");
    job.send(b"\n").expect("the script reads");
    job.wait().code(0).says("1 rank on 1 host", 1);
    stranger.end_input();
    stranger.wait().code(0);
}

// Fault: Another user of the machine opens thousands of connections to a loopback port
// Outcome: each is closed before the next is accepted; ranks join
// Guarantee: A turn accepts at most 16 connections, and asks the kernel for their user
// Also: hydrant-driver `connections_are_accepted_in_batches`
#[test]
fn a_flood_from_another_user_keeps_no_rank_out() {
    if rustix::process::geteuid().is_root() {
        joins_through_a_flood("", "3000 other");
    }
}

// Fault: Clients that do not introduce themselves take all descriptors
// Outcome: the oldest of them is closed for each new client
// Guarantee: A client without introduction never keeps out a rank
#[test]
fn a_flood_that_takes_all_descriptors_keeps_no_rank_out() {
    joins_through_a_flood("--limit conns=2000", "1500");
}
