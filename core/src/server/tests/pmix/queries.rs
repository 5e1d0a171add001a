//! Queries, texts of the host, and requests that are not served.

use super::*;
use crate::ids::UpcallId;
use crate::limits::{KEY_MAX, QUERIES_ATTR, TEXT_MAX, VALUE_MAX};
use crate::wire::pmix::{Command, HostCall, kind};

/// A cluster of one job of two ranks on two nodes, whose host answers queries.
fn cluster() -> Cluster {
    cluster_of(3, 2)
}

pub(super) fn cluster_of(nodes: u32, size: u32) -> Cluster {
    let mut all = Cluster::new(nodes, 2, &[], true, 1);
    all.sizes.push(size);
    let job = JobId(0);
    for node in 0..nodes {
        all.tell(node, Input::RegisterJob(JobSpec::new(job, "job.0", size)));
        for rank in 0..size {
            let of = all.node(rank);
            all.tell(node, Input::MapRanks { job, first: Rank(rank), count: 1, node: of });
        }
        for (key, value) in [
            (QUERIES_ATTR, "TRUE"),
            ("text:pmix.srvr.uri", "hydrant.0;tcp4://127.0.0.1:1"),
            ("pmix.wdir.0", "/home"),
            ("text:pmix.cpuset@0", "0-3"),
            ("text:pmix.locstr@0", "NM0:CR0-3"),
            ("text:pmix.locstr@4", "NM1:CR4-7"),
        ] {
            all.tell(node, Input::Attr { job, key: key.as_bytes(), value: value.as_bytes() });
        }
        all.tell(node, Input::Define { job, name: "left", members: b"0", other: None });
    }
    (0..size).for_each(|rank| all.join(0, rank));
    all
}

impl Cluster {
    /// A rank asks for keys, each with the set `left` as its qualifier.
    fn query(&mut self, rank: u32, keys: &[&str]) {
        self.asks(0, rank, 4, |writer| {
            command(writer, 15);
            writer.array(1);
            writer.count(keys.len() as u32);
            keys.iter().for_each(|key| writer.string(key.as_bytes()));
            writer.size(1);
            writer.info(b"pmix.pset.nm", kind::STRING);
            writer.string(b"left");
        });
    }
}

#[test]
fn the_host_answers_queries_that_the_server_does_not() {
    let mut all = cluster();
    let keys = ["pmix.qry.ns", "pmix.qry.psetnum", "pmix.srvr.uri", "pmix.qry.pmems", "pmix.qry.psets"];
    all.query(1, &keys);
    assert!(all.reply(0, 1).is_none(), "the host has not answered");
    let request = all.requests.pop().expect("the host is asked");
    let Some(HostCall::Query(query)) = HostCall::read(&request) else { panic!("it is a query") };
    assert!(query.queries.asked().map(|(key, _)| key).eq(keys.map(str::as_bytes)));
    assert!(query.queries.iter().all(|query| query.qualifiers.find(b"pmix.pset.nm").is_some()));
    let answered = query.answered;
    assert_eq!(answered.len(), 4);
    assert_eq!(answered.find(b"pmix.qry.psetnum").and_then(|info| info.as_u32()), Some(1));
    assert_eq!(answered.find(b"pmix.qry.psets").unwrap().as_string(), Some(&b"app://left"[..]));
    assert!(answered.find(b"pmix.srvr.uri").unwrap().as_string().unwrap().starts_with(b"hydrant.0;"));
    assert!(answered.find(b"pmix.qry.pmems").unwrap().contains(b"job.0", 0));
    let node = all.node(1);
    // STATUS 0 and a body longer than any name.
    let text = [&b"\x02\x00"[..], &[7; 1500]].concat();
    all.tell(node, Input::UpcallComplete { upcall: UpcallId(0), rc: 0, text: &text });
    assert_eq!(all.gets(0, 1, 4, status::SUCCESS), [7; 1500]);
}

