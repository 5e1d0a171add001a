//! Snapshots from an untrusted source, and the server that runs on from one that was taken.
#![no_main]

use hydrant_core::snapshot;
use hydrant_fuzz::{FuzzInput, Host, LIMITS, with_memory};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = FuzzInput(data);
    let len = usize::from(input.short());
    let saved = input.slice(len);
    // A larger server is refused before its memory is needed.
    if snapshot::limits(saved).is_ok_and(|limits| limits != LIMITS) {
        return;
    }
    with_memory(|memory| {
        if let Some(mut host) = Host::restore(memory, saved) {
            while !input.is_empty() {
                host.step(&mut input);
            }
        }
    });
});
