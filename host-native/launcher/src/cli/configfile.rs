//! A file that stands for the rest of the command line: one program to a line, quoted as in a shell.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;

use super::error::{At, UsageError};
use super::words::Word;

/// Reads the programs' words, a vector a line; lines without words are left out.
pub(super) fn read(file: &Path) -> Result<Vec<Vec<Word>>, UsageError> {
    let text =
        std::fs::read(file).map_err(|error| UsageError::Unreadable { file: file.to_owned(), error })?;
    let lines = parse(file.into(), &text)?;
    if lines.is_empty() { Err(UsageError::EmptyFile(file.to_owned())) } else { Ok(lines) }
}

/// Words as [`read`] finds them; `file` is what errors name.
pub(super) fn parse(file: Arc<Path>, text: &[u8]) -> Result<Vec<Vec<Word>>, UsageError> {
    let mut reader = Reader { file, rest: text, line: 1, word: None };
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
                // A line that ends in a backslash goes on in the next.
                Some(b'\n') => {}
                Some(escaped) => reader.push(escaped),
                None => reader.push(b'\\'),
            },
            0 => return Err(UsageError::Nul { at: reader.at() }),
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
    file: Arc<Path>,
    rest: &'a [u8],
    /// Of the next byte.
    line: usize,
    /// The word being read, and where it began.
    word: Option<(At, Vec<u8>)>,
}

impl Reader<'_> {
    fn at(&self) -> At {
        At::Line(Arc::clone(&self.file), self.line)
    }

    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.line += usize::from(byte == b'\n');
        Some(byte)
    }

    fn push(&mut self, byte: u8) {
        self.open().push(byte);
    }

    /// The word being read; a new one where there is none, so that `''` is a word without letters.
    fn open(&mut self) -> &mut Vec<u8> {
        let at = self.at();
        &mut self.word.get_or_insert_with(|| (at, Vec::new())).1
    }

    fn finish(&mut self) -> Option<Word> {
        let (at, bytes) = self.word.take()?;
        Some(Word { at, text: OsString::from_vec(bytes) })
    }

    fn skip_comment(&mut self) {
        let end = self.rest.iter().position(|&byte| byte == b'\n').unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    /// Between single quotes every byte stands for itself; between double quotes a backslash takes the meaning from
    /// the four that have one there.
    fn quoted(&mut self, quote: u8) -> Result<(), UsageError> {
        let at = self.at();
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
                Some(0) => return Err(UsageError::Nul { at: self.at() }),
                Some(byte) => self.push(byte),
                None => return Err(UsageError::OpenQuote { at, quote: char::from(quote) }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Result<Vec<Vec<String>>, UsageError> {
        let lines = parse(Path::new("job").into(), text)?;
        Ok(lines
            .into_iter()
            .map(|words| words.into_iter().map(|word| word.text.into_string().unwrap()).collect())
            .collect())
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
    fn errors_name_the_line() {
        let error = lines(b"a\nb \\\n c 'd\ne").unwrap_err().to_string();
        assert_eq!(error, "job line 3: the quote ' that opens here is never closed");
        let error = lines(b"a\n\"b\\").unwrap_err().to_string();
        assert_eq!(error, "job line 2: the quote \" that opens here is never closed");
        let error = lines(b"a\nb\0").unwrap_err().to_string();
        assert_eq!(error, "job line 2: a NUL byte, which no argument can hold");
        let error = lines(b"a '\0'").unwrap_err().to_string();
        assert_eq!(error, "job line 1: a NUL byte, which no argument can hold");
    }

    #[test]
    fn a_word_knows_the_line_where_it_begins() {
        let lines = parse(Path::new("job").into(), b"a 'b\nc' d\ne").unwrap();
        let at: Vec<String> = lines.iter().flatten().map(|word| word.at.to_string()).collect();
        assert_eq!(at, ["job line 1", "job line 1", "job line 2", "job line 3"]);
    }
}