#[test]
fn queries_are_refused_if_nobody_answers_them() {
    let mut all = cluster();
    all.query(1, &["pmix.qry.ns"]);
    let node = all.node(1);
    let refused = Input::UpcallComplete { upcall: UpcallId(0), rc: -1, text: b"unsupported" };
    all.tell(node, refused);
    all.gets(0, 1, 4, status::NOT_SUPPORTED);
    let mut all = Cluster::new(3, 2, &[2], true, 1);
    for keys in [&["pmix.qry.ns"][..], &["pmix.qry.psets", "pmix.qry.ns"]] {
        all.query(1, keys);
        all.gets(0, 1, 4, status::NOT_SUPPORTED);
    }
    all.query(1, &["pmix.qry.psets"]);
    all.gets(0, 1, 4, status::SUCCESS);
    assert!(all.requests.is_empty());
}

// Serves: Attributes | `PMIX_SERVER_URI` | served: of the client's server, also by a get
#[test]
fn texts_of_the_host_are_data_of_the_job_and_of_ranks() {
    let mut all = cluster();
    all.get_of_job((0, 1), "pmix.srvr.uri", None);
    let data = all.gets(0, 1, 3, status::SUCCESS);
    assert_eq!(value(&data, b"pmix.srvr.uri").as_string(), Some(&b"hydrant.0;tcp4://127.0.0.1:1"[..]));
    all.get((0, 1), (0, 0), "pmix.locstr");
    let data = all.gets(0, 1, 3, status::SUCCESS);
    assert_eq!(value(&data, b"pmix.locstr").as_string(), Some(&b"NM0:CR0-3"[..]));
    assert_eq!(value(&data, b"pmix.cpuset").as_string(), Some(&b"0-3"[..]));
    all.get_of_job((0, 1), "pmix.bindto", None);
    all.gets(0, 1, 3, status::NOT_FOUND);
}

#[test]
fn what_a_rank_is_not_told_of_its_job_it_gets() {
    let mut all = cluster_of(3, 3);
    all.asks(0, 1, 1, |writer| command(writer, 0));
    let reply = all.replies.get_mut(&1).and_then(VecDeque::pop_front).unwrap();
    assert!(
        ["pmix.jobid", "pmix.reinc", "pmix.wdir", "pmix.node.size"].iter().all(|key| !contains(&reply, key))
    );
    all.get_of_job((0, 1), "pmix.jobid", None);
    let data = all.gets(0, 1, 3, status::SUCCESS);
    assert_eq!(value(&data, b"pmix.jobid").as_string(), Some(&b"job.0"[..]));
    assert_eq!(value(&data, b"pmix.offset").as_u32(), Some(0));
    all.get((0, 1), (0, 2), "pmix.reinc");
    assert_eq!(value(&all.gets(0, 1, 3, status::SUCCESS), b"pmix.reinc").as_u32(), Some(0));
    let of_program = |all: &mut Cluster, appnum: u32| {
        all.asks(0, 1, 3, |writer| {
            command(writer, 4);
            writer.single();
            writer.string(b"job.0");
            writer.single();
            writer.uint32(WILDCARD);
            writer.array(1);
            writer.info(b"pmix.appnum", kind::UINT32);
            writer.uint32(appnum);
            writer.single();
            writer.string(b"pmix.wdir");
        });
    };
    of_program(&mut all, 0);
    let data = all.gets(0, 1, 3, status::SUCCESS);
    let program = value(&data, b"pmix.app.arr");
    let mut infos = program.array(kind::INFO, Reader::info).unwrap();
    let wdir = infos.find(|info| info.key == b"pmix.wdir").unwrap();
    assert_eq!(wdir.as_string(), Some(&b"/home"[..]));
    of_program(&mut all, 1);
    all.gets(0, 1, 3, status::NOT_FOUND);
    // Node 1 has ranks 0 and 2.
    all.get_of_job((0, 1), "pmix.node.size", Some("node0"));
    let data = all.gets(0, 1, 3, status::SUCCESS);
    let host = value(&data, b"pmix.node.arr");
    let infos: Vec<_> = host.array(kind::INFO, Reader::info).unwrap().collect();
    let number = |key: &[u8]| infos.iter().find(|info| info.key == key).and_then(|info| info.as_u32());
    let keys: [&[u8]; 4] = [b"pmix.nodeid", b"pmix.local.size", b"pmix.node.size", b"pmix.lldr"];
    assert_eq!(keys.map(number), [Some(0), Some(2), Some(2), Some(0)]);
    // The host knows process ids.
    all.get((0, 1), (0, 0), "pmix.ppid");
    assert!(all.reply(0, 1).is_none(), "the host has not answered");
    let request = all.requests.pop().expect("the host is asked");
    let Some(HostCall::Command { command: Command::Get { proc, .. }, .. }) = HostCall::read(&request) else {
        panic!("it is a get")
    };
    assert_eq!((proc.namespace, proc.rank), (&b"job.0"[..], 0));
    let mut all = Cluster::new(3, 2, &[2], true, 1);
    all.get((0, 1), (0, 0), "pmix.ppid");
    all.gets(0, 1, 3, status::NOT_FOUND);
}

