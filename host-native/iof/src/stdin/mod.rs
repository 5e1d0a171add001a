//! Standard input of ranks.
//!
//! A rank that reads alone inherits a file, pipe or socket. It reads at its own pace, and a writer notices when the rank
//! exits. A rank cannot inherit a terminal: it is not in the terminal's foreground group and would be stopped. The launcher
//! therefore reads the terminal while it is in the foreground, and writes to a pipe. With `--stdin all` it does so for any
//! input, with a pipe for each rank.
//!
//! If readers are on other nodes, the head reads its own input and sends it there ([`Source`]). The daemons write it to
//! pipes ([`Feed`]). Bytes in flight are bounded: the head stops reading until all of these daemons acknowledge them.
//!
//! The input waits for a rank that is [`BEHIND_MAX`] bytes behind. A rank that closes its input or ends is not waited for.
//! When all ranks read, ranks that are waited for are reported after some time.
//!
//! Tools may push input in the place of the launcher ([`PushedInput`]).

mod feed;
mod input;
mod pipe;
mod pushed;

use std::os::fd::OwnedFd;
use std::time::Duration;

use hydrant_control::protocol::StdinTarget;
use hydrant_reactor::{KeyRange, Poller};
use rustix::io::Errno;
use rustix::stdio::stdin;
use rustix::termios::isatty;

use feed::{BEHIND_MAX, Feed};
use input::{Input, close_stdin};
pub use pushed::PushedInput;

/// Standard input of the ranks of the first job.
#[derive(Debug)]
pub struct Stdin {
    route: Route,
    stall: Stall,
}

/// Route of the input to its readers.
#[derive(Debug)]
enum Route {
    /// No rank of this process reads.
    Closed,
    /// This rank inherits the launcher's input.
    Inherited(u32),
    /// The launcher passes its input on.
    Pumped(Input, Feed),
    /// Readers are on other nodes.
    Sent(Source),
    /// The input comes from another node.
    FromHead(FromHead),
}

/// Input of a rank.
#[derive(Debug)]
pub enum RankInput {
    /// None.
    Null,
    /// That of the launcher.
    Inherited,
    /// A pipe.
    Pipe(OwnedFd),
}

/// Input that the head reads for ranks on other nodes.
#[derive(Debug)]
struct Source {
    input: Input,
    /// Bytes that may be sent.
    credit: u32,
    /// Pieces that have been read and not sent. An empty piece marks the end.
    pieces: Vec<Vec<u8>>,
}

/// Bytes of standard input that may be under way to other nodes.
const CREDIT: u32 = BEHIND_MAX as u32;

/// Input from the head.
#[derive(Debug)]
struct FromHead {
    target: StdinTarget,
    feed: Feed,
    keys: KeyRange,
    /// Position that the head has been told of.
    reported: u64,
    /// The head has been told that no rank reads.
    closed: bool,
}

/// Detection of ranks that all others wait for.
#[derive(Debug, Default)]
struct Stall {
    /// Milliseconds after which they are reported. None for never.
    after: Option<u64>,
    /// Time since when the slowest ranks have not read, and their position.
    since: Option<(u64, u64)>,
    reported: bool,
}

impl Stdin {
    /// Creates the input of the launcher, for ranks of this host. With [`StdinTarget::All`], `warning` is the time after which
    /// ranks that others wait for are reported. Zero disables the report.
    pub fn new(target: StdinTarget, ranks: u32, warning: Duration, keys: KeyRange, poller: &Poller) -> Stdin {
        let mut route = match target {
            StdinTarget::None | StdinTarget::Tools => Route::Closed,
            StdinTarget::All => Route::Pumped(Input::new(keys), Feed::new(0..ranks, keys)),
            StdinTarget::Rank(rank) if isatty(stdin()) => {
                Route::Pumped(Input::new(keys), Feed::new(rank..rank + 1, keys))
            }
            StdinTarget::Rank(rank) => Route::Inherited(rank),
        };
        if let Route::Pumped(input, _) = &mut route {
            input.watch(true, poller);
        }
        Stdin { route, stall: Stall::new(target, warning) }
    }

