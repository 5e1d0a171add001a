//! Client of a board that serves one node of a run: the PMI server of that node, on the other side of a connection.

mod lone;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::manage::{Connection, ConnectionError, Secret};
use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::manage::{self, BadRecord, Error, OpenNode};
use hydrant_core::peer::tree::{ROOT_ONE, Tree};
use hydrant_core::server::remote::{
    NODE_PREFIX, NodeReport, NodeRequest, UNASKED, encode_node_record, report_max, request_max,
};
use hydrant_core::trace::Closing;
use hydrant_core::{ConnId, Fault, Input, JobId, Limits, Malformed, Output, Rank};
use hydrant_driver::{BackendError, CloseReason, Event};
use hydrant_record::RecordingFile;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::client::Board;
use crate::error::{BoardError, NODE, PATIENCE, place};
use crate::heartbeat::{Due, Heartbeat};
use crate::queries::{Answer, Purpose, Queries, RankState, Unasked};
use crate::recording::NodeRecording;
use crate::time::timespec;

/// Connection to a board that serves one node of a run.
#[derive(Debug)]
pub struct NodeBoard {
    /// As the user named it.
    target: String,
    addr: SocketAddr,
    link: Connection,
    open: OpenNode,
    /// Limits of the board's server, if it is recorded.
    own_limits: Limits,
    /// Maximum number of other boards that link themselves to it.
    links: u32,
    /// Maximum length in bytes of a client's message there.
    message_max: u32,
    /// Number of ranks of each job.
    sizes: BTreeMap<JobId, u32>,
    /// Number of requests so far.
    requests: u32,
    events: VecDeque<NodeEvent>,
    /// Queries of ranks that the board has not answered.
    queries: Queries,
    /// Lines to print.
    lines: VecDeque<String>,
    /// Job with ranks in a fence, at the last count.
    fence_of: Option<JobId>,
    /// Recording of the node, if its board sends one.
    recording: Option<NodeRecording>,
    heartbeat: Heartbeat,
    start: Instant,
    record: Vec<u8>,
    buffer: Vec<u8>,
}

/// Event of a node's board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// Event of the server, as a driver reports it.
    Server(Event),
    /// The server does not accept the message of another node.
    BadPeer {
        /// The other node.
        node: u32,
        /// The reason.
        why: Fault,
    },
    /// The board has a link to that of this node, its parent.
    Linked(u32),
    /// The board has lost its link to that of another node, or could not make one.
    Unlinked {
        /// The other node.
        node: u32,
        /// The reason.
        why: String,
    },
    /// Reply to [`NodeBoard::query_ranks`].
    Ranks {
        /// Number of the query.
        query: u64,
        /// The ranks that the server knows.
        ranks: Vec<RankState>,
    },
}

/// Reply that is waited for.
enum Reply {
    Served(u16),
    Refused(Fault),
    Synced,
}

impl NodeBoard {
    /// Connects to a board's management port, and has it serve a node. The board is lost if it does not answer for
    /// `heartbeat`. A board without links ignores the token of the run.
    ///
    /// # Errors
    /// The connection failed, or the board refuses.
    pub fn connect(
        target: &str,
        secret: Option<&Secret>,
        heartbeat: Duration,
        open: OpenNode,
    ) -> Result<NodeBoard, BoardError> {
        let in_node = |why| BoardError::Node { target: target.to_owned(), why: Box::new(why) };
        let board = Board::connect(target, secret).map_err(in_node)?;
        let links = board.links().filter(|_| open.link.is_some());
        let open = OpenNode { link: open.link.filter(|_| links.is_some()), ..open };
        let message_max = board.message_max();
        let opened = board.into_node(NODE, &open).map_err(in_node)?;
        Ok(NodeBoard {
            links: links.unwrap_or(0),
            message_max,
            ..NodeBoard::new(target.to_owned(), opened, open, heartbeat)
        })
    }

    fn new(
        target: String,
        (addr, link, own_limits): (SocketAddr, Connection, Limits),
        open: OpenNode,
        heartbeat: Duration,
    ) -> NodeBoard {
        let start = Instant::now();
        NodeBoard {
            target,
            addr,
            link,
            open,
            own_limits,
            links: 0,
            message_max: MESSAGE_MAX,
            sizes: BTreeMap::new(),
            requests: 0,
            events: VecDeque::new(),
            queries: Queries::default(),
            lines: VecDeque::new(),
            fence_of: None,
            recording: None,
            heartbeat: Heartbeat::new(heartbeat, start),
            start,
            record: Vec::new(),
            buffer: vec![0; NODE_PREFIX + request_max(&open.limits)],
        }
    }

