//! Bytes of several clients, and events of the host, into one server.
#![no_main]

use hydrant_fuzz::{Host, with_memory};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| with_memory(|memory| Host::run(memory, 1, data, |lot| lot % 16 == 1)));
