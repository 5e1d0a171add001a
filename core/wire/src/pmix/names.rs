//! Requests about published data, as the PMI-2 messages that hosts decode, and the data in them.
//!
//! A key has a byte in front that no name of PMI begins with. Data consist of a header, the publisher's namespace, the
//! key and the encoded value. PMI cannot carry NUL, so they are escaped: 1 and 1 stand for 0, 1 and 2 for 1, and 1 and 4 for 3,
//! which stands between the data of several keys. 1 stands between several names.

use super::{Info, Integers};
use crate::command::Persistence;
use crate::scan;
use crate::write::{Style, Writer};

/// First byte of the names of PMIx data.
pub const SHARED: u8 = 2;
/// Escape in data.
const ESCAPE: u8 = 1;
/// Stands between the names of a request.
const NAMES_SEPARATOR: u8 = 1;
/// Stands between the data of several keys, in a publication and in the answer to a look-up.
pub const DATA_SEPARATOR: u8 = 3;
/// Most keys of a request.
const KEYS_MAX: usize = 64;
/// Bytes of a header: encoding of integers, type, range, number of the host, rank, lengths of the namespace and of the key.
const HEADER: usize = 14;
/// Place of the range in a header.
const RANGE: usize = 3;
/// Longest wait of a look-up in milliseconds.
const WAIT_MAX: u32 = i32::MAX as u32;

/// Process that publishes data, or that a name service is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party<'a> {
    /// Its namespace.
    pub namespace: &'a [u8],
    /// Its rank.
    pub rank: u32,
    /// Number of its host, the same in all runs of a name service.
    pub host: u32,
}

impl<'a> Party<'a> {
    /// Reads the field `for` of a request. Returns the process, and the range (`pmix_data_range_t`) in which it looks for data.
    pub fn read(text: &'a [u8]) -> Option<(Party<'a>, u8)> {
        let mut parts = text.splitn(4, |&byte| byte == b'.');
        let mut number = || scan::number(parts.next()?);
        let (range, host, rank) = (u8::try_from(number()?).ok()?, number()?, number()?);
        Some((Party { namespace: parts.next()?, rank, host }, range))
    }

    fn write(&self, range: u8, writer: &mut Writer<'_>) {
        writer
            .raw(b"for=")
            .number(range.into())
            .raw(b".")
            .number(self.host)
            .raw(b".")
            .number(self.rank)
            .raw(b".");
        escape(self.namespace.iter(), writer);
        writer.raw(b";");
    }
}

/// Writes a publication of a process in a range to the front of `buf`, as the body of a PMI-2 message. Returns its length, or
/// `None` if it does not fit.
pub fn translate_publish<'a>(
    infos: impl Iterator<Item = Info<'a>> + Clone,
    publisher: Party<'_>,
    (range, persistence): (u8, Persistence),
    buf: &mut [u8],
) -> Option<usize> {
    let mut writer = Writer::new(buf, Style::Counted);
    writer.raw(b"cmd=name-publish;");
    write_names(&mut infos.clone().map(|info| info.key), &mut writer);
    writer.raw(b"port=");
    for (at, info) in infos.enumerate() {
        let [low, high] = info.kind.to_le_bytes();
        let [[a, b, c, d], [e, f, g, h]] = [publisher.host, publisher.rank].map(u32::to_le_bytes);
        let lengths = [publisher.namespace, info.key].map(|name| u8::try_from(name.len()).ok());
        let [of_namespace, of_key] = lengths;
        let header: [u8; HEADER] =
            [info.integers as u8, low, high, range, a, b, c, d, e, f, g, h, of_namespace?, of_key?];
        writer.raw(if at > 0 { &[DATA_SEPARATOR] } else { b"" });
        escape(header.iter().chain(publisher.namespace).chain(info.key).chain(info.value), &mut writer);
    }
    writer.raw(b";");
    if let Some(name) = persistence.name() {
        writer.raw(b"persist=").raw(name).raw(b";");
    }
    writer.finish().ok().map(<[u8]>::len)
}

