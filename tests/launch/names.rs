//! The name service: `hydrant serve --name-server`, and the jobs that join it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use hydrant_tests::{Folder, Job, Running, hydrant_bin};
use rustix::process::{Signal, geteuid};

/// Shell functions for both protocols, each for one rank: `one LINE` and `two MESSAGE` print the reply.
pub(super) const CLIENT: &str = r#"
    one() { printf 'cmd=%s\n' "$1" >&$PMI_FD; read -r reply <&$PMI_FD; echo "${reply#cmd=}"; }
    two() {
        printf '%6d%s' $((${#1} + 4)) "cmd=$1" >&$PMI_FD
        length=$(dd bs=1 count=6 <&$PMI_FD 2>/dev/null)
        reply=$(dd bs=1 count=$(($length)) <&$PMI_FD 2>/dev/null); echo "${reply#cmd=}"
    }
    one1() { one "$1" >/dev/null; }
    v1() { one1 'init pmi_version=1 pmi_subversion=1'; }
    v2() { one1 'init pmi_version=2 pmi_subversion=0'; two 'fullinit;pmirank=0;' >/dev/null; }
    "#;

const NO_NAME: &str = "rc=14 info=failed msg=nobody_has_published_that_name";

/// A name service of one test, at a socket in a folder that the service creates.
pub(super) struct Service {
    running: Running,
    pub(super) path: String,
    _folder: Folder,
}

impl Service {
    pub(super) fn start(name: &str, options: &str) -> Service {
        let folder = Folder::new(name);
        let path = folder.path("private/names");
        Service { running: serve(&path, options), path, _folder: folder }
    }

    /// A job that joins the service and whose ranks run a script of [`CLIENT`]'s functions.
    pub(super) fn job(&self, options: &str, script: &str) -> Job {
        let job = Job::hydrant("--name-server").arg(&self.path).words(options);
        job.args(["bash", "-c"]).arg(format!("{CLIENT} {script}"))
    }

    /// The output of a job that must succeed.
    fn output(&self, options: &str, script: &str) -> String {
        self.job(options, script).run().code(0).quiet().stdout.clone()
    }

    fn lookup(&self) -> String {
        self.output("", "v1; one 'lookup_name service=svc'; one1 finalize")
    }

    /// Ends it and returns its log.
    pub(super) fn end(self) -> String {
        self.running.signal(Signal::TERM);
        let outcome = self.running.wait();
        outcome.code(0);
        assert!(!Path::new(&self.path).exists(), "the socket is removed");
        outcome.stderr
    }
}

/// A name service that listens.
fn serve(path: &str, options: &str) -> Running {
    let mut running = command(path).words(options).start();
    assert_eq!(running.line(), format!("hydrant serve: listening at {path}"));
    running
}

fn command(path: &str) -> Job {
    Job::command("serve --name-server").arg(path)
}

#[test]
fn a_name_is_seen_by_other_jobs_until_it_is_withdrawn() {
    let service = Service::start("shared", "");
    let publish = "v1; one 'publish_name service=svc port=tag#0;a=b$'; read line; one1 finalize";
    let mut server = service.job("", publish).hold_input().start();
    assert_eq!(server.line(), "publish_result rc=0 info=ok");
    let two = service.output(
        "",
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
    assert_eq!(service.lookup(), format!("lookup_result {NO_NAME}\n"));
    server.end_input();
    server.wait().code(0);
    assert_eq!(service.end(), "");
}

/// Other users can read the names of all sockets, and a job id is a secret.
#[test]
fn names_of_sockets_do_not_have_the_job_id() {
    let service = Service::start("secret", "");
    let script = "echo $PMI_JOBID; cat /proc/net/unix";
    let outcome = service.job("-n 1", script).run();
    let sockets = outcome.code(0).stdout.as_str();
    let (jobid, sockets) = sockets.split_once('\n').expect("the first line is the job id");
    assert!(jobid.starts_with("kvs_") && sockets.contains("@hydrant/alias_"), "{outcome}");
    assert!(!sockets.contains(jobid), "{outcome}");
    service.end();
}

#[test]
fn names_are_removed_when_the_job_that_published_them_ends() {
    let service = Service::start("vanish", "");
    let publish = "v2; two 'name-publish;name=svc;port=p;'; exec sleep 1000";
    let mut server = service.job("", publish).start();
    assert_eq!(server.line(), "name-publish-response;rc=0;");
    assert_eq!(service.lookup(), "lookup_result rc=0 info=ok port=p\n");
    // No process of the job can withdraw the name.
    server.signal(Signal::KILL);
    server.wait().signaled(Signal::KILL);
    assert_eq!(service.lookup(), format!("lookup_result {NO_NAME}\n"));
    service.output("", "v1; one1 'publish_name service=svc port=q'; one1 finalize");
    assert_eq!(service.lookup(), format!("lookup_result {NO_NAME}\n"));
    service.end();
}

#[test]
fn names_of_a_spawned_job_are_removed_with_it_and_those_of_others_stay() {
    let service = Service::start("spawned", "");
    let folder = Folder::new("spawned-child");
    let found = folder.path("found");
    let wait = format!("while ! test -e {found}; do sleep 0.01; done");
    let body = format!(
        "#!/usr/bin/env bash\n{CLIENT} v1; one1 'publish_name service=svc port=p'; {wait}; one1 finalize\n"
    );
    let child = folder.executable("child", &body);
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
    assert_eq!(service.output("", &script).lines().collect::<Vec<_>>(), replies);
    service.end();
}

#[test]
fn a_lookup_waits_for_a_later_job_and_blocks_no_other_rank() {
    let service = Service::start("waits", "");
    let script = "v1; test $PMI_RANK = 1 && { one 'publish_name service=other port=o'; one1 finalize; exit; }
        one 'lookup_name service=svc'; one1 finalize";
    let mut client = service.job("-n 2 --lookup-wait 1000", script).start();
    // Rank 0 waits, or will wait. Rank 1 is served meanwhile.
    assert_eq!(client.line(), "publish_result rc=0 info=ok");
    let publish = "v1; one 'publish_name service=svc port=late'; read line; one1 finalize";
    let mut server = service.job("", publish).hold_input().start();
    assert_eq!(server.line(), "publish_result rc=0 info=ok");
    assert_eq!(client.line(), "lookup_result rc=0 info=ok port=late");
    client.wait().code(0);
    server.end_input();
    server.wait().code(0);
    service.end();
}

#[test]
fn a_lookup_that_waits_in_vain_fails() {
    let service = Service::start("in-vain", "");
    let output = service.output("--lookup-wait 0.02", "v1; one 'lookup_name service=svc'; one1 finalize");
    assert_eq!(output, format!("lookup_result {NO_NAME}\n"));
    service.end();
}

#[test]
fn without_a_service_nothing_is_started() {
    let folder = Folder::new("no-server");
    let path = folder.path("names");
    // The option's older name.
    let outcome = Job::hydrant("--universe").arg(&path).args(["sh", "-c", "echo started"]).run();
    outcome.code(1).stdout_is("").warns("hydrant serve --name-server");
    outcome.stderr_starts(&format!("hydrant: no name server at {path}: "));
}

#[test]
fn a_job_goes_on_when_the_service_is_lost() {
    let Service { running, path, _folder } = Service::start("lost", "");
    let script = "v1; test $PMI_RANK = 1 && { one 'lookup_name service=svc'; one1 finalize; exit; }
        one 'publish_name service=a port=p'; read line
        one 'publish_name service=b port=p'; one 'lookup_name service=a'; one1 finalize";
    let job = Job::hydrant("--name-server").arg(&path).words("-l -n 2 --lookup-wait 1000 bash -c");
    let mut job = job.arg(format!("{CLIENT} {script}")).hold_input().start();
    assert_eq!(job.line(), "[0] publish_result rc=0 info=ok");
    running.signal(Signal::KILL);
    running.wait().signaled(Signal::KILL);
    let lost = job.line();
    let shown = path.replace(' ', "_");
    let expected = format!("[1] lookup_result rc=-1 info=failed msg=the_name_server_at_{shown}_is_lost");
    // The rank may come only now. It finds no service then.
    let refused = format!("[1] lookup_result rc=-1 info=failed msg=no_name_server_at_{shown}");
    assert!(lost.starts_with(&expected) || lost.starts_with(&refused), "{lost}");
    job.end_input();
    let outcome = job.wait();
    // The first of the two may find the loss. Its message differs.
    let failed = |line: &&str| line.starts_with("[0]") && line.contains("rc=-1 info=failed msg=");
    assert_eq!(outcome.code(0).stdout.lines().filter(failed).count(), 2, "{outcome}");
    let last = outcome.stdout.lines().last().unwrap_or_default();
    assert!(last.contains("msg=no_name_server_at_"), "{outcome}");
    outcome.stderr_starts(&format!("hydrant: the name server at {path} is lost: it has closed"));
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome}");
}

#[test]
fn one_service_a_path_and_the_socket_of_a_dead_one_is_replaced() {
    let folder = Folder::new("one");
    let path = folder.path("private/names");
    let first = serve(&path, "");
    let socket = fs::metadata(&path).expect("the socket is there");
    assert!(socket.file_type().is_socket());
    let dir = fs::metadata(folder.path("private")).expect("the folder is there");
    assert_eq!((socket.permissions().mode() & 0o777, dir.permissions().mode() & 0o777), (0o600, 0o700));
    let second = command(&path).run();
    second.code(1).stdout_is("");
    second.stderr_starts(&format!("hydrant serve: a name server is already running at {path}"));
    first.signal(Signal::KILL);
    first.wait();
    assert!(Path::new(&path).exists(), "a killed service removes no socket");
    let third = serve(&path, "");
    third.signal(Signal::INT);
    third.wait().code(0);
    assert!(!Path::new(&path).exists());
    fs::write(&path, "kept").expect("the folder is there");
    command(&path).run().warns("exists and is not a socket");
    assert_eq!(folder.read("private/names"), "kept");
}

#[test]
fn paths_that_cannot_be_are_named() {
    let folder = Folder::new("paths");
    for path in [folder.path(&"x".repeat(200)), folder.path("no/such/names")] {
        let outcome = command(&path).run();
        outcome.code(1).stderr_starts(&format!("hydrant serve: cannot listen at {path}: "));
    }
}

#[test]
fn connections_have_a_limit_and_a_malformed_message_ends_only_its_own() {
    let service = Service::start("limit", "--limit conns=2 --limit names=1");
    let ends = |mut stream: UnixStream| stream.read_to_end(&mut Vec::new()).expect("it is closed");
    let connect = || UnixStream::connect(&service.path).expect("the service listens");
    let mut malformed = connect();
    malformed.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("the service reads");
    assert_eq!(ends(malformed), 0);
    let output = service.output(
        "",
        "v1; one 'publish_name service=a port=p'; one 'publish_name service=b port=p'; one1 finalize",
    );
    assert!(output.contains("msg=limit_names_(1)_is_used_up,_raise_it_with_--limit_names=N"), "{output}");
    let held = [0, 1].map(|_| connect());
    assert_eq!(ends(connect()), 0);
    drop(held);
    let log = service.end();
    assert_eq!(
        log.lines().collect::<Vec<_>>(),
        [
            "hydrant serve: closed a connection: a message that is not PMI",
            "hydrant serve: refused a connection: limit conns is used up; raise it with --limit conns=N",
        ]
    );
}

#[test]
fn services_and_jobs_of_different_users_refuse_each_other() {
    if !geteuid().is_root() {
        hydrant_tests::tell("SKIPPED: only root can be another user");
        return;
    }
    // The other user reaches the folder for temporary files, and not the build directory.
    let folder = Folder::new("users");
    fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o777)).expect("the folder is root's");
    let program = folder.path("hydrant");
    fs::copy(hydrant_bin(), &program).expect("there is room for a copy");
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("the copy is root's");
    let as_other_user = |args: &[&str]| {
        let job = Job::new("setpriv").words("--reuid=65534 --regid=65534 --clear-groups");
        job.arg(&program).args(args)
    };
    let mine = folder.path("mine");
    let service = serve(&mine, "");
    // The file's mode would refuse them as well.
    fs::set_permissions(&mine, PermissionsExt::from_mode(0o777)).expect("the socket is root's");
    let outcome = as_other_user(&["run", "--universe", &mine, "true"]).run();
    outcome.warns(&format!("the name server at {mine} belongs to user 0"));
    service.signal(Signal::TERM);
    service.wait().stderr_is("hydrant serve: refused a process of user 65534\n");

    let theirs = folder.path("theirs");
    let mut service = as_other_user(&["serve", "--name-server", &theirs]).start();
    assert_eq!(service.line(), format!("hydrant serve: listening at {theirs}"));
    let outcome = Job::hydrant("--name-server").arg(&theirs).arg("true").run();
    outcome.warns(&format!("the name server at {theirs} belongs to user 65534"));
    service.signal(Signal::TERM);
    service.wait().stderr_is("hydrant serve: refused a process of user 0\n");
}

#[test]
fn a_service_that_sends_no_pmi_is_lost() {
    let folder = Folder::new("none");
    let path = folder.path("names");
    let listener = UnixListener::bind(&path).expect("the folder can be written");
    let script = format!("{CLIENT} v1; read line; one 'publish_name service=a port=p'; one1 finalize");
    let job = Job::hydrant("--name-server").arg(&path).args(["bash", "-c", &script]);
    let mut job = job.hold_input().start();
    let answer = || {
        let (mut stream, _) = listener.accept().expect("the job connects");
        let mut line = String::new();
        BufReader::new(&mut stream).read_line(&mut line).expect("the job sends a request");
        assert_eq!(line, "cmd=init pmi_version=2 pmi_subversion=0\n");
        stream.write_all(b"220 mail.example ready\r\n").expect("the job reads");
    };
    answer();
    job.await_stderr("is lost: the server sent a message that is not PMI");
    // A request connects again.
    job.end_input();
    answer();
    let outcome = job.wait();
    outcome.code(0).says("rc=-1 info=failed msg=the_name_server_at_", 1);
    outcome.warns("is lost: the server sent a message that is not PMI");
}
