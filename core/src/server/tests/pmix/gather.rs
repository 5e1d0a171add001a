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
// Serves: Requests | connect, disconnect (10, 11) | served: of jobs, which [fail together](failures.md#spawned-jobs) while
// connected. Who connects is told the [attributes](#attributes) of the other jobs, in jobs of up to 64 ranks with those of each
// rank and host, so that they are known when a job is over. A get asks for what does not fit into the answer. A board without
// neighbours tells none
// Also: hydrant-core `those_who_connect_are_told_as_much_as_fits`, libraries
// `interop::libpmix::those_who_connect_know_each_others_hosts`
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
            let is_plain = |answer: &Vec<u8>| number == CONNECT || *answer == answers[0];
            assert!(answers.iter().all(is_plain), "{number} gives all the same");
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

/// Returns what the answer to a connection tells: the jobs, and the attributes of each.
#[cfg(feature = "cluster")]
fn told(answer: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut reader = Reader::new(Integers::Flexible, answer);
    let job = || {
        reader.single()?;
        let mut about = Reader::new(Integers::Flexible, reader.blob().expect("an answer consists of jobs"));
        about.single().unwrap();
        let name = about.string().unwrap().unwrap().to_vec();
        Some((String::from_utf8(name).unwrap(), about.rest().to_vec()))
    };
    core::iter::from_fn(job).collect()
}

/// Data of a job that is over are not there, so its members tell the others before.
#[cfg(feature = "cluster")]
#[test]
fn those_who_connect_are_told_about_each_others_jobs() {
    for seed in 0..10 {
        let mut all = Cluster::new(3, 2, &[5, 2, 1], true, seed);
        let three = [(0, 3), (1, WILDCARD), (2, 0)];
        let members = [(0, 3), (1, 0), (1, 1), (2, 0)];
        // The third job is connected with the first one before, and not a member.
        let connected = [(0, 0), (2, 0)];
        for (of, members) in
            [(&connected[..], &connected[..]), (&three[..2], &members[..3]), (&three, &members)]
        {
            members.iter().for_each(|&who| arrive(&mut all, who, CONNECT, None, of));
            all.settle();
            for &(job, rank) in members {
                let told = told(&all.gets(job, rank, 4, status::SUCCESS));
                let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
                let others =
                    of.iter().filter(|(other, _)| *other != job).map(|(other, _)| format!("job.{other}"));
                assert_eq!(names, others.collect::<Vec<_>>(), "rank {rank} of job {job}");
                for (name, data) in told {
                    let mut pairs = Reader::new(Integers::Flexible, &data);
                    let pairs: Vec<_> = core::iter::from_fn(|| pairs.key_value()).collect();
                    let count = |key: &str| pairs.iter().filter(|pair| pair.key == key.as_bytes()).count();
                    let found = pairs.iter().find(|pair| pair.key == b"pmix.job.size");
                    let (size, hosts) = [(5, 2), (2, 2), (1, 1)][usize::from(name.as_bytes()[4] - b'0')];
                    assert_eq!(found.and_then(|pair| pair.as_u32()), Some(size), "{name}");
                    // There is room for the ranks and hosts of two ranks, in all outputs.
                    let (ranks, hosts) = if size > 2 { (0, 0) } else { (size, hosts) };
                    assert_eq!(count("pmix.pblob"), ranks as usize, "{name}");
                    assert_eq!(count("pmix.node.arr"), hosts, "{name}");
                    assert!(
                        size > 2 || contains(&data, if size == 2 { "node0,south" } else { "node0" }),
                        "{name}"
                    );
                    // The third job has no rank on the second host.
                    let is_there = size > 1 || all.node(rank) == 1;
                    assert_eq!(count("pmix.lpeers"), usize::from(is_there), "{name}");
                    assert_eq!(count("pmix.lldr"), usize::from(is_there), "{name}");
                }
            }
        }
    }
}

