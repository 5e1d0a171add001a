//! Unit tests of the library with the built-in server.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use hydrant_core::wire::Text;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::*;

const INIT: &str = "cmd=init pmi_version=1 pmi_subversion=1";

/// Runs a shell script as a rank, in which `$ask REQUEST` returns the reply.
fn start(host: &mut Host, job: JobId, rank: Rank, script: &str) -> Child {
    let mut command = Command::new("bash");
    let ask = "ask() { echo \"$1\" >&$PMI_FD; read -r reply <&$PMI_FD; }";
    command.arg("-c").arg(format!("{ask}; ask '{INIT}'; {script}")).stdin(Stdio::null());
    host.setup_fork(job, rank, &mut command).expect("there is such a rank");
    let child = command.spawn().expect("bash is there");
    host.watch(job, rank, child.id()).expect("it is a child");
    child
}

fn next_any(host: &mut Host) -> Event {
    loop {
        match host.next_event().expect("the server is sound") {
            Some(event) => break event,
            None => host.wait(None).expect("the descriptor is open"),
        }
    }
}

/// The next event that is worth one.
fn next(host: &mut Host) -> Event {
    loop {
        match next_any(host) {
            Event::Output(Output::Joined { .. }) | Event::Closed { .. } => {}
            event => break event,
        }
    }
}

/// A launcher may serve in a thread of its own.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Host>();
    is_send::<Port>();
};

#[test]
fn a_rank_that_exits_without_finalize_aborts_its_job() {
    let mut host = Host::open(&Settings::for_ranks(2)).expect("there is memory");
    let job = host.register_job(&Job::new("app", 2)).expect("the name is valid");
    let mut waiting = start(&mut host, job, Rank(0), "ask cmd=barrier_in");
    while !host.rank_report(job, Rank(0)).is_some_and(|report| report.initialized && report.in_fence) {
        host.wait(None).expect("the descriptor is open");
        while host.next_event().expect("the server is sound").is_some() {}
    }
    let mut failing = start(&mut host, job, Rank(1), "exit 3");
    let exit = Exit::Code(3);
    let cause = Cause::NoFinalize { rank: Rank(1), exit };
    let message = String::new();
    assert_eq!(
        [next(&mut host), next(&mut host)],
        [Event::Output(Output::AbortJob { job, cause, message }), Event::Exited { job, rank: Rank(1), exit }]
    );
    assert_eq!(exit_of(failing.wait().expect("it is a child")), exit);
    waiting.kill().expect("it runs");
    assert_eq!(next(&mut host), Event::Exited { job, rank: Rank(0), exit: Exit::Signal(9) });
    waiting.wait().expect("it is a child");
    host.deregister_job(job).expect("it is registered");
    assert_eq!(host.register_job(&Job::new("app", 2)).expect("there is room again"), job);
}

/// The first failure gives the exit code, and a rank that aborts may die by a signal before the launcher has read its request.
#[test]
fn an_abort_comes_before_the_end_of_its_rank() {
    let mut host = Host::open(&Settings::for_ranks(1)).expect("there is memory");
    let job = host.register_job(&Job::new("app", 1)).expect("the name is valid");
    let abort = "echo cmd=abort exitcode=5 >&$PMI_FD; kill -ABRT $$";
    let mut child = start(&mut host, job, Rank(0), abort);
    // The reply to init.
    while !matches!(next_any(&mut host), Event::Output(Output::Joined { .. })) {}
    while host.next_event().expect("the server is sound").is_some() {}
    let id = WaitId::Pid(Pid::from_child(&child));
    waitid(id, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).expect("it is a child");
    let Event::Output(Output::AbortJob { cause, .. }) = next(&mut host) else { panic!("no abort") };
    assert_eq!((cause, cause.exit_code()), (Cause::Abort { rank: Rank(0), code: Some(5) }, 5));
    assert_eq!(next(&mut host), Event::Exited { job, rank: Rank(0), exit: Exit::Signal(6) });
    child.wait().expect("it is a child");
}

