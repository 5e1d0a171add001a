//! Messages of other nodes, beside those of clients, into the server of a node, which can be restored at the end.
#![no_main]

use hydrant_fuzz::{Host, with_memory};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| with_memory(|memory| Host::run(memory, 3, data, |lot| lot.is_multiple_of(4))));