/// Writes a look-up of a process in a range that waits for `wait` milliseconds, in the same way.
pub fn translate_lookup(
    keys: &mut dyn Iterator<Item = &[u8]>,
    (party, range): (Party<'_>, u8),
    wait: u64,
    buf: &mut [u8],
) -> Option<usize> {
    let mut writer = Writer::new(buf, Style::Counted);
    writer.raw(b"cmd=name-lookup;");
    write_names(keys, &mut writer);
    let wait = u32::try_from(wait).unwrap_or(WAIT_MAX).min(WAIT_MAX);
    writer.raw(b"wait=").number(wait).raw(b";");
    party.write(range, &mut writer);
    writer.finish().ok().map(<[u8]>::len)
}

/// Writes the end of the publications of a process under some keys, or of all without keys, in the same way.
pub fn translate_unpublish(
    keys: &mut dyn Iterator<Item = &[u8]>,
    party: Party<'_>,
    buf: &mut [u8],
) -> Option<usize> {
    let mut writer = Writer::new(buf, Style::Counted);
    writer.raw(b"cmd=name-unpublish;");
    write_names(keys, &mut writer);
    party.write(0, &mut writer);
    writer.finish().ok().map(<[u8]>::len)
}

/// Returns whether one request can name these keys.
pub fn can_name<'a>(mut keys: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
    keys.clone().count() <= KEYS_MAX && !keys.any(|key| key.contains(&NAMES_SEPARATOR))
}

fn write_names(keys: &mut dyn Iterator<Item = &[u8]>, writer: &mut Writer<'_>) {
    writer.raw(b"name=").raw(&[SHARED]).escaped(keys.next().unwrap_or_default());
    for key in keys {
        writer.raw(&[NAMES_SEPARATOR, SHARED]).escaped(key);
    }
    writer.raw(b";");
}

/// Returns the names of a request about published data.
pub fn names_of<'a, N: Iterator<Item = &'a u8> + Clone>(
    names: N,
) -> impl Iterator<Item = impl Iterator<Item = &'a u8> + Clone + use<'a, N>> + Clone + use<'a, N> {
    parts(names, NAMES_SEPARATOR)
}

/// Returns the data of a publication, as many as it has names.
pub fn data_of<'a, N: Iterator<Item = &'a u8> + Clone>(
    ports: N,
) -> impl Iterator<Item = impl Iterator<Item = &'a u8> + Clone + use<'a, N>> + Clone + use<'a, N> {
    parts(ports, DATA_SEPARATOR)
}

/// Returns the first parts of a text.
fn parts<'a, N: Iterator<Item = &'a u8> + Clone>(
    text: N,
    separator: u8,
) -> impl Iterator<Item = impl Iterator<Item = &'a u8> + Clone + use<'a, N>> + Clone + use<'a, N> {
    let more = text.clone().filter(|&&byte| byte == separator).count();
    (0..=more.min(KEYS_MAX - 1)).map(move |wanted| {
        let mut at = 0;
        text.clone().filter(move |&&byte| {
            at += usize::from(byte == separator);
            byte != separator && at == wanted
        })
    })
}

fn escape<'a>(bytes: impl Iterator<Item = &'a u8>, writer: &mut Writer<'_>) {
    for byte in bytes {
        match *byte {
            byte @ (0 | ESCAPE | DATA_SEPARATOR) => writer.raw(&[ESCAPE, byte + 1]),
            byte => writer.escaped(&[byte]),
        };
    }
}

/// Published data, still escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published<'a> {
    /// Encoding of the value's integers.
    pub integers: Integers,
    /// Type of the value.
    pub kind: u16,
    /// Range of the publication (`pmix_data_range_t`).
    pub range: u8,
    /// The process that published it.
    pub publisher: Party<'a>,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Published<'a> {
    /// Reads the port of a name that [`translate_publish`] has written. Returns `None` for other bytes.
    pub fn read(port: &'a [u8]) -> Option<Published<'a>> {
        let (header, rest) = split(port, HEADER);
        let mut bytes = unescaped(header);
        let mut header = [0; HEADER];
        for place in &mut header {
            *place = bytes.next()?;
        }
        let [integers, low, high, range, a, b, c, d, e, f, g, h, of_namespace, of_key] = header;
        let integers = Integers::of_byte(integers)?;
        let [host, rank] = [[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes);
        let (namespace, rest) = split(rest, of_namespace.into());
        let (key, value) = split(rest, of_key.into());
        let publisher = Party { namespace, rank, host };
        Some(Published { integers, kind: u16::from_le_bytes([low, high]), range, publisher, key, value })
    }

    /// Returns the namespace of the process that published it.
    pub fn namespace(&self) -> impl Iterator<Item = u8> + Clone + use<'a> {
        unescaped(self.publisher.namespace)
    }

    /// Returns the key.
    pub fn key(&self) -> impl Iterator<Item = u8> + Clone + use<'a> {
        unescaped(self.key)
    }

    /// Returns the encoded value.
    pub fn value(&self) -> impl Iterator<Item = u8> + Clone + use<'a> {
        unescaped(self.value)
    }
}

