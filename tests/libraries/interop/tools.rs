//! Tools of PMIx: those of Debian's libpmix 4.2.2, and `tests/clients/pmix_tool.c` on libpmix 4.2.2 and that of Open MPI 5.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use hydrant_tests::peers::{Peer, openmpi4_variables, peers_dir};
use hydrant_tests::{Fleet, Folder, Job, Outcome, Running, nodes, this_machine};
use rustix::process::{Signal, kill_process};

use super::openmpi::relocated;

/// Versions of libpmix that tools use.
#[derive(Clone, Copy, Debug)]
pub(super) enum Library {
    Four,
    Five,
}

/// A run with a folder for temporary files of its own, whose ranks wait until its input ends.
pub(super) struct Run {
    pub(super) folder: Folder,
    pub(super) running: Running,
    pub(super) uri: String,
}

impl Run {
    /// Starts `hydrant run OPTIONS sh -c SCRIPT`.
    fn new(options: &str, script: &str) -> Run {
        let folder = Folder::new("tools");
        let uri = folder.path("uri");
        let job = Job::hydrant(&format!("--report-uri {uri} {options} sh -c")).arg(script);
        let running = job.env("TMPDIR", &folder.0).hold_input().start();
        Run { folder, running, uri }
    }

    /// Starts ranks that wait.
    fn waiting(options: &str) -> Run {
        let run = Run::new(options, "echo up; test $PMI_RANK != 0 || read line; :");
        run.running.await_stdout("up\n", 1);
        run
    }

    /// Runs `pmix_tool` with the address of the server, or with that which libpmix finds.
    fn tool(&self, library: Library, uri: Option<&str>, command: &str) -> Outcome {
        let job = with_library(Job::new(Peer::Libpmix.program("pmix_tool")), library);
        job.arg(uri.unwrap_or_default()).words(command).env("TMPDIR", &self.folder.0).run()
    }

    /// A program of `tests/clients` that connects by the file with the address, and its commands.
    pub(super) fn client(&self, program: &str, library: Library, commands: &str) -> Job {
        let job = with_library(Job::new(Peer::Libpmix.program(program)), library);
        job.arg(format!("file:{}", self.uri)).words(commands).env("TMPDIR", &self.folder.0)
    }

    /// Runs `pmix_tool` so.
    fn ask(&self, library: Library, command: &str) -> Outcome {
        self.client("pmix_tool", library, command).run()
    }

    /// The folder with rendezvous files, once it is there.
    fn rendezvous(&self) -> std::path::PathBuf {
        loop {
            let entries = fs::read_dir(&self.folder.0).unwrap().map(|entry| entry.unwrap().path());
            let mut folders = entries.filter(|path| path.is_dir());
            if let Some(folder) = folders.next()
                && fs::read_dir(&folder).unwrap().count() >= 2
            {
                return folder;
            }
            assert!(self.running.stderr().is_empty(), "{}", self.running.stderr());
            std::thread::yield_now();
        }
    }

    /// Name of the first job.
    fn job(&self) -> String {
        let outcome = self.ask(Library::Four, "table");
        let line = outcome.lines().into_iter().find(|line| line.starts_with("kvs_"));
        line.and_then(|line| line.split(' ').next()).unwrap_or_else(|| panic!("{outcome}")).to_owned()
    }

    pub(super) fn end(mut self) -> Outcome {
        self.running.end_input();
        let outcome = self.running.wait();
        let left: Vec<_> =
            fs::read_dir(&self.folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["uri"], "the folder with rendezvous files is removed");
        outcome
    }
}

pub(super) fn with_library(job: Job, library: Library) -> Job {
    match library {
        Library::Four => {
            openmpi4_variables().into_iter().fold(job, |job, (name, value)| job.env(name, value))
        }
        Library::Five => {
            let lib = peers_dir().join("openmpi/lib");
            let path = [lib.join("openmpi"), lib].map(|folder| folder.display().to_string()).join(":");
            job.env("LD_LIBRARY_PATH", path)
        }
    }
}

pub(super) fn there() -> bool {
    Peer::Libpmix.there() && Peer::OpenMpi5.there()
}

/// Runs a program of Debian's package in a folder for temporary files.
fn debian(run: &Run, program: &str, arguments: &str) -> Outcome {
    let path = peers_dir().join("libpmix-bin/usr/bin").join(program);
    with_library(Job::new(path).words(arguments), Library::Four).env("TMPDIR", &run.folder.0).run()
}

