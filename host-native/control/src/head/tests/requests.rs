//! Spawns, names, process sets and connected jobs.

use hydrant_core::wire::Protocol;
use hydrant_core::{Limit, OwnedInput, OwnedOutput, Refusal, UpcallId};

use super::*;
use crate::protocol::RankBlock;

const SPAWN: &[u8] = b"mcmd=spawn\nnprocs=3\nexecname=b.out\ntotspawns=1\nspawnssofar=1\nargcnt=0\n\
    preput_num=1\npreput_key_0=parent\npreput_val_0=port7\ninfo_num=0\nendcmd\n";

fn spawn(rank: u32, upcall: u32) -> Report {
    let (job, rank, upcall) = (FIRST, Rank(rank), UpcallId(upcall));
    Report::Output(OwnedOutput::Spawn {
        spawn: upcall,
        job,
        rank,
        protocol: Protocol::V1,
        request: SPAWN.to_vec(),
    })
}

fn upcall(rank: u32, upcall: u32, request: &[u8]) -> Report {
    let (job, rank, upcall) = (FIRST, Rank(rank), UpcallId(upcall));
    Report::Output(OwnedOutput::Upcall {
        upcall,
        job,
        rank,
        protocol: Protocol::V2,
        request: request.to_vec(),
    })
}

fn resolved(ranks: u32, hosts: &[&str]) -> Result<SpawnProgram, (u8, String)> {
    let hosts = hosts.iter().map(|&host| Host::new(host)).collect();
    Ok(SpawnProgram { program: program(ranks), hosts, spread: None, stopped: Stopped::No })
}

fn complete(node: u32, upcall: u32, started: bool, codes: &[u8]) -> (Destination, Order) {
    let (upcall, codes) = (UpcallId(upcall), codes.to_vec());
    to_node(node, Order::Input(OwnedInput::SpawnComplete { spawn: upcall, started, full: None, codes }))
}

fn answer(node: u32, upcall: u32, result: Result<(), Refusal>) -> (Destination, Order) {
    let (rc, text) = match result {
        Ok(()) => (0, Vec::new()),
        Err(why) => (why.rc(), why.to_string().into_bytes()),
    };
    to_node(node, Order::Input(OwnedInput::UpcallComplete { upcall: UpcallId(upcall), rc, text }))
}

/// The blocks of the job that the last order starts.
fn started_blocks(run: &mut Run) -> Vec<(u32, u32, u32)> {
    let sent = run.take_sent();
    let Some((Destination::All, Order::StartJob(record))) = sent.last() else { panic!("{sent:?}") };
    record.blocks.iter().map(|&RankBlock { node, first, count }| (node, first, count)).collect()
}

#[test]
fn a_spawn_starts_on_free_slots_and_is_answered_when_all_ranks_run() {
    let mut first = first_job(2, 1);
    first.nonce = 9;
    let mut run = Run::new(config(3), first);
    run.event(Event::AllJoined);
    run.programs = vec![resolved(3, &[])];
    run.report(2, spawn(1, 4));
    let record = match run.sent.last() {
        Some((Destination::All, Order::StartJob(record))) => (**record).clone(),
        other => panic!("{other:?}"),
    };
    let origin = record.spawned.clone().expect("it is spawned");
    assert_eq!((origin.node, origin.upcall, record.ordinal), (2, UpcallId(4), 1));
    assert_eq!(origin.preput, [(b"parent".to_vec(), b"port7".to_vec())]);
    // One slot is free on node 2, then two on node 3.
    assert_eq!(started_blocks(&mut run), [(2, 0, 1), (3, 1, 2)]);
    run.start(3, JobId(1), &[1, 2]);
    assert_eq!(run.take_sent(), []);
    run.start(2, JobId(1), &[0]);
    assert_eq!(run.take_sent(), [complete(2, 4, true, &[0])]);
    run.report(2, Report::JobStarted(JobId(1)));
    assert_eq!(run.take_sent(), [], "answered once");
}

#[test]
fn a_spawn_goes_to_named_hosts() {
    let mut run = Run::started(3);
    run.programs = vec![resolved(2, &["n3"]), resolved(1, &["n1"])];
    run.report(1, spawn(0, 0));
    assert_eq!(started_blocks(&mut run), [(3, 0, 2), (1, 2, 1)]);
}

