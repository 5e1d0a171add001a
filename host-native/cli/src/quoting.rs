//! Shell quoting: text split into lines of words.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Word without its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: OsString,
    /// Line of its first byte, counted from 1.
    pub(crate) line: usize,
}

/// Malformed text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuotingError {
    /// Quote without its counterpart.
    #[error("unclosed quote {quote}")]
    OpenQuote { line: usize, quote: char },
    /// NUL byte.
    #[error("NUL byte; an argument cannot contain one")]
    Nul { line: usize },
}

/// Splits text into lines of words. Lines without words are left out.
pub(crate) fn split(text: &[u8]) -> Result<Vec<Vec<Word>>, QuotingError> {
    let mut reader = Reader { rest: text, line: 1, word: None };
    let mut lines = Vec::new();
    let mut words = Vec::new();
    while let Some(byte) = reader.next() {
        match byte {
            b'\n' => {
                words.extend(reader.finish());
                if !words.is_empty() {
                    lines.push(std::mem::take(&mut words));
                }
            }
            b' ' | b'\t' | b'\r' => words.extend(reader.finish()),
            b'#' if reader.word.is_none() => reader.skip_comment(),
            b'\'' | b'"' => reader.quoted(byte)?,
            b'\\' => match reader.next() {
                // A backslash at the end continues the line.
                Some(b'\n') => {}
                Some(escaped) => reader.push(escaped),
                None => reader.push(b'\\'),
            },
            0 => return Err(QuotingError::Nul { line: reader.line }),
            plain => reader.push(plain),
        }
    }
    words.extend(reader.finish());
    if !words.is_empty() {
        lines.push(words);
    }
    Ok(lines)
}

struct Reader<'a> {
    rest: &'a [u8],
    /// Line of the next byte, counted from 1.
    line: usize,
    /// Line and bytes of the incomplete word.
    word: Option<(usize, Vec<u8>)>,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.line += usize::from(byte == b'\n');
        Some(byte)
    }

    fn push(&mut self, byte: u8) {
        self.open().push(byte);
    }

    /// Bytes of the incomplete word. Starts a new word if there is none, so `''` is an empty word.
    fn open(&mut self) -> &mut Vec<u8> {
        let line = self.line;
        &mut self.word.get_or_insert_with(|| (line, Vec::new())).1
    }

    fn finish(&mut self) -> Option<Word> {
        let (line, bytes) = self.word.take()?;
        Some(Word { line, text: OsString::from_vec(bytes) })
    }

    fn skip_comment(&mut self) {
        let end = self.rest.iter().position(|&byte| byte == b'\n').unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    /// Reads up to the closing quote. A backslash escapes `"`, `\`, `$` and the backquote within double quotes; within
    /// single quotes it is an ordinary byte.
    fn quoted(&mut self, quote: u8) -> Result<(), QuotingError> {
        let line = self.line;
        self.open();
        loop {
            match self.next() {
                Some(byte) if byte == quote => return Ok(()),
                Some(b'\\') if quote == b'"' => match self.next() {
                    Some(escaped @ (b'"' | b'\\' | b'$' | b'`')) => self.push(escaped),
                    Some(b'\n') => {}
                    Some(other) => {
                        self.push(b'\\');
                        self.push(other);
                    }
                    None => {}
                },
                Some(0) => return Err(QuotingError::Nul { line: self.line }),
                Some(byte) => self.push(byte),
                None => return Err(QuotingError::OpenQuote { line, quote: char::from(quote) }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Result<Vec<Vec<String>>, QuotingError> {
        let text_of = |word: Word| word.text.into_string().unwrap();
        Ok(split(text)?.into_iter().map(|words| words.into_iter().map(text_of).collect()).collect())
    }

    #[test]
    fn quotes_and_backslashes_work_as_in_a_shell() {
        let text = br#"-n 1 sh -c 'echo "$A" \n' x\ y "a \"b\" \$ \z" '' a'b'"c"d"#;
        let expected = ["-n", "1", "sh", "-c", r#"echo "$A" \n"#, "x y", r#"a "b" $ \z"#, "", "abcd"];
        assert_eq!(lines(text).unwrap(), [expected]);
    }

    #[test]
    fn comments_blank_lines_and_continuations() {
        let text = b"# all\n\n  \t\r\n-n 2 a#b # the first\n#\n-n 3 \\\n  c\r\nd";
        assert_eq!(lines(text).unwrap(), [vec!["-n", "2", "a#b"], vec!["-n", "3", "c"], vec!["d"]]);
        assert_eq!(lines(b"# nothing").unwrap(), Vec::<Vec<String>>::new());
    }

    #[test]
    fn errors_have_the_line() {
        assert_eq!(lines(b"a\nb \\\n c 'd\ne"), Err(QuotingError::OpenQuote { line: 3, quote: '\'' }));
        assert_eq!(lines(b"a\n\"b\\"), Err(QuotingError::OpenQuote { line: 2, quote: '"' }));
        assert_eq!(lines(b"a\nb\0"), Err(QuotingError::Nul { line: 2 }));
        assert_eq!(lines(b"a '\0'"), Err(QuotingError::Nul { line: 1 }));
    }

    #[test]
    fn a_word_has_the_line_of_its_first_byte() {
        let lines = split(b"a 'b\nc' d\ne").unwrap();
        let lines: Vec<usize> = lines.iter().flatten().map(|word| word.line).collect();
        assert_eq!(lines, [1, 1, 2, 3]);
    }
}
