//! Frames, commands and replies of PMI-1 and PMI-2, and messages of PMIx.
//!
//! A command that was decoded and is encoded again decodes to the same command.
#![no_main]

use hydrant_core::wire::{self, Command, Framing, Integers, frame, next_frame, pmix, v1, v2};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, mut bytes)) = data.split_first() else { return };
    if choice & 4 != 0 {
        return pmix_messages(if choice & 1 == 0 { Integers::Flexible } else { Integers::Fixed }, bytes);
    }
    let framing = if choice & 1 == 0 { Framing::Line } else { Framing::Counted };
    if choice & 2 == 0 {
        while let Ok(Some(frame)) = next_frame(bytes, framing) {
            assert!(frame.len > 0 && frame.len as usize <= bytes.len(), "a frame beyond its bytes");
            if let Ok(message) = wire::decode(&frame)
                && let Ok(command) = message.command
            {
                assert_eq!(command.op(), message.op);
                round_trip(&command, framing);
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

/// Decodes messages of PMIx with either form of integers.
fn pmix_messages(integers: Integers, mut bytes: &[u8]) {
    while let Ok(Some(frame)) = pmix::next_frame(bytes) {
        let len = match frame {
            pmix::Frame::Hello { len, body } => {
                let _ = pmix::Hello::decode(body);
                len
            }
            pmix::Frame::Message { len, body, .. } => {
                if let Ok(Ok(command)) = pmix::decode(integers, body) {
                    walk(integers, &command);
                }
                len
            }
        };
        bytes = &bytes[len as usize..];
    }
}

/// Reads the lists of a command to their ends.
fn walk(integers: Integers, command: &pmix::Command<'_>) {
    match command {
        pmix::Command::Fence { procs, .. } => drop(procs.iter().count()),
        pmix::Command::Get { infos, .. } => drop(infos.iter().count()),
        pmix::Command::Commit(commit) => {
            let [local, remote] = [commit.local, commit.remote];
            for data in [local.put, local.removed, remote.put, remote.removed] {
                let _ = pmix::Commit::contains(integers, data, |key| key == b"key");
            }
            // Data that are put again are there once.
            let apply = |known: &[u8]| {
                let mut after = Vec::new();
                let mut add = |piece: &[u8]| after.extend_from_slice(piece);
                remote.apply_to(integers, known, 1 << 16, &mut add).map(|()| after)
            };
            if let Some(again) = apply(local.put)
                && let Some(twice) = apply(&again)
            {
                assert_eq!(again, twice);
            }
        }
        pmix::Command::Monitor { monitor, infos, .. } => {
            let _ = monitor.array(pmix::kind::INFO, pmix::Reader::info).map(Iterator::count);
            let mut room = vec![0; monitor.value.len() + infos.as_bytes().len() + 2048];
            let len = pmix::HostQuery::write_one(integers, monitor, infos, &mut room).expect("it fits");
            assert!(pmix::HostCall::read(&room[..len]).is_some(), "the host reads what the server writes");
        }
        _ => {}
    }
}

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
    assert_eq!((again.op, again.command.map(|again| again.op())), (command.op(), Ok(command.op())));
}