/// A host file says how many ranks a host gets in turn, and at most.
#[test]
fn a_spawn_has_slots_of_its_own_on_named_hosts() {
    let mut run = Run::started(3);
    let on = |host: &str, slots, max_slots| Host { slots, max_slots, ..Host::new(host) };
    let hosts = vec![on("n3", Some(1), None), on("n2", Some(8), Some(3)), on("n1", None, None)];
    run.programs = vec![resolved(3, &[]).map(|program| SpawnProgram { hosts, ..program })];
    run.report(1, spawn(0, 0));
    assert_eq!(started_blocks(&mut run), [(3, 0, 1), (2, 1, 1), (1, 2, 1)]);
}

// Fault: A rank of a spawned job fails while another host cannot start its ranks
// Outcome: the spawn is refused; the exit code is not the rank's
// Guarantee: Failures count once all ranks of the job have been started
// Also: hydrant-control `a_rank_that_fails_before_all_have_been_started_counts_from_then_on`
#[test]
fn a_spawn_that_fails_on_one_of_two_nodes_is_undone() {
    let mut run = Run::started(2);
    run.programs = vec![resolved(4, &["n1", "n2"])];
    run.report(1, spawn(0, 3));
    let job = JobId(1);
    run.take_sent();
    run.start(1, job, &[0, 1]);
    // The job does not exist for its spawner, so this is no failure of the run.
    run.report(1, exited(job, 0, Exit::Code(3)));
    run.report(2, Report::StartFailed { job, error: start_error("not found") });
    assert_eq!(run.take_sent(), [to_all(Order::CancelJob(job))]);
    run.report(2, Report::JobDone(job));
    run.report(1, exited(job, 1, Exit::Signal(9)));
    run.report(1, Report::JobDone(job));
    assert_eq!(run.take_sent(), [to_all(Order::DeregisterJob(job)), complete(1, 3, false, &[2])]);
    assert!(run.others.contains(&Action::DeregisterJob { job }));
    assert!(run.others.iter().any(|action| matches!(action, Action::CloseJob { job: of, .. } if *of == job)));
    run.succeed(1);
    run.succeed(2);
    run.ended(0, &["spawned job 1 is ended before it began: host n2: not found"]);
}

// Fault: A host without ranks of a spawned job cannot register it after the spawn was answered
// Outcome: the run ends with code 1; the host is named
// Guarantee: A job that was reported as running does not end with 0 before its ranks do
#[test]
fn a_spawned_job_that_is_canceled_after_the_answer_has_failed() {
    let mut run = Run::started(2);
    run.programs = vec![resolved(1, &["n2"])];
    run.report(1, spawn(0, 3));
    let job = JobId(1);
    run.start(2, job, &[0]);
    run.take_sent();
    // A node without ranks of the job cannot register it.
    run.report(1, Report::StartFailed { job, error: StartError { code: 0, ..start_error("no room") } });
    assert_eq!(run.take_sent(), [to_all(Order::CancelJob(job))]);
    run.report(2, exited(job, 0, Exit::Signal(9)));
    run.report(2, Report::JobDone(job));
    run.succeed(1);
    run.succeed(2);
    run.ended(1, &["spawned job 1 is ended: host n1: no room"]);
}

#[test]
fn a_spawn_that_cannot_be_read_or_placed_is_refused() {
    let mut run = Run::started(1);
    run.programs = vec![resolved(1, &[]), Err((2, "b.out: no such host".into()))];
    run.report(1, spawn(1, 0));
    assert_eq!(run.take_sent(), [complete(1, 0, false, &[crate::protocol::CANCELED, 2])]);
    run.head.config.hosts[0].max_slots = Some(2);
    run.programs = vec![resolved(1, &[])];
    run.report(1, spawn(1, 0));
    assert_eq!(run.take_sent(), [complete(1, 0, false, &[22])]);
    run.head.config.hosts[0].max_slots = None;
    run.refuse_open = Some(StartError { limit: Some(Limit::Jobs), errno: 28, ..start_error("no room") });
    run.report(1, spawn(1, 0));
    let full = Order::Input(OwnedInput::SpawnComplete {
        spawn: UpcallId(0),
        started: false,
        full: Some(Limit::Jobs),
        codes: vec![28],
    });
    assert_eq!(run.take_sent(), [to_node(1, full)]);
    assert_eq!(run.printed[0], "nothing is spawned for rank 1: b.out: no such host");
    assert_eq!(run.printed[2], "nothing is spawned for rank 1: no room");
    run.report(1, spawn(1, 0));
    assert!(matches!(run.sent.last(), Some((_, Order::StartJob(record))) if record.ordinal == 1));
}

#[test]
fn nothing_is_spawned_once_the_run_ends() {
    let mut run = Run::started(1);
    run.event(Event::Signal(libc::SIGTERM));
    run.take_sent();
    run.report(1, spawn(0, 2));
    assert_eq!(run.take_sent(), [complete(1, 2, false, &[crate::protocol::CANCELED])]);
}

