//! Hosts that join.

use hydrant_core::server::JobSpec;
use hydrant_core::{OwnedInput, OwnedOutput, UpcallId, wire::Protocol};

use super::*;
use crate::protocol::{BackendFailure, CANCELED, REQUESTS_MAX, RankBlock};

/// A run on two hosts that may have so many.
fn run_of(most: u32) -> Run {
    Run::with(Config { late: most - 2, least: Some(1), ..config(2) })
}

fn name(run: &mut Run, request: u64, host: &str) {
    run.event(Event::HostNamed { request, host: Host::with_slots(host, 4), may_be_there: false });
}

/// Answer to a request.
type Answer = (u64, Result<u32, String>);

/// Nodes whose daemons are to be started, and answers, since the last call.
fn take_growth(run: &mut Run) -> (Vec<u32>, Vec<Answer>) {
    let (mut started, mut answers) = (Vec::new(), Vec::new());
    for action in std::mem::take(&mut run.others) {
        match action {
            Action::StartDaemon { node, .. } => started.push(node),
            Action::HostChanged { request, result, .. } => {
                answers.push((request, result.map_err(|why| why.text)));
            }
            _ => {}
        }
    }
    (started, answers)
}

fn joined(epoch: u32, node: u32) -> Order {
    Order::Input(OwnedInput::NodeJoined { epoch, node })
}

/// A rank of the first job asks for a process set.
fn define(run: &mut Run, set: &str) {
    let request = format!("cmd=pset-define;name={set};members=0;").into_bytes();
    let (upcall, job, rank, protocol) = (UpcallId(1), FIRST, Rank(0), Protocol::V2);
    run.report(1, Report::Output(OwnedOutput::Upcall { upcall, job, rank, protocol, request }));
    let applied = run.others.iter().find_map(|action| match action {
        Action::Apply { request, .. } => Some(*request),
        _ => None,
    });
    run.others.clear();
    run.event(Event::BackendReply { request: applied.expect("the set is applied"), result: Ok(()) });
}

#[test]
fn a_host_that_joins_is_told_what_all_know_before_the_change() {
    let mut run = run_of(4);
    define(&mut run, "one");
    let [gone, tool] = [JobId(62), JobId(63)];
    for job in [gone, tool] {
        let spec = JobSpec::new(job, "tool", 1).map(|name| (*name).to_owned());
        run.head.note_sent(&Order::Input(OwnedInput::RegisterJob(spec)));
        let attr = OwnedInput::Attr { job, key: b"tool".to_vec(), value: b"tool".to_vec() };
        run.head.note_sent(&Order::Input(attr));
    }
    run.head.note_sent(&Order::Input(OwnedInput::DeregisterJob { job: gone }));
    run.sent.clear();
    name(&mut run, 7, "c");
    assert_eq!((take_growth(&mut run), run.take_sent()), ((vec![3], vec![]), vec![]));
    define(&mut run, "two");
    run.sent.clear();
    run.event(Event::Joined { node: 3 });
    let sent = run.take_sent();
    let kind = |order: &Order| match order {
        Order::Setup(_) => "setup",
        Order::StartJob(record) if record.id == FIRST => "job",
        Order::Input(OwnedInput::PsetRequest { .. }) => "set",
        Order::Input(OwnedInput::RegisterJob(spec)) if spec.job == tool => "tool",
        Order::Input(OwnedInput::Attr { job, .. }) if *job == tool => "tool's name",
        order if *order == joined(1, 3) => "joined",
        other => panic!("{other:?}"),
    };
    let sent: Vec<_> = sent.iter().map(|(to, order)| (*to, kind(order))).collect();
    let to = Destination::Node(3);
    let history = ["setup", "job", "set", "tool", "tool's name", "set"].map(|order| (to, order));
    assert_eq!(sent.split_last(), Some((&(Destination::All, "joined"), &history[..])));
    let change = Action::ChangeMembership(OwnedInput::NodeJoined { epoch: 1, node: 3 });
    let others = std::mem::take(&mut run.others);
    let [first, Action::IncludeNode { node: 3 }, Action::HostChanged { request: 7, result: Ok(3), .. }] =
        &*others
    else {
        panic!("{others:?}")
    };
    assert_eq!(*first, change);
    // A spawn goes there at once.
    run.programs = vec![Ok(SpawnProgram {
        program: program(4),
        hosts: vec![Host::new("c")],
        spread: None,
        stopped: Stopped::No,
    })];
    let (spawn, job, rank, protocol) = (UpcallId(2), FIRST, Rank(0), Protocol::V1);
    let request = b"mcmd=spawn\nnprocs=4\nexecname=b\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";
    run.report(
        1,
        Report::Output(OwnedOutput::Spawn { spawn, job, rank, protocol, request: request.to_vec() }),
    );
    let sent = run.take_sent();
    let [(Destination::All, Order::StartJob(record))] = &*sent else { panic!("{sent:?}") };
    assert_eq!(record.blocks, [RankBlock { node: 3, first: 0, count: 4 }]);
}

