//! Replies of a hostile server to the client side of PMI-1 and PMI-2, as libpmi2 and the probe use it.
#![no_main]

use hydrant_core::client::{Client, Session, Start};
use hydrant_core::wire::{Command, Protocol, Text};
use hydrant_fuzz::FuzzInput;
use libfuzzer_sys::fuzz_target;

const KEY: &[u8] = b"key";

fuzz_target!(|data: &[u8]| {
    let mut input = FuzzInput(data);
    let choice = input.byte();
    let protocol = if choice & 1 == 0 { Protocol::V1 } else { Protocol::V2 };
    let start = if choice & 2 == 0 { Start::Fd { rank: 0, size: 2 } } else { Start::Port { id: 3 } };
    let mut client = Client::new(protocol, start);
    let mut buf = [0; 256];
    while client.handshake(&mut buf).is_ok_and(|step| step.is_some()) {
        if !matches!(client.receive(input.string()), Ok(Some(_))) {
            return;
        }
    }
    match Session::new(&client) {
        Ok(session) if choice & 4 != 0 => several(session, &mut input),
        _ => one_by_one(client, &mut input),
    }
});

fn command(number: u8) -> Command<'static> {
    let key = Text::plain(KEY);
    match number % 6 {
        0 => Command::Get { kvs: None, key, source: None },
        1 => Command::Put { kvs: None, key, value: Text::plain(b"value") },
        2 => Command::Lookup { name: key, wait: None, party: None },
        3 => Command::Fence { group: None },
        4 => Command::Abort { code: Some(1), world: true, message: Text::plain(b"bye") },
        _ => Command::Finalize,
    }
}

fn one_by_one(mut client: Client, input: &mut FuzzInput<'_>) {
    let mut buf = [0; 256];
    while !input.is_empty() {
        let asked = client.request(&command(input.byte()), &mut buf).is_ok();
        let bytes = input.string();
        if let Ok(Some(received)) = client.receive(bytes) {
            assert!(asked && received.consumed as usize <= bytes.len(), "a reply that nothing asked for");
        }
    }
}

fn several(mut session: Session, input: &mut FuzzInput<'_>) {
    let mut buf = [0; 256];
    while !input.is_empty() {
        for _ in 0..input.byte() % 4 {
            let _ = session.request(&command(input.byte()), &mut buf);
        }
        let bytes = input.string();
        if let Ok(Some(settled)) = session.receive(bytes) {
            let ticket = settled.ticket;
            assert!(settled.received.consumed as usize <= bytes.len(), "a reply beyond its bytes");
            session.release(ticket);
        }
    }
}