// Serves: Tools | a tool of PMIx (`PMIx_tool_init`), by its file or address | served: of the same user, with a namespace of its
// own; see [Tools](#tools)
#[test]
fn tools_see_the_processes_of_all_hosts() {
    if !there() {
        return;
    }
    for (options, hosts) in [
        ("-n 2".to_owned(), [this_machine(), this_machine()]),
        (format!("-n 2 {}", nodes(2, 1, 2)), ["n1".into(), "n2".into()]),
    ] {
        let run = Run::waiting(&options);
        for library in [Library::Four, Library::Five] {
            let outcome = run.ask(library, "table");
            outcome.code(0).quiet().says("this is rank 0 of tool_", 1).says("table: 0\n", 1);
            for (rank, host) in hosts.iter().enumerate() {
                outcome.says(&format!(" rank {rank} on {host} is process "), 1);
            }
        }
        run.end().code(0);
    }
}

#[test]
fn tools_find_a_run_by_its_files() {
    if !there() {
        return;
    }
    let run = Run::waiting("-n 1");
    let folder = run.rendezvous();
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    for library in [Library::Four, Library::Five] {
        let outcome = run.tool(library, None, "table");
        outcome.code(0).quiet().says(" rank 0 on ", 1);
    }
    run.end().code(0);
}

/// Debian's tools.
// Serves: Tools | `pps`, `pevent` of libpmix 4.2.2 | served
#[test]
fn the_tools_of_debian_are_answered() {
    if !Peer::PmixTools.there() {
        return;
    }
    let run = Run::waiting("-n 2");
    run.rendezvous();
    let outcome = debian(&run, "pps", "");
    outcome.code(0).warns("Active nspaces: kvs_");
    debian(&run, "pevent", "--event -147 --range 5").code(0).quiet();
    run.end().code(0);
}

#[test]
fn an_open_mpi_job_of_two_hosts_is_listed() {
    if !there() || !Peer::PmixTools.there() {
        return;
    }
    let own = Folder::new("tools-openmpi");
    let options = format!("-n 2 {} -env TMPDIR {}", nodes(2, 1, 2), own.0.display());
    let program = Peer::OpenMpi5.program("mpi_io");
    let run = Run::new(&options, &format!("exec {} {} wait", program.display(), own.path("file")));
    run.running.await_stdout(": io done\n", 2);
    let job = run.job();
    debian(&run, "pps", "").code(0).warns(&format!("Active nspaces: {job}\n"));
    let outcome = run.ask(Library::Five, "table");
    outcome.code(0).says(&format!("{job} rank 0 on n1 is process "), 1);
    outcome.says(&format!("{job} rank 1 on n2 is process "), 1);
    run.end().code(0);
}

/// A run that is killed leaves no files behind.
#[test]
fn a_guardian_removes_the_files_of_a_killed_run() {
    if !there() {
        return;
    }
    for options in ["-n 1".to_owned(), format!("-n 1 {}", nodes(1, 1, 2))] {
        let run = Run::waiting(&options);
        let folder = run.rendezvous();
        run.running.signal(Signal::KILL).await_end();
        while folder.exists() {
            std::thread::yield_now();
        }
        drop(run.running.wait());
    }
}

// Serves: Requests | job control (18) | in part: signal, pause, resume, terminate and kill, of processes or jobs of the run, by
// signals to their process groups (`SIGSTOP`, `SIGCONT`, `SIGTERM`, `SIGKILL`). Files that the client names are removed when its
// process has exited, the leader of a group by invitation gets a context id, and processes of one job become a
// [process set](#events) (`PMIX_JOB_CTRL_DEFINE_PSET`). Other orders are refused, and folders to remove
// Also: libraries `interop::openmpi::segments_are_removed_after_the_exit`, `interop::tools::processes_become_a_set`
#[test]
fn processes_are_controlled() {
    if !there() {
        return;
    }
    for hosts in [String::new(), nodes(2, 1, 2)] {
        let script =
            "trap 'echo $PMI_RANK got it' USR1; echo up; while :; do read line && exit || sleep 0.01; done";
        let run = Run::new(&format!("-n 2 --stdin all {hosts}"), script);
        run.running.await_stdout("up\n", 2);
        let job = run.job();
        let control = |target: &str, order: &str| {
            let outcome = run.ask(Library::Five, &format!("control {target} {order}"));
            let line = outcome.stdout.lines().last();
            line.map(str::to_owned).unwrap_or_else(|| panic!("{outcome}"))
        };
        assert_eq!(control(&format!("{job} 1"), "pmix.jctrl.sig 10"), "control: 0");
        run.running.await_stdout("1 got it\n", 1);
        let table = run.ask(Library::Four, "table").stdout;
        let pids = table.lines().filter_map(|line| line.split_once(" is process ")).map(|(_, pid)| pid);
        let pids: Vec<&str> = pids.collect();
        assert_eq!(pids.len(), 2);
        for (order, paused) in [("pmix.jctrl.pause", true), ("pmix.jctrl.resume", false)] {
            assert_eq!(control(&format!("{job} all"), order), "control: 0");
            let is_paused =
                |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ");
            while pids.iter().any(|pid| is_paused(pid) != paused) {
                std::thread::yield_now();
            }
        }
        assert_eq!(control(&format!("{job} all"), "pmix.jctrl.sig 10"), "control: 0");
        run.running.await_stdout("0 got it\n", 1).await_stdout("1 got it\n", 2);
        assert_eq!(control(&format!("{job} 2"), "pmix.jctrl.kill"), "control: -46");
        assert_eq!(control("no-such-job all", "pmix.jctrl.kill"), "control: -46");
        assert_eq!(control(&format!("{job} 1"), "pmix.jctrl.ckpt"), "control: -47");
        assert_eq!(control(&format!("{job} 1"), "pmix.jctrl.sig 99"), "control: -27");
        assert_eq!(control(&format!("{job} 1"), "pmix.jctrl.kill"), "control: 0");
        run.end().code(137).warns("rank 1");
    }
}

