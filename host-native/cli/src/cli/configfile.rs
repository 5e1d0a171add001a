//! Configuration file: one program per line, quoted as in a shell.

use std::path::Path;
use std::sync::Arc;

use hydrant_placement::hostfile::without_byte_order_mark;
use hydrant_reactor::file::{self, TEXT_MAX, Taken};

use super::argument::{Argument, Location};
use super::error::UsageError;
use crate::quoting::{QuotingError, Word, split};

/// Reads the arguments of each line. Empty lines are skipped. A `:` at the end or the beginning of a line is left out: MPICH
/// up to 4.2 needed one between the programs.
pub(super) fn read(file: &Path) -> Result<Vec<Vec<Argument>>, UsageError> {
    let text = file::read(file, Taken::Streams, TEXT_MAX)
        .map_err(|error| UsageError::Unreadable { file: file.to_owned(), error: error.into() })?;
    let path: Arc<Path> = file.into();
    let location = |line| Location::Line(Arc::clone(&path), line);
    let lines = split(without_byte_order_mark(&text)).map_err(|error| match error {
        QuotingError::OpenQuote { line, quote } => UsageError::OpenQuote { location: location(line), quote },
        QuotingError::Nul { line } => UsageError::Nul { location: location(line) },
    })?;
    let argument = |word: Word| Argument { text: word.text, location: location(word.line) };
    let without_colons = |mut words: Vec<Word>| {
        words.pop_if(|last| last.text == ":");
        let start = usize::from(words.first().is_some_and(|first| first.text == ":"));
        words.into_iter().skip(start).map(argument).collect::<Vec<_>>()
    };
    let lines: Vec<Vec<Argument>> =
        lines.into_iter().map(without_colons).filter(|words| !words.is_empty()).collect();
    if lines.is_empty() {
        return Err(UsageError::EmptyFile(file.to_owned()));
    }
    Ok(lines)
}
