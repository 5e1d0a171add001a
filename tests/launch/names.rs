//! Names between separate runs: `hydrant serve`, and the runs that join it.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use hydrant_tests::job::hydrant_bin;
use hydrant_tests::plain::{Job, Scratch, hydrant, text};
use rustix::process::{Signal, geteuid};

/// Clients of both protocols, each for one rank: `one LINE` and `two MESSAGE` print the answer.
const CLIENT: &str = r#"
    one() { printf 'cmd=%s\n' "$1" >&3; read -r reply <&3; echo "${reply#cmd=}"; }
    two() {
        printf '%6d%s' $((${#1} + 4)) "cmd=$1" >&3
        length=$(dd bs=1 count=6 <&3 2>/dev/null)
        reply=$(dd bs=1 count=$(($length)) <&3 2>/dev/null); echo "${reply#cmd=}"
    }
    one1() { one "$1" >/dev/null; }
    v1() { one1 'init pmi_version=1 pmi_subversion=1'; }
    v2() { one1 'init pmi_version=2 pmi_subversion=0'; two 'fullinit;pmirank=0;' >/dev/null; }
    "#;

const NO_NAME: &str = "rc=14 info=failed msg=nobody_has_published_that_name";

/// A daemon of a test's own, in a directory that it makes itself.
struct Daemon {
    job: Job,
    path: String,
    _dir: Scratch,
}

impl Daemon {
    fn start(name: &str, options: &[&str]) -> Daemon {
        let dir = Scratch::new(name);
        let path = dir.path("private/names");
        Daemon { job: serve(&path, options), path, _dir: dir }
    }

    fn run(&self, options: &[&str], script: &str) -> Command {
        let script = format!("{CLIENT} {script}");
        hydrant(&[&["--name-server", &self.path], options, &["sh", "-c", &script]].concat())
    }

    fn says(&self, options: &[&str], script: &str) -> String {
        let output = self.run(options, script).output().expect("hydrant starts");
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{script}");
        text(&output.stdout)
    }

    fn lookup(&self) -> String {
        self.says(&[], "v1; one 'lookup_name service=svc'; one1 finalize")
    }

    fn end(self) -> String {
        self.job.signal(Signal::TERM);
        let (status, out, log) = self.job.end();
        assert_eq!((status.code(), out.as_str()), (Some(0), ""));
        assert!(!Path::new(&self.path).exists(), "the socket is removed");
        log
    }
}

/// A daemon that listens.
fn serve(path: &str, options: &[&str]) -> Job {
    let mut job = Job::spawn(&mut command(path, options));
    assert_eq!(job.line(), format!("hydrant serve: listening at {path}"));
    job
}

fn command(path: &str, options: &[&str]) -> Command {
    let mut command = Command::new(hydrant_bin());
    command.args(["serve", "--name-server", path]).args(options);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_name_is_seen_by_other_runs_until_it_is_withdrawn() {
    let daemon = Daemon::start("shared", &[]);
    let publish = "v1; one 'publish_name service=svc port=tag#0;a=b$'; read line; one1 finalize";
    let mut server = Job::spawn(daemon.run(&[], publish).stdin(Stdio::piped()));
    assert_eq!(server.line(), "publish_result rc=0 info=ok");
    let two = daemon.says(
        &[],
        "v2; two 'name-lookup;name=svc;'; two 'name-publish;name=svc;port=mine;'; two 'name-lookup;name=none;';
        two 'name-unpublish;name=svc;'; two 'name-unpublish;name=svc;'; two 'finalize;' >/dev/null",
    );
    let replies = [
        "name-lookup-response;rc=0;port=tag#0;;a=b$;value=tag#0;;a=b$;",
        "name-publish-response;rc=14;errmsg=the name is published already;",
        "name-lookup-response;rc=14;errmsg=nobody has published that name;",
        "name-unpublish-response;rc=0;",
        "name-unpublish-response;rc=14;errmsg=nobody has published that name;",
    ];
    assert_eq!(two.lines().collect::<Vec<_>>(), replies);
    assert_eq!(daemon.lookup(), format!("lookup_result {NO_NAME}\n"));
    drop(server.child.stdin.take());
    assert_eq!(server.end().0.code(), Some(0));
    assert_eq!(daemon.end(), "");
}

#[test]
fn names_go_with_the_run_that_published_them() {
    let daemon = Daemon::start("vanish", &[]);
    let publish = "v2; two 'name-publish;name=svc;port=p;'; exec sleep 1000";
    let mut server = Job::spawn(&mut daemon.run(&[], publish));
    assert_eq!(server.line(), "name-publish-response;rc=0;");
    assert_eq!(daemon.lookup(), "lookup_result rc=0 info=ok port=p\n");
    // Nobody of it can say good-bye.
    server.signal(Signal::KILL);
    server.child.wait().unwrap();
    assert_eq!(daemon.lookup(), format!("lookup_result {NO_NAME}\n"));
    daemon.says(&[], "v1; one1 'publish_name service=svc port=q'; one1 finalize");
    assert_eq!(daemon.lookup(), format!("lookup_result {NO_NAME}\n"));
    daemon.end();
}

#[test]
fn names_of_a_spawned_job_go_with_it_and_not_with_others() {
    let daemon = Daemon::start("spawned", &[]);
    let scratch = Scratch::new("spawned-child");
    let (child, found) = (scratch.path("child"), scratch.path("found"));
    let wait = format!("while ! test -e {found}; do sleep 0.01; done");
    let body =
        format!("#!/bin/sh\n{CLIENT} v1; one1 'publish_name service=svc port=p'; {wait}; one1 finalize\n");
    std::fs::write(&child, body).unwrap();
    std::fs::set_permissions(&child, PermissionsExt::from_mode(0o755)).unwrap();
    let spawn = format!("spawn;ncmds=1;preputcount=0;subcmd={child};maxprocs=1;argc=0;infokeycount=0;");
    let script = format!(
        "v2; two 'name-publish;name=parent;port=q;'; two '{spawn}' >/dev/null
        two 'name-lookup;name=svc;wait=1000000;'; touch {found}
        while two 'name-lookup;name=svc;wait=0;' | grep -q 'rc=0'; do sleep 0.01; done
        two 'name-lookup;name=parent;'; two 'finalize;' >/dev/null"
    );
    let replies = [
        "name-publish-response;rc=0;",
        "name-lookup-response;rc=0;port=p;value=p;",
        "name-lookup-response;rc=0;port=q;value=q;",
    ];
    assert_eq!(daemon.says(&[], &script).lines().collect::<Vec<_>>(), replies);
    daemon.end();
}

#[test]
fn a_lookup_waits_for_a_later_run_and_holds_up_nobody() {
    let daemon = Daemon::start("waits", &[]);
    let script = "v1; test $PMI_RANK = 1 && { one 'publish_name service=other port=o'; one1 finalize; exit; }
        one 'lookup_name service=svc'; one1 finalize";
    let mut client = Job::spawn(&mut daemon.run(&["-n", "2", "--lookup-wait", "1000"], script));
    // Rank 0 waits, or will: rank 1 is served meanwhile.
    assert_eq!(client.line(), "publish_result rc=0 info=ok");
    let publish = "v1; one 'publish_name service=svc port=late'; read line; one1 finalize";
    let mut server = Job::spawn(daemon.run(&[], publish).stdin(Stdio::piped()));
    assert_eq!(server.line(), "publish_result rc=0 info=ok");
    assert_eq!(client.line(), "lookup_result rc=0 info=ok port=late");
    assert_eq!(client.end().0.code(), Some(0));
    drop(server.child.stdin.take());
    assert_eq!(server.end().0.code(), Some(0));
    daemon.end();
}

#[test]
fn a_lookup_that_waits_in_vain_says_so() {
    let daemon = Daemon::start("in-vain", &[]);
    let said = daemon.says(&["--lookup-wait", "0.02"], "v1; one 'lookup_name service=svc'; one1 finalize");
    assert_eq!(said, format!("lookup_result {NO_NAME}\n"));
    daemon.end();
}

#[test]
fn without_a_daemon_nothing_is_started() {
    let scratch = Scratch::new("nobody");
    let path = scratch.path("names");
    let output = hydrant(&["--universe", &path, "sh", "-c", "echo started"]).output().unwrap();
    let report = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
    let expected = format!("hydrant: cannot connect to the name server: no name service answers at {path}: ");
    assert!(report.starts_with(&expected) && report.contains("hydrant serve --name-server"), "{report}");
}

#[test]
fn a_job_goes_on_when_the_daemon_is_lost() {
    let daemon = Daemon::start("lost", &[]);
    let script = "v1; test $PMI_RANK = 1 && { one 'lookup_name service=svc'; one1 finalize; exit; }
        one 'publish_name service=a port=p'; read line
        one 'publish_name service=b port=p'; one 'lookup_name service=a'; one1 finalize";
    let mut run = daemon.run(&["-l", "-n", "2", "--lookup-wait", "1000"], script);
    let mut job = Job::spawn(run.stdin(Stdio::piped()));
    assert_eq!(job.line(), "[0] publish_result rc=0 info=ok");
    daemon.job.signal(Signal::KILL);
    let path = daemon.path.replace(' ', "_");
    let lost = job.line();
    let expected = format!("[1] lookup_result rc=14 info=failed msg=the_name_service_at_{path}_is_lost");
    // Where the rank comes only now, it finds nobody.
    let nobody = format!("[1] lookup_result rc=14 info=failed msg=no_name_service_answers_at_{path}");
    assert!(lost.starts_with(&expected) || lost.starts_with(&nobody), "{lost}");
    drop(job.child.stdin.take());
    let (status, out, report) = job.end();
    // The first may be what finds out, and is told so in other words.
    let failed = |line: &str| line.starts_with("[0]") && line.contains("rc=14 info=failed msg=");
    assert_eq!((status.code(), out.lines().filter(|line| failed(line)).count()), (Some(0), 2), "{out}");
    assert!(out.trim_end().lines().last().unwrap().contains("msg=no_name_service_answers_at_"), "{out}");
    let expected = format!("hydrant: the name service at {} is lost: it has closed", daemon.path);
    assert!(report.starts_with(&expected) && report.lines().count() == 1, "{report}");
}

#[test]
fn one_daemon_a_path_and_a_dead_ones_socket_is_replaced() {
    let scratch = Scratch::new("one");
    let path = scratch.path("private/names");
    let first = serve(&path, &[]);
    let socket = std::fs::metadata(&path).unwrap();
    assert!(socket.file_type().is_socket());
    let dir = std::fs::metadata(scratch.path("private")).unwrap();
    assert_eq!((socket.permissions().mode() & 0o777, dir.permissions().mode() & 0o777), (0o600, 0o700));
    let second = command(&path, &[]).output().unwrap();
    assert_eq!((second.status.code(), text(&second.stdout).as_str()), (Some(1), ""));
    let report = text(&second.stderr);
    assert!(
        report.starts_with(&format!("hydrant serve: a name service answers at {path} already")),
        "{report}"
    );
    first.signal(Signal::KILL);
    first.end();
    assert!(Path::new(&path).exists(), "it could not clean up");
    let third = serve(&path, &[]);
    third.signal(Signal::INT);
    assert_eq!(third.end().0.code(), Some(0));
    assert!(!Path::new(&path).exists());
    std::fs::write(&path, "kept").unwrap();
    let report = text(&command(&path, &[]).output().unwrap().stderr);
    assert!(report.contains("is there and is no socket"), "{report}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
}

#[test]
fn paths_that_cannot_be_are_named() {
    let scratch = Scratch::new("paths");
    for path in [scratch.path(&"x".repeat(200)), scratch.path("no/such/names")] {
        let output = command(&path, &[]).output().unwrap();
        let report = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(report.starts_with(&format!("hydrant serve: cannot listen at {path}: ")), "{report}");
    }
}

#[test]
fn connections_have_a_limit_and_rubbish_ends_its_own_alone() {
    let daemon = Daemon::start("limit", &["--limit", "conns=2", "--limit", "names=1"]);
    let ends = |mut stream: UnixStream| stream.read_to_end(&mut Vec::new()).unwrap();
    let mut rubbish = UnixStream::connect(&daemon.path).unwrap();
    std::io::Write::write_all(&mut rubbish, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(ends(rubbish), 0);
    let said = daemon.says(
        &[],
        "v1; one 'publish_name service=a port=p'; one 'publish_name service=b port=p'; one1 finalize",
    );
    assert!(said.contains("msg=limit_names_(1)_is_used_up,_raise_it_with_--limit_names=N"), "{said}");
    let held = [0, 1].map(|_| UnixStream::connect(&daemon.path).unwrap());
    assert_eq!(ends(UnixStream::connect(&daemon.path).unwrap()), 0);
    drop(held);
    let log = daemon.end();
    assert_eq!(
        log.lines().collect::<Vec<_>>(),
        [
            "hydrant serve: closed a connection: a message that is not PMI",
            "hydrant serve: turned away a connection: limit conns is used up, raise it with --limit conns=N",
        ]
    );
}

#[test]
fn another_users_daemon_is_not_joined_and_another_user_not_let_in() {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: only root can be another user");
        return;
    }
    // What they own is where they can reach it.
    let dir = std::env::temp_dir().join(format!("hydrant-universe-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let removed = Scratch(dir.clone());
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
    let program = dir.join("hydrant");
    std::fs::copy(hydrant_bin(), &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let as_nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mine = removed.path("mine");
    let daemon = serve(&mine, &[]);
    // The file's mode would keep them out as well.
    std::fs::set_permissions(&mine, PermissionsExt::from_mode(0o777)).unwrap();
    let output = as_nobody(&["run", "--universe", &mine, "true"]).output().expect("setpriv is there");
    let report = text(&output.stderr);
    assert!(report.contains(&format!("the name service at {mine} is user 0's")), "{report}");
    daemon.signal(Signal::TERM);
    let log = daemon.end().2;
    assert_eq!(log, "hydrant serve: turned away a process of user 65534\n");

    let theirs = removed.path("theirs");
    let mut daemon = Job::spawn(&mut as_nobody(&["serve", "--universe", &theirs]));
    assert_eq!(daemon.line(), format!("hydrant serve: listening at {theirs}"));
    let output = hydrant(&["--universe", &theirs, "true"]).output().unwrap();
    let report = text(&output.stderr);
    assert!(report.contains(&format!("the name service at {theirs} is user 65534's")), "{report}");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().2, "hydrant serve: turned away a process of user 0\n");
}

#[test]
fn a_service_that_is_none_is_lost_and_said_so() {
    let scratch = Scratch::new("none");
    let path = scratch.path("names");
    let listener = UnixListener::bind(&path).unwrap();
    let script = format!("{CLIENT} v1; one 'publish_name service=a port=p'; one1 finalize");
    let job = Job::spawn(&mut hydrant(&["--universe", &path, "sh", "-c", &script]));
    let (mut stream, _) = listener.accept().unwrap();
    let mut line = String::new();
    BufReader::new(&mut stream).read_line(&mut line).unwrap();
    assert_eq!(line, "cmd=init pmi_version=2 pmi_subversion=0\n");
    std::io::Write::write_all(&mut stream, b"220 mail.example ready\r\n").unwrap();
    let (status, out, report) = job.end();
    assert!(status.success() && out.contains("rc=14 info=failed msg=the_name_service_at_"), "{out}");
    assert!(report.contains("is lost: the server sent a message that is not PMI"), "{report}");
}
