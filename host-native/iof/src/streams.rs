//! The ranks' standard output and error, passed on in whole lines.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use hydrant_control::protocol::{PseudoTerminals, WindowSize};
use hydrant_reactor::{Interest, KeyRange, Poller, WriterState, pipe};
use memchr::memrchr;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

use crate::Descriptor;
use crate::label::{Labels, timestamp};
use crate::pattern::NamedJob;
use crate::pty;
use crate::sinks::{SinkId, Sinks};

/// Maximum length of a line that is kept whole, in bytes. It bounds the memory for output without line ends.
const LINE_MAX: usize = 64 * 1024;
/// Time that an unfinished line waits for its end on a terminal, in milliseconds. A prompt has no end.
const PROMPT_DELAY: u64 = 50;
/// The null device.
const NULL: &str = "/dev/null";
/// Most reads of a stream whose process has ended, before other events are handled.
const READS_MAX: usize = 4;
/// Most bytes that are copied in one turn of the event loop.
const COPIES_MAX: usize = 1 << 20;
/// Most bytes of one piece of a copy.
const COPY_MAX: usize = 32 * 1024;

/// All output streams. A process's standard output is number `2 * process`, its standard error the next.
#[derive(Debug)]
pub struct Streams {
    all: Vec<Stream>,
    /// Texts before lines.
    labels: Labels,
    /// Bytes are passed on as they are: lines are put together elsewhere.
    raw: bool,
    /// Streams with an unfinished line bound for a terminal.
    prompts: Vec<u32>,
    /// Streams that are pseudo-terminals.
    terminals: Option<PseudoTerminals>,
    /// Copy of the output for those who follow it, if there are any.
    copies: Option<Copies>,
    /// Keys of the open streams.
    keys: KeyRange,
}

/// Copies of output that wait to be sent. They are taken after each turn of the event loop.
#[derive(Debug, Default)]
pub struct Copies {
    /// Pieces, in their order.
    pub pieces: Vec<Copy>,
    /// Bytes of all pieces.
    len: usize,
    /// Bytes that were not copied, because a turn has at most 1 MiB.
    pub lost: u64,
}

/// Output of one rank.
#[derive(Debug)]
pub struct Copy {
    /// Number of its job, which later jobs may have.
    pub number: u32,
    /// Ordinal of its job.
    pub job: u32,
    /// Its rank.
    pub rank: u32,
    /// Whether it is standard error.
    pub stderr: bool,
    /// At most 32 KiB.
    pub bytes: Vec<u8>,
}

impl Copies {
    fn add(&mut self, (number, job, rank): (u32, u32, u32), stderr: bool, bytes: &[u8]) {
        for bytes in bytes.chunks(COPY_MAX) {
            if self.len + bytes.len() > COPIES_MAX {
                self.lost += bytes.len() as u64;
                continue;
            }
            self.len += bytes.len();
            self.pieces.push(Copy { number, job, rank, stderr, bytes: bytes.to_vec() });
        }
    }
}

#[derive(Debug, Default)]
struct Stream {
    /// Number and ordinal of its job, and its rank.
    origin: (u32, u32, u32),
    /// Whether it is a pseudo-terminal, if that is not decided by [`Streams::new`].
    terminals: Option<Option<PseudoTerminals>>,
    fd: Option<OwnedFd>,
    is_terminal: bool,
    /// Text before each line.
    label: String,
    sink: SinkId,
    /// A standard stream of the launcher that a file's output is copied to.
    copy: Option<SinkId>,
    /// An unfinished line.
    partial: Vec<u8>,
    /// Time at which the unfinished line is shown.
    show_at: Option<u64>,
    /// Not read, because the sink is full.
    held: bool,
    /// Time of the last byte.
    last_read: u64,
    /// Number of reads that gave bytes.
    reads: u64,
    /// Number of bytes to read before the stream is closed. Set when its rank has ended.
    remaining: Option<usize>,
}

impl Streams {
    /// Creates no streams yet. `terminals` tells which of later ones are pseudo-terminals.
    pub fn new(labels: Labels, terminals: Option<PseudoTerminals>, keys: KeyRange) -> Streams {
        Streams { all: Vec::new(), labels, raw: false, prompts: Vec::new(), terminals, copies: None, keys }
    }

    /// Creates those of a daemon, whose lines are assembled by the head.
    pub fn raw(terminals: Option<PseudoTerminals>, keys: KeyRange) -> Streams {
        Streams { raw: true, ..Streams::new(Labels::default(), terminals, keys) }
    }