/// Ranks that are tools with names of their own, as OpenPMIx's `toolqry` is.
// Serves: Tools | a rank that names itself (`PMIx_tool_init` with `PMIX_TOOL_NSPACE`) | served: as a tool beside the run, on all
// hosts; see [Tools](#tools)
// Also: hydrant-driver `tools_among_the_clients_of_a_job_are_handed_over`
#[test]
fn ranks_may_be_tools_that_name_themselves() {
    if !there() {
        return;
    }
    for hosts in [String::new(), nodes(2, 1, 2)] {
        for library in [Library::Four, Library::Five] {
            let tool = Peer::Libpmix.program("pmix_tool").display().to_string();
            let job = Job::hydrant(&format!("-n 2 {hosts} sh -c"));
            let job = job.arg(format!("exec {tool} named mine$PMIX_RANK table , leader"));
            let outcome = with_library(job, library).run();
            outcome.code(0).quiet().says("this is rank 0 of mine0\n", 1).says("this is rank 0 of mine1\n", 1);
            outcome.says(" rank 0 on ", 2).says(" rank 1 on ", 2);
            // libpmix 4 does not look for it in the answer.
            let code = if matches!(library, Library::Four) { -46 } else { 0 };
            outcome.says(&format!("leader: {code}\n"), 2);
        }
    }
}

#[test]
fn processes_become_a_set() {
    if !there() {
        return;
    }
    for (hosts, library) in [
        (String::new(), Library::Four),
        (String::new(), Library::Five),
        (nodes(2, 1, 2), Library::Four),
        (nodes(2, 1, 2), Library::Five),
    ] {
        let folder = Folder::new("tools");
        let uri = folder.path("uri");
        let job = Job::hydrant(&format!("-v --report-uri {uri} -n 2 {hosts}"));
        let job = with_library(job, library).arg(Peer::Libpmix.program("pmix_tool"));
        let own = "control own all pmix.jctrl.defpset sea";
        let steps = format!(
            "client watch -55 , watch -777 , fence , names , fence , {own} , until 1 , until 2 , sets , names , members ocean , until 3"
        );
        let running = job.words(&steps).env("TMPDIR", &folder.0).hold_input().start();
        running.await_stdout("until: 0\n", 2);
        let run = Run { folder, running, uri };
        let job = run.job();
        let steps = format!(
            "watch -55 , control {job} all pmix.jctrl.defpset a;b , control {job} 0 pmix.jctrl.defpset mpi://own , \
             control {job} 0 pmix.jctrl.defpset sea , control {job} 1 pmix.jctrl.defpset ocean , sets {job} , \
             sets , sets no-such-job , members ocean , members app://sea {job} , members other {job} , until 1 , notify -777"
        );
        let outcome = run.ask(library, &steps);
        outcome.says("control: -27\n", 2).says("control: -11\n", 1).says("control: 0\n", 1);
        outcome.says("2 sets: app://sea,app://ocean\n", 2).says("sets: -46\n", 1);
        outcome.says("ocean has rank 1\n", 1).says("app://sea has rank 0\napp://sea has rank 1\n", 1);
        outcome.says("members: -46\n", 1).says("event -55 ", 4).says("says pmix.pset.nm is app://ocean\n", 1);
        // The set was there when the tool registered.
        outcome.says("says pmix.pset.nm is app://sea\n", 1);
        let outcome = run.end();
        outcome.code(0).says("until: 0\n", 6).says("control: 0\n", 2);
        outcome.says("2 sets: app://sea,app://ocean\n", 2);
        outcome.says("event -55 says pmix.pset.nm is app://sea\n", 2);
        outcome.says("says pmix.pset.nm is app://ocean\n", 2).says("ocean has rank 1\n", 2);
        outcome
            .says("names: -46\n", 2)
            .says("rank 0 is in app://sea\n", 1)
            .says("rank 1 is in app://sea,app://ocean\n", 1);
        outcome.warns("a process set of a PMIx client is refused: ");
    }
}

