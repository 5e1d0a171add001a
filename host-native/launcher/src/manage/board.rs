//! Client of a board: a PMI server on another device, to which the ranks connect.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use hydrant_core::manage::{
    self, BoardReport, Error, JobReport, OpenJob, Report, Request, STALL_MS, VERSION, Welcome,
};
use hydrant_core::trace::{Cause, Closing};
use hydrant_core::{Fault, Input, JobId, Limit, Limits, Rank};
use hydrant_reactor::enable_keepalive;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{BoardRecording, Link, LinkError};
use crate::error::RunError;

/// What the board is asked for by [`Request::Record`].
const RECORDING: &str = "a recording";
/// How long a board may take to answer.
const PATIENCE: Duration = Duration::from_millis(STALL_MS);

/// A board, and the one job that it serves for this host.
#[derive(Debug)]
pub(crate) struct Board {
    /// The address of its management port.
    addr: SocketAddr,
    link: Link,
    name: String,
    limits: Limits,
    sockets: u32,
    job: Option<Job>,
    /// What has been asked and not been answered, from the oldest on.
    asked: VecDeque<Asked>,
    events: VecDeque<Event>,
    /// What is to be said to the user.
    lines: VecDeque<String>,
    start: Instant,
    record: Vec<u8>,
    /// Where it is recorded.
    recording: Option<BoardRecording>,
}

/// The job, as the board knows it.
#[derive(Clone, Copy, Debug)]
struct Job {
    /// Its number here.
    ours: JobId,
    /// Its number there.
    theirs: JobId,
    size: u32,
    port: u16,
    /// Ranks that the board has been told have ended.
    exited: u32,
    /// When it was told of the last of them.
    ended: Option<Instant>,
    /// Whether the board knows that all have.
    over: bool,
}

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    what: &'static str,
    since: Instant,
}

/// An event of the job that a board serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Joined { rank: Rank },
    End { cause: Cause, message: String },
    Kill { rank: Rank, code: Option<i32>, message: String },
    Late { arrived: u32, size: u32, missing: String },
}

impl Event {
    /// The rank that it is about.
    fn rank(&self) -> Option<Rank> {
        match *self {
            Event::Joined { rank } | Event::Kill { rank, .. } => Some(rank),
            Event::End { cause, .. } => Some(cause.rank()),
            Event::Late { .. } => None,
        }
    }
}

/// Why a board cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// Nobody is there.
    #[error("no board answers at {target}: {why}; --target names its management port, {port} unless it was told otherwise", port = manage::PORT)]
    Unreachable {
        /// As the user named it.
        target: String,
        /// What the system said.
        why: io::Error,
    },
    /// The connection is gone, or holds something else.
    #[error("the board at {addr} is lost: {why}")]
    Lost {
        /// Its management port.
        addr: SocketAddr,
        /// What happened.
        why: String,
    },
    /// It does not do what is asked.
    #[error("the board at {addr} refuses {what}: {why}{}", advice(what, why))]
    Refused {
        /// Its management port.
        addr: SocketAddr,
        /// What was asked.
        what: &'static str,
        /// What speaks against it.
        why: Error,
    },
    /// It does not answer.
    #[error("the board at {addr} has not answered for {} s: {what}", PATIENCE.as_secs())]
    Silent {
        /// Its management port.
        addr: SocketAddr,
        /// What was asked.
        what: &'static str,
    },
}

/// What the user can do about a refusal.
fn advice(what: &str, why: &Error) -> &'static str {
    match why {
        Error::Order if what == RECORDING => {
            "; a board is recorded from before its first job on: start it again"
        }
        Error::NoRecording => "; what 'hydrant run' serves itself can be recorded",
        Error::Busy => "; wait until that is over, or use another board",
        Error::Core(Fault::Full(Limit::Jobs, _)) => {
            "; it serves other jobs: wait until one is over, or use another board"
        }
        Error::Core(Fault::Full(..)) => "; a board's tables are as large as it was built or started with",
        _ => "",
    }
}

impl Board {
    /// Connects to a board's management port, `HOST:PORT` or `HOST`, and greets it.
    ///
    /// # Errors
    /// Nobody is there, or speaks another version.
    pub(crate) fn connect(target: &str) -> Result<Board, BoardError> {
        let unreachable = |why| BoardError::Unreachable { target: target.to_owned(), why };
        let stream = reach(target).map_err(unreachable)?;
        let addr = stream.peer_addr().map_err(unreachable)?;
        let mut board = Board {
            addr,
            link: Link::new(stream).map_err(unreachable)?,
            name: String::new(),
            limits: Limits::NONE,
            sockets: 0,
            job: None,
            asked: VecDeque::new(),
            events: VecDeque::new(),
            lines: VecDeque::new(),
            start: Instant::now(),
            record: Vec::new(),
            recording: None,
        };
        board.ask("a greeting", &Request::Hello { version: VERSION }, |board, report| match report {
            Report::Welcome(Welcome { board: name, limits, sockets, .. }) => {
                board.name = (*name).to_owned();
                (board.limits, board.sockets) = (*limits, *sockets);
                Some(())
            }
            _ => None,
        })?;
        Ok(board)
    }