    /// Writes what the server takes and answers to `file`, if the node was opened with the [seed](OpenNode::record) there.
    pub fn record(&mut self, file: Rc<RecordingFile>) {
        self.recording = Some(NodeRecording::new(file));
    }

    /// Returns the connection to poll for reading.
    pub fn stream(&self) -> &TcpStream {
        self.link.stream()
    }

    /// Returns the host for clients.
    pub fn host(&self) -> IpAddr {
        self.addr.ip()
    }

    /// The limits of the run.
    pub fn limits(&self) -> &Limits {
        &self.open.limits
    }

    /// The limits of the board's server, if the node was opened for a [recording](OpenNode::record).
    pub fn own_limits(&self) -> &Limits {
        &self.own_limits
    }

    /// Returns the address at which other boards reach it, and how many of them can link themselves to it, if it can be linked.
    /// [`NodeBoard::form`] is to follow then.
    pub fn link_addr(&self) -> Option<(SocketAddr, u32)> {
        self.open.link.map(|_| (self.addr, self.links))
    }

    /// Links the board to that of its parent. The result is an [event](NodeEvent).
    ///
    /// # Errors
    /// The board is lost.
    pub fn link(&mut self, parent: u32, addr: &str) -> Result<(), BoardError> {
        self.send(&NodeRequest::Link { node: parent, addr })
    }

    /// Makes the node a node of its tree, before the first job. If boards `are_linked`, it is the tree for linked boards, and the
    /// board sends messages for linked neighbours by itself.
    ///
    /// # Errors
    /// The board is lost or refuses.
    pub fn form(&mut self, are_linked: bool) -> Result<(), BoardError> {
        let what = "a tree";
        let silence = self.heartbeat.timeout.as_millis().try_into().unwrap_or(u32::MAX);
        let request = NodeRequest::Tree { linked: are_linked, silence };
        if let Reply::Refused(why) = self.ask(what, &request)? {
            return Err(self.refused(what, why));
        }
        if are_linked {
            self.open.radix |= ROOT_ONE;
        }
        Ok(())
    }

    /// Accepts the clients of a job. Returns their port.
    ///
    /// # Errors
    /// The board is lost or refuses.
    pub fn serve(&mut self, job: JobId) -> Result<u16, BoardError> {
        let what = "a job";
        match self.ask(what, &NodeRequest::Serve { job })? {
            Reply::Served(port) => Ok(port),
            Reply::Refused(why) => Err(self.refused(what, why)),
            Reply::Synced => Err(self.garbled()),
        }
    }

    /// Passes an input to the server. Refusals of inputs that describe a job are returned at once, refusals of
    /// messages from other nodes are [events](NodeEvent::BadPeer), and others are of no effect.
    ///
    /// # Errors
    /// The server refuses the input, or the board is lost.
    pub fn handle(&mut self, input: &Input<'_>) -> Result<(), BackendError> {
        let request = NodeRequest::Input(*input);
        match input {
            Input::RegisterJob(_)
            | Input::Preput { .. }
            | Input::Define { .. }
            | Input::Attr { .. }
            | Input::Pset { .. } => {
                match self.ask("a job", &request).map_err(other)? {
                    Reply::Refused(Fault::NoLazyFences) => {
                        return Err(other(self.named(BoardError::NoLazyFences { addr: self.addr })));
                    }
                    // The limit is the board's.
                    Reply::Refused(why @ Fault::Full(..)) if self.is_lone() => {
                        return Err(other(self.refused(lone::JOB, why)));
                    }
                    Reply::Refused(why) => return Err(BackendError::Fault(why)),
                    Reply::Served(_) | Reply::Synced => {}
                }
                if let Input::RegisterJob(spec) = input {
                    self.sizes.insert(spec.job, spec.size);
                    self.watch_fences(spec.fence_warning);
                }
                Ok(())
            }
            // No other node waits for what the exit causes, so it comes first.
            Input::Exited { .. } if self.is_lone() => {
                self.ask("the end of a rank", &request).map(drop).map_err(other)
            }
            Input::Connected { .. } if self.is_lone() => {
                match self.ask("a connection of jobs", &request).map_err(other)? {
                    Reply::Refused(why) => Err(BackendError::Fault(why)),
                    Reply::Served(_) | Reply::Synced => Ok(()),
                }
            }
            // The run may end next. The board then has no job of it.
            Input::DeregisterJob { job } => {
                self.sizes.remove(job);
                self.forget_fence(*job);
                self.ask("the end of a job", &request).map(drop).map_err(other)
            }
            _ => self.send(&request).map_err(other),
        }
    }