/// Splits escaped bytes behind the first `count` that they stand for.
fn split(bytes: &[u8], count: usize) -> (&[u8], &[u8]) {
    let mut rest = bytes.iter();
    for _ in 0..count {
        if rest.next() == Some(&ESCAPE) {
            rest.next();
        }
    }
    bytes.split_at(bytes.len() - rest.len())
}

/// Returns the range of published data (`pmix_data_range_t`).
pub fn range_of<'a>(port: impl Iterator<Item = &'a u8> + Clone) -> Option<u8> {
    unescape(port).nth(RANGE)
}

fn unescaped(bytes: &[u8]) -> impl Iterator<Item = u8> + Clone + use<'_> {
    unescape(bytes.iter())
}

fn unescape<'a, I: Iterator<Item = &'a u8> + Clone>(
    mut bytes: I,
) -> impl Iterator<Item = u8> + Clone + use<'a, I> {
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
        writer.string(b"\x01\x03x;\x02\x04");
        let len = writer.finish().unwrap();
        let info = Reader::new(Integers::Fixed, &bytes[..len]).info().unwrap();
        let mut room = [0; 256];
        let publisher = Party { namespace: b"job;1", rank: 258, host: 1 << 24 };
        let terms = (3, Persistence::Session);
        let once = || core::iter::once(info);
        let len = translate_publish(once(), publisher, terms, &mut room).unwrap();
        let Some(Command::Publish { name, port, persistence: Persistence::Session }) =
            decode_upcall(Protocol::V2, &room[..len])
        else {
            panic!("{}", room[..len].escape_ascii())
        };
        assert_eq!(name, b"\x02a;b"[..]);
        let port: Vec<u8> = port.parts().flatten().copied().collect();
        assert!(!port.contains(&0));
        let read = Published::read(&port).unwrap();
        assert_eq!((read.integers, read.kind, read.range), (Integers::Fixed, info.kind, 3));
        assert_eq!(read.publisher, publisher);
        assert_eq!(read.namespace().collect::<Vec<_>>(), b"job;1");
        assert_eq!(read.key().collect::<Vec<_>>(), b"a;b");
        assert_eq!(read.value().collect::<Vec<_>>(), info.value);
        assert_eq!(translate_publish(once(), publisher, terms, &mut room[..len - 1]), None);
        for port in [&b""[..], b"port", b"\x07234567890123456"] {
            assert_eq!(Published::read(port), None);
        }
    }

    #[test]
    fn a_name_service_is_told_for_whom_it_is_asked() {
        let mut room = [0; 128];
        let party = Party { namespace: b"job.1", rank: 7, host: u32::MAX };
        let len = translate_lookup(&mut [&b"key"[..]].into_iter(), (party, 3), 20, &mut room).unwrap();
        let Some(Command::Lookup { name, wait: Some(20), party: Some(text) }) =
            decode_upcall(Protocol::V2, &room[..len])
        else {
            panic!("{}", room[..len].escape_ascii())
        };
        assert_eq!(name, b"\x02key"[..]);
        assert_eq!(Party::read(text.as_plain().unwrap()), Some((party, 3)));
        for keys in [&[][..], &[&b"key"[..]], &[b"a;b", b"b"], &[b"", b"\x02", b"c"]] {
            let len = translate_unpublish(&mut keys.iter().copied(), party, &mut room).unwrap();
            let Some(Command::Unpublish { name, party: Some(text) }) =
                decode_upcall(Protocol::V2, &room[..len])
            else {
                panic!("{}", room[..len].escape_ascii())
            };
            assert_eq!(Party::read(text.as_plain().unwrap()), Some((party, 0)));
            let names: Vec<Vec<u8>> =
                names_of(name.parts().flatten()).map(|name| name.copied().collect()).collect();
            let expected: Vec<Vec<u8>> = keys.iter().map(|key| [b"\x02", *key].concat()).collect();
            assert_eq!(names, if keys.is_empty() { [b"\x02".to_vec()].into() } else { expected });
        }
        for text in ["", "1", "1.2", "1.2.3", "256.2.3.job", "a.2.3.job"] {
            assert_eq!(Party::read(text.as_bytes()), None, "{text}");
        }
    }
}
