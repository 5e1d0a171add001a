//! Where output goes: the launcher's own standard output and error, and files.
//!
//! The event loop must not stand still because somebody reads slowly, and the descriptors it was given are shared
//! with others who would be surprised by `O_NONBLOCK`. So a pipe or terminal is opened once more, which gives a
//! description of its own that may be non-blocking; a socket is written to with `MSG_DONTWAIT`; a file never blocks.
//! Where opening again is not allowed (a terminal of another user, say), little is written at a time and only after
//! the system said that there is room.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::termios::isatty;

use super::poller::{Interest, Poller, Token};

/// From here on a sink that is not being read holds back the ranks that write to it, in bytes.
const HIGH_WATER: usize = 256 * 1024;
/// What may be written to a descriptor that blocks once the system says that there is room: a pipe then takes at
/// least a page, a terminal fewer.
const POLLED_CHUNK: usize = 256;

/// The number of a sink.
pub(crate) type SinkId = usize;

/// All sinks of a job.
#[derive(Debug)]
pub(crate) struct Sinks {
    all: Vec<Sink>,
    stdout: SinkId,
    stderr: SinkId,
    files: HashMap<PathBuf, SinkId>,
    /// Written to since the last flush.
    dirty: Vec<SinkId>,
    /// With room again, or closed, since somebody last asked.
    changed: Vec<SinkId>,
    /// On a node whose head writes everything: what it has not been sent yet, in this order.
    uplink: Option<Vec<Said>>,
}

/// Something for the head.
#[derive(Debug)]
pub(crate) enum Said {
    /// A line of the launcher's own.
    Line(String),
    /// Bytes of this stream; none at its end.
    Bytes(u32, Vec<u8>),
}

/// One place that output goes to.
#[derive(Debug)]
pub(crate) struct Sink {
    /// Missing while nobody writes to it.
    target: Option<OwnedFd>,
    /// How many streams may write to it, where it is a file; the launcher's own stay without.
    users: Option<u32>,
    how: How,
    /// A person looks at it.
    terminal: bool,
    /// Not written yet, from `start` on.
    buffer: Vec<u8>,
    start: usize,
    /// The stream that left it in the middle of a line.
    open_line: Option<u32>,
    /// Streams that wait until there is room.
    held: Vec<u32>,
    /// Its head has no room for more.
    stuffed: bool,
    waiting: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Never blocks, by itself or because it is a description of our own.
    Write,
    /// A socket.
    Send,
    /// Blocks, and is asked before.
    Polled,
}

/// Whether a sink takes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It does.
    Open,
    /// Nobody reads it any more: the ranks that write to it shall find out as if it were theirs.
    Closed,
    /// It failed for another reason, and output was lost.
    Failed(Errno),
}

impl Sinks {
    /// The launcher's own standard output and error, which are one sink where they lead to the same place: their
    /// lines would split each other's otherwise.
    pub(crate) fn new() -> io::Result<Sinks> {
        Sinks::over(rustix::stdio::stdout(), rustix::stdio::stderr())
    }

    fn over(stdout: BorrowedFd<'_>, stderr: BorrowedFd<'_>) -> io::Result<Sinks> {
        let mut all = vec![Sink::shared(stdout)?];
        let (a, b) = (fstat(stdout)?, fstat(stderr)?);
        if (a.st_dev, a.st_ino) != (b.st_dev, b.st_ino) {
            all.push(Sink::shared(stderr)?);
        }
        let stderr = all.len() - 1;
        let (files, dirty, changed) = (HashMap::new(), Vec::new(), Vec::new());
        Ok(Sinks { all, stdout: 0, stderr, files, dirty, changed, uplink: None })
    }

    /// The head of several nodes takes everything.
    pub(crate) fn uplink() -> Sinks {
        let all = vec![Sink::new(None, How::Write, false)];
        let (files, dirty, changed) = (HashMap::new(), Vec::new(), Vec::new());
        Sinks { all, stdout: 0, stderr: 0, files, dirty, changed, uplink: Some(Vec::new()) }
    }