/// What does not fit into an answer is left out, and is there for a get.
#[cfg(feature = "cluster")]
#[test]
fn those_who_connect_are_told_as_much_as_fits() {
    let mut all = Cluster::new(3, 2, &[], true, 1);
    all.sizes = vec![1, 2, 2];
    let long = [b",".as_slice(), &[b'n'; 900]].concat();
    for (node, id) in (0..3).flat_map(|node| (0..3).map(move |id| (node, id))) {
        let (job, size) = (JobId(id), all.sizes[id as usize]);
        all.tell(node, Input::RegisterJob(JobSpec::new(job, &format!("job.{id}"), size)));
        for rank in 0..size {
            let of = all.node(rank);
            all.tell(node, Input::MapRanks { job, first: Rank(rank), count: 1, node: of });
        }
        // Each answer names the first host three times.
        let value = if id == 0 { &b",north"[..] } else { &long };
        all.tell(node, Input::Attr { job, key: b"pmix.hname.0", value });
    }
    for (job, rank) in [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)] {
        all.join(job, rank);
    }
    let members = [(0, 0), (1, 0), (2, 0)];
    for who in members {
        arrive(&mut all, who, CONNECT, None, &members);
    }
    all.settle();
    for ((job, rank), others) in
        members.into_iter().zip([&["job.1"][..], &["job.0", "job.2"], &["job.0", "job.1"]])
    {
        let told = told(&all.gets(job, rank, 4, status::SUCCESS));
        assert_eq!(told.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), others);
    }
    all.get((0, 0), (2, WILDCARD), "pmix.job.size");
    assert!(contains(&all.gets(0, 0, 3, status::SUCCESS), "pmix.job.size"));
}

// Serves: Requests | construct and destruct a group (24, 28) | served: with a context id that is unique in the run, and members in
// the form that the client's version reads, in the order of jobs and ranks
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

// Fault: PMIx collectives with and without a time-out overlap, and a member dies
// Outcome: each call of a living member gets one answer
// Guarantee: A time-out or a death ends a collective for all who wait, and no other one
#[test]
fn overlapping_collectives_answer_each_call_once() {
    const FAILED: [i32; 2] = [-165, -61];
    let kinds: [(u8, &[(u32, u32)]); 5] = [
        (FENCE, &[(0, 0), (0, 3), (0, 4), (1, 1), (1, 2)]),
        (FENCE, &[(0, 0), (0, 1), (0, 2)]),
        (CONSTRUCT, &[(0, 1), (0, 2), (1, 0), (1, 3)]),
        (CONNECT, &[(0, 5), (1, 0), (1, 3)]),
        (FENCE, &[(0, WILDCARD)]),
    ];
    let mut seen: BTreeMap<i32, u32> = BTreeMap::new();
    for seed in 0..60 {
        let radix =
            if cfg!(feature = "cluster") && seed % 2 == 1 { 2 | crate::peer::tree::ROOT_ONE } else { 2 };
        let mut all = Cluster::new(6, radix, &[7, 4], false, seed);
        let members = |what: usize| match kinds[what].1 {
            [(0, WILDCARD)] => (0..7).map(|rank| (0, rank)).collect(),
            of => of.to_vec(),
        };
        let mut dead = None;
        // Calls without an answer: the collective and its member.
        let mut calls: Vec<(usize, (u32, u32))> = Vec::new();
        for step in 0..200 {
            let last = step >= 150;
            if last {
                // Whoever is awaited comes in the end, without a time-out.
                all.settle();
            }
            let what = if last { step % kinds.len() } else { all.random(kinds.len()) };
            let of = members(what);
            let who = of[all.random(of.len())];
            let comes: Vec<_> = match last {
                true if calls.iter().any(|&(called, _)| called == what) => of,
                true => Vec::new(),
                false => vec![who],
            };
            for who in comes {
                if dead == Some(who) || calls.contains(&(what, who)) {
                    continue;
                }
                let (number, named) = kinds[what];
                let name = (number == CONSTRUCT).then_some("group");
                let seconds = if last { 0 } else { all.random(4) as i32 };
                let named: Vec<(String, u32)> =
                    named.iter().map(|&(job, rank)| (format!("job.{job}"), rank)).collect();
                let named: Vec<(&str, u32)> =
                    named.iter().map(|(name, rank)| (name.as_str(), *rank)).collect();
                all.asks(who.0, who.1, what as u32, |writer| {
                    command(writer, number);
                    if let Some(name) = name {
                        writer.single();
                        writer.string(name.as_bytes());
                    }
                    procs(writer, &named);
                    writer.array(1);
                    writer.info(b"pmix.timeout", pmix::kind::INT);
                    writer.int(seconds);
                });
                calls.push((what, who));
            }
            match all.random(12) {
                _ if last => all.settle(),
                0 if dead.is_none() && seed % 3 == 0 && step > 30 => {
                    dead = Some(who);
                    all.kill(who);
                    calls.retain(|&(_, caller)| caller != who);
                    all.replies.remove(&all.conn(who.0, who.1));
                }
                0..2 => all.pass(700),
                2 => {
                    let node = all.random(all.servers.len());
                    all.replace(node);
                }
                count => {
                    for _ in 0..count / 2 {
                        all.deliver();
                    }
                }
            }
            for (job, size) in [(0, 7), (1, 4)] {
                for rank in (0..size).filter(|&rank| dead != Some((job, rank))) {
                    while let Some((tag, code, _)) = all.reply(job, rank) {
                        let call = (tag as usize, (job, rank));
                        let at = calls.iter().position(|&other| other == call);
                        calls.swap_remove(at.unwrap_or_else(|| panic!("{call:?}: {code}, seed {seed}")));
                        let may = code == status::SUCCESS
                            || code == status::TIMEOUT
                            || dead.is_some() && FAILED.contains(&code);
                        assert!(may, "{call:?}: {code}, seed {seed}");
                        *seen.entry(code).or_default() += 1;
                    }
                }
            }
        }
        assert_eq!(calls, [], "without an answer, seed {seed}");
        let used: u32 = all.servers.iter().map(|server| server.used(Limit::Groups)).sum();
        assert_eq!(used, 0, "all groups are free, seed {seed}");
    }
    let counts = [status::SUCCESS, status::TIMEOUT, FAILED[0], FAILED[1]].map(|code| seen.get(&code));
    assert!(counts.iter().all(|count| count.is_some_and(|&count| count > 5)), "{seen:?}");
}

