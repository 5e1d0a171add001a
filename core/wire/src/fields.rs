//! Fields of a message: `key=value` pairs.

use memchr::{memchr, memchr2};

use super::scan;
use super::token::{Escape, Text};
use crate::Refusal;

/// Pairs of a message in their order. Tokens without `=` are skipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairs<'a> {
    rest: &'a [u8],
    /// Bytes that end a pair.
    separators: [u8; 2],
    /// Escape of a separator in a value.
    escape: Escape,
    /// Key whose value extends to the end of the line.
    last: &'static [u8],
}

impl<'a> Pairs<'a> {
    /// Reads a PMI-1 line. The value of `last` extends to its end and has no escapes.
    pub(super) fn line(rest: &'a [u8], last: &'static [u8]) -> Pairs<'a> {
        Pairs { rest, separators: [b' '; 2], escape: Escape::Backslash, last }
    }

    /// Reads a PMI-1 reply, which may have several lines. Replies have no escapes.
    pub(super) fn reply(rest: &'a [u8], last: &'static [u8]) -> Pairs<'a> {
        Pairs { rest, separators: [b' ', b'\n'], escape: Escape::None, last }
    }

    /// Reads PMI-1 blocks. Blocks have no escapes: MPICH 5 sends `arg1=\n` for a backslash and an n.
    pub(super) fn block(rest: &'a [u8]) -> Pairs<'a> {
        Pairs { rest, separators: [b'\n'; 2], escape: Escape::None, last: b"" }
    }

    /// Reads a PMI-2 message, where a semicolon ends each pair.
    pub(super) fn counted(rest: &'a [u8]) -> Pairs<'a> {
        Pairs { rest, separators: [b';'; 2], escape: Escape::Semicolon, last: b"" }
    }

    /// Returns the bytes that have not been read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the pairs in the first `len` bytes.
    pub(super) fn truncated(self, len: usize) -> Pairs<'a> {
        Pairs { rest: self.rest.get(..len).unwrap_or(self.rest), ..self }
    }

    /// Returns the pairs after the first `len` bytes.
    pub(super) fn skipped(self, len: usize) -> Pairs<'a> {
        Pairs { rest: self.rest.get(len..).unwrap_or_default(), ..self }
    }

    /// Reads the next key and its `=`, or a whole token without `=`.
    fn key(&mut self) -> Option<(&'a [u8], bool)> {
        // Keys are short: a search by words does not pay.
        let [one, other] = self.separators;
        let end = self.rest.iter().position(|&b| b == b'=' || b == one || b == other)?;
        let (key, from) = self.rest.split_at(end);
        let (&mark, after) = from.split_first()?;
        self.rest = after;
        Some((key, mark == b'='))
    }

    /// Returns the length of a value, and the escape that it contains. Returns `None` if a required separator is missing.
    #[inline]
    fn value(&self, is_last: bool) -> Option<(usize, Escape)> {
        let whole = self.rest.len();
        let [one, other] = self.separators;
        match self.escape {
            _ if is_last => Some((whole, Escape::None)),
            Escape::Backslash => Some(self.word()),
            Escape::Semicolon => self.semicolon(),
            Escape::None | Escape::Binary => {
                Some((memchr2(one, other, self.rest).unwrap_or(whole), Escape::None))
            }
        }
    }

    /// Returns the position of the first semicolon without an escape, and the escape of the bytes before it.
    fn semicolon(&self) -> Option<(usize, Escape)> {
        // MPICH 4.0.2 sends junk after the last semicolon. It is ignored.
        let mut at = memchr(b';', self.rest)?;
        let mut escape = Escape::None;
        while self.rest.get(at + 1) == Some(&b';') {
            escape = self.escape;
            at += 2;
            at += memchr(b';', self.rest.get(at..)?)?;
        }
        Some((at, escape))
    }

    /// Returns the position of the first blank without an escape, and the escape of the bytes before it.
    fn word(&self) -> (usize, Escape) {
        match memchr2(b' ', b'\\', self.rest) {
            Some(at) if self.rest[at] == b'\\' => (self.escaped_word(), Escape::Backslash),
            Some(at) => (at, Escape::None),
            None => (self.rest.len(), Escape::None),
        }
    }

    #[cold]
    fn escaped_word(&self) -> usize {
        let mut escaped = false;
        let end = self.rest.iter().position(|&b| {
            let ends = !escaped && b == b' ';
            escaped = !escaped && b == b'\\';
            ends
        });
        end.unwrap_or(self.rest.len())
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], Text<'a>);

    #[inline]
    fn next(&mut self) -> Option<(&'a [u8], Text<'a>)> {
        loop {
            let (key, has_value) = self.key()?;
            if !has_value {
                continue;
            }
            let (end, escape) = self.value(!self.last.is_empty() && key == self.last)?;
            let (value, after) = self.rest.split_at(end);
            self.rest = after.get(1..).unwrap_or_default();
            return Some((key, Text::escaped(value, escape)));
        }
    }
}

