//! State of standard input: at the head, which reads it, and at the daemons of the ranks that read it.

use std::collections::BTreeMap;

use hydrant_control::protocol::{JobRecord, StdinTarget};

/// Input that the head reads.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Bytes that may be sent.
    pub(super) credit: u32,
    /// Bytes that have been read.
    pub(super) at: u32,
    /// The end has been read.
    pub(super) ended: bool,
    /// No rank reads it now.
    pub(super) closed: bool,
    /// The next piece is being typed.
    pub(super) is_typing: bool,
}

/// Input at a daemon.
#[derive(Debug, Default)]
pub(super) struct Fed {
    pub(super) readers: BTreeMap<u32, Reader>,
    /// Bytes that have arrived.
    pub(super) end: u32,
    pub(super) ended: bool,
    /// Bytes that the head has been told of.
    pub(super) reported: u32,
    /// The head has been told that no rank reads.
    pub(super) closed: bool,
}

/// Pipe to a rank.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// None until the rank is started.
    pub(super) pid: Option<u32>,
    /// Bytes that the pipe has taken.
    pub(super) at: u32,
    /// No more is written: the rank has all of it, or has closed its end.
    pub(super) closed: bool,
}

impl Fed {
    /// Input without readers.
    pub(super) fn none() -> Fed {
        Fed { closed: true, ..Fed::default() }
    }

    /// The ranks of the first job that this node will start.
    pub(super) fn expect(&mut self, record: &JobRecord, node: u32, target: StdinTarget) {
        let here = record.blocks.iter().filter(|block| block.node == node);
        let ranks = here.flat_map(|block| block.first..block.first + block.count);
        self.readers =
            ranks.filter(|&rank| target.includes(rank)).map(|rank| (rank, Reader::default())).collect();
        self.closed = self.readers.is_empty();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.readers.values().all(|reader| reader.closed)
    }

    /// Position that all readers have reached.
    pub(super) fn reached(&self) -> u32 {
        let open = self.readers.values().filter(|reader| !reader.closed);
        open.map(|reader| reader.at).min().unwrap_or(self.end)
    }
}
