//! Recordings from an untrusted source: reading, printing and replay.
//!
//! The target adds lengths and checksums, because a fuzzer does not guess them.
#![no_main]

use hydrant_core::Server;
use hydrant_core::server::Record;
use hydrant_fuzz::{FuzzInput, LIMITS, with_memory};
use hydrant_record::{Checker, MAGIC, Reader, Summary, Table, VERSION, replay};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = FuzzInput(data);
    let raw = input.byte() & 1 == 1;
    let mut file = Vec::from(MAGIC);
    file.extend(VERSION.to_le_bytes());
    let mut begin = [0; 128];
    let record = Record::Begin { program: "fuzz", limits: LIMITS, seed: 1 };
    frame(&mut file, postcard::to_slice(&record, &mut begin).expect("room for the first record"));
    if raw {
        file.extend(std::mem::take(&mut input.0));
    }
    while !input.is_empty() {
        let len = usize::from(input.short());
        frame(&mut file, input.slice(len));
    }
    let Ok(mut reader) = Reader::new(&*file) else { return };
    with_memory(|memory| {
        let mut server =
            Server::new(LIMITS, memory.storage.lend(), 1).expect("the storage was made for the limits");
        let checker = Checker::new(&mut server);
        let mut out = Vec::new();
        let table = Table::new(&mut out, None, reader.begin());
        let _ = replay(&mut reader, Some(checker), Some(table), &mut Summary::default());
    });
});

fn frame(file: &mut Vec<u8>, record: &[u8]) {
    file.extend((record.len() as u32).to_le_bytes());
    file.extend(crc32fast::hash(record).to_le_bytes());
    file.extend(record);
}
