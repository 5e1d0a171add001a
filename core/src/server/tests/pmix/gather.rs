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
// `pmix.grp.btstrp`) are refused
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
    // The leader of a group by invitation asks for one.
    for rank in 0..6 {
        all.asks(0, rank, 4, |writer| {
            command(writer, 18);
            writer.array(0);
            writer.array(1);
            writer.info(b"pmix.grp.actxid", pmix::kind::BOOL);
            writer.byte(1);
        });
        let rest = all.gets(0, rank, 4, status::SUCCESS);
        let infos = Reader::new(Integers::Flexible, &rest).infos().unwrap();
        contexts.extend(infos.find(b"pmix.grp.ctxid").and_then(|info| info.as_u32()).map(u64::from));
    }
    let count = contexts.len();
    contexts.sort_unstable();
    contexts.dedup();
    assert_eq!((count, contexts.len(), contexts[0] > 0), (12, 12, true));
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
        all.gets(0, rank, 4, -165);
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

/// Arrives in the construction of the group "group" with a local context id.
fn give(all: &mut Cluster, who: (u32, u32), members: &[(u32, u32)], local: Option<u64>) {
    arrive_with(all, who, CONSTRUCT, Some("group"), members, |writer| {
        writer.array(u32::from(local.is_some()));
        let Some(local) = local else { return };
        writer.info(b"pmix.grp.info", pmix::kind::DATA_ARRAY);
        writer.data_type(pmix::kind::INFO);
        writer.size(2);
        // Newer libraries put the giver in front. Its word does not count.
        writer.info(b"pmix.procid", pmix::kind::PROC);
        writer.proc(b"job.0", 0);
        writer.info(b"pmix.grp.lclid", pmix::kind::SIZE);
        writer.size(local);
    });
}

/// Returns the local context id of a member, which another one asks for.
fn local_id(all: &mut Cluster, from: (u32, u32), of: (u32, u32), context: u64) -> Option<u64> {
    all.asks(from.0, from.1, 3, |writer| {
        command(writer, 4);
        writer.single();
        writer.string(format!("job.{}", of.0).as_bytes());
        writer.single();
        writer.uint32(of.1);
        writer.array(1);
        writer.info(b"pmix.grp.ctxid", pmix::kind::SIZE);
        writer.size(context);
        writer.single();
        writer.string(b"pmix.grp.lclid");
    });
    let (_, code, rest) = all.reply(from.0, from.1).expect("it is answered at once");
    if code == status::NOT_FOUND {
        return None;
    }
    let mut reader = Reader::new(Integers::Flexible, &rest);
    reader.single().unwrap();
    let mut data = Reader::new(Integers::Flexible, reader.blob().unwrap());
    data.single().unwrap();
    let proc = data.proc().unwrap();
    assert_eq!((proc.namespace, proc.rank), (format!("job.{}", of.0).as_bytes(), of.1));
    let qualified = data.key_value().unwrap();
    assert!(data.is_at_end() && qualified.key == b"pmix.qual.val");
    let parts = qualified.as_infos().unwrap();
    let number = |key: &[u8]| parts.find(key).and_then(|info| info.as_u32()).map(u64::from);
    assert_eq!((parts.len(), number(b"pmix.grp.ctxid")), (2, Some(context)));
    number(b"pmix.grp.lclid")
}

// Serves: Requests | information of a group's members (24), `pmix.grp.info` such as `pmix.grp.lclid` | served: libpmix 6 and
// later get it with the group, and each version by a get with `pmix.grp.ctxid` as a qualifier
#[test]
fn members_learn_what_the_others_give_to_their_group() {
    for nodes in [2, 5] {
        let mut all = Cluster::new(nodes, 2, &[4, 3], true, 11);
        all.rejoin(0, 1, "6.1.0");
        let members = [(0, 0), (0, 1), (0, 3), (1, 0), (1, 2)];
        let mut known = Vec::new();
        for times in 0..3 {
            // One of them gives nothing. In the last group none does.
            let local = |(job, rank): (u32, u32)| {
                let gives = (job, rank) != (1, 0) && times < 2;
                gives.then_some(u64::from(1000 * times + 10 * job + rank))
            };
            for who in members {
                give(&mut all, who, &members, local(who));
            }
            all.settle();
            (0..all.servers.len()).for_each(|node| all.replace(node));
            let answers = members.map(|(job, rank)| all.gets(job, rank, 4, status::SUCCESS));
            let mut reader = Reader::new(Integers::Flexible, &answers[0]);
            reader.procs().unwrap();
            reader.single().unwrap();
            let context = reader.size().unwrap();
            assert!(reader.is_at_end(), "libpmix 5 asks for each value");
            for (from, of) in members.iter().flat_map(|&from| members.map(|of| (from, of))) {
                assert_eq!(local_id(&mut all, from, of, context), local(of), "{from:?} asks {of:?}");
            }
            // libpmix 6 gets all with the reply.
            let mut reader = Reader::new(Integers::Flexible, &answers[1]);
            assert_eq!(reader.procs().map(|procs| procs.len()), Some(5));
            reader.single().unwrap();
            assert_eq!(reader.byte(), Some(1));
            reader.single().unwrap();
            assert_eq!(reader.size(), Some(context));
            let mut given = Vec::new();
            if !reader.is_at_end() {
                reader.single().unwrap();
                for _ in 0..reader.size().unwrap() {
                    reader.single().unwrap();
                    let array = reader.info().unwrap();
                    assert_eq!(array.key, b"pmix.grp.info");
                    let mut infos = array.as_infos().unwrap().iter();
                    let (giver, value) = (infos.next().unwrap(), infos.next().unwrap());
                    assert!(infos.next().is_none() && value.key == b"pmix.grp.lclid");
                    let giver = giver.as_proc().unwrap();
                    given.push((giver.namespace.to_vec(), giver.rank, value.as_u32().unwrap()));
                }
            }
            let expected: Vec<_> = members
                .iter()
                .filter_map(|&who| Some((format!("job.{}", who.0).into_bytes(), who.1, local(who)? as u32)))
                .collect();
            assert_eq!(given, expected);
            known.push(context);
        }
        assert_eq!(local_id(&mut all, (0, 0), (0, 1), 77), None, "no such group");
        assert_eq!(local_id(&mut all, (0, 0), (0, 2), known[0]), None, "it is no member");
    }
}

#[test]
fn what_a_member_gives_is_limited() {
    let mut all = Cluster::new(3, 2, &[2], true, 1);
    let members = [(0, 0), (0, 1)];
    let with = |all: &mut Cluster, write: &dyn Fn(&mut Writer<'_>)| {
        arrive_with(all, (0, 0), CONSTRUCT, Some("group"), &members, |writer| {
            writer.array(1);
            write(writer);
        });
        all.reply(0, 0).expect("it is refused").1
    };
    let number = with(&mut all, &|writer| {
        writer.info(b"pmix.grp.info", pmix::kind::UINT32);
        writer.uint32(42);
    });
    let long = with(&mut all, &|writer| {
        writer.info(b"pmix.grp.info", pmix::kind::DATA_ARRAY);
        writer.data_type(pmix::kind::INFO);
        writer.size(1);
        writer.info(b"text", pmix::kind::STRING);
        writer.string(&[b'x'; 512]);
    });
    assert_eq!((number, long), (status::BAD_PARAM, status::OUT_OF_RESOURCE));
    assert_eq!(all.servers[1].used(Limit::Groups), 0);
}