/// A host learns the topology while clients wait for it.
#[test]
fn a_long_text_comes_in_parts_and_at_any_time() {
    let mut all = cluster();
    let node = all.node(1);
    assert_eq!(Limits::for_ranks(1).text_max(), TEXT_MAX);
    let longest = LIMITS.text_max();
    let text: Vec<u8> = (0..).map(|at: usize| b'a' + (at / 100 % 26) as u8).take(longest).collect();
    let set = |all: &mut Cluster, part: usize, value: &[u8]| {
        let end = if part > 0 { format!(".{part}") } else { String::new() };
        let key = format!("text:pmix.hwlocxml2{end}");
        all.tell(node, Input::Attr { job: JobId(0), key: key.as_bytes(), value });
    };
    let parts: Vec<&[u8]> = text.chunks(VALUE_MAX as usize).collect();
    for (part, value) in parts.iter().enumerate().rev() {
        all.get_of_job((0, 1), "pmix.hwlocxml2", None);
        all.gets(0, 1, 3, status::NOT_FOUND);
        set(&mut all, part, value);
    }
    all.get_of_job((0, 1), "pmix.hwlocxml2", None);
    let data = all.gets(0, 1, 3, status::SUCCESS);
    assert!(value(&data, b"pmix.hwlocxml2").as_string() == Some(&text[..]), "{} bytes", data.len());
    // One byte more.
    set(&mut all, parts.len(), b"z");
    all.get_of_job((0, 1), "pmix.hwlocxml2", None);
    all.gets(0, 1, 3, status::NOT_FOUND);
}

// Fault: A host sets a text in parts under a long name, and a client asks for the name of a part
// Outcome: the client gets the whole text, or none
// Guarantee: A text is never cut short, and a part of it is no text
#[test]
fn a_text_is_whole_or_not_there() {
    let mut all = cluster();
    let node = all.node(1);
    let name = |len: usize| format!("{:x<len$}", "pmix.");
    for len in [10, 25, 26, 27, 28, KEY_MAX as usize - 7, KEY_MAX as usize - 6] {
        let key = name(len);
        let first = format!("text:{key}");
        all.tell(node, Input::Attr { job: JobId(0), key: first.as_bytes(), value: b"one" });
        let second = format!("{first}.1");
        let input = Input::Attr { job: JobId(0), key: second.as_bytes(), value: b"two" };
        let fits = second.len() <= KEY_MAX as usize;
        let set = all.servers[node as usize].handle(all.now, input).map(drop);
        assert_eq!(set, if fits { Ok(()) } else { Err(Fault::BadAttribute) }, "{second}");
        all.get_of_job((0, 1), &key, None);
        let data = all.gets(0, 1, 3, status::SUCCESS);
        let whole: &[u8] = if fits { b"onetwo" } else { b"one" };
        assert_eq!(value(&data, key.as_bytes()).as_string(), Some(whole), "{key}");
    }
    for key in [&format!("{}.1", name(10)), "pmix.locstr@0"] {
        all.get_of_job((0, 1), key, None);
        all.gets(0, 1, 3, status::NOT_FOUND);
    }
}

// Serves: Attributes | `PMIX_PSET_NAMES` | served: by a get, the process sets that a rank is in, or any of its job. libpmix keeps
// the first answer that has any. A board without neighbours has none
// Also: libraries `interop::tools::processes_become_a_set`
#[test]
fn ranks_know_their_process_sets() {
    let mut all = cluster();
    for node in 0..3 {
        for (name, members) in [("both", "0-1"), ("hydrant://app/0", "0-1")] {
            let members = members.as_bytes();
            all.tell(node, Input::Define { job: JobId(0), name, members, other: None });
        }
    }
    for (rank, sets) in [(0, "app://left,app://both"), (1, "app://both"), (WILDCARD, "app://left,app://both")]
    {
        all.get((0, 1), (0, rank), "pmix.pset.nms");
        let data = all.gets(0, 1, 3, status::SUCCESS);
        assert_eq!(value(&data, b"pmix.pset.nms").as_string(), Some(sets.as_bytes()), "{rank}");
    }
    all.get((0, 1), (0, 2), "pmix.pset.nms");
    all.gets(0, 1, 3, status::NOT_FOUND);
    let mut all = cluster();
    all.get((0, 0), (0, 1), "pmix.pset.nms");
    all.gets(0, 0, 3, status::NOT_FOUND);
}