/// A rank may ask before the order to end it arrives. The job that it asks for could need a node that is lost.
#[test]
fn a_rank_that_fails_before_all_have_been_started_counts_from_then_on() {
    let mut run = Run::started(2);
    run.programs = vec![resolved(4, &["n1", "n2"])];
    run.report(1, spawn(0, 3));
    let job = JobId(1);
    run.start(1, job, &[0, 1]);
    run.report(1, exited(job, 0, Exit::Code(3)));
    run.report(1, exited(job, 1, Exit::Code(0)));
    run.report(1, Report::JobDone(job));
    run.take_sent();
    run.start(2, job, &[2, 3]);
    assert_eq!(run.take_sent(), [complete(1, 3, true, &[0])]);
    run.report(2, exited(job, 2, Exit::Code(0)));
    run.report(2, exited(job, 3, Exit::Code(0)));
    run.report(2, Report::JobDone(job));
    run.succeed(1);
    run.succeed(2);
    run.ended(3, &["rank 0 of spawned job 1 on n1, pid 100, program a.out exited with code 3"]);
}

// Fault: A rank of a job that cannot be started as a whole spawns
// Outcome: the spawn is refused; the run ends
// Guarantee: A job that ends starts no further job
// Also: hydrant-control `a_job_that_is_canceled_while_its_spawn_is_read_spawns_nothing`
#[test]
fn a_canceled_job_spawns_nothing() {
    let mut run = Run::new(config(3), first_job(3, 2));
    run.event(Event::AllJoined);
    run.start(1, FIRST, &[0, 1]);
    run.report(2, Report::StartFailed { job: FIRST, error: start_error("not found") });
    run.lose(3..4);
    run.take_sent();
    run.programs = vec![resolved(1, &["n3"])];
    run.report(1, spawn(0, 2));
    let canceled = complete(1, 2, false, &[crate::protocol::CANCELED]);
    assert_eq!(run.take_sent(), [canceled]);
    run.report(2, Report::JobDone(FIRST));
    run.exit(1, 0, Exit::Signal(9));
    run.exit(1, 1, Exit::Signal(9));
    run.report(1, Report::JobDone(FIRST));
    run.ended(127, &["host n2: not found"]);
}

#[test]
fn a_job_that_is_canceled_while_its_spawn_is_read_spawns_nothing() {
    let mut run = Run::new(config(2), first_job(2, 2));
    run.event(Event::AllJoined);
    run.start(1, FIRST, &[0, 1]);
    run.head.handle(0, Event::Message { node: 1, bytes: &encode(&spawn(0, 2)) }).expect("a valid report");
    let request = match run.head.poll() {
        Some(Action::ResolveSpawn { request, .. }) => request,
        other => panic!("{other:?}"),
    };
    run.report(2, Report::StartFailed { job: FIRST, error: start_error("not found") });
    run.take_sent();
    run.event(Event::SpawnResolved { request, nonce: 2, programs: vec![resolved(1, &[])] });
    assert_eq!(run.take_sent(), [complete(1, 2, false, &[crate::protocol::CANCELED])]);
}

// Fault: The job of a spawn whose hosts still have to join ends, and another job gets its number
// Outcome: nothing is spawned, and the node of the spawn is told
// Guarantee: A spawn belongs to the job that has asked for it
#[test]
fn a_spawn_that_is_read_after_its_job_has_ended_spawns_nothing() {
    let mut run = Run::started(2);
    run.programs = vec![resolved(1, &["n1"])];
    run.report(1, spawn(0, 3));
    run.start(1, JobId(1), &[0]);
    run.head.handle(0, Event::Message { node: 1, bytes: &encode(&spawn(0, 4)) }).expect("a valid report");
    let request = match run.head.poll() {
        Some(Action::ResolveSpawn { request, .. }) => request,
        other => panic!("{other:?}"),
    };
    run.succeed(1);
    run.succeed(2);
    run.take_sent();
    let Report::Output(OwnedOutput::Spawn { spawn: upcall, rank, protocol, request: body, .. }) = spawn(0, 5)
    else {
        panic!("a spawn")
    };
    let job = JobId(1);
    run.report(1, Report::Output(OwnedOutput::Spawn { spawn: upcall, job, rank, protocol, request: body }));
    assert_eq!(run.head.jobs()[FIRST].ordinal, 2, "the number is in use again");
    run.take_sent();
    run.event(Event::SpawnResolved { request, nonce: 2, programs: vec![resolved(1, &[])] });
    assert_eq!(run.take_sent(), [complete(1, 4, false, &[crate::protocol::CANCELED])]);
}

