//! A host that manages a board, by the protocol of `hydrant_core::manage` and nothing else.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use hydrant_core::manage::{self, BoardReport, Error, JobReport, OpenJob, Report, Request};
use hydrant_core::server::remote::{NodeReport, next_node_record};
use hydrant_core::{JobId, Limit};
use hydrant_tests::PATIENCE;

/// A connection to the management port.
pub(crate) struct Manager {
    pub(crate) stream: TcpStream,
    pub(crate) held: Vec<u8>,
    /// Events that came while something else was waited for, as they print.
    events: VecDeque<String>,
}

impl Manager {
    /// Connects and greets.
    pub(crate) fn connect(addr: SocketAddr) -> Manager {
        let mut manager = Manager::silent(addr);
        manager.greet();
        manager
    }

    pub(crate) fn greet(&mut self) {
        let hello = Request::Hello { version: manage::VERSION };
        assert!(self.ask(&hello, |report| matches!(report, Report::Welcome(_))), "no welcome");
    }

    /// Connects.
    pub(crate) fn silent(addr: SocketAddr) -> Manager {
        let stream = TcpStream::connect(addr).expect("the management port is forwarded");
        stream.set_read_timeout(Some(PATIENCE / 4)).expect("the time is not 0");
        stream.set_nodelay(true).expect("TCP has the option");
        Manager { stream, held: Vec::new(), events: VecDeque::new() }
    }

    pub(crate) fn say(&mut self, request: &Request<'_>) {
        let mut buf = [0; manage::PREFIX + manage::RECORD_MAX];
        let record = manage::encode(request, &mut buf).expect("the request fits a record");
        self.stream.write_all(record).expect("the board reads");
    }

    pub(crate) fn say_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the board reads");
    }

    /// The next report, told to `then`; nothing when the board has closed the connection.
    fn next<R>(&mut self, then: impl FnOnce(&Report<'_>) -> R) -> Option<R> {
        loop {
            if let Some((record, len)) = manage::next(&self.held).expect("the board keeps to the format") {
                let report = manage::decode(record).expect("the board keeps to the format");
                let result = then(&report);
                self.held.drain(..len);
                return Some(result);
            }
            let mut buf = [0; 2048];
            match self.stream.read(&mut buf) {
                Ok(0) => return None,
                Ok(len) => self.held.extend_from_slice(&buf[..len]),
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(e) => panic!("reading from the board: {e}"),
            }
        }
    }

    /// Reads the reports of a node up to the first for which `is_last` holds.
    pub(crate) fn node_reports(&mut self, mut is_last: impl FnMut(&NodeReport<'_>) -> bool) {
        loop {
            while let Some((record, len)) = next_node_record(&self.held, 1 << 16).expect("it is a record") {
                let is_last = is_last(&manage::decode(record).expect("it is a report"));
                self.held.drain(..len);
                if is_last {
                    return;
                }
            }
            let mut bytes = [0; 4096];
            let len = self.stream.read(&mut bytes).expect("the board answers");
            assert!(len > 0, "the board has closed the connection");
            self.held.extend_from_slice(&bytes[..len]);
        }
    }

    /// The next report, as it prints; nothing when the board has closed the connection.
    pub(crate) fn report(&mut self) -> Option<String> {
        self.next(|report| format!("{report:?}"))
    }

    /// Whether the board has nothing more to say and has closed the connection.
    pub(crate) fn closed(&mut self) -> bool {
        self.next(|_| ()).is_none()
    }

    /// Asks, and gives what `then` makes of the answer.
    pub(crate) fn ask<R>(&mut self, request: &Request<'_>, then: impl FnOnce(&Report<'_>) -> R) -> R {
        self.say(request);
        let mut then = Some(then);
        loop {
            let mut event = None;
            let answer = self.next(|report| match report.is_event() {
                true => {
                    event = Some(format!("{report:?}"));
                    None
                }
                false => then.take().map(|then| then(report)),
            });
            match answer.unwrap_or_else(|| panic!("closed instead of an answer to {request:?}")) {
                Some(answer) => return answer,
                None => self.events.extend(event),
            }
        }
    }

    /// Asks for what must be done.
    #[track_caller]
    pub(crate) fn done(&mut self, request: &Request<'_>) {
        let answer = self.ask(request, |report| format!("{report:?}"));
        assert_eq!(answer, "Done", "{request:?}");
    }

    /// Asks for what must be refused.
    pub(crate) fn refused(&mut self, request: &Request<'_>) -> Error {
        self.ask(request, |report| match report {
            Report::Refused(why) => *why,
            other => panic!("{request:?}: {other:?}"),
        })
    }

    /// Opens a job of one node, and lets clients come.
    pub(crate) fn open(&mut self, open: &OpenJob<'_>) -> JobId {
        let job = self.ask(&Request::Open(*open), |report| match *report {
            Report::Opened { job, port } => (job, port),
            ref other => panic!("{open:?}: {other:?}"),
        });
        assert_eq!(job.1, manage::PMI_PORT);
        let value = format!("(vector,(0,1,{}))", open.size);
        self.done(&Request::Attr { job: job.0, key: b"PMI_process_mapping", value: value.as_bytes() });
        self.done(&Request::Serve { job: job.0 });
        job.0
    }

    /// Lets a job go.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.done(&Request::Forget { job });
    }

    /// Waits for an event that prints with `text` in it.
    pub(crate) fn event(&mut self, text: &str) -> String {
        loop {
            while let Some(event) = self.events.pop_front() {
                if event.contains(text) {
                    return event;
                }
            }
            let event = self.next(|report| {
                assert!(report.is_event(), "unrequested {report:?}");
                format!("{report:?}")
            });
            self.events.extend(event.or_else(|| panic!("closed instead of {text:?}")));
        }
    }

    pub(crate) fn job(&mut self, job: JobId) -> JobReport {
        self.ask(&Request::Job { job }, |report| match report {
            Report::Job(report) => *report,
            other => panic!("{other:?}"),
        })
    }

    pub(crate) fn board(&mut self) -> BoardReport {
        self.ask(&Request::Board, |report| match report {
            Report::Board(report) => *report,
            other => panic!("{other:?}"),
        })
    }

    pub(crate) fn used(&mut self, limit: Limit) -> u32 {
        self.ask(&Request::Usage { limit }, |report| match report {
            Report::Usage { used, .. } => *used,
            other => panic!("{other:?}"),
        })
    }
}
