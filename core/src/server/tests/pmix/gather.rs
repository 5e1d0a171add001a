//! Tests of collectives of some ranks, and of ranks of several jobs.

use super::*;

/// Arrives in a collective of members with its command and, for groups, its name.
fn arrive(all: &mut Cluster, who: (u32, u32), number: u8, name: Option<&str>, members: &[(u32, u32)]) {
    arrive_with(all, who, number, name, members, |writer| writer.array(0));
}

/// Arrives with a time-out in seconds.
fn arrive_within(all: &mut Cluster, who: (u32, u32), (number, members): (u8, &[(u32, u32)]), seconds: i32) {
    let name = matches!(number, CONSTRUCT | DESTRUCT).then_some("group");
    arrive_with(all, who, number, name, members, |writer| {
        writer.array(1);
        writer.info(b"pmix.timeout", pmix::kind::INT);
        writer.int(seconds);
    });
}

/// Arrives with the INFOs that `infos` writes.
fn arrive_with(
    all: &mut Cluster,
    who: (u32, u32),
    number: u8,
    name: Option<&str>,
    members: &[(u32, u32)],
    infos: impl Fn(&mut Writer<'_>),
) {
    let named: Vec<(String, u32)> = members.iter().map(|&(job, rank)| (format!("job.{job}"), rank)).collect();
    let named: Vec<(&str, u32)> = named.iter().map(|(name, rank)| (name.as_str(), *rank)).collect();
    all.asks(who.0, who.1, 4, |writer| {
        command(writer, number);
        if let Some(name) = name {
            writer.single();
            writer.string(name.as_bytes());
        }
        procs(writer, &named);
        infos(writer);
    });
}

const FENCE: u8 = 3;
const CONNECT: u8 = 10;
const DISCONNECT: u8 = 11;
const CONSTRUCT: u8 = 24;
const DESTRUCT: u8 = 28;

/// The nodes of the members learn which jobs fail together: not by a fence that a program of PMIx may use among jobs that stay
/// connected.
#[test]
fn hosts_learn_which_jobs_have_parted() {
    let of = |job, ranks: &[u32]| ranks.iter().map(|&rank| (job, rank)).collect::<Vec<_>>();
    let child = of(1, &[0, 1, 2, 3]);
    let named = [of(0, &[3]), child.clone()].concat();
    let part = [of(0, &[3]), of(1, &[1, 2])].concat();
    let whole = [(0, 3), (1, WILDCARD)];
    let connected = Some("job: JobId(0), other: JobId(1), connected: true");
    let parted = Some("job: JobId(1), other: JobId(0), connected: false");
    for (number, of, expected) in [
        (CONNECT, &whole[..], connected),
        (DISCONNECT, &whole, parted),
        (FENCE, &named, parted),
        (FENCE, &whole, None),
        (FENCE, &part, None),
        (FENCE, &child, None),
    ] {
        let mut all = Cluster::new(6, 2, &[6, 4], true, 1);
        let members = if of == whole { named.clone() } else { of.to_vec() };
        members.iter().for_each(|&who| arrive(&mut all, who, number, None, of));
        all.settle();
        assert_eq!(all.events.is_empty(), expected.is_none(), "{number}: {:?}", all.events);
        let fits = |event: &String| expected.is_some_and(|expected| event.contains(expected));
        assert!(all.events.iter().all(fits), "{number}: {:?}", all.events);
        // Those of the five members, at least.
        assert!(expected.is_none() || all.events.len() >= 4, "{number}: {:?}", all.events);
    }
}

// Serves: Requests | fence (3) | served: of the whole job, of some of its ranks, and of ranks of several jobs
// Serves: Requests | connect, disconnect (10, 11) | served: of jobs, which [fail together](failures.md#spawned-jobs) while connected
#[test]
fn members_of_several_nodes_and_jobs_gather() {
    for seed in 0..20 {
        let mut all = Cluster::new(6, 2, &[6, 4], true, seed);
        let part = [(0, 1), (0, 2), (0, 5)];
        let both = [(0, 0), (0, 3), (1, WILDCARD)];
        let members = |of: &[(u32, u32)]| match of {
            [.., (1, WILDCARD)] => vec![(0, 0), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)],
            of => of.to_vec(),
        };
        for (number, name, of) in [
            (FENCE, None, &part[..]),
            (FENCE, None, &both),
            (CONSTRUCT, Some("a group"), &both),
            (CONNECT, None, &both),
            (DISCONNECT, None, &both),
        ] {
            let mut waiting = members(of);
            while !waiting.is_empty() {
                let at = all.random(waiting.len());
                let who = waiting.swap_remove(at);
                assert!(all.replies.values().all(VecDeque::is_empty), "{number} ends before {who:?}");
                arrive(&mut all, who, number, name, of);
                for _ in 0..all.random(4) {
                    all.deliver();
                }
            }
            all.settle();
            let answers: Vec<_> =
                members(of).into_iter().map(|(job, rank)| all.gets(job, rank, 4, status::SUCCESS)).collect();
            assert!(answers.iter().all(|answer| *answer == answers[0]), "{number} gives all the same");
            assert!(all.replies.values().all(VecDeque::is_empty));
            if number == CONNECT {
                all.commit(1, 2, "card", "of the other job, ");
                all.get((0, 0), (1, 2), "card");
                all.settle();
                all.gets(0, 0, 3, status::SUCCESS);
            }
        }
        // Data of a job that is not connected are there too.
        all.get((0, 0), (1, 2), "card");
        all.gets(0, 0, 3, status::SUCCESS);
        let used: u32 = all.servers.iter().map(|server| server.used(Limit::Groups)).sum();
        assert_eq!(used, 0, "all groups are free");
    }
}

