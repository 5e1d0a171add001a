//! Bytes of several clients, and events of the host, into one server.
#![no_main]

use hydrant_fuzz::{FuzzInput, Host, with_memory};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    with_memory(|memory| {
        let mut input = FuzzInput(data);
        let lot = input.lot(64);
        let options = input.byte();
        let mut host = Host::new(memory, 1, options);
        if lot == 0 {
            host.compare_states();
        }
        while !input.is_empty() {
            host.step(&mut input);
        }
        if lot % 16 == 1 {
            host.check_snapshot();
        }
    });
});
