//! Messages of other nodes, beside those of clients, into the server of a node, which can be restored at the end.
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
        if lot.is_multiple_of(4) {
            host.check_snapshot();
        }
    });
});