// Serves: Requests | construct and destruct a group (24, 28) | in part: with a context id that is unique in the run, and
// members in the form that the client's version reads. Members that the request does not name (`pmix.grp.add`,
// `pmix.grp.btstrp`) are refused, and information of members (`pmix.grp.info`) is left out
#[test]
fn context_ids_are_unique_in_the_run() {
    let mut all = Cluster::new(4, 2, &[6], true, 3);
    let mut contexts = Vec::new();
    // Groups on one node, and groups over several.
    for members in [&[0, 3][..], &[1, 4], &[0, 1], &[2, 5], &[0, 3], &[0, 1, 2, 3, 4, 5]] {
        let members: Vec<(u32, u32)> = members.iter().map(|&rank| (0, rank)).collect();
        members.iter().for_each(|&who| arrive(&mut all, who, CONSTRUCT, Some("group"), &members));
        all.settle();
        for &(job, rank) in &members {
            let rest = all.gets(job, rank, 4, status::SUCCESS);
            let mut reader = Reader::new(Integers::Flexible, &rest);
            assert_eq!(reader.procs().map(|procs| procs.len() as usize), Some(members.len()));
            reader.single().unwrap();
            contexts.push(reader.size().unwrap());
        }
        let all_same = contexts[contexts.len() - members.len()..].windows(2).all(|pair| pair[0] == pair[1]);
        assert!(all_same, "{contexts:?}");
    }
    contexts.dedup();
    let count = contexts.len();
    contexts.sort_unstable();
    contexts.dedup();
    assert_eq!((count, contexts.len(), contexts[0] > 0), (6, 6, true));
}

#[test]
fn a_collective_fails_with_a_member() {
    // A dead member: the others are answered once they have come.
    let mut all = Cluster::new(4, 2, &[3], false, 5);
    let members = [(0, WILDCARD)];
    arrive(&mut all, (0, 0), CONSTRUCT, Some("group"), &members);
    all.tell(3, Input::Exited { job: JOB, rank: Rank(2), exit: Exit::Signal(9) });
    all.settle();
    assert!(all.reply(0, 0).is_none());
    arrive(&mut all, (0, 1), CONSTRUCT, Some("group"), &members);
    all.settle();
    for rank in 0..2 {
        all.gets(0, rank, 4, -61);
    }
    // A job that is over.
    let mut all = Cluster::new(4, 2, &[2, 2], true, 5);
    arrive(&mut all, (0, 0), CONNECT, None, &[(0, 0), (1, 0)]);
    all.settle();
    for node in 0..4 {
        all.tell(node, Input::DeregisterJob { job: JobId(1) });
    }
    all.gets(0, 0, 4, -61);
    let used: u32 = all.servers.iter().map(|server| server.used(Limit::Groups)).sum();
    assert_eq!(used, 0, "all groups are free");
}