#[test]
fn a_process_set_that_does_not_fit_names_its_limit() {
    if !there() {
        return;
    }
    for hosts in [String::new(), nodes(2, 1, 2)] {
        let run = Run::waiting(&format!("--limit psets=3 -n 2 {hosts}"));
        let job = run.job();
        let define = |name: char| format!("control {job} 0 pmix.jctrl.defpset {name}");
        let outcome = run.ask(Library::Five, &['a', 'b', 'c', 'd'].map(define).join(" , "));
        assert!(outcome.stdout.ends_with("control: -29\n"), "{outcome}");
        let outcome = run.end();
        outcome.code(0).warns("limit psets (3)").warns("--limit psets=N");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome}");
    }
}

// Serves: Requests | output of processes (22, 29) | served: to [tools](#tools). Ranks are refused
// Serves: Tools | `PMIx_IOF_pull`, `PMIx_IOF_deregister` | served: output from the request on, as the processes write it. What a tool
// does not read is dropped above 1 MiB
#[test]
fn output_is_copied_to_tools() {
    if !there() {
        return;
    }
    for hosts in [String::new(), nodes(2, 1, 2)] {
        for library in [Library::Four, Library::Five] {
            let script = "echo up; read line; echo out; echo err >&2; read line; echo bye; read line; :";
            let mut run = Run::new(&format!("-n 2 --stdin all {hosts}"), script);
            run.running.await_stdout("up\n", 2);
            let job = run.job();
            let tool = run.client("pmix_tool", library, &format!("pull {job} all 2")).start();
            tool.await_stdout("pulling\n", 1);
            run.running.send(b"\n").expect("the ranks read");
            tool.await_stdout("out\n", 2).await_stdout("err\n", 2);
            run.running.send(b"\n").expect("the ranks read");
            let outcome = tool.wait();
            outcome.code(0).quiet().says("pull: 0\n", 1);
            for rank in 0..2 {
                outcome.says(&format!("stdout of rank {rank}: out\n"), 1);
                outcome.says(&format!("stderr of rank {rank}: err\n"), 1);
                outcome.says(&format!("stdout of rank {rank}: bye\n"), 1);
            }
            run.ask(library, "pull no-such-job 0 1").says("pull: -46\n", 1);
            run.end().code(0);
        }
    }
}

// Serves: Requests | input of processes (23) | served: of [tools](#tools). Ranks are refused
// Serves: Tools | `PMIx_IOF_push` | served: input of a run with `--stdin tools`, and of jobs that tools spawn for it. A push is
// answered when its processes have taken it. `PMIX_ERR_IOF_COMPLETE` says that their input has ended
#[test]
fn input_is_pushed_by_tools() {
    if !there() {
        return;
    }
    for hosts in [String::new(), nodes(2, 1, 2)] {
        for library in [Library::Four, Library::Five] {
            let script =
                "echo up; while read line; do echo $PMI_RANK got $line; done; echo $PMI_RANK has all";
            let run = Run::new(&format!("-n 2 --stdin tools {hosts}"), script);
            run.running.await_stdout("up\n", 2);
            let job = run.job();
            let push = |what: &str, status: i32| {
                run.ask(library, &format!("push {job} {what}")).says(&format!("push: {status}\n"), 1);
            };
            push("1 one", 0);
            push("all two", 0);
            run.running.await_stdout("0 got two\n", 1).await_stdout("1 got two\n", 1);
            run.ask(library, "push no-such-job 0 x").says("push: -46\n", 1);
            push("2 x", -46);
            push("0", 0);
            run.running.await_stdout("0 has all\n", 1);
            push("0 late", -173);
            push("all three", 0);
            push("all", 0);
            let outcome = run.end();
            outcome.code(0).quiet().says("1 got one\n", 1).says("1 got three\n1 has all\n", 1);
            assert!(
                !outcome.stdout.contains("0 got one") && !outcome.stdout.contains("0 got three"),
                "{outcome}"
            );
        }
    }
}