    /// What is to be sent to the head.
    pub(crate) fn take_said(&mut self) -> Vec<Said> {
        self.uplink.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether the head has room for more.
    pub(crate) fn stuff(&mut self, full: bool) {
        let before = std::mem::replace(&mut self.all[0].stuffed, full);
        if before && !full && !self.all[0].held.is_empty() {
            self.changed.push(0);
        }
    }

    /// A stream has ended.
    pub(crate) fn end(&mut self, stream: u32) {
        if let Some(said) = &mut self.uplink {
            said.push(Said::Bytes(stream, Vec::new()));
        }
    }

    pub(crate) fn stdout(&self) -> SinkId {
        self.stdout
    }

    pub(crate) fn stderr(&self) -> SinkId {
        self.stderr
    }

    /// A file of this name for one more stream, made empty when it is first asked for.
    pub(crate) fn file(&mut self, path: PathBuf) -> io::Result<SinkId> {
        let known = self.files.get(&path).copied();
        if let Some(sink) = known.filter(|&sink| self.all[sink].target.is_some()) {
            let users = &mut self.all[sink].users;
            *users = users.map(|users| users + 1);
            return Ok(sink);
        }
        // Non-blocking, because the name may be a pipe's.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let begin = if known.is_some() { OFlags::APPEND } else { OFlags::TRUNC };
        let fd = open(&path, flags | begin, Mode::from_raw_mode(0o666))?;
        let id = known.unwrap_or_else(|| {
            self.all.push(Sink::new(None, How::Write, false));
            self.files.insert(path, self.all.len() - 1);
            self.all.len() - 1
        });
        let sink = &mut self.all[id];
        (sink.target, sink.users) = (Some(fd), Some(1));
        Ok(id)
    }

    /// A stream writes no more to a sink: a file that nobody else writes to is closed.
    pub(crate) fn leave(&mut self, id: SinkId) {
        let sink = &mut self.all[id];
        sink.users = sink.users.map(|users| users.saturating_sub(1));
        sink.close_unused();
    }

    pub(crate) fn get(&self, sink: SinkId) -> &Sink {
        &self.all[sink]
    }

    /// Adds a stream's bytes.
    pub(crate) fn put(&mut self, sink: SinkId, stream: u32, bytes: &[u8]) {
        if let Some(said) = self.uplink.as_mut().filter(|_| !bytes.is_empty()) {
            return said.push(Said::Bytes(stream, bytes.to_vec()));
        }
        let to = &mut self.all[sink];
        if bytes.is_empty() || to.state != State::Open {
            return;
        }
        if to.start == to.buffer.len() {
            self.dirty.push(sink);
        }
        to.buffer.extend_from_slice(bytes);
        to.open_line = (bytes.last() != Some(&b'\n')).then_some(stream);
    }

    /// A line of the launcher's own on standard error.
    pub(crate) fn say(&mut self, line: &str) {
        if let Some(said) = &mut self.uplink {
            return said.push(Said::Line(line.to_owned()));
        }
        if self.all[self.stderr].open_line.is_some() {
            self.put(self.stderr, LAUNCHER, b"\n");
        }
        line.lines().for_each(|line| self.note("hydrant", line));
    }

    /// Text on standard error, behind the name of who says it.
    pub(crate) fn note(&mut self, name: &str, text: &str) {
        self.put(self.stderr, LAUNCHER, format!("{name}: {text}\n").as_bytes());
    }

    /// A stream waits until the sink has room.
    pub(crate) fn hold(&mut self, sink: SinkId, stream: u32) {
        self.all[sink].held.push(stream);
    }

    /// Writes what can be written of all that was added since the last time.
    pub(crate) fn flush(&mut self, poller: &Poller) {
        while let Some(sink) = self.dirty.pop() {
            self.flush_one(sink, poller);
        }
    }

    /// Writes what can be written to one sink.
    pub(crate) fn flush_one(&mut self, id: SinkId, poller: &Poller) {
        let sink = &mut self.all[id];
        sink.write();
        let wait = !sink.is_empty();
        if wait != sink.waiting {
            sink.waiting = wait;
            match &sink.target {
                Some(target) if !wait => poller.remove(target),
                Some(target) => {
                    if let Err(errno) = poller.add(target, Token::Sink(id as u32), Interest::Write) {
                        sink.fail(State::Failed(errno));
                    }
                }
                None => {}
            }
        }
        sink.close_unused();
        if sink.state != State::Open || (!sink.is_full() && !sink.held.is_empty()) {
            self.changed.push(id);
        }
    }

    /// Waits for so long until all that was added has been written.
    pub(crate) fn drain(&mut self, patience: Duration) {
        let start = Instant::now();
        for sink in &mut self.all {
            sink.write();
            while let Some(target) = sink.target.as_ref().filter(|_| !sink.is_empty()) {
                if !has_room(target.as_fd(), patience.saturating_sub(start.elapsed())) {
                    return;
                }
                sink.write();
            }
        }
    }

    /// A sink that has room again for the streams it held up, or takes nothing any more.
    pub(crate) fn changed(&mut self) -> Option<SinkId> {
        self.changed.pop()
    }

    /// The streams that waited for a sink, which wait no more.
    pub(crate) fn release(&mut self, sink: SinkId) -> Vec<u32> {
        std::mem::take(&mut self.all[sink].held)
    }

    /// Whether all that was added has been written.
    pub(crate) fn are_empty(&self) -> bool {
        self.all.iter().all(Sink::is_empty)
    }

    /// The first failure other than a closed reader.
    pub(crate) fn failure(&self) -> Option<(SinkId, Errno)> {
        self.all.iter().enumerate().find_map(|(id, sink)| match sink.state {
            State::Failed(errno) => Some((id, errno)),
            _ => None,
        })
    }

    /// Whether somebody stopped reading standard output or error.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.all.iter().any(|sink| sink.state == State::Closed)
    }

