//! Configuration file: one program per line, quoted as in a shell.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;

use super::argument::{Argument, Location};
use super::error::UsageError;

/// Reads the arguments of each line. Empty lines are skipped.
pub(super) fn read(file: &Path) -> Result<Vec<Vec<Argument>>, UsageError> {
    let text =
        std::fs::read(file).map_err(|error| UsageError::Unreadable { file: file.to_owned(), error })?;
    let lines = parse(file.into(), &text)?;
    if lines.is_empty() { Err(UsageError::EmptyFile(file.to_owned())) } else { Ok(lines) }
}

/// Splits text into lines of arguments. Error messages name `file`.
pub(super) fn parse(file: Arc<Path>, text: &[u8]) -> Result<Vec<Vec<Argument>>, UsageError> {
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
                // A backslash at the end continues the line.
                Some(b'\n') => {}
                Some(escaped) => reader.push(escaped),
                None => reader.push(b'\\'),
            },
            0 => return Err(UsageError::Nul { location: reader.location() }),
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
    /// Line of the next byte, counted from 1.
    line: usize,
    /// Incomplete word and its location.
    word: Option<(Location, Vec<u8>)>,
}

impl Reader<'_> {
    fn location(&self) -> Location {
        Location::Line(Arc::clone(&self.file), self.line)
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

    /// Bytes of the incomplete word. Starts a new word if there is none, so `''` is an empty word.
    fn open(&mut self) -> &mut Vec<u8> {
        let location = self.location();
        &mut self.word.get_or_insert_with(|| (location, Vec::new())).1
    }

    fn finish(&mut self) -> Option<Argument> {
        let (location, bytes) = self.word.take()?;
        Some(Argument { location, text: OsString::from_vec(bytes) })
    }

    fn skip_comment(&mut self) {
        let end = self.rest.iter().position(|&byte| byte == b'\n').unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    /// Reads up to the closing quote. A backslash escapes `"`, `\`, `$` and the backquote within double quotes; within
    /// single quotes it is an ordinary byte.
    fn quoted(&mut self, quote: u8) -> Result<(), UsageError> {
        let location = self.location();
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
                Some(0) => return Err(UsageError::Nul { location: self.location() }),
                Some(byte) => self.push(byte),
                None => return Err(UsageError::OpenQuote { location, quote: char::from(quote) }),
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
        assert_eq!(error, "job line 3: unclosed quote '");
        let error = lines(b"a\n\"b\\").unwrap_err().to_string();
        assert_eq!(error, "job line 2: unclosed quote \"");
        let error = lines(b"a\nb\0").unwrap_err().to_string();
        assert_eq!(error, "job line 2: NUL byte; an argument cannot contain one");
        let error = lines(b"a '\0'").unwrap_err().to_string();
        assert_eq!(error, "job line 1: NUL byte; an argument cannot contain one");
    }

    #[test]
    fn a_word_has_the_line_of_its_first_byte() {
        let lines = parse(Path::new("job").into(), b"a 'b\nc' d\ne").unwrap();
        let locations: Vec<String> = lines.iter().flatten().map(|word| word.location.to_string()).collect();
        assert_eq!(locations, ["job line 1", "job line 1", "job line 2", "job line 3"]);
    }
}