// Fault: A member of a PMIx collective with a time-out does not come in time
// Outcome: all who wait get "timeout", on all nodes
// Guarantee: Either all members succeed or all time out. Nothing of the collective is left
#[test]
fn a_time_out_ends_a_collective_for_all_or_none() {
    let (whole, part) = ([(0, WILDCARD)], [(0, 0), (0, 3), (0, 4), (1, 1), (1, 2)]);
    let ranks = |of: &[(u32, u32)]| match of {
        [(0, WILDCARD)] => (0..7).map(|rank| (0, rank)).collect(),
        of => of.to_vec(),
    };
    let mut timed_out = 0;
    for seed in 0..30 {
        // Node 0 is the root, or node 1.
        let radix =
            if cfg!(feature = "cluster") && seed % 2 == 1 { 2 | crate::peer::tree::ROOT_ONE } else { 2 };
        let mut all = Cluster::new(6, radix, &[7, 4], true, seed);
        let kinds =
            [(FENCE, &whole[..]), (FENCE, &part), (CONNECT, &part), (CONSTRUCT, &part), (DESTRUCT, &part)];
        for what in kinds.into_iter().flat_map(|what| [what; 2]) {
            let of = what.1;
            // Each member tries until it succeeds.
            let mut outside = ranks(of);
            let (mut waiting, mut done, mut first) = (Vec::new(), 0, None);
            while !outside.is_empty() || !waiting.is_empty() {
                if !outside.is_empty() && all.random(3) > 0 {
                    let at = all.random(outside.len());
                    let who = outside.swap_remove(at);
                    let seconds = 1 + all.random(3) as i32;
                    arrive_within(&mut all, who, what, seconds);
                    let until = all.now.after(1000 * seconds as u64);
                    first = first.or(Some(until)).min(Some(until));
                    waiting.push(who);
                }
                for _ in 0..all.random(3) {
                    all.deliver();
                }
                if all.random(4) == 0 {
                    all.pass(700);
                }
                let node = all.random(all.servers.len());
                all.replace(node);
                waiting.retain(|&(job, rank)| {
                    let Some((_, code, _)) = all.reply(job, rank) else { return true };
                    match code {
                        status::SUCCESS => done += 1,
                        status::TIMEOUT => {
                            assert!(first <= Some(all.now), "{what:?} ended early");
                            timed_out += 1;
                            outside.push((job, rank));
                        }
                        other => panic!("{other} for rank {rank} of job {job}"),
                    }
                    false
                });
                assert!(done == 0 || outside.is_empty(), "{what:?} succeeded for some only");
            }
            assert_eq!(done, ranks(of).len());
        }
        all.settle();
        let used: u32 = all.servers.iter().map(|server| server.used(Limit::Groups)).sum();
        assert_eq!(used, 0, "all groups are free");
    }
    assert!(timed_out > 500, "{timed_out}");
}

#[test]
fn the_shortest_time_out_decides() {
    for nodes in [2, 4] {
        let mut all = Cluster::new(nodes, 2, &[4], true, 3);
        for number in [FENCE, CONNECT, CONSTRUCT, DESTRUCT] {
            let what = (number, &[(0, 0), (0, 1), (0, 2)][..]);
            arrive_within(&mut all, (0, 0), what, 0);
            arrive_within(&mut all, (0, 1), what, 20);
            all.settle();
            all.pass(5000);
            arrive_within(&mut all, (0, 1), what, 3);
            all.gets(0, 1, 4, status::BAD_PARAM);
            all.pass(14_999);
            all.settle();
            assert!(all.reply(0, 0).is_none());
            all.pass(1);
            all.settle();
            all.gets(0, 0, 4, status::TIMEOUT);
            all.gets(0, 1, 4, status::TIMEOUT);
            // Who is late begins the next one.
            arrive_within(&mut all, (0, 2), what, 1);
            all.settle();
            all.pass(1000);
            all.settle();
            all.gets(0, 2, 4, status::TIMEOUT);
            assert_eq!(all.servers.iter().map(|server| server.used(Limit::Groups)).sum::<u32>(), 0);
        }
        assert!(all.servers.iter().all(|server| server.poll_at().is_none()));
    }
}
