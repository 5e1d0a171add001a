//! Destinations of the ranks' output: the launcher's own standard output and error, and files.
//!
//! A slow reader holds back the ranks that write to the same sink, never the event loop: see [`Writer`].

use std::collections::HashMap;
use std::fs;
use std::io;
#[cfg(test)]
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use hydrant_reactor::file::{self, Access};
use hydrant_reactor::{KeyRange, Poller, Writer, WriterState, printable};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use crate::Descriptor;

/// Bytes pending on standard error from which on lines of the launcher are dropped: the ranks' output and, beside it, a
/// long report.
const LINES_MAX: usize = 1 << 20;

/// Pending bytes for the head from which on ranks of a daemon are not read. A read that has begun adds to them.
pub const UNSENT_MAX: usize = 256 * 1024;
/// Cost of a message for the head beside its bytes.
const UNSENT_COST: usize = 32;

/// The sink of standard output.
const STDOUT: SinkId = 0;

/// Number of a sink.
pub type SinkId = usize;

/// All sinks of a job.
#[derive(Debug)]
pub struct Sinks {
    all: Vec<Sink>,
    stdout: SinkId,
    stderr: SinkId,
    /// Files that streams have written to. None for one that is closed: a later stream continues behind what is there.
    files: HashMap<PathBuf, Option<SinkId>>,
    /// Written to since the last flush.
    dirty: Vec<SinkId>,
    /// Sinks that got room or closed since the last call of [`Sinks::changed`].
    changed: Vec<SinkId>,
    /// Standard error, a terminal, shows a line that is erased before other output.
    shows_progress: bool,
    /// A rank has written something.
    ranks_wrote: bool,
    /// Number of the launcher's lines that were dropped since the last notice about them.
    lost_lines: usize,
    /// Keys of the sinks that wait for room.
    keys: KeyRange,
    /// Pending output for the head, in order. None on a node that writes its own output.
    uplink: Option<Vec<Unsent>>,
    /// Its length in bytes.
    unsent: usize,
    /// Output of forwarded sinks that has not been taken.
    forwarded: Vec<Forwarded>,
    /// Sinks that nobody uses.
    free: Vec<SinkId>,
}

/// Output for another process.
#[derive(Debug)]
pub struct Forwarded {
    /// The sink.
    pub sink: SinkId,
    /// The stream.
    pub stream: u32,
    /// At least one byte.
    pub bytes: Vec<u8>,
}

/// Output for the head that has not been sent.
#[derive(Debug)]
pub enum Unsent {
    /// A line of the launcher.
    Line(String),
    /// Bytes of this stream. Empty at its end.
    Bytes(u32, Vec<u8>),
}

/// Destination of output.
#[derive(Debug)]
pub struct Sink {
    writer: Writer,
    /// The file that it leads to. None for the launcher's own outputs.
    file: Option<OpenFile>,
    /// The stream that left it in the middle of a line.
    open_line: Option<u32>,
    /// Streams that wait for room.
    held: Vec<u32>,
    /// The head, or who takes forwarded output, has no room for more.
    blocked: bool,
    /// Output is forwarded: [`Sinks::forwarding`]. The number of bytes that have not been taken.
    forwards: Option<usize>,
    /// Nobody takes forwarded output any more.
    cut: bool,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    /// Number of streams that may write to it.
    users: u32,
}

impl Sinks {
    /// Creates the sinks of the launcher's standard output and error. They are one sink if both lead to the same file,
    /// because their lines would split each other otherwise.
    ///
    /// # Errors
    /// One of the two is closed.
    pub fn new(keys: KeyRange) -> io::Result<Sinks> {
        Sinks::over(rustix::stdio::stdout(), rustix::stdio::stderr(), keys)
    }

    /// Has the ranks' standard output go to standard error, because standard output is for a document.
    pub fn leave_stdout(&mut self) {
        self.stdout = self.stderr;
    }

    fn over(stdout: BorrowedFd<'_>, stderr: BorrowedFd<'_>, keys: KeyRange) -> io::Result<Sinks> {
        let mut all = vec![Sink::new(Writer::shared(stdout)?)];
        let (a, b) = (fstat(stdout)?, fstat(stderr)?);
        if (a.st_dev, a.st_ino) != (b.st_dev, b.st_ino) {
            all.push(Sink::new(Writer::shared(stderr)?));
        }
        Ok(Sinks::with(all, keys, None))
    }

    /// Creates the sinks of a daemon. The head takes everything: [`Sinks::take_unsent`].
    pub fn uplink(keys: KeyRange) -> Sinks {
        Sinks::with(vec![Sink::new(Writer::closed())], keys, Some(Vec::new()))
    }