    /// Reads the last requests of a rank whose process has ended. What they cause is reported by the next events.
    ///
    /// # Errors
    /// The board is lost.
    pub fn read_last(&mut self, job: JobId, rank: Rank) -> Result<(), BoardError> {
        self.ask("the end of a rank", &NodeRequest::Read { job, rank }).map(drop)
    }

    /// Asks what ranks of a job do, at least one. The reply is an [event](NodeEvent::Ranks).
    ///
    /// # Errors
    /// The board is lost.
    pub fn query_ranks(&mut self, query: u64, job: JobId, ranks: Vec<u32>) -> Result<(), BoardError> {
        self.query(Purpose::States(query), job, ranks)
    }

    fn query(&mut self, purpose: Purpose, job: JobId, ranks: Vec<u32>) -> Result<(), BoardError> {
        for &rank in &ranks {
            self.send(&NodeRequest::Rank { job, rank: Rank(rank) })?;
        }
        self.queries.begin(purpose, job, ranks);
        Ok(())
    }

    /// Returns the next event.
    ///
    /// # Errors
    /// The board is lost.
    pub fn event(&mut self) -> Result<Option<NodeEvent>, BoardError> {
        self.link.flush().and_then(|()| self.link.fill()).map_err(|why| self.lost(&why))?;
        while self.events.is_empty() && self.next_report()?.is_some() {}
        Ok(self.events.pop_front())
    }

    /// Sends a request and waits for its reply.
    fn ask(&mut self, what: &'static str, request: &NodeRequest<'_>) -> Result<Reply, BoardError> {
        let number = self.requests;
        self.send(request)?;
        self.send(&NodeRequest::Sync { number })?;
        let deadline = Instant::now() + PATIENCE;
        let mut reply = Reply::Synced;
        loop {
            self.link.flush().and_then(|()| self.link.fill()).map_err(|why| self.lost(&why))?;
            while let Some(replied) = self.next_report()? {
                match replied {
                    Replied::Refused { request, why } if request == number => reply = Reply::Refused(why),
                    Replied::Served(port) => reply = Reply::Served(port),
                    Replied::Synced(at) if at == number => return Ok(reply),
                    Replied::Refused { .. } | Replied::Synced(_) | Replied::Event => {}
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.named(BoardError::Silent { addr: self.addr, what }));
            }
            let wanted = if self.link.is_blocked() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            match poll(&mut [PollFd::new(self.link.stream(), wanted)], Some(&timespec(left))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(self.lost(&ConnectionError::Io(errno.into()))),
            }
        }
    }

    /// Handles the next received report. Returns `None` if no report is complete.
    fn next_report(&mut self) -> Result<Option<Replied>, BoardError> {
        let mut record = std::mem::take(&mut self.record);
        let max = report_max(&self.open.limits);
        if !self.link.next_of_node(&mut record, max).map_err(|why| self.lost(&why))? {
            self.record = record;
            return Ok(None);
        }
        self.heartbeat.heard(Instant::now());
        let report = manage::decode::<NodeReport<'_>>(&record).map_err(|why| self.lost(&why.into()))?;
        let replied = match report {
            NodeReport::Serving { port, .. } => Replied::Served(port),
            NodeReport::Synced { number } => Replied::Synced(number),
            NodeReport::Refused { peer: Some(node), why, .. } => {
                self.events.push_back(NodeEvent::BadPeer { node, why });
                Replied::Event
            }
            NodeReport::Recorded(piece) => {
                let recording = self.recording.as_mut().ok_or(BadRecord::Malformed);
                let taken = recording.and_then(|recording| recording.take(piece));
                taken.map_err(|why| self.lost(&why.into()))?;
                Replied::Event
            }
            NodeReport::Linked { node } => {
                self.events.push_back(NodeEvent::Linked(node));
                Replied::Event
            }
            NodeReport::Unlinked { node, why } => {
                let why = why.escape_debug().to_string();
                self.events.push_back(NodeEvent::Unlinked { node, why });
                Replied::Event
            }
            NodeReport::Refused { request: UNASKED, peer: None, why } => {
                self.client_refused(why);
                Replied::Event
            }
            NodeReport::Refused { request, peer: None, why } => Replied::Refused { request, why },
            NodeReport::Rank { job, rank, now, status } => {
                let answered = self.queries.take((job, rank), now, status);
                match answered.map_err(|Unasked| self.garbled())? {
                    Some(Answer::States(query, ranks)) => {
                        self.events.push_back(NodeEvent::Ranks { query, ranks });
                    }
                    Some(Answer::Counted(job, counted, print)) => self.counted(job, &counted, print),
                    None => {}
                }
                Replied::Event
            }
            NodeReport::Closed { job, rank, why } => {
                if self.is_known(job, rank)? {
                    let why = match why {
                        Closing::Malformed(Malformed::TooLong) => CloseReason::TooLong(self.message_max),
                        why => CloseReason::Backend(why),
                    };
                    let conn = ConnId(0);
                    self.events.push_back(NodeEvent::Server(Event::Closed { conn, job, rank, why }));
                }
                Replied::Event
            }
            NodeReport::Output(output) => {
                if self.is_valid(&output)? {
                    self.events.push_back(NodeEvent::Server(Event::Output(output.to_owned())));
                    if let Output::StalledFence { job, .. } = output {
                        self.count_ranks(job, Purpose::Print)?;
                    }
                }
                Replied::Event
            }
        };
        self.record = record;
        Ok(Some(replied))
    }

