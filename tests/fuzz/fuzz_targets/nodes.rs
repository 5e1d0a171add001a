//! Messages of other nodes, beside those of clients, into the server of a node. Its snapshots cannot be restored.
#![no_main]

use hydrant_fuzz::{FuzzInput, Host, with_memory};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    with_memory(|memory| {
        let mut input = FuzzInput(data);
        let lot = input.lot(64);
        let options = input.byte();
        let mut host = Host::new(memory, 3, options);
        if lot == 0 {
            host.compare_states();
        }
        while !input.is_empty() {
            host.step(&mut input);
        }
    });
});