    /// Sets the size of the windows of the pseudo-terminals of these processes, or of all and of later ones. Returns whether there
    /// are any.
    pub fn resize_windows(&mut self, processes: Option<Range<u32>>, size: WindowSize) -> bool {
        if processes.is_none() {
            self.terminals.iter_mut().for_each(|terminals| terminals.size = size);
        }
        let all = 0..self.all.len() as u32 / 2;
        let Range { start, end } = processes.map_or(all.clone(), |some| some.start..some.end.min(all.end));
        let streams = self.all.get_mut(2 * start as usize..2 * end as usize).unwrap_or_default();
        for stream in &mut *streams {
            stream.terminals.iter_mut().flatten().for_each(|terminals| terminals.size = size);
            // A failure leaves the size as it is, which harms no output.
            let _ = stream.fd.as_ref().filter(|_| stream.is_terminal).map(|fd| pty::resize(fd, size));
        }
        streams.iter().any(|stream| stream.is_terminal)
    }

    /// Makes room for processes of these numbers, the ranks of a job with this number. `host` returns the host of a rank.
    pub fn make_room<'h>(
        &mut self,
        processes: Range<u32>,
        (number, job): (u32, NamedJob),
        sinks: &Sinks,
        host: impl Fn(u32) -> &'h str,
    ) {
        if self.all.len() < 2 * processes.end as usize {
            self.all.resize_with(2 * processes.end as usize, Stream::default);
        }
        for (rank, process) in (0..).zip(processes) {
            for (stderr, sink) in [(false, sinks.stdout()), (true, sinks.stderr())] {
                let label = self.labels.text(job, rank, || host(rank), stderr);
                let id = 2 * process as usize + usize::from(stderr);
                self.all[id] =
                    Stream { origin: (number, job.ordinal, rank), sink, label, ..Stream::default() };
            }
        }
    }

    /// Directs the streams of processes to sinks of their own, for standard output and standard error, and sets which of them are
    /// pseudo-terminals. Called before the first is opened.
    pub fn forward(&mut self, processes: Range<u32>, to: [SinkId; 2], terminals: Option<PseudoTerminals>) {
        for id in streams(&processes) {
            let stream = &mut self.all[id];
            (stream.sink, stream.terminals) = (to[id % 2], Some(terminals));
        }
    }

    /// Removes the closed streams of the processes of a job that has ended.
    pub fn clear(&mut self, processes: Range<u32>, sinks: &mut Sinks) {
        for id in streams(&processes) {
            let stream = std::mem::take(&mut self.all[id]);
            sinks.leave(stream.sink);
        }
    }

    /// Opens a pipe or pseudo-terminal for a stream. Returns the rank's end.
    ///
    /// # Errors
    /// The process has no more descriptors.
    pub fn open(&mut self, id: u32, poller: &Poller) -> Result<OwnedFd, Errno> {
        let is_stderr = id % 2 == 1;
        let terminals = self.all[id as usize].terminals.unwrap_or(self.terminals);
        let wanted = terminals.filter(|wanted| if is_stderr { wanted.stderr } else { wanted.stdout });
        // The system has a limited number of pseudo-terminals. A rank beyond it writes to a pipe.
        let terminal = wanted.and_then(|wanted| pty::open(wanted.size).ok());
        let is_terminal = terminal.is_some();
        let (read, write) = match terminal {
            Some(ends) => ends,
            None => {
                let (read, write) = pipe()?;
                // Only this end: the other one is the rank's standard output, which blocks.
                fcntl_setfl(&read, OFlags::NONBLOCK)?;
                (read, write)
            }
        };
        poller.add(&read, Descriptor::Stream(id).key(self.keys), Interest::Read)?;
        let stream = &mut self.all[id as usize];
        (stream.fd, stream.is_terminal) = (Some(read), is_terminal);
        Ok(write)
    }

    /// Handles bytes of a stream from another node. An empty slice marks the end. Returns the sink that the stream waits for, or
    /// its own.
    pub fn arrived(&mut self, id: u32, now: u64, bytes: &[u8], sinks: &mut Sinks) -> SinkId {
        match bytes.is_empty() {
            true => self.pass_partial(id, sinks),
            false => self.take(id, now, bytes, sinks),
        }
        let stream = &self.all[id as usize];
        stream.full_sink(sinks).unwrap_or(stream.sink)
    }

    /// Adds text to a stream that the rank has not written itself. Drops it if the sink is full: the rank does not wait for
    /// room.
    pub fn inject(&mut self, id: u32, now: u64, text: &[u8], sinks: &mut Sinks) {
        if self.all[id as usize].full_sink(sinks).is_none() {
            self.take(id, now, text, sinks);
        }
    }

    /// Returns the streams of these processes that go to a sink.
    pub fn to_sink(&self, processes: Range<u32>, sink: SinkId) -> Vec<u32> {
        let of_processes = 2 * processes.start..2 * processes.end;
        of_processes.filter(|&id| self.all[id as usize].sink == sink).collect()
    }

    /// Closes a stream whose sink accepts no more output.
    pub fn cut(&mut self, id: u32, sinks: &mut Sinks) {
        self.close(id, sinks);
    }

    /// Sets the sink of a stream, in place of the launcher's standard stream or beside it. Called before the first read.
    pub fn direct(&mut self, id: u32, sink: SinkId, is_copied: bool) {
        let stream = &mut self.all[id as usize];
        stream.copy = is_copied.then_some(stream.sink);
        stream.sink = sink;
    }

    /// Has a stream write nothing to the launcher's standard streams. Called before the first read.
    ///
    /// # Errors
    /// The null device cannot be opened.
    pub fn divert(&mut self, id: u32, sinks: &mut Sinks) -> io::Result<()> {
        let standard = [sinks.stdout(), sinks.stderr()];
        let stream = &mut self.all[id as usize];
        stream.copy = stream.copy.filter(|copy| !standard.contains(copy));
        if standard.contains(&stream.sink) {
            stream.sink = sinks.file(NULL.into())?;
        }
        Ok(())
    }

    /// Returns whether all streams of these processes have ended.
    pub fn are_closed(&self, processes: Range<u32>) -> bool {
        self.all[streams(&processes)].iter().all(|stream| stream.fd.is_none())
    }

    /// Reads a stream once, unless a sink of it is full.
    pub fn read(&mut self, id: u32, now: u64, buffer: &mut [u8], sinks: &mut Sinks, poller: &Poller) {
        let stream = &mut self.all[id as usize];
        let Some(fd) = stream.fd.as_ref().filter(|_| !stream.held) else { return };
        for sink in stream.sinks() {
            if sinks.get(sink).is_full() {
                sinks.flush_one(sink, poller);
            }
        }
        if sinks.get(stream.sink).state() != WriterState::Open {
            return self.close(id, sinks);
        }
        if let Some(full) = stream.full_sink(sinks) {
            poller.remove(fd);
            stream.held = true;
            return sinks.hold(full, id);
        }
        let room = stream.remaining.unwrap_or(usize::MAX).min(buffer.len());
        match rustix::io::read(fd, &mut buffer[..room]) {
            Ok(0) => self.close(id, sinks),
            Ok(len) => {
                stream.remaining = stream.remaining.map(|remaining| remaining - len);
                stream.last_read = now;
                stream.reads += 1;
                let done = stream.remaining == Some(0);
                self.take(id, now, &buffer[..len], sinks);
                if done {
                    self.close(id, sinks);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) if stream.remaining.is_none() => {}
            Err(_) => self.close(id, sinks),
        }
    }

    /// When the last byte of the streams of these processes came. None while one of them is not read, because its sink is full.
    pub fn last_read(&self, processes: Range<u32>) -> Option<u64> {
        let open = self.all[streams(&processes)].iter();
        open.map(|stream| (!stream.held).then_some(stream.last_read))
            .try_fold(0, |last, at| Some(at?.max(last)))
    }

    /// Reads the streams of processes that have ended, until they end or nothing is there: others may write to them.
    pub fn read_ended(
        &mut self,
        processes: Range<u32>,
        now: u64,
        buffer: &mut [u8],
        sinks: &mut Sinks,
        poller: &Poller,
    ) {
        for id in 2 * processes.start..2 * processes.end {
            // What a pipe holds, or a pseudo-terminal.
            for _ in 0..READS_MAX {
                let before = self.all[id as usize].reads;
                self.read(id, now, buffer, sinks, poller);
                if self.all[id as usize].reads == before {
                    break;
                }
            }
        }
    }

    /// Limits the streams of processes that have ended to the bytes that their pipes hold now. A process that they left
    /// behind may keep a pipe open without end.
    pub fn finish(
        &mut self,
        processes: Range<u32>,
        now: u64,
        buffer: &mut [u8],
        sinks: &mut Sinks,
        poller: &Poller,
    ) {
        for id in 2 * processes.start..2 * processes.end {
            let stream = &mut self.all[id as usize];
            if let Some(fd) = &stream.fd {
                // The kernel delivers the bytes of a pseudo-terminal when it is read, and does not count them before.
                let known = || rustix::io::ioctl_fionread(fd).map_or(0, |len| len as usize);
                stream.remaining = Some(if stream.is_terminal { pty::CAPACITY } else { known() });
                self.read_rest(id, now, buffer, sinks, poller);
            }
        }
    }

    fn read_rest(&mut self, id: u32, now: u64, buffer: &mut [u8], sinks: &mut Sinks, poller: &Poller) {
        while self.all[id as usize].fd.is_some() && !self.all[id as usize].held {
            self.read(id, now, buffer, sinks, poller);
        }
    }

    /// Resumes the streams that waited for a sink. A stream whose own sink accepts no more output ends.
    pub fn resume(&mut self, sink: SinkId, now: u64, buffer: &mut [u8], sinks: &mut Sinks, poller: &Poller) {
        let dead = sinks.get(sink).state() != WriterState::Open;
        for id in sinks.release(sink) {
            let stream = &mut self.all[id as usize];
            stream.held = false;
            let Some(fd) = &stream.fd else { continue };
            if dead && stream.sink == sink
                || poller.add(fd, Descriptor::Stream(id).key(self.keys), Interest::Read).is_err()
            {
                self.close(id, sinks);
            } else if stream.remaining.is_some() {
                self.read_rest(id, now, buffer, sinks, poller);
            }
        }
        if dead {
            // The rank finds out at its next write, as if the sink were its own output.
            for id in 0..self.all.len() as u32 {
                if self.all[id as usize].sink == sink {
                    self.close(id, sinks);
                }
            }
        }
    }

    /// Returns the time of the next [`show`](Streams::show).
    pub fn deadline(&self) -> Option<u64> {
        self.prompts.iter().filter_map(|&id| self.all[id as usize].show_at).min()
    }

    /// Shows unfinished lines that have waited long enough.
    pub fn show(&mut self, now: u64, sinks: &mut Sinks) {
        let mut prompts = std::mem::take(&mut self.prompts);
        prompts.retain(|&id| match self.all[id as usize].show_at {
            None => false,
            Some(at) if at > now => true,
            Some(_) => {
                self.pass_partial(id, sinks);
                false
            }
        });
        self.prompts = prompts;
    }

    /// Returns the copies of output since the last call. From then on output is copied if `goes_on`.
    pub fn take_copies(&mut self, goes_on: bool) -> Option<Copies> {
        std::mem::replace(&mut self.copies, goes_on.then(Copies::default))
    }

    fn take(&mut self, id: u32, now: u64, bytes: &[u8], sinks: &mut Sinks) {
        if let Some(copies) = &mut self.copies {
            copies.add(self.all[id as usize].origin, id % 2 == 1, bytes);
        }
        // With one rank and no labels, lines need no assembly.
        let is_forwarded = sinks.get(self.all[id as usize].sink).is_forwarding();
        let whole_lines = !self.raw && !is_forwarded && (self.labels.are_used() || self.all.len() > 2);
        let stream = &mut self.all[id as usize];
        if !whole_lines {
            return stream.sinks().for_each(|sink| sinks.put(sink, id, bytes));
        }
        let (lines, rest) = bytes.split_at(memrchr(b'\n', bytes).map_or(0, |at| at + 1));
        if !lines.is_empty() {
            let partial = std::mem::take(&mut stream.partial);
            stream.show_at = None;
            self.pass(id, &partial, lines, sinks);
        }
        let stream = &mut self.all[id as usize];
        stream.partial.extend_from_slice(rest);
        if stream.partial.len() >= LINE_MAX {
            self.pass_partial(id, sinks);
        } else if !rest.is_empty()
            && stream.show_at.is_none()
            && stream.sinks().any(|sink| sinks.get(sink).is_terminal())
        {
            stream.show_at = Some(now + PROMPT_DELAY);
            if !self.prompts.contains(&id) {
                self.prompts.push(id);
            }
        }
    }

    fn pass_partial(&mut self, id: u32, sinks: &mut Sinks) {
        let partial = std::mem::take(&mut self.all[id as usize].partial);
        self.all[id as usize].show_at = None;
        if !partial.is_empty() {
            self.pass(id, &partial, &[], sinks);
        }
    }

    /// Writes the beginning of a line and the lines that follow, with labels.
    fn pass(&self, id: u32, beginning: &[u8], lines: &[u8], sinks: &mut Sinks) {
        let time = self.labels.has_timestamps().then(|| timestamp(SystemTime::now()));
        let label = time.unwrap_or_default() + &self.all[id as usize].label;
        for sink in self.all[id as usize].sinks() {
            self.pass_to(sink, id, &label, (beginning, lines), sinks);
        }
    }

    fn pass_to(
        &self,
        sink: SinkId,
        id: u32,
        label: &str,
        (beginning, lines): (&[u8], &[u8]),
        sinks: &mut Sinks,
    ) {
        let mut goes_on = sinks.get(sink).open_line() == Some(id);
        // The unfinished line of another stream stays unfinished in a file. With labels or on a terminal it gets a line
        // end.
        if !goes_on
            && sinks.get(sink).open_line().is_some()
            && (self.labels.are_used() || sinks.get(sink).is_terminal())
        {
            sinks.put(sink, id, b"\n");
        }
        if !self.labels.are_used() {
            sinks.put(sink, id, beginning);
            return sinks.put(sink, id, lines);
        }
        let mut first = true;
        let mut pieces = lines.split_inclusive(|&byte| byte == b'\n');
        loop {
            let piece = pieces.next();
            if piece.is_none() && !first {
                break;
            }
            if !std::mem::take(&mut goes_on) {
                sinks.put(sink, id, label.as_bytes());
            }
            if std::mem::take(&mut first) {
                sinks.put(sink, id, beginning);
            }
            sinks.put(sink, id, piece.unwrap_or_default());
        }
    }

    fn close(&mut self, id: u32, sinks: &mut Sinks) {
        if self.all[id as usize].fd.take().is_some() {
            self.pass_partial(id, sinks);
            sinks.end(id);
        }
    }
}