    /// Standard output is the first sink, and standard error the last at first.
    fn with(all: Vec<Sink>, keys: KeyRange, uplink: Option<Vec<Unsent>>) -> Sinks {
        Sinks {
            stdout: STDOUT,
            stderr: all.len() - 1,
            all,
            files: HashMap::new(),
            dirty: Vec::new(),
            changed: Vec::new(),
            shows_progress: false,
            ranks_wrote: false,
            lost_lines: 0,
            keys,
            uplink,
            unsent: 0,
            forwarded: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Lets go of standard output, and of standard error unless it is a file: what is written there later is dropped.
    ///
    /// # Errors
    /// The system refuses.
    pub fn let_go(&mut self) -> io::Result<()> {
        let null = || fs::File::options().write(true).open("/dev/null");
        let is_file = fstat(rustix::stdio::stderr())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        rustix::stdio::dup2_stdout(null()?)?;
        if !is_file {
            rustix::stdio::dup2_stderr(null()?)?;
        }
        for id in [self.stdout, self.stderr] {
            self.all[id].writer = Writer::shared(if id == self.stderr && is_file {
                rustix::stdio::stderr()
            } else {
                rustix::stdio::stdout()
            })?;
        }
        Ok(())
    }

    /// Takes the pending output for the head.
    pub fn take_unsent(&mut self) -> Vec<Unsent> {
        self.unsent = 0;
        self.uplink.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Sets whether the head has no room for more output.
    pub fn set_blocked(&mut self, full: bool) {
        self.block(0, full);
    }

    fn block(&mut self, id: SinkId, full: bool) {
        let before = std::mem::replace(&mut self.all[id].blocked, full);
        if before && !full && !self.all[id].held.is_empty() {
            self.changed.push(id);
        }
    }

    /// Creates a sink whose output the caller takes ([`take_forwarded`](Sinks::take_forwarded)) and passes on.
    pub fn forwarding(&mut self) -> SinkId {
        let id = self.unused();
        self.all[id].forwards = Some(0);
        id
    }

    /// Returns a sink that nobody uses.
    fn unused(&mut self) -> SinkId {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(Sink::new(Writer::closed()));
            self.all.len() - 1
        })
    }

    /// Takes the output of forwarding sinks, in its order. A sink of which much has been put and not taken is full.
    pub fn take_forwarded(&mut self) -> Vec<Forwarded> {
        for Forwarded { sink, .. } in &self.forwarded {
            self.all[*sink].forwards = Some(0);
        }
        std::mem::take(&mut self.forwarded)
    }

    /// Sets whether a forwarding sink has no room for more output.
    pub fn set_full(&mut self, id: SinkId, full: bool) {
        self.block(id, full);
    }

    /// Ends a forwarding sink, as if the reader of output had closed it.
    pub fn cut(&mut self, id: SinkId) {
        self.all[id].cut = true;
        self.forwarded.retain(|forwarded| forwarded.sink != id);
        self.changed.push(id);
    }

    /// Frees a forwarding sink, which no stream leads to.
    pub fn remove(&mut self, id: SinkId) {
        self.forwarded.retain(|forwarded| forwarded.sink != id);
        self.free(id);
    }

    fn free(&mut self, id: SinkId) {
        self.changed.retain(|&changed| changed != id);
        self.all[id] = Sink::new(Writer::closed());
        self.free.push(id);
    }

    /// Handles the end of a stream.
    pub fn end(&mut self, stream: u32) {
        if let Some(unsent) = &mut self.uplink {
            unsent.push(Unsent::Bytes(stream, Vec::new()));
        }
    }

    /// Returns the sink of standard output.
    pub fn stdout(&self) -> SinkId {
        self.stdout
    }

    /// Returns the sink of standard error.
    pub fn stderr(&self) -> SinkId {
        self.stderr
    }

    /// Returns the sink of this file for one more stream. The first call truncates the file.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn file(&mut self, path: PathBuf) -> io::Result<SinkId> {
        let known = self.files.get(&path).copied();
        let open = known.flatten().filter(|&sink| self.all[sink].writer.is_open());
        if let Some(sink) = open
            && let Some(file) = &mut self.all[sink].file
        {
            file.users += 1;
            return Ok(sink);
        }
        let fd = open_file(&path, known.is_some())?;
        let id = known.flatten().unwrap_or_else(|| self.unused());
        self.files.insert(path.clone(), Some(id));
        let sink = &mut self.all[id];
        sink.writer.open(fd);
        sink.file = Some(OpenFile { path, users: 1 });
        Ok(id)
    }