#[test]
fn the_spawn_of_a_lost_node_is_not_answered() {
    let mut run = Run::started(2);
    run.programs = vec![resolved(1, &["n1"])];
    run.report(2, spawn(2, 3));
    run.lose(2..3);
    run.take_sent();
    run.start(1, JobId(1), &[0]);
    run.report(1, exited(JobId(1), 0, Exit::Signal(15)));
    run.report(1, Report::JobDone(JobId(1)));
    assert_eq!(run.take_sent(), [to_all(Order::DeregisterJob(JobId(1)))]);
}

#[test]
fn names_of_two_nodes_are_answered_each() {
    let mut run = Run::started(2);
    let publish = b"cmd=name-publish;name=ocean;port=p1;";
    let lookup = b"cmd=name-lookup;name=ocean;";
    run.report(1, upcall(0, 8, publish));
    run.report(2, upcall(2, 8, lookup));
    let requests: Vec<_> = run
        .others
        .iter()
        .filter_map(|action| match action {
            Action::CallNameService { request, upcall } => Some((*request, upcall.rank.0)),
            _ => None,
        })
        .collect();
    assert_eq!(requests, [(RequestId(0), 0), (RequestId(1), 2)]);
    let reply = |request, rc, text: &[u8]| Event::UpcallReply { request, rc, text: text.to_vec() };
    run.event(reply(RequestId(1), 0, b"p1"));
    run.event(reply(RequestId(0), 1, b"taken"));
    run.event(reply(RequestId(0), 0, b"again"));
    let order = |rc, text: &[u8]| {
        Order::Input(OwnedInput::UpcallComplete { upcall: UpcallId(8), rc, text: text.to_vec() })
    };
    assert_eq!(run.take_sent(), [to_node(2, order(0, b"p1")), to_node(1, order(1, b"taken"))]);
}

#[test]
fn lookups_of_an_ended_rank_are_canceled() {
    let mut run = Run::started(1);
    run.report(1, upcall(1, 0, b"cmd=name-lookup;name=ocean;"));
    run.others.clear();
    run.exit(1, 1, Exit::Code(0));
    assert_eq!(run.others, [Action::CancelLookups { job: FIRST, rank: Rank(1) }]);
}

#[test]
fn a_process_set_changes_on_all_nodes_before_the_answer() {
    let mut run = Run::started(2);
    let define = b"cmd=pset-define;name=left;members=0,1,3;";
    run.report(2, upcall(2, 1, define));
    let (job, rank, request) = (FIRST, Rank(2), RequestId(0));
    let action =
        Action::Apply { request, input: OwnedInput::PsetRequest { job, rank, request: define.to_vec() } };
    assert_eq!((run.others.pop(), run.take_sent()), (Some(action), Vec::new()));
    run.event(Event::BackendReply { request, result: Ok(()) });
    let order = Order::Input(OwnedInput::PsetRequest { job, rank, request: define.to_vec() });
    assert_eq!(run.take_sent(), [to_all(order), answer(2, 1, Ok(()))]);
    run.report(1, upcall(0, 5, define));
    run.event(Event::BackendReply { request, result: Err(Refusal::PsetTaken) });
    assert_eq!(run.take_sent(), [answer(1, 5, Err(Refusal::PsetTaken))]);
    for (upcall_id, body) in [(6, &b"cmd=pset-retire;name=left;"[..]), (7, b"cmd=pset-prune;")] {
        run.others.clear();
        run.report(1, upcall(0, upcall_id, body));
        let (rank, body) = (Rank(0), body.to_vec());
        assert_eq!(
            run.others,
            [Action::Apply { request, input: OwnedInput::PsetRequest { job, rank, request: body.clone() } }]
        );
        run.event(Event::BackendReply { request, result: Ok(()) });
        let order = Order::Input(OwnedInput::PsetRequest { job, rank, request: body });
        assert_eq!(run.take_sent(), [to_all(order), answer(1, upcall_id, Ok(()))]);
    }
}

#[test]
fn a_process_set_of_a_pmix_client_reaches_all_nodes_before_what_follows() {
    let mut run = Run::started(2);
    let request = b"cmd=pset-define;name=left;members=0,1,3;".to_vec();
    let input = OwnedInput::PsetRequest { job: FIRST, rank: Rank(0), request };
    for rank in 0..4 {
        let report = encode(&exited(FIRST, rank, Exit::Code(0)));
        run.head.handle(0, Event::Message { node: 1 + rank / 2, bytes: &report }).expect("it is valid");
    }
    run.event(Event::SetsChanged(input.clone()));
    assert_eq!(run.take_sent().first(), Some(&to_all(Order::Input(input))));
}

