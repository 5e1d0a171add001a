//! `hydrant serve --size`, with a rank that the test plays, and `hydrant serve --manage`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write, pipe};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use hydrant_core::Limits;
use hydrant_core::manage::{self, PREFIX, RECORD_MAX, Report, VERSION, Welcome};
use hydrant_core::wire::pmix::FIRST_BYTE;
use hydrant_tests::{Folder, Job, hydrant_bin};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;

/// Goes through a job of one rank.
fn serve_one(address: &str) {
    let mut rank = BufReader::new(TcpStream::connect(address).expect("the port is open"));
    let requests =
        "cmd=initack pmiid=0\ncmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\ncmd=finalize\n";
    rank.get_mut().write_all(requests.as_bytes()).expect("the server reads");
    let mut line = String::new();
    while line != "cmd=finalize_ack rc=0\n" {
        line.clear();
        assert_ne!(rank.read_line(&mut line).expect("the server answers"), 0, "it ends in the middle");
    }
}

#[test]
fn a_log_without_a_reader_delays_no_rank() {
    let (mut reader, mut log) = pipe().expect("the system has pipes");
    let flags = fcntl_getfl(&log).expect("the pipe is open");
    fcntl_setfl(&log, flags | OFlags::NONBLOCK).expect("a pipe may be non-blocking");
    while log.write(&[b'.'; 4096]).is_ok() {}
    fcntl_setfl(&log, flags).expect("a pipe may be blocking");
    let mut server = Job::command("serve --size 1 --jobs 0 -v").stderr(log).start();
    let line = server.line();
    let address = line.strip_prefix("PMI_PORT=").expect("the server prints its address");
    for _ in 0..3 {
        serve_one(address);
    }
    // Log lines wait in the server until the pipe is read.
    let mut lines = Vec::new();
    while !String::from_utf8_lossy(&lines).contains("job 2 is over") {
        let mut bytes = [0; 4096];
        let len = reader.read(&mut bytes).expect("the pipe is open");
        assert_ne!(len, 0, "the log ends in the middle");
        lines.extend_from_slice(&bytes[..len]);
    }
    server.signal(Signal::TERM);
    server.wait().code(0);
}

// Fault: 64 connections to `serve --manage` stay silent
// Outcome: the oldest is closed for each new host
// Guarantee: A connection without handshake never keeps out a host
#[test]
fn silent_hosts_keep_no_host_out() {
    let mut server = Job::command("serve --manage=127.0.0.1:0 --pmi-port 127.0.0.1:0").start();
    let address = server.managed_address();
    let connect = || TcpStream::connect(&address).expect("the port is open");
    let silent: Vec<_> = (0..100).map(|_| connect()).collect();
    let offload = Job::command("offload --target").arg(&address).words("-n 2");
    offload.arg(hydrant_bin()).arg("probe").run().code(0).says("2 ranks on 1 host", 1);
    drop(silent);
    server.signal(Signal::TERM);
    server.wait().code(0).warns("no handshake, and its place was needed");
}

// Fault: A host without the secret, or with another one, connects to `serve --manage --secret-file`
// Outcome: closed at its first message; the host's error names the option
// Guarantee: No request of such a host is decoded
#[test]
fn hosts_need_the_servers_secret() {
    let folder = Folder::new("secrets");
    let secret = |name: &str, text: &str| {
        let path = folder.file(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is there");
        path
    };
    let (right, wrong) = (secret("right", "0123456789abcdef\n"), secret("wrong", "0123456789abcdeF\n"));
    let mut server =
        Job::command("serve --manage=127.0.0.1:0 --pmi-port 127.0.0.1:0 --secret-file").arg(&right).start();
    let address = server.managed_address();
    let offload = |options: &[&str]| {
        let job = Job::command("offload --target").arg(&address).args(options).words("-n 2");
        job.arg(hydrant_bin()).arg("probe").run()
    };
    offload(&["--secret-file", &right]).code(0).says("2 ranks on 1 host", 1).quiet();
    offload(&[]).code(1).warns("refuses the handshake").warns("set --secret-file FILE");
    offload(&["--secret-file", &wrong]).code(1).warns("the board has another secret");
    server.signal(Signal::TERM);
    server.wait().code(0).warns("it does not have the same secret");
    let mut plain = Job::command("serve --manage=127.0.0.1:0 --pmi-port 127.0.0.1:0").start();
    let address = plain.managed_address();
    let offload = Job::command("offload --target").arg(address).arg("--secret-file").arg(&right);
    offload.words("-n 1 true").run().code(1).warns("the board has another secret, or none");
    plain.signal(Signal::TERM);
    plain.wait().code(0);
}

/// The packaged board has a user of its own (`DynamicUser`): the secret decides about hosts, and their ranks come as the host's
/// user. Needs root to have another user.
#[test]
fn a_board_of_another_user_accepts_who_has_the_secret() {
    if !rustix::process::geteuid().is_root() {
        hydrant_tests::tell("SKIPPED: only root can be another user");
        return;
    }
    let folder = Folder::new("board-of-another-user");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).expect("the folder is root's");
    let program = folder.path("hydrant");
    fs::copy(hydrant_bin(), &program).expect("there is room for a copy");
    let (theirs, mine) = (folder.file("theirs", "0123456789abcdef"), folder.file("mine", "0123456789abcdef"));
    for file in [&theirs, &mine] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("the file is root's");
    }
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).expect("root gives files away");
    let serve = || {
        let job = Job::new("setpriv").words("--reuid=65534 --regid=65534 --clear-groups").arg(&program);
        job.words("serve --manage=127.0.0.1:0 --pmi-port 127.0.0.1:0")
    };
    let mut board = serve().arg("--secret-file").arg(&theirs).start();
    let address = board.managed_address();
    let probe =
        |words: &str| Job::command(words).arg(&address).words("--secret-file").arg(&mine).words("-n 2");
    probe("offload --target")
        .arg(hydrant_bin())
        .arg("probe")
        .run()
        .code(0)
        .says("2 ranks on 1 host", 1)
        .quiet();
    // A node of a run, whose server has a thread of its own on the board.
    let run = Job::hydrant("--bootstrap local -hosts a:1,b:1 --offload-secret").arg(&mine).arg("--offload");
    let run = run.arg(&address).words("-n 2").arg(hydrant_bin()).arg("probe").run();
    run.code(0);
    let refused = Job::command("offload --target").arg(&address).words("-n 1 true").run();
    refused.code(1).warns("the board has a secret (set --secret-file FILE)");
    board.signal(Signal::TERM);
    board.wait().code(0).warns("it does not have the same secret");

    // Without a secret the user decides, and both sides say so.
    let mut board = serve().start();
    let target = board.managed_address();
    let refused = Job::command("offload --target").arg(target).words("-n 1 true").run();
    refused.code(1).warns("or none and runs as another user");
    board.signal(Signal::TERM);
    board.wait().code(0).warns("refused hosts of user 0: set --secret-file FILE on both sides");
}

