//! Runs whose boards exchange messages directly, and whose jobs meet jobs of other runs by a name server.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;

use hydrant_control::query_name;
use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Running, hydrant_bin, until};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Pid, Signal, kill_process};

use super::fleet::{Fleet, HERE};

const DIRECTLY: &str = "hydrant: boards exchange messages directly\n";

/// A name server, at a socket in a folder.
pub(crate) fn name_server(folder: &Folder) -> Running {
    let path = folder.path("names");
    let mut service = Job::new(hydrant_bin()).words("serve --name-server").arg(&path).start();
    assert_eq!(service.line(), format!("hydrant serve: listening at {path}"));
    service
}

/// A name server, and two boards for all runs.
struct Shared {
    fleet: Fleet,
    folder: Folder,
    service: Running,
}

impl Shared {
    fn start() -> Shared {
        let folder = Folder::new("names-of-boards");
        Shared { fleet: Fleet::start(&HERE[..2]), service: name_server(&folder), folder }
    }

    /// A run over both boards, with two ranks on each host.
    fn run(&self, options: &str) -> Job {
        let job = self.fleet.run(2, 2, "-v --lookup-wait 100 --name-server");
        job.arg(self.folder.path("names")).words(options)
    }

    fn end(self) {
        self.service.signal(Signal::TERM);
        self.service.wait().code(0).quiet();
        self.fleet.end();
    }
}

#[test]
fn mpich_connects_jobs_of_two_runs() {
    if !Peer::Mpich5.there() {
        return;
    }
    let shared = Shared::start();
    let job = |options: &str, what: &str| {
        shared.run(options).arg(Peer::Mpich5.program("mpi_names")).words(what).start()
    };
    let server = job("-n 4", "publish ocean");
    let client = job("-n 3", "lookup ocean").wait();
    client.code(0).says("client of 3 met server of 4\n", 1).warns(DIRECTLY);
    server.wait().code(0).says("server of 4 met client of 3\n", 1).warns(DIRECTLY);
    shared.end();
}

/// Client of another run at the launcher of a job.
struct Reader(UnixStream);

impl Reader {
    /// Connects, and begins the handshake.
    fn new(jobid: &str) -> Reader {
        let name = SocketAddr::from_abstract_name(query_name(jobid, 0)).expect("it is short");
        let mut reader = Reader(UnixStream::connect_addr(&name).expect("the launcher listens"));
        reader.0.write_all(b"cmd=init pmi_version=2 pmi_subversion=0\n").expect("it is read");
        let mut line = [0; 56];
        reader.0.read_exact(&mut line).expect("it is answered");
        assert_eq!(&line, b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0");
        reader.0.read_exact(&mut line[..1]).expect("the line ends");
        reader
    }

    fn ask(&mut self, body: &str) {
        self.0.write_all(format!("{:6}{body}", body.len()).as_bytes()).expect("it is read");
    }

    fn reply(&mut self) -> String {
        let mut length = [0; 6];
        self.0.read_exact(&mut length).expect("there is a reply");
        let length = std::str::from_utf8(&length).ok().and_then(|length| length.trim().parse().ok());
        let mut reply = vec![0; length.expect("a reply has a length")];
        self.0.read_exact(&mut reply).expect("it is whole");
        String::from_utf8(reply).expect("it is text")
    }

    /// Returns whether there is a reply.
    fn has_reply(&self) -> bool {
        recv(&self.0, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) != Err(Errno::AGAIN)
    }
}

#[test]
fn a_read_waits_for_fences_that_ranks_have_left() {
    let shared = Shared::start();
    for fence in ["collect", "lazy"] {
        waits_for_a_fence(shared.run(&format!("--fence {fence} -n 4")).recorded(), 4);
    }
    shared.end();
}

/// Runs a job of two hosts and that many ranks, which is given without a program. The daemon of the first host is stopped while
/// the ranks pass a fence, so the launcher does not learn of it.
pub(crate) fn waits_for_a_fence(job: Job, ranks: usize) {
    let files = Folder::new("fenced");
    let file = |name: &str| files.path(name);
    let script = format!(
        "echo $PPID > {} && echo up $PMI_JOBID; until [ -e {} ]; do sleep 0.05; done
        {} \"$@\" && : > {}; until [ -e {} ]; do sleep 0.05; done",
        file("daemon$PMI_ID"),
        file("go"),
        super::RAW,
        file("done$PMI_ID"),
        file("over")
    );
    let steps = "init2\nframe cmd=kvs-put;key=k%r;value=v%r;\nexpect rc=0\nfence2\nend2";
    let mut job = job.args(["sh", "-c", &script, "sh"]).steps(steps).start();
    job.await_stdout("up ", ranks);
    let line = job.line();
    let jobid = line.strip_prefix("up ").expect("a rank says its job id");
    let daemon = files.read("daemon0").trim().parse().ok().and_then(Pid::from_raw);
    let signal = |signal| kill_process(daemon.expect("a shell has a parent"), signal).expect("it runs");
    signal(Signal::STOP);
    files.file("go", "");
    let have_left = until(|| (0..ranks).all(|rank| Path::new(&file(&format!("done{rank}"))).exists()));
    let mut reader = Reader::new(jobid);
    reader.ask("cmd=fullinit;pmirank=0;");
    // When the second of two more is answered, the launcher has handled what came before the first.
    let others = [Reader::new(jobid), Reader::new(jobid)];
    let is_early = reader.has_reply();
    signal(Signal::CONT);
    assert!(have_left, "the ranks have waited for a host");
    assert!(!is_early, "the launcher does not know what it lacks: {}", reader.reply());
    let reply = reader.reply();
    assert!(reply.contains("cmd=fullinit-response;rc=0;"), "{reply}");
    for rank in 0..ranks {
        reader.ask(&format!("cmd=kvs-get;key=k{rank};"));
        assert_eq!(reader.reply(), format!("cmd=kvs-get-response;rc=0;found=TRUE;value=v{rank};"));
    }
    drop(others);
    files.file("over", "");
    job.wait().code(0).warns(DIRECTLY);
}
