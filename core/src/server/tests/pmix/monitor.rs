//! Monitors of heartbeats and files, and texts for the log of the system.

use super::queries::cluster_of;
use super::*;
use crate::ids::UpcallId;
use crate::wire::pmix::{FileState, HelpText, HostCall, event, kind};

/// Alert that a client chooses.
const CODE: i32 = -3000;

impl Cluster {
    fn at(&mut self, rank: u32, millis: u64) {
        self.now = Time(millis);
        self.tell(self.node(rank), Input::Timeout);
        self.settle();
    }
    /// A rank asks for a monitor with numbers and flags as its options. Returns the status.
    fn monitor(
        &mut self,
        rank: u32,
        (key, text): (&str, Option<&str>),
        code: i32,
        name: &str,
        numbers: &[(&str, u32)],
    ) -> i32 {
        self.asks(0, rank, 5, |writer| {
            command(writer, 19);
            writer.single();
            match text {
                Some(text) => {
                    writer.info(key.as_bytes(), kind::STRING);
                    writer.string(text.as_bytes());
                }
                None => writer.info(key.as_bytes(), 0),
            }
            writer.status(code);
            writer.array(1 + numbers.len() as u32);
            writer.info(b"pmix.monitor.id", kind::STRING);
            writer.string(name.as_bytes());
            for (key, number) in numbers {
                let is_time = key.ends_with("time") || key.ends_with("drop");
                writer.info(key.as_bytes(), if is_time { kind::UINT32 } else { kind::BOOL });
                if is_time { writer.uint32(*number) } else { writer.byte(*number as u8) }
            }
        });
        let (tag, status, rest) = self.reply(0, rank).expect("it is answered");
        assert_eq!(tag, 5);
        if status == status::SUCCESS {
            let mut reader = Reader::new(Integers::Flexible, &rest);
            assert!(reader.infos().is_some_and(|infos| infos.is_empty()) && reader.is_at_end());
        }
        status
    }

    fn heartbeats(&mut self, rank: u32, code: i32, name: &str, (period, drops): (u32, u32)) -> i32 {
        let options = [("pmix.monitor.btime", period), ("pmix.monitor.bdrop", drops)];
        self.monitor(rank, ("pmix.monitor.mbeat", None), code, name, &options)
    }

    fn cancel(&mut self, rank: u32, name: Option<&str>) {
        assert_eq!(self.monitor(rank, ("pmix.monitor.cancel", name), 0, "", &[]), status::SUCCESS);
    }

    fn beat(&mut self, rank: u32) {
        self.send(0, rank, &pmix::write_header(pmix::HEARTBEAT_TAG, 0));
    }

    /// Takes the events of a rank: the code and the rank of the source of each.
    fn alerts(&mut self, rank: u32) -> Vec<(i32, u32)> {
        let messages = core::iter::from_fn(|| self.reply(0, rank));
        let read = |(tag, _, rest): (u32, i32, Vec<u8>)| {
            assert_eq!(tag, 0);
            let mut reader = Reader::new(Integers::Flexible, &rest);
            reader.single().unwrap();
            let code = reader.int32().unwrap();
            reader.single().unwrap();
            (code, reader.proc().unwrap().rank)
        };
        messages.map(read).collect()
    }

    /// The host answers the request to look at a file.
    fn look(&mut self, rank: u32, path: &str, file: Option<FileState>) {
        let request = self.requests.pop().expect("the host is asked");
        assert_eq!(HostCall::read(&request), Some(HostCall::File(path.as_bytes())));
        let bytes = file.map(FileState::to_bytes);
        let (rc, text) = bytes.as_ref().map_or((1, &b"no such file"[..]), |bytes| (0, &bytes[..]));
        self.tell(self.node(rank), Input::UpcallComplete { upcall: UpcallId(0), rc, text });
        self.settle();
    }
}