    /// Releases a stream's use of a sink. A file without users is closed.
    pub fn leave(&mut self, id: SinkId) {
        if let Some(file) = &mut self.all[id].file {
            file.users = file.users.saturating_sub(1);
        }
        self.close_unused(id);
    }

    /// Closes a file that no stream writes to any more. Its sink stays if it has a [failure](Sinks::failure) to tell.
    fn close_unused(&mut self, id: SinkId) {
        let sink = &mut self.all[id];
        if sink.file.as_ref().is_none_or(|file| file.users > 0) || !sink.writer.is_empty() {
            return;
        }
        if matches!(sink.state(), WriterState::Failed(_)) {
            return sink.writer.close();
        }
        if let Some(file) = sink.file.take()
            && let Some(known) = self.files.get_mut(&file.path)
        {
            *known = None;
        }
        self.free(id);
    }

    /// Returns a sink.
    pub fn get(&self, sink: SinkId) -> &Sink {
        &self.all[sink]
    }

    /// Adds a stream's bytes.
    pub fn put(&mut self, sink: SinkId, stream: u32, bytes: &[u8]) {
        if let Some(unsent) = self.uplink.as_mut().filter(|_| !bytes.is_empty()) {
            unsent.push(Unsent::Bytes(stream, bytes.to_vec()));
            self.unsent += bytes.len() + UNSENT_COST;
            self.all[0].blocked |= self.unsent >= UNSENT_MAX;
            return;
        }
        if !bytes.is_empty() {
            self.erase_progress();
            self.ranks_wrote |= stream != LAUNCHER;
        }
        let to = &mut self.all[sink];
        if bytes.is_empty() || to.state() != WriterState::Open {
            return;
        }
        if let Some(pending) = &mut to.forwards {
            *pending += bytes.len() + UNSENT_COST;
            to.blocked |= *pending >= UNSENT_MAX;
            return self.forwarded.push(Forwarded { sink, stream, bytes: bytes.to_vec() });
        }
        if to.writer.is_empty() {
            self.dirty.push(sink);
        }
        to.writer.push(bytes);
        to.open_line = (bytes.last() != Some(&b'\n')).then_some(stream);
    }

    /// Returns whether standard error is a terminal that shows no output of a rank.
    pub fn can_show_progress(&self) -> bool {
        let stderr = &self.all[self.stderr];
        stderr.is_terminal() && stderr.writer.is_empty() && !self.ranks_wrote
    }

    /// Shows a line on standard error in place of the one before.
    pub fn show_progress(&mut self, line: &str) {
        self.erase_progress();
        self.put_unmarked(printable(line).as_bytes());
        self.shows_progress = true;
    }

    /// Erases the line of [`show_progress`](Sinks::show_progress), if it is shown.
    pub fn erase_progress(&mut self) {
        if std::mem::take(&mut self.shows_progress) {
            self.put_unmarked(ERASE);
        }
    }

    /// Writes to standard error what is no part of a line.
    fn put_unmarked(&mut self, bytes: &[u8]) {
        let before = self.all[self.stderr].open_line;
        self.put(self.stderr, LAUNCHER, bytes);
        self.all[self.stderr].open_line = before;
    }

    /// Prints a line of the launcher's own on standard error.
    pub fn print(&mut self, line: &str) {
        if let Some(unsent) = &mut self.uplink {
            return unsent.push(Unsent::Line(line.to_owned()));
        }
        if self.drops_lines(line) {
            return;
        }
        if self.all[self.stderr].open_line.is_some() {
            self.put(self.stderr, LAUNCHER, b"\n");
        }
        line.lines().for_each(|line| self.note("hydrant", line));
    }

    /// Writes a message with the name of its sender to standard error. Drops and counts it if 1 MiB is pending.
    pub fn note(&mut self, name: &str, text: &str) {
        if self.drops_lines(text) {
            return;
        }
        let text = printable(text);
        self.put(self.stderr, LAUNCHER, format!("{name}: {text}\n").as_bytes());
    }

    /// Returns whether standard error has no room for lines of the launcher. Counts those of `text` as dropped then.
    fn drops_lines(&mut self, text: &str) -> bool {
        let is_full = self.uplink.is_none() && self.all[self.stderr].writer.pending() >= LINES_MAX;
        if is_full {
            self.lost_lines += text.lines().count();
        }
        is_full
    }