#[cfg(feature = "cluster")]
#[test]
fn a_lost_node_owes_no_acknowledgement_of_a_time_out() {
    let mut all = Cluster::new(3, 2, &[2], true, 3);
    arrive_within(&mut all, (0, 0), (FENCE, &[(0, 0), (0, 1)]), 3);
    all.settle();
    for node in [0, 1] {
        all.tell(node, Input::NodeLost { epoch: 1, node: 2 });
    }
    all.pass(3000);
    all.settle();
    all.replace(0);
    let used = all.servers[..2].iter().map(|server| server.used(Limit::Groups));
    assert_eq!(used.sum::<u32>(), 0, "all groups are free");
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

/// Returns the data that a rank gets of another one, with a qualifier.
fn data_of(
    all: &mut Cluster,
    from: (u32, u32),
    of: (u32, u32),
    key: &str,
    qualify: impl Fn(&mut Writer<'_>),
) -> Option<Vec<u8>> {
    all.asks(from.0, from.1, 3, |writer| {
        command(writer, 4);
        writer.single();
        writer.string(format!("job.{}", of.0).as_bytes());
        writer.single();
        writer.uint32(of.1);
        writer.array(1);
        qualify(writer);
        writer.single();
        writer.string(key.as_bytes());
    });
    let (_, code, rest) = all.reply(from.0, from.1).expect("it is answered at once");
    if code == status::NOT_FOUND {
        return None;
    }
    let mut reader = Reader::new(Integers::Flexible, &rest);
    reader.single().unwrap();
    Some(reader.blob().unwrap().to_vec())
}

/// Returns the local context id of a member, which another one asks for.
fn local_id(all: &mut Cluster, from: (u32, u32), of: (u32, u32), context: u64) -> Option<u64> {
    let found = data_of(all, from, of, "pmix.grp.lclid", |writer| {
        writer.info(b"pmix.grp.ctxid", pmix::kind::SIZE);
        writer.size(context);
    })?;
    let mut data = Reader::new(Integers::Flexible, &found);
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

// Fault: A rank commits thousands of tiny values, and gives a group thousands of values that are all the last one of these
// Outcome: the members get them with the group
// Guarantee: The work for what a member gives is bounded
#[test]
fn what_takes_too_many_comparisons_with_a_commit_travels_with_the_group() {
    for (count, travels) in [(1000, false), (3000, true)] {
        let mut all = Cluster::with_limits(LARGE, (2, 2), &[1], true, 1);
        assert_eq!(commit_packs(&mut all, 2, &tiny_packs(b'a', 5000)), status::SUCCESS);
        let used = |all: &Cluster| all.servers[1].used(Limit::KvsBytes);
        let before = used(&all);
        arrive_with(&mut all, (0, 0), CONSTRUCT, Some("group"), &[(0, 0)], |writer| {
            writer.array(1);
            writer.info(b"pmix.pdata", pmix::kind::DATA_ARRAY);
            writer.data_type(pmix::kind::INFO);
            writer.size(u64::from(count));
            for _ in 0..count {
                writer.info(&tiny_key(b'a', 4999), pmix::kind::BOOL);
                writer.byte(1);
            }
        });
        all.settle();
        assert_eq!(all.reply(0, 0).expect("the group is alone").1, status::SUCCESS);
        assert_eq!(used(&all) - before > count, travels, "{count}");
    }
}

#[test]
fn a_group_without_end_takes_no_more_than_the_share_of_its_member() {
    let mut all = Cluster::new(4, 2, &[3], true, 1);
    let job = &all.servers[1].jobs[0];
    let (quota, share) = (job.quota, all.servers[1].kvs.state().1);
    let mut rounds = 0;
    let last = loop {
        give(&mut all, (0, 0), &[(0, 0)], Some(1));
        all.settle();
        match all.reply(0, 0).expect("the group is alone").1 {
            status::SUCCESS => rounds += 1,
            code => break code,
        }
    };
    assert_eq!(last, status::OUT_OF_RESOURCE);
    assert!(rounds <= quota.keys + share.keys, "{rounds} rounds, {quota:?}, {share:?}");
}

/// Returns the value of a STRING that a rank gets, without a qualifier and without a wait.
fn text_of(all: &mut Cluster, from: (u32, u32), of: (u32, u32), key: &str) -> Option<String> {
    let found = data_of(all, from, of, key, |writer| {
        writer.info(b"pmix.immediate", pmix::kind::BOOL);
        writer.byte(1);
    })?;
    let mut data = Reader::new(Integers::Flexible, &found);
    data.single().unwrap();
    data.proc().unwrap();
    let pairs = core::iter::from_fn(|| data.key_value()).filter(|pair| pair.key == key.as_bytes());
    let value = pairs.last().unwrap().as_string().unwrap();
    Some(String::from_utf8(value.to_vec()).unwrap())
}

/// Arrives in a group with what the rank has put for other nodes, as libpmix 6 collects it.
fn put(all: &mut Cluster, who: (u32, u32), members: &[(u32, u32)], pairs: &[(&str, &str)]) {
    arrive_with(all, who, CONSTRUCT, Some("group"), members, |writer| {
        writer.array(1);
        writer.info(b"pmix.pdata", pmix::kind::DATA_ARRAY);
        writer.data_type(pmix::kind::INFO);
        writer.size(2 + pairs.len() as u64);
        writer.info(b"pmix.procid", pmix::kind::PROC);
        writer.proc(b"job.0", 0);
        writer.info(b"pmix.scope", 37);
        writer.byte(2);
        for (key, value) in pairs {
            writer.info(key.as_bytes(), pmix::kind::STRING);
            writer.string(value.as_bytes());
        }
    });
}

// Serves: Requests | what a group's members have put (24), committed or not (`PMIX_GROUP_ENDPT_DATA`) | served: libpmix 6 and later
// send it with the construction. All ranks of the members' hosts find it
#[test]
fn members_find_what_the_others_have_put_without_a_commit() {
    for nodes in [2, 5] {
        let mut all = Cluster::new(nodes, 2, &[4, 3], true, 11);
        let members = [(0, 0), (0, 1), (0, 3), (1, 2)];
        for (times, port) in [(0, "a"), (1, "b"), (2, "b")] {
            for who in members {
                let card = format!("{who:?}");
                put(&mut all, who, &members, &[("card", &card), ("port", port)]);
            }
            all.settle();
            (0..all.servers.len()).for_each(|node| all.replace(node));
            members.iter().for_each(|&(job, rank)| drop(all.gets(job, rank, 4, status::SUCCESS)));
            for (from, of) in members.iter().flat_map(|&from| members.map(|of| (from, of))) {
                assert_eq!(text_of(&mut all, from, of, "card"), Some(format!("{of:?}")), "{from:?}, {times}");
                assert_eq!(text_of(&mut all, from, of, "port").as_deref(), Some(port), "{from:?}");
            }
            assert_eq!(text_of(&mut all, (0, 1), (0, 2), "card"), None, "it is no member");
            assert_eq!(text_of(&mut all, (0, 1), (0, 0), "other"), None);
        }
        // What is committed afterwards takes the place of it.
        all.commit(0, 3, "card", "new");
        assert_eq!(text_of(&mut all, (0, 3), (0, 3), "card").as_deref(), Some("new1"));
        assert_eq!(text_of(&mut all, (0, 3), (0, 3), "port").as_deref(), Some("b"));
        // Committed data travel by themselves.
        for who in members {
            put(&mut all, who, &members, if who == (0, 3) { &[("card", "new2")] } else { &[] });
        }
        all.settle();
        members.iter().for_each(|&(job, rank)| drop(all.gets(job, rank, 4, status::SUCCESS)));
        let same_host = nodes == 2;
        let expected = if same_host { "new1" } else { "new2" };
        assert_eq!(text_of(&mut all, (0, 0), (0, 3), "card").as_deref(), Some(expected));
        assert_eq!(text_of(&mut all, (0, 0), (0, 3), "port"), None);
    }
}

/// Calls for the construction of the group "group" as a leader of so many, who names others.
#[cfg(feature = "cluster")]
fn lead(all: &mut Cluster, who: (u32, u32), leaders: u64, added: &[(u32, u32)], seconds: i32) {
    arrive_with(all, who, CONSTRUCT, Some("group"), &[who], |writer| {
        writer.array(3);
        writer.info(b"pmix.grp.btstrp", pmix::kind::SIZE);
        writer.size(leaders);
        writer.info(b"pmix.grp.add", pmix::kind::DATA_ARRAY);
        writer.data_type(pmix::kind::PROC);
        writer.size(added.len() as u64);
        added.iter().for_each(|(job, rank)| writer.proc(format!("job.{job}").as_bytes(), *rank));
        writer.info(b"pmix.timeout", pmix::kind::INT);
        writer.int(seconds);
    });
}

/// Calls for the construction of a group whose leaders name this rank.
#[cfg(feature = "cluster")]
fn follow(all: &mut Cluster, who: (u32, u32), seconds: i32) {
    arrive_within(all, who, (CONSTRUCT, &[]), seconds);
}

// Serves: Requests | groups whose members do not know each other (24, `PMIX_GROUP_BOOTSTRAP`, `PMIX_GROUP_ADD_MEMBERS`) | served:
// what the leaders say travels as an event does, and counts among those. Without `PMIX_GROUP_BOOTSTRAP` members cannot be added
#[cfg(feature = "cluster")]
#[test]
fn leaders_name_the_members_of_a_group() {
    for seed in 0..40 {
        let nodes = [2, 6][seed as usize % 2];
        let mut all = Cluster::new(nodes, 2, &[6, 4], true, seed);
        let added = |who| match who {
            (0, 1) => Some(&[(0, 4), (1, 0)][..]),
            (1, 3) => Some(&[(1, 1)][..]),
            (0, 5) => Some(&[][..]),
            _ => None,
        };
        let members = [(0, 1), (0, 4), (0, 5), (1, 0), (1, 1), (1, 3)];
        let mut contexts = Vec::new();
        for _ in 0..3 {
            let mut outside = members.to_vec();
            while !outside.is_empty() {
                let at = all.random(outside.len());
                let who = outside.swap_remove(at);
                assert!(all.replies.values().all(VecDeque::is_empty), "it ends before {who:?}");
                match added(who) {
                    Some(added) => lead(&mut all, who, 3, added, 0),
                    None => follow(&mut all, who, 0),
                }
                for _ in 0..all.random(4) {
                    all.deliver();
                }
                let node = all.random(all.servers.len());
                all.replace(node);
            }
            all.settle();
            for (job, rank) in members {
                let rest = all.gets(job, rank, 4, status::SUCCESS);
                let mut reader = Reader::new(Integers::Flexible, &rest);
                let named = |(job, rank): (u32, u32)| (format!("job.{job}").into_bytes(), rank);
                let procs = reader.procs().unwrap();
                let procs: Vec<_> = procs.iter().map(|proc| (proc.namespace.to_vec(), proc.rank)).collect();
                assert_eq!(procs, members.map(named));
                reader.single().unwrap();
                contexts.push(reader.size().unwrap());
            }
        }
        contexts.dedup();
        assert_eq!(contexts.len(), 3);
        for limit in [Limit::Groups, Limit::Names] {
            assert_eq!(all.servers.iter().map(|server| server.used(limit)).sum::<u32>(), 0, "{limit:?}");
        }
    }
}

#[cfg(feature = "cluster")]
#[test]
fn who_waits_for_leaders_times_out() {
    let mut all = Cluster::new(3, 2, &[4], true, 3);
    follow(&mut all, (0, 0), 2);
    follow(&mut all, (0, 1), 0);
    lead(&mut all, (0, 2), 2, &[(0, 0), (0, 1)], 1);
    all.settle();
    all.pass(1000);
    all.gets(0, 2, 4, status::TIMEOUT);
    assert!(all.reply(0, 0).is_none());
    all.pass(1000);
    all.gets(0, 0, 4, status::TIMEOUT);
    // A leader that calls again counts once.
    lead(&mut all, (0, 2), 2, &[(0, 0), (0, 1)], 9);
    all.settle();
    all.pass(1000);
    assert!(all.reply(0, 1).is_none());
    lead(&mut all, (0, 3), 3, &[], 9);
    all.gets(0, 3, 4, status::BAD_PARAM);
    lead(&mut all, (0, 3), 2, &[], 9);
    follow(&mut all, (0, 0), 9);
    all.settle();
    (0..4).for_each(|rank| drop(all.gets(0, rank, 4, status::SUCCESS)));
    assert!(all.servers.iter().all(|server| server.used(Limit::Names) == 0));
}

// Fault: The leader of a group ends without a word, and a member waits for it
// Outcome: the construction fails
// Guarantee: No rank waits for leaders when all others have ended or wait, too
#[cfg(feature = "cluster")]
#[test]
fn who_waits_for_leaders_that_have_ended_gets_an_error() {
    for (seed, cleanup) in (0..16).flat_map(|seed| [(seed, true), (seed, false)]) {
        // With three nodes or more, ranks 1 and 5 are on one node, and rank 0 is on another.
        let nodes = 2 + seed as u32 % 4;
        let mut all = Cluster::new(nodes, 2, &[6, 1], cleanup, seed);
        let waiting = [(0, 1), (0, 1 + (nodes - 1) % 5)];
        let leads = all.random(2) == 0;
        let mut first = waiting.to_vec();
        first.dedup();
        let end = |all: &mut Cluster, (job, rank): (u32, u32)| {
            all.asks(job, rank, 9, |writer| command(writer, 5));
            all.gets(job, rank, 9, status::SUCCESS);
            let exit = Exit::Code(0);
            all.tell(all.node(rank), Input::Exited { job: JobId(job), rank: Rank(rank), exit });
        };
        let others: Vec<_> = (0..6).map(|rank| (0, rank)).filter(|who| !first.contains(who)).collect();
        for (at, &who) in others.iter().enumerate() {
            if at == others.len() / 2 {
                for (at, &who) in first.iter().enumerate() {
                    if leads && at == 0 { lead(&mut all, who, 2, &[], 0) } else { follow(&mut all, who, 0) }
                }
            }
            end(&mut all, who);
            for _ in 0..all.random(4) {
                all.deliver();
            }
        }
        let settle = |all: &mut Cluster| {
            for _ in 0..nodes {
                all.settle();
                all.pass(crate::limits::exit_delay(&LIMITS));
            }
            all.settle();
        };
        settle(&mut all);
        assert!(first.iter().all(|&(job, rank)| all.reply(job, rank).is_none()), "one may still lead");
        match all.random(2) {
            0 => end(&mut all, (1, 0)),
            _ => (0..nodes).for_each(|node| all.tell(node, Input::DeregisterJob { job: JobId(1) })),
        }
        settle(&mut all);
        for &(job, rank) in &first {
            all.gets(job, rank, 4, -165);
        }
        // Whoever comes later waits for none.
        follow(&mut all, first[0], 0);
        assert_eq!(all.reply(0, first[0].1).is_some(), first.len() == 1);
    }
}

/// Arrives in the construction or the end of a group with one flag.
fn arrive_flagged(all: &mut Cluster, who: (u32, u32), number: u8, members: &[(u32, u32)], key: &str) {
    arrive_with(all, who, number, Some("group"), members, |writer| {
        writer.array(1);
        writer.info(key.as_bytes(), pmix::kind::BOOL);
        writer.byte(1);
    });
}

// Serves: Requests | members that die (24, 28, `PMIX_GROUP_FT_COLLECTIVE`, `PMIX_GROUP_NOTIFY_TERMINATION`) | served: in jobs that
// continue after a death. If one of the members asks for it, a group is constructed of those that live, and all of these are told
// who has died before it was there (`PMIX_GROUP_MEMBER_FAILED`), as they are told by the second flag at the end of a group
#[test]
fn groups_survive_the_death_of_members() {
    for seed in 0..10 {
        let mut all = Cluster::new(4, 2, &[5, 2], false, seed);
        let members = [(0, 0), (0, 1), (0, 2), (0, 4), (1, 0)];
        let living = [(0, 0), (0, 2), (0, 4), (1, 0)];
        all.listen((0, 0), &[-170]);
        all.listen((1, 0), &[-170]);
        let one = living[all.random(4)];
        let dies = all.random(5);
        for (at, who) in members.into_iter().enumerate() {
            if at == dies {
                all.kill((0, 1));
            }
            match who {
                (0, 1) => {}
                who if who == one => arrive_flagged(&mut all, who, CONSTRUCT, &members, "pmix.grp.ftcoll"),
                who => arrive(&mut all, who, CONSTRUCT, Some("group"), &members),
            }
            for _ in 0..all.random(4) {
                all.deliver();
            }
        }
        all.settle();
        for (job, rank) in living {
            let rest = all.gets(job, rank, 4, status::SUCCESS);
            let procs = Reader::new(Integers::Flexible, &rest).procs().unwrap();
            assert_eq!(procs.len(), 4, "{job} {rank}");
        }
        for who in [(0, 0), (1, 0)] {
            assert_eq!(all.lost_members(who), [(String::from("group"), 1)]);
        }
        // It ends for those.
        for who in living {
            arrive(&mut all, who, DESTRUCT, Some("group"), &living);
        }
        all.settle();
        living.iter().for_each(|&(job, rank)| drop(all.gets(job, rank, 4, status::SUCCESS)));
        // The next one fails, because nobody asks for another outcome.
        for who in living {
            arrive(&mut all, who, CONSTRUCT, Some("group"), &members);
        }
        all.settle();
        living.iter().for_each(|&(job, rank)| drop(all.gets(job, rank, 4, -165)));
        all.kill((0, 4));
        for who in [(0, 0), (0, 2), (1, 0)] {
            arrive_flagged(&mut all, who, DESTRUCT, &living, "pmix.grp.notterm");
        }
        all.settle();
        [(0, 0), (0, 2), (1, 0)]
            .iter()
            .for_each(|&(job, rank)| drop(all.gets(job, rank, 4, status::SUCCESS)));
        for who in [(0, 0), (1, 0)] {
            assert_eq!(all.lost_members(who), [(String::from("group"), 4)]);
        }
        let used = |limit| all.servers.iter().map(|server| server.used(limit)).sum::<u32>();
        assert_eq!((used(Limit::Groups), used(Limit::Names)), (0, 0));
    }
}