#[test]
fn what_is_over_is_not_told() {
    let mut run = run_of(3);
    define(&mut run, "one");
    spawn(&mut run, 2, 1, &[]);
    let spawned = JobId(1);
    let node = run.head.jobs()[spawned].run.node(0);
    run.start(node, spawned, &[0]);
    run.succeed(1);
    run.succeed(2);
    run.take_sent();
    name(&mut run, 1, "c");
    run.event(Event::Joined { node: 3 });
    let jobs: Vec<_> =
        run.take_sent().into_iter().filter(|(_, order)| !matches!(order, Order::Setup(_))).collect();
    let [(_, Order::StartJob(record)), (_, change)] = &*jobs else { panic!("{jobs:?}") };
    assert_eq!((record.id, change), (spawned, &joined(1, 3)));
}

/// A spawn takes hosts that are there or that are joining as they are.
#[test]
fn requests_that_take_known_hosts_share_them() {
    let mut run = run_of(3);
    let add = |run: &mut Run, request: u64, host: &str| {
        run.event(Event::HostNamed { request, host: Host::new(host), may_be_there: true });
        take_growth(run)
    };
    assert_eq!(add(&mut run, 1, "n2"), (vec![], vec![(1, Ok(2))]));
    assert_eq!(add(&mut run, 2, "c"), (vec![3], vec![]));
    assert_eq!(add(&mut run, 3, "c"), (vec![], vec![]));
    let reason = "no route to host".to_owned();
    run.event(Event::NodesLost { nodes: 3..4, reason: reason.clone() });
    assert_eq!(take_growth(&mut run).1, [(2, Err(reason.clone())), (3, Err(reason))]);
    // One that does not is refused, and the others get the host.
    assert_eq!(add(&mut run, 4, "c"), (vec![3], vec![]));
    name(&mut run, 5, "c");
    assert_eq!(add(&mut run, 6, "c"), (vec![], vec![(5, Err("host c is in the run already".to_owned()))]));
    run.event(Event::Joined { node: 3 });
    assert_eq!(take_growth(&mut run), (vec![], vec![(4, Ok(3)), (6, Ok(3))]));
    assert_eq!(add(&mut run, 7, "c"), (vec![], vec![(7, Ok(3))]));
    // The hosts of other runs are fixed.
    let mut fixed = Run::started(2);
    assert_eq!(add(&mut fixed, 1, "n1"), (vec![], vec![(1, Ok(1))]));
    let why = "hosts cannot join this run: start it with --elastic HOSTS".to_owned();
    assert_eq!(add(&mut fixed, 2, "c"), (vec![], vec![(2, Err(why))]));
}

