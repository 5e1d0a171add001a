//! Snapshots from an untrusted source, and the server that runs on from one that was taken.
//!
//! Most inputs are the way to a state, changes of its snapshot, and what follows. The target adds headers and digests,
//! because a fuzzer does not guess them.
#![no_main]

use hydrant_core::snapshot;
use hydrant_fuzz::{FuzzInput, Host, LIMITS, seal, with_memory};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = FuzzInput(data);
    let lot = input.lot(64);
    let options = input.byte();
    with_memory(|memory| {
        let saved = if options & 0xc0 == 0xc0 {
            let len = usize::from(input.short());
            seal(input.slice(len).to_vec())
        } else {
            let mut host = Host::new(memory, if options & 0x20 == 0 { 1 } else { 3 }, options);
            let len = usize::from(input.short());
            let mut steps = FuzzInput(input.slice(len));
            while !steps.is_empty() {
                host.step(&mut steps);
            }
            change(host.save(), &mut input)
        };
        // A larger server is refused before its memory is needed.
        if snapshot::limits(&saved).is_ok_and(|limits| limits != LIMITS) {
            return;
        }
        if let Some(mut host) = Host::restore(memory, &saved) {
            if lot == 0 {
                host.compare_states();
            }
            while !input.is_empty() {
                host.step(&mut input);
            }
        }
    });
});

/// Changes up to three bytes of a snapshot between its header and its digest.
fn change(saved: Vec<u8>, input: &mut FuzzInput<'_>) -> Vec<u8> {
    let mut body = hydrant_fuzz::unseal(saved);
    for _ in 0..input.byte() % 4 {
        let (at, to) = (usize::from(input.short()) % body.len(), input.byte());
        body[at] = to;
    }
    seal(body)
}
