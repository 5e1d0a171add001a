//! Standard input of the run: read by the head, sent to the readers' nodes, and written to the pipes of ranks.

use hydrant_control::{DaemonEvent, Event as HeadEvent};
use hydrant_core::JobId;

use super::node::Item;
use super::process::bytes_of;
use super::steps::PIPE;
use super::world::{Event, SOCKET, World};

/// Most bytes that the head reads ahead of the slowest rank.
const AHEAD_MAX: u32 = 256 * 1024;
/// Most bytes of one piece.
const PIECE: u32 = 32 * 1024;
/// Number of the stream of input among those of processes.
const INPUT: u32 = u32::MAX;

impl World<'_> {
    /// The head may read more input: all of its credit, or as much as all readers have consumed.
    pub(super) fn allow_input(&mut self, more: Option<u32>) {
        let source = &mut self.head.source;
        source.credit += more.unwrap_or(AHEAD_MAX);
        assert!(source.credit <= AHEAD_MAX, "{} bytes of input are allowed: {more:?}", source.credit);
    }

    /// All readers have closed their input.
    pub(super) fn close_input(&mut self) {
        self.head.source.closed = true;
        for node in &self.nodes[1..] {
            let excused = node.ended || !self.is_sound(node.number);
            assert!(excused || node.fed.is_closed(), "the input of node {} is closed", node.number);
        }
    }

    /// Reads input while there is credit.
    pub(super) fn read_input(&mut self) {
        let Some(input) = self.plan.input.filter(|_| !self.head.is_over()) else { return };
        loop {
            let source = &mut self.head.source;
            if source.credit == 0 || source.ended || source.closed || source.is_typing {
                return;
            }
            let len = (input.len - source.at).min(source.credit).min(PIECE);
            let range = source.at..source.at + len;
            (source.at, source.credit, source.ended) = (range.end, source.credit - len, len == 0);
            if input.pause > 0 {
                source.is_typing = true;
                self.later(input.pause, Event::Item(0, Item::Typed));
            }
            self.check_ahead();
            self.at_head(HeadEvent::StdinRead(bytes_of(INPUT, false, range)));
        }
    }

    /// The next piece of input has been typed.
    pub(super) fn typed(&mut self) {
        self.head.source.is_typing = false;
    }

    /// Whether a node is there and tells the truth.
    fn is_sound(&self, node: u32) -> bool {
        !self.is_liar(node) && !self.is_lost(node) && !self.left.contains(&node)
    }

    /// Checks that the input is not too far ahead of the slowest reader.
    fn check_ahead(&self) {
        let counts =
            |number: u32| !self.is_liar(number) && !self.is_lost(number) && !self.left.contains(&number);
        let counted = self.nodes[1..].iter().filter(|node| counts(node.number));
        for reader in counted.flat_map(|node| node.fed.readers.values()).filter(|reader| !reader.closed) {
            let ahead = self.head.source.at - reader.at;
            assert!(ahead <= AHEAD_MAX, "the input is {ahead} bytes ahead of {reader:?}");
        }
    }

    /// Input arrives at a node.
    pub(super) fn feed(&mut self, node: u32, bytes: &[u8]) {
        if node > self.plan.daemons {
            // It has joined after the first job, and drops what it gets of the input.
            return;
        }
        let fed = &mut self.nodes[node as usize].fed;
        assert!(!fed.ended, "input follows its end at node {node}");
        let range = fed.end..fed.end + bytes.len() as u32;
        assert!(bytes == bytes_of(INPUT, false, range.clone()), "input of node {node} is out of order");
        (fed.end, fed.ended) = (range.end, bytes.is_empty());
        self.fill_pipes(node);
    }

    /// Opens the pipe of a rank that is being started.
    pub(super) fn open_input(&mut self, node: u32, job: JobId, rank: u32, pid: u32) {
        let state = &mut self.nodes[node as usize];
        if state.jobs[&job].ordinal == 0
            && let Some(reader) = state.fed.readers.get_mut(&rank)
        {
            reader.pid = Some(pid);
            self.fill_pipes(node);
        }
    }

    /// Writes to all pipes with room.
    pub(super) fn fill_pipes(&mut self, node: u32) {
        let fed = &mut self.nodes[node as usize].fed;
        let mut changed = Vec::new();
        for reader in fed.readers.values_mut().filter(|reader| !reader.closed) {
            let Some(pid) = reader.pid else { continue };
            let before = reader.at;
            reader.at = fed.end.min(self.processes[pid as usize].input_read + PIPE);
            reader.closed = fed.ended && reader.at == fed.end;
            if reader.at > before || reader.closed {
                changed.push(pid);
            }
        }
        for pid in changed {
            if self.processes[pid as usize].unread > 0 {
                self.later(1_000, Event::Act(pid));
            }
        }
    }

    /// A rank has closed its input, or has ended.
    pub(super) fn input_hangup(&mut self, node: u32, pid: u32) {
        let readers = self.nodes[node as usize].fed.readers.values_mut();
        readers.filter(|reader| reader.pid == Some(pid)).for_each(|reader| reader.closed = true);
    }

    /// Tells the head how many bytes the ranks of a node have consumed, and when all have closed their input.
    pub(super) fn send_input_news(&mut self, node: u32) {
        let fed = &mut self.nodes[node as usize].fed;
        if fed.closed {
            return;
        }
        let taken = fed.reached() - fed.reported;
        fed.reported += taken;
        fed.closed = fed.is_closed();
        let closed = fed.closed;
        if taken > 0 {
            self.at_daemon(node, DaemonEvent::StdinConsumed(taken));
        }
        if closed {
            self.at_daemon(node, DaemonEvent::StdinClosed);
        }
    }

    /// A liar that says that its ranks read no more closes their pipes.
    pub(super) fn cut_input(&mut self, node: u32) {
        let fed = &mut self.nodes[node as usize].fed;
        fed.closed = true;
        for reader in fed.readers.values_mut() {
            reader.closed = true;
        }
        let pids: Vec<u32> = fed.readers.values().filter_map(|reader| reader.pid).collect();
        pids.into_iter().for_each(|pid| self.later(1_000, Event::Act(pid)));
    }

    /// A rank reads up to `len` bytes. Returns whether it goes on: it has them, or the input has ended.
    pub(super) fn take_input(&mut self, pid: u32, len: u32) -> bool {
        let process = &mut self.processes[pid as usize];
        let fed = &self.nodes[process.node as usize].fed;
        let reader = fed.readers.get(&process.rank).filter(|reader| reader.pid == Some(pid));
        // The input of all other ranks is empty.
        let Some(reader) = reader else { return true };
        if process.unread == 0 {
            process.unread = len;
        }
        let taken = (reader.at - process.input_read).min(process.unread);
        process.input_read += taken;
        process.unread -= taken;
        let (node, is_end) = (process.node, reader.closed && process.unread > 0);
        if is_end {
            process.unread = 0;
            let whole = self.plan.input.map_or(0, |input| input.len);
            let read = process.input_read;
            let cut_short = read != whole && !self.is_liar(node);
            assert!(
                !cut_short,
                "the input ends after {read} bytes: {}",
                self.processes[pid as usize].describe()
            );
        }
        if taken > 0 {
            self.input += u64::from(taken);
            self.later(SOCKET, Event::Item(node, Item::InputRoom));
        }
        self.processes[pid as usize].unread == 0
    }
}