/// A launcher may learn too late of what the job is made.
#[test]
fn ranks_may_start_before_their_job_is_registered() {
    let description = Job::new("app", 1).node(0, "here", 1);
    let port = Port::open((Ipv4Addr::LOCALHOST, 0).into(), Speaks::Pmix).expect("a port is free");
    let variables = description.rank_env(Rank(0), None, Some(&port)).expect("there is such a rank");
    let (ours, mut theirs) = UnixStream::pair().expect("a descriptor is free");
    writeln!(theirs, "{INIT}").expect("the socket is open");
    let mut host = Host::open(&Settings::for_ranks(1)).expect("there is memory");
    let job = host.register_job(&description).expect("the name is valid");
    host.adopt_port(job, port).expect("it has none");
    host.adopt_socket(job, Rank(0), ours.into()).expect("the rank has none");
    assert_eq!(host.rank_env(job, Rank(0)).expect("there is such a rank"), variables);
    assert!(variables.contains(&("PMIX_HOSTNAME", "here".to_owned())), "{variables:?}");
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    assert!(matches!(host.listen(job, address, Speaks::Pmi), Err(Error::HasPort(0))));
    host.wait(None).expect("the descriptor is open");
    while !matches!(host.next_event(), Ok(Some(Event::Output(Output::Joined { rank: Rank(0), .. })))) {}
    while host.next_event().expect("the server is sound").is_some() {}
    let mut reply = String::new();
    BufReader::new(theirs).read_line(&mut reply).expect("the reply has come");
    assert!(reply.starts_with("cmd=response_to_init"), "{reply}");
}

/// The launcher may end its own use of a process first.
#[test]
fn an_end_that_is_reported_twice_counts_once() {
    let mut host = Host::open(&Settings::for_ranks(1)).expect("there is memory");
    let job = host.register_job(&Job::new("app", 1)).expect("the name is valid");
    let mut command = Command::new("true");
    host.setup_fork(job, Rank(0), &mut command).expect("there is such a rank");
    let mut child = command.spawn().expect("it is there");
    host.watch(job, Rank(0), child.id()).expect("it is a child");
    child.wait().expect("it is a child");
    host.exited(job, Rank(0), Exit::Code(0)).expect("it has not been reported");
    assert_eq!(next(&mut host), Event::Exited { job, rank: Rank(0), exit: Exit::Lost });
    assert_eq!(host.exited(job, Rank(0), Exit::Code(0)).expect_err("it has").fault(), Some(Fault::RankTaken));
}

#[test]
fn a_rank_elsewhere_connects_to_the_port() {
    let mut host = Host::open(&Settings::for_ranks(1)).expect("there is memory");
    let job = host.register_job(&Job::new("app", 1).node(0, "here", 1)).expect("the name is valid");
    let wildcard = host.listen(job, (Ipv6Addr::UNSPECIFIED, 0).into(), Speaks::Any);
    assert!(matches!(wildcard, Err(Error::Wildcard(_))), "{wildcard:?}");
    let env = host.rank_env(job, Rank(0)).expect("there is such a rank");
    assert_eq!(env, [("PMI_RANK", "0".to_owned()), ("PMI_SIZE", "1".to_owned())]);
    let address =
        host.listen(job, (Ipv4Addr::LOCALHOST, 0).into(), Speaks::Any).expect("there is a free port");
    let env = host.rank_env(job, Rank(0)).expect("there is such a rank");
    let of = |name| env.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
    assert_eq!((of("PMI_PORT"), of("PMI_ID")), (Some(&*address.to_string()), Some("0")));
    assert_eq!((of("PMIX_NAMESPACE"), of("PMIX_HOSTNAME")), (Some("app"), Some("here")));
    assert_eq!(host.rank_env(job, Rank(1)).expect_err("there is one rank").fault(), Some(Fault::NoSuchRank));
    let mut command = Command::new("env");
    host.setup_env(job, Rank(0), &mut command).expect("there is a port");
    assert!(command.get_envs().any(|(name, value)| name == "PMI_ID" && value.is_some()));
    let mut client = BufReader::new(TcpStream::connect(address).expect("it listens"));
    client.get_mut().write_all(format!("cmd=initack pmiid=0\n{INIT}\n").as_bytes()).expect("it reads");
    loop {
        match host.next_event().expect("the server is sound") {
            Some(Event::Output(Output::Joined { rank, .. })) => break assert_eq!(rank, Rank(0)),
            Some(event) => panic!("{event:?}"),
            None => host.wait(None).expect("the descriptor is open"),
        }
    }
    while host.next_event().expect("the server is sound").is_some() {}
    let mut line = String::new();
    client.read_line(&mut line).expect("there is a reply");
    assert!(line.starts_with("cmd=initack"), "{line}");
}