/// A rank that does not read holds up the tool, and nobody else.
#[test]
fn a_tool_that_pushes_waits_for_its_rank() {
    if !there() {
        return;
    }
    for hosts in [String::new(), nodes(2, 1, 2)] {
        let folder = Folder::new("go");
        let go = folder.path("go");
        let script = format!("echo up; while [ ! -e {go} ]; do sleep 0.01; done; wc -c");
        let run = Run::new(&format!("-n 2 --stdin tools {hosts}"), &script);
        run.running.await_stdout("up\n", 2);
        let job = run.job();
        let tool = run.client("pmix_tool", Library::Five, &format!("flood {job} 1 100")).start();
        tool.await_stdout("pushing\n", 1);
        run.ask(Library::Five, "table").code(0).says(" is process ", 2);
        run.ask(Library::Five, &format!("push {job} 0 line")).says("push: 0\n", 1);
        fs::write(&go, "").expect("the folder is there");
        tool.wait().code(0).says("flood: 0\n", 1);
        run.ask(Library::Five, &format!("push {job} all")).says("push: 0\n", 1);
        run.end().code(0).quiet().says(&format!("{}\n", 100 * 32 * 1024), 1).says("5\n", 1);
    }
}

#[test]
fn the_input_of_a_tool_is_forwarded() {
    if !there() {
        return;
    }
    for library in [Library::Four, Library::Five] {
        let run = Run::new("-n 1 --stdin tools", "echo up; wc -l; echo all");
        run.running.await_stdout("up\n", 1);
        let job = run.job();
        let tool = run.client("pmix_tool", library, &format!("forward {job} 0 -777"));
        let mut tool = tool.hold_input().start();
        tool.await_stdout("ready\n", 1);
        tool.send("line\n".repeat(20000).as_bytes()).expect("the tool reads");
        tool.end_input();
        let outcome = run.end();
        outcome.code(0).quiet().says("20000\nall\n", 1);
        tool.signal(Signal::KILL);
        drop(tool.wait());
    }
}

#[test]
fn ranks_without_input_of_tools_refuse_it() {
    if !there() {
        return;
    }
    let run = Run::waiting("-n 2 -v");
    let job = run.job();
    run.ask(Library::Five, &format!("push {job} 1 line")).says("push: -47\n", 1);
    run.running.await_stderr("--stdin tools");
    run.end().code(0);
}

// Serves: Tools | publish, look up and events by tools | served: with all jobs of the run
#[test]
fn tools_publish_and_look_up_and_send_events() {
    if !there() {
        return;
    }
    for hosts in [String::new(), nodes(2, 1, 2)] {
        let folder = Folder::new("tools");
        let uri = folder.path("uri");
        let rank = Peer::Libpmix.program("pmix_tool");
        let job = relocated(Job::hydrant(&format!("--report-uri {uri} -n 2 {hosts}")));
        let running = job.arg(rank).words("rank -777").env("TMPDIR", &folder.0).hold_input().start();
        running.await_stdout("ready\n", 2);
        let run = Run { folder, running, uri };
        let outcome = run.ask(Library::Five, "publish key value , lookup key , lookup other");
        outcome.says("publish: 0\n", 1).says("found value\n", 1).says("lookup: -46\n", 1);
        run.ask(Library::Four, "notify -777").code(0).says("notify: 0\n", 1);
        run.end().code(0).says("event -777 of rank 0 of tool_", 2);
    }
}

/// Line of `-v` for a request for hosts.
fn refused(why: &str) -> String {
    format!("a request of a PMIx client for hosts is refused: {why}")
}

// Serves: Tools | `PMIx_Allocation_request` | in part: as for [processes](#requests)
#[test]
fn tools_allocate_hosts_and_give_them_back() {
    if !there() {
        return;
    }
    for library in [Library::Four, Library::Five] {
        let run = Run::waiting("-v -n 1 -hosts n1:1,c:2 --bootstrap local --elastic 1:4");
        let outcome = run.ask(
            library,
            "allocate new 1 , allocate release c , allocate new 1 , allocate extend 1 , allocate release n1",
        );
        outcome.says("pmix.alloc.nlist is c\n", 3).says("pmix.alloc.reqid is mine\n", 3);
        outcome.says("allocate: 0\n", 3).says("allocate: -29\n", 1).says("allocate: -28\n", 1);
        let id = outcome.lines().into_iter().filter_map(|line| line.strip_prefix("pmix.alloc.id is ")).max();
        let id = id.expect("the allocation has a name").to_owned();
        let outcome =
            run.ask(library, &format!("allocate release {id} , allocate extend d:1 , allocate release d"));
        outcome.says("allocate: 0\n", 3).says("pmix.alloc.nlist is d\n", 2);
        let outcome = run.end();
        for why in [
            "host n1 has rank 0: end them, or use --force",
            "0 of 1 hosts are known and not in the run: name others",
        ] {
            outcome.code(0).warns(&refused(why));
        }
    }
}