// Fault: A job ends while another one changes process sets of its ranks
// Outcome: the set is on all nodes or on none
// Guarantee: Orders reach the nodes in the order in which the head applied them
#[test]
fn a_change_of_process_sets_goes_before_the_end_of_a_job_that_follows_it() {
    let mut run = Run::started(1);
    run.programs = vec![resolved(1, &[])];
    run.report(1, spawn(0, 0));
    let child = JobId(1);
    run.start(1, child, &[0]);
    // The request waits for the host while the spawned job ends.
    let combine = b"cmd=pset-combine;name=own;operation=intersection;pset1=both;pset2=mpi://WORLD;";
    for report in [upcall(0, 2, combine), exited(child, 0, Exit::Code(0)), Report::JobDone(child)] {
        run.head.handle(0, Event::Message { node: 1, bytes: &encode(&report) }).expect("it is valid");
    }
    let mut orders = Vec::new();
    while let Some(action) = run.head.poll() {
        match action {
            Action::Apply { request, .. } => {
                let reply = Event::BackendReply { request, result: Ok(()) };
                run.head.handle(0, reply).expect("the run goes on");
            }
            Action::Send { to: Destination::All, order } => orders.push(order),
            _ => {}
        }
    }
    let change =
        Order::Input(OwnedInput::PsetRequest { job: FIRST, rank: Rank(0), request: combine.to_vec() });
    assert_eq!(orders, [change, Order::DeregisterJob(child)]);
}

#[test]
fn jobs_are_connected_by_name() {
    let mut run = Run::started(1);
    run.programs = vec![resolved(1, &[])];
    run.report(1, spawn(0, 0));
    let name = run.head.jobs()[JobId(1)].name.clone();
    run.take_sent();
    run.others.clear();
    run.report(1, upcall(0, 2, format!("cmd=job-connect;jobid={name};").as_bytes()));
    let (request, job, other) = (RequestId(0), FIRST, JobId(1));
    assert_eq!(
        run.others,
        [Action::Apply { request, input: OwnedInput::Connected { job, other, connected: true } }]
    );
    run.event(Event::BackendReply { request, result: Ok(()) });
    assert_eq!(
        run.take_sent(),
        [to_all(Order::Input(OwnedInput::Connected { job, other, connected: true })), answer(1, 2, Ok(()))]
    );
    // The name service knows the jobs of other runs.
    run.others.clear();
    for (upcall_number, body) in
        [(3, "cmd=job-connect;jobid=elsewhere;"), (4, "cmd=kvs-get;jobid=elsewhere;key=k;")]
    {
        run.report(1, upcall(0, upcall_number, body.as_bytes()));
        let (id, rank, protocol) = (UpcallId(upcall_number), Rank(0), Protocol::V2);
        let upcall = Upcall { node: 1, id, job, rank, protocol, request: body.into() };
        let action = Action::CallNameService { request, upcall };
        assert_eq!((run.others.pop(), run.take_sent()), (Some(action), Vec::new()));
        let (rc, text) = (Refusal::NoJob.rc(), Refusal::NoJob.to_string().into_bytes());
        run.event(Event::UpcallReply { request, rc, text });
        assert_eq!(run.take_sent(), [answer(1, upcall_number, Err(Refusal::NoJob))]);
    }
    run.report(1, upcall(0, 4, b"rubbish"));
    assert_eq!(run.take_sent(), [answer(1, 4, Err(Refusal::BadField))]);
}

#[test]
fn a_spawn_goes_to_hosts_that_are_left() {
    let mut run = Run::going_on(3, ExitCodeOf::First);
    run.lose(2..3);
    run.programs = vec![resolved(3, &[])];
    run.report(1, spawn(0, 4));
    assert_eq!(started_blocks(&mut run), [(1, 0, 2), (3, 2, 1)]);
    run.programs = vec![resolved(1, &["n3"])];
    run.report(1, spawn(0, 5));
    assert_eq!(started_blocks(&mut run), [(3, 0, 1)]);
    run.programs = vec![resolved(1, &["n2"])];
    run.report(1, spawn(0, 6));
    assert_eq!(run.take_sent(), [complete(1, 6, false, &[22])]);
    assert_eq!(
        run.printed[1],
        "nothing is spawned for rank 0: host n2 is not in the run any more: name another one"
    );
}