/// The reply about a job of six ranks has no room for all that is known of each.
// Serves: Requests | job info (0) | served: the [attributes](#attributes) of the job, of the client's program and of each rank.
// In a job of more than 64 ranks those of the requesting rank, and the places of bound ranks on the same host
#[test]
fn ranks_of_a_large_job_know_the_places_of_those_on_their_host() {
    let mut all = cluster_of(3, 6);
    for rank in [0, 2] {
        all.asks(0, rank, 1, |writer| command(writer, 0));
        let reply = all.replies.get_mut(&rank).and_then(VecDeque::pop_front).unwrap();
        let places = ["NM0:CR0-3", "NM1:CR4-7"];
        assert!(places.iter().all(|place| contains(&reply, place)), "{}", reply.escape_ascii());
        let count = |key: &str| reply.windows(key.len()).filter(|part| *part == key.as_bytes()).count();
        assert_eq!((count("pmix.lrank"), count("pmix.locstr")), (1, 2));
    }
}

// Serves: Requests | hosts and processes by name (37, 38) | served: `PMIx_Resolve_nodes` and `PMIx_Resolve_peers` of libpmix 5 and
// later, of a namespace or of all. libpmix 4 gets `PMIX_NODE_LIST` and `PMIX_LOCAL_PEERS`
// Also: libraries `interop::libpmix::those_who_connect_know_each_others_hosts`
#[test]
fn hosts_and_processes_are_found_by_name() {
    let mut all = Cluster::new(3, 2, &[3, 1], true, 1);
    let peers = |all: &mut Cluster, host: Option<&str>, namespace: &str| {
        all.asks(0, 1, 5, |writer| {
            command(writer, 37);
            writer.single();
            match host {
                Some(host) => writer.string(host.as_bytes()),
                None => writer.null_string(),
            }
            writer.single();
            writer.string(namespace.as_bytes());
        });
        let (_, code, rest) = all.reply(0, 1).expect("it is answered");
        let peers = Reader::new(Integers::Flexible, &rest).procs();
        let name = |proc: pmix::Proc<'_>| format!("{}:{}", proc.namespace.escape_ascii(), proc.rank);
        (code, peers.map(|peers| peers.iter().map(name).collect::<Vec<_>>().join(" ")).unwrap_or_default())
    };
    for (host, namespace, expected) in [
        (Some("node0"), "job.0", "job.0:0 job.0:2"),
        (Some("south"), "job.0", "job.0:1"),
        (None, "job.0", "job.0:1"),
        (None, "job.1", ""),
        (Some("node0"), "job.1", "job.1:0"),
        (Some("node0"), "", "job.0:0 job.0:2 job.1:0"),
        (Some("south"), "", "job.0:1"),
    ] {
        assert_eq!(
            peers(&mut all, host, namespace),
            (status::SUCCESS, String::from(expected)),
            "{host:?} {namespace}"
        );
    }
    for (host, namespace) in [("north", "job.0"), ("south", "job.1"), ("north", ""), ("node0", "job.2")] {
        assert_ne!(peers(&mut all, Some(host), namespace).0, status::SUCCESS, "{host} {namespace}");
    }
    for (namespace, expected) in [("job.0", "node0,south"), ("job.1", "node0"), ("", "node0,south")] {
        all.asks(0, 1, 5, |writer| {
            command(writer, 38);
            writer.single();
            writer.string(namespace.as_bytes());
        });
        let rest = all.gets(0, 1, 5, status::SUCCESS);
        let mut reader = Reader::new(Integers::Flexible, &rest);
        reader.single().unwrap();
        assert_eq!(reader.string().unwrap(), Some(expected.as_bytes()), "{namespace}");
    }
}

