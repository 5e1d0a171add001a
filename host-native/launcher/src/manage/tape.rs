//! The recording of a board: what its core is told and says, which it sends over a connection of its own.

use std::fs::File;
use std::io::{self, BufWriter};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};

use super::{Link, LinkError};
use crate::recording::{Record, TapeError, Writer, begin};

/// A recording that is being made, in a file as `hydrant run --record` writes it.
#[derive(Debug)]
pub(super) struct BoardTape {
    link: Link,
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    record: Vec<u8>,
    /// The board has said that nothing is missing.
    whole: bool,
}

impl BoardTape {
    /// Takes down what comes over `link`, on which the board has agreed to send it.
    pub(super) fn new(link: Link, path: &Path) -> Result<BoardTape, TapeError> {
        let writer = begin(path).map_err(|why| TapeError { path: path.to_owned(), why })?;
        Ok(BoardTape { link, path: path.to_owned(), writer, record: Vec::new(), whole: false })
    }

    /// The connection.
    pub(super) fn stream(&self) -> &TcpStream {
        self.link.stream()
    }

    /// Takes down what has come. False once the board has sent the last of it.
    pub(super) fn pump(&mut self) -> Result<bool, TapeError> {
        self.take_down().map_err(|why| TapeError { path: self.path.clone(), why })
    }

    fn take_down(&mut self) -> io::Result<bool> {
        match self.link.fill() {
            Ok(()) => {}
            Err(LinkError::Io(error)) => return Err(error),
            Err(other) => return Err(io::Error::other(other)),
        }
        while self.link.next_recorded(&mut self.record) {
            let record: Record<'_> = postcard::from_bytes(&self.record)
                .map_err(|_| io::Error::other("the board sends something that is no recording"))?;
            if let Record::End { .. } = record {
                self.whole = true;
                self.writer.finish()?;
            } else {
                self.writer.write(&record)?;
            }
        }
        match (self.link.is_ended(), self.whole) {
            (_, true) => Ok(false),
            (true, false) => Err(io::Error::other("the board has closed the connection before its end")),
            (false, false) => Ok(true),
        }
    }

    /// Asks the board for the last record.
    pub(super) fn end(&self) -> io::Result<()> {
        self.link.stream().shutdown(Shutdown::Write)
    }
}