// Fault: A process sends no heartbeats, as it has promised (`PMIX_MONITOR_HEARTBEAT`)
// Outcome: those of its job that have registered for the alert get it once
// Guarantee: A heartbeat that comes after the alert begins anew
#[test]
fn missing_heartbeats_are_reported_once() {
    let mut all = cluster_of(3, 3);
    (0..3).for_each(|rank| all.listen((0, rank), &[event::HEARTBEAT_ALERT]));
    // Rank 2 is on the node of rank 0.
    assert_eq!(all.heartbeats(1, status::SUCCESS, "life", (2, 1)), status::SUCCESS);
    all.at(1, 1999);
    all.at(1, 2000);
    assert_eq!(all.alerts(0), [], "the first one that is missed");
    all.at(1, 4000);
    let expected = [(event::HEARTBEAT_ALERT, 1)];
    assert_eq!([all.alerts(0), all.alerts(1), all.alerts(2)], [&expected[..], &[], &expected]);
    all.at(1, 6000);
    all.at(1, 8000);
    assert_eq!(all.alerts(0), [], "it has been reported");
    all.beat(1);
    all.at(1, 10_000);
    all.at(1, 12_000);
    all.beat(1);
    all.at(1, 14_000);
    assert_eq!(all.alerts(0), [], "it lives");
    all.at(1, 16_000);
    all.at(1, 18_000);
    assert_eq!(all.alerts(0), expected);
    assert_eq!(all.events, [""; 0], "no connection was closed");
}

// Fault: A PMIx client sends a heartbeat that nobody waits for (`PMIx_Heartbeat`)
// Outcome: nothing happens
// Guarantee: A message without a body and a reply is no malformed one
#[test]
fn a_heartbeat_counts_for_each_monitor_and_needs_none() {
    let mut all = cluster_of(3, 2);
    all.listen((0, 0), &[event::HEARTBEAT_ALERT, CODE]);
    all.beat(0);
    all.beat(1);
    assert_eq!(all.heartbeats(1, CODE, "one", (1, 0)), status::SUCCESS);
    all.beat(1);
    all.at(1, 1000);
    assert_eq!(all.alerts(0), []);
    all.at(1, 2000);
    assert_eq!(all.alerts(0), [(CODE, 1)], "the code that the client has chosen");
    assert_eq!(all.monitor(1, ("pmix.monitor.beat", None), 0, "", &[]), status::SUCCESS);
    all.at(1, 3000);
    assert_eq!(all.alerts(0), []);
    assert_eq!(all.events, [""; 0], "no connection was closed");
}

#[test]
fn monitors_end_by_name_with_their_process_and_at_their_limit() {
    let mut all = cluster_of(3, 2);
    all.listen((0, 0), &[event::HEARTBEAT_ALERT]);
    // A quarter of the 32 names.
    for name in ["other", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "one"] {
        assert_eq!(all.heartbeats(1, 0, name, (1, 0)), status::SUCCESS);
    }
    assert_eq!(all.heartbeats(1, 0, "two", (1, 0)), status::OUT_OF_RESOURCE);
    all.cancel(1, Some("two"));
    all.cancel(0, None);
    assert_eq!(all.heartbeats(1, 0, "two", (1, 0)), status::OUT_OF_RESOURCE, "the first one stays");
    all.cancel(1, Some("one"));
    assert_eq!(all.heartbeats(1, 0, "two", (1, 0)), status::SUCCESS);
    all.cancel(1, None);
    assert_eq!(all.heartbeats(1, 0, "three", (1, 0)), status::SUCCESS);
    all.asks(0, 1, 6, |writer| command(writer, 5));
    all.gets(0, 1, 6, status::SUCCESS);
    all.at(1, 2000);
    assert_eq!(all.alerts(0), [], "the process has finalized");
    assert_eq!(all.heartbeats(0, 0, "four", (1, 0)), status::SUCCESS);
    let conn = ConnId(all.conn(0, 0));
    all.tell(all.node(0), Input::Closed { conn });
    let node = all.node(0) as usize;
    assert_eq!(all.servers[node].check_monitors(Time(9000)), None);
}

#[test]
fn monitors_without_what_they_need_are_refused() {
    let mut all = cluster_of(3, 2);
    assert_eq!(all.heartbeats(0, 0, "", (0, 3)), status::BAD_PARAM);
    let file = |all: &mut Cluster, options: &[(&str, u32)]| {
        all.monitor(0, ("pmix.monitor.fmon", Some("/file")), 0, "", options)
    };
    assert_eq!(file(&mut all, &[("pmix.monitor.fsize", 1)]), status::BAD_PARAM, "no time");
    assert_eq!(file(&mut all, &[("pmix.monitor.ftime", 1)]), status::BAD_PARAM, "nothing to watch");
    let options = [("pmix.monitor.ftime", 1), ("pmix.monitor.fsize", 1)];
    assert_eq!(all.monitor(0, ("pmix.monitor.fmon", None), 0, "", &options), status::BAD_PARAM, "no file");
    assert_eq!(all.monitor(0, ("pmix.monitor.other", None), 0, "", &[]), status::NOT_SUPPORTED);
    let mut all = Cluster::new(3, 2, &[2], true, 1);
    assert_eq!(file(&mut all, &options), status::NOT_SUPPORTED, "the host looks at no files");
}

