//! Client of a board: a PMI server on another device, to which the ranks connect.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::manage::{Connection, ConnectionError, Secret};
use hydrant_core::limits::SPAWN_BYTES_MIN;
use hydrant_core::manage::{self, Error, OpenJob, OpenLink, OpenNode, Report, Request, VERSION, Welcome};
use hydrant_core::trace::Closing;
use hydrant_core::{Fault, Input, JobId, Limit, Limits, Malformed};
use hydrant_driver::CloseReason;
use hydrant_driver::foreign_server;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::error::{BoardError, PATIENCE, RECORDING, place};
use crate::event::BoardEvent;
use crate::heartbeat::{Due, Heartbeat};
use crate::lines::{board_line, job_line, limit_line};
use crate::reach::reach;
use crate::recording::BoardRecording;
use crate::time::timespec;

/// Description of the requests that show whether the board answers.
const HEARTBEAT: &str = "a heartbeat";

/// Connection to a board that serves one job for this host.
#[derive(Debug)]
pub struct Board {
    /// The address of its management port.
    addr: SocketAddr,
    link: Connection,
    name: String,
    limits: Limits,
    sockets: u32,
    /// Maximum length in bytes of a client's message.
    message_max: u32,
    /// Largest limits of a node, if it serves nodes.
    nodes: Option<Limits>,
    /// Maximum number of other boards that link themselves to it, if it has links.
    links: Option<u32>,
    /// Maximum length of a client's bytes in a call, if its nodes can be called.
    calls: Option<u32>,
    job: Option<Job>,
    /// Requests without a reply, oldest first.
    asked: VecDeque<Asked>,
    events: VecDeque<BoardEvent>,
    /// Lines to print.
    lines: VecDeque<String>,
    heartbeat: Heartbeat,
    start: Instant,
    record: Vec<u8>,
    /// Recording of the board, if one is requested.
    recording: Option<BoardRecording>,
}

/// Job on the board.
#[derive(Clone, Copy, Debug)]
struct Job {
    /// Its number here.
    ours: JobId,
    /// Its number there.
    theirs: JobId,
    size: u32,
    port: u16,
    /// Number of ranks whose exit was reported to the board.
    exited: u32,
    /// Time of the last reported exit.
    ended: Option<Instant>,
    /// The board has reported the end of the job.
    over: bool,
}

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    what: &'static str,
    since: Instant,
}

impl Board {
    /// Connects to a board's management port, `HOST:PORT` or `HOST`, and performs the handshake. With a secret, the board must
    /// have the same. Without one, a board on this machine must be a process of this user or of root. While the board serves a
    /// job it is lost if it does not answer for `heartbeat`.
    ///
    /// # Errors
    /// The connection failed, or the board has another secret or another protocol version.
    pub fn connect(target: &str, secret: Option<&Secret>, heartbeat: Duration) -> Result<Board, BoardError> {
        let unreachable = |why| BoardError::Unreachable { target: target.to_owned(), why };
        let stream = reach(target).map_err(unreachable)?;
        let addr = stream.peer_addr().map_err(unreachable)?;
        let start = Instant::now();
        let mut board = Board {
            addr,
            link: Connection::of_host(stream, secret).map_err(unreachable)?,
            name: String::new(),
            limits: Limits::NONE,
            sockets: 0,
            message_max: 0,
            nodes: None,
            links: None,
            calls: None,
            job: None,
            asked: VecDeque::new(),
            events: VecDeque::new(),
            lines: VecDeque::new(),
            heartbeat: Heartbeat::new(heartbeat, start),
            start,
            record: Vec::new(),
            recording: None,
        };
        let greeted =
            board.ask("the handshake", &Request::Hello { version: VERSION }, |board, report| match report {
                Report::Welcome(Welcome {
                    board: name,
                    limits,
                    sockets,
                    message_max,
                    nodes,
                    links,
                    calls,
                    ..
                }) => {
                    board.name = (*name).to_owned();
                    (board.links, board.calls, board.message_max) = (*links, *calls, *message_max);
                    (board.limits, board.sockets, board.nodes) = (*limits, *sockets, *nodes);
                    Some(())
                }
                _ => None,
            });
        match greeted {
            Ok(_) if secret.is_some() => Ok(board),
            // A board has programs started, as this user.
            Ok(_) => match foreign_server(board.link.stream()) {
                None => Ok(board),
                Some(user) => Err(BoardError::Foreign { addr, user }),
            },
            // A board with a secret closes the connection of a host without one, and the other way round.
            Err(BoardError::Lost { addr, why }) => {
                Err(BoardError::Handshake { addr, why, secret: secret.is_some() })
            }
            Err(error) => Err(error),
        }
    }

