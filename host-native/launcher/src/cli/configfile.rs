//! Configuration file: one program per line, quoted as in a shell.

use std::path::Path;
use std::sync::Arc;

use super::argument::{Argument, Location};
use super::error::UsageError;
use crate::quoting::{QuotingError, Word, split};

/// Reads the arguments of each line. Empty lines are skipped.
pub(super) fn read(file: &Path) -> Result<Vec<Vec<Argument>>, UsageError> {
    let text =
        std::fs::read(file).map_err(|error| UsageError::Unreadable { file: file.to_owned(), error })?;
    let path: Arc<Path> = file.into();
    let location = |line| Location::Line(Arc::clone(&path), line);
    let lines = split(&text).map_err(|error| match error {
        QuotingError::OpenQuote { line, quote } => UsageError::OpenQuote { location: location(line), quote },
        QuotingError::Nul { line } => UsageError::Nul { location: location(line) },
    })?;
    if lines.is_empty() {
        return Err(UsageError::EmptyFile(file.to_owned()));
    }
    let argument = |word: Word| Argument { text: word.text, location: location(word.line) };
    Ok(lines.into_iter().map(|words| words.into_iter().map(argument).collect()).collect())
}
