//! The log of the core and its reader in shared memory, compiled with loom's atomic types.
//!
//! The writer's records are plain bytes, which loom does not see. [`SharedLog::write`] therefore copies a record to loom's
//! words after the log has written it and before the log publishes it. That is where the bytes change in shared memory.

mod store;
mod wire {
    pub(crate) mod log;
}

use loom::sync::atomic::{AtomicU32, Ordering};

use store::log::{Log, Scope, index_len};
use wire::log::LogView;

/// What the modules of the core and of hydrant-wire import from their roots. This crate does not depend on them, because
/// they take longer to compile than the test runs.
mod limits {
    pub(crate) const RECORD_HEADER: u32 = 16;
}

const BYTES: usize = 96;
const KEYS: u32 = 2;
const SEED: u32 = 42;
const SPACE: u32 = 3;

/// What a writer does.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Puts a pair.
    Put(&'static str, &'static str),
    /// Puts a pair of another job.
    PutElsewhere(&'static str, &'static str),
    /// Drops the records of the other job.
    Compact,
}

/// Memory that a writer and a reader share.
#[derive(Debug)]
pub struct SharedLog {
    words: Vec<AtomicU32>,
    index: Vec<AtomicU32>,
}

impl SharedLog {
    /// Creates the memory of an empty log.
    pub fn empty() -> SharedLog {
        let zeros = |count| (0..count).map(|_| AtomicU32::new(0)).collect();
        SharedLog { words: zeros(BYTES / 4), index: zeros(index_len(KEYS) as usize) }
    }

    /// Does these steps, one after the other.
    ///
    /// # Panics
    /// If the log is too small for them.
    pub fn write(&self, steps: &[Step]) {
        let (mut bytes, mut unused) = ([0; BYTES], [0; BYTES]);
        // The writer looks keys up in an index of its own. loom remembers only the last access to a number, and a look-up in
        // the shared index would hide the reader's.
        let private = SharedLog::empty();
        let mut log = Log::new(&mut bytes, &private.index, KEYS, SEED).expect("the index has its length");
        let mut shared = Log::new(&mut unused, &self.index, KEYS, SEED).expect("the index has its length");
        for &step in steps {
            let done = log.as_bytes().len();
            match step {
                Step::Put(key, value) | Step::PutElsewhere(key, value) => {
                    let space = if matches!(step, Step::Put(..)) { SPACE } else { SPACE + 1 };
                    let key = log.key(space, key.as_bytes());
                    let slot = log.find(&key);
                    let value = Some(core::iter::once(value.as_bytes()));
                    let (at, record) = log.write(&key, slot, 7, value).expect("the log has room");
                    self.store(&log, done);
                    log.publish(at, key.hash(), record);
                    shared.publish(at, key.hash(), record);
                }
                Step::Compact => {
                    let keeps = |space| space == SPACE;
                    let compaction = log.begin_compaction(&Scope::all(log.len()), keeps, |_, _, _| {});
                    log.end_compaction(compaction);
                    let compaction = shared.begin_compaction(&Scope::all(0), keeps, |_, _, _| {});
                    self.store(&log, 0);
                    for (to, from) in self.index.iter().zip(&private.index).take(self.index.len() - 1) {
                        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                    }
                    shared.end_compaction(compaction);
                }
            }
        }
    }

    /// Copies the records of a log from an offset on.
    fn store(&self, log: &Log<'_>, from: usize) {
        let (words, _) = log.as_bytes()[from..].as_chunks();
        for (to, &word) in self.words[from / 4..].iter().zip(words) {
            to.store(u32::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// Returns the newest value of a key that a reader sees.
    pub fn get(&self, key: &str) -> Option<String> {
        let view = LogView::new(&self.words, &self.index, SEED).expect("the index has its length");
        let mut value = [0; 8];
        let len = view.get(SPACE, key.as_bytes(), &mut value)? as usize;
        Some(String::from_utf8_lossy(&value[..len]).into_owned())
    }
}