/// Ranks whose commands are in `steps`, on libpmix 4.2.2 or that of Open MPI 5.
fn client(library: Library, options: &str, steps: &str) -> Outcome {
    let job = Job::hydrant(options).arg(Peer::Libpmix.program("pmix_tool"));
    with_library(job, library).arg("client").words(steps).run()
}

// Serves: Requests | allocation (17) | in part: of hosts, in a run with `--elastic`: new and extend (`PMIX_ALLOC_NEW`,
// `PMIX_ALLOC_EXTEND`, which are the same) by their names (`PMIX_ALLOC_NODE_LIST`) or by their number (`PMIX_ALLOC_NUM_NODES`)
// among those that the job was given and did not need and those that have left, and release (`PMIX_ALLOC_RELEASE`) by names, by
// the id of an allocation (`PMIX_ALLOC_ID`) or by a number of hosts without ranks. The reply comes when all have joined or
// left, with `PMIX_ALLOC_ID` and the names. Refused: other attributes and directives, and all in other runs. `prterun` 5.0.11
// refuses all requests
#[test]
fn a_rank_allocates_a_host_spawns_there_and_gives_it_back() {
    if !there() {
        return;
    }
    for library in [Library::Four, Library::Five] {
        let steps = "watch -145 , allocate extend c , spawn c hostname , until 1 , allocate release c";
        let outcome = client(library, "-n 1 -hosts n1:1 --bootstrap local --elastic 2", steps);
        outcome.code(0).quiet().says("spawn: 0\n", 1).says("event -145 of ", 1);
        outcome.says("pmix.alloc.nlist is c\n", 2).says("allocate: 0\n", 2);
    }
}

/// A rank and a tool spawn on hosts that the spawns add. The first host is full.
#[test]
fn spawns_of_ranks_and_tools_add_hosts() {
    if !there() {
        return;
    }
    for library in [Library::Four, Library::Five] {
        let options = "-n 1 -hosts n1:1 --bootstrap local --elastic 2";
        let steps = "watch -145 , spawn +c hostname , until 1 , allocate release c";
        client(library, options, steps).code(0).says("spawn: 0\n", 1).says("allocate: 0\n", 1);
        let run = Run::waiting(&format!("{options} --prepend-pattern {}", "%h_"));
        run.ask(library, "spawn +c:2 hostname , spawn +c true , allocate release c").says("spawn: 0\n", 2);
        run.ask(library, "spawn +d true").says("spawn: -29\n", 1);
        run.ask(library, "spawn +d:x true").says("spawn: -27\n", 1);
        let outcome = run.end();
        outcome.code(0).says("c_", 1);
        outcome.warns(
            "nothing is spawned for a tool of PMIx: true: host d: the run may have 2 hosts, and has had them",
        );
        outcome
            .warns("nothing is spawned for a tool of PMIx: true: add-host d:x: invalid number of slots 'x'");
    }
}

/// `prterun` has the same for a host that is not there and a program that is missing.
// Fault: A rank or a tool spawns on a host that is not in the run, or a program that cannot be started
// Outcome: nothing is spawned, a line names the reason, and each gets a status of its own (`PMIX_ERR_JOB_FAILED_TO_MAP`,
// `PMIX_ERR_JOB_FAILED_TO_LAUNCH`)
// Guarantee: A refused spawn says why
#[test]
fn refused_spawns_have_a_status() {
    if !there() {
        return;
    }
    for (options, host) in
        [("-n 1".to_owned(), this_machine()), (format!("-n 1 {}", nodes(2, 1, 2)), "n2".into())]
    {
        for library in [Library::Four, Library::Five] {
            let steps = format!("spawn nowhere true , spawn {host} /missing");
            let run = Run::waiting(&options);
            for outcome in [client(library, &options, &steps), run.ask(library, &steps)] {
                outcome.code(0).says("spawn: -179\n", 1).says("spawn: -181\n", 1);
            }
            run.end().warns("host nowhere").warns("/missing");
        }
    }
}

#[test]
fn the_end_of_a_request_for_hosts_is_an_event() {
    if !there() {
        return;
    }
    for library in [Library::Four, Library::Five] {
        let steps = "watch -105 , watch -195 , watch -196 , allocate extend c , until 2 , allocate release n1 , until 4";
        let outcome = client(library, "-n 1 -hosts n1:1 --bootstrap local --elastic 2", steps);
        outcome.code(0).quiet().says("event -105 of ", 2).says("event -195 of ", 1).says("event -196 of ", 1);
        for (code, status, id) in [(-105, 0, true), (-195, 0, true), (-105, -28, false), (-196, -28, false)] {
            outcome.says(&format!("event {code} says status {status}\n"), 1);
            outcome.says(
                &format!("event {code} says pmix.alloc.id is hydrant.1\n"),
                usize::from(id || code == -105),
            );
        }
        outcome.says("says pmix.alloc.reqid is mine\n", 4);
    }
}

