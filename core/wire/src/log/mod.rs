//! Key-value log that a server shares with the processes of its node, as its readers see it.
//!
//! The log is an append-only list of records, with an index of their places. A record consists of [`HEADER`] bytes, the key,
//! the value, and padding to a multiple of four bytes. Numbers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | hash of space and key |
//! | 4..8 | number of the key-value space |
//! | 8..10 | length of the key |
//! | 10..12 | length of the value, or `0xffff` for a wanted key, which has no value yet |
//! | 12..16 | number of the owner, which the log only stores |
//!
//! There are no pointers. The bytes can therefore be shared, sent or saved unchanged. The index is a hash table with open
//! addressing and linear probing, whose [entries](Entries) are the place of a record and bits of its hash. An entry is written
//! after its record, so readers of shared memory find complete records only. Another put of a key appends a record and updates
//! the index.
//!
//! Records move only when the log is compacted. A word behind the entries of the index is odd meanwhile, and another one
//! afterwards: a sequence lock. A reader that sees it odd or changed has found nothing.
//!
//! [`LogView`] is the reader. The writer is hydrant-core's.

mod atomic;
mod entry;
mod record;
mod view;

pub use entry::Entries;
pub use record::{HEADER, Header, Key, hash, record_len};
pub use view::LogView;
