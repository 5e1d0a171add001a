//! Messages of other nodes, beside those of clients, into the server of a node. Its snapshots cannot be restored.
#![no_main]

use hydrant_core::storage::OwnedStorage;
use hydrant_fuzz::{FuzzInput, Host, LIMITS};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = FuzzInput(data);
    let mut storage = OwnedStorage::new(&LIMITS);
    let options = input.byte();
    let mut host = Host::new(&mut storage, 3, options);
    while !input.is_empty() {
        host.step(&mut input);
    }
});
