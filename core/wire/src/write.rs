//! Writer of messages to a buffer that may be too short.

use core::fmt;

use memchr::{memchr2, memchr3};

use super::token::Text;

/// Error of encoding a message. The content of the buffer is then unspecified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// A message longer than the buffer, or than [`crate::limits::MESSAGE_MAX`].
    DoesNotFit,
    /// A text with a byte that the protocol cannot carry: NUL, or a line feed in PMI-1.
    Unprintable,
    /// A command that the protocol does not have.
    Unsupported,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EncodeError::DoesNotFit => "the message is longer than its buffer",
            EncodeError::Unprintable => "a text holds a byte that the protocol cannot carry",
            EncodeError::Unsupported => "the protocol has no such command",
        })
    }
}

impl core::error::Error for EncodeError {}

/// Returns the decimal digits of a number, written to the end of `room`.
pub fn decimal(number: u32, room: &mut [u8; 10]) -> &[u8] {
    let mut rest = number;
    let mut start = room.len();
    loop {
        start -= 1;
        room[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &room[start..];
        }
    }
}

/// Escapes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Replies and blocks of PMI-1: none, because its clients treat escapes differently.
    Line,
    /// Commands of PMI-1: `\` before each blank and backslash, except in the [last](Writer::last) field.
    EscapedLine,
    /// PMI-2: doubled semicolons.
    Counted,
    /// Values of PMI-2 that hold NUL: [`Escape::Binary`](super::token::Escape::Binary).
    Binary,
}

impl Style {
    /// Returns the position of the first byte that needs an escape, or that the protocol cannot carry.
    fn special(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Style::Line => memchr2(b'\n', 0, bytes),
            Style::EscapedLine => bytes.iter().position(|b| b"\n\0 \\".contains(b)),
            Style::Counted => memchr2(b';', 0, bytes),
            Style::Binary => memchr3(b';', 0, 1, bytes),
        }
    }

    /// Returns the bytes that stand for a special byte, or `None` if the protocol cannot carry that byte.
    fn escape(self, special: u8) -> Option<&'static [u8]> {
        match (self, special) {
            (Style::EscapedLine, b' ') => Some(br"\ "),
            (Style::EscapedLine, b'\\') => Some(br"\\"),
            (Style::Counted | Style::Binary, b';') => Some(b";;"),
            (Style::Binary, 0) => Some(&[1, 1]),
            (Style::Binary, 1) => Some(&[1, 2]),
            _ => None,
        }
    }
}

/// Writer into a buffer. Errors are stored until [`Writer::finish`], so callers do not check each step.
#[derive(Debug)]
pub(super) struct Writer<'b> {
    buf: &'b mut [u8],
    at: usize,
    style: Style,
    failed: Option<EncodeError>,
}

impl<'b> Writer<'b> {
    pub(super) fn new(buf: &'b mut [u8], style: Style) -> Writer<'b> {
        Writer { buf, at: 0, style, failed: None }
    }

    /// Writes bytes without escapes.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        let end = self.at.saturating_add(bytes.len());
        match self.buf.get_mut(self.at..end) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.at = end;
            }
            None => self.fail(EncodeError::DoesNotFit),
        }
        self
    }

    /// Writes bytes with the escapes of the style.
    pub(super) fn escaped(&mut self, bytes: &[u8]) -> &mut Self {
        let mut rest = bytes;
        while let Some(at) = self.style.special(rest) {
            let Some(escape) = self.style.escape(rest[at]) else {
                self.fail(EncodeError::Unprintable);
                return self;
            };
            self.raw(&rest[..at]).raw(escape);
            rest = &rest[at + 1..];
        }
        self.raw(rest)
    }

    /// Writes a text, with the escapes of the style.
    pub(super) fn text(&mut self, text: &Text<'_>) -> &mut Self {
        if let Some(plain) = text.as_plain() {
            return self.escaped(plain);
        }
        for part in text.parts() {
            self.escaped(part);
        }
        self
    }

    /// Writes a text that may hold NUL, with the escapes of [`Style::Binary`].
    pub(super) fn binary(&mut self, text: &Text<'_>) -> &mut Self {
        self.styled(Style::Binary, text)
    }

    /// Writes the text at the end of a line, which has no escapes.
    pub(super) fn last(&mut self, text: &Text<'_>) -> &mut Self {
        self.styled(Style::Line, text)
    }

    fn styled(&mut self, style: Style, text: &Text<'_>) -> &mut Self {
        let style = core::mem::replace(&mut self.style, style);
        self.text(text);
        self.style = style;
        self
    }

    /// Writes a number in decimal.
    pub(super) fn number(&mut self, number: u32) -> &mut Self {
        self.raw(decimal(number, &mut [0; 10]))
    }

    /// Writes a number that may be negative.
    pub(super) fn integer(&mut self, number: i32) -> &mut Self {
        if number < 0 {
            self.raw(b"-");
        }
        self.number(number.unsigned_abs())
    }

    /// Writes the `Display` output of `value`, with underscores for blanks in PMI-1.
    pub(super) fn display(&mut self, value: &dyn fmt::Display) -> &mut Self {
        // The writer stores its own errors, and `Display` does not fail otherwise.
        let _ = fmt::write(self, format_args!("{value}"));
        self
    }

    /// Writes a text that a blank would end, with underscores for blanks in PMI-1.
    pub(super) fn token(&mut self, text: &Text<'_>) -> &mut Self {
        for part in text.parts() {
            self.underscored(part);
        }
        self
    }

    fn underscored(&mut self, bytes: &[u8]) {
        if self.style == Style::Counted {
            self.escaped(bytes);
            return;
        }
        for (i, word) in bytes.split(|&b| b == b' ').enumerate() {
            if i > 0 {
                self.raw(b"_");
            }
            self.escaped(word);
        }
    }

    /// Stores an error. A text that cannot be carried takes precedence over a short buffer, because a longer buffer
    /// would not help.
    pub(super) fn fail(&mut self, why: EncodeError) {
        if self.failed != Some(EncodeError::Unprintable) {
            self.failed = Some(why);
        }
    }

    /// Writes the length of the message into its first six bytes, right-aligned as MPICH does.
    pub(super) fn count(&mut self) -> &mut Self {
        const PREFIX: usize = super::frame::PREFIX as usize;
        if let Some(prefix) = self.buf.first_chunk_mut::<PREFIX>() {
            *prefix = super::frame::count(self.at.saturating_sub(PREFIX));
        }
        self
    }

    /// Returns the message, if it was written completely.
    pub(super) fn finish(self) -> Result<&'b [u8], EncodeError> {
        let Writer { buf, at, failed, .. } = self;
        match failed {
            Some(why) => Err(why),
            None if at > crate::limits::MESSAGE_MAX as usize => Err(EncodeError::DoesNotFit),
            None => buf.get(..at).ok_or(EncodeError::DoesNotFit),
        }
    }
}

impl fmt::Write for Writer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.underscored(text.as_bytes());
        Ok(())
    }
}