    /// Creates the input of a head, with readers on other nodes. Reading starts after [`Stdin::allow`].
    pub fn sent(keys: KeyRange) -> Stdin {
        let source = Source { input: Input::new(keys), credit: 0, pieces: Vec::new() };
        Stdin { route: Route::Sent(source), stall: Stall::default() }
    }

    /// Creates the input of the ranks of a daemon. [`Stdin::expect`] names them.
    pub fn from_head(target: StdinTarget, warning: Duration, keys: KeyRange) -> Stdin {
        let feed = Feed::new(std::iter::empty(), keys);
        let from_head = FromHead { target, feed, keys, reported: 0, closed: true };
        Stdin { route: Route::FromHead(from_head), stall: Stall::new(target, warning) }
    }

    /// Tells a daemon the ranks of the first job that it will start.
    pub fn expect(&mut self, ranks: impl Iterator<Item = u32>) {
        if let Route::FromHead(from_head) = &mut self.route {
            let target = from_head.target;
            from_head.feed = Feed::new(ranks.filter(|&rank| target.includes(rank)), from_head.keys);
            from_head.closed = from_head.feed.is_closed();
        }
    }

    /// Adds credit of a head with readers on other nodes, and reads as far as it goes: all of it when the job is being
    /// started, otherwise the `bytes` that all readers have consumed.
    pub fn allow(&mut self, bytes: Option<u32>, now: u64, poller: &Poller) {
        if let Route::Sent(source) = &mut self.route {
            source.credit = source.credit.saturating_add(bytes.unwrap_or(CREDIT)).min(CREDIT);
            source.run(now, poller);
        }
    }

    /// Takes the pieces to send to the readers' nodes.
    pub fn take_pieces(&mut self) -> Vec<Vec<u8>> {
        match &mut self.route {
            Route::Sent(source) => std::mem::take(&mut source.pieces),
            _ => Vec::new(),
        }
    }

    /// Closes the input of a head after all readers have closed theirs. A writer notices.
    ///
    /// # Errors
    /// The process has no descriptor for an empty input in its place.
    pub fn close(&mut self, poller: &Poller) -> Result<(), Errno> {
        match &mut self.route {
            Route::Sent(source) => source.input.close(poller),
            _ => Ok(()),
        }
    }

    /// Handles input from the head. An empty slice marks the end.
    pub fn feed(&mut self, bytes: &[u8], now: u64, poller: &Poller) {
        if let Route::FromHead(from_head) = &mut self.route {
            from_head.feed.push(bytes, poller);
            self.stall.observe(&from_head.feed, now);
        }
    }

    /// Takes the report for the head: the number of consumed bytes, and whether all ranks have closed their input.
    pub fn take_news(&mut self) -> (u32, bool) {
        let Route::FromHead(from_head) = &mut self.route else { return (0, false) };
        if from_head.closed {
            return (0, false);
        }
        let reached = from_head.feed.reached();
        let taken = (reached - from_head.reported) as u32;
        from_head.reported = reached;
        from_head.closed = from_head.feed.is_closed();
        (taken, from_head.closed)
    }

    /// Takes the input of a rank of the first job.
    ///
    /// # Errors
    /// The process has no more descriptors.
    pub fn for_rank(&mut self, rank: u32, poller: &Poller) -> Result<RankInput, Errno> {
        let pipe = match &mut self.route {
            Route::Inherited(reader) if *reader == rank => return Ok(RankInput::Inherited),
            Route::Closed | Route::Inherited(_) | Route::Sent(_) => None,
            Route::Pumped(_, feed) | Route::FromHead(FromHead { feed, .. }) => feed.open(rank, poller)?,
        };
        Ok(pipe.map_or(RankInput::Null, RankInput::Pipe))
    }