// Fault: A file that a process has promised to change stays as it is (`PMIX_MONITOR_FILE`)
// Outcome: those of its job that have registered for the alert get it, and the monitor ends
// Guarantee: Only what the process has named counts: length, access or modification
#[test]
fn a_file_that_stays_as_it_is_is_reported() {
    let mut all = cluster_of(3, 2);
    all.listen((0, 0), &[event::FILE_ALERT]);
    let options = [("pmix.monitor.ftime", 1), ("pmix.monitor.fdrop", 2), ("pmix.monitor.fsize", 1)];
    assert_eq!(all.monitor(1, ("pmix.monitor.fmon", Some("/file")), 0, "", &options), status::SUCCESS);
    let file = |size, modified| Some(FileState { size, modified, accessed: 0 });
    let seen = [file(1, 1), file(2, 1), file(2, 2), None, file(3, 2), file(3, 3)];
    for (at, file) in (1..).zip(seen) {
        all.at(1, at * 1000);
        all.look(1, "/file", file);
        assert_eq!(all.alerts(0), []);
    }
    all.at(1, 7000);
    all.at(1, 8000);
    assert_eq!(all.requests.len(), 1, "the host has not answered");
    all.look(1, "/file", file(3, 4));
    assert_eq!(all.alerts(0), [(event::FILE_ALERT, 1)], "the second time");
    all.at(1, 20_000);
    assert!(all.requests.is_empty() && all.alerts(0).is_empty(), "it has ended");
}

#[test]
fn an_answer_about_a_file_may_come_after_its_monitor() {
    let mut all = cluster_of(3, 2);
    let options = [("pmix.monitor.ftime", 1), ("pmix.monitor.fmod", 1)];
    for others in 0..2 {
        assert_eq!(all.monitor(1, ("pmix.monitor.fmon", Some("/file")), 0, "", &options), status::SUCCESS);
        all.at(1, 1000 * (1 + others));
        let room = &mut vec![0; 1 << 20];
        let node = all.node(1) as usize;
        let snapshot = all.servers[node].snapshot(room).unwrap().to_vec();
        all.servers[node] = Server::restore(&snapshot, storage(&LIMITS)).unwrap();
        all.cancel(1, None);
        all.look(1, "/file", Some(FileState::default()));
    }
}

impl Cluster {
    /// Rank 1 asks for reports about hosts.
    fn watch_load(&mut self, code: i32, rate: u32) {
        self.asks(0, 1, 5, |writer| {
            command(writer, 19);
            writer.single();
            writer.info(b"pmix.monitor.ndresuse", 0);
            writer.status(code);
            writer.array(2);
            writer.info(b"pmix.monitor.id", kind::STRING);
            writer.string(b"load");
            writer.info(b"pmix.monitor.resrate", kind::UINT32);
            writer.uint32(rate);
        });
    }

    /// The host answers the request for a report. Returns the request.
    fn report(&mut self, code: i32, values: &[u32]) -> Vec<u8> {
        let request = self.requests.pop().expect("the host is asked");
        let mut text = [0; 128];
        let mut writer = Writer::new(Integers::Flexible, &mut text);
        writer.status(code);
        write_load(values, &mut writer);
        let len = writer.finish().unwrap();
        let upcall = UpcallId(0);
        self.tell(self.node(1), Input::UpcallComplete { upcall, rc: 0, text: &text[..len] });
        self.settle();
        request
    }
}

fn write_load(values: &[u32], writer: &mut Writer<'_>) {
    writer.array(values.len() as u32);
    for &value in values {
        writer.info(b"pmix.node.load", kind::UINT32);
        writer.uint32(value);
    }
}