    /// Has the board recorded to that file, from before its first job on.
    pub(crate) fn record(&mut self, target: &str, path: &Path) -> Result<(), RunError> {
        let mut board = Board::connect(target)?;
        board.done(RECORDING, &Request::Record)?;
        self.recording = Some(BoardRecording::new(board.link, path)?);
        Ok(())
    }

    /// The connections over which it says something.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &TcpStream> {
        std::iter::once(self.link.stream()).chain(self.recording.as_ref().map(BoardRecording::stream))
    }

    /// The board in a few words.
    pub(crate) fn describe(&self) -> String {
        let Board { name, addr, sockets, limits, .. } = self;
        format!(
            "board {name} at {addr} serves up to {} ranks in {} jobs, {sockets} connections, {} keys in {} bytes",
            limits.ranks, limits.jobs, limits.keys, limits.kvs_bytes
        )
    }

    /// Where the clients of its job connect: the host, and the port.
    pub(crate) fn address(&self) -> (String, u16) {
        let port = self.job.map_or(manage::PMI_PORT, |job| job.port);
        (self.addr.ip().to_string(), port)
    }

    /// Lets the clients of the job come.
    pub(crate) fn serve(&mut self) -> Result<(), BoardError> {
        match self.job {
            Some(job) => self.done("a job", &Request::Serve { job: job.theirs }),
            None => Ok(()),
        }
    }

    /// Whether nothing is expected from it: its job is over there as well, or will not be because not all of its ranks
    /// were started.
    pub(crate) fn is_quiet(&self) -> bool {
        self.job.is_none_or(|job| job.over || job.exited < job.size)
    }

    /// What is to be said to the user.
    pub(crate) fn line(&mut self) -> Option<String> {
        self.lines.pop_front()
    }

    /// Asks how the board and its job are doing, for the user to read.
    pub(crate) fn ask_status(&mut self) -> Result<(), BoardError> {
        let Some(job) = self.job else { return Ok(()) };
        self.send("a report", &Request::Job { job: job.theirs })?;
        self.send("a report", &Request::Board)
    }

    /// Ends what it serves for this host; what it counted, in words.
    pub(crate) fn finish(&mut self) -> Result<String, BoardError> {
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
            // Whatever it says, time passes.
            let _ = poll(&mut [PollFd::new(recording.stream(), PollFlags::IN)], Some(&timespec(left)));
        }
    }

    /// Takes down what there is of the recording. Where it cannot be kept it ends, and the job goes on.
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

    /// Says something to the board, whose answer is taken when it comes.
    fn send(&mut self, what: &'static str, request: &Request<'_>) -> Result<(), BoardError> {
        self.asked.push_back(Asked { what, since: Instant::now() });
        self.link.say(request).map_err(|why| self.lost(&why))
    }

    /// Asks something that is answered by no more than a word.
    fn done(&mut self, what: &'static str, request: &Request<'_>) -> Result<(), BoardError> {
        self.ask(what, request, |_, report| matches!(report, Report::Done).then_some(())).map(drop)
    }

    /// Asks, and waits for the answer.
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
            self.hear(&report)?;
        }
    }

    /// The next record, for which it may be necessary to wait.
    fn await_record(&mut self, what: &'static str) -> Result<Vec<u8>, BoardError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut record = std::mem::take(&mut self.record);
            let came = self.link.flush().and_then(|()| self.link.fill());
            match came.and_then(|()| self.link.next(&mut record)) {
                Ok(true) => return Ok(record),
                Ok(false) => {}
                Err(why) => return Err(self.lost(&why)),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(BoardError::Silent { addr: self.addr, what });
            }
            let wanted = if self.link.is_blocked() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            // A board that is recorded does nothing else until what it sends is read.
            self.take_down();
            let mut fds = vec![PollFd::new(self.link.stream(), wanted)];
            fds.extend(
                self.recording.as_ref().map(|recording| PollFd::new(recording.stream(), PollFlags::IN)),
            );
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(self.lost(&LinkError::Io(errno.into()))),
            }
        }
    }

    /// Takes in what the board says by itself, and answers that nobody waits for.
    fn hear(&mut self, report: &Report<'_>) -> Result<(), BoardError> {
        let asked = if report.is_event() { None } else { self.asked.pop_front() };
        match *report {
            Report::Refused(why) => {
                let what = asked.map_or("a request", |asked| asked.what);
                return Err(BoardError::Refused { addr: self.addr, what, why });
            }
            Report::Job(ref report) => self.lines.push_back(job_line(report)),
            Report::Board(ref report) => self.lines.push_back(board_line(report)),
            Report::Joined { rank, .. } => self.events.push_back(Event::Joined { rank }),
            Report::End { cause, message, .. } => {
                self.events.push_back(Event::End { cause, message: message.to_owned() });
            }
            Report::Kill { rank, code, message, .. } => {
                self.events.push_back(Event::Kill { rank, code, message: message.to_owned() });
            }
            Report::Late { arrived, size, missing, .. } => {
                self.events.push_back(Event::Late { arrived, size, missing: missing.to_owned() });
                self.ask_status()?;
            }
            Report::Over { .. } => {
                if let Some(job) = &mut self.job {
                    job.over = true;
                }
            }
            Report::LimitHit { limit, size } => self.lines.push_back(format!(
                "the board refused a client: limit {} of {size} is used up there",
                limit.name()
            )),
            Report::Closed { rank: Some(_), why: Closing::JobOver, .. } => {}
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

    /// Takes in what has come; nothing is waited for.
    fn listen(&mut self) -> Result<(), BoardError> {
        self.take_down();
        self.link.flush().and_then(|()| self.link.fill()).map_err(|why| self.lost(&why))?;
        loop {
            let mut record = std::mem::take(&mut self.record);
            let more = self.link.next(&mut record).map_err(|why| self.lost(&why))?;
            if more {
                let report = manage::decode::<Report<'_>>(&record).map_err(|why| self.lost(&why.into()))?;
                self.hear(&report)?;
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

    /// What the board is expected to say, and since when.
    fn expected(&self) -> Option<Asked> {
        let ended = self.job.filter(|job| !job.over).and_then(|job| job.ended);
        let over = ended.map(|since| Asked { what: "the end of the job", since });
        self.asked.front().copied().or(over)
    }

    /// What has not been said for too long.
    fn overdue(&self) -> Option<&'static str> {
        self.expected().filter(|asked| asked.since.elapsed() >= PATIENCE).map(|asked| asked.what)
    }

    fn lost(&self, why: &LinkError) -> BoardError {
        BoardError::Lost { addr: self.addr, why: why.to_string() }
    }

    fn garbled(&self) -> BoardError {
        self.lost(&manage::BadRecord::Garbled.into())
    }
}

impl Board {
    /// Tells the board what concerns its job. Other inputs are ignored: the clients are the board's.
    ///
    /// # Errors
    /// The board is lost, or refuses.
    pub(crate) fn handle(&mut self, input: &Input<'_>) -> Result<(), BoardError> {
        self.take_in(input)
    }

    /// The next event of the job.
    ///
    /// # Errors
    /// The board is lost.
    pub(crate) fn event(&mut self) -> Result<Option<(JobId, Event)>, BoardError> {
        self.listen()?;
        let Some((event, Job { ours: job, size, .. })) = self.events.pop_front().zip(self.job) else {
            return Ok(None);
        };
        if event.rank().is_some_and(|rank| rank.0 >= size) {
            return Err(self.garbled());
        }
        Ok(Some((job, event)))
    }

    /// When [`handle_timeout`](Board::handle_timeout) has something to do, on a clock that began with the connection, as
    /// the engine's did a moment later.
    pub(crate) fn poll_at(&self) -> Option<u64> {
        let since = self.expected()?.since.saturating_duration_since(self.start);
        Some((since + PATIENCE).as_millis() as u64 + 1)
    }

    /// Checks that the board answers in time.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn handle_timeout(&self) -> Result<(), BoardError> {
        match self.overdue() {
            Some(what) => Err(BoardError::Silent { addr: self.addr, what }),
            None => Ok(()),
        }
    }

    /// The limits of the board's server.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

fn reach(target: &str) -> io::Result<TcpStream> {
    // A name, an IPv4 address, or an IPv6 one in brackets may stand without a port.
    let with_port = match target.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => target.to_owned(),
        _ => format!("{target}:{}", manage::PORT),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in with_port.to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, PATIENCE) {
            Ok(stream) => return enable_keepalive(&stream).map(|()| stream),
            Err(why) => last = why,
        }
    }
    Err(last)
}

fn job_line(report: &JobReport) -> String {
    let JobReport { size, connected, in_fence, finalized, exited, .. } = report;
    format!(
        "the board's job of {size} ranks: {connected} connected, {in_fence} in the fence, {finalized} finalized, \
         {exited} ended"
    )
}

fn board_line(report: &BoardReport) -> String {
    let BoardReport {
        sockets, free_sockets, accepted, closed, turned_away, jobs, bytes_in, bytes_out, ..
    } = report;
    let stack = if report.stack > 0 { format!(", {} bytes of stack", report.stack) } else { String::new() };
    format!(
        "the board since its start: {jobs} jobs, {accepted} clients of which {closed} were closed and {turned_away} \
         turned away, {bytes_in} bytes in, {bytes_out} bytes out, {free_sockets} of {sockets} connections free{stack}"
    )
}