/// Pairs of a message, which are read once for the keys of its command.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    pairs: Pairs<'a>,
    /// Thread id, set by [`Fields::pick`].
    pub(super) thrid: Option<Text<'a>>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(pairs: Pairs<'a>) -> Fields<'a> {
        Fields { pairs, thrid: None }
    }

    /// Returns the pairs.
    pub(super) fn pairs(&self) -> Pairs<'a> {
        self.pairs
    }

    /// Returns the values of `keys`, in any order in the message. The first one counts if a key is repeated.
    pub(super) fn pick<const N: usize>(&mut self, keys: [&[u8]; N]) -> [Option<Text<'a>>; N] {
        let mut values = [None; N];
        // Most fences and other short commands have no fields.
        if !self.pairs.rest.is_empty() {
            self.pick_into(&keys, &mut values);
        }
        values
    }

    /// Adds the values of `keys`, and the thread id.
    #[inline(never)]
    fn pick_into(&mut self, keys: &[&[u8]], values: &mut [Option<Text<'a>>]) {
        for (key, value) in self.pairs {
            if let Some(slot) =
                keys.iter().zip(&mut *values).find_map(|(&known, slot)| (known == key).then_some(slot))
            {
                slot.get_or_insert(value);
            } else if key == b"thrid" {
                self.thrid.get_or_insert(value);
            }
        }
    }
}

/// Returns a required field.
pub(super) fn need<T>(field: Option<T>) -> Result<T, Refusal> {
    field.ok_or(Refusal::MissingField)
}

/// Returns an optional field. An empty one counts as missing.
pub(super) fn filled(field: Option<Text<'_>>) -> Option<Text<'_>> {
    field.filter(|text| !text.is_empty())
}

/// Parses a number without sign.
pub(super) fn number(text: Text<'_>) -> Result<u32, Refusal> {
    text.as_plain().and_then(scan::number).ok_or(Refusal::BadField)
}

/// Parses a number that may be negative.
pub(super) fn integer(text: Text<'_>) -> Result<i32, Refusal> {
    text.as_plain().and_then(scan::integer).ok_or(Refusal::BadField)
}

/// Parses `TRUE` or `FALSE`. Returns `missing` without the field.
pub(super) fn boolean(field: Option<Text<'_>>, missing: bool) -> Result<bool, Refusal> {
    match field.map(|text| text.as_plain()) {
        None => Ok(missing),
        Some(Some(b"TRUE")) => Ok(true),
        Some(Some(b"FALSE")) => Ok(false),
        Some(_) => Err(Refusal::BadField),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    fn read(pairs: Pairs<'_>) -> Vec<(String, String)> {
        pairs
            .map(|(key, value)| {
                let value: Vec<u8> = value.parts().flatten().copied().collect();
                (String::from_utf8(key.to_vec()).unwrap(), String::from_utf8(value).unwrap())
            })
            .collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.into(), value.into())
    }

    #[test]
    fn slurm_doubles_semicolons() {
        // 41    cmd=kvs-put;key=semi-0;value=a;;b=c;;;;d;
        let pairs = Pairs::counted(b"key=semi-0;value=a;;b=c;;;;d;");
        assert_eq!(read(pairs), [pair("key", "semi-0"), pair("value", "a;b=c;;d")]);
        assert_eq!(read(Pairs::counted(b"a=;b=;;;c=;")), [pair("a", ""), pair("b", ";"), pair("c", "")]);
    }

    #[test]
    fn junk_behind_the_last_semicolon_is_passed_over() {
        // The end of MPICH 4.0.2's spawn: infokeycount=0;0.1$;\0
        assert_eq!(read(Pairs::counted(b"infokeycount=0;0.1$;")), [pair("infokeycount", "0")]);
        assert_eq!(read(Pairs::counted(b"key=a;value=b")), [pair("key", "a")]);
        assert_eq!(read(Pairs::counted(b";;x;;a=b;")), [pair("a", "b")]);
        assert_eq!(read(Pairs::counted(b"a=b;;")), []);
    }

    #[test]
    fn lines_may_escape() {
        let pairs = Pairs::line(br"  key=a\ b  flag value=\\ x\", b"");
        assert_eq!(read(pairs), [pair("key", "a b"), pair("value", r"\")]);
        let last = Pairs::line(br"key=\a value=b c=d\ \\ ", b"value");
        assert_eq!(read(last), [pair("key", "a"), pair("value", r"b c=d\ \\ ")]);
        assert_eq!(read(Pairs::reply(br"a=b\ c=d\", b"")), [pair("a", r"b\"), pair("c", r"d\")]);
    }

    #[test]
    fn the_first_of_two_counts_in_any_order() {
        let mut fields = Fields::new(Pairs::counted(b"b=1;thrid=9;a=2;b=3;"));
        let [a, b, c] = fields.pick([b"a", b"b", b"c"]).map(|text| text.and_then(|text| text.as_plain()));
        assert_eq!((a, b, c), (Some(&b"2"[..]), Some(&b"1"[..]), None));
        assert_eq!(fields.thrid.unwrap().as_str(), Some("9"));
    }
}