#[test]
fn what_is_used_is_reported_at_regular_times() {
    let mut all = cluster_of(3, 2);
    for (code, sent) in [(0, event::USAGE_UPDATE), (CODE, CODE)] {
        all.listen((0, 1), &[sent]);
        let start = all.now.0;
        all.watch_load(code, 2);
        let first = all.report(status::SUCCESS, &[1, 2]);
        let (tag, _, rest) = all.reply(0, 1).unwrap();
        let infos = Reader::new(Integers::Flexible, &rest).infos().unwrap();
        assert_eq!((tag, infos.len()), (5, 2), "the first report is the reply");
        all.at(1, start + 1999);
        assert!(all.requests.is_empty());
        for (at, values) in [(2000, &[3][..]), (4000, &[4, 5])] {
            all.at(1, start + at);
            all.at(1, start + at + 1999);
            assert_eq!(all.requests.len(), 1, "the host has not answered");
            assert_eq!(all.report(status::PARTIAL_SUCCESS, values), first, "it is asked the same again");
            let (tag, _, rest) = all.reply(0, 1).unwrap();
            let mut reader = Reader::new(Integers::Flexible, &rest);
            reader.single().unwrap();
            let code = reader.int32().unwrap();
            reader.single().unwrap();
            assert_eq!((tag, code, reader.proc().unwrap().rank), (0, sent, u32::MAX));
            let infos = reader.infos().unwrap();
            assert!(infos.is_set(b"pmix.evnondef") && infos.len() == 1 + values.len() as u32);
            assert_eq!(infos.iter().last().unwrap().as_u32(), values.last().copied());
        }
        all.cancel(1, Some("load"));
        all.at(1, start + 20_000);
        assert!(all.requests.is_empty() && all.alerts(1).is_empty(), "it has ended");
    }
    assert_eq!(all.alerts(0), [], "reports are for those who ask");
}

#[test]
fn reports_are_made_for_those_who_listen() {
    let mut all = cluster_of(3, 2);
    all.watch_load(0, 0);
    all.report(status::SUCCESS, &[1]);
    all.gets(0, 1, 5, status::SUCCESS);
    all.at(1, 5000);
    assert!(all.requests.is_empty(), "a rate of 0 is one report");
    all.watch_load(0, 1);
    all.report(status::SUCCESS, &[1]);
    all.gets(0, 1, 5, status::SUCCESS);
    // All events are not those of the server.
    all.listen((0, 1), &[]);
    all.at(1, 7000);
    assert!(all.requests.is_empty());
    all.listen((0, 1), &[event::USAGE_UPDATE]);
    for (at, code, values) in [(8000, status::NOT_FOUND, &[][..]), (9000, status::SUCCESS, &[])] {
        all.at(1, at);
        all.report(code, values);
        assert_eq!(all.alerts(1), [], "it tells nothing");
    }
    all.at(1, 10_000);
    all.asks(0, 1, 6, |writer| command(writer, 5));
    all.gets(0, 1, 6, status::SUCCESS);
    all.report(status::SUCCESS, &[1]);
    all.at(1, 12_000);
    assert!(all.requests.is_empty() && all.alerts(1).is_empty(), "the process has finalized");
}

// Fault: The host cannot make the first report of a monitor (`PMIX_MONITOR_RESOURCE_RATE`), or the process closes its connection
// Outcome: the process gets the reason, and the monitor ends
// Guarantee: The answer to a report under way is dropped
#[test]
fn a_monitor_ends_with_its_first_report_or_its_process() {
    let mut all = cluster_of(3, 2);
    all.listen((0, 1), &[event::USAGE_UPDATE]);
    for code in [status::NOT_FOUND, status::NOT_SUPPORTED] {
        all.watch_load(0, 1);
        all.report(code, &[]);
        all.gets(0, 1, 5, code);
    }
    all.at(1, 2000);
    assert!(all.requests.is_empty());
    for is_first in [true, false] {
        all.watch_load(0, 1);
        if !is_first {
            all.report(status::SUCCESS, &[1]);
            all.gets(0, 1, 5, status::SUCCESS);
            all.at(1, 4000);
        }
        let room = &mut vec![0; 1 << 20];
        let node = all.node(1) as usize;
        let snapshot = all.servers[node].snapshot(room).unwrap().to_vec();
        all.servers[node] = Server::restore(&snapshot, storage(&LIMITS)).unwrap();
        if is_first {
            all.cancel(1, None);
            all.report(status::SUCCESS, &[1]);
            all.gets(0, 1, 5, status::SUCCESS);
        }
    }
    let conn = ConnId(all.conn(0, 1));
    all.tell(all.node(1), Input::Closed { conn });
    all.report(status::SUCCESS, &[1]);
    let node = all.node(1) as usize;
    assert_eq!(all.servers[node].check_monitors(Time(9000)), None);
}