    /// Writes how many lines were dropped, once standard error has room for ranks again.
    fn report_lost_lines(&mut self) {
        let stderr = &self.all[self.stderr];
        if self.lost_lines > 0 && !stderr.writer.is_full() {
            let count = std::mem::take(&mut self.lost_lines);
            self.note(
                "hydrant",
                &format!("{count} lines are missing here, because standard error was not read"),
            );
        }
    }

    /// Adds a stream to those that wait for room in the sink.
    pub fn hold(&mut self, sink: SinkId, stream: u32) {
        self.all[sink].held.push(stream);
    }

    /// Writes pending output of all sinks that changed since the last call.
    pub fn flush(&mut self, poller: &Poller) {
        while let Some(sink) = self.dirty.pop() {
            self.flush_one(sink, poller);
        }
    }

    /// Writes pending output of one sink.
    pub fn flush_one(&mut self, id: SinkId, poller: &Poller) {
        self.all[id].writer.flush(Descriptor::Sink(id as u32).key(self.keys), poller);
        if id == self.stderr {
            self.report_lost_lines();
        }
        self.close_unused(id);
        let sink = &self.all[id];
        if sink.state() != WriterState::Open || (!sink.is_full() && !sink.held.is_empty()) {
            self.changed.push(id);
        }
    }

    /// Returns whether [`changed`](Sinks::changed) would return a sink.
    pub fn have_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns the next sink that has room again for its waiting streams, or accepts no more output.
    pub fn changed(&mut self) -> Option<SinkId> {
        self.changed.pop()
    }

    /// Takes the streams that waited for a sink.
    pub fn release(&mut self, sink: SinkId) -> Vec<u32> {
        std::mem::take(&mut self.all[sink].held)
    }

    /// Returns whether all output has been written.
    pub fn are_empty(&self) -> bool {
        self.all.iter().all(|sink| sink.writer.is_empty())
    }

    /// Returns the first failure other than a closed reader.
    pub fn failure(&self) -> Option<(SinkId, Errno)> {
        self.all.iter().enumerate().find_map(|(id, sink)| match sink.state() {
            WriterState::Failed(errno) => Some((id, errno)),
            _ => None,
        })
    }

    /// Returns whether a reader closed standard output or error.
    pub fn is_cut_off(&self) -> bool {
        self.all.iter().any(|sink| sink.forwards.is_none() && sink.state() == WriterState::Closed)
    }

    /// Returns the name of a sink for messages.
    pub fn name(&self, sink: SinkId) -> String {
        if sink == STDOUT {
            return "standard output".to_owned();
        }
        let file = self.all[sink].file.as_ref();
        file.map_or_else(|| "standard error".to_owned(), |file| file.path.display().to_string())
    }
}

/// The launcher's own lines, as if from a stream.
const LAUNCHER: u32 = u32::MAX;
/// To the first column, and nothing behind it.
const ERASE: &[u8] = b"\r\x1b[K";

impl Sink {
    fn new(writer: Writer) -> Sink {
        let held = Vec::new();
        Sink { writer, file: None, open_line: None, held, blocked: false, forwards: None, cut: false }
    }

    /// Returns whether the sink is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.writer.is_terminal()
    }

    /// Returns whether the sink is full, so that ranks have to wait.
    pub fn is_full(&self) -> bool {
        self.blocked || self.writer.is_full()
    }

    /// Returns the stream that left it in the middle of a line.
    pub fn open_line(&self) -> Option<u32> {
        self.open_line
    }

    /// Returns whether the sink accepts output, or why it does not.
    pub fn state(&self) -> WriterState {
        if self.cut { WriterState::Closed } else { self.writer.state() }
    }

    /// Returns whether its output is forwarded as it is: lines are put together elsewhere.
    pub fn is_forwarding(&self) -> bool {
        self.forwards.is_some()
    }
}

/// Opens a file for writing, and makes its directory if that is missing.
fn open_file(path: &Path, is_known: bool) -> io::Result<OwnedFd> {
    let open = if is_known { file::append } else { file::create };
    match open(path, Access::Umask).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            Ok(open(path, Access::Umask)?)
        }
        opened => opened,
    }
}