#[test]
fn hosts_are_refused_by_name_and_their_numbers_are_free_again() {
    let mut run = run_of(3);
    let refused = |run: &mut Run, host: &str| {
        name(run, 5, host);
        let (started, answers) = take_growth(run);
        let [(5, Err(why))] = &*answers else { panic!("{answers:?}") };
        assert_eq!(started, []);
        why.clone()
    };
    assert_eq!(refused(&mut run, "n2"), "host n2 is in the run already");
    for try_of in ["bad", "worse"] {
        name(&mut run, 6, try_of);
        assert_eq!(take_growth(&mut run).0, [3]);
        assert_eq!(refused(&mut run, try_of), format!("host {try_of} is in the run already"));
        assert!(refused(&mut run, "d").starts_with("the run may have 3 hosts"));
        let reason = "no route to host".to_owned();
        run.event(Event::NodesLost { nodes: 3..4, reason: reason.clone() });
        assert_eq!(take_growth(&mut run).1, [(6, Err(reason))]);
    }
    assert_eq!((run.take_sent(), run.head.members().collect::<Vec<_>>()), (vec![], vec![1, 2]));
    name(&mut run, 8, "c");
    run.event(Event::Joined { node: 3 });
    assert_eq!(take_growth(&mut run), (vec![3], vec![(8, Ok(3))]));
    assert_eq!(run.head.members().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(
        refused(&mut run, "d"),
        "the run may have 3 hosts, and has had them: start it with a higher --elastic"
    );
    assert_eq!(
        refused(&mut Run::started(2), "c"),
        "hosts cannot join this run: start it with --elastic HOSTS"
    );
}

// Fault: A host that joins cannot serve ranks: it cannot write its recording, or load the plugin
// Outcome: it is refused with the reason, and its number is free once its daemon has ended; no job notices
// Guarantee: A host is a member of the run once it has applied the settings
#[test]
fn a_host_that_cannot_serve_ranks_does_not_join() {
    let setup = Setup { record: Some("/scratch/f.rec".into()), ..setup() };
    let elastic = Config { late: 1, least: Some(1), ..config(1) };
    let mut run = Run::new(elastic, FirstJob { setup: setup.clone(), ..first_job(1, 2) });
    run.event(Event::AllJoined);
    run.report(1, Report::Ready);
    run.start(1, FIRST, &[0, 1]);
    run.take_sent();
    name(&mut run, 7, "c");
    run.event(Event::Joined { node: 2 });
    assert_eq!(run.take_sent(), [to_node(2, Order::Setup(Box::new(setup)))]);
    assert_eq!(take_growth(&mut run), (vec![2], vec![]));
    run.report(2, Report::BackendFailed(BackendFailure::Own("no such folder".into())));
    assert_eq!(run.take_sent(), [to_node(2, Order::End)]);
    assert_eq!(take_growth(&mut run), (vec![], vec![]), "its daemon runs");
    run.lose(2..3);
    assert_eq!(take_growth(&mut run).1, [(7, Err("host c (node 2): no such folder".to_owned()))]);
    assert_eq!((run.take_sent(), run.printed.len()), (vec![], 0));
    assert!(!run.head.jobs()[FIRST].is_ending());
    name(&mut run, 8, "c");
    run.event(Event::Joined { node: 2 });
    run.report(2, Report::Ready);
    assert_eq!(take_growth(&mut run), (vec![2], vec![(8, Ok(2))]));
    assert_eq!(run.take_sent().last(), Some(&to_all(joined(1, 2))));
}

#[test]
fn a_host_that_is_named_early_joins_when_the_first_job_has_started() {
    let mut run = Run::new(Config { late: 1, least: Some(1), ..config(1) }, first_job(1, 1));
    name(&mut run, 1, "c");
    assert_eq!(take_growth(&mut run), (vec![], vec![]));
    run.event(Event::AllJoined);
    assert_eq!(take_growth(&mut run), (vec![2], vec![]));
    run.event(Event::Joined { node: 2 });
    assert_eq!(take_growth(&mut run), (vec![], vec![(1, Ok(2))]));
}

// Fault: Ranks have changed process sets more often than hosts that join are told
// Outcome: hosts are refused until the jobs of these ranks are over
// Guarantee: Only what there is counts
#[test]
fn a_run_with_too_many_requests_takes_no_hosts_until_their_jobs_are_over() {
    let mut run = run_of(3);
    spawn(&mut run, 2, 1, &[]);
    let spawned = JobId(1);
    let node = run.head.jobs()[spawned].run.node(0);
    run.start(node, spawned, &[0]);
    (0..=REQUESTS_MAX).for_each(|_| define(&mut run, "one"));
    name(&mut run, 1, "c");
    let (_, answers) = take_growth(&mut run);
    assert!(matches!(&*answers, [(1, Err(why))] if why.contains("too often")), "{answers:?}");
    run.succeed(1);
    run.succeed(2);
    name(&mut run, 2, "c");
    assert_eq!(take_growth(&mut run), (vec![3], vec![]));
    run.event(Event::Joined { node: 3 });
    assert_eq!(take_growth(&mut run), (vec![], vec![(2, Ok(3))]));
}

// Fault: Ranks change process sets too often while the daemon of a host is being started
// Outcome: the host does not join, and its daemon ends; its number is free again
// Guarantee: A node that joins is told everything
#[test]
fn a_host_that_can_no_longer_be_told_everything_does_not_join() {
    let mut run = run_of(3);
    name(&mut run, 1, "c");
    assert_eq!(take_growth(&mut run), (vec![3], vec![]));
    (0..=REQUESTS_MAX).for_each(|_| define(&mut run, "one"));
    run.take_sent();
    run.event(Event::Joined { node: 3 });
    assert_eq!((run.take_sent(), &*run.others), (vec![], &[Action::DismissNode { node: 3 }][..]));
    run.event(Event::NodeEnded { node: 3 });
    let (_, answers) = take_growth(&mut run);
    assert!(matches!(&*answers, [(1, Err(why))] if why.contains("too often")), "{answers:?}");
    assert_eq!(run.head.members().collect::<Vec<_>>(), [1, 2]);
}

// Fault: A host that has joined is lost in a run that goes on after failures
// Outcome: the servers get the next change, and the name may join again under another number
// Guarantee: A node that was a member never is again
#[test]
fn a_lost_newcomer_keeps_its_number() {
    let mut run = Run::with(Config { late: 2, least: Some(1), cleanup: false, ..config(2) });
    name(&mut run, 1, "c");
    run.event(Event::Joined { node: 3 });
    run.lose(3..4);
    run.take_sent();
    name(&mut run, 2, "c");
    run.event(Event::Joined { node: 4 });
    assert_eq!(run.take_sent().last(), Some(&to_all(joined(3, 4))));
    assert_eq!(run.head.members().collect::<Vec<_>>(), [1, 2, 4]);
}

/// A run on two of four hosts: `n3` and `n4`, with two slots each, have no daemon.
fn run_with_unused() -> Run {
    let mut run = Run::new(Config { unused: 2, cleanup: false, ..config(4) }, first_job(2, 2));
    run.event(Event::AllJoined);
    (1..=2).for_each(|node| run.start(node, FIRST, &[2 * node - 2, 2 * node - 1]));
    run.sent.clear();
    run.others.clear();
    run
}

/// Rank 0 spawns a program on these hosts, or where there is room.
fn spawn(run: &mut Run, upcall: u32, ranks: u32, hosts: &[&str]) {
    let hosts = hosts.iter().map(|host| Host::new(host)).collect();
    run.programs =
        vec![Ok(SpawnProgram { program: program(ranks), hosts, spread: None, stopped: Stopped::No })];
    let (spawn, job, rank, protocol) = (UpcallId(upcall), FIRST, Rank(0), Protocol::V1);
    let request = b"mcmd=spawn\nnprocs=1\nexecname=b\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";
    let request = request.to_vec();
    run.report(1, Report::Output(OwnedOutput::Spawn { spawn, job, rank, protocol, request }));
}

/// Nodes of a job with their numbers of ranks.
type Blocks = Vec<(u32, u32)>;

/// Jobs whose start was ordered, and codes of spawns that are refused, since the last call.
fn take_spawned(run: &mut Run) -> (Vec<Blocks>, Vec<(u32, Vec<u8>)>) {
    let (mut jobs, mut refused) = (Vec::new(), Vec::new());
    for (to, order) in run.take_sent() {
        match order {
            Order::StartJob(record) if to == Destination::All => {
                jobs.push(record.blocks.iter().map(|block| (block.node, block.count)).collect());
            }
            Order::Input(OwnedInput::SpawnComplete { spawn, started: false, codes, .. }) => {
                refused.push((spawn.0, codes));
            }
            _ => {}
        }
    }
    (jobs, refused)
}

#[test]
fn a_spawn_waits_for_the_daemons_of_unused_hosts() {
    let mut run = run_with_unused();
    assert_eq!(run.head.unused_hosts().map(|host| &*host.name).collect::<Vec<_>>(), ["n3", "n4"]);
    assert_eq!(run.head.members().collect::<Vec<_>>(), [1, 2]);
    spawn(&mut run, 5, 3, &[]);
    assert_eq!((take_growth(&mut run), take_spawned(&mut run)), ((vec![3, 4], vec![]), (vec![], vec![])));
    // Another one takes the host that is on its way.
    spawn(&mut run, 6, 1, &["n3"]);
    assert_eq!((take_growth(&mut run), take_spawned(&mut run)), ((vec![], vec![]), (vec![], vec![])));
    run.event(Event::Joined { node: 3 });
    assert_eq!(take_spawned(&mut run), (vec![vec![(3, 1)]], vec![]));
    // One of the slots is taken meanwhile, so the ranks are placed anew: all slots, because not enough are free.
    run.event(Event::Joined { node: 4 });
    let (jobs, refused) = take_spawned(&mut run);
    assert_eq!((jobs.len(), refused), (1, vec![]));
    assert_eq!(jobs[0].iter().map(|(_, count)| count).sum::<u32>(), 3);
    assert_eq!(run.head.members().collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(run.head.unused_hosts().count(), 0);
}

/// Both daemons connect before the head tells either. The job begins when both know of all jobs of before.
#[test]
fn a_job_begins_behind_all_hosts_that_join() {
    let mut run = run_with_unused();
    spawn(&mut run, 5, 2, &["n3"]);
    spawn(&mut run, 6, 2, &["n4"]);
    run.head.handle(0, Event::Joined { node: 3 }).unwrap();
    run.event(Event::Joined { node: 4 });
    let sent = run.take_sent();
    let last_change = sent.iter().rposition(|(_, order)| *order == joined(2, 4)).unwrap();
    let is_new = |(_, order): &(Destination, Order)| matches!(order, Order::StartJob(job) if job.id != FIRST);
    assert_eq!(sent.iter().filter(|sent| is_new(sent)).count(), 2);
    assert!(sent.iter().position(is_new) > Some(last_change), "{sent:?}");
}

// Fault: A spawn needs a host of the run that has no daemon, and the daemon cannot be started
// Outcome: the spawn is refused with the name of the host, and the job goes on; the next spawn there tries again
// Guarantee: Spawns that wait are answered, each with what has become of its hosts
#[test]
fn a_spawn_is_refused_if_an_unused_host_cannot_be_started() {
    let mut run = run_with_unused();
    spawn(&mut run, 5, 4, &[]);
    spawn(&mut run, 6, 1, &["n4"]);
    assert_eq!(take_growth(&mut run).0, [3, 4]);
    let reason = "host n3 (node 3): no route to host".to_owned();
    run.event(Event::NodesLost { nodes: 3..4, reason: reason.clone() });
    assert_eq!((take_spawned(&mut run), run.printed.len()), ((vec![], vec![]), 0));
    run.event(Event::Joined { node: 4 });
    let (jobs, refused) = take_spawned(&mut run);
    assert_eq!((jobs, refused), (vec![vec![(4, 1)]], vec![(5, vec![libc::EHOSTUNREACH as u8])]));
    assert_eq!(run.printed, [format!("nothing is spawned for rank 0: {reason}")]);
    assert_eq!(run.head.jobs().len(), 2);
    spawn(&mut run, 7, 1, &["n3"]);
    assert_eq!(take_growth(&mut run).0, [3]);
    run.event(Event::Joined { node: 3 });
    assert_eq!(take_spawned(&mut run).0, [vec![(3, 1)]]);
}

// Fault: A job ends while the host of its spawn joins
// Outcome: the run does not wait for the host, and the node of the spawn is told that nothing is started
// Guarantee: A request of a rank takes a place at its server until it is answered, and is answered once
#[test]
fn a_spawn_whose_job_ends_while_its_host_joins_is_answered() {
    let mut run = run_with_unused();
    spawn(&mut run, 5, 1, &["n3"]);
    run.succeed(1);
    run.succeed(2);
    assert_eq!((run.finished, run.head.exit_code()), (Some(true), 0));
    run.event(Event::Joined { node: 3 });
    assert_eq!(take_spawned(&mut run), (vec![], vec![(5, vec![CANCELED])]));
}

/// A run with `--elastic` has them with their slots and number, whoever names them, and others beside them.
#[test]
fn unused_hosts_keep_their_numbers() {
    let unused = Config { unused: 1, late: 1, least: Some(1), ..config(2) };
    let mut run = Run::new(unused, first_job(1, 2));
    run.event(Event::AllJoined);
    run.start(1, FIRST, &[0, 1]);
    run.others.clear();
    name(&mut run, 1, "c");
    name(&mut run, 2, "n2");
    let started: Vec<_> = std::mem::take(&mut run.others)
        .into_iter()
        .filter_map(|action| match action {
            Action::StartDaemon { node, host } => Some((node, host)),
            _ => None,
        })
        .collect();
    assert_eq!(started, [(3, Host::with_slots("c", 4)), (2, Host::with_slots("n2", 2))]);
    for node in [3, 2] {
        run.event(Event::NodesLost { nodes: node..node + 1, reason: "no".to_owned() });
    }
    take_growth(&mut run);
    name(&mut run, 3, "d");
    name(&mut run, 4, "e");
    let (started, answers) = take_growth(&mut run);
    assert_eq!((started, answers.len()), (vec![3], 1), "node 2 is no other host's");
    run.event(Event::HostLeaves { request: 5, host: "n2".to_owned(), force: false });
    assert_eq!(take_growth(&mut run).1, [(5, Err("host n2 is not in the run".to_owned()))]);
}