#[test]
fn texts_go_to_their_channels() {
    let mut all = cluster_of(3, 2);
    let log = |all: &mut Cluster, channels: &[&str], options: &[(&str, u32)]| {
        all.asks(0, 1, 7, |writer| {
            command(writer, 16);
            writer.raw(&[2, 0]);
            writer.array(channels.len() as u32);
            for channel in channels {
                writer.info(channel.as_bytes(), kind::STRING);
                writer.string(b"text");
            }
            writer.array(options.len() as u32);
            for (key, number) in options {
                writer.info(key.as_bytes(), if *number > 1 { kind::INT } else { kind::BOOL });
                if *number > 1 { writer.int(*number as i32) } else { writer.byte(1) }
            }
        });
        let count = std::mem::take(&mut all.events).len();
        (all.reply(0, 1).map(|(_, code, _)| code), count)
    };
    let (done, part) = (Some(status::SUCCESS), Some(status::PARTIAL_SUCCESS));
    assert_eq!(log(&mut all, &["pmix.log.stdout", "pmix.log.stderr"], &[]), (done, 2));
    assert_eq!(log(&mut all, &["pmix.log.stdout", "pmix.log.stderr"], &[("pmix.log.once", 1)]), (done, 1));
    assert_eq!(log(&mut all, &["pmix.log.email", "pmix.log.stderr"], &[]), (part, 1));
    assert_eq!(log(&mut all, &["pmix.log.email"], &[]), (Some(status::NOT_SUPPORTED), 0));
    // The server has room for four requests to its host.
    assert_eq!(log(&mut all, &["pmix.log.stdout"; 5], &[]), (part, 4));
    assert_eq!(log(&mut all, &[], &[]), (done, 0));
    for (channel, global) in [("pmix.log.syslog", false), ("pmix.log.lsys", false), ("pmix.log.gsys", true)] {
        assert_eq!(log(&mut all, &[channel], &[("pmix.log.syspri", 6)]), (None, 0));
        let request = all.requests.pop().unwrap();
        let integers = Integers::Flexible;
        let expected = HostCall::Syslog { integers, global, priority: 6, text: b"text" };
        assert_eq!(HostCall::read(&request), Some(expected));
        let text = [2, 0x7f];
        all.tell(all.node(1), Input::UpcallComplete { upcall: UpcallId(0), rc: 0, text: &text });
        all.gets(0, 1, 7, status::NOT_AVAILABLE);
    }
}

#[test]
fn help_texts_are_for_the_host_to_count() {
    let mut all = cluster_of(3, 2);
    let log = |all: &mut Cluster, texts: &[&[u8]], agg: Option<u8>, names: &[(&str, &[u8])]| {
        all.asks(0, 1, 7, |writer| {
            command(writer, 16);
            writer.raw(&[2, 0]);
            writer.array(texts.len() as u32);
            for text in texts {
                writer.info(b"pmix.log.stderr", kind::STRING);
                writer.string(text);
            }
            writer.array(names.len() as u32 + u32::from(agg.is_some()));
            for (key, name) in names {
                writer.info(key.as_bytes(), kind::STRING);
                writer.string(name);
            }
            if let Some(agg) = agg {
                writer.info(b"pmix.log.agg", kind::BOOL);
                writer.byte(agg);
            }
        });
        std::mem::take(&mut all.events).len()
    };
    let names: [(&str, &[u8]); 2] = [("pmix.log.key", b"file"), ("pmix.log.val", b"topic")];
    let integers = Integers::Flexible;
    for agg in [None, Some(1)] {
        assert_eq!(log(&mut all, &[b"text"], agg, &names), 0);
        let request = all.requests.pop().unwrap();
        let text = HelpText { file: b"file", topic: b"topic", text: b"text", to_stdout: false };
        assert_eq!(HostCall::read(&request), Some(HostCall::Help { integers, text }));
        let text = [2, 0];
        all.tell(all.node(1), Input::UpcallComplete { upcall: UpcallId(0), rc: 0, text: &text });
        all.gets(0, 1, 7, status::SUCCESS);
    }
    let long: [(&str, &[u8]); 2] = [("pmix.log.key", &[b'f'; 256]), ("pmix.log.val", b"topic")];
    for (texts, agg, names, printed) in [
        (&[&b"text"[..]][..], Some(0), &names[..], 1),
        (&[b"text"], None, &names[..1], 1),
        (&[b"text"], None, &long, 1),
        (&[b"text", b"text"], None, &names, 2),
        (&[b""], None, &names, 0),
    ] {
        assert_eq!(log(&mut all, texts, agg, names), printed, "as it is");
        all.gets(0, 1, 7, status::SUCCESS);
        assert!(all.requests.is_empty());
    }
}
