//! Text of a message, whose escapes are removed when it is read.

use core::fmt;

use memchr::{memchr, memchr2};

/// Escape of a protocol for its separators in values.
// As wide as the other words of a text, which is then copied without padding.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// No escapes.
    None,
    /// `;;` stands for `;`, as Slurm's PMI-2 client writes it.
    Semicolon,
    /// `\x` stands for `x`. PMI-1 allows it in any value.
    Backslash,
    /// As [`Escape::Semicolon`], and two bytes for each byte that a C string or this escape cannot hold: 1 and 1 stand for
    /// 0, and 1 and 2 stand for 1. Fields named `escaped-value` of hydrant's PMI-2 have it.
    Binary,
}

/// Value of a field, borrowed from a message.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    raw: &'a [u8],
    escape: Escape,
}

impl<'a> Text<'a> {
    /// Creates a text without escapes.
    pub const fn plain(raw: &'a [u8]) -> Text<'a> {
        Text { raw, escape: Escape::None }
    }

    /// Creates a text from bytes of a message that have this escape. [`Escape::None`] if they contain none.
    pub(super) const fn escaped(raw: &'a [u8], escape: Escape) -> Text<'a> {
        Text { raw, escape }
    }

    /// Returns the same bytes of the message, read with the escapes of [`Escape::Binary`].
    pub(super) const fn binary(self) -> Text<'a> {
        Text { raw: self.raw, escape: Escape::Binary }
    }

    /// Returns whether the text holds NUL.
    pub fn holds_nul(&self) -> bool {
        self.parts().any(|part| memchr(0, part).is_some())
    }

    /// Returns the text in parts without escapes. No part is empty.
    pub fn parts(&self) -> Parts<'a> {
        Parts { rest: self.raw, escape: self.escape }
    }

    /// Returns the length in bytes without escapes.
    pub fn len(&self) -> usize {
        match self.escape {
            Escape::None => self.raw.len(),
            _ => self.parts().map(<[u8]>::len).sum(),
        }
    }

    /// Returns whether the text is empty.
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Returns the bytes, or `None` if they contain escapes.
    pub fn as_plain(&self) -> Option<&'a [u8]> {
        (self.escape == Escape::None).then_some(self.raw)
    }

    /// Returns the bytes as UTF-8, or `None` if they contain escapes or are not UTF-8.
    pub fn as_str(&self) -> Option<&'a str> {
        core::str::from_utf8(self.as_plain()?).ok()
    }

    /// Copies the text without escapes to the front of `buf`. Returns `None` if it does not fit.
    pub fn copy_to<'b>(&self, buf: &'b mut [u8]) -> Option<&'b [u8]> {
        let mut at = 0;
        for part in self.parts() {
            buf.get_mut(at..at + part.len())?.copy_from_slice(part);
            at += part.len();
        }
        buf.get(..at)
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Text<'a> {
        Text::plain(text.as_bytes())
    }
}

impl PartialEq<[u8]> for Text<'_> {
    fn eq(&self, mut other: &[u8]) -> bool {
        if let Some(plain) = self.as_plain() {
            return plain == other;
        }
        for part in self.parts() {
            match other.strip_prefix(part) {
                Some(rest) => other = rest,
                None => return false,
            }
        }
        other.is_empty()
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Text<'_>) -> bool {
        self.parts().flatten().eq(other.parts().flatten())
    }
}

impl Eq for Text<'_> {}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for part in self.parts() {
            write!(f, "{}", part.escape_ascii())?;
        }
        f.write_str("\"")
    }
}

/// Iterator over the parts of a [`Text`].
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    rest: &'a [u8],
    escape: Escape,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        match self.escape {
            Escape::None => Some(core::mem::take(&mut self.rest)),
            _ => Some(self.next_part()),
        }
    }
}

impl<'a> Parts<'a> {
    /// Returns the next part of a text with escapes that is not empty.
    #[cold]
    fn next_part(&mut self) -> &'a [u8] {
        let (part, skip) = match self.escape {
            Escape::None => (self.rest, self.rest.len()),
            // The first semicolon of a pair is the end of a part. The second one is skipped.
            Escape::Semicolon => match self.rest.iter().position(|&b| b == b';') {
                Some(at) => (&self.rest[..=at], (at + 2).min(self.rest.len())),
                None => (self.rest, self.rest.len()),
            },
            // A part starts with the escaped byte and ends before the next backslash.
            Escape::Backslash => {
                let start = usize::from(self.rest[0] == b'\\' && self.rest.len() > 1);
                let len = self.rest[start + 1..]
                    .iter()
                    .position(|&b| b == b'\\')
                    .map_or(self.rest.len(), |at| start + 1 + at);
                (&self.rest[start..len], len)
            }
            Escape::Binary => match memchr2(b';', 1, self.rest) {
                None => (self.rest, self.rest.len()),
                Some(at) if self.rest[at] == b';' => (&self.rest[..=at], (at + 2).min(self.rest.len())),
                Some(0) => match self.rest.get(1) {
                    Some(1) => (&b"\0"[..], 2),
                    Some(2) => (&self.rest[..1], 2),
                    // Writers of hydrant send no such pair.
                    _ => (&self.rest[..1], 1),
                },
                Some(at) => (&self.rest[..at], at),
            },
        };
        self.rest = &self.rest[skip..];
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn undone(raw: &str, escape: Escape) -> std::string::String {
        let text = Text::escaped(raw.as_bytes(), escape);
        let bytes: Vec<u8> = text.parts().flatten().copied().collect();
        assert_eq!(bytes.len(), text.len());
        assert!(text == *bytes.as_slice());
        std::string::String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(undone("a;;b=c;;;;d", Escape::Semicolon), "a;b=c;;d");
        assert_eq!(undone(";;", Escape::Semicolon), ";");
        assert_eq!(undone(r"a\ b\\c\", Escape::Backslash), r"a b\c\");
        assert_eq!(undone(r"\\\\", Escape::Backslash), r"\\");
        assert_eq!(undone(r"a;;\b", Escape::None), r"a;;\b");
        assert_eq!(undone("", Escape::Semicolon), "");
        assert_eq!(undone("\x01\x01a;;\x01\x02\x02\x01\x01", Escape::Binary), "\0a;\x01\x02\0");
        assert_eq!(undone("\x01a;;\x01", Escape::Binary), "\x01a;\x01");
    }
}