    /// Has the board recorded to that file, from before its first job on.
    pub fn record(&mut self, target: &str, secret: Option<&Secret>, path: &Path) -> Result<(), BoardError> {
        let mut board = Board::connect(target, secret, self.heartbeat.timeout)?;
        board.done(RECORDING, &Request::Record)?;
        self.recording = Some(BoardRecording::new(board.link, path)?);
        Ok(())
    }

    /// Has the board serve a node, which errors call `what`. Returns the address of its management port, the connection for the
    /// records of the node, and the limits of a called or recorded server.
    pub(crate) fn into_node(
        mut self,
        what: &'static str,
        open: &OpenNode,
    ) -> Result<(SocketAddr, Connection, Limits), BoardError> {
        if let Some(most) = self.nodes {
            let limits: Vec<_> = open.limits.exceeding(most).map(|limit| (limit, most.of(limit))).collect();
            if !limits.is_empty() {
                return Err(BoardError::Small { addr: self.addr, limits });
            }
        }
        let mut open = *open;
        // A small board has room for fewer, and says so if the limits have to be its own.
        let mut own = vec![Limit::Conns, Limit::Names, Limit::Spawns];
        loop {
            match self.done(what, &Request::Node(open)) {
                Err(BoardError::Refused { why: Error::Fault(Fault::Full(limit, most)), .. })
                    if most < open.limits.of(limit) && own.contains(&limit) =>
                {
                    own.retain(|&other| other != limit);
                    open.limits.set(limit, most);
                }
                result => return result.map(|()| (self.addr, self.link, open.limits)),
            }
        }
    }

    /// Returns the largest limits of a node, if the board serves nodes.
    pub fn node_limits(&self) -> Option<&Limits> {
        self.nodes.as_ref()
    }

    /// The board's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many boards of children can link themselves to it. `None` if it has no links.
    pub(crate) fn links(&self) -> Option<u32> {
        self.links
    }

    /// Returns the maximum length of a client's bytes in a call. `None` if its nodes cannot be called.
    pub(crate) fn calls(&self) -> Option<u32> {
        self.calls
    }

    /// Links the server of another node to one on this board. Returns the connection for the records of the link.
    pub fn into_link(mut self, open: &OpenLink) -> Result<Connection, BoardError> {
        self.done("a link", &Request::Link(*open))?;
        Ok(self.link)
    }

    /// Returns the connections to poll for reading.
    pub fn streams(&self) -> impl Iterator<Item = &TcpStream> {
        std::iter::once(self.link.stream()).chain(self.recording.as_ref().map(BoardRecording::stream))
    }

    /// The board in a few words.
    pub fn describe(&self) -> String {
        let Board { name, addr, sockets, limits, .. } = self;
        let jobs = if limits.jobs == 1 { "one job".to_owned() } else { format!("{} jobs", limits.jobs) };
        format!(
            "board {name} at {addr} serves up to {} ranks in {jobs}, {sockets} connections, {} keys in {} bytes",
            limits.ranks, limits.keys, limits.kvs_bytes
        )
    }

    /// Maximum length in bytes of a client's message.
    pub(crate) fn message_max(&self) -> u32 {
        self.message_max
    }

    /// The board in a few words, when it serves a run as a node.
    pub(crate) fn describe_node(&self) -> String {
        let Board { name, addr, sockets, limits, .. } = self;
        format!(
            "board {name} at {addr} serves runs of up to {} ranks, {sockets} connections, {} keys in {} bytes",
            limits.ranks, limits.keys, limits.kvs_bytes
        )
    }

    /// Returns the host and the port for the clients of the job.
    pub fn address(&self) -> (IpAddr, u16) {
        let port = self.job.map_or(manage::PMI_PORT, |job| job.port);
        (self.addr.ip(), port)
    }

    /// Lets the clients of the job come.
    pub fn serve(&mut self) -> Result<(), BoardError> {
        match self.job {
            Some(job) => self.done("a job", &Request::Serve { job: job.theirs }),
            None => Ok(()),
        }
    }

    /// Returns whether no event is expected: the board has reported the job's end, or ranks still run here.
    pub fn is_quiet(&self) -> bool {
        self.job.is_none_or(|job| job.over || job.exited < job.size)
    }

    /// Returns the next line to print.
    pub fn line(&mut self) -> Option<String> {
        self.lines.pop_front()
    }