/// For tests: sinks over files of the test's own.
#[cfg(test)]
pub(crate) fn sinks_over(stdout: &impl AsFd, stderr: &impl AsFd) -> Sinks {
    Sinks::over(stdout.as_fd(), stderr.as_fd(), KeyRange(0)).expect("the descriptors are open")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;

    fn pipe() -> (File, File) {
        let (read, write) = hydrant_reactor::pipe().unwrap();
        (read.into(), write.into())
    }

    #[test]
    fn a_slow_reader_blocks_no_other_stream_and_loses_nothing() {
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
        assert!(lines * 4096 >= 256 * 1024 && sinks.changed().is_none());
        sinks.hold(0, 5);
        // The flags of the shared descriptor are unchanged.
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

    // Fault: Ranks cause lines of the launcher without end while standard error is not read
    // Outcome: some lines are missing, and a line says how many
    // Guarantee: The launcher holds at most 1 MiB of its own lines
    #[test]
    fn lines_of_the_launcher_are_bounded_and_counted() {
        let poller = Poller::new().unwrap();
        let ((_out_read, out), (mut err_read, err)) = (pipe(), pipe());
        let mut sinks = sinks_over(&out, &err);
        let line = "x".repeat(1 << 10);
        // Four times as much as fits.
        for _ in 0..4 * LINES_MAX / line.len() {
            sinks.print(&line);
            sinks.flush(&poller);
        }
        assert!(sinks.all[sinks.stderr].writer.pending() < LINES_MAX + 2 * line.len());
        let mut text = Vec::new();
        let mut buffer = vec![0; 65536];
        while !sinks.are_empty() {
            let len = err_read.read(&mut buffer).unwrap();
            text.extend_from_slice(&buffer[..len]);
            sinks.flush_one(sinks.stderr, &poller);
        }
        drop((sinks, err));
        err_read.read_to_end(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let (kept, notice) = text.trim_end().rsplit_once('\n').unwrap();
        let lost = 4 * LINES_MAX / line.len() - kept.lines().count();
        let expected = format!("hydrant: {lost} lines are missing here, because standard error was not read");
        assert_eq!(notice, expected);
    }

    #[test]
    fn output_for_the_head_is_bounded_and_goes_on_when_it_is_sent() {
        let mut sinks = Sinks::uplink(KeyRange(0));
        let mut reads = 0;
        while !sinks.get(0).is_full() {
            sinks.put(0, 2, b"x");
            reads += 1;
        }
        assert!(reads * (1 + UNSENT_COST) >= UNSENT_MAX);
        sinks.hold(0, 2);
        // The end of a stream waits for nothing.
        sinks.end(4);
        assert_eq!(sinks.take_unsent().len(), reads + 1);
        sinks.set_blocked(false);
        assert!(sinks.have_changed() && !sinks.get(0).is_full());
        assert_eq!((sinks.changed(), sinks.release(0)), (Some(0), vec![2]));
        sinks.put(0, 2, &[0; UNSENT_MAX]);
        sinks.take_unsent();
        sinks.set_blocked(true);
        assert!(sinks.get(0).is_full() && !sinks.have_changed(), "there is no credit");
    }

    #[test]
    fn a_reader_that_leaves_closes_the_sink() {
        let poller = Poller::new().unwrap();
        let ((read, out), (_err_read, err)) = (pipe(), pipe());
        let mut sinks = sinks_over(&out, &err);
        drop(read);
        sinks.put(0, 0, b"lost\n");
        sinks.flush(&poller);
        assert_eq!((sinks.changed(), sinks.get(0).state()), (Some(0), WriterState::Closed));
        assert!(sinks.are_empty() && sinks.failure().is_none());
    }

    #[test]
    fn a_file_is_open_while_a_stream_writes_to_it() {
        let poller = Poller::new().unwrap();
        let ((_out_read, out), (_err_read, err)) = (pipe(), pipe());
        let mut sinks = sinks_over(&out, &err);
        let path = std::env::temp_dir().join(format!("hydrant-sink-{}", std::process::id()));
        let file = sinks.file(path.clone()).unwrap();
        assert_eq!(sinks.file(path.clone()).unwrap(), file);
        sinks.leave(file);
        sinks.put(file, 3, b"one\n");
        sinks.leave(file);
        assert!(sinks.get(file).writer.is_open(), "it has not been written yet");
        sinks.flush(&poller);
        assert!(!sinks.get(file).writer.is_open());
        // A later stream continues behind the existing output.
        assert_eq!(sinks.file(path.clone()).unwrap(), file);
        sinks.put(file, 5, b"two\n");
        sinks.flush(&poller);
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(text, "one\ntwo\n");
        sinks.leave(sinks.stdout());
        assert!(sinks.get(sinks.stdout()).writer.is_open());
    }

    #[test]
    fn one_place_is_one_sink() {
        let (_read, out) = pipe();
        let sinks = sinks_over(&out, &out.try_clone().unwrap());
        assert_eq!(sinks.stdout(), sinks.stderr());
    }
}