    /// Closes an inherited input after its rank has been started, so that a writer notices when the rank stops reading.
    ///
    /// # Errors
    /// The process has no descriptor for an empty input in its place.
    pub fn release(&mut self) -> Result<(), Errno> {
        self.route = Route::Closed;
        close_stdin()
    }

    /// Returns the time of the next [`pump`](Stdin::pump) that the poller does not report.
    pub fn deadline(&self) -> Option<u64> {
        let of_input = match &self.route {
            Route::Closed | Route::Inherited(_) | Route::FromHead(_) => None,
            Route::Pumped(input, feed) => input.deadline(room(input, feed) > 0),
            Route::Sent(source) => source.input.deadline(source.credit > 0),
        };
        of_input.into_iter().chain(self.stall.deadline()).min()
    }

    /// Handles an event of a reader's pipe.
    pub fn reader_ready(&mut self, index: u32, now: u64, poller: &Poller) {
        if let Route::Pumped(_, feed) | Route::FromHead(FromHead { feed, .. }) = &mut self.route {
            feed.ready(index as usize, poller);
        }
        self.pump(now, poller);
    }

    /// Handles new input, a change to the foreground, and room for more.
    pub fn pump(&mut self, now: u64, poller: &Poller) {
        match &mut self.route {
            Route::Closed | Route::Inherited(_) => {}
            Route::Pumped(input, feed) => {
                while room(input, feed) > 0 {
                    let Some(piece) = input.read(room(input, feed), now) else { break };
                    feed.push(&piece, poller);
                }
                match feed.is_abandoned() {
                    // If it stays open, only its writer is worse off.
                    true => _ = input.close(poller),
                    false => input.watch(room(input, feed) > 0, poller),
                }
                self.stall.observe(feed, now);
            }
            Route::Sent(source) => source.run(now, poller),
            Route::FromHead(from_head) => self.stall.observe(&from_head.feed, now),
        }
    }

    /// Takes the ranks that all others have been waiting for.
    pub fn take_stalled(&mut self, now: u64) -> Vec<u32> {
        let (Route::Pumped(_, feed) | Route::FromHead(FromHead { feed, .. })) = &self.route else {
            return Vec::new();
        };
        if self.stall.deadline().is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.stall.reported = true;
        feed.slowest().collect()
    }
}

/// Bytes that may be read. Ranks have to take those of a terminal before more is read, because a shell shall find the
/// rest.
fn room(input: &Input, feed: &Feed) -> usize {
    match feed.pending() {
        _ if input.has_ended() || feed.is_closed() => 0,
        0 => BEHIND_MAX,
        _ if input.is_terminal() => 0,
        pending => BEHIND_MAX.saturating_sub(pending),
    }
}

impl Source {
    fn run(&mut self, now: u64, poller: &Poller) {
        while self.credit > 0 {
            let Some(piece) = self.input.read(self.credit as usize, now) else { break };
            self.credit -= piece.len() as u32;
            self.pieces.push(piece);
        }
        self.input.watch(self.credit > 0, poller);
    }
}

impl Stall {
    /// A rank that reads alone delays no other.
    fn new(target: StdinTarget, warning: Duration) -> Stall {
        let after = (target == StdinTarget::All && !warning.is_zero()).then_some(warning.as_millis() as u64);
        Stall { after, ..Stall::default() }
    }

    /// Ranks are waited for while one of them is as far behind as it may be.
    fn observe(&mut self, feed: &Feed, now: u64) {
        let is_full = feed.pending() >= BEHIND_MAX;
        let (_, before) = self.since.unwrap_or_default();
        if !is_full || before != feed.reached() || self.since.is_none() {
            self.reported = false;
            self.since = is_full.then_some((now, feed.reached()));
        }
    }

    fn deadline(&self) -> Option<u64> {
        let (since, _) = self.since.filter(|_| !self.reported)?;
        Some(since + self.after?)
    }
}
