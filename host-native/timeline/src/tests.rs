//! Timelines of recordings that are made here.

use std::collections::BTreeMap;

use hydrant_core::server::{Consumed, Input, JobSpec, Output, Record};
use hydrant_core::{ConnId, Exit, JobId, Limits, Rank, Time};
use hydrant_record::Writer;

use crate::*;

const JOB: JobId = JobId(0);

/// A recording in the making.
struct Tape(Writer<Vec<u8>>);

impl Tape {
    fn new() -> Tape {
        let mut writer = Writer::new(Vec::new()).unwrap();
        writer.write(&Record::Begin { program: "test 1.0", limits: Limits::NONE, seed: 0 }).unwrap();
        Tape(writer)
    }

    fn job(size: u32) -> Tape {
        let mut tape = Tape::new();
        tape.input(2, Input::RegisterJob(JobSpec::new(JOB, "job", size)));
        tape
    }

    fn input(&mut self, at: u64, input: Input<'_>) {
        self.0.write(&Record::Input { now: Time(at), input }).unwrap();
    }

    fn opened(&mut self, at: u64, rank: u32) {
        self.input(at, Input::Opened { conn: ConnId(rank), job: JOB, rank: Some(Rank(rank)) });
    }

    fn request(&mut self, at: u64, rank: u32, bytes: &[u8]) {
        self.input(at, Input::Bytes { conn: ConnId(rank), bytes, full: false });
        let consumed = Consumed { bytes: bytes.len() as u32, again: false };
        self.0.write(&Record::Took { consumed, wake: None }).unwrap();
    }

    fn output(&mut self, output: Output<'_>) {
        self.0.write(&Record::Output(output)).unwrap();
    }

    fn reply(&mut self, rank: u32, bytes: &[u8]) {
        self.output(Output::Bytes { conn: ConnId(rank), bytes });
    }

    /// A request and its reply in the same millisecond.
    fn exchange(&mut self, at: u64, rank: u32, request: &str, reply: &str) {
        self.request(at, rank, request.as_bytes());
        self.reply(rank, reply.as_bytes());
    }

    /// A rank that initializes.
    fn init(&mut self, at: u64, rank: u32) {
        self.exchange(at, rank, "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init rc=0\n");
        self.output(Output::Joined { conn: ConnId(rank), job: JOB, rank: Rank(rank) });
    }

    /// All ranks in a fence, with these arrivals.
    fn fence(&mut self, arrivals: &[u64]) {
        let mut arrivals: Vec<(u64, u32)> = arrivals.iter().copied().zip(0..).collect();
        arrivals.sort_unstable();
        for &(at, rank) in &arrivals {
            self.request(at, rank, b"cmd=barrier_in\n");
        }
        for rank in 0..arrivals.len() as u32 {
            self.reply(rank, b"cmd=barrier_out rc=0\n");
        }
    }

    fn end(mut self) -> Vec<u8> {
        self.0.finish().unwrap();
        self.0.into_inner()
    }
}

fn read(file: &[u8]) -> Timeline {
    Timeline::read([("job.rec", file)], &Budget::default()).unwrap()
}