    /// Requests the state of the board and of its job. The replies are printed.
    pub fn ask_status(&mut self) -> Result<(), BoardError> {
        let Some(job) = self.job else { return Ok(()) };
        self.send("a report", &Request::Job { job: job.theirs })?;
        self.send("a report", &Request::Board)
    }

    /// Ends the job on the board. Returns its counters as text.
    pub fn finish(&mut self) -> Result<String, BoardError> {
        let mut said = (None, None);
        if let Some(Job { theirs: job, .. }) = self.job.take() {
            said.0 = self.ask("a report", &Request::Job { job }, |_, report| match report {
                Report::Job(report) => Some(*report),
                _ => None,
            })?;
            self.done("the end of the job", &Request::Forget { job })?;
        }
        said.1 = self.ask("a report", &Request::Board, |_, report| match report {
            Report::Board(report) => Some(*report),
            _ => None,
        })?;
        self.end_recording();
        let job = said.0.map_or_else(String::new, |job| format!("{}; ", job_line(&job)));
        Ok(format!("{job}{}", said.1.map_or_else(String::new, |board| board_line(&board))))
    }

    /// Waits for the last of the recording.
    fn end_recording(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        if self.recording.as_ref().is_none_or(|recording| recording.end().is_err()) {
            return;
        }
        loop {
            self.take_down();
            let Some(recording) = &self.recording else { return };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self
                    .lines
                    .push_back("the recording has no end: the board has not sent it".to_owned());
            }
            // The deadline limits the wait for every result of `poll`.
            let _ = poll(&mut [PollFd::new(recording.stream(), PollFlags::IN)], Some(&timespec(left)));
        }
    }

    /// Receives pending records. If the file cannot be written, the recording ends and the job continues.
    fn take_down(&mut self) {
        match self.recording.as_mut().map(BoardRecording::receive) {
            None | Some(Ok(true)) => return,
            Some(Ok(false)) => {}
            Some(Err(why)) => {
                self.lines.push_back(format!("{why}; the recording ends early, the job goes on"))
            }
        }
        self.recording = None;
    }

    /// Sends a request to the board. The reply is handled when it arrives.
    fn send(&mut self, what: &'static str, request: &Request<'_>) -> Result<(), BoardError> {
        self.asked.push_back(Asked { what, since: Instant::now() });
        self.link.send(request).map_err(|why| self.lost(&why))
    }

    /// Sends a request whose reply is [`Report::Done`], and waits for it.
    fn done(&mut self, what: &'static str, request: &Request<'_>) -> Result<(), BoardError> {
        self.ask(what, request, |_, report| matches!(report, Report::Done).then_some(())).map(drop)
    }

    /// Sends a request and waits for its reply.
    fn ask<T>(
        &mut self,
        what: &'static str,
        request: &Request<'_>,
        take: impl Fn(&mut Board, &Report<'_>) -> Option<T>,
    ) -> Result<Option<T>, BoardError> {
        self.send(what, request)?;
        // Those before it are answered first.
        let mut before = self.asked.len();
        loop {
            let record = self.await_record(what)?;
            let report = manage::decode::<Report<'_>>(&record).map_err(|why| self.lost(&why.into()))?;
            if !report.is_event() {
                before -= 1;
            }
            let last = before == 0 && !report.is_event();
            if last && !matches!(report, Report::Refused(_)) {
                self.asked.pop_front();
                return match take(self, &report) {
                    Some(answer) => Ok(Some(answer)),
                    None => Err(self.garbled()),
                };
            }
            self.handle_report(&report)?;
        }
    }

    /// The next record, for which it may be necessary to wait.
    fn await_record(&mut self, what: &'static str) -> Result<Vec<u8>, BoardError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut record = std::mem::take(&mut self.record);
            let came = self.link.flush().and_then(|()| self.link.fill());
            match came.and_then(|()| self.link.next(&mut record)) {
                Ok(true) => {
                    self.heartbeat.heard(Instant::now());
                    return Ok(record);
                }
                Ok(false) => {}
                Err(why) => return Err(self.lost(&why)),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(BoardError::Silent { addr: self.addr, what });
            }
            let wanted = if self.link.is_blocked() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            // A board that records sends no reply before its recording is read.
            self.take_down();
            let mut fds = vec![PollFd::new(self.link.stream(), wanted)];
            fds.extend(
                self.recording.as_ref().map(|recording| PollFd::new(recording.stream(), PollFlags::IN)),
            );
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(self.lost(&ConnectionError::Io(errno.into()))),
            }
        }
    }

    /// Handles an event of the board, or a reply to a request of [`Board::send`].
    fn handle_report(&mut self, report: &Report<'_>) -> Result<(), BoardError> {
        let asked = if report.is_event() { None } else { self.asked.pop_front() };
        match *report {
            Report::Refused(why) => {
                let what = asked.map_or("a request", |asked| asked.what);
                return Err(BoardError::Refused { addr: self.addr, what, why });
            }
            Report::Job(ref report) => {
                self.heartbeat.answered(report);
                if asked.is_none_or(|asked| asked.what != HEARTBEAT) {
                    self.lines.push_back(job_line(report));
                }
            }
            Report::Board(ref report) => self.lines.push_back(board_line(report)),
            Report::Joined { rank, .. } => self.events.push_back(BoardEvent::Joined { rank }),
            Report::End { cause, message, .. } => {
                self.events.push_back(BoardEvent::AbortJob { cause, message: message.to_owned() });
            }
            Report::Kill { rank, code, message, .. } => {
                self.events.push_back(BoardEvent::KillRank { rank, code, message: message.to_owned() });
            }
            Report::RemoveFiles { rank, paths, .. } => {
                self.events.push_back(BoardEvent::RemoveFiles { rank, paths: paths.to_owned() });
            }
            Report::Log { rank, stream, text, .. } => {
                self.events.push_back(BoardEvent::Log { rank, stream, text: text.to_owned() });
            }
            Report::Late { arrived, size, missing, .. } => {
                self.events.push_back(BoardEvent::StalledFence {
                    arrived,
                    size,
                    missing: missing.to_owned(),
                });
                self.ask_status()?;
            }
            Report::Over { .. } => {
                if let Some(job) = &mut self.job {
                    job.over = true;
                }
            }
            Report::LimitHit { limit: Limit::SpawnBytes, size } if size < SPAWN_BYTES_MIN => {
                self.lines.push_back(format!(
                    "the board refused a client: limit spawn-bytes of {size} there is too small for spawns: use a board that \
                     serves nodes of runs"
                ));
            }
            Report::LimitHit { limit, size } => self.lines.push_back(limit_line(limit, size)),
            Report::Closed { rank: Some(_), why: Closing::JobOver, .. } => {}
            Report::Closed { rank: Some(rank), why: Closing::Malformed(Malformed::TooLong), .. } => {
                let why = CloseReason::TooLong(self.message_max);
                self.lines.push_back(format!("the board closed the PMI connection of rank {rank}: {why}"));
            }
            Report::Closed { rank: Some(rank), why, .. } => {
                self.lines.push_back(format!("the board closed the PMI connection of rank {rank}: {why}"));
            }
            Report::Closed { rank: None, why, .. } => {
                self.lines.push_back(format!("the board closed a connection that was no rank's: {why}"));
            }
            Report::Done => {}
            Report::Welcome(_) | Report::Opened { .. } | Report::Rank(_) | Report::Usage { .. } => {
                return Err(self.garbled());
            }
        }
        Ok(())
    }

    /// Handles received reports. Does not block.
    fn listen(&mut self) -> Result<(), BoardError> {
        self.take_down();
        self.link.flush().and_then(|()| self.link.fill()).map_err(|why| self.lost(&why))?;
        loop {
            let mut record = std::mem::take(&mut self.record);
            let more = self.link.next(&mut record).map_err(|why| self.lost(&why))?;
            if more {
                self.heartbeat.heard(Instant::now());
                let report = manage::decode::<Report<'_>>(&record).map_err(|why| self.lost(&why.into()))?;
                self.handle_report(&report)?;
            }
            self.record = record;
            if !more {
                return Ok(());
            }
        }
    }

    fn open(&mut self, spec: &hydrant_core::server::JobSpec<'_>) -> Result<(), BoardError> {
        let open = OpenJob {
            universe_size: spec.universe_size,
            cleanup: spec.cleanup,
            pmi1_subversion: spec.pmi1_subversion,
            lookup_wait: spec.lookup_wait,
            fence_warning: spec.fence_warning,
            ..OpenJob::new(spec.name, spec.size)
        };
        let (ours, size) = (spec.job, spec.size);
        self.heartbeat.fence_warning = Duration::from_millis(spec.fence_warning);
        self.ask("the job", &Request::Open(open), |board, report| match *report {
            Report::Opened { job: theirs, port } => {
                board.job = Some(Job { ours, theirs, size, port, exited: 0, ended: None, over: false });
                Some(())
            }
            _ => None,
        })
        .map(drop)
    }

    fn take_in(&mut self, input: &Input<'_>) -> Result<(), BoardError> {
        if let Input::RegisterJob(spec) = input {
            return self.open(spec);
        }
        let Some(Job { theirs: job, .. }) = self.job else { return Ok(()) };
        match *input {
            Input::Program { first, count, appnum, .. } => {
                self.done("a program", &Request::Program { job, first, count, appnum })
            }
            Input::Attr { key, value, .. } => self.done("an attribute", &Request::Attr { job, key, value }),
            Input::Pset { name, first, count, .. } => {
                self.done("a process set", &Request::Pset { job, name, first, count })
            }
            Input::Exited { rank, exit, .. } => {
                if let Some(job) = &mut self.job {
                    job.exited += 1;
                    job.ended = (job.exited == job.size).then(Instant::now);
                }
                self.send("the end of a rank", &Request::Exited { job, rank, exit })
            }
            Input::DeregisterJob { .. } => {
                self.job = None;
                self.done("the end of the job", &Request::Forget { job })
            }
            // The clients are the board's.
            _ => Ok(()),
        }
    }

    /// Returns the oldest expected report, and the time since when it is expected.
    fn expected(&self) -> Option<Asked> {
        let ended = self.job.filter(|job| !job.over).and_then(|job| job.ended);
        let over = ended.map(|since| Asked { what: "the end of the job", since });
        self.asked.iter().find(|asked| asked.what != HEARTBEAT).copied().or(over)
    }

    /// Returns the number of the job on the board, while the board has to answer heartbeats.
    fn watched(&self) -> Option<JobId> {
        self.job.filter(|job| !job.over).map(|job| job.theirs)
    }

    /// Returns a description of the expected report if it is overdue.
    fn overdue(&self) -> Option<&'static str> {
        self.expected().filter(|asked| asked.since.elapsed() >= PATIENCE).map(|asked| asked.what)
    }

    fn lost(&self, why: &ConnectionError) -> BoardError {
        BoardError::Lost { addr: self.addr, why: why.to_string() }
    }

    fn garbled(&self) -> BoardError {
        self.lost(&manage::BadRecord::Malformed.into())
    }
}

