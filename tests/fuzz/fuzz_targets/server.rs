//! Bytes of several clients, and events of the host, into one server.
#![no_main]

use hydrant_core::storage::OwnedStorage;
use hydrant_fuzz::{FuzzInput, Host, LIMITS};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = FuzzInput(data);
    let mut storage = OwnedStorage::new(&LIMITS);
    let options = input.byte();
    let mut host = Host::new(&mut storage, 1, options);
    while !input.is_empty() {
        host.step(&mut input);
    }
    if options & 64 != 0 {
        host.check_snapshot();
    }
});
