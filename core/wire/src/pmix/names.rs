//! Requests about published data, as the PMI-2 messages that hosts decode, and the data in them.
//!
//! A key has a byte in front that no name of PMI begins with. Data consist of a header, the publisher's namespace, the
//! key and the encoded value. PMI cannot carry NUL, so they are escaped: 1 and 1 stand for 0, and 1 and 2 stand for 1.

use super::{Info, Integers};
use crate::command::Persistence;
use crate::write::{Style, Writer};

/// First byte of the names of PMIx data.
const PREFIX: &[u8] = &[2];
/// Escape in data.
const ESCAPE: u8 = 1;
/// Bytes of a header: encoding of integers, type, rank, lengths of the namespace and of the key.
const HEADER: usize = 9;
/// Longest wait of a look-up in milliseconds.
const WAIT_MAX: u32 = i32::MAX as u32;

/// Writes a publication of a process to the front of `buf`, as the body of a PMI-2 message. Returns its length, or `None` if it
/// does not fit.
pub fn translate_publish(
    info: &Info<'_>,
    (namespace, rank): (&[u8], u32),
    persistence: Persistence,
    buf: &mut [u8],
) -> Option<usize> {
    let [low, high] = info.kind.to_le_bytes();
    let [a, b, c, d] = rank.to_le_bytes();
    let [of_namespace, of_key] = [namespace, info.key].map(|name| u8::try_from(name.len()));
    let header: [u8; HEADER] = [info.integers as u8, low, high, a, b, c, d, of_namespace.ok()?, of_key.ok()?];
    let mut writer = named(b"publish", info.key, buf);
    writer.raw(b"port=");
    for byte in header.iter().chain(namespace).chain(info.key).chain(info.value) {
        match byte {
            0 | 1 => writer.raw(&[ESCAPE, byte + 1]),
            byte => writer.escaped(&[*byte]),
        };
    }
    writer.raw(b";");
    if let Some(name) = persistence.name() {
        writer.raw(b"persist=").raw(name).raw(b";");
    }
    writer.finish().ok().map(<[u8]>::len)
}

/// Writes a look-up that waits for `wait` milliseconds, in the same way.
pub fn translate_lookup(key: &[u8], wait: u64, buf: &mut [u8]) -> Option<usize> {
    let mut writer = named(b"lookup", key, buf);
    let wait = u32::try_from(wait).unwrap_or(WAIT_MAX).min(WAIT_MAX);
    writer.raw(b"wait=").number(wait).raw(b";");
    writer.finish().ok().map(<[u8]>::len)
}

/// Writes the end of a publication, in the same way.
pub fn translate_unpublish(key: &[u8], buf: &mut [u8]) -> Option<usize> {
    named(b"unpublish", key, buf).finish().ok().map(<[u8]>::len)
}

fn named<'b>(command: &[u8], key: &[u8], buf: &'b mut [u8]) -> Writer<'b> {
    let mut writer = Writer::new(buf, Style::Counted);
    writer.raw(b"cmd=name-").raw(command).raw(b";name=").raw(PREFIX).escaped(key).raw(b";");
    writer
}

/// Published data, still escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published<'a> {
    /// Encoding of the value's integers.
    pub integers: Integers,
    /// Type of the value.
    pub kind: u16,
    /// Rank that published it.
    pub rank: u32,
    /// Lengths of the namespace and of the key.
    lens: [usize; 2],
    bytes: &'a [u8],
}

impl<'a> Published<'a> {
    /// Reads the port of a name that [`translate_publish`] has written. Returns `None` for other bytes.
    pub fn read(port: &'a [u8]) -> Option<Published<'a>> {
        let mut header = [0; HEADER];
        let mut bytes = unescaped(port);
        for place in &mut header {
            *place = bytes.next()?;
        }
        let [integers, low, high, a, b, c, d, of_namespace, of_key] = header;
        let integers = Integers::of_byte(integers)?;
        let (kind, rank) = (u16::from_le_bytes([low, high]), u32::from_le_bytes([a, b, c, d]));
        let lens = [of_namespace, of_key].map(usize::from);
        Some(Published { integers, kind, rank, lens, bytes: port })
    }

    /// Returns the namespace of the process that published it.
    pub fn namespace(&self) -> impl Iterator<Item = u8> + Clone + use<'a> {
        unescaped(self.bytes).skip(HEADER).take(self.lens[0])
    }

    /// Returns the key.
    pub fn key(&self) -> impl Iterator<Item = u8> + Clone + use<'a> {
        unescaped(self.bytes).skip(HEADER + self.lens[0]).take(self.lens[1])
    }

    /// Returns the encoded value.
    pub fn value(&self) -> impl Iterator<Item = u8> + Clone + use<'a> {
        unescaped(self.bytes).skip(HEADER + self.lens[0] + self.lens[1])
    }
}

fn unescaped(bytes: &[u8]) -> impl Iterator<Item = u8> + Clone + use<'_> {
    let mut bytes = bytes.iter();
    core::iter::from_fn(move || match bytes.next() {
        Some(&ESCAPE) => Some(bytes.next()?.wrapping_sub(1)),
        byte => byte.copied(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmix::Reader;
    use crate::{Command, Protocol, decode_upcall};
    use std::vec::Vec;

    #[test]
    fn data_survive_a_name_service() {
        let mut bytes = [0; 64];
        let mut writer = crate::pmix::Writer::new(Integers::Fixed, &mut bytes);
        writer.info(b"a;b", crate::pmix::kind::STRING);
        writer.string(b"\x01x;\x02");
        let len = writer.finish().unwrap();
        let info = Reader::new(Integers::Fixed, &bytes[..len]).info().unwrap();
        let mut room = [0; 256];
        let persistence = Persistence::Session;
        let len = translate_publish(&info, (b"job;1", 258), persistence, &mut room).unwrap();
        let Some(Command::Publish { name, port, persistence: Persistence::Session }) =
            decode_upcall(Protocol::V2, &room[..len])
        else {
            panic!("{}", room[..len].escape_ascii())
        };
        assert_eq!(name, b"\x02a;b"[..]);
        let port: Vec<u8> = port.parts().flatten().copied().collect();
        assert!(!port.contains(&0));
        let read = Published::read(&port).unwrap();
        assert_eq!((read.integers, read.kind, read.rank), (Integers::Fixed, info.kind, 258));
        assert_eq!(read.namespace().collect::<Vec<_>>(), b"job;1");
        assert_eq!(read.key().collect::<Vec<_>>(), b"a;b");
        assert_eq!(read.value().collect::<Vec<_>>(), info.value);
        assert_eq!(translate_publish(&info, (b"job;1", 258), persistence, &mut room[..len - 1]), None);
        for port in [&b""[..], b"port", b"\x072345678901"] {
            assert_eq!(Published::read(port), None);
        }
    }
}