impl Board {
    /// Sends an input about the job to the board. Other inputs are ignored, because the board serves the clients.
    ///
    /// # Errors
    /// The board is lost, or refuses the request.
    pub fn handle(&mut self, input: &Input<'_>) -> Result<(), BoardError> {
        self.take_in(input)
    }

    /// The next event of the job.
    ///
    /// # Errors
    /// The board is lost.
    pub fn event(&mut self) -> Result<Option<(JobId, BoardEvent)>, BoardError> {
        self.listen()?;
        let Some((event, Job { ours: job, size, .. })) = self.events.pop_front().zip(self.job) else {
            return Ok(None);
        };
        if event.rank().is_some_and(|rank| rank.0 >= size) {
            return Err(self.garbled());
        }
        Ok(Some((job, event)))
    }

    /// Returns the time of the next [`handle_timeout`](Board::handle_timeout), in milliseconds since the connection.
    /// The clock of the engine starts slightly later.
    pub fn poll_at(&self) -> Option<u64> {
        let answer = self.expected().map(|asked| asked.since + PATIENCE);
        let heartbeat = self.watched().map(|_| self.heartbeat.deadline());
        let at = [answer, heartbeat].into_iter().flatten().min()?;
        Some(at.saturating_duration_since(self.start).as_millis() as u64 + 1)
    }

    /// Checks that the board answers in time, and sends heartbeats. Received records are to be handled before. Returns
    /// whether there is a line to print.
    ///
    /// # Errors
    /// The board does not answer.
    pub fn handle_timeout(&mut self) -> Result<bool, BoardError> {
        if let Some(what) = self.overdue() {
            return Err(BoardError::Silent { addr: self.addr, what });
        }
        let Some(job) = self.watched() else { return Ok(false) };
        let now = Instant::now();
        match self.heartbeat.due(now) {
            Due::Nothing => Ok(false),
            Due::Send => {
                self.heartbeat.sent(now);
                self.send(HEARTBEAT, &Request::Job { job }).map(|()| false)
            }
            Due::Report => {
                let silence = self.heartbeat.silence(self.heartbeat.report_after());
                self.lines.push_back(format!("the board {} {silence}", place(&self.name, &self.addr)));
                Ok(true)
            }
            Due::Lost => {
                let silence = self.heartbeat.silence(self.heartbeat.timeout);
                Err(BoardError::Frozen { name: self.name.clone(), addr: self.addr, silence })
            }
        }
    }

    /// The limits of the board's server.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}
