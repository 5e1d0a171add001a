//! Messages of PMIx clients.

use hydrant_core::wire::pmix::{HEADER_LEN, Integers, Writer, write_header};

/// Returns the handshake of a rank, as libpmix 5 sends it.
pub fn hello(namespace: &str, rank: u32) -> Vec<u8> {
    let mut body = b"native\0\0\0\0\x08\0\0\0\0\0\0\0\0\0".to_vec();
    body.extend(namespace.bytes().chain([0]));
    body.extend(rank.to_be_bytes());
    body.extend(b"5.0.11\0v41\0\x01hash\0");
    let mut hello = vec![0xff; 8];
    hello.extend((body.len() as u32).to_le_bytes());
    hello.extend([0; 4]);
    hello.extend(body);
    hello
}

/// Returns a request with the number of its command, whose rest `write` writes.
pub fn message(tag: u32, command: u8, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut body = vec![0; 1 << 20];
    let mut writer = Writer::new(Integers::Flexible, &mut body);
    writer.single();
    writer.byte(command);
    write(&mut writer);
    let len = writer.finish().expect("the message is short");
    let mut message = vec![0; HEADER_LEN];
    message.copy_from_slice(&write_header(tag, len as u32));
    message.extend(&body[..len]);
    message
}
