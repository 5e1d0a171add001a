//! The PMI service of a running job, spoken to by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use hydrant_tests::plain::{Job, hydrant, run, text};
use rustix::process::Signal;

/// Says a PMI-1 line on the rank's socket and reads the answer.
const ASK: &str = r#"ask() { printf '%s\n' "$1" >&3; read -r reply <&3; }
    init() { ask 'cmd=init pmi_version=1 pmi_subversion=1'; }
    "#;

#[test]
fn an_abort_ends_the_job_with_its_code_and_message() {
    let script = format!(
        "{ASK} init; test $PMI_RANK = 1 || exec sleep 1000
        printf 'cmd=abort exitcode=77 message=no_more_water\\n' >&3; exit 0"
    );
    let output = run(&["-n", "3"], &script);
    assert_eq!(output.status.code(), Some(77));
    let report = text(&output.stderr);
    assert!(report.starts_with("hydrant: rank 1 aborted the job with code 77: no_more_water\n"), "{report}");
    assert!(report.trim_end().ends_with("2 other ranks were ended"), "{report}");
}

#[test]
fn last_words_are_heard_though_the_process_is_gone() {
    // Nothing is read: all three are on their way when the process has ended.
    let script = r#"printf 'cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=finalize\n' >&3"#;
    for _ in 0..20 {
        let output = run(&["-n", "2"], script);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    }
}

#[test]
fn a_rank_that_ends_without_finalize_ends_the_job() {
    let script = format!("{ASK} init; test $PMI_RANK = 0 && exit 0; sleep 1000");
    let output = run(&["-n", "2"], &script);
    assert_eq!(output.status.code(), Some(1));
    let report = text(&output.stderr);
    assert!(report.starts_with("hydrant: rank 0 exited with code 0 without finalizing\n"), "{report}");
}

#[test]
fn a_rank_that_never_comes_ends_those_that_wait_for_it() {
    let script = format!("{ASK} test $PMI_RANK = 1 && exit 0; init; ask cmd=barrier_in");
    let output = run(&["-n", "2"], &script);
    assert_eq!(output.status.code(), Some(1));
    let report = text(&output.stderr);
    assert!(report.starts_with("hydrant: rank 1 exited with code 0 while others wait for it"), "{report}");
}

#[test]
fn survivors_go_on_without_cleanup() {
    let script = format!(
        "{ASK} init; test $PMI_RANK = 1 && exit 4
        ask cmd=barrier_in; echo \"$reply\"; ask cmd=finalize"
    );
    let output = run(&["-disable-auto-cleanup", "-n", "3"], &script);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(text(&output.stdout), "cmd=barrier_out rc=0\n".repeat(2));
}

#[test]
fn a_late_fence_names_who_is_missing() {
    let script = format!(
        "{ASK} trap 'exit 0' USR1; init
        test $PMI_RANK = 1 && {{ echo here; while :; do sleep 0.01; done; }}; ask cmd=barrier_in"
    );
    let mut job = Job::start(&["--fence-warning", "0.05", "-n", "2"], &script);
    assert_eq!(job.line(), "here");
    let mut stderr = BufReader::new(job.child.stderr.take().unwrap());
    let mut warning = String::new();
    stderr.read_line(&mut warning).unwrap();
    assert_eq!(
        warning.trim_end(),
        "hydrant: a fence has been waiting for 0.05 s: 1 of 2 ranks have come, it waits for 1"
    );
    job.signal(Signal::USR1);
    assert_eq!(job.end().0.code(), Some(1));
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> Client {
        Client(BufReader::new(TcpStream::connect(address).expect("the port is open")))
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(line.as_bytes()).expect("the server reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers");
        line.trim_end().to_owned()
    }

    /// The rest until the server closes, which may be abrupt.
    fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        text(&rest)
    }
}

#[test]
fn the_port_lets_each_rank_in_once_and_rubbish_out() {
    let mut job = Job::spawn(
        hydrant(&["--pmi-port", "-n", "1", "sh", "-c", "echo $PMI_PORT; read line"]).stdin(Stdio::piped()),
    );
    let address = job.line();
    assert!(address.starts_with("127.0.0.1:"), "{address}");

    let mut silent = Client::connect(&address);
    let mut rubbish = Client::connect(&address);
    rubbish.say("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(rubbish.rest(), "");

    let mut rank = Client::connect(&address);
    rank.say("cmd=initack pmiid=0\n");
    let lines = [rank.line(), rank.line(), rank.line(), rank.line()];
    assert!(lines[0].starts_with("cmd=initack rc=0"), "{lines:?}");
    rank.say("cmd=init pmi_version=1 pmi_subversion=1\n");
    assert!(rank.line().starts_with("cmd=response_to_init rc=0"));

    let mut impostor = Client::connect(&address);
    impostor.say("cmd=initack pmiid=0\n");
    assert!(!impostor.rest().contains("rc=0"));

    rank.say("cmd=finalize\n");
    assert!(rank.line().starts_with("cmd=finalize_ack"));
    job.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let (status, _, report) = job.end();
    assert_eq!((status.code(), report.as_str()), (Some(0), ""));
    assert_eq!(silent.rest(), "");
}

#[test]
fn many_strangers_keep_no_rank_out() {
    let mut job = Job::spawn(
        hydrant(&["--pmi-port", "-n", "1", "sh", "-c", "echo $PMI_PORT; read line"]).stdin(Stdio::piped()),
    );
    let address = job.line();
    let strangers: Vec<_> = (0..200).map(|_| Client::connect(&address)).collect();
    let mut rank = Client::connect(&address);
    rank.say("cmd=initack pmiid=0\n");
    assert!(rank.line().starts_with("cmd=initack rc=0"));
    drop(strangers);
    job.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(job.end().0.code(), Some(0));
}
