//! Messages of ranks that abort: the last one of each job.
//!
//! A message is kept as text that a host can print: UTF-8 with line feeds and tabs. Other control characters, and bytes that are
//! not UTF-8, are escaped as `\x1b`.

use core::ascii;
use core::ops::Range;
use core::str::from_utf8;

use crate::limits::Limits;

/// Messages of a server's jobs.
#[derive(Debug)]
pub(crate) struct Messages<'s> {
    text: &'s mut [u8],
    /// Bytes for each job.
    room: usize,
}

impl<'s> Messages<'s> {
    /// Creates a table. Returns `None` if `text` has too few bytes for these limits.
    pub(crate) fn new(text: &'s mut [u8], limits: &Limits) -> Option<Messages<'s>> {
        let room = limits.abort_text_max();
        let text = text.get_mut(..room.checked_mul(limits.jobs as usize)?)?;
        Some(Messages { text, room })
    }

    /// Stores the message of a job in place of an earlier one, truncated to its room. Returns its length.
    pub(crate) fn store(&mut self, job: usize, message: impl Iterator<Item = u8>) -> u16 {
        let span = self.span(job);
        let Some(text) = self.text.get_mut(span) else { return 0 };
        text.fill(0);
        write_printable(message, text) as u16
    }

    /// Returns the message of a job.
    pub(crate) fn get(&self, job: usize, len: u16) -> &str {
        let text = self.text.get(self.span(job)).and_then(|text| text.get(..len.into()));
        text.and_then(|text| from_utf8(text).ok()).unwrap_or_default()
    }

    /// Returns whether a job can have a message of that length.
    pub(crate) fn is_sound(&self, job: usize, len: u16) -> bool {
        let text = self.get(job, len);
        text.len() == len.into() && text.chars().all(is_printable)
    }

    /// Returns the texts of the jobs before `jobs`, for a snapshot.
    pub(crate) fn state(&self, jobs: usize) -> &[u8] {
        self.text.get(..jobs * self.room).unwrap_or_default()
    }

    /// Restores the texts of the jobs before `jobs`. Returns false if the length is not theirs.
    pub(crate) fn load(&mut self, jobs: usize, text: &[u8]) -> bool {
        match self.text.get_mut(..jobs * self.room) {
            Some(place) if place.len() == text.len() => {
                place.copy_from_slice(text);
                true
            }
            _ => false,
        }
    }

    fn span(&self, job: usize) -> Range<usize> {
        job * self.room..(job + 1) * self.room
    }
}

fn is_printable(c: char) -> bool {
    matches!(c, '\n' | '\t') || !c.is_control()
}

/// Writes as much of a text as fits, without half a character. Returns the length.
fn write_printable(text: impl Iterator<Item = u8>, out: &mut [u8]) -> usize {
    let mut text = text.peekable();
    let mut len = 0;
    while let Some(first) = text.next() {
        // Lines may end in CR LF.
        if first == b'\r' && text.peek() == Some(&b'\n') {
            continue;
        }
        let (mut character, mut size) = ([first, 0, 0, 0], 1);
        let width = match first {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        while size < width
            && let Some(next) = text.next_if(|byte| byte & 0xc0 == 0x80)
        {
            character[size] = next;
            size += 1;
        }
        let character = &character[..size];
        let fits = match from_utf8(character) {
            Ok(valid) if valid.chars().all(is_printable) => put(out, &mut len, character.iter().copied()),
            _ => character.iter().all(|&byte| put(out, &mut len, ascii::escape_default(byte))),
        };
        if !fits {
            break;
        }
    }
    len
}

/// Appends all of some bytes. Returns false, and appends nothing, if they do not fit.
fn put(out: &mut [u8], len: &mut usize, bytes: impl ExactSizeIterator<Item = u8>) -> bool {
    let end = *len + bytes.len();
    let Some(place) = out.get_mut(*len..end) else { return false };
    place.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    *len = end;
    true
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    fn printable(text: &[u8], room: usize) -> std::string::String {
        let mut out = vec![0; room];
        let len = write_printable(text.iter().copied(), &mut out);
        from_utf8(&out[..len]).unwrap().into()
    }

    #[test]
    fn text_stays_readable_and_controls_are_escaped() {
        assert_eq!(
            printable("café: eins\r\nzwei\tdrei 日本 😀".as_bytes(), 99),
            "café: eins\nzwei\tdrei 日本 😀"
        );
        assert_eq!(printable(b"\x1b[31mred\x07\x7f\r", 99), r"\x1b[31mred\x07\x7f\r");
        assert_eq!(printable("\u{9b}31m".as_bytes(), 99), r"\xc2\x9b31m", "a control character beyond ASCII");
        assert_eq!(printable(b"a\xffb\xc3(\xe2\x82", 99), r"a\xffb\xc3(\xe2\x82");
    }

    #[test]
    fn a_character_is_not_cut() {
        for (text, room, shown) in
            [("éé", 3, "é"), ("日本", 5, "日"), ("a\u{7}", 4, "a"), ("ab", 1, "a"), ("a", 0, "")]
        {
            assert_eq!(printable(text.as_bytes(), room), shown);
        }
    }
}
