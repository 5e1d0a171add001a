//! Frames, commands and replies of PMI-1 and PMI-2.
//!
//! A command that was decoded and is encoded again decodes to the same command.
#![no_main]

use hydrant_core::wire::{self, Command, Framing, frame, next_frame, v1, v2};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, mut bytes)) = data.split_first() else { return };
    let framing = if choice & 1 == 0 { Framing::Line } else { Framing::Counted };
    if choice & 2 == 0 {
        while let Ok(Some(frame)) = next_frame(bytes, framing) {
            assert!(frame.len > 0 && frame.len as usize <= bytes.len(), "a frame beyond its bytes");
            if let Ok(message) = wire::decode(&frame) {
                round_trip(&message.command, framing);
            }
            bytes = &bytes[frame.len as usize..];
        }
    } else if let Ok(Some(frame)) = frame::next_reply(bytes, framing) {
        let _ = match framing {
            Framing::Line => v1::decode_reply(&frame).map(drop),
            Framing::Counted => v2::decode_reply(&frame).map(drop),
        };
    }
});

fn round_trip(command: &Command<'_>, framing: Framing) {
    if let Command::Spawn(spawn) = command {
        assert!(spawn.count() as usize >= spawn.programs().count(), "more programs than were counted");
        for program in spawn.programs() {
            let _ = (program.args().count(), program.info().count(), program.maxprocs());
        }
    }
    let mut buf = [0; 2048];
    let encoded = match framing {
        Framing::Line => v1::encode(command, &mut buf),
        Framing::Counted => v2::encode(command, None, &mut buf),
    };
    let Ok(encoded) = encoded else { return };
    let frame = next_frame(encoded, framing).expect("an encoded frame is valid").expect("and complete");
    let again = wire::decode(&frame).unwrap_or_else(|_| panic!("{command:?} encodes to an invalid message"));
    assert_eq!(again.command.op(), command.op());
}