#[test]
fn a_spawned_job_is_registered_for_its_spawn() {
    let settings = Settings { limits: Limits::for_ranks(1), ..Settings::for_ranks(1) };
    let mut host = Host::open(&settings).expect("there is memory");
    let job = host.register_job(&Job::new("app", 1)).expect("the name is valid");
    let request = "mcmd=spawn\\nnprocs=2\\nexecname=child\\ntotspawns=1\\nspawnssofar=1\\nargcnt=1\\narg1=x\\npreput_num=0\\n\
                   info_num=0\\nendcmd";
    let script = format!("ask $'{request}'; case $reply in *rc=0*) ask cmd=finalize;; *) exit 7;; esac");
    let mut child = start(&mut host, job, Rank(0), &script);
    let Event::Output(Output::Spawn { spawn, job: from, protocol, request, .. }) = next(&mut host) else {
        panic!("no spawn");
    };
    assert_eq!(from, job);
    let wanted = decode_spawn(protocol, &request).expect("the server has checked it");
    let program = wanted.programs().next().expect("there is one");
    assert_eq!((program.command(), program.maxprocs()), (Text::from("child"), 2));
    let spawned = host.register_job(&Job::new("app-1", 2).spawned_by(spawn)).expect("there is room");
    assert!(host.rank_env(spawned, Rank(1)).expect("as above").contains(&("PMI_SPAWNED", "1".to_owned())));
    host.spawn_complete(spawn, true, &[0]).expect("it is pending");
    assert_eq!(next(&mut host), Event::Exited { job, rank: Rank(0), exit: Exit::Code(0) });
    child.wait().expect("it is a child");
}

#[test]
fn a_job_that_is_refused_leaves_nothing() {
    let mut host = Host::open(&Settings::for_ranks(2)).expect("there is memory");
    for (job, why) in [
        (Job::new("a b", 2), "job"),
        (Job::new("app", 3), "ranks"),
        (Job::new("app", 2).node(0, "", 1), "the nodes of the job have 1 ranks"),
        (Job::new("app", 2).attribute("k".repeat(300), "x"), "attribute"),
        (Job::new("app", 2).pset("set", 1..3), "process set"),
    ] {
        let error = host.register_job(&job).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    }
    let job = host.register_job(&Job::new("app", 2)).expect("the name is free");
    assert!(matches!(host.register_job_as(job, &Job::new("other", 1)), Err(Error::Fault(_))));
    host.setup_fork(job, Rank(1), &mut Command::new("true")).expect("the job is still there");
}

/// A message of the first server's rank reaches the second server.
#[test]
fn servers_exchange_messages() {
    let mut hosts = [0, 1].map(|node| {
        let mut host = Host::open(&Settings::for_ranks(2).on_node(node, 2)).expect("there is memory");
        let job = Job::new("app", 2).node(0, "a", 1).node(1, "b", 1);
        host.register_job(&job).expect("the name is valid");
        host
    });
    let job = JobId(0);
    let mut children = [0, 1].map(|node| {
        let script = format!(
            "ask 'cmd=put kvsname=app key=k{node} value=of-{node}'; ask cmd=barrier_in; ask 'cmd=get kvsname=app key=k{}'
            case $reply in *value=of-{}) ask cmd=finalize;; *) exit 7;; esac",
            1 - node,
            1 - node
        );
        start(&mut hosts[node as usize], job, Rank(node), &script)
    });
    let mut running = 2;
    while running > 0 {
        for node in 0..2 {
            while let Some(event) = hosts[node].next_event().expect("the server is sound") {
                match event {
                    Event::Output(Output::Peer { node: to, bytes }) => {
                        hosts[to as usize].peer(node as u32, &bytes).expect("a server made it");
                    }
                    Event::Exited { exit, .. } => {
                        assert_eq!(exit, Exit::Code(0));
                        running -= 1;
                    }
                    _ => {}
                }
            }
        }
        std::thread::yield_now();
    }
    children.iter_mut().for_each(|child| drop(child.wait()));
    let stranger = hosts[0].peer(1, b"\xff").expect_err("no server has such a message");
    assert!(stranger.fault().is_some(), "{stranger}");
}