impl Stream {
    /// The sinks that get its output.
    fn sinks(&self) -> impl Iterator<Item = SinkId> + use<> {
        std::iter::once(self.sink).chain(self.copy)
    }

    /// The first of its sinks that it has to wait for.
    fn full_sink(&self, sinks: &Sinks) -> Option<SinkId> {
        self.sinks().find(|&sink| sinks.get(sink).is_full() && sinks.get(sink).state() == WriterState::Open)
    }
}

/// The streams of these processes.
fn streams(processes: &Range<u32>) -> Range<usize> {
    2 * processes.start as usize..2 * processes.end as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::{LinePrefix, Prefix};
    use crate::sinks::sinks_over;
    use std::fs::File;
    use std::io::{ErrorKind, Read, Write};

    struct Bench {
        poller: Poller,
        sinks: Sinks,
        streams: Streams,
        out: File,
        ranks: Vec<File>,
    }

    impl Bench {
        fn new(ranks: u32, labels: bool) -> Bench {
            let poller = Poller::new().unwrap();
            let (out, to) = pipe().unwrap();
            fcntl_setfl(&out, OFlags::NONBLOCK).unwrap();
            let to = File::from(to);
            let sinks = sinks_over(&to, &File::open("/dev/null").unwrap());
            let lines = if labels { LinePrefix::Rank } else { LinePrefix::None };
            let mut streams =
                Streams::new(Labels::new(Prefix { lines, timestamps: false }), None, KeyRange(0));
            streams.make_room(0..ranks, (0, NamedJob::default()), &sinks, |_| "here");
            let open = |rank| File::from(streams.open(2 * rank, &poller).unwrap());
            let ranks = (0..ranks).map(open).collect();
            Bench { poller, sinks, streams, out: out.into(), ranks }
        }

        fn write(&mut self, rank: usize, bytes: &[u8]) {
            self.ranks[rank].write_all(bytes).unwrap();
            self.streams.read(2 * rank as u32, 0, &mut [0; 70_000], &mut self.sinks, &self.poller);
        }

        fn output(&mut self) -> String {
            self.sinks.flush_one(0, &self.poller);
            let mut text = vec![0; 1 << 20];
            let len = self.out.read(&mut text).unwrap_or(0);
            String::from_utf8_lossy(&text[..len]).into_owned()
        }
    }

    #[test]
    fn lines_are_not_split_by_other_ranks() {
        let mut bench = Bench::new(2, false);
        bench.write(0, b"one, ");
        bench.write(1, b"other\npart");
        assert_eq!(bench.output(), "other\n");
        bench.write(0, b"two\n\nthree");
        assert_eq!(bench.output(), "one, two\n\n");
        bench.ranks.clear();
        bench.streams.finish(0..2, 0, &mut [0; 100], &mut bench.sinks, &bench.poller);
        assert!(bench.streams.are_closed(0..2));
        assert_eq!(bench.output(), "threepart");
    }

    #[test]
    fn labels_start_each_line() {
        let mut bench = Bench::new(2, true);
        bench.write(1, b"a\n\nb");
        bench.write(1, b"c\n");
        assert_eq!(bench.output(), "[1] a\n[1] \n[1] bc\n");
        bench.write(0, b"end");
        bench.write(1, b"start");
        bench.ranks.clear();
        bench.streams.finish(0..2, 0, &mut [0; 100], &mut bench.sinks, &bench.poller);
        assert_eq!(bench.output(), "[0] end\n[1] start");
    }

    #[test]
    fn a_line_without_end_is_passed_on_in_pieces() {
        let mut bench = Bench::new(2, true);
        let piece = vec![b'x'; LINE_MAX / 2];
        bench.write(0, &piece);
        assert_eq!(bench.output(), "");
        bench.write(0, &piece);
        // A pipe takes less than that at once.
        assert_eq!(bench.output().len() + bench.output().len(), LINE_MAX + 4);
        bench.write(0, b"y\n");
        assert_eq!(bench.output(), "y\n");
    }

    /// Both get whole lines. The rank waits for the one that is full, and goes on without the copy once that is closed.
    #[test]
    fn output_of_a_file_is_copied() {
        let mut bench = Bench::new(2, true);
        let path = std::env::temp_dir().join(format!("hydrant-iof-copy-{}", std::process::id()));
        let file = bench.sinks.file(path.clone()).unwrap();
        bench.streams.direct(0, file, true);
        bench.write(0, b"both\npart");
        bench.write(1, b"terminal alone\n");
        assert_eq!(bench.output(), "[0] both\n[1] terminal alone\n");
        bench.write(0, b"ed\n");
        assert_eq!(bench.output(), "[0] parted\n");
        let piece = [b'x'; 1 << 10];
        let mut written = 0;
        while !bench.sinks.get(bench.sinks.stdout()).is_full() {
            bench.write(0, &piece);
            bench.write(0, b"\n");
            written += piece.len() + 5;
            bench.sinks.flush(&bench.poller);
        }
        bench.write(0, b"waits\n");
        assert_eq!(bench.sinks.release(0), [0]);
        let inject = |bench: &mut Bench| bench.streams.inject(0, 0, b"dropped\n", &mut bench.sinks);
        inject(&mut bench);
        bench.sinks.hold(0, 0);
        // A reader that goes away.
        bench.out = File::open("/dev/null").unwrap();
        bench.sinks.flush_one(0, &bench.poller);
        let (sinks, poller) = (&mut bench.sinks, &bench.poller);
        assert_ne!(sinks.get(0).state(), WriterState::Open);
        bench.streams.resume(0, 0, &mut [0; 100], sinks, poller);
        bench.streams.read(0, 0, &mut [0; 100], sinks, poller);
        sinks.flush(poller);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(
            text.starts_with("[0] both\n[0] parted\n[0] xx") && text.ends_with("\n[0] waits\n"),
            "{text}"
        );
        assert_eq!(text.len(), "[0] both\n[0] parted\n[0] waits\n".len() + written);
    }

    #[test]
    fn one_rank_needs_no_lines() {
        let mut bench = Bench::new(1, false);
        bench.write(0, b"Enter a number: ");
        assert_eq!(bench.output(), "Enter a number: ");
    }

    #[test]
    fn a_process_left_behind_does_not_keep_a_stream_open() {
        let mut bench = Bench::new(1, false);
        bench.ranks[0].write_all(b"last words").unwrap();
        // Read in small pieces while the pipe stays open.
        bench.streams.finish(0..bench.ranks.len() as u32, 0, &mut [0; 3], &mut bench.sinks, &bench.poller);
        assert!(bench.streams.are_closed(0..1));
        assert_eq!(bench.output(), "last words");
        assert_eq!(bench.ranks[0].write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
