//! `hydrant serve --size`, spoken to by hand.

use std::io::{BufRead, BufReader, Read, Write, pipe};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use hydrant_tests::job::hydrant_bin;
use hydrant_tests::plain::Job;
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
fn a_log_that_nobody_reads_holds_nobody_up() {
    let (mut reader, mut log) = pipe().expect("there are pipes");
    let flags = fcntl_getfl(&log).expect("it is open");
    fcntl_setfl(&log, flags | OFlags::NONBLOCK).expect("pipes may be that");
    while log.write(&[b'.'; 4096]).is_ok() {}
    fcntl_setfl(&log, flags).expect("pipes may be that");
    let mut command = Command::new(hydrant_bin());
    command.args(["serve", "--size", "1", "--jobs", "0", "-v"]);
    let mut server = Job::spawn(
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.try_clone().expect("it is open")),
    );
    drop((command, log));
    let line = server.line();
    let address = line.strip_prefix("PMI_PORT=").expect("it says where it is");
    for _ in 0..3 {
        serve_one(address);
    }
    // What it has to say waits until somebody reads.
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("job 2 is over") {
        let mut bytes = [0; 4096];
        let len = reader.read(&mut bytes).expect("the pipe is open");
        assert_ne!(len, 0, "it ends in the middle");
        said.extend_from_slice(&bytes[..len]);
    }
    server.signal(Signal::TERM);
    assert_eq!(server.end().0.code(), Some(0));
}