// Fault: A PMIx client asks for hosts in a run without `--elastic`, for one too many, one that is there or cannot be started,
// or gives back one that is not there, or below MIN
// Outcome: each gets a status of its own, and a line with `-v`, and the run goes on
// Guarantee: A request for hosts that is refused changes nothing
#[test]
fn requests_for_hosts_that_are_refused_have_a_status_and_a_line() {
    if !there() {
        return;
    }
    let folder = Folder::new("allocate");
    let agent = folder.executable("agent", "#!/bin/sh\n[ \"$1\" = bad ] && exit 9\nshift\nexec \"$@\"\n");
    let bootstrap = format!("exec:{agent} {{host}} {{args}}");
    for library in [Library::Four, Library::Five] {
        for (elastic, steps, status, why) in [
            ("--elastic 2:2", "extend c", -29, "host c: the run may have 2 hosts, and has had them"),
            ("--elastic 2:3", "extend bad", -25, "host bad (node 3): "),
            ("--elastic 2:3", "extend n1", -11, "host n1 is in the run already"),
            (
                "--elastic 2:3",
                "release n2",
                -23,
                "host n2 is one of the last 2, which stay (--elastic 2:MAX)",
            ),
            ("--elastic 1:3", "release x", -46, "host x is not in the run"),
            ("--elastic 1:3", "release hydrant.7", -46, "no host of this allocation is in the run"),
            ("--elastic 1:3", "extend a:b:c", -27, ""),
            ("", "extend c", -47, "start the run with --elastic HOSTS"),
        ] {
            let tool = Peer::Libpmix.program("pmix_tool");
            let job =
                Job::command("run -v -hosts n1:1,n2:1").words(elastic).arg("--bootstrap").arg(&bootstrap);
            let job = job.words("-n 1").arg(&tool).words(&format!("client allocate {steps} : -n 1"));
            let outcome = with_library(job.arg(&tool).words("client until 0"), library).run();
            outcome.code(0).says(&format!("allocate: {status}\n"), 1).warns(&refused(why));
        }
    }
}

// Fault: A daemon does not answer a query about memory, because it is stopped
// Outcome: the answer follows after two seconds, without its host
// Guarantee: No client waits for the answer of one host for ever
#[test]
fn a_query_is_answered_without_a_host_that_is_late() {
    if !there() {
        return;
    }
    let run = Run::new(&nodes(2, 1, 2), "echo up; test $PMI_RANK != 0 || read line; :");
    run.running.await_stdout("up\n", 2);
    let query = format!("memory {}", run.job());
    let late = run.running.daemons()[1];
    kill_process(late, Signal::STOP).expect("the daemon runs");
    let outcome = run.ask(Library::Five, &query);
    kill_process(late, Signal::CONT).expect("the daemon runs");
    outcome.code(0).says("memory of ", 1).says("memory of n1\n", 1).says("memory: 0\n", 1);
    run.end().code(0);
}

// Fault: The first job of a fleet on one machine is that of a tool, and the system cannot execute its program
// Outcome: the spawn fails, and the fleet goes on
// Guarantee: A fleet has no job of the command line, whose failure would be its own
// Also: hydrant-control `the_first_job_of_a_tool_is_not_that_of_the_command_line`
#[test]
fn a_fleet_outlives_a_tool_whose_program_cannot_be_executed() {
    if !there() {
        return;
    }
    let folder = Folder::new("tools-fleet");
    let (uri, program) = (folder.path("uri"), folder.executable("program", "\x7fELF"));
    let fleet = Fleet::new(&format!("--report-uri {uri}"));
    let tool = with_library(Job::new(Peer::Libpmix.program("pmix_tool")), Library::Five);
    let tool = tool.arg(format!("file:{uri}")).words("spawn").arg(this_machine()).arg(&program);
    let outcome = tool.run();
    outcome.code(0).says("spawn: -", 1);
    fleet.shell("-n 1", "echo up").run().code(0).stdout_is("up\n");
    fleet.end();
}

