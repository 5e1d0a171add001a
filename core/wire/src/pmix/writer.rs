//! Writer of PMIx elements, which also measures them.

use super::{Integers, event, keys, kind};

/// Writer of elements to the front of a buffer.
///
/// Bytes that do not fit are counted and not stored: a writer with an empty buffer measures.
#[derive(Debug)]
pub struct Writer<'b> {
    buf: &'b mut [u8],
    len: usize,
    integers: Integers,
}

impl<'b> Writer<'b> {
    /// Starts at the front of `buf`.
    pub const fn new(integers: Integers, buf: &'b mut [u8]) -> Writer<'b> {
        Writer { buf, len: 0, integers }
    }

    /// Returns the encoding of integers.
    pub const fn integers(&self) -> Integers {
        self.integers
    }

    /// Returns the number of bytes written, stored or not.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether nothing was written.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the length of the message, or `None` if it did not fit.
    pub fn finish(&self) -> Option<usize> {
        (self.len <= self.buf.len()).then_some(self.len)
    }

    /// Writes bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        let end = self.len.saturating_add(bytes.len());
        if let Some(room) = self.buf.get_mut(self.len..end) {
            room.copy_from_slice(bytes);
        }
        self.len = end;
    }

    /// Writes one byte.
    pub fn byte(&mut self, byte: u8) {
        self.raw(&[byte]);
    }

    /// Returns the length of what `write` writes.
    fn measure(&self, write: impl FnOnce(&mut Writer<'_>)) -> usize {
        let mut measured = Writer { buf: &mut [], len: 0, integers: self.integers };
        write(&mut measured);
        measured.len
    }

    fn flexible(&mut self, mut number: u64) {
        for _ in 0..8 {
            if number < 0x80 {
                return self.byte(number as u8);
            }
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    fn unsigned(&mut self, number: u64, width: usize) {
        match self.integers {
            Integers::Flexible => self.flexible(number),
            Integers::Fixed => self.raw(&number.to_be_bytes()[8 - width..]),
        }
    }

    /// Writes an INT32 or a STATUS.
    pub fn int32(&mut self, number: i32) {
        match self.integers {
            Integers::Flexible => self.int64(number.into()),
            Integers::Fixed => self.raw(&number.to_be_bytes()),
        }
    }

    /// Writes an INT64, or one half of a TIMEVAL.
    pub fn int64(&mut self, number: i64) {
        match self.integers {
            Integers::Flexible => self.flexible(((number << 1) ^ (number >> 63)) as u64),
            Integers::Fixed => self.raw(&number.to_be_bytes()),
        }
    }

    /// Writes a UINT64 or a TIME.
    pub fn uint64(&mut self, number: u64) {
        self.unsigned(number, 8);
    }

    /// Writes an INT.
    pub fn int(&mut self, number: i32) {
        if self.integers == Integers::Fixed {
            self.data_type(kind::INT32);
        }
        self.int32(number);
    }

    /// Writes a UINT32, a PROC_RANK or the flags of an INFO.
    pub fn uint32(&mut self, number: u32) {
        self.unsigned(number.into(), 4);
    }

    /// Writes a UINT16.
    pub fn uint16(&mut self, number: u16) {
        self.unsigned(number.into(), 2);
    }

    /// Writes the number of a type.
    pub fn data_type(&mut self, kind: u16) {
        self.uint16(kind);
    }

    /// Writes a SIZE.
    pub fn size(&mut self, number: u64) {
        if self.integers == Integers::Fixed {
            self.data_type(kind::UINT64);
        }
        self.unsigned(number, 8);
    }

    /// Writes the number of elements of a pack.
    pub fn count(&mut self, count: u32) {
        self.int32(i32::try_from(count).unwrap_or(i32::MAX));
    }

    /// Writes the header of a pack with one element.
    pub fn single(&mut self) {
        self.count(1);
    }

    /// Writes the length of an array, and the header of the pack of its elements.
    pub fn array(&mut self, len: u32) {
        self.single();
        self.size(len.into());
        if len > 0 {
            self.count(len);
        }
    }

    /// Writes a pack with one STATUS.
    pub fn status(&mut self, status: i32) {
        self.single();
        self.int32(status);
    }

    /// Writes a STRING.
    pub fn string(&mut self, text: &[u8]) {
        self.string_of(|writer| writer.raw(text));
    }

    /// Writes the STRING without bytes that stands for none.
    pub fn null_string(&mut self) {
        self.int32(0);
    }

    /// Writes a STRING of the bytes that `write` writes, which is called twice.
    pub fn string_of(&mut self, write: impl Fn(&mut Writer<'_>)) {
        let len = self.measure(&write);
        self.count(u32::try_from(len + 1).unwrap_or(u32::MAX));
        write(self);
        self.byte(0);
    }

    /// Writes the value of a BYTE_OBJECT of the bytes that `write` writes, which is called twice.
    pub fn blob_of(&mut self, write: impl Fn(&mut Writer<'_>)) {
        let len = self.measure(&write);
        self.size(len as u64);
        write(self);
    }

    /// Writes a PROC.
    pub fn proc(&mut self, namespace: &[u8], rank: u32) {
        self.string(namespace);
        self.uint32(rank);
    }

    /// Writes a PID, which has the type of its number in front.
    pub fn pid(&mut self, pid: u32) {
        self.data_type(kind::UINT32);
        self.uint32(pid);
    }

    /// Writes an event up to the array of its INFOs: its code, and the process that it is from.
    pub fn event(&mut self, code: i32, namespace: &[u8], rank: u32) {
        self.single();
        self.byte(event::COMMAND);
        self.single();
        self.int32(code);
        self.single();
        self.proc(namespace, rank);
    }

    /// Writes the INFO that an event is not for handlers of all events.
    pub fn not_default(&mut self) {
        self.info(keys::EVENT_NON_DEFAULT, kind::BOOL);
        self.byte(1);
    }

    /// Writes a pack with one KVAL, up to its value.
    pub fn key(&mut self, key: &[u8], kind: u16) {
        self.single();
        self.string(key);
        self.data_type(kind);
    }

    /// Writes a pack with one KVAL with a UINT32.
    pub fn key_uint32(&mut self, key: &[u8], number: u32) {
        self.key(key, kind::UINT32);
        self.uint32(number);
    }

    /// Writes an INFO without flags, up to its value.
    pub fn info(&mut self, key: &[u8], kind: u16) {
        self.string(key);
        self.uint32(0);
        self.data_type(kind);
    }
}