fn summary(timeline: &Timeline) -> String {
    let mut text = Vec::new();
    write_summary(timeline, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn spans(track: &Track) -> Vec<(Phase, i64, Option<i64>)> {
    track.spans.iter().map(|span| (span.phase, span.start, span.end)).collect()
}

/// Two ranks: rank 1 is late in the first fence, and both end with a fence.
fn two_ranks() -> Vec<u8> {
    let mut tape = Tape::job(2);
    tape.opened(5, 0);
    tape.opened(9, 1);
    tape.init(20, 0);
    tape.init(60, 1);
    tape.exchange(61, 0, "cmd=put kvsname=job key=</script> value=<b>&amp;\n", "cmd=put_result rc=0\n");
    tape.exchange(63, 0, "cmd=put kvsname=job key=c value=d\n", "cmd=put_result rc=0\n");
    tape.fence(&[70, 100]);
    tape.exchange(110, 1, "cmd=get kvsname=job key=c\n", "cmd=get_result rc=0 value=d\n");
    tape.fence(&[500, 490]);
    for rank in 0..2 {
        tape.exchange(510, rank, "cmd=finalize\n", "cmd=finalize_ack\n");
        tape.input(520, Input::Closed { conn: ConnId(rank) });
        tape.input(525, Input::Exited { job: JOB, rank: Rank(rank), exit: Exit::Code(3) });
    }
    tape.end()
}

#[test]
fn a_rank_has_a_span_for_each_phase() {
    let timeline = read(&two_ranks());
    use Phase::*;
    let first = [
        (Launch, 2, Some(5)),
        (Start, 5, Some(20)),
        (Init, 20, Some(20)),
        (Put, 61, Some(63)),
        (Fence, 70, Some(100)),
        (Fence, 500, Some(500)),
        (Finalize, 510, Some(510)),
    ];
    assert_eq!(spans(&timeline.tracks[0]), first);
    assert_eq!(timeline.tracks[0].exit, Some((525, Exit::Code(3))));
    assert_eq!(timeline.tracks[0].protocol, Some(Protocol::Pmi1));
    assert_eq!((timeline.tracks[0].spans[3].requests, timeline.tracks[0].spans[3].messages.len()), (2, 4));
    assert_eq!(timeline.left_out, LeftOut::default());
    let [one, two] = &timeline.collectives[..] else { panic!("{:?}", timeline.collectives) };
    assert_eq!(
        (one.name.as_str(), one.number, one.size, one.lead, one.waited),
        ("fence", 1, Some(2), 30, 30)
    );
    assert_eq!(timeline.tracks[one.arrived[one.last].track].rank, 1);
    assert_eq!(timeline.tracks[two.arrived[two.last].track].rank, 0);
}

#[test]
fn the_fence_before_finalize_is_no_part_of_the_start_up() {
    let timeline = read(&two_ranks());
    let start_up = timeline.start_up(0);
    assert_eq!((start_up.begin, start_up.end, start_up.ranks), (2, 110, 2));
    let times: BTreeMap<&str, (u64, u64)> =
        start_up.phases.iter().map(|phase| (phase.name, (phase.sum, phase.max))).collect();
    assert_eq!(times["launch"], (10, 7));
    assert_eq!(times["fence"], (30, 30));
    assert_eq!(times["finalize"], (30, 20));
    // Rank 0: 20 to 61 and 63 to 70. Rank 1: 60 to 100 and 100 to 110.
    assert_eq!(times["own"], (98, 50));
    let text = summary(&timeline);
    assert!(text.starts_with("job job: 2 ranks on 1 host, PMI-1\n\nphase "), "{text}");
    assert!(text.contains("\nfence           15.0   14.6%       30  0 (30)\n"), "{text}");
    assert!(text.contains("\nstart-up       103.0  100.0%      108  1 (108), 0 (98)\n"), "{text}");
    // Both are counted from the registration of the job, at 2.
    let fence = "fence 1              2        68       98      15.0       30  rank 1 (30)\n";
    assert!(text.contains(fence), "{text}");
}

/// A server that runs, with the records of a recording.
fn live(recording: &[u8]) -> Option<Summary> {
    let mut live = Live::new("n1".to_owned());
    let mut reader = hydrant_record::Reader::new(recording).unwrap();
    while let Some(entry) = reader.next_record().unwrap() {
        match entry.record {
            Record::Input { now, input } => live.input(now, input),
            Record::Took { consumed, .. } => live.took(consumed),
            Record::Output(output) => live.output(&output),
            _ => {}
        }
    }
    let arrivals = live.take_arrivals();
    assert!(arrivals.is_empty() || arrivals == [(JOB, 0, 5), (JOB, 1, 9)], "{arrivals:?}");
    assert!(live.take_arrivals().is_empty());
    let summary = live.take_job(JOB);
    assert_eq!(live.take_job(JOB), None);
    summary
}

#[test]
fn a_running_server_gives_the_summary_of_its_recording() {
    let recording = two_ranks();
    assert_eq!(live(&recording), Some(Summary::of(&read(&recording), 0)));
    assert_eq!(live(&Tape::new().end()), None);
}

#[test]
fn the_parts_of_a_start_add_up() {
    let add_up = |summary: &Summary| {
        let parts = summary.parts.iter().filter(|part| part.starts);
        assert_eq!(parts.map(|part| part.sum).sum::<u64>(), summary.all.sum, "{summary:?}");
    };
    let mut summary = live(&two_ranks()).unwrap();
    add_up(&summary);
    let mut other = summary.clone();
    summary.name_host("n1");
    other.name_host("n2");
    other.collectives[0].shortest = 4;
    summary.merge(other);
    summary.begin_with("daemons", 7, Vec::new());
    add_up(&summary);
    assert_eq!((summary.ranks, summary.hosts, summary.all.sum, summary.all.max), (4, 2, 440, 115));
    // Rank 1 of the first host has waited least.
    let fence = &summary.collectives[0];
    assert_eq!((fence.ranks, fence.waited, fence.last.host.as_str(), fence.last.millis), (4, 60, "n1", 4));
}

/// A rank whose thread 1 enters a fence after 10 ms, and whose thread 2 asks for a value after 12 ms.
fn fence_beside_get() -> Tape {
    let mut tape = Tape::job(1);
    tape.opened(3, 0);
    tape.exchange(4, 0, "cmd=init pmi_version=2 pmi_subversion=0\n", "cmd=response_to_init rc=0\n");
    tape.output(Output::Joined { conn: ConnId(0), job: JOB, rank: Rank(0) });
    tape.request(10, 0, b"    22cmd=kvs-fence;thrid=1;");
    tape.request(12, 0, b"    26cmd=kvs-get;thrid=2;key=a;");
    tape
}

/// Spans of one connection overlap: PMIx clients ask while they wait.
#[test]
fn overlapping_requests_count_once() {
    let mut tape = fence_beside_get();
    tape.input(30, Input::Timeout);
    tape.reply(0, b"    36cmd=kvs-fence-response;thrid=1;rc=0;");
    tape.input(34, Input::Timeout);
    tape.reply(0, b"    50cmd=kvs-get-response;thrid=2;rc=0;found=TRUE;value=1;");
    let start_up = read(&tape.end()).start_up(0);
    let times: BTreeMap<&str, u64> = start_up.phases.iter().map(|phase| (phase.name, phase.sum)).collect();
    assert_eq!((times["own"], times["fence"], times["get"], start_up.all.sum), (6, 20, 4, 32));
}

#[test]
fn a_scan_of_the_machine_lasts_until_the_next_request() {
    let scan = |reply: &str| {
        let mut tape = Tape::job(1);
        tape.opened(3, 0);
        tape.init(4, 0);
        tape.exchange(10, 0, "cmd=get kvsname=job key=PMI_hwloc_xmlfile\n", reply);
        tape.exchange(60, 0, "cmd=get kvsname=job key=other\n", "cmd=get_result rc=1 msg=key_not_found\n");
        tape.exchange(90, 0, "cmd=get kvsname=job key=other\n", "cmd=get_result rc=1 msg=key_not_found\n");
        read(&tape.end()).tracks[0].scan
    };
    assert_eq!(scan("cmd=get_result rc=1 msg=key_not_found value=unknown\n"), Some(50));
    assert_eq!(scan("cmd=get_result rc=0 value=/t\n"), None);
}

/// Replies of PMI-2 name the thread, and may overtake each other.
#[test]
fn replies_belong_to_their_threads() {
    let mut tape = fence_beside_get();
    tape.input(15, Input::Timeout);
    tape.reply(0, b"    50cmd=kvs-get-response;thrid=2;rc=0;found=TRUE;value=1;");
    tape.input(30, Input::Timeout);
    tape.reply(0, b"    36cmd=kvs-fence-response;thrid=1;rc=0;");
    let timeline = read(&tape.end());
    let ends = spans(&timeline.tracks[0]);
    assert_eq!(ends[3..], [(Phase::Fence, 10, Some(30)), (Phase::Get, 12, Some(15))]);
    // They overlap, so they are on two threads of a trace.
    assert_eq!(threads(&trace(&timeline)), 2);
}

#[test]
fn groups_are_told_apart_by_their_members() {
    let mut tape = Tape::job(4);
    for rank in 0..4 {
        tape.opened(1, rank);
        tape.init(2, rank);
    }
    for (at, rank, group) in
        [(10, 0, "0,2:7"), (11, 1, "1,3:7"), (12, 2, "2,0:7"), (13, 3, "3,1:7"), (14, 0, "0,2:7")]
    {
        tape.request(at, rank, format!("cmd=barrier_in group={group}\n").as_bytes());
    }
    let timeline = read(&tape.end());
    let found: Vec<_> = timeline
        .collectives
        .iter()
        .map(|found| (found.name.as_str(), found.number, found.arrived.len()))
        .collect();
    assert_eq!(found, [("barrier of 0,2:7", 1, 2), ("barrier of 1,3:7", 1, 2), ("barrier of 0,2:7", 2, 1)]);
}

#[test]
fn a_fence_that_is_not_released_names_the_missing_ranks() {
    let mut tape = Tape::job(4);
    for rank in 0..3 {
        tape.opened(1, rank);
        tape.init(2, rank);
    }
    tape.request(10, 0, b"cmd=barrier_in\n");
    tape.request(20, 2, b"cmd=barrier_in\n");
    tape.input(5000, Input::Timeout);
    let mut file = tape.end();
    file.truncate(file.len() - 3);
    let timeline = read(&file);
    assert!(timeline.nodes[0].cut.as_deref().is_some_and(|cut| cut.starts_with("truncated")));
    let fence = &timeline.collectives[0];
    assert_eq!((fence.open, fence.waited, fence.longest), (true, 9970, 4990));
    let text = summary(&timeline);
    assert!(text.contains("rank 2 (10); 2 missing: 1, 3\n"), "{text}");
    assert!(text.contains("note: job.rec is truncated"), "{text}");
    assert!(text.contains("4 ranks, 3 of them recorded on 1 host"), "{text}");
}

/// Recordings of the head and of two hosts, whose clocks are 1000 ms and 40 ms behind.
fn three_nodes() -> [Vec<u8>; 3] {
    let node = |number, base: u64| {
        let mut tape = Tape::new();
        tape.input(0, Input::Node { node: number, nodes: 3, radix: 2 });
        tape.input(1100 - base, Input::RegisterJob(JobSpec::new(JOB, "job", 2)));
        tape
    };
    let (mut head, mut one, mut two) = (node(0, 0), node(1, 1000), node(2, 40));
    for (tape, rank, base) in [(&mut one, 0, 1000), (&mut two, 1, 40)] {
        tape.opened(1110 - base, rank);
        tape.init(1150 - base, rank);
        let arrival = if rank == 0 { 1300 } else { 1200 };
        tape.request(arrival - base, rank, b"cmd=barrier_in\n");
        tape.output(Output::Peer { node: 0, bytes: b"arrived" });
        tape.input(1306 - base, Input::Peer { node: 0, bytes: b"released" });
        tape.reply(rank, b"cmd=barrier_out rc=0\n");
    }
    head.input(1202, Input::Peer { node: 2, bytes: b"arrived" });
    head.input(1302, Input::Peer { node: 1, bytes: b"arrived" });
    head.output(Output::Peer { node: 1, bytes: b"released" });
    head.output(Output::Peer { node: 2, bytes: b"released" });
    [head.end(), one.end(), two.end()]
}

#[test]
fn recordings_of_several_nodes_are_on_one_clock() {
    let files = three_nodes();
    let named = ["job.rec", "n1", "n2"].into_iter().zip(files.iter().map(Vec::as_slice));
    // The order of the files does not matter.
    let timeline = Timeline::read(named.clone().rev(), &Budget::default()).unwrap();
    for (label, offset) in [("job.rec", 0), ("n1", 1000), ("n2", 40)] {
        let node = timeline.nodes.iter().find(|node| node.label == label).unwrap();
        let error = node.clock.error.expect("messages in both directions bound it");
        assert!(
            error <= 4 && (node.clock.offset - offset).unsigned_abs() <= error,
            "{label}: {:?}",
            node.clock
        );
    }
    let fence = &timeline.collectives[0];
    assert_eq!((fence.arrived.len(), timeline.tracks[fence.arrived[fence.last].track].rank), (2, 0));
    let text = summary(&timeline);
    assert!(text.contains("2 ranks on 2 hosts"), "{text}");
    assert!(text.contains("rank 0 on n1"), "{text}");
    let clocks = "note: times are on the clock of job.rec\nnote: the clock of n1 starts at 0.999 s, error at most 0.004 s\n";
    assert!(text.contains(clocks), "{text}");
    assert!(!text.contains("ranks of the others"), "{text}");
    let some = summary(&Timeline::read(named.take(2), &Budget::default()).unwrap());
    assert!(some.contains("note: recordings of 2 of 3 nodes: ranks of the others are not shown\n"), "{some}");
}

#[test]
fn recordings_of_different_runs_are_refused() {
    let files = three_nodes();
    let read = |files: &[&[u8]]| {
        let named = files.iter().enumerate().map(|(at, file)| (format!("{at}.rec"), *file));
        Timeline::read(named, &Budget::default()).unwrap_err().to_string()
    };
    assert!(read(&[&files[1], &files[1]]).contains("0.rec and 1.rec are both recordings of node 1"));
    let mut other = Tape::new();
    other.input(0, Input::Node { node: 2, nodes: 3, radix: 2 });
    other.input(1, Input::RegisterJob(JobSpec::new(JOB, "another", 2)));
    assert!(read(&[&files[0], &other.end()]).contains("0.rec and 1.rec have no job in common"));
    assert!(read(&[b"#!/bin/sh"]).starts_with("0.rec: not a recording"));
}

#[test]
fn budgets_are_kept_and_what_is_left_out_is_counted() {
    let budget = Budget { ranks: 1, spans: 4, collectives: 2, text: 200 };
    let timeline = Timeline::read([("job.rec", &two_ranks()[..])], &budget).unwrap();
    assert_eq!(timeline.tracks.len(), 1);
    let LeftOut { messages, spans, ranks, arrivals, others, connections } = timeline.left_out;
    assert!(messages > 0 && spans > 0 && ranks > 0, "{:?}", timeline.left_out);
    assert_eq!((arrivals, others, connections), (0, 0, 0));
    // Launch and start are made without a budget.
    assert!(timeline.tracks[0].spans.len() <= 4 + 2);
    let text = summary(&timeline);
    assert!(text.contains("requests are left out beyond the budget for spans\n"), "{text}");
    let none =
        Timeline::read([("job.rec", &two_ranks()[..])], &Budget { text: 0, ..Budget::default() }).unwrap();
    assert_eq!(none.left_out, LeftOut::default());
    assert!(none.tracks.iter().flat_map(|track| &track.spans).all(|span| span.messages.is_empty()));
}

fn trace(timeline: &Timeline) -> Vec<serde_json::Value> {
    let mut json = Vec::new();
    write_trace(timeline, &mut json).unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    serde_json::from_value(json["traceEvents"].take()).unwrap()
}

fn threads(events: &[serde_json::Value]) -> usize {
    let names = events.iter().filter(|event| event["name"] == "thread_name");
    names.map(|event| event["tid"].to_string()).collect::<std::collections::BTreeSet<_>>().len()
}

/// The rules of the format: spans of a thread do not overlap, each flow has both ends, and each end is in a span.
#[test]
fn a_trace_keeps_the_rules_of_its_format() {
    let files = three_nodes();
    let named = ["job.rec", "n1", "n2"].into_iter().zip(files.iter().map(Vec::as_slice));
    let nodes = Timeline::read(named, &Budget::default()).unwrap();
    for (timeline, flows) in [(read(&two_ranks()), 2), (nodes, 1)] {
        let events = trace(&timeline);
        let number = |event: &serde_json::Value, key: &str| event[key].as_i64().unwrap();
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
        let mut spans: BTreeMap<(i64, i64), Vec<(i64, i64)>> = BTreeMap::new();
        for event in of("X") {
            let (start, dur) = (number(event, "ts"), number(event, "dur"));
            assert!(dur > 0);
            spans.entry((number(event, "pid"), number(event, "tid"))).or_default().push((start, start + dur));
        }
        for spans in spans.values_mut() {
            spans.sort_unstable();
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
        }
        let (starts, ends) = (of("s"), of("f"));
        assert_eq!((starts.len(), ends.len()), (flows, flows));
        for end in starts.iter().chain(&ends) {
            let at = number(end, "ts");
            let thread = &spans[&(number(end, "pid"), number(end, "tid"))];
            assert!(thread.iter().any(|&(start, end)| (start..end).contains(&at)), "{end}");
        }
        assert!(starts.iter().zip(&ends).all(|(start, end)| start["id"] == end["id"] && end["bp"] == "e"));
        assert_eq!(threads(&events), timeline.tracks.len());
        let processes = events.iter().filter(|event| event["name"] == "process_name").count();
        assert_eq!(processes, timeline.nodes.len());
    }
}

fn page(timeline: &Timeline) -> String {
    let mut text = Vec::new();
    write_page(timeline, "</title><b>&\"job\"", &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn texts_of_clients_stay_inside_the_data_of_a_page() {
    let page = page(&read(&two_ranks()));
    assert_eq!(page.matches("</script").count(), 2);
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</title").count(), 1);
    assert!(page.contains("<title>&lt;/title&gt;&lt;b&gt;&amp;&quot;job&quot;"));
    assert!(!page.contains("http://") && !page.contains("https://"));
    let data = page.split_once("id=\"data\">").and_then(|(_, rest)| rest.split_once("</script>")).unwrap().0;
    assert!(!data.contains(['<', '>', '&']));
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let message = &data["tracks"][0][6][3][7][0];
    assert_eq!(message[2], r"cmd=put kvsname=job key=</script> value=<b>&amp;\n");
    assert_eq!(data["collectives"][0]["rank"], "rank 1");
}

/// Records that no server wrote: any bytes, times that go back, and connections that were never opened.
#[test]
fn hostile_recordings_give_a_timeline() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let texts = [
        "cmd=barrier_in\n",
        "cmd=init pmi_version=2 pmi_subversion=0\n",
        "    14cmd=kvs-fence;",
        "\u{0}\u{0}",
        "cmd=",
        "mcmd=spawn\n",
    ];
    for _ in 0..30 {
        let mut tape = Tape::new();
        for _ in 0..60 {
            let at = [random() % 100, random()][usize::from(random() % 7 == 0)];
            let (conn, job) = (ConnId((random() % 5) as u32), JobId((random() % 3) as u32));
            let (rank, node) = (Rank((random() % 4) as u32), (random() % 3) as u32);
            let any = random().to_le_bytes();
            let text = texts[random() as usize % texts.len()].as_bytes();
            match random() % 10 {
                0 => tape.input(
                    at,
                    Input::RegisterJob(JobSpec::new(job, ["a", "b"][random() as usize % 2], random() as u32)),
                ),
                1 => tape.input(at, Input::Opened { conn, job, rank: (at % 2 == 0).then_some(rank) }),
                2 => tape.request(at, conn.0, text),
                3 => tape.request(at, conn.0, &any),
                4 => tape.request(at, conn.0, &[&[0xff; 16][..], &any].concat()),
                5 => tape.reply(conn.0, text),
                6 => tape.reply(conn.0, &any),
                7 => tape.output(Output::Joined { conn, job, rank }),
                8 => tape.input(at, Input::Peer { node, bytes: &any }),
                _ => tape.input(at, Input::Node { node, nodes: random() as u32, radix: 0 }),
            }
        }
        let file = tape.end();
        let other = two_ranks();
        for end in [file.len(), file.len() / 2] {
            let timeline = read(&file[..end]);
            summary(&timeline);
            trace(&timeline);
            page(&timeline);
            // Refused or not, together with another recording.
            let both = Timeline::read([("a", &file[..end]), ("b", &other[..])], &Budget::default());
            drop(both.map(|timeline| trace(&timeline)));
        }
    }
}

/// Messages of libpmix: a handshake, and a fence whose reply is found by its tag.
#[test]
fn requests_of_pmix_have_phases() {
    use hydrant_core::wire::Integers;
    use hydrant_core::wire::pmix::{WILDCARD, Writer, write_header};
    let message = |tag, write: &dyn Fn(&mut Writer<'_>)| {
        let mut body = [0; 256];
        let mut writer = Writer::new(Integers::Flexible, &mut body);
        write(&mut writer);
        let len = writer.finish().unwrap();
        [&write_header(tag, len as u32)[..], &body[..len]].concat()
    };
    let body = b"native\0\0\0\0\0\0job\0\0\0\0\x005.0.11\0v41\0\x01hash\0";
    let hello = [&[0xff; 8][..], &(body.len() as u32).to_le_bytes(), &[0; 4], body].concat();
    let fence = |rank| {
        message(101, &|writer| {
            writer.single();
            writer.byte(3);
            writer.array(1);
            writer.proc(b"job", rank);
            writer.array(0);
        })
    };
    let mut tape = Tape::job(1);
    tape.opened(3, 7);
    tape.input(10, Input::Opened { conn: ConnId(0), job: JOB, rank: None });
    tape.request(12, 0, &hello);
    tape.output(Output::Joined { conn: ConnId(0), job: JOB, rank: Rank(0) });
    tape.reply(0, &[0; 8]);
    tape.request(20, 0, &fence(WILDCARD));
    tape.input(30, Input::Timeout);
    tape.reply(0, &message(101, &|writer| writer.status(0)));
    tape.request(40, 0, &fence(0));
    let timeline = read(&tape.end());
    let track = &timeline.tracks[0];
    assert_eq!(track.protocol, Some(Protocol::Pmix));
    use Phase::*;
    let expected = [
        (Launch, 2, Some(10)),
        (Start, 10, Some(12)),
        (Init, 12, Some(12)),
        (Fence, 20, Some(30)),
        (Fence, 40, None),
    ];
    assert_eq!(spans(track), expected);
    let names: Vec<_> = timeline.collectives.iter().map(|found| (found.name.as_str(), found.size)).collect();
    assert_eq!(names, [("fence", Some(1)), ("fence of 0", None)]);
}

#[test]
fn hints_name_what_was_measured() {
    let summary = Summary {
        size: 4,
        ranks: 4,
        hosts: 2,
        all: Part { sum: 4000, ..Part::default() },
        parts: vec![Part { name: "start".to_owned(), starts: true, sum: 500, ..Part::default() }],
        usage: Usage { ranks: 4, elapsed: 5000, running: 400, queued: 0, ..Usage::default() },
        ..Summary::default()
    };
    assert_eq!(summary.hints(), [""; 0], "a sleep alone is nobody's");
    let asleep = |libfabric, openmpi| Summary {
        usage: Usage { libfabric, openmpi, ..summary.usage },
        ..summary.clone()
    };
    assert!(
        asleep(4, 4).hints()[0].starts_with("before its first fence a rank waited 1150 ms for no processor")
    );
    assert_eq!((asleep(0, 4).hints(), asleep(4, 0).hints()), (vec![], vec![]), "both are needed");
    let crowded = Summary { usage: Usage { queued: 800, ..summary.usage }, ..summary.clone() };
    assert!(crowded.hints()[0].starts_with("a rank waited 200 ms for a processor"), "{:?}", crowded.hints());
    let cold = Summary { usage: Usage { read: 40 << 20, libraries: 30, ..summary.usage }, ..summary.clone() };
    assert!(cold.hints()[0].starts_with("ranks read 40 MiB from disks"), "{:?}", cold.hints());
    let scans = Summary { scans: (4, 800), ..summary.clone() };
    assert!(
        scans.hints()[0].starts_with("4 ranks scanned their machine for 200 ms each"),
        "{:?}",
        scans.hints()
    );
    let last = Slow { rank: Some(3), host: "n2".to_owned(), millis: 300 };
    let fence = Fence { name: "fence 1".to_owned(), ranks: 4, waited: 900, last, ..Fence::default() };
    let late = Summary { collectives: vec![fence], ..summary };
    assert_eq!(late.hints(), ["the other ranks waited 300 ms for rank 3 on n2 alone, in fence 1"]);
}