    /// What a sink is called in messages.
    pub(crate) fn name(&self, sink: SinkId) -> String {
        if sink == self.stdout {
            return "standard output".to_owned();
        }
        let path = self.files.iter().find(|(_, id)| **id == sink);
        path.map_or_else(|| "standard error".to_owned(), |(path, _)| path.display().to_string())
    }
}

/// The launcher's own lines, as if from a stream.
const LAUNCHER: u32 = u32::MAX;

impl Sink {
    fn new(target: Option<OwnedFd>, how: How, terminal: bool) -> Sink {
        Sink {
            target,
            users: None,
            how,
            terminal,
            buffer: Vec::new(),
            start: 0,
            open_line: None,
            held: Vec::new(),
            stuffed: false,
            waiting: false,
            state: State::Open,
        }
    }

    /// A sink over a descriptor that others have too.
    fn shared(fd: BorrowedFd<'_>) -> io::Result<Sink> {
        let terminal = isatty(fd);
        let kind = FileType::from_raw_mode(fstat(fd)?.st_mode);
        // Above standard error, and closed on exec.
        let copy = || rustix::io::fcntl_dupfd_cloexec(fd, 3);
        let (target, how) = match kind {
            FileType::Socket => (copy()?, How::Send),
            FileType::Fifo => reopen(fd).map_or_else(|_| Ok((copy()?, How::Polled)), Ok::<_, Errno>)?,
            _ if terminal => reopen(fd).map_or_else(|_| Ok((copy()?, How::Polled)), Ok::<_, Errno>)?,
            _ => (copy()?, How::Write),
        };
        Ok(Sink::new(Some(target), how, terminal))
    }

    /// Whether a person looks at it.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether it holds so much that ranks have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.stuffed || self.buffer.len() - self.start >= HIGH_WATER
    }

    /// The stream that left it in the middle of a line.
    pub(crate) fn open_line(&self) -> Option<u32> {
        self.open_line
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    fn is_empty(&self) -> bool {
        self.start == self.buffer.len()
    }

    fn close_unused(&mut self) {
        if self.users == Some(0) && self.is_empty() {
            self.target = None;
        }
    }

    fn fail(&mut self, state: State) {
        self.state = state;
        self.buffer = Vec::new();
        self.start = 0;
    }

    fn write(&mut self) {
        while let Some(target) = self.target.as_ref().filter(|_| self.start < self.buffer.len()) {
            let bytes = &self.buffer[self.start..];
            let written = match self.how {
                How::Write => rustix::io::write(target, bytes),
                How::Send => send(target, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
                How::Polled if has_room(target.as_fd(), Duration::ZERO) => {
                    rustix::io::write(target, &bytes[..bytes.len().min(POLLED_CHUNK)])
                }
                How::Polled => Err(Errno::AGAIN),
            };
            match written {
                Ok(len) => self.start += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(Errno::PIPE | Errno::CONNRESET) => return self.fail(State::Closed),
                Err(errno) => return self.fail(State::Failed(errno)),
            }
        }
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
            // Room for a burst is given back.
            self.buffer.shrink_to(HIGH_WATER);
        } else if self.start >= HIGH_WATER {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }
}

/// A non-blocking description of our own for the pipe or terminal behind `fd`.
fn reopen(fd: BorrowedFd<'_>) -> Result<(OwnedFd, How), Errno> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok((open(path, flags, Mode::empty())?, How::Write))
}

/// Whether something can be written, or can be within that time.
fn has_room(fd: BorrowedFd<'_>, within: Duration) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
    // An error or hangup counts as room: the write then says what it is.
    Timespec::try_from(within).is_ok_and(|within| poll(&mut fds, Some(&within)).is_ok_and(|ready| ready > 0))
}

/// The name that a pattern gives for a rank.
pub(crate) fn expand(
    pattern: &str,
    (job, rank): (u32, u32),
    appnum: u32,
    host: &str,
    mut pid: impl FnMut() -> u32,
) -> Result<PathBuf, String> {
    let mut path = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            path.push(c);
            continue;
        }
        match rest.next() {
            Some('r') => path.push_str(&rank.to_string()),
            Some('g') => path.push_str(&job.to_string()),
            Some('h') => path.push_str(host),
            Some('p') => path.push_str(&pid().to_string()),
            Some('a') => path.push_str(&appnum.to_string()),
            Some('%') => path.push('%'),
            other => return Err(other.map(String::from).unwrap_or_default()),
        }
    }
    Ok(path.into())
}