    /// Returns whether an output is of a job that there is.
    ///
    /// # Errors
    /// The output is of a rank that the job does not have, or for a node that is no neighbour.
    fn is_valid(&self, output: &Output<'_>) -> Result<bool, BoardError> {
        match *output {
            Output::Peer { node, .. } => {
                let OpenNode { node: own, nodes, radix, .. } = self.open;
                let tree = Tree::new(nodes, radix);
                if tree.are_neighbours(own, node) { Ok(true) } else { Err(self.garbled()) }
            }
            // Connections are the board's.
            Output::Bytes { .. } | Output::Close { .. } => Err(self.garbled()),
            output => output.job().map_or(Ok(false), |job| self.is_known(job, output.rank())),
        }
    }

    fn is_known(&self, job: JobId, rank: Option<Rank>) -> Result<bool, BoardError> {
        match self.sizes.get(&job) {
            // It has ended here while the report was under way.
            None => Ok(false),
            Some(&size) if rank.is_none_or(|rank| rank.0 < size) => Ok(true),
            Some(_) => Err(self.garbled()),
        }
    }

    fn send(&mut self, request: &NodeRequest<'_>) -> Result<(), BoardError> {
        let sent = encode_node_record(request, &mut self.buffer).map_err(ConnectionError::from);
        let sent = sent.and_then(|record| self.link.send_unbounded(record));
        self.requests = self.requests.wrapping_add(1);
        sent.map_err(|why| self.lost(&why))
    }

    /// Returns the time of the next [`handle_timeout`](NodeBoard::handle_timeout), in milliseconds since the connection.
    pub fn poll_at(&self) -> u64 {
        self.heartbeat.deadline().saturating_duration_since(self.start).as_millis() as u64 + 1
    }

    /// Sends heartbeats, and the bytes that wait for the socket. Returns whether there is a line to print.
    ///
    /// # Errors
    /// The board does not answer.
    pub fn handle_timeout(&mut self) -> Result<bool, BoardError> {
        let now = Instant::now();
        match self.heartbeat.due(now) {
            Due::Nothing => Ok(false),
            Due::Report => {
                let silence = self.heartbeat.silence(self.heartbeat.report_after());
                self.lines.push_back(format!("the board {} {silence}", place(&self.target, &self.addr)));
                Ok(true)
            }
            Due::Send => {
                self.heartbeat.sent(now);
                self.count_waiting()?;
                self.send(&NodeRequest::Sync { number: u32::MAX }).map(|()| false)
            }
            Due::Lost => {
                let silence = self.heartbeat.silence(self.heartbeat.timeout);
                Err(BoardError::Frozen { name: self.target.clone(), addr: self.addr, silence })
            }
        }
    }

    /// Returns whether bytes wait for the socket.
    pub fn is_blocked(&self) -> bool {
        self.link.is_blocked()
    }

    fn named(&self, why: BoardError) -> BoardError {
        if self.is_lone() {
            return why;
        }
        BoardError::Node { target: self.target.clone(), why: Box::new(why) }
    }

    fn lost(&self, why: &ConnectionError) -> BoardError {
        self.named(BoardError::Lost { addr: self.addr, why: why.to_string() })
    }

    fn refused(&self, what: &'static str, why: Fault) -> BoardError {
        self.named(BoardError::Refused { addr: self.addr, what, why: Error::Fault(why) })
    }

    fn garbled(&self) -> BoardError {
        self.lost(&BadRecord::Malformed.into())
    }
}

/// Report that was handled.
enum Replied {
    Served(u16),
    Refused { request: u32, why: Fault },
    Synced(u32),
    Event,
}

fn other(error: BoardError) -> BackendError {
    BackendError::Other(Box::new(error))
}
