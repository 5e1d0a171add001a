//! A host of a board's node, by the protocol of `hydrant_core::manage` and nothing else.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use hydrant_core::manage::{self, BoardReport, Error, OpenNode, Report, Request};
use hydrant_core::server::JobSpec;
use hydrant_core::server::remote::{
    NODE_PREFIX, NodeReport, NodeRequest, encode_node_record, next_node_record, request_max,
};
use hydrant_core::trace::Exit;
use hydrant_core::{Fault, Input, JobId, Limit, Limits, Rank};
use hydrant_tests::PATIENCE;

/// A connection to the management port.
pub(crate) struct Manager {
    pub(crate) stream: TcpStream,
    pub(crate) held: Vec<u8>,
    /// Largest limits of a node, as the board has said.
    limits: Limits,
    /// Requests of the node so far.
    requests: u32,
    /// Events that came while something else was waited for, as they print.
    events: VecDeque<String>,
}

impl Manager {
    /// Connects, and has the board serve the only node of a run.
    pub(crate) fn of_node(addr: SocketAddr) -> Manager {
        Manager::of_recorded(addr, None)
    }

    /// The same with a recording of this seed.
    pub(crate) fn of_recorded(addr: SocketAddr, record: Option<u32>) -> Manager {
        let mut manager = Manager::connect(addr);
        let (node, nodes, radix, seed, link) = (0, 1, 2, None, None);
        let open = OpenNode { node, nodes, radix, limits: manager.limits, seed, link, record };
        manager.done(&Request::Node(open));
        manager
    }

    /// Connects and greets.
    pub(crate) fn connect(addr: SocketAddr) -> Manager {
        let mut manager = Manager::silent(addr);
        manager.greet();
        manager
    }

    pub(crate) fn greet(&mut self) {
        let hello = Request::Hello { version: manage::VERSION };
        self.limits = self.ask(&hello, |report| match report {
            Report::Welcome(welcome) => welcome.nodes,
            other => panic!("no welcome: {other:?}"),
        });
    }

    /// Connects.
    pub(crate) fn silent(addr: SocketAddr) -> Manager {
        let stream = TcpStream::connect(addr).expect("the management port is forwarded");
        stream.set_read_timeout(Some(PATIENCE / 4)).expect("the time is not 0");
        stream.set_nodelay(true).expect("TCP has the option");
        Manager { stream, held: Vec::new(), limits: Limits::NONE, requests: 0, events: VecDeque::new() }
    }