/// For tests: sinks over files of the test's own.
#[cfg(test)]
pub(super) fn sinks_over(stdout: &impl AsFd, stderr: &impl AsFd) -> Sinks {
    Sinks::over(stdout.as_fd(), stderr.as_fd()).expect("the descriptors are open")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;

    fn pipe() -> (File, File) {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        (read.into(), write.into())
    }

    #[test]
    fn a_slow_reader_holds_nobody_up_and_loses_nothing() {
        let poller = Poller::new().unwrap();
        let (mut out_read, out) = pipe();
        let (_err_read, err) = pipe();
        let mut sinks = sinks_over(&out, &err);
        let flags = rustix::fs::fcntl_getfl(&out).unwrap();
        let line = [b'x'; 4095];
        let mut lines = 0;
        while !sinks.get(0).is_full() {
            sinks.put(0, 0, &line);
            sinks.put(0, 0, b"\n");
            lines += 1;
            sinks.flush(&poller);
        }
        assert!(lines * 4096 >= HIGH_WATER && sinks.changed().is_none());
        sinks.hold(0, 5);
        // What others see of the shared descriptor is unchanged.
        assert_eq!(rustix::fs::fcntl_getfl(&out).unwrap(), flags);
        let mut read = vec![0; 65536];
        let mut total = 0;
        while !sinks.are_empty() {
            total += out_read.read(&mut read).unwrap();
            sinks.flush_one(0, &poller);
        }
        assert_eq!(sinks.changed(), Some(0));
        assert_eq!(sinks.release(0), [5]);
        drop((sinks, out));
        total += io::copy(&mut out_read, &mut io::sink()).unwrap() as usize;
        assert_eq!(total, lines * 4096);
    }

    #[test]
    fn a_reader_that_leaves_closes_the_sink() {
        let poller = Poller::new().unwrap();
        let ((read, out), (_err_read, err)) = (pipe(), pipe());
        let mut sinks = sinks_over(&out, &err);
        drop(read);
        sinks.put(0, 0, b"lost\n");
        sinks.flush(&poller);
        assert_eq!((sinks.changed(), sinks.get(0).state()), (Some(0), State::Closed));
        assert!(sinks.are_empty() && sinks.failure().is_none());
    }

    #[test]
    fn a_file_is_open_while_somebody_writes_to_it() {
        let poller = Poller::new().unwrap();
        let ((_out_read, out), (_err_read, err)) = (pipe(), pipe());
        let mut sinks = sinks_over(&out, &err);
        let path = std::env::temp_dir().join(format!("hydrant-sink-{}", std::process::id()));
        let file = sinks.file(path.clone()).unwrap();
        assert_eq!(sinks.file(path.clone()).unwrap(), file);
        sinks.leave(file);
        sinks.put(file, 3, b"one\n");
        sinks.leave(file);
        assert!(sinks.get(file).target.is_some(), "it has not been written yet");
        sinks.flush(&poller);
        assert!(sinks.get(file).target.is_none());
        // Whoever comes later goes on behind what is there.
        assert_eq!(sinks.file(path.clone()).unwrap(), file);
        sinks.put(file, 5, b"two\n");
        sinks.flush(&poller);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "one\ntwo\n");
        sinks.leave(sinks.stdout());
        assert!(sinks.get(sinks.stdout()).target.is_some());
    }

    #[test]
    fn one_place_is_one_sink() {
        let (_read, out) = pipe();
        let sinks = sinks_over(&out, &out.try_clone().unwrap());
        assert_eq!(sinks.stdout(), sinks.stderr());
    }

    #[test]
    fn patterns_name_files() {
        let name = |pattern| expand(pattern, (0, 3), 1, "node7", || 42);
        assert_eq!(name("out.%r-%g-%h-%p-%a.100%%").unwrap(), PathBuf::from("out.3-0-node7-42-1.100%"));
        assert_eq!(name("%x"), Err("x".to_owned()));
        assert_eq!(name("%"), Err(String::new()));
    }
}