// Serves: Requests | group by invitation (25, 26, 27) | refused: libpmix invites, joins, declines and leaves by events
// Serves: Requests | fabrics, distances of devices (30, 31, 32) | refused
// Serves: Requests | resource blocks, sessions (34, 35) | refused
// Serves: Requests | topology of the host, other data formats (36, 39) | refused
#[test]
fn every_request_is_answered() {
    let mut all = cluster();
    let served: &[u8] =
        &[3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 22, 23, 24, 28, 29, 33, 37, 38];
    for number in 0..=u8::MAX {
        // An abort ends the job, and the end of a registration has no reply.
        if [0, 1, 2, 5, 14].contains(&number) {
            continue;
        }
        all.asks(0, 0, 9, |writer| command(writer, number));
        let refused = if served.contains(&number) { status::UNPACK_FAILURE } else { status::NOT_SUPPORTED };
        all.gets(0, 0, 9, refused);
    }
    assert_eq!(all.events, [""; 0], "no connection was closed");
    let node = all.node(0) as usize;
    let told = all.servers[node].unserved();
    assert!((0..63).all(|number| (told >> number & 1 == 0) == (number < 17 || served.contains(&number))));
}

/// The reply of the host to a request for hosts.
fn allocated(code: i32, texts: &[(&[u8], &str)]) -> Vec<u8> {
    let mut body = [0; 512];
    let mut writer = Writer::new(Integers::Flexible, &mut body);
    writer.status(code);
    writer.array(texts.len() as u32);
    for (key, text) in texts {
        writer.info(key, kind::STRING);
        writer.string(text.as_bytes());
    }
    let len = writer.finish().expect("it fits");
    body[..len].to_vec()
}

/// The client that has asked gets the events for whose codes it has registered, and no other client gets one.
#[test]
fn the_answer_to_a_request_for_hosts_is_an_event_too() {
    use crate::wire::pmix::{allocation, event, keys};

    const CODES: [i32; 3] = [event::HOSTS_ANSWERED, event::HOSTS_CHANGED, event::HOSTS_REFUSED];
    let (id, mine) = ((keys::ALLOC_ID, "hydrant.1"), (keys::ALLOC_REQ_ID, "mine"));
    let hosts = (&b"pmix.alloc.nlist"[..], "c");
    for (codes, code, texts, expected) in [
        (&CODES[..], status::SUCCESS, &[id, hosts, mine][..], &[CODES[0], CODES[1]][..]),
        (&CODES, status::NOT_FOUND, &[mine], &[CODES[0], CODES[2]]),
        (&CODES, status::PARTIAL_SUCCESS, &[id, hosts], &[CODES[0], CODES[2]]),
        (&CODES[1..2], status::SUCCESS, &[hosts], &[CODES[1]]),
        (&CODES[1..2], status::NOT_FOUND, &[], &[]),
        (&[], status::SUCCESS, &[id], &[]),
    ] {
        let mut all = cluster_of(3, 2);
        if !codes.is_empty() {
            all.listen((0, 0), codes);
        }
        all.listen((0, 1), &CODES);
        all.asks(0, 0, 5, |writer| {
            command(writer, 17);
            writer.single();
            writer.byte(allocation::EXTEND);
            writer.array(0);
        });
        all.tell(1, Input::UpcallComplete { upcall: UpcallId(0), rc: 0, text: &allocated(code, texts) });
        all.settle();
        all.gets(0, 0, 5, code);
        let conn = all.conn(0, 0);
        let events = all.replies.get_mut(&conn).map(core::mem::take).unwrap_or_default();
        let read = |bytes: Vec<u8>| {
            let mut reader = Reader::new(Integers::Flexible, &bytes[HEADER_LEN..]);
            reader.single().unwrap();
            assert_eq!(reader.byte(), Some(event::COMMAND));
            reader.single().unwrap();
            let event = reader.int32().unwrap();
            reader.single().unwrap();
            reader.proc().unwrap();
            let infos = reader.infos().unwrap();
            for (key, text) in [id, mine] {
                let found = infos.find(key).and_then(|info| info.as_string());
                assert_eq!(found, texts.contains(&(key, text)).then_some(text.as_bytes()), "{event}");
            }
            event
        };
        assert_eq!(events.into_iter().map(read).collect::<Vec<_>>(), expected, "after {code}");
        assert!(all.reply(0, 1).is_none(), "nobody else gets an event");
    }
}