/// Starts a server whose job has one node, and returns it with the environment of PMIx clients.
fn pmix_server(size: u32) -> (hydrant_tests::Running, Vec<(String, String)>) {
    let mut server = Job::command("serve --map together --size").arg(size.to_string()).start();
    let variables = server.lines::<10>();
    let split = |line: &String| {
        let (name, value) = line.split_once('=').expect("variables are printed");
        (name.to_owned(), value.to_owned())
    };
    let variables = variables.iter().map(split).filter(|(name, _)| !name.starts_with("PMI_")).collect();
    (server, variables)
}

#[test]
fn the_service_manager_is_told_when_a_server_accepts_connections() {
    let folder = Folder::new("notify");
    let socket = folder.path("socket");
    let manager = UnixDatagram::bind(&socket).expect("the folder is new");
    for options in ["--size 1", "--manage=127.0.0.1:0", &format!("--name-server {}", folder.path("names"))] {
        let server = Job::command("serve").words(options).env("NOTIFY_SOCKET", &socket).start();
        let mut said = [0; 16];
        let len = manager.recv(&mut said).expect("it is bound");
        assert_eq!(&said[..len], b"READY=1", "{options}");
        server.signal(Signal::TERM);
        server.wait();
    }
}

#[test]
fn pmix_clients_are_served() {
    let (server, variables) = pmix_server(2);
    let client = |rank: &str| {
        let probe = Job::new(hydrant_bin()).words("probe --pmix").env("PMIX_RANK", rank);
        variables.iter().fold(probe, |probe, (name, value)| probe.env(name, value)).start()
    };
    let ranks = ["0", "1"].map(client).map(hydrant_tests::Running::wait);
    ranks[0].code(0).says("2 ranks on 1 host exchanged", 1);
    ranks[1].code(0);
    server.wait().code(0).quiet();
}

/// Only a server on each host knows which ranks share it.
#[test]
fn pmix_clients_of_several_hosts_are_told_to_join() {
    let mut server = Job::command("serve --size 2 --pmi-port 127.0.0.1:0").start();
    let line = server.line();
    let address = line.strip_prefix("PMI_PORT=").expect("the server prints its port");
    let mut client = TcpStream::connect(address).expect("the server listens");
    client.write_all(&[FIRST_BYTE; 32]).expect("a new connection takes some bytes");
    server.await_stderr(
        "refused a PMIx client, which runs as a job of one rank: they are served with --map together, on one",
    );
    server.await_stderr("on several hosts use 'hydrant run --bootstrap join' and 'hydrant join'\n");
    server.signal(Signal::TERM);
    server.wait().code(143);
}

/// A board has programs started as the user of its host, so a host without a secret asks the kernel whose process the board is.
/// Needs root to have another user.
#[test]
fn a_host_without_a_secret_accepts_no_board_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        hydrant_tests::tell("SKIPPED: only root can be another user");
        return;
    }
    const BOARD: &str = "
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
port = socket.create_server(('127.0.0.1', 0))
print('%s:%d' % port.getsockname(), flush=True)
for _ in range(2):
    host, _ = port.accept()
    host.recv(4096)
    host.sendall(bytes.fromhex(sys.argv[1]))
    print('then', host.recv(4096))
";
    let welcome = Report::Welcome(Welcome {
        version: VERSION,
        board: "false",
        nodes: Limits::for_ranks(4),
        sockets: 4,
        free_sockets: 4,
        message_max: 4096,
        links: None,
        calls: None,
    });
    let mut buffer = [0; PREFIX + RECORD_MAX];
    let welcome = manage::encode(&welcome, &mut buffer).expect("it is short");
    let welcome: String = welcome.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut board = Job::new("python3").arg("-c").arg(BOARD).arg(welcome).start();
    let target = board.line();
    for command in ["offload --target", "run --offload"] {
        let refused = Job::command(command).arg(&target).words("-n 1 true").run();
        refused.code(1).warns("is a process of user 65534, and no secret was given");
    }
    board.wait().code(0).says("then b''", 2);
}
