//! The log of the core and its reader in shared memory, compiled with loom's atomic types.
//!
//! The writer's records are plain bytes, which loom does not see. [`SharedLog::put`] therefore copies a record to loom's
//! words after the log has written it and before the log publishes it. That is where the bytes change in shared memory.

mod store;
mod wire {
    pub(crate) mod log;
}

use loom::sync::atomic::{AtomicU32, Ordering};

use store::log::{Log, index_len};
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

    /// Puts these pairs, one after the other.
    ///
    /// # Panics
    /// If the log is too small for them.
    pub fn put(&self, pairs: &[(&str, &str)]) {
        let (mut bytes, mut unused, mut done) = ([0; BYTES], [0; BYTES], 0);
        // The writer looks keys up in an index of its own. loom remembers only the last access to a number, and a look-up in
        // the shared index would hide the reader's.
        let private = SharedLog::empty();
        let mut log = Log::new(&mut bytes, &private.index, KEYS, SEED).expect("the index has its length");
        let shared = Log::new(&mut unused, &self.index, KEYS, SEED).expect("the index has its length");
        for (key, value) in pairs {
            let key = log.key(SPACE, key.as_bytes());
            let slot = log.find(&key);
            let value = Some(core::iter::once(value.as_bytes()));
            let (at, record) = log.write(&key, slot, 7, value).expect("the log has room");
            let (words, _) = log.as_bytes()[done..].as_chunks();
            for (to, &word) in self.words[done / 4..].iter().zip(words) {
                to.store(u32::from_ne_bytes(word), Ordering::Relaxed);
            }
            done = log.as_bytes().len();
            log.publish(at, key.hash(), record);
            shared.publish(at, key.hash(), record);
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