// Fault: A tool that has spawned a job leaves while a host joins for the job, and another one gets its place
// Outcome: nothing is spawned
// Guarantee: What a tool asks for is not done for another one
#[test]
fn a_spawn_of_a_tool_that_has_left_is_not_for_the_next_tool() {
    if !there() {
        return;
    }
    let folder = Folder::new("tools-left");
    let (gate, asked) = (folder.fifo("gate"), folder.path("asked"));
    let script =
        format!("#!/bin/sh\n[ \"$1\" != c ] || {{ : >'{asked}'; read _ <'{gate}'; }}\nshift\nexec \"$@\"\n");
    let agent = folder.executable("agent", &script);
    let program = folder.executable("program", "#!/bin/sh\nexec sleep 1000\n");
    let (uri, bootstrap) = (folder.path("uri"), format!("exec:{agent} {{host}} {{args}}"));
    let job = Job::command(&format!("run --report-uri {uri} -hosts n1:1 --elastic 2 -n 1 --bootstrap"));
    let mut run = job.arg(&bootstrap).words("sh -c").arg("echo up; read line || :").hold_input().start();
    run.await_stdout("up\n", 1);
    let tool = |command: &str| {
        let job = with_library(Job::new(Peer::Libpmix.program("pmix_tool")), Library::Five);
        job.arg(format!("file:{uri}")).words(command)
    };
    let first = tool(&format!("table , spawn +c {program}")).start();
    first.await_stdout("table: 0\n", 1);
    while fs::exists(&asked).is_ok_and(|is_there| !is_there) {
        std::thread::yield_now();
    }
    let name = |output: &str| output.lines().next().unwrap_or_default().to_owned();
    let place = name(&first.stdout());
    first.signal(Signal::KILL);
    first.wait().signaled(Signal::KILL);
    // Its place is free once the server has seen its end.
    let mut others = Vec::new();
    loop {
        let next = tool("await -777").start();
        next.await_stdout("ready\n", 1);
        let has_place = name(&next.stdout()) == place;
        others.push(next);
        if has_place {
            break;
        }
    }
    drop(fs::File::options().write(true).open(&gate).expect("the agent reads it"));
    let status = || Job::command("status").arg(run.pid().to_string()).run();
    while !status().stdout.contains("on 2 hosts") {}
    assert_eq!(tool("table").run().stdout.matches(" is process ").count(), 1);
    for other in others {
        other.signal(Signal::KILL);
        other.wait().signaled(Signal::KILL);
    }
    run.end_input();
    run.wait().code(0);
}

#[test]
fn requests_of_tools_that_are_not_served_are_refused() {
    if !there() {
        return;
    }
    let run = Run::waiting("-n 1");
    run.ask(Library::Five, "allocate new 1").code(0).says("allocate: -47\n", 1);
    // An abort ends the tool alone.
    run.ask(Library::Five, "abort");
    run.ask(Library::Five, "table").code(0).says(" rank 0 on ", 1);
    run.end().code(0);
}

/// Client that another user runs: prints what becomes of its connection, and whether it can enter a folder.
const STRANGER: &str = "
import encodings.idna, os, socket, sys
os.setgid(65534), os.setuid(65534)
client = socket.create_connection((sys.argv[1], int(sys.argv[2])))
try:
    client.sendall(b'\\xff' * 8 + bytes(8))
    print('answer', client.recv(1))
except OSError:
    print('answer', b'')
try:
    os.listdir(sys.argv[3])
except PermissionError:
    print('no folder')
";

/// Needs root to become another user.
// Fault: Another user of the machine connects to a run as a tool
// Outcome: the connection is closed; the folder with the address cannot be entered
// Guarantee: The kernel names the user of a connection
#[test]
fn other_users_are_no_tools() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let run = Run::waiting("-n 1");
    let folder = run.rendezvous();
    let uri = run.folder.read("uri");
    let address =
        uri.lines().next().and_then(|line| line.split("tcp4://").nth(1)).expect("it has an address");
    let (host, port) = address.split_once(':').expect("it has a port");
    let stranger = Job::new("python3").arg("-c").arg(STRANGER).args([host, port]).arg(&folder).run();
    stranger.code(0).stdout_is("answer b''\nno folder\n");
    run.end().code(0);
}

/// More tools than a run serves at a time.
#[test]
fn the_number_of_tools_is_limited() {
    if !there() {
        return;
    }
    let run = Run::waiting("-n 1");
    let start = || run.client("pmix_tool", Library::Five, "await -777").start();
    let tools: Vec<Running> = (0..32).map(|_| start()).collect();
    for tool in &tools {
        tool.await_stdout("ready\n", 1);
    }
    run.ask(Library::Five, "table").code(1).says("no server", 1);
    run.running.await_stderr("refused a tool of PMIx: 32 of them are connected");
    let mut tools = tools.into_iter();
    let first = tools.next().expect("there are 32");
    first.signal(Signal::KILL);
    first.wait().signaled(Signal::KILL);
    // Its place is free once the server has seen its end.
    while !run.ask(Library::Five, "notify -777").stdout.contains("notify: 0") {}
    for tool in tools {
        tool.wait().code(0).says("event -777 of rank 0 of tool_", 1);
    }
    run.end().code(0);
}