    pub(crate) fn say(&mut self, request: &Request) {
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
    pub(crate) fn ask<R>(&mut self, request: &Request, then: impl FnOnce(&Report<'_>) -> R) -> R {
        self.say(request);
        self.next(then).unwrap_or_else(|| panic!("closed instead of an answer to {request:?}"))
    }

    /// Asks for what must be done.
    #[track_caller]
    pub(crate) fn done(&mut self, request: &Request) {
        let answer = self.ask(request, |report| format!("{report:?}"));
        assert_eq!(answer, "Done", "{request:?}");
    }

    /// Asks for what must be refused.
    pub(crate) fn refused(&mut self, request: &Request) -> Error {
        self.ask(request, |report| match report {
            Report::Refused(why) => *why,
            other => panic!("{request:?}: {other:?}"),
        })
    }

    /// Makes a request of the node, and waits until it is handled. Gives the port of a served job, or the refusal.
    fn request(&mut self, request: &NodeRequest<'_>) -> Result<Option<u16>, Fault> {
        let number = self.requests;
        let mut buf = vec![0; NODE_PREFIX + request_max(&self.limits)];
        for request in [*request, NodeRequest::Sync { number }] {
            let record = encode_node_record(&request, &mut buf).expect("the request fits a record");
            self.stream.write_all(record).expect("the board reads");
            self.requests += 1;
        }
        let (mut result, mut events) = (Ok(None), Vec::new());
        self.node_reports(|report| {
            match *report {
                NodeReport::Refused { request, why, .. } if request == number => result = Err(why),
                NodeReport::Serving { port, .. } => result = Ok(Some(port)),
                NodeReport::Synced { .. } => {}
                ref event => events.push(format!("{event:?}")),
            }
            *report == NodeReport::Synced { number }
        });
        self.events.extend(events);
        result
    }

    /// Passes an input to the node's server. Gives its refusal.
    pub(crate) fn input(&mut self, input: Input<'_>) -> Result<(), Fault> {
        self.request(&NodeRequest::Input(input)).map(drop)
    }

    /// Registers the first job of the node, all of whose ranks are on one host, and lets clients come.
    pub(crate) fn open(&mut self, name: &str, size: u32) -> JobId {
        self.open_spec(JobSpec::new(JobId(0), name, size))
    }

    /// The same with this description.
    pub(crate) fn open_spec(&mut self, spec: JobSpec<'_>) -> JobId {
        let JobSpec { job, size, .. } = spec;
        assert_eq!(self.input(Input::RegisterJob(spec)), Ok(()));
        let value = format!("(vector,(0,1,{size}))");
        let mapping = Input::Attr { job, key: b"PMI_process_mapping", value: value.as_bytes() };
        assert_eq!(self.input(mapping), Ok(()));
        assert_eq!(self.request(&NodeRequest::Serve { job }), Ok(Some(manage::PMI_PORT)));
        job
    }

    /// Says that the processes of all ranks have exited.
    pub(crate) fn all_exited(&mut self, job: JobId, size: u32) {
        (0..size).for_each(|rank| self.exited(job, rank, Exit::Code(0)));
    }

    /// Says how the process of a rank has exited.
    pub(crate) fn exited(&mut self, job: JobId, rank: u32, exit: Exit) {
        assert_eq!(self.input(Input::Exited { job, rank: Rank(rank), exit }), Ok(()));
    }

    /// Ends a job.
    pub(crate) fn forget(&mut self, job: JobId) {
        assert_eq!(self.input(Input::DeregisterJob { job }), Ok(()));
    }

    /// The state of a rank, as it prints.
    pub(crate) fn rank(&mut self, job: JobId, rank: u32) -> String {
        assert_eq!(self.request(&NodeRequest::Rank { job, rank: Rank(rank) }), Ok(None));
        self.event("Rank {")
    }

    /// Waits for an event that prints with `text` in it.
    pub(crate) fn event(&mut self, text: &str) -> String {
        loop {
            while let Some(event) = self.events.pop_front() {
                if event.contains(text) {
                    return event;
                }
            }
            let mut event = String::new();
            self.node_reports(|report| {
                event = format!("{report:?}");
                true
            });
            self.events.push_back(event);
        }
    }
}

/// Asks the board that this address leads to. Its connection for that is free again when the one before has closed.
fn query<R>(addr: SocketAddr, request: &Request, take: impl Fn(&Report<'_>) -> Option<R>) -> R {
    let deadline = Instant::now() + PATIENCE / 4;
    loop {
        let mut manager = Manager::silent(addr);
        manager.say(&Request::Hello { version: manage::VERSION });
        if manager.next(|report| matches!(report, Report::Welcome(_))) == Some(true) {
            let answer = manager.ask(request, take);
            return answer.unwrap_or_else(|| panic!("{request:?} has another answer"));
        }
        assert!(Instant::now() < deadline, "the board accepts no second host");
    }
}

/// The counters of the board.
pub(crate) fn counters(addr: SocketAddr) -> BoardReport {
    query(addr, &Request::Board, |report| match report {
        Report::Board(report) => Some(*report),
        _ => None,
    })
}

/// How much of a limit is used there.
pub(crate) fn used(addr: SocketAddr, limit: Limit) -> u32 {
    query(addr, &Request::Usage { limit }, |report| match report {
        Report::Usage { used, .. } => Some(*used),
        _ => None,
    })
}
